/* tree.c - the nodes of the checkpoint tree: their records, in memory by id and in the store, and which of them go when nothing needs them.
 *
 * A node lies whole in the pool, so that removing one hurts no other; what a record says about parents is for people, for accounting and for
 * the next incremental save. A node's name is in the store before its files are in the pool, and out of it after they are gone: a crash in between
 * leaves a name that the next start cleans up, never files that nobody knows. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

static const char *const kinds[] = { "template", "checkpoint", "snapshot", "branch", "suspend" };
static_assert(ARRAY_LEN(kinds) == NODE_KINDS, "one name per kind");

const char *node_kind_name(enum node_kind k)
{
	return k < NODE_KINDS ? kinds[k] : "unknown";
}

/* --- the table --- */

static unsigned bucket_of(const char *id)
{
	unsigned h = 2166136261u;

	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 16777619u;
	return h % NODE_BUCKETS;
}

struct tree_node *tree_find(struct space *sp, const char *id)
{
	struct tree_node *n = sp->node_hash ? sp->node_hash[bucket_of(id)] : NULL;

	while (n && strcmp(n->k.id, id))
		n = n->hash_next;
	return n;
}

struct tree_node *tree_add(struct space *sp, const struct checkpoint *k)
{
	struct tree_node *n = calloc(1, sizeof(*n)), **at;

	if (!sp->node_hash)
		sp->node_hash = calloc(NODE_BUCKETS, sizeof(struct tree_node *));
	if (!n || !sp->node_hash) {
		free(n);
		return NULL;
	}
	n->sp = sp;
	n->k = *k;
	n->pins = 1;
	at = &sp->node_hash[bucket_of(k->id)];
	n->hash_next = *at;
	*at = n;
	link_add_tail(&sp->nodes, &n->link);
	return n;
}

/* Out of memory, not off the disk. */
void tree_forget(struct tree_node *n)
{
	struct tree_node **at = &n->sp->node_hash[bucket_of(n->k.id)];

	while (*at != n)
		at = &(*at)->hash_next;
	*at = n->hash_next;
	link_del(&n->link);
	json_decref(n->guest);
	free(n);
}

void tree_clear(struct space *sp)
{
	link_each_safe(l, next, &sp->nodes)
		tree_forget(container_of(l, struct tree_node, link));
	free(sp->node_hash);
	sp->node_hash = NULL;
}

void tree_unpin(struct tree_node *n)
{
	assert(n->pins > 0);
	n->pins--;
}

bool tree_seen_by(const struct tree_node *n, const char *tenant)
{
	if (!n->there || n->removing)
		return false;
	return !tenant || !strcmp(n->k.tenant, tenant) || (n->k.kind == NODE_TEMPLATE && !strcmp(n->k.tenant, TENANT_DEFAULT));
}

/* --- records --- */

static int write_record(const struct tree_node *n, struct buf *out)
{
	const struct checkpoint *k = &n->k;
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_str(&w, "id", k->id);
	jw_str(&w, "parent", k->parent);
	jw_str(&w, "tenant", k->tenant);
	jw_str(&w, "sandbox", k->sandbox);
	jw_str(&w, "template", k->template);
	jw_str(&w, "label", k->label);
	jw_str(&w, "kind", node_kind_name(k->kind));
	jw_str(&w, "image", k->image_digest);
	jw_str(&w, "kernel", k->kernel_digest);
	jw_str(&w, "initrd", n->initrd_digest);
	jw_str(&w, "driver", k->driver);
	jw_str(&w, "driver_version", k->driver_version);
	jw_int(&w, "vcpu", k->vcpu);
	jw_int(&w, "memory", (int64_t)k->memory);
	jw_int(&w, "disk", (int64_t)k->disk);
	jw_bool(&w, "read_only", k->read_only);
	jw_int(&w, "own_bytes", (int64_t)k->own_bytes);
	jw_int(&w, "shared_bytes", (int64_t)k->shared_bytes);
	jw_int(&w, "paused_us", (int64_t)(k->paused_ms * 1000));
	jw_int(&w, "created_ns", k->created_ns);
	jw_int(&w, "generation", n->generation);
	jw_str(&w, "idempotency_key", n->idem);
	jw_json(&w, "guest", n->guest);
	jw_str(&w, "damaged", k->damaged);
	jw_bool(&w, "there", n->there);
	jw_bool(&w, "removing", n->removing);
	jw_bool(&w, "digested", n->digested);
	jw_bool(&w, "verified", n->verified);
	jw_obj_end(&w);
	return w.err;
}

int tree_put(struct tree_node *n, struct store_txn *t)
{
	struct buf b;
	int r;

	buf_init(&b, 512 * KIB);
	r = write_record(n, &b);
	if (r == 0)
		r = store_put(t, "node", n->k.id, buf_str(&b));
	buf_clear(&b);
	return r;
}

struct record {
	const char *id, *parent, *tenant, *sandbox, *template, *label, *kind, *image, *kernel, *initrd, *driver, *driver_version, *idempotency_key, *damaged;
	int64_t vcpu, memory, disk, own_bytes, shared_bytes, paused_us, created_ns, generation;
	bool read_only, there, removing, digested, verified;
	json_t *guest;
};

#define S(m, n) STR_FIELD(struct record, m, n, false)
#define I(m) INT_FIELD(struct record, m, 0, INT64_MAX, false)
#define B(m) BOOL_FIELD(struct record, m, false)

static const struct field fields[] = {
	S(id, 23), S(parent, 23), S(tenant, 31), S(sandbox, 23), S(template, 63), S(label, 127), S(kind, 15), S(image, 64), S(kernel, 64), S(initrd, 64),
	S(driver, 15), S(driver_version, 127), S(idempotency_key, 128), S(damaged, 159), I(vcpu), I(memory), I(disk), I(own_bytes), I(shared_bytes),
	I(paused_us), I(created_ns), I(generation), B(read_only), B(there), B(removing), B(digested), B(verified),
	OBJ_FIELD(struct record, guest, 100, false),
};

#define COPY(to, from) ((void)str_copy(to, sizeof(to), str_of(from)))

static void read_record(const struct record *r, struct checkpoint *k)
{
	COPY(k->parent, r->parent);
	COPY(k->tenant, r->tenant);
	COPY(k->sandbox, r->sandbox);
	COPY(k->template, r->template);
	COPY(k->label, r->label);
	for (int i = 0; r->kind && i < NODE_KINDS; i++)
		if (!strcmp(r->kind, kinds[i]))
			k->kind = (enum node_kind)i;
	COPY(k->image_digest, r->image);
	COPY(k->kernel_digest, r->kernel);
	COPY(k->driver, r->driver);
	COPY(k->driver_version, r->driver_version);
	COPY(k->damaged, r->damaged);
	k->vcpu = (unsigned)r->vcpu;
	k->memory = (uint64_t)r->memory;
	k->disk = (uint64_t)r->disk;
	k->own_bytes = (uint64_t)r->own_bytes;
	k->shared_bytes = (uint64_t)r->shared_bytes;
	k->paused_ms = (double)r->paused_us / 1000;
	k->created_ns = r->created_ns;
	k->read_only = r->read_only;
}

/* Whose node it is: of the template, or the variant of one, that names it. */
static void find_template(struct space *sp, struct checkpoint *k)
{
	link_each_safe(l, next, &sp->templates) {
		struct tmpl *t = container_of(l, struct tmpl, link);

		link_each_safe(lv, nv, &t->variants) {
			struct variant *v = container_of(lv, struct variant, link);

			if (strcmp(v->node, k->id))
				continue;
			COPY(k->tenant, t->tenant);
			COPY(k->template, t->t.name);
			k->read_only = v->read_only;
			return;
		}
	}
}

/* The first version wrote only that there is one, and there were only templates': the rest is in the node itself. */
static void read_files(struct space *sp, struct checkpoint *k, char initrd[65], bool *there)
{
	struct fail why = { 0 };
	struct node n;

	find_template(sp, k);
	if (node_read(sp->pool, k->id, &n, &why) < 0)
		return; /* a name without a node: it goes */
	*there = true;
	COPY(k->parent, n.parent);
	COPY(k->image_digest, n.image.hex);
	COPY(k->kernel_digest, n.kernel.hex);
	(void)str_copy(initrd, 65, str_of(n.initrd.hex));
	COPY(k->driver, n.driver);
	COPY(k->driver_version, n.driver_version);
	k->vcpu = n.vcpus;
	k->memory = n.has_memory ? n.memory : 0;
	k->disk = n.disk;
	k->own_bytes = n.own_bytes;
	k->created_ns = n.created_ns;
}

int tree_load(struct space *sp, const char *id, struct str body, struct fail *why)
{
	autojson json_t *j = json_read(body, why);
	struct checkpoint k = { 0 };
	struct record r = { 0 };
	char initrd[65] = "";
	struct tree_node *n;
	bool old;

	if (!j || fields_read_loose(j, fields, ARRAY_LEN(fields), &r, why) < 0)
		return why->err;
	if (!id_valid(str_of(id), 'n'))
		return fail_as(why, ERR_state_version, "a checkpoint's record is not understood: id \"%.40s\"", id);
	COPY(k.id, id);
	old = !r.kind;
	if (old)
		read_files(sp, &k, initrd, &r.there);
	else
		read_record(&r, &k);
	n = tree_add(sp, &k);
	if (!n)
		return fail_set(why, -ENOMEM, "out of memory");
	n->pins = 0;
	COPY(n->initrd_digest, old ? initrd : r.initrd);
	COPY(n->idem, r.idempotency_key);
	n->generation = r.generation;
	n->guest = json_incref(r.guest);
	n->there = r.there;
	n->removing = r.removing || !r.there; /* one that was just being made when the last daemon ended */
	n->digested = r.digested;
	n->verified = r.verified;
	n->old_record = old && r.there;
	return 0;
}

json_t *node_meta(const struct tree_node *n)
{
	json_t *meta = n->guest ? json_deep_copy(n->guest) : json_object();

	if (meta) {
		json_object_set_new(meta, "template", json_string(n->k.template));
		json_object_set_new(meta, "generation", json_integer(n->generation));
	}
	return meta;
}

void tree_write(struct jw *w, const char *key, const struct checkpoint *k)
{
	jw_obj(w, key);
	jw_str(w, "id", k->id);
	jw_str(w, "kind", node_kind_name(k->kind));
	jw_str(w, "label", k->label[0] ? k->label : NULL);
	jw_str(w, "parent", k->parent[0] ? k->parent : NULL);
	jw_int(w, "own_bytes", (int64_t)k->own_bytes);
	jw_obj_end(w);
}

/* --- going --- */

struct removal {
	struct tree_node *n; /* pinned */
	struct live_event *ev;
	void (*done)(const struct fail *why, void *arg);
	void *arg;
};

static void removal_end(struct removal *r, const struct fail *why)
{
	struct tree_node *n = r->n;
	struct space *sp = n->sp;

	if (why->err)
		log_warning("checkpoint %s: it could not be removed: %s", n->k.id, why->msg); /* the next start tries again */
	else
		tree_forget(n); /* else it stays pinned: not tried for ever */
	if (r->done)
		r->done(why, r->arg);
	free(r);
	sp->jobs--;
	space_check_gone(sp);
}

/* The daemon does not stop while a commit is to come back to us: it is counted as a job is. */
static void unrecorded(void *arg, const struct fail *why)
{
	struct removal *r = arg;
	struct space *sp = r->n->sp;

	removal_end(r, why);
	sp->jobs--;
	space_check_gone(sp);
}

static void files_gone(void *arg, const struct fail *why)
{
	struct removal *r = arg;
	struct store_txn *t = why->err ? NULL : store_begin(r->n->sp->store);

	if (!t) {
		removal_end(r, why->err ? why : &(struct fail){ .err = -ENOMEM, .msg = "out of memory" });
		return;
	}
	(void)store_del(t, "node", r->n->k.id);
	r->n->sp->jobs++;
	FAULT_VOID(store_commit(t, unrecorded, r));
}

static int remove_job(void *arg, struct fail *why)
{
	struct tree_node *n = ((struct removal *)arg)->n;
	int r = FAULT_WHY(why, node_remove(n->sp->pool, n->k.id, why));

	return r == -ENOENT ? 0 : r;
}

static void marked(void *arg, const struct fail *why)
{
	struct removal *r = arg;
	struct space *sp = r->n->sp;

	event_publish(sp, r->ev, !why->err);
	if (why->err)
		removal_end(r, why);
	else
		space_job(sp, NULL, remove_job, files_gone, r);
	sp->jobs--;
	space_check_gone(sp);
}

int tree_event(struct tree_node *n, struct store_txn *t, const char *type, const char *reason, struct live_event **ev)
{
	struct buf b;
	struct jw w;
	int r;

	buf_init(&b, 4 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	tree_write(&w, "checkpoint", &n->k);
	if (reason)
		jw_str(&w, "reason", reason);
	jw_obj_end(&w);
	r = w.err ? w.err : event_add(n->sp, t, n->k.tenant, n->k.sandbox, type, buf_str(&b), ev);
	buf_clear(&b);
	return r;
}

/* A template's goes with the template, a suspended sandbox's with its sleep: the events of those say it. */
static bool is_told(const struct tree_node *n)
{
	return n->k.kind == NODE_CHECKPOINT || n->k.kind == NODE_SNAPSHOT || n->k.kind == NODE_BRANCH;
}

/* The record says so first: what was begun is finished by the next start, and nobody is given a node whose files are half gone. */
void tree_remove(struct tree_node *n, const char *reason, void (*done)(const struct fail *why, void *arg), void *arg)
{
	struct space *sp = n->sp;
	struct removal *r = calloc(1, sizeof(*r));
	struct store_txn *t = r ? store_begin(sp->store) : NULL;
	struct fail why = { 0 };
	bool there = n->there && !n->removing;

	if (!t) {
		free(r);
		fail_set(&why, -ENOMEM, "out of memory");
		if (done)
			done(&why, arg);
		return;
	}
	source_forget(sp, n->k.id);
	n->pins++;
	n->removing = true;
	sp->jobs++; /* until its record is gone: space_stop() waits */
	*r = (struct removal){ .n = n, .done = done, .arg = arg };
	/* Sandboxes whose latest node it is go on from the one before. */
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);
		struct tree_node *p;

		if (strcmp(c->sb.checkpoint, n->k.id))
			continue;
		p = tree_find(sp, n->k.parent);
		COPY(c->sb.checkpoint, p && p->there && !p->removing ? p->k.id : "");
		if (!state_ended(c->state))
			(void)core_put(c, t);
	}
	if (there)
		(void)tree_put(n, t);
	if (there && reason && is_told(n))
		(void)tree_event(n, t, "checkpoint_removed", reason, &r->ev);
	sp->jobs++;
	FAULT_VOID(store_commit(t, marked, r));
}

static int by_age(const void *a, const void *b)
{
	const struct tree_node *x = *(struct tree_node *const *)a, *y = *(struct tree_node *const *)b;

	if (x->k.created_ns != y->k.created_ns)
		return x->k.created_ns < y->k.created_ns ? -1 : 1;
	return strcmp(x->k.id, y->k.id);
}

/* Nodes in the pool that no record names: an import that ended before it was written down. */
static void find_orphans(struct space *sp)
{
	int fd = openat(pool_dirfd(sp->pool), "nodes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct checkpoint k = { 0 };
	struct tree_node *n;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (!id_valid(str_of(e->d_name), 'n') || tree_find(sp, e->d_name))
			continue;
		COPY(k.id, e->d_name);
		n = tree_add(sp, &k);
		if (!n)
			break;
		log_info("checkpoint %s: belongs to nobody and is removed", k.id);
		n->pins = 0;
		n->removing = true;
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}

/* Once after a start: the store gives them by id, the list is by age. Records of the first version are written anew. */
static void settle(struct space *sp)
{
	struct store_txn *t = NULL;
	struct tree_node **all;
	size_t n = 0;

	sp->nodes_sorted = true;
	find_orphans(sp);
	link_each_safe(l, next, &sp->nodes)
		n++;
	all = calloc(n + 1, sizeof(struct tree_node *));
	if (!all)
		return; /* in another order, then */
	n = 0;
	link_each_safe(l, next, &sp->nodes) {
		all[n++] = container_of(l, struct tree_node, link);
		link_del(l);
	}
	qsort(all, n, sizeof(struct tree_node *), by_age);
	for (size_t i = 0; i < n; i++) {
		link_add_tail(&sp->nodes, &all[i]->link);
		if (!all[i]->old_record || (!t && !(t = store_begin(sp->store))))
			continue;
		all[i]->old_record = false;
		(void)tree_put(all[i], t);
	}
	if (t)
		FAULT_VOID(store_commit(t, NULL, NULL));
	free(all);
}

static void need(struct space *sp, const char *id)
{
	struct tree_node *n = id[0] ? tree_find(sp, id) : NULL;

	if (n)
		n->needed = true;
}

static void mark_needed(struct space *sp)
{
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		n->needed = n->k.kind == NODE_CHECKPOINT || n->k.kind == NODE_SNAPSHOT || (n->k.kind == NODE_BRANCH && n->k.label[0]);
	}
	link_each_safe(l, next, &sp->templates) {
		struct tmpl *t = container_of(l, struct tmpl, link);

		link_each_safe(lv, nv, &t->variants)
			need(sp, container_of(lv, struct variant, link)->node);
	}
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (state_ended(c->state))
			continue;
		need(sp, c->sb.node);
		need(sp, c->sb.checkpoint);
		need(sp, c->lies_in);
	}
}

void nodes_collect(struct space *sp)
{
	if (!sp->recovered || sp->stopping)
		return;
	if (!sp->nodes_sorted)
		settle(sp);
	mark_needed(sp);
	link_each_safe(l, next, &sp->sources) {
		struct source *s = container_of(l, struct source, link);

		if (s->refs)
			need(sp, s->node.id);
	}
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (!n->pins && (!n->needed || n->removing))
			tree_remove(n, "unneeded", NULL, NULL);
	}
}
