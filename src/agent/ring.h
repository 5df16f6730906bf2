/* ring.h - the last bytes of a stream, addressed by their offset from its beginning.
 *
 * All rings together stay within a budget: past it none grows over RING_FLOOR, and what is kept of
 * a stream is less. Memory grows with what is in it, up to MAX; from then on the oldest bytes are
 * overwritten. At most KEEP of them are promised to somebody who comes later; the rest of MAX is
 * room for attached readers that lag behind. */
#ifndef SPACE_AGENT_RING_H
#define SPACE_AGENT_RING_H

#include "base/str.h"

struct ring {
	char *p;
	size_t cap, max, keep;
	uint64_t start, end; /* offsets: bytes start..end are here */
};

#define RING_FLOOR (128 * 1024)

void ring_set_budget(size_t bytes);			 /* of all rings; SIZE_MAX at first */
void ring_init(struct ring *r, size_t keep, size_t max); /* max is raised to keep */
void ring_clear(struct ring *r);			 /* forgets the bytes; offsets stay */
/* Makes room for N more bytes without touching those there are, as far as memory and budget allow.
 * Where they do not, `max` (and `keep`) become what there is: who holds a writer back by `max`
 * never loses what a reader has yet to see. */
void ring_reserve(struct ring *r, size_t n);
/* Appends. When memory cannot be had the oldest bytes go instead: this never fails, and says by
 * `start` what is missing. */
void ring_add(struct ring *r, const void *data, size_t n);
/* Bytes from AT on that lie in one piece, at most MAX of them. AT is between start and end. */
struct str ring_peek(const struct ring *r, uint64_t at, size_t max);
uint64_t ring_kept(const struct ring *r); /* where a latecomer may begin */
void ring_shrink(struct ring *r); /* nothing more will be added: gives back what is over KEEP and
				     what is not used */

#endif
