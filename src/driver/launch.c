/* launch.c - see launch.h. The confinement itself is in keeper.c. */
#include "driver/launch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/proc.h"
#include "driver/keeper.h"

_Static_assert(LAUNCH_FD_FIRST == KEEP_QEMU_FDS, "both name the first of QEMU's descriptors");

/* space-keeper's program, put in by keeper_blob.S */
extern const char space_keeper_start[], space_keeper_end[];

static pthread_once_t keeper_once = PTHREAD_ONCE_INIT;
static int keeper_fd = -1;

static void keeper_make(void)
{
	size_t n = (size_t)((uintptr_t)space_keeper_end - (uintptr_t)space_keeper_start);
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)space_keeper_start & ~(page - 1);
	int fd = FAULT(memfd_create("space-keeper", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	if (fd < 0)
		return;
	if (FAULT_OURS(write_all(fd, space_keeper_start, n)) < 0 ||
	    FAULT(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) < 0) {
		close(fd);
		return;
	}
	/* our own copy of it is not needed again: clean pages of the program file, given back */
	(void)madvise((void *)from, (uintptr_t)space_keeper_end - from, MADV_DONTNEED);
	keeper_fd = fd;
}

/* Between fork and exec of a threaded program: system calls and the stack only. Does not return. */
static void become_keeper(const struct launch *l, const int *from, unsigned n, char *const *argv)
{
	char *const env[] = { NULL };
	int tmp[LAUNCH_FD_FIRST + LAUNCH_MAX_FDS + 1];
	sigset_t none;

	/* for every thread of the group: "0" is the writer */
	for (unsigned i = 0; i < l->ncgroup; i++)
		if (write(l->cgroup_fds[i], "0", 1) != 1)
			_exit(124);
	for (unsigned i = 0; i < n; i++) {
		tmp[i] = fcntl(from[i], F_DUPFD, 512); /* above every target */
		if (tmp[i] < 0)
			_exit(124);
	}
	for (unsigned i = 0; i < n; i++)
		if (dup2(tmp[i], (int)i) < 0)
			_exit(124);
	syscall(SYS_close_range, n, ~0U, 0);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	/* its own program is the last of the descriptors, gone with the exec */
	fcntl((int)n - 1, F_SETFD, FD_CLOEXEC);
	syscall(SYS_execveat, (int)n - 1, "", argv, env, AT_EMPTY_PATH);
	_exit(124);
}

/* The keeper is our child until we end, then init's. launch_reap() takes it in, nobody waits for a SIGCHLD. */
static int spawn_keeper(const struct launch *l, const int *from, unsigned n, char *const *argv, pid_t *pid, struct fail *why)
{
	*pid = FAULT(fork());
	if (*pid < 0)
		return fail_set(why, -errno, "starting a monitor: fork: %s", strerror(errno));
	if (*pid == 0)
		become_keeper(l, from, n, argv);
	return 0;
}

void launch_reap(int keeper_pidfd)
{
	siginfo_t si;

	if (keeper_pidfd >= 0)
		while (waitid(P_PIDFD, (id_t)keeper_pidfd, &si, WEXITED | WNOHANG) < 0 && errno == EINTR)
			;
}

static int hear(int talk, struct keep_note *note, struct fail *why)
{
	struct timeval limit = { .tv_sec = 20 };
	ssize_t n;

	setsockopt(talk, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	n = recv(talk, note, sizeof(*note), 0);
	if (n < 0)
		return fail_set(why, -errno, "the monitor's keeper does not answer: %s", strerror(errno));
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(*note))
		return fail_set(why, -EPROTO, "the monitor's keeper said something odd");
	if (note->step == KEEP_FAILED) {
		note->what[sizeof(note->what) - 1] = '\0';
		return fail_set(why, -(note->err > 0 ? note->err : EIO), "starting the monitor: %s: %s", note->what, strerror(note->err));
	}
	return 1;
}

static int identify(const struct keep_note *note, struct launched *out, struct fail *why)
{
	out->qemu = note->qemu;
	out->qemu_pidfd = pidfd_of(note->qemu);
	if (out->qemu_pidfd < 0)
		return fail_set(why, out->qemu_pidfd, "the monitor is gone");
	out->keeper_start = proc_starttime(out->keeper);
	out->qemu_start = proc_starttime(note->qemu);
	return 0;
}

static int open_run_file(int dirfd, const char *name, struct fail *why)
{
	int fd = FAULT(openat(dirfd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));

	return fd < 0 ? fail_set(why, -errno, "run directory: %s: %s", name, strerror(errno)) : fd;
}

static int converse(const struct launch *l, int talk, struct launched *out, struct fail *why)
{
	struct keep_note note;
	int r = hear(talk, &note, why);

	if (r <= 0)
		return r < 0 ? r : fail_set(why, -EIO, "the monitor's keeper died while starting");
	r = identify(&note, out, why);
	if (r == 0 && l->forked)
		r = l->forked(out->keeper, out->qemu, l->arg, why);
	if (r < 0)
		return r;
	if (FAULT(send(talk, "g", 1, MSG_NOSIGNAL)) != 1)
		return fail_set(why, -errno, "the monitor's keeper: %s", strerror(errno));
	r = hear(talk, &note, why);
	return r > 0 ? fail_set(why, -EPROTO, "the monitor's keeper said something odd") : r;
}

static void end_launched(struct launched *o)
{
	if (o->keeper_pidfd >= 0) {
		FAULT_OURS(pidfd_kill(o->keeper_pidfd, SIGKILL)); /* QEMU dies with it */
		pidfd_wait(o->keeper_pidfd, 5000);
		launch_reap(o->keeper_pidfd);
		close(o->keeper_pidfd);
	}
	if (o->qemu_pidfd >= 0) {
		pidfd_wait(o->qemu_pidfd, 5000);
		close(o->qemu_pidfd);
	}
}

int launch(const struct launch *l, struct launched *out, struct fail *why)
{
	const char *argv[KEEP_ARG_QEMU + 160];
	int from[LAUNCH_FD_FIRST + LAUNCH_MAX_FDS + 1], pair[2], r;
	char uid[16], fsize[24];
	unsigned n = 0, i;
	struct launched got = { .keeper_pidfd = -1, .qemu_pidfd = -1 };
	autoclose int null = -1, ring = -1, log = -1, ended = -1, talk = -1, theirs = -1;

	pthread_once(&keeper_once, keeper_make);
	if (keeper_fd < 0)
		return fail_set(why, -ENOMEM, "no memory file for the monitor's keeper");
	assert(l->nfds <= LAUNCH_MAX_FDS);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return fail_set(why, -errno, "/dev/null: %s", strerror(errno));
	if ((ring = open_run_file(l->run_dirfd, "console", why)) < 0)
		return ring;
	if ((log = open_run_file(l->run_dirfd, "monitor.log", why)) < 0)
		return log;
	if ((ended = open_run_file(l->run_dirfd, "exit", why)) < 0)
		return ended;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(why, -errno, "socketpair: %s", strerror(errno));
	talk = pair[0];
	theirs = pair[1];

	snprintf(uid, sizeof(uid), "%u", l->uid);
	snprintf(fsize, sizeof(fsize), "%llu", (unsigned long long)l->fsize);
	argv[0] = "space-keeper";
	argv[KEEP_ARG_UID] = uid;
	argv[KEEP_ARG_FSIZE] = fsize;
	argv[KEEP_ARG_KVM] = l->kvm ? "1" : "0";
	for (i = 0; l->argv[i]; i++) {
		if (KEEP_ARG_QEMU + i + 1 >= ARRAY_LEN(argv))
			return fail_set(why, -E2BIG, "too many options for the monitor");
		argv[KEEP_ARG_QEMU + i] = l->argv[i];
	}
	argv[KEEP_ARG_QEMU + i] = NULL;

	from[n++] = null;
	from[n++] = null;
	from[n++] = null;
	from[n++] = theirs; /* KEEP_TALK and on */
	from[n++] = ring;
	from[n++] = log;
	from[n++] = ended;
	from[n++] = l->console_fd;
	for (i = 0; i < l->nfds; i++)
		from[n++] = l->fds[i];
	from[n++] = keeper_fd;
	r = spawn_keeper(l, from, n, (char *const *)argv, &got.keeper, why);
	if (r < 0)
		return r;
	close(steal_fd(&theirs));
	got.keeper_pidfd = pidfd_of(got.keeper); /* cannot be another's: it is not reaped */
	r = got.keeper_pidfd < 0 ? fail_set(why, got.keeper_pidfd, "the monitor's keeper is gone") : converse(l, talk, &got, why);
	if (r < 0) {
		end_launched(&got);
		return r;
	}
	*out = got;
	return 0;
}

void launch_last_words(int run_dirfd, char *out, size_t size)
{
	autofree char *text = NULL;
	size_t n = 0;

	if (file_read(run_dirfd, "monitor.log", &text, KEEP_LOG_MAX) > 0)
		for (const char *p = text; *p && n + 1 < size; p++)
			out[n++] = (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p;
	while (n > 0 && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}

int launch_exit_status(int run_dirfd, int *status)
{
	struct keep_exit end;
	autoclose int fd = openat(run_dirfd, "exit", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	if (pread_all(fd, &end, sizeof(end), 0) < 0 || end.magic != KEEP_EXIT_MAGIC)
		return -EAGAIN;
	*status = end.status;
	return 0;
}
