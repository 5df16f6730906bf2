/* cpio.c - see cpio.h. */
#include "image/cpio.h"

#include <sys/stat.h>

#define PATH_LIMIT 256

static void pad(struct cpio *c)
{
	static const char zeros[4];

	if (!c->err && c->b->n % 4)
		c->err = buf_add(c->b, zeros, 4 - c->b->n % 4);
}

static void member(struct cpio *c, const char *path, uint32_t mode, unsigned links, unsigned major,
	unsigned minor, struct str data)
{
	size_t n = strlen(path) + 1;

	if (c->err)
		return;
	if (n > PATH_LIMIT) {
		c->err = -ENAMETOOLONG;
		return;
	}
	if (data.n > UINT32_MAX) {
		c->err = -EFBIG;
		return;
	}
	/* magic ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor
	 * namesize check */
	c->err = buf_addf(c->b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c->inode++, mode, 0U, 0U, links, 0U, (uint32_t)data.n, 0U, 0U, major, minor,
		(uint32_t)n, 0U);
	if (!c->err)
		c->err = buf_add(c->b, path, n);
	pad(c);
	if (!c->err && data.n)
		c->err = buf_adds(c->b, data);
	pad(c);
}

void cpio_begin(struct cpio *c, struct buf *b)
{
	*c = (struct cpio){ .b = b, .inode = 1 };
}

void cpio_dir(struct cpio *c, const char *path, unsigned mode)
{
	member(c, path, S_IFDIR | mode, 2, 0, 0, (struct str){ "", 0 });
}

void cpio_file(struct cpio *c, const char *path, unsigned mode, struct str data)
{
	member(c, path, S_IFREG | mode, 1, 0, 0, data);
}

void cpio_device(struct cpio *c, const char *path, unsigned mode, unsigned major, unsigned minor)
{
	member(c, path, S_IFCHR | mode, 1, major, minor, (struct str){ "", 0 });
}

int cpio_end(struct cpio *c)
{
	c->inode = 0;
	member(c, "TRAILER!!!", 0, 1, 0, 0, (struct str){ "", 0 });
	return c->err;
}
