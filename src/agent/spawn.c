#include "agent/spawn.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent/path.h"
#include "base/file.h"

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
		set_tid_size, cgroup;
};

/* What the child tells before it executes; in memory that both see even where the rest is copied.
 */
struct report {
	volatile enum spawn_step step;
	volatile int err;
};

/* The raw calls: glibc's would make all threads of the process change their ids, and here these are
 * the agent's. */
static int become(const struct user *u)
{
	if (syscall(SYS_setgroups, u->ngroups, u->groups) < 0 ||
		syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 ||
		syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		return -errno;
	return 0;
}

static void say(const char *a, const char *b, const char *c)
{
	const char *part[] = { a, b, c };

	for (unsigned i = 0; i < 3; i++)
		if (write(2, part[i], strlen(part[i])) < 0)
			return;
}

/* Executes FILE; for a script without "#!" through /bin/sh, as shells and execvp do. Returns only
 * on failure. */
static int exec_file(const struct spawn *s, const char *file)
{
	enum { ARGS_MAX = 1024 };
	const char *argv[ARGS_MAX + 2];
	unsigned n = 0;

	execve(file, s->argv, s->envp);
	if (errno != ENOEXEC)
		return errno;
	argv[n++] = "/bin/sh";
	argv[n++] = file;
	for (unsigned i = 1; s->argv[0] && s->argv[i] && n < ARGS_MAX; i++)
		argv[n++] = s->argv[i];
	argv[n] = NULL;
	execve("/bin/sh", (char *const *)argv, s->envp);
	return ENOEXEC;
}

/* What a client that asks for a shell names (E2B's do, and so do we) is not in every image: the image's own shell
 * reads the same words. Returns only on failure. */
static int exec_sh_for_bash(const struct spawn *s)
{
	const char *argv[16];
	unsigned n = 0;

	argv[n++] = "/bin/sh";
	for (; s->argv[0] && s->argv[n] && n < ARRAY_LEN(argv) - 1; n++)
		argv[n] = s->argv[n];
	if (s->argv[0] && s->argv[n])
		return ENOENT;
	argv[n] = NULL;
	execve("/bin/sh", (char *const *)argv, s->envp);
	return errno;
}

static _Noreturn void exec_or_127(const struct spawn *s, struct report *told)
{
	const char *dir = s->path;
	char file[PATH_LEN];
	int err = ENOENT;

	if (strchr(s->cmd, '/')) {
		err = exec_file(s, s->cmd);
		if (err == ENOENT && !strcmp(s->cmd, "/bin/bash"))
			err = exec_sh_for_bash(s);
	} else if (s->cmd[0] != '\0') {
		while (dir && err != 0) {
			size_t n = strcspn(dir, ":");
			int len = snprintf(file, sizeof(file), "%.*s%s%s",
				(int)MIN(n, (size_t)PATH_LEN), dir, n ? "/" : "", s->cmd);
			int e = len > 0 && (size_t)len < sizeof(file) ? exec_file(s, file)
								      : ENAMETOOLONG;

			if (e != ENOENT && e != ENOTDIR && e != ENAMETOOLONG)
				err = e; /* something is there: worth more than "not found" */
			if (e == E2BIG)
				break;
			dir = dir[n] ? dir + n + 1 : NULL;
		}
	}
	if (s->strict) {
		told->err = err;
		told->step = SPAWN_EXEC;
		_exit(127);
	}
	if (err == ENOENT || err == ENOTDIR) {
		say("exec: ", s->cmd, ": not found\n");
		_exit(127);
	}
	say("exec: ", s->cmd,
		err == EACCES  ? ": Permission denied\n"
		: err == E2BIG ? ": Argument list too long\n"
			       : ": cannot be executed\n");
	_exit(126);
}

/* Runs in the child, in the agent's memory: system calls only, nothing allocated, nothing of the
 * agent's changed. */
static _Noreturn void child(const struct spawn *s, struct report *told)
{
	static const char oom[] = "100";
	struct rlimit files = { 1024, 1048576 };
	sigset_t none;
	int fd;

	setsid();
	told->step = SPAWN_STDIO;
	if (s->tty && ioctl(s->stdio[0], TIOCSCTTY, 0) < 0)
		goto fail;
	for (int i = 0; i < 3; i++) {
		fd = s->stdio[i] >= 0 ? s->stdio[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0 || dup2(fd, i) < 0)
			goto fail;
	}
	setrlimit(RLIMIT_NOFILE, &files);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, oom, sizeof(oom) - 1) < 0)
		say("", "", ""); /* the command runs all the same */
	umask(022);
	told->step = SPAWN_USER;
	told->err = -become(s->user);
	if (told->err)
		_exit(126);
	told->step = SPAWN_CWD;
	if (chdir(s->cwd) < 0)
		goto fail;
	told->step = SPAWN_OK;
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	exec_or_127(s, told);
fail:
	told->err = errno;
	_exit(126);
}

/* A sanitizer marks the stack that code runs on, and the child never comes back to unmark it: there
 * it gets a copy. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define SHARE_FLAGS (CLONE_VM | CLONE_VFORK)
/* Inline, so that the child, which runs on our stack, has no return address of ours to step on. */
static inline long clone3_raw(struct clone3_args *a)
{
	long r = SYS_clone3;

	__asm__ volatile("syscall" : "+a"(r) : "D"(a), "S"(sizeof(*a)) : "rcx", "r11", "memory");
	return r;
}
#else
#define SHARE_FLAGS CLONE_VFORK
static inline long clone3_raw(struct clone3_args *a)
{
	long r = syscall(SYS_clone3, a, sizeof(*a));

	return r < 0 ? -errno : r;
}
#endif

static __attribute__((noinline)) pid_t start(const struct spawn *s, struct report *told)
{
	struct clone3_args a = {
		.flags = SHARE_FLAGS | CLONE_CLEAR_SIGHAND |
			 (s->cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0),
		.exit_signal = SIGCHLD,
		.cgroup = s->cgroup_fd >= 0 ? (uint64_t)s->cgroup_fd : 0,
	};
	long pid = clone3_raw(&a);

	if (pid == 0)
		child(s, told);
	return (pid_t)pid;
}

/* For kernels and sandboxes without clone3: the copy of a process, moved into its cgroup by hand.
 */
static pid_t start_old(const struct spawn *s, struct report *told)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	if (s->cgroup_fd >= 0) {
		int fd = openat(s->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, "0", 1) < 0)
			say("exec: ", "cgroup", ": cannot be joined\n");
	}
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	child(s, told);
}

pid_t spawn_run(struct spawn *s)
{
	static struct report *told;
	sigset_t all, old;
	pid_t pid;

	s->step = SPAWN_FORK;
	if (!told) {
		void *p = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return -errno;
		told = p;
	}
	*told = (struct report){ SPAWN_STDIO, 0 };
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	pid = start(s, told);
	if (pid == -ENOSYS || pid == -EPERM || pid == -EINVAL) {
		s->strict = false; /* the copy runs beside us: its exit status will have to tell */
		pid = start_old(s, told);
		if (pid > 0)
			told->step = SPAWN_OK;
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return pid;
	s->step = told->step;
	if (s->step == SPAWN_OK)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 &&
		errno == EINTR) /* it has exited already; ours to reap */
		;
	return told->err ? -told->err : -EIO;
}
