/* store.h - records on disk: SQLite (WAL, synchronous=FULL), one writer thread, transactions committed in groups.
 *
 * What must be kept is written as a list of changes; store_commit() hands the list to the writer thread and calls back on the loop once
 * it is on disk. Changes handed over together, or while the writer is busy, share one fsync. Order is kept. Reads happen at start (loading
 * everything into memory) and for event and operation history. The schema has a version; an older one is migrated in one transaction, a
 * newer one is refused (state_version) before anything is written. */
#ifndef SPACE_STORE_H
#define SPACE_STORE_H

#include <uv.h>

#include "base/fail.h"
#include "base/str.h"

struct store;
struct store_txn;

int store_open(uv_loop_t *loop, const char *path, struct store **out, struct fail *why); /* blocking; makes or migrates the file, locks it */
void store_close(struct store *s); /* waits until everything handed over is on disk */

/* A transaction under construction. Put and delete are by table and key; BODY is the record as JSON text (copied). */
struct store_txn *store_begin(struct store *s);
int store_put(struct store_txn *t, const char *table, const char *key, struct str body);
int store_del(struct store_txn *t, const char *table, const char *key);
/* An event: gets the next number of its log when it is committed; *seq (may be NULL) gets it at once. */
int store_event(struct store_txn *t, const char *tenant, const char *sandbox, int64_t at_ns, const char *type, struct str body, uint64_t *seq);

typedef void store_done_fn(void *arg, const struct fail *why);
/* Hands T over. done (may be NULL) comes on the loop, after the fsync. T is gone. */
void store_commit(struct store_txn *t, store_done_fn *done, void *arg);

/* Blocking reads, from the loop thread, of what was committed. */
typedef int store_row_fn(void *arg, const char *key, struct str body);
int store_scan(struct store *s, const char *table, store_row_fn *fn, void *arg, struct fail *why);
struct store_event_row { uint64_t seq; int64_t at_ns; const char *tenant, *sandbox, *type; struct str body; };
typedef int store_event_fn(void *arg, const struct store_event_row *e);
/* Events with seq > AFTER of that tenant and sandbox (NULL: all), oldest first, at most LIMIT. */
int store_events(struct store *s, const char *tenant, const char *sandbox, uint64_t after, unsigned limit, store_event_fn *fn, void *arg, struct fail *why);
uint64_t store_last_seq(struct store *s);
void store_trim_events(struct store *s, unsigned keep_per_sandbox, unsigned keep_total); /* bounded history; in the background */

#endif
