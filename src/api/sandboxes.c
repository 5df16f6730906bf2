/* sandboxes.c - create, list, show, kill, pause, wake; deadlines, usage, console. */
#include <stdio.h>

#include "api/handlers.h"
#include "api/metrics.h"
#include "base/clock.h"
#include "base/job.h"
#include "base/random.h"

#define ENV_MAX 1000
#define ENV_BYTES (256 * KIB)
#define METADATA_MAX 64
#define METADATA_BYTES (16 * KIB)
#define TMPFS_MAX 16
#define CONSOLE_MAX (1 * MIB)
#define SIZE_MAX_BYTES (64ULL << 40)

/* --- the shape of a sandbox --- */

static void times_json(struct jw *w, const struct sandbox *sb)
{
	jw_time(w, "created_at", sb->created_ns);
	jw_time(w, "started_at", sb->started_ns);
	jw_time(w, "ended_at", sb->ended_ns);
	jw_time(w, "deadline_at", sb->deadline_ns);
	jw_time(w, "last_active_at", sb->last_active_ns);
	jw_int(w, "timeout", sb->timeout_s);
	jw_int(w, "idle_timeout", sb->idle_timeout_s);
	jw_str(w, "on_timeout", sb->suspend_on_timeout ? "suspend" : "kill");
	jw_bool(w, "auto_wake", sb->auto_wake);
}

static void digest_json(struct jw *w, const char *key, const char *hex)
{
	char text[80];

	snprintf(text, sizeof(text), "sha256:%.64s", hex);
	jw_str(w, key, *hex ? text : NULL);
}

void digests_json(struct jw *w, const char *image, const char *kernel, const char *node)
{
	jw_obj(w, "digests");
	digest_json(w, "image", image);
	digest_json(w, "kernel", kernel);
	if (node)
		jw_str(w, "template", *node ? node : NULL);
	jw_obj_end(w);
}

void sandbox_write(struct req *r, struct jw *w, const char *key, const void *sandbox)
{
	const struct sandbox *sb = sandbox;
	const char *path;
	json_t *size;
	unsigned i;

	jw_obj(w, key);
	jw_str(w, "id", sb->id);
	jw_str(w, "name", sb->name);
	jw_str(w, "state", sandbox_state_name(sb->state));
	jw_str(w, "reason", sb->reason[0] ? sb->reason : NULL);
	jw_str(w, "isolation", space_isolation(r->api->sp));
	jw_str(w, "driver", space_driver(r->api->sp));
	jw_str(w, "storage", space_storage(r->api->sp));
	jw_str(w, "template", sb->template);
	jw_int(w, "template_version", sb->template_version);
	jw_str(w, "node", sb->node[0] ? sb->node : NULL);
	jw_str(w, "checkpoint", sb->checkpoint[0] ? sb->checkpoint : NULL);
	digests_json(w, sb->image_digest, sb->kernel_digest, sb->node);
	jw_int(w, "vcpu", sb->vcpu);
	jw_int(w, "memory", (int64_t)sb->memory);
	jw_int(w, "disk", (int64_t)sb->disk);
	jw_str(w, "rootfs", sb->read_only ? "read-only" : "writable");
	jw_obj(w, "tmpfs");
	json_object_foreach ((json_t *)sandbox_tmpfs(sb), path, size)
		jw_json(w, path, size);
	jw_obj_end(w);
	times_json(w, sb);
	jw_json(w, "env", sb->env);
	jw_json(w, "metadata", sb->metadata);
	jw_str(w, "start", sb->start && *sb->start ? sb->start : NULL);
	jw_obj(w, "phases");
	for (i = 0; i < sb->nphases; i++)
		jw_num(w, sb->phases[i].name, sb->phases[i].ms);
	jw_obj_end(w);
	jw_obj_end(w);
}

static void answer_sandbox(struct req *r, const struct sandbox *sb, int status)
{
	struct buf b;
	struct jw w;

	answer_begin(&w, &b);
	sandbox_write(r, &w, NULL, sb);
	req_json(r, status, &w);
}

/* --- create --- */

struct create_body {
	const char *template, *checkpoint, *snapshot, *name, *on_timeout, *rootfs;
	json_t *timeout, *idle_timeout, *env, *metadata, *memory, *disk, *tmpfs;
	int64_t vcpu;
	bool auto_wake;
};

const struct field create_fields[] = {
	STR_FIELD(struct create_body, template, 63, false),
	STR_FIELD(struct create_body, checkpoint, 127, false),
	STR_FIELD(struct create_body, snapshot, 127, false),
	STR_FIELD(struct create_body, name, 63, false),
	ANY_FIELD(struct create_body, timeout, false),
	ANY_FIELD(struct create_body, idle_timeout, false),
	STR_FIELD(struct create_body, on_timeout, 16, false),
	BOOL_FIELD(struct create_body, auto_wake, false),
	OBJ_FIELD(struct create_body, env, ENV_MAX, false),
	OBJ_FIELD(struct create_body, metadata, METADATA_MAX, false),
	INT_FIELD(struct create_body, vcpu, 1, 32, false),
	ANY_FIELD(struct create_body, memory, false),
	ANY_FIELD(struct create_body, disk, false),
	STR_FIELD(struct create_body, rootfs, 16, false),
	OBJ_FIELD(struct create_body, tmpfs, TMPFS_MAX, false),
};
const unsigned ncreate_fields = ARRAY_LEN(create_fields);

static int one_of(const char *v, const char *name, const char *no, const char *yes, bool *out, struct fail *why)
{
	if (!v || !strcmp(v, no))
		*out = false;
	else if (!strcmp(v, yes))
		*out = true;
	else
		return fail_as(why, ERR_bad_request, "%s: \"%s\" or \"%s\"", name, no, yes);
	return 0;
}

int value_metadata(json_t *v, struct fail *why)
{
	size_t total = 0;
	const char *key;
	json_t *item;

	json_object_foreach (v, key, item) {
		if (!json_is_string(item))
			return fail_as(why, ERR_bad_request, "metadata.%.64s: a text", key);
		total += strlen(key) + json_string_length(item);
	}
	if (total > METADATA_BYTES)
		return fail_as(why, ERR_too_large, "metadata: more than %llu bytes", METADATA_BYTES);
	return 0;
}

/* Sizes in any form become numbers, in place. */
static int tmpfs_read(json_t *v, struct fail *why)
{
	const char *path;
	json_t *item;
	void *tmp;

	json_object_foreach_safe (v, tmp, path, item) {
		char name[80];
		uint64_t size = 0;
		int err;

		if (guest_path_check(str_of(path), "tmpfs", why) < 0)
			return fail_as(why, ERR_bad_request, "tmpfs: absolute paths, each with a size");
		if (path_is_system(str_of(path)))
			return fail_as(why, ERR_bad_request,
				       "tmpfs.%.64s: the system's own directory cannot be covered", path);
		snprintf(name, sizeof(name), "tmpfs.%.64s", path);
		err = value_size(item, name, 4096, SIZE_MAX_BYTES, &size, why);
		if (err < 0)
			return err;
		if (!size)
			return fail_as(why, ERR_bad_request, "%s: a size", name);
		if (json_object_set_new_nocheck(v, path, json_integer((json_int_t)size)) < 0)
			return fail_set(why, -ENOMEM, "out of memory");
	}
	return 0;
}

static int create_read(struct req *r, json_t *body, struct create_req *q, struct fail *why)
{
	struct create_body c = { 0 };
	int err = fields_read(body, create_fields, ncreate_fields, &c, why);

	*q = (struct create_req){ .timeout_s = -1, .idle_timeout_s = -1 };
	if (err < 0 || (err = value_timeout(r, c.timeout, "timeout", &q->timeout_s, why)) < 0 ||
	    (err = value_timeout(r, c.idle_timeout, "idle_timeout", &q->idle_timeout_s, why)) < 0 ||
	    (err = value_size(c.memory, "memory", 64 * MIB, SIZE_MAX_BYTES, &q->memory, why)) < 0 ||
	    (err = value_size(c.disk, "disk", 64 * MIB, SIZE_MAX_BYTES, &q->disk, why)) < 0 ||
	    (err = value_env(c.env, "env", ENV_MAX, ENV_BYTES, why)) < 0 ||
	    (err = value_metadata(c.metadata, why)) < 0 || (err = tmpfs_read(c.tmpfs, why)) < 0 ||
	    (err = one_of(c.rootfs, "rootfs", "writable", "read-only", &q->read_only, why)) < 0 ||
	    (err = one_of(c.on_timeout, "on_timeout", "kill", "suspend", &q->suspend_on_timeout, why)) < 0)
		return err;
	/* A path piece cannot hold a slash, and an id is not to be taken for a name. */
	if (c.name && *c.name && (!str_is_name(str_of(c.name)) || id_valid(str_of(c.name), 'i')))
		return fail_as(why, ERR_bad_request,
			       "name: a small letter or digit, then [a-z0-9._-], at most 63; not like an id");
	if (!!c.template + !!c.checkpoint + !!c.snapshot > 1)
		return fail_as(why, ERR_bad_request, "one of template, checkpoint and snapshot");
	q->template = c.template;
	q->checkpoint = c.checkpoint;
	q->snapshot = c.snapshot;
	q->name = c.name;
	q->auto_wake = c.auto_wake;
	q->env = c.env;
	q->metadata = c.metadata;
	q->tmpfs = c.tmpfs;
	q->vcpu = (unsigned)c.vcpu;
	return 0;
}

static void on_created(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct slow *s = arg;

	if (sb)
		metrics_created(s->r->api, sb);
	slow_sandbox(sb, why, s);
}

static void create_body(struct req *r, json_t *body)
{
	struct create_req q;
	struct fail why = { 0 };
	struct slow *s;
	char idem[129];

	if (create_read(r, body, &q, &why) < 0 || req_idempotency(r, idem, &q.idempotency_key, &why) < 0)
		return req_fail(r, &why);
	s = slow_begin(r, "create", "", 201);
	if (s)
		sandbox_create(r->api->sp, r->tenant, &q, on_created, s);
}

void h_sandbox_create(struct req *r)
{
	req_body(r, create_body);
}

/* --- list and show --- */

struct listing {
	struct req *r;
	struct jw w;
	struct page page;
	unsigned states;	/* bit mask; 0: those that live */
	bool all;
	struct str query;
	bool bad;
};

static bool metadata_fits(struct listing *l, const struct sandbox *sb)
{
	struct str rest = l->query, key, value;
	char k[160], v[1024];

	while (http_query_next(&rest, &key, &value) == 1) {
		const char *have;

		if (!str_starts(key, "metadata."))
			continue;
		if (http_unescape(k, sizeof(k), (struct str){ key.p + 9, key.n - 9 }, true) < 0 ||
		    http_unescape(v, sizeof(v), value, true) < 0)
			return false;
		have = json_string_value(json_object_get(sb->metadata, k));
		if (!have || strcmp(have, v) != 0)
			return false;
	}
	return true;
}

static int list_one(struct sandbox *sb, void *arg)
{
	struct listing *l = arg;
	bool ended = sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED;

	if (l->states ? !(l->states & 1U << sb->state) : ended && !l->all)
		return 1;
	if (!metadata_fits(l, sb))
		return 1;
	switch (page_item(&l->page, sb->created_ns, sb->id)) {
	case PAGE_TAKE:
		sandbox_write(l->r, &l->w, NULL, sb);
		return 1;
	case PAGE_SKIP:
		return 1;
	default:
		return 0;
	}
}

static int states_read(struct req *r, unsigned *mask, struct fail *why)
{
	autofree char *text = NULL;
	struct str rest, one;
	int err = req_query(r, "state", &text, why);

	*mask = 0;
	if (err < 0 || !text)
		return err;
	rest = str_of(text);
	do {
		unsigned s;

		str_cut(rest, ',', &one, &rest);
		for (s = 0; s < SANDBOX_STATES; s++)
			if (str_eqz(one, sandbox_state_name((enum sandbox_state)s)))
				break;
		if (s == SANDBOX_STATES)
			return fail_as(why, ERR_bad_request, "state: no state \"%.*s\"", (int)MIN(one.n, 32), one.p);
		*mask |= 1U << s;
	} while (rest.n);
	return 0;
}

void h_sandbox_list(struct req *r)
{
	struct listing l = { .r = r, .query = http_req(r->x)->query };
	struct fail why = { 0 };
	struct buf b;

	if (page_read(r, &l.page, &why) < 0 || states_read(r, &l.states, &why) < 0 ||
	    req_query_flag(r, "all", &l.all, &why) < 0)
		return req_fail(r, &why);
	buf_init(&b, 64 * MIB); /* 1,000 sandboxes with all the environment that one may have do not fit; 413 says so */
	jw_init(&l.w, &b);
	jw_obj(&l.w, NULL);
	jw_arr(&l.w, "sandboxes");
	sandbox_each(r->api->sp, r->tenant, list_one, &l);
	jw_arr_end(&l.w);
	page_end(&l.page, &l.w);
	jw_obj_end(&l.w);
	req_json(r, 200, &l.w);
}

void h_sandbox_show(struct req *r)
{
	answer_sandbox(r, r->sb, 200);
}

/* --- what is done to one --- */

void h_sandbox_kill(struct req *r)
{
	struct slow *s = slow_begin(r, "kill", r->sb->id, 200);

	if (s)
		sandbox_kill(r->sb, "killed", slow_sandbox, s);
}

void h_sandbox_pause(struct req *r)
{
	struct slow *s = slow_begin(r, "pause", r->sb->id, 200);

	if (s)
		sandbox_pause(r->sb, slow_sandbox, s);
}

void h_sandbox_wake(struct req *r)
{
	struct slow *s = slow_begin(r, "wake", r->sb->id, 200);

	if (s)
		sandbox_wake(r->sb, slow_sandbox, s);
}

struct timeout_body { json_t *timeout; };

const struct field timeout_fields[] = { ANY_FIELD(struct timeout_body, timeout, true) };
const unsigned ntimeout_fields = ARRAY_LEN(timeout_fields);

static void timeout_body(struct req *r, json_t *body)
{
	struct timeout_body q = { 0 };
	struct fail why = { 0 };
	int64_t timeout_s = 0;
	struct sandbox *sb;
	struct slow *s;

	if (fields_read(body, timeout_fields, ntimeout_fields, &q, &why) < 0 ||
	    value_timeout(r, q.timeout, "timeout", &timeout_s, &why) < 0 || !(sb = req_sandbox(r, &why)))
		return req_fail(r, &why);
	s = slow_begin(r, "timeout", sb->id, 200);
	if (s)
		sandbox_set_timeout(sb, timeout_s, slow_sandbox, s);
}

void h_sandbox_timeout(struct req *r)
{
	req_body(r, timeout_body);
}

/* --- usage --- */

static void copy_number(struct jw *w, json_t *from, const char *key)
{
	json_t *v = json_object_get(from, key);

	if (json_is_integer(v))
		jw_int(w, key, json_integer_value(v));
	else if (json_is_real(v))
		jw_num(w, key, json_real_value(v));
	else
		jw_null(w, key);
}

/* The guest's own numbers, then the host's: what its monitor takes, read from /proc in a job. */
struct usage {
	struct req *r;
	json_t *guest;
	pid_t pid;
	struct proc_usage host;
};

static int usage_job(void *arg, struct fail *why)
{
	struct usage *u = arg;

	proc_usage(u->pid, &u->host);
	return 0;
}

static void usage_done(void *arg, const struct fail *why)
{
	static const char *const keys[] = { "cpu_used_pct", "cpu_count", "mem_used", "mem_total", "mem_cache",
		"disk_used", "disk_total" };
	struct usage *u = arg;
	struct req *r = u->r;
	struct buf b;
	struct jw w;
	size_t i;

	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_time(&w, "at", real_ns());
	for (i = 0; i < ARRAY_LEN(keys); i++)
		copy_number(&w, u->guest, keys[i]);
	jw_int(&w, "host_rss", (int64_t)u->host.rss_bytes);
	jw_int(&w, "host_private", (int64_t)u->host.private_bytes);
	jw_num(&w, "host_cpu_s", u->host.cpu_s);
	jw_obj_end(&w);
	req_json(r, 200, &w);
	json_decref(u->guest);
	free(u);
	req_unref(r);
}

static void on_metrics(json_t *reply, const struct fail *why, void *arg)
{
	struct req *r = arg;
	struct usage *u = why->err ? NULL : calloc(1, sizeof(*u));

	if (u) {
		u->r = r;
		u->guest = json_incref(reply);
		u->pid = sandbox_monitor_pid(r->sb);
		if (job_run(r->api->loop, NULL, usage_job, usage_done, u) == 0)
			return;
		json_decref(u->guest);
		free(u);
	}
	if (why->err)
		req_fail(r, why);
	else
		req_failf(r, ERR_no_capacity, "out of memory");
	req_unref(r);
}

void h_sandbox_metrics(struct req *r)
{
	struct guest_opts o = { .method = "GET", .target = "/metrics", .quiet = true };
	struct fail why = { 0 };

	req_ref(r);
	if (guest_json(r->api, r->sb, &o, on_metrics, r, &why) < 0) {
		req_fail(r, &why);
		req_unref(r);
	}
}

void h_sandbox_logs(struct req *r)
{
	autofree char *text = NULL;
	struct fail why = { 0 };
	uint64_t tail = 64 * KIB;
	size_t n = 0;
	int err;

	if (req_query_u64(r, "tail", CONSOLE_MAX, &tail, &why) < 0)
		return req_fail(r, &why);
	err = sandbox_console(r->sb, (size_t)tail, &text, &n);
	if (err < 0 && err != -ENOENT) {
		fail_set(&why, err, "the console of %s: %s", r->sb->id, strerror(-err));
		return req_fail(r, &why);
	}
	http_add_header(r->x, "X-Content-Type-Options", "nosniff");
	req_text(r, 200, "text/plain; charset=utf-8", text ? text : "", n);
}
