/* api_fake.h - see api_fake.c. */
#ifndef SPACE_TEST_API_FAKE_H
#define SPACE_TEST_API_FAKE_H

#include "sandbox/space.h"

#define FAKE_KEY "space_0123456789abcdef0123456789abcdef01234567"

struct fake {
	struct sandbox sb;
	struct operation op;
	enum scope scope;	/* of FAKE_KEY */
	bool not_ready, no_capacity;
	unsigned created;	/* calls of sandbox_create */
	int64_t timeout_s;	/* what the last call asked for */
	uint64_t memory;
};
extern struct fake fake;
void fake_reset(void);

#endif
