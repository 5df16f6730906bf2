/* reader.h - a client attached to a process: the stream of events of Start and Connect.
 *
 * Owns nothing of the process and goes with its exchange. Sends keepalives in silence, lets go of
 * clients that take nothing for slow_reader_ms, and ends at its own deadline (Connect) or the
 * process's (Start). */
#ifndef SPACE_AGENT_READER_H
#define SPACE_AGENT_READER_H

#include "agent/process.h"
#include "agent/rpc.h"

struct reader_opts {
	int64_t keepalive_ms;
	int64_t timeout_ms; /* of the stream alone; 0: none */
	bool starter; /* the process's Connect-Timeout-Ms ends this stream with deadline_exceeded */
	bool replay;  /* begin at from[], as far as it is kept, else with what comes */
	uint64_t from[2];
};
/* Starts the answer with the start event. P may have ended. */
void reader_start(struct http_exchange *x, struct process *p, const struct reader_opts *o);

#endif
