/* xfs.c - see xfs.h. */
#include "image/xfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/fault.h"
#include "base/file.h"
#include "image/pool.h"
#include "image/tool.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#define SECTOR                                                                                     \
	4096 /* of loop device and file system: direct I/O then works on disks of either sector    \
		size */

bool xfs_image_exists(int state_fd)
{
	struct stat st;

	return !fstatat(state_fd, XFS_IMAGE, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode);
}

/* posix_fallocate() would write zeros where the file system cannot allocate ahead; that is not the
 * promise we need. */
static int allocate(int fd, uint64_t size, struct fail *why)
{
	if (!FAULT(fallocate(fd, 0, 0, (off_t)size)))
		return 0;
	if (errno == EOPNOTSUPP || errno == ENOSYS)
		return -EOPNOTSUPP;
	if (errno == ENOSPC || errno == EFBIG)
		return fail_as(why, ERR_no_space, "no room for a storage pool of %llu MiB",
			(unsigned long long)(size / MIB));
	return fail_set(why, -errno, "allocating the storage pool: %s", strerror(errno));
}

int xfs_image_make(int state_fd, const char *state_dir, uint64_t size, struct fail *why)
{
	static const char half[] = XFS_IMAGE ".new";
	char path[4200];
	const char *const argv[] = { "mkfs.xfs", "-q", "-f", "-K", "-s", "size=4096", "-m",
		"reflink=1,crc=1", path, NULL };
	const struct tool t = { .argv = argv, .package = "xfsprogs", .timeout_s = 120 };
	int r;

	if (xfs_image_exists(state_fd))
		return 0;
	size &= ~(MIB - 1);
	if (size < XFS_IMAGE_MIN)
		return fail_as(why, ERR_no_space, "a storage pool needs at least %llu MiB",
			(unsigned long long)(XFS_IMAGE_MIN / MIB));
	snprintf(path, sizeof(path), "%s/%s", state_dir, half);
	if (FAULT(unlinkat(state_fd, half, 0)) && errno != ENOENT)
		return fail_set(why, -errno, "%s: %s", path, strerror(errno));
	{
		autoclose int fd = FAULT(openat(
			state_fd, half, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));

		if (fd < 0)
			return fail_set(why, -errno, "%s: %s", path, strerror(errno));
		r = allocate(fd, size, why);
		if (!r)
			r = FAULT_WHY(why, tool_run(&t, why)); /* -K: a discard would give the blocks back */
		if (!r && FAULT(fsync(fd)))
			r = pool_fail(why, -errno, "storage pool");
	}
	if (!r && FAULT(renameat(state_fd, half, state_fd, XFS_IMAGE)))
		r = pool_fail(why, -errno, "storage pool");
	if (!r && FAULT(fsync(state_fd)))
		r = pool_fail(why, -errno, "storage pool");
	if (r)
		FAULT(unlinkat(state_fd, half, 0));
	return r;
}

/* Opens /dev/loopN; where nobody makes device nodes for us we make one. */
static int loop_open(int n)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/loop%d", n);
	for (int tries = 0; tries < 20; tries++) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (errno != ENOENT && errno != ENXIO)
			return -errno;
		if (errno == ENOENT && tries == 10 &&
			FAULT(mknod(path, S_IFBLK | 0660, makedev(7, (unsigned)n))) && errno != EEXIST)
			return -errno;
		usleep(20000);
	}
	return -ENXIO;
}

/* A loop device over FD that frees itself with its last user: its descriptor, *number says which.
 */
static int loop_attach(int fd, int *number)
{
	autoclose int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	struct loop_config c = { .fd = (unsigned)fd,
		.block_size = SECTOR,
		.info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO } };

	if (ctl < 0)
		return -errno;
	snprintf((char *)c.info.lo_file_name, sizeof(c.info.lo_file_name), "%s", XFS_IMAGE);
	for (int tries = 0; tries < 50; tries++) {
		int n = ioctl(ctl, LOOP_CTL_GET_FREE), dev;

		if (n < 0)
			return -errno;
		dev = loop_open(n);
		if (dev < 0)
			return dev;
		if (!FAULT(ioctl(dev, LOOP_CONFIGURE, &c))) {
			*number = n;
			return dev;
		}
		close(dev);
		if (errno != EBUSY) /* EBUSY: somebody else was given the same one */
			return -errno;
		usleep(10000);
	}
	return -EBUSY;
}

/* Is loop device N one over the file that ST describes? */
static bool loop_is_over(int n, const struct stat *st)
{
	struct loop_info64 i;
	autoclose int dev = -1;
	char path[64];

	snprintf(path, sizeof(path), "/sys/block/loop%d/loop/backing_file", n);
	if (access(path, F_OK))
		return false;
	snprintf(path, sizeof(path), "/dev/loop%d", n);
	dev = open(path, O_RDONLY | O_CLOEXEC);
	return dev >= 0 && !ioctl(dev, LOOP_GET_STATUS64, &i) && i.lo_inode == st->st_ino &&
		i.lo_device == st->st_dev;
}

static int loop_over(const struct stat *st)
{
	DIR *d = opendir("/sys/block");
	struct dirent *e;
	int n, found = -1;

	while (d && found < 0 && (e = readdir(d)))
		if (sscanf(e->d_name, "loop%d", &n) == 1 && loop_is_over(n, st))
			found = n;
	if (d)
		closedir(d);
	return found;
}

/* An XFS that is mounted twice, each time over a loop device of its own, is destroyed. It may be
 * mounted where we do not see it: in another mount namespace, or unmounted lazily while somebody
 * still has a file open. That one is given some time to end. */
static int used_elsewhere(int fd, struct fail *why)
{
	struct stat st;
	int n = -1;

	if (fstat(fd, &st))
		return fail_set(why, -errno, "storage pool: %s", strerror(errno));
	for (int tries = 0; tries < 50; tries++) {
		n = loop_over(&st);
		if (n < 0)
			return 0;
		usleep(100000);
	}
	fail_as(why, ERR_host_unsuitable,
		"storage pool: " XFS_IMAGE " is in use already, through /dev/loop%d", n);
	fail_remedy(why, "it is mounted in another mount namespace, or a program has a file of it "
			 "open: end that");
	return -EBUSY;
}

int xfs_image_mount(int state_fd, const char *mount_point, struct fail *why)
{
	autoclose int fd = openat(state_fd, XFS_IMAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	autoclose int dev = -1;
	char path[32];
	int n = -1;

	if (fd < 0)
		return fail_set(why, -errno, "storage pool: %s", strerror(errno));
	if (used_elsewhere(fd, why) < 0)
		return -EBUSY;
	dev = loop_attach(fd, &n);
	if (dev < 0) {
		int err = dev;

		fail_as(why, ERR_host_unsuitable, "storage pool: no loop device: %s",
			strerror(-err));
		fail_remedy(why, "modprobe loop; a container needs /dev/loop-control and the right "
				 "to mount");
		return err;
	}
	snprintf(path, sizeof(path), "/dev/loop%d", n);
	/* nouuid: a copy of a pool on the same host is a pool too. */
	if (FAULT(mount(path, mount_point, "xfs", MS_NOATIME | MS_NOSUID | MS_NODEV, "nouuid"))) {
		int err = -errno;

		fail_as(why, ERR_host_unsuitable, "mounting the storage pool: %s", strerror(-err));
		if (err == -EUCLEAN || err == -EIO || err == -EINVAL)
			fail_remedy(why, "xfs_repair on the file " XFS_IMAGE
					 " of the state directory; make purge starts anew");
		else
			fail_remedy(why, "a kernel with XFS is needed: modprobe xfs");
		return err;
	}
	return 0;
}

bool xfs_is_mounted(const char *path, int *loop)
{
	struct statfs fs;
	struct stat st, up;
	char parent[4200];

	*loop = -1;
	if ((size_t)snprintf(parent, sizeof(parent), "%s/..", path) >= sizeof(parent))
		return false;
	if (stat(path, &st) || stat(parent, &up) || st.st_dev == up.st_dev)
		return false;
	if (statfs(path, &fs) || fs.f_type != XFS_SUPER_MAGIC)
		return false;
	if (major(st.st_dev) == 7)
		*loop = (int)minor(st.st_dev);
	return true;
}

int xfs_image_grow(int state_fd, const char *mount_point, uint64_t size, struct fail *why)
{
	const char *const argv[] = { "xfs_growfs", "-d", mount_point, NULL };
	const struct tool t = { .argv = argv, .package = "xfsprogs", .timeout_s = 120 };
	autoclose int fd = openat(state_fd, XFS_IMAGE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	autoclose int dev = -1;
	struct stat st;
	int loop, r;

	if (fd < 0 || fstat(fd, &st))
		return fail_set(why, -errno, "storage pool: %s", strerror(errno));
	size &= ~(MIB - 1);
	if (size <= (uint64_t)st.st_size)
		return 0;
	if (!xfs_is_mounted(mount_point, &loop) || loop < 0)
		return fail_set(
			why, -ENOTSUP, "storage pool: %s is not our loop mount", mount_point);
	r = allocate(fd, size, why);
	if (r < 0) {
		/* Gives back what was allocated past the old end; if even that fails it lies idle. */
		(void)!FAULT(ftruncate(fd, st.st_size));
		return r;
	}
	dev = loop_open(loop);
	if (dev < 0 || FAULT(ioctl(dev, LOOP_SET_CAPACITY, 0)))
		return fail_set(why, dev < 0 ? dev : -errno,
			"storage pool: growing the loop device: %s",
			strerror(dev < 0 ? -dev : errno));
	return FAULT_WHY(why, tool_run(&t, why));
}
