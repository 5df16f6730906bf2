/* What the store promises: what was acknowledged is there after kill -9; order; one writer; versions; a failed neighbour. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/wait.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "store/store.h"
#include "test.h"

static char dir[] = "/tmp/space-test-store-XXXXXX";
static char path[64];

static void fresh(const char *name)
{
	if (strstr(dir, "XXXXXX") && !mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/%s.db", dir, name);
}

__attribute__((destructor)) static void clean(void)
{
	if (!strstr(dir, "XXXXXX"))
		rm_rf(AT_FDCWD, dir);
}

static struct store *open_here(uv_loop_t *loop)
{
	struct store *s = NULL;
	struct fail why = { 0 };

	if (store_open(loop, path, &s, &why) < 0)
		printf("store: %s\n", why.msg);
	return s;
}

static void done_count(void *arg, const struct fail *why)
{
	int *n = arg;

	if (!why->err)
		(*n)++;
}

static int row_count(void *arg, const char *key, struct str body)
{
	(*(int *)arg)++;
	return 0;
}

static void end(uv_loop_t *loop, struct store *s)
{
	store_close(s);
	uv_run(loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(loop), 0);
}

TEST(store_keeps_and_deletes)
{
	struct fail why = { 0 };
	int done = 0, rows = 0;
	uv_loop_t loop;
	struct store *s;
	struct store_txn *t;

	fresh("keeps");
	uv_loop_init(&loop);
	s = open_here(&loop);
	REQUIRE(s);
	t = store_begin(s);
	store_put(t, "sandbox", "a", STR("{\"n\":1}"));
	store_put(t, "sandbox", "b", STR("{\"n\":2}"));
	store_put(t, "other", "b", STR("{}"));
	store_commit(t, done_count, &done);
	t = store_begin(s);
	store_put(t, "sandbox", "a", STR("{\"n\":3}"));
	store_del(t, "sandbox", "b");
	store_commit(t, done_count, &done);
	uv_run(&loop, UV_RUN_DEFAULT); /* ends when nothing is pending */
	CHECK_INT(done, 2);
	CHECK_INT(store_scan(s, "sandbox", row_count, &rows, &why), 0);
	CHECK_INT(rows, 1);
	end(&loop, s);
}

TEST(store_commits_in_groups_and_in_order)
{
	uv_loop_t loop;
	struct store *s;
	int done = 0;
	int64_t t0;

	fresh("groups");
	uv_loop_init(&loop);
	s = open_here(&loop);
	REQUIRE(s);
	t0 = mono_ms();
	for (int i = 0; i < 2000; i++) {
		struct store_txn *t = store_begin(s);
		uint64_t seq = 0;

		store_event(t, "default", "i1", 1, "tick", STR("{}"), &seq);
		if (seq != (uint64_t)i + 1)
			CHECK_INT(seq, i + 1);
		store_commit(t, done_count, &done);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(done, 2000);
	CHECK(mono_ms() - t0 < 20000);
	CHECK_INT(store_last_seq(s), 2000);
	end(&loop, s);
	/* Numbers go on where they stopped, also after everything was trimmed. */
	uv_loop_init(&loop);
	s = open_here(&loop);
	REQUIRE(s);
	CHECK_INT(store_last_seq(s), 2000);
	end(&loop, s);
}

static int event_row(void *arg, const struct store_event_row *e)
{
	struct {
		uint64_t last;
		int n;
	} *seen = arg;

	CHECK(e->seq > seen->last);
	seen->last = e->seq;
	seen->n++;
	return 0;
}

TEST(store_reads_events_by_tenant_and_sandbox)
{
	static const struct {
		const char *tenant, *sandbox;
		uint64_t after;
		unsigned limit;
		int n;
	} rows[] = {
		{ NULL, NULL, 0, 100, 40 }, { "t0", NULL, 0, 100, 20 },	  { NULL, "s1", 0, 100, 10 }, { "t1", "s1", 0, 100, 10 },
		{ "t0", "s1", 0, 100, 0 },  { NULL, NULL, 30, 100, 10 }, { NULL, NULL, 0, 7, 7 },    { NULL, NULL, UINT64_MAX, 7, 0 },
	};
	struct fail why = { 0 };
	uv_loop_t loop;
	struct store *s;

	fresh("events");
	uv_loop_init(&loop);
	s = open_here(&loop);
	REQUIRE(s);
	for (int i = 0; i < 40; i++) {
		char tenant[4], sandbox[4];
		struct store_txn *t = store_begin(s);

		snprintf(tenant, sizeof(tenant), "t%d", i % 2);
		snprintf(sandbox, sizeof(sandbox), "s%d", i % 4);
		store_event(t, tenant, sandbox, i, "x", STR("{}"), NULL);
		store_commit(t, NULL, NULL);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct {
			uint64_t last;
			int n;
		} seen = { 0, 0 };

		test_row("row %zu", i);
		CHECK_INT(store_events(s, rows[i].tenant, rows[i].sandbox, rows[i].after, rows[i].limit, event_row, &seen, &why), 0);
		CHECK_INT(seen.n, rows[i].n);
	}
	test_row(NULL);
	store_trim_events(s, 4, 1000);
	uv_run(&loop, UV_RUN_DEFAULT);
	{
		struct {
			uint64_t last;
			int n;
		} seen = { 0, 0 };

		CHECK_INT(store_events(s, NULL, NULL, 0, 100, event_row, &seen, &why), 0);
		CHECK_INT(seen.n, 16);
		store_trim_events(s, 4, 5);
		uv_run(&loop, UV_RUN_DEFAULT);
		seen.n = 0;
		seen.last = 0;
		CHECK_INT(store_events(s, NULL, NULL, 0, 100, event_row, &seen, &why), 0);
		CHECK_INT(seen.n, 5);
	}
	end(&loop, s);
}

static void expect_fail(void *arg, const struct fail *why)
{
	*(int *)arg = why->err;
}

TEST(store_refuses_a_transaction_that_is_too_large_and_only_that)
{
	int err = 0, done = 0, rows = 0;
	struct fail why = { 0 };
	char *big = malloc(5 * MIB);
	uv_loop_t loop;
	struct store *s;
	struct store_txn *t;

	fresh("large");
	uv_loop_init(&loop);
	s = open_here(&loop);
	REQUIRE(s && big);
	memset(big, 'x', 5 * MIB);
	t = store_begin(s);
	store_put(t, "sandbox", "small", STR("{}"));
	CHECK_INT(store_put(t, "sandbox", "big", (struct str){ big, 5 * MIB }), -EFBIG);
	store_commit(t, expect_fail, &err);
	t = store_begin(s);
	store_put(t, "sandbox", "good", STR("{}"));
	store_commit(t, done_count, &done);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(err, -EFBIG);
	CHECK_INT(done, 1);
	CHECK_INT(store_scan(s, "sandbox", row_count, &rows, &why), 0);
	CHECK_INT(rows, 1);
	free(big);
	end(&loop, s);
}

TEST(store_lets_nobody_else_in)
{
	uv_loop_t loop;
	struct store *s;
	int status = 0;
	pid_t pid;

	fresh("lock");
	uv_loop_init(&loop);
	s = open_here(&loop);
	REQUIRE(s);
	pid = fork();
	if (pid == 0) { /* another process: the lock is not inherited */
		struct store *second = NULL;
		struct fail why = { 0 };
		uv_loop_t own;

		uv_loop_init(&own);
		_exit(store_open(&own, path, &second, &why) == -EBUSY && why.code == ERR_busy && strstr(why.remedy, "--state-dir") ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	CHECK_INT(status, 0);
	end(&loop, s);
}

static void raw(const char *sql)
{
	sqlite3 *db = NULL;

	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

TEST(store_refuses_other_versions_untouched)
{
	static const char *const sql[] = {
		"PRAGMA application_id=1397768515; PRAGMA user_version=99; CREATE TABLE t(x)",
		"CREATE TABLE somebody_elses(x)",
		"PRAGMA application_id=7; CREATE TABLE t(x)",
	};

	for (size_t i = 0; i < ARRAY_LEN(sql); i++) {
		struct store *s = NULL;
		struct fail why = { 0 };
		char name[16], before[65], after[65];
		uv_loop_t loop;
		int fd;

		test_row("row %zu", i);
		snprintf(name, sizeof(name), "version%zu", i);
		fresh(name);
		raw(sql[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK_INT(file_sha256(fd, before), 0);
		uv_loop_init(&loop);
		CHECK(store_open(&loop, path, &s, &why) < 0);
		CHECK_INT(why.code, ERR_state_version);
		uv_run(&loop, UV_RUN_DEFAULT);
		CHECK_INT(uv_loop_close(&loop), 0);
		lseek(fd, 0, SEEK_SET);
		CHECK_INT(file_sha256(fd, after), 0);
		CHECK_STR(before, after);
		close(fd);
	}
	test_row(NULL);
}

TEST(store_says_what_is_no_database)
{
	struct store *s = NULL;
	struct fail why = { 0 };
	uv_loop_t loop;
	int fd;

	fresh("garbage");
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; i < 2000; i++)
		CHECK_INT(write_all(fd, "not a database! ", 16), 0);
	close(fd);
	uv_loop_init(&loop);
	CHECK(store_open(&loop, path, &s, &why) < 0);
	CHECK_INT(why.code, ERR_state_version);
	uv_loop_close(&loop);
}

/* The child writes numbers and says each over the pipe once it is acknowledged; it is killed at any moment. Whatever it said is there. */
struct writer {
	struct store *s;
	int fd, next, acked;
};

static void write_next(struct writer *w);

static void acked(void *arg, const struct fail *why)
{
	struct writer *w = arg;

	if (why->err)
		_exit(1);
	w->acked++;
	if (write(w->fd, &w->acked, sizeof(w->acked)) != sizeof(w->acked))
		_exit(2);
	write_next(w);
}

static void write_next(struct writer *w)
{
	struct store_txn *t = store_begin(w->s);
	char key[16];

	snprintf(key, sizeof(key), "%08d", ++w->next);
	store_put(t, "n", key, STR("{}"));
	store_event(t, "t", key, 1, "n", STR("{}"), NULL);
	store_commit(t, acked, w);
}

static void child(int fd)
{
	struct writer w = { .fd = fd };
	struct fail why = { 0 };
	uv_loop_t loop;

	uv_loop_init(&loop);
	if (store_open(&loop, path, &w.s, &why) < 0)
		_exit(3);
	w.next = w.acked = (int)store_last_seq(w.s);
	for (int i = 0; i < 8; i++) /* several under way, so that groups are cut too */
		write_next(&w);
	uv_run(&loop, UV_RUN_DEFAULT);
	_exit(4);
}

TEST(store_loses_nothing_acknowledged_to_kill_9)
{
	int last = 0;

	fresh("crash");
	for (int round = 0; round < 8; round++) {
		int p[2], n, rows = 0, status;
		struct fail why = { 0 };
		uv_loop_t loop;
		struct store *s;
		pid_t pid;

		REQUIRE(pipe(p) == 0);
		pid = fork();
		if (pid == 0) {
			close(p[0]);
			child(p[1]);
		}
		close(p[1]);
		usleep(20000 + (unsigned)round * 7000);
		kill(pid, SIGKILL);
		while (read(p[0], &n, sizeof(n)) == sizeof(n))
			last = n;
		close(p[0]);
		waitpid(pid, &status, 0);
		CHECK(WIFSIGNALED(status));
		uv_loop_init(&loop);
		s = open_here(&loop);
		REQUIRE(s);
		CHECK_INT(store_scan(s, "n", row_count, &rows, &why), 0);
		CHECK(rows >= last);
		/* A record and its event are one transaction. */
		CHECK_INT(store_last_seq(s), rows);
		last = rows;
		end(&loop, s);
	}
	CHECK(last > 0);
}
