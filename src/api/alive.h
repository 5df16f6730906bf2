/* alive.h - is the guest of a sandbox there? One question at a time for each sandbox, however many calls and streams wait for it.
 *
 * Every byte from the agent, on whatever connection, is a sign of life. While somebody waits and there is none, GET /health is asked on a
 * connection of its own. A call whose answer has not begun is given up when 1.8 s have brought no sign; one whose answer has begun,
 * after three questions without an answer, because a starved host must not look like a dead guest. A guest that is alive, but
 * does not go on with a call, is given up when the call's own limit is spent. Time in which the sandbox stands still does not count. */
#ifndef SPACE_API_ALIVE_H
#define SPACE_API_ALIVE_H

#include "api/api.h"

/* In ms. Tests make them shorter; nothing else changes them. */
struct alive_limits {
	int first;	/* without an answer that has begun: ask */
	int answer;	/* and this long for it */
	int silent;	/* no byte for so long: ask */
	int again;	/* after a question without an answer */
	int misses;	/* how many of those */
	int call;	/* what a call may take whose agent is alive */
	int upload;	/* the same with a body, which goes to the guest's disk before it answers */
	int retry;	/* between tries to reach an agent whose connection broke */
	int frozen;	/* how long an agent may say that it stands still for a checkpoint */
};
extern struct alive_limits alive_limits;

enum alive_end { ALIVE_GONE, ALIVE_LATE }; /* no sign of life; alive, and the limit is spent */

/* One who waits: part of a call. Its owner writes what is not said to be the room's own. */
struct waiter_for {
	struct link link;	/* own */
	struct line *line;	/* own */
	int64_t since_ms, looked_ms, spent_ms; /* own */
	bool over;		/* own: the owner has been told */
	int limit_ms;		/* -1: none */
	bool begun;		/* the answer has */
	bool idle;		/* what it waits for now is not the agent's doing: its limit stands still */
	void (*end)(struct waiter_for *w, enum alive_end how); /* once, from the loop; the owner then ends the call */
};

int alive_wait(struct api *api, struct sandbox *sb, struct waiter_for *w); /* 0 or -ENOMEM. SB is held as long as this lasts */
void alive_heard(struct waiter_for *w);	/* a sign of life */
void alive_again(struct waiter_for *w); /* its limit begins anew */
void alive_leave(struct waiter_for *w); /* fine twice */

#endif
