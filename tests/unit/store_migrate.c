/* Migrations of the state database: the store is compiled here with schemas that do not exist yet, so that what happens at the next one
 * is known before there is one. */
#include "store/schema.h"

enum { RELEASED = SCHEMA_VERSION };
static const char *const *const released = schema_steps;

/* From here on the store takes its steps from these. */
static const char *steps[RELEASED + 4];
static int nsteps;
#undef SCHEMA_VERSION
#define SCHEMA_VERSION nsteps
#define schema_steps steps
#include "store/sqlite.c"

#include <signal.h>
#include <sys/wait.h>

#include "base/file.h"
#include "test.h"

#define RECORDS 300
#define GOOD "ALTER TABLE record ADD COLUMN kind INTEGER NOT NULL DEFAULT 7"
#define COPY "CREATE TABLE copy AS SELECT tbl, key, kind FROM record"

static char dir[] = "/tmp/space-test-migrate-XXXXXX";
static char db_path[64];

__attribute__((destructor)) static void clean(void)
{
	if (!strstr(dir, "XXXXXX"))
		rm_rf(AT_FDCWD, dir);
}

/* The released steps, and then those (up to NULL). */
static void schema(const char *a, const char *b, const char *c)
{
	const char *const more[] = { a, b, c };

	for (nsteps = 0; nsteps < RELEASED; nsteps++)
		steps[nsteps] = released[nsteps];
	for (size_t i = 0; i < ARRAY_LEN(more) && more[i]; i++)
		steps[nsteps++] = more[i];
}

static int64_t ask(const char *sql)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *st = NULL;
	int64_t v = -1;

	if (sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return v;
}

static int count(void *arg, const char *key, struct str body)
{
	(*(int *)arg)++;
	return 0;
}

/* Opens it with the schema at hand, looks whether all is there, and closes it. */
static int open_and_look(struct fail *why)
{
	uv_loop_t loop;
	struct store *s = NULL;
	int r, n = 0;

	uv_loop_init(&loop);
	r = store_open(&loop, db_path, &s, why);
	if (r == 0) {
		CHECK_INT(store_scan(s, "sandbox", count, &n, why), 0);
		CHECK_INT(n, RECORDS);
		CHECK_INT(store_last_seq(s), RECORDS);
		store_close(s);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	return r;
}

/* A database as the released program leaves it, with records and events. */
static void old_database(const char *name)
{
	uv_loop_t loop;
	struct store *s = NULL;
	struct fail why = { 0 };

	if (strstr(dir, "XXXXXX") && !mkdtemp(dir))
		abort();
	snprintf(db_path, sizeof(db_path), "%s/%s.db", dir, name);
	schema(NULL, NULL, NULL);
	uv_loop_init(&loop);
	REQUIRE(store_open(&loop, db_path, &s, &why) == 0);
	for (int i = 0; i < RECORDS; i++) {
		struct store_txn *t = store_begin(s);
		char key[16];

		snprintf(key, sizeof(key), "i%05d", i);
		store_put(t, "sandbox", key, STR("{\"state\":\"running\"}"));
		store_event(t, "default", key, i, "created", STR("{}"), NULL);
		store_commit(t, NULL, NULL);
	}
	store_close(s);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	CHECK_INT(ask("PRAGMA user_version"), RELEASED);
}

static void hash(char out[65])
{
	autoclose int fd = open(db_path, O_RDONLY | O_CLOEXEC);

	CHECK_INT(file_sha256(fd, out), 0);
}

TEST(migrate_an_older_file_keeps_its_records)
{
	struct fail why = { 0 };

	old_database("older");
	schema(GOOD, COPY, NULL);
	CHECK_INT(open_and_look(&why), 0);
	CHECK_INT(ask("PRAGMA user_version"), RELEASED + 2);
	CHECK_INT(ask("SELECT count(*) FROM migration"), RELEASED + 2);
	CHECK_INT(ask("SELECT max(version) FROM migration"), RELEASED + 2);
	CHECK_INT(ask("SELECT count(*) FROM copy WHERE kind = 7"), RECORDS);
	CHECK_INT(ask("SELECT count(*) FROM record WHERE body = '{\"state\":\"running\"}'"), RECORDS);
	/* A second start finds nothing to do, and a later program only what is new. */
	CHECK_INT(open_and_look(&why), 0);
	CHECK_INT(ask("SELECT count(*) FROM migration"), RELEASED + 2);
	schema(GOOD, COPY, "DROP TABLE copy");
	CHECK_INT(open_and_look(&why), 0);
	CHECK_INT(ask("PRAGMA user_version"), RELEASED + 3);
	CHECK_INT(ask("SELECT count(*) FROM sqlite_schema WHERE name = 'copy'"), 0);
}

TEST(migrate_a_step_that_fails_leaves_it_untouched)
{
	static const struct {
		const char *a, *b, *c;
	} rows[] = {
		{ "ALTER TABLE no_such ADD COLUMN x", NULL, NULL },
		{ GOOD, "not SQL at all", NULL },
		{ GOOD, COPY, "INSERT INTO record(tbl, key, body) SELECT tbl, key, body FROM record" },
		{ "DELETE FROM record; DELETE FROM event; DROP TABLE event", GOOD, "SELECT no_such_function()" },
		/* The step is good, and the book of migrations is not. */
		{ "DROP TABLE migration", NULL, NULL },
		{ "UPDATE record SET body = 'gone'", "INSERT INTO migration VALUES (99, 0, 'x'), (99, 0, 'x')", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char before[65], after[65], name[16], wal[80];
		struct fail why = { 0 };

		test_row("row %zu", i);
		snprintf(name, sizeof(name), "fails%zu", i);
		old_database(name);
		hash(before);
		schema(rows[i].a, rows[i].b, rows[i].c);
		CHECK(open_and_look(&why) < 0);
		CHECK(strstr(why.msg, "migrating") != NULL);
		snprintf(wal, sizeof(wal), "%s-wal", db_path);
		CHECK(access(wal, F_OK) < 0);
		hash(after);
		CHECK_STR(after, before);
		/* The program that made it still takes it. */
		schema(NULL, NULL, NULL);
		why = (struct fail){ 0 };
		CHECK_INT(open_and_look(&why), 0);
		CHECK_INT(ask("PRAGMA user_version"), RELEASED);
	}
	test_row(NULL);
}

TEST(migrate_refuses_a_newer_file_before_anything_is_written)
{
	char before[65], after[65], side[80];
	struct fail why = { 0 };

	old_database("newer");
	schema(GOOD, NULL, NULL);
	CHECK_INT(open_and_look(&why), 0);
	hash(before);
	schema(NULL, NULL, NULL);
	CHECK(open_and_look(&why) < 0);
	CHECK_INT(why.code, ERR_state_version);
	hash(after);
	CHECK_STR(after, before);
	for (size_t i = 0; i < 2; i++) {
		snprintf(side, sizeof(side), "%s-%s", db_path, i ? "shm" : "wal");
		CHECK(access(side, F_OK) < 0);
	}
	schema(GOOD, NULL, NULL);
	CHECK_INT(open_and_look(&why), 0);
}

TEST(migrate_killed_in_the_middle_begins_anew)
{
	/* Long enough to be killed in, and more than fits into the cache: pages are in the WAL by then. */
	static const char slow[] = "CREATE TABLE big(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000000)"
				   "INSERT INTO big SELECT i || body FROM n, record LIMIT 40000000";
	struct fail why = { 0 };
	int status;
	pid_t pid;

	old_database("killed");
	schema(GOOD, slow, NULL);
	pid = fork();
	if (pid == 0)
		_exit(open_and_look(&why) == 0);
	usleep(400000);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	REQUIRE(WIFSIGNALED(status));
	schema(NULL, NULL, NULL);
	CHECK_INT(open_and_look(&why), 0);
	CHECK_INT(ask("PRAGMA user_version"), RELEASED);
	CHECK_INT(ask("SELECT count(*) FROM sqlite_schema WHERE name = 'big'"), 0);
	schema(GOOD, COPY, NULL);
	CHECK_INT(open_and_look(&why), 0);
	CHECK_INT(ask("SELECT count(*) FROM copy"), RECORDS);
}
