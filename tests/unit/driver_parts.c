/* driver_parts.c - the parts of the driver that need no virtual machine. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/file.h"
#include "driver/accel.h"
#include "driver/cgroup.h"
#include "driver/keeper.h"
#include "driver/memory.h"
#include "driver/qemu.h"
#include "driver/qemu_args.h"
#include "driver/record.h"
#include "test.h"

TEST(qemu_version)
{
	static const struct {
		const char *text, *version; /* NULL: refused */
	} rows[] = {
		{ "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright\n", "7.2.22" },
		{ "QEMU emulator version 10.0\n", "10.0" },
		{ "QEMU emulator version 7\n", NULL },
		{ "QEMU emulator version \n", NULL },
		{ "qemu-system-x86_64: not found", NULL },
		{ "", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char out[32] = "";

		test_row("row %zu", i);
		CHECK_INT(accel_qemu_version(rows[i].text, out, sizeof(out)), rows[i].version ? 0 : -EINVAL);
		if (rows[i].version)
			CHECK_STR(out, rows[i].version);
	}
	test_row(NULL);
}

TEST(cpu_flag)
{
	static const char info[] = "processor\t: 0\nmodel name\t: x vmx\nflags\t\t: fpu svm_lock vmx\nbugs\t\t: svm\n\nflags\t\t: svm\n";

	CHECK(accel_cpu_flag(info, "vmx"));
	CHECK(accel_cpu_flag(info, "fpu"));
	CHECK(!accel_cpu_flag(info, "svm")); /* only part of a word, and in other lines */
	CHECK(!accel_cpu_flag("", "vmx"));
}

TEST(tsc_is_what_it_was)
{
	unsigned a = accel_tsc_khz(), b = accel_tsc_khz();

	CHECK(a > 100000 && a < 20000000);
	CHECK(a > b ? a - b < a / 1000 : b - a < a / 1000);
}

TEST(exit_reasons)
{
	static const struct {
		int status;
		const char *ended;
		bool killed, oom;
		const char *console, *reason;
	} rows[] = {
		{ 0, "guest-shutdown", false, false, "", "guest_shutdown" },
		{ 0, "guest-reset", false, false, "", "guest_reset" },
		{ 0, "guest-reset", false, false, "[ 1] Kernel panic - not syncing: x\n", "guest_panic" },
		{ 0, "", false, false, "[ 1] Kernel panic - not syncing: x\n", "guest_panic" },
		{ 0, "", false, false, "[ 1] reboot: Restarting system\n", "guest_reset" },
		{ 0, "", false, false, "", "guest_shutdown" },
		{ 9, "", true, false, "", "killed" },
		{ 9, "", false, true, "", "oom" },
		{ 9, "", false, false, "", "monitor_crash" },
		{ 11, "guest-reset", false, false, "", "monitor_crash" },
		{ 1 << 8, "", false, false, "", "monitor_crash" },
		{ -1, "", false, false, "", "monitor_crash" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("row %zu", i);
		CHECK_STR(qemu_exit_reason(rows[i].status, rows[i].ended, rows[i].killed, rows[i].oom, rows[i].console), rows[i].reason);
	}
	test_row(NULL);
}

static bool has(const struct qemu_args *a, const char *opt, const char *start)
{
	for (unsigned i = 0; i + 1 < a->n; i++)
		if (!strcmp(a->argv[i], opt) && !strncmp(a->argv[i + 1], start, strlen(start)))
			return true;
	return false;
}

TEST(command_line)
{
	struct vm_spec s = { .id = "i", .vcpus = 2, .memory = 512 * MIB, .cmdline = "space.root=rw", .image_fd = 40, .disk_fd = 41, .tap_fd = 42,
			     .node_fd = -1, .memory_fd = -1 };
	struct qemu_ends e = { .qmp_fd = 50, .console_fd = 51, .memory_fd = -1, .kernel_fd = 52, .initrd_fd = 53 };
	struct accel acc = { .tsc_khz = 2600000 };
	struct qemu_args *a = malloc(sizeof(*a));
	struct fail why;
	char *words;

	REQUIRE(a != NULL);
	CHECK_INT(qemu_args_make(a, &s, &e, &acc, &why), 0);
	CHECK(has(a, "-accel", "tcg"));
	CHECK(has(a, "-sandbox", "on,"));
	CHECK(has(a, "-device", "virtio-net-device"));
	CHECK(has(a, "-object", "memory-backend-ram"));
	CHECK(!has(a, "-incoming", ""));
	CHECK_INT(a->nfds, 7);
	words = strstr(a->argv[a->n - 1], " tsc_early_khz=2600000 space.root=rw");
	CHECK(words != NULL);

	s.node_fd = 60;
	s.disk_fd = s.tap_fd = -1;
	e.memory_fd = 61;
	e.kernel_fd = e.initrd_fd = -1;
	acc.kvm = true;
	CHECK_INT(qemu_args_make(a, &s, &e, &acc, &why), 0);
	CHECK(has(a, "-accel", "kvm"));
	CHECK(has(a, "-cpu", "host"));
	CHECK(has(a, "-incoming", "defer"));
	CHECK(!has(a, "-kernel", ""));
	CHECK(!has(a, "-device", "virtio-net"));
	CHECK_INT(a->nfds, 4);

	s.node_fd = -1;
	words = malloc(10000);
	REQUIRE(words != NULL);
	memset(words, 'x', 9999);
	words[9999] = '\0';
	s.cmdline = words;
	CHECK_INT(qemu_args_make(a, &s, &e, &acc, &why), -E2BIG);
	free(words);
	free(a);
}

/* --- memory --- */

#define PAGES 64

static int parent_and_copy(struct mem_guest *g, char **mem)
{
	int parent = memfd_create("parent", MFD_CLOEXEC);
	char page[MEM_PAGE];
	struct fail why;

	if (parent < 0 || ftruncate(parent, PAGES * (off_t)MEM_PAGE) < 0)
		return -1;
	for (int i = 0; i < PAGES; i += 2) { /* even pages have something, odd ones are holes */
		memset(page, 'a' + i % 20, sizeof(page));
		if (pwrite_all(parent, page, sizeof(page), i * (off_t)MEM_PAGE) < 0)
			return -1;
	}
	*mem = mmap(NULL, PAGES * MEM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, parent, 0);
	if (*mem == MAP_FAILED || mem_guest_open(getpid(), (uintptr_t)*mem, PAGES * MEM_PAGE, g, &why) < 0)
		return -1;
	return parent;
}

static void diff_of(bool through_copy, bool sparse)
{
	struct mem_runs runs;
	struct mem_guest g = { .pagemap_fd = -1 };
	struct mem_copy copy = { 0 };
	struct fail why;
	uint64_t written;
	char *mem = NULL, *got;
	int parent = parent_and_copy(&g, &mem), out = memfd_create("out", MFD_CLOEXEC);

	REQUIRE(parent >= 0 && out >= 0);
	CHECK_INT(file_copy_sparse(out, parent), 0);
	for (int i = 0; i < PAGES; i++)
		(void)*(volatile char *)(mem + i * MEM_PAGE); /* reading makes no page private */
	mem[2 * MEM_PAGE] = 'X';		   /* changed */
	((volatile char *)mem)[4 * MEM_PAGE] = 'a' + 4;   /* written, the same */
	memset(mem + 6 * MEM_PAGE, 0, MEM_PAGE);   /* became zero */
	mem[7 * MEM_PAGE + 5] = 'Y';		   /* was a hole */
	((volatile char *)mem)[9 * MEM_PAGE] = 0;  /* was a hole, and still reads zero */
	memset(mem + 62 * MEM_PAGE, 'Z', 2 * MEM_PAGE);
	CHECK_INT(mem_private(&g, &runs, &why), 0);
	CHECK_INT(runs.bytes, 7 * MEM_PAGE);
	CHECK_INT(runs.n, 5);
	if (through_copy) {
		CHECK_INT(mem_copy_new(g.size, runs.bytes, sparse, &copy), 0);
		memset(mem + 6 * MEM_PAGE, 'q', MEM_PAGE);
		CHECK_INT(mem_copy_read(&copy, &g, &runs, &why), 0);
		memset(mem + 6 * MEM_PAGE, 0, MEM_PAGE); /* zero again when the guest stands still */
		CHECK_INT(mem_copy_read(&copy, &g, &runs, &why), 0);
	}
	CHECK_INT(mem_write(out, parent, through_copy ? &copy : NULL, &g, &runs, &written, &why), 0);
	CHECK_INT(written, 4 * MEM_PAGE);
	got = mmap(NULL, PAGES * MEM_PAGE, PROT_READ, MAP_SHARED, out, 0);
	REQUIRE(got != MAP_FAILED);
	CHECK(!memcmp(got, mem, PAGES * MEM_PAGE));
	munmap(got, PAGES * MEM_PAGE);
	munmap(mem, PAGES * MEM_PAGE);
	mem_copy_free(&copy);
	mem_runs_clear(&runs);
	mem_guest_close(&g);
	close(parent);
	close(out);
}

TEST(only_what_changed_is_written)
{
	diff_of(true, false);
	diff_of(true, true);
	diff_of(false, false);
}

TEST(a_copy_too_large_is_refused)
{
	struct mem_copy c;

	CHECK_INT(mem_copy_new(MIB, 1ULL << 60, false, &c), -ENOMEM);
}

TEST(memory_file_is_sealed_and_keeps_holes)
{
	char dir[] = "/tmp/test-driver-mem-XXXXXX", c = 0;
	struct fail why;
	struct stat st;
	int dirfd, fd;

	REQUIRE(mkdtemp(dir) != NULL);
	dirfd = dir_open(AT_FDCWD, dir);
	REQUIRE(dirfd >= 0);
	CHECK_INT(driver_memory_memfd(dirfd, 4 * MIB, &why), -ENOENT);
	fd = openat(dirfd, "memory", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0 && ftruncate(fd, 4 * MIB) == 0 && pwrite_all(fd, "deep", 4, 3 * MIB) == 0);
	close(fd);
	CHECK_INT(driver_memory_memfd(dirfd, 2 * MIB, &why), -EINVAL);
	fd = driver_memory_memfd(dirfd, 4 * MIB, &why);
	REQUIRE(fd >= 0);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 4 * (off_t)MIB && st.st_blocks * 512 <= 64 * (off_t)KIB);
	CHECK(pread_all(fd, &c, 1, 3 * MIB) == 0 && c == 'd');
	CHECK(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM);
	CHECK(ftruncate(fd, 0) < 0 && ftruncate(fd, 8 * MIB) < 0);
	CHECK(fcntl(fd, F_ADD_SEALS, 0) < 0 && errno == EPERM);
	close(fd);
	close(dirfd);
	rm_rf(AT_FDCWD, dir);
}

/* --- files in the run directory --- */

TEST(console_ring)
{
	char dir[] = "/tmp/test-driver-con-XXXXXX", path[80], *text;
	struct keep_ring head = { .magic = KEEP_RING_MAGIC };
	size_t n;
	int fd;

	REQUIRE(mkdtemp(dir) != NULL);
	CHECK_INT(vm_console(dir, 100, &text, &n), -ENOENT);
	snprintf(path, sizeof(path), "%s/console", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0);
	CHECK_INT(vm_console(dir, 100, &text, &n), 0); /* not begun */
	CHECK_INT(n, 0);
	free(text);
	/* three bytes past the end: the ring has gone round */
	head.total = KEEP_RING_DATA + 3;
	CHECK_INT(pwrite_all(fd, &head, sizeof(head), 0), 0);
	CHECK_INT(pwrite_all(fd, "xyz", 3, KEEP_RING_HEAD), 0);
	CHECK_INT(pwrite_all(fd, "uvw", 3, KEEP_RING_HEAD + KEEP_RING_DATA - 3), 0);
	CHECK_INT(vm_console(dir, 6, &text, &n), 0);
	CHECK_STR(((struct str){ text, n }), "uvwxyz");
	free(text);
	CHECK_INT(vm_console(dir, SIZE_MAX, &text, &n), 0);
	CHECK_INT(n, KEEP_RING_DATA);
	free(text);
	close(fd);
	rm_rf(AT_FDCWD, dir);
}

TEST(record_round_trip)
{
	char dir[] = "/tmp/test-driver-rec-XXXXXX";
	struct record a = { .id = "i0123", .uid = 200001, .memory = 512 * MIB, .keeper = 7, .qemu = 8, .keeper_start = 1ULL << 40, .qemu_start = 99,
			    .disk = { true, 1792, 134 }, .node = "/pool/nodes/\"n\"" }, b;
	struct fail why;
	int dirfd;

	REQUIRE(mkdtemp(dir) != NULL);
	dirfd = dir_open(AT_FDCWD, dir);
	CHECK_INT(record_read(dirfd, &b, &why), -ENOENT);
	CHECK_INT(record_write(dirfd, &a, &why), 0);
	CHECK_INT(record_read(dirfd, &b, &why), 0);
	CHECK_STR(b.id, a.id);
	CHECK_STR(b.node, a.node);
	CHECK(b.uid == a.uid && b.memory == a.memory && b.keeper == 7 && b.qemu == 8 && b.keeper_start == a.keeper_start && b.qemu_start == 99);
	CHECK(b.disk.there && b.disk.dev == 1792 && b.disk.ino == 134 && !b.memory_file.there);
	CHECK_INT(file_write_atomic(dirfd, "monitor.json", "{\"version\":2}", 13, 0600), 0);
	CHECK_INT(record_read(dirfd, &b, &why), -EBADMSG);
	CHECK_INT(file_write_atomic(dirfd, "monitor.json", "{", 1, 0600), 0);
	CHECK_INT(record_read(dirfd, &b, &why), -EBADMSG);
	close(dirfd);
	rm_rf(AT_FDCWD, dir);
}

/* --- QMP: a peer that may have been taken over --- */

struct peer {
	int listener;
	const char *const *lines; /* one answer for each command, the greeting first */
};

static void *peer_run(void *arg)
{
	struct peer *p = arg;
	int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	char cmd[1024];

	for (int i = 0; p->lines[i]; i++) {
		if (i > 0 && recv(fd, cmd, sizeof(cmd), 0) <= 0)
			break;
		if (!strcmp(p->lines[i], "FLOOD")) {
			memset(cmd, 'x', sizeof(cmd));
			while (send(fd, cmd, sizeof(cmd), MSG_NOSIGNAL) > 0)
				;
			break;
		}
		if (!strcmp(p->lines[i], "SILENCE")) {
			recv(fd, cmd, sizeof(cmd), 0); /* until hung up on */
			break;
		}
		send(fd, p->lines[i], strlen(p->lines[i]), MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

static char events[256];

static void note_event(const char *name, json_t *data, void *arg)
{
	snprintf(events + strlen(events), sizeof(events) - strlen(events), "%s ", name);
}

#define HELLO "{\"QMP\":{}}\n"
#define DONE "{\"return\":{}}\n"

TEST(qmp_answers)
{
	static const struct {
		const char *lines[6];
		int open, cmd;
		bool usable;
		const char *events;
	} rows[] = {
		{ { HELLO, DONE, "{\"return\":{\"a\":1}}\n" }, 0, 0, true, "" },
		{ { HELLO, DONE, "{\"event\":\"STOP\"}\n{\"event\":\"X\",\"data\":{}}\n" DONE }, 0, 0, true, "STOP X " },
		{ { HELLO, DONE, "{\"error\":{\"class\":\"G\",\"desc\":\"no\"}}\n" }, 0, -EREMOTEIO, true, "" },
		{ { HELLO, DONE, "{}\n" }, 0, -EBADMSG, false, "" },
		{ { HELLO, DONE, "nonsense\n" }, 0, -EBADMSG, false, "" },
		{ { HELLO, DONE, "FLOOD" }, 0, -ENOBUFS, false, "" },
		{ { HELLO, DONE, "SILENCE" }, 0, -ETIMEDOUT, false, "" },
		{ { HELLO, DONE }, 0, -EPIPE, false, "" },
		{ { "{\"return\":{}}\n" }, -EPROTO, 0, false, "" },
		{ { "SILENCE" }, -ETIMEDOUT, 0, false, "" },
		{ { HELLO, "{\"error\":{}}\n" }, -EREMOTEIO, 0, false, "" },
	};
	char dir[] = "/tmp/test-driver-qmp-XXXXXX";
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int dirfd;

	REQUIRE(mkdtemp(dir) != NULL);
	dirfd = dir_open(AT_FDCWD, dir);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct peer p = { socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rows[i].lines };
		struct qmp *q = NULL;
		struct fail why;
		pthread_t t;

		test_row("row %zu", i);
		snprintf(a.sun_path, sizeof(a.sun_path), "%s/s%zu", dir, i);
		REQUIRE(bind(p.listener, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(p.listener, 1) == 0);
		REQUIRE(pthread_create(&t, NULL, peer_run, &p) == 0);
		events[0] = '\0';
		CHECK_INT(qmp_open(dirfd, strrchr(a.sun_path, '/') + 1, note_event, NULL, 300, &q, &why), rows[i].open);
		if (q) {
			int r = qmp_cmd(q, "x", NULL, -1, 300, NULL, &why);

			CHECK_INT(r == -ECONNRESET ? -EPIPE : r, rows[i].cmd); /* a peer that is gone may be either */
			CHECK_STR(events, rows[i].events);
			CHECK_INT(qmp_usable(q), rows[i].usable);
		}
		qmp_close(q);
		pthread_join(t, NULL);
		close(p.listener);
	}
	test_row(NULL);
	close(dirfd);
	rm_rf(AT_FDCWD, dir);
}

TEST(cgroups_come_and_go)
{
	struct cgroup_limits l = { .memory = 64 * MIB, .pids = 8, .cpus = 1 };
	int fds[CGROUP_MAX_FDS];
	struct fail why;
	unsigned n;

	if (geteuid() != 0) {
		test_skip("only root makes cgroups");
		return;
	}
	REQUIRE(cgroup_make("itestcgroup", &l, fds, &n, &why) == 0);
	CHECK(n > 0);
	CHECK(!cgroup_oom("itestcgroup"));
	while (n > 0)
		close(fds[--n]);
	CHECK_INT(cgroup_remove("itestcgroup", &why), 0);
	CHECK_INT(cgroup_remove("itestcgroup", &why), 0);
	CHECK(access("/sys/fs/cgroup/pids/space/itestcgroup", F_OK) < 0);
}
