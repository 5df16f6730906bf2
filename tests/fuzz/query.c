/* Query strings and percent-encoding: what is decoded has no NUL and no more bytes than before, and survives a round. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str in = { (const char *)data, size }, left = in, k, v;
	char *out = malloc(size + 1), *back = malloc(size + 1), *value;
	struct buf b;
	ssize_t n;

	if (!out || !back)
		abort();
	n = http_unescape(out, size + 1, in, false);
	FUZZ_CHECK(n == -EINVAL || (n >= 0 && (size_t)n <= size && out[n] == 0 && strlen(out) == (size_t)n));
	buf_init(&b, 3 * size + 1);
	if (n >= 0) {
		FUZZ_CHECK(http_escape(&b, (struct str){ out, (size_t)n }, "/") == 0);
		FUZZ_CHECK(http_unescape(back, size + 1, buf_str(&b), true) == n && memcmp(out, back, (size_t)n) == 0);
	}
	buf_clear(&b);
	while (http_query_next(&left, &k, &v)) {
		FUZZ_CHECK(fuzz_inside(k, in.p, in.n) && fuzz_inside(v, in.p, in.n));
		FUZZ_CHECK(k.n == 0 || (!memchr(k.p, '=', k.n) && !memchr(k.p, '&', k.n)));
	}
	FUZZ_CHECK(left.n == 0);
	if (http_query(in, "a", &value) == 0)
		free(value);
	free(out);
	free(back);
	return 0;
}
