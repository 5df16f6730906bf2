/* Memory that runs out: each allocation of a whole conversation between client, proxy and server fails in turn, and nothing
 * worse comes of it than a call that fails; the next one, with memory, succeeds. */
#include "http_loop.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define OWN_MALLOC 0
#else
#define OWN_MALLOC 1
#endif

static long countdown = -1; /* allocations until the one that fails; -1: none does */
static long counted;

#if OWN_MALLOC
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool fails(void)
{
	counted++;
	return countdown > 0 && --countdown == 0;
}

void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}
#endif

static struct http_server *origin;
static struct http_endpoint *to_proxy, *to_origin;
static int origin_port;
static bool ended;
static struct fail last;
static size_t got;
static int status;

static void echo(struct http_exchange *x, struct str body, const struct fail *why, void *arg)
{
	if (why->err == 0)
		http_respond(x, 200, "text/plain", body.p, body.n);
}

static void stream_echo(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	if (len > 0)
		http_stream_write(s, data, (size_t)len);
	else if (len == 0)
		http_stream_end(s);
}

static void origin_handler(struct http_exchange *x, void *arg)
{
	static const struct http_stream_cb cb = { .on_data = stream_echo };

	if (http_req(x)->upgrade) {
		http_add_header(x, "Upgrade", "tcp");
		if (!http_upgrade(x, 101, &cb, NULL))
			http_respond_empty(x, 500);
	} else {
		http_add_header(x, "X-A", "b");
		http_body_whole(x, 300000, echo, NULL);
	}
}

static void proxy_handler(struct http_exchange *x, void *arg)
{
	http_proxy(x, to_origin, &(struct http_proxy_opts){ 0 });
}

static void on_head(struct http_call *c, const struct http_head *h, void *arg)
{
	status = h->status;
}

static void on_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	got += len;
}

static void on_end(struct http_call *c, const struct fail *why, void *arg)
{
	last = *why;
	ended = true;
}

static void up_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	if (len > 0) {
		got += (size_t)len;
		http_stream_end(s);
	}
}

static void up_close(struct http_stream *s, void *arg)
{
	ended = true;
}

static void on_upgrade(struct http_call *c, const struct http_head *h, struct http_stream *s, void *arg)
{
	static const struct http_stream_cb cb = { .on_data = up_data, .on_close = up_close };

	status = h->status;
	http_stream_set_cb(s, &cb, NULL);
	if (http_stream_write(s, "hello", 5) < 0)
		http_stream_close(s);
}

static const struct http_call_cb cb = { .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_upgrade = on_upgrade };
static char block[200000];

static void one_call(bool upgrade)
{
	struct http_header h = { STR("Upgrade"), STR("tcp") };
	struct http_call_opts o = { .method = upgrade ? "GET" : "PUT", .target = "/", .headers = &h, .nheaders = upgrade,
		.upgrade = upgrade, .body_len = upgrade ? 0 : sizeof(block), .head_timeout_ms = 3000 };
	struct http_call *c;

	ended = false;
	got = 0;
	status = 0;
	last.err = 0;
	c = http_call_start(to_proxy, &o, &cb, NULL);
	if (!c)
		return;
	if (!upgrade) {
		http_call_write(c, block, sizeof(block));
		http_call_end(c);
	}
	CHECK(run_until(&ended, 10000));
}

static void in_turn(bool upgrade)
{
	long n;

	for (int fresh = 0; fresh < 2; fresh++) {
		one_call(upgrade);
		one_call(upgrade);
		CHECK_INT(got, upgrade ? 5 : sizeof(block));
		counted = 0;
		if (fresh) {
			http_endpoint_reset(to_proxy);
			http_endpoint_reset(to_origin);
			run_until(NULL, 5);
		}
		one_call(upgrade);
		n = counted;
		CHECK(n > 5);
		for (long i = 1; i <= n + 2; i++) {
			test_row("allocation %ld of %ld, %s, %s connections", i, n, upgrade ? "upgrade" : "body", fresh ? "new" : "kept");
			if (fresh) {
				http_endpoint_reset(to_proxy);
				http_endpoint_reset(to_origin);
				run_until(NULL, 5);
			}
			countdown = i;
			one_call(upgrade);
			countdown = -1;
			one_call(upgrade);
			CHECK_INT(last.err, 0);
			CHECK_INT(status, upgrade ? 101 : 200);
			CHECK_INT(got, upgrade ? 5 : sizeof(block));
		}
		test_row(NULL);
	}
}

TEST(every_allocation_may_fail)
{
	struct http_endpoint_opts o = { .host = "127.0.0.1" };
	struct fail why;

	if (!OWN_MALLOC) {
		test_skip("the allocator is the sanitizer's");
		return;
	}
	REQUIRE(server_up(NULL, proxy_handler, NULL));
	CHECK_INT(http_server_new(loop, NULL, origin_handler, NULL, &origin), 0);
	CHECK_INT(http_server_listen_tcp(origin, "127.0.0.1", 0, NULL, &origin_port, &why), 0);
	o.port = port;
	CHECK_INT(http_endpoint_new(loop, &o, &to_proxy), 0);
	o.port = origin_port;
	CHECK_INT(http_endpoint_new(loop, &o, &to_origin), 0);
	in_turn(false);
	in_turn(true);
	http_endpoint_free(to_proxy);
	http_endpoint_free(to_origin);
	http_server_close(origin, true, NULL, NULL);
	server_down();
}
