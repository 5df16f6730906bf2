/* create.c - what a create asks for: checked, admitted, and handed to start.c. Admission is a comparison and an addition on the loop
 * thread, so that of any number of creates at once exactly as many get in as there is memory for. */
#include <openssl/sha.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define TEXT_MAX (64 * KIB) /* of env and metadata, each */

/* One create on its way: a copy of the request, since its variant may have to be built first. */
struct create {
	struct space *sp;
	char tenant[32], template[64], name[64], idem[129];
	uint64_t idem_hash;
	int64_t timeout_s, idle_timeout_s;
	json_t *env, *metadata, *tmpfs;
	unsigned vcpu;
	uint64_t memory, disk;
	bool read_only;
	int64_t t0;
	sandbox_done_fn *done;
	void *arg;
	bool built; /* the first of its size: a machine had to be booted and saved for it */
};

static void create_free(struct create *k)
{
	json_decref(k->env);
	json_decref(k->metadata);
	json_decref(k->tmpfs);
	free(k);
}

static void create_fail(struct create *k, const struct fail *why)
{
	k->sp->create_failures++;
	k->done(NULL, why, k->arg);
	create_free(k);
}

/* --- checks --- */

/* An object of strings, bounded. NAMES: its keys have to be names of environment variables. */
static int check_texts(json_t *o, const char *what, bool names, struct fail *why)
{
	const char *key;
	size_t total = 0;
	json_t *v;

	if (o && !json_is_object(o))
		return fail_as(why, ERR_bad_request, "%s: an object of strings", what);
	json_object_foreach(o, key, v)
	{
		if (!json_is_string(v))
			return fail_as(why, ERR_bad_request, "%s.%.60s: a string", what, key);
		if (!key[0] || (names && strchr(key, '=')) || str_has_ctl(str_of(key)))
			return fail_as(why, ERR_bad_request, "%s: \"%.60s\" is no name for a variable", what, key);
		total += strlen(key) + json_string_length(v);
	}
	if (total > TEXT_MAX)
		return fail_as(why, ERR_too_large, "%s: at most %llu bytes in all", what, TEXT_MAX);
	return 0;
}

static int check_tmpfs(json_t *o, struct fail *why)
{
	const char *key;
	json_t *v;

	if (o && !json_is_object(o))
		return fail_as(why, ERR_bad_request, "tmpfs: an object of path and size");
	if (json_object_size(o) > 16)
		return fail_as(why, ERR_bad_request, "tmpfs: at most 16 of them");
	json_object_foreach(o, key, v)
	{
		if (key[0] != '/' || !key[1] || strlen(key) > 255 || str_has_ctl(str_of(key)) || strstr(key, "/../") ||
		    str_ends(str_of(key), "/.."))
			return fail_as(why, ERR_bad_request, "tmpfs: \"%.60s\" is no absolute path", key);
		if (!json_is_integer(v) || json_integer_value(v) < 4096 || json_integer_value(v) > (json_int_t)(1ULL << 40))
			return fail_as(why, ERR_bad_request, "tmpfs.%.60s: a size in bytes", key);
	}
	return 0;
}

static int check_timeouts(const struct config *cfg, const struct create_req *q, struct create *k, struct fail *why)
{
	const int64_t year = 366 * 86400;

	k->timeout_s = q->timeout_s < 0 ? cfg->timeout_s : q->timeout_s;
	k->idle_timeout_s = q->idle_timeout_s < 0 ? cfg->idle_timeout_s : q->idle_timeout_s;
	if (k->timeout_s > year || k->idle_timeout_s > year)
		return fail_as(why, ERR_bad_request, "timeout: at most a year; 0 for none");
	if (cfg->max_timeout_s && (!k->timeout_s || k->timeout_s > cfg->max_timeout_s))
		return fail_as(why, ERR_bad_request, "timeout: from 1 to %lld seconds", (long long)cfg->max_timeout_s);
	return 0;
}

static int check(struct space *sp, const struct create_req *q, struct create *k, struct fail *why)
{
	int r;

	if (sp->stopping)
		return fail_as(why, ERR_daemon_down, "spaced is stopping");
	if (!sp->recovered)
		return fail_as(why, ERR_busy, "spaced is starting and looks after the sandboxes of before");
	if (q->name && q->name[0] && !str_is_name(str_of(q->name)))
		return fail_as(why, ERR_bad_request, "name: a-z and 0-9, then also \".\", \"_\" and \"-\", at most 63");
	if (q->suspend_on_timeout || q->auto_wake)
		return fail_as(why, ERR_unsupported, "suspending is not supported yet: on_timeout is \"kill\", auto_wake false");
	if (q->idempotency_key && (strlen(q->idempotency_key) > 128 || str_has_ctl(str_of(q->idempotency_key))))
		return fail_as(why, ERR_bad_request, "Idempotency-Key: at most 128 characters");
	if (q->vcpu > 32)
		return fail_as(why, ERR_bad_request, "vcpu: a whole number from 1 to 32");
	if (q->memory && (q->memory % (2 * MIB) || q->memory < 128 * MIB || q->memory > 1024 * GIB))
		return fail_as(why, ERR_bad_request, "memory: a multiple of 2M, from 128M on");
	if (q->disk > 16384 * GIB || q->disk % 4096)
		return fail_as(why, ERR_bad_request, "disk: a multiple of 4096, at most 16T");
	if ((r = check_timeouts(&sp->cfg, q, k, why)) < 0 || (r = check_texts(q->env, "env", true, why)) < 0 ||
	    (r = check_texts(q->metadata, "metadata", false, why)) < 0 || (r = check_tmpfs(q->tmpfs, why)) < 0)
		return r;
	return 0;
}

/* --- idempotency --- */

/* What a second create with the same key has to agree on. */
static uint64_t hash_of(const struct create *k)
{
	unsigned char d[SHA256_DIGEST_LENGTH];
	autojson json_t *j = json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:b,s:O?,s:O?,s:O?}", "t", k->template, "n", k->name, "a",
				       (json_int_t)k->timeout_s, "b", (json_int_t)k->idle_timeout_s, "v", (json_int_t)k->vcpu, "m",
				       (json_int_t)k->memory, "d", (json_int_t)k->disk, "r", k->read_only, "e", k->env, "x", k->metadata,
				       "y", k->tmpfs);
	autofree char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	uint64_t h = 0;

	if (text) {
		SHA256((unsigned char *)text, strlen(text), d);
		memcpy(&h, d, sizeof(h));
	}
	return h & ~1ULL; /* the record keeps 63 bits */
}

/* True when K was answered, or will be, with an earlier sandbox of the same key. */
static bool seen_before(struct create *k)
{
	struct fail why = { 0 };
	struct sandbox_core *c = NULL;

	if (!k->idem[0])
		return false;
	link_each_safe(l, next, &k->sp->sandboxes) {
		c = container_of(l, struct sandbox_core, link);
		if (!strcmp(c->idem, k->idem) && !strcmp(c->sb.tenant, k->tenant))
			break;
		c = NULL;
	}
	if (!c)
		return false;
	if (c->idem_hash != k->idem_hash) {
		fail_as(&why, ERR_conflict, "Idempotency-Key: it was used for a different create (%s)", c->sb.id);
		fail_remedy(&why, "use a new key for a new request");
	} else if (c->state == SANDBOX_CREATING || (c->state == SANDBOX_RUNNING && c->creators)) {
		if (waiter_add(&c->creators, k->done, k->arg) < 0)
			fail_set(&why, -ENOMEM, "out of memory");
		else {
			create_free(k);
			return true;
		}
	} else if (c->state == SANDBOX_FAILED && c->fail.err && !c->sb.started_ns) {
		why = c->fail;
	}
	k->done(why.err ? NULL : &c->sb, &why, k->arg);
	create_free(k);
	return true;
}

/* --- admission --- */

static int admit(struct space *sp, uint64_t bytes, struct fail *why)
{
	if (sp->living >= sp->cfg.max_sandboxes)
		return fail_as(why, ERR_no_capacity, "there are %u sandboxes, as many as max_sandboxes allows", sp->living);
	if (bytes > sp->memory_limit - MIN(sp->memory_reserved, sp->memory_limit))
		return fail_as(why, ERR_no_capacity, "no memory for another sandbox of %llu MiB: %llu of %llu MiB are reserved",
			       bytes / MIB, (unsigned long long)(sp->memory_reserved / MIB),
			       (unsigned long long)(sp->memory_limit / MIB));
	return room_for_sandbox(sp, why);
}

static json_t *merged_env(const struct tmpl *t, const struct create *k, const char *id)
{
	json_t *env = t->t.env ? json_copy(t->t.env) : json_object();

	if (!env)
		return NULL;
	json_object_set_new(env, "E2B_SANDBOX", json_string("true"));
	json_object_set_new(env, "E2B_SANDBOX_ID", json_string(id));
	json_object_set_new(env, "E2B_TEMPLATE_ID", json_string(t->t.name));
	if (k->env)
		json_object_update(env, k->env);
	return env;
}

static int fill_in(struct sandbox_core *c, struct create *k, struct variant *v)
{
	struct tmpl *t = v->t;
	struct sandbox *sb = &c->sb;

	(void)str_copy(sb->name, sizeof(sb->name), str_of(k->name));
	(void)str_copy(sb->template, sizeof(sb->template), str_of(t->t.name));
	(void)str_copy(sb->node, sizeof(sb->node), str_of(v->node));
	(void)str_copy(sb->image_digest, sizeof(sb->image_digest), str_of(t->t.image_digest));
	(void)str_copy(sb->kernel_digest, sizeof(sb->kernel_digest), str_of(t->t.kernel_digest));
	(void)str_copy(c->user, sizeof(c->user), str_of(t->t.user));
	(void)str_copy(c->workdir, sizeof(c->workdir), str_of(t->t.workdir));
	(void)str_copy(c->idem, sizeof(c->idem), str_of(k->idem));
	c->idem_hash = k->idem_hash;
	sb->template_version = t->t.version;
	sb->vcpu = v->vcpu;
	sb->memory = v->memory;
	sb->read_only = v->read_only;
	sb->disk = v->read_only ? 0 : MAX(k->disk, t->t.disk);
	c->grown = sb->disk > t->t.disk;
	sb->timeout_s = k->timeout_s;
	sb->idle_timeout_s = k->idle_timeout_s;
	sb->created_ns = sb->last_active_ns = real_ns();
	c->guest_env = merged_env(t, k, sb->id);
	if (!c->guest_env)
		return -ENOMEM;
	if (k->env) {
		json_decref(sb->env);
		sb->env = json_incref(k->env);
	}
	if (k->metadata) {
		json_decref(sb->metadata);
		sb->metadata = json_incref(k->metadata);
	}
	c->tmpfs = k->tmpfs ? json_incref(k->tmpfs) : NULL;
	c->who.generation = v->generation;
	identity_new(c);
	return waiter_add(&c->creators, k->done, k->arg);
}

static void variant_there(struct variant *v, const struct fail *why, void *arg)
{
	struct create *k = arg;
	struct space *sp = k->sp;
	struct machine *ready;
	struct sandbox_core *c;
	char id[ID_LEN + 1];
	struct fail f = *why;
	uint64_t bytes;

	if (f.err) {
		create_fail(k, &f);
		return;
	}
	if (seen_before(k))
		return;
	bytes = v->memory;
	if (sp->stopping || admit(sp, bytes, &f) < 0) {
		if (!f.err)
			fail_as(&f, ERR_daemon_down, "spaced is stopping");
		create_fail(k, &f);
		return;
	}
	v->used_ns = mono_ns();
	/* A ready monitor's files cannot grow past the template's disk. */
	ready = k->disk > v->t->t.disk ? NULL : ready_claim(sp, k->tenant, v->node);
	if (ready)
		memcpy(id, ready->id, sizeof(id));
	else
		id_make(id, 'i');
	c = core_new(sp, id, k->tenant);
	if (!c || fill_in(c, k, v) < 0) {
		if (ready)
			machine_discard(ready);
		if (c) { /* no record of it yet */
			c->state = SANDBOX_CREATING;
			core_unlist(c);
		}
		fail_set(&f, -ENOMEM, "out of memory");
		create_fail(k, &f);
		return;
	}
	c->reserved = bytes;
	sp->memory_reserved += bytes;
	start_begin(c, ready, v, k->t0, k->built ? (double)(mono_ns() - k->t0) / NS_PER_MS : 0);
	create_free(k);
}

void sandbox_create(struct space *sp, const char *tenant, const struct create_req *q, sandbox_done_fn *done, void *arg)
{
	struct create *k = calloc(1, sizeof(*k));
	struct fail why = { 0 };
	struct variant *v;
	struct tmpl *t;

	if (!k) {
		fail_set(&why, -ENOMEM, "out of memory");
		done(NULL, &why, arg);
		return;
	}
	k->sp = sp;
	k->t0 = mono_ns();
	k->done = done;
	k->arg = arg;
	(void)str_copy(k->tenant, sizeof(k->tenant), str_of(tenant));
	if (check(sp, q, k, &why) < 0) {
		create_fail(k, &why);
		return;
	}
	(void)str_copy(k->name, sizeof(k->name), str_of(q->name));
	(void)str_copy(k->idem, sizeof(k->idem), str_of(q->idempotency_key));
	(void)str_copy(k->template, sizeof(k->template), str_of(q->template ? q->template : sp->cfg.template));
	k->env = json_incref(q->env);
	k->metadata = json_incref(q->metadata);
	k->tmpfs = json_incref(q->tmpfs);
	k->vcpu = q->vcpu;
	k->memory = q->memory;
	k->disk = q->disk;
	k->read_only = q->read_only;
	if (k->idem[0])
		k->idem_hash = hash_of(k);
	if (seen_before(k))
		return;
	t = tmpl_find(sp, tenant, k->template);
	if (!t)
		fail_as(&why, ERR_template_not_found, "no template \"%.60s\"", q->template ? q->template : k->template);
	else if (k->disk && k->disk < t->t.disk)
		fail_as(&why, ERR_bad_request, "disk: at least the template's %llu MiB", (unsigned long long)(t->t.disk / MIB));
	else if (k->disk && k->read_only)
		fail_as(&why, ERR_bad_request, "disk: a read-only root has none");
	if (why.err) {
		create_fail(k, &why);
		return;
	}
	v = variant_find(t, k->vcpu ? k->vcpu : t->t.vcpu, k->memory ? k->memory : t->t.memory, k->read_only);
	k->built = !v || !v->node[0];
	variant_get(t, k->vcpu ? k->vcpu : t->t.vcpu, k->memory ? k->memory : t->t.memory, k->read_only, variant_there, k);
}
