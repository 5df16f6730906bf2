/* init_call.c - POST /init: the guest becomes somebody.
 *
 * Called after every start, and after every checkpoint, with a generation that only rises.
 * Everything is checked first and applied then; user processes thaw last, so that none of them ever
 * runs as the machine it was cloned from. */
#include "agent/agent.h"

#include <stdio.h>

#include "agent/cgroup.h"
#include "agent/hooks.h"
#include "agent/identity.h"
#include "agent/process.h"
#include "agent/stale.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

#define INIT_BODY_MAX (4 * 1024 * 1024)
#define TMPFS_MAX 16

struct init_req {
	int64_t generation, diskBytes;
	const char *id, *hostname, *machine_id, *timestamp, *entropy, *accessToken, *defaultUser,
		*defaultWorkdir, *caBundle;
	json_t *envVars, *tmpfs;
	bool readOnly, fresh, keepProcesses;
	/* made of them */
	int64_t time_ns;
	char seed[64 + 4];
	size_t nseed;
};

static const struct field fields[] = {
	INT_FIELD(struct init_req, generation, 1, INT64_MAX, true),
	STR_FIELD(struct init_req, id, 63, false),
	STR_FIELD(struct init_req, hostname, 63, false),
	STR_FIELD(struct init_req, machine_id, 32, false),
	STR_FIELD(struct init_req, timestamp, 64, false),
	STR_FIELD(struct init_req, entropy, 128, false),
	STR_FIELD(struct init_req, accessToken, 256, false),
	OBJ_FIELD(struct init_req, envVars, ENV_MAX, false),
	STR_FIELD(struct init_req, defaultUser, USER_NAME_MAX - 1, false),
	STR_FIELD(struct init_req, defaultWorkdir, PATH_LEN - 1, false),
	STR_FIELD(struct init_req, caBundle, 1024 * 1024, false),
	INT_FIELD(struct init_req, diskBytes, 0, INT64_MAX, false),
	OBJ_FIELD(struct init_req, tmpfs, TMPFS_MAX, false),
	BOOL_FIELD(struct init_req, readOnly, false),
	BOOL_FIELD(struct init_req, fresh, false),
	BOOL_FIELD(struct init_req, keepProcesses, false),
};

static bool hostname_ok(const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++) {
		char c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    (i > 0 && i + 1 < n && (c == '-' || c == '.'))))
			return false;
	}
	return n > 0;
}

static int check_objects(const struct init_req *q, struct fail *why)
{
	const char *key;
	json_t *v;

	json_object_foreach(q->envVars, key,
		v) if (!json_is_string(v) || key[0] == '\0' || strchr(key, '=')) return fail_as(why,
		ERR_bad_request, "envVars: an object of strings");
	json_object_foreach(q->tmpfs, key, v)
	{
		if (key[0] != '/' || !json_is_integer(v) || json_integer_value(v) <= 0)
			return fail_as(why, ERR_bad_request,
				"tmpfs: an object of absolute paths and sizes in bytes");
		if (path_is_system(str_of(key)))
			return fail_as(why, ERR_bad_request,
				"tmpfs.%.64s: the system's own directory cannot be covered", key);
	}
	return 0;
}

static int check(struct init_req *q, struct fail *why)
{
	char raw[16];
	struct user u;

	if (q->hostname && !hostname_ok(q->hostname))
		return fail_as(why, ERR_bad_request, "hostname: letters, digits, '-' and '.'");
	if (q->machine_id &&
		(strlen(q->machine_id) != 32 || hex_decode(raw, 16, str_of(q->machine_id)) < 0))
		return fail_as(why, ERR_bad_request, "machine_id: 32 hex digits");
	if (q->timestamp && rfc3339_parse(str_of(q->timestamp), &q->time_ns) < 0)
		return fail_as(why, ERR_bad_request, "timestamp: RFC 3339");
	if (q->entropy) {
		struct str s = str_of(q->entropy);

		if (s.n > 88 || base64_decode(q->seed, &q->nseed, s) < 0 || q->nseed > 64)
			return fail_as(why, ERR_bad_request, "entropy: at most 64 bytes in base64");
	}
	if (q->id && str_has_ctl(str_of(q->id)))
		return fail_as(why, ERR_bad_request, "id: no control bytes");
	if (q->defaultUser && q->defaultUser[0] && user_lookup(q->defaultUser, &u) < 0)
		return fail_as(why, ERR_bad_request, "defaultUser: no user '%s'", q->defaultUser);
	if (q->defaultWorkdir && q->defaultWorkdir[0] && q->defaultWorkdir[0] != '/' &&
		q->defaultWorkdir[0] != '~')
		return fail_as(why, ERR_bad_request, "defaultWorkdir: an absolute path");
	return check_objects(q, why);
}

/* What must hold before user code runs. The clock is last but one step: it should be right when we
 * answer. */
static int apply_machine(struct init_req *q, struct fail *why)
{
	const char *path;
	json_t *v;
	int r = 0;

	if (q->diskBytes)
		r = identity_grow_disk((uint64_t)q->diskBytes, why);
	/* The same machine goes on after a pause or a save: what is written already is left alone. */
	if (r == 0 && q->hostname && strcmp(q->hostname, agent.hostname))
		r = identity_hostname(q->hostname, why);
	if (r == 0 && q->machine_id && strcmp(q->machine_id, agent.machine_id))
		r = identity_machine_id(q->machine_id, why);
	if (r == 0 && q->caBundle)
		r = identity_ca(str_of(q->caBundle), why);
	json_object_foreach(q->tmpfs, path, v) if (r == 0 && !agent.test) r =
		identity_tmpfs(path, (uint64_t)json_integer_value(v), why);
	if (r == 0 && q->readOnly && !agent.test)
		r = identity_read_only(why);
	if (r == 0 && q->timestamp)
		r = identity_clock(q->time_ns, why);
	return r;
}

/* We have just come out of a checkpoint: what the machine that it was taken from had open leads nowhere. */
static void apply_fresh(struct http_exchange *x)
{
	http_server_reset(agent.http, x);
	boot_token_new();
	if (agent.test)
		return;
	stale_reset();
	net_neighbour();
}

static int apply_env(const struct init_req *q)
{
	autojson json_t *env = q->envVars ? json_copy(q->envVars) : NULL;

	if (!env)
		return q->envVars ? -ENOMEM : 0;
	if (!json_object_get(env, "E2B_SANDBOX"))
		json_object_set_new(env, "E2B_SANDBOX", json_string("true"));
	json_decref(agent.env);
	agent.env = json_incref(env);
	return 0;
}

static int apply(struct init_req *q, struct fail *why)
{
	int r = apply_machine(q, why);

	if (r < 0)
		return r;
	if (apply_env(q) < 0)
		return fail_set(why, -ENOMEM, "out of memory");
	if (q->id) {
		if (agent.id[0] && strcmp(agent.id, q->id) && !q->keepProcesses)
			processes_forget();
		snprintf(agent.id, sizeof(agent.id), "%s", q->id);
		json_object_set_new(agent.env, "E2B_SANDBOX_ID", json_string(q->id));
	}
	if (q->machine_id)
		snprintf(agent.machine_id, sizeof(agent.machine_id), "%s", q->machine_id);
	if (q->hostname)
		snprintf(agent.hostname, sizeof(agent.hostname), "%s", q->hostname);
	snprintf(agent.token, sizeof(agent.token), "%s", q->accessToken ? q->accessToken : "");
	if (q->defaultUser)
		snprintf(agent.default_user, sizeof(agent.default_user), "%s", q->defaultUser);
	if (q->defaultWorkdir)
		snprintf(agent.default_workdir, sizeof(agent.default_workdir), "%s",
			q->defaultWorkdir);
	(void)identity_marks(agent.id[0] ? agent.id : NULL,
		json_string_value(json_object_get(agent.env, "E2B_TEMPLATE_ID")));
	agent.generation = q->generation;
	return 0;
}

/* The entropy comes first: the rest draws from it. */
static int take_in(struct http_exchange *x, struct init_req *q, struct fail *why)
{
	int r = q->nseed ? identity_entropy(q->seed, q->nseed, why) : 0;

	if (r < 0)
		return r;
	if (q->fresh)
		apply_fresh(x);
	return apply(q, why);
}

static void answer(struct http_exchange *x)
{
	char boot_id[40], random[16];
	struct buf b;
	struct jw w;

	identity_boot_id(boot_id);
	random_bytes(random, sizeof(random));
	buf_init(&b, 4096);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "generation", agent.generation);
	jw_str(&w, "id", agent.id);
	jw_str(&w, "machine_id", agent.machine_id);
	jw_str(&w, "boot_id", boot_id);
	jw_str(&w, "boot_token", agent.boot_token);
	jw_time(&w, "timestamp", real_ns());
	jw_base64(&w, "random", random, sizeof(random));
	jw_int(&w, "uptime_ms", mono_ms());
	jw_str(&w, "agent_version", SPACE_VERSION);
	jw_int(&w, "protocol", AGENT_PROTOCOL);
	jw_obj_end(&w);
	http_add_header(x, "X-Envd-Version", ENVD_VERSION);
	http_add_header(x, "Cache-Control", "no-store");
	http_respond_buf(x, 200, "application/json", &b);
	buf_clear(&b);
}

/* --- the end of it: now user processes run --- */

static struct http_exchange *caller; /* who waits while programs of clone.d run; NULL: nobody, or gone */

static void caller_gone(struct http_exchange *x, int err, void *arg)
{
	if (caller == x)
		caller = NULL;
}

static void thaw(unsigned run, unsigned failed, void *arg)
{
	struct http_exchange *x = caller;

	caller = NULL;
	if (failed)
		log_warning("init: %u of %u programs of clone.d failed", failed, run);
	agent.ready = true;
	agent.frozen = false;
	http_server_hold(agent.http, NULL, false);
	fs_thaw();
	(void)cgroups_freeze(false);
	/* No gratuitous ARP: the host asks for this address itself, in a namespace where nobody has heard of it, and the socket for
	 * one waits 20 ms for the kernel when it closes. */
	if (x)
		answer(x);
}

static void got_init(struct http_exchange *x, struct str body, const struct fail *why, void *arg)
{
	autojson json_t *req = NULL;
	struct init_req q = { 0 };
	struct fail bad = { 0 };

	if (why->err)
		return;
	req = json_read(body, &bad);
	if (!req || fields_read(req, fields, ARRAY_LEN(fields), &q, &bad) < 0 ||
		check(&q, &bad) < 0) {
		answer_error(x, 400, "%s", bad.msg);
		return;
	}
	if (q.generation <= agent.generation) {
		answer_error(x, 409, "generation %lld is not higher than the last one, %lld",
			(long long)q.generation, (long long)agent.generation);
		return;
	}
	hooks_cancel();
	if (caller) {
		struct http_exchange *old = caller;

		caller = NULL;
		answer_error(old, 503, "another /init has come");
	}
	if (take_in(x, &q, &bad) < 0) {
		log_error("init: %s", bad.msg);
		answer_error(x, 500, "%s", bad.msg);
		return;
	}
	caller = x;
	http_on_close(x, caller_gone, NULL);
	if (!q.fresh) {
		thaw(0, 0, NULL);
		return;
	}
	agent.frozen = true; /* until they have run nobody else is served */
	hooks_run(thaw, NULL);
}

void handle_init(struct http_exchange *x)
{
	http_body_whole(x, INIT_BODY_MAX, got_init, NULL);
}

void handle_health(struct http_exchange *x)
{
	http_add_header(x, "Cache-Control", "no-store");
	http_respond_empty(x, 204);
}

void handle_envs(struct http_exchange *x)
{
	struct buf b;
	struct jw w;

	buf_init(&b, 4 * MIB);
	jw_init(&w, &b);
	jw_json(&w, NULL, agent.env);
	if (w.err)
		answer_error(x, 500, "out of memory");
	else
		http_respond_buf(x, 200, "application/json", &b);
	buf_clear(&b);
}
