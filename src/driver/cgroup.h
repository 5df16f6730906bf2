/* cgroup.h - the cgroup of one monitor: .../space/ID under each v1 controller, or one directory of v2; whichever the host has. */
#ifndef SPACE_CGROUP_H
#define SPACE_CGROUP_H

#include "base/fail.h"

#define CGROUP_MAX_FDS 4

struct cgroup_limits {
	uint64_t memory;	/* bytes, page cache of its own files included */
	unsigned pids;
	unsigned cpus;		/* weight: 100 for each */
};

/* Makes it and opens the files by which a process of one thread joins it, writing "0": *n descriptors for the caller to close. -EEXIST is not an error: what an earlier
 * monitor of that id left behind is taken over. */
int cgroup_make(const char *id, const struct cgroup_limits *l, int fds[CGROUP_MAX_FDS], unsigned *n, struct fail *why);

/* Kills what is in it, removes it and, if it was the last one, `space` above it. Fine if there is none. */
int cgroup_remove(const char *id, struct fail *why);

/* Did the kernel kill one of its processes because the limit was reached? */
bool cgroup_oom(const char *id);

#endif
