/* An agent that lies, stalls and floods: the API answers within its limits, with a typed error, in bounded memory, and goes on. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "api/alive.h"
#include "api/guest.h"
#include "api_front.h"
#include "base/clock.h"
#include "base/file.h"
#include "test.h"

/* --- the agent --- */

/* What it says to every call but GET /health: BEGIN once, then AGAIN without end (NULL: it stands still, unless it closes). */
struct mode {
	const char *name, *begin, *again;
	size_t begin_n;	/* 0: strlen */
	bool close;	/* the connection, after BEGIN */
	bool dead;	/* does not answer /health either */
	int drip_ms;	/* between the pieces of AGAIN */
};

#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#define CHUNKED OK_HEAD "Transfer-Encoding: chunked\r\n\r\n"
#define LENGTH(n) OK_HEAD "Content-Length: " #n "\r\n\r\n"
#define BYTES(z) z, NULL, sizeof(z) - 1

static const struct mode modes[] = {
	{ "says nothing, dead", "", .dead = true },
	{ "says nothing, alive", "" },
	{ "closes at once", "", .close = true },
	{ "half a head, dead", "HTTP/1.1 200 OK\r\nContent-", .dead = true },
	{ "half a head, alive", "HTTP/1.1 200 OK\r\nContent-" },
	{ "stalls after the head, dead", LENGTH(1000), .dead = true },
	{ "stalls after the head, alive", LENGTH(1000) },
	{ "stalls in the body, dead", LENGTH(1000) "{\"processes\"", .dead = true },
	{ "stalls in the body, alive", CHUNKED "b\r\n{\"processes" },
	{ "closes in the body", LENGTH(1000) "{\"processes\":[", .close = true },
	{ "closes in a chunk", CHUNKED "ff\r\n{\"pro", .close = true },
	{ "closes between chunks", CHUNKED "2\r\n{\"\r\n", .close = true },
	{ "headers without end", "HTTP/1.1 200 OK\r\n", "X-More: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" },
	{ "one header without end", "HTTP/1.1 200 OK\r\nX-Long: ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" },
	{ "headers drip", "HTTP/1.1 200 OK\r\nX: ", "a", .drip_ms = 20 },
	{ "negative chunk", CHUNKED "-5\r\nhello\r\n" },
	{ "huge chunk size", CHUNKED "FFFFFFFFFFFFFFFFFF\r\nhello" },
	{ "chunk of exabytes", CHUNKED "7FFFFFFFFFFFFFFF\r\n", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" },
	{ "chunk sizes of zeros", CHUNKED, "000000000000000000000000000000000000000000000000000000000000000000000000000000" },
	{ "chunk extensions without end", CHUNKED "5;a=", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" },
	{ "trailers without end", CHUNKED "2\r\n{}\r\n0\r\n", "X-More: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n" },
	{ "negative length", LENGTH(-1) "hello" },
	{ "two lengths", OK_HEAD "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" },
	{ "length and chunks", OK_HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" },
	{ "more than promised", LENGTH(2) "{}{\"processes\":[]}HTTP/1.1 200 OK\r\n\r\n" },
	{ "nonsense for JSON", LENGTH(4) "[}{]" },
	{ "other JSON", LENGTH(14) "[1,{\"pid\":-1}]" },
	{ "rubbish in the list", LENGTH(35) "{\"processes\":[{\"pid\":-1}],\"a\":null}" },
	{ "an empty answer", LENGTH(0) },
	{ "204", "HTTP/1.1 204 No Content\r\n\r\n" },
	{ "1xx without end", "", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" },
	{ "100 without end", "", "HTTP/1.1 100 Continue\r\n\r\n" },
	{ "101 unasked", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n", "hello" },
	{ "no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", "\r\n" },
	{ "another version", "HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\n{}" },
	{ "status of nothing", "HTTP/1.1 000 \r\nContent-Length: 2\r\n\r\n{}" },
	{ "a body without end", CHUNKED, "40\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n" },
	{ "a body that drips", CHUNKED, "1\r\n[\r\n", .drip_ms = 30 },
	{ "an error without end", "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n",
	  "40\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n" },
	{ "an error that stalls", "HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{\"code\":" },
	{ "frozen for ever", "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}", .close = true },
	{ "frozen without end", "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", "8\r\nxxxxxxxx\r\n" },
	{ "frame of 4 GiB", BYTES(CHUNKED "5\r\n\0\377\377\377\377\r\n") },
	{ "compressed frame", BYTES(CHUNKED "7\r\n\1\0\0\0\2{}\r\n") },
	{ "frame of nonsense", BYTES(CHUNKED "8\r\n\0\0\0\0\3}{[\r\n") },
	{ "frame cut", BYTES(CHUNKED "7\r\n\0\0\0\1\0{}\r\n0\r\n\r\n") },
	{ "start of pid -1", BYTES(CHUNKED "25\r\n\0\0\0\0\40{\"event\":{\"start\":{\"pid\":-1  }}}\r\n0\r\n\r\n") },
	{ "start, then nonsense", BYTES(CHUNKED "25\r\n\0\0\0\0\40{\"event\":{\"start\":{\"pid\":41  }}}\r\n5\r\n\0\377\0\0\0\r\n") },
	{ "start, then silence, dead", BYTES(CHUNKED "25\r\n\0\0\0\0\40{\"event\":{\"start\":{\"pid\":41  }}}\r\n"), .dead = true },
	{ "start, then the end", BYTES(CHUNKED "25\r\n\0\0\0\0\40{\"event\":{\"start\":{\"pid\":41  }}}\r\n0\r\n\r\n") },
	{ "end before start", BYTES(CHUNKED "2b\r\n\0\0\0\0\46{\"event\":{\"end\":{\"exitCode\":\"zero\"}}} \r\n0\r\n\r\n") },
};
static const struct mode *mode; /* of this moment */
static const struct mode good = { "good", LENGTH(16) "{\"processes\":[]}" };
static int agent_port, listener;
static volatile unsigned generation; /* connections of an earlier one end */
static atomic_uint questions;
static struct alive_limits patient; /* as they are outside of tests */

static int put(int fd, const char *p, size_t n)
{
	return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

static void act(int fd, const struct mode *m, unsigned born)
{
	size_t n = m->begin_n ? m->begin_n : strlen(m->begin);
	char many[4096];
	size_t at = 0;

	if (n && put(fd, m->begin, n) < 0)
		return;
	if (m->close)
		return;
	while (m->again && m->drip_ms && born == generation) {
		if (put(fd, m->again, strlen(m->again)) < 0)
			return;
		usleep((unsigned)m->drip_ms * 1000);
	}
	while (m->again && at + strlen(m->again) < sizeof(many)) {
		memcpy(many + at, m->again, strlen(m->again));
		at += strlen(m->again);
	}
	while (m->again && born == generation)
		if (put(fd, many, at) < 0)
			return;
	while (born == generation)
		usleep(5000);
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	const struct mode *m = mode;
	unsigned born = generation;
	struct timeval wait = { 0, 100000 };
	char head[16384];
	size_t n = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	while (born == generation) {
		ssize_t r = recv(fd, head + n, sizeof(head) - 1 - n, 0);

		if (r == 0 || (r < 0 && errno != EAGAIN))
			break;
		if (r < 0)
			continue;
		n += (size_t)r;
		head[n] = '\0';
		if (!strstr(head, "\r\n\r\n"))
			continue;
		if (strncmp(head, "GET /health ", 12) != 0) {
			act(fd, m, born);
			break;
		}
		n = 0;
		questions++;
		if (!m->dead && put(fd, "HTTP/1.1 204 No Content\r\n\r\n", 27) < 0)
			break;
	}
	close(fd);
	return NULL;
}

static void *listen_on(void *arg)
{
	pthread_attr_t small;
	pthread_t t;
	int fd;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 * KIB);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		if (pthread_create(&t, &small, serve, (void *)(intptr_t)fd))
			close(fd);
	return NULL;
}

static void agent_start(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct http_endpoint_opts o = { .host = "127.0.0.1" };
	static struct http_endpoint *e;
	socklen_t n = sizeof(a);
	pthread_t t;

	start();
	if (!listener) {
		listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(listener, (void *)&a, sizeof(a)) < 0 || listen(listener, 64) < 0 || getsockname(listener, (void *)&a, &n) < 0)
			abort();
		agent_port = ntohs(a.sin_port);
		pthread_create(&t, NULL, listen_on, NULL);
		o.port = agent_port;
		if (http_endpoint_new(&loop, &o, &e) < 0)
			abort();
		patient = alive_limits;
		alive_limits = (struct alive_limits){ .first = 60, .answer = 120, .silent = 100, .again = 20, .misses = 3, .call = 200,
			.upload = 250, .retry = 10, .frozen = 150 };
	}
	fake.agent = e;
}

static void set_mode(const struct mode *m)
{
	generation++;
	mode = m;
	http_endpoint_reset(fake.agent); /* kept connections have the mode they were made in */
	uv_run(&loop, UV_RUN_NOWAIT);
}

/* --- the calls --- */

struct call { const char *method, *path, *headers, *body; };

static const struct call calls[] = {
	{ "GET", "processes" }, { "GET", "metrics" }, { "GET", "files/x" }, { "GET", "files/x?list=1" }, { "GET", "tar/x" },
	{ "PUT", "files/x", NULL, "content" }, { "PUT", "tar/x", NULL, "content" }, { "DELETE", "files/x" },
	{ "POST", "exec", NULL, "{\"shell\":\"true\"}" }, { "POST", "exec?wait=1", NULL, "{\"shell\":\"true\"}" },
	{ "POST", "exec?detach=1", NULL, "{\"shell\":\"true\"}" }, { "GET", "processes/41/output" }, { "GET", "watch?path=/x" },
	{ "POST", "processes/41/signal", NULL, "{\"signal\":9}" }, { "GET", "tcp/80", "Connection: upgrade\r\nUpgrade: tcp\r\n" },
	{ "POST", "processes/41/stdin", NULL, "input" },
};

/* KiB of resident memory. Under ASan what is freed stays for a while. */
#ifdef __SANITIZE_ADDRESS__
#define GROWS_MOST (1024 * 1024L)
#else
#define GROWS_MOST (64 * 1024L)
#endif

/* What may come: a typed error, before or (as an event) after the answer has begun; an answer that broke off; or an answer that is what
 * the agent said. Whoever gets bytes for ever leaves. */
static const char *verdict(const struct call *c, int status)
{
	bool done = strstr(answer_body(), "\r\n0\r\n\r\n") || !strncmp(answer_body(), "0\r\n\r\n", 5);

	if (status >= 400)
		return has("\"code\":\"agent_unreachable\"") || has("\"code\":\"guest_failed\"") || has("\"code\":\"too_large\"") ||
				       has("\"code\":\"bad_request\"") ? NULL : "not a typed error of the guest";
	if (has("Content-Type: text/event-stream"))
		return !done ? NULL : has("event: error") || has("event: exit") ? NULL : "a stream that ended without a word";
	return NULL;
}

static long rss_kib(void)
{
	autofree char *text = NULL;
	const char *at;

	if (file_read(AT_FDCWD, "/proc/self/status", &text, 64 * KIB) < 0 || !(at = strstr(text, "VmHWM:")))
		return 0;
	return atol(at + 6);
}

/* One call under way: as exchange(), but several at once. */
struct run {
	const struct call *c;
	int fd;
	struct buf got;
	int64_t took;
	bool over; /* it ended by itself */
};

static void run_begin(struct run *r, const struct call *c)
{
	autobuf struct buf req;

	*r = (struct run){ .c = c, .fd = dial(false), .took = mono_ms() };
	buf_init(&req, 64 * KIB);
	buf_init(&r->got, 2 * MIB);
	buf_addf(&req, "%s /v1/sandboxes/box/%s HTTP/1.1\r\nHost: x\r\n%s", c->method, c->path, c->headers ? c->headers : "Connection: close\r\n");
	if (c->body)
		buf_addf(&req, "Content-Length: %zu\r\n", strlen(c->body));
	buf_addf(&req, "\r\n%s", c->body ? c->body : "");
	CHECK_INT(write(r->fd, req.p, req.n), req.n);
}

static void run_step(struct run *r)
{
	static char piece[16384];
	ssize_t n = r->over || r->got.n > MIB ? -1 : read(r->fd, piece, sizeof(piece));

	if (r->over || r->got.n > MIB)
		return;
	if (n > 0)
		buf_add(&r->got, piece, (size_t)n);
	/* An upgrade is never closed by us, and an error after "Connection: upgrade" need not be. */
	if (n == 0 || (n < 0 && errno != EAGAIN) || (r->c->headers && r->got.n && memmem(r->got.p, r->got.n, "\"request_id\"", 12))) {
		r->over = true;
		r->took = mono_ms() - r->took;
	}
}

/* Runs these calls side by side, for LIMIT ms at most. */
static void run_all(struct run *runs, const struct call *c, size_t n, int limit)
{
	int64_t end = mono_ms() + limit;
	size_t i, over = 0;

	for (i = 0; i < n; i++)
		run_begin(&runs[i], &c[i]);
	while (mono_ms() < end && over < n) {
		uv_run(&loop, UV_RUN_NOWAIT);
		for (i = over = 0; i < n; i++) {
			run_step(&runs[i]);
			over += runs[i].over || runs[i].got.n > MIB;
		}
		usleep(200);
	}
}

/* Its status; the text is in `answer`. The client leaves if the answer has not ended. */
static int run_end(struct run *r)
{
	close(r->fd);
	free(answer);
	buf_addc(&r->got, 0);
	answer = buf_steal(&r->got);
	return answer && strlen(answer) > 12 ? atoi(answer + 9) : 0;
}

static void nobody_left(void)
{
	int64_t end = mono_ms() + 2000;

	while (fake.sb.users && mono_ms() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(500);
	}
	CHECK_INT(fake.sb.users, 0);
}

static void goes_on(void)
{
	static const struct call list = { "GET", "processes" };
	struct alive_limits hurried = alive_limits;
	struct run r;

	alive_limits = patient;
	set_mode(&good);
	run_all(&r, &list, 1, 5000);
	CHECK_INT(run_end(&r), 200);
	alive_limits = hurried;
}

/* Bytes of a tree or a tunnel may be any, and come for ever or slowly; and what a command has not read of its input may stay unread: it is
 * the client who has enough. */
static bool may_last(const struct mode *m, const struct call *c)
{
	if (m->again && (!strcmp(c->path, "tar/x") || !strcmp(c->path, "tcp/80")) && strcmp(c->method, "PUT"))
		return true;
	return !strcmp(c->path, "processes/41/stdin") && !m->dead;
}

TEST(a_hostile_agent_gets_typed_answers_within_limits)
{
	static struct run runs[ARRAY_LEN(calls)];
	long before, after;
	size_t i, j;

	agent_start();
	goes_on();
	before = rss_kib();
	for (i = 0; i < ARRAY_LEN(modes); i++) {
		set_mode(&modes[i]);
		run_all(runs, calls, ARRAY_LEN(calls), 4000);
		for (j = 0; j < ARRAY_LEN(calls); j++) {
			bool over = runs[j].over;
			int64_t took = runs[j].took;
			int status = run_end(&runs[j]);
			const char *wrong = verdict(&calls[j], status);

			test_row("%s: %s %s", modes[i].name, calls[j].method, calls[j].path);
			if (!over && !may_last(&modes[i], &calls[j]))
				wrong = "it does not end";
			if (!CHECK(!wrong || (!over && may_last(&modes[i], &calls[j]))))
				fprintf(stderr, "%s: %d %.400s\n", wrong, status, answer);
			CHECK(!over || took < 3500);
		}
		nobody_left();
		goes_on();
	}
	test_row(NULL);
	after = rss_kib();
	CHECK(after - before < GROWS_MOST);
	CHECK_INT(api.nstreams, 0);
	for (i = 0; i < ARRAY_LEN(api.lines); i++)
		CHECK(!api.lines[i]);
}

/* Many streams of a guest that has died cost one question at a time, and all of them are told. */
TEST(silence_is_asked_about_once_for_all)
{
	static const struct mode silent = { "start, then silence, dead", .begin = CHUNKED "25\r\n\0\0\0\0\40{\"event\":{\"start\":{\"pid\":41  }}}\r\n",
		.begin_n = sizeof(CHUNKED "25\r\n\0\0\0\0\40{\"event\":{\"start\":{\"pid\":41  }}}\r\n") - 1, .dead = true };
	int fd[40];
	size_t i;

	agent_start();
	set_mode(&silent);
	questions = 0;
	for (i = 0; i < ARRAY_LEN(fd); i++) {
		static const char req[] = "GET /v1/sandboxes/box/processes/41/output HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

		fd[i] = dial(false);
		CHECK_INT(write(fd[i], req, sizeof(req) - 1), sizeof(req) - 1);
	}
	for (i = 0; i < ARRAY_LEN(fd); i++) {
		int64_t end = mono_ms() + 5000;
		char text[4096];
		size_t n = 0;
		ssize_t r;

		while (mono_ms() < end && ((r = read(fd[i], text + n, sizeof(text) - 1 - n)) > 0 || (r < 0 && errno == EAGAIN))) {
			if (r > 0)
				n += (size_t)r;
			uv_run(&loop, UV_RUN_NOWAIT);
			usleep(100);
		}
		text[n] = '\0';
		CHECK(strstr(text, "event: start") && strstr(text, "event: error") && strstr(text, "agent_unreachable"));
		close(fd[i]);
	}
	/* Each stream joins seven times, and each time is given up after three questions: of one alone, 21. */
	CHECK(questions >= 3 && questions < 100);
	goes_on();
}
