#include "agent/watch_rpc.h"

#include <stdio.h>

#include "agent/fs.h"
#include "agent/watch.h"
#include "base/clock.h"
#include "base/job.h"
#include "base/random.h"

#define WATCHERS_MAX 256
#define EVENTS_MAX 16384 /* waiting to be fetched from one watcher */
#define FRAME_BUF (64 * KIB)

/* One watch of a client, streamed or polled. */
struct watcher {
	struct link link;	 /* polled ones */
	struct http_exchange *x; /* the call under way; a stream's until its end */
	bool stream, opening, finished, with_entry;
	bool recursive, network;
	char path[PATH_LEN];
	struct watch *watch;
	int err;
	/* streams */
	uv_timer_t timer;
	int64_t keepalive_ms, deadline_ms, last_sent_ms;
	bool blocked;
	/* polled */
	char id[ID_LEN + 1];
	struct buf events; /* JSON objects, each with a comma behind it */
	unsigned nevents;
	bool lost;
};

static struct link watchers = { &watchers, &watchers };
static unsigned nwatchers;

static void write_event(struct jw *w, const struct watcher *c, enum watch_type type,
	const char *name, const char *path)
{
	jw_str(w, "name", name);
	jw_str(w, "type", watch_type_name(type));
	if (c->with_entry && (type == WATCH_CREATE || type == WATCH_WRITE || type == WATCH_CHMOD)) {
		struct names names = { 0 };

		(void)entry_write(w, "entry", path, &names);
		names_clear(&names);
	}
}

/* --- streams --- */

static void on_timer(uv_timer_t *t);

static void arm(struct watcher *c)
{
	int64_t now = mono_ms(), due = c->last_sent_ms + c->keepalive_ms;

	if (c->deadline_ms && c->deadline_ms < due)
		due = c->deadline_ms;
	uv_timer_start(&c->timer, on_timer, (uint64_t)MAX(due - now, 1), 0);
}

static void finish(struct watcher *c, enum rpc_code code, const char *msg)
{
	struct watch *w = steal_ptr(c->watch);

	if (c->finished)
		return;
	c->finished = true;
	watch_close(w);
	uv_timer_stop(&c->timer);
	rpc_finish(c->x, code, msg);
}

static void emit(struct watcher *c, struct buf *b, int err)
{
	int r = err ? err : rpc_send(c->x, b);

	c->last_sent_ms = mono_ms();
	if (r == 1 && !c->blocked && c->watch) {
		c->blocked = true;
		watch_pause(c->watch);
	}
	buf_clear(b);
}

static void send_empty(struct watcher *c, const char *kind)
{
	struct buf b;
	struct jw w;

	buf_init(&b, FRAME_BUF);
	rpc_frame(&b);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_obj(&w, kind);
	jw_obj_end(&w);
	jw_obj_end(&w);
	emit(c, &b, w.err);
}

static void stream_event(enum watch_type type, const char *name, const char *path, void *arg)
{
	struct watcher *c = arg;
	struct buf b;
	struct jw w;

	if (c->finished)
		return;
	buf_init(&b, FRAME_BUF);
	rpc_frame(&b);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_obj(&w, "filesystem");
	write_event(&w, c, type, name, path);
	jw_obj_end(&w);
	jw_obj_end(&w);
	emit(c, &b, w.err);
}

static const char lost_words[] =
	"more changed than could be told: events were lost, read the directory and watch again";

static void stream_lost(void *arg)
{
	finish(arg, RPC_DATA_LOSS, lost_words);
}

static const struct watch_cb stream_cb = { stream_event, stream_lost };

static void on_timer(uv_timer_t *t)
{
	struct watcher *c = container_of(t, struct watcher, timer);
	int64_t now = mono_ms();

	if (c->deadline_ms && now >= c->deadline_ms) {
		finish(c, RPC_DEADLINE_EXCEEDED, "the stream's timeout has passed");
		return;
	}
	if (now - c->last_sent_ms >= c->keepalive_ms) {
		if (c->blocked)
			c->last_sent_ms = now;
		else
			send_empty(c, "keepalive");
	}
	arm(c);
}

static void on_drain(struct http_exchange *x, void *arg)
{
	struct watcher *c = arg;

	if (!c->blocked || !c->watch)
		return;
	c->blocked = false;
	watch_resume(c->watch);
}

static void timer_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct watcher, timer));
}

static void stream_start(struct watcher *c)
{
	c->last_sent_ms = mono_ms();
	http_on_drain(c->x, on_drain, c);
	rpc_start(c->x);
	send_empty(c, "start");
	if (watch_start(c->watch, agent.loop, &stream_cb, c) < 0)
		finish(c, RPC_INTERNAL, "the watch does not start");
	else
		arm(c);
}

/* --- polled --- */

static void polled_event(enum watch_type type, const char *name, const char *path, void *arg)
{
	struct watcher *c = arg;
	size_t before = c->events.n;
	struct jw w;

	if (c->lost)
		return;
	jw_init(&w, &c->events);
	jw_obj(&w, NULL);
	write_event(&w, c, type, name, path);
	jw_obj_end(&w);
	if (w.err || ++c->nevents > EVENTS_MAX || buf_addc(&c->events, ',') < 0) {
		c->events.n = before;
		c->lost = true;
	}
}

static void polled_lost(void *arg)
{
	((struct watcher *)arg)->lost = true;
}

static const struct watch_cb polled_cb = { polled_event, polled_lost };

static void polled_start(struct watcher *c)
{
	struct http_exchange *x = c->x;
	struct buf b;
	struct jw w;

	c->x = NULL;
	http_on_close(x, NULL, NULL); /* the watcher outlives this call */
	id_make(c->id, 'w');
	buf_init(&c->events, 16 * MIB);
	if (watch_start(c->watch, agent.loop, &polled_cb, c) < 0) {
		watch_close(c->watch);
		nwatchers--;
		free(c);
		rpc_fail(x, false, RPC_INTERNAL, "the watch does not start");
		return;
	}
	link_add_tail(&watchers, &c->link);
	buf_init(&b, 256);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "watcherId", c->id);
	jw_obj_end(&w);
	rpc_reply(x, &b);
	buf_clear(&b);
}

/* --- opening: the walk over the tree is a job --- */

static void watcher_free(struct watcher *c)
{
	watch_close(c->watch);
	c->watch = NULL;
	if (!c->stream) {
		nwatchers--;
		free(c);
		return;
	}
	uv_close((uv_handle_t *)&c->timer, timer_closed);
}

static int open_job(void *arg, struct fail *why)
{
	struct watcher *c = arg;

	return watch_open(c->path, c->recursive, c->network, &c->watch, why);
}

static void opened(void *arg, const struct fail *why)
{
	struct watcher *c = arg;

	c->opening = false;
	if (!c->x) {
		watcher_free(c);
		return;
	}
	if (why->err) {
		c->finished = true;
		rpc_fail(c->x, c->stream,
			why->err == -ENOENT			       ? RPC_NOT_FOUND
			: why->err == -ENOTDIR || why->err == -EREMOTE ? RPC_INVALID_ARGUMENT
			: why->err == -ENOSPC || why->err == -EMFILE || why->err == -ENOMEM
				? RPC_RESOURCE_EXHAUSTED
				: RPC_INTERNAL,
			"%s", why->msg);
		return; /* on_close frees it */
	}
	if (c->stream)
		stream_start(c);
	else
		polled_start(c);
}

static void gone(struct http_exchange *x, int err, void *arg)
{
	struct watcher *c = arg;

	c->x = NULL;
	c->finished = true;
	if (!c->opening)
		watcher_free(c);
}

static void open_watch(struct rpc *r, bool stream)
{
	struct watcher *c = calloc(1, sizeof(*c));
	struct user u;

	if (!c) {
		rpc_fail(r->x, stream, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	c->stream = stream;
	if (rpc_user(r, &u) < 0 || rpc_path(r, "path", &u, c->path) < 0) {
		free(c);
		return;
	}
	if (msg_bool(r->req, "recursive", &c->recursive) < 0 ||
		msg_bool(r->req, "include_entry", &c->with_entry) < 0 ||
		msg_bool(r->req, "allow_network_mounts", &c->network) < 0) {
		free(c);
		rpc_fail(r->x, stream, RPC_INVALID_ARGUMENT,
			"recursive, includeEntry, allowNetworkMounts: true or false");
		return;
	}
	if (!stream && nwatchers >= WATCHERS_MAX) {
		free(c);
		rpc_fail(r->x, stream, RPC_RESOURCE_EXHAUSTED, "%d watchers exist already",
			WATCHERS_MAX);
		return;
	}
	c->x = r->x;
	c->keepalive_ms = r->keepalive_ms;
	c->deadline_ms = r->timeout_ms ? mono_ms() + r->timeout_ms : 0;
	if (stream)
		uv_timer_init(agent.loop, &c->timer);
	else
		nwatchers++;
	http_on_close(r->x, gone, c);
	c->opening = true;
	if (job_run(agent.loop, NULL, open_job, opened, c) < 0) {
		c->opening = false;
		c->finished = true;
		rpc_fail(r->x, stream, RPC_RESOURCE_EXHAUSTED, "out of memory");
	}
}

void rpc_watch_dir(struct rpc *r)
{
	open_watch(r, true);
}

void rpc_create_watcher(struct rpc *r)
{
	open_watch(r, false);
}

static struct watcher *watcher_named(struct rpc *r)
{
	const char *id = "";

	if (msg_str(r->req, "watcher_id", &id) == 0)
		link_each_safe(l, tmp,
			&watchers) if (strcmp(container_of(l, struct watcher, link)->id, id) ==
				       0) return container_of(l, struct watcher, link);
	rpc_fail(r->x, false, RPC_NOT_FOUND, "watcher with id %s not found", id);
	return NULL;
}

void rpc_get_watcher_events(struct rpc *r)
{
	struct watcher *c = watcher_named(r);
	struct buf b;
	int err;

	if (!c)
		return;
	if (c->lost) {
		c->lost = false; /* told; what comes from now on can be told again */
		c->nevents = 0;
		buf_clear(&c->events);
		rpc_fail(r->x, false, RPC_DATA_LOSS, "%s", lost_words);
		return;
	}
	buf_init(&b, 17 * MIB);
	err = buf_addz(&b, "{\"events\":[");
	if (err == 0 && c->events.n > 0)
		err = buf_add(&b, c->events.p, c->events.n - 1);
	if (err == 0)
		err = buf_addz(&b, "]}");
	if (err == 0) {
		c->nevents = 0;
		buf_clear(&c->events);
		rpc_reply(r->x, &b);
	} else {
		rpc_fail(r->x, false, RPC_RESOURCE_EXHAUSTED, "out of memory");
	}
	buf_clear(&b);
}

void rpc_remove_watcher(struct rpc *r)
{
	struct watcher *c = watcher_named(r);

	if (!c)
		return;
	link_del(&c->link);
	buf_clear(&c->events);
	watcher_free(c);
	rpc_reply(r->x, NULL);
}
