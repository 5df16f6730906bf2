/* template.c - templates: the list, their records, their variants. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define VARIANTS_MAX 16

/* --- the list --- */

struct tmpl *tmpl_find(struct space *sp, const char *tenant, const char *name)
{
	struct tmpl *common = NULL;

	link_each_safe(l, next, &sp->templates) {
		struct tmpl *t = container_of(l, struct tmpl, link);

		if (strcmp(t->t.name, name))
			continue;
		if (!tenant || !strcmp(t->tenant, tenant))
			return t;
		if (!strcmp(t->tenant, TENANT_DEFAULT))
			common = t;
	}
	return common;
}

const struct template *template_find(struct space *sp, const char *tenant, const char *name, struct fail *why)
{
	struct tmpl *t = tmpl_find(sp, tenant, name);

	if (t)
		return &t->t;
	fail_as(why, ERR_template_not_found, "no template \"%.60s\"", name);
	return NULL;
}

void template_each(struct space *sp, const char *tenant, int (*fn)(const struct template *t, void *arg), void *arg)
{
	link_each_safe(l, next, &sp->templates) {
		struct tmpl *t = container_of(l, struct tmpl, link);

		if (tenant && strcmp(t->tenant, tenant) && strcmp(t->tenant, TENANT_DEFAULT))
			continue;
		if (!fn(&t->t, arg))
			return;
	}
}

struct tmpl *tmpl_new(struct space *sp, const char *tenant, const char *name)
{
	struct tmpl *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->sp = sp;
	t->refs = 1;
	link_init(&t->link);
	link_init(&t->variants);
	(void)str_copy(t->tenant, sizeof(t->tenant), str_of(tenant));
	(void)str_copy(t->t.name, sizeof(t->t.name), str_of(name));
	return t;
}

void tmpl_unref(struct tmpl *t)
{
	if (--t->refs)
		return;
	link_each_safe(l, next, &t->variants) {
		link_del(l);
		free(container_of(l, struct variant, link));
	}
	json_decref(t->t.env);
	json_decref(t->setup);
	free(t);
}

struct variant *variant_add(struct tmpl *t, unsigned vcpu, uint64_t memory, bool read_only)
{
	struct variant *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->t = t;
	v->vcpu = vcpu;
	v->memory = memory;
	v->read_only = read_only;
	link_add_tail(&t->variants, &v->link);
	return v;
}

struct variant *variant_find(struct tmpl *t, unsigned vcpu, uint64_t memory, bool read_only)
{
	link_each_safe(l, next, &t->variants) {
		struct variant *v = container_of(l, struct variant, link);

		if (v->vcpu == vcpu && v->memory == memory && v->read_only == read_only)
			return v;
	}
	return NULL;
}

/* Over the limit the one unused for longest goes; never the first, never one being made. */
static void variants_trim(struct tmpl *t)
{
	struct variant *oldest = NULL;
	unsigned n = 0;

	link_each_safe(l, next, &t->variants) {
		struct variant *v = container_of(l, struct variant, link);

		n++;
		if (l != t->variants.next && !v->build && v->node[0] && (!oldest || v->used_ns < oldest->used_ns))
			oldest = v;
	}
	if (n <= VARIANTS_MAX || !oldest)
		return;
	ready_drop(t->sp, oldest->node);
	link_del(&oldest->link);
	free(oldest);
}

/* --- records --- */

static void template_key(const struct tmpl *t, char out[128])
{
	snprintf(out, 128, "%s/%s", t->tenant, t->t.name);
}

void template_write(struct jw *w, const char *key, const struct template *t)
{
	char digest[80];

	jw_obj(w, key);
	jw_str(w, "name", t->name);
	jw_int(w, "version", t->version);
	jw_str(w, "node", t->node);
	jw_obj(w, "digests");
	snprintf(digest, sizeof(digest), "sha256:%s", t->image_digest);
	jw_str(w, "image", digest);
	snprintf(digest, sizeof(digest), "sha256:%s", t->kernel_digest);
	jw_str(w, "kernel", digest);
	jw_obj_end(w);
	jw_int(w, "vcpu", t->vcpu);
	jw_int(w, "memory", (int64_t)t->memory);
	jw_int(w, "disk", (int64_t)t->disk);
	jw_time(w, "created_at", t->created_ns);
	jw_int(w, "bytes", (int64_t)t->bytes);
	jw_json(w, "env", t->env);
	jw_str(w, "user", t->user);
	jw_str(w, "workdir", t->workdir);
	jw_str(w, "start_cmd", t->start_cmd);
	jw_obj_end(w);
}

static int record(const struct tmpl *t, struct buf *out)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_str(&w, "name", t->t.name);
	jw_str(&w, "tenant", t->tenant);
	jw_int(&w, "version", t->t.version);
	jw_str(&w, "image", t->t.image_digest);
	jw_str(&w, "kernel", t->t.kernel_digest);
	jw_int(&w, "disk", (int64_t)t->t.disk);
	jw_int(&w, "created_ns", t->t.created_ns);
	jw_json(&w, "env", t->t.env);
	jw_str(&w, "user", t->t.user);
	jw_str(&w, "workdir", t->t.workdir);
	jw_str(&w, "start_cmd", t->t.start_cmd);
	jw_str(&w, "ready_cmd", t->ready_cmd);
	jw_json(&w, "setup", t->setup);
	jw_arr(&w, "variants");
	for (struct link *l = t->variants.next; l != &t->variants; l = l->next) {
		struct variant *v = container_of(l, struct variant, link);

		if (!v->node[0])
			continue;
		jw_obj(&w, NULL);
		jw_int(&w, "vcpu", v->vcpu);
		jw_int(&w, "memory", (int64_t)v->memory);
		jw_bool(&w, "read_only", v->read_only);
		jw_str(&w, "node", v->node);
		jw_int(&w, "generation", v->generation);
		jw_int(&w, "bytes", (int64_t)v->bytes);
		jw_obj_end(&w);
	}
	jw_arr_end(&w);
	jw_obj_end(&w);
	return w.err;
}

void template_save(struct tmpl *t, store_done_fn *done, void *arg)
{
	struct store_txn *txn = store_begin(t->sp->store);
	struct fail why = { 0 };
	char key[128];
	struct buf b;
	int r;

	template_key(t, key);
	buf_init(&b, 512 * KIB);
	r = txn ? record(t, &b) : -ENOMEM;
	if (r == 0)
		r = store_put(txn, "template", key, buf_str(&b));
	buf_clear(&b);
	if (r < 0) {
		free(txn);
		fail_set(&why, r, "template %s: its record could not be made: %s", t->t.name, strerror(-r));
		done(arg, &why);
		return;
	}
	FAULT_VOID(store_commit(txn, done, arg));
}

static int load_variant(struct tmpl *t, json_t *j, struct fail *why)
{
	struct rec {
		int64_t vcpu, memory, generation, bytes;
		const char *node;
		bool read_only;
	} r = { 0 };
	static const struct field fields[] = {
		INT_FIELD(struct rec, vcpu, 1, 1024, true), INT_FIELD(struct rec, memory, 1, INT64_MAX, true),
		INT_FIELD(struct rec, generation, 0, INT64_MAX, true), INT_FIELD(struct rec, bytes, 0, INT64_MAX, false),
		STR_FIELD(struct rec, node, 23, true), BOOL_FIELD(struct rec, read_only, true),
	};
	struct variant *v;

	if (fields_read_loose(j, fields, ARRAY_LEN(fields), &r, why) < 0)
		return why->err;
	v = variant_add(t, (unsigned)r.vcpu, (uint64_t)r.memory, r.read_only);
	if (!v)
		return fail_set(why, -ENOMEM, "out of memory");
	v->generation = r.generation;
	v->bytes = (uint64_t)r.bytes;
	(void)str_copy(v->node, sizeof(v->node), str_of(r.node));
	return 0;
}

int template_load(struct space *sp, struct str body, struct fail *why)
{
	struct rec {
		const char *name, *tenant, *image, *kernel, *user, *workdir, *start_cmd, *ready_cmd;
		int64_t version, disk, created_ns;
		json_t *env, *setup, *variants;
	} r = { 0 };
	static const struct field fields[] = {
		STR_FIELD(struct rec, name, 63, true), STR_FIELD(struct rec, tenant, 31, true), STR_FIELD(struct rec, image, 64, true),
		STR_FIELD(struct rec, kernel, 64, true), STR_FIELD(struct rec, user, 63, false), STR_FIELD(struct rec, workdir, 255, false),
		STR_FIELD(struct rec, start_cmd, 1023, false), STR_FIELD(struct rec, ready_cmd, 1023, false),
		INT_FIELD(struct rec, version, 1, UINT32_MAX, true), INT_FIELD(struct rec, disk, 0, INT64_MAX, true),
		INT_FIELD(struct rec, created_ns, 0, INT64_MAX, true), OBJ_FIELD(struct rec, env, 10000, false),
		ARR_FIELD(struct rec, setup, 10000, false), ARR_FIELD(struct rec, variants, 64, true),
	};
	autojson json_t *j = json_read(body, why);
	struct variant *first;
	struct tmpl *t;
	json_t *v;
	size_t i;

	if (!j || fields_read_loose(j, fields, ARRAY_LEN(fields), &r, why) < 0)
		return why->err;
	t = tmpl_new(sp, r.tenant, r.name);
	if (!t)
		return fail_set(why, -ENOMEM, "out of memory");
	t->t.version = (unsigned)r.version;
	t->t.disk = (uint64_t)r.disk;
	t->t.created_ns = r.created_ns;
	t->t.env = json_incref(r.env);
	t->setup = json_incref(r.setup);
	(void)str_copy(t->t.image_digest, sizeof(t->t.image_digest), str_of(r.image));
	(void)str_copy(t->t.kernel_digest, sizeof(t->t.kernel_digest), str_of(r.kernel));
	(void)str_copy(t->t.user, sizeof(t->t.user), str_of(r.user));
	(void)str_copy(t->t.workdir, sizeof(t->t.workdir), str_of(r.workdir));
	(void)str_copy(t->t.start_cmd, sizeof(t->t.start_cmd), str_of(r.start_cmd));
	(void)str_copy(t->ready_cmd, sizeof(t->ready_cmd), str_of(r.ready_cmd));
	json_array_foreach(r.variants, i, v)
		if (load_variant(t, v, why) < 0)
			goto failed;
	if (link_empty(&t->variants)) {
		fail_as(why, ERR_state_version, "the record of template %s is not understood", r.name);
		goto failed;
	}
	first = container_of(t->variants.next, struct variant, link);
	t->t.vcpu = first->vcpu;
	t->t.memory = first->memory;
	t->t.bytes = first->bytes;
	(void)str_copy(t->t.node, sizeof(t->t.node), str_of(first->node));
	link_add_tail(&sp->templates, &t->link);
	return 0;
failed:
	tmpl_unref(t);
	return why->err;
}

/* --- coming and going --- */

/* T, whole and on disk, takes the place of the version before it. */
void template_publish(struct tmpl *t)
{
	struct space *sp = t->sp;

	link_each_safe(l, next, &sp->templates) {
		struct tmpl *old = container_of(l, struct tmpl, link);

		if (strcmp(old->t.name, t->t.name) || strcmp(old->tenant, t->tenant))
			continue;
		link_each_safe(lv, nv, &old->variants)
			ready_drop(sp, container_of(lv, struct variant, link)->node);
		link_del(&old->link);
		old->dead = true;
		tmpl_unref(old);
	}
	link_add_tail(&sp->templates, &t->link);
	log_info("template %s: version=%u node=%s bytes=%llu", t->t.name, t->t.version, t->t.node, (unsigned long long)t->t.bytes);
	nodes_collect(sp);
	ready_refill(sp);
}

int template_remove(struct space *sp, const char *tenant, const char *name, struct fail *why)
{
	struct tmpl *t = tmpl_find(sp, tenant, name);
	struct store_txn *txn;
	char key[128];

	if (!t)
		return fail_as(why, ERR_template_not_found, "no template \"%.60s\"", name);
	if (tenant && strcmp(t->tenant, tenant))
		return fail_as(why, ERR_forbidden, "template \"%.60s\" is the host's own", name);
	txn = store_begin(sp->store);
	if (!txn)
		return fail_set(why, -ENOMEM, "out of memory");
	template_key(t, key);
	(void)store_del(txn, "template", key);
	FAULT_VOID(store_commit(txn, NULL, NULL));
	link_each_safe(l, next, &t->variants)
		ready_drop(sp, container_of(l, struct variant, link)->node);
	link_del(&t->link);
	t->dead = true;
	tmpl_unref(t);
	nodes_collect(sp);
	return 0;
}

void templates_clear(struct space *sp)
{
	link_each_safe(l, next, &sp->templates) {
		link_del(l);
		tmpl_unref(container_of(l, struct tmpl, link));
	}
}

void variant_get(struct tmpl *t, unsigned vcpu, uint64_t memory, bool read_only, variant_fn *fn, void *arg)
{
	struct variant *v = variant_find(t, vcpu, memory, read_only);
	struct fail why = { 0 };

	if (v && v->node[0]) {
		struct tree_node *n = tree_find(t->sp, v->node);

		if (n && n->k.damaged[0]) {
			fail_as(&why, ERR_checkpoint_damaged, "template %s is damaged: %s of checkpoint %s", t->t.name, n->k.damaged, n->k.id);
			fail_remedy(&why, "build it again: space template build %s", t->t.name);
			v = NULL;
		}
		fn(v, &why, arg);
		return;
	}
	if (!v) {
		v = variant_add(t, vcpu, memory, read_only);
		variants_trim(t);
	}
	if (!v) {
		fail_set(&why, -ENOMEM, "out of memory");
		fn(NULL, &why, arg);
		return;
	}
	build_variant(v, fn, arg);
}
