/* Chunks: however the input is cut, the body and the verdict are the same. The first byte is the length of the pieces. */
#include "fuzz.h"

/* Returns the verdict; *used is what was taken off the front. */
static int decode(struct str in, size_t step, struct buf *body, size_t *used)
{
	struct http_chunked c;
	const char *start = in.p, *end = in.p + in.n;
	int r = 0;

	http_chunked_init(&c);
	while (in.p < end && r == 0) {
		struct str part = { in.p, MIN(step, (size_t)(end - in.p)) }, out;
		size_t given = part.n;

		while ((r = http_chunked_read(&c, &part, &out)) == 1) {
			FUZZ_CHECK(out.n > 0 && out.p >= in.p && out.p + out.n <= in.p + given);
			if (buf_adds(body, out) < 0)
				abort();
		}
		FUZZ_CHECK(r == 0 || r == 2 || r == -EBADMSG);
		FUZZ_CHECK(r != 0 || part.n == 0);
		in.p += given - part.n;
	}
	*used = (size_t)(in.p - start);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole, pieces;
	struct str in;
	size_t used, used2;
	int r, r2;

	if (size == 0)
		return 0;
	in = (struct str){ (const char *)data + 1, size - 1 };
	buf_init(&whole, size);
	buf_init(&pieces, size);
	r = decode(in, SIZE_MAX, &whole, &used);
	r2 = decode(in, data[0] + 1, &pieces, &used2);
	FUZZ_CHECK(r == r2);
	FUZZ_CHECK(str_eq(buf_str(&whole), buf_str(&pieces)));
	FUZZ_CHECK(r != 2 || used == used2);
	buf_clear(&whole);
	buf_clear(&pieces);
	return 0;
}
