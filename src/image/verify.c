/* verify.c - a node's digests: made once, in the background, and held against its files later. */
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "image/digests.h"

struct work {
	uint8_t *buf;
	struct digest_writer w;
	struct digest_check c;
	enum node_file file;
	uint64_t at; /* where it stopped */
};

static int file_open(int dir, enum node_file f, struct stat *st)
{
	int fd = openat(dir, node_file_name(f), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	if (fstat(fd, st)) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/* --- making them --- */

static int chunk_add(uint32_t index, const uint8_t *p, size_t n, void *arg)
{
	struct work *k = arg;
	struct digest_record rec = { .file = k->file, .index = index };

	sha_of(rec.sha, p, n);
	digest_writer_add(&k->w, &rec);
	return k->w.err;
}

static int add_files(int dir, struct work *k)
{
	for (k->file = 0; k->file < NODE_FILES; k->file++) {
		struct digest_record rec = { .file = k->file, .begins = true };
		struct stat st = { 0 };
		autoclose int fd = file_open(dir, k->file, &st);
		int r;

		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return fd;
		rec.size = (uint64_t)st.st_size;
		digest_writer_add(&k->w, &rec);
		r = chunks_each(fd, rec.size, k->buf, chunk_add, k, &k->at);
		if (r < 0)
			return r;
	}
	return 0;
}

int node_digest(struct pool *p, const char *id, struct fail *why)
{
	autoclose int dir = node_open(p, id, why);
	autoclose int fd = -1;
	char name[POOL_TMPNAME];
	struct work k = { 0 };
	int r;

	if (dir < 0)
		return dir;
	if (!faccessat(dir, "digests", F_OK, AT_SYMLINK_NOFOLLOW))
		return 0;
	fd = pool_tmpfile(p, "digests-", name, why);
	if (fd < 0)
		return fd;
	k.buf = malloc(CHUNK);
	r = k.buf ? digest_writer_begin(&k.w, fd) : -ENOMEM;
	if (!r)
		r = add_files(dir, &k);
	if (!r)
		r = digest_writer_end(&k.w);
	if (!r && FAULT(renameat(p->tmpfd, name, dir, "digests")))
		r = -errno;
	if (!r && FAULT(fsync(dir)))
		r = -errno;
	if (r < 0)
		FAULT(unlinkat(p->tmpfd, name, 0));
	digest_writer_clear(&k.w);
	free(k.buf);
	return r < 0 ? pool_fail(why, r, "the digests of checkpoint %s", id) : 0;
}

/* --- holding them against the files --- */

static int chunk_check(uint32_t index, const uint8_t *p, size_t n, void *arg)
{
	struct work *k = arg;
	uint8_t sha[SHA_LEN];

	sha_of(sha, p, n);
	return digest_check_chunk(&k->c, index, sha, &k->at);
}

/* What the next of the digests say of one file of DIR. WHERE gets what is wrong, with -EBADMSG. */
static int check_file(int dir, struct digest_reader *dr, struct work *k, char where[160])
{
	const char *name = node_file_name(k->file);
	struct stat st = { 0 };
	autoclose int fd = file_open(dir, k->file, &st);
	uint64_t size = 0;
	int r = digest_reader_file(dr, k->file, &size);

	if (fd < 0 && fd != -ENOENT)
		return fd;
	if (r < 0)
		return r;
	if (!r != (fd < 0)) {
		snprintf(where, 160, r ? "%s is missing" : "%s should not be there", name);
		return -EBADMSG;
	}
	if (!r)
		return 0;
	if ((uint64_t)st.st_size != size) {
		snprintf(where, 160, "%s at offset %llu: it should have %llu bytes", name, (unsigned long long)MIN((uint64_t)st.st_size, size),
			(unsigned long long)size);
		return -EBADMSG;
	}
	r = digest_check_begin(&k->c, dr);
	if (!r)
		r = chunks_each(fd, size, k->buf, chunk_check, k, &k->at);
	if (!r)
		r = digest_check_end(&k->c, &k->at);
	/* What the disk cannot give back any more is as lost as what it gives back wrong. */
	if (r == -EBADMSG || r == -EIO || r == -EPIPE || r == -EUCLEAN) {
		snprintf(where, 160, "%s at offset %llu", name, (unsigned long long)k->at);
		return -EBADMSG;
	}
	return r;
}

int node_verify(struct pool *p, const char *id, char where[160], struct fail *why)
{
	autoclose int dir = node_open(p, id, why);
	struct digest_reader dr = { .fd = -1 };
	struct work k = { 0 };
	int r;

	where[0] = 0;
	if (dir < 0)
		return dir;
	r = digest_reader_open(&dr, dir);
	if (r == -EIO)
		r = -EBADMSG;
	k.buf = malloc(CHUNK);
	if (!r && !k.buf)
		r = -ENOMEM;
	for (k.file = 0; !r && k.file < NODE_FILES; k.file++)
		r = check_file(dir, &dr, &k, where);
	if (r == -EBADMSG && !where[0])
		snprintf(where, 160, "digests");
	digest_reader_clear(&dr);
	free(k.buf);
	if (r == -ENOENT)
		fail_as(why, ERR_not_found, "checkpoint %s has no digests yet", id);
	else if (where[0])
		fail_as(why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s", id, where);
	else if (r < 0)
		pool_fail(why, r, "checkpoint %s", id);
	return where[0] ? -EBADMSG : r;
}
