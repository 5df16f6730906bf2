/* start.c - from admitted to running. Three things go side by side where they can: the record goes to the disk, the machine is made (or
 * a ready one is taken) and loaded, the guest is told who it is. The answer waits for all of them. Whatever fails, core_end() undoes. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/core.h"

struct start {
	struct sandbox_core *c;
	struct source *src; /* our own reference until the machine has one */
	bool claimed, boot;
	char node[24];
	bool stored, confirmed; /* the record is on disk; the guest knows itself */
	bool at_rest;		/* nothing that would come back is under way */
	char reason[32];	/* interrupted, or failed: why */
	struct fail why;
	int64_t t0, t_init;
	uint64_t disk; /* as asked for */
	struct node booted;
};

static void phase(struct sandbox *sb, const char *name, double ms)
{
	if (sb->nphases < ARRAY_LEN(sb->phases))
		sb->phases[sb->nphases++] = (struct phase){ name, ms };
}

static double ms_since(int64_t t0)
{
	return (double)(mono_ns() - t0) / NS_PER_MS;
}

/* Gives up, once nothing is under way that would come back to S. */
static void abandon_if_idle(struct start *s)
{
	struct sandbox_core *c = s->c;
	char reason[32];
	struct fail why = s->why;

	if (!s->at_rest || !s->stored)
		return;
	memcpy(reason, s->reason, sizeof(reason));
	c->start = NULL;
	source_unref(s->src);
	free(s);
	c->sp->create_failures++;
	if (why.err)
		log_warning("sandbox %s: not started: %s", c->sb.id, why.msg);
	core_end(c, reason, why.err ? &why : NULL);
}

static const char *reason_of(const struct fail *why)
{
	switch (why->code) {
	case ERR_no_space:
		return "no_space";
	case ERR_no_capacity:
		return "no_capacity";
	case ERR_host_unsuitable:
		return "host_unsuitable";
	case ERR_checkpoint_mismatch:
	case ERR_checkpoint_damaged:
		return "checkpoint";
	default:
		return "start_failed";
	}
}

static void give_up(struct start *s, const char *reason, const struct fail *why)
{
	if (!s->reason[0]) {
		(void)str_copy(s->reason, sizeof(s->reason), str_of(reason));
		if (why)
			s->why = *why;
	}
	abandon_if_idle(s);
}

/* True when S has been given up on meanwhile (and may be gone). To be asked at the end of each step. */
static bool given_up(struct start *s, const struct fail *why)
{
	struct fail f = *why;

	s->at_rest = true;
	watch_explain(&f, ERR_guest_failed);
	if (f.err)
		give_up(s, reason_of(&f), &f);
	else if (s->reason[0])
		abandon_if_idle(s);
	else
		return false;
	return true;
}

void start_interrupt(struct sandbox_core *c, const char *reason, const struct fail *why)
{
	struct start *s = c->start;

	/* Remembered first: cutting the call under way may bring its answer at once. */
	if (!s->reason[0]) {
		(void)str_copy(s->reason, sizeof(s->reason), str_of(reason));
		if (why)
			s->why = *why;
	}
	ways_reset(c);
	if (c->start == s)
		abandon_if_idle(s);
}

/* --- the end of it --- */

static void running_stored(void *arg, const struct fail *why)
{
	struct sandbox_core *c = arg;
	struct fail ok = { 0 };

	if (why->err && !c->ending) {
		core_end(c, "no_space", why);
	} else if (!c->ending) {
		waiters_call(&c->creators, &c->sb, &ok);
		ready_refill(c->sp);
	} /* else they hear of the end */
	sandbox_release(&c->sb);
}

static void maybe_finish(struct start *s)
{
	struct sandbox_core *c = s->c;
	struct sandbox *sb = &c->sb;

	if (!s->stored || !s->confirmed)
		return;
	sb->started_ns = sb->last_active_ns = real_ns();
	sb->deadline_ns = sb->timeout_s ? sb->started_ns + sb->timeout_s * NS_PER_S : 0;
	phase(sb, "total", ms_since(s->t0));
	c->start = NULL;
	source_unref(s->src);
	free(s);
	c->sp->creates++;
	sandbox_hold(sb);
	core_move(c, SANDBOX_RUNNING, NULL, running_stored, c);
	deadline_arm(c);
}

static void told(const struct fail *why, void *arg)
{
	struct start *s = arg;

	s->c->booting = false;
	if (given_up(s, why))
		return;
	phase(&s->c->sb, s->boot ? "boot" : "agent", ms_since(s->t_init));
	s->confirmed = true;
	maybe_finish(s);
}

static void record_stored(void *arg, const struct fail *why)
{
	struct start *s = arg;

	s->stored = true;
	if (why->err) {
		give_up(s, reason_of(why), why);
		return;
	}
	if (s->reason[0])
		abandon_if_idle(s);
	else
		maybe_finish(s);
}

/* --- the machine --- */

static int machine_job(void *arg, struct fail *why)
{
	struct start *s = arg;
	struct machine *m = s->c->m;
	int r;

	if (s->boot)
		return machine_from_node(m, s->node, true, s->disk, &s->booted, why);
	if (s->claimed)
		machine_set_role(m, "sandbox");
	else if ((r = machine_prepare(m, &m->src->files, why)) < 0)
		return r;
	r = machine_start(m, why);
	if (r < 0)
		return r;
	return machine_grow(m, s->disk, why);
}

static void machine_done(void *arg, const struct fail *why)
{
	struct start *s = arg;
	struct sandbox_core *c = s->c;
	struct fail f = *why;

	phase(&c->sb, "monitor", s->claimed ? 0 : c->m->monitor_ms);
	phase(&c->sb, "disk", s->claimed ? 0 : c->m->disk_ms);
	phase(&c->sb, "load", c->m->load_ms);
	if (!f.err && !s->reason[0] && watch_start(c) < 0)
		fail_set(&f, -ENOMEM, "out of memory");
	if (!f.err && !s->reason[0])
		(void)agent_open(c, &f);
	if (given_up(s, &f))
		return;
	if (s->boot) { /* with the newest kernel, not with its own */
		(void)str_copy(c->sb.kernel_digest, sizeof(c->sb.kernel_digest), str_of(s->booted.kernel.hex));
		(void)str_copy(c->initrd_digest, sizeof(c->initrd_digest), str_of(s->booted.initrd.hex));
	}
	s->at_rest = false;
	s->t_init = mono_ns();
	c->booting = s->boot;
	identity_send(c, true, s->boot ? BOOT_TIMEOUT_MS : INIT_TIMEOUT_MS, told, s);
}

static void run_machine(struct start *s)
{
	s->at_rest = false;
	space_job(s->c->sp, s->c->q, machine_job, machine_done, s);
}

static void source_there(struct source *src, const struct fail *why, void *arg)
{
	struct start *s = arg;
	struct sandbox_core *c = s->c;
	struct fail f = *why;

	s->src = src;
	if (!f.err) {
		c->m = machine_new(c->sp, c->sb.id, c->sb.tenant, "sandbox");
		if (!c->m)
			fail_set(&f, -ENOMEM, "out of memory");
	}
	if (given_up(s, &f) || !c->m)
		return;
	c->m->src = src;
	s->src = NULL;
	c->m->vcpus = src->node.vcpus;
	c->m->memory = src->node.memory;
	c->m->disk = src->node.disk;
	c->m->disk_max = s->disk;
	run_machine(s);
}

static void boot(struct start *s)
{
	struct sandbox_core *c = s->c;
	struct fail why = { 0 };

	c->m = machine_new(c->sp, c->sb.id, c->sb.tenant, "sandbox");
	if (!c->m) {
		fail_set(&why, -ENOMEM, "out of memory");
		(void)given_up(s, &why);
		return;
	}
	c->m->vcpus = c->sb.vcpu;
	c->m->memory = c->sb.memory;
	run_machine(s);
}

void start_begin(struct sandbox_core *c, struct machine *ready, const char *node, bool from_disk, int64_t t0_ns, double boot_ms)
{
	struct start *s = calloc(1, sizeof(*s));
	struct fail why = { 0 };

	if (!s) {
		fail_set(&why, -ENOMEM, "out of memory");
		if (ready)
			machine_discard(ready);
		core_end(c, "start_failed", &why);
		return;
	}
	c->start = s;
	s->c = c;
	s->t0 = t0_ns;
	s->disk = c->sb.disk;
	s->claimed = ready != NULL;
	s->boot = from_disk;
	(void)str_copy(s->node, sizeof(s->node), str_of(node));
	c->sb.start = boot_ms > 0 || from_disk ? "boot" : ready ? "pool" : "restore";
	if (boot_ms > 0)
		phase(&c->sb, "boot", boot_ms);
	phase(&c->sb, "admit", ms_since(t0_ns) - boot_ms);
	core_move(c, SANDBOX_CREATING, NULL, record_stored, s);
	if (ready) {
		c->m = ready;
		run_machine(s);
	} else if (from_disk) {
		boot(s);
	} else {
		source_get(c->sp, c->sb.tenant, s->node, source_there, s);
	}
}
