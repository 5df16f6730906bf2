/* cpio.h - a cpio archive of the "newc" kind, as the kernel unpacks it into its first root.
 *
 * Written into a bounded buffer; the same members in the same order give the same bytes: owners are
 * 0, times are 0. Errors stick (err), to be looked at once at the end. */
#ifndef SPACE_IMAGE_CPIO_H
#define SPACE_IMAGE_CPIO_H

#include "base/buf.h"

struct cpio {
	struct buf *b;
	uint32_t inode;
	int err;
};

void cpio_begin(struct cpio *c, struct buf *b);
void cpio_dir(struct cpio *c, const char *path, unsigned mode);
void cpio_file(struct cpio *c, const char *path, unsigned mode, struct str data);
void cpio_device(struct cpio *c, const char *path, unsigned mode, unsigned major,
	unsigned minor);      /* a character device */
int cpio_end(struct cpio *c); /* the trailer; 0 or the first error: -ENOBUFS, -ENOMEM,
				 -ENAMETOOLONG, -EFBIG */

#endif
