/* tick.h - many short deadlines on one timer.
 *
 * A uv_timer_t in every object would cost 152 bytes and a close callback each; what waits here (an agent that has not
 * answered yet, three bytes of a cut character) is short-lived and few. The timer runs only while something waits. */
#ifndef SPACE_API_TICK_H
#define SPACE_API_TICK_H

#include <uv.h>

#include "base/base.h"

struct tick {
	struct link link;
	int64_t at_ms;
	void (*fn)(struct tick *t);
};

struct ticks {
	uv_timer_t timer;
	struct link list;	/* by time, earliest first */
};

void ticks_init(struct ticks *ts, uv_loop_t *loop);
void ticks_close(struct ticks *ts);	/* everything must have been cleared */

void tick_init(struct tick *t, void (*fn)(struct tick *t));
void tick_set(struct ticks *ts, struct tick *t, int64_t ms); /* again: moves it */
void tick_clear(struct tick *t);			     /* fine when it is not set */
static inline bool tick_is_set(const struct tick *t)
{
	return !link_empty(&t->link);
}

#endif
