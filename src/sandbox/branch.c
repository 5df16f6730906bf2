/* branch.c - siblings that continue from one instant of a sandbox.
 *
 * One node is saved of it (of a suspended one there is one already), and each sibling is a start from that node like any other: the
 * node's memory is one sealed memfd for all of them, each gets a disk, a slot, an identity and entropy of its own, and is confirmed or is
 * not handed out. The parent goes on as soon as it is saved, and may end meanwhile. A sibling that does not come up is reported and takes
 * no other along. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define BRANCHES_MAX 64

struct branch {
	struct space *sp;
	struct sandbox_core *c; /* the parent, held until it is saved, kept until the end */
	bool holds;		/* C is `doing` on our behalf */
	unsigned count, pending;
	char label[128];
	int64_t timeout_s, t0;
	json_t *metadata;
	struct tree_node *n; /* pinned */
	struct sandbox *made[BRANCHES_MAX]; /* kept */
	unsigned nmade, nfailed;
	struct fail failed[BRANCHES_MAX];
	struct live_event *ev;
	branch_done_fn *done;
	void *arg;
};

static void parent_go(struct branch *b)
{
	struct sandbox_core *c = b->c;

	if (!b->holds)
		return;
	b->holds = false;
	c->doing = false;
	if (!c->ending)
		deadline_arm(c);
	sandbox_release(&c->sb);
}

static void finish(struct branch *b, const struct fail *why)
{
	struct branch_result res = { .sandboxes = b->made, .count = b->nmade, .failed = b->failed, .nfailed = b->nfailed };
	struct space *sp = b->sp;
	struct fail f = *why;

	parent_go(b);
	if (!f.err && !b->nmade && b->nfailed)
		f = b->failed[0];
	res.from = f.err ? NULL : &b->n->k;
	b->done(&res, &f, b->arg);
	for (unsigned i = 0; i < b->nmade; i++)
		sandbox_unkeep(b->made[i]);
	if (b->n)
		tree_unpin(b->n);
	sandbox_unkeep(&b->c->sb);
	json_decref(b->metadata);
	free(b);
	nodes_collect(sp);
	space_check_gone(sp);
}

static int event_of(struct branch *b, struct store_txn *t)
{
	struct buf body;
	struct jw w;
	int r;

	buf_init(&body, 8 * KIB);
	jw_init(&w, &body);
	jw_obj(&w, NULL);
	tree_write(&w, "checkpoint", &b->n->k);
	jw_arr(&w, "sandboxes");
	for (unsigned i = 0; i < b->nmade; i++)
		jw_str(&w, NULL, b->made[i]->id);
	jw_arr_end(&w);
	jw_int(&w, "failed", b->nfailed);
	jw_obj_end(&w);
	r = w.err ? w.err : event_add(b->sp, t, b->c->sb.tenant, b->c->sb.id, "branch", buf_str(&body), &b->ev);
	buf_clear(&body);
	return r;
}

static void told(void *arg, const struct fail *why)
{
	struct branch *b = arg;
	struct space *sp = b->sp;

	event_publish(sp, b->ev, !why->err);
	finish(b, &(struct fail){ 0 }); /* the siblings run, whether it could be written down or not */
	sp->jobs--;
	space_check_gone(sp);
}

/* The parent is told who its siblings are, before they are handed out. */
static void one_less(struct branch *b)
{
	struct store_txn *t;

	if (--b->pending)
		return;
	t = b->nmade ? store_begin(b->sp->store) : NULL;
	if (t && event_of(b, t) < 0) {
		free(t);
		t = NULL;
	}
	if (!t) {
		finish(b, &(struct fail){ 0 });
		return;
	}
	b->sp->jobs++; /* the daemon does not stop before it has come back */
	FAULT_VOID(store_commit(t, told, b));
}

static void not_made(struct branch *b, const struct fail *why)
{
	b->failed[b->nfailed++] = *why;
	one_less(b);
}

static void sibling_done(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct branch *b = arg;

	if (!sb) {
		not_made(b, why);
		return;
	}
	sandbox_keep(sb);
	b->made[b->nmade++] = sb;
	one_less(b);
}

/* --- one sibling --- */

static int metadata_of(struct branch *b, struct sandbox *sb)
{
	json_t *all = json_copy(b->c->sb.metadata);

	if (!all || (b->metadata && json_object_update(all, b->metadata) < 0)) {
		json_decref(all);
		return -ENOMEM;
	}
	json_decref(sb->metadata);
	sb->metadata = all;
	return 0;
}

static int fill_in(struct branch *b, struct sandbox_core *c)
{
	const struct sandbox *from = &b->c->sb;
	struct sandbox *sb = &c->sb;

	if (core_from_node(c, b->n) < 0 || metadata_of(b, sb) < 0)
		return -ENOMEM;
	c->continues = b->n->k.memory != 0;
	sb->timeout_s = b->timeout_s >= 0 ? b->timeout_s : from->timeout_s;
	sb->idle_timeout_s = from->idle_timeout_s;
	sb->suspend_on_timeout = from->suspend_on_timeout;
	sb->auto_wake = from->auto_wake;
	sb->created_ns = sb->last_active_ns = real_ns();
	identity_new(c);
	return waiter_add(&c->creators, sibling_done, b);
}

static void sibling(struct branch *b)
{
	struct space *sp = b->sp;
	struct sandbox_core *c;
	struct fail f = { 0 };
	char id[ID_LEN + 1];

	if (sp->stopping)
		fail_as(&f, ERR_daemon_down, "spaced is stopping");
	if (f.err || admit(sp, b->c->sb.memory, &f) < 0) {
		not_made(b, &f);
		return;
	}
	id_make(id, 'i');
	c = core_new(sp, id, b->c->sb.tenant);
	if (!c || fill_in(b, c) < 0) {
		core_drop(c);
		fail_set(&f, -ENOMEM, "out of memory");
		not_made(b, &f);
		return;
	}
	c->reserved = c->sb.memory;
	sp->memory_reserved += c->reserved;
	start_begin(c, NULL, b->n->k.id, !b->n->k.memory, b->t0, 0); /* without memory: the parent lies in a snapshot */
}

static void siblings(struct branch *b)
{
	b->pending = b->count + 1;
	for (unsigned i = 0; i < b->count; i++)
		sibling(b);
	one_less(b);
}

/* --- the node --- */

static void saved(struct tree_node *n, const struct fail *why, void *arg)
{
	struct branch *b = arg;

	if (why->err) {
		finish(b, why);
		return;
	}
	b->n = n;
	parent_go(b);
	siblings(b);
}

static void copied(const struct checkpoint *k, const struct fail *why, void *arg)
{
	struct branch *b = arg;
	struct fail f = *why;

	if (!f.err && !(b->n = tree_find(b->sp, k->id)))
		fail_as(&f, ERR_checkpoint_not_found, "no checkpoint %s", k->id);
	if (f.err) {
		finish(b, &f);
		return;
	}
	tree_pin(b->n);
	siblings(b);
}

static void take(struct branch *b)
{
	struct save_req save = { .kind = b->label[0] ? NODE_CHECKPOINT : NODE_BRANCH, .label = b->label[0] ? b->label : NULL };
	struct checkpoint_req labelled = { .label = b->label };
	struct sandbox_core *c = b->c;
	struct fail why = { 0 };

	if (c->state != SANDBOX_SUSPENDED) {
		c->doing = b->holds = true;
		sandbox_hold(&c->sb);
		save_node(c, &save, saved, b);
	} else if (b->label[0]) {
		sandbox_checkpoint(&c->sb, &labelled, copied, b);
	} else if (!(b->n = tree_find(b->sp, c->lies_in))) {
		fail_as(&why, ERR_checkpoint_not_found, "sandbox %s lies in checkpoint %s, which is not there", c->sb.id, c->lies_in);
		finish(b, &why);
	} else {
		tree_pin(b->n);
		if (node_startable(b->sp, &b->n->k, !b->n->k.memory, &why) < 0)
			finish(b, &why);
		else
			siblings(b);
	}
}

static int check(struct sandbox_core *c, const struct branch_req *q, struct fail *why)
{
	int64_t most = c->sp->cfg.max_timeout_s;
	int r = savable(c, why);

	if (r < 0)
		return r;
	if (q->count < 1 || q->count > BRANCHES_MAX)
		return fail_as(why, ERR_bad_request, "count: a whole number from 1 to %d", BRANCHES_MAX);
	if (q->label && (strlen(q->label) > 127 || str_has_ctl(str_of(q->label))))
		return fail_as(why, ERR_bad_request, "label: at most 127 characters");
	if (q->timeout_s > 366 * 86400)
		return fail_as(why, ERR_bad_request, "timeout: at most a year; 0 for none");
	if (most && q->timeout_s >= 0 && (q->timeout_s == 0 || q->timeout_s > most))
		return fail_as(why, ERR_bad_request, "timeout: from 1 to %lld seconds", (long long)most);
	return check_metadata(q->metadata, why);
}

void sandbox_branch(struct sandbox *sb, const struct branch_req *q, branch_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct branch_result none = { 0 };
	struct fail why = { 0 };
	struct branch *b = NULL;

	if (check(c, q, &why) == 0 && admit(c->sp, c->sb.memory, &why) == 0 && !(b = calloc(1, sizeof(*b))))
		fail_set(&why, -ENOMEM, "out of memory");
	if (!b) {
		done(&none, &why, arg);
		return;
	}
	b->sp = c->sp;
	b->c = c;
	b->t0 = mono_ns();
	b->count = q->count;
	b->timeout_s = q->timeout_s;
	b->metadata = json_incref(q->metadata);
	b->done = done;
	b->arg = arg;
	(void)str_copy(b->label, sizeof(b->label), str_of(q->label));
	sandbox_keep(sb);
	take(b);
}
