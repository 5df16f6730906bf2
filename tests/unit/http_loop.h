/* http_loop.h - for the tests of src/http: one loop, and a client made of plain sockets that says exactly what it is told. */
#ifndef SPACE_TEST_HTTP_LOOP_H
#define SPACE_TEST_HTTP_LOOP_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/client.h"
#include "test.h"

static uv_loop_t *loop;

/* Lets the loop run until *FLAG or until MS have passed. */
static inline bool run_until(const bool *flag, int ms)
{
	int64_t end = mono_ms() + ms;

	while (!(flag && *flag) && mono_ms() < end) {
		uv_run(loop, UV_RUN_NOWAIT);
		poll(NULL, 0, 1);
	}
	return flag && *flag;
}

static inline int raw_connect(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		close(fd);
		return -1;
	}
	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Sends all of S while the loop runs. */
static inline bool raw_send(int fd, struct str s, int ms)
{
	int64_t end = mono_ms() + ms;

	while (s.n && mono_ms() < end) {
		ssize_t n = send(fd, s.p, s.n, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			return false;
		if (n > 0) {
			s.p += n;
			s.n -= (size_t)n;
		}
		uv_run(loop, UV_RUN_NOWAIT);
	}
	return s.n == 0;
}

enum raw_end { RAW_OPEN, RAW_CLOSED, RAW_RESET };

/* Reads into B, while the loop runs, until NEEDLE is there (if not NULL), the connection ends, or MS have passed. */
static inline enum raw_end raw_read(int fd, struct buf *b, const char *needle, int ms)
{
	int64_t end = mono_ms() + ms;

	while (mono_ms() < end) {
		char data[16384];
		ssize_t n;

		uv_run(loop, UV_RUN_NOWAIT);
		n = recv(fd, data, sizeof(data), 0);
		if (n == 0)
			return RAW_CLOSED;
		if (n < 0 && errno != EAGAIN)
			return RAW_RESET;
		if (n > 0) {
			buf_add(b, data, (size_t)n);
			buf_addc(b, '\0');
			b->n--;
		}
		if (needle && b->n && memmem(b->p, b->n, needle, strlen(needle)))
			return RAW_OPEN;
		if (n < 0)
			poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 1);
	}
	return RAW_OPEN;
}

static inline bool has(const struct buf *b, const char *needle)
{
	return b->n && memmem(b->p, b->n, needle, strlen(needle)) != NULL;
}

static inline unsigned count(const struct buf *b, const char *needle)
{
	const char *p = b->p;
	unsigned n = 0;

	while (p && (p = memmem(p, b->n - (size_t)(p - b->p), needle, strlen(needle)))) {
		n++;
		p += strlen(needle);
	}
	return n;
}

static inline int status_of_raw(const struct buf *b)
{
	return b->n >= 12 && memcmp(b->p, "HTTP/1.1 ", 9) == 0 ? atoi(b->p + 9) : 0;
}

/* --- a server with a handler --- */

static struct http_server *server;
static int port;
static bool server_is_gone;

static inline void on_server_gone(void *arg)
{
	server_is_gone = true;
}

static inline bool server_up(const struct http_server_opts *o, http_request_fn *fn, void *arg)
{
	struct fail why = { 0 };

	loop = uv_default_loop();
	server_is_gone = false;
	if (!CHECK_INT(http_server_new(loop, o, fn, arg, &server), 0))
		return false;
	return CHECK_INT(http_server_listen_tcp(server, "127.0.0.1", 0, NULL, &port, &why), 0);
}

static inline void server_down(void)
{
	http_server_close(server, true, on_server_gone, NULL);
	CHECK(run_until(&server_is_gone, 3000));
	run_until(NULL, 5);
	CHECK(!uv_loop_alive(loop));
}

#endif
