/* pause.c - standing still and going on; one change of state at a time. Suspending is in suspend.c. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define WAKE_INIT_MS 5000
#define IN(s) (1u << SANDBOX_##s)

/* Which state each begins in, and in which there is nothing to do. */
static const struct {
	unsigned from, already;
} turns[] = {
	[TURN_PAUSE] = { IN(RUNNING), IN(PAUSED) },
	[TURN_WAKE] = { IN(PAUSED) | IN(SUSPENDED), IN(RUNNING) },
	[TURN_SUSPEND] = { IN(RUNNING) | IN(PAUSED), IN(SUSPENDED) },
	[TURN_ROLLBACK] = { IN(RUNNING) | IN(PAUSED) | IN(SUSPENDED), 0 },
};

void turn_end(struct turn *t, const struct fail *why)
{
	struct sandbox_core *c = t->c;
	struct fail f = *why;

	c->doing = false;
	c->turn = NULL;
	if (!f.err && c->ending)
		fail_as(&f, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
	watch_explain(&f, ERR_sandbox_gone);
	t->done(f.err ? NULL : &c->sb, &f, t->arg);
	waiters_call(&t->joined, f.err ? NULL : &c->sb, &f);
	if (!c->ending)
		deadline_arm(c);
	sandbox_release(&c->sb);
	free(t);
}

static void written(void *arg, const struct fail *why)
{
	turn_end(arg, why);
}

struct turn *turn_begin(struct sandbox_core *c, enum turn_kind kind, sandbox_done_fn *done, void *arg)
{
	struct turn *t = NULL;
	struct fail why = { 0 };

	if (c->ending || state_ended(c->state)) {
		fail_as(&why, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
	} else if (c->turn && c->turn->kind == kind && kind != TURN_ROLLBACK) {
		if (waiter_add(&c->turn->joined, done, arg) == 0)
			return NULL;
		fail_set(&why, -ENOMEM, "out of memory");
	} else if (c->doing || c->start) {
		fail_as(&why, ERR_busy, "sandbox %s is %s%s", c->sb.id, sandbox_state_name(c->state), c->turn || c->start ? "" : ", and is being saved");
	} else if (turns[kind].already & (1u << c->state)) {
		done(&c->sb, &why, arg);
		return NULL;
	} else if (c->sp->stopping) {
		fail_as(&why, ERR_daemon_down, "spaced is stopping");
	} else if (!(turns[kind].from & (1u << c->state))) {
		fail_as(&why, ERR_sandbox_not_running, "sandbox %s is %s", c->sb.id, sandbox_state_name(c->state));
	} else if (!(t = calloc(1, sizeof(*t)))) {
		fail_set(&why, -ENOMEM, "out of memory");
	}
	if (!t) {
		done(NULL, &why, arg);
		return NULL;
	}
	*t = (struct turn){ .c = c, .kind = kind, .from = c->state, .m = c->m, .done = done, .arg = arg };
	c->doing = true;
	c->turn = t;
	sandbox_hold(&c->sb);
	return t;
}

/* True, with the turn ended, when the monitor did not do it: the sandbox is BACK where it was, or it has ended meanwhile. */
static bool turn_failed(struct turn *t, const struct fail *why, enum sandbox_state back)
{
	struct sandbox_core *c = t->c;

	if (!c->ending && !why->err)
		return false;
	if (!c->ending)
		core_move(c, back, NULL, NULL, NULL);
	turn_end(t, why);
	return true;
}

static int pause_job(void *arg, struct fail *why)
{
	struct machine *m = ((struct turn *)arg)->m;

	return FAULT_WHY(why, m->sp->drv->pause(m->vm, why));
}

static void pause_done(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (turn_failed(t, why, SANDBOX_RUNNING))
		return;
	core_move(c, SANDBOX_PAUSED, NULL, written, t);
}

void sandbox_pause(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct turn *t = turn_begin(c, TURN_PAUSE, done, arg);

	if (!t)
		return;
	core_move(c, SANDBOX_PAUSING, NULL, NULL, NULL);
	space_job(c->sp, c->q, pause_job, pause_done, t);
}

static int resume_job(void *arg, struct fail *why)
{
	struct machine *m = ((struct turn *)arg)->m;

	return FAULT_WHY(why, m->sp->drv->resume(m->vm, why));
}

/* The record goes to the disk while the guest is told; it runs already. */
static void awake(struct turn *t, const struct fail *why)
{
	struct fail f;

	if (why->err && !t->why.err)
		t->why = *why;
	if (--t->pending)
		return;
	f = t->why;
	turn_end(t, &f);
}

static void awake_stored(void *arg, const struct fail *why)
{
	awake(arg, why);
}

/* Its clock stood still with it. A guest that cannot be told so (its network may be down) goes on all the same: it is the one it was. */
static void clock_told(const struct fail *why, void *arg)
{
	struct turn *t = arg;

	if (why->err && !t->c->ending)
		log_warning("sandbox %s: awake, but its clock was not set: %s", t->c->sb.id, why->msg);
	awake(t, &(struct fail){ 0 });
}

static void resume_done(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (turn_failed(t, why, SANDBOX_PAUSED))
		return;
	c->sb.reason[0] = '\0'; /* why it stood still is over */
	t->pending = 2;
	core_move(c, SANDBOX_RUNNING, NULL, awake_stored, t);
	identity_send(c, false, WAKE_INIT_MS, clock_told, t);
}

/* --- from the disk --- */

int memory_reserve(struct sandbox_core *c, struct fail *why)
{
	struct space *sp = c->sp;
	uint64_t bytes = c->sb.memory;

	assert(!c->reserved);
	if (bytes > sp->memory_limit - MIN(sp->memory_reserved, sp->memory_limit))
		return fail_as(why, ERR_no_capacity, "no memory for sandbox %s of %llu MiB: %llu of %llu MiB are reserved", c->sb.id,
			       (unsigned long long)(bytes / MIB), (unsigned long long)(sp->memory_reserved / MIB),
			       (unsigned long long)(sp->memory_limit / MIB));
	sp->memory_reserved += bytes;
	c->reserved = bytes;
	return 0;
}

/* Only now may the node that it lay in go: until the record said "running" a crash would have brought it back from there. */
static void awake_written(void *arg, const struct fail *why)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;
	struct space *sp = c->sp;

	/* It could not be written: a restart would still look for the node. */
	if (why->err && !c->ending)
		memcpy(c->lies_in, t->node->k.id, sizeof(c->lies_in));
	tree_unpin(t->node);
	t->node = NULL;
	turn_end(t, why);
	nodes_collect(sp);
}

static void revived(const struct fail *why, void *arg)
{
	struct turn *t = arg;
	struct sandbox_core *c = t->c;

	if (!why->err && !c->ending) {
		c->sb.reason[0] = c->lies_in[0] = '\0';
		c->sb.deadline_ns = c->sb.timeout_s ? real_ns() + c->sb.timeout_s * NS_PER_S : 0;
		c->sp->wakes++;
		core_move(c, SANDBOX_RUNNING, NULL, awake_written, t);
		return;
	}
	tree_unpin(t->node);
	if (!c->ending) {
		core_release_memory(c);
		core_move(c, SANDBOX_SUSPENDED, NULL, NULL, NULL);
	}
	turn_end(t, why);
}

/* It stays what it was, with everything that it had; the host's files of it become the machine's again. */
static void wake_suspended(struct turn *t)
{
	struct sandbox_core *c = t->c;
	struct fail why = { 0 };

	t->node = tree_find(c->sp, c->lies_in);
	if (!t->node)
		fail_as(&why, ERR_checkpoint_not_found, "sandbox %s lies in checkpoint %s, which is not there", c->sb.id, c->lies_in);
	if (!t->node || node_startable(c->sp, &t->node->k, !t->node->k.memory, &why) < 0 || memory_reserve(c, &why) < 0 || room_for_sandbox(c->sp, &why) < 0) {
		core_release_memory(c);
		turn_end(t, &why);
		return;
	}
	tree_pin(t->node);
	core_move(c, SANDBOX_WAKING, NULL, NULL, NULL);
	revive(c, c->lies_in, !t->node->k.memory, true, revived, t); /* a snapshot, after a rollback that failed: it boots */
}

void sandbox_wake(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct turn *t = turn_begin(c, TURN_WAKE, done, arg);

	if (!t)
		return;
	if (t->from == SANDBOX_SUSPENDED) {
		wake_suspended(t);
		return;
	}
	core_move(c, SANDBOX_WAKING, NULL, NULL, NULL);
	space_job(c->sp, c->q, resume_job, resume_done, t);
}

/* --- a monitor that stopped by itself --- */

struct stuck {
	struct sandbox_core *c;
	struct machine *m;
	bool full;
};

static int stuck_job(void *arg, struct fail *why)
{
	struct stuck *s = arg;
	struct vm_status st = { 0 };
	int r = s->m->sp->drv->status(s->m->vm, &st, why);

	s->full = r == 0 && st.host_disk_full;
	return r;
}

/* It stands still already, and nothing of it is lost: what the guest wrote last is tried again when it is woken. */
static void stuck_told(void *arg, const struct fail *why)
{
	struct stuck *s = arg;
	struct sandbox_core *c = s->c;

	c->stuck_asked = false;
	if (s->full && c->m == s->m && c->state == SANDBOX_RUNNING && !c->doing && !c->ending) {
		log_error("sandbox %s: stands still, the host's disk is full", c->sb.id);
		core_move(c, SANDBOX_PAUSING, NULL, NULL, NULL);
		core_move(c, SANDBOX_PAUSED, "host_disk_full", NULL, NULL);
		ways_reset(c);
	}
	sandbox_unkeep(&c->sb);
	free(s);
}

void pause_if_stuck(struct sandbox_core *c)
{
	struct stuck *s;

	if (c->state != SANDBOX_RUNNING || c->stuck_asked || c->doing || c->ending || !c->m || !(s = calloc(1, sizeof(*s))))
		return;
	*s = (struct stuck){ .c = c, .m = c->m };
	c->stuck_asked = true;
	sandbox_keep(&c->sb);
	space_job(c->sp, c->q, stuck_job, stuck_told, s);
}
