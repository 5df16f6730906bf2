/* image_fs.h - a storage pool on a file system of its own, made for one test: XFS (as the pool makes it itself), btrfs, and ext4, which makes no
 * clones. Needs root and loop devices; fs_begin() says test_skip() and false without them. */
#ifndef SPACE_TEST_IMAGE_FS_H
#define SPACE_TEST_IMAGE_FS_H

#include "image/pool.h"

enum fs_kind { FS_XFS, FS_BTRFS, FS_EXT4, FS_KINDS };
extern const char *const fs_names[FS_KINDS];

struct fs {
	enum fs_kind kind;
	char dir[64], state[80];
	struct pool *p;
};
bool fs_begin(struct fs *f, enum fs_kind kind, uint64_t mib);
void fs_end(struct fs *f);
/* Closes the pool and opens it again, as another process would. */
bool fs_reopen(struct fs *f);
uint64_t fs_free(const struct fs *f); /* once everything is written and given back */

#endif
