/* disk.c - the sandboxes' own disks: empty ones made once per size, then cloned.
 *
 * disks/SIZE.ext4 is the empty file system of that size: sparse, with its inode tables marked as
 * zeroed, so that no guest spends its first minutes writing zeros into them. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/random.h"
#include "image/pool.h"
#include "image/tool.h"

#define DISK_MIN (16 * MIB)
#define DISK_MAX (64ULL * 1024 * GIB)

/* mkfs reserves the blocks of the inode tables without writing them; given back, they read as the
 * same zeros and cost nothing. */
static int give_back_holes(int fd)
{
	struct stat st;
	off_t at = 0;

	if (FAULT(fsync(fd)) || fstat(fd, &st))
		return -errno;
	while (at < st.st_size) {
		off_t hole = lseek(fd, at, SEEK_HOLE), data;

		if (hole < 0 || hole >= st.st_size)
			break;
		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0)
			data = st.st_size;
		if (FAULT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole, data - hole)))
			return errno == EOPNOTSUPP ? 0 : -errno;
		at = data;
	}
	return 0;
}

static int make_empty(struct pool *p, uint64_t size, const char *file, struct fail *why)
{
	char name[POOL_TMPNAME], path[4400];
	const char *const argv[] = { "mkfs.ext4", "-F", "-q", "-m", "0", "-L", "space", "-E",
		"nodiscard,lazy_itable_init=0,lazy_journal_init=1,root_owner=0:0", path, NULL };
	const struct tool t = { .argv = argv, .package = "e2fsprogs", .timeout_s = 120 };
	autoclose int fd = pool_tmpfile(p, "ext4-", name, why);
	int r;

	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "%s/%s", p->tmp, name);
	r = FAULT(ftruncate(fd, (off_t)size)) ? pool_fail(why, -errno, "making a disk")
				       : FAULT_WHY(why, tool_run(&t, why));
	if (!r) {
		r = give_back_holes(fd);
		if (r < 0)
			pool_fail(why, r, "making a disk");
	}
	if (!r)
		r = FAULT_WHY(why, pool_publish(p, name, "disks", file, why));
	if (r < 0)
		FAULT(unlinkat(p->tmpfd, name, 0));
	return r;
}

int disk_make(struct pool *p, uint64_t size, struct fail *why)
{
	autoclose int src = -1, dst = -1;
	char file[40], path[64];
	bool cloned;
	int r;

	size = (size + 4095) & ~4095ULL;
	if (size < DISK_MIN || size > DISK_MAX)
		return fail_as(why, ERR_bad_request, "disk: from %llu MiB to %llu TiB",
			DISK_MIN / MIB, DISK_MAX / GIB / 1024);
	snprintf(file, sizeof(file), "%llu.ext4", (unsigned long long)size);
	snprintf(path, sizeof(path), "disks/%s", file);
	src = openat(p->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (src < 0) {
		r = make_empty(p, size, file, why);
		if (r < 0)
			return r;
		src = openat(p->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (src < 0)
			return pool_fail(why, -errno, "pool/%s", path);
	}
	dst = pool_anon(p, 0600, why);
	if (dst < 0)
		return dst;
	r = FAULT_OURS(file_dup(dst, src, &cloned));
	return r < 0 ? pool_fail(why, r, "making a disk") : steal_fd(&dst);
}

/* sandboxes/ID/, made if absent. */
static int sandbox_dir(struct pool *p, const char *id, struct fail *why)
{
	char path[64];
	int fd;

	if (!id_valid(str_of(id), 'i'))
		return fail_as(why, ERR_bad_request, "not an id of a sandbox");
	snprintf(path, sizeof(path), "sandboxes/%s", id);
	if (FAULT(mkdirat(p->fd, path, 0711)) && errno != EEXIST)
		return pool_fail(why, -errno, "pool/%s", path);
	fd = dir_open(p->fd, path);
	return fd < 0 ? pool_fail(why, fd, "pool/%s", path) : fd;
}

static int fill(int dst, int src, uid_t uid, uint64_t size, bool *cloned)
{
	struct stat st;
	int r;

	r = FAULT_OURS(file_dup(dst, src, cloned));
	if (r < 0)
		return r;
	pool_spare_blocks(dst, true); /* the node's own copy is without */
	if (fstat(dst, &st))
		return -errno;
	if (size > (uint64_t)st.st_size && FAULT(ftruncate(dst, (off_t)size)))
		return -errno;
	return FAULT(fchown(dst, uid, uid)) ? -errno : 0;
}

int disk_clone(struct pool *p, const char *sandbox_id, int src_fd, uid_t uid, uint64_t size,
	bool *cloned, struct fail *why)
{
	autoclose int dir = -1, dst = -1;
	char name[POOL_TMPNAME];
	bool native = false;
	int r;

	if (size > DISK_MAX)
		return fail_as(
			why, ERR_bad_request, "disk: at most %llu TiB", DISK_MAX / GIB / 1024);
	dir = sandbox_dir(p, sandbox_id, why);
	if (dir < 0)
		return dir;
	dst = pool_tmpfile(p, "disk-", name, why);
	if (dst < 0)
		r = dst;
	else if ((r = fill(dst, src_fd, uid, size, &native)) < 0)
		pool_fail(why, r, "the disk of sandbox %s", sandbox_id);
	else if (FAULT(renameat(p->tmpfd, name, dir, "disk")))
		r = pool_fail(why, -errno, "the disk of sandbox %s", sandbox_id);
	if (r < 0) {
		char path[64];

		if (dst >= 0)
			FAULT(unlinkat(p->tmpfd, name, 0));
		snprintf(path, sizeof(path), "sandboxes/%s", sandbox_id);
		FAULT(unlinkat(p->fd, path, AT_REMOVEDIR)); /* stays if it holds an earlier disk */
		return r;
	}
	if (cloned)
		*cloned = native;
	return steal_fd(&dst);
}

int disk_remove(struct pool *p, const char *sandbox_id, struct fail *why)
{
	autoclose int all = dir_open(p->fd, "sandboxes");
	int r;

	if (!id_valid(str_of(sandbox_id), 'i'))
		return fail_as(why, ERR_bad_request, "not an id of a sandbox");
	r = all < 0 ? all : FAULT_OURS(rm_rf(all, sandbox_id));
	return r < 0 ? pool_fail(why, r, "removing the disk of sandbox %s", sandbox_id) : 0;
}

int disk_list(struct pool *p, char (**ids)[24], size_t *n, struct fail *why)
{
	int fd = dir_open(p->fd, "sandboxes"), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char(*list)[24] = NULL;
	size_t have = 0, room = 0;
	struct dirent *e;

	if (!d) {
		r = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return pool_fail(why, r, "pool/sandboxes");
	}
	while ((e = readdir(d))) {
		if (!id_valid(str_of(e->d_name), 'i'))
			continue;
		if (have == room) {
			char(*more)[24] = reallocarray(list, room ? room * 2 : 32, sizeof(*list));

			if (!more) {
				r = fail_set(why, -ENOMEM, "listing disks: out of memory");
				break;
			}
			list = more;
			room = room ? room * 2 : 32;
		}
		snprintf(list[have++], sizeof(*list), "%.23s", e->d_name);
	}
	closedir(d);
	if (r < 0) {
		free(list);
		return r;
	}
	*ids = list;
	*n = have;
	return 0;
}
