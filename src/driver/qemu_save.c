/* qemu_save.c - a running VM into a checkpoint node. The order and its reasons: docs/driver.md. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "driver/line.h"
#include "driver/qemu.h"
#include "driver/qemu_limits.h"

/* Writing the states of devices takes no longer than this, or the monitor is stuck. */
#define STATE_TIMEOUT_MS 20000
/* 200 KiB for what we give it; a monitor that was taken over might write for ever. */
#define STATE_MAX (16 * MIB)

/* One save, from begin to end. */
struct vm_save {
	struct vm *vm;
	int memory, state, disk; /* the node's files */
	int state_fd;		 /* what QEMU wrote */
	int base;		 /* what `memory` is a clone of: what the guest would have, had it written nothing since. -1: zeros */
	bool taken;		 /* save_still() has done all of it */
	struct mem_runs runs;
	struct mem_copy copy;
	uint64_t written;
	struct vm_saved out;
};

static int new_file(int dirfd, const char *name, struct fail *why)
{
	int fd = FAULT(openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));

	return fd < 0 ? fail_set(why, -errno, "checkpoint: %s: %s", name, strerror(errno)) : fd;
}

/* The memory file that this VM was started from: by its path, or, where that is gone, what the monitor has mapped. */
static int start_memory(struct vm *vm)
{
	autoclose int dir = vm->node_path ? dir_open(AT_FDCWD, vm->node_path) : -1;
	int fd = dir < 0 ? -1 : openat(dir, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 ? fd : fcntl(vm->memory_fd, F_DUPFD_CLOEXEC, 0);
}

/* What the new memory file begins as. A page that is not the monitor's own is what the VM's start file has there. It is also what each node
 * saved of this VM since has there, because a page that once was its own stays so. So the start file and those nodes are the files that a save
 * can be built upon by looking at own pages only; of them the parent is taken, since it differs least. A parent of before that start may have had
 * other values in any page: then the start file is the base, which shares with that parent whatever it was cloned from. */
static int find_base(struct vm_save *s, int parent_fd, struct fail *why)
{
	struct vm *vm = s->vm;
	autoclose int fd = parent_fd < 0 ? -1 : openat(parent_fd, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (parent_fd >= 0 && fd < 0 && errno != ENOENT) /* a snapshot has none */
		return fail_set(why, -errno, "checkpoint: the parent's memory: %s", strerror(errno));
	if (fd >= 0 && line_has(vm->run_dirfd, fd)) {
		s->base = steal_fd(&fd);
	} else if (vm->memory_fd >= 0) {
		s->base = start_memory(vm);
		if (s->base < 0)
			return fail_set(why, -errno, "checkpoint: the memory it was started from: %s", strerror(errno));
	}
	return 0;
}

static int base_file(struct vm_save *s, struct fail *why)
{
	struct stat st;
	bool cloned;
	int r;

	if (s->base >= 0) {
		if (fstat(s->base, &st) < 0 || (uint64_t)st.st_size != s->vm->memory)
			return fail_set(why, -EINVAL, "checkpoint: the parent's memory is of another size");
		r = FAULT_OURS(file_dup(s->memory, s->base, &cloned));
		if (r < 0)
			return fail_set(why, r, "checkpoint: the parent's memory: %s", strerror(-r));
	}
	if (FAULT(ftruncate(s->memory, (off_t)s->vm->memory)) < 0)
		return fail_set(why, -errno, "checkpoint: memory: %s", strerror(errno));
	return 0;
}

/* QEMU gets a memory file to write to and no path, nor anything that it could still write to once the node is there. */
static int device_state(struct vm_save *s, struct fail *why)
{
	autoclose int fd = -1;
	autojson json_t *ret = NULL;
	struct qmp *q;
	char args[128], path[40];
	int set, r;

	s->state_fd = FAULT(memfd_create("space-state", MFD_CLOEXEC));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->state_fd);
	if (s->state_fd >= 0)
		fd = open(path, O_WRONLY | O_CLOEXEC); /* QEMU takes a descriptor only if its mode is the one wanted */
	if (fd < 0)
		return fail_set(why, -errno, "checkpoint: state: %s", strerror(errno));
	r = qemu_connect(s->vm, why);
	q = s->vm->q;
	if (r == 0)
		r = qmp_cmd(q, "add-fd", NULL, fd, QEMU_QMP_TIMEOUT_MS, &ret, why);
	if (r < 0)
		return r;
	set = (int)json_integer_value(json_object_get(ret, "fdset-id"));
	/* live: it would give up its disks otherwise */
	snprintf(args, sizeof(args), "{\"filename\":\"/dev/fdset/%d\",\"live\":false}", set);
	r = qmp_cmd(q, "xen-save-devices-state", args, -1, STATE_TIMEOUT_MS, NULL, why);
	snprintf(args, sizeof(args), "{\"fdset-id\":%d}", set);
	if (r == 0 || r == -EREMOTEIO)
		(void)qmp_cmd(q, "remove-fd", args, -1, QEMU_QMP_TIMEOUT_MS, NULL, NULL);
	return r;
}

static int write_state(struct vm_save *s, struct fail *why)
{
	autofree char *buf = NULL;
	struct stat st;
	int r;

	if (fstat(s->state_fd, &st) < 0)
		return fail_set(why, -errno, "checkpoint: state: %s", strerror(errno));
	if (st.st_size <= 0 || (uint64_t)st.st_size > STATE_MAX)
		return fail_set(why, -EIO, "checkpoint: the monitor wrote %lld bytes of device state", (long long)st.st_size);
	buf = malloc((size_t)st.st_size);
	if (!buf)
		return fail_set(why, -ENOMEM, "no memory");
	r = pread_all(s->state_fd, buf, (size_t)st.st_size, 0);
	if (r == 0)
		r = FAULT_OURS(write_all(s->state, buf, (size_t)st.st_size));
	if (r < 0)
		return fail_set(why, r, "checkpoint: state: %s", strerror(-r));
	s->out.state_bytes = (uint64_t)st.st_size;
	return 0;
}

/* All that must be of one instant. The guest stands still. */
static int take(struct vm_save *s, struct fail *why)
{
	struct vm *vm = s->vm;
	struct mem_runs again;
	bool cloned;
	int r;

	r = device_state(s, why);
	if (r == 0)
		r = mem_private(&vm->guest, &again, why);
	if (r < 0)
		return r;
	mem_runs_clear(&s->runs);
	s->runs = again;
	if (s->copy.base)
		r = mem_copy_read(&s->copy, &vm->guest, &s->runs, why);
	else
		r = mem_write(s->memory, s->base, NULL, &vm->guest, &s->runs, &s->written, why);
	if (r == 0 && vm->disk_fd >= 0) {
		r = FAULT_OURS(file_dup(s->disk, vm->disk_fd, &cloned));
		if (r < 0)
			return fail_set(why, r, "checkpoint: disk: %s", strerror(-r));
	}
	return r;
}

static int warm_up(struct vm_save *s, struct fail *why)
{
	struct vm *vm = s->vm;
	int r = mem_private(&vm->guest, &s->runs, why);

	if (r < 0)
		return r;
	/* what the guest's disk has in the page cache is written now, so that the clone finds little to write */
	if (vm->disk_fd >= 0 && FAULT(fdatasync(vm->disk_fd)) < 0)
		return fail_set(why, -errno, "checkpoint: disk: %s", strerror(errno));
	r = mem_copy_new(vm->memory, s->runs.bytes, vm->memory_fd < 0, &s->copy);
	if (r == -ENOMEM)
		return 0;
	if (r < 0)
		return fail_set(why, r, "checkpoint: %s", strerror(-r));
	return mem_copy_read(&s->copy, &vm->guest, &s->runs, why);
}

static int sync_files(struct vm_save *s, struct fail *why)
{
	if (FAULT(fdatasync(s->memory)) < 0 || FAULT(fdatasync(s->state)) < 0 || (s->disk >= 0 && FAULT(fdatasync(s->disk)) < 0))
		return fail_set(why, -errno, "checkpoint: %s", strerror(errno));
	return 0;
}

static uint64_t data_bytes(int fd)
{
	uint64_t sum = 0;

	for (off_t at = 0, end;; at = end) {
		at = lseek(fd, at, SEEK_DATA);
		end = at < 0 ? -1 : lseek(fd, at, SEEK_HOLE);
		if (end < 0)
			return sum;
		sum += (uint64_t)(end - at);
	}
}

static void save_free(struct vm_save *s)
{
	mem_copy_free(&s->copy);
	mem_runs_clear(&s->runs);
	for (int i = 0, fds[] = { s->memory, s->state, s->disk, s->state_fd, s->base }; i < 5; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(s);
}

int qemu_save_begin(struct vm *vm, int node_dirfd, int parent_fd, struct vm_save **out, struct fail *why)
{
	struct vm_save *s;
	int r;

	if (!vm->started)
		return fail_set(why, -EBUSY, "the VM was never started");
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail_set(why, -ENOMEM, "no memory");
	*s = (struct vm_save){ .vm = vm, .memory = -1, .state = -1, .disk = -1, .state_fd = -1, .base = -1 };
	r = s->memory = new_file(node_dirfd, "memory", why);
	if (r >= 0)
		r = s->state = new_file(node_dirfd, "state", why);
	if (r >= 0 && vm->disk_fd >= 0)
		r = s->disk = new_file(node_dirfd, "disk", why);
	if (r >= 0)
		r = find_base(s, parent_fd, why);
	if (r >= 0)
		r = base_file(s, why);
	if (r >= 0)
		r = warm_up(s, why);
	if (r < 0) {
		save_free(s);
		return r;
	}
	*out = s;
	return 0;
}

int qemu_save_still(struct vm_save *s, struct fail *why)
{
	struct vm *vm = s->vm;
	bool was_running = vm->running;
	int64_t from = mono_ns();
	struct fail other = { 0 };
	int r = 0, r2;

	if (was_running)
		r = qemu_stop(vm, why);
	if (r == 0)
		r = take(s, why);
	if (was_running) {
		r2 = qemu_cont(vm, &other);
		if (r == 0 && r2 < 0) {
			r = r2;
			if (why)
				*why = other;
		}
		s->out.paused_ms = (double)(mono_ns() - from) / NS_PER_MS;
	}
	s->taken = r == 0;
	return r;
}

static int finish(struct vm_save *s, struct fail *why)
{
	struct vm *vm = s->vm;
	uint64_t all;
	int r = 0;

	if (!s->taken)
		return fail_set(why, -EINVAL, "checkpoint: nothing was saved");
	if (s->copy.base)
		r = mem_write(s->memory, s->base, &s->copy, &vm->guest, &s->runs, &s->written, why);
	if (r == 0)
		r = write_state(s, why);
	if (r == 0)
		r = sync_files(s, why);
	if (r < 0)
		return r;
	all = data_bytes(s->memory);
	s->out.memory_bytes = s->base < 0 ? all : s->written;
	s->out.memory_shared = all - MIN(all, s->out.memory_bytes);
	line_add(vm->run_dirfd, s->memory);
	return 0;
}

int qemu_save_end(struct vm_save *s, bool keep, struct vm_saved *saved, struct fail *why)
{
	int r;

	FAULT_MONITOR(s->vm->p.qemu);
	r = keep ? finish(s, why) : 0;
	if (keep && r == 0)
		*saved = s->out;
	save_free(s);
	return r;
}
