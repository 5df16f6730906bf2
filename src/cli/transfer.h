/* transfer.h - one body to or from the API: a descriptor streamed with back-pressure, a progress bar when it takes long. */
#ifndef SPACE_CLI_TRANSFER_H
#define SPACE_CLI_TRANSFER_H

#include "cli/cli.h"

struct transfer {
	const char *method, *target; /* PUT: fd is sent; GET: fd gets the answer */
	int fd;
	int64_t length;		     /* PUT: bytes that fd has; -1: until its end */
	const char *what;	     /* for the bar */
	/* PUT: called at fd's end, before the request is completed: non-zero gives it up, so that the other side takes nothing
	 * for whole. GET: called with the head of a good answer, to set fd. May be NULL. */
	int (*at_end)(void *arg, struct fail *why);
	int (*at_head)(struct transfer *t, const struct http_head *h, void *arg, struct fail *why);
	void *arg;
	/* out */
	uint64_t bytes;
	json_t *answer; /* PUT: may be NULL; the caller's */
};

/* 0, or what failed. Blocks until it is over. */
int transfer_run(struct cli *c, struct transfer *t, struct fail *why);

#endif
