#include "agent/ring.h"

#define RING_FIRST 4096

static size_t budget = SIZE_MAX, used;

void ring_set_budget(size_t bytes)
{
	budget = bytes;
}

void ring_init(struct ring *r, size_t keep, size_t max)
{
	*r = (struct ring){ .keep = keep, .max = MAX(keep, max) };
}

void ring_clear(struct ring *r)
{
	free(r->p);
	used -= r->cap;
	r->p = NULL;
	r->cap = 0;
	r->start = r->end;
}

/* Moves what is from FROM on into memory of CAP bytes. */
static int resize(struct ring *r, size_t cap, uint64_t from)
{
	char *p = malloc(cap ? cap : 1);

	if (!p)
		return -ENOMEM;
	for (uint64_t at = from; at < r->end;) {
		struct str s = ring_peek(r, at, cap - (size_t)(at % cap));

		memcpy(p + at % cap, s.p, s.n);
		at += s.n;
	}
	free(r->p);
	used += cap - r->cap;
	r->p = p;
	r->cap = cap;
	r->start = from;
	return 0;
}

void ring_reserve(struct ring *r, size_t n)
{
	while (n > r->cap - (size_t)(r->end - r->start) && r->cap < r->max) {
		size_t cap = MIN(r->cap ? r->cap * 2 : RING_FIRST, r->max);
		bool dear = cap > RING_FLOOR && (used > budget || cap - r->cap > budget - used);

		if (dear || resize(r, cap, r->start) < 0) {
			r->max = r->cap;
			r->keep = MIN(r->keep, r->max);
		}
	}
}

void ring_add(struct ring *r, const void *data, size_t n)
{
	const char *from = data;

	ring_reserve(r, n);
	if (n > r->cap) { /* only the tail fits */
		from += n - r->cap;
		r->end += n - r->cap;
		n = r->cap;
		r->start = r->end;
	}
	while (n > 0) {
		size_t at = (size_t)(r->end % r->cap), piece = MIN(n, r->cap - at);

		memcpy(r->p + at, from, piece);
		from += piece;
		n -= piece;
		r->end += piece;
	}
	if (r->end - r->start > r->cap)
		r->start = r->end - r->cap;
}

struct str ring_peek(const struct ring *r, uint64_t at, size_t max)
{
	size_t off, n;

	assert(at >= r->start && at <= r->end);
	if (at == r->end)
		return (struct str){ "", 0 };
	off = (size_t)(at % r->cap);
	n = (size_t)MIN(r->end - at, (uint64_t)(r->cap - off));
	return (struct str){ r->p + off, MIN(n, max) };
}

uint64_t ring_kept(const struct ring *r)
{
	uint64_t kept = r->end > r->keep ? r->end - r->keep : 0;

	return MAX(kept, r->start);
}

void ring_shrink(struct ring *r)
{
	uint64_t from = ring_kept(r);

	if (from == r->end)
		ring_clear(r);
	else if (r->end - from < r->cap)
		(void)resize(r, (size_t)(r->end - from), from);
}
