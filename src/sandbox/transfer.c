/* transfer.c - nodes out of the pool as a stream and back into it, and what the pool holds. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

/* --- out --- */

struct export {
	struct space *sp;
	struct tree_node *n; /* pinned */
	struct live_event *ev;
	char id[24];
	int fd;
	off_t bytes; /* -1: into a pipe, where whoever reads it counts them */
	json_done_fn *done;
	void *arg;
};

static int export_job(void *arg, struct fail *why)
{
	struct export *x = arg;
	off_t from = lseek(x->fd, 0, SEEK_CUR);
	int r = FAULT_WHY(why, node_export(x->sp->pool, x->id, x->fd, NULL, why));

	x->bytes = from < 0 ? -1 : lseek(x->fd, 0, SEEK_CUR) - from;
	close(x->fd);
	return r;
}

static void export_end(struct export *x, const struct fail *why)
{
	json_t *j = why->err ? NULL : json_pack("{s:s}", "checkpoint", x->id);
	struct space *sp = x->sp;
	struct fail f = *why;

	if (!j && !f.err)
		fail_set(&f, -ENOMEM, "out of memory");
	if (j && x->bytes >= 0)
		json_object_set_new(j, "bytes", json_integer(x->bytes));
	tree_unpin(x->n);
	if (f.err)
		log_warning("checkpoint %s: not exported: %s", x->id, f.msg);
	else
		log_info("checkpoint %s: exported", x->id);
	x->done(j, &f, x->arg);
	json_decref(j);
	free(x);
	nodes_collect(sp);
}

static void export_told(void *arg, const struct fail *why)
{
	struct export *x = arg;
	struct space *sp = x->sp;

	event_publish(sp, x->ev, !why->err);
	export_end(x, &(struct fail){ 0 }); /* what is out is out, whether it could be written down or not */
	sp->jobs--;
	space_check_gone(sp);
}

static void exported(void *arg, const struct fail *why)
{
	struct export *x = arg;
	struct store_txn *t = why->err ? NULL : store_begin(x->sp->store);

	if (t && tree_event(x->n, t, "exported", NULL, &x->ev) < 0) {
		free(t);
		t = NULL;
	}
	if (!t) {
		export_end(x, why);
		return;
	}
	x->sp->jobs++; /* the daemon does not stop before it has come back */
	FAULT_VOID(store_commit(t, export_told, x));
}

void checkpoint_export(struct space *sp, const char *tenant, const char *id, int fd, json_done_fn *done, void *arg)
{
	struct fail why = { 0 };
	const struct checkpoint *k = checkpoint_find(sp, tenant, str_of(id), &why);
	struct export *x = k ? calloc(1, sizeof(*x)) : NULL;

	if (k && k->damaged[0])
		fail_as(&why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s", k->id, k->damaged);
	else if (k && sp->stopping)
		fail_as(&why, ERR_daemon_down, "spaced is stopping");
	else if (k && !x)
		fail_set(&why, -ENOMEM, "out of memory");
	if (!x || why.err) {
		free(x);
		close(fd);
		done(NULL, &why, arg);
		return;
	}
	*x = (struct export){ .sp = sp, .n = tree_find(sp, k->id), .fd = fd, .done = done, .arg = arg };
	memcpy(x->id, k->id, sizeof(x->id));
	tree_pin(x->n);
	space_job(sp, NULL, export_job, exported, x);
}

/* --- in --- */

struct import {
	struct space *sp;
	char tenant[32];
	int fd;
	struct node node;
	json_t *meta;	     /* what the stream says about the guest: anything */
	struct tree_node *n; /* pinned */
	struct live_event *ev;
	checkpoint_done_fn *done;
	void *arg;
};

static void import_end(struct import *m, const struct fail *why)
{
	struct space *sp = m->sp;

	if (why->err || !m->n)
		log_warning("import: %s", why->msg);
	else
		log_info("checkpoint %s: imported bytes=%llu", m->n->k.id, (unsigned long long)m->n->k.own_bytes);
	m->done(why->err || !m->n ? NULL : &m->n->k, why, m->arg);
	if (m->n)
		tree_unpin(m->n);
	json_decref(m->meta);
	free(m);
	nodes_collect(sp);
}

static void import_recorded(void *arg, const struct fail *why)
{
	struct import *m = arg;
	struct space *sp = m->sp;

	event_publish(sp, m->ev, !why->err);
	if (!why->err)
		m->n->there = true;
	else
		m->n->removing = true; /* nobody has heard of it */
	import_end(m, why);
	sp->jobs--;
	space_check_gone(sp);
}

static int import_job(void *arg, struct fail *why)
{
	struct import *m = arg;
	int r = FAULT_WHY(why, node_import(m->sp->pool, m->fd, NULL, &m->node, why));

	close(m->fd);
	if (r < 0)
		return r;
	r = node_meta_read(m->sp->pool, m->node.id, &m->meta, why);
	if (r < 0)
		(void)FAULT_WHY(NULL, node_remove(m->sp->pool, m->node.id, NULL));
	return r;
}

static json_t *only_texts(json_t *o)
{
	json_t *out = json_object(), *v;
	const char *key;

	json_object_foreach(o, key, v)
		if (out && json_is_string(v) && key[0] && !strchr(key, '=') && !str_has_ctl(str_of(key)))
			json_object_set(out, key, v);
	return out;
}

/* Of what a stream says, what core_guest() would have said. */
static json_t *guest_from(json_t *meta)
{
	static const char *const texts[] = { "user", "workdir", "boot_token" }, *const numbers[] = { "memory", "vcpu", "disk", "template_version" },
				 *const objects[] = { "env", "guest_env" };
	json_t *g = json_object(), *v, *size;
	const char *key;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (json_is_string(v = json_object_get(meta, texts[i])) && !str_has_ctl(str_of(json_string_value(v))))
			json_object_set(g, texts[i], v);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (json_is_integer(v = json_object_get(meta, numbers[i])) && json_integer_value(v) >= 0)
			json_object_set(g, numbers[i], v);
	for (size_t i = 0; i < ARRAY_LEN(objects); i++)
		if (json_is_object(v = json_object_get(meta, objects[i])))
			json_object_set_new(g, objects[i], only_texts(v));
	v = json_object();
	json_object_foreach(json_object_get(meta, "tmpfs"), key, size)
		if (key[0] == '/' && json_is_integer(size) && json_integer_value(size) > 0)
			json_object_set(v, key, size);
	json_object_set_new(g, "tmpfs", v);
	return g;
}

/* A crash before its record is written leaves a node that no record names: the next start removes it. */
static void imported(void *arg, const struct fail *why)
{
	struct import *m = arg;
	const struct node *n = &m->node;
	struct checkpoint k = { .kind = n->has_memory ? NODE_CHECKPOINT : NODE_SNAPSHOT, .vcpu = n->vcpus, .memory = n->has_memory ? n->memory : 0,
				.disk = n->disk, .read_only = n->read_only, .own_bytes = n->own_bytes, .created_ns = real_ns() };
	struct store_txn *t = NULL;
	struct fail f = *why;

	if (f.err) {
		import_end(m, &f);
		return;
	}
#define COPY(to, from) ((void)str_copy(to, sizeof(to), str_of(from)))
	COPY(k.id, n->id);
	COPY(k.tenant, m->tenant);
	COPY(k.label, n->label);
	COPY(k.image_digest, n->image.hex);
	COPY(k.kernel_digest, n->kernel.hex);
	COPY(k.driver, n->driver);
	COPY(k.driver_version, n->driver_version);
	COPY(k.template, json_string_value(json_object_get(m->meta, "template")));
	if (!str_is_name(str_of(k.template)))
		k.template[0] = '\0';
	m->n = tree_add(m->sp, &k);
	if (m->n) {
		COPY(m->n->initrd_digest, n->initrd.hex);
		m->n->guest = guest_from(m->meta);
		m->n->generation = json_integer_value(json_object_get(m->meta, "generation"));
		m->n->digested = m->n->verified = true; /* every digest was compared on the way in */
		m->n->there = true;
		t = store_begin(m->sp->store);
		if (t && (tree_put(m->n, t) < 0 || tree_event(m->n, t, "imported", NULL, &m->ev) < 0)) {
			free(t);
			t = NULL;
		}
		m->n->there = false; /* until the record is */
	}
	if (t) {
		m->sp->jobs++; /* the daemon does not stop before it has come back */
		FAULT_VOID(store_commit(t, import_recorded, m));
		return;
	}
	fail_set(&f, -ENOMEM, "out of memory");
	if (m->n)
		m->n->removing = true;
	import_end(m, &f);
}

void checkpoint_import(struct space *sp, const char *tenant, int fd, checkpoint_done_fn *done, void *arg)
{
	struct import *m = calloc(1, sizeof(*m));
	struct fail why = { 0 };

	if (sp->stopping)
		fail_as(&why, ERR_daemon_down, "spaced is stopping");
	else if (!m)
		fail_set(&why, -ENOMEM, "out of memory");
	else
		(void)room_for_sandbox(sp, &why);
	if (!m || why.err) {
		free(m);
		close(fd);
		done(NULL, &why, arg);
		return;
	}
	*m = (struct import){ .sp = sp, .fd = fd, .done = done, .arg = arg };
	COPY(m->tenant, tenant ? tenant : TENANT_DEFAULT);
	space_job(sp, NULL, import_job, imported, m);
}

/* --- what takes the room --- */

struct usage {
	struct space *sp;
	struct pool_info info;
	struct pool_usage usage;
	/* what the records say, by kind: those of the tenant's that may be seen */
	struct { unsigned count; uint64_t bytes; } kinds[NODE_KINDS];
	json_done_fn *done;
	void *arg;
};

static int usage_job(void *arg, struct fail *why)
{
	struct usage *u = arg;
	int r = pool_info(u->sp->pool, &u->info, why);

	return r < 0 ? r : pool_usage(u->sp->pool, &u->usage, why);
}

static void row(json_t *rows, const char *what, unsigned count, uint64_t bytes)
{
	json_array_append_new(rows, json_pack("{s:s,s:i,s:I}", "what", what, "count", (int)count, "bytes", (json_int_t)bytes));
}

static void usage_known(void *arg, const struct fail *why)
{
	static const char *const clones[] = { [POOL_CLONE_NATIVE] = "native", [POOL_CLONE_XFS_IMAGE] = "xfs-image", [POOL_CLONE_COPY] = "copy" };
	static const char *const names[] = { "templates", "checkpoints", "snapshots", "branches", "suspended" };
	struct usage *u = arg;
	json_t *rows = why->err ? NULL : json_array(), *j = NULL;
	struct fail f = *why;

	static_assert(ARRAY_LEN(names) == NODE_KINDS, "one row per kind");
	if (rows) {
		row(rows, "images", u->usage.images.count, u->usage.images.bytes);
		row(rows, "kernels", u->usage.kernels.count, u->usage.kernels.bytes);
		for (int k = 0; k < NODE_KINDS; k++)
			row(rows, names[k], u->kinds[k].count, u->kinds[k].bytes);
		row(rows, "nodes", u->usage.nodes.count, u->usage.nodes.bytes);
		row(rows, "disks", u->usage.disks.count, u->usage.disks.bytes);
		j = json_pack("{s:{s:I,s:I,s:s},s:O}", "pool", "total", (json_int_t)u->info.bytes_total, "free", (json_int_t)u->info.bytes_free, "clone",
			      clones[u->info.clone], "rows", rows);
	}
	if (!j && !f.err)
		fail_set(&f, -ENOMEM, "out of memory");
	u->done(j, &f, u->arg);
	json_decref(j);
	json_decref(rows);
	free(u);
}

void space_usage_json(struct space *sp, const char *tenant, json_done_fn *done, void *arg)
{
	struct usage *u = calloc(1, sizeof(*u));
	struct fail why = { 0 };

	if (!u) {
		fail_set(&why, -ENOMEM, "out of memory");
		done(NULL, &why, arg);
		return;
	}
	*u = (struct usage){ .sp = sp, .done = done, .arg = arg };
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (!tree_seen_by(n, tenant))
			continue;
		u->kinds[n->k.kind].count++;
		u->kinds[n->k.kind].bytes += n->k.own_bytes;
	}
	space_job(sp, NULL, usage_job, usage_known, u);
}
