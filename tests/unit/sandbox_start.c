/* What is started from a checkpoint, on the fakes of sandbox_fake.c: branches, wakes from suspension, rollbacks, creates; and what a restart makes of each
 * that was under way. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "sandbox_fake.h"
#include "sandbox_world.h"
#include "test.h"

struct took {
	int n;
	char id[24];
	enum errcode code;
	char msg[240];
};

static void on_taken(const struct checkpoint *k, const struct fail *why, void *arg)
{
	struct took *t = arg;

	t->n++;
	t->code = why->err ? why->code : ERR_NONE;
	snprintf(t->msg, sizeof(t->msg), "%s", why->err ? why->msg : "");
	snprintf(t->id, sizeof(t->id), "%s", k ? k->id : "");
}

static void checkpoint(struct sandbox *sb, const char *label, bool disk_only, struct took *t)
{
	struct checkpoint_req q = { .label = label, .disk_only = disk_only };
	int want = t->n + 1;

	sandbox_checkpoint(sb, &q, on_taken, t);
	spin(&t->n, NULL, want, 5000);
	CHECK_INT(t->code, ERR_NONE);
}

struct grown {
	int n;
	unsigned made, failed;
	char ids[64][24], from[24];
	enum errcode code;
};

static void on_branched(const struct branch_result *res, const struct fail *why, void *arg)
{
	struct grown *g = arg;

	g->n++;
	g->code = why->err ? why->code : res->nfailed ? res->failed[0].code : ERR_NONE;
	g->made = res->count;
	g->failed = res->nfailed;
	snprintf(g->from, sizeof(g->from), "%s", res->from ? res->from->id : "");
	for (unsigned i = 0; i < res->count; i++)
		snprintf(g->ids[i], sizeof(g->ids[i]), "%s", res->sandboxes[i]->id);
}

static void branch(struct sandbox *sb, const struct branch_req *q, struct grown *g)
{
	int want = g->n + 1;

	sandbox_branch(sb, q, on_branched, g);
	spin(&g->n, NULL, want, 10000);
}

static void call(void (*fn)(struct sandbox *sb, sandbox_done_fn *done, void *arg), struct sandbox *sb, struct ends *e)
{
	int want = e->ok + e->failed + 1;

	fn(sb, on_end, e);
	spin(&e->ok, &e->failed, want, 10000);
}

/* What is seen of it follows when it is on disk. */
static void seen_as(struct sandbox *sb, enum sandbox_state want)
{
	for (int i = 0; i < 400 && sb->state != want; i++)
		wait_ms(5);
	CHECK_INT(sb->state, want);
}

/* Nodes that nothing needs go in the background. */
static void nodes_left(unsigned want)
{
	for (int i = 0; i < 400 && fake_nodes() != want; i++)
		wait_ms(5);
	CHECK_INT(fake_nodes(), want);
}

static void roll(struct sandbox *sb, const char *to, struct ends *e)
{
	int want = e->ok + e->failed + 1;

	sandbox_rollback(sb, to, on_end, e);
	spin(&e->ok, &e->failed, want, 10000);
}

TEST(siblings_are_machines_of_their_own)
{
	static const struct branch_req ten = { .count = 10, .timeout_s = -1 };
	autojson json_t *metadata = json_pack("{s:s}", "role", "child");
	struct branch_req one = { .count = 1, .timeout_s = 77, .metadata = metadata };
	struct ends e = { 0 };
	struct grown g = { 0 };
	struct sandbox *parent, *a;
	struct space *sp;
	char token[65];

	world("siblings");
	sp = up();
	REQUIRE(sp);
	create(sp, &(struct create_req){ .name = "parent", .timeout_s = 600, .idle_timeout_s = 0, .auto_wake = true }, &e);
	parent = get(sp, e.id);
	REQUIRE(parent);
	snprintf(token, sizeof(token), "%s", sandbox_token(parent));
	fake.kept = 0;
	branch(parent, &ten, &g);
	CHECK_INT(g.code, ERR_NONE);
	CHECK_INT(g.made, 10);
	CHECK_INT(g.failed, 0);
	CHECK_INT(fake.kept, 10); /* their processes go on; the parent's own /init is no fresh one */
	CHECK_INT(parent->state, SANDBOX_RUNNING);
	CHECK_INT(sp->memory_reserved, 11 * 512 * MIB);
	for (unsigned i = 0; i < g.made; i++) {
		a = get(sp, g.ids[i]);
		REQUIRE(a);
		CHECK_STR(a->name, "");
		CHECK_STR(a->node, g.from);
		CHECK_INT(a->timeout_s, 600);
		CHECK(a->auto_wake);
		CHECK(strcmp(sandbox_token(a), token));
		CHECK(strcmp(a->core->who.machine_id, parent->core->who.machine_id));
		CHECK(strcmp(a->core->who.boot_token, parent->core->who.boot_token));
		for (unsigned k = 0; k < i; k++)
			CHECK(strcmp(a->core->who.boot_token, get(sp, g.ids[k])->core->who.boot_token));
	}
	branch(parent, &one, &g);
	CHECK_INT(g.made, 1);
	CHECK_INT(get(sp, g.ids[0])->timeout_s, 77);
	CHECK_STR(json_string_value(json_object_get(get(sp, g.ids[0])->metadata, "role")), "child");
	link_each_safe(l, next, &sp->sandboxes)
		kill_it(sp, container_of(l, struct sandbox_core, link)->sb.id);
	wait_ms(100);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	nodes_left(0); /* nobody needs what they were taken from */
	down(sp);
}

TEST(as_many_siblings_as_there_is_memory_for)
{
	static const struct branch_req many = { .count = 64, .timeout_s = -1 };
	struct ends e = { 0 };
	struct grown g = { 0 };
	struct space *sp;

	world("many");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	branch(get(sp, e.id), &many, &g);
	CHECK_INT(g.made, 19);
	CHECK_INT(g.failed, 45);
	CHECK_INT(g.code, ERR_no_capacity);
	g.n = 0;
	branch(get(sp, e.id), &many, &g);
	CHECK_INT(g.code, ERR_no_capacity);
	CHECK_STR(g.from, "");
	link_each_safe(l, next, &sp->sandboxes)
		kill_it(sp, container_of(l, struct sandbox_core, link)->sb.id);
	CHECK_INT(sp->memory_reserved, 0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(a_sibling_that_lies_is_killed_and_reported)
{
	static const struct {
		const char *what;
		enum fake_agent agent;
		const char *msg;
	} rows[] = {
		{ "its parent's machine id", FAKE_AGENT_OLD_MACHINE, "identity" },
		{ "its parent's boot token", FAKE_AGENT_OLD_BOOT, "boot token" },
		{ "random bytes of another one", FAKE_AGENT_SAME_RANDOM, "random" },
		{ "a clock that is off", FAKE_AGENT_CLOCK_OFF, "clock" },
	};
	static const struct branch_req two = { .count = 2, .timeout_s = -1 };
	struct ends e = { 0 };
	char drew[2][24];
	struct space *sp;
	struct sandbox *sb;

	world("lies");
	sp = up();
	REQUIRE(sp);
	fake.agent = FAKE_AGENT_OLD_BOOT; /* one start that draws what all others will say */
	create(sp, NULL, &e);
	CHECK_INT(e.ok, 1);
	memcpy(drew[0], e.id, sizeof(drew[0]));
	fake.agent = FAKE_AGENT_SAME_RANDOM;
	create(sp, NULL, &e);
	CHECK_INT(e.ok, 2);
	memcpy(drew[1], e.id, sizeof(drew[1]));
	fake.agent = FAKE_AGENT_GOOD;
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct grown g = { 0 };
		struct took t = { 0 };
		struct ends c = { 0 };

		test_row("%s", rows[i].what);
		/* The node is saved of an honest one. */
		checkpoint(sb, NULL, false, &t);
		fake.agent = rows[i].agent;
		create(sp, &(struct create_req){ .checkpoint = t.id, .timeout_s = -1, .idle_timeout_s = -1 }, &c);
		CHECK_INT(c.failed, 1);
		CHECK_INT(c.code, ERR_guest_failed);
		CHECK(strstr(c.msg, rows[i].msg));
		branch(sb, &two, &g); /* siblings: the first that says what another one has said */
		CHECK_INT(g.code, ERR_guest_failed);
		CHECK_STR(g.from, "");
		CHECK_INT(sb->state, SANDBOX_RUNNING);
		fake.agent = FAKE_AGENT_GOOD;
		branch(sb, &two, &g);
		CHECK_INT(g.made, 2);
		kill_it(sp, g.ids[0]);
		kill_it(sp, g.ids[1]);
	}
	test_row(NULL);
	CHECK_INT(fake_left(cfg.run_dir), 9);
	kill_it(sp, drew[0]);
	kill_it(sp, drew[1]);
	kill_it(sp, e.id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(a_sandbox_lies_in_its_node_and_wakes_from_it)
{
	struct ends e = { 0 }, s = { 0 }, w = { 0 }, w2 = { 0 };
	struct sandbox *sb;
	struct space *sp;
	char token[65], machine[33], boot[65];
	int64_t deadline;

	world("wake");
	sp = up();
	REQUIRE(sp);
	create(sp, &(struct create_req){ .name = "sleeper", .timeout_s = 100, .idle_timeout_s = 0 }, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	deadline = sb->deadline_ns;
	snprintf(token, sizeof(token), "%s", sandbox_token(sb));
	snprintf(machine, sizeof(machine), "%s", sb->core->who.machine_id);
	snprintf(boot, sizeof(boot), "%s", sb->core->who.boot_token);
	call(sandbox_suspend, sb, &s);
	CHECK_INT(s.ok, 1);
	CHECK_INT(sb->state, SANDBOX_SUSPENDED);
	CHECK_INT(sp->memory_reserved, 0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	nodes_left(1);
	sandbox_wake(sb, on_end, &w);
	sandbox_wake(sb, on_end, &w2); /* joins */
	spin(&w.ok, &w2.ok, 2, 5000);
	CHECK_INT(w.ok + w2.ok, 2);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK_STR(sandbox_token(sb), token);
	CHECK_STR(sb->core->who.machine_id, machine);
	CHECK(strcmp(sb->core->who.boot_token, boot)); /* it was started */
	CHECK(sb->deadline_ns > deadline);
	CHECK_INT(sp->memory_reserved, 512 * MIB);
	wait_ms(100);
	kill_it(sp, e.id);
	wait_ms(100);
	nodes_left(0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(a_wake_that_fails_leaves_it_suspended)
{
	static const struct {
		const char *what;
		atomic_int *fails;
		enum fake_agent agent;
	} rows[] = {
		{ "slot", &fake.slot_fails, 0 },	   { "disk", &fake.disk_full, 0 },   { "prepare", &fake.prepare_fails, 0 },
		{ "start", &fake.start_fails, 0 },	   { "cut", NULL, FAKE_AGENT_CUTS }, { "boot", NULL, FAKE_AGENT_NO_BOOT },
		{ "machine", NULL, FAKE_AGENT_OLD_MACHINE },
	};
	struct ends e = { 0 }, s = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("nowake");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	call(sandbox_suspend, sb, &s);
	CHECK_INT(s.ok, 1);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ends w = { 0 };

		test_row("%s", rows[i].what);
		fake.agent = rows[i].agent;
		if (rows[i].fails)
			*rows[i].fails = 1;
		call(sandbox_wake, sb, &w);
		fake.agent = FAKE_AGENT_GOOD;
		CHECK_INT(w.failed, 1);
		seen_as(sb, SANDBOX_SUSPENDED);
		CHECK_INT(fake_left(cfg.run_dir), 0);
		CHECK_INT(sp->memory_reserved, 0);
	}
	test_row(NULL);
	memset(&s, 0, sizeof(s));
	call(sandbox_wake, sb, &s);
	CHECK_INT(s.ok, 1);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	kill_it(sp, e.id);
	down(sp);
}

TEST(a_monitor_that_dies_while_it_wakes_leaves_it_suspended)
{
	struct ends e = { 0 }, s = { 0 }, w = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("diewake");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	call(sandbox_suspend, sb, &s);
	fake.agent = FAKE_AGENT_HANGS;
	sandbox_wake(sb, on_end, &w);
	for (int i = 0; i < 200 && !sb->core->watch; i++)
		wait_ms(5);
	wait_ms(50);
	kill(sandbox_monitor_pid(sb), SIGKILL);
	spin(&w.ok, &w.failed, 1, 5000);
	fake.agent = FAKE_AGENT_GOOD;
	CHECK_INT(w.failed, 1);
	CHECK_INT(w.code, ERR_guest_failed);
	seen_as(sb, SANDBOX_SUSPENDED);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	call(sandbox_wake, sb, &s);
	CHECK_INT(s.ok, 2);
	/* A kill goes first, also while it wakes. */
	call(sandbox_suspend, sb, &s);
	fake.agent = FAKE_AGENT_HANGS;
	memset(&w, 0, sizeof(w));
	sandbox_wake(sb, on_end, &w);
	for (int i = 0; i < 200 && !sb->core->watch; i++)
		wait_ms(5);
	kill_it(sp, e.id);
	fake.agent = FAKE_AGENT_GOOD;
	CHECK_INT(w.failed, 1);
	CHECK_INT(w.code, ERR_sandbox_gone);
	CHECK_INT(sb->state, SANDBOX_STOPPED);
	wait_ms(100);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	nodes_left(0);
	down(sp);
}

TEST(rollback_keeps_the_sandbox_and_replaces_the_machine)
{
	struct ends e = { 0 }, r = { 0 };
	struct took first = { 0 }, second = { 0 };
	struct sandbox *sb, *other;
	struct space *sp;
	char token[65];
	pid_t pid;

	world("rollback");
	sp = up();
	REQUIRE(sp);
	create(sp, &(struct create_req){ .name = "other", .timeout_s = -1 }, &e);
	other = get(sp, e.id);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb && other);
	checkpoint(sb, "one", false, &first);
	checkpoint(sb, "two", false, &second);
	pid = sandbox_monitor_pid(sb);
	snprintf(token, sizeof(token), "%s", sandbox_token(sb));
	roll(sb, "one", &r);
	CHECK_INT(r.ok, 1);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK_STR(sb->checkpoint, first.id);
	CHECK_STR(sandbox_token(sb), token);
	CHECK_INT(sb->instance, 1);
	CHECK(sandbox_monitor_pid(sb) != pid);
	CHECK_INT(sp->memory_reserved, 2 * 512 * MIB);
	CHECK_INT(fake_left(cfg.run_dir), 6);
	roll(sb, second.id, &r); /* forwards again */
	CHECK_INT(r.ok, 2);
	roll(sb, "naaaaaaaaaaaaaaaaaaaa", &r); /* not in the tree here: the template of the tests has no record */
	CHECK_INT(r.failed, 1);
	CHECK_INT(r.code, ERR_checkpoint_not_found);
	roll(other, first.id, &r);
	CHECK_INT(r.code, ERR_conflict);
	CHECK_INT(other->state, SANDBOX_RUNNING);
	call(sandbox_pause, sb, &r);
	roll(sb, first.id, &r);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	call(sandbox_suspend, sb, &r);
	roll(sb, "two", &r);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK_STR(sb->checkpoint, second.id);
	CHECK_INT(r.failed, 2);
	kill_it(sp, sb->id);
	kill_it(sp, other->id);
	wait_ms(100);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	nodes_left(2); /* checkpoints stay */
	down(sp);
}

TEST(a_rollback_that_fails_leaves_it_suspended_in_the_checkpoint)
{
	struct ends e = { 0 }, r = { 0 };
	struct took t = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("norollback");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	checkpoint(sb, "safe", false, &t);
	fake.agent = FAKE_AGENT_OLD_MACHINE;
	roll(sb, "safe", &r);
	fake.agent = FAKE_AGENT_GOOD;
	CHECK_INT(r.failed, 1);
	CHECK_INT(r.code, ERR_guest_failed);
	CHECK(strstr(r.msg, "suspended"));
	seen_as(sb, SANDBOX_SUSPENDED);
	CHECK_STR(sb->core->lies_in, t.id);
	CHECK_INT(sp->memory_reserved, 0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	call(sandbox_wake, sb, &r);
	CHECK_INT(r.ok, 1);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	kill_it(sp, e.id);
	down(sp);
}

TEST(after_a_failed_rollback_to_a_snapshot_it_boots)
{
	static const struct branch_req one = { .count = 1, .timeout_s = -1 };
	struct ends e = { 0 }, r = { 0 };
	struct grown g = { 0 };
	struct took t = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("noboot");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	checkpoint(sb, "disk", true, &t);
	fake.prepare_fails = 1;
	roll(sb, "disk", &r);
	CHECK_INT(r.failed, 1);
	seen_as(sb, SANDBOX_SUSPENDED);
	branch(sb, &one, &g);
	CHECK_INT(g.made, 1);
	CHECK_STR(get(sp, g.ids[0])->start, "boot");
	call(sandbox_wake, sb, &r);
	CHECK_INT(r.ok, 1);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK_STR(sb->start, "boot");
	kill_it(sp, e.id);
	kill_it(sp, g.ids[0]);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(create_from_a_checkpoint_and_from_a_snapshot)
{
	struct ends e = { 0 }, c = { 0 };
	struct took t = { 0 }, snap = { 0 };
	struct sandbox *sb, *a;
	struct space *sp;

	world("from");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	checkpoint(sb, "c", false, &t);
	checkpoint(sb, "s", true, &snap);
	create(sp, &(struct create_req){ .checkpoint = "c", .name = "again", .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.ok, 1);
	a = get(sp, c.id);
	REQUIRE(a);
	CHECK_STR(a->start, "restore");
	CHECK_STR(a->template, "base");
	CHECK_STR(json_string_value(json_object_get(a->core->guest_env, "B")), "template");
	CHECK_STR(json_string_value(json_object_get(a->core->guest_env, "E2B_SANDBOX_ID")), a->id);
	create(sp, &(struct create_req){ .snapshot = "s", .memory = 256 * MIB, .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.ok, 2);
	CHECK_STR(c.start, "boot");
	CHECK_INT(get(sp, c.id)->memory, 256 * MIB);
	create(sp, &(struct create_req){ .snapshot = "c", .timeout_s = -1, .idle_timeout_s = -1 }, &c); /* a checkpoint's disk will do */
	CHECK_INT(c.ok, 3);
	CHECK_INT(get(sp, c.id)->memory, 512 * MIB);
	create(sp, &(struct create_req){ .checkpoint = "s", .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.code, ERR_bad_request);
	create(sp, &(struct create_req){ .checkpoint = "c", .memory = 256 * MIB, .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.code, ERR_bad_request);
	CHECK(strstr(c.msg, "512 MiB"));
	create(sp, &(struct create_req){ .checkpoint = "c", .vcpu = 2, .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.code, ERR_bad_request);
	{
		struct tree_node *n = tree_find(sp, t.id);

		snprintf(n->k.driver_version, sizeof(n->k.driver_version), "fake 0");
		create(sp, &(struct create_req){ .checkpoint = "c", .timeout_s = -1, .idle_timeout_s = -1 }, &c);
		CHECK_INT(c.code, ERR_checkpoint_mismatch);
		create(sp, &(struct create_req){ .snapshot = "c", .timeout_s = -1, .idle_timeout_s = -1 }, &c); /* the way out */
		CHECK_INT(c.ok, 4);
	}
	/* An agent of another version in its memory: only the node itself says so. */
	checkpoint(sb, "old agent", false, &t);
	{
		struct fail why = { 0 };
		autoclose int dir = node_open(sp->pool, t.id, &why);
		struct node n;

		CHECK_INT(node_read(sp->pool, t.id, &n, &why), 0);
		n.agent_protocol = AGENT_PROTOCOL - 1;
		CHECK_INT(file_write_atomic(dir, "node", &n, sizeof(n), 0600), 0);
	}
	create(sp, &(struct create_req){ .checkpoint = "old agent", .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.code, ERR_checkpoint_mismatch);
	roll(sb, "old agent", &c); /* told before anything is given up */
	CHECK_INT(c.code, ERR_checkpoint_mismatch);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	create(sp, &(struct create_req){ .snapshot = "old agent", .timeout_s = -1, .idle_timeout_s = -1 }, &c);
	CHECK_INT(c.ok, 5);
	link_each_safe(l, next, &sp->sandboxes)
		kill_it(sp, container_of(l, struct sandbox_core, link)->sb.id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	CHECK_INT(sp->memory_reserved, 0);
	down(sp);
}

static bool waking(struct sandbox *sb)
{
	return sb->core->watch != NULL;
}

static bool destroying(struct sandbox *sb)
{
	return sb->core->state == SANDBOX_SUSPENDING && !sb->core->m;
}

TEST(a_kill_goes_first_in_every_step_of_a_rollback)
{
	static bool (*const steps[])(struct sandbox *sb) = { NULL, destroying, waking };
	struct space *sp;

	world("killroll");
	sp = up();
	REQUIRE(sp);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct ends e = { 0 }, r = { 0 };
		struct took t = { 0 };
		struct sandbox *sb;

		test_row("step %zu", i);
		create(sp, NULL, &e);
		sb = get(sp, e.id);
		REQUIRE(sb);
		checkpoint(sb, NULL, false, &t);
		fake.agent = FAKE_AGENT_HANGS;
		sandbox_rollback(sb, t.id, on_end, &r);
		for (int k = 0; k < 2000 && steps[i] && !r.failed && (!steps[i](sb) || (steps[i] == waking && sb->core->state != SANDBOX_WAKING)); k++)
			wait_ms(1);
		kill_it(sp, e.id);
		fake.agent = FAKE_AGENT_GOOD;
		spin(&r.ok, &r.failed, 1, 5000);
		CHECK_INT(r.failed, 1);
		CHECK_INT(r.code, ERR_sandbox_gone);
		CHECK_INT(sb->state, SANDBOX_STOPPED);
		CHECK_INT(fake_left(cfg.run_dir), 0);
		CHECK_INT(sp->memory_reserved, 0);
	}
	test_row(NULL);
	down(sp);
}

/* --- restarts --- */

static void one_suspended_one_waking(struct space *sp)
{
	struct ends e = { 0 };

	create(sp, &(struct create_req){ .name = "lies", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	call(sandbox_suspend, get(sp, "lies"), &e);
	create(sp, &(struct create_req){ .name = "wakes", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	call(sandbox_suspend, get(sp, "wakes"), &e);
	fake.agent = FAKE_AGENT_HANGS;
	sandbox_wake(get(sp, "wakes"), on_end, &e);
	for (int i = 0; i < 400 && !get(sp, "wakes")->core->watch; i++)
		wait_ms(5);
	wait_ms(100); /* a machine that runs, and a record that says waking */
}

TEST(a_restart_keeps_what_is_suspended_and_undoes_a_wake)
{
	struct ends w = { 0 };
	struct space *sp;

	world("rsuspended");
	before(one_suspended_one_waking);
	CHECK_INT(fake_left(cfg.run_dir), 3);
	sp = up();
	REQUIRE(sp);
	seen_as(get(sp, "lies"), SANDBOX_SUSPENDED);
	CHECK_INT(get(sp, "wakes")->state, SANDBOX_SUSPENDED);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	nodes_left(2);
	CHECK_INT(sp->memory_reserved, 0);
	call(sandbox_wake, get(sp, "wakes"), &w);
	call(sandbox_wake, get(sp, "lies"), &w);
	CHECK_INT(w.ok, 2);
	kill_it(sp, "lies");
	kill_it(sp, "wakes");
	wait_ms(100);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	nodes_left(0);
	down(sp);
}

static void one_rolling_back(struct space *sp)
{
	struct ends e = { 0 };
	struct took t = { 0 };

	create(sp, &(struct create_req){ .name = "rolls", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	checkpoint(get(sp, "rolls"), "there", false, &t);
	fake.agent = FAKE_AGENT_HANGS;
	sandbox_rollback(get(sp, "rolls"), "there", on_end, &e);
	for (int i = 0; i < 400 && get(sp, "rolls")->state != SANDBOX_WAKING; i++)
		wait_ms(5);
	for (int i = 0; i < 400 && !get(sp, "rolls")->core->watch; i++)
		wait_ms(5);
	wait_ms(50);
}

static void one_that_only_begins_to(struct space *sp)
{
	struct sandbox_core *c;
	struct ends e = { 0 };
	struct took t = { 0 };

	create(sp, &(struct create_req){ .name = "rolls", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	checkpoint(get(sp, "rolls"), "there", false, &t);
	/* The record, and nothing else yet. */
	c = get(sp, "rolls")->core;
	snprintf(c->lies_in, sizeof(c->lies_in), "%s", t.id);
	core_move(c, SANDBOX_SUSPENDING, "rollback", NULL, NULL);
	wait_ms(100);
}

TEST(a_restart_during_a_rollback_finds_it_in_the_checkpoint)
{
	static const struct {
		const char *name;
		void (*work)(struct space *sp);
	} rows[] = { { "rrolling", one_rolling_back }, { "rbegins", one_that_only_begins_to } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ends w = { 0 };
		struct space *sp;
		struct sandbox *sb;

		test_row("%s", rows[i].name);
		world(rows[i].name);
		before(rows[i].work);
		sp = up();
		REQUIRE(sp);
		wait_ms(100);
		sb = get(sp, "rolls");
		REQUIRE(sb);
		CHECK_INT(sb->state, SANDBOX_SUSPENDED);
		CHECK_STR(sb->checkpoint, sb->core->lies_in);
		CHECK_INT(fake_left(cfg.run_dir), 0);
		call(sandbox_wake, sb, &w);
		CHECK_INT(w.ok, 1);
		kill_it(sp, "rolls");
		down(sp);
	}
	test_row(NULL);
}

static void suspending(struct space *sp, bool paused)
{
	struct ends e = { 0 };

	create(sp, &(struct create_req){ .name = "half", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	if (paused)
		call(sandbox_pause, get(sp, "half"), &e);
	fake.save_delay_ms = 10000;
	sandbox_suspend(get(sp, "half"), on_end, &e);
	wait_ms(300);
}

static void suspending_running(struct space *sp)
{
	suspending(sp, false);
}

static void suspending_paused(struct space *sp)
{
	suspending(sp, true);
}

TEST(a_restart_undoes_a_suspension_that_was_not_written)
{
	struct space *sp;

	world("rhalf");
	before(suspending_running);
	sp = up();
	REQUIRE(sp);
	seen_as(get(sp, "half"), SANDBOX_RUNNING);
	nodes_left(0);
	kill_it(sp, "half");
	down(sp);

	world("rhalfpaused");
	before(suspending_paused);
	sp = up();
	REQUIRE(sp);
	seen_as(get(sp, "half"), SANDBOX_PAUSED);
	kill_it(sp, "half");
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}
