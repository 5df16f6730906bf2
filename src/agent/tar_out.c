/* tar_out.c - GET /space/tar: a tree as a tar stream, made while it is sent.
 *
 * Walks by descriptors and follows no link below the top, so what is sent lies in the tree that was
 * asked for, whatever happens to it meanwhile. Times to the second. Sockets are left out; what
 * vanishes or cannot be read is too. */
#include "agent/agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "agent/tar.h"
#include "agent/xfer.h"
#include "base/file.h"

#define PIECE (64 * 1024)
#define DEPTH_MAX 500 /* each level holds a descriptor and some stack */
#define LINK_BUCKETS 4096
#define LINKS_MAX (64 * 1024)

struct linked {
	struct linked *next;
	dev_t dev;
	ino_t ino;
	char name[];
};

struct out {
	struct xfer *t;
	struct buf b; /* what is to be sent next */
	struct tar_entry e;
	struct linked **links; /* files with several names, by their first one */
	unsigned nlinks;
};

struct tar_call {
	struct user user;
	char path[PATH_LEN];
};

static int flush(struct out *o)
{
	int r = o->b.n ? xfer_write(o->t, o->b.p, o->b.n) : 0;

	o->b.n = 0;
	return r;
}

static int put_header(struct out *o)
{
	int r = tar_header(&o->b, &o->e);

	return r == 0 && o->b.n >= PIECE ? flush(o) : r;
}

/* The body: exactly SIZE bytes, as the header has promised them, with zeros for what a shrinking
 * file owes. */
static int put_body(struct out *o, int fd, uint64_t size)
{
	uint64_t left = size + tar_padding(size), data = size;
	int r = 0;

	while (r == 0 && left > 0) {
		size_t room, n;
		ssize_t got = 0;

		if (o->b.n >= PIECE && (r = flush(o)) < 0)
			break;
		room = (size_t)MIN((uint64_t)PIECE, left);
		r = buf_reserve(&o->b, room);
		if (r < 0)
			break;
		if (data > 0 && fd >= 0) {
			got = read(fd, o->b.p + o->b.n, (size_t)MIN((uint64_t)room, data));
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0) {
				data = 0;
				continue;
			}
			data -= (uint64_t)got;
			n = (size_t)got;
		} else {
			memset(o->b.p + o->b.n, 0, room);
			n = room;
		}
		o->b.n += n;
		left -= n;
	}
	return r;
}

/* The first name of a file that has several, or NULL and from now on this is it. */
static const char *link_first(struct out *o, const struct stat *st)
{
	struct linked **bucket, *l;
	size_t n = strlen(o->e.name) + 1;

	if (!o->links)
		o->links = calloc(LINK_BUCKETS, sizeof(struct linked *));
	if (!o->links)
		return NULL;
	bucket = &o->links[(st->st_ino ^ st->st_dev) % LINK_BUCKETS];
	for (l = *bucket; l; l = l->next)
		if (l->ino == st->st_ino && l->dev == st->st_dev)
			return l->name;
	l = o->nlinks < LINKS_MAX ? malloc(sizeof(*l) + n) : NULL;
	if (!l)
		return NULL; /* it is sent once more as a file */
	l->dev = st->st_dev;
	l->ino = st->st_ino;
	memcpy(l->name, o->e.name, n);
	l->next = *bucket;
	*bucket = l;
	o->nlinks++;
	return NULL;
}

static void fill(struct out *o, const struct stat *st)
{
	struct tar_entry *e = &o->e;

	e->mode = st->st_mode & 07777;
	e->uid = st->st_uid;
	e->gid = st->st_gid;
	e->mtime_s = st->st_mtim.tv_sec;
	e->size = 0;
	e->major = e->minor = 0;
	e->link[0] = '\0';
}

static int put_entry(struct out *o, int dirfd, const char *name, unsigned depth);

static int put_dir(struct out *o, int fd, const struct stat *st, unsigned depth)
{
	size_t n = strlen(o->e.name);
	struct dirent *de;
	DIR *d;
	int r;

	if (n + 1 >= sizeof(o->e.name) || !(d = fdopendir(fd))) {
		close(fd);
		return 0;
	}
	fill(o, st);
	o->e.type = TAR_DIR;
	strcpy(o->e.name + n, "/");
	r = put_header(o);
	while (r == 0 && depth < DEPTH_MAX && (de = readdir(d)) != NULL) {
		size_t len = strlen(de->d_name);

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 ||
			n + 1 + len >= sizeof(o->e.name))
			continue;
		memcpy(o->e.name + n + 1, de->d_name, len + 1);
		r = put_entry(o, dirfd(d), de->d_name, depth + 1);
	}
	o->e.name[n] = '\0';
	closedir(d);
	return r;
}

static int put_file(struct out *o, int dirfd, const char *name, const struct stat *st)
{
	const char *first = st->st_nlink > 1 ? link_first(o, st) : NULL;
	autoclose int fd = -1;
	struct stat now;
	int r;

	fill(o, st);
	if (first) {
		o->e.type = TAR_HARDLINK;
		strcpy(o->e.link, first);
		return put_header(o);
	}
	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &now) < 0 || !S_ISREG(now.st_mode))
		return 0;
	o->e.type = TAR_FILE;
	o->e.size = (uint64_t)now.st_size;
	r = put_header(o);
	return r == 0 ? put_body(o, fd, o->e.size) : r;
}

static int put_other(struct out *o, int dirfd, const char *name, const struct stat *st)
{
	ssize_t n;

	fill(o, st);
	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(dirfd, name, o->e.link, sizeof(o->e.link) - 1);
		if (n < 0)
			return 0;
		o->e.link[n] = '\0';
		o->e.type = TAR_SYMLINK;
	} else if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) {
		o->e.type = S_ISCHR(st->st_mode) ? TAR_CHAR : TAR_BLOCKDEV;
		o->e.major = major(st->st_rdev);
		o->e.minor = minor(st->st_rdev);
	} else if (S_ISFIFO(st->st_mode)) {
		o->e.type = TAR_FIFO;
	} else {
		return 0;
	}
	return put_header(o);
}

static int put_entry(struct out *o, int dirfd, const char *name, unsigned depth)
{
	struct stat st;
	int fd;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISREG(st.st_mode))
		return put_file(o, dirfd, name, &st);
	if (!S_ISDIR(st.st_mode))
		return put_other(o, dirfd, name, &st);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? 0 : put_dir(o, fd, &st, depth);
}

static void send_tree(struct xfer *t, void *arg)
{
	static const char end[2 * TAR_BLOCK];
	struct tar_call *c = arg;
	autofree char *real = realpath(c->path, NULL); /* a link is followed here, and only here */
	struct str base = path_base(c->path);
	struct out *o = real ? calloc(1, sizeof(*o)) : NULL;
	int r;

	if (!o) {
		xfer_error(t, real ? 500 : 404, real ? "out of memory" : "path '%s' does not exist",
			c->path);
		return;
	}
	o->t = t;
	buf_init(&o->b, 4 * PIECE);
	snprintf(o->e.name, sizeof(o->e.name), STR_FMT, STR_ARG(base));
	if (tar_name_clean(o->e.name) < 0 || o->e.name[0] == '\0')
		strcpy(o->e.name, ".");
	xfer_head(t, 200, "application/x-tar", -1);
	r = put_entry(o, AT_FDCWD, real, 0);
	if (r == 0)
		r = buf_add(&o->b, end, sizeof(end));
	if (r == 0)
		r = flush(o);
	if (r == 0)
		xfer_end(t);
	buf_clear(&o->b);
	for (unsigned i = 0; o->links && i < LINK_BUCKETS; i++) {
		while (o->links[i]) {
			struct linked *l = o->links[i];

			o->links[i] = l->next;
			free(l);
		}
	}
	free(o->links);
	free(o);
}

void handle_tar_get(struct http_exchange *x)
{
	struct tar_call *c = calloc(1, sizeof(*c));

	if (!c) {
		answer_error(x, 500, "out of memory");
		return;
	}
	if (query_user(x, "user", &c->user) < 0 || query_path(x, "path", &c->user, c->path) < 0)
		free(c);
	else
		xfer_start(x, false, send_tree, c);
}
