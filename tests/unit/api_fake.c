/* A core of nothing: what the API calls, with one sandbox that has no guest. Answers of the real core are tested end to end. */
#include "api_fake.h"

#include <stdio.h>

#include "image/image.h"

struct fake fake;

void fake_reset(void)
{
	json_decref(fake.sb.env);
	json_decref(fake.sb.metadata);
	memset(&fake, 0, sizeof(fake));
	snprintf(fake.sb.id, sizeof(fake.sb.id), "iabcdefghij0123456789");
	snprintf(fake.sb.name, sizeof(fake.sb.name), "box");
	snprintf(fake.sb.tenant, sizeof(fake.sb.tenant), "default");
	fake.sb.state = SANDBOX_RUNNING;
	fake.sb.created_ns = 1700000000000000000;
	fake.sb.env = json_object();
	fake.sb.metadata = json_pack("{s:s}", "team", "a b");
	fake.sb.start = "restore";
	fake.sb.phases[0] = (struct phase){ "total", 41.5 };
	fake.sb.nphases = 1;
}

static const char *const states[] = { "creating", "running", "pausing", "paused", "suspending", "suspended", "waking", "stopping",
	"stopped", "failed" };

const char *sandbox_state_name(enum sandbox_state s) { return states[s]; }
bool space_ready(const struct space *sp, struct fail *why)
{
	if (fake.not_ready)
		fail_as(why, ERR_host_unsuitable, "not recovered yet");
	return !fake.not_ready;
}
const char *space_isolation(const struct space *sp) { return "emulated"; }
const char *space_driver(const struct space *sp) { return "qemu"; }
const char *space_driver_version(const struct space *sp) { return "7.2"; }
struct pool *space_pool(const struct space *sp) { return NULL; }
const json_t *sandbox_tmpfs(const struct sandbox *sb) { return NULL; }
pid_t sandbox_monitor_pid(const struct sandbox *sb) { return 0; }

void sandbox_create(struct space *sp, const char *tenant, const struct create_req *q, sandbox_done_fn *done, void *arg)
{
	struct fail why = { 0 };

	fake.created++;
	fake.timeout_s = q->timeout_s;
	fake.memory = q->memory;
	if (fake.no_capacity) {
		fail_as(&why, ERR_no_capacity, "no memory left");
		done(NULL, &why, arg);
		return;
	}
	done(&fake.sb, &why, arg);
}

static void done_at_once(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct fail why = { 0 };

	done(sb, &why, arg);
}

void sandbox_kill(struct sandbox *sb, const char *reason, sandbox_done_fn *done, void *arg) { done_at_once(sb, done, arg); }
void sandbox_pause(struct sandbox *sb, sandbox_done_fn *done, void *arg) { done_at_once(sb, done, arg); }
void sandbox_wake(struct sandbox *sb, sandbox_done_fn *done, void *arg) { done_at_once(sb, done, arg); }
void sandbox_set_timeout(struct sandbox *sb, int64_t timeout_s, sandbox_done_fn *done, void *arg)
{
	fake.timeout_s = timeout_s;
	done_at_once(sb, done, arg);
}
struct sandbox *sandbox_find(struct space *sp, const char *tenant, struct str id, struct fail *why)
{
	if (str_eqz(id, fake.sb.id) || str_eqz(id, fake.sb.name))
		return &fake.sb;
	fail_as(why, ERR_sandbox_not_found, "no sandbox \"%.*s\"", STR_ARG(id));
	return NULL;
}
void sandbox_each(struct space *sp, const char *tenant, int (*fn)(struct sandbox *sb, void *arg), void *arg)
{
	struct sandbox sb = fake.sb;
	int i;

	/* Three, newest first: two of the same instant. */
	for (i = 2; i >= 0; i--) {
		sb.created_ns = fake.sb.created_ns + (i == 2 ? 5 : 0);
		snprintf(sb.id, sizeof(sb.id), "iabcdefghij012345678%d", i);
		if (!fn(&sb, arg))
			return;
	}
}
void sandbox_hold(struct sandbox *sb) { sb->users++; }
void sandbox_release(struct sandbox *sb) { sb->users--; }
void sandbox_keep(struct sandbox *sb) { sb->users++; }
void sandbox_unkeep(struct sandbox *sb) { sb->users--; }
struct http_endpoint *sandbox_agent(struct sandbox *sb, struct fail *why)
{
	fail_as(why, ERR_sandbox_not_running, "no guest here");
	return NULL;
}
const char *sandbox_token(const struct sandbox *sb) { return ""; }
struct http_endpoint *sandbox_port(struct sandbox *sb, int port, struct fail *why) { return sandbox_agent(sb, why); }
int sandbox_console(struct sandbox *sb, size_t max, char **out, size_t *len)
{
	*out = strdup("console\n");
	*len = 8;
	return 0;
}

static void give_events(uint64_t after, event_fn *fn, void *arg)
{
	struct event e = { 0, 1700000000000000000, "default", fake.sb.id, "created", STR("{\"k\":1}") };

	for (e.seq = after + 1; e.seq <= 3; e.seq++)
		fn(&e, arg);
}
struct event_sub *event_subscribe(struct space *sp, const char *tenant, const char *sandbox, uint64_t after, event_fn *fn, void *arg)
{
	give_events(after, fn, arg);
	return (struct event_sub *)&fake;
}
void event_unsubscribe(struct event_sub *s) { }
int event_list(struct space *sp, const char *tenant, const char *sandbox, uint64_t after, unsigned limit, event_fn *fn, void *arg,
	       struct fail *why)
{
	give_events(after, fn, arg);
	return 0;
}

struct operation *operation_new(struct space *sp, const char *tenant, const char *kind, const char *target)
{
	snprintf(fake.op.id, sizeof(fake.op.id), "oabcdefghij0123456789");
	snprintf(fake.op.kind, sizeof(fake.op.kind), "%s", kind);
	fake.op.progress = -1;
	return &fake.op;
}
void operation_end(struct operation *op, json_t *result, const struct fail *why)
{
	op->state = why->err ? OPERATION_FAILED : OPERATION_DONE;
	json_decref(result);
}
void operation_set_target(struct operation *op, const char *target) { }
struct operation *operation_find(struct space *sp, const char *tenant, struct str id)
{
	return fake.op.id[0] && str_eqz(id, fake.op.id) ? &fake.op : NULL;
}
void operation_each(struct space *sp, const char *tenant, int (*fn)(struct operation *op, void *arg), void *arg) { }
struct operation_sub *operation_subscribe(struct operation *op, void (*fn)(struct operation *op, void *arg), void *arg)
{
	return (struct operation_sub *)&fake;
}
void operation_unsubscribe(struct operation_sub *s) { }

void template_each(struct space *sp, const char *tenant, int (*fn)(const struct template *t, void *arg), void *arg)
{
	struct template t = { .vcpu = 1 };
	int i;

	for (i = 0; i < 3; i++) {
		snprintf(t.name, sizeof(t.name), "t%d", i);
		if (!fn(&t, arg))
			return;
	}
}
const struct template *template_find(struct space *sp, const char *tenant, const char *name, struct fail *why)
{
	fail_as(why, ERR_template_not_found, "no template \"%s\"", name);
	return NULL;
}
struct operation *template_build(struct space *sp, const char *tenant, const struct template_req *q, struct fail *why)
{
	return operation_new(sp, tenant, "template.build", q->name);
}
int template_remove(struct space *sp, const char *tenant, const char *name, struct fail *why)
{
	return fail_as(why, ERR_template_not_found, "no template \"%s\"", name);
}
struct operation *image_build(struct space *sp, const char *tenant, const char *name, json_t *source, struct fail *why)
{
	return operation_new(sp, tenant, "image.build", name);
}
void image_list_json(struct space *sp, json_done_fn *done, void *arg)
{
	autojson json_t *list = json_pack("{s:[]}", "images");
	struct fail why = { 0 };

	done(list, &why, arg);
}
void image_remove_async(struct space *sp, const char *name, json_done_fn *done, void *arg)
{
	struct fail why = { 0 };

	done(NULL, &why, arg);
}

static struct key_info key = { "kabcdefghij0123456789", "k", "default", SCOPE_USE, 1, 1 };

const struct key_info *key_check(struct space *sp, struct str text)
{
	key.scope = fake.scope;
	return str_eqz(text, FAKE_KEY) ? &key : NULL;
}
void key_create(struct space *sp, const char *tenant, const char *name, enum scope scope, char text[64],
		void (*done)(const struct key_info *k, const struct fail *why, void *arg), void *arg)
{
	struct fail why = { 0 };

	snprintf(text, 64, "%s", FAKE_KEY);
	done(&key, &why, arg);
}
void key_delete(struct space *sp, const char *id, void (*done)(const struct fail *why, void *arg), void *arg)
{
	struct fail why = { 0 };

	done(&why, arg);
}
void key_each(struct space *sp, int (*fn)(const struct key_info *k, void *arg), void *arg) { fn(&key, arg); }
void space_count(struct space *sp, struct space_counts *out) { memset(out, 0, sizeof(*out)); }

int config_print(const struct config *c, struct buf *out) { return buf_addz(out, "listen: off\n"); }
int config_json(const struct config *c, struct buf *out) { return buf_addz(out, "{}"); }
int pool_info(struct pool *p, struct pool_info *out, struct fail *why) { memset(out, 0, sizeof(*out)); return 0; }
int kernel_current(struct pool *p, struct kernel_info *out, struct fail *why) { return -ENOENT; }
