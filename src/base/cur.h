/* cur.h - reading bytes from outside: a cursor that cannot leave its slice and remembers that it failed. */
#ifndef SPACE_CUR_H
#define SPACE_CUR_H

#include "base/str.h"

struct cur {
	const uint8_t *p, *end;
	bool bad;
};

struct cur cur_of(const void *p, size_t n);
uint8_t cur_u8(struct cur *c); /* 0 once bad */
uint16_t cur_be16(struct cur *c);
uint32_t cur_be32(struct cur *c);
uint32_t cur_le32(struct cur *c);
uint64_t cur_le64(struct cur *c);
const uint8_t *cur_take(struct cur *c, size_t n); /* NULL once bad */
struct cur cur_sub(struct cur *c, size_t n);
static inline size_t cur_left(const struct cur *c)
{
	return (size_t)(c->end - c->p);
}

#endif
