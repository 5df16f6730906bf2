/* record.c - a sandbox as its record in the store, and back. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

int core_write(const struct sandbox_core *c, enum sandbox_state as, struct buf *out)
{
	const struct sandbox *sb = &c->sb;
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_str(&w, "id", sb->id);
	jw_str(&w, "name", sb->name);
	jw_str(&w, "tenant", sb->tenant);
	jw_str(&w, "state", sandbox_state_name(as));
	jw_str(&w, "reason", sb->reason);
	jw_str(&w, "template", sb->template);
	jw_int(&w, "template_version", sb->template_version);
	jw_str(&w, "node", sb->node);
	jw_str(&w, "checkpoint", sb->checkpoint);
	jw_str(&w, "lies_in", c->lies_in);
	jw_str(&w, "image", sb->image_digest);
	jw_str(&w, "kernel", sb->kernel_digest);
	jw_str(&w, "initrd", c->initrd_digest);
	jw_int(&w, "vcpu", sb->vcpu);
	jw_int(&w, "memory", (int64_t)sb->memory);
	jw_int(&w, "disk", (int64_t)sb->disk);
	jw_bool(&w, "read_only", sb->read_only);
	jw_int(&w, "created_ns", sb->created_ns);
	jw_int(&w, "started_ns", sb->started_ns);
	jw_int(&w, "ended_ns", sb->ended_ns);
	jw_int(&w, "deadline_ns", sb->deadline_ns);
	jw_int(&w, "timeout_s", sb->timeout_s);
	jw_int(&w, "idle_timeout_s", sb->idle_timeout_s);
	jw_bool(&w, "suspend_on_timeout", sb->suspend_on_timeout);
	jw_bool(&w, "auto_wake", sb->auto_wake);
	jw_bool(&w, "was_paused", c->was_paused);
	jw_json(&w, "env", sb->env);
	jw_json(&w, "metadata", sb->metadata);
	jw_json(&w, "tmpfs", c->tmpfs);
	jw_json(&w, "guest_env", c->guest_env);
	jw_str(&w, "start", sb->start);
	jw_obj(&w, "phases");
	for (unsigned i = 0; i < sb->nphases; i++)
		jw_num(&w, sb->phases[i].name, sb->phases[i].ms);
	jw_obj_end(&w);
	jw_str(&w, "hostname", c->who.hostname);
	jw_str(&w, "machine_id", c->who.machine_id);
	jw_str(&w, "token", c->who.token);
	jw_str(&w, "boot_token", c->who.boot_token);
	jw_int(&w, "generation", c->who.generation);
	jw_str(&w, "user", c->user);
	jw_str(&w, "workdir", c->workdir);
	jw_str(&w, "idempotency_key", c->idem);
	jw_int(&w, "idempotency_hash", (int64_t)(c->idem_hash >> 1));
	if (c->fail.err) {
		jw_obj(&w, "error");
		jw_fail(&w, &c->fail, NULL);
		jw_obj_end(&w);
	}
	jw_obj_end(&w);
	return w.err;
}

/* Everything a record has, as it stands there; strings live as long as the JSON. */
struct record {
	const char *id, *name, *tenant, *state, *reason, *template, *node, *checkpoint, *lies_in, *image, *kernel, *initrd, *start, *hostname, *machine_id, *token, *boot_token,
		*user, *workdir, *idempotency_key;
	int64_t template_version, vcpu, memory, disk, created_ns, started_ns, ended_ns, deadline_ns, timeout_s, idle_timeout_s,
		generation, idempotency_hash;
	bool read_only, suspend_on_timeout, auto_wake, was_paused;
	json_t *env, *metadata, *tmpfs, *guest_env, *phases, *error;
};

#define S(m, n) STR_FIELD(struct record, m, n, false)
#define I(m) INT_FIELD(struct record, m, 0, INT64_MAX, false)

static const struct field fields[] = {
	STR_FIELD(struct record, id, 23, true), STR_FIELD(struct record, tenant, 31, true), STR_FIELD(struct record, state, 15, true),
	S(name, 63), S(reason, 31), S(template, 63), S(node, 23), S(checkpoint, 23), S(lies_in, 23), S(image, 64), S(kernel, 64), S(initrd, 64), S(start, 15), S(hostname, 63),
	S(machine_id, 32), S(token, 64), S(boot_token, 64), S(user, 63), S(workdir, 255), S(idempotency_key, 128),
	I(template_version), I(vcpu), I(memory), I(disk), I(created_ns), I(started_ns), I(ended_ns), I(deadline_ns), I(timeout_s),
	I(idle_timeout_s), I(generation), I(idempotency_hash),
	BOOL_FIELD(struct record, read_only, false), BOOL_FIELD(struct record, suspend_on_timeout, false),
	BOOL_FIELD(struct record, auto_wake, false), BOOL_FIELD(struct record, was_paused, false),
	OBJ_FIELD(struct record, env, 10000, false), OBJ_FIELD(struct record, metadata, 10000, false),
	OBJ_FIELD(struct record, tmpfs, 100, false), OBJ_FIELD(struct record, guest_env, 10000, false),
	OBJ_FIELD(struct record, phases, 8, false), OBJ_FIELD(struct record, error, 8, false),
};

static void copy(char *dst, size_t size, const char *z)
{
	(void)str_copy(dst, size, str_of(z));
}

#define COPY(to, from) copy(to, sizeof(to), from)

/* Names that outlive the record: phases and kinds of start are constants of ours. */
static const char *constant(const char *z)
{
	static const char *const known[] = { "pool", "restore", "boot", "admit", "monitor", "disk", "load", "agent", "total", "variant",
					     "commit" };

	for (size_t i = 0; z && i < ARRAY_LEN(known); i++)
		if (!strcmp(z, known[i]))
			return known[i];
	return NULL;
}

static void read_phases(struct sandbox *sb, json_t *phases)
{
	const char *key, *name;
	json_t *v;

	json_object_foreach(phases, key, v)
	{
		name = constant(key);
		if (name && sb->nphases < ARRAY_LEN(sb->phases))
			sb->phases[sb->nphases++] = (struct phase){ name, json_number_value(v) };
	}
}

static json_t *own(json_t *borrowed, json_t *old)
{
	if (!borrowed)
		return old;
	json_decref(old);
	return json_incref(borrowed);
}

static int state_by_name(const char *name)
{
	for (int s = 0; s < SANDBOX_STATES; s++)
		if (!strcmp(name, sandbox_state_name(s)))
			return s;
	return -1;
}

static void read_error(struct sandbox_core *c, json_t *error)
{
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *msg = json_string_value(json_object_get(error, "message"));
	enum errcode e = code ? err_by_name(code, strlen(code)) : ERR_NONE;

	fail_as(&c->fail, e == ERR_NONE ? ERR_internal : e, "%s", msg ? msg : "unknown");
}

int core_load(struct space *sp, struct str body, struct fail *why)
{
	autojson json_t *j = json_read(body, why);
	struct record r = { 0 };
	struct sandbox_core *c;
	int state;

	if (!j || fields_read_loose(j, fields, ARRAY_LEN(fields), &r, why) < 0)
		return why->err;
	state = state_by_name(r.state);
	if (state < 0 || !id_valid(str_of(r.id), 'i'))
		return fail_as(why, ERR_state_version, "a sandbox's record is not understood: state \"%s\"", r.state);
	c = core_new(sp, r.id, r.tenant);
	if (!c)
		return fail_set(why, -ENOMEM, "out of memory");
	COPY(c->sb.name, r.name);
	COPY(c->sb.reason, r.reason);
	COPY(c->sb.template, r.template);
	COPY(c->sb.node, r.node);
	COPY(c->sb.checkpoint, r.checkpoint);
	COPY(c->lies_in, r.lies_in);
	COPY(c->initrd_digest, r.initrd);
	COPY(c->sb.image_digest, r.image);
	COPY(c->sb.kernel_digest, r.kernel);
	COPY(c->who.id, r.id);
	COPY(c->who.hostname, r.hostname);
	COPY(c->who.machine_id, r.machine_id);
	COPY(c->who.token, r.token);
	COPY(c->who.boot_token, r.boot_token);
	COPY(c->user, r.user);
	COPY(c->workdir, r.workdir);
	COPY(c->idem, r.idempotency_key);
	c->idem_hash = (uint64_t)r.idempotency_hash << 1;
	c->who.generation = r.generation;
	c->sb.template_version = (unsigned)r.template_version;
	c->sb.vcpu = (unsigned)r.vcpu;
	c->sb.memory = (uint64_t)r.memory;
	c->sb.disk = (uint64_t)r.disk;
	c->sb.read_only = r.read_only;
	c->sb.created_ns = r.created_ns;
	c->sb.started_ns = r.started_ns;
	c->sb.ended_ns = r.ended_ns;
	c->sb.deadline_ns = r.deadline_ns;
	c->sb.last_active_ns = real_ns();
	c->sb.timeout_s = r.timeout_s;
	c->sb.idle_timeout_s = r.idle_timeout_s;
	c->sb.suspend_on_timeout = r.suspend_on_timeout;
	c->sb.auto_wake = r.auto_wake;
	c->was_paused = r.was_paused;
	c->sb.env = own(r.env, c->sb.env);
	c->sb.metadata = own(r.metadata, c->sb.metadata);
	c->tmpfs = own(r.tmpfs, NULL);
	c->guest_env = own(r.guest_env, NULL);
	c->sb.start = constant(r.start) ? constant(r.start) : "restore";
	read_phases(&c->sb, r.phases);
	if (r.error)
		read_error(c, r.error);
	sp->counts[c->state]--;
	sp->counts[state]++;
	if (state_ended(state)) {
		sp->living--;
		sp->ended++;
	}
	c->state = c->sb.state = (enum sandbox_state)state;
	return 0;
}
