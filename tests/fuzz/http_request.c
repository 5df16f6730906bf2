/* Requests: what is accepted lies inside its input, and reads the same in every longer input that starts with it. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str in = { (const char *)data, size };
	struct http_head h, again;
	struct fail why = { 0 };
	ssize_t n = http_request_parse(&h, in, &why);
	char *moved;

	if (n <= 0) {
		FUZZ_CHECK(n == 0 || n == -EBADMSG || n == -EFBIG || n == -EPROTO || n == -ENOTSUP);
		FUZZ_CHECK(n == 0 || why.msg[0]);
		return 0;
	}
	FUZZ_CHECK((size_t)n <= size && (size_t)n == h.size && n <= HTTP_HEAD_MAX);
	fuzz_check_head(&h, in.p);
	FUZZ_CHECK(http_is_token(h.method) && h.target.n);
	FUZZ_CHECK(h.framing != HTTP_BODY_EOF);
	FUZZ_CHECK(h.framing != HTTP_BODY_LENGTH || h.length > 0);
	FUZZ_CHECK(!(http_get(&h, "content-length").p && http_get(&h, "transfer-encoding").p));
	FUZZ_CHECK(h.minor == 0 || http_get(&h, "host").n);
	/* The head alone is enough, and no byte less is. */
	FUZZ_CHECK(http_request_parse(&again, (struct str){ in.p, (size_t)n }, NULL) == n);
	FUZZ_CHECK(http_request_parse(&again, (struct str){ in.p, (size_t)n - 1 }, NULL) == 0);
	moved = malloc((size_t)n);
	if (!moved)
		abort();
	memcpy(moved, in.p, (size_t)n);
	http_head_move(&h, in.p, moved);
	fuzz_check_head(&h, moved);
	free(moved);
	return 0;
}
