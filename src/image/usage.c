/* usage.c - what takes the room: of one node, and of the pool. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/random.h"
#include "image/extents.h"
#include "image/nodes.h"

/* --- one node --- */

/* Calls FN for each entry of the directory FD, which is closed, but for those that begin with a dot. FN gets the directory's descriptor. */
static int each(int fd, int (*fn)(int dirfd, const struct dirent *e, void *arg), void *arg)
{
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		r = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (!r && (e = readdir(d)))
		if (e->d_name[0] != '.')
			r = fn(dirfd(d), e, arg);
	closedir(d);
	return r;
}

struct comparison {
	int parent; /* -1: none */
	uint64_t own, shared;
};

static int compare_file(int dirfd_, const struct dirent *e, void *arg)
{
	struct comparison *c = arg;
	autoclose int fd = -1, other = -1;
	uint64_t own, shared;
	int r;

	if (e->d_type != DT_REG)
		return 0;
	fd = openat(dirfd_, e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (c->parent >= 0)
		other = openat(c->parent, e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	r = extents_compare(fd, other, &own, &shared);
	if (r < 0)
		return r;
	c->own += own;
	c->shared += shared;
	return 0;
}

int node_usage(struct pool *p, const char *id, const char *parent, uint64_t *own, uint64_t *shared, struct fail *why)
{
	struct comparison c = { .parent = -1 };
	int dir = node_open(p, id, why), r;

	if (dir < 0)
		return dir;
	/* A parent that has been removed shares nothing any more. */
	if (parent && *parent)
		c.parent = node_open(p, parent, NULL);
	r = each(dir, compare_file, &c);
	if (c.parent >= 0)
		close(c.parent);
	if (r < 0)
		return pool_fail(why, r, "checkpoint %s", id);
	*own = c.own;
	*shared = c.shared;
	return 0;
}

uint64_t node_files_bytes(int dirfd_)
{
	struct comparison c = { .parent = -1 };

	(void)each(dir_open(dirfd_, "."), compare_file, &c);
	return c.own;
}

/* --- the pool --- */

/* Shared ranges are put together so that each counts once, however many files have it. Past SPANS_MAX (32 MiB of them, after they have been
 * merged) those that come count as often as they come: too much is told then, never too little. */
#define SPANS_MAX (2U << 20)

struct span { uint64_t from, to; };

struct census {
	struct pool *p;
	struct span *v;
	size_t n, room;
	uint64_t single; /* bytes that only one file has, and those past SPANS_MAX */
	unsigned *count;
};

static int by_place(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

static void merge(struct census *c)
{
	size_t n = 0;

	if (c->n > 1)
		qsort(c->v, c->n, sizeof(*c->v), by_place);
	for (size_t i = 0; i < c->n; i++) {
		if (n && c->v[i].from <= c->v[n - 1].to)
			c->v[n - 1].to = MAX(c->v[n - 1].to, c->v[i].to);
		else
			c->v[n++] = c->v[i];
	}
	c->n = n;
}

static int add_span(struct census *c, const struct extent *e)
{
	if (c->n == c->room) {
		merge(c);
		if (c->n > c->room / 2 && c->room < SPANS_MAX) {
			size_t room = c->room * 2;
			struct span *more = reallocarray(c->v, room, sizeof(*more));

			if (!more)
				return -ENOMEM;
			c->v = more;
			c->room = room;
		}
	}
	if (c->n == c->room)
		c->single += e->len;
	else
		c->v[c->n++] = (struct span){ e->place, e->place + e->len };
	return 0;
}

static int count_fd(struct census *c, int fd)
{
	autoextents struct extents *x = extents_open(fd, false); /* looking makes no disk write */
	struct extent e;
	struct stat st;
	int r;

	if (!x)
		return -ENOMEM;
	while ((r = extents_next(x, &e)) > 0) {
		if (!e.shared)
			c->single += e.len;
		else if ((r = add_span(c, &e)) < 0)
			return r;
	}
	if (r != -EOPNOTSUPP)
		return r;
	if (fstat(fd, &st))
		return -errno;
	c->single += (uint64_t)st.st_blocks * 512;
	return 0;
}

static int count_entry(int dirfd_, const struct dirent *e, void *arg)
{
	struct census *c = arg;
	autoclose int fd = -1;

	if (e->d_type == DT_DIR)
		return each(dir_open(dirfd_, e->d_name), count_entry, c);
	if (e->d_type != DT_REG)
		return 0;
	fd = openat(dirfd_, e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	/* Nodes and disks go while we look. */
	return fd < 0 ? (errno == ENOENT ? 0 : -errno) : count_fd(c, fd);
}

static int count_top(int dirfd_, const struct dirent *e, void *arg)
{
	struct census *c = arg;
	int r = count_entry(dirfd_, e, arg);

	if (c->count && (e->d_type == DT_DIR || str_ends(str_of(e->d_name), ".erofs")))
		++*c->count;
	return r == -ENOENT ? 0 : r;
}

static int count_folder(struct census *c, const char *folder, unsigned *count)
{
	c->count = count;
	return each(dir_open(c->p->fd, folder), count_top, c);
}

/* All that has been counted so far. */
static uint64_t total(struct census *c)
{
	uint64_t sum = c->single;

	merge(c);
	for (size_t i = 0; i < c->n; i++)
		sum += c->v[i].to - c->v[i].from;
	return sum;
}

int pool_usage(struct pool *p, struct pool_usage *out, struct fail *why)
{
	struct pool_usage u = { 0 };
	/* What nodes and disks share counts for the nodes, which come first. */
	const struct { const char *folder; unsigned *count; uint64_t *bytes; } rows[] = {
		{ "images", &u.images.count, &u.images.bytes },
		{ "kernels", &u.kernels.count, &u.kernels.bytes },
		{ "initrds", NULL, &u.kernels.bytes },
		{ "nodes", &u.nodes.count, &u.nodes.bytes },
		{ "sandboxes", &u.disks.count, &u.disks.bytes },
		{ "disks", NULL, &u.disks.bytes },
	};
	struct census c = { .p = p, .room = 1024 };
	uint64_t before = 0;
	int r = 0;

	c.v = calloc(c.room, sizeof(*c.v));
	if (!c.v)
		r = -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(rows) && !r; i++) {
		uint64_t now;

		r = count_folder(&c, rows[i].folder, rows[i].count);
		now = total(&c);
		*rows[i].bytes += now - before;
		before = now;
	}
	free(c.v);
	if (r < 0)
		return pool_fail(why, r, "looking at the pool");
	*out = u;
	return 0;
}
