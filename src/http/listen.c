/* listen.c - listening sockets of a server; see server.h. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/random.h"
#include "http/exchange.h"

#define BACKLOG 4096

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

static void on_connection(uv_stream_t *server, int status)
{
	struct listener *l = container_of(server, struct listener, uv.stream);
	struct http_exchange *x;
	bool no_memory;

	if (status < 0)
		return;
	x = http_exchange_new(l->srv, l->pipe, &no_memory);
	if (!x) {
		l->starved = true; /* libuv waits until the spare one is back */
		return;
	}
	if (uv_accept(server, &x->c.uv.stream) < 0 || no_memory ||
		(l->tls && htls_ops.start(&x->c, l->srv->tls, NULL) < 0)) {
		hconn_close(&x->c, true);
		return;
	}
	if (!l->pipe) {
		uv_tcp_nodelay(&x->c.uv.tcp, 1);
		uv_tcp_keepalive(&x->c.uv.tcp, 1, 60);
	}
	http_exchange_accepted(x);
}

void http_listeners_feed(struct http_server *s)
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

static void on_listener_closed(uv_handle_t *h)
{
	struct listener *l = container_of(h, struct listener, uv.handle);
	struct http_server *s = l->srv;

	link_del(&l->link);
	free(l->path);
	free(l);
	s->n_listeners--;
	http_server_check_gone(s);
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
	struct stat st = { 0 };
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
	struct sockaddr_storage a = { 0 };
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

/* The socket's name, unless another server has put its own there meanwhile. */
static void unlink_own(struct listener *l)
{
	struct stat st;

	if (l->path && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		unlink(l->path);
}

void http_listeners_close(struct http_server *s)
{
	link_each_safe(it, tmp, &s->listeners)
	{
		struct listener *l = container_of(it, struct listener, link);

		if (uv_is_closing(&l->uv.handle))
			continue;
		unlink_own(l);
		uv_close(&l->uv.handle, on_listener_closed);
	}
}
