/* proc.h - other programs: start one, wait for it, with a limit on its time and its output. Blocking: for jobs. */
#ifndef SPACE_PROC_H
#define SPACE_PROC_H

#include "base/buf.h"
#include "base/fail.h"

struct run_opts {
	const char *const *argv; /* argv[0] is looked up in PATH; NULL-terminated */
	const char *const *env;	 /* NULL: PATH, LANG=C.UTF-8 and HOME=/ only */
	const char *cwd;	 /* NULL: / */
	struct str input;	 /* what it reads on stdin; empty: /dev/null */
	struct buf *out;	 /* gets stdout; NULL: /dev/null */
	struct buf *err;	 /* gets stderr, the first bytes up to its maximum; NULL: only kept for the message */
	void (*on_line)(struct str line, void *arg); /* each line of stdout as it comes, instead of `out` */
	void *arg;
	int timeout_ms;		 /* 0: 60 s. SIGKILL to its process group at the end of it */
	int setns_net_fd;	 /* 0: none. A network namespace to enter first */
};

/* Runs a program to its end. 0 if it exited with 0; otherwise -EIO (or -ENOENT: no such program, -ETIMEDOUT) with the
 * program's last words on stderr in WHY. *status gets waitpid's status if not NULL. */
int run(const struct run_opts *o, int *status, struct fail *why);

/* pidfd_open. -errno on failure. */
int pidfd_of(pid_t pid);
/* Signal through a pidfd. 0 or -errno. */
int pidfd_kill(int pidfd, int sig);
/* Waits until the process behind PIDFD is gone. 0, or -ETIMEDOUT. */
int pidfd_wait(int pidfd, int timeout_ms);

/* Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat): with the pid it names a process for
 * ever. 0 if there is none. */
uint64_t proc_starttime(pid_t pid);

#endif
