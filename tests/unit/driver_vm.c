/* driver_vm.c - the qemu driver with a real QEMU and a guest of one page (driver_guest.S). Needs root and QEMU; emulated, so no KVM. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/proc.h"
#include "base/random.h"
#include "driver/driver.h"
#include "test.h"

#define MEMORY (32 * MIB)
#define RING 0x800000
#define PATTERN 0x400000
#define UID 231000

extern const char driver_guest_start[], driver_guest_end[];

static char dir[64];

struct rig {
	char id[ID_LEN + 1], run[128];
	int kernel, initrd, image, disk, node, memory;
	struct vm *vm;
	struct fail why;
};

static int file_with(const char *name, const void *p, size_t n)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0 && (write_all(fd, p, n) < 0 || ftruncate(fd, (off_t)MAX(n, MIB)) < 0))
		return -1;
	return fd;
}

static bool rig_new(struct rig *r)
{
	static bool once;
	char path[128];

	if (!once) {
		once = true;
		strcpy(dir, "/tmp/test-driver-XXXXXX");
		if (!mkdtemp(dir))
			return false;
	}
	*r = (struct rig){ .kernel = -1, .initrd = -1, .image = -1, .disk = -1, .node = -1, .memory = -1 };
	id_make(r->id, 'i');
	snprintf(r->run, sizeof(r->run), "%s/%s", dir, r->id);
	r->kernel = file_with("kernel", driver_guest_start, (size_t)(driver_guest_end - driver_guest_start));
	r->initrd = file_with("initrd", "none", 4);
	close(file_with("image", "image", 5));
	snprintf(path, sizeof(path), "%s/image", dir);
	r->image = open(path, O_RDONLY | O_CLOEXEC);
	r->disk = file_with(r->id + 1, "disk", 4); /* distinct from the run directory */
	return mkdir(r->run, 0700) == 0 && r->kernel >= 0 && r->initrd >= 0 && r->image >= 0 && r->disk >= 0 && fchown(r->disk, UID, UID) == 0;
}

static int rig_prepare(struct rig *r, const char *words)
{
	struct vm_spec s = { .id = r->id, .run_dir = r->run, .uid = UID, .vcpus = 1, .memory = MEMORY, .kernel_fd = r->kernel,
			     .initrd_fd = r->initrd, .cmdline = words, .image_fd = r->image, .disk_fd = r->disk, .tap_fd = -1,
			     .node_fd = r->node, .memory_fd = r->memory };

	int err = driver_qemu.prepare(&s, &r->vm, &r->why);

	if (err < 0)
		fprintf(stderr, "  (%s)\n", r->why.msg);
	return err;
}

static void rig_free(struct rig *r)
{
	if (r->vm) {
		CHECK_INT(driver_qemu.kill(r->vm, &r->why), 0);
		driver_qemu.free(r->vm);
	}
	CHECK_INT(rmdir(r->run), 0); /* kill leaves nothing in it */
	for (int i = 0, fds[] = { r->kernel, r->initrd, r->image, r->disk, r->node, r->memory }; i < 6; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* The number of the guest's last whole line; 0: none yet, -1: it found its memory changed. */
static long last_round(struct rig *r)
{
	char *text, *nl, *p;
	size_t n;
	long v = 0;

	if (vm_console(r->run, 4096, &text, &n) < 0)
		return 0;
	nl = strrchr(text, '\n');
	if (nl) {
		nl[1] = '\0';
		if (strstr(text, " bad"))
			v = -1;
		else
			for (p = text; (p = strstr(p, "n=")) && strchr(p, '\n'); p += 2)
				v = strtol(p + 2, NULL, 16);
	}
	free(text);
	return v;
}

static bool runs_past(struct rig *r, long n)
{
	for (int i = 0; i < 3000; i++) {
		long now = last_round(r);

		if (now < 0 || now > n)
			return now > n;
		poll(NULL, 0, 10);
	}
	return false;
}

static int node_new(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return mkdir(path, 0700) < 0 ? -errno : dir_open(AT_FDCWD, path);
}

/* The state of a saved guest, read from its memory file: every slot of the ring holds the last number that belongs there. */
static long ring_newest(int node)
{
	autoclose int fd = openat(node, "memory", O_RDONLY | O_CLOEXEC);
	long newest = 0;
	uint32_t v;

	for (int i = 0; i < 256; i++)
		if (pread_all(fd, &v, 4, RING + i * 4096) == 0 && (long)v > newest)
			newest = v;
	for (long n = newest; n > 0 && n > newest - 256; n--)
		if (pread_all(fd, &v, 4, RING + (n & 255) * 4096) < 0 || v != n)
			return -1;
	for (uint32_t at = PATTERN; at < PATTERN + 0x40000; at += 4)
		if (pread_all(fd, &v, 4, at) < 0 || v != at * 2654435761U)
			return -1;
	return newest;
}

static bool ready(struct rig *r)
{
	const char *isolation;
	char version[128];

	if (geteuid() != 0) {
		test_skip("only root starts monitors");
		return false;
	}
	driver_qemu_set_accel("tcg");
	if (driver_qemu.probe(&isolation, version, &r->why) < 0) {
		test_skip(r->why.msg);
		return false;
	}
	CHECK_STR(isolation, "emulated");
	CHECK(str_starts(str_of(version), "qemu-"));
	return rig_new(r);
}

TEST(boot_pause_adopt_kill)
{
	struct rig r;
	struct vm_status st;
	pid_t pid;
	long n;

	if (!ready(&r))
		return;
	REQUIRE(rig_prepare(&r, "x") == 0);
	CHECK_INT(last_round(&r), 0);
	CHECK_INT(driver_qemu.start(r.vm, &r.why), 0);
	CHECK(runs_past(&r, 2));
	CHECK_INT(driver_qemu.pause(r.vm, &r.why), 0);
	poll(NULL, 0, 100);
	n = last_round(&r);
	poll(NULL, 0, 200);
	CHECK_INT(last_round(&r), n);
	CHECK_INT(driver_qemu.status(r.vm, &st, &r.why), 0);
	CHECK(!st.running && !st.exited && st.rss_bytes > 0 && st.private_bytes <= st.rss_bytes);

	/* as a new daemon would */
	pid = vm_pid(r.vm);
	driver_qemu.free(r.vm);
	r.vm = NULL;
	REQUIRE(driver_qemu.adopt(r.run, &r.vm, &r.why) == 0);
	CHECK_INT(vm_pid(r.vm), pid);
	CHECK_INT(driver_qemu.status(r.vm, &st, &r.why), 0);
	CHECK(!st.running && !st.exited);
	CHECK_INT(driver_qemu.resume(r.vm, &r.why), 0);
	CHECK(runs_past(&r, n));
	CHECK_INT(driver_qemu.resize_disk(r.vm, 2 * MIB, &r.why), 0);

	CHECK_INT(driver_qemu.kill(r.vm, &r.why), 0);
	CHECK_INT(driver_qemu.kill(r.vm, &r.why), 0);
	CHECK(kill(pid, 0) < 0 && errno == ESRCH);
	CHECK_INT(driver_qemu.status(r.vm, &st, &r.why), 0);
	CHECK_STR(st.reason, "killed");
	rig_free(&r);
}

static int save(struct rig *r, int node, int parent, struct vm_saved *out)
{
	struct vm_save *s;
	int e = driver_qemu.save_begin(r->vm, node, parent, &s, &r->why);

	if (e < 0)
		return e;
	e = driver_qemu.save_still(s, &r->why);
	if (e == 0)
		return driver_qemu.save_end(s, true, out, &r->why);
	CHECK_INT(driver_qemu.save_end(s, false, NULL, NULL), 0);
	return e;
}

/* Five generations, each saved from the one before while it runs: its memory is whole, and it goes on where it was. */
TEST(generations)
{
	struct rig r[6];
	struct vm_saved s;
	long at = 0;

	if (!ready(&r[0]))
		return;
	REQUIRE(rig_prepare(&r[0], "x") == 0);
	CHECK_INT(driver_qemu.start(r[0].vm, &r[0].why), 0);
	CHECK(runs_past(&r[0], 3));
	for (int g = 0; g < 5; g++) {
		char name[16];
		int node;
		long n;

		test_row("generation %d", g);
		snprintf(name, sizeof(name), "node%d", g);
		node = node_new(name);
		REQUIRE(node >= 0);
		CHECK_INT(save(&r[g], node, r[g].node, &s), 0);
		CHECK(s.state_bytes > 0 && s.memory_bytes > 0);
		CHECK(s.memory_bytes < (g ? MIB + MIB / 2 : 8 * MIB));
		n = ring_newest(node);
		CHECK(n > at);
		at = n;
		CHECK(runs_past(&r[g], at)); /* the saved one runs on */

		REQUIRE(rig_new(&r[g + 1]));
		r[g + 1].node = node;
		if (g % 2 == 0)
			r[g + 1].memory = driver_memory_memfd(node, MEMORY, &r[g + 1].why);
		REQUIRE(rig_prepare(&r[g + 1], NULL) == 0);
		CHECK_INT(last_round(&r[g + 1]), 0);
		CHECK_INT(driver_qemu.start(r[g + 1].vm, &r[g + 1].why), 0);
		CHECK(runs_past(&r[g + 1], at));
		if (g == 2) { /* what is needed for the next save is found again */
			driver_qemu.free(r[g + 1].vm);
			r[g + 1].vm = NULL;
			REQUIRE(driver_qemu.adopt(r[g + 1].run, &r[g + 1].vm, &r[g + 1].why) == 0);
		}
	}
	test_row(NULL);
	for (int g = 0; g < 6; g++)
		rig_free(&r[g]);
}

/* What a save may be built upon: every earlier one of the same VM, in any order, also after an adoption; not what was saved before the VM
 * was started from something newer. Each is whole, and stores what has changed since the one it was built upon. */
TEST(lines)
{
	enum { BOOT, A, B };
	struct rig r[3], last;
	struct vm_saved s, whole;
	int node[7];
	long at, n;

	if (!ready(&r[BOOT]))
		return;
	for (int i = 0; i < 7; i++) {
		char name[16];

		snprintf(name, sizeof(name), "line%d", i);
		node[i] = node_new(name);
		REQUIRE(node[i] >= 0);
	}
	REQUIRE(rig_prepare(&r[BOOT], "x") == 0);
	CHECK_INT(driver_qemu.start(r[BOOT].vm, &r[BOOT].why), 0);
	CHECK(runs_past(&r[BOOT], 3));
	CHECK_INT(save(&r[BOOT], node[0], -1, &whole), 0);
	CHECK(runs_past(&r[BOOT], ring_newest(node[0]) + 3));
	CHECK_INT(save(&r[BOOT], node[1], node[0], &s), 0); /* booted, and yet built upon the first */
	CHECK(s.memory_bytes < whole.memory_bytes && s.memory_shared >= 0x40000); /* the pattern has not changed */
	CHECK((at = ring_newest(node[1])) > ring_newest(node[0]));
	CHECK(runs_past(&r[BOOT], at));

	REQUIRE(rig_new(&r[A]));
	r[A].node = node[0];
	REQUIRE(rig_prepare(&r[A], NULL) == 0);
	CHECK_INT(driver_qemu.start(r[A].vm, &r[A].why), 0);
	CHECK(runs_past(&r[A], ring_newest(node[0])));
	CHECK_INT(save(&r[A], node[2], node[0], &s), 0);
	CHECK(runs_past(&r[A], ring_newest(node[2])));
	driver_qemu.free(r[A].vm); /* a new daemon knows the line as well */
	r[A].vm = NULL;
	REQUIRE(driver_qemu.adopt(r[A].run, &r[A].vm, &r[A].why) == 0);
	CHECK_INT(save(&r[A], node[3], node[2], &s), 0);
	n = (long)s.memory_bytes;
	CHECK((at = ring_newest(node[3])) > ring_newest(node[2]));
	CHECK(runs_past(&r[A], at));
	CHECK_INT(save(&r[A], node[4], node[0], &s), 0); /* one further back */
	CHECK(ring_newest(node[4]) > at);
	CHECK(s.memory_bytes <= MIB + MIB / 2 && n <= (long)(MIB + MIB / 2)); /* the ring, and a little */

	/* from the newest one, and a parent that this VM knows nothing of: pages that it has not touched are those of its start */
	REQUIRE(rig_new(&r[B]));
	r[B].node = node[4];
	REQUIRE(rig_prepare(&r[B], NULL) == 0);
	CHECK_INT(driver_qemu.start(r[B].vm, &r[B].why), 0);
	CHECK(runs_past(&r[B], ring_newest(node[4])));
	CHECK_INT(save(&r[B], node[5], node[0], &s), 0);
	CHECK(ring_newest(node[5]) > ring_newest(node[4]));
	CHECK_INT(save(&r[B], node[6], node[1], &s), 0); /* of quite another line */
	CHECK(ring_newest(node[6]) >= ring_newest(node[5]));
	for (int i = 5; i < 7; i++) {
		REQUIRE(rig_new(&last));
		last.node = node[i];
		REQUIRE(rig_prepare(&last, NULL) == 0);
		CHECK_INT(driver_qemu.start(last.vm, &last.why), 0);
		CHECK(runs_past(&last, ring_newest(node[i])));
		rig_free(&last);
	}
	for (int i = 0; i < 3; i++)
		rig_free(&r[i]);
}

static const struct {
	const char *words, *reason;
} ends[] = {
	{ "R", "guest_reset" },
	{ "P", "guest_panic" },
};

TEST(how_it_ended)
{
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		struct vm_status st;
		struct rig r;

		test_row("%s", ends[i].words);
		if (!ready(&r))
			return;
		REQUIRE(rig_prepare(&r, ends[i].words) == 0);
		CHECK_INT(driver_qemu.start(r.vm, &r.why), 0);
		CHECK_INT(pidfd_wait(vm_pidfd(r.vm), 30000), 0);
		CHECK_INT(driver_qemu.status(r.vm, &st, &r.why), 0);
		CHECK(st.exited);
		if (st.exited) /* a bare reset says nothing on the console that QEMU's event did not */
			CHECK_STR(st.reason, ends[i].reason);
		CHECK_STR(driver_last_exit(r.run), ends[i].reason);
		rig_free(&r);
	}
	test_row(NULL);
}

TEST(a_dead_monitor_is_not_adopted)
{
	struct rig r;
	struct vm *again;

	if (!ready(&r))
		return;
	REQUIRE(rig_prepare(&r, "x") == 0);
	CHECK_INT(driver_qemu.start(r.vm, &r.why), 0);
	kill(vm_pid(r.vm), SIGSEGV);
	CHECK_INT(pidfd_wait(vm_pidfd(r.vm), 10000), 0);
	CHECK_INT(driver_qemu.adopt(r.run, &again, &r.why), -ESRCH);
	CHECK_STR(driver_last_exit(r.run), "monitor_crash");
	rig_free(&r);
}

/* However much the guest says, one megabyte is kept, and the guest goes on. */
TEST(a_flood_is_bounded)
{
	struct stat st = { 0 };
	struct rig r;
	char path[160];
	int i;

	if (!ready(&r))
		return;
	REQUIRE(rig_prepare(&r, "F") == 0);
	CHECK_INT(driver_qemu.start(r.vm, &r.why), 0);
	CHECK(runs_past(&r, 100));
	snprintf(path, sizeof(path), "%s/console", r.run);
	for (i = 0; i < 100 && stat(path, &st) == 0; i++)
		poll(NULL, 0, 10);
	CHECK(st.st_size <= (off_t)(MIB + 4096));
	rig_free(&r);
}

/* What a taken-over QEMU would find around it. */
TEST(confinement)
{
	autofree char *status = NULL, *mounts = NULL;
	char path[96], own[96], theirs[96];
	static const char *const spaces[] = { "net", "mnt", "ipc", "uts" };
	static const char *const hidden[] = { "var", "home", "root", "etc", "sys", "run", "tmp" };
	struct rig r;
	int n = 0;
	DIR *d;

	if (!ready(&r))
		return;
	REQUIRE(rig_prepare(&r, "x") == 0);
	for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)vm_pid(r.vm), spaces[i]);
		theirs[MAX(readlink(path, theirs, sizeof(theirs) - 1), 0)] = '\0';
		snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
		own[MAX(readlink(path, own, sizeof(own) - 1), 0)] = '\0';
		CHECK(theirs[0] && strcmp(theirs, own));
	}
	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		snprintf(path, sizeof(path), "/proc/%d/root/%s", (int)vm_pid(r.vm), hidden[i]);
		CHECK(access(path, F_OK) < 0 && errno == ENOENT);
	}
	snprintf(path, sizeof(path), "/proc/%d/status", (int)vm_pid(r.vm));
	REQUIRE(file_read(AT_FDCWD, path, &status, 16384) > 0);
	CHECK(strstr(status, "NoNewPrivs:\t1"));
	CHECK(strstr(status, "Seccomp:\t2"));
	CHECK(strstr(status, "CapEff:\t0000000000000000"));
	CHECK(strstr(status, "Uid:\t231000\t231000\t231000\t231000"));
	CHECK(strstr(status, "Groups:\t \n") || strstr(status, "Groups:\t\n"));
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)vm_pid(r.vm));
	REQUIRE(file_read(AT_FDCWD, path, &mounts, 65536) > 0);
	for (char *p = mounts; (p = strchr(p, '\n')); p++)
		n++;
	CHECK(n <= 6);

	/* no directory and no file of the host's but those that it was given */
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)vm_pid(r.vm));
	d = opendir(path);
	REQUIRE(d != NULL);
	for (struct dirent *e; (e = readdir(d));) {
		struct stat st;

		if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) < 0)
			continue;
		CHECK(!S_ISDIR(st.st_mode));
	}
	closedir(d);
	rig_free(&r);
}

/* A start that fails says why, and leaves nothing. */
TEST(what_fails_leaves_nothing)
{
	struct rig r;
	char path[160];
	int before, after;

	if (!ready(&r))
		return;
	for (before = 0; fcntl(before, F_GETFD) >= 0; before++)
		;
	r.node = node_new("broken");
	REQUIRE(r.node >= 0);
	CHECK_INT(rig_prepare(&r, NULL), -ENOENT); /* no memory */
	CHECK(file_write_atomic(r.node, "memory", "x", 1, 0600) == 0);
	CHECK_INT(rig_prepare(&r, NULL), -EINVAL); /* of another size */
	snprintf(path, sizeof(path), "%s/broken/memory", dir);
	CHECK(truncate(path, (off_t)MEMORY) == 0);
	CHECK(file_write_atomic(r.node, "state", "not a state at all", 18, 0600) == 0);
	CHECK(rig_prepare(&r, NULL) < 0); /* QEMU says no, or ends */
	CHECK(r.why.msg[0] != '\0');
	snprintf(path, sizeof(path), "/sys/fs/cgroup/memory/space/%s", r.id);
	CHECK(access(path, F_OK) < 0);
	snprintf(path, sizeof(path), "/sys/fs/cgroup/space/%s", r.id);
	CHECK(access(path, F_OK) < 0);
	close(r.node);
	r.node = -1;
	for (after = 0; fcntl(after, F_GETFD) >= 0; after++)
		;
	CHECK_INT(after, before);
	CHECK(r.vm == NULL);
	rig_free(&r);
}

TEST(zz_clean)
{
	if (dir[0])
		CHECK_INT(rm_rf(AT_FDCWD, dir), 0);
}
