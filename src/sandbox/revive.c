/* revive.c - a sandbox that exists gets a machine again, from a node: when it wakes from suspension, is rolled back, or is mended after a
 * crash.
 *
 * The node's memory is a copy of its own, read as the guest touches it: nobody else starts from it. What a start from a template is told
 * and asked it is told and asked too; one that does not confirm is destroyed. Whoever calls has the sandbox in his hands (`doing`), its
 * memory reserved, and says in which state it is afterwards. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

struct revival {
	struct sandbox_core *c;
	struct machine *m;
	char node[24];
	bool boot, keep_identity;
	uint64_t target; /* of its disk */
	struct node read;
	struct fail why; /* of the first failure */
	identity_fn *fn;
	void *arg;
};

static void finish(struct revival *r)
{
	struct sandbox_core *c = r->c;

	c->revival = NULL;
	c->booting = false;
	if (!r->why.err && c->ending)
		fail_as(&r->why, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
	r->fn(&r->why, r->arg);
	free(r);
	sandbox_unkeep(&c->sb);
}

/* --- giving up --- */

static int destroy_job(void *arg, struct fail *why)
{
	struct revival *r = arg;

	return machine_destroy(r->m, why);
}

static void destroyed(void *arg, const struct fail *why)
{
	struct revival *r = arg;

	if (why->err)
		log_error("sandbox %s: not everything of its machine could be removed: %s", r->c->sb.id, why->msg);
	machine_free(r->m);
	finish(r);
}

static void give_up(struct revival *r, const struct fail *why)
{
	struct sandbox_core *c = r->c;

	if (c->ending) { /* its machine is being removed with it, and what went wrong then is no news */
		r->why.err = 0;
		finish(r);
		return;
	}
	if (!r->why.err)
		r->why = *why;
	watch_explain(&r->why, ERR_guest_failed);
	log_warning("sandbox %s: not started from %s: %s", c->sb.id, r->node, r->why.msg);
	watch_stop(c);
	ways_close(c);
	c->m = NULL;
	space_job(c->sp, c->q, destroy_job, destroyed, r);
}

void revive_interrupt(struct sandbox_core *c, const struct fail *why)
{
	struct revival *r = c->revival;

	if (!r->why.err)
		r->why = *why;
	ways_close(c); /* the call under way ends, and with it the rest */
}

/* --- going on --- */

static void told(const struct fail *why, void *arg)
{
	struct revival *r = arg;

	if (why->err || r->why.err || r->c->ending)
		give_up(r, why);
	else
		finish(r);
}

static int revive_job(void *arg, struct fail *why)
{
	struct revival *r = arg;

	return machine_from_node(r->m, r->node, r->boot, r->target, &r->read, why);
}

static void started(void *arg, const struct fail *why)
{
	struct revival *r = arg;
	struct sandbox_core *c = r->c;
	struct tree_node *n = tree_find(c->sp, r->node);
	struct fail f = *why;

	if (!f.err && !c->ending && watch_start(c) < 0)
		fail_set(&f, -ENOMEM, "out of memory");
	if (!f.err && !c->ending)
		(void)agent_open(c, &f);
	if (f.err || c->ending) {
		give_up(r, &f);
		return;
	}
	if (r->boot) {
		(void)str_copy(c->sb.kernel_digest, sizeof(c->sb.kernel_digest), str_of(r->read.kernel.hex));
		(void)str_copy(c->initrd_digest, sizeof(c->initrd_digest), str_of(r->read.initrd.hex));
	}
	c->sb.start = r->boot ? "boot" : "restore";
	c->grown = r->target > r->read.disk;
	c->continues = !r->boot;
	c->booting = r->boot;
	c->who.generation = MAX(c->who.generation, n ? n->generation : 0);
	if (!r->keep_identity)
		identity_new(c);
	identity_send(c, true, r->boot ? BOOT_TIMEOUT_MS : INIT_TIMEOUT_MS, told, r);
}

void revive(struct sandbox_core *c, const char *node, bool boot, bool keep_identity, identity_fn *fn, void *arg)
{
	struct revival *r = calloc(1, sizeof(*r));
	struct fail why = { 0 };

	assert(!c->m && !c->revival && !c->agent);
	if (r)
		r->m = machine_new(c->sp, c->sb.id, c->sb.tenant, "sandbox");
	if (!r || !r->m) {
		free(r);
		fail_set(&why, -ENOMEM, "out of memory");
		fn(&why, arg);
		return;
	}
	r->c = c;
	r->boot = boot;
	r->keep_identity = keep_identity;
	r->target = c->sb.read_only ? 0 : c->sb.disk;
	r->fn = fn;
	r->arg = arg;
	(void)str_copy(r->node, sizeof(r->node), str_of(node));
	r->m->vcpus = c->sb.vcpu; /* of one that boots; else the node says */
	r->m->memory = c->sb.memory;
	c->m = r->m;
	c->revival = r;
	sandbox_keep(&c->sb);
	space_job(c->sp, c->q, revive_job, started, r);
}
