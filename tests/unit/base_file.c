/* Files: whole reads and writes, copies, removal of trees. Each test works in a directory of its own. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>

#include "base/file.h"

static char dir[64];

static int dir_make(void)
{
	snprintf(dir, sizeof(dir), "/tmp/space-unit-XXXXXX");
	return mkdtemp(dir) ? dir_open(AT_FDCWD, dir) : -1;
}

static void put(int at, const char *path, const char *text)
{
	CHECK_INT(file_write_atomic(at, path, text, strlen(text), 0644), 0);
}

TEST(atomic_write_and_read)
{
	autoclose int d = dir_make();
	autofree char *text = NULL;
	struct stat st;

	REQUIRE(d >= 0);
	put(d, "f", "one");
	CHECK_INT(file_write_atomic(d, "f", "three", 5, 0600), 0);
	CHECK_INT(file_read(d, "f", &text, 5), 5);
	CHECK_STR(text, "three");
	CHECK_INT(fstatat(d, "f", &st, 0), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
	free(steal_ptr(text));
	CHECK_INT(file_read(d, "f", &text, 4), -EFBIG);
	CHECK(text == NULL);
	CHECK_INT(file_read(d, "none", &text, 4), -ENOENT);
	CHECK_INT(mkfifoat(d, "fifo", 0600), 0); /* nobody writes to it: nothing, and at once */
	CHECK_INT(file_read(d, "fifo", &text, 4), 0);
	free(steal_ptr(text));
	CHECK_INT(unlinkat(d, "fifo", 0), 0);
	CHECK_INT(mkdirat(d, "sub", 0700), 0);
	put(d, "sub/g", "");
	CHECK_INT(file_read(d, "sub/g", &text, 0), 0);
	CHECK_INT(file_write_atomic(d, "sub", "x", 1, 0600), -EISDIR);
	CHECK_INT(file_write_atomic(d, "no/x", "x", 1, 0600), -ENOENT);
	CHECK_INT(file_write_atomic(d, "sub/..", "x", 1, 0600), -EINVAL);
	/* Nothing was left behind by those that failed. */
	CHECK_INT(unlinkat(d, "sub/g", 0), 0);
	CHECK_INT(unlinkat(d, "sub", AT_REMOVEDIR), 0);
	CHECK_INT(unlinkat(d, "f", 0), 0);
	CHECK_INT(rmdir(dir), 0);
}

TEST(read_all_of_files_without_size)
{
	autofree char *text = NULL;
	int p[2];

	CHECK(file_read(AT_FDCWD, "/proc/self/status", &text, 65536) > 100);
	REQUIRE(pipe(p) == 0);
	CHECK_INT(write_all(p[1], "abc", 3), 0);
	close(p[1]);
	free(steal_ptr(text));
	CHECK_INT(read_all(p[0], &text, 3), 3);
	close(p[0]);
}

TEST(rm_rf_does_not_follow_links)
{
	autoclose int d = dir_make();
	autofree char *text = NULL;
	char path[128];

	REQUIRE(d >= 0);
	CHECK_INT(mkdirat(d, "keep", 0700), 0);
	put(d, "keep/file", "kept");
	CHECK_INT(mkdirat(d, "tree", 0700), 0);
	CHECK_INT(mkdirat(d, "tree/sub", 0700), 0);
	put(d, "tree/sub/x", "x");
	CHECK_INT(symlinkat("../keep", d, "tree/link"), 0);
	CHECK_INT(symlinkat("../../keep/file", d, "tree/sub/link"), 0);
	CHECK_INT(symlinkat("keep", d, "toplink"), 0);
	CHECK_INT(rm_rf(d, "tree"), 0);
	CHECK_INT(faccessat(d, "tree", F_OK, 0), -1);
	CHECK_INT(rm_rf(d, "toplink"), 0);
	CHECK_INT(rm_rf(d, "absent"), 0);
	CHECK_INT(file_read(d, "keep/file", &text, 10), 4);
	snprintf(path, sizeof(path), "%s/keep", dir);
	CHECK_INT(rm_rf(AT_FDCWD, path), 0);
	CHECK_INT(rmdir(dir), 0);
}

TEST(rm_rf_of_a_very_deep_tree)
{
	autoclose int d = dir_make();
	int at;

	REQUIRE(d >= 0);
	at = dup(d);
	for (int i = 0; i < 3000; i++) {
		int next;

		REQUIRE(mkdirat(at, "d", 0700) == 0);
		next = dir_open(at, "d");
		REQUIRE(next >= 0);
		close(at);
		at = next;
	}
	close(at);
	CHECK_INT(rm_rf(AT_FDCWD, dir), 0);
	CHECK_INT(access(dir, F_OK), -1);
}

TEST(rm_rf_stays_on_its_mount)
{
	autoclose int d = dir_make();
	char a[128], b[128];

	REQUIRE(d >= 0);
	snprintf(a, sizeof(a), "%s/a", dir);
	snprintf(b, sizeof(b), "%s/t/b", dir);
	CHECK_INT(mkdirat(d, "a", 0700), 0);
	put(d, "a/file", "kept");
	CHECK_INT(mkdirat(d, "t", 0700), 0);
	CHECK_INT(mkdirat(d, "t/b", 0700), 0);
	if (mount(a, b, NULL, MS_BIND, NULL) < 0) {
		test_skip("no mount here");
	} else {
		CHECK_INT(rm_rf(d, "t"), -EBUSY);
		CHECK_INT(rm_rf(d, "t/b"), -EBUSY);
		CHECK_INT(faccessat(d, "a/file", F_OK, 0), 0);
		CHECK_INT(umount2(b, MNT_DETACH), 0);
	}
	CHECK_INT(rm_rf(AT_FDCWD, dir), 0);
}

TEST(mkdir_p_and_plain_names)
{
	char path[128];
	autoclose int d = dir_make();

	REQUIRE(d >= 0);
	snprintf(path, sizeof(path), "%s/a//b/c", dir);
	CHECK_INT(mkdir_p(path, 0700), 0);
	CHECK_INT(mkdir_p(path, 0700), 0);
	put(d, "a/f", "");
	snprintf(path, sizeof(path), "%s/a/f", dir);
	CHECK_INT(mkdir_p(path, 0700), -ENOTDIR);
	CHECK_INT(mkdir_p("", 0700), -ENOENT);
	CHECK(path_is_plain(STR("a b")) && path_is_plain(STR("...")));
	CHECK(!path_is_plain(STR("..")) && !path_is_plain(STR("a/b")) && !path_is_plain(STR("")));
	CHECK(!path_is_plain(STR("a\nb")) && !path_is_plain(STR("a\0b")));
	CHECK_INT(rm_rf(AT_FDCWD, dir), 0);
}

TEST(sparse_copy_keeps_holes)
{
	autoclose int d = dir_make(), src = -1, dst = -1;
	char hex[65], same[65];
	struct stat st;
	bool cloned;

	REQUIRE(d >= 0);
	src = openat(d, "src", O_RDWR | O_CREAT, 0600);
	dst = openat(d, "dst", O_RDWR | O_CREAT, 0600);
	CHECK_INT(ftruncate(src, 64 << 20), 0);
	CHECK_INT(pwrite_all(src, "head", 4, 0), 0);
	CHECK_INT(pwrite_all(src, "mid", 3, 32 << 20), 0);
	CHECK_INT(file_copy_sparse(dst, src), 0);
	CHECK_INT(fstat(dst, &st), 0);
	CHECK_INT(st.st_size, 64 << 20);
	CHECK(st.st_blocks * 512 < 4 << 20);
	CHECK_INT(file_sha256(src, hex), 0);
	CHECK_INT(file_sha256(dst, same), 0);
	CHECK_STR(hex, same);
	CHECK_INT(file_dup(dst, src, &cloned), 0);
	CHECK_INT(pread_all(dst, hex, 4, (64 << 20) - 2), -EPIPE);
	CHECK_INT(ftruncate(src, 0), 0);
	CHECK_INT(file_sha256(src, hex), 0);
	CHECK_STR(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	CHECK_INT(rm_rf(AT_FDCWD, dir), 0);
}
