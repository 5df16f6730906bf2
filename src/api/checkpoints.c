/* checkpoints.c - suspend, checkpoints and snapshots, branch, rollback; the lists of nodes, and their end. */
#include <stdio.h>

#include "api/handlers.h"
#include "api/metrics.h"
#include "base/random.h"

#define LABEL_MAX 127
#define METADATA_MAX 64

/* --- the shape of a checkpoint --- */

void checkpoint_members(struct req *r, struct jw *w, const struct checkpoint *k)
{
	jw_str(w, "id", k->id);
	jw_str(w, "kind", node_kind_name(k->kind));
	jw_str(w, "label", k->label[0] ? k->label : NULL);
	jw_str(w, "sandbox", k->sandbox[0] ? k->sandbox : NULL);
	jw_str(w, "template", k->template[0] ? k->template : NULL);
	jw_str(w, "parent", k->parent[0] ? k->parent : NULL);
	jw_int(w, "vcpu", k->vcpu);
	jw_int(w, "memory", (int64_t)k->memory);
	jw_int(w, "disk", (int64_t)k->disk);
	jw_str(w, "rootfs", k->read_only ? "read-only" : "writable");
	jw_str(w, "storage", space_storage(r->api->sp));
	jw_str(w, "driver", k->driver);
	jw_str(w, "driver_version", k->driver_version);
	digests_json(w, k->image_digest, k->kernel_digest, NULL);
	jw_int(w, "own_bytes", (int64_t)k->own_bytes);
	jw_int(w, "shared_bytes", (int64_t)k->shared_bytes);
	jw_num(w, "paused_ms", k->paused_ms);
	jw_time(w, "created_at", k->created_ns);
	jw_int(w, "children", k->children);
	jw_str(w, "damaged", k->damaged[0] ? k->damaged : NULL);
}

void checkpoint_write(struct req *r, struct jw *w, const char *key, const void *what)
{
	jw_obj(w, key);
	checkpoint_members(r, w, what);
	jw_obj_end(w);
}

/* A label stands where an id may stand, so it must not look like one, or like a path of its own. */
static int label_check(const char *label, struct fail *why)
{
	if (label && (!*label || str_has_ctl(str_of(label)) || id_valid(str_of(label), 'n') || !strcmp(label, "import")))
		return fail_as(why, ERR_bad_request, "label: 1 to %d bytes of text without control bytes; not like an id, and not \"import\"", LABEL_MAX);
	return 0;
}

/* --- taking one --- */

struct label_body { const char *label; };

const struct field checkpoint_fields[] = { STR_FIELD(struct label_body, label, LABEL_MAX, false) };
const unsigned ncheckpoint_fields = ARRAY_LEN(checkpoint_fields);

static void on_taken(const struct checkpoint *k, const struct fail *why, void *arg)
{
	slow_end(arg, "checkpoint", k, checkpoint_write, why);
}

static void take(struct req *r, json_t *body, bool disk_only)
{
	struct checkpoint_req q = { .disk_only = disk_only };
	struct label_body b = { 0 };
	struct fail why = { 0 };
	struct sandbox *sb;
	struct slow *s;
	char idem[129];

	if (fields_read(body, checkpoint_fields, ncheckpoint_fields, &b, &why) < 0 || label_check(b.label, &why) < 0 ||
	    req_idempotency(r, idem, &q.idempotency_key, &why) < 0 || !(sb = req_sandbox(r, &why)))
		return req_fail(r, &why);
	q.label = b.label;
	s = slow_begin(r, disk_only ? "snapshot" : "checkpoint", sb->id, 201);
	if (s)
		sandbox_checkpoint(sb, &q, on_taken, s);
}

static void checkpoint_body(struct req *r, json_t *body)
{
	take(r, body, false);
}

void h_checkpoint(struct req *r)
{
	req_body(r, checkpoint_body);
}

static void snapshot_body(struct req *r, json_t *body)
{
	take(r, body, true);
}

void h_snapshot(struct req *r)
{
	req_body(r, snapshot_body);
}

/* --- suspend, rollback --- */

void h_suspend(struct req *r)
{
	struct slow *s = slow_begin(r, "suspend", r->sb->id, 200);

	if (s)
		sandbox_suspend(r->sb, slow_sandbox, s);
}

struct rollback_body { const char *checkpoint; };

const struct field rollback_fields[] = { STR_FIELD(struct rollback_body, checkpoint, LABEL_MAX, true) };
const unsigned nrollback_fields = ARRAY_LEN(rollback_fields);

static void rollback_body(struct req *r, json_t *body)
{
	struct rollback_body q = { 0 };
	struct fail why = { 0 };
	struct sandbox *sb;
	struct slow *s;

	if (fields_read(body, rollback_fields, nrollback_fields, &q, &why) < 0 || !(sb = req_sandbox(r, &why)))
		return req_fail(r, &why);
	s = slow_begin(r, "rollback", sb->id, 200);
	if (s)
		sandbox_rollback(sb, q.checkpoint, slow_sandbox, s);
}

void h_rollback(struct req *r)
{
	req_body(r, rollback_body);
}

/* --- branch --- */

struct branch_body {
	const char *label;
	int64_t count;
	json_t *timeout, *metadata;
};

const struct field branch_fields[] = {
	INT_FIELD(struct branch_body, count, 1, 64, false),
	STR_FIELD(struct branch_body, label, LABEL_MAX, false),
	ANY_FIELD(struct branch_body, timeout, false),
	OBJ_FIELD(struct branch_body, metadata, METADATA_MAX, false),
};
const unsigned nbranch_fields = ARRAY_LEN(branch_fields);

static void branch_write(struct req *r, struct jw *w, const char *key, const void *what)
{
	const struct branch_result *res = what;
	unsigned i;

	jw_obj(w, key);
	checkpoint_write(r, w, "checkpoint", res->from);
	jw_arr(w, "sandboxes");
	for (i = 0; i < res->count; i++)
		sandbox_write(r, w, NULL, res->sandboxes[i]);
	jw_arr_end(w);
	jw_arr(w, "failed");
	for (i = 0; i < res->nfailed; i++) {
		jw_obj(w, NULL);
		jw_fail(w, &res->failed[i], NULL);
		jw_obj_end(w);
	}
	jw_arr_end(w);
	jw_obj_end(w);
}

static void on_branched(const struct branch_result *res, const struct fail *why, void *arg)
{
	struct slow *s = arg;
	bool good = res && res->from;
	unsigned i;

	for (i = 0; good && i < res->count; i++)
		metrics_created(s->r->api, res->sandboxes[i]);
	slow_end(s, NULL, good ? res : NULL, branch_write, why);
}

static void branch_body(struct req *r, json_t *body)
{
	struct branch_body b = { .count = 1 };
	struct branch_req q = { .timeout_s = -1 };
	struct fail why = { 0 };
	struct sandbox *sb;
	struct slow *s;

	if (fields_read(body, branch_fields, nbranch_fields, &b, &why) < 0 || label_check(b.label, &why) < 0 ||
	    value_timeout(r, b.timeout, "timeout", &q.timeout_s, &why) < 0 || value_metadata(b.metadata, &why) < 0 ||
	    !(sb = req_sandbox(r, &why)))
		return req_fail(r, &why);
	q.count = (unsigned)b.count;
	q.label = b.label;
	q.metadata = b.metadata;
	s = slow_begin(r, "branch", sb->id, 201);
	if (s)
		sandbox_branch(sb, &q, on_branched, s);
}

void h_branch(struct req *r)
{
	req_body(r, branch_body);
}

/* --- lists --- */

struct listing {
	struct req *r;
	struct jw w;
	struct page page;
	unsigned kinds; /* bit mask */
};

static int list_one(const struct checkpoint *k, void *arg)
{
	struct listing *l = arg;
	enum page_take take;

	if (!(l->kinds & 1U << k->kind))
		return 1;
	take = page_item(&l->page, k->created_ns, k->id);
	if (take == PAGE_TAKE)
		checkpoint_write(l->r, &l->w, NULL, k);
	return take != PAGE_FULL;
}

static void list(struct req *r, unsigned kinds, const char *sandbox)
{
	struct listing l = { .r = r, .kinds = kinds };
	struct fail why = { 0 };
	struct buf b;

	if (page_read(r, &l.page, &why) < 0)
		return req_fail(r, &why);
	/* Times of creation may go back with the host's clock; the place in the list does not. */
	l.page.anchored = checkpoint_find(r->api->sp, r->tenant, str_of(l.page.after_id), &why) != NULL;
	answer_begin(&l.w, &b);
	jw_obj(&l.w, NULL);
	jw_arr(&l.w, "checkpoints");
	checkpoint_each(r->api->sp, r->tenant, sandbox, list_one, &l);
	jw_arr_end(&l.w);
	page_end(&l.page, &l.w);
	jw_obj_end(&l.w);
	req_json(r, 200, &l.w);
}

#define BOTH_KINDS (1U << NODE_CHECKPOINT | 1U << NODE_SNAPSHOT)

void h_sandbox_checkpoints(struct req *r)
{
	list(r, BOTH_KINDS, r->sb->id);
}

static int kinds_read(struct req *r, unsigned *mask, struct fail *why)
{
	autofree char *text = NULL;
	struct str rest, one;
	int k, err = req_query(r, "kind", &text, why);

	if (err < 0 || !text)
		return err;
	*mask = 0;
	rest = str_of(text);
	do {
		str_cut(rest, ',', &one, &rest);
		k = kind_find(one);
		if (k < 0)
			return fail_as(why, ERR_bad_request, "kind: no kind \"%.*s\"", (int)MIN(one.n, 32), one.p);
		*mask |= 1U << k;
	} while (rest.n);
	return 0;
}

int kind_find(struct str name)
{
	int k;

	for (k = 0; k < NODE_KINDS; k++)
		if (str_eqz(name, node_kind_name((enum node_kind)k)))
			return k;
	return -1;
}

/* ?sandbox= takes a name, too, while the sandbox is known; its nodes outlive it, and then there is only the id. */
static void list_all(struct req *r, unsigned kinds)
{
	autofree char *text = NULL;
	struct fail why = { 0 };
	struct sandbox *sb;

	if (kinds_read(r, &kinds, &why) < 0 || req_query(r, "sandbox", &text, &why) < 0)
		return req_fail(r, &why);
	sb = text ? sandbox_find(r->api->sp, r->tenant, str_of(text), &why) : NULL;
	if (text && !sb && !id_valid(str_of(text), 'i'))
		return req_fail(r, &why);
	list(r, kinds, sb ? sb->id : text);
}

void h_checkpoints(struct req *r)
{
	list_all(r, BOTH_KINDS);
}

void h_snapshots(struct req *r)
{
	list_all(r, 1U << NODE_SNAPSHOT);
}

/* --- one --- */

const struct checkpoint *req_checkpoint(struct req *r)
{
	struct fail why = { 0 };
	const struct checkpoint *k = checkpoint_find(r->api->sp, r->tenant, str_of(req_param(r, 0)), &why);

	if (!k)
		req_fail(r, &why);
	return k;
}

void h_checkpoint_show(struct req *r)
{
	const struct checkpoint *k = req_checkpoint(r);
	struct buf b;
	struct jw w;

	if (!k)
		return;
	answer_begin(&w, &b);
	checkpoint_write(r, &w, NULL, k);
	req_json(r, 200, &w);
}

static void on_removed(const struct fail *why, void *arg)
{
	answer_nothing(NULL, why, arg);
}

void h_checkpoint_delete(struct req *r)
{
	const struct checkpoint *k = req_checkpoint(r);

	if (k)
		checkpoint_remove(r->api->sp, r->tenant, k->id, on_removed, req_ref(r));
}
