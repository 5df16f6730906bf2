/* file.c - see file.h. Copies and removal of trees are in tree.c, digests in sha.c. */
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/random.h"

ssize_t read_all(int fd, char **out, size_t max)
{
	autofree char *p = NULL;
	size_t n = 0, cap = 4096;
	struct stat st;

	/* A byte more than a regular file has, so that its end is met without growing. Elsewhere
	 * st_size says nothing. */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
		cap = (size_t)st.st_size + 2;
	for (;;) {
		char *grown;
		ssize_t got;

		if (cap > max + 2)
			cap = max + 2;
		grown = realloc(p, cap);
		if (!grown)
			return -ENOMEM;
		p = grown;
		while (n < cap - 1) {
			got = read(fd, p + n, cap - 1 - n);
			if (got < 0 && errno == EINTR)
				continue;
			if (got < 0)
				return -errno;
			if (got == 0) {
				p[n] = '\0';
				*out = steal_ptr(p);
				return (ssize_t)n;
			}
			n += (size_t)got;
		}
		if (n > max)
			return -EFBIG;
		cap *= 2;
	}
}

ssize_t file_read(int dirfd, const char *path, char **out, size_t max)
{
	/* O_NONBLOCK: whoever owns the directory may have put a pipe there that nobody writes to. */
	autoclose int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd < 0 ? -errno : read_all(fd, out, max);
}

int write_all(int fd, const void *p, size_t n)
{
	const char *at = p;

	while (n) {
		ssize_t r = FAULT(write(fd, at, n));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

int pwrite_all(int fd, const void *p, size_t n, off_t at)
{
	const char *from = p;

	while (n) {
		ssize_t r = FAULT(pwrite(fd, from, n, at));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		from += r;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

int pread_all(int fd, void *p, size_t n, off_t at)
{
	char *to = p;

	while (n) {
		ssize_t r = pread(fd, to, n, at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return -EPIPE;
		to += r;
		at += r;
		n -= (size_t)r;
	}
	return 0;
}

int dir_open(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int dir_sync(int dirfd)
{
	return FAULT(fsync(dirfd)) < 0 ? -errno : 0;
}

bool path_is_plain(struct str s)
{
	if (s.n == 0 || s.n > NAME_MAX || str_eqz(s, ".") || str_eqz(s, ".."))
		return false;
	return !memchr(s.p, '/', s.n) && !str_has_ctl(s);
}

/* Fills the temporary file; the caller removes it on failure. */
static int temporary_fill(int dir, const char *tmp, const void *p, size_t n, mode_t mode)
{
	autoclose int fd =
		FAULT(openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	int r;

	if (fd < 0)
		return -errno;
	r = FAULT_OURS(write_all(fd, p, n));
	if (r == 0 && FAULT(fchmod(fd, mode)) < 0)
		r = -errno;
	if (r == 0 && FAULT(fsync(fd)) < 0)
		r = -errno;
	return r;
}

int file_write_atomic(int dirfd, const char *path, const void *p, size_t n, mode_t mode)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char parent[PATH_MAX] = ".", tmp[NAME_MAX + 1];
	autoclose int dir = -1;
	uint8_t tag[6];
	char hex[13];
	int r;

	if (slash) {
		size_t len = slash == path ? 1 : (size_t)(slash - path);

		r = str_copy(parent, sizeof(parent), (struct str){ path, len });
		if (r < 0)
			return r;
	}
	if (!path_is_plain(str_of(name)))
		return -EINVAL;
	dir = dir_open(dirfd, parent);
	if (dir < 0)
		return dir;
	random_bytes(tag, sizeof(tag));
	hex_encode(hex, tag, sizeof(tag));
	snprintf(tmp, sizeof(tmp), ".%.200s.%s", name, hex);
	r = temporary_fill(dir, tmp, p, n, mode);
	if (r == 0 && FAULT(renameat(dir, tmp, dir, name)) < 0)
		r = -errno;
	if (r < 0) {
		if (r != -EEXIST)
			FAULT(unlinkat(dir, tmp, 0));
		return r;
	}
	return FAULT_OURS(dir_sync(dir));
}

int mkdir_p(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	int r = str_copy(part, sizeof(part), str_of(path));

	if (r < 0)
		return r;
	for (char *at = part + 1; part[0]; at++) {
		char c = *at;

		if (c != '/' && c != '\0')
			continue;
		*at = '\0';
		if (FAULT(mkdir(part, mode)) < 0 && errno != EEXIST)
			return -errno;
		if (c == '\0')
			break;
		*at = c;
	}
	if (!part[0])
		return -ENOENT;
	/* EEXIST may have been a file. */
	r = dir_open(AT_FDCWD, path);
	if (r >= 0)
		close(r);
	return MIN(r, 0);
}
