/* buf.c - see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max };
}

void buf_clear(struct buf *b)
{
	free(b->p);
	b->p = NULL;
	b->n = b->cap = 0;
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t need, cap;
	char *p;

	if (more > b->max - b->n)
		return -ENOBUFS;
	need = b->n + more;
	if (need <= b->cap)
		return 0;
	cap = b->cap ? b->cap : MIN((size_t)64, b->max);
	while (cap < need)
		cap = cap > b->max / 2 ? b->max : cap * 2;
	p = realloc(b->p, cap);
	if (!p)
		return -ENOMEM;
	b->p = p;
	b->cap = cap;
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	int r;

	if (len == 0)
		return 0;
	r = buf_reserve(b, len);
	if (r < 0)
		return r;
	memcpy(b->p + b->n, data, len);
	b->n += len;
	return 0;
}

int buf_adds(struct buf *b, struct str s)
{
	return buf_add(b, s.p, s.n);
}

int buf_addz(struct buf *b, const char *z)
{
	return buf_add(b, z, strlen(z));
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	char small[256];
	autofree char *large = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	if ((size_t)n < sizeof(small))
		return buf_add(b, small, (size_t)n);
	if ((size_t)n > b->max - b->n)
		return -ENOBUFS;
	large = malloc((size_t)n + 1);
	if (!large)
		return -ENOMEM;
	va_start(ap, fmt);
	vsnprintf(large, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return buf_add(b, large, (size_t)n);
}

void buf_drop(struct buf *b, size_t n)
{
	if (n >= b->n) {
		b->n = 0;
		return;
	}
	memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
}

struct str buf_str(const struct buf *b)
{
	return (struct str){ b->p, b->n };
}

char *buf_steal(struct buf *b)
{
	char *p = realloc(b->p, b->n + 1);

	if (!p)
		return NULL;
	p[b->n] = '\0';
	b->p = NULL;
	b->n = b->cap = 0;
	return p;
}
