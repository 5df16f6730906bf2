/* extents.h - where the bytes of a file lie on its file system (FIEMAP), and what two files have in common there.
 *
 * What lies in the page cache alone has no place yet; SYNC writes it out first. Where a file system gives none (no FIEMAP, or data that lies in the
 * inode) nothing counts as shared. */
#ifndef SPACE_IMAGE_EXTENTS_H
#define SPACE_IMAGE_EXTENTS_H

#include "base/base.h"

struct extent {
	uint64_t at, len; /* of the file */
	uint64_t place;	  /* on the file system; 0: it has none that could be compared */
	bool shared;	  /* the file system says that another file has it too */
};

struct extents;
/* NULL when out of memory. The descriptor is borrowed. */
struct extents *extents_open(int fd, bool sync);
void extents_close(struct extents *x); /* NULL is fine */
/* In order of `at`. 1, 0 after the last, -errno (-EOPNOTSUPP: no FIEMAP here). */
int extents_next(struct extents *x, struct extent *out);

/* How many there are. */
int extents_count(int fd, uint64_t *n);
/* How many bytes of FD's lie where those of OTHER (-1: no other) lie at the same offset, as after a clone, and how many do not. */
int extents_compare(int fd, int other, uint64_t *own, uint64_t *shared);

static inline void autoextents_cleanup(struct extents **x)
{
	extents_close(*x);
}
#define autoextents CLEANUP(autoextents_cleanup)

#endif
