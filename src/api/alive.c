#include "api/alive.h"

#include "base/clock.h"

#define REST_MS 10000 /* between looks at a sandbox that stands still */

struct alive_limits alive_limits = { .first = 600, .answer = 1200, .silent = 3000, .again = 300, .misses = 3,
	.call = 60000, .upload = 300000, .retry = 250, .frozen = 15000 };

struct line {
	struct line *next;	/* of api->lines */
	struct api *api;
	struct sandbox *sb;
	struct link waiters;
	struct tick tick;
	int64_t alive_ms;	/* the last sign of life; 0: none yet */
	int64_t asked_ms;	/* since when there is doubt: the first question since then */
	int64_t missed_ms;	/* when the last question was given up */
	int misses;		/* in a row */
	bool asking;
};

static void look(struct line *l);

static struct line **slot_of(struct api *api, const struct sandbox *sb)
{
	struct line **at = &api->lines[((uintptr_t)sb >> 6) % ARRAY_LEN(api->lines)];

	while (*at && (*at)->sb != sb)
		at = &(*at)->next;
	return at;
}

static void line_put(struct line *l)
{
	struct line **at;

	if (!link_empty(&l->waiters))
		return;
	tick_clear(&l->tick);
	if (l->asking)
		return;
	for (at = slot_of(l->api, l->sb); *at != l; at = &(*at)->next)
		;
	*at = l->next;
	sandbox_unkeep(l->sb);
	free(l);
}

static bool stands_still(const struct line *l)
{
	enum sandbox_state s = l->sb->state;

	return s == SANDBOX_PAUSED || s == SANDBOX_PAUSING || s == SANDBOX_WAKING || s == SANDBOX_SUSPENDING || s == SANDBOX_SUSPENDED;
}

static void sign_of_life(struct line *l)
{
	l->alive_ms = mono_ms();
	l->misses = 0;
}

static void asked(int status, struct str body, const struct fail *why, void *arg)
{
	struct line *l = arg;

	l->asking = false;
	if (status || stands_still(l)) {
		sign_of_life(l);
	} else {
		l->misses++;
		l->missed_ms = mono_ms();
	}
	if (link_empty(&l->waiters))
		line_put(l);
	else
		look(l);
}

static void ask(struct line *l)
{
	struct http_call_opts o = { .method = "GET", .target = "/health" };
	struct fail why = { 0 };
	struct http_endpoint *e = sandbox_agent(l->sb, &why);

	if (!e) { /* it ended, or stands still: the core breaks the calls off, or wakes it */
		sign_of_life(l);
		return;
	}
	if (!l->misses)
		l->asked_ms = mono_ms();
	l->asking = http_fetch(e, &o, (struct str){ 0 }, 4096, alive_limits.answer, asked, l) == 0;
	if (!l->asking)
		sign_of_life(l); /* out of memory is no proof */
}

/* When W is to be given up if no further sign of life comes. */
static int64_t end_of(const struct line *l, const struct waiter_for *w)
{
	if (w->begun)
		return l->misses >= alive_limits.misses ? 0 : INT64_MAX;
	if (!l->misses && !l->asking)
		return INT64_MAX;
	return MAX(w->since_ms + alive_limits.first, MAX(l->asked_ms, l->alive_ms)) + alive_limits.answer;
}

static void judge(struct line *l, struct waiter_for *w, int64_t now)
{
	bool late;

	if (!w->idle)
		w->spent_ms += now - w->looked_ms;
	w->looked_ms = now;
	late = w->limit_ms > 0 && w->spent_ms >= w->limit_ms;
	if (!late && end_of(l, w) > now)
		return;
	w->over = true;
	w->end(w, late ? ALIVE_LATE : ALIVE_GONE);
}

/* When the next question is due: soon for whoever is new here, and after every silence. */
static int64_t question(const struct line *l)
{
	int64_t at = l->alive_ms + alive_limits.silent;

	if (l->misses)
		return l->missed_ms + alive_limits.again;
	link_each_safe (it, next, &l->waiters) {
		const struct waiter_for *w = container_of(it, struct waiter_for, link);

		if (!w->begun && w->since_ms > l->alive_ms)
			at = MIN(at, w->since_ms + alive_limits.first);
	}
	return at;
}

static void look(struct line *l)
{
	int64_t now = mono_ms(), at;

	if (stands_still(l)) {
		sign_of_life(l);
		link_each_safe (it, next, &l->waiters)
			container_of(it, struct waiter_for, link)->looked_ms = now;
		tick_set(&l->api->ticks, &l->tick, MIN(REST_MS, alive_limits.silent));
		return;
	}
	link_each_safe (it, next, &l->waiters) {
		struct waiter_for *w = container_of(it, struct waiter_for, link);

		if (!w->over)
			judge(l, w, now);
	}
	if (!l->asking && question(l) <= now)
		ask(l);
	at = MIN(now + alive_limits.silent, l->asking ? INT64_MAX : question(l));
	link_each_safe (it, next, &l->waiters) {
		const struct waiter_for *w = container_of(it, struct waiter_for, link);

		if (!w->over)
			at = MIN(at, end_of(l, w));
	}
	tick_set(&l->api->ticks, &l->tick, MAX(at - now, 1));
}

static void on_tick(struct tick *t)
{
	look(container_of(t, struct line, tick));
}

int alive_wait(struct api *api, struct sandbox *sb, struct waiter_for *w)
{
	struct line **at = slot_of(api, sb), *l = *at;

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return -ENOMEM;
		l->api = api;
		l->sb = sb;
		l->alive_ms = mono_ms() - 1; /* before whoever comes now */
		sandbox_keep(sb);
		link_init(&l->waiters);
		tick_init(&l->tick, on_tick);
		*at = l;
	}
	w->line = l;
	w->since_ms = w->looked_ms = mono_ms();
	w->spent_ms = 0;
	w->over = false;
	link_add_tail(&l->waiters, &w->link);
	if (!tick_is_set(&l->tick) || l->tick.at_ms > w->since_ms + alive_limits.first)
		tick_set(&api->ticks, &l->tick, alive_limits.first);
	return 0;
}

void alive_heard(struct waiter_for *w)
{
	if (w->line)
		sign_of_life(w->line);
}

void alive_again(struct waiter_for *w)
{
	w->spent_ms = 0;
	w->looked_ms = mono_ms();
}

void alive_leave(struct waiter_for *w)
{
	struct line *l = w->line;

	if (!l)
		return;
	w->line = NULL;
	link_del(&w->link);
	line_put(l);
}
