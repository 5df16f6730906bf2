/* The client, against our server and against peers that misbehave. */
#include "http_loop.h"

#include "base/file.h"

static struct {
	unsigned requests, ends, heads, closed;
	int status, err;
	size_t bytes;
	bool ended, upgraded, head_flag, drained;
	struct buf body;
	struct fail why;
	struct http_call *call;
	char method[16], host[64];
	struct http_exchange *held;
	unsigned conns_before;
} seen;

static void reset_seen(void)
{
	buf_clear(&seen.body);
	memset(&seen, 0, sizeof(seen));
	buf_init(&seen.body, 8 * MIB);
}

static void on_head(struct http_call *c, const struct http_head *h, void *arg)
{
	seen.heads++;
	seen.status = h->status;
	seen.head_flag = true;
}

static void on_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	seen.bytes += len;
	buf_add(&seen.body, data, len);
	if (arg)
		http_call_pause(c);
}

static void on_drain(struct http_call *c, void *arg)
{
	seen.drained = true;
}

static void on_end(struct http_call *c, const struct fail *why, void *arg)
{
	seen.ends++;
	seen.err = why->err;
	seen.why = *why;
	seen.ended = true;
	seen.call = NULL;
}

static const struct http_call_cb cb = { .on_head = on_head, .on_data = on_data, .on_drain = on_drain, .on_end = on_end };

static void on_exchange_close(struct http_exchange *x, int err, void *arg)
{
	seen.closed++;
	seen.held = NULL;
}

static void echo(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		http_write(x, data, (size_t)len);
	else if (len == 0)
		http_end(x);
}

static void count_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	char text[32];

	if (len > 0)
		seen.bytes += (size_t)len;
	else if (len == 0)
		http_respond(x, 200, NULL, text, (size_t)sprintf(text, "%zu", seen.bytes));
}

static void handler(struct http_exchange *x, void *arg)
{
	const struct http_head *h = http_req(x);
	static char block[100000];

	seen.requests++;
	snprintf(seen.method, sizeof(seen.method), STR_FMT, STR_ARG(h->method));
	snprintf(seen.host, sizeof(seen.host), STR_FMT, STR_ARG(http_get(h, "host")));
	http_on_close(x, on_exchange_close, NULL);
	if (str_eqz(h->path, "/echo")) {
		http_start(x, 200, NULL, -1);
		http_body_read(x, 0, echo, NULL);
	} else if (str_eqz(h->path, "/count")) {
		http_body_read(x, 0, count_body, NULL);
	} else if (str_eqz(h->path, "/hold")) {
		seen.held = x;
	} else if (str_eqz(h->path, "/refuse")) {
		http_respond(x, 413, NULL, "no", 2);
	} else if (str_eqz(h->path, "/half")) {
		http_start(x, 200, NULL, 100);
		http_write(x, "half", 4);
		seen.held = x;
	} else if (str_eqz(h->path, "/big")) {
		http_start(x, 200, NULL, 5 * sizeof(block));
		for (int i = 0; i < 5; i++)
			http_write(x, block, sizeof(block));
		http_end(x);
	} else {
		http_respond(x, 200, "text/plain", "hello", 5);
	}
}

static struct http_endpoint *endpoint(struct http_endpoint_opts o)
{
	struct http_endpoint *e = NULL;

	if (!o.unix_path && !o.connect && !o.host) {
		o.host = "127.0.0.1";
		o.port = port;
	}
	CHECK_INT(http_endpoint_new(loop, &o, &e), 0);
	return e;
}

static bool call(struct http_endpoint *e, struct http_call_opts o)
{
	seen.ended = false;
	o.method = o.method ? o.method : "GET";
	seen.call = http_call_start(e, &o, &cb, NULL);
	return run_until(&seen.ended, 5000);
}

TEST(calls_share_a_connection)
{
	struct http_endpoint *e;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	for (int i = 0; i < 5; i++) {
		CHECK(call(e, (struct http_call_opts){ .target = "/x" }));
		CHECK_INT(seen.err, 0);
		CHECK_INT(http_server_conns(server), 1);
	}
	CHECK_INT(seen.status, 200);
	CHECK_STR(buf_str(&seen.body), "hellohellohellohellohello");
	CHECK(str_starts(str_of(seen.host), "127.0.0.1:"));
	/* After an answer without a body, and one with a body that is not ours to have. */
	CHECK(call(e, (struct http_call_opts){ .method = "HEAD", .target = "/x", .host = "other" }));
	CHECK_STR(seen.host, "other");
	CHECK(call(e, (struct http_call_opts){ .target = "/big" }));
	CHECK_INT(seen.err, 0);
	CHECK_INT(seen.bytes, 500025);
	CHECK_INT(http_server_conns(server), 1);
	http_endpoint_free(e);
	server_down();
}

TEST(kept_connections_do_not_keep_the_loop)
{
	struct http_endpoint *e;
	bool gone = false;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	CHECK(call(e, (struct http_call_opts){ .target = "/x" }));
	http_server_close(server, true, on_server_gone, NULL);
	gone = run_until(&server_is_gone, 3000);
	CHECK(gone);
	run_until(NULL, 10);
	CHECK(!uv_loop_alive(loop));
	http_endpoint_free(e);
	run_until(NULL, 10);
}

TEST(bodies_both_ways)
{
	static char block[50000];
	struct http_endpoint *e;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	/* Written before there is a connection, and in pieces after. */
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "POST", .target = "/echo", .body_len = -1 }, &cb, NULL);
	CHECK_INT(http_call_write(seen.call, "one", 3), 0);
	CHECK(run_until(&seen.head_flag, 1000));
	CHECK_INT(http_call_write(seen.call, "two", 3), 0);
	run_until(NULL, 10);
	CHECK_STR(buf_str(&seen.body), "onetwo");
	http_call_end(seen.call);
	CHECK_INT(http_call_write(seen.call, "x", 1), -EPIPE);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, 0);
	/* Of known length; over it is refused, short of it fails. */
	seen.ended = false;
	seen.bytes = 0;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "PUT", .target = "/count", .body_len = 100000 }, &cb, NULL);
	CHECK_INT(http_call_write(seen.call, block, 50000), 0);
	CHECK_INT(http_call_write(seen.call, block, 50000), 0);
	CHECK_INT(http_call_write(seen.call, block, 1), -EINVAL);
	http_call_end(seen.call);
	CHECK(run_until(&seen.ended, 1000));
	CHECK(str_ends(buf_str(&seen.body), "100000"));
	seen.ended = false;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "PUT", .target = "/count", .body_len = 10 }, &cb, NULL);
	http_call_end(seen.call);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, -EINVAL);
	/* More than is held at once: 1 says wait, and then on_drain comes. */
	seen.ended = false;
	seen.bytes = 0;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "POST", .target = "/count", .body_len = -1 }, &cb, NULL);
	for (size_t sent = 0; sent < 10000000; sent += sizeof(block)) {
		int r = http_call_write(seen.call, block, sizeof(block));

		if (r == 1) {
			seen.drained = false;
			CHECK(run_until(&seen.drained, 1000));
		} else if (!CHECK_INT(r, 0)) {
			break;
		}
	}
	http_call_end(seen.call);
	CHECK(run_until(&seen.ended, 5000));
	CHECK(str_ends(buf_str(&seen.body), "10000000"));
	/* The peer answers before it has read all: that answer counts, and the connection is not used again. */
	seen.ended = seen.head_flag = false;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "POST", .target = "/refuse", .body_len = 1000000 }, &cb, NULL);
	http_call_write(seen.call, block, 1000);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, 0);
	CHECK_INT(seen.status, 413);
	http_endpoint_free(e);
	server_down();
}

TEST(pause_and_resume)
{
	struct http_endpoint *e;
	size_t first;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/big", .idle_timeout_ms = 100 }, &cb, &seen);
	CHECK(run_until(&seen.head_flag, 1000));
	run_until(NULL, 300); /* the idle timeout does not run while we are who is slow */
	first = seen.bytes;
	CHECK(first > 0 && first <= 65536);
	CHECK(!seen.ended);
	for (int i = 0; i < 1000 && !seen.ended; i++) {
		http_call_resume(seen.call);
		run_until(NULL, 1);
	}
	CHECK(seen.ended);
	CHECK_INT(seen.bytes, 500000);
	http_endpoint_free(e);
	server_down();
}

TEST(cancel_and_timeouts)
{
	struct http_endpoint *e;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	/* Before anything has happened. */
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/hold" }, &cb, NULL);
	http_call_cancel(seen.call);
	CHECK(!seen.ended); /* never from inside */
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, -ECANCELED);
	/* While the peer thinks: it hears of it. */
	seen.ended = false;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/hold" }, &cb, NULL);
	run_until(NULL, 30);
	CHECK(seen.held != NULL);
	http_call_cancel(seen.call);
	CHECK(run_until(&seen.ended, 1000));
	run_until(NULL, 30);
	CHECK(seen.held == NULL);
	/* No head in time; a body that stops. */
	CHECK(call(e, (struct http_call_opts){ .target = "/hold", .head_timeout_ms = 150 }));
	CHECK_INT(seen.err, -ETIMEDOUT);
	CHECK(call(e, (struct http_call_opts){ .target = "/half", .idle_timeout_ms = 150 }));
	CHECK_INT(seen.err, -ETIMEDOUT);
	CHECK_STR(buf_str(&seen.body), "half");
	/* Reset takes all that is under way. */
	seen.ended = false;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/hold" }, &cb, NULL);
	run_until(NULL, 30);
	http_endpoint_reset(e);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, -ECANCELED);
	CHECK(call(e, (struct http_call_opts){ .target = "/x" }));
	CHECK_INT(seen.err, 0);
	/* Freeing does too. */
	seen.ended = false;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/hold" }, &cb, NULL);
	http_endpoint_free(e);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, -ECANCELED);
	server_down();
}

TEST(requests_that_cannot_be_sent)
{
	struct http_header bad = { STR("A"), STR("b\r\nC: d") };
	struct http_endpoint *e = NULL;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	CHECK(call(e, (struct http_call_opts){ .target = "/a b" }) && seen.err == -EINVAL);
	CHECK(call(e, (struct http_call_opts){ .target = "/\r\n" }) && seen.err == -EINVAL);
	CHECK(call(e, (struct http_call_opts){ .target = "" }) && seen.err == -EINVAL);
	CHECK(call(e, (struct http_call_opts){ .target = "/", .method = "G T" }) && seen.err == -EINVAL);
	CHECK(call(e, (struct http_call_opts){ .target = "/", .headers = &bad, .nheaders = 1 }) && seen.err == -EINVAL);
	CHECK_INT(seen.requests, 0);
	http_endpoint_free(e);
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ 0 }, &e), -EINVAL);
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "a", .port = 0 }, &e), -EINVAL);
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "a", .port = 1, .unix_path = "/x" }, &e), -EINVAL);
	server_down();
}

/* --- peers that are made of a socket and a script --- */

static int listener(int *at)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 10) == 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	*at = ntohs(a.sin_port);
	return fd;
}

static int accept_one(int fd)
{
	int64_t end = mono_ms() + 1000;

	while (mono_ms() < end) {
		uv_run(loop, UV_RUN_NOWAIT);
		if (poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 1) > 0) {
			int c = accept(fd, NULL, NULL);

			fcntl(c, F_SETFL, O_NONBLOCK);
			return c;
		}
	}
	CHECK(!"nobody connected");
	return -1;
}

TEST(answers_of_bad_peers)
{
	static const struct {
		const char *answer;
		int err, status;
		const char *body;
	} rows[] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 0, 200, "abc" },
		{ "HTTP/1.1 200 OK\r\n\r\nuntil the end", 0, 200, "until the end" },
		{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 0, 200, "x" },
		{ "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", 0, 200, "abc" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", -ECONNRESET, 200, "abc" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", -ECONNRESET, 200, "abc" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd", -EPROTO, 200, "abc" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", -EPROTO, 0, "" },
		{ "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", -EPROTO, 0, "" },
		{ "SSH-2.0-x\r\n", -EPROTO, 0, "" },
		{ "HTTP/1.1 200", -ECONNRESET, 0, "" },
		{ "", -ECONNRESET, 0, "" },
	};
	struct http_endpoint *e;
	int at, fd = listener(&at);

	loop = uv_default_loop();
	e = endpoint((struct http_endpoint_opts){ .host = "127.0.0.1", .port = at });
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct http_call_opts o = { .method = "GET", .target = "/" };
		int c;

		test_row("%zu: %.60s", i, rows[i].answer);
		reset_seen();
		seen.call = http_call_start(e, &o, &cb, NULL);
		c = accept_one(fd);
		run_until(NULL, 5);
		CHECK(send(c, rows[i].answer, strlen(rows[i].answer), 0) == (ssize_t)strlen(rows[i].answer));
		shutdown(c, SHUT_WR);
		CHECK(run_until(&seen.ended, 2000));
		CHECK_INT(seen.err, rows[i].err);
		CHECK_INT(seen.status, rows[i].status);
		CHECK_STR(buf_str(&seen.body), rows[i].body);
		CHECK_INT(seen.ends, 1);
		close(c);
		run_until(NULL, 5);
	}
	test_row(NULL);
	http_endpoint_free(e);
	run_until(NULL, 5);
	CHECK(!uv_loop_alive(loop));
	close(fd);
}

TEST(stale_connections)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
	struct http_call_opts get = { .method = "GET", .target = "/" }, post = { .method = "POST", .target = "/", .body_len = 3 };
	struct http_endpoint *e;
	char sink[1000];
	int at, fd = listener(&at), c;

	loop = uv_default_loop();
	e = endpoint((struct http_endpoint_opts){ .host = "127.0.0.1", .port = at });
	reset_seen();
	/* Closed while it was kept: the next call takes a new one. */
	seen.call = http_call_start(e, &get, &cb, NULL);
	c = accept_one(fd);
	CHECK(write_all(c, answer, sizeof(answer) - 1) == 0);
	CHECK(run_until(&seen.ended, 1000));
	close(c);
	seen.ended = false;
	seen.call = http_call_start(e, &get, &cb, NULL);
	c = accept_one(fd);
	CHECK(write_all(c, answer, sizeof(answer) - 1) == 0);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, 0);
	/* Closed on the request: tried again, once. */
	seen.ended = false;
	seen.call = http_call_start(e, &get, &cb, NULL);
	run_until(NULL, 20);
	CHECK(recv(c, sink, sizeof(sink), 0) > 0);
	close(c);
	c = accept_one(fd);
	CHECK(write_all(c, answer, sizeof(answer) - 1) == 0);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, 0);
	seen.ended = false;
	seen.call = http_call_start(e, &get, &cb, NULL);
	run_until(NULL, 20);
	close(c);
	c = accept_one(fd);
	run_until(NULL, 20);
	close(c);
	CHECK(run_until(&seen.ended, 1000));
	CHECK(seen.err < 0);
	/* What may have been done is not done twice. */
	seen.ended = false;
	seen.call = http_call_start(e, &get, &cb, NULL);
	c = accept_one(fd);
	CHECK(write_all(c, answer, sizeof(answer) - 1) == 0);
	CHECK(run_until(&seen.ended, 1000));
	seen.ended = false;
	seen.call = http_call_start(e, &post, &cb, NULL);
	http_call_write(seen.call, "abc", 3);
	http_call_end(seen.call);
	run_until(NULL, 20);
	close(c);
	CHECK(run_until(&seen.ended, 1000));
	CHECK(seen.err < 0);
	/* Bytes nobody asked for spoil a kept connection. */
	seen.ended = false;
	seen.call = http_call_start(e, &get, &cb, NULL);
	c = accept_one(fd);
	CHECK(write_all(c, answer, sizeof(answer) - 1) == 0 && write_all(c, answer, sizeof(answer) - 1) == 0);
	CHECK(run_until(&seen.ended, 1000));
	run_until(NULL, 20);
	close(c);
	seen.ended = false;
	seen.call = http_call_start(e, &get, &cb, NULL);
	c = accept_one(fd);
	CHECK(write_all(c, answer, sizeof(answer) - 1) == 0);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.ends, 8);
	close(c);
	http_endpoint_free(e);
	run_until(NULL, 5);
	close(fd);
}

TEST(nobody_there)
{
	struct http_endpoint *e;
	int at, fd = listener(&at);

	loop = uv_default_loop();
	reset_seen();
	close(fd);
	e = endpoint((struct http_endpoint_opts){ .host = "127.0.0.1", .port = at });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -ECONNREFUSED);
	CHECK(strstr(seen.why.msg, "127.0.0.1 port") != NULL);
	http_endpoint_free(e);
	e = endpoint((struct http_endpoint_opts){ .unix_path = "/tmp/space-no-such-socket" });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -ENOENT);
	http_endpoint_free(e);
	/* By name: each of the addresses is tried. */
	e = endpoint((struct http_endpoint_opts){ .host = "localhost", .port = at });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -ECONNREFUSED);
	http_endpoint_free(e);
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ .host = "localhost", .port = port });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, 0);
	http_endpoint_free(e);
	server_down();
}

/* --- an endpoint that connects by itself --- */

static int connect_fails(void *arg, struct fail *why)
{
	return fail_as(why, ERR_agent_unreachable, "no slot");
}

static int connect_now(void *arg, struct fail *why)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*(int *)arg),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno != EINPROGRESS) {
		close(fd);
		return fail_set(why, -errno, "connect");
	}
	return fd;
}

TEST(own_connect_function)
{
	struct http_endpoint *e;
	int dead, fd = listener(&dead);

	close(fd);
	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ .connect = connect_now, .connect_arg = &port });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, 0);
	CHECK_STR(seen.host, "localhost");
	/* Given up while the worker is at it. */
	http_endpoint_reset(e);
	seen.ended = false;
	seen.call = http_call_start(e, &(struct http_call_opts){ .method = "GET", .target = "/" }, &cb, NULL);
	http_endpoint_free(e);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.err, -ECANCELED);
	e = endpoint((struct http_endpoint_opts){ .connect = connect_fails });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -EHOSTUNREACH);
	CHECK_INT(seen.why.code, ERR_agent_unreachable);
	CHECK(strstr(seen.why.msg, "no slot") != NULL);
	http_endpoint_free(e);
	e = endpoint((struct http_endpoint_opts){ .connect = connect_now, .connect_arg = &dead });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -ECONNREFUSED);
	http_endpoint_free(e);
	server_down();
}

TEST(connect_timeout)
{
	struct http_endpoint *e;
	int64_t start = mono_ms();
	int at, fd = listener(&at), fill[16];

	/* A listener whose queue is full answers no SYN. */
	listen(fd, 0);
	for (size_t i = 0; i < ARRAY_LEN(fill); i++) {
		struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)at), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)!connect(fill[i], (struct sockaddr *)&a, sizeof(a));
	}
	loop = uv_default_loop();
	reset_seen();
	e = endpoint((struct http_endpoint_opts){ .host = "127.0.0.1", .port = at, .connect_timeout_ms = 200 });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -ETIMEDOUT);
	CHECK(mono_ms() - start < 2000);
	http_endpoint_free(e);
	e = endpoint((struct http_endpoint_opts){ .connect = connect_now, .connect_arg = &at, .connect_timeout_ms = 200 });
	CHECK(call(e, (struct http_call_opts){ .target = "/" }));
	CHECK_INT(seen.err, -ETIMEDOUT);
	http_endpoint_free(e);
	for (size_t i = 0; i < ARRAY_LEN(fill); i++)
		close(fill[i]);
	close(fd);
	run_until(NULL, 5);
	CHECK(!uv_loop_alive(loop));
}

/* --- upgrades --- */

static struct http_stream *client_stream;
static bool client_closed, server_closed;
static struct buf got;

static void client_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		buf_add(&got, data, (size_t)len);
}

static void client_close(struct http_stream *s, void *arg)
{
	client_closed = true;
}

static const struct http_stream_cb client_stream_cb = { .on_data = client_data, .on_close = client_close };

static void on_upgrade(struct http_call *c, const struct http_head *h, struct http_stream *s, void *arg)
{
	seen.upgraded = true;
	seen.status = h->status;
	client_stream = s;
	http_stream_set_cb(s, &client_stream_cb, NULL);
}

static void server_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		http_stream_write(s, data, (size_t)len);
	else if (len == 0)
		http_stream_end(s);
}

static void server_close(struct http_stream *s, void *arg)
{
	server_closed = true;
}

static void upgrade_handler(struct http_exchange *x, void *arg)
{
	static const struct http_stream_cb stream_cb = { .on_data = server_data, .on_close = server_close };
	struct http_stream *s;

	if (!http_req(x)->upgrade) {
		http_respond_empty(x, 426);
		return;
	}
	http_add_header(x, "Upgrade", "tcp");
	s = http_upgrade(x, 101, &stream_cb, NULL);
	http_stream_write(s, "welcome ", 8);
}

TEST(upgraded_calls)
{
	static const struct http_call_cb up_cb = { .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_upgrade = on_upgrade };
	struct http_header upgrade = { STR("Upgrade"), STR("tcp") };
	struct http_call_opts o = { .method = "GET", .target = "/", .headers = &upgrade, .nheaders = 1, .upgrade = true };
	struct http_endpoint *e;

	reset_seen();
	buf_init(&got, MIB);
	REQUIRE(server_up(NULL, upgrade_handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	http_call_start(e, &o, &up_cb, NULL);
	CHECK(run_until(&seen.upgraded, 1000));
	CHECK_INT(seen.status, 101);
	CHECK_INT(seen.ends, 0);
	CHECK_INT(http_stream_write(client_stream, "hello", 5), 0);
	run_until(NULL, 30);
	CHECK_STR(buf_str(&got), "welcome hello");
	http_stream_end(client_stream);
	CHECK(run_until(&client_closed, 1000));
	CHECK(run_until(&server_closed, 1000));
	/* Not wanted: an answer like any other. */
	o.upgrade = false;
	seen.call = http_call_start(e, &o, &cb, NULL);
	CHECK(run_until(&seen.ended, 1000));
	CHECK_INT(seen.status, 426);
	/* A reset ends what came of upgrades too. */
	o.upgrade = true;
	seen.upgraded = client_closed = false;
	http_call_start(e, &o, &up_cb, NULL);
	CHECK(run_until(&seen.upgraded, 1000));
	http_endpoint_reset(e);
	CHECK(run_until(&client_closed, 1000));
	http_endpoint_free(e);
	buf_clear(&got);
	server_down();
}

/* --- whole small calls --- */

static int fetched_status;
static bool fetched;
static struct fail fetched_why;
static char fetched_body[64];

static void on_fetch(int status, struct str body, const struct fail *why, void *arg)
{
	fetched = true;
	fetched_status = status;
	fetched_why = *why;
	snprintf(fetched_body, sizeof(fetched_body), STR_FMT, STR_ARG(body));
}

static void fetch(struct http_endpoint *e, const char *method, const char *target, struct str body, size_t max)
{
	struct http_call_opts o = { .method = method, .target = target };

	fetched = false;
	CHECK_INT(http_fetch(e, &o, body, max, 300, on_fetch, NULL), 0);
	CHECK(run_until(&fetched, 2000));
}

TEST(fetches)
{
	struct http_endpoint *e;

	reset_seen();
	REQUIRE(server_up(NULL, handler, NULL));
	e = endpoint((struct http_endpoint_opts){ 0 });
	fetch(e, "GET", "/", (struct str){ NULL, 0 }, 5);
	CHECK_INT(fetched_status, 200);
	CHECK_STR(fetched_body, "hello");
	fetch(e, "POST", "/echo", STR("abc"), 100);
	CHECK_STR(fetched_body, "abc");
	fetch(e, "GET", "/", (struct str){ NULL, 0 }, 4);
	CHECK_INT(fetched_status, 0);
	CHECK_INT(fetched_why.err, -EFBIG);
	fetch(e, "POST", "/echo", STR("abcde"), 4);
	CHECK_INT(fetched_why.err, -EFBIG);
	fetch(e, "GET", "/hold", (struct str){ NULL, 0 }, 4);
	CHECK_INT(fetched_why.err, -ETIMEDOUT);
	http_endpoint_free(e);
	server_down();
	buf_clear(&seen.body);
}
