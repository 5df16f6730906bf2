/* checkpoint.c - the tree as the API sees it: found, listed, removed, pruned. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

/* Who came from whom, counted anew: 10,000 nodes and a thousand sandboxes take less than a millisecond. */
static void count_children(struct space *sp)
{
	struct tree_node *p;

	link_each_safe(l, next, &sp->nodes)
		container_of(l, struct tree_node, link)->k.children = 0;
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (n->there && !n->removing && n->k.parent[0] && (p = tree_find(sp, n->k.parent)))
			p->k.children++;
	}
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!state_ended(c->state) && c->sb.node[0] && (p = tree_find(sp, c->sb.node)))
			p->k.children++;
	}
}

static struct tree_node *find(struct space *sp, const char *tenant, struct str what, struct fail *why)
{
	struct tree_node *n, *found = NULL;
	char id[24];

	if (id_valid(what, 'n') && str_copy(id, sizeof(id), what) == 0) {
		n = tree_find(sp, id);
		if (n && tree_seen_by(n, tenant))
			return n;
	}
	link_each_safe(l, next, &sp->nodes) {
		n = container_of(l, struct tree_node, link);
		if (!what.n || !str_eqz(what, n->k.label) || !tree_seen_by(n, tenant))
			continue;
		if (found) {
			fail_as(why, ERR_checkpoint_not_found, "more than one checkpoint has the label \"%.*s\"", (int)MIN(what.n, 64), what.p);
			fail_remedy(why, "use its id: space tree");
			return NULL;
		}
		found = n;
	}
	if (!found)
		fail_as(why, ERR_checkpoint_not_found, "no checkpoint \"%.*s\"", (int)MIN(what.n, 64), what.p ? what.p : "");
	return found;
}

const struct checkpoint *checkpoint_find(struct space *sp, const char *tenant, struct str id_or_label, struct fail *why)
{
	struct tree_node *n = find(sp, tenant, id_or_label, why);

	if (!n)
		return NULL;
	count_children(sp);
	return &n->k;
}

void checkpoint_each(struct space *sp, const char *tenant, const char *sandbox, int (*fn)(const struct checkpoint *k, void *arg), void *arg)
{
	struct link *prev;

	count_children(sp);
	for (struct link *l = sp->nodes.prev; l != &sp->nodes; l = prev) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		prev = l->prev;
		if (!tree_seen_by(n, tenant) || (sandbox && strcmp(n->k.sandbox, sandbox)))
			continue;
		if (!fn(&n->k, arg))
			return;
	}
}

/* --- removing --- */

static struct sandbox_core *who_lies_in(struct space *sp, const char *id)
{
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!state_ended(c->state) && !strcmp(c->lies_in, id))
			return c;
	}
	return NULL;
}

static int may_go(struct tree_node *n, struct fail *why)
{
	struct sandbox_core *c;

	if (n->k.kind == NODE_TEMPLATE) {
		fail_as(why, ERR_busy, "checkpoint %s is template %s", n->k.id, n->k.template);
		fail_remedy(why, "space template rm %s", n->k.template);
		return -EBUSY;
	}
	c = who_lies_in(n->sp, n->k.id);
	if (c) {
		fail_as(why, ERR_busy, "sandbox %s lies in checkpoint %s", c->sb.id, n->k.id);
		fail_remedy(why, "space wake %s, or space kill %s", c->sb.id, c->sb.id);
		return -EBUSY;
	}
	if (n->pins)
		return fail_as(why, ERR_busy, "checkpoint %s is being used just now", n->k.id);
	return 0;
}

/* Sandboxes that came from N live on without it; what is saved of them says which initramfs they have. */
static void leave_initrd(struct tree_node *n)
{
	link_each_safe(l, next, &n->sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!c->initrd_digest[0] && (!strcmp(c->sb.node, n->k.id) || !strcmp(c->sb.checkpoint, n->k.id)))
			(void)str_copy(c->initrd_digest, sizeof(c->initrd_digest), str_of(n->initrd_digest));
	}
}

struct remove_call {
	void (*done)(const struct fail *why, void *arg);
	void *arg;
};

static void removed(const struct fail *why, void *arg)
{
	struct remove_call *r = arg;

	r->done(why, r->arg);
	free(r);
}

void checkpoint_remove(struct space *sp, const char *tenant, const char *id, void (*done)(const struct fail *why, void *arg), void *arg)
{
	struct fail why = { 0 };
	struct tree_node *n = find(sp, tenant, str_of(id), &why);
	struct remove_call *r;

	if (n && tenant && strcmp(n->k.tenant, tenant))
		fail_as(&why, ERR_forbidden, "checkpoint %s is the host's own", n->k.id);
	else if (n)
		(void)may_go(n, &why);
	r = why.err ? NULL : calloc(1, sizeof(*r));
	if (!r) {
		if (!why.err)
			fail_set(&why, -ENOMEM, "out of memory");
		done(&why, arg);
		return;
	}
	*r = (struct remove_call){ done, arg };
	log_info("checkpoint %s: removed", n->k.id);
	leave_initrd(n);
	tree_remove(n, "removed", removed, r);
}

/* --- pruning --- */

struct prune {
	struct space *sp;
	unsigned under_way;
	json_t *removed;
	uint64_t bytes;
	struct fail why; /* of the first that could not be removed */
	json_done_fn *done;
	void *arg;
};

static bool used_by_living(struct space *sp, const struct tree_node *n)
{
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!state_ended(c->state) &&
		    (!strcmp(c->sb.node, n->k.id) || !strcmp(c->sb.checkpoint, n->k.id) || !strcmp(c->lies_in, n->k.id)))
			return true;
	}
	return false;
}

/* Asked for by somebody, older than that, and nothing needs it now. */
static bool prunable(struct tree_node *n, const char *tenant, const struct prune_req *q, int64_t now_ns)
{
	bool wanted = (q->checkpoints && (n->k.kind == NODE_CHECKPOINT || n->k.kind == NODE_BRANCH)) || (q->snapshots && n->k.kind == NODE_SNAPSHOT);
	int64_t older_s = q->retention ? config_retention(&n->sp->cfg, n->k.tenant) : q->older_than_s;

	if (q->retention && !older_s)
		return false; /* its tenant's stay */
	return wanted && n->there && !n->removing && !n->pins && n->k.created_ns <= now_ns - older_s * NS_PER_S && (!tenant || !strcmp(n->k.tenant, tenant)) &&
	       !used_by_living(n->sp, n);
}

static void prune_one_less(struct prune *p)
{
	json_t *j;

	if (--p->under_way)
		return;
	j = p->why.err ? NULL : json_pack("{s:O,s:I}", "removed", p->removed, "bytes", (json_int_t)p->bytes);
	if (!j && !p->why.err)
		fail_set(&p->why, -ENOMEM, "out of memory");
	p->done(j, &p->why, p->arg);
	json_decref(j);
	json_decref(p->removed);
	free(p);
}

static void pruned(const struct fail *why, void *arg)
{
	struct prune *p = arg;

	if (why->err && !p->why.err)
		p->why = *why;
	prune_one_less(p);
}

void checkpoint_prune(struct space *sp, const char *tenant, const struct prune_req *q, json_done_fn *done, void *arg)
{
	struct prune *p = calloc(1, sizeof(*p));
	int64_t now = real_ns();
	struct fail why = { 0 };

	if (p)
		p->removed = json_array();
	if (!p || !p->removed) {
		free(p);
		fail_set(&why, -ENOMEM, "out of memory");
		done(NULL, &why, arg);
		return;
	}
	p->sp = sp;
	p->done = done;
	p->arg = arg;
	p->under_way = 1;
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (!prunable(n, tenant, q, now))
			continue;
		json_array_append_new(p->removed, json_string(n->k.id));
		p->bytes += n->k.own_bytes;
		if (q->dry_run)
			continue;
		p->under_way++;
		leave_initrd(n);
		tree_remove(n, q->retention ? "retention" : "pruned", pruned, p);
	}
	if (!q->dry_run && json_array_size(p->removed))
		log_info("pruned checkpoints: count=%zu bytes=%llu", json_array_size(p->removed), (unsigned long long)p->bytes);
	prune_one_less(p);
}
