/* The export format: what comes out of one pool goes into another, whole or not at all, and no lie gets in. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/cur.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"
#include "image/images.h"
#include "image/stream.h"
#include "image_fs.h"
#include "test.h"

#define MEMORY (3 * MIB + 8192)
#define DISK (9 * MIB + 512) /* its last page is a part of one */

struct one {
	struct fs f;
	char id[24];
	struct image_info image;
	struct digest kernel, initrd;
};

/* --- making one --- */

static void noise(int fd, uint64_t at, size_t n, unsigned seed)
{
	autofree uint8_t *b = malloc(n);

	for (size_t i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		b[i] = (uint8_t)(seed >> 16 | 1);
	}
	assert(!pwrite_all(fd, b, n, (off_t)at));
}

static int new_file(int dir, const char *name, uint64_t size)
{
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert(fd >= 0 && !ftruncate(fd, (off_t)size));
	return fd;
}

/* A file that lies in the pool under its digest. */
static void named_file(struct pool *p, bool kernel, size_t n, unsigned seed, struct digest *d)
{
	char path[200];
	int fd = new_file(p->fd, "made", n);

	noise(fd, n / 2, n - n / 2, seed); /* zeroes first */
	assert(!digest_of_fd(d, fd, NULL));
	close(fd);
	snprintf(path, sizeof(path), kernel ? "kernels/%s" : "initrds/%s.cpio", d->hex);
	if (kernel) {
		assert(!mkdirat(p->fd, path, 0700) || errno == EEXIST);
		snprintf(path, sizeof(path), "kernels/%s/vmlinux", d->hex);
	}
	assert(!renameat(p->fd, "made", p->fd, path));
}

static bool make_image(struct pool *p, struct image_info *out)
{
	char src[64] = "/tmp/test-image-src-XXXXXX", path[100];
	struct image_info a = { .user = "user", .workdir = "/home/user" };
	struct fail why;
	int r;

	assert(mkdtemp(src));
	snprintf(path, sizeof(path), "%s/file", src);
	assert(!file_write_atomic(AT_FDCWD, path, "hello\n", 6, 0644));
	a.env = json_pack("{s:s,s:s}", "PATH", "/bin", "LANG", "C");
	a.cmd = json_pack("[s,s]", "/bin/x", "-y");
	r = image_pack(p, "named", src, 0, NULL, &a, &why);
	rm_rf(AT_FDCWD, src);
	if (r == -ENODEV)
		test_skip("needs mkfs.erofs");
	else
		CHECK_INT(r, 0);
	*out = a;
	return r == 0;
}

static bool one_begin(struct one *o, enum fs_kind kind, uint64_t mib)
{
	autojson json_t *meta = json_pack("{s:s,s:{s:s}}", "user", "u", "env", "A", "ä");
	struct node n = { .vcpus = 2, .memory = MEMORY, .disk = DISK, .has_memory = true, .agent_protocol = 3, .created_ns = 1700000000123000000 };
	struct fail why;
	int dir, fd;

	memset(o, 0, sizeof(*o));
	if (!fs_begin(&o->f, kind, mib))
		return false;
	if (!make_image(o->f.p, &o->image)) {
		fs_end(&o->f);
		return false;
	}
	named_file(o->f.p, true, 20000, 1, &o->kernel);
	named_file(o->f.p, false, 5000, 2, &o->initrd);
	dir = node_begin(o->f.p, o->id, &why);
	fd = new_file(dir, "memory", MEMORY);
	noise(fd, 4096, 100, 3);
	noise(fd, MIB + 700000, 9000, 4);
	noise(fd, MEMORY - 1, 1, 5);
	close(fd);
	fd = new_file(dir, "state", 0);
	noise(fd, 0, 5001, 6);
	close(fd);
	fd = new_file(dir, "disk", DISK);
	noise(fd, 4 * MIB - 10, 20, 7);
	noise(fd, DISK - 3, 3, 8);
	close(fd);
	CHECK_INT(node_meta_write(dir, meta, &why), 0);
	snprintf(n.id, sizeof(n.id), "%s", o->id);
	snprintf(n.parent, sizeof(n.parent), "nabcdefghij0123456789");
	snprintf(n.driver, sizeof(n.driver), "qemu");
	snprintf(n.driver_version, sizeof(n.driver_version), "7.2");
	snprintf(n.label, sizeof(n.label), "before \"it\" ✓");
	snprintf(n.kind, sizeof(n.kind), "suspend");
	n.image = o->image.digest;
	n.kernel = o->kernel;
	n.initrd = o->initrd;
	CHECK_INT(node_commit(o->f.p, dir, &n, &why), 0);
	close(dir);
	return true;
}

static void one_end(struct one *o)
{
	image_info_clear(&o->image);
	fs_end(&o->f);
}

/* --- streams in memory --- */

struct bytes { uint8_t *p; size_t n; };

static struct bytes exported(struct pool *p, const char *id)
{
	int fd = memfd_create("export", MFD_CLOEXEC);
	struct bytes b = { 0 };
	struct fail why;
	struct stat st;

	if (!CHECK_INT(node_export(p, id, fd, NULL, &why), 0))
		fprintf(stderr, "%s\n", why.msg);
	assert(!fstat(fd, &st));
	b.n = (size_t)st.st_size;
	b.p = malloc(b.n + 1);
	assert(!pread_all(fd, b.p, b.n, 0));
	close(fd);
	return b;
}

static int imported(struct pool *p, const uint8_t *s, size_t n, struct node *out, struct fail *why)
{
	int fd = memfd_create("import", MFD_CLOEXEC), r;

	assert(!pwrite_all(fd, s, n, 0));
	r = node_import(p, fd, NULL, out, why);
	close(fd);
	return r;
}

/* How many files and directories there are below the pool, but for the lock of its tmp directory. */
static unsigned entries(int dirfd_, const char *name)
{
	int fd = dir_open(dirfd_, name);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			n += 1 + (e->d_type == DT_DIR ? entries(fd, e->d_name) : 0);
	if (d)
		closedir(d);
	return n;
}

static void same_file(struct pool *a, const char *id, struct pool *b, const char *id2, const char *name)
{
	char x[65] = "x", y[65] = "y";
	autoclose int d1 = node_open(a, id, NULL), d2 = node_open(b, id2, NULL);
	autoclose int f1 = openat(d1, name, O_RDONLY | O_CLOEXEC), f2 = openat(d2, name, O_RDONLY | O_CLOEXEC);
	struct stat s1, s2;

	test_row("%s", name);
	CHECK(f1 >= 0 && f2 >= 0);
	CHECK_INT(file_sha256(f1, x), 0);
	CHECK_INT(file_sha256(f2, y), 0);
	CHECK_STR(x, y);
	CHECK(!fstat(f1, &s1) && !fstat(f2, &s2) && s1.st_size == s2.st_size);
	CHECK((uint64_t)s2.st_blocks * 512 < 300 * KIB); /* holes stay holes */
	test_row(NULL);
}

static void same_node(struct one *o, struct pool *to, const struct node *n)
{
	struct node back;
	struct image_info i;
	json_t *m1 = NULL, *m2 = NULL;
	char where[160];
	struct fail why;

	CHECK_INT(node_read(to, n->id, &back, &why), 0);
	CHECK(strcmp(n->id, o->id));
	CHECK_STR(back.parent, "");
	CHECK_STR(back.kind, "checkpoint"); /* whatever it was there, it is to stay here */
	CHECK_STR(back.label, "before \"it\" ✓");
	CHECK_STR(back.driver_version, "7.2");
	CHECK_INT(back.vcpus, 2);
	CHECK_INT(back.agent_protocol, 3);
	CHECK_INT(back.created_ns, 1700000000123000000);
	CHECK(back.own_bytes > 20000 && back.own_bytes < 400 * KIB);
	same_file(o->f.p, o->id, to, n->id, "memory");
	same_file(o->f.p, o->id, to, n->id, "state");
	same_file(o->f.p, o->id, to, n->id, "disk");
	CHECK_INT(node_verify(to, n->id, where, &why), 0); /* its digests came along */
	CHECK_INT(node_meta_read(o->f.p, o->id, &m1, &why), 0);
	CHECK_INT(node_meta_read(to, n->id, &m2, &why), 0);
	CHECK(m1 && json_equal(m1, m2));
	json_decref(m1);
	json_decref(m2);
	CHECK_INT(image_find(to, o->image.digest.hex, &i, &why), 0);
	CHECK_STR(i.user, "user");
	CHECK_STR(i.workdir, "/home/user");
	CHECK(json_equal(i.env, o->image.env) && json_equal(i.cmd, o->image.cmd));
	CHECK_STR(i.name, "");
	image_info_clear(&i);
	for (int k = 0; k < 3; k++) {
		int fd = k == 0 ? kernel_open(to, &back.kernel, &why) : k == 1 ? initrd_open(to, &back.initrd, &why) : image_open(to, &back.image, &why);
		struct digest d;

		CHECK(fd >= 0 && !digest_of_fd(&d, fd, &why));
		CHECK_STR(d.hex, k == 0 ? back.kernel.hex : k == 1 ? back.initrd.hex : back.image.hex);
		close(fd);
	}
}

static void across(enum fs_kind from, enum fs_kind to)
{
	struct one o;
	struct fs f;
	struct node n, again;
	struct bytes s, s2;
	struct fail why;
	unsigned before;

	if (!one_begin(&o, from, 600))
		return;
	if (!fs_begin(&f, to, 600)) {
		one_end(&o);
		return;
	}
	s = exported(o.f.p, o.id);
	CHECK(s.n < 700 * KIB);
	CHECK_INT(node_digest(o.f.p, o.id, &why), 0);
	s2 = exported(o.f.p, o.id); /* with digests it is held against them, and the same comes out */
	CHECK(s.n == s2.n && !memcmp(s.p, s2.p, s.n));
	if (!CHECK_INT(imported(f.p, s.p, s.n, &n, &why), 0))
		fprintf(stderr, "%s\n", why.msg);
	else
		same_node(&o, f.p, &n);
	before = entries(f.p->fd, ".");
	CHECK_INT(imported(f.p, s.p, s.n, &again, &why), 0);
	same_node(&o, f.p, &again);
	CHECK_INT(entries(f.p->fd, "."), before + 7); /* one more node: the rest was there */
	CHECK_INT(entries(f.p->tmpfd, "."), 0);
	/* And on from there, without where it came from. */
	free(s2.p);
	s2 = exported(f.p, again.id);
	CHECK_INT(imported(o.f.p, s2.p, s2.n, &n, &why), 0);
	same_node(&o, o.f.p, &n);
	free(s.p);
	free(s2.p);
	fs_end(&f);
	one_end(&o);
}

TEST(from_xfs_to_ext4)
{
	across(FS_XFS, FS_EXT4);
}

TEST(from_btrfs_to_xfs)
{
	across(FS_BTRFS, FS_XFS);
}

TEST(from_ext4_to_btrfs)
{
	across(FS_EXT4, FS_BTRFS);
}

/* --- what is refused --- */

static uint32_t le32(const uint8_t *p)
{
	struct cur c = cur_of(p, 4);

	return cur_le32(&c);
}

/* How long what follows a DATA record is: its pages, the last of a file cut short. */
static size_t pages_len(const struct record *r, const uint64_t *sizes)
{
	size_t n = 0;

	for (unsigned i = 0; i < 256; i++)
		if (bit_get(r->a, i))
			n += MIN(STREAM_PAGE, sizes[r->role] - r->value - i * STREAM_PAGE);
	return n;
}

static uint64_t sizes[ROLES]; /* of the files of the stream that is being tested */

static void learn_sizes(struct bytes s)
{
	struct stream_head h;

	assert(!stream_head_read((struct str){ (char *)s.p + STREAM_PREAMBLE, le32(s.p + 12) }, &h, NULL));
	for (unsigned i = 0; i < ROLES; i++)
		sizes[i] = h.file[i].bytes;
	stream_head_clear(&h);
}

/* The offsets of all records. */
static size_t index_records(struct bytes s, size_t *at, size_t max)
{
	size_t pos = STREAM_PREAMBLE + le32(s.p + 12), n = 0;

	while (pos + STREAM_RECORD <= s.n) {
		struct record r;

		assert(n < max);
		at[n++] = pos;
		record_unpack(&r, s.p + pos);
		pos += STREAM_RECORD + (r.tag == TAG_DATA ? pages_len(&r, sizes) : 0);
	}
	assert(pos == s.n);
	return n;
}

/* After the head was changed: its digest, and the sum of sums, are right again. */
static void make_good(struct bytes *s)
{
	size_t at[200], n = index_records(*s, at, 200);
	struct stream_sums sums;
	struct record r;

	sha_of(s->p + 16, s->p + STREAM_PREAMBLE, le32(s->p + 12));
	assert(!sums_begin(&sums, s->p + 16));
	for (size_t i = 0; i < n; i++) {
		struct record done;

		record_unpack(&r, s->p + at[i]);
		if (r.tag == TAG_DATA)
			assert(!sums_chunk(&sums, &r));
		else if (r.tag == TAG_DONE) {
			assert(!sums_file(&sums, &done, r.role));
			record_pack(s->p + at[i], &done);
		} else {
			assert(!sums_end(&sums, &done));
			record_pack(s->p + at[i], &done);
		}
	}
	sums_clear(&sums);
}

/* The stream with FROM in its head replaced by TO. */
static struct bytes with_head(struct bytes s, const char *from, const char *to)
{
	size_t len = le32(s.p + 12), f = strlen(from), t = strlen(to);
	uint8_t *at = memmem(s.p + STREAM_PREAMBLE, len, from, f);
	struct bytes out;
	size_t front;

	if (!CHECK(at))
		return (struct bytes){ calloc(1, 1), 0 };
	front = (size_t)(at - s.p);
	out.n = s.n - f + t;
	out.p = malloc(out.n + 1);
	memcpy(out.p, s.p, front);
	memcpy(out.p + front, to, t);
	memcpy(out.p + front + t, at + f, s.n - front - f);
	len = len - f + t;
	for (unsigned i = 0; i < 4; i++)
		out.p[12 + i] = (uint8_t)(len >> 8 * i);
	make_good(&out);
	return out;
}

static void refused(struct pool *p, unsigned before, const uint8_t *s, size_t n, enum errcode code)
{
	struct node out = { .vcpus = 77 };
	struct fail why = { 0 };

	CHECK(imported(p, s, n, &out, &why) < 0);
	if (!CHECK_INT(why.code, code))
		fprintf(stderr, "%s\n", why.msg);
	CHECK(why.msg[0]);
	CHECK_INT(out.vcpus, 77);
	CHECK_INT(entries(p->fd, "."), before);
}

TEST(a_head_that_lies_is_refused)
{
	static const struct { const char *from, *to; } rows[] = {
		{ "\"format\":1", "\"format\":2" },
		{ "{\"format\":1", "[\"format\",1" },
		{ "\"format\":1,", "" },
		{ "\"node\":{", "\"other\":1,\"node\":{" },
		{ "\"vcpus\":2", "\"vcpus\":0" },
		{ "\"vcpus\":2", "\"vcpus\":2,\"vcpus\":2" },
		{ "\"id\":\"n", "\"id\":\"../" },
		{ "\"parent\":\"\"", "\"parent\":\"/etc\"" },
		{ "\"driver\":\"qemu\"", "\"driver\":\"qe\\u0007mu\"" },
		{ "\"driver\":\"qemu\"", "\"driver\":\"qemuqemuqemuqemu\"" },
		{ "\"label\":\"before", "\"label\":\"\\n" },
		{ "\"kind\":\"suspend\"", "\"kind\":\"suspendsuspend\"" },
		{ "\"has_memory\":true", "\"has_memory\":false" },
		{ "\"has_memory\":true", "\"has_memory\":1" },
		{ "\"memory\":3153920", "\"memory\":3153921" },
		{ "\"memory\":3153920", "\"memory\":-1" },
		{ "\"disk\":9437696", "\"disk\":0" },
		{ "\"disk\":9437696", "\"disk\":9437697" },
		{ "\"created\":\"2023", "\"created\":\"soon" },
		{ "\"role\":\"kernel\"", "\"role\":\"../../etc\"" },
		{ "\"role\":\"kernel\"", "\"role\":\"initrd\"" },
		{ "\"role\":\"kernel\"", "\"role\":\"disk\"" },
		{ "\"role\":\"kernel\",\"bytes\":20000", "\"role\":\"kernel\",\"bytes\":0" },
		{ "\"role\":\"kernel\",\"bytes\":20000", "\"role\":\"kernel\",\"bytes\":20001" },
		{ "\"role\":\"kernel\",\"bytes\":20000", "\"role\":\"kernel\",\"bytes\":19999" },
		{ "\"role\":\"kernel\",\"bytes\":20000", "\"role\":\"kernel\",\"bytes\":900000000000" },
		{ "\"role\":\"state\",\"bytes\":5001", "\"role\":\"state\",\"bytes\":5000" },
		{ "\"role\":\"state\",\"bytes\":5001", "\"role\":\"state\",\"bytes\":900000000000" },
		{ "\"bytes\":9437696", "\"bytes\":9223372036854775807" },
		{ "\"bytes\":9437696", "\"bytes\":99999999999999999999" },
		{ "\"stored\":", "\"stored\":-" },
		{ "\"user\":\"user\"", "\"user\":\"root\"" }, /* not what the image was made with */
		{ "\"workdir\":\"/home/user\"", "\"workdir\":\"/\"" },
		{ "\"LANG\":\"C\"", "\"LD_PRELOAD\":\"/x\"" },
		{ "\"LANG\":\"C\"", "\"LANG\":1" },
		{ "\"cmd\":[", "\"cmd\":[\"/bin/sh\"," },
		{ "\"files\":[", "\"files\":[1," },
		{ "\"files\":[", "\"files\":[]," },
		{ "\"image\":\"sha256:", "\"image\":\"sha256:zz" },
		{ "\"user\":\"u\"", "\"user\":\"\xff\"" },
	};
	struct one o;
	struct bytes s, t;
	struct node n;
	struct fail why;
	unsigned before;
	struct fs f;

	if (!one_begin(&o, FS_EXT4, 200))
		return;
	s = exported(o.f.p, o.id);
	learn_sizes(s);
	one_end(&o);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	before = entries(f.p->fd, ".");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s -> %s", rows[i].from, rows[i].to);
		t = with_head(s, rows[i].from, rows[i].to);
		refused(f.p, before, t.p, t.n, ERR_bad_checkpoint);
		free(t.p);
	}
	/* Another file's digest as the name of one that came. */
	{
		struct stream_head h;
		char from[100], to[100];

		test_row("digests");
		REQUIRE(!stream_head_read((struct str){ (char *)s.p + STREAM_PREAMBLE, le32(s.p + 12) }, &h, &why));
		snprintf(from, sizeof(from), "\"kernel\":\"sha256:%s", h.node.kernel.hex);
		snprintf(to, sizeof(to), "\"kernel\":\"sha256:%s", h.node.initrd.hex);
		t = with_head(s, from, to);
		refused(f.p, before, t.p, t.n, ERR_bad_checkpoint);
		free(t.p);
		t = with_head(s, from, "\"kernel\":\"");
		refused(f.p, before, t.p, t.n, ERR_bad_checkpoint);
		free(t.p);
		snprintf(from, sizeof(from), "\"initrd\":\"sha256:%s", h.node.initrd.hex);
		snprintf(to, sizeof(to), "\"initrd\":\"sha256:%s", h.node.kernel.hex);
		t = with_head(s, from, to);
		refused(f.p, before, t.p, t.n, ERR_bad_checkpoint);
		free(t.p);
		stream_head_clear(&h);
	}
	test_row("later formats");
	t = with_head(s, "\"node\":{\"format\":2", "\"node\":{\"format\":3");
	refused(f.p, before, t.p, t.n, ERR_checkpoint_mismatch);
	free(t.p);
	s.p[8] = 2;
	refused(f.p, before, s.p, s.n, ERR_checkpoint_mismatch);
	s.p[8] = 1;
	test_row(NULL);
	/* What such a change does if it is none. */
	t = with_head(s, "\"vcpus\":2", "\"vcpus\":3");
	if (!CHECK_INT(imported(f.p, t.p, t.n, &n, &why), 0))
		fprintf(stderr, "%s\n", why.msg);
	CHECK_INT(n.vcpus, 3);
	free(t.p);
	free(s.p);
	fs_end(&f);
}

TEST(a_stream_that_was_cut_or_changed_is_refused)
{
	size_t at[200], n;
	unsigned seed = 7, before;
	struct node out;
	struct bytes s, t;
	struct fail why;
	struct one o;
	struct fs f;

	if (!one_begin(&o, FS_EXT4, 200))
		return;
	s = exported(o.f.p, o.id);
	learn_sizes(s);
	one_end(&o);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	before = entries(f.p->fd, ".");
	n = index_records(s, at, 200);
	CHECK_INT(n, 17);
	for (size_t len = 0; len <= STREAM_PREAMBLE; len++) {
		test_row("cut at %zu", len);
		refused(f.p, before, s.p, len, ERR_bad_checkpoint);
	}
	for (size_t i = 0; i < n; i++)
		for (int d = -1; d < 2; d++) {
			test_row("cut at record %zu%+d", i, d);
			refused(f.p, before, s.p, at[i] + (size_t)d, ERR_bad_checkpoint);
		}
	test_row("one byte short");
	refused(f.p, before, s.p, s.n - 1, ERR_bad_checkpoint);
	test_row("one byte more");
	s.p[s.n] = 0;
	refused(f.p, before, s.p, s.n + 1, ERR_bad_checkpoint);
	/* One bit in each field of each record, in the preamble, and anywhere. */
	for (size_t i = 0; i < n; i++) {
		static const size_t fields[] = { 0, 3, 4, 7, 8, 10, 15, 16, 47, 48, 79 };

		for (size_t k = 0; k < ARRAY_LEN(fields); k++) {
			test_row("record %zu, byte %zu", i, fields[k]);
			s.p[at[i] + fields[k]] ^= 0x10;
			refused(f.p, before, s.p, s.n, ERR_bad_checkpoint);
			s.p[at[i] + fields[k]] ^= 0x10;
		}
	}
	for (size_t i = 0; i < STREAM_PREAMBLE; i++) {
		test_row("byte %zu", i);
		s.p[i] ^= 1;
		refused(f.p, before, s.p, s.n, i >= 8 && i < 12 ? ERR_checkpoint_mismatch : ERR_bad_checkpoint);
		s.p[i] ^= 1;
	}
	for (int i = 0; i < 300; i++) {
		size_t k;

		seed = seed * 1103515245 + 12345;
		k = STREAM_PREAMBLE + (size_t)seed * 7 % (s.n - STREAM_PREAMBLE);
		test_row("byte %zu", k);
		s.p[k] ^= (uint8_t)(1 << i % 8);
		refused(f.p, before, s.p, s.n, ERR_bad_checkpoint);
		s.p[k] ^= (uint8_t)(1 << i % 8);
	}
	/* A record that is gone, or comes twice. */
	for (size_t i = 0; i + 1 < n; i++) {
		size_t len = at[i + 1] - at[i];

		test_row("without record %zu", i);
		t.n = s.n - len;
		t.p = malloc(s.n + len);
		memcpy(t.p, s.p, at[i]);
		memcpy(t.p + at[i], s.p + at[i + 1], s.n - at[i + 1]);
		refused(f.p, before, t.p, t.n, ERR_bad_checkpoint);
		test_row("record %zu twice", i);
		memcpy(t.p, s.p, at[i + 1]);
		memcpy(t.p + at[i + 1], s.p + at[i], s.n - at[i]);
		refused(f.p, before, t.p, s.n + len, ERR_bad_checkpoint);
		free(t.p);
	}
	test_row(NULL);
	refused(f.p, before, (const uint8_t *)"PK\x03\x04", 4, ERR_bad_checkpoint);
	refused(f.p, before, NULL, 0, ERR_bad_checkpoint);
	CHECK_INT(imported(f.p, s.p, s.n, &out, &why), 0); /* that was all that is wrong with it */
	free(s.p);
	fs_end(&f);
}

/* --- what goes wrong on the way --- */

TEST(a_damaged_node_is_not_exported)
{
	struct fail why;
	struct node n;
	struct one o;
	int dir, fd, out;

	if (!one_begin(&o, FS_EXT4, 200))
		return;
	CHECK_INT(node_digest(o.f.p, o.id, &why), 0);
	dir = node_open(o.f.p, o.id, &why);
	fd = openat(dir, "disk", O_RDWR | O_CLOEXEC);
	CHECK_INT(pwrite_all(fd, "x", 1, 4 * MIB + 3), 0);
	out = memfd_create("out", MFD_CLOEXEC);
	CHECK_INT(node_export(o.f.p, o.id, out, NULL, &why), -EBADMSG);
	CHECK_INT(why.code, ERR_checkpoint_damaged);
	CHECK(strstr(why.msg, "disk at offset 4194304"));
	CHECK_INT(lseek(out, 0, SEEK_SET), 0);
	CHECK(node_import(o.f.p, out, NULL, &n, &why) < 0); /* what came out before that was found */
	CHECK_INT(node_export(o.f.p, "nabcdefghij0123456789", out, NULL, &why), -ENOENT);
	CHECK(!unlinkat(dir, "state", 0));
	CHECK_INT(node_export(o.f.p, o.id, out, NULL, &why), -EBADMSG);
	CHECK(strstr(why.msg, "state is missing"));
	close(out);
	close(fd);
	close(dir);
	one_end(&o);
}

TEST(a_full_pool_is_told_and_nothing_stays)
{
	struct node n = { .vcpus = 1, .memory = 64 * MIB, .has_memory = true }, got;
	unsigned before;
	struct bytes s;
	struct fail why;
	char id[24];
	struct fs f;
	int dir, fd;

	if (!fs_begin(&f, FS_EXT4, 300))
		return;
	dir = node_begin(f.p, id, &why);
	fd = new_file(dir, "memory", 64 * MIB);
	noise(fd, 0, 64 * MIB, 1);
	close(fd);
	fd = new_file(dir, "state", 0);
	noise(fd, 0, 10, 1);
	close(fd);
	snprintf(n.id, sizeof(n.id), "%s", id);
	snprintf(n.driver, sizeof(n.driver), "qemu");
	CHECK_INT(node_commit(f.p, dir, &n, &why), 0);
	close(dir);
	s = exported(f.p, id);
	fs_end(&f);
	if (!fs_begin(&f, FS_EXT4, 110))
		return;
	before = entries(f.p->fd, ".");
	CHECK_INT(imported(f.p, s.p, s.n, &got, &why), -ENOSPC);
	CHECK_INT(why.code, ERR_no_space);
	CHECK_INT(entries(f.p->fd, "."), before);
	fs_end(&f);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	CHECK_INT(imported(f.p, s.p, s.n, &got, &why), 0); /* without an image, a kernel, an initramfs */
	free(s.p);
	fs_end(&f);
}

/* A reader that is slow, through a pipe; and one that dies in the middle. */
TEST(an_import_that_is_interrupted_leaves_nothing)
{
	unsigned before, nothing;
	struct bytes s;
	struct fail why;
	struct node n;
	struct one o;
	struct fs f;
	int status, fds[2];
	pid_t pid;

	if (!one_begin(&o, FS_EXT4, 200))
		return;
	s = exported(o.f.p, o.id);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	before = entries(f.p->fd, ".");
	nothing = before - entries(f.p->fd, "tmp");
	CHECK(!pipe2(fds, O_CLOEXEC | O_NONBLOCK));
	pid = fork();
	if (!pid) {
		close(fds[0]);
		_exit(node_export(o.f.p, o.id, fds[1], NULL, NULL) ? 1 : 0);
	}
	close(fds[1]);
	CHECK_INT(node_import(f.p, fds[0], NULL, &n, &why), 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	close(fds[0]);
	same_node(&o, f.p, &n);
	CHECK_INT(node_remove(f.p, n.id, &why), 0);
	CHECK_INT(image_remove(f.p, o.image.digest.hex, &why), 0);
	CHECK_INT(rm_rf(f.p->fd, "kernels") | rm_rf(f.p->fd, "initrds") | mkdirat(f.p->fd, "kernels", 0700) | mkdirat(f.p->fd, "initrds", 0700), 0);
	for (int i = 1; i < 10; i++) {
		size_t part = s.n / 10 * (size_t)i;

		test_row("killed at %zu", part);
		CHECK(!pipe2(fds, O_CLOEXEC));
		pid = fork();
		if (!pid) {
			struct pool *p;

			close(fds[1]);
			_exit(pool_open(f.state, false, 0, &p, NULL) || node_import(p, fds[0], NULL, &n, NULL) ? 1 : 0);
		}
		close(fds[0]);
		CHECK_INT(write_all(fds[1], s.p, part), 0);
		for (int k = 0; k < 1000 && entries(f.p->fd, ".") <= before; k++)
			usleep(10000);
		usleep(10000);
		kill(pid, SIGKILL);
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		close(fds[1]);
		CHECK(entries(f.p->fd, ".") > before);
		CHECK(fs_reopen(&f));
		CHECK_INT(entries(f.p->fd, ".") - entries(f.p->fd, "tmp"), nothing);
		CHECK_INT(entries(f.p->fd, "tmp"), 2);
	}
	test_row(NULL);
	free(s.p);
	fs_end(&f);
	one_end(&o);
}

/* The process died when the kernel, the initramfs and the image were there, and the node was not yet. */
TEST(a_death_between_image_and_node_is_undone)
{
	char text[400], path[64];
	struct bytes s;
	struct fail why;
	struct node n, kept;
	struct one o;
	struct fs f;

	if (!one_begin(&o, FS_EXT4, 200))
		return;
	s = exported(o.f.p, o.id);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	snprintf(text, sizeof(text), "kernel %s\ninitrd %s\nimage %s\nnonsense\nimage ../../x\n", o.kernel.hex, o.initrd.hex, o.image.digest.hex);
	for (int with = 1; with >= 0; with--) {
		test_row(with ? "a node needs them" : "nobody needs them");
		CHECK_INT(imported(f.p, s.p, s.n, with ? &kept : &n, &why), 0);
		if (!with) {
			CHECK_INT(node_remove(f.p, n.id, &why), 0);
			CHECK_INT(node_remove(f.p, kept.id, &why), 0);
		}
		CHECK(!mkdirat(f.p->fd, "tmp/1-dead", 0700)); /* without a lock: its process is gone */
		snprintf(path, sizeof(path), "tmp/1-dead/%s.undo", "nabcdefghij0123456789");
		CHECK_INT(file_write_atomic(f.p->fd, path, text, strlen(text), 0600), 0);
		CHECK(fs_reopen(&f));
		CHECK(faccessat(f.p->fd, "tmp/1-dead", F_OK, 0));
		CHECK_INT(entries(f.p->fd, "kernels"), with ? 2 : 0);
		CHECK_INT(entries(f.p->fd, "initrds"), with ? 1 : 0);
		CHECK_INT(entries(f.p->fd, "images"), with ? 2 : 0);
	}
	test_row(NULL);
	free(s.p);
	fs_end(&f);
	one_end(&o);
}

#ifdef SPACE_FAULTS

/* What an import may leave behind once the pool has been opened again: nothing, or all of it. True: all. */
static bool nothing_or_all(struct one *o, struct fs *f, unsigned nothing)
{
	int fd = dir_open(f->p->fd, "nodes");
	DIR *d = fdopendir(fd);
	struct dirent *e;
	struct node n = { 0 };

	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			CHECK_INT(node_read(f->p, e->d_name, &n, NULL), 0);
			same_node(o, f->p, &n);
		}
	closedir(d);
	if (n.id[0]) {
		CHECK_INT(node_remove(f->p, n.id, NULL), 0);
		CHECK_INT(image_remove(f->p, o->image.digest.hex, NULL), 0);
		CHECK_INT(rm_rf(f->p->fd, "kernels") | rm_rf(f->p->fd, "initrds") | mkdirat(f->p->fd, "kernels", 0700) |
				mkdirat(f->p->fd, "initrds", 0700), 0);
	}
	CHECK_INT(entries(f->p->fd, ".") - entries(f->p->fd, "tmp"), nothing);
	CHECK_INT(entries(f->p->fd, "tmp"), 2);
	return n.id[0];
}

/* Every call that changes something fails once. */
TEST(an_import_whose_calls_fail_leaves_nothing)
{
	static const char *const errors[] = { "ENOSPC", "EIO" };
	unsigned nothing, done = 0;
	struct bytes s;
	struct one o;
	struct fs f;
	int fd;

	if (!one_begin(&o, FS_EXT4, 200))
		return;
	s = exported(o.f.p, o.id);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	nothing = entries(f.p->fd, ".") - entries(f.p->fd, "tmp");
	fd = memfd_create("stream", MFD_CLOEXEC);
	CHECK_INT(pwrite_all(fd, s.p, s.n, 0), 0);
	for (size_t e = 0; e < ARRAY_LEN(errors); e++)
		for (unsigned k = 1;; k++) {
			struct fail why = { 0 };
			char rule[40];
			struct node n;
			bool fired;
			int r;

			test_row("%s at pass %u", errors[e], k);
			snprintf(rule, sizeof(rule), "* %u %s", k, errors[e]);
			CHECK_INT(lseek(fd, 0, SEEK_SET), 0);
			CHECK(!fault_rules(rule));
			r = node_import(f.p, fd, NULL, &n, &why);
			fired = fault_fired();
			CHECK(!fault_rules(NULL));
			if (r < 0)
				CHECK(why.msg[0] && (e || why.code == ERR_no_space || strstr(why.msg, "injected")));
			CHECK(fs_reopen(&f));
			CHECK_INT(nothing_or_all(&o, &f, nothing), r == 0);
			if (!fired)
				break;
			done++;
		}
	test_row(NULL);
	fprintf(stderr, "%u failures\n", done);
	CHECK(done > 100);
	close(fd);
	free(s.p);
	fs_end(&f);
	one_end(&o);
}

/* The program is killed before and after each of them. A process of its own, this program again, does the import. */
TEST(an_import_killed_anywhere_leaves_nothing_or_all)
{
	const char *job = getenv("TEST_IMPORT_STATE"), *from = getenv("TEST_IMPORT_STREAM");
	unsigned nothing, killed = 0, kept = 0;
	char stream[128], rules[128], rule[40];
	struct bytes s;
	struct one o;
	struct fs f;

	if (job) {
		autoclose int fd = open(from, O_RDONLY | O_CLOEXEC);
		struct pool *p;
		struct node n;

		_exit(pool_open(job, false, 0, &p, NULL) || node_import(p, fd, NULL, &n, NULL) ? 1 : 0);
	}
	if (!one_begin(&o, FS_EXT4, 200))
		return;
	s = exported(o.f.p, o.id);
	if (!fs_begin(&f, FS_EXT4, 200))
		return;
	nothing = entries(f.p->fd, ".") - entries(f.p->fd, "tmp");
	snprintf(stream, sizeof(stream), "%s/stream", f.dir);
	snprintf(rules, sizeof(rules), "%s/rules", f.dir);
	CHECK_INT(file_write_atomic(AT_FDCWD, stream, s.p, s.n, 0600), 0);
	for (unsigned k = 1; k < 2000; k++) {
		int status;
		pid_t pid;

		test_row("killed at pass %u", k);
		snprintf(rule, sizeof(rule), "* %u kill\n", k);
		CHECK_INT(file_write_atomic(AT_FDCWD, rules, rule, strlen(rule), 0600), 0);
		pid = fork();
		if (!pid) {
			setenv("TEST_IMPORT_STATE", f.state, 1);
			setenv("TEST_IMPORT_STREAM", stream, 1);
			setenv("SPACE_FAULT_FILE", rules, 1);
			execl("/proc/self/exe", "test", "killed_anywhere", NULL);
			_exit(2);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(fs_reopen(&f));
		kept += nothing_or_all(&o, &f, nothing);
		if (WIFEXITED(status)) {
			CHECK_INT(WEXITSTATUS(status), 0);
			break;
		}
		killed++;
	}
	test_row(NULL);
	fprintf(stderr, "killed %u times; the node was there after %u\n", killed, kept);
	CHECK(killed > 150 && kept > 1 && kept < killed / 2);
	free(s.p);
	fs_end(&f);
	one_end(&o);
}

#endif
