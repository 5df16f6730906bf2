/* launch.h - starts a confined QEMU under its keeper, finds one again, and tells how one ended. */
#ifndef SPACE_LAUNCH_H
#define SPACE_LAUNCH_H

#include "base/fail.h"

#define LAUNCH_MAX_FDS 16

struct launch {
	const char *id;
	int run_dirfd;
	uid_t uid;
	uint64_t fsize;			/* no file that it writes may grow past this */
	bool kvm;			/* give it /dev/kvm */
	const int *cgroup_fds;		/* of cgroup_make(), to be written before it runs */
	unsigned ncgroup;
	int console_fd;			/* the keeper's end of the console */
	const int *fds;			/* QEMU's, placed from LAUNCH_FD_FIRST on in this order */
	unsigned nfds;
	const char *const *argv;	/* argv[0] is an absolute path under /usr; NULL-terminated */
	/* Called when both processes exist and QEMU has not run yet: to write down what they are. An error ends them. */
	int (*forked)(pid_t keeper, pid_t qemu, void *arg, struct fail *why);
	void *arg;
};

#define LAUNCH_FD_FIRST 8		/* = KEEP_QEMU_FDS */

struct launched {
	pid_t keeper, qemu;
	uint64_t keeper_start, qemu_start; /* proc_starttime */
	int keeper_pidfd, qemu_pidfd;
};

/* Blocks until QEMU's program runs or failed to. */
int launch(const struct launch *l, struct launched *out, struct fail *why);

/* Takes in a keeper that has ended, if it is a child of this process; one that was adopted is init's. */
void launch_reap(int keeper_pidfd);

/* QEMU's first words on stderr, in one line, for an error message. "" if there are none. */
void launch_last_words(int run_dirfd, char *out, size_t size);

/* How it ended: 0 and waitpid's status, -EAGAIN while it is not written down. */
int launch_exit_status(int run_dirfd, int *status);

#endif
