/* pool.c - see image.h and pool.h. */
#include "image/pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "base/fault.h"
#include "base/random.h"
#include "image/publish.h"
#include "image/xfs.h"

/* clang-format off */
static const char *const folders[] = {
	"kernels", "initrds", "images", "names", "names/images", "names/initrds", "names/kernels",
	"nodes", "sandboxes", "disks", "tmp",
};
/* clang-format on */

int pool_fail(struct fail *f, int err, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (err == -ENOSPC || err == -EDQUOT)
		return fail_as(f, ERR_no_space, "%s: the storage pool is full", text);
	if (err == -ENOMEM)
		return fail_set(f, err, "%s: out of memory", text);
	fail_as(f, ERR_internal, "%s: %s", text, strerror(-err));
	if (f)
		f->err = err;
	return err;
}

/* --- making it --- */

/* Can files of this directory be cloned? Tried, because what a file system's name promises depends
 * on how it was made. */
static bool can_clone(int dirfd)
{
	static const char src[] = ".clone-from", dst[] = ".clone-to";
	autoclose int a =
		FAULT(openat(dirfd, src, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
	autoclose int b =
		FAULT(openat(dirfd, dst, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
	char block[4096];
	bool ok;

	memset(block, 'x', sizeof(block));
	ok = a >= 0 && b >= 0 && !FAULT_OURS(write_all(a, block, sizeof(block))) && !FAULT_OURS(file_clone(b, a));
	FAULT(unlinkat(dirfd, src, 0));
	FAULT(unlinkat(dirfd, dst, 0));
	return ok;
}

#define FIRST_SIZE (6 * GIB) /* of an image that grows; at most 60 % of what is free */
#define ROOM_LOW (3 * GIB)   /* it grows when less is free in it */
#define ROOM_STEP (4 * GIB)  /* by this much, or by half of what the host can spare */
#define HOST_KEEP (2 * GIB)  /* never taken from the host */

static uint64_t fs_free(int fd)
{
	struct statvfs v;

	return fstatvfs(fd, &v) ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
}

static uint64_t default_size(int state_fd)
{
	return MIN(FIRST_SIZE, fs_free(state_fd) / 10 * 6);
}

/* May this host not mount at all (a container without the right, a kernel without XFS)? Then copies
 * are the answer, not an error. */
static bool mount_forbidden(int err)
{
	return err == -EPERM || err == -EACCES || err == -ENODEV || err == -ENOENT || err == -ENXIO;
}

/* Mounts the XFS image at STATE/pool, making it first. -EOPNOTSUPP: this host has to copy. A tool
 * that is missing, or room, is no such reason: a pool that copies once copies for ever. */
static int use_xfs_image(
	int state_fd, const char *state_dir, const char *path, uint64_t size, struct fail *why)
{
	bool existed = xfs_image_exists(state_fd);
	int loop, r;

	r = xfs_image_make(state_fd, state_dir, size ? size : default_size(state_fd), why);
	if (r < 0)
		return r;
	r = xfs_image_mount(state_fd, path, why);
	if (r < 0 && !existed && mount_forbidden(r)) {
		FAULT(unlinkat(state_fd, XFS_IMAGE, 0));
		return -EOPNOTSUPP;
	}
	if (r < 0)
		return r;
	if (!xfs_is_mounted(path, &loop))
		return fail_as(
			why, ERR_internal, "storage pool: the mount at %s is not there", path);
	return 0;
}

/* A pool that cannot become as large as it should is still a pool; pool_info() tells its size. */
static void grow(int state_fd, const char *path, uint64_t size)
{
	if (size)
		(void)xfs_image_grow(state_fd, path, size, NULL);
}

/* Finds or makes the file system at STATE/pool; *clone says which kind. The caller holds the pool's
 * lock. */
static int settle(int state_fd, const char *state_dir, const char *path, bool may_mount,
	uint64_t size, enum pool_clone *clone, struct fail *why)
{
	autoclose int fd = -1;
	bool existed = xfs_image_exists(state_fd), used, native;
	int loop, r;

	if (existed && xfs_is_mounted(path, &loop) && loop >= 0) {
		*clone = POOL_CLONE_XFS_IMAGE;
		grow(state_fd, path, size);
		return 0;
	}
	fd = dir_open(AT_FDCWD, path);
	if (fd < 0)
		return pool_fail(why, fd, "%s", path);
	native = can_clone(fd);
	used = !faccessat(fd, "images", F_OK,
		0); /* a pool lives on the host's own file system already: do not mount over it */
	*clone = native ? POOL_CLONE_NATIVE : POOL_CLONE_COPY;
	if (!existed && (native || used || !may_mount))
		return 0;
	if (!may_mount)
		return fail_as(
			why, ERR_host_unsuitable, "the storage pool is not mounted at %s", path);
	r = use_xfs_image(state_fd, state_dir, path, size, why);
	if (r == 0) {
		*clone = POOL_CLONE_XFS_IMAGE;
		grow(state_fd, path, size);
		return 0;
	}
	if (r != -EOPNOTSUPP)
		return r;
	if (why)
		memset(why, 0, sizeof(*why)); /* *clone says that we copy */
	return 0;
}

static int make_folders(int fd, struct fail *why)
{
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (FAULT(mkdirat(fd, folders[i], 0700)) && errno != EEXIST)
			return pool_fail(why, -errno, "pool/%s", folders[i]);
	return 0;
}

/* Held by nobody any more? The process may be gone and a child of its, between fork and exec, have
 * its descriptors for a moment longer. */
static bool lock_is_free(int fd, const char *name)
{
	for (int tries = 0; FAULT(flock(fd, LOCK_EX | LOCK_NB)); tries++) {
		if (tries == 20 || !kill(atoi(name), 0) || errno != ESRCH)
			return false;
		usleep(10000);
	}
	return true;
}

/* NAME is a work directory, or its lock: one that was alone when its process died has to go as well. */
static void sweep_one(struct pool *p, int tmpfd, const char *name)
{
	bool is_lock = str_ends(str_of(name), ".lock");
	char dir[300], lock[310];
	autoclose int lfd = -1;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return;
	snprintf(dir, sizeof(dir), "%.*s", (int)strlen(name) - (is_lock ? 5 : 0), name);
	if (is_lock && !faccessat(tmpfd, dir, F_OK, AT_SYMLINK_NOFOLLOW))
		return; /* it goes with its directory */
	snprintf(lock, sizeof(lock), "%s.lock", dir);
	lfd = openat(tmpfd, lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (lfd >= 0 && !lock_is_free(lfd, dir))
		return; /* alive */
	if (!is_lock)
		publish_undo(p, tmpfd, dir);
	if (is_lock || !FAULT_OURS(rm_rf(tmpfd, dir)))
		FAULT(unlinkat(tmpfd, lock, 0));
}

/* Removes the work directories of processes that are gone. The caller holds the pool's lock, so
 * that none is being made. */
static void sweep(struct pool *p, int tmpfd)
{
	int fd = openat(tmpfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)))
		sweep_one(p, tmpfd, e->d_name);
	closedir(d);
}

static int own_tmp(struct pool *p, struct fail *why)
{
	autoclose int all = dir_open(p->fd, "tmp");
	char name[POOL_TMPNAME], lock[POOL_TMPNAME + 8], prefix[24];

	if (all < 0)
		return pool_fail(why, all, "pool/tmp");
	sweep(p, all);
	snprintf(prefix, sizeof(prefix), "%d-", (int)getpid());
	pool_tmpname(name, prefix);
	snprintf(lock, sizeof(lock), "%s.lock", name);
	p->lockfd = FAULT(openat(all, lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	if (p->lockfd < 0 || FAULT(flock(p->lockfd, LOCK_EX | LOCK_NB)))
		return pool_fail(why, -errno, "pool/tmp/%s", lock);
	if (FAULT(mkdirat(all, name, 0700)))
		return pool_fail(why, -errno, "pool/tmp/%s", name);
	p->tmpfd = dir_open(all, name);
	if (p->tmpfd < 0)
		return pool_fail(why, p->tmpfd, "pool/tmp/%s", name);
	snprintf(p->tmp, sizeof(p->tmp), "%s/tmp/%s", p->path, name);
	return 0;
}

/* STATE/pool.lock: one process at a time makes, mounts, sweeps or unmounts. */
static int lock_state(int state_fd, struct fail *why)
{
	int fd = FAULT(openat(state_fd, "pool.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));

	if (fd < 0)
		return pool_fail(why, -errno, "pool.lock");
	while (FAULT(flock(fd, LOCK_EX)))
		if (errno != EINTR) {
			int r = pool_fail(why, -errno, "pool.lock");

			close(fd);
			return r;
		}
	return fd;
}

int pool_open(
	const char *state_dir, bool may_mount, uint64_t size, struct pool **out, struct fail *why)
{
	autoclose int state_fd = -1, lock = -1;
	autofree char *real = NULL;
	struct pool *p;
	int r;

	r = FAULT_OURS(mkdir_p(state_dir, 0755));
	if (r < 0)
		return pool_fail(why, r, "%s", state_dir);
	real = realpath(state_dir, NULL);
	state_fd = real ? dir_open(AT_FDCWD, real) : -errno;
	if (state_fd < 0)
		return pool_fail(why, state_fd, "%s", state_dir);
	p = calloc(1, sizeof(*p));
	if (!p)
		return fail_set(why, -ENOMEM, "storage pool: out of memory");
	p->fd = p->tmpfd = p->lockfd = -1;
	if ((size_t)snprintf(p->path, sizeof(p->path), "%s/pool", real) >= sizeof(p->path) - 64) {
		r = fail_set(why, -ENAMETOOLONG, "%s: too long", state_dir);
		goto fail;
	}
	lock = lock_state(state_fd, why);
	if (lock < 0) {
		r = lock;
		goto fail;
	}
	if (FAULT(mkdirat(state_fd, "pool", 0700)) && errno != EEXIST) {
		r = pool_fail(why, -errno, "%s", p->path);
		goto fail;
	}
	r = settle(state_fd, real, p->path, may_mount, size, &p->clone, why);
	if (r < 0)
		goto fail;
	p->fd = dir_open(state_fd, "pool");
	if (p->fd < 0) {
		r = pool_fail(why, p->fd, "%s", p->path);
		goto fail;
	}
	r = make_folders(p->fd, why);
	if (!r)
		r = own_tmp(p, why);
	if (r < 0)
		goto fail;
	*out = p;
	return 0;
fail:
	pool_close(p);
	return r;
}

void pool_close(struct pool *p)
{
	char *name;

	if (!p)
		return;
	if (p->tmpfd >= 0) {
		autoclose int all = dir_open(p->fd, "tmp");
		char lock[POOL_TMPNAME + 8];

		close(p->tmpfd);
		name = strrchr(p->tmp, '/');
		if (all >= 0 && name && !FAULT_OURS(rm_rf(all, name + 1))) {
			snprintf(lock, sizeof(lock), "%.*s.lock", POOL_TMPNAME, name + 1);
			FAULT(unlinkat(all, lock, 0));
		}
	}
	if (p->lockfd >= 0)
		close(p->lockfd);
	if (p->fd >= 0)
		close(p->fd);
	free(p);
}

/* Waits for the loop device to let go of the image: autoclear happens a moment after the unmount
 * returns. */
static void loop_settle(int loop)
{
	char path[64];

	if (loop < 0)
		return;
	snprintf(path, sizeof(path), "/sys/block/loop%d/loop/backing_file", loop);
	for (int i = 0; i < 100 && !access(path, F_OK); i++)
		usleep(20000);
}

int pool_unmount(const char *state_dir, struct fail *why)
{
	autofree char *real = realpath(state_dir, NULL);
	autoclose int state_fd = real ? dir_open(AT_FDCWD, real) : -1;
	autoclose int lock = -1;
	char path[4200];
	int loop, tries = 0;

	if (state_fd < 0)
		return 0;
	if (!xfs_image_exists(state_fd))
		return 0;
	lock = lock_state(state_fd, why);
	if (lock < 0)
		return lock;
	snprintf(path, sizeof(path), "%s/pool", real);
	while (xfs_is_mounted(path, &loop)) {
		if (!FAULT(umount2(path, UMOUNT_NOFOLLOW))) {
			loop_settle(loop);
			continue;
		}
		if (errno != EBUSY || ++tries > 60) {
			int err = -errno;

			fail_set(why, err, "unmounting %s: %s", path, strerror(-err));
			fail_remedy(
				why, "end what uses it (spaced, sandboxes): fuser -vm %s", path);
			return err;
		}
		usleep(50000);
	}
	return 0;
}

int pool_info(struct pool *p, struct pool_info *out, struct fail *why)
{
	struct statvfs v;

	if (fstatvfs(p->fd, &v))
		return pool_fail(why, -errno, "%s", p->path);
	out->clone = p->clone;
	out->bytes_total = (uint64_t)v.f_blocks * v.f_frsize;
	out->bytes_free = (uint64_t)v.f_bavail * v.f_frsize;
	return 0;
}

int pool_keep_room(struct pool *p, uint64_t *free, struct fail *why)
{
	char state[sizeof(p->path)];
	autoclose int state_fd = -1, lock = -1;
	uint64_t host;
	struct stat st;
	int r = 0;

	*free = fs_free(p->fd);
	if (p->clone != POOL_CLONE_XFS_IMAGE || *free >= ROOM_LOW)
		return 0;
	snprintf(state, sizeof(state), "%s", p->path);
	*strrchr(state, '/') = '\0';
	state_fd = dir_open(AT_FDCWD, state);
	if (state_fd < 0 || fstatat(state_fd, XFS_IMAGE, &st, AT_SYMLINK_NOFOLLOW))
		return pool_fail(why, -errno, "%s", state);
	host = fs_free(state_fd);
	if (host <= HOST_KEEP + 256 * MIB)
		return fail_as(why, ERR_no_space, "storage pool: %llu MiB are free in it, and the host has no more to give",
			(unsigned long long)(*free / MIB));
	lock = lock_state(state_fd, why);
	if (lock < 0)
		return lock;
	r = xfs_image_grow(state_fd, p->path, (uint64_t)st.st_size + MIN(ROOM_STEP, (host - HOST_KEEP) / 2), why);
	*free = fs_free(p->fd);
	return r;
}

int pool_dirfd(const struct pool *p)
{
	return p->fd;
}

/* --- what the rest of the room works with --- */

void pool_tmpname(char out[POOL_TMPNAME], const char *prefix)
{
	uint8_t b[8];
	char hex[17];

	random_bytes(b, sizeof(b));
	hex_encode(hex, b, sizeof(b));
	snprintf(out, POOL_TMPNAME, "%.24s%s", prefix, hex);
}

int pool_tmpfile(struct pool *p, const char *prefix, char name[POOL_TMPNAME], struct fail *why)
{
	int fd;

	pool_tmpname(name, prefix);
	fd = FAULT(openat(p->tmpfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	return fd < 0 ? pool_fail(why, -errno, "pool/tmp/%s", name) : fd;
}

int pool_anon(struct pool *p, mode_t mode, struct fail *why)
{
	char name[POOL_TMPNAME];
	int fd = FAULT(openat(p->tmpfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode));

	if (fd >= 0)
		return fd;
	fd = pool_tmpfile(p, "anon-", name, why);
	if (fd >= 0)
		FAULT(unlinkat(p->tmpfd, name, 0));
	return fd;
}

void pool_spare_blocks(int fd, bool spare)
{
	struct fsxattr x;

	if (FAULT(ioctl(fd, FS_IOC_FSGETXATTR, &x)) || !(x.fsx_xflags & FS_XFLAG_COWEXTSIZE) == spare)
		return;
	x.fsx_xflags ^= FS_XFLAG_COWEXTSIZE;
	x.fsx_cowextsize = spare ? 0 : 4096;
	(void)FAULT(ioctl(fd, FS_IOC_FSSETXATTR, &x));
}

int pool_publish(
	struct pool *p, const char *name, const char *dir, const char *file, struct fail *why)
{
	autoclose int fd = openat(p->tmpfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	autoclose int dfd = dir_open(p->fd, dir);

	if (fd < 0 || dfd < 0)
		return pool_fail(why, fd < 0 ? -errno : dfd, "pool/%s/%s", dir, file);
	if (FAULT(fsync(fd)) || FAULT(renameat(p->tmpfd, name, dfd, file)) || FAULT(fsync(dfd)))
		return pool_fail(why, -errno, "pool/%s/%s", dir, file);
	return 0;
}

int pool_name_read(struct pool *p, const char *kind, const char *name, char *value, size_t size)
{
	autofree char *text = NULL;
	char path[192];
	ssize_t n;

	snprintf(path, sizeof(path), "names/%.32s/%.128s", kind, name);
	n = file_read(p->fd, path, &text, 4096);
	if (n < 0)
		return (int)n;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	return str_copy(value, size, (struct str){ text, (size_t)n });
}

int pool_name_write(
	struct pool *p, const char *kind, const char *name, const char *value, struct fail *why)
{
	char path[192], line[300];
	int n = snprintf(line, sizeof(line), "%.256s\n", value), r;

	snprintf(path, sizeof(path), "names/%.32s/%.128s", kind, name);
	r = FAULT_OURS(file_write_atomic(p->fd, path, line, (size_t)n, 0600));
	return r < 0 ? pool_fail(why, r, "pool/%s", path) : 0;
}

int pool_name_remove(struct pool *p, const char *kind, const char *name)
{
	char path[192];

	snprintf(path, sizeof(path), "names/%.32s/%.128s", kind, name);
	return FAULT(unlinkat(p->fd, path, 0)) && errno != ENOENT ? -errno : 0;
}
