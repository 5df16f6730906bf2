/* Answers: the first byte chooses the method that was asked with. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const methods[] = { "GET", "HEAD", "CONNECT", "POST" };
	struct str in, method;
	struct http_head h, again;
	ssize_t n;

	if (size == 0)
		return 0;
	method = str_of(methods[data[0] % 4]);
	in = (struct str){ (const char *)data + 1, size - 1 };
	n = http_response_parse(&h, in, method, NULL);
	if (n <= 0) {
		FUZZ_CHECK(n == 0 || n == -EBADMSG || n == -EFBIG || n == -EPROTO || n == -ENOTSUP);
		return 0;
	}
	FUZZ_CHECK((size_t)n <= in.n && (size_t)n == h.size);
	fuzz_check_head(&h, in.p);
	FUZZ_CHECK(h.status >= 100 && h.status <= 599);
	FUZZ_CHECK(h.framing != HTTP_BODY_EOF || !h.keep_alive);
	FUZZ_CHECK(h.framing == HTTP_BODY_NONE || (!str_eqz(method, "HEAD") && h.status != 204 && h.status != 304 && h.status >= 200));
	FUZZ_CHECK(!h.upgrade || h.status == 101);
	FUZZ_CHECK(http_response_parse(&again, (struct str){ in.p, (size_t)n }, method, NULL) == n);
	FUZZ_CHECK(http_response_parse(&again, (struct str){ in.p, (size_t)n - 1 }, method, NULL) == 0);
	return 0;
}
