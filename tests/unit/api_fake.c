/* A core of nothing: what the API calls, with one sandbox that has no guest. Answers of the real core are tested end to end. */
#include "api_fake.h"

#include <stdio.h>

#include "base/file.h"
#include "base/job.h"
#include "image/image.h"

struct fake fake;

void fake_reset(void)
{
	json_decref(fake.sb.env);
	json_decref(fake.sb.metadata);
	free(fake.nodes);
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
const char *space_storage(const struct space *sp) { return "clone"; }
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

	if (fake.busy)
		fail_as(&why, ERR_busy, "another call is under way");
	done(fake.busy ? NULL : sb, &why, arg);
}

/* A pause or suspension that is under way is waited for. */
static struct { sandbox_done_fn *done; void *arg; } waiting;

static void put_to(enum sandbox_state s, enum sandbox_state under_way, struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	if (sb->state == under_way) {
		waiting.done = done;
		waiting.arg = arg;
		return;
	}
	if (!fake.busy)
		sb->state = s;
	done_at_once(sb, done, arg);
}

void fake_still(enum sandbox_state s)
{
	struct fail why = { 0 };
	sandbox_done_fn *done = waiting.done;

	fake.sb.state = s;
	waiting.done = NULL;
	if (done)
		done(&fake.sb, &why, waiting.arg);
}

void sandbox_kill(struct sandbox *sb, const char *reason, sandbox_done_fn *done, void *arg) { done_at_once(sb, done, arg); }
void sandbox_pause(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	fake.pauses++;
	put_to(SANDBOX_PAUSED, SANDBOX_PAUSING, sb, done, arg);
}
void sandbox_suspend(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	fake.suspends++;
	put_to(SANDBOX_SUSPENDED, SANDBOX_SUSPENDING, sb, done, arg);
}
void sandbox_wake(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	fake.wakes++;
	put_to(SANDBOX_RUNNING, SANDBOX_WAKING, sb, done, arg);
}
void sandbox_rollback(struct sandbox *sb, const char *checkpoint, sandbox_done_fn *done, void *arg)
{
	snprintf(fake.rollback, sizeof(fake.rollback), "%s", checkpoint);
	done_at_once(sb, done, arg);
}

/* --- nodes --- */

const char *node_kind_name(enum node_kind k)
{
	static const char *const names[] = { "template", "checkpoint", "snapshot", "branch", "suspend" };

	return names[k];
}

void fake_nodes(unsigned n)
{
	unsigned i;

	free(fake.nodes);
	fake.nodes = calloc(n, sizeof(*fake.nodes));
	fake.nnodes = fake.nodes ? n : 0;
	for (i = 0; i < fake.nnodes; i++) {
		struct checkpoint *k = &fake.nodes[i];

		snprintf(k->id, sizeof(k->id), "n%020u", i);
		if (i)
			snprintf(k->parent, sizeof(k->parent), "n%020u", i - 1);
		snprintf(k->label, sizeof(k->label), "label %u", i);
		snprintf(k->sandbox, sizeof(k->sandbox), "%s", i % 2 ? "izzzzzzzzzz0123456789" : fake.sb.id);
		k->kind = (enum node_kind)(i % NODE_KINDS);
		k->created_ns = 1700000000000000000 + i / 2; /* two of each instant */
	}
}

static void give_node(bool disk_only, const char *label, struct checkpoint *k)
{
	memset(k, 0, sizeof(*k));
	snprintf(k->id, sizeof(k->id), "nabcdefghij0123456789");
	snprintf(k->label, sizeof(k->label), "%s", label ? label : "");
	snprintf(k->sandbox, sizeof(k->sandbox), "%s", fake.sb.id);
	k->kind = disk_only ? NODE_SNAPSHOT : NODE_CHECKPOINT;
	k->paused_ms = 14.2;
	k->created_ns = 1700000000000000000;
}

void sandbox_checkpoint(struct sandbox *sb, const struct checkpoint_req *q, checkpoint_done_fn *done, void *arg)
{
	struct fail why = { 0 };
	struct checkpoint k;

	snprintf(fake.label, sizeof(fake.label), "%s", q->label ? q->label : "");
	snprintf(fake.idem, sizeof(fake.idem), "%s", q->idempotency_key ? q->idempotency_key : "");
	fake.disk_only = q->disk_only;
	if (fake.busy)
		fail_as(&why, ERR_busy, "another call is under way");
	give_node(q->disk_only, q->label, &k);
	done(fake.busy ? NULL : &k, &why, arg);
}

void sandbox_branch(struct sandbox *sb, const struct branch_req *q, branch_done_fn *done, void *arg)
{
	struct sandbox *both[2] = { sb, sb };
	struct fail why = { 0 }, bad;
	struct checkpoint k;
	struct branch_result res = { &k, both, q->count > 1, &bad, 1 };

	fake.branch = *q;
	fake.branch.label = NULL;
	fake.branch.metadata = NULL;
	if (fake.busy)
		fail_as(&why, ERR_busy, "another call is under way");
	fail_as(&bad, ERR_no_capacity, "no memory left");
	give_node(false, q->label, &k);
	k.kind = NODE_BRANCH;
	done(fake.busy ? NULL : &res, &why, arg);
}

const struct checkpoint *checkpoint_find(struct space *sp, const char *tenant, struct str what, struct fail *why)
{
	unsigned i;

	for (i = 0; i < fake.nnodes; i++)
		if (str_eqz(what, fake.nodes[i].id) || str_eqz(what, fake.nodes[i].label))
			return &fake.nodes[i];
	fail_as(why, ERR_checkpoint_not_found, "no checkpoint \"%.*s\"", STR_ARG(what));
	return NULL;
}

void checkpoint_each(struct space *sp, const char *tenant, const char *sandbox, int (*fn)(const struct checkpoint *k, void *arg), void *arg)
{
	unsigned i;

	for (i = fake.nnodes; i > 0; i--)
		if ((!sandbox || !strcmp(fake.nodes[i - 1].sandbox, sandbox)) && !fn(&fake.nodes[i - 1], arg))
			return;
}

void checkpoint_remove(struct space *sp, const char *tenant, const char *id, void (*done)(const struct fail *why, void *arg), void *arg)
{
	struct fail why = { 0 };

	snprintf(fake.removed, sizeof(fake.removed), "%s", id);
	if (fake.busy)
		fail_as(&why, ERR_busy, "a suspended sandbox needs it");
	done(&why, arg);
}

void checkpoint_prune(struct space *sp, const char *tenant, const struct prune_req *q, json_done_fn *done, void *arg)
{
	autojson json_t *v = json_pack("{s:[s],s:i}", "removed", "nabcdefghij0123456789", "bytes", 5);
	struct fail why = { 0 };

	fake.prune = *q;
	done(v, &why, arg);
}

void space_usage_json(struct space *sp, const char *tenant, json_done_fn *done, void *arg)
{
	autojson json_t *v = json_pack("{s:{s:i,s:i,s:s},s:[]}", "pool", "total", 2, "free", 1, "clone", "native", "rows");
	struct fail why = { 0 };

	done(v, &why, arg);
}

struct operation *space_fsck(struct space *sp, const char *tenant, struct fail *why)
{
	if (!fake.busy)
		return operation_new(sp, tenant, "fsck", "");
	fail_as(why, ERR_busy, "one is under way");
	return NULL;
}

/* --- a node as a stream: a job at the other end of the pipe --- */

struct streamed {
	int fd;
	json_done_fn *exported;
	checkpoint_done_fn *imported;
	void *arg;
};

static int export_job(void *arg, struct fail *why)
{
	struct streamed *s = arg;
	static char block[8192];
	uint64_t left = fake.export_bytes;
	int err = 0;

	memset(block, 'e', sizeof(block));
	while (left && !err) {
		size_t n = MIN(left, sizeof(block));

		err = write_all(s->fd, block, n);
		left -= n;
	}
	close(s->fd);
	if (!err && !fake.export_fails)
		return 0;
	return fail_as(why, ERR_checkpoint_damaged, "memory: block 7 is not what was stored");
}

static void export_done(void *arg, const struct fail *why)
{
	struct streamed *s = arg;
	autojson json_t *v = json_pack("{s:I}", "bytes", (json_int_t)fake.export_bytes);

	s->exported(why->err ? NULL : v, why, s->arg);
	free(s);
}

void checkpoint_export(struct space *sp, const char *tenant, const char *id, int fd, json_done_fn *done, void *arg)
{
	struct streamed *s = calloc(1, sizeof(*s));

	*s = (struct streamed){ .fd = fd, .exported = done, .arg = arg };
	job_run(fake.loop, NULL, export_job, export_done, s);
}

static int import_job(void *arg, struct fail *why)
{
	struct streamed *s = arg;
	char block[8192], last = 0;
	ssize_t n;

	fake.imported = 0;
	while ((n = read(s->fd, block, sizeof(block))) > 0) {
		if (!fake.imported && block[0] == 'X')
			break;
		fake.imported += (uint64_t)n;
		last = block[n - 1];
	}
	close(s->fd);
	fake.import_whole = last == '.';
	return fake.import_whole ? 0 : fail_as(why, ERR_bad_request, n > 0 ? "not a checkpoint" : "the stream has no end");
}

static void import_done(void *arg, const struct fail *why)
{
	struct streamed *s = arg;
	struct checkpoint k;

	give_node(false, NULL, &k);
	s->imported(why->err ? NULL : &k, why, s->arg);
	free(s);
}

void checkpoint_import(struct space *sp, const char *tenant, int fd, checkpoint_done_fn *done, void *arg)
{
	struct streamed *s = calloc(1, sizeof(*s));

	*s = (struct streamed){ .fd = fd, .imported = done, .arg = arg };
	job_run(fake.loop, NULL, import_job, import_done, s);
}
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
	static struct sandbox all[3];
	int i;

	/* Three, newest first: two of the same instant. */
	for (i = 2; i >= 0; i--) {
		all[i] = fake.sb;
		all[i].created_ns = fake.sb.created_ns + (i == 2 ? 5 : 0);
		snprintf(all[i].id, sizeof(all[i].id), "iabcdefghij012345678%u", (unsigned)i % 10);
		if (!fn(&all[i], arg))
			return;
	}
}
void sandbox_hold(struct sandbox *sb) { sb->users++; }
void sandbox_release(struct sandbox *sb) { sb->users--; }
void sandbox_keep(struct sandbox *sb) { sb->users++; }
void sandbox_unkeep(struct sandbox *sb) { sb->users--; }
struct http_endpoint *sandbox_agent(struct sandbox *sb, struct fail *why)
{
	if (fake.agent && sb->state == SANDBOX_RUNNING)
		return fake.agent;
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
