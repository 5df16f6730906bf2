/* Ten thousand idle event streams on one loop, each in less than 1 KiB. The clients are a process of their own. */
#include "http_loop.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define STREAMS 10000

static struct http_exchange *streams[STREAMS];
static unsigned n_streams, n_closed;

static void on_close(struct http_exchange *x, int err, void *arg)
{
	n_closed++;
}

static void handler(struct http_exchange *x, void *arg)
{
	http_on_close(x, on_close, NULL);
	if (n_streams < STREAMS)
		streams[n_streams++] = x;
	sse_start(x);
}

static size_t in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Whether NEEDLE comes on FD within 10 s. */
static bool hears(int fd, const char *needle)
{
	char data[2048];
	size_t have = 0;

	while (have < sizeof(data) && poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 10000) > 0) {
		ssize_t n = recv(fd, data + have, sizeof(data) - have, 0);

		if (n <= 0)
			return false;
		have += (size_t)n;
		if (memmem(data, have, needle, strlen(needle)))
			return true;
	}
	return false;
}

/* The clients: open N streams, hear the head on each, then (after a byte from the parent) an event on each; say how many. */
static void clients(unsigned n, int from_parent, int to_parent)
{
	static const char request[] = "GET /v1/events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nUser-Agent: unit\r\n\r\n";
	static int fds[STREAMS];
	unsigned heads = 0, events = 0;
	char go;

	for (unsigned i = 0; i < n; i++) {
		fds[i] = raw_connect(port);
		if (fds[i] >= 0 && send(fds[i], request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
			break;
	}
	for (unsigned i = 0; i < n; i++)
		heads += hears(fds[i], "text/event-stream");
	if (write(to_parent, &heads, sizeof(heads)) != sizeof(heads) || read(from_parent, &go, 1) != 1)
		_exit(1);
	for (unsigned i = 0; i < n; i++)
		events += hears(fds[i], "data: {\"n\":1}");
	if (write(to_parent, &events, sizeof(events)) != sizeof(events))
		_exit(1);
	_exit(read(from_parent, &go, 1) == 1 ? 0 : 1);
}

static pid_t child;
static int to_child = -1, from_child = -1;

static void clients_start(unsigned n)
{
	int down[2], up[2];

	if (!CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0))
		return;
	child = fork();
	if (child == 0)
		clients(n, down[0], up[1]);
	close(down[0]);
	close(up[1]);
	to_child = down[1];
	from_child = up[0];
	fcntl(from_child, F_SETFL, O_NONBLOCK);
}

/* What the clients say next, while the loop serves them. */
static unsigned clients_said(void)
{
	int64_t end = mono_ms() + 60000;
	unsigned n = 0;

	while (mono_ms() < end && read(from_child, &n, sizeof(n)) != sizeof(n))
		run_until(NULL, 1);
	return n;
}

static void clients_stop(void)
{
	int64_t end = mono_ms() + 20000;

	CHECK(write(to_child, "x", 1) == 1);
	while (http_server_conns(server) && mono_ms() < end)
		run_until(NULL, 1);
	CHECK_INT(waitpid(child, NULL, 0), child);
	close(to_child);
	close(from_child);
}

static bool raise_limit(void)
{
	struct rlimit lim;

	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	return lim.rlim_max >= STREAMS + 100 && setrlimit(RLIMIT_NOFILE, &lim) == 0;
}

TEST(ten_thousand_idle_streams)
{
	size_t before;
	int64_t start;

	if (!raise_limit()) {
		test_skip("10,100 open files are not allowed here");
		return;
	}
	REQUIRE(server_up(NULL, handler, NULL));
	/* What a loop needs anyway (libuv's table of descriptors, the shared buffer) is there before the first measure. */
	clients_start(100);
	CHECK_INT(clients_said(), 100);
	CHECK(write(to_child, "x", 1) == 1);
	for (unsigned i = 0; i < n_streams; i++)
		sse_send(streams[i], "1", "tick", STR("{\"n\":1}"));
	CHECK_INT(clients_said(), 100);
	clients_stop();
	CHECK_INT(http_server_conns(server), 0);

	n_streams = n_closed = 0;
	before = in_use();
	clients_start(STREAMS);
	CHECK_INT(clients_said(), STREAMS);
	REQUIRE(n_streams == STREAMS);
	printf("%u idle streams, %zu bytes each\n", n_streams, (in_use() - before) / n_streams);
	CHECK((in_use() - before) / n_streams < 1024);

	/* An event to all of them, and the memory is as before. */
	start = mono_ms();
	for (unsigned i = 0; i < n_streams; i++)
		CHECK_INT(sse_send(streams[i], "1", "tick", STR("{\"n\":1}")), 0);
	printf("an event to each took %lld ms\n", (long long)(mono_ms() - start));
	CHECK(write(to_child, "x", 1) == 1);
	CHECK_INT(clients_said(), STREAMS);
	CHECK((in_use() - before) / n_streams < 1024);
	clients_stop();
	CHECK_INT(n_closed, STREAMS);
	server_down();
}
