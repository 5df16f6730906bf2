/* server.c - listening, connections, and the reading of requests; see server.h. Answers and bodies
 * are in exchange.c. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/random.h"
#include "http/exchange.h"

#define BACKLOG 4096
#define LINGER_MS 2000
#define OVERFLOW_MAX 256 /* connections over the maximum that are told so properly */

extern const struct htls_ops htls_ops __attribute__((weak));

struct listener {
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} uv;
	struct http_server *srv;
	struct link link;
	bool tls, pipe, starved;
	char *path; /* of a Unix socket that is ours to remove */
	dev_t dev;
	ino_t ino;
};

struct http_server {
	struct http_server_opts opts;
	struct hcore *core;
	http_request_fn *fn;
	void *arg;
	SSL_CTX *tls;
	struct link listeners, conns;
	unsigned n_conns, n_listeners;
	struct http_exchange *spare; /* to accept with, and close, when there is no memory: libuv
					insists on accepting */
	bool closing;
	void (*gone)(void *arg);
	void *gone_arg;
	struct hready ready;
};

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

static void server_gone(struct http_server *s);
static void on_connection(uv_stream_t *server, int status);

static void feed_starved(struct http_server *s)
{
	link_each_safe(it, tmp, &s->listeners)
	{
		struct listener *l = container_of(it, struct listener, link);
		bool starved = l->starved;

		l->starved = false;
		if (starved && !uv_is_closing(&l->uv.handle))
			on_connection(&l->uv.stream, 0);
	}
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
	if (s->closing)
		server_gone(s);
	else
		feed_starved(s);
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
	x->user = NULL;
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

static void on_connection(uv_stream_t *server, int status)
{
	struct listener *l = container_of(server, struct listener, uv.stream);
	struct http_server *s = l->srv;
	struct http_exchange *x;
	bool no_memory;

	if (status < 0)
		return;
	x = calloc(1, sizeof(*x));
	no_memory = !x;
	if (no_memory && s->spare) {
		x = s->spare;
		s->spare = NULL;
		memset(x, 0, sizeof(*x));
	}
	if (!x) {
		l->starved = true; /* libuv waits until the spare one is back */
		return;
	}
	hconn_init(&x->c, s->core, l->pipe, &exchange_ops,
		on_destroy); /* fails for no TCP or Unix socket */
	x->srv = s;
	link_add_tail(&s->conns, &x->link);
	s->n_conns++;
	hcore_hold(s->core, 1);
	x->c.write_timeout_ms = s->opts.write_timeout_ms;
	x->c.high_water = s->opts.high_water;
	if (uv_accept(server, &x->c.uv.stream) < 0 || no_memory ||
		s->n_conns > s->opts.max_conns + OVERFLOW_MAX) {
		hconn_close(&x->c, true);
		return;
	}
	if (!l->pipe) {
		uv_tcp_nodelay(&x->c.uv.tcp, 1);
		uv_tcp_keepalive(&x->c.uv.tcp, 1, 60);
	}
	if (l->tls && htls_ops.start(&x->c, s->tls, NULL) < 0) {
		hconn_close(&x->c, true);
		return;
	}
	x->state = HTTP_IDLE;
	/* A client that connects has something to say: the first request gets the time of a head. */
	http_exchange_deadline(x, s->opts.head_timeout_ms);
	if (s->n_conns > s->opts.max_conns) {
		if (l->tls)
			hconn_close(&x->c, true);
		else
			overflow(x);
	}
	hconn_read_start(&x->c);
}

static void on_listener_closed(uv_handle_t *h)
{
	struct listener *l = container_of(h, struct listener, uv.handle);
	struct http_server *s = l->srv;

	link_del(&l->link);
	free(l->path);
	free(l);
	s->n_listeners--;
	server_gone(s);
}

static struct listener *listener_new(
	struct http_server *s, bool pipe, SSL_CTX *tls, struct fail *why)
{
	struct listener *l;

	if (tls && !&htls_ops) {
		fail_set(why, -ENOTSUP, "TLS is not linked in");
		return NULL;
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	l->srv = s;
	l->pipe = pipe;
	l->tls = tls != NULL;
	if (pipe)
		uv_pipe_init(hcore_loop(s->core), &l->uv.pipe, 0);
	else
		uv_tcp_init(hcore_loop(s->core), &l->uv.tcp);
	link_add_tail(&s->listeners, &l->link);
	s->n_listeners++;
	if (tls)
		http_server_set_tls(s, tls);
	return l;
}

static int listener_start(struct listener *l, int r, const char *what, struct fail *why)
{
	if (r == 0)
		r = uv_listen(&l->uv.stream, BACKLOG, on_connection);
	if (r == 0)
		return 0;
	uv_close(&l->uv.handle, on_listener_closed);
	return fail_set(why, r, "%s: %s", what, uv_strerror(r));
}

int http_server_listen_tcp(struct http_server *s, const char *host, int port, SSL_CTX *tls,
	int *bound_port, struct fail *why)
{
	struct sockaddr_storage a;
	int len = sizeof(a), r;
	struct listener *l;
	char what[100];

	if (uv_ip4_addr(host, port, (struct sockaddr_in *)&a) < 0 &&
		uv_ip6_addr(host, port, (struct sockaddr_in6 *)&a) < 0)
		return fail_set(why, -EINVAL, "%.60s is not an IP address", host);
	l = listener_new(s, false, tls, why);
	if (!l)
		return tls && !&htls_ops ? -ENOTSUP : -ENOMEM;
	snprintf(what, sizeof(what), "%.60s port %d", host, port);
	r = listener_start(l, uv_tcp_bind(&l->uv.tcp, (struct sockaddr *)&a, 0), what, why);
	if (r == 0 && bound_port) {
		uv_tcp_getsockname(&l->uv.tcp, (struct sockaddr *)&a, &len);
		*bound_port =
			ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port
						     : ((struct sockaddr_in6 *)&a)->sin6_port);
	}
	return r;
}

/* A bound Unix socket at PATH, of the right mode before anybody can connect: made beside it and
 * renamed. */
static int unix_socket(const char *path, mode_t mode, struct stat *st)
{
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	uint8_t tag[3];
	char hex[7];
	int r = 0;

	if (fd < 0)
		return -errno;
	if (lstat(path, st) == 0 && !S_ISSOCK(st->st_mode))
		return -EEXIST;
	random_bytes(tag, sizeof(tag));
	hex_encode(hex, tag, sizeof(tag));
	if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s.%s", path, hex) >=
		sizeof(a.sun_path))
		return -ENAMETOOLONG;
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	if (chmod(a.sun_path, mode) < 0 || listen(fd, BACKLOG) < 0 || lstat(a.sun_path, st) < 0 ||
		rename(a.sun_path, path) < 0) {
		r = -errno;
		unlink(a.sun_path);
	}
	return r < 0 ? r : steal_fd(&fd);
}

int http_server_listen_unix(struct http_server *s, const char *path, mode_t mode, struct fail *why)
{
	struct listener *l;
	struct stat st;
	int fd = unix_socket(path, mode, &st), r;

	if (fd < 0)
		return fail_set(why, fd, "%s: %s", path,
			fd == -EEXIST ? "a file that is no socket is there" : strerror(-fd));
	l = listener_new(s, true, NULL, why);
	if (!l) {
		close(fd);
		return -ENOMEM;
	}
	l->path = str_dup(str_of(path));
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	r = uv_pipe_open(&l->uv.pipe, fd);
	if (r < 0)
		close(fd);
	return listener_start(l, r, path, why);
}

int http_server_listen_fd(struct http_server *s, int fd, SSL_CTX *tls, struct fail *why)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	struct listener *l;
	bool pipe;
	int r;

	if (getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
		r = -errno;
		close(fd);
		return fail_set(why, r, "the descriptor to listen on: %s", strerror(-r));
	}
	pipe = a.ss_family != AF_INET && a.ss_family != AF_INET6;
	l = listener_new(s, pipe, tls, why);
	if (!l) {
		close(fd);
		return tls && !&htls_ops ? -ENOTSUP : -ENOMEM;
	}
	r = pipe ? uv_pipe_open(&l->uv.pipe, fd) : uv_tcp_open(&l->uv.tcp, fd);
	if (r < 0)
		close(fd);
	return listener_start(l, r, "the descriptor to listen on", why);
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

static void server_gone(struct http_server *s)
{
	if (!s->closing || s->n_conns || s->n_listeners)
		return;
	s->ready.fn = server_free;
	hcore_defer(s->core, &s->ready);
}

/* The socket's name, unless another server has put its own there meanwhile. */
static void unlink_own(struct listener *l)
{
	struct stat st;

	if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		unlink(l->path);
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

void http_server_close(struct http_server *s, bool now, void (*gone_fn)(void *arg), void *arg)
{
	s->closing = true;
	s->gone = gone_fn;
	s->gone_arg = arg;
	link_each_safe(it, tmp, &s->listeners)
	{
		struct listener *l = container_of(it, struct listener, link);

		if (uv_is_closing(&l->uv.handle))
			continue;
		unlink_own(l);
		uv_close(&l->uv.handle, on_listener_closed);
	}
	link_each_safe(it2, tmp2, &s->conns)
	{
		struct http_exchange *x = container_of(it2, struct http_exchange, link);

		if (now)
			conn_reset_now(x);
		else if (x->state == HTTP_IDLE && hconn_buffered(&x->c) == 0)
			hconn_close(&x->c, false);
	}
	server_gone(s);
}
