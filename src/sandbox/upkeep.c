/* upkeep.c - what is done for the nodes in the background, one at a time: digests are computed once a node is no longer new, compared once with the
 * files after something was started from it, and all of them when somebody asks for it (fsck). What is too old by the configuration goes.
 *
 * Nothing of this is on the way of a save or a start. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define LOOK_MS 10000
#define NEW_NS (30 * NS_PER_S) /* many nodes live no longer than this: a branch's, a short suspension's */
#define RETENTION_NS (600 * NS_PER_S)
#define DISKS_NS (60 * NS_PER_S)

/* --- what was found out --- */

/* Its record, in the background: a restart that does not find it written finds it out again. */
static void note(struct tree_node *n)
{
	struct store_txn *t = store_begin(n->sp->store);

	if (!t)
		return;
	(void)tree_put(n, t);
	FAULT_VOID(store_commit(t, NULL, NULL));
}

static void event_published(void *arg, const struct fail *why)
{
	void **v = arg;
	struct space *sp = v[0];

	event_publish(sp, v[1], !why->err);
	free(v);
	sp->jobs--;
	space_check_gone(sp);
}

/* Nothing more is started from it; what runs already has read its pages and goes on. */
static void damaged(struct tree_node *n, const char *where)
{
	struct space *sp = n->sp;
	struct store_txn *t = store_begin(sp->store);
	void **v = calloc(2, sizeof(*v));
	struct live_event *ev = NULL;
	struct buf b;
	struct jw w;

	log_error("checkpoint %s is damaged: %s", n->k.id, where);
	(void)str_copy(n->k.damaged, sizeof(n->k.damaged), str_of(where));
	source_forget(sp, n->k.id);
	ready_drop(sp, n->k.id);
	if (!t || !v) {
		free(t);
		free(v);
		return;
	}
	buf_init(&b, 4 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "checkpoint", n->k.id);
	jw_str(&w, "where", where);
	jw_obj_end(&w);
	(void)tree_put(n, t);
	(void)event_add(sp, t, n->k.tenant, n->k.sandbox, "damaged", buf_str(&b), &ev);
	buf_clear(&b);
	v[0] = sp;
	v[1] = ev;
	sp->jobs++; /* the daemon does not stop before it has come back */
	FAULT_VOID(store_commit(t, event_published, v));
}

static void verified(struct tree_node *n, int result, const char *where)
{
	if (result == -EBADMSG) {
		if (strcmp(n->k.damaged, where))
			damaged(n, where);
		return;
	}
	if (result < 0)
		return;
	if (n->k.damaged[0])
		log_info("checkpoint %s: its digests hold again", n->k.id);
	n->k.damaged[0] = '\0';
	n->verify = false;
	n->digested = n->verified = true;
	note(n);
}

/* --- one node --- */

struct look {
	struct space *sp;
	struct tree_node *n; /* pinned */
	bool compare, make;  /* make: the digests, if there are none */
	int result;	     /* of the comparison */
	char where[160];
	void (*done)(struct look *l, const struct fail *why, void *arg);
	void *arg;
};

static int look_job(void *arg, struct fail *why)
{
	struct look *l = arg;
	struct pool *p = l->sp->pool;
	int r;

	if (l->compare) {
		l->result = node_verify(p, l->n->k.id, l->where, why);
		if (l->result != -ENOENT || !l->make)
			return l->result == -EBADMSG ? 0 : l->result;
		*why = (struct fail){ 0 };
	}
	r = FAULT_WHY(why, node_digest(p, l->n->k.id, why));
	l->result = r;
	return r;
}

static void looked(void *arg, const struct fail *why)
{
	struct look *l = arg;
	struct tree_node *n = l->n;
	struct fail f = *why;

	tree_unpin(n);
	if (n->removing) {
		f = (struct fail){ 0 };
		l->result = 0;
	} else if (l->compare) {
		verified(n, l->result, l->where);
	} else if (!f.err) {
		n->digested = true;
		note(n);
	}
	l->done(l, &f, l->arg);
	free(l);
}

static int look(struct tree_node *n, bool compare, bool make, void (*done)(struct look *l, const struct fail *why, void *arg), void *arg)
{
	struct look *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	*l = (struct look){ .sp = n->sp, .n = n, .compare = compare, .make = make, .done = done, .arg = arg };
	tree_pin(n);
	space_job(n->sp, NULL, look_job, looked, l);
	return 0;
}

/* --- in the background --- */

void verify_soon(struct tree_node *n)
{
	n->verify = !n->verified;
}

static struct tree_node *next_one(struct space *sp, bool *compare)
{
	int64_t now = real_ns();

	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (!n->there || n->removing || n->pins || n->k.damaged[0])
			continue;
		*compare = n->digested && n->verify;
		if (*compare || (!n->digested && now - n->k.created_ns > NEW_NS))
			return n;
	}
	return NULL;
}

static void looked_at(struct look *l, const struct fail *why, void *arg)
{
	struct space *sp = l->sp;

	sp->verifying = false;
	if (why->err) {
		log_warning("checkpoint %s: its digests could not be %s: %s", l->n->k.id, l->compare ? "compared" : "made", why->msg);
		l->n->digested = true; /* not tried for ever: the next start or fsck does; its record does not say so */
		l->n->verify = false;
	}
	nodes_collect(sp);
}

static void pruned(json_t *value, const struct fail *why, void *arg)
{
	if (why->err)
		log_warning("retention: %s", why->msg);
}

static void retain(struct space *sp)
{
	struct prune_req q = { .retention = true, .snapshots = true, .checkpoints = true };

	if ((!sp->cfg.retention_s && !sp->cfg.nretentions) || (sp->retained_ns && mono_ns() - sp->retained_ns < RETENTION_NS))
		return;
	sp->retained_ns = mono_ns();
	checkpoint_prune(sp, NULL, &q, pruned, sp);
}

/* --- disks in very many pieces: a clone of one takes 8 ms for every 1,000, with the guest standing still --- */

struct rewrite {
	struct sandbox_core *c;
	struct pool *pool;
	char id[24];
	uint64_t pieces;
};

static int rewrite_job(void *arg, struct fail *why)
{
	struct rewrite *w = arg;
	int r = disk_extents(w->pool, w->id, &w->pieces, why);

	if (r < 0 || w->pieces <= DISK_EXTENTS_MAX)
		return r;
	return disk_rewrite(w->pool, w->id, why);
}

static void rewritten(void *arg, const struct fail *why)
{
	struct rewrite *w = arg;
	struct sandbox_core *c = w->c;

	if (w->pieces > DISK_EXTENTS_MAX && !c->ending)
		log_info("sandbox %s: its disk in %llu pieces %s", c->sb.id, (unsigned long long)w->pieces, why->err ? why->msg : "was put together");
	c->sp->rewriting = false;
	sandbox_unkeep(&c->sb);
	free(w);
}

/* One sandbox after the other, a look every minute. Its queue keeps saves and the end of its machine away meanwhile; one whose disk is busy is left alone. */
static void look_at_disks(struct space *sp)
{
	struct sandbox_core *next_c = NULL, *first = NULL;
	struct rewrite *w;

	if (sp->rewriting || mono_ns() - sp->disks_ns < DISKS_NS)
		return;
	sp->disks_ns = mono_ns();
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!c->m || c->doing || c->start || c->ending || c->sb.read_only || (c->state != SANDBOX_RUNNING && c->state != SANDBOX_PAUSED))
			continue;
		first = first ? first : c;
		if (!next_c && c->sb.created_ns > sp->disks_at_ns)
			next_c = c;
	}
	next_c = next_c ? next_c : first;
	w = next_c ? calloc(1, sizeof(*w)) : NULL;
	if (!w)
		return;
	*w = (struct rewrite){ .c = next_c, .pool = sp->pool };
	memcpy(w->id, next_c->m->id, sizeof(w->id));
	sp->disks_at_ns = next_c->sb.created_ns;
	sp->rewriting = true;
	sandbox_keep(&next_c->sb);
	space_job(sp, next_c->q, rewrite_job, rewritten, w);
}

static void tick(void *arg)
{
	struct space *sp = arg;

	later_set(sp, &sp->verify, LOOK_MS, tick, sp);
	upkeep(sp);
}

void upkeep(struct space *sp)
{
	struct tree_node *n;
	bool compare;

	if (sp->stopping || !sp->recovered)
		return;
	retain(sp);
	look_at_disks(sp);
	if (sp->verifying || !(n = next_one(sp, &compare)))
		return;
	sp->verifying = look(n, compare, false, looked_at, sp) == 0;
}

void verify_watch(struct space *sp)
{
	later_set(sp, &sp->verify, LOOK_MS, tick, sp);
}

/* --- all of them --- */

struct fsck {
	struct space *sp;
	struct operation *op;
	char (*ids)[24];
	size_t n, at, checked;
	json_t *damaged;
	struct fail why; /* the first that could not be looked at, if it was no damage */
};

static void fsck_step(void *arg);

static void fsck_end(struct fsck *k)
{
	json_t *result = json_pack("{s:I,s:O}", "checked", (json_int_t)k->checked, "damaged", k->damaged);

	if (!result && !k->why.err)
		fail_set(&k->why, -ENOMEM, "out of memory");
	log_info("fsck: checked=%zu damaged=%zu", k->checked, json_array_size(k->damaged));
	operation_end(k->op, result, &k->why);
	json_decref(k->damaged);
	free(k->ids);
	free(k);
}

/* "disk at offset 4096: …" taken apart. */
static void add_damage(struct fsck *k, const char *id, const char *where)
{
	const char *at = strstr(where, " at offset ");
	json_t *j = json_pack("{s:s,s:s%,s:s}", "checkpoint", id, "file", where, at ? (size_t)(at - where) : strcspn(where, " "), "where", where);

	if (j && at)
		json_object_set_new(j, "offset", json_integer(strtoll(at + 11, NULL, 10)));
	if (j)
		json_array_append_new(k->damaged, j);
}

static void fsck_looked(struct look *l, const struct fail *why, void *arg)
{
	struct fsck *k = arg;

	k->checked++;
	if (l->result == -EBADMSG)
		add_damage(k, l->n->k.id, l->where);
	else if (why->err && !k->why.err)
		k->why = *why;
	nodes_collect(k->sp);
	fsck_step(k);
}

static void fsck_step(void *arg)
{
	struct fsck *k = arg;
	struct tree_node *n = NULL;
	char step[96];

	while (k->at < k->n && (!(n = tree_find(k->sp, k->ids[k->at])) || !n->there || n->removing)) {
		k->at++;
		n = NULL;
	}
	if (k->sp->stopping && !k->why.err) {
		fail_as(&k->why, ERR_daemon_down, "spaced is stopping");
		n = NULL;
	}
	if (!n) {
		fsck_end(k);
		return;
	}
	k->at++;
	snprintf(step, sizeof(step), "checkpoint %s", n->k.id);
	operation_step(k->op, step, (double)k->at / (double)(k->n + 1));
	if (look(n, true, true, fsck_looked, k) < 0) {
		fail_set(&k->why, -ENOMEM, "out of memory");
		fsck_end(k);
	}
}

struct operation *space_fsck(struct space *sp, const char *tenant, struct fail *why)
{
	struct fsck *k = calloc(1, sizeof(*k));
	size_t n = 0;

	link_each_safe(l, next, &sp->nodes)
		n += tree_seen_by(container_of(l, struct tree_node, link), tenant);
	if (k) {
		k->sp = sp;
		k->ids = calloc(n + 1, sizeof(*k->ids));
		k->damaged = json_array();
	}
	if (k && k->ids && k->damaged)
		k->op = operation_new(sp, tenant ? tenant : TENANT_DEFAULT, "fsck", "");
	if (!k || !k->op) {
		if (k && k->ids && k->damaged)
			fail_as(why, ERR_no_capacity, "too many operations are under way");
		else
			fail_set(why, -ENOMEM, "out of memory");
		if (k) {
			free(k->ids);
			json_decref(k->damaged);
		}
		free(k);
		return NULL;
	}
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *m = container_of(l, struct tree_node, link);

		if (tree_seen_by(m, tenant))
			memcpy(k->ids[k->n++], m->k.id, sizeof(m->k.id));
	}
	log_info("fsck: %zu checkpoints", k->n);
	fsck_step(k);
	return k->op;
}
