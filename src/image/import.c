/* import.c - reads a node from a stream that may lie; the format is in stream.h.
 *
 * Everything is written in the pool's own tmp directory. Only when the whole stream has been read, every digest and every sum has held, and nothing
 * comes after it, are its parts published (publish.c). So a stream that is cut, damaged or made up leaves nothing. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/random.h"
#include "image/images.h"
#include "image/publish.h"
#include "image/stream.h"

#define ROOM_EVERY (16 * MIB) /* the pool's room is looked at after this much */
#define ROOM_LEAST (64 * MIB) /* what an import leaves to the sandboxes that run */

struct import {
	struct pool *p;
	int in;
	const struct progress *pr;
	struct fail *why;
	struct stream_head head;
	struct publish pub;
	struct node node;
	int dir;
	int fd[ROLES]; /* -1: it is there already, and what comes is checked and dropped */
	struct stream_sums sums;
	int digests_fd;
	struct digest_writer digests;
	uint8_t *buf;
	uint64_t looked, done, total;
};

static int bad(struct import *m, const char *what)
{
	return fail_as(m->why, ERR_bad_checkpoint, "not a whole checkpoint: %s", what);
}

static int failed(struct import *m, int r)
{
	return pool_fail(m->why, r, "importing a checkpoint");
}

/* --- reading --- */

/* As much as there is, up to N: fewer only at the end. */
static ssize_t in_read(int fd, uint8_t *to, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = read(fd, to + got, n - got);

		if (r < 0 && errno == EAGAIN) {
			struct pollfd pfd = { .fd = fd, .events = POLLIN };

			(void)poll(&pfd, 1, -1);
			continue;
		}
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

static int take(struct import *m, void *to, size_t n)
{
	ssize_t r = in_read(m->in, to, n);

	if (r < 0)
		return fail_set(m->why, (int)r, "importing a checkpoint: %s", strerror((int)-r));
	return (size_t)r < n ? bad(m, "it ends too early") : 0;
}

static int read_head(struct import *m)
{
	autofree char *text = NULL;
	uint8_t pre[STREAM_PREAMBLE], sha[SHA_LEN];
	uint32_t version = 0, len = 0;
	int r;

	/* So that something else is told by its first bytes, however short it is. */
	r = take(m, pre, 8);
	if (r < 0 || memcmp(pre, STREAM_MAGIC, 8))
		return r < 0 && m->why && m->why->code != ERR_bad_checkpoint ? r : bad(m, "it does not begin as one");
	r = take(m, pre + 8, sizeof(pre) - 8);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < 4; i++) {
		version |= (uint32_t)pre[8 + i] << 8 * i;
		len |= (uint32_t)pre[12 + i] << 8 * i;
	}
	if (version != STREAM_VERSION) {
		fail_as(m->why, ERR_checkpoint_mismatch, "the stream has version %u of the format, and this version of SPACE reads %d", version,
			STREAM_VERSION);
		fail_remedy(m->why, "import it with the version of SPACE that exported it, or a later one");
		return -ENOTSUP;
	}
	if (len < 2 || len > STREAM_HEAD_MAX)
		return bad(m, "its head has an impossible length");
	text = malloc(len);
	if (!text)
		return failed(m, -ENOMEM);
	r = take(m, text, len);
	if (r < 0)
		return r;
	sha_of(sha, text, len);
	if (memcmp(sha, pre + 16, SHA_LEN))
		return bad(m, "its head is damaged");
	r = stream_head_read((struct str){ text, len }, &m->head, m->why);
	if (r < 0) {
		if (m->why && m->why->code != ERR_checkpoint_mismatch && r != -ENOMEM) {
			m->why->code = ERR_bad_checkpoint;
			snprintf(m->why->remedy, sizeof(m->why->remedy), "%s", err_info(ERR_bad_checkpoint)->remedy);
		}
		fail_prefix(m->why, "the head of the stream");
		return r;
	}
	r = sums_begin(&m->sums, sha);
	return r < 0 ? failed(m, r) : 0;
}

/* --- room --- */

/* Before the pool is full to the last block, and the sandboxes with it. */
static int look_for_room(struct import *m)
{
	uint64_t free = 0;
	int r;

	if (m->done && m->done - m->looked < ROOM_EVERY)
		return 0;
	m->looked = m->done;
	r = pool_keep_room(m->p, &free, NULL);
	if (free >= ROOM_LEAST)
		return 0;
	return r == -ENOSPC || r == 0 ? fail_as(m->why, ERR_no_space, "importing a checkpoint: the storage pool is full") : failed(m, r);
}

/* --- files --- */

static int begin_files(struct import *m)
{
	int r;

	m->dir = FAULT_WHY(m->why, node_begin(m->p, m->node.id, m->why));
	if (m->dir < 0)
		return m->dir;
	r = publish_begin(&m->pub, m->p, &m->head, m->why);
	for (unsigned i = 0; i < ROLES && !r; i++) {
		if (!m->head.file[i].there)
			continue;
		m->total += m->head.file[i].stored;
		if (i < ROLES_NAMED) {
			m->fd[i] = m->pub.fd[i];
		} else {
			m->fd[i] = FAULT(openat(m->dir, stream_role_name(i), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
			if (m->fd[i] < 0)
				return failed(m, -errno);
		}
		if (m->fd[i] >= 0 && FAULT(ftruncate(m->fd[i], (off_t)m->head.file[i].bytes)))
			r = errno == EFBIG ? bad(m, "one of its files is larger than this file system can have any") : failed(m, -errno);
	}
	if (r < 0)
		return r;
	m->digests_fd = FAULT(openat(m->dir, "digests", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	r = m->digests_fd < 0 ? -errno : digest_writer_begin(&m->digests, m->digests_fd);
	return r < 0 ? failed(m, r) : 0;
}

/* Reads the pages that MAP names into the buffer, which is zero elsewhere. *n: bytes of this MiB. */
static int read_pages(struct import *m, const struct record *rec, size_t n)
{
	size_t pages = (n + STREAM_PAGE - 1) / STREAM_PAGE;

	memset(m->buf, 0, n);
	for (size_t i = pages; i < CHUNK / STREAM_PAGE; i++)
		if (bit_get(rec->a, (unsigned)i))
			return bad(m, "a page behind the end of its file");
	for (size_t i = 0, end; i < pages; i = end) {
		int r;

		for (end = i; end < pages && bit_get(rec->a, (unsigned)end); end++)
			;
		if (end == i) {
			end++;
			continue;
		}
		r = take(m, m->buf + i * STREAM_PAGE, MIN(end * STREAM_PAGE, n) - i * STREAM_PAGE);
		if (r < 0)
			return r;
	}
	return 0;
}

static int write_pages(int fd, const uint8_t *buf, const struct record *rec, size_t n)
{
	size_t pages = (n + STREAM_PAGE - 1) / STREAM_PAGE;

	for (size_t i = 0, end; i < pages; i = end) {
		size_t from = i * STREAM_PAGE;
		int r;

		for (end = i; end < pages && bit_get(rec->a, (unsigned)end); end++)
			;
		if (end == i) {
			end++;
			continue;
		}
		r = FAULT_OURS(pwrite_all(fd, buf + from, MIN(end * STREAM_PAGE, n) - from, (off_t)(rec->value + from)));
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_chunk(struct import *m, enum stream_role role, const struct record *rec)
{
	size_t n = MIN(CHUNK, m->head.file[role].bytes - rec->value);
	uint8_t sha[SHA_LEN];
	int r;

	r = read_pages(m, rec, n);
	if (r < 0)
		return r;
	sha_of(sha, m->buf, n);
	if (memcmp(sha, rec->b, SHA_LEN) || all_zero(m->buf, n))
		return fail_as(m->why, ERR_bad_checkpoint, "the stream is damaged: %s at offset %llu", stream_role_name(role),
			(unsigned long long)rec->value);
	r = look_for_room(m);
	if (r < 0)
		return r;
	if (m->fd[role] >= 0)
		r = write_pages(m->fd[role], m->buf, rec, n);
	if (!r && role >= ROLE_MEMORY) {
		struct digest_record d = { .file = role - ROLE_MEMORY, .index = (uint32_t)(rec->value / CHUNK) };

		memcpy(d.sha, sha, SHA_LEN);
		digest_writer_add(&m->digests, &d);
		r = m->digests.err;
	}
	if (!r)
		r = sums_chunk(&m->sums, rec);
	m->done += n;
	step(m->pr, "importing", m->total ? MIN(1.0, (double)m->done / (double)m->total) : -1);
	return r < 0 ? failed(m, r) : 0;
}

static bool same_record(const struct record *a, const struct record *b)
{
	return a->tag == b->tag && a->role == b->role && a->value == b->value && !memcmp(a->a, b->a, SHA_LEN) && !memcmp(a->b, b->b, SHA_LEN);
}

static int take_record(struct import *m, struct record *rec)
{
	uint8_t b[STREAM_RECORD];
	int r = take(m, b, sizeof(b));

	if (!r)
		record_unpack(rec, b);
	return r;
}

/* Its DATA records in order of offset, then its DONE. */
static int take_file(struct import *m, enum stream_role role)
{
	uint64_t size = m->head.file[role].bytes, least = 0;
	struct digest_record begins = { .file = role - ROLE_MEMORY, .begins = true, .size = size };
	struct record rec = { 0 }, done;
	int r;

	if (role >= ROLE_MEMORY)
		digest_writer_add(&m->digests, &begins);
	for (;;) {
		r = take_record(m, &rec);
		if (r < 0)
			return r;
		if (rec.tag != TAG_DATA)
			break;
		if (rec.role != role || rec.value % CHUNK || rec.value < least || rec.value >= size)
			return bad(m, "a part of it lies where it cannot");
		r = take_chunk(m, role, &rec);
		if (r < 0)
			return r;
		least = rec.value + CHUNK;
	}
	r = sums_file(&m->sums, &done, role);
	if (r < 0)
		return failed(m, r);
	if (!same_record(&rec, &done))
		return fail_as(m->why, ERR_bad_checkpoint, "the stream is damaged: %s is not whole", stream_role_name(role));
	if (role >= ROLES_NAMED || m->fd[role] < 0)
		return 0;
	/* All of it is read for its digest: a few bytes are not to make us read many GiB of zeroes. */
	if (size > GIB && size / 64 > done.value * CHUNK)
		return bad(m, "one of its files is nearly empty");
	return publish_check(&m->pub, role, m->why);
}

/* The last record, and that nothing comes after it: what was cut or added on the way is found out before anything is kept. */
static int take_end(struct import *m)
{
	struct record rec = { 0 }, stop;
	uint8_t more;
	ssize_t n;
	int r = take_record(m, &rec);

	if (r < 0)
		return r;
	r = sums_end(&m->sums, &stop);
	if (r < 0)
		return failed(m, r);
	if (!same_record(&rec, &stop))
		return bad(m, "its end is damaged");
	n = in_read(m->in, &more, 1);
	if (n < 0)
		return fail_set(m->why, (int)n, "importing a checkpoint: %s", strerror((int)-n));
	return n ? bad(m, "something comes after its end") : 0;
}

/* --- the node --- */

/* What is our own business is not taken from the stream. */
static int finish(struct import *m)
{
	char id[24];
	int r;

	memcpy(id, m->node.id, sizeof(id));
	m->node = m->head.node;
	memcpy(m->node.id, id, sizeof(id));
	m->node.parent[0] = 0;
	snprintf(m->node.kind, sizeof(m->node.kind), "%s", m->node.has_memory ? "checkpoint" : "snapshot");
	r = digest_writer_end(&m->digests);
	if (r < 0)
		return failed(m, r);
	if (m->head.meta && (r = node_meta_write(m->dir, m->head.meta, m->why)) < 0)
		return r;
	m->node.own_bytes = node_files_bytes(m->dir);
	return publish_commit(&m->pub, m->dir, &m->node, m->why);
}

static int import(struct import *m)
{
	int r = read_head(m);

	if (!r)
		r = look_for_room(m);
	if (!r)
		r = begin_files(m);
	for (unsigned i = 0; i < ROLES && !r; i++)
		if (m->head.file[i].there)
			r = take_file(m, i);
	if (!r)
		r = take_end(m);
	step(m->pr, "storing", -1);
	return r ? r : finish(m);
}

int node_import(struct pool *p, int in_fd, const struct progress *pr, struct node *out, struct fail *why)
{
	struct fail none = { 0 };
	struct import m = { .p = p, .in = in_fd, .pr = pr, .why = why ? why : &none, .dir = -1, .digests_fd = -1, .buf = malloc(CHUNK) };
	int r;

	for (unsigned i = 0; i < ROLES; i++)
		m.fd[i] = -1;
	r = m.buf ? import(&m) : failed(&m, -ENOMEM);
	for (unsigned i = ROLES_NAMED; i < ROLES; i++)
		if (m.fd[i] >= 0)
			close(m.fd[i]);
	if (m.dir >= 0) {
		close(m.dir);
		if (r < 0)
			(void)FAULT_OURS(node_abort(p, m.node.id));
	}
	publish_end(&m.pub);
	digest_writer_clear(&m.digests);
	if (m.digests_fd >= 0)
		close(m.digests_fd);
	sums_clear(&m.sums);
	stream_head_clear(&m.head);
	free(m.buf);
	if (!r)
		*out = m.node;
	return r;
}
