/* digests.c - see digests.h. */
#include "image/digests.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>

#include "base/cur.h"
#include "base/fault.h"

#define MAGIC "SPACEDIG"
#define VERSION 1
#define HEAD 16
#define RECORD 40
#define BEGINS UINT32_MAX
#define BUFFER (64 * KIB)

static_assert(SHA_LEN == SHA256_DIGEST_LENGTH, "SHA-256");

const char *node_file_name(enum node_file f)
{
	static const char *const names[] = { "memory", "state", "disk" };

	static_assert(ARRAY_LEN(names) == NODE_FILES, "a name for each");
	return names[f];
}

bool all_zero(const void *p, size_t n)
{
	const char *b = p;

	return !n || (!b[0] && !memcmp(b, b + 1, n - 1));
}

void sha_of(uint8_t out[SHA_LEN], const void *p, size_t n)
{
	SHA256(p, n, out);
}

int chunks_each(int fd, uint64_t size, uint8_t *buf, chunk_fn *fn, void *arg, uint64_t *at)
{
	uint64_t pos = 0;

	while (pos < size) {
		off_t data = lseek(fd, (off_t)pos, SEEK_DATA);
		size_t n;
		int r;

		if (data < 0 && errno == ENXIO)
			return 0; /* only a hole is left */
		*at = pos;
		if (data < 0 && errno != EINVAL)
			return -errno;
		if (data > 0)
			pos = (uint64_t)data & ~(CHUNK - 1); /* a file system without holes: EINVAL, and all of it is read */
		if (pos >= size)
			return 0;
		*at = pos;
		n = MIN(CHUNK, size - pos);
		r = pread_all(fd, buf, n, (off_t)pos);
		if (!r && !all_zero(buf, n))
			r = fn((uint32_t)(pos / CHUNK), buf, n, arg);
		if (r < 0)
			return r;
		pos += CHUNK;
	}
	return 0;
}

static void put_le(uint8_t *to, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

/* --- writing --- */

static void flush(struct digest_writer *w)
{
	if (!w->err && EVP_DigestUpdate(w->md, w->buf.p, w->buf.n) != 1)
		w->err = -ENOMEM;
	if (!w->err)
		w->err = FAULT_OURS(write_all(w->fd, w->buf.p, w->buf.n));
	w->buf.n = 0;
}

static void put(struct digest_writer *w, const void *p, size_t n)
{
	if (w->buf.n + n > BUFFER)
		flush(w);
	if (!w->err)
		w->err = buf_add(&w->buf, p, n);
}

int digest_writer_begin(struct digest_writer *w, int fd)
{
	uint8_t head[HEAD] = MAGIC;

	*w = (struct digest_writer){ .fd = fd, .md = EVP_MD_CTX_new() };
	buf_init(&w->buf, BUFFER);
	if (!w->md || EVP_DigestInit_ex(w->md, EVP_sha256(), NULL) != 1)
		w->err = -ENOMEM;
	put_le(head + 8, VERSION, 4);
	put(w, head, sizeof(head));
	return w->err;
}

void digest_writer_add(struct digest_writer *w, const struct digest_record *r)
{
	uint8_t b[RECORD] = { 0 };

	put_le(b, r->file, 4);
	put_le(b + 4, r->begins ? BEGINS : r->index, 4);
	if (r->begins)
		put_le(b + 8, r->size, 8);
	else
		memcpy(b + 8, r->sha, SHA_LEN);
	put(w, b, sizeof(b));
}

int digest_writer_end(struct digest_writer *w)
{
	uint8_t sha[SHA_LEN];

	flush(w);
	if (!w->err && EVP_DigestFinal_ex(w->md, sha, NULL) != 1)
		w->err = -ENOMEM;
	if (!w->err)
		w->err = FAULT_OURS(write_all(w->fd, sha, sizeof(sha)));
	if (!w->err && FAULT(fsync(w->fd)))
		w->err = -errno;
	return w->err;
}

void digest_writer_clear(struct digest_writer *w)
{
	EVP_MD_CTX_free(w->md);
	w->md = NULL;
	buf_clear(&w->buf);
}

/* --- reading --- */

/* The file's own digest, over everything but itself. */
static int check_self(struct digest_reader *r)
{
	autofree uint8_t *b = malloc(BUFFER);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t sha[SHA_LEN], stored[SHA_LEN] = { 0 };
	uint64_t at = 0;
	int e = b && md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;

	while (!e && at < r->end) {
		size_t n = MIN(BUFFER, r->end - at);

		e = pread_all(r->fd, b, n, (off_t)at);
		if (!e && EVP_DigestUpdate(md, b, n) != 1)
			e = -ENOMEM;
		at += n;
	}
	if (!e)
		e = pread_all(r->fd, stored, SHA_LEN, (off_t)at);
	if (!e && EVP_DigestFinal_ex(md, sha, NULL) != 1)
		e = -ENOMEM;
	if (!e && memcmp(sha, stored, SHA_LEN))
		e = -EBADMSG;
	EVP_MD_CTX_free(md);
	return e;
}

int digest_reader_open(struct digest_reader *r, int dirfd)
{
	uint8_t head[HEAD];
	struct stat st;
	struct cur c;
	int e;

	*r = (struct digest_reader){ .fd = openat(dirfd, "digests", O_RDONLY | O_CLOEXEC | O_NOFOLLOW) };
	buf_init(&r->buf, BUFFER / RECORD * RECORD);
	if (r->fd < 0)
		return -errno;
	if (fstat(r->fd, &st))
		return -errno;
	if (st.st_size < HEAD + SHA_LEN || (st.st_size - HEAD - SHA_LEN) % RECORD)
		return -EBADMSG;
	r->at = HEAD;
	r->end = (uint64_t)st.st_size - SHA_LEN;
	e = pread_all(r->fd, head, sizeof(head), 0);
	c = cur_of(head + 8, 8);
	if (!e && (memcmp(head, MAGIC, 8) || cur_le32(&c) != VERSION))
		e = -EBADMSG;
	return e ? e : check_self(r);
}

void digest_reader_clear(struct digest_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	buf_clear(&r->buf);
}

int digest_reader_next(struct digest_reader *r, struct digest_record *out)
{
	struct cur c;
	int e;

	if (r->used == r->buf.n) {
		size_t n = MIN(r->buf.max, r->end - r->at);

		if (!n)
			return 0;
		r->used = r->buf.n = 0;
		e = buf_reserve(&r->buf, n);
		if (!e)
			e = pread_all(r->fd, r->buf.p, n, (off_t)r->at);
		if (e)
			return e;
		r->buf.n = n;
		r->at += n;
	}
	c = cur_of(r->buf.p + r->used, RECORD);
	r->used += RECORD;
	*out = (struct digest_record){ .file = cur_le32(&c) };
	out->index = cur_le32(&c);
	out->begins = out->index == BEGINS;
	if (out->begins)
		out->size = cur_le64(&c);
	else
		memcpy(out->sha, cur_take(&c, SHA_LEN), SHA_LEN);
	return out->file < NODE_FILES ? 1 : -EBADMSG;
}

int digest_reader_file(struct digest_reader *r, enum node_file file, uint64_t *size)
{
	struct digest_record rec = { 0 };
	int e;

	while ((e = digest_reader_next(r, &rec)) > 0) {
		if (rec.begins && rec.file == file) {
			*size = rec.size;
			return 1;
		}
		if (rec.file >= file) {
			r->used -= RECORD; /* it is of a later one, which may be asked for next */
			return 0;
		}
	}
	return e;
}

/* The next record of the file that is being checked, if there is one. */
static int check_advance(struct digest_check *c)
{
	int e = digest_reader_next(c->r, &c->next);

	c->have = e > 0 && !c->next.begins;
	if (e > 0 && c->next.begins)
		c->r->used -= RECORD;
	return e < 0 ? e : 0;
}

int digest_check_begin(struct digest_check *c, struct digest_reader *r)
{
	*c = (struct digest_check){ .r = r };
	return check_advance(c);
}

int digest_check_chunk(struct digest_check *c, uint32_t index, const uint8_t sha[SHA_LEN], uint64_t *at)
{
	*at = index * CHUNK;
	if (c->have && c->next.index < index) {
		*at = c->next.index * CHUNK; /* there were bytes here, and now there are none */
		return -EBADMSG;
	}
	if (!c->have || c->next.index > index || memcmp(c->next.sha, sha, SHA_LEN))
		return -EBADMSG;
	return check_advance(c);
}

int digest_check_end(struct digest_check *c, uint64_t *at)
{
	*at = c->have ? c->next.index * CHUNK : 0;
	return c->have ? -EBADMSG : 0;
}
