/* multipart.c - whatever the body and however it is cut: parts begin, get data and end in that
 * order, and cutting it elsewhere gives the same parts. The first byte says where to cut. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/multipart.h"

struct seen {
	uint64_t hash;
	size_t bytes;
	bool open;
};

static void mix(struct seen *s, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s->hash = (s->hash ^ (uint8_t)p[i]) * 1099511628211ULL;
}

static int begin(const struct multipart_part *part, void *arg)
{
	struct seen *s = arg;

	assert(!s->open);
	assert(part->filename.n < MULTIPART_HEAD_MAX && part->name.n < MULTIPART_HEAD_MAX);
	s->open = true;
	mix(s, "[", 1);
	mix(s, part->name.p, part->name.n);
	mix(s, "|", 1);
	mix(s, part->filename.p, part->filename.n);
	return 0;
}

static int data(struct str piece, void *arg)
{
	struct seen *s = arg;

	assert(s->open && piece.n > 0);
	s->bytes += piece.n;
	mix(s, piece.p, piece.n);
	return 0;
}

static int end(void *arg)
{
	struct seen *s = arg;

	assert(s->open);
	s->open = false;
	mix(s, "]", 1);
	return 0;
}

static const struct multipart_cb cb = { begin, data, end };

static int parse(const char *p, size_t n, size_t step, struct seen *s)
{
	struct multipart m;
	int r = multipart_init(&m, "B", &cb, s);

	assert(r == 0);
	for (size_t at = 0; r == 0 && at < n; at += step)
		r = multipart_feed(&m, (struct str){ p + at, MIN(step, n - at) });
	if (r == 0)
		r = multipart_finish(&m);
	assert(r != 0 || !s->open);
	multipart_clear(&m);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct seen whole = { 0 }, cut = { 0 };
	char out[MULTIPART_BOUNDARY_MAX + 1];
	int a, b;

	if (n < 2)
		return 0;
	(void)multipart_boundary((struct str){ (const char *)p, n }, out);
	a = parse((const char *)p + 1, n - 1, n, &whole);
	b = parse((const char *)p + 1, n - 1, 1 + p[0] % 64, &cut);
	assert(a == b);
	assert(a != 0 || (whole.hash == cut.hash && whole.bytes == cut.bytes));
	assert(whole.bytes <= n);
	return 0;
}
