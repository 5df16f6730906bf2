/* Event streams: the events do not depend on how the stream is cut. The first byte is the length of the pieces. */
#include "fuzz.h"

#include "http/client.h"

#define EVENT_MAX 64

static void on_event(struct str id, struct str event, struct str data, void *arg)
{
	struct buf *b = arg;

	FUZZ_CHECK(id.n <= EVENT_MAX && event.n <= EVENT_MAX && data.n <= EVENT_MAX);
	FUZZ_CHECK(id.n == 0 || !memchr(id.p, 0, id.n));
	if (buf_adds(b, id) < 0 || buf_addc(b, 1) < 0 || buf_adds(b, event) < 0 || buf_addc(b, 2) < 0 || buf_adds(b, data) < 0 ||
	    buf_addc(b, 3) < 0)
		abort();
}

static int feed(struct str in, size_t step, struct buf *out)
{
	struct sse_reader *r = sse_reader_new(EVENT_MAX, on_event, out);
	int e = 0;

	while (in.n && e == 0) {
		size_t n = MIN(step, in.n);

		e = sse_reader_feed(r, in.p, n);
		in.p += n;
		in.n -= n;
	}
	sse_reader_free(r);
	return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole, pieces;
	struct str in;
	int e, e2;

	if (size == 0)
		return 0;
	in = (struct str){ (const char *)data + 1, size - 1 };
	/* An id is repeated with each event. */
	buf_init(&whole, 4096 + size * (EVENT_MAX + 4));
	buf_init(&pieces, 4096 + size * (EVENT_MAX + 4));
	e = feed(in, SIZE_MAX, &whole);
	e2 = feed(in, data[0] + 1, &pieces);
	FUZZ_CHECK(e == e2 && (e == 0 || e == -EFBIG));
	FUZZ_CHECK(str_eq(buf_str(&whole), buf_str(&pieces)));
	buf_clear(&whole);
	buf_clear(&pieces);
	return 0;
}
