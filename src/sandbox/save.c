/* save.c - writing a node from a machine.
 *
 *   begin    files are made, what the guest has to itself is copied while it runs; beside it the node's name goes to the store
 *   freeze   /freeze: user processes stand still, so that none runs in a clone before that knows who it is. A guest that does not answer is
 *            saved as it stands. One that is paused is let run for this, since nobody can freeze it otherwise
 *   still    the vCPUs stop, device state, memory and disk are taken at one instant; they go on if they went before
 *   thaw     /init with the same identity; side by side with
 *   end      what differs is written and synced
 *   commit   node.json, and into its place
 *   record   the node is there, it is the sandbox's latest; with the event
 *
 * Whatever fails, or ends the sandbox, the way goes on to undo(): what was written is removed, the guest thawed. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "sandbox/core.h"

#define FREEZE_MS 5000	     /* user processes stand still by then, or it is saved as it stands */
#define FREEZE_FS_MS 9000    /* the agent's watchdog thaws file systems after 10 s */
#define THAW_MS 10000
#define THAW_UNSURE_MS 1500 /* one that did not answer before */

struct saving {
	struct sandbox_core *c;
	struct space *sp;
	struct machine *m; /* not looked at once C is ending: it may be gone */
	enum node_kind kind;
	char label[128], idem[129];
	bool disk_only, leave_stopped;
	bool was_running; /* the guest, when it began */
	bool frozen;	  /* it has said so */
	bool touched;	  /* it was asked to freeze: only an /init makes it sure that it goes on */
	unsigned under_way; /* of what goes side by side */
	int node_fd;
	struct vm_save *save;
	struct vm_saved saved;
	struct node node;
	char parent[24], started_from[24];
	struct tree_node *n;
	json_t *meta; /* N's words about the guest, for the job alone */
	bool committed;
	bool gone; /* undo(): C has ended, and its machine may be gone */
	double paused_ms;
	uint64_t own, shared;
	struct live_event *ev;
	struct fail why; /* the first that went wrong */
	save_fn *fn;
	void *arg;
};

static void undo(struct saving *s);

static void remember(struct saving *s, const struct fail *why)
{
	if (why->err && !s->why.err)
		s->why = *why;
}

/* To be asked at the end of each step. */
static bool lost(struct saving *s, const struct fail *why)
{
	struct sandbox_core *c = s->c;
	struct fail gone = { 0 };

	if (c->ending || c->m != s->m) {
		s->why.err = 0; /* whatever went wrong then is no news */
		fail_as(&gone, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
		remember(s, &gone);
	}
	remember(s, why);
	return s->why.err != 0;
}

static void finish(struct saving *s)
{
	struct sandbox_core *c = s->c;

	if (s->node_fd >= 0)
		close(s->node_fd);
	json_decref(s->meta);
	if (s->why.err) {
		watch_explain(&s->why, ERR_sandbox_gone);
		log_warning("sandbox %s: not saved: %s", c->sb.id, s->why.msg);
	}
	s->fn(s->why.err ? NULL : s->n, &s->why, s->arg);
	free(s);
	sandbox_unkeep(&c->sb);
}

/* --- record --- */

static int event_of(struct saving *s, struct store_txn *t)
{
	struct sandbox_core *c = s->c;
	struct buf b;
	struct jw w;
	int r;

	if (s->kind == NODE_SUSPEND)
		return 0; /* its state says it */
	buf_init(&b, 4 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	tree_write(&w, "checkpoint", &s->n->k);
	jw_obj_end(&w);
	r = w.err;
	if (r == 0)
		r = event_add(s->sp, t, c->sb.tenant, c->sb.id, s->kind == NODE_SNAPSHOT ? "snapshot" : "checkpoint", buf_str(&b), &s->ev);
	buf_clear(&b);
	return r;
}

static void recorded(void *arg, const struct fail *why)
{
	struct saving *s = arg;

	event_publish(s->sp, s->ev, !why->err);
	s->c->moves--;
	if (why->err) {
		remember(s, why);
		undo(s);
		return;
	}
	s->sp->checkpoints++;
	log_info("sandbox %s: saved checkpoint=%s kind=%s own=%llu paused_ms=%.1f", s->c->sb.id, s->n->k.id, node_kind_name(s->kind),
		 (unsigned long long)s->n->k.own_bytes, s->n->k.paused_ms);
	finish(s);
}

static void record(struct saving *s)
{
	struct sandbox_core *c = s->c;
	struct tree_node *n = s->n;
	struct store_txn *t = store_begin(s->sp->store);
	char before[24];
	struct fail f = { 0 };
	int r = t ? 0 : -ENOMEM;

	memcpy(before, c->sb.checkpoint, sizeof(before));
	n->there = true;
	if (s->kind == NODE_CHECKPOINT || s->kind == NODE_BRANCH)
		memcpy(c->sb.checkpoint, n->k.id, sizeof(c->sb.checkpoint));
	if (r == 0)
		r = tree_put(n, t);
	if (r == 0)
		r = core_put(c, t);
	if (r == 0)
		r = event_of(s, t);
	if (r < 0) {
		free(t);
		n->there = false;
		memcpy(c->sb.checkpoint, before, sizeof(before));
		fail_set(&f, r, "checkpoint: its record could not be made: %s", strerror(-r));
		remember(s, &f);
		undo(s);
		return;
	}
	c->moves++;
	FAULT_VOID(store_commit(t, recorded, s));
}

/* --- end and commit --- */

static int commit_job(void *arg, struct fail *why)
{
	struct saving *s = arg;
	uint64_t own, shared;
	int r = node_meta_write(s->node_fd, s->meta, why);

	if (r == 0)
		r = FAULT_WHY(why, node_commit(s->sp->pool, s->node_fd, &s->node, why));

	s->committed = r == 0;
	/* Extents know the disk too. What the driver has counted holds where they cannot be asked. */
	if (r == 0 && node_usage(s->sp->pool, s->node.id, s->parent, &own, &shared, NULL) == 0) {
		s->own = own;
		s->shared = shared;
	}
	return r;
}

static void committed(void *arg, const struct fail *why)
{
	struct saving *s = arg;

	s->n->k.own_bytes = s->own;
	s->n->k.shared_bytes = s->shared;
	if (lost(s, why))
		undo(s);
	else
		record(s);
}

static void one_less(struct saving *s)
{
	struct checkpoint *k = &s->n->k;

	if (--s->under_way)
		return;
	if (lost(s, &(struct fail){ 0 })) {
		undo(s);
		return;
	}
	s->own = s->saved.memory_bytes + s->saved.state_bytes;
	s->shared = s->saved.memory_shared;
	k->paused_ms = s->disk_only ? s->paused_ms : s->saved.paused_ms ? s->saved.paused_ms : s->paused_ms;
	s->node.own_bytes = s->own;
	space_job(s->sp, NULL, commit_job, committed, s);
}

static int end_job(void *arg, struct fail *why)
{
	struct saving *s = arg;
	struct vm_save *save = s->save;

	s->save = NULL;
	return save ? FAULT_WHY(why, s->sp->drv->save_end(save, true, &s->saved, why)) : 0;
}

static void ended(void *arg, const struct fail *why)
{
	struct saving *s = arg;

	remember(s, why);
	one_less(s);
}

static void named(void *arg, const struct fail *why)
{
	struct saving *s = arg;

	remember(s, why);
	one_less(s);
}

static void thawed(const struct fail *why, void *arg)
{
	struct saving *s = arg;

	if (why->err && !s->c->ending)
		log_warning("sandbox %s: saved, and its agent has not answered since: %s", s->c->sb.id, why->msg);
	one_less(s);
}

static void taken(void *arg, const struct fail *why)
{
	struct saving *s = arg;
	struct sandbox_core *c = s->c;

	if (lost(s, why)) {
		one_less(s);
		return;
	}
	s->under_way++;
	space_job(s->sp, c->q, end_job, ended, s);
	if (s->was_running && !s->leave_stopped) {
		s->under_way++;
		s->touched = false;
		identity_send(c, false, s->frozen ? THAW_MS : THAW_UNSURE_MS, thawed, s);
	}
	one_less(s);
}

/* --- the instant --- */

/* With its file systems frozen nothing is written while the guest goes on. One that could not be frozen stands still for the copy. */
static int clone_disk(struct saving *s, bool stop, struct fail *why)
{
	const struct driver *drv = s->sp->drv;
	autoclose int from = -1, to = -1;
	char path[64];
	bool cloned;
	int r, r2;

	snprintf(path, sizeof(path), "sandboxes/%s/disk", s->m->id);
	from = openat(pool_dirfd(s->sp->pool), path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	to = FAULT(openat(s->node_fd, "disk", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (from < 0 || to < 0)
		return fail_set(why, -errno, "snapshot: disk: %s", strerror(errno));
	if (stop && (r = FAULT_WHY(why, drv->pause(s->m->vm, why))) < 0)
		return r;
	r = FAULT_OURS(file_dup(to, from, &cloned));
	if (r < 0)
		fail_set(why, r, "snapshot: disk: %s", strerror(-r));
	if (stop) {
		struct fail f = { 0 };

		r2 = FAULT_WHY(&f, drv->resume(s->m->vm, &f));
		if (r == 0 && r2 < 0) {
			*why = f;
			r = r2;
		}
	}
	if (r == 0 && FAULT(fdatasync(to)) < 0)
		r = fail_set(why, -errno, "snapshot: disk: %s", strerror(errno));
	return r;
}

static int take_job(void *arg, struct fail *why)
{
	struct saving *s = arg;
	const struct driver *drv = s->sp->drv;
	/* One that was paused, or is to stay stopped, does not run on after the instant. */
	bool stop = s->leave_stopped || !s->was_running;
	int64_t from = mono_ns();
	int r = 0;

	if (s->disk_only)
		r = clone_disk(s, s->was_running && !s->frozen, why);
	else if (stop)
		r = FAULT_WHY(why, drv->pause(s->m->vm, why));
	if (r == 0 && !s->disk_only)
		r = FAULT_WHY(why, drv->save_still(s->save, why));
	s->paused_ms = s->disk_only || stop ? (double)(mono_ns() - from) / NS_PER_MS : 0;
	return r;
}

static void take(struct saving *s)
{
	space_job(s->sp, s->c->q, take_job, taken, s);
}

/* --- freeze --- */

static void froze(int status, json_t *answer, const struct fail *why, void *arg)
{
	struct saving *s = arg;

	if (lost(s, &(struct fail){ 0 })) {
		one_less(s);
		return;
	}
	s->frozen = !why->err && status / 100 == 2;
	if (!s->frozen)
		log_warning("sandbox %s: its guest does not stand still and is saved as it is: %s", s->c->sb.id,
			    why->err ? why->msg : "its agent refuses");
	take(s);
}

static void freeze(struct saving *s)
{
	struct sandbox_core *c = s->c;
	autojson json_t *body = json_pack("{s:b}", "fs", s->disk_only);
	struct fail why = { 0 };

	if (!c->agent && agent_open(c, &why) < 0) {
		froze(0, NULL, &why, s);
		return;
	}
	s->touched = true;
	agent_call(c->agent, NULL, "POST", "/freeze", body, s->disk_only ? FREEZE_FS_MS : FREEZE_MS, froze, s);
}

static int run_job(void *arg, struct fail *why)
{
	struct saving *s = arg;

	return FAULT_WHY(why, s->sp->drv->resume(s->m->vm, why));
}

static void runs(void *arg, const struct fail *why)
{
	struct saving *s = arg;

	if (lost(s, why))
		one_less(s);
	else
		freeze(s);
}

/* --- begin --- */

/* What the guest's kernel and agent are is as in the node that it was started from. */
static void read_ancestor(struct saving *s)
{
	struct fail ignored = { 0 };
	struct node from;

	if (node_read(s->sp->pool, s->started_from, &from, &ignored) < 0 && node_read(s->sp->pool, s->parent, &from, &ignored) < 0)
		return;
	s->node.agent_protocol = from.agent_protocol;
	if (!s->node.initrd.hex[0])
		s->node.initrd = from.initrd;
}

static int begin_job(void *arg, struct fail *why)
{
	struct saving *s = arg;
	autoclose int parent = -1;
	struct fail none = { 0 };

	read_ancestor(s);
	if (s->disk_only)
		return 0;
	parent = s->parent[0] ? node_open(s->sp->pool, s->parent, &none) : -1;
	return FAULT_WHY(why, s->sp->drv->save_begin(s->m->vm, s->node_fd, parent, &s->save, why));
}

static void begun(void *arg, const struct fail *why)
{
	struct saving *s = arg;
	struct sandbox_core *c = s->c;

	if (lost(s, why)) {
		one_less(s);
		return;
	}
	(void)str_copy(s->n->initrd_digest, sizeof(s->n->initrd_digest), str_of(s->node.initrd.hex));
	(void)str_copy(c->initrd_digest, sizeof(c->initrd_digest), str_of(s->node.initrd.hex));
	if (s->was_running)
		freeze(s);
	else if (s->disk_only)
		take(s); /* it stands still: its disk is what it would be after a power cut */
	else
		space_job(s->sp, c->q, run_job, runs, s);
}

static void fill(struct saving *s, struct checkpoint *k)
{
	struct sandbox *sb = &s->c->sb;
	struct node *n = &s->node;

#define COPY(to, from) ((void)str_copy(to, sizeof(to), str_of(from)))
	*k = (struct checkpoint){ .kind = s->kind, .vcpu = sb->vcpu, .memory = s->disk_only ? 0 : sb->memory, .disk = sb->disk, .read_only = sb->read_only,
				  .created_ns = real_ns() };
	COPY(k->id, n->id);
	COPY(k->parent, s->parent);
	COPY(k->tenant, sb->tenant);
	COPY(k->sandbox, sb->id);
	COPY(k->template, sb->template);
	COPY(k->label, s->label);
	COPY(k->image_digest, sb->image_digest);
	COPY(k->kernel_digest, sb->kernel_digest);
	COPY(k->driver, s->sp->drv->name);
	COPY(k->driver_version, s->sp->drv_version);
	n->vcpus = sb->vcpu;
	n->memory = k->memory;
	n->disk = sb->disk;
	n->has_memory = !s->disk_only;
	n->read_only = sb->read_only;
	COPY(n->kind, node_kind_name(s->kind));
	n->created_ns = k->created_ns;
	n->agent_protocol = AGENT_PROTOCOL;
	COPY(n->parent, s->parent);
	COPY(n->image.hex, sb->image_digest);
	COPY(n->kernel.hex, sb->kernel_digest);
	COPY(n->initrd.hex, s->c->initrd_digest);
	COPY(n->driver, s->sp->drv->name);
	COPY(n->driver_version, s->sp->drv_version);
	COPY(n->label, s->label);
}

static int make_job(void *arg, struct fail *why)
{
	struct saving *s = arg;

	s->node_fd = FAULT_WHY(why, node_begin(s->sp->pool, s->node.id, why));
	return s->node_fd < 0 ? s->node_fd : 0;
}

/* The name goes to the store while the guest is copied: it has to be there before the node is. */
static void made(void *arg, const struct fail *why)
{
	struct saving *s = arg;
	struct store_txn *t = NULL;
	struct checkpoint k;
	struct fail f = { 0 };

	if (lost(s, why)) {
		undo(s);
		return;
	}
	fill(s, &k);
	s->n = tree_add(s->sp, &k);
	if (s->n) {
		s->n->generation = s->c->who.generation;
		s->n->guest = core_guest(s->c);
		s->meta = node_meta(s->n);
		(void)str_copy(s->n->idem, sizeof(s->n->idem), str_of(s->idem));
		t = store_begin(s->sp->store);
	}
	if (!t || !s->n->guest || !s->meta || tree_put(s->n, t) < 0) {
		free(t);
		fail_set(&f, -ENOMEM, "out of memory");
		remember(s, &f);
		undo(s);
		return;
	}
	s->under_way = 2;
	FAULT_VOID(store_commit(t, named, s));
	space_job(s->sp, s->c->q, begin_job, begun, s);
}

void save_node(struct sandbox_core *c, const struct save_req *q, save_fn *fn, void *arg)
{
	struct saving *s = calloc(1, sizeof(*s));
	struct fail why = { 0 };

	assert(c->doing && (c->state == SANDBOX_RUNNING || c->state == SANDBOX_PAUSED || c->state == SANDBOX_SUSPENDING));
	if (!s)
		fail_set(&why, -ENOMEM, "out of memory");
	else if (q->kind == NODE_SNAPSHOT && c->sb.read_only)
		fail_as(&why, ERR_bad_request, "sandbox %s has a read-only root: it has no disk to take a snapshot of", c->sb.id);
	else
		(void)room_for_sandbox(c->sp, &why);
	if (!s || why.err) {
		free(s);
		fn(NULL, &why, arg);
		return;
	}
	*s = (struct saving){ .c = c, .sp = c->sp, .m = c->m, .kind = q->kind, .disk_only = q->kind == NODE_SNAPSHOT, .leave_stopped = q->leave_stopped,
			      .node_fd = -1, .fn = fn, .arg = arg };
	s->was_running = q->leave_stopped ? c->turn && c->turn->from == SANDBOX_RUNNING : c->state == SANDBOX_RUNNING;
	(void)str_copy(s->label, sizeof(s->label), str_of(q->label));
	(void)str_copy(s->idem, sizeof(s->idem), str_of(q->idem));
	COPY(s->parent, c->sb.checkpoint[0] ? c->sb.checkpoint : c->sb.node);
	COPY(s->started_from, c->sb.node);
	sandbox_keep(&c->sb);
	space_job(c->sp, NULL, make_job, made, s);
}

/* --- undoing --- */

static void undone(const struct fail *why, void *arg)
{
	finish(arg);
}

static void went_on(void *arg, const struct fail *why)
{
	struct saving *s = arg;
	struct sandbox_core *c = s->c;

	if (why->err)
		log_error("sandbox %s: what was left of a checkpoint could not be undone: %s", c->sb.id, why->msg);
	s->node_fd = -1;
	if (s->n) { /* its name, and the node if there is one */
		tree_unpin(s->n);
		s->n->there = false;
		tree_remove(s->n, NULL, NULL, NULL);
	}
	if (s->touched && s->was_running && !c->ending && c->m == s->m && c->agent)
		identity_send(c, false, s->frozen ? THAW_MS : THAW_UNSURE_MS, undone, s);
	else
		finish(s);
}

static int undo_job(void *arg, struct fail *why)
{
	struct saving *s = arg;
	const struct driver *drv = s->sp->drv;
	struct vm_status st = { 0 };
	int r = 0;

	if (s->save)
		(void)FAULT_WHY(NULL, drv->save_end(s->save, false, NULL, NULL));
	s->save = NULL;
	if (s->node_fd >= 0) {
		close(s->node_fd);
		if (!s->committed)
			(void)FAULT_OURS(node_abort(s->sp->pool, s->node.id));
	}
	/* As it was: a suspension has stopped it, the freeze of a paused one may have left it running. */
	if (!s->gone && drv->status(s->m->vm, &st, NULL) == 0 && !st.exited && st.running != s->was_running && !st.host_disk_full)
		r = s->was_running ? FAULT_WHY(why, drv->resume(s->m->vm, why)) : FAULT_WHY(why, drv->pause(s->m->vm, why));
	return r;
}

static void undo(struct saving *s)
{
	/* In the sandbox's queue: its machine is there unless it has begun to end by now. */
	s->gone = s->c->ending || s->c->m != s->m;
	space_job(s->sp, s->c->q, undo_job, went_on, s);
}
