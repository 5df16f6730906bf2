/* event.c - the event log's readers: what is stored first, then what comes, each event once and in order.
 *
 * A subscription that is behind reads the store in pages, one a turn of the loop; once a page comes back short it is live and gets
 * events from memory, as they reach the disk. Its last number keeps the two from overlapping. */
#include "base/clock.h"
#include "base/log.h"
#include "sandbox/core.h"

#define PAGE 128

struct live_event {
	struct event e;
	char text[]; /* tenant, sandbox, type, body, a NUL after each */
};

struct event_sub {
	struct link link;
	struct space *sp;
	bool all_tenants, all_sandboxes, live;
	bool calling, dropped; /* fn is being called: freeing waits */
	uint64_t last;
	unsigned page; /* events the page at hand had */
	struct later *turn;
	event_fn *fn;
	void *arg;
	uint8_t sandbox; /* where its id begins in NAMES */
	char names[];	 /* tenant, sandbox, a NUL after each: ten thousand streams have one of these each */
};

static const char *put(char **at, struct str s)
{
	char *p = *at;

	memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	*at += s.n + 1;
	return p;
}

int event_add(struct space *sp, struct store_txn *t, const char *tenant, const char *sandbox, const char *type, struct str body,
	      struct live_event **ev)
{
	size_t n = strlen(tenant) + strlen(sandbox) + strlen(type) + body.n + 4;
	struct live_event *e = calloc(1, sizeof(*e) + n);
	char *at;
	int r;

	if (!e)
		return -ENOMEM;
	at = e->text;
	e->e.at_ns = real_ns();
	e->e.tenant = put(&at, str_of(tenant));
	e->e.sandbox = put(&at, str_of(sandbox));
	e->e.type = put(&at, str_of(type));
	e->e.body = (struct str){ put(&at, body), body.n };
	r = store_event(t, tenant, sandbox, e->e.at_ns, type, body, &e->e.seq);
	if (r < 0) {
		free(e);
		return r;
	}
	*ev = e;
	return 0;
}

static bool wants(const struct event_sub *s, const struct event *e)
{
	return e->seq > s->last && (s->all_tenants || !strcmp(s->names, e->tenant)) &&
	       (s->all_sandboxes || !strcmp(s->names + s->sandbox, e->sandbox));
}

static void sub_free(struct event_sub *s)
{
	later_clear(&s->turn);
	link_del(&s->link);
	free(s);
}

/* False when the callback dropped the subscription. */
static bool give(struct event_sub *s, const struct event *e)
{
	s->last = e->seq;
	s->calling = true;
	s->fn(e, s->arg);
	s->calling = false;
	return !s->dropped;
}

void event_publish(struct space *sp, struct live_event *ev, bool ok)
{
	if (!ev)
		return;
	sp->publishing = true;
	link_each_safe(l, next, &sp->subs) {
		struct event_sub *s = container_of(l, struct event_sub, link);

		/* A callback may drop any of them: they are only marked while the walk goes on. */
		if (ok && s->live && !s->dropped && wants(s, &ev->e))
			(void)give(s, &ev->e);
	}
	sp->publishing = false;
	link_each_safe(l, next, &sp->subs) {
		struct event_sub *s = container_of(l, struct event_sub, link);

		if (s->dropped)
			sub_free(s);
	}
	free(ev);
}

static int on_row(void *arg, const struct store_event_row *row)
{
	struct event_sub *s = arg;
	struct event e = { row->seq, row->at_ns, row->tenant, row->sandbox, row->type, row->body };

	s->page++;
	return give(s, &e) ? 0 : -ECANCELED;
}

static void replay(void *arg)
{
	struct event_sub *s = arg;
	struct fail why = { 0 };
	int r;

	s->page = 0;
	r = store_events(s->sp->store, s->all_tenants ? NULL : s->names, s->all_sandboxes ? NULL : s->names + s->sandbox, s->last, PAGE, on_row, s,
			 &why);
	if (s->dropped) {
		sub_free(s);
		return;
	}
	if (r < 0)
		log_error("events: the log could not be read: %s", why.msg);
	if (r < 0 || s->page < PAGE)
		s->live = true;
	else
		later_set(s->sp, &s->turn, 0, replay, s);
}

struct event_sub *event_subscribe(struct space *sp, const char *tenant, const char *sandbox, uint64_t after, event_fn *fn, void *arg)
{
	size_t tn = str_of(tenant).n, sn = str_of(sandbox).n;
	struct event_sub *s = tn < 200 && sn < 200 ? calloc(1, MAX(sizeof(*s), offsetof(struct event_sub, names) + tn + sn + 2)) : NULL;

	if (!s)
		return NULL;
	s->sp = sp;
	s->fn = fn;
	s->arg = arg;
	s->all_tenants = !tenant;
	s->all_sandboxes = !sandbox;
	memcpy(s->names, tenant ? tenant : "", tn);
	s->sandbox = (uint8_t)(tn + 1);
	memcpy(s->names + s->sandbox, sandbox ? sandbox : "", sn);
	link_add_tail(&sp->subs, &s->link);
	if (after == UINT64_MAX) {
		/* Also what was handed to the disk already but is not there yet is news. */
		s->live = true;
		s->last = 0;
	} else {
		s->last = after;
		later_set(sp, &s->turn, 0, replay, s);
	}
	return s;
}

void event_unsubscribe(struct event_sub *s)
{
	if (!s)
		return;
	s->dropped = true;
	later_clear(&s->turn);
	if (!s->calling && !s->sp->publishing)
		sub_free(s); /* else whoever is calling or walking does */
}

void events_clear(struct space *sp)
{
	link_each_safe(l, next, &sp->subs)
		sub_free(container_of(l, struct event_sub, link));
}
