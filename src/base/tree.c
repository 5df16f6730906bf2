/* tree.c - whole copies of a file, and the removal of a whole tree; see file.h. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "base/fault.h"
#include "base/file.h"

int file_clone(int dst_fd, int src_fd)
{
	if (FAULT(ioctl(dst_fd, FICLONE, src_fd)) == 0)
		return 0;
	return errno == ENOTTY || errno == EINVAL ? -EOPNOTSUPP : -errno;
}

/* One run of data. copy_file_range() leaves the work to the kernel where it can. */
static int copy_run(int dst, int src, off_t at, off_t end)
{
	autofree char *buf = NULL;
	const size_t size = 1 << 20;

	while (at < end) {
		off_t in = at, out = at;
		ssize_t r = FAULT(copy_file_range(src, &in, dst, &out, (size_t)(end - at), 0));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP &&
			errno != ENOSYS)
			return -errno;
		if (r <= 0)
			break;
		at += r;
	}
	if (at >= end)
		return 0;
	buf = malloc(size);
	if (!buf)
		return -ENOMEM;
	while (at < end) {
		ssize_t got = pread(src, buf, MIN(size, (size_t)(end - at)), at);
		int r;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EPIPE;
		r = FAULT_OURS(pwrite_all(dst, buf, (size_t)got, at));
		if (r < 0)
			return r;
		at += got;
	}
	return 0;
}

int file_copy_sparse(int dst_fd, int src_fd)
{
	struct stat st;
	off_t at = 0;

	if (fstat(src_fd, &st) < 0 || FAULT(ftruncate(dst_fd, 0)) < 0 || FAULT(ftruncate(dst_fd, st.st_size)) < 0)
		return -errno;
	while (at < st.st_size) {
		off_t data = lseek(src_fd, at, SEEK_DATA), hole;
		int r;

		if (data < 0 && errno == ENXIO)
			break; /* only a hole is left */
		if (data < 0 && errno != EINVAL)
			return -errno;
		if (data < 0)
			data = at; /* a file system that does not know holes */
		hole = lseek(src_fd, data, SEEK_HOLE);
		if (hole < 0 || hole > st.st_size)
			hole = st.st_size;
		r = copy_run(dst_fd, src_fd, data, hole);
		if (r < 0)
			return r;
		at = hole;
	}
	return 0;
}

int file_dup(int dst_fd, int src_fd, bool *cloned)
{
	int r = FAULT_OURS(file_clone(dst_fd, src_fd));

	*cloned = r == 0;
	if (r == -EOPNOTSUPP || r == -EXDEV)
		r = FAULT_OURS(file_copy_sparse(dst_fd, src_fd));
	return r;
}

/* rm_rf() goes down at most this far at once. What lies deeper is renamed up to the top and taken
 * from there, so that neither descriptors nor stack grow with the depth of a tree that somebody
 * else made. */
#define RM_DEPTH 24

struct rm {
	int top;	/* the directory that is being emptied */
	uint64_t mount; /* its mount: nothing on another one is touched */
	unsigned moved; /* directories renamed into it since it was last read */
	uint64_t serial;
};

static int mount_of(int fd, const char *path, uint64_t *mount, bool *is_root)
{
	struct statx sx;

	if (statx(fd, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		    STATX_MNT_ID | STATX_TYPE, &sx) < 0)
		return -errno;
	*mount = sx.stx_mnt_id;
	*is_root = sx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
	return 0;
}

static int open_for_removal(int dir, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags);

	if (fd < 0 && errno == EACCES && FAULT(fchmodat(dir, name, 0700, 0)) == 0)
		fd = openat(dir, name, flags);
	return fd < 0 ? -errno : fd;
}

static int move_up(struct rm *rm, int dir, const char *name)
{
	char to[40];

	for (;;) {
		snprintf(to, sizeof(to), ".rm-%llu", (unsigned long long)rm->serial++);
		if (FAULT(renameat2(dir, name, rm->top, to, RENAME_NOREPLACE)) == 0) {
			rm->moved++;
			return 0;
		}
		if (errno != EEXIST)
			return -errno;
	}
}

static int empty_dir(struct rm *rm, int fd, unsigned depth);

static int remove_entry(struct rm *rm, int dir, const char *name, unsigned depth)
{
	autoclose int fd = -1;
	uint64_t mount = 0;
	bool is_root = false;
	int r;

	if (FAULT(unlinkat(dir, name, 0)) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (FAULT(unlinkat(dir, name, AT_REMOVEDIR)) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	fd = open_for_removal(dir, name);
	if (fd < 0)
		return fd;
	r = mount_of(fd, "", &mount, &is_root);
	if (r < 0)
		return r;
	if (mount != rm->mount)
		return -EXDEV;
	if (depth >= RM_DEPTH)
		return move_up(rm, dir, name);
	r = empty_dir(rm, fd, depth + 1);
	if (r < 0)
		return r;
	return FAULT(unlinkat(dir, name, AT_REMOVEDIR)) < 0 ? -errno : 0;
}

static int empty_dir(struct rm *rm, int fd, unsigned depth)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), r = 0;
	DIR *d;

	if (copy < 0)
		return -errno;
	d = fdopendir(copy);
	if (!d) {
		close(copy);
		return -ENOMEM;
	}
	for (;;) {
		struct dirent *e;

		errno = 0;
		e = readdir(d);
		if (!e) {
			r = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		r = remove_entry(rm, fd, e->d_name, depth);
		if (r < 0)
			break;
	}
	closedir(d);
	return r;
}

int rm_rf(int dirfd, const char *path)
{
	autoclose int top = -1;
	struct rm rm = { 0 };
	bool is_root = false;
	int r;

	if (FAULT(unlinkat(dirfd, path, 0)) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	top = open_for_removal(dirfd, path);
	if (top < 0)
		return top;
	r = mount_of(top, "", &rm.mount, &is_root);
	if (r < 0)
		return r;
	if (is_root)
		return -EBUSY;
	rm.top = top;
	do {
		rm.moved = 0;
		lseek(top, 0, SEEK_SET);
		r = empty_dir(&rm, top, 0);
		if (r < 0)
			return r;
	} while (rm.moved);
	return FAULT(unlinkat(dirfd, path, AT_REMOVEDIR)) < 0 ? -errno : 0;
}
