#include "api_front.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "api/metrics.h"
#include "base/clock.h"
#include "test.h"

struct api api;
static struct config cfg;
uv_loop_t loop;
static char dir[] = "/tmp/space-api-test.XXXXXX";
static char sock_path[64];
static int tcp_port;
char *answer;

void start(void)
{
	struct http_server_opts o = { 0 };
	struct fail why = { 0 };

	fake_reset();
	fake.loop = &loop;
	if (api.srv)
		return;
	REQUIRE(mkdtemp(dir));
	snprintf(cfg.state_dir, sizeof(cfg.state_dir), "%s", dir);
	snprintf(cfg.domain, sizeof(cfg.domain), "localhost");
	snprintf(sock_path, sizeof(sock_path), "%s/s", dir);
	uv_loop_init(&loop);
	api.loop = &loop;
	api.cfg = &cfg;
	api.metrics = metrics_new();
	link_init(&api.streams);
	tick_init(&api.trim, req_trim);
	ticks_init(&api.ticks, &loop);
	CHECK_INT(auth_init(&api, &why), 0);
	CHECK_INT(http_server_new(&loop, &o, route_request, &api, &api.srv), 0);
	CHECK_INT(http_server_listen_unix(api.srv, sock_path, 0600, &why), 0);
	CHECK_INT(http_server_listen_tcp(api.srv, "127.0.0.1", 0, NULL, &tcp_port, &why), 0);
}

__attribute__((destructor)) static void stop(void)
{
	char path[128];

	free(answer);
	if (!api.srv)
		return;
	unlink(sock_path);
	snprintf(path, sizeof(path), "%s/attach.key", dir);
	unlink(path);
	rmdir(dir);
}

int dial(bool tcp)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)tcp_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", sock_path);
	if (fd < 0 || connect(fd, tcp ? (void *)&in : (void *)&un, tcp ? sizeof(in) : sizeof(un)) < 0)
		return -1;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

int exchange(bool tcp, const char *method, const char *target, const char *headers, const char *body, const char *until)
{
	autobuf struct buf req, got;
	autoclose int fd = dial(tcp);
	int64_t end = mono_ms() + 10000;
	char piece[4096];
	ssize_t n;

	buf_init(&req, 1 << 20);
	buf_init(&got, 4 << 20);
	buf_addf(&req, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, target, headers ? headers : "");
	if (body)
		buf_addf(&req, "Content-Length: %zu\r\n", strlen(body));
	buf_addf(&req, "\r\n%s", body ? body : "");
	if (fd < 0 || write(fd, req.p, req.n) != (ssize_t)req.n)
		return -1;
	for (;;) {
		uv_run(&loop, UV_RUN_NOWAIT);
		n = read(fd, piece, sizeof(piece));
		if (n == 0 || mono_ms() > end)
			break;
		if (n > 0) {
			buf_add(&got, piece, (size_t)n);
			if (until && memmem(got.p, got.n, until, strlen(until)))
				break;
		} else {
			usleep(200);
		}
	}
	free(answer);
	answer = buf_steal(&got);
	if (fd >= 0)
		close(steal_fd(&fd));
	uv_run(&loop, UV_RUN_NOWAIT);
	return answer && strlen(answer) > 12 ? atoi(answer + 9) : -1;
}

int ask(const char *method, const char *target, const char *body)
{
	return exchange(false, method, target, NULL, body, NULL);
}

const char *answer_body(void)
{
	char *p = answer ? strstr(answer, "\r\n\r\n") : NULL;

	return p ? p + 4 : "";
}

bool has(const char *text)
{
	return answer && strstr(answer, text);
}
