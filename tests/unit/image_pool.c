/* The storage pool on a real file system: clones and copies, nodes, disks, images, what
 * interruptions leave. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "image/images.h"
#include "image/pool.h"
#include "image/rootfs.h"
#include "image/xfs.h"
#include "test.h"

static char state[64];

static void state_new(void)
{
	snprintf(state, sizeof(state), "/tmp/test-image-XXXXXX");
	assert(mkdtemp(state));
}

static void state_gone(void)
{
	CHECK_INT(pool_unmount(state, NULL), 0);
	CHECK_INT(rm_rf(AT_FDCWD, state), 0);
}

static struct pool *pool_copying(void)
{
	struct fail why;
	struct pool *p = NULL;

	state_new();
	if (!CHECK_INT(pool_open(state, false, 0, &p, &why), 0))
		fprintf(stderr, "%s\n", why.msg);
	return p;
}

/* Some data with a hole of 8 MiB in it. */
static void write_sparse(int fd)
{
	static const char word[] = "content";

	CHECK_INT(pwrite_all(fd, word, 7, 0), 0);
	CHECK_INT(pwrite_all(fd, word, 7, 8 * MIB), 0);
}

static bool holds_word(int fd, off_t at)
{
	char b[7];

	return !pread_all(fd, b, 7, at) && !memcmp(b, "content", 7);
}

/* --- pools --- */

TEST(pool_without_mounting_copies_or_clones)
{
	struct pool *p = pool_copying();
	struct pool_info i;
	struct fail why;

	REQUIRE(p);
	CHECK_INT(pool_info(p, &i, &why), 0);
	CHECK(i.clone == POOL_CLONE_COPY || i.clone == POOL_CLONE_NATIVE);
	CHECK(i.bytes_total > 0);
	CHECK(!faccessat(p->fd, "nodes", F_OK, 0));
	pool_close(p);
	state_gone();
}

TEST(pool_tmp_is_emptied_of_the_dead_only)
{
	struct pool *p = pool_copying(), *second;
	char mine[POOL_TMPNAME], path[4400];
	autoclose int fd = -1;
	struct fail why;
	int status;
	pid_t pid;

	REQUIRE(p);
	fd = pool_tmpfile(p, "mine-", mine, &why);
	CHECK(fd >= 0);
	/* A process that dies with its work half done. */
	pid = fork();
	if (pid == 0) {
		struct pool *q;
		char name[POOL_TMPNAME];

		if (pool_open(state, false, 0, &q, NULL) ||
			pool_tmpfile(q, "half-", name, NULL) < 0 || mkdirat(q->tmpfd, "sub", 0700))
			_exit(1);
		snprintf(path, sizeof(path), "%s/name", state);
		_exit(file_write_atomic(AT_FDCWD, path, strrchr(q->tmp, '/') + 1,
			      strlen(strrchr(q->tmp, '/') + 1), 0600)
				? 1
				: 0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	{
		autofree char *name = NULL;

		snprintf(path, sizeof(path), "%s/name", state);
		CHECK(file_read(AT_FDCWD, path, &name, 100) > 0);
		snprintf(path, sizeof(path), "tmp/%s", name);
		CHECK(!faccessat(p->fd, path, F_OK, 0)); /* it is there … */
		CHECK_INT(pool_open(state, false, 0, &second, &why), 0);
		CHECK(faccessat(p->fd, path, F_OK, 0)); /* … until the next one opens the pool */
	}
	CHECK(!faccessat(p->tmpfd, mine, F_OK, 0)); /* what the living are working on stays */
	pool_close(second);
	pool_close(p);
	state_gone();
}

static bool may_mount(void)
{
	return geteuid() == 0 && !access("/dev/loop-control", R_OK | W_OK);
}

TEST(pool_on_an_xfs_image)
{
	struct pool *p, *again;
	struct pool_info i;
	struct fail why;
	char half[128];
	bool cloned;
	int a, b;

	if (!may_mount()) {
		test_skip("needs root and loop devices");
		return;
	}
	state_new();
	{ /* an image that was not finished is made anew */
		autoclose int fd = -1;

		snprintf(half, sizeof(half), "%s/" XFS_IMAGE ".new", state);
		fd = open(half, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		CHECK_INT(write_all(fd, "half", 4), 0);
	}
	if (pool_open(state, true, 600 * MIB, &p, &why)) {
		CHECK_STR(why.msg, "");
		rm_rf(AT_FDCWD, state);
		return;
	}
	CHECK_INT(pool_info(p, &i, &why), 0);
	if (i.clone == POOL_CLONE_XFS_IMAGE) {
		struct stat st;

		snprintf(half, sizeof(half), "%s/" XFS_IMAGE, state);
		CHECK(!stat(half, &st) &&
			(uint64_t)st.st_blocks * 512 >= 600 * MIB); /* allocated in full */
		a = pool_anon(p, 0600, &why);
		b = pool_anon(p, 0600, &why);
		write_sparse(a);
		CHECK_INT(file_dup(b, a, &cloned), 0);
		CHECK(cloned);
		CHECK(holds_word(b, 8 * MIB));
		close(a);
		close(b);
		CHECK_INT(pool_open(state, true, 700 * MIB, &again, &why),
			0); /* the same mount, grown */
		CHECK_INT(pool_info(again, &i, &why), 0);
		CHECK(i.bytes_total > 610 * MIB);
		pool_close(again);
		pool_close(p);
		CHECK_INT(pool_unmount(state, &why), 0);
		CHECK_INT(pool_unmount(state, &why), 0); /* fine if it is not mounted */
		CHECK_INT(pool_open(state, false, 0, &p, &why),
			-ENODEV); /* it would be another pool */
		CHECK_INT(pool_open(state, true, 0, &p, &why), 0);
	}
	pool_close(p);
	state_gone();
}

/* A small image has less room than there should be, so it grows as far as the host has some, by itself. */
TEST(pool_keep_room_grows_the_image)
{
	struct pool_info before, after;
	struct stat was, is;
	uint64_t room = 0;
	char path[128];
	struct fail why = { 0 };
	struct pool *p;
	int r;

	if (!may_mount()) {
		test_skip("needs root and loop devices");
		return;
	}
	state_new();
	snprintf(path, sizeof(path), "%.100s/" XFS_IMAGE, state);
	if (CHECK_INT(pool_open(state, true, 600 * MIB, &p, &why), 0)) {
		CHECK_INT(pool_info(p, &before, &why), 0);
		if (before.clone != POOL_CLONE_XFS_IMAGE) {
			test_skip("no image is needed here");
		} else {
			CHECK_INT(stat(path, &was), 0);
			r = pool_keep_room(p, &room, &why);
			CHECK_INT(stat(path, &is), 0);
			CHECK_INT(pool_info(p, &after, &why), 0);
			if (r < 0) { /* the host has none to give: said, and nothing has changed */
				CHECK_INT(why.code, ERR_no_space);
				CHECK_INT(is.st_size, was.st_size);
				CHECK_INT(after.bytes_total, before.bytes_total);
			} else {
				CHECK(is.st_size >= was.st_size + (off_t)(100 * MIB));
				CHECK((uint64_t)is.st_blocks * 512 >= (uint64_t)is.st_size); /* allocated in full */
				CHECK(after.bytes_total >= before.bytes_total + 100 * MIB);
				CHECK(room > before.bytes_free && room == after.bytes_free);
			}
		}
		pool_close(p);
	}
	state_gone();
}

/* A process in a mount namespace of its own, in which what is mounted now stays mounted until it
 * ends. */
static pid_t holder(void)
{
	int ready[2];
	char c;
	pid_t pid;

	assert(!pipe2(ready, O_CLOEXEC));
	pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			_exit(1);
		(void)!write(ready[1], "", 1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	CHECK_INT(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

TEST(pool_mounted_elsewhere_is_not_mounted_twice)
{
	struct pool *p;
	struct pool_info i;
	struct fail why;
	pid_t pid;

	if (!may_mount()) {
		test_skip("needs root and loop devices");
		return;
	}
	state_new();
	CHECK_INT(pool_open(state, true, 600 * MIB, &p, &why), 0);
	CHECK_INT(pool_info(p, &i, &why), 0);
	pool_close(p);
	if (i.clone == POOL_CLONE_XFS_IMAGE) {
		pid = holder();
		CHECK_INT(pool_unmount(state, &why), 0);
		CHECK_INT(pool_open(state, true, 0, &p, &why), -EBUSY);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		CHECK_INT(pool_open(state, true, 0, &p, &why), 0);
		pool_close(p);
	}
	state_gone();
}

TEST(pool_too_large_for_the_host)
{
	struct pool *p;
	struct fail why;

	if (!may_mount()) {
		test_skip("needs root and loop devices");
		return;
	}
	state_new();
	if (pool_open(state, true, 1ULL << 45, &p, &why) == 0) {
		CHECK_INT(p->clone, POOL_CLONE_NATIVE);
		pool_close(p);
	} else {
		char path[128];

		CHECK_INT(why.code, ERR_no_space);
		snprintf(path, sizeof(path), "%s/" XFS_IMAGE ".new", state);
		CHECK(access(path, F_OK)); /* nothing of it is left */
	}
	state_gone();
}

/* --- nodes --- */

static struct node sample_node(const char *id)
{
	struct node n = { .vcpus = 2,
		.memory = 512 * MIB,
		.disk = 5 * GIB,
		.has_memory = true,
		.own_bytes = 12345,
		.agent_protocol = 1,
		.created_ns = 1700000000123000000 };

	snprintf(n.id, sizeof(n.id), "%s", id);
	snprintf(n.parent, sizeof(n.parent), "nabcdefghij0123456789");
	snprintf(n.driver, sizeof(n.driver), "qemu");
	snprintf(n.driver_version, sizeof(n.driver_version), "7.2 \"quoted\"");
	snprintf(n.label, sizeof(n.label), "before tests ✓");
	digest_of_text(&n.image, STR("image"));
	digest_of_text(&n.kernel, STR("kernel"));
	digest_of_text(&n.initrd, STR("initrd"));
	return n;
}

TEST(node_round_trip)
{
	struct pool *p = pool_copying();
	struct node n, back;
	char id[24];
	struct fail why;
	int dir, fd;

	REQUIRE(p);
	dir = node_begin(p, id, &why);
	REQUIRE(dir >= 0);
	fd = openat(dir, "memory", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	write_sparse(fd);
	close(fd);
	CHECK_INT(node_read(p, id, &back, &why), -ENOENT); /* not there before it is committed */
	n = sample_node(id);
	CHECK_INT(node_commit(p, dir, &n, &why), 0);
	close(dir);
	CHECK_INT(node_read(p, id, &back, &why), 0);
	CHECK_STR(back.id, n.id);
	CHECK_STR(back.parent, n.parent);
	CHECK_STR(back.image.hex, n.image.hex);
	CHECK_STR(back.kernel.hex, n.kernel.hex);
	CHECK_STR(back.initrd.hex, n.initrd.hex);
	CHECK_STR(back.driver_version, n.driver_version);
	CHECK_STR(back.label, n.label);
	CHECK_INT(back.vcpus, 2);
	CHECK_INT(back.memory, 512 * MIB);
	CHECK_INT(back.disk, 5 * GIB);
	CHECK_INT(back.own_bytes, 12345);
	CHECK_INT(back.created_ns, n.created_ns);
	CHECK(back.has_memory);
	dir = node_open(p, id, &why);
	REQUIRE(dir >= 0);
	fd = openat(dir, "memory", O_RDONLY | O_CLOEXEC);
	CHECK(holds_word(fd, 8 * MIB));
	close(fd);
	close(dir);
	CHECK_INT(node_remove(p, id, &why), 0);
	CHECK_INT(node_remove(p, id, &why), -ENOENT);
	CHECK_INT(node_open(p, id, &why), -ENOENT);
	CHECK_INT(node_open(p, "../images", &why), -EINVAL);
	dir = node_begin(p, id, &why);
	CHECK(dir >= 0);
	close(dir);
	CHECK_INT(node_abort(p, id), 0);
	CHECK(faccessat(p->tmpfd, id, F_OK, 0));
	pool_close(p);
	state_gone();
}

/* What node.json may not be. Each row is put into the place of a good file. */
TEST(node_json_that_is_malformed)
{
	static const char good[] =
		"{\"format\":1,\"id\":\"%s\",\"parent\":\"\",\"image\":\"sha256:"
		"%064d"
		"\",\"kernel\":\"\",\"initrd\":\"\",\"driver\":\"qemu\",\"driver_version\":\"7\","
		"\"vcpus\":1,\"memory\":1,\"disk\":0,\"has_memory\":true,\"own_bytes\":0,"
		"\"created\":\"2026-01-02T03:04:05Z\",\"label\":\"\",\"agent_protocol\":1}";
	static const struct {
		const char *from, *to;
	} rows[] = {
		{ "\"format\":1", "\"format\":3" },
		{ "\"vcpus\":1", "\"vcpus\":0" },
		{ "\"vcpus\":1", "\"vcpus\":\"1\"" },
		{ "\"memory\":1", "\"memory\":-1" },
		{ "\"has_memory\":true", "\"has_memory\":1" },
		{ "sha256:0", "sha256:g" },
		{ "sha256:0", "" },
		{ "2026-", "yesterday" },
		{ "}", "" },
		{ "\"disk\":0", "\"disk\":0,\"disk\":0" },
		{ "\"disk\":0", "\"disk\":0,\"other\":0" },
		{ "\"disk\":0,", "" },
		{ "\"id\":\"n", "\"id\":\"N" },
		{ "\"parent\":\"\"", "\"parent\":\"../../x\"" },
		{ "\"driver\":\"qemu\"", "\"driver\":\"a-driver-with-a-long-name\"" },
	};
	struct pool *p = pool_copying();
	char id[24], text[2048], bad[2048];
	struct node n, back;
	struct fail why;
	int dir;

	REQUIRE(p);
	dir = node_begin(p, id, &why);
	n = sample_node(id);
	REQUIRE(dir >= 0 && !node_commit(p, dir, &n, &why));
	snprintf(text, sizeof(text), good, id, 0);
	CHECK_INT(file_write_atomic(dir, "node.json", text, strlen(text), 0600), 0);
	CHECK_INT(node_read(p, id, &back, &why), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char *at = strstr(text, rows[i].from);

		test_row("%s -> %s", rows[i].from, rows[i].to);
		REQUIRE(at);
		snprintf(bad, sizeof(bad), "%.*s%s%s", (int)(at - text), text, rows[i].to,
			at + strlen(rows[i].from));
		CHECK_INT(file_write_atomic(dir, "node.json", bad, strlen(bad), 0600), 0);
		back.vcpus = 77;
		CHECK(node_read(p, id, &back, &why) < 0);
		CHECK(strstr(why.msg, "node.json"));
		CHECK_INT(back.vcpus, 77); /* outputs are written on success only */
	}
	test_row(NULL);
	close(dir);
	pool_close(p);
	state_gone();
}

/* --- disks --- */

TEST(disks_are_made_and_cloned)
{
	struct pool *p = pool_copying();
	static const char id[] = "iabcdefghij0123456789";
	char(*ids)[24];
	struct fail why;
	struct stat st;
	bool cloned = true;
	uint16_t magic;
	size_t n;
	int a, b;

	REQUIRE(p);
	a = disk_make(p, 64 * MIB, &why);
	if (a == -ENODEV) {
		test_skip("needs mkfs.ext4");
		pool_close(p);
		state_gone();
		return;
	}
	REQUIRE(a >= 0);
	CHECK_INT(pread_all(a, &magic, 2, 1024 + 56), 0);
	CHECK_INT(magic, 0xef53);
	CHECK(!fstat(a, &st) && st.st_size == (off_t)(64 * MIB) &&
		(uint64_t)st.st_blocks * 512 < 8 * MIB);
	CHECK_INT(st.st_nlink, 0); /* it goes with its descriptor */
	b = disk_clone(p, id, a, getuid(), 128 * MIB, &cloned, &why);
	REQUIRE(b >= 0);
	CHECK_INT(cloned, p->clone != POOL_CLONE_COPY);
	CHECK(!fstat(b, &st) && st.st_size == (off_t)(128 * MIB) && st.st_uid == getuid() &&
		(st.st_mode & 0777) == 0600);
	CHECK(!pread_all(b, &magic, 2, 1024 + 56) && magic == 0xef53);
	CHECK_INT(disk_list(p, &ids, &n, &why), 0);
	CHECK_INT(n, 1);
	CHECK_STR(ids[0], id);
	free(ids);
	CHECK_INT(disk_clone(p, "../../etc", a, 0, 0, NULL, &why), -EINVAL);
	CHECK_INT(disk_remove(p, "..", &why), -EINVAL);
	CHECK_INT(disk_remove(p, id, &why), 0);
	CHECK_INT(disk_remove(p, id, &why), 0); /* fine if it is gone */
	CHECK_INT(disk_list(p, &ids, &n, &why), 0);
	CHECK_INT(n, 0);
	free(ids);
	CHECK_INT(disk_make(p, 1, &why), -EINVAL);
	close(a);
	close(b);
	pool_close(p);
	state_gone();
}

/* --- images --- */

static void put(const char *root, const char *path, const char *text, mode_t mode)
{
	char full[8192];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	CHECK_INT(file_write_atomic(AT_FDCWD, full, text, strlen(text), mode), 0);
}

/* Does the erofs hold the bytes TEXT? Files this small are stored as they are. */
static bool image_holds(struct pool *p, const struct digest *d, const char *text)
{
	autoclose int fd = image_open(p, d, NULL);
	autofree char *all = NULL;
	ssize_t n = read_all(fd, &all, 16 * MIB);

	return n > 0 && memmem(all, (size_t)n, text, strlen(text));
}

TEST(images_out_of_directories)
{
	struct pool *p = pool_copying();
	struct image_info a, b, found, *list;
	char src[64] = "/tmp/test-image-src-XXXXXX", path[128];
	struct fail why;
	size_t n;
	int r;

	REQUIRE(p && mkdtemp(src));
	put(src, "hello", "the content of a file\n", 0644);
	snprintf(path, sizeof(path), "%s/link", src);
	CHECK(!symlink("hello", path));
	r = image_build_dir(p, "first", src, NULL, &a, &why);
	if (r == -ENODEV) {
		test_skip("needs mkfs.erofs");
		goto out;
	}
	REQUIRE(!r);
	CHECK_INT(image_build_dir(p, "second", src, NULL, &b, &why), 0);
	CHECK_STR(a.digest.hex, b.digest.hex); /* the same content is the same image */
	CHECK(image_holds(p, &a.digest, "the content of a file"));
	CHECK_INT(image_list(p, &list, &n, &why), 0);
	CHECK_INT(n, 2);
	for (size_t i = 0; i < n; i++)
		image_info_clear(&list[i]);
	free(list);
	image_info_clear(&b);
	put(src, "hello", "other content\n", 0644);
	CHECK_INT(image_build_dir(p, "second", src, NULL, &b, &why), 0);
	CHECK(strcmp(a.digest.hex, b.digest.hex));
	snprintf(path, sizeof(path), "sha256:%s", b.digest.hex);
	CHECK_INT(image_find(p, path, &found, &why), 0);
	CHECK_INT(found.bytes, b.bytes);
	image_info_clear(&found);
	CHECK_INT(image_find(p, "second", &found, &why), 0);
	CHECK_STR(found.digest.hex, b.digest.hex);
	CHECK_STR(found.name, "second");
	image_info_clear(&found);
	CHECK_INT(image_remove(p, "first", &why), 0);
	CHECK_INT(image_open(p, &a.digest, &why), -ENOENT);
	CHECK_INT(image_remove(p, path, &why), 0); /* by digest: with all its names */
	CHECK_INT(image_find(p, "second", &found, &why), -ENOENT);
	CHECK_INT(why.code, ERR_image_not_found);
	CHECK_INT(image_remove(p, "second", &why), -ENOENT);
	CHECK_INT(image_list(p, &list, &n, &why), 0);
	CHECK_INT(n, 0);
	free(list);
	image_info_clear(&a);
	image_info_clear(&b);
out:
	CHECK_INT(image_build_dir(p, "x", "/nonexistent", NULL, &b, &why), -EINVAL);
	CHECK_INT(image_build_dir(p, "x", "relative", NULL, &b, &why), -EINVAL);
	CHECK_INT(image_build_dir(p, "x", "/", NULL, &b, &why), -EINVAL); /* it holds the pool */
	CHECK_INT(image_build_dir(p, "Not a name", src, NULL, &b, &why), -EINVAL);
	CHECK_INT(image_find(p, "../names", &found, &why), -ENOENT);
	pool_close(p);
	rm_rf(AT_FDCWD, src);
	state_gone();
}

/* The configuration is part of what the digest stands for. */
TEST(images_differ_by_configuration)
{
	struct pool *p = pool_copying();
	struct image_info a = { 0 }, b = { 0 }, c = { 0 };
	char src[64] = "/tmp/test-image-src-XXXXXX";
	struct fail why;
	int r;

	REQUIRE(p && mkdtemp(src));
	put(src, "f", "x", 0644);
	a.env = json_pack("{s:s}", "A", "1");
	b.env = json_pack("{s:s}", "A", "2");
	c.env = json_pack("{s:s}", "A", "1");
	r = image_pack(p, "a", src, 0, NULL, &a, &why);
	if (r == -ENODEV) {
		test_skip("needs mkfs.erofs");
	} else {
		CHECK_INT(r, 0);
		CHECK_INT(image_pack(p, "b", src, 0, NULL, &b, &why), 0);
		CHECK_INT(image_pack(p, "c", src, 0, NULL, &c, &why), 0);
		CHECK(strcmp(a.digest.hex, b.digest.hex));
		CHECK_STR(a.digest.hex, c.digest.hex);
	}
	image_info_clear(&a);
	image_info_clear(&b);
	image_info_clear(&c);
	pool_close(p);
	rm_rf(AT_FDCWD, src);
	state_gone();
}

/* Times of what a build made are levelled, those of what it unpacked are kept. */
TEST(image_times_are_levelled)
{
	struct pool *p = pool_copying();
	struct image_info i = { 0 };
	struct timespec old[2] = { { 1600000000, 0 }, { 1600000000, 0 } };
	struct tree t;
	struct stat st;
	struct fail why;
	int r;

	REQUIRE(p);
	CHECK_INT(tree_begin(p, "t-", &t, &why), 0);
	put(t.path, "old", "x", 0644);
	put(t.path, "new", "x", 0644);
	CHECK(!utimensat(t.fd, "old", old, 0));
	r = image_pack(p, NULL, t.path, t.began_ns, NULL, &i, &why);
	CHECK(r == 0 || r == -ENODEV);
	CHECK(!fstatat(t.fd, "new", &st, 0) && st.st_mtim.tv_sec == 1600000000);
	image_info_clear(&i);
	tree_end(&t);
	CHECK(access(t.path, F_OK));
	pool_close(p);
	state_gone();
}

TEST(initrd_is_found_again)
{
	struct pool *p = pool_copying();
	struct digest kernel, a, b, c;
	struct fail why;
	char path[4400];

	REQUIRE(p);
	digest_of_text(&kernel, STR("a kernel"));
	snprintf(path, sizeof(path), "%s/kernels/%s", p->path, kernel.hex);
	CHECK(!mkdir(path, 0700));
	put(path, "order", "a.ko\n# later\nb.ko\n", 0600);
	snprintf(path, sizeof(path), "%s/kernels/%s/modules", p->path, kernel.hex);
	CHECK(!mkdir(path, 0700));
	put(path, "a.ko", "module a", 0600);
	put(path, "b.ko", "module b", 0600);
	put(state, "agent", "\177ELF one", 0755);
	snprintf(path, sizeof(path), "%s/agent", state);
	CHECK_INT(initrd_ensure(p, &kernel, path, &a, &why), 0);
	CHECK_INT(initrd_ensure(p, &kernel, path, &b, &why), 0);
	CHECK_STR(a.hex, b.hex);
	{
		autoclose int fd = initrd_open(p, &a, &why);
		autofree char *text = NULL;
		ssize_t n = read_all(fd, &text, 1 * MIB);

		CHECK(n > 0 && memmem(text, (size_t)n, "000-a.ko\n# later\n001-b.ko\n", 26));
	}
	put(state, "agent", "\177ELF two", 0755);
	CHECK_INT(initrd_ensure(p, &kernel, path, &c, &why), 0);
	CHECK(strcmp(a.hex, c.hex));
	put(state, "agent", "#!/bin/sh", 0755);
	CHECK_INT(initrd_ensure(p, &kernel, path, &c, &why), -ENODEV);
	digest_of_text(&kernel, STR("no kernel"));
	put(state, "agent", "\177ELF two", 0755);
	CHECK_INT(initrd_ensure(p, &kernel, path, &c, &why), -ENOENT);
	pool_close(p);
	state_gone();
}

/* The user and the clean-up, on a root like the one that packages leave. */
TEST(rootfs_is_finished)
{
	char root[64] = "/tmp/test-image-root-XXXXXX", path[128];
	static const char *const dirs[] = { "etc", "etc/skel", "home", "var", "var/log", "tmp",
		"var/lib", "var/lib/apt", "var/cache", "usr", "usr/share" };
	autofree char *shadow = NULL, *passwd = NULL;
	autoclose int fd = -1;
	struct stat st;
	struct fail why;

	if (geteuid() != 0) {
		test_skip("needs root");
		return;
	}
	REQUIRE(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
		CHECK(!mkdir(path, 0755));
	}
	put(root, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n", 0644);
	put(root, "etc/group", "root:x:0:\n", 0644);
	put(root, "etc/shadow", "root:*:20777:0:99999:7:::\n", 0640);
	put(root, "etc/skel/.profile", "skeleton", 0644);
	put(root, "etc/resolv.conf", "nameserver 1.2.3.4\n", 0644);
	put(root, "var/log/dpkg.log", "today", 0644);
	fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(rootfs_finish(fd, &why), 0);
	CHECK_INT(rootfs_finish(fd, &why), 0); /* twice is as good as once */
	CHECK(file_read(fd, "etc/shadow", &shadow, 1000) > 0);
	CHECK_STR(shadow, "root:*:19723:0:99999:7:::\nuser:*:19723:0:99999:7:::\n");
	CHECK(file_read(fd, "etc/passwd", &passwd, 1000) > 0);
	CHECK(strstr(passwd, "\nuser:x:1000:1000::/home/user:/bin/bash\n"));
	CHECK(!fstatat(fd, "etc/shadow", &st, 0) && (st.st_mode & 0777) == 0640);
	CHECK(!fstatat(fd, "home/user/.profile", &st, 0) && st.st_uid == 1000);
	CHECK(!fstatat(fd, "etc/sudoers.d/90-user", &st, 0) && (st.st_mode & 0777) == 0440);
	CHECK(faccessat(fd, "etc/resolv.conf", F_OK, 0));
	CHECK(faccessat(fd, "var/log/dpkg.log", F_OK, 0));
	CHECK(!faccessat(fd, "var/log", F_OK, 0));
	rm_rf(AT_FDCWD, root);
}
