/* tree.c - the tree of nodes as a whole: who came from whom, what it takes, what is not needed, what is damaged. */
#include <stdio.h>

#include "api/handlers.h"
#include "base/log.h"

/* --- /v1/tree: oldest first, so that parents come before their children --- */

struct tree {
	const struct checkpoint **k;	/* as the core gives them: newest first */
	size_t n, room;
	bool failed;
	/* This page: k[first] down to k[last], and which sandboxes hang on them. */
	size_t first, count;
	struct spot { const char *id; size_t at; } *spots; /* by id */
	struct leaf { size_t at; struct sandbox *sb; } *leaves;
	size_t nleaves, leaf_room;
	struct req *r;
};

static bool grow(void *pp, size_t *room, size_t n, size_t size)
{
	size_t more = *room ? *room * 2 : 256;
	void **p = pp, *q;

	if (n < *room)
		return true;
	q = reallocarray(*p, more, size);
	if (!q)
		return false;
	*p = q;
	*room = more;
	return true;
}

static int collect(const struct checkpoint *k, void *arg)
{
	struct tree *t = arg;

	t->failed = !grow(&t->k, &t->room, t->n, sizeof(struct checkpoint *));
	if (!t->failed)
		t->k[t->n++] = k;
	return !t->failed;
}

/* How many of the oldest a former page has shown. Where the node that it ended with has gone, its time says. */
static size_t shown(const struct tree *t, const struct page *p)
{
	size_t i;

	if (!p->after_id[0])
		return 0;
	for (i = 0; i < t->n; i++)
		if (!strcmp(t->k[i]->id, p->after_id))
			return t->n - i;
	for (i = t->n; i > 0; i--) {
		const struct checkpoint *k = t->k[i - 1];

		if (k->created_ns > p->after_ns || (k->created_ns == p->after_ns && strcmp(k->id, p->after_id) > 0))
			break;
	}
	return t->n - i;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct spot *)a)->id, ((const struct spot *)b)->id);
}

static int by_place(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return strcmp(x->sb->id, y->sb->id);
}

/* A sandbox hangs on the latest node of its own, or on what it was started from. */
static int hang(struct sandbox *sb, void *arg)
{
	struct tree *t = arg;
	struct fail why;
	struct spot key = { 0 }, *spot;

	if (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED)
		return 1;
	key.id = sb->checkpoint[0] && checkpoint_find(t->r->api->sp, NULL, str_of(sb->checkpoint), &why) ? sb->checkpoint : sb->node;
	spot = bsearch(&key, t->spots, t->count, sizeof(*t->spots), by_id);
	if (!spot)
		return 1;
	t->failed = !grow(&t->leaves, &t->leaf_room, t->nleaves, sizeof(*t->leaves));
	if (!t->failed)
		t->leaves[t->nleaves++] = (struct leaf){ spot->at, sb };
	return !t->failed;
}

static void place(struct tree *t)
{
	size_t i;

	t->spots = calloc(t->count + 1, sizeof(*t->spots));
	t->failed = !t->spots;
	for (i = 0; !t->failed && i < t->count; i++)
		t->spots[i] = (struct spot){ t->k[t->n - 1 - t->first - i]->id, i };
	if (t->failed)
		return;
	qsort(t->spots, t->count, sizeof(*t->spots), by_id);
	sandbox_each(t->r->api->sp, t->r->tenant, hang, t);
	if (t->nleaves) /* qsort wants an array even for none */
		qsort(t->leaves, t->nleaves, sizeof(*t->leaves), by_place);
}

static void node_write(struct req *r, struct jw *w, const struct checkpoint *k, const struct leaf *leaf, size_t n)
{
	size_t i;

	jw_obj(w, NULL);
	checkpoint_members(r, w, k);
	jw_arr(w, "sandboxes");
	for (i = 0; i < n; i++) {
		jw_obj(w, NULL);
		jw_str(w, "id", leaf[i].sb->id);
		jw_str(w, "name", leaf[i].sb->name);
		jw_str(w, "state", sandbox_state_name(leaf[i].sb->state));
		jw_obj_end(w);
	}
	jw_arr_end(w);
	jw_obj_end(w);
}

static void tree_answer(struct tree *t, struct page *page)
{
	size_t i, leaf = 0, n;
	struct buf b;
	struct jw w;

	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_arr(&w, "nodes");
	for (i = 0; i < t->count; i++) {
		const struct checkpoint *k = t->k[t->n - 1 - t->first - i];

		for (n = 0; leaf + n < t->nleaves && t->leaves[leaf + n].at == i; n++)
			;
		node_write(t->r, &w, k, t->leaves + leaf, n);
		leaf += n;
		page->last_ns = k->created_ns;
		snprintf(page->last_id, sizeof(page->last_id), "%s", k->id);
	}
	jw_arr_end(&w);
	page->more = t->first + t->count < t->n;
	page_end(page, &w);
	jw_obj_end(&w);
	req_json(t->r, 200, &w);
}

void h_tree(struct req *r)
{
	struct tree t = { .r = r };
	struct fail why = { 0 };
	struct page page;

	if (page_read(r, &page, &why) < 0)
		return req_fail(r, &why);
	checkpoint_each(r->api->sp, r->tenant, NULL, collect, &t);
	t.first = shown(&t, &page);
	t.count = MIN(t.n - t.first, page.limit);
	if (!t.failed)
		place(&t);
	if (t.failed)
		req_failf(r, ERR_no_capacity, "out of memory");
	else
		tree_answer(&t, &page);
	free(t.k);
	free(t.spots);
	free(t.leaves);
}

/* --- usage, prune, fsck --- */

static void json_write(struct req *r, struct jw *w, const char *key, const void *what)
{
	jw_json(w, key, what);
}

static void on_value(json_t *value, const struct fail *why, void *arg)
{
	slow_end(arg, NULL, value, json_write, why);
}

void h_usage(struct req *r)
{
	struct slow *s = slow_begin(r, "usage", "", 200);

	if (s)
		space_usage_json(r->api->sp, r->tenant, on_value, s);
}

struct prune_body {
	json_t *older_than, *kinds;
	bool dry_run;
};

const struct field prune_fields[] = {
	ANY_FIELD(struct prune_body, older_than, true),
	ARR_FIELD(struct prune_body, kinds, NODE_KINDS, false),
	BOOL_FIELD(struct prune_body, dry_run, false),
};
const unsigned nprune_fields = ARRAY_LEN(prune_fields);

static int prune_read(json_t *body, struct prune_req *q, struct fail *why)
{
	struct prune_body b = { 0 };
	int64_t ms = 0;
	json_t *kind;
	size_t i;
	int k, err = fields_read(body, prune_fields, nprune_fields, &b, why);

	if (err < 0 || (err = value_ms(b.older_than, "older_than", 100 * 365 * 86400LL, &ms, why)) < 0 ||
	    (b.kinds && (err = value_strings(b.kinds, "kinds", 1, NODE_KINDS, 1 * KIB, why)) < 0))
		return err;
	*q = (struct prune_req){ .older_than_s = (ms + 999) / 1000, .checkpoints = !b.kinds, .snapshots = !b.kinds, .dry_run = b.dry_run };
	json_array_foreach (b.kinds, i, kind) {
		k = kind_find(str_of(json_string_value(kind)));
		if (k != NODE_CHECKPOINT && k != NODE_SNAPSHOT)
			return fail_as(why, ERR_bad_request, "kinds[%zu]: \"checkpoint\" or \"snapshot\"; what others need, and what goes by itself, stays", i);
		q->checkpoints |= k == NODE_CHECKPOINT;
		q->snapshots |= k == NODE_SNAPSHOT;
	}
	return 0;
}

static void prune_body(struct req *r, json_t *body)
{
	struct prune_req q;
	struct fail why = { 0 };
	struct slow *s;

	if (prune_read(body, &q, &why) < 0)
		return req_fail(r, &why);
	s = slow_begin(r, "prune", "", 200);
	if (!s)
		return;
	log_info("prune asked for older_than_s=%lld dry_run=%d", (long long)q.older_than_s, q.dry_run);
	checkpoint_prune(r->api->sp, r->tenant, &q, on_value, s);
}

void h_prune(struct req *r)
{
	req_body(r, prune_body);
}

void h_fsck(struct req *r)
{
	struct fail why = { 0 };
	struct operation *op = space_fsck(r->api->sp, r->tenant, &why);

	if (!op)
		return req_fail(r, &why);
	req_operation(r, op);
}
