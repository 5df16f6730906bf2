/* take.c - a checkpoint or a snapshot, asked for by a client: of one that runs or is paused by save.c; of a suspended one the node that it lies in is
 * copied, which costs no blocks where the pool can clone. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "sandbox/core.h"

struct taker {
	struct taker *next;
	checkpoint_done_fn *done;
	void *arg;
};

struct take {
	struct sandbox_core *c;
	struct space *sp;
	enum node_kind kind;
	char label[128], idem[129];
	struct taker first, *joined; /* joined: the same key, meanwhile */
	/* of a suspended one */
	struct tree_node *from, *n; /* pinned */
	struct node node;
	json_t *meta; /* for the job alone */
	int node_fd;
	struct live_event *ev;
};

static void take_end(struct take *t, const struct fail *why)
{
	struct sandbox_core *c = t->c;
	struct taker *j = t->joined, *next;
	const struct checkpoint *k = why->err ? NULL : &t->n->k;

	c->doing = false;
	c->take = NULL;
	t->first.done(k, why, t->first.arg);
	for (; j; j = next) {
		next = j->next;
		j->done(k, why, j->arg);
		free(j);
	}
	if (t->n)
		tree_unpin(t->n);
	json_decref(t->meta);
	if (!c->ending)
		deadline_arm(c);
	nodes_collect(t->sp);
	sandbox_release(&c->sb);
	free(t);
}

static void saved(struct tree_node *n, const struct fail *why, void *arg)
{
	struct take *t = arg;

	t->n = n;
	take_end(t, why);
}

/* --- of a suspended one --- */

static int copy_file(int from_dir, int to_dir, const char *name, struct fail *why)
{
	autoclose int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), to = -1;
	bool cloned;
	int r;

	if (from < 0)
		return errno == ENOENT ? 0 : fail_set(why, -errno, "checkpoint: %s: %s", name, strerror(errno));
	to = FAULT(openat(to_dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (to < 0)
		return fail_set(why, -errno, "checkpoint: %s: %s", name, strerror(errno));
	r = FAULT_OURS(file_dup(to, from, &cloned));
	if (r == 0 && FAULT(fdatasync(to)) < 0)
		r = -errno;
	return r < 0 ? fail_set(why, r, "checkpoint: %s: %s", name, strerror(-r)) : 0;
}

static int copy_job(void *arg, struct fail *why)
{
	struct take *t = arg;
	autoclose int from = node_open(t->sp->pool, t->from->k.id, why);
	int r = from;

	if (r >= 0)
		r = node_read(t->sp->pool, t->from->k.id, &t->node, why);
	if (r >= 0)
		r = t->node_fd = FAULT_WHY(why, node_begin(t->sp->pool, t->node.id, why));
	if (r >= 0)
		r = copy_file(from, t->node_fd, "disk", why);
	if (r >= 0 && t->kind != NODE_SNAPSHOT && (r = copy_file(from, t->node_fd, "memory", why)) >= 0)
		r = copy_file(from, t->node_fd, "state", why);
	return r < 0 ? r : 0;
}

static int commit_job(void *arg, struct fail *why)
{
	struct take *t = arg;
	int r = node_meta_write(t->node_fd, t->meta, why);

	return r < 0 ? r : FAULT_WHY(why, node_commit(t->sp->pool, t->node_fd, &t->node, why));
}

static int abort_job(void *arg, struct fail *why)
{
	struct take *t = arg;

	if (t->node_fd >= 0) {
		close(t->node_fd);
		(void)FAULT_OURS(node_abort(t->sp->pool, t->node.id));
	}
	return 0;
}

struct failed {
	struct take *t;
	struct fail why;
};

static void aborted(void *arg, const struct fail *why)
{
	struct failed *f = arg;
	struct take *t = f->t;
	struct fail told = f->why;

	free(f);
	tree_unpin(t->from);
	if (t->n) {
		t->n->there = false;
		tree_unpin(t->n);
		tree_remove(t->n, NULL, NULL, NULL);
		t->n = NULL;
	}
	log_warning("sandbox %s: not saved: %s", t->c->sb.id, told.msg);
	take_end(t, &told);
}

static int abort_in_job(void *arg, struct fail *why)
{
	return abort_job(((struct failed *)arg)->t, why);
}

/* True when the way ends here: WHY, or the sandbox's end. */
static bool failed(struct take *t, const struct fail *why)
{
	struct failed *f;
	struct fail gone = { 0 };

	if (t->c->ending)
		fail_as(&gone, ERR_sandbox_gone, "sandbox %s has ended: %s", t->c->sb.id, t->c->sb.reason);
	if (!why->err && !gone.err)
		return false;
	f = calloc(1, sizeof(*f));
	if (!f)
		abort(); /* a hundred bytes */
	*f = (struct failed){ t, gone.err ? gone : *why };
	space_job(t->sp, NULL, abort_in_job, aborted, f);
	return true;
}

static void recorded(void *arg, const struct fail *why)
{
	struct take *t = arg;

	t->c->moves--;
	event_publish(t->sp, t->ev, !why->err);
	if (failed(t, why))
		return;
	close(t->node_fd);
	tree_unpin(t->from);
	t->sp->checkpoints++;
	log_info("sandbox %s: saved checkpoint=%s kind=%s from=%s", t->c->sb.id, t->n->k.id, node_kind_name(t->kind), t->from->k.id);
	take_end(t, why);
}

static void committed(void *arg, const struct fail *why)
{
	struct take *t = arg;
	struct sandbox_core *c = t->c;
	struct store_txn *txn;
	struct fail f = { 0 };
	struct buf b;
	struct jw w;
	int r;

	if (failed(t, why))
		return;
	t->n->there = true;
	if (t->kind != NODE_SNAPSHOT)
		memcpy(c->sb.checkpoint, t->n->k.id, sizeof(c->sb.checkpoint));
	txn = store_begin(t->sp->store);
	buf_init(&b, 4 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	tree_write(&w, "checkpoint", &t->n->k);
	jw_obj_end(&w);
	r = txn ? w.err : -ENOMEM;
	if (r == 0)
		r = tree_put(t->n, txn);
	if (r == 0)
		r = core_put(c, txn);
	if (r == 0)
		r = event_add(t->sp, txn, c->sb.tenant, c->sb.id, t->kind == NODE_SNAPSHOT ? "snapshot" : "checkpoint", buf_str(&b), &t->ev);
	buf_clear(&b);
	c->moves++;
	if (r == 0) {
		FAULT_VOID(store_commit(txn, recorded, t));
		return;
	}
	free(txn);
	fail_set(&f, r, "checkpoint: its record could not be made: %s", strerror(-r));
	recorded(t, &f);
}

static void named(void *arg, const struct fail *why)
{
	struct take *t = arg;

	if (!failed(t, why))
		space_job(t->sp, NULL, commit_job, committed, t);
}

static void copied(void *arg, const struct fail *why)
{
	struct take *t = arg;
	struct checkpoint k = t->from->k;
	struct store_txn *txn;
	struct fail f = { 0 };

	if (failed(t, why))
		return;
	k.kind = t->kind;
	k.created_ns = real_ns();
	(void)str_copy(k.id, sizeof(k.id), str_of(t->node.id));
	(void)str_copy(k.label, sizeof(k.label), str_of(t->label));
	if (t->kind == NODE_SNAPSHOT)
		k.memory = 0;
	memcpy(t->node.label, k.label, sizeof(t->node.label));
	t->node.created_ns = k.created_ns;
	t->node.has_memory = k.memory != 0;
	t->node.memory = k.memory;
	(void)str_copy(t->node.kind, sizeof(t->node.kind), str_of(node_kind_name(k.kind)));
	t->n = tree_add(t->sp, &k);
	txn = t->n ? store_begin(t->sp->store) : NULL;
	if (t->n) {
		t->n->generation = t->from->generation;
		t->n->guest = json_incref(t->from->guest);
		t->meta = node_meta(t->n);
		memcpy(t->n->initrd_digest, t->from->initrd_digest, sizeof(t->n->initrd_digest));
		(void)str_copy(t->n->idem, sizeof(t->n->idem), str_of(t->idem));
	}
	if (!txn || !t->meta || tree_put(t->n, txn) < 0) {
		free(txn);
		fail_set(&f, -ENOMEM, "out of memory");
		(void)failed(t, &f);
		return;
	}
	FAULT_VOID(store_commit(txn, named, t));
}

static void take_copy(struct take *t)
{
	struct sandbox_core *c = t->c;
	struct fail f = { 0 };

	t->from = tree_find(t->sp, c->lies_in);
	if (!t->from) {
		fail_as(&f, ERR_checkpoint_not_found, "sandbox %s lies in checkpoint %s, which is not there", c->sb.id, c->lies_in);
		take_end(t, &f);
		return;
	}
	tree_pin(t->from);
	space_job(t->sp, c->q, copy_job, copied, t);
}

/* --- the call --- */

static int check(const struct checkpoint_req *q, struct fail *why)
{
	if (q->label && (strlen(q->label) > 127 || str_has_ctl(str_of(q->label))))
		return fail_as(why, ERR_bad_request, "label: at most 127 bytes, without control characters");
	if (q->idempotency_key && (strlen(q->idempotency_key) > 128 || str_has_ctl(str_of(q->idempotency_key))))
		return fail_as(why, ERR_bad_request, "Idempotency-Key: at most 128 characters");
	return 0;
}

static void conflict(struct fail *why, const char *what)
{
	fail_as(why, ERR_conflict, "Idempotency-Key: it was used for a different checkpoint%s%s", what ? ": " : "", what ? what : "");
	fail_remedy(why, "use a new key for a new request");
}

/* True when it was answered, or will be, by what an earlier call with the same key makes or has made. */
static bool seen_before(struct sandbox_core *c, const struct checkpoint_req *q, enum node_kind kind, checkpoint_done_fn *done, void *arg)
{
	const char *key = q->idempotency_key, *label = q->label ? q->label : "";
	struct fail why = { 0 };
	struct tree_node *n = NULL;
	struct taker *j, **at;

	if (!key || !key[0])
		return false;
	if (c->take && !strcmp(c->take->idem, key)) {
		if (c->take->kind != kind || strcmp(c->take->label, label)) {
			conflict(&why, NULL);
		} else if (!(j = calloc(1, sizeof(*j)))) {
			fail_set(&why, -ENOMEM, "out of memory");
		} else {
			j->done = done;
			j->arg = arg;
			for (at = &c->take->joined; *at; at = &(*at)->next)
				;
			*at = j;
			return true;
		}
		done(NULL, &why, arg);
		return true;
	}
	link_each_safe(l, next, &c->sp->nodes) {
		struct tree_node *k = container_of(l, struct tree_node, link);

		if (k->there && !k->removing && !strcmp(k->idem, key) && !strcmp(k->k.sandbox, c->sb.id))
			n = k;
	}
	if (!n)
		return false;
	if (n->k.kind != kind || strcmp(n->k.label, label))
		conflict(&why, n->k.id);
	done(why.err ? NULL : &n->k, &why, arg);
	return true;
}

int savable(struct sandbox_core *c, struct fail *why)
{
	if (c->ending || state_ended(c->state))
		return fail_as(why, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
	if (c->doing || c->start)
		return fail_as(why, ERR_busy, "sandbox %s is %s%s", c->sb.id, sandbox_state_name(c->state),
			       c->turn || c->start ? "" : ", and is being saved");
	if (c->sp->stopping)
		return fail_as(why, ERR_daemon_down, "spaced is stopping");
	if (c->state != SANDBOX_RUNNING && c->state != SANDBOX_PAUSED && c->state != SANDBOX_SUSPENDED)
		return fail_as(why, ERR_sandbox_not_running, "sandbox %s is %s", c->sb.id, sandbox_state_name(c->state));
	return 0;
}

void sandbox_checkpoint(struct sandbox *sb, const struct checkpoint_req *q, checkpoint_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	enum node_kind kind = q->disk_only ? NODE_SNAPSHOT : NODE_CHECKPOINT;
	struct fail why = { 0 };
	struct take *t = NULL;

	if (check(q, &why) == 0 && seen_before(c, q, kind, done, arg))
		return;
	if (!why.err && savable(c, &why) == 0 && kind == NODE_SNAPSHOT && sb->read_only)
		fail_as(&why, ERR_bad_request, "sandbox %s has a read-only root: it has no disk to take a snapshot of", sb->id);
	if (!why.err && !(t = calloc(1, sizeof(*t))))
		fail_set(&why, -ENOMEM, "out of memory");
	if (!t) {
		done(NULL, &why, arg);
		return;
	}
	*t = (struct take){ .c = c, .sp = c->sp, .kind = kind, .node_fd = -1, .first = { .done = done, .arg = arg } };
	(void)str_copy(t->label, sizeof(t->label), str_of(q->label));
	(void)str_copy(t->idem, sizeof(t->idem), str_of(q->idempotency_key));
	c->doing = true;
	c->take = t;
	sandbox_hold(sb);
	if (c->state == SANDBOX_SUSPENDED)
		take_copy(t);
	else
		save_node(c, &(struct save_req){ .kind = kind, .label = t->label, .idem = t->idem }, saved, t);
}
