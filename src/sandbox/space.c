/* space.c - the daemon's core as a whole: start, stop, jobs, timers, the housekeeping of every minute. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/sysinfo.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "sandbox/core.h"

#define SWEEP_MS (60 * 1000)
#define SETTLE_MS (20 * 1000)
#define TRIM_EVERY_NS (3600 * NS_PER_S)

const char *space_isolation(const struct space *sp)
{
	return sp->isolation;
}

bool space_ready(const struct space *sp, struct fail *why)
{
	if (sp->stopping) {
		fail_as(why, ERR_daemon_down, "spaced is stopping");
		return false;
	}
	if (!sp->recovered) {
		fail_as(why, ERR_busy, "spaced is starting and looks after the sandboxes of before");
		return false;
	}
	return true;
}

/* --- jobs --- */

struct job {
	struct space *sp;
	job_fn *fn;
	job_done_fn *done;
	void *arg;
};

static int job_main(void *arg, struct fail *why)
{
	struct job *j = arg;

	return j->fn(j->arg, why);
}

static void job_over(void *arg, const struct fail *why)
{
	struct job *j = arg;
	struct space *sp = j->sp;

	j->done(j->arg, why);
	free(j);
	sp->jobs--;
	space_check_gone(sp);
}

void space_job(struct space *sp, struct job_queue *q, job_fn *fn, job_done_fn *done, void *arg)
{
	struct job *j = calloc(1, sizeof(*j));
	struct fail why = { 0 };

	sp->jobs++;
	if (j)
		*j = (struct job){ sp, fn, done, arg };
	if (j && job_run(sp->loop, q, job_main, job_over, j) == 0)
		return;
	free(j);
	fail_set(&why, -ENOMEM, "out of memory");
	done(arg, &why);
	sp->jobs--;
}

/* --- timers --- */

struct later {
	uv_timer_t timer;
	struct later **slot;
	void (*fn)(void *arg);
	void *arg;
};

static void later_closed(uv_handle_t *h)
{
	free(h->data);
}

void later_clear(struct later **slot)
{
	struct later *l = *slot;

	if (!l)
		return;
	*slot = NULL;
	uv_timer_stop(&l->timer);
	uv_close((uv_handle_t *)&l->timer, later_closed);
}

static void later_due(uv_timer_t *t)
{
	struct later *l = t->data;
	void (*fn)(void *arg) = l->fn;
	void *arg = l->arg;

	later_clear(l->slot);
	fn(arg);
}

void later_set(struct space *sp, struct later **slot, int64_t ms, void (*fn)(void *arg), void *arg)
{
	struct later *l;

	later_clear(slot);
	l = calloc(1, sizeof(*l));
	if (!l) {
		log_error("out of memory: a timer was lost");
		return;
	}
	uv_timer_init(sp->loop, &l->timer);
	l->timer.data = l;
	l->slot = slot;
	l->fn = fn;
	l->arg = arg;
	*slot = l;
	uv_update_time(sp->loop);
	uv_timer_start(&l->timer, later_due, (uint64_t)MAX(ms, 0), 0);
}

/* --- housekeeping --- */

static void forget_sandbox(struct sandbox_core *c)
{
	struct store_txn *t = store_begin(c->sp->store);

	if (t) {
		(void)store_del(t, "sandbox", c->sb.id);
		FAULT_VOID(store_commit(t, NULL, NULL));
	}
	core_unlist(c);
}

static void sweep(void *arg)
{
	struct space *sp = arg;
	int64_t now = real_ns();

	later_set(sp, &sp->sweep, SWEEP_MS, sweep, sp);
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (state_ended(c->state) && !c->moves && (now - c->sb.ended_ns > ENDED_KEEP_NS || sp->ended > ENDED_MAX))
			forget_sandbox(c);
	}
	operations_sweep(sp);
	ready_refill(sp);
	if (mono_ns() - sp->trimmed_ns > TRIM_EVERY_NS) {
		sp->trimmed_ns = mono_ns();
		store_trim_events(sp->store, EVENTS_PER_SANDBOX, EVENTS_MAX);
	}
}

/* --- numbers --- */

void space_count(struct space *sp, struct space_counts *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->sandboxes, sp->counts, sizeof(out->sandboxes));
	out->creates = sp->creates;
	out->create_failures = sp->create_failures;
	out->kills = sp->kills;
	out->checkpoints = sp->checkpoints;
	out->suspends = sp->suspends;
	out->wakes = sp->wakes;
	link_each_safe(l, next, &sp->nodes)
		out->nodes += container_of(l, struct tree_node, link)->there;
	out->memory_reserved = sp->memory_reserved;
	out->memory_limit = sp->memory_limit;
	out->slots_ready = slots_ready(sp->slots);
	out->monitors_ready = ready_count(sp);
}

/* --- starting --- */

static uint64_t limit_of(const struct config *cfg)
{
	struct sysinfo si;
	uint64_t bytes = cfg->memory_limit;

	if (!bytes && sysinfo(&si) == 0) {
		bytes = (uint64_t)si.totalram * si.mem_unit;
		bytes = bytes > 2 * GIB ? bytes - GIB : bytes / 2;
	}
	return (uint64_t)((double)bytes * cfg->overcommit);
}

static int make_dirs(const struct config *cfg, struct fail *why)
{
	char path[320];
	int r = FAULT_OURS(mkdir_p(cfg->state_dir, 0711));

	if (r < 0)
		return fail_set(why, r, "state directory %s: %s", cfg->state_dir, strerror(-r));
	snprintf(path, sizeof(path), "%s/sandboxes", cfg->run_dir);
	r = FAULT_OURS(mkdir_p(path, 0711));
	if (r < 0)
		return fail_set(why, r, "run directory %s: %s", cfg->run_dir, strerror(-r));
	return 0;
}

static int check_host(struct fail *why)
{
	if (geteuid() != 0) {
		fail_as(why, ERR_host_unsuitable, "spaced needs root: it makes network namespaces and starts monitors as users of their own");
		return fail_remedy(why, "start it with sudo, or by its systemd unit"), why->err;
	}
	if (access("/dev/net/tun", R_OK | W_OK) < 0) {
		fail_as(why, ERR_host_unsuitable, "/dev/net/tun: %s", strerror(errno));
		return fail_remedy(why, "modprobe tun"), why->err;
	}
	return 0;
}

static void init_lists(struct space *sp)
{
	struct link *all[] = { &sp->sandboxes, &sp->templates, &sp->nodes, &sp->builds, &sp->children, &sp->sources, &sp->ready,
			       &sp->operations, &sp->subs, &sp->keys };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		link_init(all[i]);
}

static void space_free(struct space *sp)
{
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		/* The guest runs on; what we had of it in memory goes. */
		later_clear(&c->timer);
		watch_stop(c);
		ways_close(c);
		machine_free(c->m);
		c->m = NULL;
		core_unlist(c);
	}
	templates_clear(sp);
	tree_clear(sp);
	events_clear(sp);
	operations_clear(sp);
	keys_clear(sp);
	sources_clear(sp);
	slots_free(sp->slots);
	if (sp->pool)
		pool_close(sp->pool);
	store_close(sp->store);
	uids_clear(&sp->uids);
	free(sp);
}

static void settled(void *arg)
{
}

/* Ends that recovery has begun, and their records. */
static bool half_done(struct space *sp)
{
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (c->sb.state != c->state || (c->ending && !state_ended(c->state)))
			return true;
	}
	return false;
}

/* Daemons with state directories of their own may share a machine: their monitors should not share uids. */
static unsigned uid_base_of(const struct config *cfg)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	if (cfg->uid_base)
		return cfg->uid_base;
	if (!strcmp(cfg->state_dir, "/var/lib/space"))
		return 200000;
	for (const char *p = cfg->state_dir; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	return 1000000 + h % 20000 * 10000;
}

int space_start(uv_loop_t *loop, const struct config *cfg, struct space **out, struct fail *why)
{
	struct space *sp = calloc(1, sizeof(*sp));
	struct pool_info info = { 0 };
	char db[300];
	int r;

	if (!sp)
		return fail_set(why, -ENOMEM, "out of memory");
	sp->loop = loop;
	sp->cfg = *cfg;
	sp->drv = &driver_qemu;
	sp->memory_limit = limit_of(cfg);
	init_lists(sp);
	snprintf(db, sizeof(db), "%s/space.db", cfg->state_dir);
	if ((r = check_host(why)) < 0 || (r = make_dirs(cfg, why)) < 0)
		goto failed;
	(void)driver_qemu_set_accel(cfg->accel); /* the configuration takes no other words than the driver's */
	/* The lock on the database comes first: nothing of another daemon's is touched before we know that there is none. */
	if ((r = store_open(loop, db, &sp->store, why)) < 0 || (r = sp->drv->probe(&sp->isolation, sp->drv_version, why)) < 0 ||
	    (r = pool_open(cfg->state_dir, true, cfg->pool_size, &sp->pool, why)) < 0 || (r = pool_info(sp->pool, &info, why)) < 0 ||
	    (r = slots_new(cfg->run_dir, cfg->ready_slots, &sp->slots, why)) < 0)
		goto failed;
	sp->copies = info.clone == POOL_CLONE_COPY;
	if (sp->copies)
		log_warning("storage: files cannot be cloned here, and nothing may be mounted: every disk and checkpoint is a sparse copy");
	r = uids_init(&sp->uids, uid_base_of(cfg), 2 * cfg->max_sandboxes + 64);
	if (r < 0) {
		fail_set(why, r, "out of memory");
		goto failed;
	}
	r = recover_begin(sp, why);
	if (r < 0)
		goto failed;
	/* Nothing but recovery runs on the loop yet: the API opens on a house in order. What takes longer than it should goes on beside it. */
	later_set(sp, &sp->sweep, SETTLE_MS, settled, sp);
	while (!sp->recovered || (half_done(sp) && sp->sweep))
		uv_run(loop, UV_RUN_ONCE);
	later_set(sp, &sp->sweep, SWEEP_MS, sweep, sp);
	room_watch(sp);
	verify_watch(sp);
	ready_refill(sp);
	*out = sp;
	return 0;
failed:
	space_free(sp);
	return r;
}

/* --- stopping --- */

static void gone(void *arg)
{
	struct space *sp = arg;
	void (*fn)(void *arg) = sp->gone;
	void *fn_arg = sp->gone_arg;

	space_free(sp);
	fn(fn_arg);
}

static bool anything_under_way(struct space *sp)
{
	if (sp->jobs || !link_empty(&sp->builds) || !link_empty(&sp->ready))
		return true;
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (c->start || c->doing || c->moves || (c->ending && !state_ended(c->state)))
			return true;
	}
	return false;
}

/* Called whenever something ends. The last step is taken from a timer: nobody up the stack may hold anything of ours then. */
void space_check_gone(struct space *sp)
{
	if (!sp->stopping || sp->going || anything_under_way(sp))
		return;
	sp->going = true;
	later_clear(&sp->sweep);
	later_clear(&sp->refill);
	later_clear(&sp->room);
	later_clear(&sp->verify);
	later_set(sp, &sp->sweep, 0, gone, sp);
}

static void look_again(void *arg)
{
	struct space *sp = arg;

	later_set(sp, &sp->sweep, 50, look_again, sp);
	space_check_gone(sp);
}

/* What has begun is brought to its end, which takes seconds at most: creates, kills, pauses. Builds are given up. */
void space_stop(struct space *sp, void (*fn)(void *arg), void *arg)
{
	sp->stopping = true;
	sp->gone = fn;
	sp->gone_arg = arg;
	ready_drop(sp, NULL);
	children_stop(sp);
	builds_stop(sp);
	link_each_safe(l, next, &sp->sandboxes)
		later_clear(&container_of(l, struct sandbox_core, link)->timer);
	look_again(sp);
}
