/* extents.c - see extents.h. */
#include "image/extents.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define BATCH 512

struct extents {
	int fd;
	bool synced, last;
	uint64_t from; /* what comes after the batch */
	unsigned i;
	struct fiemap map; /* with BATCH extents after it */
};

struct extents *extents_open(int fd, bool sync)
{
	struct extents *x = calloc(1, sizeof(*x) + BATCH * sizeof(struct fiemap_extent));

	if (x) {
		x->fd = fd;
		x->synced = !sync;
	}
	return x;
}

void extents_close(struct extents *x)
{
	free(x);
}

static int ask(int fd, struct fiemap *m)
{
	while (ioctl(fd, FS_IOC_FIEMAP, m)) {
		if (errno == EINTR)
			continue;
		return errno == ENOTTY || errno == EINVAL || errno == ENOSYS || errno == EBADR ? -EOPNOTSUPP : -errno;
	}
	return 0;
}

static int fetch(struct extents *x)
{
	const struct fiemap_extent *e;
	int r;

	x->map = (struct fiemap){ .fm_start = x->from,
		.fm_length = FIEMAP_MAX_OFFSET - x->from,
		.fm_flags = x->synced ? 0 : FIEMAP_FLAG_SYNC,
		.fm_extent_count = BATCH };
	r = ask(x->fd, &x->map);
	if (r < 0)
		return r;
	x->synced = true;
	x->i = 0;
	if (!x->map.fm_mapped_extents) {
		x->last = true;
		return 0;
	}
	e = &x->map.fm_extents[x->map.fm_mapped_extents - 1];
	if (e->fe_flags & FIEMAP_EXTENT_LAST || e->fe_logical + e->fe_length <= x->from)
		x->last = true;
	x->from = e->fe_logical + e->fe_length;
	return 0;
}

int extents_next(struct extents *x, struct extent *out)
{
	const uint32_t nowhere = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_DATA_INLINE;
	const struct fiemap_extent *e;

	while (x->i >= x->map.fm_mapped_extents) {
		int r = x->last ? 0 : fetch(x);

		if (r < 0)
			return r;
		if (x->i >= x->map.fm_mapped_extents)
			return 0;
	}
	e = &x->map.fm_extents[x->i++];
	*out = (struct extent){ .at = e->fe_logical,
		.len = e->fe_length,
		.place = e->fe_flags & nowhere ? 0 : e->fe_physical,
		.shared = e->fe_flags & FIEMAP_EXTENT_SHARED && !(e->fe_flags & nowhere) };
	return 1;
}

int extents_count(int fd, uint64_t *n)
{
	struct fiemap m = { .fm_length = FIEMAP_MAX_OFFSET, .fm_flags = FIEMAP_FLAG_SYNC };
	int r = ask(fd, &m);

	if (!r)
		*n = m.fm_mapped_extents;
	return r;
}

/* Bytes of A that B has in the same place. Both are extents of one offset range or another of two files. */
static uint64_t common(const struct extent *a, const struct extent *b)
{
	uint64_t from = MAX(a->at, b->at), to = MIN(a->at + a->len, b->at + b->len);

	if (from >= to || !a->place || !b->place || a->place - a->at != b->place - b->at)
		return 0;
	return to - from;
}

/* A clone keeps each block's offset, so that two walks side by side find all that is shared, whatever was split since, and need no memory. */
static int compare(struct extents *x, struct extents *y, uint64_t *own, uint64_t *shared)
{
	struct extent a, b = { 0 };
	int r, more = y ? 1 : 0;

	while ((r = extents_next(x, &a)) > 0) {
		uint64_t same = 0;

		while (more > 0) {
			same += common(&a, &b);
			if (b.at + b.len > a.at + a.len)
				break; /* the next of A may have the rest of it */
			more = extents_next(y, &b);
		}
		if (more < 0)
			return more;
		*shared += same;
		*own += a.len - same;
	}
	return r;
}

int extents_compare(int fd, int other, uint64_t *own, uint64_t *shared)
{
	autoextents struct extents *x = extents_open(fd, true);
	autoextents struct extents *y = other >= 0 ? extents_open(other, true) : NULL;
	uint64_t o = 0, s = 0;
	int r;

	if (!x || (other >= 0 && !y))
		return -ENOMEM;
	r = compare(x, y, &o, &s);
	if (r == -EOPNOTSUPP) {
		struct stat st;

		if (fstat(fd, &st))
			return -errno;
		o = (uint64_t)st.st_blocks * 512;
		s = r = 0;
	}
	if (r < 0)
		return r;
	*own = o;
	*shared = s;
	return 0;
}
