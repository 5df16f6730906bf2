/* proc.c - see proc.h. */
#include "base/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define LINE_MAX_LEN 8192

int pidfd_of(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

int pidfd_kill(int pidfd, int sig)
{
	return FAULT(syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0)) < 0 ? -errno : 0;
}

int pidfd_wait(int pidfd, int timeout_ms)
{
	int64_t end = mono_ms() + timeout_ms;

	for (;;) {
		struct pollfd p = { pidfd, POLLIN, 0 };
		int64_t left = timeout_ms < 0 ? -1 : MAX(end - mono_ms(), (int64_t)0);
		int r = poll(&p, 1, (int)left);

		if (r > 0)
			return 0;
		if (r == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

uint64_t proc_starttime(pid_t pid)
{
	char path[40];
	autofree char *text = NULL;
	struct str s, word;
	uint64_t v = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(AT_FDCWD, path, &text, 4096) < 0)
		return 0;
	/* The name in field 2 may hold spaces and brackets: fields are counted from its last
	 * bracket. */
	s = str_of(strrchr(text, ')'));
	for (int field = 2; field <= 22; field++)
		str_cut(s, ' ', &word, &s);
	return str_u64(word, UINT64_MAX, &v) < 0 ? 0 : v;
}

/* --- run() --- */

struct running {
	const struct run_opts *o;
	char path[PATH_MAX];
	pid_t pid;
	int pidfd, in, out, err; /* our ends; -1 when closed */
	int64_t deadline;
	struct buf line; /* of stdout, for on_line */
	char tail[400];	 /* the last bytes of stderr */
	size_t tail_n;
};

static int find_program(const char *name, char *path, size_t size)
{
	const char *env = getenv("PATH");
	struct str left = str_of(env && *env ? env : DEFAULT_PATH), dir;
	bool more = true;

	if (strchr(name, '/'))
		return str_copy(path, size, str_of(name));
	while (more) {
		more = str_cut(left, ':', &dir, &left);
		if (dir.n == 0 ||
			(size_t)snprintf(path, size, STR_FMT "/%s", STR_ARG(dir), name) >= size)
			continue;
		if (access(path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

/* In the child, between fork and exec: only what is safe there. Returns an errno. */
static int become(const struct run_opts *o, const char *path, int in, int out, int err)
{
	static const char *const plain_env[] = { "PATH=" DEFAULT_PATH, "LANG=C.UTF-8", "HOME=/",
		NULL };
	sigset_t none;

	setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (o->setns_net_fd > 0 && setns(o->setns_net_fd, CLONE_NEWNET) < 0)
		return errno;
	if (chdir(o->cwd ? o->cwd : "/") < 0)
		return errno;
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		return errno;
	execve(path, (char *const *)o->argv, (char *const *)(o->env ? o->env : plain_env));
	return errno;
}

static int pipe_above_stdio(int fds[2])
{
	int raw[2];

	if (pipe2(raw, O_CLOEXEC) < 0)
		return -errno;
	/* The child's dup2 onto 0, 1, 2 must not overwrite what it still needs. */
	for (int i = 0; i < 2; i++) {
		fds[i] = raw[i] > 2 ? raw[i] : fcntl(raw[i], F_DUPFD_CLOEXEC, 3);
		if (raw[i] <= 2)
			close(raw[i]);
	}
	return fds[0] < 0 || fds[1] < 0 ? -EMFILE : 0;
}

static void pipe_close(int fds[2])
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	fds[0] = fds[1] = -1;
}

static int start(struct running *r)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 }, said[2] = { -1, -1 };
	int e = 0, child_in, child_out;
	autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	ssize_t n;

	if (null >= 0 && null <= 2) {
		int up = fcntl(null, F_DUPFD_CLOEXEC, 3);

		close(null);
		null = up;
	}
	if (null < 0)
		return -errno;
	if ((e = pipe_above_stdio(err)) < 0 || (e = pipe_above_stdio(said)) < 0)
		goto fail;
	if (r->o->input.n && (e = pipe_above_stdio(in)) < 0)
		goto fail;
	if ((r->o->out || r->o->on_line) && (e = pipe_above_stdio(out)) < 0)
		goto fail;
	child_in = in[0] >= 0 ? in[0] : null;
	child_out = out[1] >= 0 ? out[1] : null;

	r->pid = FAULT(fork());
	if (r->pid < 0) {
		e = -errno;
		goto fail;
	}
	if (r->pid == 0) {
		e = become(r->o, r->path, child_in, child_out, err[1]);
		n = write(said[1], &e, sizeof(e));
		_exit(n == sizeof(e) ? 127 : 126);
	}
	close(said[1]);
	said[1] = -1;
	do {
		n = read(said[0], &e, sizeof(e));
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(e)) {
		waitpid(r->pid, NULL, 0);
		e = -e;
		goto fail;
	}
	close(said[0]);
	close(err[1]);
	if (in[0] >= 0)
		close(in[0]);
	if (out[1] >= 0)
		close(out[1]);
	r->in = in[1];
	r->out = out[0];
	r->err = err[0];
	r->pidfd = pidfd_of(r->pid);
	return 0;
fail:
	pipe_close(in);
	pipe_close(out);
	pipe_close(err);
	pipe_close(said);
	return e;
}

static void give_lines(struct running *r, struct str data)
{
	while (data.n) {
		struct str head, tail;
		bool whole = str_cut(data, '\n', &head, &tail);

		/* A line without end is given in pieces. */
		if (buf_adds(&r->line, head) < 0) {
			r->o->on_line(buf_str(&r->line), r->o->arg);
			r->line.n = 0;
			if (head.n > LINE_MAX_LEN) {
				tail = (struct str){ data.p + LINE_MAX_LEN, data.n - LINE_MAX_LEN };
				head.n = LINE_MAX_LEN;
				whole = false;
			}
			buf_adds(&r->line, head);
		}
		if (whole) {
			r->o->on_line(buf_str(&r->line), r->o->arg);
			r->line.n = 0;
		}
		data = tail;
	}
}

static void keep_tail(struct running *r, const char *p, size_t n)
{
	size_t size = sizeof(r->tail), drop;

	if (n > size) {
		p += n - size;
		n = size;
	}
	drop = r->tail_n + n > size ? r->tail_n + n - size : 0;
	memmove(r->tail, r->tail + drop, r->tail_n - drop);
	r->tail_n -= drop;
	memcpy(r->tail + r->tail_n, p, n);
	r->tail_n += n;
}

/* Takes what is there. false at the end of the stream. -ENOBUFS in *err when `out` is full. */
static bool take_output(struct running *r, int fd, bool is_err, int *fault)
{
	char data[8192];
	ssize_t n = read(fd, data, sizeof(data));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	if (is_err) {
		keep_tail(r, data, (size_t)n);
		if (r->o->err)
			buf_add(r->o->err, data, MIN((size_t)n, r->o->err->max - r->o->err->n));
	} else if (r->o->on_line) {
		give_lines(r, (struct str){ data, (size_t)n });
	} else if (r->o->out) {
		int e = buf_add(r->o->out, data, (size_t)n);

		if (e < 0)
			*fault = e;
	}
	return true;
}

static bool give_input(struct running *r, size_t *sent)
{
	ssize_t n = write(r->in, r->o->input.p + *sent, r->o->input.n - *sent);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	*sent += (size_t)n;
	return *sent < r->o->input.n;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void set_nonblocking(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Reads what the program had written before it ended; a grandchild that keeps the pipe open is not
 * waited for. */
static void drain(struct running *r, int *fault)
{
	struct pollfd p[2] = { { r->out, POLLIN, 0 }, { r->err, POLLIN, 0 } };

	while (poll(p, 2, 0) > 0) {
		if ((p[0].revents & (POLLIN | POLLHUP)) && !take_output(r, r->out, false, fault))
			p[0].fd = -1;
		if ((p[1].revents & (POLLIN | POLLHUP)) && !take_output(r, r->err, true, fault))
			p[1].fd = -1;
		if (*fault || ((p[0].revents | p[1].revents) & (POLLERR | POLLNVAL)))
			break;
	}
}

/* Moves bytes until the process has ended. 0, -ETIMEDOUT, or -ENOBUFS. */
static int attend(struct running *r)
{
	size_t sent = 0;
	int fault = 0;

	set_nonblocking(r->in);
	set_nonblocking(r->out);
	set_nonblocking(r->err);
	while (!fault) {
		struct pollfd p[4] = { { r->pidfd, POLLIN, 0 }, { r->in, POLLOUT, 0 },
			{ r->out, POLLIN, 0 }, { r->err, POLLIN, 0 } };
		int64_t left = r->deadline - mono_ms();
		int n;

		if (left <= 0)
			return -ETIMEDOUT;
		n = poll(p, 4, (int)MIN(left, (int64_t)INT_MAX));
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			continue;
		if (p[1].revents && !give_input(r, &sent))
			close_end(&r->in);
		if (p[2].revents && !take_output(r, r->out, false, &fault))
			close_end(&r->out);
		if (p[3].revents && !take_output(r, r->err, true, &fault))
			close_end(&r->err);
		if (p[0].revents) {
			drain(r, &fault);
			return fault;
		}
	}
	return fault;
}

/* The last line that says something, printable. */
static void last_words(struct running *r, char *out, size_t size)
{
	struct str s = { r->tail, r->tail_n }, line = { NULL, 0 }, head;
	size_t n = 0;

	while (s.n) {
		str_cut(s, '\n', &head, &s);
		head = str_trim(head);
		if (head.n)
			line = head;
	}
	for (; n < line.n && n < size - 1; n++)
		out[n] = (unsigned char)line.p[n] < 0x20 || line.p[n] == 0x7f ? '?' : line.p[n];
	out[n] = '\0';
}

static int verdict(struct running *r, int e, int status, struct fail *why)
{
	const char *name = strrchr(r->path, '/') + 1;
	char words[160];

	last_words(r, words, sizeof(words));
	if (e == -ETIMEDOUT)
		return fail_set(why, e, "%s: stopped after %d s%s%s", name,
			(r->o->timeout_ms ? r->o->timeout_ms : 60000) / 1000, *words ? ": " : "",
			words);
	if (e < 0)
		return fail_set(why, e, "%s: %s", name,
			e == -ENOBUFS ? "more output than is taken" : strerror(-e));
	if (WIFSIGNALED(status))
		return fail_set(why, -EIO, "%s: killed by signal %d%s%s", name, WTERMSIG(status),
			*words ? ": " : "", words);
	if (WEXITSTATUS(status))
		return fail_set(why, -EIO, "%s: exit status %d%s%s", name, WEXITSTATUS(status),
			*words ? ": " : "", words);
	return 0;
}

int run(const struct run_opts *o, int *status, struct fail *why)
{
	struct running r = { .o = o, .pidfd = -1, .in = -1, .out = -1, .err = -1 };
	sigset_t pipe_only, old;
	int e, st = 0;

	e = find_program(o->argv[0], r.path, sizeof(r.path));
	if (e < 0)
		return fail_set(why, -ENOENT, "%s: no such program", o->argv[0]);
	if (!strchr(r.path, '/'))
		return fail_set(why, -ENOENT, "%s: no such program", o->argv[0]);
	buf_init(&r.line, LINE_MAX_LEN);
	r.deadline = mono_ms() + (o->timeout_ms ? o->timeout_ms : 60000);

	/* A program that does not read its input must not end us. */
	sigemptyset(&pipe_only);
	sigaddset(&pipe_only, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
	e = start(&r);
	if (e < 0) {
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		return fail_set(why, e, "%s: %s", o->argv[0],
			e == -ENOENT ? "no such program" : strerror(-e));
	}
	e = attend(&r);
	if (e < 0)
		FAULT(kill(-r.pid, SIGKILL));
	while (waitpid(r.pid, &st, 0) < 0 && errno == EINTR)
		;
	if (r.line.n && e == 0)
		o->on_line(buf_str(&r.line), o->arg);
	buf_clear(&r.line);
	close_end(&r.in);
	close_end(&r.out);
	close_end(&r.err);
	close_end(&r.pidfd);
	if (!sigismember(&old, SIGPIPE)) {
		static const struct timespec now = { 0, 0 };

		while (sigtimedwait(&pipe_only, NULL, &now) == SIGPIPE)
			;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (status)
		*status = st;
	return verdict(&r, e, st, why);
}
