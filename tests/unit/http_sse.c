/* Server-sent events: what is sent, and what a reader makes of a stream however it is cut. */
#include "http_loop.h"

static struct {
	struct http_exchange *x;
	bool closed;
} seen;

static void on_close(struct http_exchange *x, int err, void *arg)
{
	seen.closed = true;
	seen.x = NULL;
}

static void handler(struct http_exchange *x, void *arg)
{
	http_on_close(x, on_close, NULL);
	seen.x = x;
	seen.closed = false;
	sse_start(x);
}

TEST(events_are_sent)
{
	autobuf struct buf b = { 0 };
	int fd;

	REQUIRE(server_up(NULL, handler, NULL));
	buf_init(&b, MIB);
	fd = raw_connect(port);
	raw_send(fd, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	CHECK_INT(raw_read(fd, &b, "\r\n\r\n", 1000), RAW_OPEN);
	CHECK(has(&b, "Content-Type: text/event-stream\r\n") && has(&b, "Cache-Control: no-store\r\n") && has(&b, "chunked"));
	REQUIRE(seen.x);
	CHECK_INT(http_req(seen.x)->nheaders, 0); /* forgotten */
	CHECK_INT(sse_send(seen.x, "7", "data", STR("{\"a\":1}")), 0);
	CHECK_INT(raw_read(fd, &b, "id: 7\nevent: data\ndata: {\"a\":1}\n\n", 1000), RAW_OPEN);
	CHECK_INT(sse_send(seen.x, NULL, NULL, STR("")), 0);
	CHECK_INT(raw_read(fd, &b, "data: \n\n", 1000), RAW_OPEN);
	CHECK_INT(sse_send(seen.x, "1\n2", NULL, STR("x")), -EINVAL);
	CHECK_INT(sse_send(seen.x, NULL, "a\rb", STR("x")), -EINVAL);
	CHECK_INT(sse_send(seen.x, NULL, NULL, STR("x\ny")), -EINVAL);
	http_end(seen.x);
	CHECK_INT(raw_read(fd, &b, "0\r\n\r\n", 1000), RAW_OPEN);
	run_until(NULL, 10);
	CHECK(seen.closed);
	/* The connection serves on. */
	raw_send(fd, STR("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
	run_until(NULL, 30);
	REQUIRE(seen.x);
	CHECK_INT(sse_send(seen.x, NULL, NULL, STR("x")), 0); /* HEAD: goes nowhere */
	close(fd);
	CHECK(run_until(&seen.closed, 1000));
	server_down();
}

/* --- the reader --- */

static void on_event(struct str id, struct str event, struct str data, void *arg)
{
	buf_addf(arg, "[" STR_FMT "|" STR_FMT "|" STR_FMT "]", STR_ARG(id), STR_ARG(event), STR_ARG(data));
}

TEST(reader)
{
	static const struct {
		const char *text, *events;
	} rows[] = {
		{ "data: a\n\n", "[||a]" },
		{ "data:a\r\n\r\n", "[||a]" },
		{ "data:  a\r\r", "[|| a]" },
		{ "\xef\xbb\xbf" "data: a\n\ndata: \xef\xbb\xbf\n\n", "[||a][||\xef\xbb\xbf]" },
		{ "id: 1\nevent: x\ndata: a\ndata: b\n\ndata: c\n\n", "[1|x|a\nb][1||c]" },
		{ "id: 1\n\nid\ndata: a\n\n", "[||a]" },
		{ ": comment\ndata: a\n:\n\n", "[||a]" },
		{ "event: x\n\ndata: a\n\n", "[||a]" },
		{ "data\n\n", "[||]" },
		{ "data\ndata\n\n", "[||\n]" },
		{ "data: a\n", "" },
		{ "data: a", "" },
		{ "retry: 5\nunknown: x\ndata : a\ndata: b\n\n", "[||b]" },
		{ "data: a\r\n\ndata: b\n\r\n", "[||a][||b]" },
		{ "\n\n\r\n\r\r", "" },
	};
	autobuf struct buf b = { 0 };

	buf_init(&b, 10000);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t n = strlen(rows[i].text);

		for (size_t step = 1; step <= n; step++) {
			struct sse_reader *r = sse_reader_new(100, on_event, &b);

			test_row("%zu by %zu", i, step);
			b.n = 0;
			for (size_t at = 0; at < n; at += step)
				CHECK_INT(sse_reader_feed(r, rows[i].text + at, MIN(step, n - at)), 0);
			CHECK_STR(buf_str(&b), rows[i].events);
			sse_reader_free(r);
		}
	}
}

TEST(reader_has_limits)
{
	autobuf struct buf b = { 0 };
	struct sse_reader *r = sse_reader_new(20, on_event, &b);

	buf_init(&b, 1000);
	CHECK_INT(sse_reader_feed(r, "id: 12\ndata: 0123456\n\n", 22), 0);
	CHECK_STR(sse_reader_last_id(r), "12");
	CHECK_INT(sse_reader_feed(r, "id: a\0b\ndata: x\n\n", 17), 0);
	CHECK_STR(sse_reader_last_id(r), "12");
	CHECK_INT(sse_reader_feed(r, "data: 01234567890123456789\n", 27), -EFBIG);
	sse_reader_free(r);
	r = sse_reader_new(20, on_event, &b);
	CHECK_INT(sse_reader_feed(r, "data: 0123456789\ndata: 0123456789\n", 34), -EFBIG);
	sse_reader_free(r);
	r = sse_reader_new(20, on_event, &b);
	for (int i = 0; i < 20; i++)
		CHECK_INT(sse_reader_feed(r, "x", 1), 0);
	CHECK_INT(sse_reader_feed(r, "x", 1), -EFBIG);
	sse_reader_free(r);
	sse_reader_free(NULL);
}

/* --- one to the other --- */

static struct sse_reader *reader;
static bool head_there;

static void on_head(struct http_call *c, const struct http_head *h, void *arg)
{
	head_there = true;
}

static void on_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	CHECK_INT(sse_reader_feed(reader, data, len), 0);
}

static void on_end(struct http_call *c, const struct fail *why, void *arg)
{
	*(bool *)arg = true;
	CHECK_INT(why->err, 0);
}

TEST(from_server_to_reader)
{
	static const struct http_call_cb cb = { .on_head = on_head, .on_data = on_data, .on_end = on_end };
	struct http_call_opts o = { .method = "GET", .target = "/" };
	autobuf struct buf b = { 0 };
	struct http_endpoint *e;
	bool ended = false;

	REQUIRE(server_up(NULL, handler, NULL));
	buf_init(&b, 10000);
	reader = sse_reader_new(1000, on_event, &b);
	CHECK_INT(http_endpoint_new(loop, &(struct http_endpoint_opts){ .host = "127.0.0.1", .port = port }, &e), 0);
	http_call_start(e, &o, &cb, &ended);
	CHECK(run_until(&head_there, 1000));
	sse_send(seen.x, "1", "n", STR("one"));
	sse_send(seen.x, "2", NULL, STR("two"));
	run_until(NULL, 20);
	CHECK_STR(buf_str(&b), "[1|n|one][2||two]");
	http_end(seen.x);
	CHECK(run_until(&ended, 1000));
	sse_reader_free(reader);
	http_endpoint_free(e);
	server_down();
}
