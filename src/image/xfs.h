/* xfs.h - a file with an XFS in it, mounted through a loop device: the pool's file system where the
 * host's own cannot clone.
 *
 * The file is allocated in full when it is made: a sparse one loses writes that were acknowledged
 * when the host's disk fills up. It is made under another name and renamed when it is complete, so
 * that a half-made one is never mounted. The loop device frees itself with the unmount (autoclear)
 * and does direct I/O, so that the host does not cache everything twice. */
#ifndef SPACE_IMAGE_XFS_H
#define SPACE_IMAGE_XFS_H

#include "base/fail.h"

#define XFS_IMAGE "pool.xfs"
#define XFS_IMAGE_MIN (512 * 1024 * 1024ULL)

/* Makes STATE/pool.xfs of SIZE bytes unless it is there. 0, -EOPNOTSUPP (no way to allocate ahead
 * here), or a failure in words. */
int xfs_image_make(int state_fd, const char *state_dir, uint64_t size, struct fail *why);
bool xfs_image_exists(int state_fd);
int xfs_image_mount(int state_fd, const char *mount_point, struct fail *why);
/* Makes image, loop device and file system larger while they are mounted. Nothing happens if they
 * are that large already. */
int xfs_image_grow(int state_fd, const char *mount_point, uint64_t size, struct fail *why);

/* Is PATH the root of a mount that is an XFS? The loop device behind it goes into *loop (-1: it is
 * none). */
bool xfs_is_mounted(const char *path, int *loop);

#endif
