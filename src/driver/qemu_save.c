/* qemu_save.c - a running VM into a checkpoint node. The order and its reasons: docs/driver.md. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "driver/qemu.h"
#include "driver/qemu_limits.h"

/* Writing the states of devices takes no longer than this, or the monitor is stuck. */
#define STATE_TIMEOUT_MS 20000
/* 200 KiB for what we give it; a monitor that was taken over might write for ever. */
#define STATE_MAX (16 * MIB)

struct saving {
	struct vm *vm;
	int memory, state, disk; /* the node's files */
	int state_fd;		 /* what QEMU wrote */
	struct mem_runs runs;
	struct mem_copy copy;
	uint64_t written;
};

static int new_file(int dirfd, const char *name, struct fail *why)
{
	int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? fail_set(why, -errno, "checkpoint: %s: %s", name, strerror(errno)) : fd;
}

/* The parent's memory file: by its path, or, where that is gone, what the monitor has mapped. */
static int parent_memory(struct vm *vm)
{
	autoclose int dir = vm->node_path ? dir_open(AT_FDCWD, vm->node_path) : -1;
	int fd = dir < 0 ? -1 : openat(dir, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 ? fd : fcntl(vm->memory_fd, F_DUPFD_CLOEXEC, 0);
}

/* `memory` to begin with: what the guest would have had, had it written nothing. */
static int base_file(struct saving *s, enum vm_save kind, struct fail *why)
{
	struct vm *vm = s->vm;
	autoclose int parent = -1;
	bool cloned;
	int r;

	if (vm->memory_fd >= 0) {
		/* without a parent nothing is to be shared with: a copy of the data */
		parent = kind == VM_SAVE_DIFF ? parent_memory(vm) : fcntl(vm->memory_fd, F_DUPFD_CLOEXEC, 0);
		if (parent < 0)
			return fail_set(why, -errno, "checkpoint: the parent's memory: %s", strerror(errno));
		r = file_dup(s->memory, parent, &cloned);
		if (r < 0)
			return fail_set(why, r, "checkpoint: the parent's memory: %s", strerror(-r));
	}
	if (ftruncate(s->memory, (off_t)vm->memory) < 0)
		return fail_set(why, -errno, "checkpoint: memory: %s", strerror(errno));
	return 0;
}

/* QEMU gets a memory file to write to and no path, nor anything that it could still write to once the node is there. */
static int device_state(struct saving *s, struct fail *why)
{
	autoclose int fd = -1;
	autojson json_t *ret = NULL;
	struct qmp *q;
	char args[128], path[40];
	int set, r;

	s->state_fd = memfd_create("space-state", MFD_CLOEXEC);
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

static int write_state(struct saving *s, struct vm_saved *out, struct fail *why)
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
		r = write_all(s->state, buf, (size_t)st.st_size);
	if (r < 0)
		return fail_set(why, r, "checkpoint: state: %s", strerror(-r));
	out->state_bytes = (uint64_t)st.st_size;
	return 0;
}

/* All that must be of one instant. The guest stands still. */
static int still(struct saving *s, struct fail *why)
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
		r = mem_write(s->memory, vm->memory_fd, NULL, &vm->guest, &s->runs, &s->written, why);
	if (r == 0 && vm->disk_fd >= 0) {
		r = file_dup(s->disk, vm->disk_fd, &cloned);
		if (r < 0)
			return fail_set(why, r, "checkpoint: disk: %s", strerror(-r));
	}
	return r;
}

static int warm_up(struct saving *s, struct fail *why)
{
	struct vm *vm = s->vm;
	int r = mem_private(&vm->guest, &s->runs, why);

	if (r < 0)
		return r;
	/* what the guest's disk has in the page cache is written now, so that the clone finds little to write */
	if (vm->disk_fd >= 0 && fdatasync(vm->disk_fd) < 0)
		return fail_set(why, -errno, "checkpoint: disk: %s", strerror(errno));
	r = mem_copy_new(vm->memory, s->runs.bytes, vm->memory_fd < 0, &s->copy);
	if (r == -ENOMEM)
		return 0;
	if (r < 0)
		return fail_set(why, r, "checkpoint: %s", strerror(-r));
	return mem_copy_read(&s->copy, &vm->guest, &s->runs, why);
}

static int sync_files(struct saving *s, struct fail *why)
{
	if (fdatasync(s->memory) < 0 || fdatasync(s->state) < 0 || (s->disk >= 0 && fdatasync(s->disk) < 0))
		return fail_set(why, -errno, "checkpoint: %s", strerror(errno));
	return 0;
}

/* Own bytes of a file without a parent: all of its data. */
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

static int save_to(struct saving *s, enum vm_save kind, struct vm_saved *out, struct fail *why)
{
	struct vm *vm = s->vm;
	bool was_running = vm->running;
	int64_t from;
	int r, r2;

	r = base_file(s, kind, why);
	if (r == 0)
		r = warm_up(s, why);
	if (r < 0)
		return r;
	from = mono_ns();
	if (was_running)
		r = qemu_stop(vm, why);
	if (r == 0)
		r = still(s, why);
	if (was_running) {
		struct fail other = { 0 };

		r2 = qemu_cont(vm, &other);
		if (r == 0 && r2 < 0) {
			r = r2;
			if (why)
				*why = other;
		}
	}
	out->paused_ms = was_running ? (double)(mono_ns() - from) / NS_PER_MS : 0;
	if (r == 0 && s->copy.base)
		r = mem_write(s->memory, vm->memory_fd, &s->copy, &vm->guest, &s->runs, &s->written, why);
	if (r == 0)
		r = write_state(s, out, why);
	if (r == 0)
		r = sync_files(s, why);
	if (r == 0)
		out->memory_bytes = kind == VM_SAVE_FULL && vm->memory_fd >= 0 ? data_bytes(s->memory) : s->written;
	return r;
}

int qemu_save(struct vm *vm, int node_dirfd, enum vm_save kind, struct vm_saved *saved, struct fail *why)
{
	struct saving s = { .vm = vm, .memory = -1, .state = -1, .disk = -1, .state_fd = -1 };
	struct vm_saved out = { 0 };
	int r;

	if (kind == VM_SAVE_DIFF && vm->memory_fd < 0)
		return fail_set(why, -EINVAL, "the VM was booted: it has no parent to differ from");
	if (!vm->started)
		return fail_set(why, -EBUSY, "the VM was never started");
	r = s.memory = new_file(node_dirfd, "memory", why);
	if (r >= 0)
		r = s.state = new_file(node_dirfd, "state", why);
	if (r >= 0 && vm->disk_fd >= 0)
		r = s.disk = new_file(node_dirfd, "disk", why);
	if (r >= 0)
		r = save_to(&s, kind, &out, why);
	mem_copy_free(&s.copy);
	mem_runs_clear(&s.runs);
	for (int i = 0, fds[] = { s.memory, s.state, s.disk, s.state_fd }; i < 4; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (r < 0)
		return r;
	*saved = out;
	return 0;
}
