/* rewrite.c - files in very many pieces are put together again, while they are used.
 *
 * A clone (FICLONE) takes 8 ms for every 1,000 extents, and that of a running sandbox's disk is made while its guest stands still. Guests that write
 * here and there leave one extent for each block that they wrote since the last clone: measured with 20,000 scattered blocks in 160 MiB, 40,001
 * extents and 338 ms a clone; after rewriting (1.1 s), 1 extent and less than 0.1 ms.
 *
 * Only the MiBs that are in pieces are copied, into a clone of the file, so that the rest goes on sharing its blocks with the nodes. Then the two
 * files exchange what they hold. XFS does that in one step if nothing was written to the file since (it compares the file's times), also while a
 * monitor has it open; btrfs defragments in place. Elsewhere there are no clones, and so no need. */
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/random.h"
#include "image/extents.h"
#include "image/pool.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

#define WINDOW MIB
#define PIECES 8		    /* in one window: more are put together */
#define QUIET_NS (2 * NS_PER_S)	    /* times of files are as coarse as some ms: a later write than this has another one */
#define ROOM_LEAST (512 * MIB)	    /* what it leaves in the pool */

/* --- exchanging, as XFS has it (its headers are not among the kernel's) --- */

struct xfs_time {
	long sec;
	int32_t nsec;
};

struct xfs_stat {
	uint64_t ino;
	uint16_t mode, nlink;
	uint32_t uid, gid, rdev;
	int32_t blksize;
	int64_t size;
	struct xfs_time atime, mtime, ctime;
	int64_t blocks;
	uint32_t xflags;
	int32_t extsize, extents;
	uint32_t gen;
	uint16_t projid_lo, forkoff, projid_hi, sick, checked;
	uint8_t pad[2];
	uint32_t cowextsize, dmevmask;
	uint16_t dmstate, aextents;
};

struct xfs_exchange {
	int64_t version, target, tmp, offset, length;
	char pad[16];
	struct xfs_stat stat; /* of the target, before it was read: its size and times are compared */
};

static_assert(sizeof(struct xfs_exchange) == 192, "the kernel's layout");

#define XFS_IOC_EXCHANGE _IOWR('X', 109, struct xfs_exchange)

static int exchange(int fd, int tmp, const struct stat *st)
{
	struct xfs_exchange x = { .target = fd,
		.tmp = tmp,
		.length = st->st_size,
		.stat = { .size = st->st_size,
			.mtime = { st->st_mtim.tv_sec, (int32_t)st->st_mtim.tv_nsec },
			.ctime = { st->st_ctim.tv_sec, (int32_t)st->st_ctim.tv_nsec } } };

	if (!FAULT(ioctl(fd, XFS_IOC_EXCHANGE, &x)))
		return 0;
	return errno == ENOTTY || errno == EINVAL ? -EOPNOTSUPP : -errno;
}

/* --- windows in pieces --- */

typedef int window_fn(uint64_t at, uint64_t len, void *arg);

/* Calls FN with each window of FD in which more than PIECES extents follow upon each other. */
static int windows_each(int fd, window_fn *fn, void *arg)
{
	autoextents struct extents *x = extents_open(fd, true);
	uint64_t window = 0, end = 0;
	unsigned pieces = 0;
	struct extent e;
	int r, f = 0;

	if (!x)
		return -ENOMEM;
	while (!f && (r = extents_next(x, &e)) > 0) {
		uint64_t w = e.at / WINDOW;

		if (w != window) {
			if (pieces > PIECES)
				f = fn(window * WINDOW, WINDOW, arg);
			pieces = 0;
		}
		window = w;
		pieces += e.at == end;
		end = e.at + e.len;
	}
	if (f || r < 0)
		return f ? f : r;
	return pieces > PIECES ? fn(window * WINDOW, WINDOW, arg) : 0;
}

static int count_window(uint64_t at, uint64_t len, void *arg)
{
	*(uint64_t *)arg += len;
	return 0;
}

struct copying {
	int from, to;
	uint64_t size;
	uint8_t *buf;
};

/* The data of one window, holes left as they are. */
static int copy_window(uint64_t at, uint64_t len, void *arg)
{
	struct copying *c = arg;
	uint64_t stop = MIN(at + len, c->size);

	while (at < stop) {
		off_t data = lseek(c->from, (off_t)at, SEEK_DATA), hole;
		size_t n;
		int r;

		if (data < 0 && errno != ENXIO)
			return -errno;
		if (data < 0 || (uint64_t)data >= stop)
			return 0;
		hole = lseek(c->from, data, SEEK_HOLE);
		n = (size_t)(MIN(hole < 0 ? stop : (uint64_t)hole, stop) - (uint64_t)data);
		r = pread_all(c->from, c->buf, n, data);
		if (!r)
			r = FAULT_OURS(pwrite_all(c->to, c->buf, n, data));
		if (r < 0)
			return r;
		at = (uint64_t)data + n;
	}
	return 0;
}

/* --- the two ways --- */

static int rewrite_xfs(struct pool *p, int fd, const struct stat *st, struct fail *why)
{
	struct copying c = { .from = fd, .to = pool_anon(p, 0600, why), .size = (uint64_t)st->st_size, .buf = malloc(WINDOW) };
	int r = c.to < 0 ? c.to : c.buf ? FAULT_OURS(file_clone(c.to, fd)) : -ENOMEM;

	if (!r)
		r = windows_each(fd, copy_window, &c);
	if (!r && FAULT(fsync(c.to)))
		r = -errno;
	if (!r)
		r = exchange(fd, c.to, st);
	if (c.to >= 0)
		close(c.to);
	free(c.buf);
	return r;
}

static int defragment(uint64_t at, uint64_t len, void *arg)
{
	struct btrfs_ioctl_defrag_range_args a = { .start = at, .len = len, .flags = BTRFS_DEFRAG_RANGE_START_IO, .extent_thresh = WINDOW };

	return FAULT(ioctl(*(int *)arg, BTRFS_IOC_DEFRAG_RANGE, &a)) ? -errno : 0;
}

/* QUIET: nothing may have been written to it for a while. */
static int rewrite(struct pool *p, int fd, bool quiet, const char *what, struct fail *why)
{
	struct pool_info info;
	struct statfs fs;
	struct stat st;
	uint64_t need = 0;
	int64_t written;
	int r;

	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return pool_fail(why, -errno, "%s", what);
	if (fs.f_type != XFS_SUPER_MAGIC && fs.f_type != BTRFS_SUPER_MAGIC)
		return fail_set(why, -EOPNOTSUPP, "%s: this file system makes no clones", what);
	written = MAX(st.st_mtim.tv_sec, st.st_ctim.tv_sec) * NS_PER_S + NS_PER_S;
	if (quiet && fs.f_type == XFS_SUPER_MAGIC && real_ns() - written < QUIET_NS)
		return fail_as(why, ERR_busy, "%s is being written to", what);
	r = windows_each(fd, count_window, &need);
	if (!r && need)
		r = pool_info(p, &info, why);
	if (!r && need && info.bytes_free < need + ROOM_LEAST)
		r = -ENOSPC;
	if (!r && need)
		r = fs.f_type == XFS_SUPER_MAGIC ? rewrite_xfs(p, fd, &st, why) : windows_each(fd, defragment, &fd);
	if (r == -EBUSY || r == -EFAULT) /* it was written to, or has grown, meanwhile */
		return fail_as(why, ERR_busy, "%s is being written to", what);
	return r < 0 ? pool_fail(why, r, "putting %s together", what) : 0;
}

/* --- sandboxes' disks and nodes' files --- */

static int open_disk(struct pool *p, const char *id, struct fail *why)
{
	char path[64];
	int fd;

	if (!id_valid(str_of(id), 'i'))
		return fail_as(why, ERR_bad_request, "not an id of a sandbox");
	snprintf(path, sizeof(path), "sandboxes/%s/disk", id);
	fd = openat(p->fd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? pool_fail(why, -errno, "the disk of sandbox %s", id) : fd;
}

static int count(int fd, uint64_t *n, const char *what, struct fail *why)
{
	int r = extents_count(fd, n);

	if (r == -EOPNOTSUPP)
		*n = r = 0;
	return r < 0 ? pool_fail(why, r, "%s", what) : 0;
}

int disk_extents(struct pool *p, const char *sandbox_id, uint64_t *n, struct fail *why)
{
	autoclose int fd = open_disk(p, sandbox_id, why);

	return fd < 0 ? fd : count(fd, n, "a sandbox's disk", why);
}

int disk_rewrite(struct pool *p, const char *sandbox_id, struct fail *why)
{
	autoclose int fd = open_disk(p, sandbox_id, why);

	return fd < 0 ? fd : rewrite(p, fd, true, "a sandbox's disk", why);
}

static const char *const cloned[] = { "memory", "disk" };

static int open_file(struct pool *p, const char *id, const char *name, int flags, struct fail *why)
{
	autoclose int dir = node_open(p, id, why);
	int fd;

	if (dir < 0)
		return dir;
	fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno != ENOENT)
		pool_fail(why, -errno, "%s of checkpoint %s", name, id);
	return fd < 0 ? -errno : fd;
}

int node_extents(struct pool *p, const char *id, uint64_t *n, struct fail *why)
{
	autoclose int dir = node_open(p, id, why);
	uint64_t most = 0, one;

	if (dir < 0)
		return dir;
	for (size_t i = 0; i < ARRAY_LEN(cloned); i++) {
		autoclose int fd = open_file(p, id, cloned[i], O_RDONLY, why);
		int r = fd == -ENOENT ? 0 : fd < 0 ? fd : count(fd, &one, "a checkpoint", why);

		if (r < 0)
			return r;
		if (fd >= 0)
			most = MAX(most, one);
	}
	*n = most;
	return 0;
}

int node_rewrite(struct pool *p, const char *id, struct fail *why)
{
	autoclose int dir = node_open(p, id, why);

	if (dir < 0)
		return dir;
	for (size_t i = 0; i < ARRAY_LEN(cloned); i++) {
		autoclose int fd = open_file(p, id, cloned[i], O_RDWR, why);
		uint64_t n = 0;
		int r = fd == -ENOENT ? 0 : fd < 0 ? fd : count(fd, &n, "a checkpoint", why);

		if (!r && n > DISK_EXTENTS_MAX)
			r = rewrite(p, fd, false, "a checkpoint", why);
		if (r < 0)
			return r;
	}
	return 0;
}
