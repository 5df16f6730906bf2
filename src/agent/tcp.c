/* tcp.c - GET /space/tcp/PORT with "Upgrade: tcp": a raw pipe to a port of the guest's own
 * loopback, for servers that listen on 127.0.0.1 or ::1 only.
 *
 * One buffer of 64 KiB, the loop's, serves reads from the port; what the other side does not take
 * yet stops the reading. */
#include "agent/agent.h"

#include <stdio.h>

#include "base/log.h"

struct pipe {
	struct http_exchange *x; /* until the upgrade */
	struct http_stream *s;	 /* from then on; NULL once closed */
	uv_tcp_t tcp;
	uv_connect_t connecting;
	int port;
	bool v6; /* the second try */
	bool tcp_closing, tcp_closed;
	bool held; /* the stream is over its high water: the port is not read */
	bool stream_ended, port_ended;
	bool upgrading; /* X ends as an exchange, and only as that */
	size_t unsent;	/* of writes to the port that libuv still has */
	bool paused;	/* the stream is not read, because of them */
};

#define UNSENT_HIGH (256 * 1024)
#define UNSENT_LOW (64 * 1024)

static void try_connect(struct pipe *p);

static void maybe_free(struct pipe *p)
{
	if (!p->x && !p->s && p->tcp_closed)
		free(p);
}

static void tcp_closed(uv_handle_t *h)
{
	struct pipe *p = h->data;

	p->tcp_closed = true;
	if (p->v6 && p->x && !p->tcp_closing) /* between the two tries */
		try_connect(p);
	else
		maybe_free(p);
}

static void close_tcp(struct pipe *p)
{
	if (p->tcp_closing)
		return;
	p->tcp_closing = true;
	if (!uv_is_closing((uv_handle_t *)&p->tcp))
		uv_close((uv_handle_t *)&p->tcp, tcp_closed);
}

/* --- port to stream --- */

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
	static char buf[64 * 1024];

	*b = uv_buf_init(buf, sizeof(buf));
}

static void on_read(uv_stream_t *t, ssize_t n, const uv_buf_t *b)
{
	struct pipe *p = t->data;

	if (n == 0 || !p->s)
		return;
	if (n == UV_EOF) {
		p->port_ended = true;
		uv_read_stop(t);
		http_stream_end(p->s);
		if (p->stream_ended)
			close_tcp(p);
		return;
	}
	if (n < 0) {
		http_stream_close(p->s);
		return;
	}
	if (http_stream_write(p->s, b->base, (size_t)n) == 1) {
		p->held = true;
		uv_read_stop(t);
	}
}

static void stream_drain(struct http_stream *s, void *arg)
{
	struct pipe *p = arg;

	if (!p->held || p->port_ended || p->tcp_closing)
		return;
	p->held = false;
	uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read);
}

/* --- stream to port --- */

struct out {
	uv_write_t req;
	struct pipe *p;
	size_t n;
	char data[];
};

static void on_written(uv_write_t *req, int status)
{
	struct out *o = container_of(req, struct out, req);
	struct pipe *p = o->p;

	p->unsent -= o->n;
	free(o);
	if (!p->s)
		return;
	if (status < 0) {
		http_stream_close(p->s);
	} else if (p->paused && p->unsent <= UNSENT_LOW) {
		p->paused = false;
		http_stream_resume(p->s);
	}
}

static void port_write(struct pipe *p, const char *data, size_t n)
{
	uv_buf_t b = uv_buf_init((char *)data, (unsigned)n);
	int done = p->unsent == 0 ? uv_try_write((uv_stream_t *)&p->tcp, &b, 1) : 0;
	struct out *o;

	if (done < 0)
		done = 0; /* EAGAIN; other errors come again below */
	if ((size_t)done == n)
		return;
	data += done;
	n -= (size_t)done;
	o = malloc(sizeof(*o) + n);
	if (!o) {
		http_stream_close(p->s);
		return;
	}
	o->p = p;
	o->n = n;
	memcpy(o->data, data, n);
	b = uv_buf_init(o->data, (unsigned)n);
	if (uv_write(&o->req, (uv_stream_t *)&p->tcp, &b, 1, on_written) < 0) {
		free(o);
		http_stream_close(p->s);
		return;
	}
	p->unsent += n;
	if (p->unsent > UNSENT_HIGH && !p->paused) {
		p->paused = true;
		http_stream_pause(p->s);
	}
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
	free(req);
}

static void stream_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	struct pipe *p = arg;
	uv_shutdown_t *req;

	if (p->tcp_closing)
		return;
	if (len > 0) {
		port_write(p, data, (size_t)len);
		return;
	}
	if (len < 0)
		return; /* on_close follows */
	p->stream_ended = true;
	req = malloc(sizeof(*req));
	if (!req || uv_shutdown(req, (uv_stream_t *)&p->tcp, on_shutdown) < 0)
		free(req);
	if (p->port_ended)
		close_tcp(p);
}

static void stream_close(struct http_stream *s, void *arg)
{
	struct pipe *p = arg;

	p->s = NULL;
	close_tcp(p);
	maybe_free(p);
}

/* --- connecting --- */

static void exchange_gone(struct http_exchange *x, int err, void *arg)
{
	struct pipe *p = arg;

	p->x = NULL;
	if (!p->upgrading) {
		close_tcp(p);
		maybe_free(p);
	}
}

static const struct http_stream_cb stream_cb = {
	.on_data = stream_data, .on_drain = stream_drain, .on_close = stream_close
};

static void on_connect(uv_connect_t *req, int status)
{
	struct pipe *p = req->data;

	if (!p->x || p->tcp_closing)
		return;
	if (status < 0 && !p->v6) {
		p->v6 = true;
		uv_close((uv_handle_t *)&p->tcp, tcp_closed);
		return;
	}
	if (status < 0) {
		answer_error(p->x, 502, "nothing listens on port %d", p->port);
		return;
	}
	uv_tcp_nodelay(&p->tcp, 1);
	http_add_header(p->x, "Upgrade", "tcp");
	p->upgrading = true;
	p->s = http_upgrade(p->x, 101, &stream_cb, p);
	if (!p->s) {
		close_tcp(p);
		return;
	}
	uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read);
}

static void try_connect(struct pipe *p)
{
	struct sockaddr_in a4;
	struct sockaddr_in6 a6;
	const struct sockaddr *to = p->v6 ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4;

	uv_ip4_addr("127.0.0.1", p->port, &a4);
	uv_ip6_addr("::1", p->port, &a6);
	uv_tcp_init(agent.loop, &p->tcp);
	p->tcp.data = p->connecting.data = p;
	p->tcp_closed = false;
	if (uv_tcp_connect(&p->connecting, &p->tcp, to, on_connect) < 0)
		answer_error(p->x, 502, "nothing listens on port %d", p->port);
}

void handle_tcp(struct http_exchange *x)
{
	const struct http_head *h = http_req(x);
	struct str port = { h->path.p + strlen("/space/tcp/"), h->path.n - strlen("/space/tcp/") };
	struct pipe *p;
	uint64_t n;

	if (str_u64(port, 65535, &n) < 0 || n == 0) {
		answer_error(x, 400, "the port is a number from 1 to 65535");
		return;
	}
	if (!h->upgrade || !str_ieqz(http_get(h, "upgrade"), "tcp")) {
		http_add_header(x, "Upgrade", "tcp");
		answer_error(x, 426, "send Connection: upgrade and Upgrade: tcp");
		return;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		answer_error(x, 500, "out of memory");
		return;
	}
	p->x = x;
	p->port = (int)n;
	http_on_close(x, exchange_gone, p);
	try_connect(p);
}
