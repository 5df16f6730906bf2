/* stream.h - the export format: a node with all that it needs, as one stream of bytes (docs/export-format.md).
 *
 * What both directions share: the head, the records, and the sums. Everything that is read is a lie until it has been checked: a length is bounded
 * before it is used, no name or path of the stream is ever used, and what a digest names has that digest. */
#ifndef SPACE_IMAGE_STREAM_H
#define SPACE_IMAGE_STREAM_H

#include "image/digests.h"
#include "image/nodes.h"

#define STREAM_MAGIC "\x89SPACE\r\n" /* not text; a transfer that changes line ends is found out at once */
#define STREAM_VERSION 1
#define STREAM_PREAMBLE 48 /* magic, u32 version, u32 length of the head, SHA-256 of the head */
#define STREAM_HEAD_MAX (1 * MIB)
#define STREAM_RECORD 80
#define STREAM_PAGE 4096U

/* In the order in which they come. The first three have a digest as their name and may be in the pool already. */
enum stream_role { ROLE_KERNEL, ROLE_INITRD, ROLE_IMAGE, ROLE_MEMORY, ROLE_STATE, ROLE_DISK, ROLES };
#define ROLES_NAMED 3
const char *stream_role_name(enum stream_role r);

struct stream_head {
	struct node node;
	struct image_info image; /* if the node has one */
	json_t *meta;		 /* owned; may be NULL */
	struct {
		bool there;
		uint64_t bytes, stored; /* stored: about how many of them are data; for progress alone */
	} file[ROLES];
};
void stream_head_clear(struct stream_head *h);
int stream_head_write(const struct stream_head *h, struct buf *out, struct fail *why); /* the JSON */
int stream_head_read(struct str text, struct stream_head *out, struct fail *why);      /* OUT is to be cleared */
/* The digest that the node has for it; NULL for a file without one. */
const struct digest *stream_named(const struct stream_head *h, enum stream_role r);

/* DATA: 1 MiB (or what is left to the end) of file `role` at offset `value`: a = bitmap of its pages of 4 KiB that follow, b = SHA-256 of the whole
 * MiB. DONE: the file's end; value = number of DATA records, b = their sum. STOP: the end of it all; value = number of files, b = the sum of sums. */
enum stream_tag { TAG_DATA = 0x41544144, TAG_DONE = 0x454e4f44, TAG_STOP = 0x504f5453 };
struct record {
	uint32_t tag, role;
	uint64_t value;
	uint8_t a[SHA_LEN], b[SHA_LEN];
};
void record_pack(uint8_t out[STREAM_RECORD], const struct record *r);
void record_unpack(struct record *r, const uint8_t in[STREAM_RECORD]);

static inline bool bit_get(const uint8_t map[SHA_LEN], unsigned i)
{
	return map[i / 8] >> i % 8 & 1;
}

/* A file's sum: SHA-256 over the offset (u64) and digest of each of its DATA records. The sum of sums: over the head's digest and each file's sum. So
 * a record or a file that is missing, doubled or elsewhere is found out. 0 or -ENOMEM. */
struct stream_sums {
	EVP_MD_CTX *file, *all;
	uint64_t chunks;
	unsigned files;
};
int sums_begin(struct stream_sums *s, const uint8_t head[SHA_LEN]);
int sums_chunk(struct stream_sums *s, const struct record *r);
int sums_file(struct stream_sums *s, struct record *out, enum stream_role role); /* the DONE record; the next file begins */
int sums_end(struct stream_sums *s, struct record *out);			   /* the STOP record */
void sums_clear(struct stream_sums *s);

#endif
