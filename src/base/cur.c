/* cur.c - see cur.h. */
#include "base/cur.h"

struct cur cur_of(const void *p, size_t n)
{
	const uint8_t *at = p;

	return (struct cur){ at, n ? at + n : at, false };
}

const uint8_t *cur_take(struct cur *c, size_t n)
{
	const uint8_t *at = c->p;

	if (c->bad || n > cur_left(c)) {
		c->bad = true;
		c->p = c->end;
		return NULL;
	}
	c->p += n;
	return at;
}

struct cur cur_sub(struct cur *c, size_t n)
{
	const uint8_t *p = cur_take(c, n);

	if (c->bad)
		return (struct cur){ c->end, c->end, true };
	return cur_of(p, n);
}

uint8_t cur_u8(struct cur *c)
{
	const uint8_t *p = cur_take(c, 1);

	return p ? p[0] : 0;
}

uint16_t cur_be16(struct cur *c)
{
	const uint8_t *p = cur_take(c, 2);

	return p ? (uint16_t)(p[0] << 8 | p[1]) : 0;
}

uint32_t cur_be32(struct cur *c)
{
	const uint8_t *p = cur_take(c, 4);

	return p ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3] : 0;
}

uint32_t cur_le32(struct cur *c)
{
	const uint8_t *p = cur_take(c, 4);

	return p ? (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0] : 0;
}

uint64_t cur_le64(struct cur *c)
{
	uint64_t lo = cur_le32(c);
	uint64_t hi = cur_le32(c);

	return c->bad ? 0 : hi << 32 | lo;
}
