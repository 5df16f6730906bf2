/* connect.c - Connect's envelopes and messages: a payload lies inside the input, what is taken off
 * adds up, and whatever JSON it is, reading members of it harms nothing. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct str in = { (const char *)p, n }, payload;
	uint8_t flags;
	int r;

	for (;;) {
		const char *before = in.p;
		char head[FRAME_HEAD];

		r = frame_next(&in, 4096, &flags, &payload);
		if (r != 1)
			break;
		assert(payload.p == before + FRAME_HEAD && payload.n <= 4096);
		assert(in.p == payload.p + payload.n && in.p + in.n == (const char *)p + n);
		frame_head(head, flags, (uint32_t)payload.n);
		assert(memcmp(head, before, FRAME_HEAD) == 0);

		autojson json_t *msg = json_read(payload, NULL);
		const char *s = NULL;
		char *bytes = NULL;
		size_t len = 0;
		int64_t v = 5;
		bool b;

		(void)msg_str(msg, "a", &s);
		if (msg_int(msg, "a_b", -100, 100, &v) == 0)
			assert(v >= -100 && v <= 100);
		(void)msg_bool(msg, "a", &b);
		if (msg_bytes(msg, "a", &bytes, &len) == 0 && bytes)
			assert(len <= payload.n);
		free(bytes);
	}
	assert(r == 0 || r == -EBADMSG || r == -EFBIG);
	return 0;
}
