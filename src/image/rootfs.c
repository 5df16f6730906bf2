/* rootfs.c - see rootfs.h. */
#include "image/rootfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/file.h"

#define ACCOUNTS_MAX (256 * KIB)
#define SHADOW_DAY "19723" /* 2024-01-01: the day of last change, the same in every build */

/* Lines that the user's account adds. The password field `*` lets nobody log in with one; `sudo`
 * needs none. */
static const struct {
	const char *file, *line;
} accounts[] = {
	{ "etc/passwd", ROOTFS_USER ":x:1000:1000::/home/" ROOTFS_USER ":/bin/bash\n" },
	{ "etc/group", ROOTFS_USER ":x:1000:\n" },
	{ "etc/shadow", ROOTFS_USER ":*:" SHADOW_DAY ":0:99999:7:::\n" },
	{ "etc/gshadow", ROOTFS_USER ":!::\n" },
};

/* Whole files of ours. */
static const struct {
	const char *path, *text;
	mode_t mode;
} files[] = {
	{ "etc/sudoers.d/90-" ROOTFS_USER, ROOTFS_USER " ALL=(ALL:ALL) NOPASSWD: ALL\n", 0440 },
	/* A sandbox is thrown away: pip need not keep its hands off the system's Python. */
	{ "etc/pip.conf", "[global]\nbreak-system-packages = true\n", 0644 },
	{ "etc/hostname", "sandbox\n", 0644 },
	{ "etc/hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n", 0644 },
	{ "etc/machine-id", "", 0444 },
};

/* Of the build, its host or its moment. Directories lose what is in them, not themselves. */
static const char *const litter[] = {
	"etc/resolv.conf",
	"etc/passwd-",
	"etc/group-",
	"etc/shadow-",
	"etc/gshadow-",
	"etc/subuid-",
	"etc/subgid-",
	"etc/.pwd.lock",
	"etc/apt/apt.conf.d/99mmdebstrap",
	"var/cache/ldconfig/aux-cache",
	"var/cache/debconf/config.dat-old",
	"var/cache/debconf/templates.dat-old",
	"var/lib/dpkg/status-old",
	"var/lib/dpkg/diversions-old",
	"var/lib/dpkg/statoverride-old",
	"var/lib/dpkg/available-old",
	"var/lib/dpkg/lock",
	"var/lib/dpkg/lock-frontend",
	"var/lib/apt/lists",
	"var/cache/apt",
	"var/log",
	"tmp",
	"run",
	"var/tmp",
	"var/lib/systemd/random-seed",
	"dev",
};

/* Packages whose own installation scripts expect them, although no manual page is kept. */
static const char *const kept_dirs[] = { "usr/share/man/man1", "usr/share/man/man5",
	"usr/share/man/man7", "usr/share/man/man8" };

static int make_dir(int rootfd, const char *path, mode_t mode)
{
	char part[256];
	size_t n = strlen(path);

	if (n >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path, i);
		part[i] = 0;
		if (FAULT(mkdirat(rootfd, part, mode)) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Removes what is in the directory DIR, or the file of that name. Absent is fine. */
static int empty(int rootfd, const char *path)
{
	struct stat st;
	struct dirent *e;
	int fd, r = 0;
	DIR *d;

	if (fstatat(rootfd, path, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		return FAULT(unlinkat(rootfd, path, 0)) ? -errno : 0;
	fd = dir_open(rootfd, path);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : -ENOMEM;
	}
	while (!r && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			r = FAULT_OURS(rm_rf(dirfd(d), e->d_name));
	closedir(d);
	return r;
}

static int put_file(int rootfd, const char *path, struct str text, mode_t mode, uid_t uid)
{
	autoclose int fd = -1;
	int r;

	if (FAULT(unlinkat(rootfd, path, 0)) && errno != ENOENT)
		return -errno;
	fd = FAULT(openat(rootfd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
	if (fd < 0)
		return -errno;
	r = FAULT_OURS(write_all(fd, text.p, text.n));
	if (!r && (FAULT(fchmod(fd, mode)) || FAULT(fchown(fd, uid, uid))))
		r = -errno;
	return r;
}

/* Writes PATH anew with the mode and owner it has. */
static int rewrite(int rootfd, const char *path, struct str text)
{
	struct stat st;
	int r;

	if (fstatat(rootfd, path, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	r = put_file(rootfd, path, text, st.st_mode & 07777, 0);
	if (!r && FAULT(fchownat(rootfd, path, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW)))
		r = -errno;
	return r;
}

static bool has_account(struct str text)
{
	struct str line, rest = text;
	bool more;

	do {
		more = str_cut(rest, '\n', &line, &rest);
		if (str_starts(line, ROOTFS_USER ":"))
			return true;
	} while (more);
	return false;
}

static int add_account(int rootfd, const char *path, const char *line)
{
	autofree char *text = NULL;
	autobuf struct buf out = { 0 };
	ssize_t n = file_read(rootfd, path, &text, ACCOUNTS_MAX);

	buf_init(&out, ACCOUNTS_MAX + 256);
	if (n < 0)
		return n == -ENOENT && !strcmp(path, "etc/gshadow") ? 0 : (int)n;
	if (has_account((struct str){ text, (size_t)n }))
		return 0;
	if (buf_add(&out, text, (size_t)n) || buf_addz(&out, line))
		return -ENOMEM;
	return rewrite(rootfd, path, buf_str(&out));
}

/* The third field of /etc/shadow is the day when the password was changed: for system accounts, the
 * day of the build. */
static int level_shadow(int rootfd)
{
	autofree char *text = NULL;
	autobuf struct buf out = { 0 };
	ssize_t n = file_read(rootfd, "etc/shadow", &text, ACCOUNTS_MAX);
	struct str line, rest = { text, n < 0 ? 0 : (size_t)n }, name, pass, day, tail;
	bool more;
	int r = 0;

	buf_init(&out, ACCOUNTS_MAX);
	if (n < 0)
		return n == -ENOENT ? 0 : (int)n;
	do {
		more = str_cut(rest, '\n', &line, &rest);
		if (!line.n)
			continue;
		if (str_cut(line, ':', &name, &tail) && str_cut(tail, ':', &pass, &tail) &&
			str_cut(tail, ':', &day, &tail))
			r = buf_addf(&out, STR_FMT ":" STR_FMT ":" SHADOW_DAY ":" STR_FMT "\n",
				STR_ARG(name), STR_ARG(pass), STR_ARG(tail));
		else
			r = buf_addf(&out, STR_FMT "\n", STR_ARG(line));
	} while (!r && more);
	return r ? r : rewrite(rootfd, "etc/shadow", buf_str(&out));
}

/* /home/user with the files of /etc/skel. */
static int make_home(int rootfd)
{
	static const char home[] = "home/" ROOTFS_USER;
	int fd = dir_open(rootfd, "etc/skel"), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (fd >= 0 && !d)
		close(fd);
	if (FAULT(mkdirat(rootfd, home, 0755)) && errno != EEXIST)
		r = -errno;
	while (!r && d && (e = readdir(d))) {
		autofree char *text = NULL;
		char path[300];
		ssize_t n;

		if (e->d_type != DT_REG)
			continue;
		n = file_read(dirfd(d), e->d_name, &text, 1 * MIB);
		snprintf(path, sizeof(path), "%s/%s", home, e->d_name);
		r = n < 0 ? (int)n
			  : put_file(rootfd, path, (struct str){ text, (size_t)n }, 0644,
				    ROOTFS_UID);
	}
	if (d)
		closedir(d);
	if (!r && FAULT(fchownat(rootfd, home, ROOTFS_UID, ROOTFS_UID, AT_SYMLINK_NOFOLLOW)))
		r = -errno;
	return r;
}

static int finish(int rootfd, const char **what)
{
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_LEN(accounts); i++)
		r = add_account(rootfd, *what = accounts[i].file, accounts[i].line);
	if (!r)
		r = level_shadow(rootfd);
	if (!r)
		r = make_home(rootfd), *what = "home";
	if (!r)
		r = make_dir(rootfd, *what = "etc/sudoers.d", 0750);
	for (size_t i = 0; !r && i < ARRAY_LEN(files); i++)
		r = put_file(
			rootfd, *what = files[i].path, str_of(files[i].text), files[i].mode, 0);
	for (size_t i = 0; !r && i < ARRAY_LEN(litter); i++)
		r = empty(rootfd, *what = litter[i]);
	for (size_t i = 0; !r && i < ARRAY_LEN(kept_dirs); i++)
		r = make_dir(rootfd, *what = kept_dirs[i], 0755);
	/* apt makes them only when it runs as root and finds their parents. */
	if (!r)
		r = make_dir(rootfd, *what = "var/cache/apt/archives/partial", 0755);
	if (!r)
		r = make_dir(rootfd, *what = "var/lib/apt/lists/partial", 0755);
	return r;
}

int rootfs_finish(int rootfd, struct fail *why)
{
	const char *what = "root";
	int r = finish(rootfd, &what);

	if (r == -ENOSPC)
		return fail_as(
			why, ERR_no_space, "finishing the image's root: the storage pool is full");
	return r < 0 ? fail_set(why, r, "finishing the image's root: %s: %s", what, strerror(-r))
		     : 0;
}

int rootfs_mount_points(int rootfd, struct fail *why)
{
	static const struct {
		const char *path;
		mode_t mode;
	} dirs[] = { { "dev", 0755 }, { "proc", 0555 }, { "sys", 0555 }, { "run", 0755 },
		{ "tmp", 01777 }, { "etc", 0755 } };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		if (!FAULT(mkdirat(rootfd, dirs[i].path, dirs[i].mode))) {
			if (FAULT(fchmodat(rootfd, dirs[i].path, dirs[i].mode, 0)))
				return fail_set(why, -errno, "/%s of the image: %s", dirs[i].path,
					strerror(errno));
		} else if (errno != EEXIST) {
			return fail_set(
				why, -errno, "/%s of the image: %s", dirs[i].path, strerror(errno));
		}
	}
	return 0;
}
