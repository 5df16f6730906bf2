/* apt.h - Debian's packages by the host's own apt: its sources, keys and proxies, and none of its
 * state changed.
 *
 * Where the host's package lists are absent or too old to know a package, fresh ones are fetched
 * into the pool's own tmp directory and used from there. */
#ifndef SPACE_IMAGE_APT_H
#define SPACE_IMAGE_APT_H

#include "base/buf.h"
#include "image/pool.h"

struct apt {
	struct pool *pool;
	char dir[4300]; /* a directory under the pool's tmp: downloads, and our own lists if need be
			 */
	char name[POOL_TMPNAME];
	bool own_lists;
};

int apt_begin(struct pool *p, struct apt *a, struct fail *why);
void apt_end(struct apt *a); /* removes the directory */

/* The package behind a metapackage: its first dependency that starts with PREFIX. */
int apt_dependency(struct apt *a, const char *package, const char *prefix,
	const struct progress *pr, char out[128], struct fail *why);

/* Downloads PACKAGE; *path (in a->dir) is the .deb. */
int apt_download(struct apt *a, const char *package, const struct progress *pr, char path[4400],
	struct fail *why);

/* The lines of a sources.list that stand for the host's own Debian archives (not those of other
 * publishers), for release CODENAME. */
int apt_sources(struct apt *a, const char *codename, const struct progress *pr, struct buf *out,
	struct fail *why);

/* The host's words on how to reach archives (Acquire::http, https, Retries), in the syntax of
 * apt.conf. Empty if it has none. */
int apt_acquire_options(struct buf *out, struct fail *why);

/* Is this a name that a Debian package may have, with :ARCH and =VERSION if so? Checked before it
 * reaches any command line. */
bool apt_is_package(struct str s);

#endif
