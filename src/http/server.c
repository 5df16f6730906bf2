/* server.c - the life of a server's connections, and the reading of requests; see server.h.
 * Listening is in listen.c, answers and bodies are in exchange.c. */
#include "http/exchange.h"

#define LINGER_MS 2000
#define OVERFLOW_MAX 256 /* connections over the maximum that are told so properly */

extern const struct htls_ops htls_ops __attribute__((weak));

/* --- the life of a connection --- */

void http_exchange_deadline(struct http_exchange *x, int64_t ms)
{
	x->deadline = ms ? hcore_now(x->c.core) + ms : 0;
	if (ms)
		hcore_due(x->c.core, x->deadline);
}

const struct http_server_opts *http_exchange_opts(const struct http_exchange *x)
{
	return &x->srv->opts;
}

bool http_exchange_last(const struct http_exchange *x)
{
	return !x->srv || x->srv->closing;
}

static void request_clear(struct http_exchange *x)
{
	free(x->req);
	x->req = NULL;
	buf_clear(&x->headers);
}

static void exchange_free(struct http_exchange *x)
{
	request_clear(x);
	free(x);
}

/* Nobody answered yet on a connection that is long gone; now somebody has. */
static void orphan_free(struct hready *r)
{
	struct http_exchange *x = container_of(r, struct http_exchange, c.ready);
	struct hcore *core = x->c.core;

	exchange_free(x);
	hcore_put(core);
}

static void on_destroy(struct hconn *c)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);
	struct http_server *s = x->srv;

	if (x->stream)
		http_stream_gone(x->stream);
	hcore_hold(c->core, -1);
	link_del(&x->link);
	x->srv = NULL;
	s->n_conns--;
	if (x->orphan) {
		hcore_ref(c->core);
		c->ready.fn = orphan_free;
		if (x->answer == ANSWER_ENDED)
			hcore_defer(c->core, &c->ready);
	} else if (!s->spare) {
		request_clear(x);
		s->spare = x;
	} else {
		exchange_free(x);
	}
	http_server_check_gone(s);
	if (!s->closing)
		http_listeners_feed(s);
}

void http_exchange_answered(struct http_exchange *x)
{
	x->answer = ANSWER_ENDED;
	if (x->orphan && x->c.closed)
		hcore_defer(x->c.core, &x->c.ready);
}

static void tell_close(struct http_exchange *x, int err)
{
	if (x->over)
		return;
	x->over = true;
	x->deadline = 0;
	if (x->close_fn)
		x->close_fn(x, err, x->close_arg);
}

/* The client has gone, or has to go. */
static void gone(struct http_exchange *x, int err, bool reset)
{
	if (x->state == HTTP_ACTIVE && !x->over) {
		if (x->body == BODY_READING && x->answer != ANSWER_ENDED)
			http_exchange_body_fail(x, err);
		x->orphan = !x->close_fn && x->answer != ANSWER_ENDED;
		tell_close(x, err);
	}
	hconn_close(&x->c, reset);
}

static void linger(struct http_exchange *x)
{
	x->state = HTTP_LINGER;
	request_clear(x);
	http_exchange_deadline(x, LINGER_MS);
	hconn_shutdown(&x->c);
	hconn_resume(&x->c);
	if (x->c.eof)
		hconn_close(&x->c, false);
}

/* --- requests --- */

static int status_of(int err)
{
	switch (err) {
	case -EFBIG:
		return 431;
	case -EPROTO:
		return 505;
	case -ENOTSUP:
		return 501;
	case -ETIMEDOUT:
		return 408;
	case -EAGAIN:
		return 503;
	}
	return 400;
}

/* An answer to what is no request, the last on this connection. */
static void refuse(struct http_exchange *x, int err, const struct fail *why)
{
	autobuf struct buf body = { 0 }, all = { 0 };
	struct jw w;
	int status = status_of(err);

	buf_init(&body, 2 * KIB);
	buf_init(&all, 4 * KIB);
	jw_init(&w, &body);
	jw_obj(&w, NULL);
	jw_fail(&w, why, NULL);
	jw_obj_end(&w);
	buf_addf(&all, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
	buf_adds(&all, hcore_date(x->c.core));
	buf_addf(&all,
		"Content-Type: application/json\r\nContent-Length: %zu\r\nConnection: "
		"close\r\n\r\n",
		body.n);
	buf_adds(&all, buf_str(&body));
	hconn_write(&x->c, all.p, all.n);
	linger(x);
}

static void begin(struct http_exchange *x, const struct http_head *h, const char *from,
	struct http_request_block *req)
{
	/* The part of the table of headers that is in use, and the rest of it not. */
	memcpy(&req->head, h, sizeof(*h));
	memcpy(req->bytes, from, h->size);
	http_head_move(&req->head, from, req->bytes);
	x->req = req;
	x->state = HTTP_ACTIVE;
	x->body = h->framing == HTTP_BODY_NONE ? BODY_WHOLE : BODY_UNREAD;
	x->body_chunked = h->framing == HTTP_BODY_CHUNKED;
	x->body_left = h->length;
	x->body_seen = 0;
	http_chunked_init(&x->chunked);
	x->expect = h->expect_continue;
	x->keep = h->keep_alive;
	x->minor0 = h->minor == 0;
	x->no_body = str_eqz(h->method, "HEAD");
	x->connect = str_eqz(h->method, "CONNECT");
	x->answer = ANSWER_NONE;
	x->over = x->aborted = x->orphan = x->forget = x->sse = false;
	x->body_told = x->body_paused = x->has_date = x->has_server = false;
	x->body_err = 0;
	x->body_fn = NULL;
	x->close_fn = NULL;
	x->drain_fn = NULL;
	x->id[0] = '\0';
	x->deadline = 0;
	buf_init(&x->headers, HTTP_HEAD_MAX);
}

static size_t read_head(struct http_exchange *x, const char *p, size_t n)
{
	struct http_request_block *req;
	struct http_head h;
	struct fail why;
	ssize_t r;

	/* Bytes that end no line change nothing about what was seen before. */
	if (x->head_seen && n < HTTP_HEAD_MAX &&
		!memchr(p + x->head_seen, '\n', n - x->head_seen)) {
		x->head_seen = (uint32_t)n;
		return 0;
	}
	r = http_request_parse(&h, (struct str){ p, n }, &why);
	if (r == 0) {
		x->head_seen = (uint32_t)n;
		if (x->state == HTTP_IDLE) {
			x->state = HTTP_HEAD;
			http_exchange_deadline(x, x->srv->opts.head_timeout_ms);
		}
		return 0;
	}
	x->head_seen = 0;
	req = r > 0 ? malloc(sizeof(*req) + h.size) : NULL;
	if (!req) {
		if (r > 0)
			r = fail_set(&why, -EAGAIN, "out of memory");
		refuse(x, (int)r, &why);
		return n;
	}
	begin(x, &h, p, req);
	hconn_pause(&x->c);
	x->srv->fn(x, x->srv->arg);
	return (size_t)r;
}

/* The rest of a body that nobody wanted. */
static size_t drain(struct http_exchange *x, const char *p, size_t n)
{
	size_t used = http_exchange_body(x, p, n);

	x->body_max -= MIN(x->body_max, used);
	if (x->body == BODY_WHOLE) {
		x->state = HTTP_IDLE;
		http_exchange_deadline(x, x->srv->opts.idle_timeout_ms);
		hconn_resume(&x->c);
	} else if (x->body == BODY_BROKEN || x->body_max == 0) {
		linger(x);
	}
	return used;
}

static size_t on_data(struct hconn *c, const char *p, size_t n)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);

	switch (x->state) {
	case HTTP_IDLE:
	case HTTP_HEAD:
		return read_head(x, p, n);
	case HTTP_ACTIVE:
		if (x->body == BODY_READING && x->answer != ANSWER_ENDED && !x->aborted)
			return http_exchange_body(x, p, n);
		hconn_pause(c);
		return 0;
	case HTTP_DRAIN:
		return drain(x, p, n);
	default:
		return n;
	}
}

/* The answer has left. What comes next on this connection? */
static void finish(struct http_exchange *x)
{
	bool closing = !x->keep || x->srv->closing || x->body == BODY_BROKEN;

	tell_close(x, 0);
	if (x->c.closing)
		return;
	request_clear(x);
	x->sse = false;
	/* A client that has closed its side may have sent more requests before. */
	closing |= x->c.eof && hconn_buffered(&x->c) == 0;
	if (!closing && x->body != BODY_WHOLE)
		closing = x->expect || (!x->body_chunked && x->body_left > DRAIN_MAX);
	if (closing) {
		linger(x);
		return;
	}
	x->head_seen = 0;
	if (x->body == BODY_WHOLE) {
		x->state = HTTP_IDLE;
		http_exchange_deadline(x, x->srv->opts.idle_timeout_ms);
	} else {
		x->state = HTTP_DRAIN;
		x->body = BODY_READING;
		x->body_fn = NULL;
		x->body_max = DRAIN_MAX;
		http_exchange_deadline(x, LINGER_MS);
	}
	hconn_resume(&x->c);
}

static void on_kicked(struct hconn *c)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);

	if (c->eof && (x->state == HTTP_IDLE || x->state == HTTP_HEAD || x->state == HTTP_DRAIN))
		hconn_close(c, false);
	if (x->state != HTTP_ACTIVE || x->over)
		return;
	if (x->aborted) {
		gone(x, -ECANCELED, true);
		return;
	}
	if (x->answer != ANSWER_ENDED)
		http_exchange_body_tell(x);
	if (!c->closing && x->answer == ANSWER_ENDED && !x->over && c->unsent == 0)
		finish(x);
}

static void on_flushed(struct hconn *c)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);

	if (x->state == HTTP_ACTIVE && x->answer == ANSWER_ENDED)
		hconn_kick(c);
}

static void on_drain(struct hconn *c)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);

	if (x->state == HTTP_ACTIVE && x->answer == ANSWER_STARTED && x->drain_fn && !x->over)
		x->drain_fn(x, x->drain_arg);
}

static void on_end(struct hconn *c, int err)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);

	/* A client may close its side after its request and still read what is on its way. */
	if (err == 0 && x->state == HTTP_ACTIVE && x->answer == ANSWER_ENDED && !x->aborted) {
		if (c->unsent == 0)
			hconn_kick(c);
		return;
	}
	gone(x, err ? err : -EPIPE, false);
}

static int64_t on_tick(struct hconn *c, int64_t now)
{
	struct http_exchange *x = container_of(c, struct http_exchange, c);
	int64_t due = INT64_MAX;
	struct fail why;

	if (hconn_stalled(c, now, &due)) {
		gone(x, -ETIMEDOUT, true);
		return INT64_MAX;
	}
	if (x->sse && x->answer == ANSWER_STARTED && now - x->wrote_at >= SSE_SILENCE_MS)
		http_exchange_ping(x);
	if (!x->deadline)
		return due;
	if (now < x->deadline)
		return MIN(due, x->deadline);
	x->deadline = 0;
	if (x->state == HTTP_ACTIVE) {
		http_exchange_body_fail(x, -ETIMEDOUT);
	} else if (x->state == HTTP_HEAD) {
		fail_set(&why, -ETIMEDOUT, "the request's head did not arrive in time");
		refuse(x, -ETIMEDOUT, &why);
	} else {
		hconn_close(c, false);
	}
	return due;
}

static const struct hconn_ops exchange_ops = {
	.data = on_data,
	.end = on_end,
	.drain = on_drain,
	.flushed = on_flushed,
	.kicked = on_kicked,
	.tick = on_tick,
	.eager_end = true,
	.write_end = true,
};

/* --- accepting --- */

static void overflow(struct http_exchange *x)
{
	struct fail why;

	fail_as(&why, ERR_rate_limited, "more than %u connections", x->srv->opts.max_conns);
	refuse(x, -EAGAIN, &why);
}

struct http_exchange *http_exchange_new(struct http_server *s, bool pipe, bool *no_memory)
{
	struct http_exchange *x = calloc(1, sizeof(*x));

	*no_memory = !x;
	if (!x && s->spare) {
		x = s->spare;
		s->spare = NULL;
		memset(x, 0, sizeof(*x));
	}
	if (!x)
		return NULL;
	/* This fails for kinds of sockets that we never ask for. */
	hconn_init(&x->c, s->core, pipe, &exchange_ops, on_destroy);
	x->srv = s;
	link_add_tail(&s->conns, &x->link);
	s->n_conns++;
	hcore_hold(s->core, 1);
	x->c.write_timeout_ms = s->opts.write_timeout_ms;
	x->c.high_water = s->opts.high_water;
	return x;
}

void http_exchange_accepted(struct http_exchange *x)
{
	struct http_server *s = x->srv;

	x->state = HTTP_IDLE;
	/* A client that connects has something to say: the first request gets the time of a head.
	 */
	http_exchange_deadline(x, s->opts.head_timeout_ms);
	if (s->n_conns > s->opts.max_conns) {
		if (x->c.tls || s->n_conns > s->opts.max_conns + OVERFLOW_MAX) {
			hconn_close(&x->c, true);
			return;
		}
		overflow(x);
	}
	hconn_read_start(&x->c);
}

void http_server_set_tls(struct http_server *s, SSL_CTX *tls)
{
	SSL_CTX *old = s->tls;

	if (tls)
		htls_ops.ctx_ref(tls);
	s->tls = tls;
	if (old)
		htls_ops.ctx_free(old);
}

/* --- the server --- */

int http_server_new(uv_loop_t *loop, const struct http_server_opts *o, http_request_fn *fn,
	void *arg, struct http_server **out)
{
	struct http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->spare = calloc(1, sizeof(*s->spare));
	s->core = s->spare ? hcore_get(loop) : NULL;
	if (!s->core) {
		free(s->spare);
		free(s);
		return -ENOMEM;
	}
	if (o)
		s->opts = *o;
	s->opts.max_conns = s->opts.max_conns ? s->opts.max_conns : 20000;
	s->opts.head_timeout_ms = s->opts.head_timeout_ms ? s->opts.head_timeout_ms : 10000;
	s->opts.idle_timeout_ms = s->opts.idle_timeout_ms ? s->opts.idle_timeout_ms : 640000;
	s->opts.body_timeout_ms = s->opts.body_timeout_ms ? s->opts.body_timeout_ms : 60000;
	s->opts.write_timeout_ms = s->opts.write_timeout_ms ? s->opts.write_timeout_ms : 60000;
	s->opts.high_water = s->opts.high_water ? s->opts.high_water : HCONN_HIGH_WATER;
	s->fn = fn;
	s->arg = arg;
	link_init(&s->listeners);
	link_init(&s->conns);
	link_init(&s->ready.link);
	*out = s;
	return 0;
}

unsigned http_server_conns(const struct http_server *s)
{
	return s->n_conns;
}

static void server_free(struct hready *r)
{
	struct http_server *s = container_of(r, struct http_server, ready);

	if (s->tls)
		htls_ops.ctx_free(s->tls);
	if (s->gone)
		s->gone(s->gone_arg);
	hcore_put(s->core);
	free(s->spare);
	free(s);
}

void http_server_check_gone(struct http_server *s)
{
	if (!s->closing || s->n_conns || s->n_listeners)
		return;
	s->ready.fn = server_free;
	hcore_defer(s->core, &s->ready);
}

static void conn_reset_now(struct http_exchange *x)
{
	if (x->state == HTTP_ACTIVE && !x->over) {
		x->aborted = true;
		hconn_kick(&x->c);
	} else {
		hconn_close(&x->c, true);
	}
}

void http_server_reset(struct http_server *s, const struct http_exchange *but)
{
	link_each_safe(it, tmp, &s->conns)
	{
		struct http_exchange *x = container_of(it, struct http_exchange, link);

		if (x != but)
			conn_reset_now(x);
	}
}

void http_server_hold(struct http_server *s, const struct http_exchange *but, bool on)
{
	link_each_safe(it, tmp, &s->conns)
	{
		struct http_exchange *x = container_of(it, struct http_exchange, link);

		if (!on || (x != but && x->state != HTTP_IDLE))
			hconn_hold(&x->c, on);
	}
}

void http_server_close(struct http_server *s, bool now, void (*gone_fn)(void *arg), void *arg)
{
	s->closing = true;
	s->gone = gone_fn;
	s->gone_arg = arg;
	http_listeners_close(s);
	link_each_safe(it, tmp, &s->conns)
	{
		struct http_exchange *x = container_of(it, struct http_exchange, link);

		if (now)
			conn_reset_now(x);
		else if (x->state == HTTP_IDLE && hconn_buffered(&x->c) == 0)
			hconn_close(&x->c, false);
	}
	http_server_check_gone(s);
}
