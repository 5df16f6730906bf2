/* client.c - calls; see client.h. How connections come about is in link.c. */
#include <stdarg.h>
#include <stdio.h>

#include "http/exchange.h"
#include "http/link.h"

#define INTERIM_MAX 8 /* 1xx before an answer */

static void deadline(struct http_call *c, int64_t ms)
{
	c->deadline = ms > 0 ? hcore_now(c->e->core) + ms : 0;
	if (ms > 0)
		hcore_due(c->e->core, c->deadline);
}

void http_call_timeout(struct http_call *c, int ms)
{
	c->total_deadline = hcore_now(c->e->core) + ms;
	hcore_due(c->e->core, c->total_deadline);
}

/* --- the end --- */

static void on_ready(struct hready *r)
{
	struct http_call *c = container_of(r, struct http_call, ready);
	struct http_endpoint *e = c->e;

	if (!c->upgraded)
		c->cb.on_end(c, &c->why, c->arg);
	link_del(&c->link);
	link_del(&c->sweep.link);
	hcore_hold(e->core, -1);
	buf_clear(&c->head);
	buf_clear(&c->body);
	free(c);
	http_endpoint_put(e);
}

/* Nothing but on_end comes after this. */
static void end(struct http_call *c, bool keep)
{
	struct hlink *l = c->l;

	if (c->ending)
		return;
	c->ending = true;
	c->l = NULL;
	if (l && keep)
		hlink_keep(l);
	else if (l)
		hlink_drop(l, c->why.err != 0);
	if (c->attempt)
		hattempt_abandon(c->attempt);
	c->attempt = NULL;
	hcore_defer(c->e->core, &c->ready);
}

void http_call_failed(struct http_call *c, int err, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	if (c->ending)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fail_set(&c->why, err, "%s", text);
	end(c, false);
}

static void whole(struct http_call *c)
{
	c->why.err = 0;
	end(c, c->keep && c->sent_all);
}

/* --- sending --- */

static int add_head(struct http_call *c, const struct http_call_opts *o)
{
	struct buf *b = &c->head;
	int r;

	(void)((r = buf_addf(b, "%s %s HTTP/1.1\r\n", o->method, o->target)) ||
		(r = buf_addf(b, "Host: %s\r\n", o->host ? o->host : c->e->host_header)));
	for (unsigned i = 0; i < o->nheaders && r == 0; i++) {
		struct http_header h = o->headers[i];

		if (!http_is_token(h.name) || !http_is_value(h.value))
			return -EINVAL;
		(void)((r = buf_adds(b, h.name)) || (r = buf_addz(b, ": ")) ||
			(r = buf_adds(b, h.value)) || (r = buf_addz(b, "\r\n")));
	}
	if (r == 0 && o->body_len < 0)
		r = buf_addz(b, "Transfer-Encoding: chunked\r\n");
	else if (r == 0 &&
		 (o->body_len > 0 ||
			 o->method[0] == 'P')) /* POST, PUT, PATCH: none is worth saying */
		r = buf_addf(b, "Content-Length: %lld\r\n", (long long)o->body_len);
	if (r == 0 && o->upgrade)
		r = buf_addz(b, "Connection: upgrade\r\n");
	return r < 0 ? r : buf_addz(b, "\r\n");
}

static bool idempotent(const struct http_call *c)
{
	return strcmp(c->method, "POST") != 0 && strcmp(c->method, "PATCH") != 0 &&
	       strcmp(c->method, "CONNECT") != 0;
}

static void arm_head(struct http_call *c)
{
	if (c->sent_all && !c->got_head && c->l)
		deadline(c, c->head_timeout_ms);
}

static void connect_for(struct http_call *c)
{
	if (hattempt_start(c->e, c) < 0)
		http_call_failed(c, -ENOMEM, "out of memory");
	else
		deadline(c, c->e->connect_timeout_ms);
}

void http_call_connected(struct http_call *c, struct hlink *l)
{
	uv_buf_t bufs[2] = { uv_buf_init(c->head.p, (unsigned)c->head.n),
		uv_buf_init(c->body.p, (unsigned)c->body.n) };

	c->l = l;
	l->call = c;
	c->deadline = 0;
	c->head_seen = 0;
	c->sent_body |= c->body.n > 0;
	/* An error shows when the connection's end is reported. */
	hconn_writev(&l->c, bufs, c->body.n ? 2 : 1);
	buf_clear(&c->body);
	if (c->paused)
		hconn_pause(&l->c);
	else
		hconn_resume(&l->c);
	hconn_read_start(&l->c);
	arm_head(c);
	if (c->full && !l->c.full) {
		c->full = false;
		http_call_drained(c);
	}
}

void http_call_drained(struct http_call *c)
{
	c->full = false;
	if (!c->ending && !c->sent_all && c->cb.on_drain)
		c->cb.on_drain(c, c->arg);
}

/* Already framed. */
static int send_body(struct http_call *c, const uv_buf_t *bufs, unsigned n)
{
	int r;

	if (c->l) {
		c->sent_body = true;
		r = hconn_writev(&c->l->c, bufs, n);
		c->full = r == 1;
		return r;
	}
	for (unsigned i = 0; i < n; i++)
		if (buf_add(&c->body, bufs[i].base, bufs[i].len) < 0) {
			http_call_failed(c, -ENOMEM, "out of memory");
			return -EPIPE;
		}
	c->full = c->body.n >= HCONN_HIGH_WATER;
	return c->full;
}

int http_call_write(struct http_call *c, const void *data, size_t len)
{
	char size[20];
	uv_buf_t bufs[3];

	if (c->ending || c->sent_all)
		return -EPIPE;
	if (len == 0)
		return 0;
	if (len > UINT32_MAX)
		return -EINVAL;
	if (c->body_left < 0) {
		bufs[0] = uv_buf_init(size, (unsigned)snprintf(size, sizeof(size), "%zx\r\n", len));
		bufs[1] = uv_buf_init((char *)data, (unsigned)len);
		bufs[2] = uv_buf_init((char *)"\r\n", 2);
		return send_body(c, bufs, 3);
	}
	if ((uint64_t)len > (uint64_t)c->body_left)
		return -EINVAL;
	c->body_left -= (int64_t)len;
	bufs[0] = uv_buf_init((char *)data, (unsigned)len);
	return send_body(c, bufs, 1);
}

void http_call_end(struct http_call *c)
{
	uv_buf_t last = uv_buf_init((char *)"0\r\n\r\n", 5);

	if (c->ending || c->sent_all)
		return;
	if (c->body_left > 0) {
		http_call_failed(c, -EINVAL, "the body is shorter than was said");
		return;
	}
	if (c->body_left < 0)
		send_body(c, &last, 1);
	c->sent_all = true;
	arm_head(c);
}

/* --- the answer --- */

static size_t upgraded(struct http_call *c, const struct http_head *h)
{
	struct hlink *l = c->l;

	if (!c->cb.on_upgrade) {
		http_call_failed(c, -EPROTO, "the peer changed the protocol unasked");
		return h->size;
	}
	l->stream = http_stream_new(&l->c);
	if (!l->stream) {
		http_call_failed(c, -ENOMEM, "out of memory");
		return h->size;
	}
	l->call = NULL;
	c->l = NULL;
	c->upgraded = true;
	c->cb.on_upgrade(c, h, l->stream, c->arg);
	end(c, false);
	return h->size;
}

static size_t take_head(struct http_call *c, const char *p, size_t n)
{
	struct http_head h;
	struct fail why;
	ssize_t r;

	if (c->head_seen && n < HTTP_HEAD_MAX &&
		!memchr(p + c->head_seen, '\n', n - c->head_seen)) {
		c->head_seen = (uint32_t)n;
		return 0;
	}
	r = http_response_parse(&h, (struct str){ p, n }, str_of(c->method), &why);
	c->head_seen = r == 0 ? (uint32_t)n : 0;
	if (r == 0)
		return 0;
	if (r < 0) {
		http_call_failed(c, -EPROTO, "the peer's answer: %s", why.msg);
		return n;
	}
	if ((h.status == 101 && c->want_upgrade && h.upgrade) ||
		(strcmp(c->method, "CONNECT") == 0 && h.status / 100 == 2))
		return upgraded(c, &h);
	if (h.status == 101) {
		http_call_failed(c, -EPROTO, "the peer changed the protocol unasked");
		return n;
	}
	if (h.status / 100 == 1) {
		if (++c->interim > INTERIM_MAX) {
			http_call_failed(c, -EBADMSG, "the peer says %d without end", h.status);
			return n;
		}
		return (size_t)r;
	}
	c->got_head = true;
	c->framing = h.framing;
	c->left = h.length;
	c->keep = h.keep_alive;
	http_chunked_init(&c->chunked);
	buf_clear(&c->head);
	deadline(c, c->idle_timeout_ms);
	c->cb.on_head(c, &h, c->arg);
	if (c->framing == HTTP_BODY_NONE && !c->ending)
		whole(c);
	return (size_t)r;
}

static void give(struct http_call *c, struct str s)
{
	if (!c->paused)
		deadline(c, c->idle_timeout_ms);
	if (s.n && c->cb.on_data)
		c->cb.on_data(c, s.p, s.n, c->arg);
}

size_t http_call_data(struct http_call *c, const char *p, size_t n)
{
	struct str in = { p, n }, piece = { p, n };
	int r;

	if (!c->got_head)
		return take_head(c, p, n);
	if (c->framing == HTTP_BODY_EOF) {
		give(c, piece);
		return n;
	}
	if (c->framing == HTTP_BODY_LENGTH) {
		piece.n = (size_t)MIN((uint64_t)n, c->left);
		c->left -= piece.n;
		give(c, piece);
		if (c->left == 0 && !c->ending)
			whole(c);
		return piece.n;
	}
	r = http_chunked_read(&c->chunked, &in, &piece);
	if (r == 1)
		give(c, piece);
	else if (r == 2)
		whole(c);
	else if (r < 0)
		http_call_failed(c, -EPROTO, "the peer's answer: its chunks are malformed");
	return n - in.n;
}

void http_call_broken(struct http_call *c, int err)
{
	struct hlink *l = c->l;

	if (c->got_head && c->framing == HTTP_BODY_EOF && err == 0) {
		c->keep = false;
		whole(c);
		return;
	}
	if (l->used && !c->got_head && c->head_seen == 0 && !c->sent_body && !c->retried &&
		idempotent(c)) {
		c->retried = true;
		c->l = NULL;
		hlink_drop(l, true);
		connect_for(c);
		return;
	}
	http_call_failed(c, err ? err : -ECONNRESET,
		"the peer closed the connection %s its answer%s%s",
		c->got_head ? "in the middle of" : "before", err ? ": " : "",
		err ? strerror(-err) : "");
}

void http_call_pause(struct http_call *c)
{
	if (c->ending || c->paused)
		return;
	c->paused = true;
	if (c->got_head)
		c->deadline = 0;
	if (c->l)
		hconn_pause(&c->l->c);
}

void http_call_resume(struct http_call *c)
{
	if (c->ending || !c->paused)
		return;
	c->paused = false;
	if (c->got_head)
		deadline(c, c->idle_timeout_ms);
	if (c->l)
		hconn_resume(&c->l->c);
}

void http_call_cancel(struct http_call *c)
{
	http_call_failed(c, -ECANCELED, "cancelled");
}

/* --- the beginning --- */

static int64_t on_tick(struct hsweep *s, int64_t now)
{
	struct http_call *c = container_of(s, struct http_call, sweep);
	int64_t due = INT64_MAX;

	if (c->ending)
		return due;
	if (c->total_deadline && now >= c->total_deadline)
		http_call_failed(c, -ETIMEDOUT, "the call took too long");
	else if (c->deadline && now >= c->deadline)
		http_call_failed(c, -ETIMEDOUT, "%s in time",
			c->attempt    ? "no connection"
			: c->got_head ? "no more of the answer came"
				      : "no answer");
	if (c->deadline)
		due = c->deadline;
	return c->total_deadline ? MIN(due, c->total_deadline) : due;
}

static int check(const struct http_call_opts *o)
{
	struct str method = str_of(o->method), target = str_of(o->target);

	if (!http_is_token(method) || method.n > 32 || target.n == 0)
		return -EINVAL;
	for (size_t i = 0; i < target.n; i++)
		if (target.p[i] <= 0x20 || target.p[i] >= 0x7f)
			return -EINVAL;
	return o->host && !http_is_value(str_of(o->host)) ? -EINVAL : 0;
}

struct http_call *http_call_start(struct http_endpoint *e, const struct http_call_opts *o,
	const struct http_call_cb *cb, void *arg)
{
	struct http_call *c = calloc(1, sizeof(*c));
	struct hlink *l;
	int r;

	if (!c)
		return NULL;
	c->e = e;
	c->cb = *cb;
	c->arg = arg;
	c->sweep.tick = on_tick;
	c->ready.fn = on_ready;
	link_init(&c->ready.link);
	link_add_tail(&e->calls, &c->link);
	hcore_sweep_add(e->core, &c->sweep);
	hcore_hold(e->core, 1);
	e->refs++;
	buf_init(&c->head, HTTP_HEAD_MAX);
	buf_init(&c->body, SIZE_MAX / 2); /* bounded by whoever heeds what http_call_write() says */
	c->body_left = o->body_len;
	c->sent_all = o->body_len == 0;
	c->want_upgrade = o->upgrade;
	c->head_timeout_ms = o->head_timeout_ms == 0 ? 60000 : o->head_timeout_ms;
	c->idle_timeout_ms = o->idle_timeout_ms;
	r = check(o);
	if (r == 0) {
		strcpy(c->method, o->method);
		r = add_head(c, o);
	}
	if (r < 0) {
		http_call_failed(c, r == -ENOBUFS ? -EINVAL : r, "the request cannot be sent: %s",
			strerror(r == -ENOBUFS ? E2BIG : -r));
		return c;
	}
	l = hlink_reuse(e);
	if (l)
		http_call_connected(c, l);
	else
		connect_for(c);
	return c;
}
