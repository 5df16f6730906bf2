/* link.c - endpoints: connecting to them, and keeping connections for the next call; see client.h.
 */
#include "http/link.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/job.h"
#include "http/exchange.h"

#define IDLE_MS 60000

/* --- links --- */

static void on_destroy(struct hconn *c)
{
	struct hlink *l = container_of(c, struct hlink, c);
	struct http_endpoint *e = l->e;

	if (l->stream)
		http_stream_gone(l->stream);
	link_del(&l->all);
	free(l);
	http_endpoint_put(e);
}

static void attempt_failed(struct hattempt *a, int err, const char *words);
static void attempt_ready(struct hattempt *a);

static size_t on_data(struct hconn *c, const char *p, size_t n)
{
	struct hlink *l = container_of(c, struct hlink, c);

	if (l->call)
		return http_call_data(l->call, p, n);
	/* Nobody asked for it: whatever this peer means, it is no answer to a later call. */
	hlink_drop(l, true);
	return n;
}

static void on_end(struct hconn *c, int err)
{
	struct hlink *l = container_of(c, struct hlink, c);

	if (l->attempt)
		attempt_failed(l->attempt, err ? err : -ECONNRESET, NULL);
	else if (l->call)
		http_call_broken(l->call, err);
	else
		hlink_drop(l, false);
}

static void on_drain(struct hconn *c)
{
	struct hlink *l = container_of(c, struct hlink, c);

	if (l->call)
		http_call_drained(l->call);
}

static void on_open(struct hconn *c, int err, const char *words)
{
	struct hlink *l = container_of(c, struct hlink, c);

	if (!l->attempt)
		return;
	if (err < 0)
		attempt_failed(l->attempt, err, words);
	else
		attempt_ready(l->attempt);
}

static int64_t on_tick(struct hconn *c, int64_t now)
{
	struct hlink *l = container_of(c, struct hlink, c);
	int64_t due = INT64_MAX;

	if (l->call && hconn_stalled(c, now, &due))
		http_call_failed(l->call, -ETIMEDOUT, "the peer has taken nothing for %d s",
			c->write_timeout_ms / 1000);
	else if (!link_empty(&l->link) && now - l->idle_since >= IDLE_MS)
		hlink_drop(l, false);
	return due;
}

static const struct hconn_ops link_ops = {
	.data = on_data,
	.end = on_end,
	.drain = on_drain,
	.open = on_open,
	.tick = on_tick,
};

static struct hlink *link_new(struct http_endpoint *e, bool pipe)
{
	struct hlink *l = calloc(1, sizeof(*l));

	if (!l || hconn_init(&l->c, e->core, pipe, &link_ops, on_destroy) < 0) {
		free(l);
		return NULL;
	}
	l->e = e;
	e->refs++;
	link_init(&l->link);
	link_add_tail(&e->links, &l->all);
	return l;
}

static void idle_leave(struct hlink *l)
{
	if (link_empty(&l->link))
		return;
	link_del(&l->link);
	l->e->n_idle--;
	uv_ref(&l->c.uv.handle);
}

void hlink_drop(struct hlink *l, bool reset)
{
	l->call = NULL;
	idle_leave(l);
	hconn_close(&l->c, reset);
}

void hlink_keep(struct hlink *l)
{
	struct http_endpoint *e = l->e;

	l->call = NULL;
	if (l->c.closing)
		return;
	if (e->freed || e->n_idle >= e->max_idle || l->c.eof || l->c.rerr || l->c.werr) {
		hlink_drop(l, false);
		return;
	}
	l->idle_since = hcore_now(e->core);
	l->used = true;
	link_add_tail(&e->idle, &l->link);
	e->n_idle++;
	uv_unref(&l->c.uv.handle);
	hconn_resume(&l->c);
}

struct hlink *hlink_reuse(struct http_endpoint *e)
{
	while (!link_empty(&e->idle)) {
		/* The last one kept is the likeliest to be alive. */
		struct hlink *l = container_of(e->idle.prev, struct hlink, link);
		uv_os_fd_t fd;
		char b;

		idle_leave(l);
		/* The loop may not have heard yet that the peer has closed. */
		if (uv_fileno(&l->c.uv.handle, &fd) == 0 &&
			recv(fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
			(errno == EAGAIN || errno == EWOULDBLOCK) && !l->c.eof && !l->c.rerr)
			return l;
		hconn_close(&l->c, false);
	}
	return NULL;
}

/* --- connecting --- */

struct hattempt {
	struct http_endpoint *e;
	struct http_call *call; /* NULL: nobody waits any more */
	struct hlink *l;
	uv_connect_t connect;
	uv_getaddrinfo_t resolve;
	uv_poll_t poll;
	struct addrinfo *addrs, *next; /* found, and not tried yet */
	int fd;			       /* from the endpoint's own function */
	int pending;		       /* callbacks that will still come */
	bool polling;
	struct hready ready;
	int later_err;
};

static void attempt_free_if_done(struct hattempt *a)
{
	struct http_endpoint *e = a->e;

	if (a->call || a->pending)
		return;
	if (a->addrs)
		uv_freeaddrinfo(a->addrs);
	if (a->fd >= 0)
		close(a->fd);
	link_del(&a->ready.link);
	free(a);
	http_endpoint_put(e);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct hattempt *a = container_of(h, struct hattempt, poll);

	a->pending--;
	if (a->call && a->fd >= 0 && !a->l)
		attempt_ready(a);
	else
		attempt_free_if_done(a);
}

static void poll_end(struct hattempt *a)
{
	if (a->polling) {
		a->polling = false;
		uv_close((uv_handle_t *)&a->poll, on_poll_closed);
	}
}

void hattempt_abandon(struct hattempt *a)
{
	a->call = NULL;
	if (a->l) {
		a->l->attempt = NULL;
		hconn_close(&a->l->c, false);
		a->l = NULL;
	}
	poll_end(a);
	attempt_free_if_done(a);
}

static const char *where(const struct http_endpoint *e, char *text, size_t size)
{
	if (e->unix_path)
		snprintf(text, size, "%s", e->unix_path);
	else if (e->host)
		snprintf(text, size, "%s port %d", e->host, e->port);
	else
		snprintf(text, size, "%s", e->host_header);
	return text;
}

static bool try_next(struct hattempt *a);

static void attempt_failed(struct hattempt *a, int err, const char *words)
{
	struct http_call *c = a->call;
	char to[120];

	if (a->l) {
		a->l->attempt = NULL;
		hconn_close(&a->l->c, false);
		a->l = NULL;
	}
	if (c && a->next && err != -EPROTO && try_next(a))
		return;
	a->call = NULL;
	if (c) {
		c->attempt = NULL;
		http_call_failed(c, err, "%s: %s%s", where(a->e, to, sizeof(to)),
			words ? "TLS: " : "", words ? words : strerror(-err));
	}
	poll_end(a);
	attempt_free_if_done(a);
}

/* The connection is there for the call, after TLS too. */
static void attempt_done(struct hattempt *a)
{
	struct http_call *c = a->call;
	struct hlink *l = a->l;

	a->call = NULL;
	a->l = NULL;
	l->attempt = NULL;
	c->attempt = NULL;
	attempt_free_if_done(a);
	http_call_connected(c, l);
}

/* A descriptor of the endpoint's own function becomes a link; it is connected. */
static int adopt(struct hattempt *a)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);
	bool pipe;
	int r;

	if (getsockname(a->fd, (struct sockaddr *)&sa, &len) < 0)
		return -errno;
	pipe = sa.ss_family != AF_INET && sa.ss_family != AF_INET6;
	a->l = link_new(a->e, pipe);
	if (!a->l)
		return -ENOMEM;
	a->l->attempt = a;
	r = pipe ? uv_pipe_open(&a->l->c.uv.pipe, a->fd) : uv_tcp_open(&a->l->c.uv.tcp, a->fd);
	if (r == 0)
		a->fd = -1;
	return r;
}

/* The socket is connected (and not under TLS yet), or the TLS handshake is done. */
static void attempt_ready(struct hattempt *a)
{
	struct http_endpoint *e = a->e;
	int r = 0;

	if (a->fd >= 0)
		r = adopt(a);
	if (r < 0 || !a->l) {
		attempt_failed(a, r, NULL);
		return;
	}
	if (a->l->c.uv.handle.type == UV_TCP)
		uv_tcp_nodelay(&a->l->c.uv.tcp, 1);
	if (!e->tls || a->l->c.tls) {
		attempt_done(a);
		return;
	}
	r = htls_ops.start(&a->l->c, e->tls, e->host ? e->host : "localhost");
	if (r < 0)
		attempt_failed(a, r, NULL);
	else
		hconn_read_start(&a->l->c);
}

static void on_connect(uv_connect_t *req, int status)
{
	struct hattempt *a = container_of(req, struct hattempt, connect);

	a->pending--;
	if (!a->call || !a->l)
		attempt_free_if_done(a);
	else if (status < 0)
		attempt_failed(a, status, NULL);
	else
		attempt_ready(a);
}

static void on_later(struct hready *r)
{
	struct hattempt *a = container_of(r, struct hattempt, ready);

	attempt_failed(a, a->later_err, NULL);
}

static void fail_later(struct hattempt *a, int err)
{
	a->later_err = err;
	hcore_defer(a->e->core, &a->ready);
}

/* Connects to the next address. False if that could not even be begun. */
static bool connect_to(struct hattempt *a, const struct sockaddr *addr)
{
	a->l = link_new(a->e, false);
	if (!a->l)
		return false;
	a->l->attempt = a;
	if (uv_tcp_connect(&a->connect, &a->l->c.uv.tcp, addr, on_connect) < 0)
		return false;
	a->pending++;
	return true;
}

static bool try_next(struct hattempt *a)
{
	struct addrinfo *ai = a->next;

	/* The request of the address before may not have been called back yet, by its closing. */
	if (a->pending)
		return false;
	a->next = ai->ai_next;
	return connect_to(a, ai->ai_addr);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
	struct hattempt *a = container_of(req, struct hattempt, resolve);

	a->pending--;
	a->addrs = a->next = res;
	if (!a->call)
		attempt_free_if_done(a);
	else if (status < 0)
		attempt_failed(a, -EHOSTUNREACH, NULL);
	else if (!try_next(a))
		attempt_failed(a, -ENOMEM, NULL);
}

static void on_writable(uv_poll_t *p, int status, int events)
{
	struct hattempt *a = container_of(p, struct hattempt, poll);
	int err = 0;
	socklen_t len = sizeof(err);

	/* libuv says EBADF for any error of the socket; the socket knows better. */
	getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (!err && status < 0)
		err = -status;
	if (err)
		attempt_failed(a, -err, NULL);
	else
		poll_end(a); /* libuv lets one handle at a time watch a descriptor: the rest comes
				when this one is closed */
}

static int on_job(void *arg, struct fail *why)
{
	struct hattempt *a = arg;

	a->fd = a->e->connect(a->e->connect_arg, why);
	return MIN(a->fd, 0);
}

/* The endpoint's own function knows best what is wrong: its words and code reach whoever called. */
static void job_failed(struct hattempt *a, const struct fail *why)
{
	struct http_call *c = a->call;

	a->call = NULL;
	c->attempt = NULL;
	http_call_failed(c, why->err, "%s", why->msg);
	c->why = *why; /* its on_end comes later */
	attempt_free_if_done(a);
}

static void on_job_done(void *arg, const struct fail *why)
{
	struct hattempt *a = arg;
	int r;

	a->pending--;
	if (!a->call) {
		attempt_free_if_done(a);
		return;
	}
	if (why->err) {
		job_failed(a, why);
		return;
	}
	r = uv_poll_init(hcore_loop(a->e->core), &a->poll, a->fd);
	if (r == 0) {
		a->polling = true;
		a->pending++;
		r = uv_poll_start(&a->poll, UV_WRITABLE, on_writable);
	}
	if (r < 0)
		attempt_failed(a, r, NULL);
}

static int begin(struct hattempt *a)
{
	struct http_endpoint *e = a->e;
	struct sockaddr_storage addr;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	char port[12];
	int r;

	if (e->unix_path) {
		a->l = link_new(e, true);
		if (!a->l)
			return -ENOMEM;
		a->l->attempt = a;
		uv_pipe_connect(&a->connect, &a->l->c.uv.pipe, e->unix_path, on_connect);
		a->pending++;
		return 0;
	}
	if (e->connect) {
		r = job_run(hcore_loop(e->core), NULL, on_job, on_job_done, a);
		a->pending += r == 0;
		return r;
	}
	if (uv_ip4_addr(e->host, e->port, (struct sockaddr_in *)&addr) == 0 ||
		uv_ip6_addr(e->host, e->port, (struct sockaddr_in6 *)&addr) == 0)
		return connect_to(a, (struct sockaddr *)&addr) ? 0 : -ENOMEM;
	snprintf(port, sizeof(port), "%d", e->port);
	r = uv_getaddrinfo(hcore_loop(e->core), &a->resolve, on_resolved, e->host, port, &hints);
	a->pending += r == 0;
	return r;
}

int hattempt_start(struct http_endpoint *e, struct http_call *c)
{
	struct hattempt *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->e = e;
	a->call = c;
	a->fd = -1;
	a->ready.fn = on_later;
	link_init(&a->ready.link);
	e->refs++;
	c->attempt = a;
	r = begin(a);
	if (r < 0)
		fail_later(a, r);
	return 0;
}

/* --- endpoints --- */

static void endpoint_free(struct http_endpoint *e)
{
	free(e->unix_path);
	free(e->host);
	free(e->host_header);
	if (e->tls)
		htls_ops.ctx_free(e->tls);
	if (e->core)
		hcore_put(e->core);
	if (e->connect_free)
		e->connect_free(
			e->connect_arg); /* no attempt is under way: each holds a reference */
	free(e);
}

void http_endpoint_put(struct http_endpoint *e)
{
	if (--e->refs == 0)
		endpoint_free(e);
}

static char *default_host(const struct http_endpoint_opts *o)
{
	char text[300];
	bool v6 = o->host && strchr(o->host, ':');

	if (o->host_header || !o->host)
		return str_dup(str_of(o->host_header ? o->host_header : "localhost"));
	if (o->port == (o->tls ? 443 : 80))
		snprintf(text, sizeof(text), v6 ? "[%s]" : "%s", o->host);
	else
		snprintf(text, sizeof(text), v6 ? "[%s]:%d" : "%s:%d", o->host, o->port);
	return str_dup(str_of(text));
}

int http_endpoint_new(
	uv_loop_t *loop, const struct http_endpoint_opts *o, struct http_endpoint **out)
{
	struct http_endpoint *e;

	if (!o->unix_path + !o->host + !o->connect != 2 ||
		(o->host && (o->port < 1 || o->port > 65535)))
		return -EINVAL;
	if (o->unix_path && strlen(o->unix_path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return -ENAMETOOLONG;
	if ((o->host && strlen(o->host) > 255) ||
		(o->host_header && !http_is_value(str_of(o->host_header))))
		return -EINVAL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->refs = 1;
	e->core = hcore_get(loop);
	e->unix_path = o->unix_path ? str_dup(str_of(o->unix_path)) : NULL;
	e->host = o->host ? str_dup(str_of(o->host)) : NULL;
	e->host_header = default_host(o);
	e->port = o->port;
	e->connect = o->connect;
	e->connect_arg = o->connect_arg;
	e->connect_timeout_ms = o->connect_timeout_ms ? o->connect_timeout_ms : 5000;
	e->max_idle = o->max_idle ? o->max_idle : 8;
	link_init(&e->idle);
	link_init(&e->links);
	link_init(&e->calls);
	if (o->tls)
		e->tls = htls_ops.client_ctx(o->tls_ca_file, NULL);
	if (!e->core || !e->host_header || !e->unix_path != !o->unix_path || !e->host != !o->host ||
		(o->tls && !e->tls)) {
		bool bad_ca = o->tls && !e->tls;

		endpoint_free(e);
		return bad_ca ? -EINVAL : -ENOMEM;
	}
	e->connect_free = o->connect_free; /* from here on the argument is ours to give back */
	*out = e;
	return 0;
}

void http_endpoint_reset(struct http_endpoint *e)
{
	link_each_safe(it, tmp, &e->calls)
		http_call_failed(container_of(it, struct http_call, link), -ECANCELED, "cancelled");
	link_each_safe(it2, tmp2, &e->links)
	{
		struct hlink *l = container_of(it2, struct hlink, all);

		if (l->stream)
			hconn_fail(&l->c, -ECANCELED);
		else
			hlink_drop(l, true);
	}
}

void http_endpoint_free(struct http_endpoint *e)
{
	if (!e)
		return;
	http_endpoint_reset(e);
	e->freed = true;
	http_endpoint_put(e);
}
