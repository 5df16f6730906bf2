/* Nodes as they are stored: what they take, what their removal gives back, and their digests; on XFS, btrfs and ext4. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "image/digests.h"
#include "image/extents.h"
#include "image_fs.h"
#include "test.h"

#define BLOCK 4096
#define BLOCKS 8192 /* scattered ones */
#define MEMORY (160 * MIB)
#define DISK (200 * MIB)

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void fill_random(uint8_t *b, size_t n, uint64_t *seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v = rnd(seed);

		memcpy(b + i, &v, 8);
	}
}

/* LEN bytes of noise at AT. */
static void put_noise(int fd, uint64_t at, uint64_t len, uint64_t seed)
{
	static uint8_t b[MIB];

	for (uint64_t end = at + len; at < end; at += sizeof(b)) {
		size_t n = MIN(sizeof(b), end - at);

		fill_random(b, n, &seed);
		assert(!pwrite_all(fd, b, n, (off_t)at));
	}
}

static struct node node_for(const char *id, const char *parent)
{
	struct node n = { .vcpus = 1, .memory = MEMORY, .disk = DISK, .has_memory = true };

	snprintf(n.id, sizeof(n.id), "%s", id);
	snprintf(n.parent, sizeof(n.parent), "%s", parent);
	snprintf(n.driver, sizeof(n.driver), "qemu");
	snprintf(n.driver_version, sizeof(n.driver_version), "7");
	snprintf(n.kind, sizeof(n.kind), "checkpoint");
	return n;
}

static int file_in(int dir, const char *name, uint64_t size)
{
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert(fd >= 0 && !ftruncate(fd, (off_t)size));
	return fd;
}

/* A node without a parent: some data in the front of memory and disk. */
static void make_root(struct pool *p, char id[24])
{
	struct fail why;
	struct node n;
	int dir = node_begin(p, id, &why), fd;

	assert(dir >= 0);
	fd = file_in(dir, "memory", MEMORY);
	put_noise(fd, 0, 48 * MIB, 1);
	put_noise(fd, 100 * MIB + 5 * BLOCK, 3 * BLOCK, 2);
	close(fd);
	fd = file_in(dir, "disk", DISK);
	put_noise(fd, 8 * MIB, 40 * MIB, 3);
	close(fd);
	fd = file_in(dir, "state", 0);
	put_noise(fd, 0, 8000, 4);
	close(fd);
	n = node_for(id, "");
	CHECK_INT(node_commit(p, dir, &n, &why), 0);
	close(dir);
}

/* As a save does it: clones of the parent's files, changed blocks written over. SCATTER(i): which block is the i-th. */
static void make_child(struct pool *p, const char *parent, char id[24], unsigned blocks, uint64_t seed)
{
	static const char *const names[] = { "memory", "disk", "state" };
	struct fail why;
	struct node n;
	int up = node_open(p, parent, &why), dir = node_begin(p, id, &why);
	uint8_t b[BLOCK];

	assert(up >= 0 && dir >= 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		autoclose int src = openat(up, names[i], O_RDONLY | O_CLOEXEC), fd = file_in(dir, names[i], 0);
		bool cloned;

		assert(!file_dup(fd, src, &cloned));
		if (i == 2)
			continue;
		for (unsigned k = 0; k < blocks / 2; k++) {
			fill_random(b, sizeof(b), &seed);
			/* Every third block of the memory's front, then into what was a hole; no two side by side. */
			assert(!pwrite_all(fd, b, sizeof(b), (off_t)(k * 9 % 4096 * 3 + 1 + k / 4096 * 4096 * 3) * BLOCK));
		}
	}
	n = node_for(id, parent);
	CHECK_INT(node_commit(p, dir, &n, &why), 0);
	close(dir);
	close(up);
}

static void digest_node(struct pool *p, const char *id, char out[65])
{
	static const char *const names[] = { "memory", "disk", "state" };
	char all[200] = "";
	struct digest d;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		autoclose int dir = node_open(p, id, NULL), fd = dir < 0 ? -1 : openat(dir, names[i], O_RDONLY | O_CLOEXEC);

		CHECK(fd >= 0);
		CHECK_INT(file_sha256(fd, out), 0);
		snprintf(all + 65 * i, 66, "%s.", out);
	}
	digest_of_text(&d, str_of(all));
	memcpy(out, d.hex, 65);
}

static void usage_on(enum fs_kind kind)
{
	char root[24], a[24], b[24], c[24], before[4][65], after[65];
	uint64_t own, shared, free0, free1, free2;
	const uint64_t changed = (uint64_t)BLOCKS * BLOCK;
	struct pool_usage u;
	struct fail why;
	struct fs f;

	if (!fs_begin(&f, kind, 1400))
		return;
	make_root(f.p, root);
	CHECK_INT(node_usage(f.p, root, NULL, &own, &shared, &why), 0);
	CHECK(own >= 88 * MIB && own <= 90 * MIB);
	CHECK_INT(shared, 0);
	free0 = fs_free(&f);
	make_child(f.p, root, a, BLOCKS, 77);
	free1 = fs_free(&f);
	CHECK_INT(node_usage(f.p, a, root, &own, &shared, &why), 0);
	fprintf(stderr, "%s: changed %llu, own %llu, shared %llu, room taken %lld\n", fs_names[kind], (unsigned long long)changed, (unsigned long long)own,
		(unsigned long long)shared, (long long)(free0 - free1));
	if (kind == FS_EXT4) {
		CHECK_INT(shared, 0);
		CHECK(own > 88 * MIB);
	} else {
		CHECK(own >= changed && own <= changed * 12 / 10 + 2 * MIB);
		CHECK(shared > 56 * MIB && shared < 89 * MIB);
		/* Not only on paper. */
		CHECK(free0 - free1 <= changed * 12 / 10 + 8 * MIB);
	}
	make_child(f.p, a, b, 64, 78);
	make_child(f.p, a, c, 64, 79);
	CHECK_INT(node_usage(f.p, b, a, &own, &shared, &why), 0);
	CHECK(kind == FS_EXT4 ? own > 88 * MIB : own >= 64 * BLOCK && own <= 64 * BLOCK * 12 / 10 + 2 * MIB);
	CHECK_INT(node_usage(f.p, b, NULL, &own, &shared, &why), 0);
	CHECK(own > 88 * MIB && !shared);
	CHECK_INT(node_usage(f.p, "nabcdefghij0123456789", NULL, &own, &shared, &why), -ENOENT);
	/* Each block counts once in the whole. */
	CHECK_INT(pool_usage(f.p, &u, &why), 0);
	CHECK_INT(u.nodes.count, 4);
	CHECK_INT(u.images.count, 0);
	CHECK(kind == FS_EXT4 ? u.nodes.bytes > 352 * MIB : u.nodes.bytes >= 88 * MIB + changed && u.nodes.bytes < 92 * MIB + changed);
	/* Any may go, in any order; the others keep what they have. */
	digest_node(f.p, root, before[0]);
	digest_node(f.p, a, before[1]);
	digest_node(f.p, b, before[2]);
	digest_node(f.p, c, before[3]);
	free1 = fs_free(&f);
	CHECK_INT(node_remove(f.p, a, &why), 0);
	digest_node(f.p, root, after);
	CHECK_STR(after, before[0]);
	digest_node(f.p, b, after);
	CHECK_STR(after, before[2]);
	CHECK_INT(node_remove(f.p, root, &why), 0);
	digest_node(f.p, c, after);
	CHECK_STR(after, before[3]);
	CHECK_INT(node_usage(f.p, b, a, &own, &shared, &why), 0); /* its parent has gone */
	CHECK(own > 88 * MIB && !shared);
	CHECK_INT(node_remove(f.p, b, &why), 0);
	digest_node(f.p, c, after);
	CHECK_STR(after, before[3]);
	free2 = fs_free(&f);
	CHECK(kind == FS_EXT4 ? free2 > free1 + 260 * MIB : free2 > free1);
	CHECK_INT(node_remove(f.p, c, &why), 0);
	free2 = fs_free(&f);
	CHECK(free2 > free0 + 84 * MIB);
	fs_end(&f);
}

TEST(node_usage_and_removal_on_xfs)
{
	usage_on(FS_XFS);
}

TEST(node_usage_and_removal_on_btrfs)
{
	usage_on(FS_BTRFS);
}

TEST(node_usage_and_removal_on_ext4)
{
	usage_on(FS_EXT4);
}

/* Extents that were cut, moved or grown count to the byte. */
TEST(partial_overlaps_count_to_the_block)
{
	struct fs f;

	for (enum fs_kind kind = FS_XFS; kind <= FS_BTRFS; kind++) {
		uint64_t own, shared;
		struct fail why;
		int a, b;

		if (!fs_begin(&f, kind, 600))
			return;
		a = pool_anon(f.p, 0600, &why);
		b = pool_anon(f.p, 0600, &why);
		put_noise(a, 0, 16 * MIB, 5);
		CHECK_INT(file_clone(b, a), 0);
		CHECK_INT(extents_compare(b, a, &own, &shared), 0);
		CHECK_INT(own, 0);
		CHECK_INT(shared, 16 * MIB);
		put_noise(b, 5 * MIB, 3 * BLOCK, 6);	/* in the middle; it may lie in the page cache only */
		put_noise(b, 16 * MIB, MIB, 7);		/* at the end */
		CHECK(!ftruncate(b, 17 * MIB));		/* XFS takes more behind it than was asked for, until the file is closed */
		CHECK_INT(extents_compare(b, a, &own, &shared), 0);
		CHECK(own >= 3 * BLOCK + MIB && own <= 3 * BLOCK + MIB + 64 * KIB);
		CHECK_INT(shared, 16 * MIB - 3 * BLOCK);
		put_noise(a, 10 * MIB, 2 * MIB, 8);	/* the parent moves away from under it */
		CHECK(!fallocate(b, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
		CHECK_INT(extents_compare(b, a, &own, &shared), 0);
		CHECK_INT(shared, 13 * MIB - 3 * BLOCK);
		CHECK_INT(extents_compare(b, b, &own, &shared), 0);
		CHECK_INT(own, 0);
		close(a);
		close(b);
		fs_end(&f);
	}
}

/* --- digests --- */

static void flip(struct pool *p, const char *id, const char *name, uint64_t at)
{
	autoclose int dir = node_open(p, id, NULL), fd = openat(dir, name, O_RDWR | O_CLOEXEC);
	uint8_t b = 0;

	CHECK(fd >= 0 && !pread_all(fd, &b, 1, (off_t)at));
	b ^= 0x10;
	CHECK_INT(pwrite_all(fd, &b, 1, (off_t)at), 0);
}

TEST(digests_find_the_mib_that_does_not_hold)
{
	static const struct { const char *file; uint64_t at; const char *where; } rows[] = {
		{ "memory", 0, "memory at offset 0" },
		{ "memory", 47 * MIB + 12345, "memory at offset 49283072" },
		{ "memory", 100 * MIB + 5 * BLOCK, "memory at offset 104857600" },
		{ "memory", 60 * MIB + 1, "memory at offset 62914560" }, /* a hole that is none any more */
		{ "memory", MEMORY - 1, "memory at offset 166723584" },
		{ "disk", 8 * MIB, "disk at offset 8388608" },
		{ "disk", 5, "disk at offset 0" },
		{ "state", 7999, "state at offset 0" },
		{ "digests", 100, "digests" },
		{ "digests", 3, "digests" },
	};
	char id[24], child[24], where[160];
	struct fail why;
	struct stat st;
	struct fs f;
	int dir, fd;

	if (!fs_begin(&f, FS_XFS, 900))
		return;
	make_root(f.p, id);
	CHECK_INT(node_verify(f.p, id, where, &why), -ENOENT);
	CHECK_INT(node_digest(f.p, id, &why), 0);
	CHECK_INT(node_digest(f.p, id, &why), 0);
	CHECK_INT(node_verify(f.p, id, where, &why), 0);
	CHECK_STR(where, "");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s %llu", rows[i].file, (unsigned long long)rows[i].at);
		flip(f.p, id, rows[i].file, rows[i].at);
		CHECK_INT(node_verify(f.p, id, where, &why), -EBADMSG);
		CHECK_STR(where, rows[i].where);
		CHECK_INT(why.code, ERR_checkpoint_damaged);
		flip(f.p, id, rows[i].file, rows[i].at);
		CHECK_INT(node_verify(f.p, id, where, &why), 0);
	}
	test_row(NULL);
	/* A file that lost its end, or blocks, or itself; its sibling does not mind. */
	make_child(f.p, id, child, 2, 9);
	CHECK_INT(node_digest(f.p, child, &why), 0);
	dir = node_open(f.p, id, &why);
	REQUIRE(dir >= 0);
	fd = openat(dir, "disk", O_RDWR | O_CLOEXEC);
	CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 9 * MIB, 2 * MIB));
	CHECK_INT(node_verify(f.p, id, where, &why), -EBADMSG);
	CHECK_STR(where, "disk at offset 9437184");
	CHECK(!ftruncate(fd, 20 * MIB));
	CHECK_INT(node_verify(f.p, id, where, &why), -EBADMSG);
	CHECK(strstr(where, "disk at offset 20971520"));
	close(fd);
	CHECK(!unlinkat(dir, "memory", 0));
	CHECK_INT(node_verify(f.p, id, where, &why), -EBADMSG);
	CHECK_STR(where, "memory is missing");
	CHECK_INT(node_verify(f.p, child, where, &why), 0);
	CHECK(!fstatat(dir, "digests", &st, 0) && st.st_size < 16 * 1024); /* holes have none */
	close(dir);
	CHECK_INT(node_digest(f.p, "nabcdefghij0123456789", &why), -ENOENT);
	fs_end(&f);
}

/* Fills the pool to the last block. */
static int fill_up(struct pool *p)
{
	static uint8_t b[64 * KIB];
	int fd = pool_anon(p, 0600, NULL);

	memset(b, 'f', sizeof(b));
	for (size_t n = sizeof(b); n >= 512; n /= 2)
		while (write(fd, b, n) == (ssize_t)n)
			;
	(void)fsync(fd);
	return fd;
}

TEST(digests_on_a_full_disk)
{
	char id[24], where[160];
	struct fail why;
	struct fs f;
	int dir, full, r;

	/* ext4 gives no block beyond its last; XFS keeps some for itself. */
	if (!fs_begin(&f, FS_EXT4, 300))
		return;
	make_root(f.p, id);
	full = fill_up(f.p);
	r = node_digest(f.p, id, &why);
	CHECK_INT(r, -ENOSPC);
	CHECK_INT(why.code, ERR_no_space);
	dir = node_open(f.p, id, &why);
	CHECK(faccessat(dir, "digests", F_OK, 0));
	close(dir);
	close(full);
	CHECK_INT(node_digest(f.p, id, &why), 0);
	CHECK_INT(node_verify(f.p, id, where, &why), 0);
	fs_end(&f);
}

/* --- node.json, and what is said beside it --- */

TEST(node_json_of_the_first_format_is_read)
{
	static const char old[] =
		"{\"format\":1,\"id\":\"%s\",\"parent\":\"\",\"image\":\"\",\"kernel\":\"\",\"initrd\":\"\",\"driver\":\"qemu\",\"driver_version\":\"7\","
		"\"vcpus\":1,\"memory\":4096,\"disk\":%d,\"has_memory\":true,\"own_bytes\":0,\"created\":\"2026-01-02T03:04:05Z\",\"label\":\"\","
		"\"agent_protocol\":1}";
	char id[24], text[1024];
	autojson json_t *meta = json_pack("{s:s,s:{s:s}}", "user", "u", "env", "A", "1");
	json_t *back = NULL;
	struct node n, got;
	struct fail why;
	struct fs f;
	int dir;

	if (!fs_begin(&f, FS_EXT4, 64))
		return;
	dir = node_begin(f.p, id, &why);
	n = node_for(id, "");
	n.read_only = true;
	n.disk = 0;
	CHECK_INT(node_meta_write(dir, meta, &why), 0);
	CHECK_INT(node_commit(f.p, dir, &n, &why), 0);
	CHECK_INT(node_read(f.p, id, &got, &why), 0);
	CHECK(got.read_only);
	CHECK_STR(got.kind, "checkpoint");
	CHECK_INT(node_meta_read(f.p, id, &back, &why), 0);
	CHECK(json_equal(meta, back));
	json_decref(back);
	for (int disk = 0; disk < 2; disk++) {
		snprintf(text, sizeof(text), old, id, disk * 4096);
		CHECK_INT(file_write_atomic(dir, "node.json", text, strlen(text), 0600), 0);
		CHECK_INT(node_read(f.p, id, &got, &why), 0);
		CHECK_STR(got.kind, "");
		CHECK_INT(got.read_only, !disk);
	}
	*strchr(text, '1') = '9';
	CHECK_INT(file_write_atomic(dir, "node.json", text, strlen(text), 0600), 0);
	CHECK_INT(node_read(f.p, id, &got, &why), -ENOTSUP);
	CHECK_INT(why.code, ERR_checkpoint_mismatch);
	CHECK_INT(file_write_atomic(dir, "meta.json", "[]", 2, 0600), 0);
	CHECK(node_meta_read(f.p, id, &back, &why) < 0);
	CHECK(!unlinkat(dir, "meta.json", 0));
	CHECK_INT(node_meta_read(f.p, id, &back, &why), 0);
	CHECK(!back);
	close(dir);
	fs_end(&f);
}

/* --- files in many pieces --- */

static bool spares_blocks(int fd)
{
	struct fsxattr x;

	CHECK(!ioctl(fd, FS_IOC_FSGETXATTR, &x));
	return !(x.fsx_xflags & FS_XFLAG_COWEXTSIZE);
}

/* XFS sets room aside for disks that are written to, and not for nodes' files: see pool_spare_blocks(). */
TEST(only_disks_in_use_have_room_set_aside)
{
	static const char id[] = "iabcdefghij0123456789";
	char root[24];
	struct fail why;
	struct fs f;
	int dir, disk, live, back;

	if (!fs_begin(&f, FS_XFS, 600))
		return;
	make_root(f.p, root);
	dir = node_open(f.p, root, &why);
	disk = openat(dir, "disk", O_RDONLY | O_CLOEXEC);
	CHECK(!spares_blocks(disk));
	live = disk_clone(f.p, id, disk, 0, 0, NULL, &why);
	REQUIRE(live >= 0);
	CHECK(spares_blocks(live));
	back = file_in(dir, "again", 0); /* as a save clones it */
	CHECK_INT(file_clone(back, live), 0);
	CHECK(!spares_blocks(back));
	close(back);
	close(live);
	close(disk);
	close(dir);
	fs_end(&f);
}

static int clone_ms(struct pool *p, int fd, double *ms)
{
	int dst = pool_anon(p, 0600, NULL), r;
	int64_t t = mono_ns();

	r = file_clone(dst, fd);
	*ms = (double)(mono_ns() - t) / NS_PER_MS;
	close(dst);
	return r;
}

static void pieces_on(enum fs_kind kind)
{
	static const char id[] = "iabcdefghij0123456789";
	uint64_t n0, n1, own, shared, seed = 5;
	char before[65], after[65];
	double slow, fast;
	struct fail why;
	uint8_t b[BLOCK];
	int src, disk, base, r;
	struct fs f;

	if (!fs_begin(&f, kind, 1400))
		return;
	src = pool_anon(f.p, 0600, &why);
	put_noise(src, 0, 96 * MIB, 1);
	put_noise(src, 128 * MIB, 32 * MIB, 2);
	CHECK(!fsync(src));
	disk = disk_clone(f.p, id, src, 0, 0, NULL, &why);
	REQUIRE(disk >= 0);
	CHECK_INT(disk_extents(f.p, id, &n0, &why), 0);
	for (unsigned i = 0; i < 6000; i++) { /* every second block of the first 47 MiB */
		fill_random(b, sizeof(b), &seed);
		assert(!pwrite_all(disk, b, sizeof(b), (off_t)i * 2 * BLOCK));
	}
	CHECK(!fsync(disk));
	CHECK_INT(disk_extents(f.p, id, &n0, &why), 0);
	CHECK(n0 > 12000);
	CHECK_INT(file_sha256(disk, before), 0);
	CHECK_INT(clone_ms(f.p, disk, &slow), 0);
	base = pool_anon(f.p, 0600, &why);
	CHECK_INT(file_clone(base, disk), 0);
	if (kind == FS_XFS) { /* written to just now */
		CHECK_INT(disk_rewrite(f.p, id, &why), -EBUSY);
		CHECK_INT(why.code, ERR_busy);
		sleep(3);
	}
	r = disk_rewrite(f.p, id, &why);
	if (!CHECK_INT(r, 0))
		fprintf(stderr, "%s\n", why.msg);
	CHECK_INT(disk_extents(f.p, id, &n1, &why), 0);
	CHECK_INT(clone_ms(f.p, disk, &fast), 0);
	fprintf(stderr, "%s: %llu extents, a clone takes %.1f ms; rewritten: %llu, %.1f ms\n", fs_names[kind], (unsigned long long)n0, slow,
		(unsigned long long)n1, fast);
	CHECK(n1 < 1000);
	CHECK(fast < slow / 4);
	CHECK_INT(file_sha256(disk, after), 0); /* the descriptor that a monitor has shows it too */
	CHECK_STR(after, before);
	/* What was in one piece is still shared with its past. */
	CHECK_INT(extents_compare(disk, base, &own, &shared), 0);
	CHECK(shared >= 40 * MIB);
	fill_random(b, sizeof(b), &seed);
	CHECK_INT(pwrite_all(disk, b, sizeof(b), MIB), 0);
	CHECK_INT(file_sha256(base, after), 0);
	CHECK_STR(after, before);
	close(base);
	close(src);
	close(disk);
	fs_end(&f);
}

TEST(a_disk_in_pieces_is_put_together_on_xfs)
{
	pieces_on(FS_XFS);
}

TEST(a_disk_in_pieces_is_put_together_on_btrfs)
{
	pieces_on(FS_BTRFS);
}

/* Somebody writes all the time: nothing of that may be lost, whether or not the rewriting finds a quiet moment. */
TEST(a_disk_that_is_written_to_loses_nothing)
{
	static const char id[] = "iabcdefghij0123456789";
	uint64_t seed = 5, *shadow = calloc(8192, 8), done = 0;
	struct fail why;
	uint8_t b[BLOCK];
	int src, disk, status;
	struct fs f;
	pid_t pid;

	if (!fs_begin(&f, FS_XFS, 700))
		return;
	src = pool_anon(f.p, 0600, &why);
	put_noise(src, 0, 32 * MIB, 1);
	disk = disk_clone(f.p, id, src, 0, 0, NULL, &why);
	REQUIRE(disk >= 0);
	for (unsigned i = 0; i < 8192; i += 2) {
		memset(b, 0, sizeof(b));
		assert(!pwrite_all(disk, b, sizeof(b), (off_t)i * BLOCK));
	}
	CHECK(!fsync(disk));
	pid = fork();
	if (!pid) { /* tries without a pause */
		for (int i = 0; i < 4000; i++)
			(void)disk_rewrite(f.p, id, NULL);
		_exit(0);
	}
	/* Bursts with pauses just long enough that some tries begin. */
	for (int burst = 0; burst < 2; burst++) {
		for (unsigned i = 0; i < 60; i++) {
			uint64_t k = rnd(&seed) % 4096 * 2, v = ++done;

			memcpy(b, &v, 8);
			assert(!pwrite_all(disk, b, 8, (off_t)(k * BLOCK)));
			shadow[k] = v;
			usleep(1000);
		}
		usleep(3300000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	for (unsigned k = 0; k < 8192; k += 2) {
		uint64_t v;

		assert(!pread_all(disk, &v, 8, (off_t)k * BLOCK));
		if (!CHECK_INT(v, shadow[k]))
			break;
	}
	free(shadow);
	close(src);
	close(disk);
	fs_end(&f);
}

TEST(nodes_in_pieces_are_put_together)
{
	char root[24], id[24], before[65], after[65], where[160];
	struct fail why;
	uint64_t n;
	struct fs f;

	if (!fs_begin(&f, FS_XFS, 1400))
		return;
	make_root(f.p, root);
	make_child(f.p, root, id, 20400, 3);
	CHECK_INT(node_digest(f.p, id, &why), 0);
	CHECK_INT(node_extents(f.p, id, &n, &why), 0);
	digest_node(f.p, id, before);
	CHECK_INT(node_rewrite(f.p, id, &why), 0);
	CHECK_INT(node_extents(f.p, id, &n, &why), 0);
	CHECK(n < DISK_EXTENTS_MAX);
	digest_node(f.p, id, after);
	CHECK_STR(after, before);
	CHECK_INT(node_verify(f.p, id, where, &why), 0);
	fs_end(&f);
	if (!fs_begin(&f, FS_EXT4, 900))
		return;
	make_root(f.p, root);
	CHECK_INT(node_extents(f.p, root, &n, &why), 0);
	CHECK_INT(node_rewrite(f.p, root, &why), 0); /* few pieces: nothing to do */
	fs_end(&f);
}
