/* watch.h - changes of a directory, by inotify, with everything below it if asked for.
 *
 * A new directory is watched as soon as it is seen and then read, so that what was made in it
 * meanwhile is reported too, and once. The first walk over a tree blocks, and belongs on a worker
 * thread; everything after it runs on the loop. What the kernel dropped is told by lost(): nothing
 * is lost in silence. Holds about 100 bytes a directory. */
#ifndef SPACE_AGENT_WATCH_H
#define SPACE_AGENT_WATCH_H

#include <uv.h>

#include "base/fail.h"

#define WATCH_DIRS_MAX (256 * 1024)

enum watch_type { WATCH_CREATE = 1, WATCH_WRITE, WATCH_REMOVE, WATCH_RENAME, WATCH_CHMOD };
const char *watch_type_name(enum watch_type t); /* "EVENT_TYPE_CREATE" */

struct watch;
struct watch_cb {
	/* NAME is relative to the watched directory, PATH whole. */
	void (*event)(enum watch_type type, const char *name, const char *path, void *arg);
	void (*lost)(void *arg); /* events were dropped; nothing comes after it */
};

/* Blocks. -ENOENT, -ENOTDIR, -EREMOTE (on a network file system, and that is not allowed), -ENOSPC
 * (too many directories). */
int watch_open(
	const char *path, bool recursive, bool network, struct watch **out, struct fail *why);
/* From now on events are told on LOOP. */
int watch_start(struct watch *w, uv_loop_t *loop, const struct watch_cb *cb, void *arg);
void watch_pause(struct watch *w); /* the kernel's queue holds what comes, up to its limit */
void watch_resume(struct watch *w);
void watch_close(struct watch *w); /* fine before watch_start and for NULL */

#endif
