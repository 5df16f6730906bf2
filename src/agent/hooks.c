/* hooks.c - see hooks.h. */
#include "agent/hooks.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/agent.h"
#include "agent/spawn.h"
#include "base/clock.h"
#include "base/log.h"

#define HOOKS_DIR "/etc/space/clone.d"
#define HOOKS_MAX 64
#define HOOK_MS 5000
#define HOOKS_MS 10000
#define OUTPUT_MAX 2048

static struct {
	char names[HOOKS_MAX][256];
	unsigned n, at, failed;
	int64_t until_ms;
	pid_t pid; /* of the one that runs; 0: none */
	bool late;
	int out; /* what it writes; -1: none */
	uv_poll_t *poll;
	uv_timer_t *timer;
	char text[OUTPUT_MAX];
	size_t ntext;
	hooks_fn *fn;
	void *arg;
} h = { .out = -1 };

static void next(void);

static void handle_free(uv_handle_t *handle)
{
	free(handle);
}

static void drop(uv_handle_t *handle)
{
	if (handle)
		uv_close(handle, handle_free);
}

/* --- what it says --- */

static void output_read(void)
{
	char waste[512];
	ssize_t n;

	while (h.out >= 0) {
		bool room = h.ntext < sizeof(h.text);

		n = room ? read(h.out, h.text + h.ntext, sizeof(h.text) - h.ntext) : read(h.out, waste, sizeof(waste));
		if (n <= 0)
			return;
		h.ntext += room ? (size_t)n : 0;
	}
}

static void output_ready(uv_poll_t *p, int status, int events)
{
	char probe;

	output_read();
	/* At its end it would be readable for ever. */
	if (status < 0 || recv(h.out, &probe, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		uv_poll_stop(p);
}

static void output_end(void)
{
	output_read();
	drop((uv_handle_t *)h.poll);
	h.poll = NULL;
	if (h.out >= 0)
		close(h.out);
	h.out = -1;
	while (h.ntext && h.text[h.ntext - 1] == '\n')
		h.ntext--;
	for (size_t i = 0; i < h.ntext; i++)
		if (h.text[i] == '\n')
			h.text[i] = ';';
		else if ((unsigned char)h.text[i] < 0x20)
			h.text[i] = ' ';
	if (h.ntext)
		log_info("clone.d/%s: %.*s", h.names[h.at], (int)h.ntext, h.text);
	h.ntext = 0;
}

/* --- one after another --- */

static void over(void)
{
	hooks_fn *fn = h.fn;

	drop((uv_handle_t *)h.timer);
	h.timer = NULL;
	h.fn = NULL;
	fn(h.n, h.failed, h.arg);
}

static void end_of_one(bool good)
{
	output_end();
	h.pid = 0;
	h.failed += !good;
	h.at++;
	next();
}

bool hooks_reaped(pid_t pid, int status)
{
	if (!h.pid || pid != h.pid)
		return false;
	if (h.timer)
		uv_timer_stop(h.timer);
	if (status)
		log_warning("clone.d/%s: %s %d%s", h.names[h.at], WIFSIGNALED(status) ? "ended by signal" : "exit status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), h.late ? ", it took too long" : "");
	end_of_one(status == 0);
	return true;
}

static void on_late(uv_timer_t *t)
{
	h.late = true;
	kill(-h.pid, SIGKILL); /* it leads a session of its own; its end comes as for any other */
	kill(h.pid, SIGKILL);
}

static int start_one(void)
{
	static const struct user root = { .name = "root", .home = "/root" };
	char path[300], id[96];
	char *argv[] = { path, NULL }, *envp[] = { "PATH=" DEFAULT_PATH, "HOME=/root", "LANG=C.UTF-8", id, NULL };
	int pair[2];
	struct spawn s = { .cmd = path, .argv = argv, .envp = envp, .path = DEFAULT_PATH, .cwd = "/", .user = &root, .cgroup_fd = -1 };

	snprintf(path, sizeof(path), HOOKS_DIR "/%s", h.names[h.at]);
	snprintf(id, sizeof(id), "SPACE_ID=%s", agent.id);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	h.out = pair[0];
	(void)fcntl(h.out, F_SETFL, O_NONBLOCK);
	s.stdio[0] = -1;
	s.stdio[1] = s.stdio[2] = pair[1];
	h.pid = spawn_run(&s);
	close(pair[1]);
	if (h.pid < 0) {
		int r = h.pid;

		h.pid = 0;
		return r;
	}
	h.poll = malloc(sizeof(*h.poll));
	if (h.poll && uv_poll_init(agent.loop, h.poll, h.out) < 0) {
		free(h.poll);
		h.poll = NULL;
	}
	if (h.poll)
		uv_poll_start(h.poll, UV_READABLE, output_ready);
	return 0;
}

static void next(void)
{
	while (h.at < h.n) {
		int64_t left = h.until_ms - mono_ms();
		int r = left > 0 ? start_one() : -ETIMEDOUT;

		h.late = false;
		if (r == 0) {
			uv_timer_start(h.timer, on_late, (uint64_t)MIN(left, HOOK_MS), 0);
			return;
		}
		log_warning("clone.d/%s: not run: %s", h.names[h.at], strerror(-r));
		output_end();
		h.failed++;
		h.at++;
	}
	over();
}

static bool name_ok(const char *name)
{
	for (const char *p = name; *p; p++)
		if (!(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z') && !(*p >= '0' && *p <= '9') && *p != '-' && *p != '_' && *p != '.')
			return false;
	return name[0] != '.' && strlen(name) < sizeof(h.names[0]);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void find(void)
{
	DIR *d = opendir(HOOKS_DIR);
	struct dirent *e;
	struct stat st;

	h.n = h.at = h.failed = 0;
	while (d && h.n < HOOKS_MAX && (e = readdir(d)))
		if (name_ok(e->d_name) && fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0 &&
			(st.st_mode & S_IXUSR) && !(st.st_mode & (S_IWGRP | S_IWOTH)))
			strcpy(h.names[h.n++], e->d_name);
	if (d)
		closedir(d);
	qsort(h.names, h.n, sizeof(h.names[0]), by_name);
}

void hooks_run(hooks_fn *fn, void *arg)
{
	if (agent.test)
		h.n = 0;
	else
		find();
	if (h.n == 0) {
		fn(0, 0, arg);
		return;
	}
	h.fn = fn;
	h.arg = arg;
	h.until_ms = mono_ms() + HOOKS_MS;
	h.timer = malloc(sizeof(*h.timer));
	if (!h.timer) {
		h.failed = h.n;
		over();
		return;
	}
	uv_timer_init(agent.loop, h.timer);
	next();
}

void hooks_cancel(void)
{
	if (!h.fn)
		return;
	h.fn = NULL;
	if (h.pid) {
		kill(-h.pid, SIGKILL);
		kill(h.pid, SIGKILL);
	}
	h.pid = 0; /* reaped as an orphan */
	output_end();
	drop((uv_handle_t *)h.timer);
	h.timer = NULL;
}
