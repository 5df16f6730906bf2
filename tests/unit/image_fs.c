/* image_fs.c - see image_fs.h. */
#include "image_fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "base/proc.h"
#include "test.h"

const char *const fs_names[FS_KINDS] = { "xfs", "btrfs", "ext4" };

static bool sh(const char *line)
{
	int r = system(line);

	return r == 0;
}

bool fs_reopen(struct fs *f)
{
	struct fail why;

	pool_close(f->p);
	f->p = NULL;
	if (!CHECK_INT(pool_open(f->state, f->kind == FS_XFS, 0, &f->p, &why), 0)) {
		fprintf(stderr, "%s\n", why.msg);
		return false;
	}
	return true;
}

bool fs_begin(struct fs *f, enum fs_kind kind, uint64_t mib)
{
	static const enum pool_clone clone[] = { POOL_CLONE_XFS_IMAGE, POOL_CLONE_NATIVE, POOL_CLONE_COPY };
	char line[400];
	struct fail why = { 0 };
	int r;

	*f = (struct fs){ .kind = kind };
	test_row("%s", fs_names[kind]);
	if (geteuid() || access("/dev/loop-control", R_OK | W_OK)) {
		test_skip("needs root and loop devices");
		return false;
	}
	snprintf(f->dir, sizeof(f->dir), "/tmp/test-image-XXXXXX");
	assert(mkdtemp(f->dir));
	snprintf(f->state, sizeof(f->state), "%s/%s", f->dir, kind == FS_XFS ? "state" : "mnt/state");
	if (kind != FS_XFS) {
		snprintf(line, sizeof(line), "cd %s && truncate -s %lluM img && mkfs.%s -q img >/dev/null 2>&1 && mkdir mnt && mount -o loop img mnt",
			f->dir, (unsigned long long)mib, fs_names[kind]);
		if (!sh(line)) {
			snprintf(line, sizeof(line), "cannot make or mount a %s here", fs_names[kind]);
			test_skip(line);
			fs_end(f);
			return false;
		}
	}
	r = pool_open(f->state, kind == FS_XFS, mib * MIB, &f->p, &why);
	if (r == 0 && kind == FS_XFS && f->p->clone == POOL_CLONE_NATIVE) {
		f->kind = FS_BTRFS; /* the host's own file system clones: then that is what is tested */
	} else if (!CHECK_INT(r, 0) || !CHECK_INT(f->p->clone, clone[kind])) {
		fprintf(stderr, "%s\n", why.msg);
		fs_end(f);
		return false;
	}
	return true;
}

void fs_end(struct fs *f)
{
	char path[100];

	pool_close(f->p);
	f->p = NULL;
	CHECK_INT(pool_unmount(f->state, NULL), 0);
	snprintf(path, sizeof(path), "%s/mnt", f->dir);
	for (int i = 0; i < 100 && umount2(path, UMOUNT_NOFOLLOW) && errno == EBUSY; i++)
		usleep(20000);
	CHECK_INT(rm_rf(AT_FDCWD, f->dir), 0);
	test_row(NULL);
}

uint64_t fs_free(const struct fs *f)
{
	struct statvfs v;
	uint64_t last = 0, now;

	/* Freed extents come back in the background. */
	for (int i = 0; i < 100; i++) {
		(void)syncfs(f->p->fd);
		if (fstatvfs(f->p->fd, &v))
			return 0;
		now = (uint64_t)v.f_bfree * v.f_frsize;
		if (i > 2 && now == last)
			break;
		last = now;
		usleep(30000);
	}
	return now;
}
