/* core.c - what all connections of a loop share; see conn.h. */
#include <signal.h>
#include <time.h>

#include "http/conn.h"

#define SWEEP_MS 1000
#define SWEEP_MIN_MS 50

struct hcore {
	uv_loop_t *loop;
	unsigned refs, handles;
	int held;
	uv_timer_t timer;
	uv_idle_t idle;
	uv_check_t check;
	struct link swept, ready;
	int64_t due;
	int64_t date_s;
	char date[48];
	struct hcore *next;
};

static __thread struct hcore *cores;

int64_t hcore_now(const struct hcore *k)
{
	return (int64_t)uv_now(k->loop);
}

uv_loop_t *hcore_loop(const struct hcore *k)
{
	return k->loop;
}

static void sweep(uv_timer_t *t);

/* The timer runs while there is anything to sweep. */
static void arm(struct hcore *k, int64_t at)
{
	int64_t wait = at - hcore_now(k);

	if (wait < SWEEP_MIN_MS)
		wait = SWEEP_MIN_MS;
	k->due = hcore_now(k) + wait;
	uv_timer_start(&k->timer, sweep, (uint64_t)wait, 0);
}

static void sweep(uv_timer_t *t)
{
	struct hcore *k = t->data;
	int64_t now = hcore_now(k), next = now + SWEEP_MS;

	/* Items leave the list in close callbacks only, never from inside a tick. */
	link_each_safe(it, tmp, &k->swept)
	{
		struct hsweep *s = container_of(it, struct hsweep, link);
		int64_t due = s->tick(s, now);

		if (due < next)
			next = due;
	}
	if (!link_empty(&k->swept))
		arm(k, next);
}

void hcore_due(struct hcore *k, int64_t at)
{
	if (at < k->due || !uv_is_active((uv_handle_t *)&k->timer))
		arm(k, at);
}

void hcore_sweep_add(struct hcore *k, struct hsweep *s)
{
	link_add_tail(&k->swept, &s->link);
	if (!uv_is_active((uv_handle_t *)&k->timer))
		arm(k, hcore_now(k) + SWEEP_MS);
}

void hcore_hold(struct hcore *k, int by)
{
	k->held += by;
	if (k->held > 0)
		uv_ref((uv_handle_t *)&k->timer);
	else
		uv_unref((uv_handle_t *)&k->timer);
}

/* Only what was there at the start: an item that defers itself again waits for the next round. */
static void run_ready(struct hcore *k)
{
	struct link now;

	if (link_empty(&k->ready)) {
		uv_idle_stop(&k->idle);
		return;
	}
	now = k->ready;
	now.next->prev = &now;
	now.prev->next = &now;
	link_init(&k->ready);
	while (!link_empty(&now)) {
		struct hready *r = container_of(now.next, struct hready, link);

		link_del(&r->link);
		r->fn(r);
	}
	if (link_empty(&k->ready))
		uv_idle_stop(&k->idle);
}

static void on_idle(uv_idle_t *h)
{
	run_ready(h->data);
}

static void on_check(uv_check_t *h)
{
	run_ready(h->data);
}

void hcore_defer(struct hcore *k, struct hready *r)
{
	if (!link_empty(&r->link))
		return;
	link_add_tail(&k->ready, &r->link);
	/* The check handle comes right after the poll that most of this is born in; the idle handle
	 * keeps the poll from waiting, and the loop alive, when it was born elsewhere. */
	uv_idle_start(&k->idle, on_idle);
}

struct str hcore_date(struct hcore *k)
{
	time_t s = time(NULL);

	if (s != k->date_s) {
		struct tm tm;

		gmtime_r(&s, &tm);
		strftime(k->date, sizeof(k->date), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
		k->date_s = s;
	}
	return str_of(k->date);
}

struct hcore *hcore_get(uv_loop_t *loop)
{
	struct sigaction sa;
	struct hcore *k;

	/* A write to a socket whose peer has gone is an error like others; libuv does not see to
	 * that. */
	if (sigaction(SIGPIPE, NULL, &sa) == 0 && !(sa.sa_flags & SA_SIGINFO) &&
		sa.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
	for (k = cores; k; k = k->next)
		if (k->loop == loop) {
			k->refs++;
			return k;
		}
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->loop = loop;
	k->refs = 1;
	k->handles = 3;
	link_init(&k->swept);
	link_init(&k->ready);
	uv_timer_init(loop, &k->timer);
	uv_idle_init(loop, &k->idle);
	uv_check_init(loop, &k->check);
	k->timer.data = k->idle.data = k->check.data = k;
	uv_check_start(&k->check, on_check);
	uv_unref((uv_handle_t *)&k->check);
	uv_unref((uv_handle_t *)&k->timer);
	k->next = cores;
	cores = k;
	return k;
}

void hcore_ref(struct hcore *k)
{
	k->refs++;
}

static void on_gone(uv_handle_t *h)
{
	struct hcore *k = h->data;

	if (--k->handles == 0)
		free(k);
}

void hcore_put(struct hcore *k)
{
	if (--k->refs)
		return;
	for (struct hcore **p = &cores; *p; p = &(*p)->next)
		if (*p == k) {
			*p = k->next;
			break;
		}
	uv_close((uv_handle_t *)&k->timer, on_gone);
	uv_close((uv_handle_t *)&k->idle, on_gone);
	uv_close((uv_handle_t *)&k->check, on_gone);
}
