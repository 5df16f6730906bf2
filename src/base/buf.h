/* buf.h - bytes that grow up to a maximum fixed at birth. */
#ifndef SPACE_BUF_H
#define SPACE_BUF_H

#include "base/str.h"

struct buf {
	char *p;
	size_t n, cap, max;
};

void buf_init(struct buf *b, size_t max); /* allocates nothing yet */
void buf_clear(struct buf *b);		  /* gives the memory back; the maximum stays */

/* All of these: 0, -ENOBUFS past the maximum, -ENOMEM. On failure the buffer is as before. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_adds(struct buf *b, struct str s);
int buf_addz(struct buf *b, const char *z);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
int buf_reserve(struct buf *b, size_t more); /* room for MORE bytes at b->p + b->n */

void buf_drop(struct buf *b, size_t n); /* removes N bytes at the front */
struct str buf_str(const struct buf *b);
char *buf_steal(struct buf *b); /* the bytes with a NUL after them, for the caller to free; NULL when out of memory */

#define autobuf CLEANUP(buf_clear)

#endif
