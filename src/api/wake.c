/* wake.c - a call that needs the guest of a sandbox that is paused or suspended wakes it first, where it asked for that with auto_wake.
 *
 * One that is just being paused or suspended is waited for: what has begun is not turned round. The waiting call keeps the sandbox
 * held, so that it is not put to sleep as idle before it has been served. */
#include "api/api.h"

#include "base/clock.h"

#define AGAIN_MS 50
#define WAIT_MAX_MS 30000 /* for what else is being done to it: a checkpoint, a rollback, or somebody who puts it to sleep again and again */

struct waking {
	struct req *r;
	wake_fn *fn;
	struct tick tick;
	int64_t end_ms;
	struct fail why;	/* what came of the last try */
	void *user;		/* the request's own, meanwhile */
};

static void end(struct waking *w)
{
	struct req *r = w->r;

	r->user = w->user;
	r->on_gone = NULL;
	if (r->x)
		w->fn(r, &w->why);
	free(w);
	req_unref(r);
}

/* Nobody waits any more. What the core has been asked for comes back to us all the same. */
static void on_gone(struct req *r)
{
	struct waking *w = r->user;

	if (!tick_is_set(&w->tick))
		return;
	tick_clear(&w->tick);
	end(w);
}

static void step(struct waking *w);

static void on_tick(struct tick *t)
{
	step(container_of(t, struct waking, tick));
}

/* Its state says what is to be done next, also after a failure; but who is refused as busy waits for a moment. */
static void on_tried(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct waking *w = arg;
	bool asleep = w->r->sb->state != SANDBOX_RUNNING;

	if (sb || !asleep)
		w->why.err = 0;
	else
		w->why = *why;
	if (asleep && (sb || why->code == ERR_busy) && w->r->x && mono_ms() < w->end_ms)
		tick_set(&w->r->api->ticks, &w->tick, sb ? 0 : AGAIN_MS);
	else
		end(w);
}

static void step(struct waking *w)
{
	struct sandbox *sb = w->r->sb;

	switch (sb->state) {
	case SANDBOX_PAUSING:
		return sandbox_pause(sb, on_tried, w);
	case SANDBOX_SUSPENDING:
		return sandbox_suspend(sb, on_tried, w);
	case SANDBOX_PAUSED: case SANDBOX_SUSPENDED: case SANDBOX_WAKING:
		return sandbox_wake(sb, on_tried, w);
	default: /* it runs, or has ended: whoever needs its guest says so */
		w->why = (struct fail){ 0 };
		end(w);
	}
}

void wake_first(struct req *r, wake_fn *fn)
{
	enum sandbox_state s = r->sb->state;
	struct fail why = { 0 };
	struct waking *w;

	if (!r->sb->auto_wake || s == SANDBOX_RUNNING)
		return fn(r, &why);
	w = calloc(1, sizeof(*w));
	if (!w) {
		fail_set(&why, -ENOMEM, "out of memory");
		return fn(r, &why);
	}
	w->r = req_ref(r);
	w->fn = fn;
	w->user = r->user;
	r->user = w;
	r->on_gone = on_gone;
	w->end_ms = mono_ms() + WAIT_MAX_MS;
	tick_init(&w->tick, on_tick);
	step(w);
}
