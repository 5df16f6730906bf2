/* wake.c - a call that needs the guest of a sandbox that is paused or suspended wakes it first, where it asked for that with auto_wake.
 *
 * One that is just being paused or suspended is waited for: what has begun is not turned round. The waiting call keeps the sandbox
 * held, so that it is not put to sleep as idle before it has been served. */
#include "api/api.h"

#define TRIES_MAX 3 /* somebody else may put it to sleep at the same time; that is not fought for ever */

struct waking {
	struct req *r;
	wake_fn *fn;
	unsigned tries;
};

static void end(struct waking *w, const struct fail *why)
{
	struct req *r = w->r;

	if (r->x)
		w->fn(r, why);
	free(w);
	req_unref(r);
}

static void on_awake(struct sandbox *sb, const struct fail *why, void *arg)
{
	end(arg, why);
}

static void on_still(struct sandbox *sb, const struct fail *why, void *arg);

static void step(struct waking *w, const struct fail *why)
{
	struct sandbox *sb = w->r->sb;
	enum sandbox_state s = sb->state;

	if ((s == SANDBOX_PAUSING || s == SANDBOX_SUSPENDING) && w->tries++ < TRIES_MAX)
		(s == SANDBOX_PAUSING ? sandbox_pause : sandbox_suspend)(sb, on_still, w);
	else if (s == SANDBOX_PAUSED || s == SANDBOX_SUSPENDED || s == SANDBOX_WAKING)
		sandbox_wake(sb, on_awake, w);
	else
		end(w, why); /* it runs, or has ended: whoever needs its guest says so */
}

/* Also after a failure, its state says what is to be done. */
static void on_still(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct waking *w = arg;
	struct fail none = { 0 };

	step(w, w->r->sb->state == SANDBOX_RUNNING ? &none : why);
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
	step(w, &why);
}
