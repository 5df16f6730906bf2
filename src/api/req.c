/* req.c - one request: its life, what it asks, how it is answered. */
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>

#include "api/api.h"
#include "api/metrics.h"
#include "base/log.h"

#define TRIM_MS 500  /* connections are closed after their exchanges */

/* --- lifetime --- */

static void on_close(struct http_exchange *x, int err, void *arg)
{
	req_over(arg);
}

/* What thousands of streams took is not needed again soon. */
void req_trim(struct tick *t)
{
	malloc_trim(0);
}

struct req *req_new(struct api *api, struct http_exchange *x)
{
	struct req *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->api = api;
	r->x = x;
	r->refs = 1;
	link_init(&r->link);
	http_on_close(x, on_close, r);
	return r;
}

struct req *req_ref(struct req *r)
{
	r->refs++;
	return r;
}

void req_unref(struct req *r)
{
	if (--r->refs)
		return;
	assert(!r->x);
	if (r->held && (r->route && r->route->flags & ROUTE_QUIET))
		sandbox_unkeep(r->sb);
	else if (r->held)
		sandbox_release(r->sb);
	if (r->has_body)
		json_decref(r->body);
	free(r->params);
	free(r->key);
	free(r);
}

void req_over(struct req *r)
{
	if (!r->x)
		return;
	metrics_request(r->api, r->route, r->status);
	r->x = NULL;
	link_del(&r->link);
	if (r->stream && --r->api->nstreams == 0 && r->api->most_streams > 1000) {
		r->api->most_streams = 0;
		tick_set(&r->api->ticks, &r->api->trim, TRIM_MS);
	}
	if (r->on_gone)
		r->on_gone(r);
	req_unref(r);
}

void req_is_stream(struct req *r, void (*stop)(struct req *r, const struct fail *why))
{
	if (!r->x || r->stream)
		return;
	r->stream = true;
	r->on_stop = stop;
	r->api->nstreams++;
	r->api->most_streams = MAX(r->api->most_streams, r->api->nstreams);
	link_add_tail(&r->api->streams, &r->link);
}

void req_stop_streams(struct api *api, const char *key_id, const struct fail *why)
{
	struct link todo;

	/* Ending one may end others (streams of the same sandbox), so the list is walked from a stable copy of its head. */
	link_init(&todo);
	link_each_safe(it, next, &api->streams) {
		struct req *r = container_of(it, struct req, link);

		if (key_id && (!r->key || strcmp(r->key, key_id) != 0))
			continue;
		link_del(it);
		link_add_tail(&todo, it);
	}
	while (!link_empty(&todo)) {
		struct req *r = container_of(todo.next, struct req, link);

		link_del(&r->link);
		link_add_tail(&api->streams, &r->link);
		req_ref(r);
		if (r->on_stop)
			r->on_stop(r, why);
		req_unref(r);
	}
}

/* --- reading --- */

const char *req_param(const struct req *r, unsigned i)
{
	return r->params && i < API_PARAMS ? r->params + r->at[i] : "";
}

static void on_whole(struct http_exchange *x, struct str text, const struct fail *why, void *arg)
{
	struct req *r = arg;
	struct fail f = { 0 };
	void (*fn)(struct req *r, json_t *body) = r->body_fn;

	if (why->err) {
		r->status = (unsigned short)err_info(why->code)->status;
		return; /* answered already */
	}
	if (!text.n && (r->route->flags & ROUTE_OPTIONAL_BODY))
		text = STR("{}");
	r->body = json_read(text, &f);
	r->has_body = r->body != NULL;
	if (!r->has_body)
		return req_fail(r, &f);
	if (!json_is_object(r->body))
		return req_failf(r, ERR_bad_json, "the request body is not a JSON object");
	req_ref(r);
	fn(r, r->body);
	req_unref(r);
}

void req_body(struct req *r, void (*fn)(struct req *r, json_t *body))
{
	if (!r->x)
		return;
	r->body_fn = fn;
	http_body_whole(r->x, API_BODY_MAX, on_whole, r);
}

int req_query(struct req *r, const char *key, char **out, struct fail *why)
{
	int err;

	*out = NULL;
	if (!r->x)
		return fail_set(why, -EPIPE, "the client is gone");
	err = http_query(http_req(r->x)->query, key, out);
	if (err == -EINVAL)
		return fail_as(why, ERR_bad_request, "%s: a malformed percent-escape in the query", key);
	if (err < 0)
		return fail_set(why, err, "out of memory");
	return 0;
}

int req_query_flag(struct req *r, const char *key, bool *out, struct fail *why)
{
	autofree char *v = NULL;
	int err = req_query(r, key, &v, why);

	if (err < 0 || !v)
		return err;
	if (!*v || !strcmp(v, "1") || !strcmp(v, "true"))
		*out = true;
	else if (!strcmp(v, "0") || !strcmp(v, "false"))
		*out = false;
	else
		return fail_as(why, ERR_bad_request, "%s: 1 or 0", key);
	return 0;
}

int req_query_u64(struct req *r, const char *key, uint64_t max, uint64_t *out, struct fail *why)
{
	autofree char *v = NULL;
	int err = req_query(r, key, &v, why);

	if (err < 0 || !v)
		return err;
	if (str_u64(str_of(v), max, out) < 0)
		return fail_as(why, ERR_bad_request, "%s: a whole number from 0 to %llu", key,
			       (unsigned long long)max);
	return 0;
}

bool req_wants_async(struct req *r)
{
	return r->x && (r->route->flags & ROUTE_ASYNC) &&
	       http_has_token(http_req(r->x), "Prefer", "respond-async");
}

int req_idempotency(struct req *r, char room[129], const char **out, struct fail *why)
{
	struct str key = r->x ? http_get(http_req(r->x), "Idempotency-Key") : (struct str){ 0 };

	if (!key.p)
		return 0;
	if (!key.n || str_copy(room, 129, key) < 0)
		return fail_as(why, ERR_bad_request, "Idempotency-Key: 1 to 128 characters");
	*out = room;
	return 0;
}

struct sandbox *req_sandbox(struct req *r, struct fail *why)
{
	return sandbox_find(r->api->sp, r->tenant, str_of(req_param(r, 0)), why);
}

/* Whether TYPE is named in Accept; its weights are not looked at: whoever names it can read it. */
bool req_accepts(struct req *r, const char *type)
{
	struct str list, item, rest;

	if (!r->x)
		return false;
	list = http_get(http_req(r->x), "Accept");
	while (list.n) {
		str_cut(list, ',', &item, &rest);
		list = rest;
		str_cut(item, ';', &item, &rest);
		if (str_ieqz(str_trim(item), type))
			return true;
	}
	return false;
}

/* --- values that a body may give as a number or as a text --- */

int value_size(json_t *v, const char *name, uint64_t min, uint64_t max, uint64_t *out, struct fail *why)
{
	uint64_t n;

	if (!v || json_is_null(v))
		return 0;
	if (json_is_integer(v) && json_integer_value(v) >= 0)
		n = (uint64_t)json_integer_value(v);
	else if (!json_is_string(v) ||
		 str_size((struct str){ json_string_value(v), json_string_length(v) }, &n) < 0)
		return fail_as(why, ERR_bad_request, "%s: a number of bytes, or a text like \"512M\"", name);
	if (n < min || n > max)
		return fail_as(why, ERR_bad_request, "%s: from %llu to %llu bytes", name,
			       (unsigned long long)min, (unsigned long long)max);
	*out = n;
	return 0;
}

int value_ms(json_t *v, const char *name, int64_t max_s, int64_t *out, struct fail *why)
{
	int64_t ms;

	if (!v || json_is_null(v))
		return 0;
	if (json_is_number(v) && json_number_value(v) >= 0 && json_number_value(v) <= (double)max_s) {
		ms = (int64_t)(json_number_value(v) * 1000 + 0.5);
	} else if (json_is_string(v)) {
		struct str s = { json_string_value(v), json_string_length(v) };

		if (str_duration_ms(s, &ms) < 0)
			ms = -1;
	} else {
		ms = -1;
	}
	if (ms < 0 || ms > max_s * 1000)
		return fail_as(why, ERR_bad_request,
			       "%s: seconds from 0 to %lld, or a text like \"10m\"", name,
			       (long long)max_s);
	*out = ms;
	return 0;
}

int value_timeout(struct req *r, json_t *v, const char *name, int64_t *out, struct fail *why)
{
	const struct config *cfg = r->api->cfg;
	int64_t ms = -1;
	int err = value_ms(v, name, cfg->max_timeout_s ? cfg->max_timeout_s : 365 * 86400LL, &ms, why);

	if (!err && ms >= 0)
		*out = (ms + 999) / 1000;
	return err;
}

static bool env_name(const char *s)
{
	if (!*s || (*s >= '0' && *s <= '9'))
		return false;
	for (; *s; s++)
		if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
		      *s == '_'))
			return false;
	return true;
}

int value_env(json_t *v, const char *name, unsigned max, size_t max_bytes, struct fail *why)
{
	size_t total = 0;
	const char *key;
	json_t *item;

	if (!v)
		return 0;
	if (json_object_size(v) > max)
		return fail_as(why, ERR_too_large, "%s: more than %u entries", name, max);
	json_object_foreach (v, key, item) {
		if (!env_name(key))
			return fail_as(why, ERR_bad_request,
				       "%s: \"%.64s\" is not a name of [A-Za-z0-9_]", name, key);
		if (!json_is_string(item))
			return fail_as(why, ERR_bad_request, "%s.%.64s: a text", name, key);
		total += strlen(key) + json_string_length(item) + 2;
	}
	if (total > max_bytes)
		return fail_as(why, ERR_too_large, "%s: more than %zu bytes", name, max_bytes);
	return 0;
}

int value_strings(json_t *v, const char *name, unsigned min, unsigned max, size_t max_bytes,
		  struct fail *why)
{
	size_t total = 0, i;
	json_t *item;

	if (json_array_size(v) < min || json_array_size(v) > max)
		return fail_as(why, ERR_bad_request, "%s: %u to %u texts", name, min, max);
	json_array_foreach (v, i, item) {
		if (!json_is_string(item))
			return fail_as(why, ERR_bad_request, "%s[%zu]: a text", name, i);
		total += json_string_length(item) + 1;
	}
	if (total > max_bytes)
		return fail_as(why, ERR_too_large, "%s: more than %zu bytes in all", name, max_bytes);
	return 0;
}

/* --- answering --- */

void answer_begin(struct jw *w, struct buf *b)
{
	buf_init(b, API_ANSWER_MAX);
	jw_init(w, b);
}

void req_json(struct req *r, int status, struct jw *w)
{
	struct fail f = { 0 };

	if (!r->x) {
		buf_clear(w->b);
		return;
	}
	if (w->err) {
		buf_clear(w->b);
		fail_set(&f, w->err, "the answer does not fit into memory");
		return req_fail(r, &f);
	}
	r->status = (unsigned short)status;
	http_respond_buf(r->x, status, "application/json", w->b);
}

void req_fail(struct req *r, const struct fail *why)
{
	const struct errinfo *e = err_info(why->code);

	if (!r->x)
		return;
	if (why->code == ERR_internal || why->code == ERR_NONE)
		log_warning("request %s: %s route=%s", http_request_id(r->x), why->msg,
			    r->route ? r->route->name : "none");
	r->status = (unsigned short)e->status;
	if (http_started(r->x)) {
		http_abort(r->x);
		return;
	}
	if (e->status == 401)
		http_add_header(r->x, "WWW-Authenticate", "Bearer");
	if (why->code == ERR_no_capacity || why->code == ERR_rate_limited)
		http_add_header(r->x, "Retry-After", "1");
	http_respond_fail(r->x, why);
}

void req_failf(struct req *r, enum errcode code, const char *fmt, ...)
{
	struct fail f = { 0 };
	char msg[sizeof(f.msg)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	fail_as(&f, code, "%s", msg);
	req_fail(r, &f);
}

void req_empty(struct req *r, int status)
{
	if (!r->x)
		return;
	r->status = (unsigned short)status;
	http_respond_empty(r->x, status);
}

void answer_nothing(json_t *value, const struct fail *why, void *arg)
{
	struct req *r = arg;

	if (why->err)
		req_fail(r, why);
	else
		req_empty(r, 204);
	req_unref(r);
}

void req_text(struct req *r, int status, const char *ctype, const void *p, size_t n)
{
	if (!r->x)
		return;
	r->status = (unsigned short)status;
	http_respond(r->x, status, ctype, p, n);
}

void req_start(struct req *r, int status, const char *ctype, int64_t length)
{
	if (!r->x)
		return;
	r->status = (unsigned short)status;
	http_start(r->x, status, ctype, length);
}

void req_sse(struct req *r)
{
	if (!r->x)
		return;
	r->status = 200;
	sse_start(r->x);
}

int req_event(struct req *r, const char *id, const char *event, struct jw *w)
{
	int n = w->err;

	if (!r->x)
		n = -EPIPE;
	else if (!n)
		n = sse_send(r->x, id, event, buf_str(w->b));
	buf_clear(w->b);
	return n;
}

void req_event_fail(struct req *r, const struct fail *why)
{
	struct buf b;
	struct jw w;

	if (!r->x)
		return;
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_fail(&w, why, NULL);
	jw_obj_end(&w);
	if (req_event(r, NULL, "error", &w) >= 0)
		http_end(r->x);
	else if (r->x)
		http_abort(r->x);
}

/* --- lists --- */

int page_read(struct req *r, struct page *p, struct fail *why)
{
	autofree char *cursor = NULL;
	struct str head, tail;
	uint64_t ns;
	int err;

	memset(p, 0, sizeof(*p));
	p->limit = 100;
	err = req_query_u64(r, "limit", 1000, &p->limit, why);
	if (err < 0 || (err = req_query(r, "cursor", &cursor, why)) < 0)
		return err;
	if (!p->limit)
		return fail_as(why, ERR_bad_request, "limit: a whole number from 1 to 1000");
	if (!cursor)
		return 0;
	/* NS-ID, and nobody else's business. */
	if (!str_cut(str_of(cursor), '-', &head, &tail) || str_u64(head, INT64_MAX, &ns) < 0 ||
	    !tail.n || str_copy(p->after_id, sizeof(p->after_id), tail) < 0)
		return fail_as(why, ERR_bad_cursor, "not a cursor of this list");
	p->after_ns = (int64_t)ns;
	return 0;
}

enum page_take page_item(struct page *p, int64_t created_ns, const char *id)
{
	if (p->anchored) {
		if (!strcmp(id, p->after_id)) {
			p->anchored = false;
			p->after_id[0] = '\0';
		}
		return PAGE_SKIP;
	}
	if (p->after_id[0] && (created_ns > p->after_ns ||
			       (created_ns == p->after_ns && strcmp(id, p->after_id) >= 0)))
		return PAGE_SKIP;
	if (p->n == p->limit) {
		p->more = true;
		return PAGE_FULL;
	}
	p->n++;
	p->last_ns = created_ns;
	snprintf(p->last_id, sizeof(p->last_id), "%s", id);
	return PAGE_TAKE;
}

void page_end(struct page *p, struct jw *w)
{
	char cursor[64];

	if (!p->more) {
		jw_null(w, "next_cursor");
		return;
	}
	snprintf(cursor, sizeof(cursor), "%lld-%s", (long long)p->last_ns, p->last_id);
	jw_str(w, "next_cursor", cursor);
}
