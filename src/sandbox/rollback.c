/* rollback.c - the same sandbox, as it was at a checkpoint.
 *
 * There is never memory for two of them, so the machine that it has goes before the other one comes. What is to be seen meanwhile is
 * "suspending", "suspended" and "waking", and that is what it is: from the record that says "suspending" on it lies in the checkpoint
 * (lies_in), its machine is only in the way. If the machine from the checkpoint does not come up, or we are killed, it is a suspended
 * sandbox in that checkpoint, which can be woken, branched or rolled back again. One that was suspended keeps lying where it lay until it
 * runs. Whether the checkpoint can be used is looked at before anything is given up. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define ANCESTORS_MAX 100000 /* a circle in the records would be a bug; it is not to hang us */

struct rollback {
	struct turn *t;
	struct sandbox_core *c;
	struct tree_node *n; /* pinned */
	char node[24];
	bool boot, had_machine;
	struct machine *old;
	struct fail why;
};

static void over(struct rollback *r, const struct fail *why)
{
	struct space *sp = r->c->sp;

	tree_unpin(r->n);
	turn_end(r->t, why);
	free(r);
	nodes_collect(sp);
}

/* --- which one --- */

static bool mine(const struct sandbox_core *c, const struct tree_node *n)
{
	const char *from[] = { c->lies_in, c->sb.checkpoint, c->sb.node };
	unsigned steps = 0;

	if (!strcmp(n->k.sandbox, c->sb.id))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(from); i++)
		for (struct tree_node *a = tree_find(c->sp, from[i]); a && steps++ < ANCESTORS_MAX; a = tree_find(c->sp, a->k.parent))
			if (a == n)
				return true;
	return false;
}

/* By label: the newest of its own, else the newest of those that it descends from. */
static struct tree_node *by_label(struct sandbox_core *c, const char *label)
{
	struct tree_node *inherited = NULL;

	for (struct link *l = c->sp->nodes.prev; l != &c->sp->nodes; l = l->prev) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (strcmp(n->k.label, label) || !tree_seen_by(n, c->sb.tenant))
			continue;
		if (!strcmp(n->k.sandbox, c->sb.id))
			return n;
		if (!inherited && mine(c, n))
			inherited = n;
	}
	return inherited;
}

static struct tree_node *find(struct sandbox_core *c, const char *what, struct fail *why)
{
	struct tree_node *n = what[0] ? tree_find(c->sp, what) : NULL;

	if (n && !tree_seen_by(n, c->sb.tenant))
		n = NULL;
	if (!n && what[0])
		n = by_label(c, what);
	if (!n) {
		fail_as(why, ERR_checkpoint_not_found, "sandbox %s has no checkpoint \"%.60s\"", c->sb.id, what);
		return NULL;
	}
	if (!mine(c, n)) {
		fail_as(why, ERR_conflict, "checkpoint %s is not one of sandbox %s or of one that it was branched from", n->k.id, c->sb.id);
		fail_remedy(why, "start another sandbox from it: space create --from %s", n->k.id);
		return NULL;
	}
	return node_startable(c->sp, &n->k, !n->k.memory, why) < 0 ? NULL : n;
}

/* --- the machine from the checkpoint --- */

static void running(void *arg, const struct fail *why)
{
	struct rollback *r = arg;
	struct sandbox_core *c = r->c;

	if (!why->err && !c->ending)
		log_info("sandbox %s: rolled back to %s", c->sb.id, r->node);
	over(r, why);
}

static void revived(const struct fail *why, void *arg)
{
	struct rollback *r = arg;
	struct sandbox_core *c = r->c;
	struct sandbox *sb = &c->sb;
	size_t used;

	if (c->ending) {
		over(r, why);
		return;
	}
	if (why->err) {
		r->why = *why;
		used = strlen(r->why.msg);
		snprintf(r->why.msg + used, sizeof(r->why.msg) - used, "; the sandbox is suspended");
		core_release_memory(c);
		sb->deadline_ns = 0; /* from its wake on again */
		core_move(c, SANDBOX_SUSPENDED, "rollback_failed", NULL, NULL);
		over(r, &r->why);
		return;
	}
	if (!r->had_machine) /* it was suspended: its time begins anew, as with any wake */
		sb->deadline_ns = sb->timeout_s ? real_ns() + sb->timeout_s * NS_PER_S : 0;
	(void)str_copy(sb->checkpoint, sizeof(sb->checkpoint), str_of(r->node));
	c->lies_in[0] = '\0';
	sb->reason[0] = '\0';
	sb->last_active_ns = real_ns();
	core_save(c, "rolled_back", NULL, NULL);
	core_move(c, SANDBOX_RUNNING, NULL, running, r);
}

static void start(struct rollback *r)
{
	core_move(r->c, SANDBOX_WAKING, NULL, NULL, NULL);
	revive(r->c, r->node, r->boot, true, revived, r);
}

/* --- the machine that it has --- */

static int destroy_job(void *arg, struct fail *why)
{
	struct rollback *r = arg;

	return machine_destroy(r->old, why);
}

static void old_gone(void *arg, const struct fail *why)
{
	struct rollback *r = arg;
	struct sandbox_core *c = r->c;

	if (why->err) /* what is left of it would be in the new one's way */
		r->why = *why;
	machine_free(r->old);
	if (c->ending) {
		over(r, &(struct fail){ 0 });
		return;
	}
	(void)str_copy(c->sb.checkpoint, sizeof(c->sb.checkpoint), str_of(r->node));
	core_move(c, SANDBOX_SUSPENDED, NULL, NULL, NULL);
	if (r->why.err) {
		core_release_memory(c);
		c->sb.deadline_ns = 0;
		over(r, &r->why);
		return;
	}
	start(r);
}

/* From here on it lies in the checkpoint, whatever happens. */
static void doomed(void *arg, const struct fail *why)
{
	struct rollback *r = arg;
	struct sandbox_core *c = r->c;

	if (c->ending) {
		over(r, why);
		return;
	}
	if (why->err) { /* it does not on the disk: then it stays what it is */
		c->lies_in[0] = '\0';
		c->sb.reason[0] = '\0';
		core_move(c, r->t->from, NULL, NULL, NULL);
		over(r, why);
		return;
	}
	c->sb.instance++; /* streams of commands end */
	watch_stop(c);
	ways_close(c);
	r->old = c->m;
	r->had_machine = true;
	c->m = NULL;
	space_job(c->sp, c->q, destroy_job, old_gone, r);
}

static int check_job(void *arg, struct fail *why)
{
	struct rollback *r = arg;
	struct machine_files f;
	struct node n = { 0 };
	int e;

	(void)str_copy(n.id, sizeof(n.id), str_of(r->node));
	e = node_files_open(r->c->sp, &n, false, r->boot, false, &f, why);
	machine_files_close(&f);
	return e;
}

static void checked(void *arg, const struct fail *why)
{
	struct rollback *r = arg;
	struct sandbox_core *c = r->c;
	struct fail f = *why;

	if (c->ending || f.err) {
		over(r, &f);
		return;
	}
	if (r->t->from == SANDBOX_SUSPENDED) {
		if (memory_reserve(c, &f) < 0) {
			over(r, &f);
			return;
		}
		start(r);
		return;
	}
	(void)str_copy(c->lies_in, sizeof(c->lies_in), str_of(r->node));
	core_move(c, SANDBOX_SUSPENDING, "rollback", doomed, r);
}

void sandbox_rollback(struct sandbox *sb, const char *checkpoint, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct turn *t = turn_begin(c, TURN_ROLLBACK, done, arg);
	struct rollback *r;
	struct tree_node *n;
	struct fail why = { 0 };

	if (!t)
		return;
	n = find(c, checkpoint, &why);
	r = n ? calloc(1, sizeof(*r)) : NULL;
	if (!r) {
		if (n)
			fail_set(&why, -ENOMEM, "out of memory");
		turn_end(t, &why);
		return;
	}
	r->t = t;
	r->c = c;
	r->n = n;
	r->boot = !n->k.memory;
	(void)str_copy(r->node, sizeof(r->node), str_of(n->k.id));
	tree_pin(n);
	space_job(c->sp, c->q, check_job, checked, r);
}
