/* vmtool.c - a VM by hand, with nothing but the driver and a slot: for measuring and for looking at one thing at a time.
 *
 *   vmtool [-k VMLINUX] [-i INITRD] [-r IMAGE] [-d DISK] [-m MIB] [-c VCPUS] [-w DIR] [-a ACCEL] [-x WORDS] COMMAND...
 *
 * Commands run one after another, each printing how long it took:
 *   boot              a new VM (prepare); becomes the current one
 *   restore=NODE      a new VM from a node directory, its memory as a sealed memfd shared by all of that node's VMs
 *   once=NODE         the same, with a clone of the node's memory file of its own
 *   start  pause  resume  kill  status  console
 *   answer            until the agent's port answers a request (GET /health)
 *   say=TEXT          sends a line to the agent's port and prints the answer (for a test guest)
 *   send=TEXT         the same without waiting for an answer
 *   save=NODE         makes NODE, whose parent is what this VM saved last, or was started from. full=NODE: without a parent
 *   resize=BYTES      grows the disk's file and the disk
 *   drop              forgets the VM and adopts it again from its run directory
 *   reap=RUN_DIR      adopts what another vmtool left, if it is there, and kills it
 *   vm=N              the N-th VM made becomes the current one
 *   sleep=MS
 * At the end every VM is killed. Run as root; DIR should be on a file system that clones files. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "driver/driver.h"
#include "net/slot.h"

#define VMS 64

struct machine {
	char id[ID_LEN + 1], run_dir[256], parent[256];
	struct vm *vm;
	struct slot slot;
	int disk;
};

static const char *kernel, *initrd, *image, *disk, *words, *work = "/tmp/vmtool";
static uint64_t memory = 512 * MIB;
static unsigned vcpus = 1;
static struct slots *slots;
static struct machine vms[VMS], *cur;
static unsigned nvms;
static struct fail why;
static char memfd_node[256];
static int memfd = -1;

static void bad(const char *what)
{
	fprintf(stderr, "vmtool: %s: %s%s%s\n", what, why.msg, why.remedy[0] ? "; " : "", why.remedy);
	for (unsigned i = 0; i < nvms; i++) {
		char *text;
		size_t n;

		if (vms[i].vm && vm_console(vms[i].run_dir, 2000, &text, &n) == 0)
			fprintf(stderr, "--- console of VM %u\n%s\n---\n", i, text);
		if (vms[i].vm)
			driver_qemu.kill(vms[i].vm, NULL);
		slot_release(slots, &vms[i].slot, NULL);
	}
	slots_free(slots);
	exit(1);
}

static void must(int r, const char *what)
{
	if (r < 0) {
		if (!why.msg[0])
			fail_set(&why, r, "%s", strerror(-r));
		bad(what);
	}
}

static int file_of(const char *path, int flags)
{
	int fd = path ? open(path, flags | O_CLOEXEC) : -1;

	must(fd < 0 ? fail_set(&why, path ? -errno : -EINVAL, "%s", path ? strerror(errno) : "not given") : 0, path ? path : "a file");
	return fd;
}

static void new_disk(struct machine *m, int from)
{
	char path[300];
	bool cloned;

	snprintf(path, sizeof(path), "%s/disk-%s", work, m->id);
	m->disk = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	must(m->disk < 0 ? -errno : file_dup(m->disk, from, &cloned), path);
	must(fchown(m->disk, 200000 + nvms, 200000 + nvms), "chown");
	unlink(path);
	close(from);
}

static void make(const char *node, bool shared)
{
	struct vm_spec s = { .uid = 200000 + nvms, .vcpus = vcpus, .memory = memory, .cmdline = words, .kernel_fd = -1, .initrd_fd = -1,
			     .disk_fd = -1, .tap_fd = -1, .node_fd = -1, .memory_fd = -1 };
	struct machine *m = &vms[nvms];
	char path[300], id[ID_LEN + 1];

	if (nvms == VMS)
		exit(2);
	cur = m;
	id_make(id, 'i');
	memcpy(m->id, id, sizeof(id));
	snprintf(m->run_dir, sizeof(m->run_dir), "%s/run-%s", work, id);
	must(mkdir_p(m->run_dir, 0700), m->run_dir);
	must(slot_claim(slots, &m->slot, &why), "slot");
	s.id = m->id;
	s.run_dir = m->run_dir;
	s.tap_fd = m->slot.tap_fd;
	s.image_fd = file_of(image, O_RDONLY);
	if (node) {
		snprintf(m->parent, sizeof(m->parent), "%s", node);
		s.node_fd = file_of(node, O_RDONLY | O_DIRECTORY);
		snprintf(path, sizeof(path), "%s/disk", node);
		if (access(path, F_OK) == 0)
			new_disk(m, file_of(path, O_RDONLY));
		if (shared && strcmp(memfd_node, node)) {
			int64_t t = mono_ns();

			if (memfd >= 0)
				close(memfd);
			must(memfd = driver_memory_memfd(s.node_fd, memory, &why), "memory");
			snprintf(memfd_node, sizeof(memfd_node), "%s", node);
			printf("%-28s %8.1f ms\n", "  (memory file)", (double)(mono_ns() - t) / 1e6);
		}
		s.memory_fd = shared ? memfd : -1;
	} else {
		s.kernel_fd = file_of(kernel, O_RDONLY);
		s.initrd_fd = file_of(initrd, O_RDONLY);
		if (disk)
			new_disk(m, file_of(disk, O_RDONLY));
	}
	s.disk_fd = disk || node ? m->disk : -1;
	nvms++;
	must(driver_qemu.prepare(&s, &m->vm, &why), "prepare");
	slot_close_tap(&m->slot);
	close(s.image_fd);
	for (int i = 0, fds[] = { s.kernel_fd, s.initrd_fd, s.node_fd }; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* A socket on which the agent's port took the connection. Fresh attempts while the guest is not up: a lost SYN is sent again after a second only. */
static int dial(void)
{
	int64_t end = mono_ms() + 60000;
	struct pollfd p[16];
	unsigned n = 0;

	for (;;) {
		if (n == ARRAY_LEN(p)) {
			close(p[0].fd);
			memmove(p, p + 1, sizeof(p[0]) * --n);
		}
		must(p[n].fd = slot_connect(&cur->slot, 49983, &why), "connect");
		p[n].events = POLLOUT;
		n++;
		poll(p, n, n == 1 ? 200 : 20);
		for (unsigned i = 0; i < n; i++) {
			int err = 0, fd;
			socklen_t len = sizeof(err);

			if (!p[i].revents)
				continue;
			fd = p[i].fd;
			p[i] = p[--n];
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
			if (err) {
				close(fd);
				i--;
				poll(NULL, 0, 5);
				continue;
			}
			while (n)
				close(p[--n].fd);
			return fd;
		}
		if (mono_ms() > end)
			must(fail_set(&why, -ETIMEDOUT, "no answer in 60 s"), "answer");
	}
}

/* Sends TEXT, reads the answer: its first bytes, or all of it. */
static void talk(const char *text, bool whole, char *out, size_t size)
{
	int fd = dial();
	size_t n = 0;

	must(write_all(fd, text, strlen(text)), "send");
	for (;;) {
		struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = vm_pidfd(cur->vm), .events = POLLIN } };
		ssize_t k;

		if (poll(p, 2, 60000) <= 0)
			must(fail_set(&why, -ETIMEDOUT, "no answer in 60 s"), "answer");
		k = p[0].revents ? recv(fd, out + n, size - 1 - n, 0) : 0;
		if (k <= 0)
			break;
		n += (size_t)k;
		if (!whole || n + 1 == size)
			break;
	}
	out[n] = '\0';
	close(fd);
}

static void save(const char *node, bool full)
{
	int fd, parent = -1;
	struct vm_save *save;
	struct vm_saved s;

	must(mkdir_p(node, 0700), node);
	fd = file_of(node, O_RDONLY | O_DIRECTORY);
	if (!full && cur->parent[0])
		parent = file_of(cur->parent, O_RDONLY | O_DIRECTORY);
	must(driver_qemu.save_begin(cur->vm, fd, parent, &save, &why), "save_begin");
	must(driver_qemu.save_still(save, &why), "save_still");
	must(driver_qemu.save_end(save, true, &s, &why), "save_end");
	snprintf(cur->parent, sizeof(cur->parent), "%s", node);
	if (parent >= 0)
		close(parent);
	close(fd);
	printf("%-28s %8.1f ms  memory %.1f MiB, state %.1f KiB\n", "  (stood still)", s.paused_ms, (double)s.memory_bytes / MIB,
	       (double)s.state_bytes / KIB);
}

/* Field N (from 0) of FILE of a process, after any name in brackets. */
static unsigned long long number(const char *file, unsigned n)
{
	autofree char *text = NULL;
	char *p;

	if (file_read(AT_FDCWD, file, &text, 4096) <= 0)
		return 0;
	p = strrchr(text, ')');
	for (p = p ? p + 2 : text; n > 0 && (p = strchr(p, ' ')); n--)
		p++;
	return p ? strtoull(p, NULL, 10) : 0;
}

/* CPU time of all its threads, finer than /proc/PID/stat has it. */
static double cpu_ms(pid_t pid)
{
	double sum = 0;
	char path[300];
	DIR *d;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)pid, e->d_name);
		sum += (double)number(path, 0) / 1e6;
	}
	if (d)
		closedir(d);
	return sum;
}

static void status(void)
{
	struct vm_status s;
	char path[48];

	must(driver_qemu.status(cur->vm, &s, &why), "status");
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)vm_pid(cur->vm));
	printf("  %s%s%s  rss %.1f MiB, private %.1f MiB, cpu %.1f ms, faults %llu\n", s.exited ? "exited: " : s.running ? "running" : "stopped",
	       s.exited ? s.reason : "", s.host_disk_full ? " (host disk full)" : "", (double)s.rss_bytes / MIB,
	       (double)s.private_bytes / MIB, cpu_ms(vm_pid(cur->vm)), number(path, 7));
}

static void reap(const char *run_dir)
{
	struct vm *vm;
	int r = driver_qemu.adopt(run_dir, &vm, &why);

	printf("  %s\n", r < 0 ? why.msg : "found");
	if (r == -ESRCH)
		return;
	must(r, "adopt");
	must(driver_qemu.kill(vm, &why), "kill");
	driver_qemu.free(vm);
}

static void command(const char *c)
{
	static char text[65536];
	const char *arg = strchr(c, '=');
	size_t n = arg ? (size_t)(arg++ - c) : strlen(c);
	int64_t t = mono_ns();
	struct str name = { c, n };

	if (!cur && !str_eqz(name, "reap") && !str_eqz(name, "boot") && !str_eqz(name, "restore") && !str_eqz(name, "once"))
		must(fail_set(&why, -EINVAL, "no VM yet"), c);
	if (str_eqz(name, "boot")) {
		make(NULL, false);
	} else if (str_eqz(name, "restore") || str_eqz(name, "once")) {
		make(arg, str_eqz(name, "restore"));
	} else if (str_eqz(name, "start")) {
		must(driver_qemu.start(cur->vm, &why), "start");
	} else if (str_eqz(name, "pause")) {
		must(driver_qemu.pause(cur->vm, &why), "pause");
	} else if (str_eqz(name, "resume")) {
		must(driver_qemu.resume(cur->vm, &why), "resume");
	} else if (str_eqz(name, "kill")) {
		must(driver_qemu.kill(cur->vm, &why), "kill");
	} else if (str_eqz(name, "status")) {
		status();
	} else if (str_eqz(name, "console")) {
		char *tail;
		size_t len;

		must(vm_console(cur->run_dir, 4000, &tail, &len), "console");
		printf("%s\n", tail);
		free(tail);
	} else if (str_eqz(name, "answer")) {
		talk("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false, text, sizeof(text));
	} else if (str_eqz(name, "say")) {
		snprintf(text, 1000, "%s\n", arg);
		talk(strdup(text), true, text, sizeof(text));
		printf("  %s -> %s\n", arg, str_trim(str_of(text)).n ? text : "(nothing)");
	} else if (str_eqz(name, "send")) {
		int fd = dial();

		snprintf(text, 1000, "%s\n", arg);
		must(write_all(fd, text, strlen(text)), "send");
	} else if (str_eqz(name, "save") || str_eqz(name, "full")) {
		save(arg, str_eqz(name, "full"));
	} else if (str_eqz(name, "resize")) {
		must(ftruncate(cur->disk, atoll(arg)), "truncate");
		must(driver_qemu.resize_disk(cur->vm, strtoull(arg, NULL, 10), &why), "resize");
	} else if (str_eqz(name, "drop")) {
		driver_qemu.free(cur->vm);
		must(driver_qemu.adopt(cur->run_dir, &cur->vm, &why), "adopt");
	} else if (str_eqz(name, "reap")) {
		reap(arg);
	} else if (str_eqz(name, "vm")) {
		cur = &vms[MIN((unsigned)atoi(arg), nvms - 1)];
	} else if (str_eqz(name, "sleep")) {
		poll(NULL, 0, atoi(arg));
	} else {
		must(fail_set(&why, -EINVAL, "no such command"), c);
	}
	printf("%-28.28s %8.1f ms\n", c, (double)(mono_ns() - t) / 1e6);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *isolation;
	char version[128], net_dir[300];
	int o;

	while ((o = getopt(argc, argv, "k:i:r:d:m:c:w:a:x:")) != -1) {
		switch (o) {
		case 'k': kernel = optarg; break;
		case 'i': initrd = optarg; break;
		case 'r': image = optarg; break;
		case 'd': disk = optarg; break;
		case 'm': memory = strtoull(optarg, NULL, 10) * MIB; break;
		case 'c': vcpus = (unsigned)atoi(optarg); break;
		case 'w': work = optarg; break;
		case 'a': driver_qemu_set_accel(optarg); break;
		case 'x': words = optarg; break;
		default: return 2;
		}
	}
	must(mkdir_p(work, 0755), work);
	snprintf(net_dir, sizeof(net_dir), "%s/net", work);
	must(mkdir_p(net_dir, 0755), net_dir);
	must(slots_new(net_dir, 0, &slots, &why), "slots");
	must(driver_qemu.probe(&isolation, version, &why), "probe");
	printf("%s: %s%s%s\n", isolation, version, *driver_qemu_accel_reason() ? "; no KVM: " : "", driver_qemu_accel_reason());
	for (int i = optind; i < argc; i++)
		command(argv[i]);
	for (unsigned i = 0; i < nvms; i++) {
		must(driver_qemu.kill(vms[i].vm, &why), "kill");
		driver_qemu.free(vms[i].vm);
		must(slot_release(slots, &vms[i].slot, &why), "slot");
		rmdir(vms[i].run_dir);
	}
	slots_free(slots);
	return 0;
}
