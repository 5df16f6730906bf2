/* export.c - a node as one stream; the format is in stream.h. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "base/fault.h"
#include "image/stream.h"

struct export {
	struct pool *p;
	int out;
	const struct progress *pr;
	struct fail *why;
	struct stream_head head;
	int fd[ROLES];
	struct stream_sums sums;
	struct digest_reader stored; /* what the node's files should be, if that is known; else its fd is -1 */
	struct digest_check check;
	bool checking;
	enum stream_role role;
	uint8_t *buf, *packed; /* CHUNK; and a record with its pages */
	uint64_t at, done, total;
};

/* The reader may be a pipe or a socket that does not block. */
static int out_write(int fd, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t r = FAULT(write(fd, p, n));

		if (r < 0 && errno == EAGAIN) {
			struct pollfd pfd = { .fd = fd, .events = POLLOUT };

			(void)poll(&pfd, 1, -1);
			continue;
		}
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

static int write_failed(struct export *x, int r)
{
	return fail_set(x->why, r, "exporting checkpoint %s: %s", x->head.node.id, strerror(-r));
}

/* --- what goes into it --- */

static int open_named(struct export *x, enum stream_role r)
{
	const struct digest *d = stream_named(&x->head, r);

	if (!d)
		return -ENOENT;
	return r == ROLE_KERNEL ? kernel_open(x->p, d, x->why) : r == ROLE_INITRD ? initrd_open(x->p, d, x->why) : image_open(x->p, d, x->why);
}

static int open_role(struct export *x, int dir, enum stream_role r)
{
	struct stat st;
	int fd;

	if (r < ROLES_NAMED ? !stream_named(&x->head, r) : r != ROLE_DISK && !x->head.node.has_memory)
		return 0;
	fd = r < ROLES_NAMED ? open_named(x, r) : openat(dir, stream_role_name(r), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (r < ROLES_NAMED && fd < 0)
		return fd; /* in words already */
	if (fd < 0)
		return errno == ENOENT ? 0 : pool_fail(x->why, -errno, "%s of checkpoint %s", stream_role_name(r), x->head.node.id);
	x->fd[r] = fd;
	if (fstat(fd, &st))
		return pool_fail(x->why, -errno, "%s of checkpoint %s", stream_role_name(r), x->head.node.id);
	if (!st.st_size)
		return fail_as(x->why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s is empty", x->head.node.id, stream_role_name(r));
	x->head.file[r].there = true;
	x->head.file[r].bytes = (uint64_t)st.st_size;
	x->head.file[r].stored = MIN((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512);
	x->total += x->head.file[r].stored;
	return 0;
}

/* What import will insist on is not sent otherwise. */
static int check_node(struct export *x)
{
	struct node *n = &x->head.node;
	const char *missing = NULL;

	if (n->has_memory && !x->head.file[ROLE_MEMORY].there)
		missing = "memory";
	else if (n->has_memory && !x->head.file[ROLE_STATE].there)
		missing = "state";
	else if (n->disk && !x->head.file[ROLE_DISK].there)
		missing = "disk";
	if (missing)
		return fail_as(x->why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s is missing", n->id, missing);
	if (n->has_memory && x->head.file[ROLE_MEMORY].bytes != n->memory)
		return fail_as(x->why, ERR_checkpoint_damaged, "checkpoint %s is damaged: memory has %llu bytes instead of %llu", n->id,
			(unsigned long long)x->head.file[ROLE_MEMORY].bytes, (unsigned long long)n->memory);
	n->disk = x->head.file[ROLE_DISK].bytes; /* it may have been rounded up when it was made */
	n->parent[0] = 0;
	return 0;
}

static int collect(struct export *x, const char *id)
{
	autoclose int dir = -1;
	int r = node_read(x->p, id, &x->head.node, x->why);

	if (!r)
		r = node_meta_read(x->p, id, &x->head.meta, x->why);
	if (!r && x->head.node.image.hex[0])
		r = image_find(x->p, x->head.node.image.hex, &x->head.image, x->why);
	if (r < 0)
		return r;
	x->head.image.name[0] = 0;
	dir = node_open(x->p, id, x->why);
	if (dir < 0)
		return dir;
	for (unsigned i = 0; i < ROLES && !r; i++)
		r = open_role(x, dir, i);
	if (!r)
		r = check_node(x);
	if (r < 0)
		return r;
	r = digest_reader_open(&x->stored, dir);
	if (r == -EBADMSG)
		return fail_as(x->why, ERR_checkpoint_damaged, "checkpoint %s is damaged: digests", id);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? pool_fail(x->why, r, "the digests of checkpoint %s", id) : 0;
}

/* --- writing it --- */

static int write_head(struct export *x)
{
	uint8_t pre[STREAM_PREAMBLE] = STREAM_MAGIC;
	autobuf struct buf text = { 0 };
	int r;

	buf_init(&text, STREAM_HEAD_MAX);
	r = stream_head_write(&x->head, &text, x->why);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < 4; i++) {
		pre[8 + i] = (uint8_t)(STREAM_VERSION >> 8 * i);
		pre[12 + i] = (uint8_t)(text.n >> 8 * i);
	}
	sha_of(pre + 16, text.p, text.n);
	r = sums_begin(&x->sums, pre + 16);
	if (!r)
		r = out_write(x->out, pre, sizeof(pre));
	if (!r)
		r = out_write(x->out, (const uint8_t *)text.p, text.n);
	return r < 0 ? write_failed(x, r) : 0;
}

static int write_record(struct export *x, const struct record *rec)
{
	record_pack(x->packed, rec);
	return out_write(x->out, x->packed, STREAM_RECORD);
}

/* One MiB: its record, then those of its pages that are not zero. */
static int write_chunk(uint32_t index, const uint8_t *p, size_t n, void *arg)
{
	struct export *x = arg;
	struct record rec = { .tag = TAG_DATA, .role = x->role, .value = index * CHUNK };
	size_t len = STREAM_RECORD;
	int r = 0;

	sha_of(rec.b, p, n);
	if (x->checking && (r = digest_check_chunk(&x->check, index, rec.b, &x->at)) < 0)
		return r;
	for (size_t at = 0, i = 0; at < n; at += STREAM_PAGE, i++) {
		size_t page = MIN(STREAM_PAGE, n - at);

		if (all_zero(p + at, page))
			continue;
		rec.a[i / 8] |= (uint8_t)(1 << i % 8);
		memcpy(x->packed + len, p + at, page);
		len += page;
	}
	record_pack(x->packed, &rec);
	r = sums_chunk(&x->sums, &rec);
	if (!r)
		r = out_write(x->out, x->packed, len);
	x->done += n;
	step(x->pr, "exporting", x->total ? MIN(1.0, (double)x->done / (double)x->total) : -1);
	return r;
}

/* Holds what is sent of a node's file against what was stored of it: a damaged checkpoint is not passed on. */
static int begin_check(struct export *x)
{
	uint64_t size;
	int r;

	x->checking = false;
	if (x->stored.fd < 0 || x->role < ROLE_MEMORY)
		return 0;
	r = digest_reader_file(&x->stored, x->role - ROLE_MEMORY, &size);
	if (r < 0)
		return r;
	x->at = 0;
	if (!r || size != x->head.file[x->role].bytes)
		return -EBADMSG;
	x->checking = true;
	return digest_check_begin(&x->check, &x->stored);
}

static int write_file(struct export *x)
{
	struct record done;
	int r = begin_check(x);

	if (!r)
		r = chunks_each(x->fd[x->role], x->head.file[x->role].bytes, x->buf, write_chunk, x, &x->at);
	if (!r && x->checking)
		r = digest_check_end(&x->check, &x->at);
	if (r == -EBADMSG || (r == -EIO && x->role >= ROLE_MEMORY))
		return fail_as(x->why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s at offset %llu", x->head.node.id,
			stream_role_name(x->role), (unsigned long long)x->at);
	if (!r)
		r = sums_file(&x->sums, &done, x->role);
	if (!r)
		r = write_record(x, &done);
	return r < 0 ? write_failed(x, r) : 0;
}

static int write_all_of_it(struct export *x)
{
	struct record stop;
	int r = write_head(x);

	for (x->role = 0; x->role < ROLES && !r; x->role++)
		if (x->head.file[x->role].there)
			r = write_file(x);
	if (r < 0)
		return r;
	r = sums_end(&x->sums, &stop);
	if (!r)
		r = write_record(x, &stop);
	return r < 0 ? write_failed(x, r) : 0;
}

static_assert(ROLE_MEMORY + NODE_MEMORY == ROLE_MEMORY && ROLE_MEMORY + NODE_STATE == ROLE_STATE && ROLE_MEMORY + NODE_DISK == ROLE_DISK,
	"a node's files have one order");

int node_export(struct pool *p, const char *id, int out_fd, const struct progress *pr, struct fail *why)
{
	struct export x = { .p = p, .out = out_fd, .pr = pr, .why = why, .stored.fd = -1 };
	int r;

	for (unsigned i = 0; i < ROLES; i++)
		x.fd[i] = -1;
	x.buf = malloc(CHUNK);
	x.packed = malloc(CHUNK + STREAM_RECORD);
	r = x.buf && x.packed ? collect(&x, id) : fail_set(why, -ENOMEM, "exporting: out of memory");
	if (!r)
		r = write_all_of_it(&x);
	for (unsigned i = 0; i < ROLES; i++)
		if (x.fd[i] >= 0)
			close(x.fd[i]);
	digest_reader_clear(&x.stored);
	sums_clear(&x.sums);
	stream_head_clear(&x.head);
	free(x.buf);
	free(x.packed);
	return r;
}
