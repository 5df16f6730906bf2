/* The server, spoken to by a client that says exactly what it is told. */
#include "http_loop.h"

#include <sys/stat.h>
#include <sys/un.h>

/* What the handler does is in the path; what happened is counted here. */
static struct {
	unsigned requests, closed, bodies, drains;
	int close_err, body_err;
	size_t body_bytes, body_most;
	struct http_exchange *held;
	bool closed_flag, body_flag, drain_flag;
	char last_path[64];
	int write_said;
} seen;

static void on_close(struct http_exchange *x, int err, void *arg)
{
	seen.closed++;
	seen.close_err = err;
	seen.closed_flag = true;
	if (seen.held == x)
		seen.held = NULL;
}

static void echo_whole(struct http_exchange *x, struct str body, const struct fail *why, void *arg)
{
	seen.bodies++;
	seen.body_err = why->err;
	seen.body_bytes = body.n;
	if (why->err == 0)
		http_respond(x, 200, "text/plain", body.p, body.n);
}

static void count_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	char text[32];

	if (len > 0) {
		seen.body_bytes += (size_t)len;
		return;
	}
	seen.bodies++;
	seen.body_err = (int)len;
	seen.body_flag = true;
	if (len == 0)
		http_respond(x, 200, "text/plain", text, (size_t)sprintf(text, "%zu", seen.body_bytes));
	else if (len == -EBADMSG)
		http_respond_empty(x, 400);
	else if (len == -ETIMEDOUT)
		http_respond_empty(x, 408);
}

static void pausing_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	count_body(x, data, len, arg);
	if (len > 0)
		http_body_pause(x);
}

static void echo_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		http_write(x, data, (size_t)len);
	else if (len == 0)
		http_end(x);
}

static void on_drain(struct http_exchange *x, void *arg)
{
	seen.drains++;
	seen.drain_flag = true;
}

static void flood(struct http_exchange *x)
{
	static char block[65536];

	http_on_drain(x, on_drain, NULL);
	http_start(x, 200, "application/octet-stream", -1);
	while ((seen.write_said = http_write(x, block, sizeof(block))) == 0)
		;
}

static void handler(struct http_exchange *x, void *arg)
{
	const struct http_head *h = http_req(x);

	seen.requests++;
	snprintf(seen.last_path, sizeof(seen.last_path), STR_FMT, STR_ARG(h->path));
	if (!str_starts(h->path, "/orphan"))
		http_on_close(x, on_close, NULL);
	if (str_eqz(h->path, "/empty")) {
		http_respond_empty(x, 204);
	} else if (str_eqz(h->path, "/304")) {
		http_respond_empty(x, 304);
	} else if (str_eqz(h->path, "/echo")) {
		http_body_whole(x, 1000, echo_whole, NULL);
	} else if (str_eqz(h->path, "/count")) {
		http_body_read(x, 0, count_body, NULL);
	} else if (str_eqz(h->path, "/count10")) {
		http_body_read(x, 10, count_body, NULL);
	} else if (str_eqz(h->path, "/pause")) {
		seen.held = x;
		http_body_read(x, 0, pausing_body, NULL);
	} else if (str_eqz(h->path, "/stream-echo")) {
		http_start(x, 200, NULL, -1);
		http_body_read(x, 0, echo_body, NULL);
	} else if (str_starts(h->path, "/hold") || str_starts(h->path, "/orphan")) {
		seen.held = x;
	} else if (str_eqz(h->path, "/flood")) {
		seen.held = x;
		flood(x);
	} else if (str_eqz(h->path, "/short")) {
		http_start(x, 200, NULL, 10);
		http_write(x, "abc", 3);
		http_end(x);
	} else if (str_eqz(h->path, "/over")) {
		http_start(x, 200, NULL, 4);
		CHECK_INT(http_write(x, "abcde", 5), -EINVAL);
		CHECK_INT(http_write(x, "abcd", 4), 0);
		http_end(x);
	} else if (str_eqz(h->path, "/chunks")) {
		http_add_header(x, "X-A", "b");
		http_start(x, 200, "text/plain", -1);
		http_write(x, "one", 3);
		http_write(x, "", 0);
		http_write(x, "three", 5);
		http_end(x);
	} else {
		http_respond(x, 200, "text/plain", "hello", 5);
	}
}

static void reset_seen(void)
{
	memset(&seen, 0, sizeof(seen));
}

/* Sends TEXT, reads until the connection ends or MS pass. */
static enum raw_end talk(struct str text, struct buf *answer, int ms)
{
	int fd = raw_connect(port);
	enum raw_end end;

	buf_init(answer, 4 * MIB);
	if (!CHECK(fd >= 0))
		return RAW_RESET;
	raw_send(fd, text, 2000);
	end = raw_read(fd, answer, NULL, ms);
	close(fd);
	return end;
}

TEST(malformed_requests_get_their_status_and_the_connection_closes)
{
	static char huge[40000], many[8000];
	const struct {
		const char *text;
		size_t n;
		int status;
	} rows[] = {
		{ "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 0, 400 },
		{ "GET / HTTP/1.1\r\n\r\n", 0, 400 },
		{ "GET / HTTP/1.1\nHost: a\n\n", 0, 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", 0, 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 0, 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n", 33, 400 },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n", 0, 400 },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 0, 400 },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 0, 501 },
		{ "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 0, 505 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 0, 400 },
		{ "hello\r\n", 0, 400 },
		{ "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 13, 400 }, /* TLS on the wrong port */
		{ huge, sizeof(huge), 431 },
		{ many, 0, 431 },
		{ "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 0, 400 },
		{ "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 0, 400 },
		{ "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 0, 400 },
		{ "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 1\r\n\r\n", 0, 400 },
	};

	memset(huge, 'x', sizeof(huge));
	memcpy(huge, "GET / HTTP/1.1\r\nHost: a\r\nA: ", 28);
	strcpy(many, "GET / HTTP/1.1\r\nHost: a\r\n");
	for (int i = 0; i < 101; i++)
		strcat(many, "A: b\r\n");
	strcat(many, "\r\n");
	REQUIRE(server_up(NULL, handler, NULL));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		autobuf struct buf answer;

		test_row("%zu: %.60s", i, rows[i].text);
		reset_seen();
		CHECK_INT(talk((struct str){ rows[i].text, rows[i].n ? rows[i].n : strlen(rows[i].text) }, &answer, 3000), RAW_CLOSED);
		CHECK_INT(status_of_raw(&answer), rows[i].status);
		CHECK_INT(count(&answer, "Content-Length: "), 1);
		CHECK(has(&answer, "Connection: close\r\n"));
	}
	test_row(NULL);
	server_down();
}

TEST(keep_alive_and_pipelining)
{
	autobuf struct buf b = { 0 };
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	fd = raw_connect(port);
	buf_init(&b, MIB);
	raw_send(fd, STR("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "hello", 1000), RAW_OPEN);
	CHECK_INT(seen.closed, 1);
	CHECK_INT(seen.close_err, 0);
	/* Five at once, one of them with a body, the last in two pieces. */
	b.n = 0;
	raw_send(fd, STR("GET /2 HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
			 "HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET /empty HTTP/1.1\r\nHost: a\r\n\r\nGET /last HT"), 1000);
	CHECK_INT(raw_read(fd, &b, " 204 ", 1000), RAW_OPEN);
	raw_send(fd, STR("TP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, NULL, 1000), RAW_CLOSED);
	CHECK_INT(count(&b, "HTTP/1.1 "), 5);
	CHECK_INT(count(&b, "hello"), 2);
	CHECK(has(&b, "\r\n\r\nabc"));
	CHECK_STR(seen.last_path, "/last");
	CHECK_INT(seen.closed, 6);
	close(fd);

	/* A pipelined request waits until the one before is answered. */
	reset_seen();
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 30);
	CHECK_INT(seen.requests, 1);
	REQUIRE(seen.held);
	http_respond(seen.held, 200, NULL, "held", 4);
	CHECK_INT(raw_read(fd, &b, "hello", 1000), RAW_OPEN);
	CHECK_INT(seen.requests, 2);
	CHECK(memmem(b.p, b.n, "held", 4) < memmem(b.p, b.n, "hello", 5));
	close(fd);

	/* A client that sends all it has and closes its side gets all its answers. */
	reset_seen();
	b.n = 0;
	fd = raw_connect(port);
	CHECK(send(fd, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", 56, 0) == 56);
	shutdown(fd, SHUT_WR);
	CHECK_INT(raw_read(fd, &b, NULL, 1000), RAW_CLOSED);
	CHECK_INT(count(&b, "hello"), 2);
	close(fd);
	server_down();
}

TEST(answers_without_bodies)
{
	autobuf struct buf b = { 0 };

	reset_seen();
	REQUIRE(server_up(&(struct http_server_opts){ .server_name = "unit" }, handler, NULL));
	CHECK_INT(talk(STR("HEAD /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(has(&b, "Transfer-Encoding: chunked\r\n") && has(&b, "Server: unit\r\n") && has(&b, "X-A: b\r\n") && has(&b, "Date: "));
	CHECK(str_ends(buf_str(&b), "\r\n\r\n") && !has(&b, "three"));
	buf_clear(&b);
	CHECK_INT(talk(STR("GET /empty HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(!has(&b, "Content-Length") && !has(&b, "Transfer-Encoding"));
	buf_clear(&b);
	CHECK_INT(talk(STR("GET /304 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(!has(&b, "Content-Length"));
	buf_clear(&b);
	CHECK_INT(talk(STR("GET /chunks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(str_ends(buf_str(&b), "\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"));
	buf_clear(&b);
	/* HTTP/1.0 knows no chunks. */
	CHECK_INT(talk(STR("GET /chunks HTTP/1.0\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(str_ends(buf_str(&b), "\r\n\r\nonethree") && !has(&b, "chunked"));
	buf_clear(&b);
	CHECK_INT(talk(STR("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK_INT(count(&b, "hello"), 2);
	server_down();
}

TEST(answers_of_the_wrong_length)
{
	autobuf struct buf b = { 0 };

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	CHECK_INT(talk(STR("GET /short HTTP/1.1\r\nHost: a\r\n\r\n"), &b, 1000), RAW_RESET);
	CHECK_INT(seen.close_err, -ECANCELED);
	buf_clear(&b);
	CHECK_INT(talk(STR("GET /over HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(str_ends(buf_str(&b), "\r\n\r\nabcd"));
	server_down();
}

TEST(header_injection_is_refused)
{
	autobuf struct buf b = { 0 };
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	fd = raw_connect(port);
	buf_init(&b, MIB);
	raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	REQUIRE(seen.held);
	CHECK_INT(http_add_header(seen.held, "A", "b\r\nC: d"), -EINVAL);
	CHECK_INT(http_add_header(seen.held, "A", "b\nC: d"), -EINVAL);
	CHECK_INT(http_add_header(seen.held, "A b", "c"), -EINVAL);
	CHECK_INT(http_add_header(seen.held, "", "c"), -EINVAL);
	CHECK_INT(http_add_header(seen.held, "content-length", "3"), -EINVAL);
	CHECK_INT(http_add_header(seen.held, "Location", "/ok"), 0);
	http_respond_empty(seen.held, 302);
	CHECK_INT(raw_read(fd, &b, "\r\n\r\n", 1000), RAW_OPEN);
	CHECK(has(&b, "HTTP/1.1 302 Found\r\n") && has(&b, "Location: /ok\r\n") && has(&b, "Content-Length: 0\r\n"));
	close(fd);
	server_down();
}

TEST(bodies)
{
	autobuf struct buf b = { 0 };

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	CHECK_INT(talk(STR("POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
			   "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(str_ends(buf_str(&b), "\r\n\r\n19"));
	buf_clear(&b);
	/* No body at all. */
	reset_seen();
	CHECK_INT(talk(STR("GET /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(str_ends(buf_str(&b), "\r\n\r\n0"));
	CHECK_INT(seen.bodies, 1);
	buf_clear(&b);
	/* Too large: as announced, and as it turns out. */
	reset_seen();
	CHECK_INT(talk(STR("POST /count10 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789a"), &b, 50), RAW_OPEN);
	CHECK_INT(seen.body_err, -EFBIG);
	CHECK_INT(seen.body_bytes, 0);
	buf_clear(&b);
	reset_seen();
	CHECK_INT(talk(STR("POST /count10 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a"), &b, 50), RAW_OPEN);
	CHECK_INT(seen.body_err, -EFBIG);
	buf_clear(&b);
	reset_seen();
	CHECK_INT(talk(STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"), &b, 3000), RAW_CLOSED);
	CHECK_INT(status_of_raw(&b), 413);
	CHECK(has(&b, "\"code\":\"too_large\"") && has(&b, "\"request_id\":\"") && has(&b, "X-Request-Id: "));
	CHECK_INT(seen.body_err, -EFBIG);
	buf_clear(&b);
	/* Streamed in and out at once. */
	CHECK_INT(talk(STR("POST /stream-echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabcdef"), &b, 1000),
		RAW_CLOSED);
	CHECK(has(&b, "6\r\nabcdef\r\n0\r\n\r\n"));
	/* Cut off in the middle. */
	buf_clear(&b);
	reset_seen();
	talk(STR("POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc"), &b, 50);
	CHECK(run_until(&seen.closed_flag, 1000));
	CHECK_INT(seen.body_err, -EPIPE);
	CHECK_INT(seen.bodies, 1);
	CHECK_INT(seen.closed, 1);
	CHECK_INT(seen.body_bytes, 3);
	server_down();
}

TEST(paused_bodies_hold_the_client_back)
{
	static char block[65536];
	autobuf struct buf b = { 0 };
	int64_t end;
	size_t sent = 0;
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	fd = raw_connect(port);
	buf_init(&b, MIB);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int));
	raw_send(fd, STR("POST /pause HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\nConnection: close\r\n\r\n"), 1000);
	end = mono_ms() + 300;
	while (mono_ms() < end && sent < 20000000) {
		ssize_t n = send(fd, block, MIN(sizeof(block), 20000000 - sent), MSG_NOSIGNAL);

		sent += n > 0 ? (size_t)n : 0;
		uv_run(loop, UV_RUN_NOWAIT);
	}
	CHECK(seen.body_bytes > 0 && seen.body_bytes <= 65536);
	CHECK(sent < 19000000); /* what sockets hold, not what the client has */
	/* Taken piece by piece, all of it arrives. */
	end = mono_ms() + 10000;
	while (mono_ms() < end && !seen.body_flag) {
		ssize_t n = sent < 20000000 ? send(fd, block, MIN(sizeof(block), 20000000 - sent), MSG_NOSIGNAL) : 0;

		sent += n > 0 ? (size_t)n : 0;
		uv_run(loop, UV_RUN_NOWAIT);
		if (seen.held)
			http_body_resume(seen.held);
	}
	CHECK_INT(raw_read(fd, &b, NULL, 1000), RAW_CLOSED);
	CHECK(str_ends(buf_str(&b), "\r\n\r\n20000000"));
	close(fd);
	server_down();
}

TEST(expect_100_continue)
{
	autobuf struct buf b = { 0 };
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	buf_init(&b, MIB);
	fd = raw_connect(port);
	raw_send(fd, STR("POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "HTTP/1.1 100 Continue\r\n\r\n", 1000), RAW_OPEN);
	b.n = 0;
	raw_send(fd, STR("abc"), 1000);
	CHECK_INT(raw_read(fd, &b, "\r\n\r\n3", 1000), RAW_OPEN);
	/* The connection is good for more. */
	b.n = 0;
	raw_send(fd, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "hello", 1000), RAW_OPEN);
	close(fd);
	/* A handler that does not want the body: whether it comes is not known, so that the connection ends. */
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, NULL, 3000), RAW_CLOSED);
	CHECK(!has(&b, "100 Continue") && has(&b, "Connection: close\r\n") && has(&b, "hello"));
	close(fd);
	server_down();
}

TEST(unread_bodies)
{
	autobuf struct buf b = { 0 };
	autofree char *big = calloc(1, 300000);
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	buf_init(&b, MIB);
	/* A small one is drained, and the next request is served. */
	fd = raw_connect(port);
	raw_send(fd, STR("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabcdefPOST /2 HTTP/1.1\r\nHost: a\r\n"
			 "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), 1000);
	run_until(NULL, 20);
	raw_send(fd, STR("0\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	raw_read(fd, &b, NULL, 50);
	CHECK_INT(count(&b, "hello"), 3);
	close(fd);
	/* A large one ends the connection, but the answer arrives all the same, though we go on sending. */
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n"), 1000);
	raw_send(fd, (struct str){ big, 300000 }, 3000);
	CHECK_INT(raw_read(fd, &b, NULL, 3000), RAW_CLOSED);
	CHECK(has(&b, "hello") && has(&b, "Connection: close\r\n"));
	close(fd);
	/* So does one of unknown length that goes on and on. */
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n40000\r\n"), 1000);
	raw_send(fd, (struct str){ big, 0x40000 }, 3000);
	CHECK(raw_read(fd, &b, NULL, 5000) != RAW_OPEN);
	CHECK(has(&b, "hello"));
	close(fd);
	server_down();
}

TEST(clients_that_vanish)
{
	autobuf struct buf b = { 0 };
	int fd;

	REQUIRE(server_up(NULL, handler, NULL));
	buf_init(&b, MIB);
	/* While the handler thinks. */
	reset_seen();
	fd = raw_connect(port);
	raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	CHECK(seen.held && seen.closed == 0);
	close(fd);
	CHECK(run_until(&seen.closed_flag, 1000));
	CHECK_INT(seen.close_err, -EPIPE);
	/* With a small body that the handler has not asked for. */
	reset_seen();
	fd = raw_connect(port);
	raw_send(fd, STR("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"), 1000);
	run_until(NULL, 20);
	close(fd);
	CHECK(run_until(&seen.closed_flag, 1000));
	/* While the answer streams. */
	reset_seen();
	fd = raw_connect(port);
	raw_send(fd, STR("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	REQUIRE(seen.held);
	CHECK_INT(seen.write_said, 1);
	close(fd);
	CHECK(run_until(&seen.closed_flag, 1000));
	CHECK_INT(seen.closed, 1);
	CHECK(seen.close_err < 0);
	/* A handler that did not ask to be told may answer into the void, once. */
	reset_seen();
	fd = raw_connect(port);
	raw_send(fd, STR("GET /orphan HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	close(fd);
	run_until(NULL, 30);
	REQUIRE(seen.held);
	CHECK_INT(http_server_conns(server), 0);
	CHECK_STR(http_req(seen.held)->path, "/orphan");
	CHECK_STR(http_peer(seen.held), "gone");
	http_start(seen.held, 200, NULL, -1);
	CHECK_INT(http_write(seen.held, "x", 1), -EPIPE);
	http_end(seen.held);
	server_down();
}

TEST(slow_readers)
{
	autobuf struct buf b = { 0 };
	int fd;

	reset_seen();
	REQUIRE(server_up(&(struct http_server_opts){ .write_timeout_ms = 1000 }, handler, NULL));
	buf_init(&b, 16 * MIB);
	/* One that reads nothing is cut off. */
	fd = raw_connect(port);
	raw_send(fd, STR("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	CHECK(run_until(&seen.closed_flag, 3000));
	CHECK_INT(seen.close_err, -ETIMEDOUT);
	CHECK_INT(seen.write_said, 1);
	close(fd);
	/* One that reads slowly is not, and the writer hears when there is room again. */
	reset_seen();
	fd = raw_connect(port);
	raw_send(fd, STR("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	REQUIRE(seen.held);
	CHECK(http_unsent(seen.held) >= 256 * KIB && http_unsent(seen.held) < 512 * KIB);
	for (int i = 0; i < 60 && seen.held; i++) {
		char data[32768];

		run_until(NULL, 20);
		(void)!recv(fd, data, sizeof(data), 0);
	}
	CHECK(seen.held != NULL);
	raw_read(fd, &b, NULL, 200);
	CHECK(seen.drain_flag);
	REQUIRE(seen.held);
	CHECK(http_unsent(seen.held) < 64 * KIB);
	CHECK_INT(http_write(seen.held, "more", 4), 0);
	http_end(seen.held);
	CHECK_INT(raw_read(fd, &b, "4\r\nmore\r\n0\r\n\r\n", 2000), RAW_OPEN);
	run_until(NULL, 10);
	CHECK_INT(seen.closed, 1);
	CHECK_INT(seen.close_err, 0);
	close(fd);
	server_down();
}

TEST(timeouts)
{
	autobuf struct buf b = { 0 };

	reset_seen();
	REQUIRE(server_up(&(struct http_server_opts){ .head_timeout_ms = 150, .idle_timeout_ms = 150, .body_timeout_ms = 150 }, handler,
		NULL));
	CHECK_INT(talk(STR(""), &b, 3000), RAW_CLOSED);
	CHECK_INT(b.n, 0);
	buf_clear(&b);
	CHECK_INT(talk(STR("GET / HTTP/1.1\r\nHo"), &b, 3000), RAW_CLOSED);
	CHECK_INT(status_of_raw(&b), 408);
	buf_clear(&b);
	CHECK_INT(talk(STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), &b, 3000), RAW_CLOSED);
	CHECK(has(&b, "hello"));
	buf_clear(&b);
	CHECK_INT(talk(STR("POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc"), &b, 3000), RAW_CLOSED);
	CHECK_INT(status_of_raw(&b), 408);
	CHECK_INT(seen.body_err, -ETIMEDOUT);
	server_down();
}

TEST(too_many_connections)
{
	autobuf struct buf b = { 0 };
	int fd[2];

	reset_seen();
	REQUIRE(server_up(&(struct http_server_opts){ .max_conns = 2 }, handler, NULL));
	for (int i = 0; i < 2; i++)
		fd[i] = raw_connect(port);
	run_until(NULL, 20);
	CHECK_INT(talk(STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), &b, 3000), RAW_CLOSED);
	CHECK_INT(status_of_raw(&b), 503);
	CHECK_INT(seen.requests, 0);
	buf_clear(&b);
	close(fd[0]);
	run_until(NULL, 20);
	CHECK_INT(talk(STR("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 3000), RAW_CLOSED);
	CHECK_INT(status_of_raw(&b), 200);
	close(fd[1]);
	server_down();
}

TEST(graceful_close)
{
	autobuf struct buf b = { 0 };
	int busy, idle;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	buf_init(&b, MIB);
	busy = raw_connect(port);
	idle = raw_connect(port);
	raw_send(busy, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	REQUIRE(seen.held);
	http_server_close(server, false, on_server_gone, NULL);
	CHECK_INT(raw_read(idle, &b, NULL, 1000), RAW_CLOSED);
	CHECK_INT(raw_connect(port), -1);
	CHECK(!server_is_gone);
	http_respond(seen.held, 200, NULL, "bye", 3);
	CHECK_INT(raw_read(busy, &b, NULL, 3000), RAW_CLOSED);
	CHECK(has(&b, "Connection: close\r\n") && str_ends(buf_str(&b), "bye"));
	close(busy);
	close(idle);
	CHECK(run_until(&server_is_gone, 3000));
	run_until(NULL, 5);
	CHECK(!uv_loop_alive(loop));
}

TEST(close_now)
{
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	fd = raw_connect(port);
	raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 20);
	REQUIRE(seen.held);
	http_server_close(server, false, on_server_gone, NULL);
	server_down(); /* a second call, this time in earnest */
	CHECK_INT(seen.close_err, -ECANCELED);
	close(fd);
}

/* --- Unix sockets --- */

static char peer[32];
static bool has_uid;
static uid_t uid = 12345;

static void peer_handler(struct http_exchange *x, void *arg)
{
	snprintf(peer, sizeof(peer), "%s", http_peer(x));
	has_uid = http_peer_uid(x, &uid);
	http_respond_empty(x, 204);
}

TEST(unix_sockets)
{
	char dir[] = "/tmp/space-unit-XXXXXX", path[64];
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	autobuf struct buf b = { 0 };
	struct fail why = { 0 };
	struct stat st;
	int fd;

	REQUIRE(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	REQUIRE(server_up(NULL, peer_handler, NULL));
	CHECK_INT(http_server_listen_unix(server, path, 0620, &why), 0);
	CHECK_INT(stat(path, &st), 0);
	CHECK(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0620);
	/* Taken over from a server that did not clean up. */
	CHECK_INT(http_server_listen_unix(server, path, 0600, &why), 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(a.sun_path, path);
	REQUIRE(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	buf_init(&b, MIB);
	raw_send(fd, STR("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, " 204 ", 1000), RAW_OPEN);
	CHECK(has_uid && uid == getuid());
	CHECK(str_starts(str_of(peer), "unix:"));
	close(fd);
	CHECK_INT(http_server_listen_unix(server, "/etc/passwd", 0600, &why), -EEXIST);
	CHECK_INT(http_server_listen_unix(server, "/tmp/no/such/dir/s", 0600, &why), -ENOENT);
	CHECK_INT(http_server_listen_tcp(server, "127.0.0.1", port, NULL, NULL, &why), -EADDRINUSE);
	CHECK(strstr(why.msg, "127.0.0.1") != NULL);
	CHECK_INT(http_server_listen_tcp(server, "localhost", 0, NULL, NULL, &why), -EINVAL);
	server_down();
	CHECK_INT(access(path, F_OK), -1);
	CHECK_INT(rmdir(dir), 0);
}

TEST(a_given_descriptor)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	autobuf struct buf b = { 0 };
	struct fail why;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	REQUIRE(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 5) == 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	CHECK_INT(http_server_listen_fd(server, fd, NULL, &why), 0);
	port = ntohs(a.sin_port);
	CHECK_INT(talk(STR("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), &b, 1000), RAW_CLOSED);
	CHECK(has(&b, "hello"));
	server_down();
}

/* --- upgrades --- */

static struct http_stream *stream;
static bool stream_closed;
static char stream_data[64];
static ssize_t stream_last;

static void stream_on_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	stream_last = len;
	if (len > 0) {
		strncat(stream_data, data, (size_t)len);
		http_stream_write(s, data, (size_t)len);
	} else if (len == 0) {
		http_stream_end(s);
	}
}

static void stream_on_close(struct http_stream *s, void *arg)
{
	stream_closed = true;
	stream = NULL;
}

static void upgrade_handler(struct http_exchange *x, void *arg)
{
	static const struct http_stream_cb cb = { .on_data = stream_on_data, .on_close = stream_on_close };

	http_on_close(x, on_close, NULL);
	if (!http_req(x)->upgrade) {
		http_respond_empty(x, 426);
		return;
	}
	http_add_header(x, "Upgrade", "echo");
	stream = http_upgrade(x, 101, &cb, NULL);
}

TEST(upgrades)
{
	autobuf struct buf b = { 0 };
	int fd;

	reset_seen();
	REQUIRE(server_up(NULL, upgrade_handler, NULL));
	buf_init(&b, MIB);
	fd = raw_connect(port);
	/* The first bytes come with the request. */
	raw_send(fd, STR("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nping"), 1000);
	CHECK_INT(raw_read(fd, &b, "ping", 1000), RAW_OPEN);
	CHECK(has(&b, "HTTP/1.1 101 Switching Protocols\r\n") && has(&b, "Connection: Upgrade\r\n") && has(&b, "Upgrade: echo\r\n"));
	CHECK(!has(&b, "Content-Length"));
	CHECK_INT(seen.closed, 1);
	CHECK_INT(seen.close_err, 0);
	raw_send(fd, STR("pong"), 1000);
	CHECK_INT(raw_read(fd, &b, "pong", 1000), RAW_OPEN);
	CHECK_STR(stream_data, "pingpong");
	CHECK_INT(http_server_conns(server), 1);
	shutdown(fd, SHUT_WR);
	CHECK_INT(raw_read(fd, &b, NULL, 1000), RAW_CLOSED);
	CHECK(run_until(&stream_closed, 1000));
	CHECK_INT(stream_last, 0);
	close(fd);
	/* Closing the server ends streams too. */
	stream_closed = false;
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "\r\n\r\n", 1000), RAW_OPEN);
	server_down();
	CHECK(stream_closed);
	close(fd);
}
