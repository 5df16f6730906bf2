/* tool.c - see tool.h. */
#include "image/tool.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"

#define TOOL_ENV_MAX 48
#define TOOL_ARG_MAX 160
#define TAIL_LINES 16
#define LINE_MAX_BYTES 1024

/* Lines out of a pipe: one under assembly, and the last few for the failure's words. */
struct lines {
	char cur[LINE_MAX_BYTES];
	size_t n;
	bool skip; /* the rest of a line that was too long */
	char tail[TAIL_LINES][640];
	unsigned count;
	bool full; /* somebody said "No space left on device" */
};

static const char *const isolation[] = {
	/* --kill-child makes the inner init die with unshare, and the kernel kills a PID namespace
	   with its init. */
	"unshare",
	"--pid",
	"--fork",
	"--kill-child=KILL",
	"--mount",
	"--mount-proc",
	/* What is mounted inside stays inside; a pool unmounted outside goes inside as well,
	   instead of staying busy for as long as somebody's tool runs. */
	"--propagation",
	"slave",
	"--",
};

static void line_end(struct lines *l, const struct tool *t)
{
	struct str s = str_trim((struct str){ l->cur, l->n });
	char *slot = l->tail[l->count % TAIL_LINES];

	l->n = 0;
	l->skip = false;
	if (!s.n)
		return;
	if (memmem(s.p, s.n, "No space left on device", 23))
		l->full = true;
	snprintf(slot, sizeof(l->tail[0]), STR_FMT, STR_ARG(s));
	l->count++;
	if (t->line)
		t->line(s, t->arg);
}

static void lines_feed(struct lines *l, const struct tool *t, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n' || p[i] == '\r') {
			line_end(l, t);
		} else if (!l->skip) {
			/* Control bytes of other programs go into nobody's log. */
			l->cur[l->n++] = (unsigned char)p[i] < 0x20 ? ' ' : p[i];
			l->skip = l->n == sizeof(l->cur);
		}
	}
}

/* The line worth repeating. apt's and mmdebstrap's errors begin with "E: ", the cause before its
 * consequences; elsewhere it is the last line that speaks of an error, else the last one. */
static const char *last_words(const struct lines *l)
{
	unsigned have = MIN(l->count, (unsigned)TAIL_LINES);

	for (unsigned i = have; i-- > 0;) {
		const char *s = l->tail[(l->count - 1 - i) % TAIL_LINES];

		if (!strncmp(s, "E: ", 3))
			return s;
	}
	for (unsigned i = 0; i < have; i++) {
		const char *s = l->tail[(l->count - 1 - i) % TAIL_LINES];

		if (strcasestr(s, "error") || strcasestr(s, "fail"))
			return s;
	}
	return have ? l->tail[(l->count - 1) % TAIL_LINES] : "it said nothing";
}

static bool env_passed_on(const char *e)
{
	static const char *const keep[] = { "PATH=", "http_proxy=", "https_proxy=", "no_proxy=",
		"HTTP_PROXY=", "HTTPS_PROXY=", "NO_PROXY=", "all_proxy=", "SSL_CERT_FILE=" };

	for (size_t i = 0; i < ARRAY_LEN(keep); i++)
		if (!strncmp(e, keep[i], strlen(keep[i])))
			return true;
	return false;
}

/* TMPDIR is a buffer of "TMPDIR=" and the path, if it has one. */
static void env_build(const char *out[TOOL_ENV_MAX], const struct tool *t, const char *tmpdir)
{
	size_t n = 0;
	bool path = false;

	out[n++] = "LANG=C.UTF-8";
	out[n++] = "HOME=/root";
	if (t->tmp)
		out[n++] = tmpdir;
	for (char **e = environ; e && *e && n < 20; e++) {
		if (!env_passed_on(*e))
			continue;
		path |= !strncmp(*e, "PATH=", 5);
		out[n++] = *e;
	}
	if (!path)
		out[n++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	for (const char *const *e = t->env; e && *e && n < TOOL_ENV_MAX - 1; e++)
		out[n++] = *e;
	out[n] = NULL;
}

static _Noreturn void child(const struct tool *t, pid_t parent, const char *const *argv, int out)
{
	const char *env[TOOL_ENV_MAX];
	char tmpdir[4300];
	sigset_t none;
	int nul = open("/dev/null", O_RDWR | O_CLOEXEC);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	if (getppid() != parent || nul < 0 || dup2(nul, 0) < 0 || dup2(out, 1) < 0 ||
		dup2(out, 2) < 0)
		_exit(126);
	if (chdir(t->cwd ? t->cwd : "/"))
		_exit(126);
	snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=%s", t->tmp ? t->tmp : "");
	env_build(env, t, tmpdir);
	/* PATH of the new environment is ours, so that looking argv[0] up here gives the same. */
	execvpe(argv[0], (char *const *)argv, (char *const *)env);
	_exit(errno == ENOENT ? 127 : 126);
}

/* Is there such a program in PATH? Asked ahead because `unshare` would blame itself. */
static bool in_path(const char *name)
{
	const char *path = getenv("PATH");
	struct str rest = str_of(
			   path ? path
				: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
		   dir;
	char full[512];

	if (strchr(name, '/'))
		return !access(name, X_OK);
	do {
		struct str all = rest;

		if (!str_cut(all, ':', &dir, &rest))
			rest.n = 0;
		if ((size_t)snprintf(full, sizeof(full), STR_FMT "/%s", STR_ARG(dir), name) <
				sizeof(full) &&
			!access(full, X_OK))
			return true;
	} while (rest.n);
	return false;
}

static int missing(const struct tool *t, struct fail *why)
{
	fail_as(why, ERR_host_unsuitable, "%s is not installed", t->argv[0]);
	if (t->package)
		fail_remedy(why, "apt-get install %s", t->package);
	return -ENODEV;
}

/* Reads FD until its end or until UNTIL. 0, or -ETIMEDOUT. */
static int listen_to(const struct tool *t, int fd, struct lines *l, int64_t until)
{
	int64_t next = mono_ms() + 500;
	char buf[8192];

	for (;;) {
		struct pollfd pf = { .fd = fd, .events = POLLIN };
		int64_t now = mono_ms();
		ssize_t n;

		if (now >= until)
			return -ETIMEDOUT;
		if (now >= next) {
			if (t->tick)
				t->tick(t->arg);
			next = now + 500;
		}
		if (poll(&pf, 1, (int)(MIN(next, until) - now) + 1) <= 0)
			continue;
		n = read(fd, buf, sizeof(buf));
		if (n > 0)
			lines_feed(l, t, buf, (size_t)n);
		else if (n == 0 || (errno != EINTR && errno != EAGAIN))
			return 0;
	}
}

/* A long message ends with its cause: of what does not fit, the front goes. */
static int said(const struct tool *t, const char *words, struct fail *why)
{
	size_t room = sizeof(why->msg) - strlen(t->argv[0]) - 20, n = strlen(words);

	return fail_as(why, ERR_internal, "%s failed: %s%s", t->argv[0], n > room ? "…" : "",
		n > room ? words + n - room : words);
}

static int verdict(const struct tool *t, int status, const struct lines *l, struct fail *why)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (l->full)
		return fail_as(why, ERR_no_space, "%s: no space left on the device", t->argv[0]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && !l->count)
		return missing(t, why);
	if (WIFSIGNALED(status))
		return fail_as(why, ERR_internal, "%s ended by signal %d: %s", t->argv[0],
			WTERMSIG(status), last_words(l));
	return said(t, last_words(l), why);
}

int tool_run(const struct tool *t, struct fail *why)
{
	const char *argv[TOOL_ARG_MAX];
	autofree struct lines *l = calloc(1, sizeof(*l));
	int pipefd[2], status = 0, r;
	pid_t pid, self = getpid();
	size_t n = 0;

	if (!l)
		return fail_set(why, -ENOMEM, "%s: out of memory", t->argv[0]);
	if (!in_path(t->argv[0]))
		return missing(t, why);
	for (size_t i = 0; t->isolate && i < ARRAY_LEN(isolation); i++)
		argv[n++] = isolation[i];
	for (const char *const *a = t->argv; *a; a++) {
		if (n == TOOL_ARG_MAX - 1)
			return fail_set(why, -E2BIG, "%s: more than %d arguments", t->argv[0],
				TOOL_ARG_MAX);
		argv[n++] = *a;
	}
	assert(n);
	argv[n] = NULL;
	if (pipe2(pipefd, O_CLOEXEC))
		return fail_set(why, -errno, "%s: pipe: %s", t->argv[0], strerror(errno));
	pid = FAULT(fork());
	if (pid == 0)
		child(t, self, argv, pipefd[1]);
	r = -errno;
	close(pipefd[1]);
	if (pid < 0) {
		close(pipefd[0]);
		return fail_set(why, r, "%s: fork: %s", t->argv[0], strerror(-r));
	}
	r = listen_to(t, pipefd[0], l, mono_ms() + (t->timeout_s ? t->timeout_s : 3600) * 1000LL);
	close(pipefd[0]);
	if (r < 0)
		FAULT(kill(-pid, SIGKILL));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return fail_as(why, ERR_deadline_exceeded, "%s did not end within %d s: %s",
			t->argv[0], t->timeout_s ? t->timeout_s : 3600, last_words(l));
	if (l->n)
		line_end(l, t);
	return verdict(t, status, l, why);
}
