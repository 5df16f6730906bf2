/* state.c - the states of a sandbox: the table, the one function that moves, the list and who holds what in it. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define TO(s) (1u << SANDBOX_##s)

static const struct {
	const char *name;
	unsigned to;
} states[] = {
	[SANDBOX_CREATING] = { "creating", TO(RUNNING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_RUNNING] = { "running", TO(PAUSING) | TO(SUSPENDING) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_PAUSING] = { "pausing", TO(PAUSED) | TO(RUNNING) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_PAUSED] = { "paused", TO(WAKING) | TO(SUSPENDING) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_SUSPENDING] = { "suspending", TO(SUSPENDED) | TO(RUNNING) | TO(PAUSED) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_SUSPENDED] = { "suspended", TO(WAKING) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_WAKING] = { "waking", TO(RUNNING) | TO(PAUSED) | TO(SUSPENDED) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) },
	[SANDBOX_STOPPING] = { "stopping", TO(STOPPED) | TO(FAILED) },
	[SANDBOX_STOPPED] = { "stopped", 0 },
	[SANDBOX_FAILED] = { "failed", 0 },
};
static_assert(ARRAY_LEN(states) == SANDBOX_STATES, "one row per state");

const char *sandbox_state_name(enum sandbox_state s)
{
	return s < SANDBOX_STATES ? states[s].name : "unknown";
}

bool state_ended(enum sandbox_state s)
{
	return s == SANDBOX_STOPPED || s == SANDBOX_FAILED;
}

bool state_may(enum sandbox_state from, enum sandbox_state to)
{
	return from < SANDBOX_STATES && to < SANDBOX_STATES && (states[from].to & (1u << to));
}

/* --- the list --- */

static unsigned bucket_of(struct str id)
{
	unsigned h = 2166136261u;

	for (size_t i = 0; i < id.n; i++)
		h = (h ^ (unsigned char)id.p[i]) * 16777619u;
	return h % SANDBOX_BUCKETS;
}

struct sandbox_core *core_by_id(struct space *sp, struct str id)
{
	for (struct sandbox_core *c = sp->by_id[bucket_of(id)]; c; c = c->hash_next)
		if (str_eqz(id, c->sb.id))
			return c;
	return NULL;
}

struct sandbox_core *core_new(struct space *sp, const char *id, const char *tenant)
{
	struct sandbox_core *c = calloc(1, sizeof(*c));
	unsigned at = bucket_of(str_of(id));

	if (!c)
		return NULL;
	c->q = job_queue_new(sp->loop);
	c->sb.env = json_object();
	c->sb.metadata = json_object();
	if (!c->q || !c->sb.env || !c->sb.metadata) {
		if (c->q)
			job_queue_free(c->q);
		json_decref(c->sb.env);
		json_decref(c->sb.metadata);
		free(c);
		return NULL;
	}
	c->sp = sp;
	c->sb.core = c;
	c->sb.start = "restore";
	(void)str_copy(c->sb.id, sizeof(c->sb.id), str_of(id));
	(void)str_copy(c->sb.tenant, sizeof(c->sb.tenant), str_of(tenant));
	c->hash_next = sp->by_id[at];
	sp->by_id[at] = c;
	link_add_tail(&sp->sandboxes, &c->link);
	sp->counts[c->state]++;
	sp->living++;
	return c;
}

static void core_free(struct sandbox_core *c)
{
	assert(!c->m && !c->start && !c->agent && !c->watch);
	later_clear(&c->timer);
	job_queue_free(c->q);
	json_decref(c->sb.env);
	json_decref(c->sb.metadata);
	json_decref(c->tmpfs);
	json_decref(c->guest_env);
	free(c->last_words);
	free(c);
}

static void core_maybe_free(struct sandbox_core *c)
{
	if (c->unlisted && !c->holds && !c->moves)
		core_free(c);
}

void core_unlist(struct sandbox_core *c)
{
	struct sandbox_core **at = &c->sp->by_id[bucket_of(str_of(c->sb.id))];

	while (*at != c)
		at = &(*at)->hash_next;
	*at = c->hash_next;
	link_del(&c->link);
	c->sp->counts[c->state]--;
	if (state_ended(c->state))
		c->sp->ended--;
	else
		c->sp->living--;
	c->unlisted = true;
	core_maybe_free(c);
}

void sandbox_hold(struct sandbox *sb)
{
	struct sandbox_core *c = core_of(sb);

	c->holds++;
	sb->users++;
	sb->last_active_ns = real_ns();
}

void sandbox_release(struct sandbox *sb)
{
	struct sandbox_core *c = core_of(sb);

	assert(c->holds > 0 && sb->users > 0);
	c->holds--;
	sb->users--;
	sb->last_active_ns = real_ns();
	core_maybe_free(c);
}

void sandbox_keep(struct sandbox *sb)
{
	core_of(sb)->holds++;
}

void sandbox_unkeep(struct sandbox *sb)
{
	struct sandbox_core *c = core_of(sb);

	assert(c->holds > 0);
	c->holds--;
	core_maybe_free(c);
}

/* --- the move --- */

static void set_state(struct sandbox_core *c, enum sandbox_state to)
{
	struct space *sp = c->sp;

	if (to == SANDBOX_SUSPENDING)
		c->was_paused = c->state == SANDBOX_PAUSED;
	sp->counts[c->state]--;
	sp->counts[to]++;
	if (state_ended(to) && !state_ended(c->state)) {
		sp->living--;
		sp->ended++;
	}
	c->state = to;
}

/* What became visible when it was on disk: sb.state changes here, in the order of the commits. */
struct move {
	struct sandbox_core *c;
	bool moves;
	enum sandbox_state to;
	struct live_event *ev;
	store_done_fn *done;
	void *arg;
};

static void move_done(void *arg, const struct fail *why)
{
	struct move *m = arg;
	struct sandbox_core *c = m->c;

	/* After a failed write memory is still the truth: what happened has happened. A restart finds the older record and mends it. */
	if (why->err)
		log_error("sandbox %s: its record could not be written: %s", c->sb.id, why->msg);
	if (m->moves)
		c->sb.state = m->to;
	event_publish(c->sp, m->ev, !why->err);
	if (m->done)
		m->done(m->arg, why);
	c->moves--;
	free(m);
	core_maybe_free(c);
}

static int event_body(struct sandbox_core *c, enum sandbox_state to, struct buf *b)
{
	struct jw w;

	jw_init(&w, b);
	jw_obj(&w, NULL);
	jw_str(&w, "state", sandbox_state_name(to));
	if (c->sb.reason[0])
		jw_str(&w, "reason", c->sb.reason);
	if (c->fail.err) {
		jw_obj(&w, "error");
		jw_fail(&w, &c->fail, NULL);
		jw_obj_end(&w);
	}
	if (c->sb.deadline_ns)
		jw_time(&w, "deadline_at", c->sb.deadline_ns);
	jw_obj_end(&w);
	return w.err;
}

int core_put(struct sandbox_core *c, struct store_txn *t)
{
	struct buf record;
	int r;

	buf_init(&record, 256 * KIB);
	r = core_write(c, c->state, &record);
	if (r == 0)
		r = store_put(t, "sandbox", c->sb.id, buf_str(&record));
	buf_clear(&record);
	return r;
}

static void commit(struct sandbox_core *c, bool moves, const char *type, store_done_fn *done, void *arg)
{
	struct space *sp = c->sp;
	struct move *m = calloc(1, sizeof(*m));
	struct store_txn *t = store_begin(sp->store);
	struct buf body;
	struct fail why = { 0 };
	int r = m && t ? 0 : -ENOMEM;

	buf_init(&body, 4 * KIB);
	if (r == 0)
		r = core_put(c, t);
	if (r == 0 && type) {
		r = event_body(c, c->state, &body);
		if (r == 0)
			r = event_add(sp, t, c->sb.tenant, c->sb.id, type, buf_str(&body), &m->ev);
	}
	buf_clear(&body);
	if (!m || !t) {
		free(m);
		free(t);
		fail_set(&why, -ENOMEM, "out of memory");
		log_error("sandbox %s: its record could not be written: out of memory", c->sb.id);
		if (moves)
			c->sb.state = c->state;
		if (done)
			done(arg, &why);
		return;
	}
	/* A record that could not be made whole: the store fails the transaction, since it remembers; ours are too large only by a bug. */
	if (r < 0)
		log_error("sandbox %s: its record is incomplete: %s", c->sb.id, strerror(-r));
	*m = (struct move){ .c = c, .moves = moves, .to = c->state, .ev = m->ev, .done = done, .arg = arg };
	c->moves++;
	FAULT_VOID(store_commit(t, move_done, m));
}

void core_move(struct sandbox_core *c, enum sandbox_state to, const char *reason, store_done_fn *done, void *arg)
{
	/* The first record of all is "creating" to "creating". */
	bool first = c->state == SANDBOX_CREATING && to == SANDBOX_CREATING;
	struct tree_node *n;

	assert(first || state_may(c->state, to));
	/* What it came from is looked at in the background, once. */
	if (to == SANDBOX_RUNNING && (n = tree_find(c->sp, c->state == SANDBOX_CREATING ? c->sb.node : c->sb.checkpoint)))
		verify_soon(n);
	set_state(c, to);
	if (reason)
		(void)str_copy(c->sb.reason, sizeof(c->sb.reason), str_of(reason));
	if (state_ended(to))
		c->sb.ended_ns = real_ns();
	if (!first)
		log_info("sandbox %s: %s%s%s", c->sb.id, states[to].name, reason ? " reason=" : "", reason ? reason : "");
	commit(c, true, states[to].name, done, arg);
}

void core_save(struct sandbox_core *c, const char *type, store_done_fn *done, void *arg)
{
	commit(c, false, type, done, arg);
}

void core_release_memory(struct sandbox_core *c)
{
	assert(c->sp->memory_reserved >= c->reserved);
	c->sp->memory_reserved -= c->reserved;
	c->reserved = 0;
}

/* --- who waits --- */

int waiter_add(struct waiter **list, sandbox_done_fn *done, void *arg)
{
	struct waiter *w = done ? calloc(1, sizeof(*w)) : NULL;

	if (!done)
		return 0;
	if (!w)
		return -ENOMEM;
	w->done = done;
	w->arg = arg;
	while (*list)
		list = &(*list)->next;
	*list = w;
	return 0;
}

void waiters_call(struct waiter **list, struct sandbox *sb, const struct fail *why)
{
	struct waiter *w = *list, *next;

	*list = NULL;
	for (; w; w = next) {
		next = w->next;
		w->done(sb, why, w->arg);
		free(w);
	}
}

/* --- looking --- */

struct sandbox *sandbox_find(struct space *sp, const char *tenant, struct str id_or_name, struct fail *why)
{
	struct sandbox_core *c = core_by_id(sp, id_or_name), *found = NULL;

	if (c && (!tenant || !strcmp(c->sb.tenant, tenant)))
		return &c->sb;
	/* By name: among the living ones; of those that ended the latest. */
	for (struct link *l = sp->sandboxes.prev; id_or_name.n && l != &sp->sandboxes; l = l->prev) {
		c = container_of(l, struct sandbox_core, link);
		if (!str_eqz(id_or_name, c->sb.name) || (tenant && strcmp(c->sb.tenant, tenant)))
			continue;
		if (found && !state_ended(c->state) && !state_ended(found->state)) {
			fail_as(why, ERR_sandbox_not_found, "more than one sandbox is named \"" STR_FMT "\"", STR_ARG(id_or_name));
			fail_remedy(why, "use its id: space ls");
			return NULL;
		}
		if (!found || (state_ended(found->state) && !state_ended(c->state)))
			found = c;
	}
	if (found)
		return &found->sb;
	fail_as(why, ERR_sandbox_not_found, "no sandbox \"%.*s\"", (int)MIN(id_or_name.n, 64), id_or_name.p ? id_or_name.p : "");
	return NULL;
}

void sandbox_each(struct space *sp, const char *tenant, int (*fn)(struct sandbox *sb, void *arg), void *arg)
{
	struct link *prev;

	for (struct link *l = sp->sandboxes.prev; l != &sp->sandboxes; l = prev) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		prev = l->prev;
		if (tenant && strcmp(c->sb.tenant, tenant))
			continue;
		if (!fn(&c->sb, arg))
			return;
	}
}
