/* spawn.h - starts one program as a user.
 *
 * The child shares our memory until it has executed (as vfork's does), so that starting costs no
 * copy of page tables and failures come back without a pipe; it is born inside its cgroup (clone3),
 * which spares the kernel's slow migration. */
#ifndef SPACE_AGENT_SPAWN_H
#define SPACE_AGENT_SPAWN_H

#include "agent/users.h"

enum spawn_step { SPAWN_OK, SPAWN_FORK, SPAWN_CWD, SPAWN_USER, SPAWN_STDIO, SPAWN_EXEC };

struct spawn {
	const char *cmd; /* looked up in PATH of ENVP when it has no slash */
	char *const *argv, *const *envp;
	const char *path;
	const char *cwd;
	const struct user *user;
	int stdio[3];  /* the child's; all at least 3, or -1: /dev/null */
	bool tty;      /* stdio[0] is a terminal, to become the controlling one */
	int cgroup_fd; /* -1: none */
	bool strict;   /* a program that cannot be executed is a failure (SPAWN_EXEC) */
	/* out */
	enum spawn_step step;
};

/* The pid, or -errno with `step` set. Unless `strict`, a program that is missing or can't be
 * executed is no failure here: the child says so on its stderr and ends with 127 or 126, as under a
 * shell. */
pid_t spawn_run(struct spawn *s);

#endif
