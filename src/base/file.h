/* file.h - files, whole and safely. Everything is opened O_CLOEXEC. A path is given as (dirfd, path). */
#ifndef SPACE_FILE_H
#define SPACE_FILE_H

#include <sys/stat.h>

#include "base/buf.h"
#include "base/fail.h"

/* Reads FD to its end, at most MAX bytes. *out is the caller's to free, with a NUL that the length does not count.
 * The length, or -EFBIG, -ENOMEM, -errno. */
ssize_t read_all(int fd, char **out, size_t max);
ssize_t file_read(int dirfd, const char *path, char **out, size_t max);

int write_all(int fd, const void *p, size_t n);			/* 0 or -errno; EINTR and short writes are handled */
int pwrite_all(int fd, const void *p, size_t n, off_t at);
int pread_all(int fd, void *p, size_t n, off_t at);		/* -EPIPE at an early end */

/* Writes PATH as a whole: a temporary file beside it, fsync, rename, fsync of the directory. 0 or -errno. */
int file_write_atomic(int dirfd, const char *path, const void *p, size_t n, mode_t mode);

int mkdir_p(const char *path, mode_t mode);			/* 0 or -errno; existing is fine */
int rm_rf(int dirfd, const char *path);				/* never follows a link, never leaves the file system; 0 if absent */
int dir_sync(int dirfd);
bool path_is_plain(struct str s);				/* one component: not empty, ".", "..", no '/', no control byte */

/* A copy of SRC in DST that shares its blocks (FICLONE). -EOPNOTSUPP or -EXDEV where the file system cannot. */
int file_clone(int dst_fd, int src_fd);
/* A copy with holes kept (SEEK_DATA); for file systems that cannot clone. */
int file_copy_sparse(int dst_fd, int src_fd);
/* Clone if possible, else copy; *cloned says which. */
int file_dup(int dst_fd, int src_fd, bool *cloned);

/* SHA-256 of a whole file, as 64 hex digits and a NUL. 0 or -errno. */
int file_sha256(int fd, char hex[65]);

/* Opens the directory PATH. -errno on failure. */
int dir_open(int dirfd, const char *path);

#endif
