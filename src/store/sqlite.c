/* sqlite.c - the store on SQLite: see store.h.
 *
 * Two connections: the writer thread's, and a read-only one for the loop thread. WAL lets both work at once. The queue between them
 * is a list of transactions under one mutex; what gathered while the writer was in its fsync goes into the next one together. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <uv.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "store/schema.h"
#include "store/store.h"

#define QUEUE_MAX (64 * MIB)  /* bytes waiting for the disk; a client that outruns it is refused */
#define TXN_MAX (4 * MIB)     /* one transaction */
#define GROUP_MAX 512	      /* transactions that share an fsync */
#define TRIM_STEP 4096	      /* events deleted at a time, so that nobody waits long behind it */

enum op_kind { OP_PUT, OP_DEL, OP_EVENT, OP_TRIM };

/* One change. Its strings lie behind it, each with a NUL, in the order of the members. */
struct op {
	struct op *next;
	enum op_kind kind;
	const char *a, *b, *c; /* table, key | tenant, sandbox, type */
	struct str body;
	uint64_t seq;
	int64_t at_ns;
	unsigned keep_each, keep_total;
};

struct store_txn {
	struct store_txn *next;
	struct store *store;
	struct op *first, **last;
	size_t bytes;
	int err; /* what went wrong while it was made */
	store_done_fn *done;
	void *arg;
	struct fail why;
};

struct store {
	uv_loop_t *loop;
	uv_async_t async; /* the writer says: some are done */
	uv_thread_t thread;
	uv_mutex_t mu;
	uv_cond_t cond;
	struct store_txn *queue, **queue_last; /* under mu */
	struct store_txn *finished, **finished_last; /* under mu */
	size_t queued;	  /* bytes, under mu */
	bool stopping;	  /* under mu */
	unsigned pending; /* loop thread: handed over, done not yet called */
	uint64_t last_seq; /* loop thread */
	sqlite3 *w, *r;
	sqlite3_stmt *put, *del, *event, *begin, *commit, *rollback, *save, *release, *undo;
	int lock_fd;
};

static int db_fail(sqlite3 *db, int rc, struct fail *why, const char *doing)
{
	switch (rc & 0xff) {
	case SQLITE_FULL:
		return fail_as(why, ERR_no_space, "%s: the disk of the state directory is full", doing);
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		return fail_as(why, ERR_state_version, "%s: %s", doing, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
	case SQLITE_NOMEM:
		return fail_set(why, -ENOMEM, "%s: out of memory", doing);
	case SQLITE_BUSY:
		return fail_as(why, ERR_busy, "%s: the database is locked by another program", doing);
	}
	return fail_as(why, ERR_internal, "%s: %s", doing, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

static int exec_sql(sqlite3 *db, const char *sql, struct fail *why, const char *doing)
{
	int rc = FAULT_SQL(sqlite3_exec(db, sql, NULL, NULL, NULL));

	return rc == SQLITE_OK ? 0 : db_fail(db, rc, why, doing);
}

/* The one integer that SQL answers with. */
static int query_int(sqlite3 *db, const char *sql, int64_t *out, struct fail *why)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
		*out = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
		sqlite3_finalize(st);
		return 0;
	}
	sqlite3_finalize(st);
	return db_fail(db, rc, why, "state database");
}

/* --- opening --- */

/* Two daemons on one state directory would give one sandbox two masters. The lock goes when the process does, however it dies: it is
 * the process's (not flock's or an open file's), so that a child between its fork and its exec does not hold it a moment longer. */
static int lock_take(const char *path, int *out, struct fail *why)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char name[512];
	autoclose int fd = -1;

	if (snprintf(name, sizeof(name), "%s.lock", path) >= (int)sizeof(name))
		return fail_set(why, -ENAMETOOLONG, "state database: the path is too long");
	fd = FAULT(open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (fd < 0)
		return fail_set(why, -errno, "%s: %s", name, strerror(errno));
	if (fcntl(fd, F_SETLK, &whole) < 0) {
		if (errno != EAGAIN && errno != EACCES)
			return fail_set(why, -errno, "%s: %s", name, strerror(errno));
		fail_as(why, ERR_busy, "another spaced uses this state directory (%s is locked)", name);
		fail_remedy(why, "stop it first, or give this one another --state-dir");
		return -EBUSY;
	}
	*out = steal_fd(&fd);
	return 0;
}

/* Tokens and environments are in it: nobody else reads it. SQLite gives its side files the mode of this one. */
static void make_private(const char *path)
{
	int fd = FAULT(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));

	if (fd >= 0)
		close(fd); /* before SQLite has it open, whose locks would go with this descriptor */
}

/* Brings an older file up to ours in one transaction; refuses a newer or foreign one before a byte is written. */
static int migrate(sqlite3 *db, const char *path, struct fail *why)
{
	int64_t have = 0, app = 0, tables = 0;
	char sql[200];
	int r;

	if ((r = query_int(db, "PRAGMA user_version", &have, why)) < 0 ||
	    (r = query_int(db, "PRAGMA application_id", &app, why)) < 0 ||
	    (r = query_int(db, "SELECT count(*) FROM sqlite_schema", &tables, why)) < 0)
		return r;
	if (app != SCHEMA_APPLICATION_ID && (tables > 0 || have > 0 || app > 0))
		return fail_as(why, ERR_state_version, "%s is a database of another program", path);
	if (have > SCHEMA_VERSION || have < 0)
		return fail_as(why, ERR_state_version, "%s has schema version %lld; this program knows up to %d",
			       path, (long long)have, SCHEMA_VERSION);
	if ((r = exec_sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1000;"
			      "PRAGMA journal_size_limit=8388608; PRAGMA cache_size=-512; PRAGMA temp_store=MEMORY",
			  why, "state database")) < 0)
		return r;
	if (have == SCHEMA_VERSION)
		return 0;
	if ((r = exec_sql(db, "BEGIN IMMEDIATE", why, "state database")) < 0)
		return r;
	for (int64_t v = have; v < SCHEMA_VERSION && r == 0; v++) {
		r = exec_sql(db, schema_steps[v], why, "migrating the state database");
		if (r == 0) {
			snprintf(sql, sizeof(sql), "INSERT INTO migration(version, at_ns, program) VALUES (%lld, %lld, '%s')",
				 (long long)v + 1, (long long)real_ns(), SPACE_VERSION);
			r = exec_sql(db, sql, why, "migrating the state database");
		}
	}
	snprintf(sql, sizeof(sql), "PRAGMA user_version=%d; PRAGMA application_id=%d; COMMIT", SCHEMA_VERSION,
		 SCHEMA_APPLICATION_ID);
	if (r == 0)
		r = exec_sql(db, sql, why, "migrating the state database");
	if (r < 0)
		FAULT_SQL(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL));
	return r;
}

static int prepare_all(struct store *s, struct fail *why)
{
	const struct {
		sqlite3_stmt **st;
		const char *sql;
	} all[] = {
		{ &s->put, "INSERT INTO record(tbl, key, body) VALUES (?1, ?2, ?3) "
			   "ON CONFLICT(tbl, key) DO UPDATE SET body = excluded.body" },
		{ &s->del, "DELETE FROM record WHERE tbl = ?1 AND key = ?2" },
		{ &s->event, "INSERT INTO event(seq, at_ns, tenant, sandbox, type, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)" },
		{ &s->begin, "BEGIN IMMEDIATE" },
		{ &s->commit, "COMMIT" },
		{ &s->rollback, "ROLLBACK" },
		{ &s->save, "SAVEPOINT one" },
		{ &s->release, "RELEASE one" },
		{ &s->undo, "ROLLBACK TO one" },
	};
	int rc;

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		rc = sqlite3_prepare_v3(s->w, all[i].sql, -1, SQLITE_PREPARE_PERSISTENT, all[i].st, NULL);
		if (rc != SQLITE_OK)
			return db_fail(s->w, rc, why, "state database");
	}
	return 0;
}

static void on_async(uv_async_t *a);
static void writer_main(void *arg);

static void finalize_all(struct store *s)
{
	sqlite3_stmt *all[] = { s->put, s->del, s->event, s->begin, s->commit, s->rollback, s->save, s->release, s->undo };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		sqlite3_finalize(all[i]);
	FAULT_VOID(sqlite3_close(s->r));
	FAULT_VOID(sqlite3_close(s->w)); /* the last one: checkpoints and removes the WAL */
	if (s->lock_fd >= 0)
		close(s->lock_fd);
}

int store_open(uv_loop_t *loop, const char *path, struct store **out, struct fail *why)
{
	struct store *s = calloc(1, sizeof(*s));
	int64_t seq = 0;
	int r, rc;

	if (!s)
		return fail_set(why, -ENOMEM, "state database: out of memory");
	s->loop = loop;
	s->lock_fd = -1;
	s->queue_last = &s->queue;
	s->finished_last = &s->finished;
	r = lock_take(path, &s->lock_fd, why);
	if (r < 0)
		goto failed;
	make_private(path);
	rc = FAULT_SQL(sqlite3_open_v2(path, &s->w, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL));
	if (rc != SQLITE_OK) {
		r = db_fail(s->w, rc, why, path);
		goto failed;
	}
	sqlite3_busy_timeout(s->w, 5000); /* somebody's sqlite3 shell; never another spaced */
	r = migrate(s->w, path, why);
	if (r < 0)
		goto failed;
	rc = FAULT_SQL(sqlite3_open_v2(path, &s->r, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL));
	if (rc != SQLITE_OK) {
		r = db_fail(s->r, rc, why, path);
		goto failed;
	}
	sqlite3_busy_timeout(s->r, 5000);
	FAULT_SQL(sqlite3_exec(s->r, "PRAGMA cache_size=-256", NULL, NULL, NULL));
	if ((r = prepare_all(s, why)) < 0 ||
	    (r = query_int(s->w, "SELECT max(seq) FROM sqlite_sequence WHERE name = 'event'", &seq, why)) < 0)
		goto failed;
	s->last_seq = (uint64_t)seq;
	uv_mutex_init(&s->mu);
	uv_cond_init(&s->cond);
	r = uv_async_init(loop, &s->async, on_async);
	assert(r == 0);
	s->async.data = s;
	uv_unref((uv_handle_t *)&s->async); /* counts only while somebody waits for a commit */
	r = uv_thread_create(&s->thread, writer_main, s);
	if (r < 0) {
		uv_close((uv_handle_t *)&s->async, NULL);
		r = fail_set(why, r, "state database: no thread: %s", uv_strerror(r));
		goto failed; /* leaks S for the closing handle's sake; the daemon ends here anyway */
	}
	*out = s;
	return 0;
failed:
	finalize_all(s);
	if (!s->async.data)
		free(s);
	return r;
}

/* --- the writer thread --- */

static void bind_str(sqlite3_stmt *st, int at, const char *z)
{
	sqlite3_bind_text(st, at, z, -1, SQLITE_STATIC);
}

static int step_done(sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int trim(struct store *s, unsigned each, unsigned total)
{
	char sql[512];
	int rc;

	snprintf(sql, sizeof(sql),
		 "DELETE FROM event WHERE seq IN (SELECT seq FROM event WHERE seq <= "
		 "(SELECT max(seq) FROM event) - %u ORDER BY seq LIMIT %d)", total, TRIM_STEP);
	rc = FAULT_SQL(sqlite3_exec(s->w, sql, NULL, NULL, NULL));
	if (rc != SQLITE_OK)
		return rc;
	/* (sandbox, seq) is an index: both the count and the cut are walks along it. */
	snprintf(sql, sizeof(sql),
		 "DELETE FROM event WHERE seq IN (SELECT e.seq FROM event e JOIN "
		 "(SELECT sandbox, max(seq) AS top FROM event GROUP BY sandbox HAVING count(*) > %u) m ON m.sandbox = e.sandbox "
		 "WHERE e.seq < (SELECT seq FROM event x WHERE x.sandbox = m.sandbox ORDER BY seq DESC LIMIT 1 OFFSET %u) LIMIT %d)",
		 each, each ? each - 1 : 0, TRIM_STEP);
	return FAULT_SQL(sqlite3_exec(s->w, sql, NULL, NULL, NULL));
}

static int op_apply(struct store *s, const struct op *o)
{
	sqlite3_stmt *st = o->kind == OP_PUT ? s->put : o->kind == OP_DEL ? s->del : s->event;

	switch (o->kind) {
	case OP_TRIM:
		return trim(s, o->keep_each, o->keep_total);
	case OP_PUT:
	case OP_DEL:
		bind_str(st, 1, o->a);
		bind_str(st, 2, o->b);
		if (o->kind == OP_PUT)
			sqlite3_bind_text64(st, 3, o->body.p, o->body.n, SQLITE_STATIC, SQLITE_UTF8);
		break;
	case OP_EVENT:
		sqlite3_bind_int64(st, 1, (sqlite3_int64)o->seq);
		sqlite3_bind_int64(st, 2, o->at_ns);
		bind_str(st, 3, o->a);
		bind_str(st, 4, o->b);
		bind_str(st, 5, o->c);
		sqlite3_bind_text64(st, 6, o->body.p, o->body.n, SQLITE_STATIC, SQLITE_UTF8);
		break;
	}
	return FAULT_SQL(step_done(st));
}

/* One transaction inside the group, undone alone if it fails: its neighbours are not to suffer from it. */
static int txn_apply(struct store *s, struct store_txn *t)
{
	int rc = FAULT_SQL(step_done(s->save));

	for (const struct op *o = t->first; o && rc == SQLITE_OK; o = o->next)
		rc = op_apply(s, o);
	if (rc != SQLITE_OK) {
		db_fail(s->w, rc, &t->why, "state database");
		FAULT_SQL(step_done(s->undo));
	}
	FAULT_SQL(step_done(s->release));
	return rc;
}

static void group_write(struct store *s, struct store_txn *group)
{
	struct fail why = { 0 };
	int rc = FAULT_SQL(step_done(s->begin));

	for (struct store_txn *t = group; t && rc == SQLITE_OK; t = t->next) {
		if (t->err < 0)
			fail_set(&t->why, t->err, "state database: %s", strerror(-t->err));
		else
			(void)txn_apply(s, t);
		/* A full disk rolls the whole transaction back behind our back. */
		if (sqlite3_get_autocommit(s->w)) {
			rc = SQLITE_FULL;
			why = t->why;
		}
	}
	if (rc == SQLITE_OK)
		rc = FAULT_SQL(step_done(s->commit));
	if (rc == SQLITE_OK)
		return;
	if (!why.err)
		db_fail(s->w, rc, &why, "state database");
	if (!sqlite3_get_autocommit(s->w))
		FAULT_SQL(step_done(s->rollback));
	for (struct store_txn *t = group; t; t = t->next)
		t->why = why;
}

static void writer_main(void *arg)
{
	struct store *s = arg;
	struct store_txn *group, **end, *next_queue;
	size_t bytes;
	unsigned n;

	for (;;) {
		uv_mutex_lock(&s->mu);
		while (!s->queue && !s->stopping)
			uv_cond_wait(&s->cond, &s->mu);
		if (!s->queue) {
			uv_mutex_unlock(&s->mu);
			return;
		}
		group = s->queue;
		bytes = 0;
		for (end = &group, n = 0; *end && n < GROUP_MAX; n++) {
			bytes += (*end)->bytes;
			end = &(*end)->next;
		}
		next_queue = *end;
		*end = NULL;
		s->queue = next_queue;
		if (!next_queue)
			s->queue_last = &s->queue;
		uv_mutex_unlock(&s->mu);

		group_write(s, group);

		uv_mutex_lock(&s->mu);
		s->queued -= bytes;
		*s->finished_last = group;
		s->finished_last = end == &group ? s->finished_last : end;
		uv_mutex_unlock(&s->mu);
		uv_async_send(&s->async);
	}
}

/* --- the loop's side --- */

static void txn_free(struct store_txn *t)
{
	struct op *next;

	for (struct op *o = t->first; o; o = next) {
		next = o->next;
		free(o);
	}
	free(t);
}

static void call_finished(struct store *s)
{
	struct store_txn *t, *next;

	uv_mutex_lock(&s->mu);
	t = s->finished;
	s->finished = NULL;
	s->finished_last = &s->finished;
	uv_mutex_unlock(&s->mu);
	for (; t; t = next) {
		next = t->next;
		if (--s->pending == 0)
			uv_unref((uv_handle_t *)&s->async);
		if (t->done)
			t->done(t->arg, &t->why);
		else if (t->why.err)
			log_error("store: a change was lost: %s", t->why.msg);
		txn_free(t);
	}
}

static void on_async(uv_async_t *a)
{
	call_finished(a->data);
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	uv_mutex_lock(&s->mu);
	s->stopping = true;
	uv_cond_signal(&s->cond);
	uv_mutex_unlock(&s->mu);
	uv_thread_join(&s->thread);
	call_finished(s);
	finalize_all(s);
	uv_cond_destroy(&s->cond);
	uv_mutex_destroy(&s->mu);
	uv_close((uv_handle_t *)&s->async, on_closed);
}

struct store_txn *store_begin(struct store *s)
{
	struct store_txn *t = calloc(1, sizeof(*t));

	if (t) {
		t->store = s;
		t->last = &t->first;
	}
	return t;
}

static const char *pack(char **at, const char *z, size_t n)
{
	char *p = *at;

	memcpy(p, z, n);
	p[n] = '\0';
	*at += n + 1;
	return p;
}

static struct op *op_add(struct store_txn *t, enum op_kind kind, const char *a, const char *b, const char *c, struct str body)
{
	size_t la = strlen(a), lb = strlen(b), lc = strlen(c), all = sizeof(struct op) + la + lb + lc + body.n + 4;
	struct op *o;
	char *at;

	if (t->bytes + all > TXN_MAX) {
		t->err = -EFBIG;
		return NULL;
	}
	o = calloc(1, all);
	if (!o) {
		t->err = -ENOMEM;
		return NULL;
	}
	at = (char *)(o + 1);
	o->kind = kind;
	o->a = pack(&at, a, la);
	o->b = pack(&at, b, lb);
	o->c = pack(&at, c, lc);
	o->body = (struct str){ pack(&at, body.n ? body.p : "", body.n), body.n };
	t->bytes += all;
	*t->last = o;
	t->last = &o->next;
	return o;
}

int store_put(struct store_txn *t, const char *table, const char *key, struct str body)
{
	if (!t)
		return -ENOMEM;
	return op_add(t, OP_PUT, table, key, "", body) ? 0 : t->err;
}

int store_del(struct store_txn *t, const char *table, const char *key)
{
	if (!t)
		return -ENOMEM;
	return op_add(t, OP_DEL, table, key, "", (struct str){ NULL, 0 }) ? 0 : t->err;
}

int store_event(struct store_txn *t, const char *tenant, const char *sandbox, int64_t at_ns, const char *type, struct str body,
		uint64_t *seq)
{
	struct op *o;

	if (!t)
		return -ENOMEM;
	o = op_add(t, OP_EVENT, tenant, sandbox, type, body);
	if (!o)
		return t->err;
	o->at_ns = at_ns;
	o->seq = ++t->store->last_seq;
	if (seq)
		*seq = o->seq;
	return 0;
}

void store_commit(struct store_txn *t, store_done_fn *done, void *arg)
{
	struct store *s = t->store;

	t->done = done;
	t->arg = arg;
	t->next = NULL;
	if (s->pending++ == 0)
		uv_ref((uv_handle_t *)&s->async);
	uv_mutex_lock(&s->mu);
	if (!t->err && s->queued + t->bytes > QUEUE_MAX)
		t->err = -ENOBUFS;
	s->queued += t->bytes;
	*s->queue_last = t;
	s->queue_last = &t->next;
	uv_cond_signal(&s->cond);
	uv_mutex_unlock(&s->mu);
}

void store_trim_events(struct store *s, unsigned keep_per_sandbox, unsigned keep_total)
{
	struct store_txn *t = store_begin(s);
	struct op *o = t ? op_add(t, OP_TRIM, "", "", "", (struct str){ NULL, 0 }) : NULL;

	if (!o) {
		free(t);
		return; /* the next time will do */
	}
	o->keep_each = keep_per_sandbox;
	o->keep_total = keep_total;
	FAULT_VOID(store_commit(t, NULL, NULL));
}

/* --- reading --- */

static struct str column_str(sqlite3_stmt *st, int i)
{
	const char *p = (const char *)sqlite3_column_text(st, i);

	return (struct str){ p ? p : "", p ? (size_t)sqlite3_column_bytes(st, i) : 0 };
}

int store_scan(struct store *s, const char *table, store_row_fn *fn, void *arg, struct fail *why)
{
	sqlite3_stmt *st = NULL;
	int rc, r = 0;

	rc = sqlite3_prepare_v2(s->r, "SELECT key, body FROM record WHERE tbl = ?1 ORDER BY key", -1, &st, NULL);
	if (rc != SQLITE_OK)
		return db_fail(s->r, rc, why, "state database");
	bind_str(st, 1, table);
	while (r == 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct str key = column_str(st, 0);

		r = fn(arg, key.p, column_str(st, 1));
	}
	if (r == 0 && rc != SQLITE_DONE)
		r = db_fail(s->r, rc, why, "state database");
	sqlite3_finalize(st);
	return r < 0 ? r : 0;
}

int store_events(struct store *s, const char *tenant, const char *sandbox, uint64_t after, unsigned limit, store_event_fn *fn, void *arg,
		 struct fail *why)
{
	static const char *const sql[] = {
#define EVENTS(which) "SELECT seq, at_ns, tenant, sandbox, type, body FROM event WHERE " which "seq > ?1 ORDER BY seq LIMIT ?2"
		EVENTS(""),
		EVENTS("tenant = ?3 AND "),
		EVENTS("sandbox = ?4 AND "),
		EVENTS("sandbox = ?4 AND tenant = ?3 AND "),
#undef EVENTS
	};
	struct store_event_row e;
	sqlite3_stmt *st = NULL;
	int rc, r = 0;

	if (after > INT64_MAX)
		return 0;
	rc = sqlite3_prepare_v2(s->r, sql[(tenant ? 1 : 0) + (sandbox ? 2 : 0)], -1, &st, NULL);
	if (rc != SQLITE_OK)
		return db_fail(s->r, rc, why, "state database");
	sqlite3_bind_int64(st, 1, (sqlite3_int64)after);
	sqlite3_bind_int64(st, 2, limit);
	if (tenant)
		bind_str(st, 3, tenant);
	if (sandbox)
		bind_str(st, 4, sandbox);
	while (r == 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		e.seq = (uint64_t)sqlite3_column_int64(st, 0);
		e.at_ns = sqlite3_column_int64(st, 1);
		e.tenant = column_str(st, 2).p;
		e.sandbox = column_str(st, 3).p;
		e.type = column_str(st, 4).p;
		e.body = column_str(st, 5);
		r = fn(arg, &e);
	}
	if (r == 0 && rc != SQLITE_DONE)
		r = db_fail(s->r, rc, why, "state database");
	sqlite3_finalize(st);
	return r < 0 ? r : 0;
}

uint64_t store_last_seq(struct store *s)
{
	return s->last_seq;
}
