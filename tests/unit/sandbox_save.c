/* What is saved of a sandbox, on the fakes of sandbox_fake.c: checkpoints, snapshots, suspension; the tree of them, its upkeep, and what a restart makes of
 * each that was under way. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "sandbox_fake.h"
#include "sandbox_world.h"
#include "test.h"

struct took {
	int n;
	struct checkpoint k;
	enum errcode code;
	char msg[240];
};

static void on_taken(const struct checkpoint *k, const struct fail *why, void *arg)
{
	struct took *t = arg;

	t->n++;
	t->code = why->err ? why->code : ERR_NONE;
	snprintf(t->msg, sizeof(t->msg), "%s", why->err ? why->msg : "");
	t->k = k ? *k : (struct checkpoint){ 0 };
}

static enum errcode take(struct sandbox *sb, const struct checkpoint_req *q, struct took *t)
{
	int want = t->n + 1;

	sandbox_checkpoint(sb, q, on_taken, t);
	spin(&t->n, NULL, want, 15000);
	CHECK_INT(t->n, want);
	return t->code;
}

static void call(void (*fn)(struct sandbox *sb, sandbox_done_fn *done, void *arg), struct sandbox *sb, struct ends *e)
{
	int want = e->ok + e->failed + 1;

	fn(sb, on_end, e);
	spin(&e->ok, &e->failed, want, 15000);
}

static struct sandbox *one(struct space *sp)
{
	struct ends e = { 0 };

	create(sp, NULL, &e);
	CHECK_INT(e.ok, 1);
	return get(sp, e.id);
}

static int count_one(const struct event *e, const char *type)
{
	return !strcmp(e->type, type);
}

static void count_checkpoints(const struct event *e, void *arg)
{
	*(int *)arg += count_one(e, "checkpoint") + 100 * count_one(e, "snapshot");
}

static const struct checkpoint *find(struct space *sp, const char *what, struct fail *why)
{
	*why = (struct fail){ 0 };
	return checkpoint_find(sp, TENANT_DEFAULT, str_of(what), why);
}

TEST(each_checkpoint_is_the_parent_of_the_next)
{
	struct took a = { 0 }, b = { 0 }, s = { 0 };
	int events = 0, inits;
	struct sandbox *sb;
	struct space *sp;
	struct fail why;

	world("line");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	inits = fake.inits;
	CHECK_INT(take(sb, &(struct checkpoint_req){ .label = "first" }, &a), ERR_NONE);
	CHECK_INT(a.k.kind, NODE_CHECKPOINT);
	CHECK_STR(a.k.parent, sb->node);
	CHECK_STR(a.k.sandbox, sb->id);
	CHECK_STR(a.k.template, "base");
	CHECK(a.k.memory == 512 * MIB && a.k.paused_ms > 0);
	CHECK_STR(sb->checkpoint, a.k.id);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK(fake.inits > inits); /* thawed */
	CHECK_INT(take(sb, &(struct checkpoint_req){ .disk_only = true }, &s), ERR_NONE);
	CHECK_INT(s.k.kind, NODE_SNAPSHOT);
	CHECK(s.k.memory == 0 && s.k.disk == sb->disk);
	CHECK_STR(s.k.parent, a.k.id);
	CHECK_STR(sb->checkpoint, a.k.id); /* no memory to go on from */
	CHECK_INT(take(sb, &(struct checkpoint_req){ .label = "first" }, &b), ERR_NONE);
	CHECK_STR(b.k.parent, a.k.id);
	CHECK_INT(fake_nodes(), 3);
	CHECK(!find(sp, "first", &why)); /* two have it */
	CHECK_INT(why.code, ERR_checkpoint_not_found);
	CHECK(find(sp, a.k.id, &why) && find(sp, a.k.id, &why)->children == 2);
	CHECK(!checkpoint_find(sp, "other", str_of(a.k.id), &why));
	CHECK_INT(event_list(sp, NULL, sb->id, 0, 100, count_checkpoints, &events, &why), 0);
	CHECK_INT(events, 102);
	kill_it(sp, sb->id);
	wait_ms(50);
	CHECK_INT(fake_nodes(), 3); /* they were asked for */
	down(sp);
	sp = up();
	REQUIRE(sp);
	CHECK(find(sp, s.k.id, &why) != NULL);
	REQUIRE(find(sp, b.k.id, &why));
	CHECK_STR(find(sp, b.k.id, &why)->parent, a.k.id);
	CHECK_STR(find(sp, b.k.id, &why)->label, "first");
	CHECK(find(sp, b.k.id, &why)->created_ns == b.k.created_ns && find(sp, b.k.id, &why)->own_bytes == b.k.own_bytes);
	down(sp);
}

TEST(the_same_key_gives_the_same_checkpoint)
{
	struct checkpoint_req q = { .label = "x", .idempotency_key = "once" };
	struct took a = { 0 }, b = { 0 }, c = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("key");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	fake.save_delay_ms = 100;
	sandbox_checkpoint(sb, &q, on_taken, &a);
	sandbox_checkpoint(sb, &q, on_taken, &b);				   /* while it is under way */
	sandbox_checkpoint(sb, &(struct checkpoint_req){ .label = "y" }, on_taken, &c); /* another one */
	CHECK_INT(c.code, ERR_busy);
	spin(&a.n, &b.n, 2, 5000);
	fake.save_delay_ms = 0;
	CHECK(a.k.id[0]);
	CHECK_STR(b.k.id, a.k.id);
	CHECK_INT(take(sb, &q, &b), ERR_NONE);
	CHECK_STR(b.k.id, a.k.id);
	CHECK_INT(take(sb, &(struct checkpoint_req){ .label = "other", .idempotency_key = "once" }, &c), ERR_conflict);
	CHECK_INT(take(sb, &(struct checkpoint_req){ .label = "x", .idempotency_key = "once", .disk_only = true }, &c), ERR_conflict);
	CHECK_INT(fake_nodes(), 1);
	down(sp);
	sp = up();
	sb = get(sp, sb ? a.k.sandbox : "");
	REQUIRE(sb);
	CHECK_INT(take(sb, &q, &b), ERR_NONE); /* also of a daemon that came later */
	CHECK_STR(b.k.id, a.k.id);
	kill_it(sp, a.k.sandbox);
	down(sp);
}

static const struct {
	const char *what;
	atomic_int *fails;
} failures[] = {
	{ "begin", &fake.save_fails }, { "still", &fake.still_fails }, { "commit", &fake.commit_fails },
};

TEST(a_save_that_fails_leaves_nothing_and_the_guest_runs_on)
{
	struct ends s = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("undo");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
		struct took t = { 0 };
		int inits = fake.inits;

		test_row("%s", failures[i].what);
		*failures[i].fails = 1;
		CHECK(take(sb, &(struct checkpoint_req){ .label = "x" }, &t) != ERR_NONE);
		CHECK_STR(sb->checkpoint, "");
		CHECK_INT(sb->state, SANDBOX_RUNNING);
		wait_ms(50);
		CHECK_INT(fake_nodes(), 0);
		CHECK(i == 0 || fake.inits > inits); /* what was frozen was thawed */
		*failures[i].fails = 1;
		call(sandbox_suspend, sb, &s);
		CHECK_INT(s.failed, (int)i + 1);
		CHECK_INT(sb->state, SANDBOX_RUNNING);
		CHECK_INT(sp->memory_reserved, 512 * MIB);
		wait_ms(50);
		CHECK_INT(fake_nodes(), 0);
	}
	test_row(NULL);
	call(sandbox_suspend, sb, &s);
	CHECK_INT(s.ok, 1);
	kill_it(sp, sb->id);
	wait_ms(50);
	CHECK_INT(fake_nodes(), 0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}

TEST(a_guest_that_does_not_answer_is_saved_all_the_same)
{
	struct took t = { 0 };
	struct sandbox *sb;
	struct space *sp;
	int64_t from;

	world("silent");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	fake.agent = FAKE_AGENT_CUTS;
	from = mono_ms();
	CHECK_INT(take(sb, &(struct checkpoint_req){ 0 }, &t), ERR_NONE);
	CHECK(mono_ms() - from < 12000);
	fake.agent = FAKE_AGENT_GOOD;
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	kill_it(sp, sb->id);
	down(sp);
}

TEST(a_paused_one_stays_paused_and_of_a_suspended_one_its_node_is_copied)
{
	struct took p = { 0 }, s = { 0 }, d = { 0 };
	struct ends e = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("still");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	call(sandbox_pause, sb, &e);
	CHECK_INT(take(sb, &(struct checkpoint_req){ .label = "paused" }, &p), ERR_NONE);
	CHECK_INT(sb->state, SANDBOX_PAUSED);
	CHECK_INT(fake.pauses, 2); /* it ran, to be frozen */
	call(sandbox_suspend, sb, &e);
	CHECK_INT(sb->state, SANDBOX_SUSPENDED);
	CHECK_INT(fake_nodes(), 2);
	CHECK_INT(take(sb, &(struct checkpoint_req){ .label = "copy" }, &s), ERR_NONE);
	CHECK_STR(s.k.parent, p.k.id);
	CHECK_STR(sb->checkpoint, s.k.id);
	CHECK_INT(take(sb, &(struct checkpoint_req){ .disk_only = true }, &d), ERR_NONE);
	CHECK_INT(d.k.kind, NODE_SNAPSHOT);
	CHECK(d.k.memory == 0);
	CHECK_INT(sb->state, SANDBOX_SUSPENDED);
	CHECK_INT(fake_nodes(), 4);
	call(sandbox_wake, sb, &e);
	CHECK_INT(e.ok, 3);
	wait_ms(50);
	CHECK_INT(fake_nodes(), 3); /* what it lay in is gone */
	kill_it(sp, sb->id);
	down(sp);
}

TEST(calls_that_meet)
{
	struct ends s = { 0 }, s2 = { 0 }, w = { 0 }, k = { 0 };
	struct took t = { 0 }, u = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("meet");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	fake.save_delay_ms = 100;
	sandbox_suspend(sb, on_end, &s);
	sandbox_suspend(sb, on_end, &s2); /* waits for it */
	sandbox_wake(sb, on_end, &w);
	CHECK_INT(w.failed, 1);
	CHECK_INT(w.code, ERR_busy);
	sandbox_checkpoint(sb, &(struct checkpoint_req){ 0 }, on_taken, &t);
	CHECK_INT(t.code, ERR_busy);
	spin(&s.ok, &s2.ok, 2, 5000);
	CHECK_INT(s.ok + s2.ok, 2);
	call(sandbox_suspend, sb, &s); /* again: the same */
	CHECK_INT(s.ok, 2);
	call(sandbox_wake, sb, &w);
	CHECK_INT(w.ok, 1);

	/* a kill while it is being saved */
	sandbox_checkpoint(sb, &(struct checkpoint_req){ 0 }, on_taken, &u);
	sandbox_suspend(sb, on_end, &s);
	CHECK_INT(s.failed, 1);
	CHECK_INT(s.code, ERR_busy);
	wait_ms(30);
	sandbox_kill(sb, "killed", on_end, &k);
	spin(&k.ok, &u.n, 2, 5000);
	CHECK_INT(k.ok, 1);
	CHECK_INT(u.code, ERR_sandbox_gone);
	fake.save_delay_ms = 0;
	wait_ms(100);
	CHECK_INT(fake_nodes(), 0);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	CHECK_INT(take(sb, &(struct checkpoint_req){ 0 }, &t), ERR_sandbox_gone);
	down(sp);
}

TEST(its_time_is_up_and_it_is_suspended)
{
	struct ends e = { 0 }, w = { 0 };
	struct sandbox *sb;
	struct space *sp;

	world("deadline");
	sp = up();
	REQUIRE(sp);
	create(sp, &(struct create_req){ .timeout_s = 1, .idle_timeout_s = 0, .suspend_on_timeout = true }, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	for (int64_t until = mono_ms() + 5000; sb->state != SANDBOX_SUSPENDED && mono_ms() < until;)
		wait_ms(20);
	CHECK_INT(sb->state, SANDBOX_SUSPENDED);
	CHECK(sb->deadline_ns == 0);
	wait_ms(100);
	CHECK_INT(sp->memory_reserved, 0);
	wait_ms(1200); /* it has no deadline while it lies there */
	CHECK_INT(sb->state, SANDBOX_SUSPENDED);
	call(sandbox_wake, sb, &w);
	CHECK(sb->deadline_ns > real_ns());
	kill_it(sp, e.id);
	down(sp);
}

struct told {
	int n;
	struct fail why;
	json_t *value;
};

static void on_told(const struct fail *why, void *arg)
{
	struct told *t = arg;

	t->n++;
	t->why = *why;
}

static void on_value(json_t *value, const struct fail *why, void *arg)
{
	struct told *t = arg;

	t->n++;
	t->why = *why;
	json_decref(t->value);
	t->value = json_incref(value);
}

static enum errcode rm(struct space *sp, const char *tenant, const char *id)
{
	struct told t = { 0 };

	checkpoint_remove(sp, tenant, id, on_told, &t);
	spin(&t.n, NULL, 1, 5000);
	CHECK_INT(t.n, 1);
	return t.why.err ? t.why.code : ERR_NONE;
}

TEST(what_is_removed_hurts_nobody)
{
	struct took a = { 0 }, b = { 0 }, c = { 0 };
	struct ends e = { 0 };
	struct sandbox *sb;
	struct space *sp;
	struct fail why;

	world("remove");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	(void)take(sb, &(struct checkpoint_req){ .label = "a" }, &a);
	(void)take(sb, &(struct checkpoint_req){ .label = "b" }, &b);
	CHECK_INT(rm(sp, TENANT_DEFAULT, "b"), ERR_NONE); /* the latest: the next one's parent is the one before */
	CHECK_STR(sb->checkpoint, a.k.id);
	(void)take(sb, &(struct checkpoint_req){ .label = "c" }, &c);
	CHECK_STR(c.k.parent, a.k.id);
	CHECK_INT(rm(sp, TENANT_DEFAULT, a.k.id), ERR_NONE); /* one in the middle */
	CHECK_STR(sb->checkpoint, c.k.id);
	CHECK(find(sp, "c", &why) != NULL);
	CHECK_INT(rm(sp, TENANT_DEFAULT, a.k.id), ERR_checkpoint_not_found);
	CHECK_INT(rm(sp, "other", c.k.id), ERR_checkpoint_not_found);
	CHECK_INT(fake_nodes(), 1);
	call(sandbox_suspend, sb, &e);
	CHECK_INT(rm(sp, TENANT_DEFAULT, sb->core->lies_in), ERR_busy);
	kill_it(sp, sb->id);
	wait_ms(50);
	CHECK_INT(fake_nodes(), 1);
	down(sp);
	sp = up();
	REQUIRE(sp);
	CHECK(!find(sp, a.k.id, &why) && find(sp, c.k.id, &why));
	down(sp);
}

TEST(pruning_takes_what_nobody_needs)
{
	struct prune_req q = { .older_than_s = 0, .checkpoints = true, .dry_run = true };
	struct told t = { 0 };
	struct took a = { 0 }, b = { 0 }, s = { 0 };
	struct sandbox *sb;
	struct space *sp;
	struct fail why;

	world("prune");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	(void)take(sb, &(struct checkpoint_req){ .label = "a" }, &a);
	(void)take(sb, &(struct checkpoint_req){ .label = "b" }, &b);
	(void)take(sb, &(struct checkpoint_req){ .disk_only = true }, &s);
	checkpoint_prune(sp, TENANT_DEFAULT, &q, on_value, &t);
	spin(&t.n, NULL, 1, 5000);
	CHECK_INT(json_array_size(json_object_get(t.value, "removed")), 1); /* b is the parent of what comes next */
	CHECK_STR(json_string_value(json_array_get(json_object_get(t.value, "removed"), 0)), a.k.id);
	CHECK_INT(json_integer_value(json_object_get(t.value, "bytes")), (json_int_t)a.k.own_bytes);
	CHECK_INT(fake_nodes(), 3);
	q.dry_run = false;
	q.snapshots = true;
	checkpoint_prune(sp, "other", &q, on_value, &t);
	spin(&t.n, NULL, 2, 5000);
	CHECK_INT(json_array_size(json_object_get(t.value, "removed")), 0);
	q.older_than_s = 1000;
	checkpoint_prune(sp, NULL, &q, on_value, &t);
	spin(&t.n, NULL, 3, 5000);
	CHECK_INT(json_array_size(json_object_get(t.value, "removed")), 0);
	q.older_than_s = 0;
	checkpoint_prune(sp, TENANT_DEFAULT, &q, on_value, &t);
	spin(&t.n, NULL, 4, 5000);
	CHECK_INT(json_array_size(json_object_get(t.value, "removed")), 2);
	CHECK_INT(fake_nodes(), 1);
	CHECK(find(sp, b.k.id, &why) && !find(sp, a.k.id, &why) && !find(sp, s.k.id, &why));
	kill_it(sp, sb->id);
	json_decref(t.value);
	down(sp);
}

static struct operation *fsck(struct space *sp, char id[24])
{
	struct fail why = { 0 };
	struct operation *op = space_fsck(sp, TENANT_DEFAULT, &why);

	if (!op)
		return NULL;
	snprintf(id, 24, "%s", op->id);
	for (int64_t until = mono_ms() + 5000; mono_ms() < until && (op = operation_find(sp, TENANT_DEFAULT, str_of(id))) && op->state == OPERATION_RUNNING;)
		wait_ms(10);
	return op;
}

TEST(a_damaged_checkpoint_is_told_and_refused)
{
	struct ends e = { 0 };
	struct operation *op;
	struct took t = { 0 };
	struct sandbox *sb;
	struct space *sp;
	struct fail why;
	json_t *bad;
	char id[24];

	world("damage");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	(void)take(sb, &(struct checkpoint_req){ .label = "x" }, &t);
	fake.verify_fails = 1;
	op = fsck(sp, id);
	REQUIRE(op && op->state == OPERATION_DONE);
	CHECK_INT(json_integer_value(json_object_get(op->result, "checked")), 1);
	bad = json_array_get(json_object_get(op->result, "damaged"), 0);
	CHECK_STR(json_string_value(json_object_get(bad, "checkpoint")), t.k.id);
	CHECK_STR(json_string_value(json_object_get(bad, "file")), "memory");
	CHECK_INT(json_integer_value(json_object_get(bad, "offset")), 4096);
	CHECK_STR(find(sp, "x", &why)->damaged, "memory at offset 4096");
	create(sp, &(struct create_req){ .checkpoint = "x", .timeout_s = -1, .idle_timeout_s = -1 }, &e);
	CHECK_INT(e.code, ERR_checkpoint_damaged);
	CHECK(strstr(e.msg, "memory at offset 4096"));
	down(sp);
	sp = up();
	REQUIRE(sp);
	CHECK_STR(find(sp, "x", &why)->damaged, "memory at offset 4096");
	op = fsck(sp, id); /* somebody has put the file back */
	REQUIRE(op && op->state == OPERATION_DONE);
	CHECK_INT(json_array_size(json_object_get(op->result, "damaged")), 0);
	CHECK_STR(find(sp, "x", &why)->damaged, "");
	kill_it(sp, t.k.sandbox);
	down(sp);
}

TEST(upkeep_makes_digests_and_compares_them_and_keeps_to_the_retention)
{
	struct took a = { 0 }, b = { 0 };
	struct ends e = { 0 };
	struct sandbox *sb;
	struct space *sp;
	struct fail why;

	world("upkeep");
	cfg.retention_s = 3600;
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	(void)take(sb, &(struct checkpoint_req){ .label = "a" }, &a);
	upkeep(sp);
	wait_ms(50);
	CHECK_INT(fake.digests, 0); /* it is new */
	tree_find(sp, a.k.id)->k.created_ns -= 60 * NS_PER_S;
	upkeep(sp);
	wait_ms(50);
	CHECK_INT(fake.digests, 1);
	CHECK(tree_find(sp, a.k.id)->digested && !tree_find(sp, a.k.id)->verified);
	create(sp, &(struct create_req){ .checkpoint = "a", .timeout_s = -1, .idle_timeout_s = -1 }, &e);
	CHECK_INT(e.ok, 1);
	upkeep(sp);
	wait_ms(50);
	CHECK(tree_find(sp, a.k.id)->verified); /* once it was used */
	(void)take(sb, &(struct checkpoint_req){ .label = "b" }, &b);
	tree_find(sp, a.k.id)->k.created_ns -= 7200 * NS_PER_S;
	sp->retained_ns = 0;
	upkeep(sp);
	wait_ms(50);
	CHECK(find(sp, "a", &why) && find(sp, "b", &why)); /* somebody lives on it */
	kill_it(sp, e.id);
	sp->retained_ns = 0;
	upkeep(sp);
	wait_ms(50);
	CHECK(!find(sp, "a", &why) && find(sp, "b", &why));
	/* By tenant: another one's number is not this one's. */
	kill_it(sp, sb->id);
	tree_find(sp, b.k.id)->k.created_ns -= 7200 * NS_PER_S;
	sp->cfg.retention_s = 86400;
	sp->cfg.nretentions = 1;
	sp->cfg.retentions[0] = (struct retention){ "team", 3600 };
	sp->retained_ns = 0;
	upkeep(sp);
	wait_ms(50);
	CHECK(find(sp, "b", &why) != NULL);
	(void)str_copy(tree_find(sp, b.k.id)->k.tenant, 32, str_of("team"));
	sp->retained_ns = 0;
	upkeep(sp);
	wait_ms(50);
	CHECK(!tree_find(sp, b.k.id) || tree_find(sp, b.k.id)->removing);
	cfg.retention_s = 0;
	down(sp);
}

TEST(out_and_in_again)
{
	struct told x = { 0 };
	struct took t = { 0 }, in = { 0 }, bad = { 0 };
	autojson json_t *env = NULL;
	struct ends e = { 0 };
	struct sandbox *sb;
	struct space *sp;
	struct fail why;
	char path[128];
	int fd;

	world("transfer");
	sp = up();
	REQUIRE(sp);
	env = json_pack("{s:s}", "WHO", "me");
	create(sp, &(struct create_req){ .timeout_s = -1, .idle_timeout_s = -1, .env = env }, &e);
	sb = get(sp, e.id);
	REQUIRE(sb);
	(void)take(sb, &(struct checkpoint_req){ .label = "x" }, &t);
	snprintf(path, sizeof(path), "%s/stream", fake.dir);
	checkpoint_export(sp, TENANT_DEFAULT, "x", open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), on_value, &x);
	spin(&x.n, NULL, 1, 5000);
	CHECK_INT(x.why.err, 0);
	CHECK_INT(json_integer_value(json_object_get(x.value, "bytes")), ID_LEN);
	checkpoint_import(sp, "other", open(path, O_RDONLY | O_CLOEXEC), on_taken, &in);
	spin(&in.n, NULL, 1, 5000);
	CHECK_INT(in.code, ERR_NONE);
	CHECK(strcmp(in.k.id, t.k.id) && !in.k.parent[0]);
	CHECK_STR(in.k.tenant, "other");
	CHECK_STR(in.k.label, "x");
	CHECK(in.k.memory == t.k.memory);
	CHECK_STR(in.k.template, "base");
	REQUIRE(tree_find(sp, in.k.id) && tree_find(sp, in.k.id)->guest);
	CHECK_STR(json_string_value(json_object_get(json_object_get(tree_find(sp, in.k.id)->guest, "env"), "WHO")), "me");
	CHECK(tree_find(sp, in.k.id)->generation > 0);
	checkpoint_import(sp, "other", open("/dev/null", O_RDONLY | O_CLOEXEC), on_taken, &bad);
	spin(&bad.n, NULL, 1, 5000);
	CHECK_INT(bad.code, ERR_bad_checkpoint);
	CHECK_INT(fake_nodes(), 2);
	fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	checkpoint_export(sp, "third", in.k.id, fd, on_value, &x);
	CHECK_INT(x.why.code, ERR_checkpoint_not_found);
	CHECK(fcntl(fd, F_GETFD) < 0); /* closed in any case */
	CHECK(find(sp, "x", &why) != NULL);
	kill_it(sp, sb->id);
	json_decref(x.value);
	down(sp);
}

TEST(what_takes_the_room)
{
	struct told t = { 0 };
	struct took a = { 0 };
	struct sandbox *sb;
	struct space *sp;
	json_t *row;
	size_t i;
	int seen = 0;

	world("usage");
	sp = up();
	REQUIRE(sp);
	sb = one(sp);
	(void)take(sb, &(struct checkpoint_req){ 0 }, &a);
	space_usage_json(sp, NULL, on_value, &t);
	spin(&t.n, NULL, 1, 5000);
	REQUIRE(t.value);
	json_array_foreach(json_object_get(t.value, "rows"), i, row) {
		const char *what = json_string_value(json_object_get(row, "what"));

		if (!strcmp(what, "checkpoints")) {
			seen++;
			CHECK_INT(json_integer_value(json_object_get(row, "count")), 1);
			CHECK_INT(json_integer_value(json_object_get(row, "bytes")), (json_int_t)a.k.own_bytes);
		}
	}
	CHECK_INT(seen, 1);
	CHECK_STR(json_string_value(json_object_get(json_object_get(t.value, "pool"), "clone")), "native");
	kill_it(sp, sb->id);
	json_decref(t.value);
	down(sp);
}

static int count_it(const struct checkpoint *k, void *arg)
{
	return ++*(int *)arg;
}

static unsigned sources(struct space *sp)
{
	unsigned n = 0;

	link_each_safe(l, next, &sp->sources)
		n++;
	return n;
}

static unsigned sources_of_two_tenants(const char *share)
{
	static const struct create_req plain = { .timeout_s = -1, .idle_timeout_s = -1 };
	struct ends e = { 0 };
	struct space *sp;
	unsigned n;

	world(share);
	snprintf(cfg.share, sizeof(cfg.share), "%s", share);
	sp = up();
	if (!sp)
		return 0;
	for (int i = 0; i < 4; i++) {
		sandbox_create(sp, i % 2 ? "one" : "two", &plain, on_end, &e);
		spin(&e.ok, &e.failed, i + 1, 5000);
	}
	CHECK_INT(e.ok, 4);
	n = sources(sp);
	while (!link_empty(&sp->sandboxes) && sp->living)
		link_each_safe(l, next, &sp->sandboxes) {
			struct sandbox_core *c = container_of(l, struct sandbox_core, link);
			struct ends k = { 0 };

			if (state_ended(c->state))
				continue;
			sandbox_kill(&c->sb, "killed", on_end, &k);
			spin(&k.ok, &k.failed, 1, 5000);
		}
	down(sp);
	return n;
}

TEST(tenants_share_no_pages_unless_they_are_told_to)
{
	CHECK_INT(sources_of_two_tenants("tenant"), 2);
	CHECK_INT(sources_of_two_tenants("host"), 1);
	snprintf(cfg.share, sizeof(cfg.share), "tenant");
}

TEST(ten_thousand_nodes_are_cheap)
{
	struct checkpoint k = { .kind = NODE_CHECKPOINT, .tenant = TENANT_DEFAULT, .memory = 1, .created_ns = 1 };
	char first[24], last[24] = "";
	struct tree_node *n;
	struct space *sp;
	struct fail why;
	int64_t from;
	int seen = 0;

	world("many");
	sp = up();
	REQUIRE(sp);
	for (int i = 0; i < 10000; i++) {
		memcpy(k.parent, last, sizeof(k.parent));
		id_make(last, 'n');
		memcpy(k.id, last, sizeof(k.id));
		if (i == 0)
			memcpy(first, last, sizeof(first));
		snprintf(k.label, sizeof(k.label), "l%d", i);
		n = tree_add(sp, &k);
		REQUIRE(n);
		n->there = true;
		tree_unpin(n);
	}
	from = mono_ms();
	for (int i = 0; i < 10; i++) {
		checkpoint_each(sp, NULL, NULL, count_it, &seen);
		CHECK(find(sp, first, &why) != NULL);
		CHECK(find(sp, "l9999", &why) != NULL);
		nodes_collect(sp);
	}
	CHECK_INT(seen, 100000);
	CHECK(mono_ms() - from < 500); /* ten times all of it */
	CHECK(find(sp, first, &why) && find(sp, first, &why)->children == 1);
	down(sp);
}

/* --- what a restart makes of it --- */

static char kept[24];

static void half_saved(struct space *sp)
{
	struct took t = { 0 }, u = { 0 };
	struct sandbox *sb = one(sp);
	autoclose int dir = -1;
	char path[128];

	(void)take(sb, &(struct checkpoint_req){ .label = "acknowledged" }, &t);
	fake.save_delay_ms = 300;
	sandbox_checkpoint(sb, &(struct checkpoint_req){ .label = "half" }, on_taken, &u);
	wait_ms(150); /* its name is written, its files are there */
	snprintf(path, sizeof(path), "%s", fake.dir);
	dir = dir_open(AT_FDCWD, path);
	file_write_atomic(dir, "kept", t.k.id, strlen(t.k.id), 0600);
}

TEST(a_restart_keeps_what_was_acknowledged_and_removes_what_was_half_made)
{
	autofree char *text = NULL;
	char path[128];
	struct space *sp;
	struct fail why;
	struct sandbox *sb;

	world("restart");
	before(half_saved);
	snprintf(path, sizeof(path), "%s/kept", fake.dir);
	REQUIRE(file_read(AT_FDCWD, path, &text, 64) > 0);
	snprintf(kept, sizeof(kept), "%s", text);
	sp = up();
	REQUIRE(sp);
	wait_ms(100);
	CHECK(find(sp, kept, &why) != NULL);
	CHECK(!find(sp, "half", &why));
	CHECK_INT(fake_nodes(), 1);
	sb = get(sp, find(sp, kept, &why)->sandbox);
	REQUIRE(sb);
	CHECK_INT(sb->state, SANDBOX_RUNNING);
	CHECK_STR(sb->checkpoint, kept);
	kill_it(sp, sb->id);
	CHECK_INT(fake_left(cfg.run_dir), 0);
	down(sp);
}
