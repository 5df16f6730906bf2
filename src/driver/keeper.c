/* keeper.c - space-keeper, the parent of one QEMU: confines it, keeps its console and notes its end. See keeper.h.
 *
 * Runs as root up to drop_to(), single-threaded, with nothing open but the descriptors of keeper.h. Static, no stdio, no allocation: one is
 * resident for every VM. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver/keeper.h"

#define NEW_ROOT "/tmp" /* any directory that every host has; covered only inside our own mount namespace */

static struct keep_note note;

static void tell(void)
{
	(void)!send(KEEP_TALK, &note, sizeof(note), MSG_NOSIGNAL);
}

static void die(const char *what)
{
	note.err = errno;
	note.step = KEEP_FAILED;
	strncpy(note.what, what, sizeof(note.what) - 1);
	tell();
	_exit(126);
}

static void must(int r, const char *what)
{
	if (r < 0)
		die(what);
}

/* A read-only look at one directory of the host. */
static void bind_ro(const char *from, const char *to)
{
	must(mkdir(to, 0755), to);
	must(mount(from, to, NULL, MS_BIND, NULL), to);
	must(mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL), to);
}

/* /lib and its like are links into /usr on a merged system; elsewhere directories of their own. */
static void lib_dir(const char *from, const char *to)
{
	char link[64];
	ssize_t n = readlink(from, link, sizeof(link) - 1);

	if (n > 0) {
		link[n] = '\0';
		must(symlink(link, to), to);
	} else if (errno == EINVAL) {
		bind_ro(from, to);
	} else if (errno != ENOENT) {
		die(from);
	}
}

static void device(const char *name, unsigned major, unsigned minor, uid_t uid)
{
	must(mknod(name, S_IFCHR | 0600, makedev(major, minor)), name);
	must(chown(name, uid, uid), name);
}

/* A root of our own: QEMU's program, libraries and firmware, /proc of our own processes only, and two or three devices. */
static void change_root(uid_t uid, bool kvm)
{
	must(unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS), "unshare");
	must(sethostname("monitor", 7), "hostname");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	must(mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=64,mode=0755"), "tmpfs");
	must(chdir(NEW_ROOT), "new root");

	bind_ro("/usr", "usr");
	if (access("usr/local", F_OK) == 0)
		must(mount("tmpfs", "usr/local", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k,nr_inodes=2"), "/usr/local");
	lib_dir("/lib", "lib");
	lib_dir("/lib64", "lib64");
	must(mkdir("proc", 0555), "proc");
	must(mkdir("dev", 0755), "dev");
	device("dev/null", 1, 3, uid);
	device("dev/urandom", 1, 9, uid);
	if (kvm)
		device("dev/kvm", 10, 232, uid);
	/* /proc/self/fd is how QEMU opens its memory file; subset and hidepid since Linux 5.8 */
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible,subset=pid") < 0)
		must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2"), "/proc");

	must((int)syscall(SYS_pivot_root, ".", "."), "pivot_root");
	must(umount2(".", MNT_DETACH), "old root");
	must(chdir("/"), "chdir");
	must(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL), "read-only root");
}

static void limit(int what, rlim_t n, const char *name)
{
	struct rlimit r = { n, n };

	must(setrlimit(what, &r), name);
}

static void drop_to(uid_t uid, rlim_t fsize)
{
	limit(RLIMIT_CORE, 0, "core limit");
	limit(RLIMIT_NOFILE, 256, "descriptor limit");
	limit(RLIMIT_FSIZE, fsize, "file size limit");
	umask(077);
	must(setgroups(0, NULL), "setgroups");
	must(setresgid(uid, uid, uid), "setresgid");
	must(setresuid(uid, uid, uid), "setresuid");
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	if (setuid(0) == 0) {
		errno = EPERM;
		die("root came back");
	}
}

/* The host would rather lose one sandbox than its daemon. */
static void prefer_as_victim(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, "500", 3);
	close(fd);
}

static void child(char **argv, int go, int err_pipe, pid_t keeper)
{
	char *const env[] = { "PATH=/usr/bin", "LANG=C.UTF-8", NULL };
	char c;

	must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "parent-death signal");
	if (getppid() != keeper)
		_exit(126);
	must(dup2(err_pipe, STDERR_FILENO), "stderr");
	/* nothing of QEMU runs before spaced has written down that it is there */
	if (read(go, &c, 1) != 1)
		_exit(126);
	must((int)syscall(SYS_close_range, KEEP_RING, KEEP_QEMU_FDS - 1, 0), "close_range");
	execve(argv[0], argv, env);
	die("starting QEMU");
}

static void ring_add(struct keep_ring *head, const char *p, size_t n)
{
	while (n > 0) {
		size_t at = head->total % KEEP_RING_DATA, k = KEEP_RING_DATA - at;

		if (k > n)
			k = n;
		/* a full host loses console text, nothing else */
		(void)!pwrite(KEEP_RING, p, k, (off_t)(KEEP_RING_HEAD + at));
		head->total += k;
		p += k;
		n -= k;
	}
	(void)!pwrite(KEEP_RING, head, sizeof(*head), 0);
}

/* Copies both streams until their writers are gone, which they are when QEMU is. */
static void keep(int log)
{
	static char buf[65536];
	struct keep_ring head = { .magic = KEEP_RING_MAGIC };
	struct pollfd p[2] = { { .fd = KEEP_CONSOLE, .events = POLLIN }, { .fd = log, .events = POLLIN } };
	size_t logged = 0;

	ring_add(&head, "", 0);
	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (poll(p, 2, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++) {
			ssize_t n;

			if (!p[i].revents)
				continue;
			n = read(p[i].fd, buf, sizeof(buf));
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0) {
				p[i].fd = -1;
				p[i].revents = 0;
			} else if (i == 0) {
				ring_add(&head, buf, (size_t)n);
			} else if (logged < KEEP_LOG_MAX) {
				size_t k = KEEP_LOG_MAX - logged < (size_t)n ? KEEP_LOG_MAX - logged : (size_t)n;

				(void)!write(KEEP_LOG, buf, k);
				logged += k;
			}
		}
	}
}

int main(int argc, char **argv)
{
	int go[2], err[2], status = 0;
	struct keep_exit end = { .magic = KEEP_EXIT_MAGIC };
	struct timespec now;
	char c;
	uid_t uid;
	pid_t pid, self = getpid();

	if (argc <= KEEP_ARG_QEMU)
		return 125;
	prctl(PR_SET_NAME, "space-keeper", 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	uid = (uid_t)strtoul(argv[KEEP_ARG_UID], NULL, 10);
	must(fcntl(KEEP_TALK, F_SETFD, FD_CLOEXEC), "talk");
	prefer_as_victim(); /* here: once the uid is dropped, /proc/self is root's */
	change_root(uid, argv[KEEP_ARG_KVM][0] == '1');
	drop_to(uid, (rlim_t)strtoull(argv[KEEP_ARG_FSIZE], NULL, 10));
	must(pipe2(go, O_CLOEXEC), "pipe");
	must(pipe2(err, O_CLOEXEC), "pipe");

	pid = fork();
	must(pid, "fork");
	if (pid == 0)
		child(argv + KEEP_ARG_QEMU, go[0], err[1], self);
	note.qemu = pid;
	note.step = KEEP_FORKED;
	tell();
	close(err[1]);
	close(go[0]);
	syscall(SYS_close_range, KEEP_QEMU_FDS, (unsigned)(go[1] < err[0] ? go[1] : err[0]) - 1, 0);
	/* no word from spaced: it is gone, and so are we; the child dies with us */
	if (recv(KEEP_TALK, &c, 1, 0) != 1)
		return 126;
	must((int)write(go[1], &c, 1), "go");
	close(go[1]);
	close(KEEP_TALK); /* once exec has closed the child's, spaced reads the end */

	keep(err[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	clock_gettime(CLOCK_REALTIME, &now);
	end.status = status;
	end.at_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
	(void)!pwrite(KEEP_EXIT, &end, sizeof(end), 0);
	return 0;
}
