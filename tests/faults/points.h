/* points.h - what is asked of the points themselves: each is struck, and often enough. One that is not is a failure, unless tests/faults/rare says
 * why it may be so.
 *
 * A line of that file is "POINT: reason"; POINT is a name without "+", or a pattern as for fnmatch(3). A line that meets no point that there is
 * is a failure as well. */
#ifndef FAULTS_POINTS_H
#define FAULTS_POINTS_H

#include <stdbool.h>

/* LIST: the output of scripts/fault-points --list. RARE: the exceptions. -1 after a complaint. */
int points_load(const char *list, const char *rare);
bool points_rare(const char *point);
/* How many of LIST in files that begin with one of ROOMS (up to a NULL) were not met, each with a line, and lines of RARE that mean nothing. */
unsigned points_missing(const char *const *rooms, bool (*met)(const char *name));

#endif
