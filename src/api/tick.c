#include "api/tick.h"

#include "base/clock.h"

static void arm(struct ticks *ts);

static void on_timer(uv_timer_t *timer)
{
	struct ticks *ts = container_of(timer, struct ticks, timer);
	int64_t now = mono_ms();

	while (!link_empty(&ts->list)) {
		struct tick *t = container_of(ts->list.next, struct tick, link);

		if (t->at_ms > now)
			break;
		link_del(&t->link);
		t->fn(t);
	}
	arm(ts);
}

static void arm(struct ticks *ts)
{
	struct tick *t;
	int64_t wait;

	if (link_empty(&ts->list)) {
		uv_timer_stop(&ts->timer);
		return;
	}
	t = container_of(ts->list.next, struct tick, link);
	wait = t->at_ms - mono_ms();
	/* libuv counts from its cached time, which may lag behind. */
	uv_update_time(ts->timer.loop);
	uv_timer_start(&ts->timer, on_timer, wait > 0 ? (uint64_t)wait : 0, 0);
}

void ticks_init(struct ticks *ts, uv_loop_t *loop)
{
	uv_timer_init(loop, &ts->timer);
	link_init(&ts->list);
}

void ticks_close(struct ticks *ts)
{
	assert(link_empty(&ts->list));
	uv_close((uv_handle_t *)&ts->timer, NULL);
}

void tick_init(struct tick *t, void (*fn)(struct tick *t))
{
	link_init(&t->link);
	t->at_ms = 0;
	t->fn = fn;
}

void tick_set(struct ticks *ts, struct tick *t, int64_t ms)
{
	struct link *before;

	link_del(&t->link);
	t->at_ms = mono_ms() + ms;
	/* Most come in at the end: the search starts there. */
	before = ts->list.prev;
	while (before != &ts->list && container_of(before, struct tick, link)->at_ms > t->at_ms)
		before = before->prev;
	link_add_tail(before->next, &t->link);
	if (ts->list.next == &t->link)
		arm(ts);
}

void tick_clear(struct tick *t)
{
	link_del(&t->link);
}
