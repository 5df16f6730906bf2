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
	struct http_endpoint *agent; /* of the sandbox; NULL: it has none */
	uv_loop_t *loop;	/* for what a job does */
	unsigned wakes, suspends, pauses;
	bool busy;		/* what changes the sandbox is refused */
	struct sandbox *still;	/* a pause or suspension that has begun ends with fake_still() */
	/* A line of nodes, each the parent of the next. */
	struct checkpoint *nodes;
	unsigned nnodes;
	char label[128], idem[129], rollback[128], removed[24]; /* what the last call said */
	bool disk_only;
	struct branch_req branch;
	struct prune_req prune;
	uint64_t export_bytes;	/* what an export writes */
	bool export_fails;	/* at its end */
	uint64_t imported;	/* bytes that the last import has read; its first byte 'X' fails it at once */
	bool import_whole;	/* the last byte was '.' */
};
extern struct fake fake;
void fake_reset(void);
void fake_nodes(unsigned n);	/* makes so many */
void fake_still(enum sandbox_state s); /* what has begun is done: the sandbox is S now */

#endif
