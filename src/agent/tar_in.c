/* tar_in.c - PUT /space/tar: unpacks a stream into one directory, and nowhere else.
 *
 * Every parent directory is opened by openat2 beneath that directory (or, on kernels without it,
 * component by component without following links), and the last component never follows one: no
 * name and no link in an archive leads out. Modes and times of directories are set at the end,
 * since what is put into them changes both. */
#include "agent/agent.h"

#include <fcntl.h>
#include <stdarg.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "agent/fs.h"
#include "agent/tar.h"
#include "agent/xfer.h"
#include "base/file.h"

#define PIECE (64 * 1024)
#define DIRS_MAX (256 * 1024)

struct late_dir {
	struct late_dir *next; /* last one first: children before their parents */
	mode_t mode;
	struct timespec mtime;
	char name[];
};

struct tar_call {
	struct user user;
	char path[PATH_LEN];
	bool archive_owners; /* uid and gid as in the archive, instead of the user's */
};

struct in {
	struct xfer *t;
	const struct tar_call *c;
	int top;
	int parent; /* opened last; -1: none */
	char parent_name[PATH_LEN];
	char buf[PIECE];
	size_t at, n;
	struct tar_entry e;
	struct tar_pax pax;
	struct late_dir *dirs;
	unsigned ndirs;
	uint64_t files, bytes;
	int status;
	char msg[PATH_LEN + 128];
};

PRINTF(3, 4) static int refuse(struct in *a, int status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->msg, sizeof(a->msg), fmt, ap);
	va_end(ap);
	a->status = status;
	return -ECANCELED;
}

static int refuse_errno(struct in *a, int err)
{
	if (err == ENOSPC || err == EDQUOT)
		return refuse(a, 507, "not enough disk space available: %s", a->e.name);
	if (err == EXDEV || err == ELOOP)
		return refuse(
			a, 400, "%s: a link on its way leads out of the directory", a->e.name);
	return refuse(a,
		err == ENOTDIR || err == EISDIR || err == ENAMETOOLONG || err == ENOENT ||
				err == EEXIST
			? 400
			: 500,
		"%s: %s", a->e.name, strerror(err));
}

/* --- the stream --- */

static int more(struct in *a)
{
	ssize_t n = xfer_read(a->t, a->buf, sizeof(a->buf));

	if (n < 0)
		return (int)n;
	a->at = 0;
	a->n = (size_t)n;
	return n > 0 ? 1 : 0;
}

/* Exactly N bytes into P. 1; 0 at a clean end (nothing at all); -errno. */
static int take(struct in *a, void *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		size_t piece = MIN(n - done, a->n - a->at);

		if (piece == 0) {
			int r = more(a);

			if (r < 0)
				return r;
			if (r == 0)
				return done == 0 ? 0
						 : refuse(a, 400,
							   "the archive ends in the middle of an "
							   "entry");
			continue;
		}
		memcpy((char *)p + done, a->buf + a->at, piece);
		a->at += piece;
		done += piece;
	}
	return 1;
}

/* The body of an entry and its padding, to FD (-1: nowhere). */
static int body(struct in *a, int fd)
{
	uint64_t data = a->e.size, pad = tar_padding(data);

	while (data + pad > 0) {
		size_t piece = (size_t)MIN(data ? data : pad, (uint64_t)(a->n - a->at));
		int r;

		if (piece == 0) {
			r = more(a);
			if (r <= 0)
				return r < 0 ? r
					     : refuse(a, 400,
						       "the archive ends in the middle of %s",
						       a->e.name);
			continue;
		}
		if (data > 0 && fd >= 0) {
			r = write_all(fd, a->buf + a->at, piece);
			if (r < 0)
				return refuse_errno(a, -r);
		}
		a->at += piece;
		if (data > 0)
			data -= piece;
		else
			pad -= piece;
	}
	return 0;
}

/* --- directories --- */

static uid_t owner(const struct in *a)
{
	return a->c->archive_owners ? a->e.uid : a->c->user.uid;
}

static gid_t group(const struct in *a)
{
	return a->c->archive_owners ? a->e.gid : a->c->user.gid;
}

static int open_beneath(int top, const char *name)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, top, name, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int dup_top(const struct in *a)
{
	int fd = fcntl(a->top, F_DUPFD_CLOEXEC, 3);

	return fd < 0 ? -errno : fd;
}

/* Opens the directory NAME below the top, making what is missing of it; no component is a link. */
static int walk(struct in *a, const char *name, bool make)
{
	int fd = dup_top(a);

	while (fd >= 0 && *name) {
		size_t n = strcspn(name, "/");
		char part[256];
		int next;

		if (n >= sizeof(part)) {
			close(fd);
			return -ENAMETOOLONG;
		}
		memcpy(part, name, n);
		part[n] = '\0';
		name += n + (name[n] == '/');
		next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (next < 0 && errno == ENOENT && make && mkdirat(fd, part, 0755) == 0 &&
			fchownat(fd, part, a->c->user.uid, a->c->user.gid, AT_SYMLINK_NOFOLLOW) ==
				0)
			next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (next < 0)
			next = errno == ENOTDIR ? -ELOOP : -errno;
		close(fd);
		fd = next;
	}
	return fd;
}

static int open_dir(struct in *a, const char *name, bool make)
{
	int fd = name[0] ? open_beneath(a->top, name) : dup_top(a);

	if (fd == -ENOSYS || fd == -EPERM || (fd == -ENOENT && make))
		fd = walk(a, name, make);
	return fd;
}

/* The directory of entry NAME, kept open for the next one, and the last component in *LAST. */
static int parent_of(struct in *a, const char *name, const char **last)
{
	const char *slash = strrchr(name, '/');
	size_t n = slash ? (size_t)(slash - name) : 0;

	*last = slash ? slash + 1 : name;
	if (a->parent >= 0 && strlen(a->parent_name) == n && memcmp(a->parent_name, name, n) == 0)
		return a->parent;
	if (a->parent >= 0)
		close(steal_fd(&a->parent));
	memcpy(a->parent_name, name, n);
	a->parent_name[n] = '\0';
	a->parent = open_dir(a, a->parent_name, true);
	if (a->parent < 0) {
		int err = -a->parent;

		a->parent = -1;
		return refuse_errno(a, err);
	}
	return a->parent;
}

/* --- entries --- */

static struct timespec mtime_of(const struct tar_entry *e)
{
	return (struct timespec){ .tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns };
}

static int set_times(int dirfd, const char *name, struct timespec mtime)
{
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, mtime };

	return utimensat(dirfd, name, ts, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int put_file(struct in *a, int dir, const char *name)
{
	autoclose int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, mtime_of(&a->e) };
	int r;

	if (fd < 0 && errno == EEXIST && unlinkat(dir, name, 0) == 0)
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return refuse_errno(a, errno);
	r = body(a, fd);
	if (r < 0)
		return r;
	if (fchown(fd, owner(a), group(a)) < 0 || fchmod(fd, a->e.mode) < 0 || futimens(fd, ts) < 0)
		return refuse_errno(a, errno);
	a->bytes += a->e.size;
	return 0;
}

static int put_dir(struct in *a, int dir, const char *name)
{
	struct late_dir *d;
	size_t n = strlen(a->e.name) + 1;

	if (mkdirat(dir, name, 0700) < 0) {
		struct stat st;

		if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return refuse_errno(a, errno);
		if (S_ISLNK(st.st_mode)) /* leads somewhere that a later entry may be put into, if
					    it is beneath */
			return 0;
		if (!S_ISDIR(st.st_mode) &&
			(unlinkat(dir, name, 0) < 0 || mkdirat(dir, name, 0700) < 0))
			return refuse_errno(a, errno);
	}
	if (fchownat(dir, name, owner(a), group(a), AT_SYMLINK_NOFOLLOW) < 0)
		return refuse_errno(a, errno);
	d = a->ndirs < DIRS_MAX ? malloc(sizeof(*d) + n) : NULL;
	if (!d)
		return refuse(a, 400, "more than %d directories", DIRS_MAX);
	d->mode = a->e.mode;
	d->mtime = mtime_of(&a->e);
	memcpy(d->name, a->e.name, n);
	d->next = a->dirs;
	a->dirs = d;
	a->ndirs++;
	return 0;
}

static int put_link(struct in *a, int dir, const char *name)
{
	int r = symlinkat(a->e.link, dir, name);

	if (r < 0 && errno == EEXIST && unlinkat(dir, name, 0) == 0)
		r = symlinkat(a->e.link, dir, name);
	if (r < 0 || fchownat(dir, name, owner(a), group(a), AT_SYMLINK_NOFOLLOW) < 0)
		return refuse_errno(a, errno);
	(void)set_times(dir, name, mtime_of(&a->e));
	return 0;
}

/* Another name of a file that the archive has unpacked before. */
static int put_hardlink(struct in *a, int dir, const char *name)
{
	autoclose int from = -1;
	const char *slash, *last;
	struct stat st;
	int r;

	if (tar_name_clean(a->e.link) < 0 || a->e.link[0] == '\0')
		return refuse(a, 400, "%s: its link leads out of the directory", a->e.name);
	slash = strrchr(a->e.link, '/');
	last = slash ? slash + 1 : a->e.link;
	if (slash)
		a->e.link[slash - a->e.link] = '\0';
	from = open_dir(a, slash ? a->e.link : "", false);
	if (from < 0)
		return refuse_errno(a, -from);
	if (fstatat(from, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse_errno(a, errno);
	r = linkat(from, last, dir, name, 0);
	if (r < 0 && errno == EEXIST) {
		struct stat old;

		if (fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && old.st_ino == st.st_ino &&
			old.st_dev == st.st_dev)
			return 0;
		if (unlinkat(dir, name, 0) == 0)
			r = linkat(from, last, dir, name, 0);
	}
	return r < 0 ? refuse_errno(a, errno) : 0;
}

static int put_node(struct in *a, int dir, const char *name)
{
	mode_t kind = a->e.type == TAR_CHAR	  ? S_IFCHR
		      : a->e.type == TAR_BLOCKDEV ? S_IFBLK
						  : S_IFIFO;
	int r = mknodat(dir, name, kind | 0600, makedev(a->e.major, a->e.minor));

	if (r < 0 && errno == EEXIST && unlinkat(dir, name, 0) == 0)
		r = mknodat(dir, name, kind | 0600, makedev(a->e.major, a->e.minor));
	if (r < 0 || fchownat(dir, name, owner(a), group(a), AT_SYMLINK_NOFOLLOW) < 0 ||
		fchmodat(dir, name, a->e.mode, 0) < 0)
		return refuse_errno(a, errno);
	(void)set_times(dir, name, mtime_of(&a->e));
	return 0;
}

static int put_entry(struct in *a)
{
	const char *last;
	int dir, r;

	if (tar_name_clean(a->e.name) < 0)
		return refuse(a, 400, "%s leads out of the directory", a->e.name);
	if (a->e.name[0] == '\0') /* the directory itself */
		return body(a, -1);
	dir = parent_of(a, a->e.name, &last);
	if (dir < 0)
		return dir;
	a->files++;
	switch (a->e.type) {
	case TAR_FILE:
		return put_file(a, dir, last);
	case TAR_DIR:
		r = put_dir(a, dir, last);
		break;
	case TAR_SYMLINK:
		r = put_link(a, dir, last);
		break;
	case TAR_HARDLINK:
		r = put_hardlink(a, dir, last);
		break;
	case TAR_CHAR:
	case TAR_BLOCKDEV:
	case TAR_FIFO:
		r = put_node(a, dir, last);
		break;
	default:
		return refuse(a, 400, "%s: entries of type '%c' are not understood", a->e.name,
			a->e.type);
	}
	return r == 0 ? body(a, -1) : r;
}

/* An extended header, or a long name of GNU's, for the entry that follows. */
static int extended(struct in *a)
{
	size_t n = (size_t)a->e.size;
	autofree char *text = NULL;
	char pad[TAR_BLOCK];
	int r;

	if (a->e.size > TAR_PAX_MAX)
		return refuse(a, 400, "an extended header of more than %d bytes", TAR_PAX_MAX);
	text = malloc(n + 1);
	if (!text)
		return refuse(a, 500, "out of memory");
	r = n ? take(a, text, n) : 1;
	if (r == 1 && tar_padding(n))
		r = take(a, pad, tar_padding(n));
	if (r <= 0)
		return r < 0 ? r : refuse(a, 400, "the archive ends in an extended header");
	if (a->e.type == TAR_PAX)
		r = tar_pax_read(&a->pax, (struct str){ text, n });
	else if (a->e.type == TAR_PAX_GLOBAL)
		r = 0; /* nothing that it may say concerns us */
	else
		r = tar_long_read(&a->pax, a->e.type, (struct str){ text, n });
	return r < 0 ? refuse(a, 400,
			       "an extended header is malformed or names a path that is too long")
		     : 0;
}

static int unpack(struct in *a)
{
	uint8_t block[TAR_BLOCK];
	unsigned zeros = 0;
	int r;

	while ((r = take(a, block, sizeof(block))) == 1) {
		r = tar_parse(block, &a->e);
		if (r < 0)
			return refuse(a, 400,
				"this is not a tar archive, or it is damaged after %llu entries",
				(unsigned long long)a->files);
		if (r == 0) {
			if (++zeros == 2)
				return 0;
			continue;
		}
		zeros = 0;
		if (strchr("xgLK", a->e.type)) {
			r = extended(a);
		} else {
			tar_pax_apply(&a->pax, &a->e);
			memset(&a->pax, 0, offsetof(struct tar_pax, name));
			r = put_entry(a);
		}
		if (r < 0)
			return r;
	}
	return r; /* an end without blocks of zeros is accepted */
}

static void dirs_finish(struct in *a, bool apply)
{
	while (a->dirs) {
		struct late_dir *d = a->dirs;
		int fd = apply ? open_beneath(a->top, d->name) : -1;
		struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, d->mtime };

		if (fd == -ENOSYS || fd == -EPERM)
			fd = walk(a, d->name, false);
		if (fd >= 0) {
			(void)fchmod(fd, d->mode);
			(void)futimens(fd, ts);
			close(fd);
		}
		a->dirs = d->next;
		free(d);
	}
}

static void receive_tree(struct xfer *t, void *arg)
{
	struct tar_call *c = arg;
	struct in *a = calloc(1, sizeof(*a));
	struct buf b;
	struct jw w;
	int r = a ? mkdirs(c->path, c->user.uid, c->user.gid) : -ENOMEM;

	if (r == 0) {
		a->top = dir_open(AT_FDCWD, c->path);
		r = a->top < 0 ? a->top : 0;
	}
	if (r < 0) {
		xfer_error(t,
			r == -ENOSPC   ? 507
			: r == -ENOMEM ? 500
				       : 400,
			"%s: %s", c->path, strerror(-r));
		free(a);
		return;
	}
	a->t = t;
	a->c = c;
	a->parent = -1;
	r = unpack(a);
	if (a->parent >= 0)
		close(a->parent);
	dirs_finish(a, r == 0);
	close(a->top);
	if (r == 0) {
		xfer_skip(t); /* padding after the end */
		buf_init(&b, 256);
		jw_init(&w, &b);
		jw_obj(&w, NULL);
		jw_int(&w, "files", (int64_t)a->files);
		jw_int(&w, "bytes", (int64_t)a->bytes);
		jw_obj_end(&w);
		xfer_respond(t, 201, "application/json", buf_str(&b));
		buf_clear(&b);
	} else if (a->status) {
		xfer_error(t, a->status, "%s", a->msg);
	}
	free(a);
}

void handle_tar_put(struct http_exchange *x)
{
	struct tar_call *c = calloc(1, sizeof(*c));
	char owners[16] = "";

	if (!c) {
		answer_error(x, 500, "out of memory");
		return;
	}
	(void)query_str(x, "owner", owners, sizeof(owners));
	c->archive_owners = strcmp(owners, "archive") == 0;
	if (query_user(x, "user", &c->user) < 0 || query_path(x, "path", &c->user, c->path) < 0)
		free(c);
	else
		xfer_start(x, true, receive_tree, c);
}
