/* create.c - what a create asks for: checked, admitted, and handed to start.c. Admission is a comparison and an addition on the loop
 * thread, so that of any number of creates at once exactly as many get in as there is memory for. */
#include <openssl/sha.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define TEXT_MAX (64 * KIB) /* of env and metadata, each */
#define DEFAULT_MEMORY (512 * MIB) /* of a snapshot that does not say how much the sandbox had that it was taken from */

/* One create on its way: a copy of the request, since its variant may have to be built first. */
struct create {
	struct space *sp;
	char tenant[32], template[64], name[64], idem[129], node[24]; /* node: a checkpoint's or snapshot's, instead of a template */
	uint64_t idem_hash;
	int64_t timeout_s, idle_timeout_s;
	json_t *env, *metadata, *tmpfs;
	unsigned vcpu;
	uint64_t memory, disk;
	bool read_only, suspend_on_timeout, auto_wake;
	bool boot; /* from the disk of NODE */
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

int check_metadata(json_t *o, struct fail *why)
{
	return check_texts(o, "metadata", false, why);
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
	if (!!q->template + !!q->checkpoint + !!q->snapshot > 1)
		return fail_as(why, ERR_bad_request, "one of template, checkpoint and snapshot");
	if (q->idempotency_key && (strlen(q->idempotency_key) > 128 || str_has_ctl(str_of(q->idempotency_key))))
		return fail_as(why, ERR_bad_request, "Idempotency-Key: at most 128 characters");
	if (q->vcpu > 32)
		return fail_as(why, ERR_bad_request, "vcpu: a whole number from 1 to 32");
	if (q->memory && (q->memory % (2 * MIB) || q->memory < 128 * MIB || q->memory > 1024 * GIB))
		return fail_as(why, ERR_bad_request, "memory: a multiple of 2M, from 128M on");
	if (q->disk > 16384 * GIB || q->disk % 4096)
		return fail_as(why, ERR_bad_request, "disk: a multiple of 4096, at most 16T");
	if ((r = check_timeouts(&sp->cfg, q, k, why)) < 0 || (r = check_texts(q->env, "env", true, why)) < 0 ||
	    (r = check_metadata(q->metadata, why)) < 0 || (r = check_tmpfs(q->tmpfs, why)) < 0)
		return r;
	return 0;
}

/* --- idempotency --- */

/* What a second create with the same key has to agree on. */
static uint64_t hash_of(const struct create *k)
{
	unsigned char d[SHA256_DIGEST_LENGTH];
	autojson json_t *j = json_pack("{s:s,s:s,s:b,s:b,s:b,s:s,s:I,s:I,s:I,s:I,s:I,s:b,s:O?,s:O?,s:O?}", "t", k->template, "f", k->node,
				       "o", k->boot, "s", k->suspend_on_timeout, "w", k->auto_wake, "n", k->name, "a",
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

int admit(struct space *sp, uint64_t bytes, struct fail *why)
{
	if (sp->living >= sp->cfg.max_sandboxes)
		return fail_as(why, ERR_no_capacity, "there are %u sandboxes, as many as max_sandboxes allows", sp->living);
	if (bytes > sp->memory_limit - MIN(sp->memory_reserved, sp->memory_limit))
		return fail_as(why, ERR_no_capacity, "no memory for another sandbox of %llu MiB: %llu of %llu MiB are reserved",
			       bytes / MIB, (unsigned long long)(sp->memory_reserved / MIB),
			       (unsigned long long)(sp->memory_limit / MIB));
	return room_for_sandbox(sp, why);
}

/* BASE with what names this sandbox, and MORE over it. */
static json_t *merged_env(json_t *base, const char *template, json_t *more, const char *id)
{
	json_t *env = base ? json_copy(base) : json_object();

	if (!env)
		return NULL;
	json_object_set_new(env, "E2B_SANDBOX", json_string("true"));
	json_object_set_new(env, "E2B_SANDBOX_ID", json_string(id));
	json_object_set_new(env, "E2B_TEMPLATE_ID", json_string(template));
	if (more)
		json_object_update(env, more);
	return env;
}

static void take(json_t **slot, json_t *borrowed)
{
	json_decref(*slot);
	*slot = json_incref(borrowed);
}

/* What was asked for, whatever it starts from. */
static int fill_in(struct sandbox_core *c, struct create *k)
{
	struct sandbox *sb = &c->sb;

	(void)str_copy(sb->name, sizeof(sb->name), str_of(k->name));
	(void)str_copy(c->idem, sizeof(c->idem), str_of(k->idem));
	c->idem_hash = k->idem_hash;
	sb->timeout_s = k->timeout_s;
	sb->idle_timeout_s = k->idle_timeout_s;
	sb->suspend_on_timeout = k->suspend_on_timeout;
	sb->auto_wake = k->auto_wake;
	sb->created_ns = sb->last_active_ns = real_ns();
	if (k->metadata)
		take(&sb->metadata, k->metadata);
	if (k->tmpfs)
		take(&c->tmpfs, k->tmpfs);
	identity_new(c);
	return waiter_add(&c->creators, k->done, k->arg);
}

static int from_template(struct sandbox_core *c, struct create *k, struct variant *v)
{
	struct tmpl *t = v->t;
	struct sandbox *sb = &c->sb;

	(void)str_copy(sb->template, sizeof(sb->template), str_of(t->t.name));
	(void)str_copy(sb->node, sizeof(sb->node), str_of(v->node));
	(void)str_copy(sb->image_digest, sizeof(sb->image_digest), str_of(t->t.image_digest));
	(void)str_copy(sb->kernel_digest, sizeof(sb->kernel_digest), str_of(t->t.kernel_digest));
	(void)str_copy(c->user, sizeof(c->user), str_of(t->t.user));
	(void)str_copy(c->workdir, sizeof(c->workdir), str_of(t->t.workdir));
	sb->template_version = t->t.version;
	sb->vcpu = v->vcpu;
	sb->memory = v->memory;
	sb->read_only = v->read_only;
	sb->disk = v->read_only ? 0 : MAX(k->disk, t->t.disk);
	c->grown = sb->disk > t->t.disk;
	c->who.generation = v->generation;
	c->guest_env = merged_env(t->t.env, t->t.name, k->env, sb->id);
	if (k->env)
		take(&sb->env, k->env);
	return c->guest_env ? fill_in(c, k) : -ENOMEM;
}

/* --- from a node --- */

static void copy_text(char *dst, size_t size, json_t *guest, const char *key)
{
	const char *z = json_string_value(json_object_get(guest, key));

	if (z)
		(void)str_copy(dst, size, str_of(z));
}

static void take_object(json_t **slot, json_t *guest, const char *key)
{
	json_t *v = json_object_get(guest, key);

	if (json_is_object(v))
		take(slot, v);
}

json_t *core_guest(const struct sandbox_core *c)
{
	const struct sandbox *sb = &c->sb;

	return json_pack("{s:s,s:s,s:O?,s:O?,s:O?,s:I,s:I,s:I,s:I,s:s}", "user", c->user, "workdir", c->workdir, "env", sb->env, "guest_env",
			 c->guest_env, "tmpfs", c->tmpfs, "memory", (json_int_t)sb->memory, "vcpu", (json_int_t)sb->vcpu, "disk",
			 (json_int_t)sb->disk, "template_version", (json_int_t)sb->template_version, "boot_token", c->who.boot_token);
}

int core_from_node(struct sandbox_core *c, const struct tree_node *n)
{
	const struct checkpoint *k = &n->k;
	struct tmpl *t = tmpl_find(c->sp, c->sb.tenant, k->template);
	struct sandbox *sb = &c->sb;
	json_t *g = n->guest, *env;

	(void)str_copy(sb->node, sizeof(sb->node), str_of(k->id));
	(void)str_copy(sb->template, sizeof(sb->template), str_of(k->template));
	(void)str_copy(sb->image_digest, sizeof(sb->image_digest), str_of(k->image_digest));
	(void)str_copy(sb->kernel_digest, sizeof(sb->kernel_digest), str_of(k->kernel_digest));
	(void)str_copy(c->initrd_digest, sizeof(c->initrd_digest), str_of(n->initrd_digest));
	copy_text(c->user, sizeof(c->user), g, "user");
	copy_text(c->workdir, sizeof(c->workdir), g, "workdir");
	take_object(&sb->env, g, "env");
	take_object(&c->guest_env, g, "guest_env");
	take_object(&c->tmpfs, g, "tmpfs");
	if (!g && t) { /* a template's own node */
		(void)str_copy(c->user, sizeof(c->user), str_of(t->t.user));
		(void)str_copy(c->workdir, sizeof(c->workdir), str_of(t->t.workdir));
		take(&c->guest_env, t->t.env);
	}
	sb->template_version = (unsigned)json_integer_value(json_object_get(g, "template_version"));
	sb->vcpu = k->vcpu ? k->vcpu : 1;
	sb->memory = k->memory ? k->memory : (uint64_t)json_integer_value(json_object_get(g, "memory"));
	if (!sb->memory)
		sb->memory = t ? t->t.memory : DEFAULT_MEMORY;
	sb->read_only = k->read_only;
	sb->disk = k->disk;
	c->who.generation = n->generation;
	boot_token_learn(c->sp, json_string_value(json_object_get(g, "boot_token")));
	env = merged_env(c->guest_env ? c->guest_env : sb->env, k->template, NULL, sb->id);
	json_decref(c->guest_env);
	c->guest_env = env;
	return env ? 0 : -ENOMEM;
}

static int from_node(struct sandbox_core *c, struct create *k, const struct tree_node *n)
{
	struct sandbox *sb = &c->sb;

	if (core_from_node(c, n) < 0)
		return -ENOMEM;
	c->continues = !k->boot;
	if (k->boot) {
		sb->vcpu = k->vcpu ? k->vcpu : sb->vcpu;
		sb->memory = k->memory ? k->memory : sb->memory;
	}
	sb->disk = sb->read_only ? 0 : MAX(sb->disk, k->disk);
	c->grown = sb->disk > n->k.disk;
	if (k->env) {
		json_t *env = json_copy(sb->env);

		if (!env || json_object_update(env, k->env) < 0 || json_object_update(c->guest_env, k->env) < 0) {
			json_decref(env);
			return -ENOMEM;
		}
		json_decref(sb->env);
		sb->env = env;
	}
	return fill_in(c, k);
}

/* Processes go on in the machine that they know. */
static int check_sizes(const struct create *k, const struct checkpoint *n, struct fail *why)
{
	if (k->disk && k->disk < n->disk)
		return fail_as(why, ERR_bad_request, "disk: at least the checkpoint's %llu MiB", (unsigned long long)(n->disk / MIB));
	if (k->read_only != n->read_only && (k->read_only || !k->boot))
		return k->read_only ? fail_as(why, ERR_bad_request, "rootfs: the checkpoint %s was taken of a writable one", n->id) : 0;
	if (k->disk && n->read_only)
		return fail_as(why, ERR_bad_request, "disk: a read-only root has none");
	if (k->boot)
		return 0;
	if ((k->vcpu && k->vcpu != n->vcpu) || (k->memory && k->memory != n->memory))
		fail_as(why, ERR_bad_request, "checkpoint %s has %u vCPU and %llu MiB of memory, and its processes go on with those", n->id, n->vcpu,
			(unsigned long long)(n->memory / MIB));
	else if (json_object_size(k->tmpfs))
		fail_as(why, ERR_bad_request, "tmpfs: those of checkpoint %s are mounted already", n->id);
	else
		return 0;
	return fail_remedy(why, "leave that out, or boot its disk: space create --from ID --disk-only"), why->err;
}

static int refuse_while_stopping(struct space *sp, struct fail *why)
{
	return sp->stopping ? fail_as(why, ERR_daemon_down, "spaced is stopping") : 0;
}

void core_drop(struct sandbox_core *c)
{
	struct waiter *w, *next;

	if (!c)
		return;
	for (w = c->creators; w; w = next) { /* our own caller, who is answered otherwise */
		next = w->next;
		free(w);
	}
	c->state = SANDBOX_CREATING;
	core_unlist(c);
}

static void create_from_node(struct create *k, const struct checkpoint *found)
{
	struct tree_node *n = tree_find(k->sp, found->id);
	struct space *sp = k->sp;
	struct sandbox_core *c = NULL;
	struct fail f = { 0 };
	char id[ID_LEN + 1];
	uint64_t bytes = k->boot && k->memory ? k->memory : found->memory;

	if (!n)
		fail_as(&f, ERR_checkpoint_not_found, "no checkpoint %s", found->id);
	if (f.err || check_sizes(k, found, &f) < 0 || node_startable(sp, found, k->boot, &f) < 0 || refuse_while_stopping(sp, &f) < 0) {
		create_fail(k, &f);
		return;
	}
	id_make(id, 'i');
	c = core_new(sp, id, k->tenant);
	if (!c || from_node(c, k, n) < 0) {
		fail_set(&f, -ENOMEM, "out of memory");
	} else {
		bytes = c->sb.memory;
		sp->living--; /* itself */
		(void)admit(sp, bytes, &f);
		sp->living++;
	}
	if (f.err) {
		core_drop(c);
		create_fail(k, &f);
		return;
	}
	c->reserved = bytes;
	sp->memory_reserved += bytes;
	start_begin(c, NULL, n->k.id, k->boot, k->t0, 0);
	create_free(k);
}

/* --- from a template --- */

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
	if (refuse_while_stopping(sp, &f) < 0 || admit(sp, bytes, &f) < 0) {
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
	if (!c || from_template(c, k, v) < 0) {
		if (ready)
			machine_discard(ready);
		core_drop(c);
		fail_set(&f, -ENOMEM, "out of memory");
		create_fail(k, &f);
		return;
	}
	c->reserved = bytes;
	sp->memory_reserved += bytes;
	start_begin(c, ready, v->node, false, k->t0, k->built ? (double)(mono_ns() - k->t0) / NS_PER_MS : 0);
	create_free(k);
}

void sandbox_create(struct space *sp, const char *tenant, const struct create_req *q, sandbox_done_fn *done, void *arg)
{
	struct create *k = calloc(1, sizeof(*k));
	const struct checkpoint *found = NULL;
	struct fail why = { 0 };
	const char *from;
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
	k->suspend_on_timeout = q->suspend_on_timeout;
	k->auto_wake = q->auto_wake;
	k->boot = q->snapshot != NULL;
	from = q->checkpoint ? q->checkpoint : q->snapshot;
	if (from) {
		found = checkpoint_find(sp, tenant, str_of(from), &why);
		if (!found) {
			create_fail(k, &why);
			return;
		}
		(void)str_copy(k->node, sizeof(k->node), str_of(found->id));
		k->template[0] = '\0';
	}
	if (k->idem[0])
		k->idem_hash = hash_of(k);
	if (seen_before(k))
		return;
	if (found) {
		create_from_node(k, found);
		return;
	}
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
