/* streams.c - events and operations: lists, and streams that resume. */
#include <stdio.h>

#include "api/handlers.h"

/* --- events --- */

static void event_json(struct jw *w, const struct event *e)
{
	jw_obj(w, NULL);
	jw_int(w, "seq", (int64_t)e->seq);
	jw_time(w, "at", e->at_ns);
	jw_str(w, "sandbox", *e->sandbox ? e->sandbox : NULL);
	jw_str(w, "type", e->type);
	/* The body is an object of ours, written by jw: its members go beside the others. */
	if (e->body.n > 2 && e->body.p[0] == '{' && !w->err) {
		w->err = buf_addc(w->b, ',');
		if (!w->err)
			w->err = buf_add(w->b, e->body.p + 1, e->body.n - 2);
	}
	jw_obj_end(w);
}

/* A follower: r->user is its subscription, r->pos the last event it sent. While the client does not take what there is, nothing is
 * sent: the log keeps what comes, and it goes on from the last number. */
static void on_event(const struct event *e, void *arg)
{
	struct req *r = arg;
	char id[24];
	struct buf b;
	struct jw w;

	if (r->full || !r->x)
		return;
	answer_begin(&w, &b);
	event_json(&w, e);
	snprintf(id, sizeof(id), "%llu", (unsigned long long)e->seq);
	r->pos = e->seq;
	req_ref(r);
	if (req_event(r, id, e->type, &w) == 1)
		r->full = true;
	req_unref(r);
}

static void follow(struct req *r)
{
	const char *id = req_param(r, 0);

	r->full = false;
	event_unsubscribe(r->user);
	r->user = event_subscribe(r->api->sp, r->tenant, *id ? id : NULL, r->pos, on_event, r);
	if (!r->user && r->x)
		http_abort(r->x);
}

static void on_drain(struct http_exchange *x, void *arg)
{
	struct req *r = arg;

	if (r->full)
		follow(r);
}

static void follower_gone(struct req *r)
{
	event_unsubscribe(r->user);
	r->user = NULL;
}

/* Events are numbered: whoever comes back with the last number misses nothing. */
static void stream_stop(struct req *r, const struct fail *why)
{
	req_event_fail(r, why);
}

static void events_list(struct req *r, const char *sandbox, uint64_t after);

static void events(struct req *r)
{
	struct str id = http_get(http_req(r->x), "Last-Event-ID");
	struct fail why = { 0 };
	uint64_t after = 0;

	if (req_query_u64(r, "after", INT64_MAX, &after, &why) < 0)
		return req_fail(r, &why);
	if (id.n && str_u64(id, INT64_MAX, &after) < 0)
		return req_failf(r, ERR_bad_request, "Last-Event-ID: the id of an event");
	if (!req_accepts(r, "text/event-stream"))
		return events_list(r, r->sb ? r->sb->id : NULL, after);
	if (r->sb) { /* it was asked for by name, perhaps; the id is what stays */
		char *param = strdup(r->sb->id);

		if (!param)
			return req_failf(r, ERR_no_capacity, "out of memory");
		free(r->params);
		r->params = param;
		r->at[0] = 0;
	}
	r->pos = after;
	r->on_gone = follower_gone;
	req_is_stream(r, stream_stop);
	http_on_drain(r->x, on_drain, r);
	req_sse(r);
	follow(r);
}

struct listing {
	struct jw w;
	uint64_t limit, n, last;
	bool more;
};

static void list_event(const struct event *e, void *arg)
{
	struct listing *l = arg;

	if (l->n == l->limit) {
		l->more = true;
		return;
	}
	l->n++;
	l->last = e->seq;
	event_json(&l->w, e);
}

static void events_list(struct req *r, const char *sandbox, uint64_t after)
{
	autofree char *cursor = NULL;
	struct listing l = { .limit = 100 };
	struct fail why = { 0 };
	struct buf b;
	char next[24];

	if (req_query_u64(r, "limit", 1000, &l.limit, &why) < 0 || req_query(r, "cursor", &cursor, &why) < 0)
		return req_fail(r, &why);
	if (!l.limit)
		return req_failf(r, ERR_bad_request, "limit: a whole number from 1 to 1000");
	if (cursor && str_u64(str_of(cursor), INT64_MAX, &after) < 0)
		return req_failf(r, ERR_bad_cursor, "not a cursor of this list");
	answer_begin(&l.w, &b);
	jw_obj(&l.w, NULL);
	jw_arr(&l.w, "events");
	if (event_list(r->api->sp, r->tenant, sandbox, after, (unsigned)l.limit + 1, list_event, &l, &why) < 0) {
		buf_clear(&b);
		return req_fail(r, &why);
	}
	jw_arr_end(&l.w);
	snprintf(next, sizeof(next), "%llu", (unsigned long long)l.last);
	jw_str(&l.w, "next_cursor", l.more ? next : NULL);
	jw_obj_end(&l.w);
	req_json(r, 200, &l.w);
}

void h_events(struct req *r)
{
	events(r);
}

void h_sandbox_events(struct req *r)
{
	events(r);
}

/* --- operations --- */

void operation_json(struct jw *w, const char *key, const struct operation *op)
{
	static const char *const states[] = { "running", "done", "failed" };

	jw_obj(w, key);
	jw_str(w, "id", op->id);
	jw_str(w, "kind", op->kind);
	jw_str(w, "target", op->target[0] ? op->target : NULL);
	jw_str(w, "state", states[op->state]);
	jw_str(w, "step", op->step[0] ? op->step : NULL);
	if (op->progress >= 0)
		jw_num(w, "progress", op->progress);
	else
		jw_null(w, "progress");
	jw_json(w, "result", op->result);
	if (op->state == OPERATION_FAILED) {
		jw_obj(w, "error");
		jw_fail(w, &op->fail, NULL);
		jw_obj_end(w);
	} else {
		jw_null(w, "error");
	}
	jw_time(w, "created_at", op->created_ns);
	jw_time(w, "ended_at", op->ended_ns);
	jw_obj_end(w);
}

void req_operation(struct req *r, const struct operation *op)
{
	char where[64];
	struct buf b;
	struct jw w;

	if (!r->x)
		return;
	snprintf(where, sizeof(where), "/v1/operations/%s", op->id);
	http_add_header(r->x, "Location", where);
	http_add_header(r->x, "Preference-Applied", "respond-async");
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	operation_json(&w, "operation", op);
	jw_obj_end(&w);
	req_json(r, 202, &w);
}

struct op_listing {
	struct jw w;
	struct page page;
};

static int list_operation(struct operation *op, void *arg)
{
	struct op_listing *l = arg;
	enum page_take take = page_item(&l->page, op->created_ns, op->id);

	if (take == PAGE_TAKE)
		operation_json(&l->w, NULL, op);
	return take != PAGE_FULL;
}

void h_operations(struct req *r)
{
	struct op_listing l;
	struct fail why = { 0 };
	struct buf b;

	if (page_read(r, &l.page, &why) < 0)
		return req_fail(r, &why);
	answer_begin(&l.w, &b);
	jw_obj(&l.w, NULL);
	jw_arr(&l.w, "operations");
	operation_each(r->api->sp, r->tenant, list_operation, &l);
	jw_arr_end(&l.w);
	page_end(&l.page, &l.w);
	jw_obj_end(&l.w);
	req_json(r, 200, &l.w);
}

/* What a progress event shows, as one number: the same is not said twice. */
static uint64_t shown_of(const struct operation *op)
{
	uint64_t h = 14695981039346656037ULL + (uint64_t)(int64_t)(op->progress * 1000);
	const char *p;

	for (p = op->step; *p; p++)
		h = (h ^ (uint8_t)*p) * 1099511628211ULL;
	return h;
}

/* Progress is worth only its latest: what a slow client has not taken yet is not queued behind. */
static void on_operation(struct operation *op, void *arg)
{
	static const char *const names[] = { "progress", "done", "failed" };
	uint64_t shown = shown_of(op);
	struct req *r = arg;
	struct buf b;
	struct jw w;

	if (!r->x || (op->state == OPERATION_RUNNING && (http_unsent(r->x) || shown == r->pos)))
		return;
	r->pos = shown;
	answer_begin(&w, &b);
	operation_json(&w, NULL, op);
	req_ref(r);
	if (req_event(r, NULL, names[op->state], &w) >= 0 && op->state != OPERATION_RUNNING && r->x)
		http_end(r->x);
	req_unref(r);
}

static void operation_gone(struct req *r)
{
	struct operation_sub *sub = r->user;

	r->user = NULL;
	if (sub)
		operation_unsubscribe(sub);
}

void h_operation(struct req *r)
{
	struct str id = str_of(req_param(r, 0));
	struct operation *op = operation_find(r->api->sp, r->tenant, id);
	struct buf b;
	struct jw w;

	if (!op)
		return req_failf(r, ERR_operation_not_found, "no operation \"%.32s\"", id.p);
	if (!req_accepts(r, "text/event-stream")) {
		answer_begin(&w, &b);
		operation_json(&w, NULL, op);
		return req_json(r, 200, &w);
	}
	req_is_stream(r, stream_stop);
	req_sse(r);
	r->on_gone = operation_gone;
	if (op->state == OPERATION_RUNNING) {
		r->user = operation_subscribe(op, on_operation, r);
		if (!r->user)
			return http_abort(r->x);
	}
	on_operation(op, r);
}
