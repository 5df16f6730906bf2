/* suspend.c - onto the disk, with the memory, the monitor and the slot given back.
 *
 * SUSPENDING is on disk first; then the node is written, with its record (save.c), while the machine stays, stopped; then the record says SUSPENDED and
 * which node it lies in; only then the machine goes. A crash before that last record finds the machine, which runs on, and a node that nothing needs; one after
 * it finds the node, and a machine that belongs to nobody. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define THAW_MS 10000

static void machine_gone(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;
	struct fail ok = { 0 };

	if (why->err)
		log_error("sandbox %s: not everything of its machine could be removed: %s", c->sb.id, why->msg);
	machine_free(t->m);
	if (!c->ending) /* else the end gives it back */
		core_release_memory(c);
	c->sp->suspends++;
	ready_refill(c->sp);
	turn_end(t, &ok);
}

static int destroy_job(void *arg, struct fail *why)
{
	return machine_destroy(((struct turn *)arg)->m, why);
}

/* --- it runs on after all --- */

static void back_written(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct space *sp = t->c->sp;
	struct fail f = t->why;

	turn_end(t, &f);
	nodes_collect(sp);
}

static void told(const struct fail *why, void *arg)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (c->ending)
		turn_end(t, &t->why);
	else
		core_move(c, SANDBOX_RUNNING, NULL, back_written, t);
}

static void resumed(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (c->ending) {
		struct fail f = t->why;

		turn_end(t, &f);
		return;
	}
	if (why->err) {
		log_error("sandbox %s: it could not be suspended, and does not run on either: %s", c->sb.id, why->msg);
		core_move(c, SANDBOX_PAUSED, NULL, back_written, t);
		return;
	}
	identity_send(c, false, THAW_MS, told, t);
}

static int resume_job(void *arg, struct fail *why)
{
	struct turn *t = arg;

	return FAULT_WHY(why, t->m->sp->drv->resume(t->m->vm, why));
}

/* --- the way there --- */

static void suspended_written(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (c->ending) { /* the end has its machine */
		turn_end(t, why);
		return;
	}
	if (why->err) { /* a restart would find one that is suspending: it must go on here */
		t->why = *why;
		c->lies_in[0] = '\0';
		core_move(c, SANDBOX_WAKING, NULL, NULL, NULL);
		if (t->from == SANDBOX_PAUSED)
			core_move(c, SANDBOX_PAUSED, NULL, back_written, t);
		else
			space_job(c->sp, c->q, resume_job, resumed, t);
		return;
	}
	watch_stop(c);
	ways_close(c);
	c->m = NULL;
	space_job(c->sp, c->q, destroy_job, machine_gone, t);
}

static void saved(struct tree_node *n, const struct fail *why, void *arg)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (n) {
		memcpy(c->lies_in, n->k.id, sizeof(c->lies_in));
		tree_unpin(n); /* it lies in it: that keeps the node */
	}
	if (c->ending) {
		turn_end(t, why);
		return;
	}
	if (!n) { /* save_node() has left it as it was */
		t->why = *why;
		core_move(c, t->from, NULL, back_written, t);
		return;
	}
	c->sb.deadline_ns = 0; /* from its wake on again */
	core_move(c, SANDBOX_SUSPENDED, NULL, suspended_written, t);
}

static void begin(void *arg, const struct fail *why)
{
	struct turn *t = arg;

	if (why->err || t->c->ending) {
		struct fail f = *why;

		if (!t->c->ending)
			core_move(t->c, t->from, NULL, NULL, NULL);
		turn_end(t, &f);
		return;
	}
	save_node(t->c, &(struct save_req){ .kind = NODE_SUSPEND, .leave_stopped = true }, saved, t);
}

void sandbox_suspend(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct turn *t = turn_begin(c, TURN_SUSPEND, done, arg);

	if (t)
		core_move(c, SANDBOX_SUSPENDING, NULL, begin, t);
}
