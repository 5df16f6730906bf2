/* pool.h - the storage pool from the inside: what the files of this room share.
 *
 * A struct pool does not change after pool_open(), so that any thread may use it. Work in progress
 * lives in tmp/PID-RANDOM/ (pool_tmpfd), a directory of this process alone: the file
 * tmp/PID-RANDOM.lock is held by flock for as long as the pool is open, and whoever opens the pool
 * next removes directories whose lock nobody holds. So an interrupted build leaves nothing, and a
 * daemon and a builder can share one pool. */
#ifndef SPACE_IMAGE_POOL_H
#define SPACE_IMAGE_POOL_H

#include "base/file.h"
#include "image/image.h"

#define POOL_JSON_MAX (256 * KIB)

struct pool {
	int fd;	    /* STATE/pool */
	int tmpfd;  /* STATE/pool/tmp/PID-RANDOM */
	int lockfd; /* tmp/PID-RANDOM.lock, held */
	enum pool_clone clone;
	char path[4096]; /* STATE/pool, absolute */
	char tmp[4200];	 /* its tmpfd's path: for tools that need one */
};

/* A name in the pool's own tmp directory that nobody else uses: PREFIX and random digits. */
#define POOL_TMPNAME 48
void pool_tmpname(char out[POOL_TMPNAME], const char *prefix);

/* A new file there, open for reading and writing. */
int pool_tmpfile(struct pool *p, const char *prefix, char name[POOL_TMPNAME], struct fail *why);

/* An unnamed file on the pool's file system, gone when its last descriptor is. */
int pool_anon(struct pool *p, mode_t mode, struct fail *why);

/* XFS sets 128 KiB aside for each block of a clone that is written over, until the file is forgotten or for half an hour: 8,192 scattered blocks of
 * 32 MiB took 91. For a disk in use that is right, since what is written next to it later lies next to it. A node's files are written once, and for
 * them it is switched off (a directory hands it on to what is made in it, a file to its clones). Other file systems know no such thing. */
void pool_spare_blocks(int fd, bool spare);

/* The file NAME of the tmp directory, whose bytes are all written, becomes DIR/FILE: fsync, rename,
 * fsync of DIR. A file that is there already is replaced. */
int pool_publish(
	struct pool *p, const char *name, const char *dir, const char *file, struct fail *why);

/* The small pointers under names/: names/KIND/NAME is a file that holds VALUE. -ENOENT from reading
 * is not put into words. */
int pool_name_read(struct pool *p, const char *kind, const char *name, char *value, size_t size);
int pool_name_write(
	struct pool *p, const char *kind, const char *name, const char *value, struct fail *why);
int pool_name_remove(struct pool *p, const char *kind, const char *name);

/* "sha256:HEX" or "HEX" into a digest. 0 or -EINVAL. */
int digest_parse(struct digest *d, struct str s);
bool digest_valid(const struct digest *d);
int digest_of_fd(
	struct digest *d, int fd, struct fail *why); /* the whole file, whatever its offset */
void digest_of_text(struct digest *d, struct str s);

/* Says -ENOSPC as no_space, everything else as `internal`, with errno's words after the sentence.
 * Returns ERR. */
int pool_fail(struct fail *f, int err, const char *fmt, ...) PRINTF(3, 4);

static inline void step(const struct progress *pr, const char *what, double done)
{
	if (pr && pr->step)
		pr->step(what, done, pr->arg);
}

#endif
