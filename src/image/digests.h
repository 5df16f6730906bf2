/* digests.h - one SHA-256 for each MiB of a node's files, and the file nodes/ID/digests that holds them.
 *
 * Only a MiB that is not all zeroes has an entry, so that a sparse file costs what it holds, and holes are never read. The file is
 *
 *	"SPACEDIG"  u32 version  u32 0            (little endian)
 *	records of 40 bytes, in order of file and index:
 *	  u32 file  u32 0xffffffff  u64 size  0…     a file begins
 *	  u32 file  u32 index       32 bytes         the digest of its MiB number `index` (the last one may be shorter)
 *	32 bytes: SHA-256 of everything before
 */
#ifndef SPACE_IMAGE_DIGESTS_H
#define SPACE_IMAGE_DIGESTS_H

#include <openssl/evp.h>

#include "image/pool.h"

#define CHUNK MIB
#define SHA_LEN 32

/* The files of a node whose content matters, in the order in which they are written everywhere. */
enum node_file { NODE_MEMORY, NODE_STATE, NODE_DISK, NODE_FILES };
const char *node_file_name(enum node_file f);

bool all_zero(const void *p, size_t n);
void sha_of(uint8_t out[SHA_LEN], const void *p, size_t n);

/* Calls FN with each MiB of FD (SIZE bytes) that is not all zeroes, in order: its number, its bytes. BUF: CHUNK bytes to work with. *at is where a
 * read failed. */
typedef int chunk_fn(uint32_t index, const uint8_t *p, size_t n, void *arg);
int chunks_each(int fd, uint64_t size, uint8_t *buf, chunk_fn *fn, void *arg, uint64_t *at);

struct digest_record {
	unsigned file;
	bool begins; /* of SIZE bytes */
	uint64_t size;
	uint32_t index;
	uint8_t sha[SHA_LEN];
};

/* Writing: begin, add …, end. 0 or -errno; errors stick. FD is the caller's. */
struct digest_writer {
	int fd, err;
	EVP_MD_CTX *md;
	struct buf buf;
};
int digest_writer_begin(struct digest_writer *w, int fd);
void digest_writer_add(struct digest_writer *w, const struct digest_record *r);
int digest_writer_end(struct digest_writer *w);	 /* the error, if there was one; synced */
void digest_writer_clear(struct digest_writer *w); /* fine twice */

/* Reading. open: -ENOENT, -EBADMSG (it is damaged itself), -errno. next: 1, 0 at the end, -EBADMSG, -errno. */
struct digest_reader {
	int fd;
	uint64_t at, end;
	struct buf buf;
	size_t used; /* of buf */
};
int digest_reader_open(struct digest_reader *r, int dirfd);
int digest_reader_next(struct digest_reader *r, struct digest_record *out);
void digest_reader_clear(struct digest_reader *r);

/* Reads up to FILE's beginning. 1: *size; 0: it is not among them. */
int digest_reader_file(struct digest_reader *r, enum node_file file, uint64_t *size);

/* Compares what is read of one file, MiB for MiB, with what was stored of it. Each returns 0, or -EBADMSG with *at where it does not hold. */
struct digest_check {
	struct digest_reader *r;
	struct digest_record next; /* the one that is to come, if `have` */
	bool have;
};
int digest_check_begin(struct digest_check *c, struct digest_reader *r);
int digest_check_chunk(struct digest_check *c, uint32_t index, const uint8_t sha[SHA_LEN], uint64_t *at);
int digest_check_end(struct digest_check *c, uint64_t *at);

#endif
