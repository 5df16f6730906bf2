/* What comes from a guest's agent: frames of the Connect protocol cut anywhere, and their bytes as text. The first byte says how long the
 * pieces are. However it is cut, the same frames come out; and no byte of output is lost, added or shown as text when it is not. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "api/connect.h"

struct out {
	uint8_t sum[64 * 1024];
	size_t n;
};

static int on_frame(uint8_t flags, struct str payload, void *arg)
{
	struct out *o = arg;
	size_t n = MIN(payload.n, sizeof(o->sum) - o->n);

	memcpy(o->sum + o->n, payload.p, n);
	o->n += n;
	return flags == 7 ? 1 : 0;
}

static int feed(const uint8_t *p, size_t n, size_t cut, struct out *o)
{
	struct connect_reader c;
	size_t at;
	int err = 0;

	o->n = 0;
	connect_reader_init(&c);
	for (at = 0; at < n && !err; at += cut)
		err = connect_feed(&c, (const char *)p + at, MIN(cut, n - at), on_frame, o);
	connect_reader_clear(&c);
	return err;
}

static void text(const uint8_t *p, size_t n, size_t cut)
{
	struct text_hold h = { 0 };
	char *all = malloc(n + 8);
	size_t done = 0, at;

	for (at = 0; all && at < n; at += cut) {
		struct str body;
		char head[4];
		size_t head_n;
		bool is_text;

		text_take(&h, (struct str){ (const char *)p + at, MIN(cut, n - at) }, head, &head_n, &body, &is_text);
		if (done + head_n + body.n > n || h.n > 3)
			abort();
		memcpy(all + done, head, head_n);
		memcpy(all + done + head_n, body.p, body.n);
		if (is_text && !str_is_utf8((struct str){ all + done, head_n + body.n }))
			abort();
		done += head_n + body.n;
		if (done + h.n != at + MIN(cut, n - at))
			abort();
	}
	if (all && (memcmp(all, p, done) || memcmp(h.held, p + done, h.n)))
		abort();
	free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct out whole, pieces;
	size_t cut;
	int a, b;

	if (n < 2)
		return 0;
	cut = p[0] % 64 + 1;
	p++;
	n--;
	a = feed(p, n, n, &whole);
	b = feed(p, n, cut, &pieces);
	if (a != b || whole.n != pieces.n || memcmp(whole.sum, pieces.sum, whole.n))
		abort();
	text(p, n, cut);
	return 0;
}
