/* The proxy between our client's raw bytes and an origin on the same loop. */
#include "http_loop.h"

static struct http_server *origin;
static struct http_endpoint *endpoint;
static int origin_port;

static struct {
	unsigned origin_closed, relays, failures;
	int origin_err, fail_err;
	size_t origin_bytes;
	uint64_t in, out;
	bool relay_flag, origin_flag;
	struct http_exchange *held;
	char head[2048];
	int write_said;
	unsigned drains;
} seen;

static void origin_close(struct http_exchange *x, int err, void *arg)
{
	seen.origin_closed++;
	seen.origin_err = err;
	seen.origin_flag = true;
	if (seen.held == x)
		seen.held = NULL;
}

static void origin_echo(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		http_write(x, data, (size_t)len);
	else if (len == 0)
		http_end(x);
}

static void origin_count(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	char text[32];

	if (len > 0)
		seen.origin_bytes += (size_t)len;
	else if (len == 0)
		http_respond(x, 200, "text/plain", text, (size_t)sprintf(text, "%zu", seen.origin_bytes));
}

static void flood(struct http_exchange *x, void *arg)
{
	static char block[65536];

	seen.drains++;
	while ((seen.write_said = http_write(x, block, sizeof(block))) == 0)
		seen.origin_bytes += sizeof(block);
}

static void ws_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		http_stream_write(s, data, (size_t)len);
	else if (len == 0)
		http_stream_end(s);
}

static void origin_handler(struct http_exchange *x, void *arg)
{
	static const struct http_stream_cb ws = { .on_data = ws_data };
	const struct http_head *h = http_req(x);
	size_t n = 0;

	for (unsigned i = 0; i < h->nheaders; i++)
		n += (size_t)snprintf(seen.head + n, sizeof(seen.head) - n, STR_FMT ": " STR_FMT "\n", STR_ARG(h->headers[i].name),
			STR_ARG(h->headers[i].value));
	http_on_close(x, origin_close, NULL);
	if (str_eqz(h->path, "/echo")) {
		http_start(x, 200, NULL, -1);
		http_body_read(x, 0, origin_echo, NULL);
	} else if (str_eqz(h->path, "/count")) {
		http_body_read(x, 0, origin_count, NULL);
	} else if (str_eqz(h->path, "/hold") || str_eqz(h->path, "/never-reads")) {
		seen.held = x;
	} else if (str_eqz(h->path, "/flood")) {
		seen.held = x;
		http_on_drain(x, flood, NULL);
		http_start(x, 200, NULL, -1);
		flood(x, NULL);
	} else if (str_eqz(h->path, "/break")) {
		http_start(x, 200, NULL, 100);
		http_write(x, "half", 4);
		seen.held = x;
	} else if (h->upgrade) {
		http_add_header(x, "Upgrade", "websocket");
		http_add_header(x, "Sec-WebSocket-Accept", "y");
		http_upgrade(x, 101, &ws, NULL);
	} else {
		http_add_header(x, "X-Origin", "1");
		http_add_header(x, "X-\x4fther", "caf\xe9");
		http_respond(x, 200, "text/plain", "hello", 5);
	}
}

static void proxy_failed(struct http_exchange *x, const struct fail *why, void *arg)
{
	seen.failures++;
	seen.fail_err = why->err;
	http_respond(x, 502, "text/plain", "bad gateway", 11);
}

static void proxy_end(uint64_t in, uint64_t out, void *arg)
{
	seen.relays++;
	seen.in = in;
	seen.out = out;
	seen.relay_flag = true;
}

static void proxy_handler(struct http_exchange *x, void *arg)
{
	static const char *const drop[] = { "Authorization" };
	struct http_header add = { STR("X-Added"), STR("yes") };

	http_proxy(x, endpoint, &(struct http_proxy_opts){ .add = &add, .nadd = 1, .drop = drop, .ndrop = 1, .failed = proxy_failed,
		.on_end = proxy_end });
}

static bool up(int to_port)
{
	struct fail why;

	memset(&seen, 0, sizeof(seen));
	if (!server_up(NULL, proxy_handler, NULL))
		return false;
	CHECK_INT(http_server_new(loop, NULL, origin_handler, NULL, &origin), 0);
	CHECK_INT(http_server_listen_tcp(origin, "127.0.0.1", 0, NULL, &origin_port, &why), 0);
	return CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "127.0.0.1", .port = to_port ? to_port : origin_port },
			&endpoint), 0);
}

static void down(void)
{
	http_endpoint_free(endpoint);
	http_server_close(origin, true, NULL, NULL);
	server_down();
}

static void talk(struct str text, struct buf *b, const char *needle)
{
	int fd = raw_connect(port);

	buf_clear(b);
	buf_init(b, 4 * MIB);
	raw_send(fd, text, 2000);
	raw_read(fd, b, needle, 3000);
	close(fd);
	run_until(&seen.relay_flag, 1000);
	seen.relay_flag = false;
}

TEST(relays_requests_and_answers)
{
	autobuf struct buf b = { 0 };

	REQUIRE(up(0));
	talk(STR("GET /x?y=z HTTP/1.1\r\nHost: sandbox.example:81\r\nAuthorization: secret\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
		 "TE: trailers\r\nProxy-Connection: x\r\nAccept: a\r\n\r\n"), &b, "\r\n\r\nhello");
	CHECK(has(&b, "HTTP/1.1 200 OK\r\n") && has(&b, "X-Origin: 1\r\n") && has(&b, "Content-Length: 5\r\n") && has(&b, "X-Other: caf\xe9\r\n"));
	CHECK_INT(count(&b, "Date: "), 1);
	CHECK_INT(count(&b, "Connection: "), 1);
	CHECK(strstr(seen.head, "Host: sandbox.example:81\n") && strstr(seen.head, "X-Added: yes\n") && strstr(seen.head, "Accept: a\n"));
	CHECK(!strstr(seen.head, "secret") && !strstr(seen.head, "X-Hop") && !strstr(seen.head, "TE:") && !strstr(seen.head, "Proxy"));
	CHECK_INT(seen.out, 5);
	CHECK_INT(seen.in, 0);
	talk(STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabcdef"), &b, "6\r\nabcdef\r\n0\r\n\r\n");
	CHECK(has(&b, "6\r\nabcdef\r\n0\r\n\r\n"));
	CHECK(strstr(seen.head, "Content-Length: 6\n") != NULL);
	CHECK_INT(seen.in, 6);
	CHECK_INT(seen.out, 6);
	talk(STR("POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"), &b,
		"\r\n\r\n3");
	CHECK(str_ends(buf_str(&b), "\r\n\r\n3"));
	CHECK(strstr(seen.head, "Transfer-Encoding: chunked\n") && !strstr(seen.head, "Expect"));
	talk(STR("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n"), &b, "hello");
	CHECK_INT(count(&b, "Content-Length: 5\r\n"), 2);
	CHECK_INT(count(&b, "hello"), 1);
	CHECK_INT(seen.origin_closed, 5);
	CHECK_INT(seen.failures, 0);
	talk(STR("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"), &b, "}");
	CHECK_INT(status_of_raw(&b), 405);
	down();
	CHECK_INT(seen.relays, 6);
}

TEST(nobody_behind)
{
	autobuf struct buf b = { 0 };

	REQUIRE(up(1)); /* tcpmux: nobody */
	talk(STR("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"), &b, NULL);
	CHECK_INT(status_of_raw(&b), 502);
	CHECK_INT(seen.failures, 1);
	CHECK_INT(seen.fail_err, -ECONNREFUSED);
	CHECK_INT(seen.relays, 1);
	down();
}

TEST(client_that_vanishes_cancels_the_call)
{
	int fd;

	REQUIRE(up(0));
	fd = raw_connect(port);
	raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 50);
	CHECK(seen.held != NULL);
	close(fd);
	CHECK(run_until(&seen.origin_flag, 1000));
	CHECK(seen.origin_err < 0);
	CHECK(run_until(&seen.relay_flag, 1000));
	/* In the middle of an upload. */
	seen.origin_flag = seen.relay_flag = false;
	fd = raw_connect(port);
	raw_send(fd, STR("POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc"), 1000);
	run_until(NULL, 50);
	CHECK_INT(seen.origin_bytes, 3);
	close(fd);
	CHECK(run_until(&seen.origin_flag, 1000));
	CHECK(seen.origin_err < 0);
	CHECK(run_until(&seen.relay_flag, 1000));
	CHECK_INT(seen.failures, 0);
	down();
}

TEST(client_that_vanishes_behind_a_standing_body)
{
	static char block[65536];
	size_t sent = 0;
	int fd;

	REQUIRE(up(0));
	fd = raw_connect(port);
	raw_send(fd, STR("POST /never-reads HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"), 1000);
	/* More than is read ahead, less than stays in the client's own socket. */
	for (int64_t end = mono_ms() + 500; mono_ms() < end;) {
		ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);

		sent += n > 0 ? (size_t)n : 0;
		uv_run(loop, UV_RUN_NOWAIT);
		if (seen.held && http_server_conns(origin) && sent > 6 * MIB)
			break;
	}
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fd);
	CHECK(run_until(&seen.origin_flag, 4000));
	CHECK(run_until(&seen.relay_flag, 1000));
	down();
}

TEST(peer_that_breaks_off_resets_the_client)
{
	autobuf struct buf b = { 0 };
	int fd;

	REQUIRE(up(0));
	buf_init(&b, MIB);
	fd = raw_connect(port);
	raw_send(fd, STR("GET /break HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "half", 1000), RAW_OPEN);
	REQUIRE(seen.held);
	http_abort(seen.held);
	CHECK_INT(raw_read(fd, &b, NULL, 1000), RAW_RESET);
	close(fd);
	run_until(&seen.relay_flag, 1000);
	/* Before a head: the handler answers. */
	b.n = 0;
	seen.relay_flag = false;
	fd = raw_connect(port);
	raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 50);
	REQUIRE(seen.held);
	http_abort(seen.held);
	CHECK_INT(raw_read(fd, &b, "bad gateway", 1000), RAW_OPEN);
	CHECK_INT(seen.failures, 1);
	close(fd);
	down();
}

TEST(slow_reader_slows_the_origin)
{
	autobuf struct buf b = { 0 };
	size_t before;
	int fd;

	REQUIRE(up(0));
	buf_init(&b, 64 * MIB);
	fd = raw_connect(port);
	raw_send(fd, STR("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 300);
	before = seen.origin_bytes;
	run_until(NULL, 300);
	CHECK_INT(seen.origin_bytes, before); /* it stands still */
	/* What is under way: two queues of 256 KiB and what four sockets' buffers hold. */
	CHECK(before > 0 && before < 32 * MIB);
	REQUIRE(seen.held);
	CHECK(http_unsent(seen.held) < MIB);
	raw_read(fd, &b, NULL, 300);
	CHECK(seen.origin_bytes > before);
	CHECK(b.n > before / 2);
	close(fd);
	CHECK(run_until(&seen.origin_flag, 2000));
	down();
}

TEST(slow_origin_slows_the_client)
{
	static char block[65536];
	size_t sent = 0, before;
	int fd;

	REQUIRE(up(0));
	fd = raw_connect(port);
	raw_send(fd, STR("POST /never-reads HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"), 1000);
	for (int round = 0; round < 2; round++) {
		int64_t end = mono_ms() + 300;

		before = sent;
		while (mono_ms() < end) {
			ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);

			sent += n > 0 ? (size_t)n : 0;
			uv_run(loop, UV_RUN_NOWAIT);
		}
	}
	CHECK_INT(sent, before);
	CHECK(sent < 32 * MIB);
	/* The client's end cannot be seen behind what it could not send; the origin's can. */
	close(fd);
	REQUIRE(seen.held);
	http_abort(seen.held);
	CHECK(run_until(&seen.relay_flag, 1000));
	CHECK(seen.in < 32 * MIB);
	down();
}

TEST(upgrades_pass_through)
{
	autobuf struct buf b = { 0 };
	int fd;

	REQUIRE(up(0));
	buf_init(&b, 8 * MIB);
	fd = raw_connect(port);
	raw_send(fd, STR("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\nfirst"), 1000);
	CHECK_INT(raw_read(fd, &b, "first", 1000), RAW_OPEN);
	CHECK(has(&b, "HTTP/1.1 101 ") && has(&b, "Upgrade: websocket\r\n") && has(&b, "Sec-WebSocket-Accept: y\r\n"));
	CHECK_INT(count(&b, "Connection: "), 1);
	CHECK(strstr(seen.head, "Upgrade: websocket\n") && strstr(seen.head, "Sec-WebSocket-Key: x\n"));
	raw_send(fd, STR("second"), 1000);
	CHECK_INT(raw_read(fd, &b, "second", 1000), RAW_OPEN);
	/* Much of it, faster than it is read. */
	b.n = 0;
	for (int i = 0; i < 40; i++) {
		static char block[50000];

		CHECK(raw_send(fd, (struct str){ block, sizeof(block) }, 2000));
		raw_read(fd, &b, NULL, 2);
	}
	raw_read(fd, &b, NULL, 200);
	CHECK_INT(b.n, 2000000);
	shutdown(fd, SHUT_WR);
	CHECK_INT(raw_read(fd, &b, NULL, 1000), RAW_CLOSED);
	CHECK(run_until(&seen.relay_flag, 1000));
	CHECK_INT(seen.in, 2000011);
	CHECK_INT(seen.out, 2000011);
	close(fd);
	/* The client vanishes. */
	seen.relay_flag = false;
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "\r\n\r\n", 1000), RAW_OPEN);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fd);
	CHECK(run_until(&seen.relay_flag, 1000));
	/* Not to be upgraded after all. */
	seen.relay_flag = false;
	b.n = 0;
	fd = raw_connect(port);
	raw_send(fd, STR("GET /count HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "\r\n\r\n0", 1000), RAW_OPEN);
	CHECK_INT(status_of_raw(&b), 200);
	close(fd);
	CHECK(run_until(&seen.relay_flag, 1000));
	down();
}
