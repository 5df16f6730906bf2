/* record.h - RUN_DIR/monitor.json: what a later daemon must know to find a monitor again. */
#ifndef SPACE_RECORD_H
#define SPACE_RECORD_H

#include <sys/stat.h>

#include "base/fail.h"

struct record_file {
	bool there;
	dev_t dev;
	ino_t ino;
};

struct record {
	char id[64];
	uid_t uid;
	uint64_t memory;
	pid_t keeper, qemu; /* 0: not started yet */
	uint64_t keeper_start, qemu_start;
	struct record_file memory_file, disk;
	char node[4096]; /* directory of the node it was started from; "" if it booted */
};

int record_write(int run_dirfd, const struct record *r, struct fail *why);
int record_read(int run_dirfd, struct record *r, struct fail *why); /* -ENOENT: there is none */

struct record_file record_file_of(int fd); /* -1 gives one that is not there */
/* A descriptor of the process's that is F, opened anew for reading. -ENOENT if it has none. */
int record_file_find(pid_t pid, const struct record_file *f);

#endif
