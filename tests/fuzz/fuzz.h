/* fuzz.h - what several targets assert. */
#ifndef SPACE_FUZZ_H
#define SPACE_FUZZ_H

#include <stdio.h>

#include "http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* assert() would go with NDEBUG. */
#define FUZZ_CHECK(cond)                                                               \
	do {                                                                           \
		if (!(cond)) {                                                         \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);     \
			abort();                                                       \
		}                                                                      \
	} while (0)

static inline bool fuzz_inside(struct str s, const char *from, size_t n)
{
	return s.n == 0 || (s.p >= from && s.p + s.n <= from + n);
}

/* Every slice of H lies in the H->size bytes at FROM (but for the path of a bare URL), and what it holds is fit to be sent on. */
static inline void fuzz_check_head(const struct http_head *h, const char *from)
{
	FUZZ_CHECK(fuzz_inside(h->method, from, h->size) && fuzz_inside(h->target, from, h->size));
	FUZZ_CHECK(fuzz_inside(h->path, from, h->size) || str_eqz(h->path, "/"));
	FUZZ_CHECK(fuzz_inside(h->query, from, h->size));
	FUZZ_CHECK(h->nheaders <= HTTP_HEADERS_MAX);
	for (unsigned i = 0; i < h->nheaders; i++) {
		struct http_header x = h->headers[i];

		FUZZ_CHECK(fuzz_inside(x.name, from, h->size) && fuzz_inside(x.value, from, h->size));
		FUZZ_CHECK(http_is_token(x.name) && http_is_value(x.value));
		FUZZ_CHECK(x.value.n == 0 || (!memchr(x.value.p, '\r', x.value.n) && !memchr(x.value.p, '\n', x.value.n)));
	}
}

#endif
