/* tool.h - long-running programs (mmdebstrap, mkfs.erofs, skopeo …) with progress while they run.
 *
 * Unlike run() of base/proc.h: what the program says on stdout and stderr is handed over line by
 * line, `tick` is called twice a second in between, and the program dies with us, however we end.
 * With `isolate` it and all it starts live in a process and mount namespace of their own, which the
 * kernel takes apart when the first of them is gone: no process, no mount stays behind. */
#ifndef SPACE_IMAGE_TOOL_H
#define SPACE_IMAGE_TOOL_H

#include "base/fail.h"
#include "base/str.h"

struct tool {
	const char *const *argv; /* argv[0] is looked up in PATH */
	const char *const *env;	 /* added to PATH, HOME, LANG and the proxy variables of our own
				    environment; may be NULL */
	const char *cwd;	 /* NULL: / */
	const char *tmp;	 /* its TMPDIR: what it leaves there when it is killed goes with the
				    pool's own work directory. NULL: it needs none */
	const char
		*package; /* the Debian package it comes from, for the remedy when it is missing */
	bool isolate;
	int timeout_s;				  /* 0: an hour */
	void (*line)(struct str line, void *arg); /* may be NULL */
	void (*tick)(void *arg);		  /* may be NULL */
	void *arg;
};

/* 0 when it ended with status 0. Else WHY holds its last words: -ENODEV (host_unsuitable) when it
 * is not installed, -ENOSPC when it says that there is no room, -ETIMEDOUT, -EIO. */
int tool_run(const struct tool *t, struct fail *why);

#endif
