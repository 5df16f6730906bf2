/* tar.h - the tar format (POSIX ustar and pax, and GNU's long names on reading): one header at a
 * time, no I/O. */
#ifndef SPACE_AGENT_TAR_H
#define SPACE_AGENT_TAR_H

#include "agent/path.h"
#include "base/buf.h"

#define TAR_BLOCK 512
#define TAR_PAX_MAX (64 * 1024) /* of one extended header, or long name */

enum tar_type {
	TAR_FILE = '0',
	TAR_HARDLINK = '1',
	TAR_SYMLINK = '2',
	TAR_CHAR = '3',
	TAR_BLOCKDEV = '4',
	TAR_DIR = '5',
	TAR_FIFO = '6',
	TAR_PAX = 'x',
	TAR_PAX_GLOBAL = 'g',
	TAR_LONGNAME = 'L',
	TAR_LONGLINK = 'K',
};

struct tar_entry {
	char type;
	char name[PATH_LEN], link[PATH_LEN];
	mode_t mode; /* permission bits */
	uint32_t uid, gid, major, minor;
	uint64_t size; /* of the body that follows; padded to TAR_BLOCK */
	int64_t mtime_s;
	uint32_t mtime_ns;
};

/* 1: an entry; 0: a block of zeros (two of them end an archive); -EBADMSG: not a header;
 * -ENAMETOOLONG. */
int tar_parse(const uint8_t block[TAR_BLOCK], struct tar_entry *e);

/* What extended headers say of the next entry. */
struct tar_pax {
	bool has_name, has_link, has_size, has_mtime, has_uid, has_gid;
	char name[PATH_LEN], link[PATH_LEN];
	uint64_t size;
	int64_t mtime_s;
	uint32_t mtime_ns, uid, gid;
};
int tar_pax_read(struct tar_pax *p, struct str records);	  /* 0, -EBADMSG, -ENAMETOOLONG */
int tar_long_read(struct tar_pax *p, char type, struct str text); /* GNU's L and K */
void tar_pax_apply(const struct tar_pax *p, struct tar_entry *e);

/* Appends the header of E (and, before it, an extended one for what does not fit). 0, -ENOBUFS,
 * -ENOMEM. */
int tar_header(struct buf *b, const struct tar_entry *e);

/* Makes NAME relative and free of "." and empty components, in place. -EINVAL: it has a "..", which
 * leads out. Empty: the top. */
int tar_name_clean(char *name);

static inline size_t tar_padding(uint64_t size)
{
	return (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

#endif
