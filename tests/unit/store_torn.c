/* What the store makes of a disk that fails it: a log that was cut or garbled at its end, a full disk, a full inode table, a file system that became
 * read-only, no descriptors left. What was acknowledged before is there; of a transaction there is all or nothing. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "store/store.h"
#include "test.h"

#define TXNS 40
#define TRIALS 60

static char dir[] = "/tmp/space-test-torn-XXXXXX";
static char path[128];

__attribute__((destructor)) static void clean(void)
{
	if (!strstr(dir, "XXXXXX"))
		rm_rf(AT_FDCWD, dir);
}

static void begin(const char *name)
{
	if (strstr(dir, "XXXXXX") && !mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	mkdir(path, 0700);
	strcat(path, "/space.db");
}

struct ends {
	int done, ok;
	struct fail why;
};

static void on_done(void *arg, const struct fail *why)
{
	struct ends *e = arg;

	e->done++;
	e->ok += !why->err;
	if (why->err)
		e->why = *why;
}

/* One transaction: two records and an event, with that number and SIZE bytes of text. */
static void put(uv_loop_t *loop, struct store *s, int n, size_t size, struct ends *e)
{
	struct store_txn *t = store_begin(s);
	char key[16], *text = malloc(size + 3);
	int before = e->done;

	memset(text, 'x', size + 2);
	text[0] = text[size + 1] = '"';
	text[size + 2] = '\0';
	snprintf(key, sizeof(key), "%06d", n);
	store_put(t, "a", key, str_of(text));
	store_put(t, "b", key, str_of(text));
	store_event(t, "t", "s", n, "e", STR("{}"), NULL);
	store_commit(t, on_done, e);
	while (e->done == before)
		uv_run(loop, UV_RUN_ONCE);
	free(text);
}

static int on_row(void *arg, const char *key, struct str body)
{
	int *n = arg;

	CHECK_INT(atoi(key), *n);
	++*n;
	return 0;
}

static int on_event(void *arg, const struct store_event_row *e)
{
	int *n = arg;

	CHECK_INT(e->at_ns, *n);
	++*n;
	return 0;
}

/* How many transactions are there: of each all of its parts, from the first without a gap. -1: it does not open. */
static int whole(struct fail *why)
{
	uv_loop_t loop;
	struct store *s;
	int a = 0, b = 0, e = 0;

	uv_loop_init(&loop);
	if (store_open(&loop, path, &s, why) < 0) {
		uv_run(&loop, UV_RUN_DEFAULT);
		uv_loop_close(&loop);
		return -1;
	}
	store_scan(s, "a", on_row, &a, why);
	store_scan(s, "b", on_row, &b, why);
	store_events(s, NULL, NULL, 0, 100000, on_event, &e, why);
	CHECK_INT(a, b);
	CHECK_INT(a, e);
	store_close(s);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	return a;
}

static void copy(const char *from, const char *to)
{
	autoclose int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool cloned;

	if (in < 0 || out < 0 || file_dup(out, in, &cloned) < 0)
		abort();
}

/* A daemon that dies with TXNS acknowledged, all of them in the log. */
static void leave_log(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct ends e = { 0 };
		struct fail why = { 0 };
		struct store *s;
		uv_loop_t loop;

		uv_loop_init(&loop);
		if (store_open(&loop, path, &s, &why) < 0)
			_exit(1);
		for (int i = 0; i < TXNS; i++)
			put(&loop, s, i, 300, &e);
		_exit(e.ok == TXNS ? 0 : 1);
	}
	waitpid(pid, NULL, 0);
}

TEST(torn_log_gives_whole_transactions)
{
	char wal[140], db_kept[140], wal_kept[140], shm[140];
	struct fail why = { 0 };
	unsigned long long seed = (unsigned long long)mono_ns();
	struct stat st;
	int had, lost = 0;

	begin("torn");
	leave_log();
	snprintf(wal, sizeof(wal), "%s-wal", path);
	snprintf(shm, sizeof(shm), "%s-shm", path);
	snprintf(db_kept, sizeof(db_kept), "%s.kept", path);
	snprintf(wal_kept, sizeof(wal_kept), "%s-wal.kept", path);
	REQUIRE(stat(wal, &st) == 0 && st.st_size > 20000);
	copy(path, db_kept);
	copy(wal, wal_kept);
	CHECK_INT(whole(&why), TXNS); /* as it was left: nothing is missing */
	printf("# seed %llu\n", seed);
	for (int i = 0; i < TRIALS; i++) {
		off_t at;
		int fd;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		at = (off_t)(seed >> 20) % st.st_size;
		copy(db_kept, path);
		copy(wal_kept, wal);
		unlink(shm);
		fd = open(wal, O_RDWR | O_CLOEXEC);
		if (i % 2) {
			(void)!ftruncate(fd, at);
		} else { /* a sector of the end that was never written, or something else */
			char junk[512];

			memset(junk, i % 4 ? 0 : 0x5a, sizeof(junk));
			(void)!pwrite(fd, junk, MIN(sizeof(junk), (size_t)(st.st_size - at)), at);
		}
		close(fd);
		test_row("%s at %lld", i % 2 ? "cut" : "garbled", (long long)at);
		had = whole(&why);
		CHECK(had >= 0 && had <= TXNS);
		/* What lies before the damage is there: each transaction takes the same room, about. */
		CHECK(had >= (int)(TXNS * (at - 40000) / st.st_size));
		lost += TXNS - had;
	}
	test_row(NULL);
	CHECK(lost > 0); /* the damage was one */
}

/* In a mount namespace of its own, on a tmpfs of that size. Exits with the number of the check that failed. */
static int on_small_disk(const char *options, int (*fn)(const char *top))
{
	int status = 0;
	char top[100];
	pid_t pid;

	begin("small");
	snprintf(top, sizeof(top), "%.*s", (int)(strrchr(path, '/') - path), path);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("tmpfs", top, "tmpfs", 0, options) < 0)
			_exit(77);
		_exit(fn(top));
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		test_skip("it needs the right to mount");
	return WIFEXITED(status) ? WEXITSTATUS(status) % 77 : -1;
}

static int full_disk(const char *top)
{
	struct ends e = { 0 };
	struct fail why = { 0 };
	struct store *s;
	uv_loop_t loop;
	char fill[128];
	int fd, acked, r;
	static char block[65536];

	uv_loop_init(&loop);
	if (store_open(&loop, path, &s, &why) < 0)
		return 1;
	for (int i = 0; i < 5; i++)
		put(&loop, s, i, 1000, &e);
	snprintf(fill, sizeof(fill), "%s/fill", top);
	fd = open(fill, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, block, sizeof(block)) > 0)
		;
	while (write(fd, block, 512) > 0)
		;
	for (int i = 5; i < 60 && e.ok == i; i++)
		put(&loop, s, i, 20000, &e);
	if (e.ok == 60 || e.why.code != ERR_no_space)
		return 2; /* it should have met the end, and said so */
	acked = e.ok;
	unlink(fill);
	close(fd);
	put(&loop, s, acked, 1000, &e); /* goes on as soon as there is room */
	if (e.ok != acked + 1)
		return 3;
	store_close(s);
	uv_run(&loop, UV_RUN_DEFAULT);
	r = whole(&why);
	return r == acked + 1 ? 0 : 4;
}

static int full_inodes(const char *top)
{
	struct fail why = { 0 };
	struct store *s;
	uv_loop_t loop;
	char name[128];
	int n = 0, fd;

	for (; n < 100; n++) {
		snprintf(name, sizeof(name), "%s/f%d", top, n);
		fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	uv_loop_init(&loop);
	if (n == 100 || store_open(&loop, path, &s, &why) == 0 || why.code != ERR_no_space)
		return 1;
	while (n-- > 0) {
		snprintf(name, sizeof(name), "%s/f%d", top, n);
		unlink(name);
	}
	memset(&why, 0, sizeof(why));
	return whole(&why) == 0 ? 0 : 2;
}

/* What the kernel does after an error of the disk (errors=remount-ro): the file system becomes read-only under files that are open for writing.
 * "abort" makes it do just that. A plain remount is refused while there are such files, so this is a file system of its own, on a loop device. */
static int read_only(const char *top)
{
	struct ends e = { 0 };
	struct fail why = { 0 };
	struct store *s;
	uv_loop_t loop;
	char cmd[400];
	int acked;

	snprintf(cmd, sizeof(cmd), "cd %s && truncate -s 12M i && mkfs.ext4 -q -F i && mkdir m && mount -o loop,errors=remount-ro i m", top);
	if (system(cmd))
		return 77;
	snprintf(path, sizeof(path), "%s/m/space.db", top);
	uv_loop_init(&loop);
	if (store_open(&loop, path, &s, &why) < 0)
		return 1;
	for (int i = 0; i < 5; i++)
		put(&loop, s, i, 1000, &e);
	acked = e.ok;
	snprintf(cmd, sizeof(cmd), "%s/m", top);
	if (mount(NULL, cmd, NULL, MS_REMOUNT, "abort") < 0)
		return 2;
	for (int i = 5; i < 8; i++)
		put(&loop, s, i, 1000, &e);
	if (acked != 5 || e.ok != acked || !e.why.err || !e.why.msg[0])
		return 3; /* nothing is acknowledged from there on, and each is told */
	store_close(s);
	uv_run(&loop, UV_RUN_DEFAULT);
	/* Mounted again, as after a reboot: the journal is gone through. */
	if (umount(cmd) < 0)
		return 4;
	snprintf(cmd, sizeof(cmd), "cd %s && mount -o loop i m", top);
	if (system(cmd))
		return 5;
	return whole(&why) == acked ? 0 : 6;
}

static int read_only_start(const char *top)
{
	struct fail why = { 0 };
	struct store *s;
	uv_loop_t loop;

	leave_log();
	if (mount(NULL, top, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
		return 1;
	uv_loop_init(&loop);
	if (store_open(&loop, path, &s, &why) == 0 || !why.msg[0])
		return 2;
	if (mount(NULL, top, NULL, MS_REMOUNT, NULL) < 0)
		return 3;
	memset(&why, 0, sizeof(why));
	return whole(&why) == TXNS ? 0 : 4;
}

TEST(full_disk_is_told_and_gone_on_from)
{
	CHECK_INT(on_small_disk("size=1m", full_disk), 0);
}

TEST(full_inode_table_is_told)
{
	CHECK_INT(on_small_disk("size=4m,nr_inodes=12", full_inodes), 0);
}

TEST(read_only_file_system_is_told_and_nothing_is_lost)
{
	CHECK_INT(on_small_disk("size=24m", read_only), 0);
	CHECK_INT(on_small_disk("size=4m", read_only_start), 0);
}

TEST(no_descriptors_is_told_and_nothing_is_lost)
{
	struct fail why = { 0 };
	int status = 0;
	pid_t pid;

	begin("descriptors");
	leave_log();
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct store *s = NULL;
		uv_loop_t loop;
		int bad = 0;

		uv_loop_init(&loop);
		for (int room = 0; room < 12; room++) {
			int top = open("/dev/null", O_RDONLY | O_CLOEXEC);
			struct rlimit limit = { (rlim_t)(top + room), 4096 };

			close(top);
			memset(&why, 0, sizeof(why));
			setrlimit(RLIMIT_NOFILE, &limit);
			if (store_open(&loop, path, &s, &why) == 0)
				break; /* from here on there were enough */
			bad |= !why.msg[0];
			limit.rlim_cur = 1024;
			setrlimit(RLIMIT_NOFILE, &limit);
		}
		_exit(bad || !s);
	}
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_INT(whole(&why), TXNS);
}
