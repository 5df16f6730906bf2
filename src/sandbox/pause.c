/* pause.c - standing still and going on, in memory. */
#include <stdio.h>

#include "base/log.h"
#include "sandbox/core.h"

#define WAKE_INIT_MS 5000

/* One pause or wake under way. */
struct turn {
	struct sandbox_core *c;
	struct machine *m; /* outlives the turn: jobs of one sandbox come one after another */
	sandbox_done_fn *done;
	void *arg;
};

static void turn_end(struct turn *t, const struct fail *why)
{
	struct sandbox_core *c = t->c;
	struct fail gone = { 0 };

	c->doing = false;
	if (!why->err && c->ending) {
		fail_as(&gone, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
		why = &gone;
	}
	t->done(why->err ? NULL : &c->sb, why, t->arg);
	if (!c->ending)
		deadline_arm(c);
	sandbox_release(&c->sb);
	free(t);
}

static void written(void *arg, const struct fail *why)
{
	turn_end(arg, why);
}

/* False, with the answer given, when SB is not in the state FROM. */
static struct turn *turn_begin(struct sandbox_core *c, enum sandbox_state from, enum sandbox_state already, sandbox_done_fn *done, void *arg)
{
	struct turn *t = NULL;
	struct fail why = { 0 };

	if (c->ending || state_ended(c->state))
		fail_as(&why, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
	else if (c->doing || c->start)
		fail_as(&why, ERR_busy, "sandbox %s is %s", c->sb.id, sandbox_state_name(c->state));
	else if (c->state == already) {
		done(&c->sb, &why, arg);
		return NULL;
	} else if (c->state != from)
		fail_as(&why, ERR_sandbox_not_running, "sandbox %s is %s", c->sb.id, sandbox_state_name(c->state));
	else if (!(t = calloc(1, sizeof(*t))))
		fail_set(&why, -ENOMEM, "out of memory");
	if (!t) {
		done(NULL, &why, arg);
		return NULL;
	}
	*t = (struct turn){ c, c->m, done, arg };
	c->doing = true;
	sandbox_hold(&c->sb);
	return t;
}

static int pause_job(void *arg, struct fail *why)
{
	struct machine *m = ((struct turn *)arg)->m;

	return m->sp->drv->pause(m->vm, why);
}

static void pause_done(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (c->ending) {
		turn_end(t, why);
		return;
	}
	if (why->err) {
		core_move(c, SANDBOX_RUNNING, NULL, NULL, NULL);
		turn_end(t, why);
		return;
	}
	core_move(c, SANDBOX_PAUSED, NULL, written, t);
}

void sandbox_pause(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct turn *t = turn_begin(c, SANDBOX_RUNNING, SANDBOX_PAUSED, done, arg);

	if (!t)
		return;
	core_move(c, SANDBOX_PAUSING, NULL, NULL, NULL);
	space_job(c->sp, c->q, pause_job, pause_done, t);
}

static int resume_job(void *arg, struct fail *why)
{
	struct machine *m = ((struct turn *)arg)->m;

	return m->sp->drv->resume(m->vm, why);
}

/* Its clock stood still with it. A guest that cannot be told so (its network may be down) goes on all the same: it is the one it was. */
static void clock_told(const struct fail *why, void *arg)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (c->ending) {
		turn_end(t, why);
		return;
	}
	if (why->err)
		log_warning("sandbox %s: awake, but its clock was not set: %s", c->sb.id, why->msg);
	core_move(c, SANDBOX_RUNNING, NULL, written, t);
}

static void resume_done(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (c->ending) {
		turn_end(t, why);
		return;
	}
	if (why->err) {
		core_move(c, SANDBOX_PAUSED, NULL, NULL, NULL);
		turn_end(t, why);
		return;
	}
	identity_send(c, false, WAKE_INIT_MS, clock_told, t);
}

void sandbox_wake(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct turn *t = turn_begin(c, SANDBOX_PAUSED, SANDBOX_RUNNING, done, arg);

	if (!t)
		return;
	core_move(c, SANDBOX_WAKING, NULL, NULL, NULL);
	space_job(c->sp, c->q, resume_job, resume_done, t);
}
