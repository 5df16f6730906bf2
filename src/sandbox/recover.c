/* recover.c - the first thing of a start: the records read, monitors that outlived the last daemon taken over, what was half done
 * finished or undone, and whatever belongs to no record swept away.
 *
 * Reading is done at once. Adopting is a job a sandbox, side by side. When the last one is back, one job sweeps; then the house is in order. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define ADOPT_INIT_MS 10000

struct recovery {
	struct space *sp;
	bool rebooted;	  /* the host was, since the records were written */
	unsigned pending; /* sandboxes being adopted, and one for us */
	char (*owned)[24]; /* ids that the sweep leaves alone */
	size_t nowned;
	unsigned swept;
};

/* --- reading --- */

struct scan {
	struct space *sp;
	struct fail *why;
};

static int on_sandbox(void *arg, const char *key, struct str body)
{
	struct scan *s = arg;

	return core_load(s->sp, body, s->why);
}

static int on_template(void *arg, const char *key, struct str body)
{
	struct scan *s = arg;

	return template_load(s->sp, body, s->why);
}

static int on_node(void *arg, const char *key, struct str body)
{
	struct scan *s = arg;

	return tree_load(s->sp, key, body, s->why);
}

static int on_operation(void *arg, const char *key, struct str body)
{
	struct scan *s = arg;

	return operation_load(s->sp, body, s->why);
}

static int on_key(void *arg, const char *key, struct str body)
{
	struct scan *s = arg;

	return key_load(s->sp, key, body, s->why);
}

static int by_creation(const void *a, const void *b)
{
	const struct sandbox_core *x = *(struct sandbox_core *const *)a, *y = *(struct sandbox_core *const *)b;

	return x->sb.created_ns < y->sb.created_ns ? -1 : x->sb.created_ns > y->sb.created_ns;
}

/* The store gives them by id; the list is by age. */
static int sort_sandboxes(struct space *sp)
{
	struct sandbox_core **all;
	size_t n = 0;

	link_each_safe(l, next, &sp->sandboxes)
		n++;
	all = calloc(n + 1, sizeof(struct sandbox_core *));
	if (!all)
		return -ENOMEM;
	n = 0;
	link_each_safe(l, next, &sp->sandboxes) {
		all[n++] = container_of(l, struct sandbox_core, link);
		link_del(l);
	}
	qsort(all, n, sizeof(struct sandbox_core *), by_creation);
	for (size_t i = 0; i < n; i++)
		link_add_tail(&sp->sandboxes, &all[i]->link);
	free(all);
	return 0;
}

static int read_records(struct space *sp, struct fail *why)
{
	static const struct {
		const char *table;
		store_row_fn *fn;
	} tables[] = {
		{ "sandbox", on_sandbox }, { "template", on_template }, { "node", on_node }, { "operation", on_operation }, { "key", on_key },
	};
	struct scan s = { sp, why };
	int r;

	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		if ((r = store_scan(sp->store, tables[i].table, tables[i].fn, &s, why)) < 0)
			return why->err ? r : fail_set(why, r, "reading the state: %s", strerror(-r));
	r = sort_sandboxes(sp);
	return r < 0 ? fail_set(why, r, "out of memory") : 0;
}

static int on_boot(void *arg, const char *key, struct str body)
{
	struct recovery *v = arg;
	autofree char *now = NULL;
	ssize_t n = file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &now, 64);

	if (!strcmp(key, "boot_id"))
		v->rebooted = n < 36 || !str_eq((struct str){ now, 36 }, (struct str){ body.p + 1, body.n > 2 ? body.n - 2 : 0 });
	return 0;
}

/* Which boot of the host this is: says whether a monitor that is gone crashed or went with the host. */
static int note_boot(struct recovery *v, struct fail *why)
{
	struct store_txn *t;
	char text[64];
	autofree char *now = NULL;
	int r = store_scan(v->sp->store, "meta", on_boot, v, why);

	if (r < 0)
		return r;
	if (file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &now, 64) < 36)
		return 0;
	snprintf(text, sizeof(text), "\"%.36s\"", now);
	t = store_begin(v->sp->store);
	if (!t)
		return fail_set(why, -ENOMEM, "out of memory");
	(void)store_put(t, "meta", "boot_id", str_of(text));
	FAULT_VOID(store_commit(t, NULL, NULL));
	return 0;
}

/* --- sweeping --- */

static bool owned(const struct recovery *v, const char *id)
{
	for (size_t i = 0; i < v->nowned; i++)
		if (!strcmp(v->owned[i], id))
			return true;
	return false;
}

/* A monitor of nobody's: a ready one or a build of the last daemon, or one whose record never got to the disk. */
static void sweep_machine(struct recovery *v, const char *id)
{
	struct machine *m = machine_new(v->sp, id, TENANT_DEFAULT, "orphan");
	struct fail why = { 0 };

	if (!m)
		return;
	(void)machine_adopt(m, &why);
	m->has_dir = m->has_disk = true;
	if (machine_destroy(m, &why) < 0)
		log_warning("machine %s: an orphan could not be removed: %s", id, why.msg);
	v->swept++;
	machine_free(m);
}

static void sweep_run_dir(struct recovery *v)
{
	char path[320];
	DIR *d;
	struct dirent *e;

	snprintf(path, sizeof(path), "%s/sandboxes", v->sp->cfg.run_dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (id_valid(str_of(e->d_name), 'i') && !owned(v, e->d_name))
			sweep_machine(v, e->d_name);
	if (d)
		closedir(d);
}

static void sweep_disks(struct recovery *v)
{
	char (*ids)[24] = NULL;
	struct fail why = { 0 };
	size_t n = 0;

	if (disk_list(v->sp->pool, &ids, &n, &why) < 0)
		log_warning("disks: %s", why.msg);
	for (size_t i = 0; i < n; i++) {
		if (owned(v, ids[i]))
			continue;
		if (FAULT_WHY(&why, disk_remove(v->sp->pool, ids[i], &why)) < 0)
			log_warning("disk %s: an orphan could not be removed: %s", ids[i], why.msg);
		v->swept++;
	}
	free(ids);
}

static int sweep_job(void *arg, struct fail *why)
{
	struct recovery *v = arg;
	struct fail f = { 0 };
	int r;

	sweep_run_dir(v);
	sweep_disks(v);
	r = FAULT_WHY(&f, slots_sweep(v->sp->slots, &f));
	if (r < 0)
		log_warning("slots: %s", f.msg);
	else
		v->swept += (unsigned)r;
	return 0;
}

static void sweep_done(void *arg, const struct fail *why)
{
	struct recovery *v = arg;
	struct space *sp = v->sp;

	if (v->swept)
		log_info("recovery: removed what belonged to nothing count=%u", v->swept);
	sp->recovered = true;
	free(v->owned);
	free(v);
	nodes_collect(sp);
}

static void sweep(struct recovery *v)
{
	struct space *sp = v->sp;
	size_t n = 0;

	link_each_safe(l, next, &sp->sandboxes)
		n++;
	v->owned = calloc(n + 1, sizeof(*v->owned));
	if (!v->owned) { /* nothing is swept rather than too much */
		log_error("recovery: out of memory: leftovers stay");
		sweep_done(v, &(struct fail){ 0 });
		return;
	}
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		/* A suspended one has no machine: what stands where it would be is left of the way there, or of a wake. */
		if (!state_ended(c->state) && c->state != SANDBOX_SUSPENDED)
			memcpy(v->owned[v->nowned++], c->sb.id, sizeof(c->sb.id));
	}
	space_job(sp, NULL, sweep_job, sweep_done, v);
}

static void one_less(struct recovery *v)
{
	if (--v->pending == 0)
		sweep(v);
}

/* --- adopting --- */

struct adoption {
	struct recovery *v;
	struct sandbox_core *c;
	struct machine *m;
	struct vm_status st;
	char last_exit[32];
};

static int adopt_job(void *arg, struct fail *why)
{
	struct adoption *a = arg;
	struct machine *m = a->m;
	struct fail ignored = { 0 };
	const struct driver *drv = m->sp->drv;
	int r = machine_adopt(m, why);

	if (r == 0)
		r = drv->status(m->vm, &a->st, why);
	if (r == 0 && a->st.exited)
		r = fail_set(why, -ESRCH, "its monitor has ended");
	if (r < 0) {
		(void)str_copy(a->last_exit, sizeof(a->last_exit), str_of(driver_last_exit(m->run_dir)));
		return r;
	}
	/* What was half done when the last daemon went: a pause is completed; a wake is too; a suspension, a checkpoint or a branch, for which it may
	 * stand still, never happened. */
	switch (a->c->state) {
	case SANDBOX_PAUSING:
		return FAULT_WHY(why, drv->pause(m->vm, why));
	case SANDBOX_PAUSED:
		return a->st.running ? FAULT_WHY(why, drv->pause(m->vm, why)) : 0;
	case SANDBOX_SUSPENDING:
		if (a->c->was_paused)
			return a->st.running ? FAULT_WHY(why, drv->pause(m->vm, why)) : 0;
		break;
	case SANDBOX_WAKING:
	case SANDBOX_RUNNING:
		break;
	default:
		return 0;
	}
	if (!a->st.running)
		(void)FAULT_WHY(&ignored, drv->resume(m->vm, &ignored)); /* it may stand still because the disk is full; then it goes on doing so */
	return 0;
}

static void init_told(const struct fail *why, void *arg)
{
	struct sandbox_core *c = arg;

	if (why->err && !c->ending)
		log_warning("sandbox %s: adopted, but its agent does not answer: %s", c->sb.id, why->msg);
}

/* --- those that lie in a node --- */

static bool node_there(struct space *sp, const char *id)
{
	struct tree_node *n = tree_find(sp, id);

	return n && n->there && !n->removing;
}

/* The record already says where it lies: its machine, if there is one, is in the way (of a rollback), on its way out (of a suspension) or not confirmed
 * yet (of a wake). It is swept. */
static bool lies(const struct sandbox_core *c)
{
	return c->lies_in[0] && (c->state == SANDBOX_SUSPENDING || c->state == SANDBOX_SUSPENDED || c->state == SANDBOX_WAKING);
}

static void lay_down(struct sandbox_core *c)
{
	struct fail f = { 0 };

	if (!node_there(c->sp, c->lies_in)) {
		fail_as(&f, ERR_checkpoint_not_found, "checkpoint %s, in which the sandbox lay, is not there", c->lies_in);
		core_end(c, "checkpoint_lost", &f);
		return;
	}
	if (c->state == SANDBOX_SUSPENDED)
		return;
	if (c->state == SANDBOX_SUSPENDING) /* a rollback */
		(void)str_copy(c->sb.checkpoint, sizeof(c->sb.checkpoint), str_of(c->lies_in));
	log_info("sandbox %s: lies in %s", c->sb.id, c->lies_in);
	c->sb.deadline_ns = 0; /* from its wake on again */
	core_move(c, SANDBOX_SUSPENDED, "host_restart", NULL, NULL);
}

/* The machine is gone in the middle of a suspension. If all of it was saved and recorded before, it lies there. A node of an earlier suspension has
 * another generation. */
static bool saved_in_time(struct sandbox_core *c)
{
	link_each_safe(l, next, &c->sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);

		if (n->k.kind != NODE_SUSPEND || !n->there || n->removing || strcmp(n->k.sandbox, c->sb.id) || n->generation != c->who.generation)
			continue;
		(void)str_copy(c->lies_in, sizeof(c->lies_in), str_of(n->k.id));
		return true;
	}
	return false;
}

/* Its monitor is gone, or it cannot be taken over: it has ended. The machine's parts are removed as far as they are known. */
static void lost(struct adoption *a, const struct fail *why)
{
	struct sandbox_core *c = a->c;
	const char *reason = a->v->rebooted ? "host_restart" : a->last_exit[0] ? a->last_exit : "monitor_crash";
	struct fail f = { 0 };

	a->m->has_dir = a->m->has_disk = true;
	if (c->state == SANDBOX_SUSPENDING && saved_in_time(c)) {
		machine_discard(a->m);
		core_release_memory(c);
		lay_down(c);
		return;
	}
	c->m = a->m;
	if (c->state == SANDBOX_STOPPING) {
		core_end_again(c);
		return;
	}
	if (c->state == SANDBOX_CREATING)
		reason = "host_restart";
	fail_as(&f, ERR_guest_failed, "the sandbox's machine was gone when spaced came back: %s", reason);
	core_end(c, reason, &f);
}

static void adopted(void *arg, const struct fail *why)
{
	struct adoption *a = arg;
	struct sandbox_core *c = a->c;
	struct recovery *v = a->v;
	struct fail f = *why;

	if (f.err) {
		lost(a, &f);
	} else if (c->state == SANDBOX_STOPPING) {
		c->m = a->m;
		core_end_again(c);
	} else if (c->state == SANDBOX_CREATING) {
		/* Nobody has had it yet. */
		c->m = a->m;
		fail_as(&f, ERR_guest_failed, "spaced was restarted while the sandbox was created");
		core_end(c, "host_restart", &f);
	} else {
		c->m = a->m;
		if (watch_start(c) < 0 || agent_open(c, &f) < 0) {
			core_end(c, "monitor_crash", &f);
		} else {
			log_info("sandbox %s: adopted state=%s", c->sb.id, sandbox_state_name(c->state));
			if (c->state == SANDBOX_PAUSING)
				core_move(c, SANDBOX_PAUSED, NULL, NULL, NULL);
			else if (c->state == SANDBOX_SUSPENDING && c->was_paused)
				core_move(c, SANDBOX_PAUSED, NULL, NULL, NULL);
			else if (c->state == SANDBOX_WAKING || c->state == SANDBOX_SUSPENDING)
				core_move(c, SANDBOX_RUNNING, NULL, NULL, NULL);
			if (c->state == SANDBOX_RUNNING)
				identity_send(c, false, ADOPT_INIT_MS, init_told, c);
			deadline_arm(c);
		}
	}
	free(a);
	one_less(v);
}

static void adopt(struct recovery *v, struct sandbox_core *c)
{
	struct adoption *a = calloc(1, sizeof(*a));

	c->reserved = c->sb.memory;
	v->sp->memory_reserved += c->reserved;
	if (a)
		a->m = machine_new(v->sp, c->sb.id, c->sb.tenant, "sandbox");
	if (!a || !a->m) {
		log_error("sandbox %s: out of memory: it is left alone until the next start", c->sb.id);
		free(a);
		return;
	}
	a->v = v;
	a->c = c;
	v->pending++;
	space_job(v->sp, c->q, adopt_job, adopted, a);
}

int recover_begin(struct space *sp, struct fail *why)
{
	struct recovery *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return fail_set(why, -ENOMEM, "out of memory");
	v->sp = sp;
	v->pending = 1;
	if ((r = read_records(sp, why)) < 0 || (r = note_boot(v, why)) < 0) {
		free(v);
		return r;
	}
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (lies(c) || c->state == SANDBOX_SUSPENDED)
			lay_down(c);
		else if (!state_ended(c->state))
			adopt(v, c);
	}
	one_less(v);
	return 0;
}
