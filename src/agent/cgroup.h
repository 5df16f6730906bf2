/* cgroup.h - a cgroup (v2) of its own for each command, under one for all user processes.
 *
 * Where no cgroup can be made (test mode on some hosts) every call says so, and callers go by
 * session instead. A group outlives its command while children of it run; cgroup_sweep() removes
 * those that have emptied. */
#ifndef SPACE_AGENT_CGROUP_H
#define SPACE_AGENT_CGROUP_H

#include "base/fail.h"

void cgroups_init(bool test); /* finds or mounts nothing: /sys/fs/cgroup is there already */
void cgroups_end(void);	      /* test mode: kills and removes what was made */
bool cgroups_on(void);

/* A new group; *id names it, the descriptor of its directory is the caller's. -errno: there is
 * none. */
int cgroup_make(unsigned *id);
/* Signal to every process in it, and in groups below it. Number of processes reached (1 for a kill
 * of all), or -errno. */
int cgroup_signal(unsigned id, int sig);
bool cgroup_populated(unsigned id);
/* The group of a command that has ended goes, or waits for the next command (AGAIN). False: something runs in it still. */
bool cgroup_retire(unsigned id, bool again);
void cgroup_release(unsigned id); /* to be removed, now or when its last process has gone */
void cgroup_sweep(void);

int cgroups_freeze(bool on); /* all user processes; waits up to 2 s until they stand. 0, -ETIMEDOUT,
				-ENOTSUP */

#endif
