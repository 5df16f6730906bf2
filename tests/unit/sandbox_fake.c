#include "sandbox_fake.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/random.h"
#include "driver/driver.h"
#include "image/image.h"
#include "net/slot.h"

struct fake fake;
static int agent_port;

static bool take(atomic_int *n)
{
	int have = atomic_load(n);

	while (have > 0)
		if (atomic_compare_exchange_weak(n, &have, have - 1))
			return true;
	return false;
}

/* --- driver --- */

/* A guest's memory is the file "content" of its run directory: it goes into nodes and comes out of them. */
struct vm {
	pid_t pid;
	int pidfd;
	bool running;
	char run_dir[320], disk[320]; /* disk: its path; empty: none */
};

static int f_probe(const char **isolation, char version[128], struct fail *why)
{
	*isolation = "emulated";
	snprintf(version, 128, "fake 1");
	return 0;
}

/* Not by file_write_atomic(), which has fault points: a monitor needs no disk to go on. */
static int note(const char *run_dir, const char *name, const char *text)
{
	char path[400], tmp[400];
	autoclose int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", run_dir, name);
	snprintf(tmp, sizeof(tmp), "%s/.%s", run_dir, name);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || rename(tmp, path) < 0)
		return -errno;
	return 0;
}

static int copy_file(int from_dir, const char *from, int to_dir, const char *to)
{
	autoclose int in = openat(from_dir, from, O_RDONLY | O_CLOEXEC), out = -1;
	bool cloned;

	if (in < 0)
		return 0; /* a node, or a VM, without one */
	out = openat(to_dir, to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return out < 0 ? -errno : file_dup(out, in, &cloned);
}

/* Two forks: the monitor is init's child, and outlives whoever started it. It waits on *GO until its pid has been noted, and ends when whoever is
 * about to note it dies: nobody could find it again. FAKE/born/PID says that it was there. */
static pid_t detached(int *go)
{
	int p[2], gate[2];
	pid_t pid = -1, mid;
	char path[128], c;

	snprintf(path, sizeof(path), "%s/born", fake.dir);
	mkdir(path, 0700);
	if (pipe2(p, O_CLOEXEC) < 0 || pipe2(gate, O_CLOEXEC) < 0)
		return -1;
	mid = fork();
	if (mid == 0) {
		pid = fork();
		if (pid == 0) {
			setsid();
			dup2(gate[0], 0);
			dup2(open("/dev/null", O_RDWR | O_CLOEXEC), 1);
			dup2(1, 2);
			for (int fd = 3; fd < 256; fd++)
				close(fd);
			snprintf(path, sizeof(path), "%s/born/%d", fake.dir, (int)getpid());
			close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
			if (read(0, &c, 1) != 1)
				_exit(0);
			for (;;)
				pause();
		}
		if (write(p[1], &pid, sizeof(pid)) != sizeof(pid))
			_exit(1);
		_exit(0);
	}
	close(p[1]);
	close(gate[0]);
	if (read(p[0], &pid, sizeof(pid)) != sizeof(pid))
		pid = -1;
	close(p[0]);
	waitpid(mid, NULL, 0);
	*go = gate[1];
	return pid;
}

static void path_of(int fd, char *out, size_t size)
{
	char link[40];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, size - 1);
	out[n > 0 ? n : 0] = '\0';
}

static int prepare_files(struct vm *vm, const struct vm_spec *spec)
{
	autoclose int dir = dir_open(AT_FDCWD, spec->run_dir);
	char text[64];
	int r;

	snprintf(text, sizeof(text), "%d", vm->pid);
	r = note(spec->run_dir, "pid", text);
	if (spec->disk_fd >= 0)
		path_of(spec->disk_fd, vm->disk, sizeof(vm->disk));
	if (r == 0 && vm->disk[0])
		r = note(spec->run_dir, "disk", vm->disk);
	return r == 0 && spec->node_fd >= 0 ? copy_file(spec->node_fd, "memory", dir, "content") : r;
}

static int f_prepare(const struct vm_spec *spec, struct vm **out, struct fail *why)
{
	struct vm *vm;
	int go = -1, r;

	atomic_fetch_add(&fake.prepares, 1);
	if (take(&fake.prepare_fails))
		return fail_as(why, ERR_host_unsuitable, "the monitor does not start (as the test wishes)");
	vm = calloc(1, sizeof(*vm));
	vm->pid = detached(&go);
	vm->pidfd = pidfd_of(vm->pid);
	snprintf(vm->run_dir, sizeof(vm->run_dir), "%s", spec->run_dir);
	FAULT_MONITOR(vm->pid);
	r = prepare_files(vm, spec);
	if (r == 0)
		(void)!write(go, "g", 1);
	close(go);
	if (r < 0) {
		pidfd_wait(vm->pidfd, 5000);
		close(vm->pidfd);
		free(vm);
		return fail_set(why, r, "the monitor's files: %s", strerror(-r));
	}
	*out = vm;
	return 0;
}

static int run_or_stop(struct vm *vm, bool run, struct fail *why)
{
	int r = note(vm->run_dir, "running", run ? "1" : "0");

	FAULT_MONITOR(vm->pid);
	if (r < 0)
		return fail_set(why, r, "the monitor: %s", strerror(-r));
	vm->running = run;
	return 0;
}

static int f_start(struct vm *vm, struct fail *why)
{
	atomic_fetch_add(&fake.starts, 1);
	if (fake.start_delay_ms)
		usleep((unsigned)fake.start_delay_ms * 1000);
	if (take(&fake.start_fails))
		return fail_as(why, ERR_guest_failed, "the guest does not start (as the test wishes)");
	return run_or_stop(vm, true, why);
}

static int f_pause(struct vm *vm, struct fail *why)
{
	atomic_fetch_add(&fake.pauses, 1);
	return run_or_stop(vm, false, why);
}

static int f_resume(struct vm *vm, struct fail *why)
{
	atomic_fetch_add(&fake.resumes, 1);
	return run_or_stop(vm, true, why);
}

struct vm_save {
	struct vm *vm;
	int dirfd, parent;
};

static int f_save_begin(struct vm *vm, int node_dirfd, int parent_fd, struct vm_save **out, struct fail *why)
{
	FAULT_MONITOR(vm->pid);
	atomic_fetch_add(&fake.saves, 1);
	if (take(&fake.save_fails))
		return fail_as(why, ERR_no_space, "no room for a checkpoint (as the test wishes)");
	*out = calloc(1, sizeof(**out));
	**out = (struct vm_save){ vm, node_dirfd, parent_fd };
	return 0;
}

static int f_save_still(struct vm_save *s, struct fail *why)
{
	autoclose int dir = dir_open(AT_FDCWD, s->vm->run_dir);
	autoclose int memory = openat(s->dirfd, "memory", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int r = copy_file(dir, "content", s->dirfd, "memory");

	if (r == 0 && fake.memory && ftruncate(memory, fake.memory) < 0)
		r = -errno;
	if (r == 0 && s->vm->disk[0])
		r = copy_file(AT_FDCWD, s->vm->disk, s->dirfd, "disk");
	if (r == 0)
		r = copy_file(dir, "pid", s->dirfd, "state");
	if (r < 0 && r != -ENOTDIR) /* the node of a fake pool */
		return fail_set(why, r, "checkpoint: %s", strerror(-r));
	if (fake.save_delay_ms)
		usleep((unsigned)fake.save_delay_ms * 1000);
	if (take(&fake.still_fails))
		return fail_as(why, ERR_internal, "the monitor does not save (as the test wishes)");
	return 0;
}

static int f_save_end(struct vm_save *s, bool keep, struct vm_saved *saved, struct fail *why)
{
	if (keep)
		*saved = (struct vm_saved){ .memory_bytes = s->parent < 0 ? 5000 : 1000, .memory_shared = s->parent < 0 ? 0 : 4000,
					    .state_bytes = 100, .paused_ms = 1 };
	free(s);
	return 0;
}

static int f_resize(struct vm *vm, uint64_t bytes, struct fail *why)
{
	return 0;
}

static int f_kill(struct vm *vm, struct fail *why)
{
	FAULT_MONITOR(vm->pid);
	atomic_fetch_add(&fake.kills, 1);
	if (pidfd_kill(vm->pidfd, SIGKILL) < 0 && pidfd_wait(vm->pidfd, 0) < 0)
		return fail_set(why, -EIO, "monitor %d cannot be ended", (int)vm->pid);
	pidfd_wait(vm->pidfd, 5000);
	return 0;
}

static int f_adopt(const char *run_dir, struct vm **out, struct fail *why)
{
	int dir = dir_open(AT_FDCWD, run_dir);
	autofree char *pid = NULL, *running = NULL, *disk = NULL;
	struct vm *vm;

	if (dir < 0 || file_read(dir, "pid", &pid, 64) < 0) {
		if (dir >= 0)
			close(dir);
		return fail_set(why, -ESRCH, "no monitor");
	}
	(void)file_read(dir, "running", &running, 64);
	(void)file_read(dir, "disk", &disk, 300);
	close(dir);
	vm = calloc(1, sizeof(*vm));
	vm->pid = atoi(pid);
	vm->pidfd = pidfd_of(vm->pid);
	vm->running = running && running[0] == '1';
	snprintf(vm->disk, sizeof(vm->disk), "%s", disk ? disk : "");
	FAULT_MONITOR(vm->pid);
	snprintf(vm->run_dir, sizeof(vm->run_dir), "%s", run_dir);
	if (vm->pidfd < 0 || pidfd_wait(vm->pidfd, 0) == 0) {
		if (vm->pidfd >= 0)
			close(vm->pidfd);
		free(vm);
		return fail_set(why, -ESRCH, "its monitor is gone");
	}
	*out = vm;
	return 0;
}

static int f_status(struct vm *vm, struct vm_status *out, struct fail *why)
{
	memset(out, 0, sizeof(*out));
	out->exited = pidfd_wait(vm->pidfd, 0) == 0;
	out->running = vm->running && !out->exited;
	out->reason = "monitor_crash";
	return 0;
}

static void f_free(struct vm *vm)
{
	close(vm->pidfd);
	free(vm);
}

const struct driver driver_qemu = {
	.name = "fake", .probe = f_probe, .prepare = f_prepare, .start = f_start, .pause = f_pause, .resume = f_resume, .save_begin = f_save_begin,
	.save_still = f_save_still, .save_end = f_save_end, .resize_disk = f_resize, .kill = f_kill, .adopt = f_adopt, .status = f_status, .free = f_free,
};

int driver_qemu_set_accel(const char *mode)
{
	return 0;
}

const char *driver_last_exit(const char *run_dir)
{
	return "monitor_crash";
}

pid_t vm_pid(const struct vm *vm)
{
	return vm->pid;
}

int vm_pidfd(const struct vm *vm)
{
	return vm->pidfd;
}

int vm_console(const char *run_dir, size_t max, char **out, size_t *len)
{
	*out = strdup("[    1.0] Kernel panic - not syncing: as the test wishes\n");
	*len = strlen(*out);
	return 0;
}

int driver_memory_memfd(int node_dirfd, uint64_t memory, struct fail *why)
{
	return memfd_create("fake", MFD_CLOEXEC);
}

/* --- slots: files --- */

#define SLOTS_MAX 4096

struct slots {
	pthread_mutex_t lock;
	char (*known)[16]; /* not to be swept */
	unsigned n;
};

static void slot_known(struct slots *s, const char *name)
{
	pthread_mutex_lock(&s->lock);
	if (s->n < SLOTS_MAX)
		snprintf(s->known[s->n++], sizeof(*s->known), "%s", name);
	pthread_mutex_unlock(&s->lock);
}

static int slot_dir(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/slots", fake.dir);
	mkdir_p(path, 0700);
	return dir_open(AT_FDCWD, path);
}

int slots_new(const char *run_dir, unsigned ready, struct slots **out, struct fail *why)
{
	*out = calloc(1, sizeof(**out));
	pthread_mutex_init(&(*out)->lock, NULL);
	(*out)->known = calloc(SLOTS_MAX, sizeof(*(*out)->known));
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	free(s->known);
	free(s);
}

int slots_refill(struct slots *s, struct fail *why)
{
	return 0;
}

unsigned slots_ready(struct slots *s)
{
	return 1000;
}

int slot_claim(struct slots *s, struct slot *out, struct fail *why)
{
	static atomic_int n;
	int dir, fd;

	if (take(&fake.slot_fails))
		return fail_as(why, ERR_host_unsuitable, "no namespace (as the test wishes)");
	dir = slot_dir();
	snprintf(out->name, sizeof(out->name), "%x-%x", (unsigned)getpid() & 0x3fffff, (unsigned)atomic_fetch_add(&n, 1) & 0xffffff);
	slot_known(s, out->name);
	fd = openat(dir, out->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	close(dir);
	if (fd < 0)
		return fail_set(why, -errno, "slot: %s", strerror(errno));
	out->ns_fd = fd;
	out->tap_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return 0;
}

int slot_adopt(struct slots *s, const char *name, struct slot *out, struct fail *why)
{
	int dir = slot_dir(), fd = openat(dir, name, O_RDWR | O_CLOEXEC);

	close(dir);
	if (fd < 0)
		return fail_set(why, -errno, "slot: %s", strerror(errno));
	snprintf(out->name, sizeof(out->name), "%s", name);
	slot_known(s, name);
	out->ns_fd = fd;
	out->tap_fd = -1;
	return 0;
}

void slot_close_tap(struct slot *slot)
{
	if (slot->tap_fd >= 0)
		close(slot->tap_fd);
	slot->tap_fd = -1;
}

int slot_release(struct slots *s, struct slot *slot, struct fail *why)
{
	int dir = slot_dir();

	unlinkat(dir, slot->name, 0);
	close(dir);
	close(slot->ns_fd);
	return 0;
}

int slots_sweep(struct slots *s, struct fail *why)
{
	DIR *d = fdopendir(slot_dir());
	struct dirent *e;
	int swept = 0;

	pthread_mutex_lock(&s->lock);
	while (d && (e = readdir(d))) {
		bool known = e->d_name[0] == '.';

		for (unsigned i = 0; i < s->n && !known; i++)
			known = !strcmp(s->known[i], e->d_name);
		if (!known && unlinkat(dirfd(d), e->d_name, 0) == 0)
			swept++;
	}
	pthread_mutex_unlock(&s->lock);
	if (d)
		closedir(d);
	return swept;
}

int slot_connect(const struct slot *slot, int port, struct fail *why)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)agent_port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS) {
		int err = errno;

		close(fd);
		return fail_set(why, -err, "connect: %s", strerror(err));
	}
	return fd;
}

/* --- pool; tests/faults has the real one --- */
#ifndef FAKE_REAL_POOL

struct pool {
	int fd;
};

int pool_open(const char *state_dir, bool may_mount, uint64_t size, struct pool **out, struct fail *why)
{
	char path[128];

	*out = calloc(1, sizeof(**out));
	snprintf(path, sizeof(path), "%s/pool/sandboxes", fake.dir);
	mkdir_p(path, 0700);
	snprintf(path, sizeof(path), "%s/pool", fake.dir);
	(*out)->fd = dir_open(AT_FDCWD, path);
	return 0;
}

void pool_close(struct pool *p)
{
	close(p->fd);
	free(p);
}

int pool_info(struct pool *p, struct pool_info *out, struct fail *why)
{
	return 0;
}

int pool_keep_room(struct pool *p, uint64_t *bytes, struct fail *why)
{
	*bytes = 100 * GIB;
	return 0;
}

int pool_dirfd(const struct pool *p)
{
	return p->fd;
}

int disk_clone(struct pool *p, const char *id, int src_fd, uid_t uid, uint64_t size, bool *cloned, struct fail *why)
{
	char path[64];

	snprintf(path, sizeof(path), "sandboxes/%s", id);
	mkdirat(p->fd, path, 0700);
	if (take(&fake.disk_full))
		return fail_as(why, ERR_no_space, "the pool is full (as the test wishes)");
	snprintf(path, sizeof(path), "sandboxes/%s/disk", id);
	return openat(p->fd, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

int disk_remove(struct pool *p, const char *id, struct fail *why)
{
	int all = dir_open(p->fd, "sandboxes"), r = rm_rf(all, id);

	close(all);
	return r;
}

int disk_list(struct pool *p, char (**ids)[24], size_t *n, struct fail *why)
{
	DIR *d = fdopendir(dir_open(p->fd, "sandboxes"));
	struct dirent *e;

	*ids = calloc(1000, sizeof(**ids));
	*n = 0;
	while ((e = readdir(d)) && *n < 1000)
		if (e->d_name[0] == 'i')
			snprintf((*ids)[(*n)++], 24, "%.23s", e->d_name);
	closedir(d);
	return 0;
}

int disk_make(struct pool *p, uint64_t size, struct fail *why)
{
	return memfd_create("disk", MFD_CLOEXEC);
}

static struct digest digest = { "0123456789012345678901234567890123456789012345678901234567890123" };

static int some_fd(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int nodes_dir(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/nodes", fake.dir);
	mkdir_p(path, 0700);
	return dir_open(AT_FDCWD, path);
}

/* Those that nobody made here are the templates'. */
int node_read(struct pool *p, const char *id, struct node *out, struct fail *why)
{
	autoclose int all = nodes_dir(), dir = dir_open(all, id), fd = dir < 0 ? -1 : openat(dir, "node", O_RDONLY | O_CLOEXEC);
	char copy[24];

	snprintf(copy, sizeof(copy), "%s", id); /* it may lie in OUT */
	*out = (struct node){ .driver = "fake", .driver_version = "fake 1", .vcpus = 1, .memory = 512 * MIB, .disk = 64 * MIB,
			      .has_memory = true, .agent_protocol = 2 };
	if (dir >= 0 && (fd < 0 || read(fd, out, sizeof(*out)) != (ssize_t)sizeof(*out)))
		return fail_as(why, ERR_checkpoint_not_found, "node %s is half made", copy);
	snprintf(out->id, sizeof(out->id), "%s", copy);
	return 0;
}

int node_open(struct pool *p, const char *id, struct fail *why)
{
	autoclose int all = nodes_dir();
	int fd = dir_open(all, id);
	char path[128];

	if (fd < 0) {
		snprintf(path, sizeof(path), "%s/node", fake.dir);
		mkdir_p(path, 0700);
		fd = dir_open(AT_FDCWD, path);
	}
	close(openat(fd, "disk", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	return fd;
}

int node_begin(struct pool *p, char id[24], struct fail *why)
{
	autoclose int all = nodes_dir();

	id_make(id, 'n');
	mkdirat(all, id, 0700);
	return dir_open(all, id);
}

int node_commit(struct pool *p, int dirfd, const struct node *n, struct fail *why)
{
	if (take(&fake.commit_fails))
		return fail_as(why, ERR_no_space, "no room for the checkpoint (as the test wishes)");
	return file_write_atomic(dirfd, "node", n, sizeof(*n), 0600);
}

int node_meta_write(int dirfd, const json_t *meta, struct fail *why)
{
	autofree char *text = json_dumps(meta, JSON_COMPACT);

	return file_write_atomic(dirfd, "meta", text, strlen(text), 0600);
}

int node_meta_read(struct pool *p, const char *id, json_t **out, struct fail *why)
{
	autoclose int all = nodes_dir(), dir = dir_open(all, id);
	autofree char *text = NULL;

	*out = dir >= 0 && file_read(dir, "meta", &text, 1 << 16) > 0 ? json_loads(text, 0, NULL) : NULL;
	return 0;
}

int node_remove(struct pool *p, const char *id, struct fail *why)
{
	autoclose int all = nodes_dir();

	return rm_rf(all, id);
}

int node_abort(struct pool *p, const char *id)
{
	return node_remove(p, id, NULL);
}

int node_usage(struct pool *p, const char *id, const char *parent, uint64_t *own, uint64_t *shared, struct fail *why)
{
	*own = parent ? 1000 : 5000;
	*shared = parent ? 4000 : 0;
	return 0;
}

int node_digest(struct pool *p, const char *id, struct fail *why)
{
	atomic_fetch_add(&fake.digests, 1);
	return 0;
}

int node_verify(struct pool *p, const char *id, char where[160], struct fail *why)
{
	if (!take(&fake.verify_fails))
		return 0;
	snprintf(where, 160, "memory at offset 4096");
	return fail_as(why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s", id, where), -EBADMSG;
}

/* The stream is the id: nothing goes far away here. */
int node_export(struct pool *p, const char *id, int out_fd, const struct progress *pr, struct fail *why)
{
	int r = write_all(out_fd, id, strlen(id));

	return r < 0 ? fail_set(why, r, "export: %s", strerror(-r)) : 0;
}

int node_import(struct pool *p, int in_fd, const struct progress *pr, struct node *out, struct fail *why)
{
	autofree char *text = NULL;
	autojson json_t *meta = NULL;
	autoclose int dir = -1;

	if (read_all(in_fd, &text, 100) != ID_LEN || node_read(p, text, out, why) < 0)
		return fail_as(why, ERR_bad_checkpoint, "not a checkpoint");
	dir = node_begin(p, out->id, why);
	out->parent[0] = '\0';
	if (node_meta_read(p, text, &meta, why) == 0 && meta && dir >= 0)
		node_meta_write(dir, meta, why);
	return dir < 0 ? dir : node_commit(p, dir, out, why);
}

int disk_extents(struct pool *p, const char *sandbox_id, uint64_t *n, struct fail *why)
{
	*n = 1;
	return 0;
}

int disk_rewrite(struct pool *p, const char *sandbox_id, struct fail *why)
{
	return 0;
}

int pool_usage(struct pool *p, struct pool_usage *out, struct fail *why)
{
	*out = (struct pool_usage){ .nodes = { 3, 3000 }, .disks = { 1, 100 } };
	return 0;
}

void image_info_clear(struct image_info *i)
{
}

int image_find(struct pool *p, const char *name, struct image_info *out, struct fail *why)
{
	*out = (struct image_info){ .digest = digest };
	return strcmp(name, "missing") ? 0 : fail_as(why, ERR_image_not_found, "no image \"%s\"", name);
}

int image_list(struct pool *p, struct image_info **out, size_t *n, struct fail *why)
{
	*n = 0;
	return 0;
}

int image_open(struct pool *p, const struct digest *d, struct fail *why)
{
	return some_fd();
}

int image_remove(struct pool *p, const char *name, struct fail *why)
{
	return 0;
}

int kernel_current(struct pool *p, struct kernel_info *out, struct fail *why)
{
	out->digest = digest;
	return 0;
}

int kernel_open(struct pool *p, const struct digest *d, struct fail *why)
{
	return some_fd();
}

int initrd_ensure(struct pool *p, const struct digest *kernel, const char *agent_path, struct digest *out, struct fail *why)
{
	*out = digest;
	return 0;
}

int initrd_open(struct pool *p, const struct digest *d, struct fail *why)
{
	return some_fd();
}

#endif

/* --- agent --- */

static void reply(int fd, int status, const char *body)
{
	char head[256];
	int n = snprintf(head, sizeof(head), "HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", status,
			 strlen(body));

	(void)!send(fd, head, (size_t)n, MSG_NOSIGNAL);
	(void)!send(fd, body, strlen(body), MSG_NOSIGNAL);
}

/* A guest draws its boot token anew when it is told that it is fresh, and keeps it otherwise, also over a restart of the daemon. */
static void boot_token(const char *id, bool fresh, char out[33])
{
	autofree char *text = NULL;
	unsigned char raw[16];
	char path[128];
	autoclose int dir = -1;

	snprintf(path, sizeof(path), "%s/boot", fake.dir);
	mkdir_p(path, 0700);
	dir = dir_open(AT_FDCWD, path);
	if (!fresh && file_read(dir, id, &text, 64) == 32) {
		memcpy(out, text, 33);
		return;
	}
	random_bytes(raw, sizeof(raw));
	hex_encode(out, raw, sizeof(raw));
	file_write_atomic(dir, id, out, 32, 0600);
}

static void reply_init(int fd, const char *text)
{
	json_t *j = json_loads(text, 0, NULL);
	const char *id = json_string_value(json_object_get(j, "id"));
	char now[RFC3339_LEN], random[32], body[1024], token[33];
	bool fresh = json_is_true(json_object_get(j, "fresh"));
	unsigned char raw[16] = { 1, 2, 3 };
	enum fake_agent how = fake.agent;
	size_t n = how == FAKE_AGENT_SHORT_RANDOM ? 12 : 16;

	if (how != FAKE_AGENT_SAME_RANDOM)
		random_bytes(raw, sizeof(raw));
	base64_encode(random, raw, n);
	random[base64_len(n)] = '\0';
	boot_token(id, fresh, token);
	if (how == FAKE_AGENT_OLD_BOOT || how == FAKE_AGENT_NO_BOOT)
		strcpy(token, how == FAKE_AGENT_NO_BOOT ? "" : "00112233445566778899aabbccddeeff");
	rfc3339_format(now, real_ns() - (how == FAKE_AGENT_CLOCK_OFF ? 5 * NS_PER_S : 0));
	snprintf(body, sizeof(body),
		 "{\"generation\":%lld,\"id\":\"%s\",\"machine_id\":\"%s\",\"boot_token\":\"%s\",\"timestamp\":\"%s\",\"random\":\"%s\",\"protocol\":2}",
		 (long long)json_integer_value(json_object_get(j, "generation")) - (how == FAKE_AGENT_OLD_GENERATION),
		 how == FAKE_AGENT_WRONG_ID ? "somebody" : id,
		 how == FAKE_AGENT_OLD_MACHINE ? "0123456789abcdef0123456789abcdef" : json_string_value(json_object_get(j, "machine_id")), token, now,
		 random);
	fake.last_generation = json_integer_value(json_object_get(j, "generation"));
	atomic_fetch_add(&fake.inits, 1);
	atomic_fetch_add(&fake.fresh, fresh);
	atomic_fetch_add(&fake.kept, json_is_true(json_object_get(j, "keepProcesses")));
	reply(fd, 200, body);
	json_decref(j);
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buf[65536];

	for (;;) {
		size_t n = 0, length = 0;
		char *end = NULL, *cl;

		while (!end) {
			ssize_t got = recv(fd, buf + n, sizeof(buf) - 1 - n, 0);

			if (got <= 0)
				goto out;
			n += (size_t)got;
			buf[n] = '\0';
			end = strstr(buf, "\r\n\r\n");
		}
		cl = strcasestr(buf, "content-length:");
		if (cl && cl < end)
			length = (size_t)atol(cl + 15);
		end += 4;
		while ((size_t)(buf + n - end) < length) {
			ssize_t got = recv(fd, buf + n, sizeof(buf) - 1 - n, 0);

			if (got <= 0)
				goto out;
			n += (size_t)got;
			buf[n] = '\0';
		}
		if (fake.agent == FAKE_AGENT_CUTS)
			goto out;
		while (fake.agent == FAKE_AGENT_HANGS)
			usleep(5000);
		if (!strncmp(buf, "POST /init", 10)) {
			reply_init(fd, end);
		} else if (!strncmp(buf, "GET /space/processes", 20)) {
			reply(fd, 200, fake.processes ? "{\"processes\":[{\"pid\":5,\"running\":true}]}"
						     : "{\"processes\":[{\"pid\":4,\"running\":false},{\"pid\":3,\"running\":true,"
						       "\"tag\":\"space.start\"}]}");
		} else {
			reply(fd, 200, "{}");
		}
	}
out:
	close(fd);
	return NULL;
}

static void *listen_main(void *arg)
{
	int fd = (int)(intptr_t)arg, c;
	pthread_t t;

	while ((c = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		pthread_create(&t, NULL, serve, (void *)(intptr_t)c);
		pthread_detach(t);
	}
	return NULL;
}

void fake_init(const char *dir)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_t t;

	if (dir != fake.dir)
		snprintf(fake.dir, sizeof(fake.dir), "%s", dir);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 512) < 0)
		abort();
	getsockname(fd, (struct sockaddr *)&at, &len);
	agent_port = ntohs(at.sin_port);
	pthread_create(&t, NULL, listen_main, (void *)(intptr_t)fd);
	pthread_detach(t);
}

static unsigned count(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

unsigned fake_left(const char *run_dir)
{
	char a[128], b[128], c[320];

	snprintf(a, sizeof(a), "%s/slots", fake.dir);
	snprintf(b, sizeof(b), "%s/pool/sandboxes", fake.dir);
	snprintf(c, sizeof(c), "%s/sandboxes", run_dir);
	return count(a) + count(b) + count(c);
}

unsigned fake_nodes(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/nodes", fake.dir);
	return count(path);
}
