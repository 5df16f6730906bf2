/* The core on a driver, slots, a pool and an agent of the test's own (sandbox_fake.c): who gets in, what is undone, what a restart finds. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/proc.h"
#include "sandbox/core.h"
#include "sandbox_fake.h"
#include "sandbox_world.h"
#include "test.h"

TEST(states_go_one_way)
{
	static const struct {
		enum sandbox_state from, to;
		bool may;
	} rows[] = {
		{ SANDBOX_CREATING, SANDBOX_RUNNING, true },  { SANDBOX_CREATING, SANDBOX_PAUSED, false },
		{ SANDBOX_RUNNING, SANDBOX_PAUSING, true },   { SANDBOX_RUNNING, SANDBOX_PAUSED, false },
		{ SANDBOX_RUNNING, SANDBOX_STOPPING, true },  { SANDBOX_PAUSED, SANDBOX_WAKING, true },
		{ SANDBOX_PAUSED, SANDBOX_RUNNING, false },   { SANDBOX_STOPPING, SANDBOX_STOPPED, true },
		{ SANDBOX_STOPPING, SANDBOX_RUNNING, false }, { SANDBOX_STOPPED, SANDBOX_RUNNING, false },
		{ SANDBOX_FAILED, SANDBOX_RUNNING, false },   { SANDBOX_STOPPED, SANDBOX_FAILED, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s to %s", sandbox_state_name(rows[i].from), sandbox_state_name(rows[i].to));
		CHECK_INT(state_may(rows[i].from, rows[i].to), rows[i].may);
	}
	test_row(NULL);
	for (int s = 0; s < SANDBOX_STATES; s++) {
		CHECK(!state_may(SANDBOX_STOPPED, s));
		CHECK(!state_may(SANDBOX_FAILED, s));
		CHECK(state_ended(s) || state_may(s, SANDBOX_FAILED));
	}
}

TEST(create_and_kill_leave_nothing)
{
	struct space *sp;
	struct ends e = { 0 };
	struct sandbox *sb;
	struct fail why = { 0 };

	world("plain");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	CHECK_INT(e.ok, 1);
	sb = get(sp, e.id);
	REQUIRE(sb);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK_STR(sb->start, "restore");
	CHECK(sb->nphases >= 5);
	CHECK(sb->deadline_ns > real_ns() + 290 * NS_PER_S);
	CHECK(fake.last_generation > 5);
	CHECK(sandbox_agent(sb, &why));
	CHECK(strlen(sandbox_token(sb)) == 64);
	CHECK_INT(sp->memory_reserved, 512 * MIB);
	CHECK_INT(fake_left(cfg.run_dir), 3);
	kill_it(sp, e.id);
	CHECK_INT(sb->state, SANDBOX_STOPPED);
	CHECK_STR(sb->reason, "killed");
	CHECK_INT(sp->memory_reserved, 0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	CHECK(!sandbox_agent(sb, &why));
	CHECK_INT(why.code, ERR_sandbox_gone);
	kill_it(sp, e.id); /* a second kill: the same answer */
	down(sp);
}

TEST(admission_lets_in_as_many_as_there_is_memory_for)
{
	struct space *sp;
	struct ends e = { 0 };
	static const struct create_req q = { .timeout_s = -1, .idle_timeout_s = -1 };
	struct space_counts n;

	world("admission");
	fake.start_delay_ms = 5;
	sp = up();
	REQUIRE(sp);
	for (int i = 0; i < 200; i++)
		sandbox_create(sp, TENANT_DEFAULT, &q, on_end, &e);
	spin(&e.ok, &e.failed, 200, 30000);
	CHECK_INT(e.ok, 20);
	CHECK_INT(e.failed, 180);
	CHECK_INT(e.code, ERR_no_capacity);
	space_count(sp, &n);
	CHECK_INT(n.sandboxes[SANDBOX_RUNNING], 20);
	CHECK_INT(n.sandboxes[SANDBOX_CREATING] + n.sandboxes[SANDBOX_FAILED], 0);
	CHECK_INT(n.memory_reserved, n.memory_limit);
	CHECK_INT(fake.prepares, 20);
	CHECK_INT(fake_left(cfg.run_dir), 60);
	link_each_safe(l, next, &sp->sandboxes)
		kill_it(sp, container_of(l, struct sandbox_core, link)->sb.id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	CHECK_INT(sp->memory_reserved, 0);
	down(sp);
}

TEST(what_fails_on_the_way_is_undone)
{
	static const struct {
		const char *what;
		atomic_int *fails;
		enum fake_agent agent;
		enum errcode code;
		const char *msg;
	} rows[] = {
		{ "slot", &fake.slot_fails, 0, ERR_host_unsuitable, "no namespace" },
		{ "disk", &fake.disk_full, 0, ERR_no_space, "full" },
		{ "prepare", &fake.prepare_fails, 0, ERR_host_unsuitable, "does not start" },
		{ "start", &fake.start_fails, 0, ERR_guest_failed, "does not start" },
		{ "agent cuts", NULL, FAKE_AGENT_CUTS, ERR_agent_unreachable, "does not answer" },
		{ "wrong id", NULL, FAKE_AGENT_WRONG_ID, ERR_guest_failed, "identity" },
		{ "clock", NULL, FAKE_AGENT_CLOCK_OFF, ERR_guest_failed, "clock" },
		{ "machine id", NULL, FAKE_AGENT_OLD_MACHINE, ERR_guest_failed, "identity" },
		{ "generation", NULL, FAKE_AGENT_OLD_GENERATION, ERR_guest_failed, "identity" },
		{ "no boot token", NULL, FAKE_AGENT_NO_BOOT, ERR_guest_failed, "boot token" },
		{ "12 random bytes", NULL, FAKE_AGENT_SHORT_RANDOM, ERR_guest_failed, "entropy" },
	};
	struct space *sp;

	world("undone");
	sp = up();
	REQUIRE(sp);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ends e = { 0 };
		struct sandbox_core *c;

		test_row("%s", rows[i].what);
		fake.agent = rows[i].agent;
		if (rows[i].fails)
			*rows[i].fails = 1;
		create(sp, NULL, &e);
		fake.agent = FAKE_AGENT_GOOD;
		CHECK_INT(e.failed, 1);
		CHECK_INT(e.code, rows[i].code);
		CHECK(strstr(e.msg, rows[i].msg));
		CHECK_INT(fake_left(cfg.run_dir), 0);
		CHECK_INT(sp->memory_reserved, 0);
		c = container_of(sp->sandboxes.prev, struct sandbox_core, link);
		CHECK_INT(c->sb.state, SANDBOX_FAILED);
		CHECK(c->sb.reason[0]);
	}
	test_row(NULL);
	down(sp);
}

TEST(no_two_guests_draw_the_same_random_numbers)
{
	struct ends e = { 0 };
	struct space *sp;

	world("random");
	sp = up();
	REQUIRE(sp);
	fake.agent = FAKE_AGENT_SAME_RANDOM;
	create(sp, NULL, &e);
	CHECK_INT(e.ok, 1);
	create(sp, NULL, &e);
	CHECK_INT(e.failed, 1);
	CHECK(strstr(e.msg, "random"));
	kill_it(sp, e.id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(bad_requests_are_refused_before_anything_is_made)
{
	autojson json_t *bad_env = json_pack("{s:i}", "A", 1), *bad_tmpfs = json_pack("{s:i}", "relative", 4096);
	const struct {
		struct create_req q;
		enum errcode code;
	} rows[] = {
		{ { .template = "nothing" }, ERR_template_not_found },
		{ { .name = "Not A Name" }, ERR_bad_request },
		{ { .memory = 3 * MIB }, ERR_bad_request },
		{ { .vcpu = 99 }, ERR_bad_request },
		{ { .disk = 4096 }, ERR_bad_request },
		{ { .env = bad_env }, ERR_bad_request },
		{ { .tmpfs = bad_tmpfs }, ERR_bad_request },
		{ { .timeout_s = 400LL * 86400 }, ERR_bad_request },
		{ { .checkpoint = "nzzzzzzzzzzzzzzzzzzzz" }, ERR_checkpoint_not_found },
		{ { .checkpoint = "nzzzzzzzzzzzzzzzzzzzz", .snapshot = "nzzzzzzzzzzzzzzzzzzzz" }, ERR_bad_request },
	};
	struct space *sp;

	world("bad");
	sp = up();
	REQUIRE(sp);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct ends e = { 0 };

		test_row("row %zu", i);
		create(sp, &rows[i].q, &e);
		CHECK_INT(e.failed, 1);
		CHECK_INT(e.code, rows[i].code);
	}
	test_row(NULL);
	CHECK(link_empty(&sp->sandboxes));
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(the_same_idempotency_key_gives_the_same_sandbox)
{
	struct create_req q = { .timeout_s = -1, .idle_timeout_s = -1, .idempotency_key = "once" };
	struct ends a = { 0 }, b = { 0 }, c = { 0 };
	struct space *sp;

	world("idem");
	fake.start_delay_ms = 30;
	sp = up();
	REQUIRE(sp);
	sandbox_create(sp, TENANT_DEFAULT, &q, on_end, &a);
	sandbox_create(sp, TENANT_DEFAULT, &q, on_end, &b); /* while the first is under way */
	spin(&a.ok, &b.ok, 2, 5000);
	CHECK_STR(a.id, b.id);
	create(sp, &q, &c);
	CHECK_STR(a.id, c.id);
	CHECK_INT(fake.prepares, 1);
	q.name = "other";
	create(sp, &q, &c);
	CHECK_INT(c.code, ERR_conflict);
	kill_it(sp, a.id);
	down(sp);
}

TEST(a_monitor_that_dies_takes_its_sandbox_and_no_more)
{
	struct ends a = { 0 }, b = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("dies");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &a);
	create(sp, NULL, &b);
	sb = get(sp, a.id);
	REQUIRE(sb);
	kill(sandbox_monitor_pid(sb), SIGKILL);
	for (int i = 0; i < 100 && sb->state != SANDBOX_FAILED; i++)
		wait_ms(20);
	CHECK_INT(sb->state, SANDBOX_FAILED);
	CHECK_STR(sb->reason, "monitor_crash");
	CHECK_INT(get(sp, b.id)->state, SANDBOX_RUNNING);
	CHECK_INT(fake_left(cfg.run_dir), 3);
	kill_it(sp, b.id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(a_kill_overtakes_a_create)
{
	static const struct create_req q = { .timeout_s = -1, .idle_timeout_s = -1 };
	struct ends made = { 0 }, killed = { 0 };
	struct sandbox_core *c;
	struct space *sp;

	world("overtakes");
	fake.start_delay_ms = 100;
	sp = up();
	REQUIRE(sp);
	sandbox_create(sp, TENANT_DEFAULT, &q, on_end, &made);
	c = container_of(sp->sandboxes.prev, struct sandbox_core, link);
	sandbox_kill(&c->sb, "killed", on_end, &killed);
	spin(&made.failed, &killed.ok, 2, 5000);
	CHECK_INT(made.failed, 1);
	CHECK_INT(made.code, ERR_sandbox_gone);
	CHECK_INT(killed.ok, 1);
	CHECK_INT(c->sb.state, SANDBOX_STOPPED);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	CHECK_INT(sp->memory_reserved, 0);
	down(sp);
}

TEST(pause_and_wake)
{
	struct ends e = { 0 }, p = { 0 };
	struct fail why = { 0 };
	long long generation;
	struct sandbox *sb;
	struct space *sp;

	world("pause");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	generation = fake.last_generation;
	sandbox_pause(sb, on_end, &p);
	spin(&p.ok, &p.failed, 1, 5000);
	CHECK_INT(sb->state, SANDBOX_PAUSED);
	CHECK(!sandbox_agent(sb, &why));
	CHECK_INT(why.code, ERR_sandbox_not_running);
	sandbox_pause(sb, on_end, &p); /* again: the same */
	spin(&p.ok, &p.failed, 2, 5000);
	CHECK_INT(p.ok, 2);
	CHECK_INT(fake.pauses, 1);
	sandbox_wake(sb, on_end, &p);
	sandbox_wake(sb, on_end, &p); /* while the first is under way */
	spin(&p.ok, &p.failed, 4, 5000);
	CHECK_INT(p.ok, 4);
	CHECK_INT(fake.resumes, 1);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK(fake.last_generation > generation);
	kill_it(sp, e.id);
	down(sp);
}

TEST(deadlines_and_idleness_end_a_sandbox)
{
	struct create_req q = { .timeout_s = 1, .idle_timeout_s = 0 };
	struct ends a = { 0 }, b = { 0 }, c = { 0 };
	struct space *sp;

	world("deadline");
	sp = up();
	REQUIRE(sp);
	create(sp, &q, &a);
	q.timeout_s = 0;
	q.idle_timeout_s = 1;
	create(sp, &q, &b);
	create(sp, &q, &c);
	sandbox_hold(get(sp, c.id)); /* somebody uses this one */
	fake.processes = 1;	     /* and in both something runs */
	wait_ms(1500);
	CHECK_INT(get(sp, a.id)->state, SANDBOX_STOPPED);
	CHECK_STR(get(sp, a.id)->reason, "deadline");
	CHECK_INT(get(sp, b.id)->state, SANDBOX_RUNNING);
	fake.processes = 0; /* only the template's start command is left */
	wait_ms(1700);
	CHECK_INT(get(sp, b.id)->state, SANDBOX_STOPPED);
	CHECK_STR(get(sp, b.id)->reason, "idle");
	CHECK_INT(get(sp, c.id)->state, SANDBOX_RUNNING);
	sandbox_release(get(sp, c.id));
	wait_ms(2300);
	CHECK_STR(get(sp, c.id)->reason, "idle");
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(a_ready_monitor_is_claimed_and_replaced)
{
	struct ends e = { 0 };
	struct space *sp;

	world("ready");
	cfg.ready_monitors = 2;
	sp = up();
	REQUIRE(sp);
	ready_refill(sp);
	for (int i = 0; i < 100 && ready_count(sp) < 2; i++)
		wait_ms(10);
	CHECK_INT(ready_count(sp), 2);
	CHECK_INT(sp->memory_reserved, 0);
	create(sp, NULL, &e);
	CHECK_INT(e.ok, 1);
	CHECK_STR(e.start, "pool");
	for (int i = 0; i < 100 && ready_count(sp) < 2; i++)
		wait_ms(10);
	CHECK_INT(ready_count(sp), 2);
	CHECK_INT(fake.prepares, 3);
	kill_it(sp, e.id);
	down(sp); /* takes the ready ones along */
	CHECK_INT(fake_left(cfg.run_dir), 0);
}

/* --- restarts --- */

static void two_running_one_paused(struct space *sp)
{
	struct ends e = { 0 };
	int starts;

	create(sp, &(struct create_req){ .name = "one", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	create(sp, &(struct create_req){ .name = "two", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	create(sp, &(struct create_req){ .name = "three", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	sandbox_pause(get(sp, e.id), on_end, &e);
	spin(&e.ok, &e.failed, 4, 5000);
	fake.start_delay_ms = 10000;
	starts = fake.starts;
	sandbox_create(sp, TENANT_DEFAULT, &(struct create_req){ .name = "half", .timeout_s = 0 }, on_end, &e);
	for (int i = 0; i < 1000 && fake.starts == starts; i++)
		wait_ms(10);
	wait_ms(60); /* its record is on disk, its monitor is there, and it is not running */
}

TEST(a_restart_adopts_what_lives_and_undoes_what_was_half_made)
{
	struct sandbox *one, *two, *three, *half;
	struct space *sp;
	struct fail why = { 0 };

	world("restart");
	fake.start_delay_ms = 0;
	before(two_running_one_paused);
	CHECK_INT(fake_left(cfg.run_dir), 12);
	sp = up();
	REQUIRE(sp);
	wait_ms(300);
	one = get(sp, "one");
	two = get(sp, "two");
	three = get(sp, "three");
	half = get(sp, "half");
	REQUIRE(one && two && three && half);
	CHECK_INT(one->state, SANDBOX_RUNNING);
	CHECK_INT(two->state, SANDBOX_RUNNING);
	CHECK_INT(three->state, SANDBOX_PAUSED);
	CHECK_INT(half->state, SANDBOX_FAILED);
	CHECK_STR(half->reason, "host_restart");
	CHECK(sandbox_agent(one, &why));
	CHECK_INT(fake.inits, 2); /* the running ones were told their generation */
	CHECK_INT(fake.kills, 1);
	CHECK_INT(fake_left(cfg.run_dir), 9);
	CHECK_INT(sp->memory_reserved, 3 * 512 * MIB);
	kill_it(sp, one->id);
	kill_it(sp, two->id);
	kill_it(sp, three->id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

static void one_running_one_dead(struct space *sp)
{
	struct ends e = { 0 };
	struct sandbox *sb;

	create(sp, &(struct create_req){ .name = "dead", .timeout_s = 0, .idle_timeout_s = 0 }, &e);
	sb = get(sp, "dead");
	watch_stop(core_of(sb)); /* so that this daemon does not notice */
	kill(sandbox_monitor_pid(sb), SIGKILL);
}

TEST(a_restart_says_of_a_dead_monitor_that_it_crashed)
{
	struct sandbox *sb;
	struct space *sp;

	world("dead");
	before(one_running_one_dead);
	/* What belongs to nobody. */
	{
		char path[320];

		snprintf(path, sizeof(path), "%s/pool/sandboxes/ibbbbbbbbbbbbbbbbbbbb", fake.dir);
		CHECK_INT(mkdir_p(path, 0700), 0);
		snprintf(path, sizeof(path), "%s/sandboxes/icccccccccccccccccccc", cfg.run_dir);
		CHECK_INT(mkdir_p(path, 0700), 0);
	}
	sp = up();
	REQUIRE(sp);
	wait_ms(200);
	sb = get(sp, "dead");
	REQUIRE(sb);
	CHECK_INT(sb->state, SANDBOX_FAILED);
	CHECK_STR(sb->reason, "monitor_crash");
	CHECK_INT(fake_left(cfg.run_dir), 0);
	CHECK_INT(sp->memory_reserved, 0);
	down(sp);
}

TEST(a_clean_stop_leaves_sandboxes_running)
{
	struct ends e = { 0 };
	struct space *sp;

	world("stop");
	sp = up();
	REQUIRE(sp);
	create(sp, NULL, &e);
	down(sp);
	CHECK_INT(fake.kills, 0);
	CHECK_INT(fake_left(cfg.run_dir), 3);
	sp = up();
	REQUIRE(sp);
	CHECK_INT(get(sp, e.id)->state, SANDBOX_RUNNING);
	kill_it(sp, e.id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

/* --- events, operations, keys --- */

struct seen {
	uint64_t last;
	int n;
	char types[256];
};

static void on_event(const struct event *e, void *arg)
{
	struct seen *s = arg;

	CHECK(e->seq > s->last);
	s->last = e->seq;
	s->n++;
	snprintf(s->types + strlen(s->types), sizeof(s->types) - strlen(s->types), "%s ", e->type);
}

TEST(each_event_comes_once_and_in_order)
{
	struct seen all = { 0 }, later = { 0 };
	struct event_sub *a, *b;
	struct ends e = { 0 };
	struct space *sp;

	world("events");
	sp = up();
	REQUIRE(sp);
	a = event_subscribe(sp, TENANT_DEFAULT, NULL, 0, on_event, &all);
	create(sp, NULL, &e);
	wait_ms(20);
	CHECK_STR(all.types, "creating running ");
	b = event_subscribe(sp, NULL, e.id, all.last - 1, on_event, &later);
	kill_it(sp, e.id);
	wait_ms(20);
	CHECK_STR(all.types, "creating running stopping stopped ");
	CHECK_STR(later.types, "running stopping stopped ");
	CHECK_INT(all.last, later.last);
	event_unsubscribe(a);
	event_unsubscribe(b);
	down(sp);
}

static void on_operation(struct operation *op, void *arg)
{
	(*(int *)arg)++;
}

TEST(operations_are_followed_and_outlive_a_restart)
{
	struct operation *op;
	struct operation_sub *sub;
	struct space *sp;
	char id[24], open_id[24];
	int told = 0;

	world("operations");
	sp = up();
	REQUIRE(sp);
	op = operation_new(sp, TENANT_DEFAULT, "create", "x");
	REQUIRE(op);
	snprintf(id, sizeof(id), "%s", op->id);
	sub = operation_subscribe(op, on_operation, &told);
	operation_step(op, "halfway", 0.5);
	operation_end(op, json_pack("{s:i}", "a", 1), NULL);
	operation_end(op, NULL, NULL); /* once is enough */
	CHECK_INT(told, 2);
	operation_unsubscribe(sub);
	snprintf(open_id, sizeof(open_id), "%s", operation_new(sp, TENANT_DEFAULT, "create", "y")->id);
	down(sp);
	sp = up();
	REQUIRE(sp);
	op = operation_find(sp, TENANT_DEFAULT, str_of(id));
	REQUIRE(op);
	CHECK_INT(op->state, OPERATION_DONE);
	CHECK_INT(json_integer_value(json_object_get(op->result, "a")), 1);
	op = operation_find(sp, TENANT_DEFAULT, str_of(open_id));
	REQUIRE(op);
	CHECK_INT(op->state, OPERATION_FAILED);
	CHECK(strstr(op->fail.msg, "restarted"));
	CHECK(!operation_find(sp, "other", str_of(id)));
	down(sp);
}

struct made {
	char id[24];
	int n;
};

static void on_key(const struct key_info *k, const struct fail *why, void *arg)
{
	struct made *m = arg;

	m->n++;
	if (k)
		snprintf(m->id, sizeof(m->id), "%s", k->id);
}

static void on_key_gone(const struct fail *why, void *arg)
{
	((struct made *)arg)->n++;
}

TEST(keys_open_until_they_are_deleted)
{
	struct made m = { 0 };
	char text[64], as_e2b[64];
	const struct key_info *k;
	struct space *sp;

	world("keys");
	sp = up();
	REQUIRE(sp);
	CHECK(!key_any(sp));
	key_create(sp, TENANT_DEFAULT, "mine", SCOPE_USE, text, on_key, &m);
	CHECK(!key_check(sp, str_of(text))); /* not before it is on disk */
	spin(&m.n, NULL, 1, 5000);
	k = key_check(sp, str_of(text));
	REQUIRE(k);
	CHECK_STR(k->name, "mine");
	CHECK_INT(k->scope, SCOPE_USE);
	snprintf(as_e2b, sizeof(as_e2b), "e2b_%s", text + 6);
	CHECK(key_check(sp, str_of(as_e2b)));
	text[10] ^= 1;
	CHECK(!key_check(sp, str_of(text)));
	text[10] ^= 1;
	CHECK(!key_check(sp, STR("space_")));
	CHECK(!key_check(sp, STR("")));
	down(sp);
	sp = up();
	REQUIRE(sp);
	CHECK(key_check(sp, str_of(text)));
	key_delete(sp, m.id, on_key_gone, &m);
	CHECK(!key_check(sp, str_of(text)));
	spin(&m.n, NULL, 2, 5000);
	CHECK(!key_any(sp));
	down(sp);
}
