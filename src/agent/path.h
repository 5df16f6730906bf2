/* path.h - what a path in a request means.
 *
 * Empty: the default working directory, else the user's home. "~" and "~/x": the home. "~other":
 * refused. Absolute: as it was given, not cleaned. Relative: joined to the home (not the working
 * directory) and cleaned. */
#ifndef SPACE_AGENT_PATH_H
#define SPACE_AGENT_PATH_H

#include "base/fail.h"
#include "base/str.h"

#define PATH_LEN 4096 /* with the NUL: PATH_MAX */

/* 0; -EINVAL for "~other", a NUL or a HOME that is not absolute; -ENAMETOOLONG. OUT is always
 * absolute on success. WHY may be NULL. */
int path_resolve(struct str path, const char *home, const char *workdir, char out[PATH_LEN],
	struct fail *why);

/* Removes "//", "." and ".." by the words alone, as Go's path.Clean does. Never longer than S; "."
 * for nothing. In place. */
void path_clean(char *s);

/* Last component ("/" for the root), as a slice of PATH. */
struct str path_base(const char *path);

/* Length of the parent's path in PATH: 1 for "/x", 0 for a path without a slash. */
size_t path_dir_len(const char *path);

#endif
