/* qemu_adopt.c - finding a monitor again, how it is, and how it ended. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/proc.h"
#include "driver/cgroup.h"
#include "driver/qemu.h"
#include "driver/qemu_limits.h"
#include "driver/record.h"

#define CONSOLE_TAIL (16 * KIB)

const char *qemu_exit_reason(int wait_status, const char *ended, bool killed, bool oom, const char *console)
{
	if (killed || !strcmp(ended, "host-qmp-quit"))
		return "killed";
	if (oom)
		return "oom";
	if (wait_status < 0 || !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)
		return "monitor_crash";
	/* panic=-1 resets at once, which is all that QEMU sees of a panic: the console says what it was */
	if (!strcmp(ended, "guest-panic") || strstr(console, "Kernel panic - not syncing"))
		return "guest_panic";
	if (!strcmp(ended, "guest-reset") || strstr(console, "reboot: Restarting system"))
		return "guest_reset";
	return "guest_shutdown";
}

/* The keeper notes the end before it ends itself, so this is there when its pidfd says that it is gone. */
static const char *exit_reason(int run_dirfd, const char *run_dir, const char *id, const char *ended, bool killed)
{
	autofree char *console = NULL;
	size_t n = 0;
	int status = -1;

	if (launch_exit_status(run_dirfd, &status) < 0)
		status = -1;
	if (vm_console(run_dir, CONSOLE_TAIL, &console, &n) < 0)
		console = NULL;
	return qemu_exit_reason(status, ended, killed, cgroup_oom(id), console ? console : "");
}

static void remember_exit(int run_dirfd, const char *reason)
{
	(void)FAULT_OURS(file_write_atomic(run_dirfd, "ended", reason, strlen(reason), 0600));
}

const char *driver_last_exit(const char *run_dir)
{
	static const char *const words[] = { "guest_shutdown", "guest_panic", "guest_reset", "monitor_crash", "oom", "killed" };
	autoclose int dirfd = dir_open(AT_FDCWD, run_dir);
	autofree char *text = NULL;

	if (dirfd >= 0 && file_read(dirfd, "ended", &text, 64) > 0)
		for (size_t i = 0; i < ARRAY_LEN(words); i++)
			if (!strcmp(text, words[i]))
				return words[i];
	return "monitor_crash";
}

/* The process of that pid, if it is still the one that was started then. */
static int same_process(pid_t pid, uint64_t start)
{
	int fd = pid > 0 && start ? pidfd_of(pid) : -ESRCH;

	if (fd >= 0 && proc_starttime(pid) != start) {
		close(fd);
		return -ESRCH;
	}
	return fd;
}

static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Nothing of a monitor that is gone stays but its run directory, which says why. */
static int adopt_gone(struct vm *vm, struct fail *why)
{
	const char *reason = exit_reason(vm->run_dirfd, vm->run_dir, vm->id, "", false);

	remember_exit(vm->run_dirfd, reason);
	(void)cgroup_remove(vm->id, NULL);
	return fail_set(why, -ESRCH, "the monitor is gone: %s", reason);
}

static int adopt_state(struct vm *vm, struct fail *why)
{
	autojson json_t *ret = NULL;
	const char *s;
	int r = qemu_cmd(vm, "query-status", NULL, &ret, why);

	if (r < 0)
		return r;
	s = json_string_value(json_object_get(ret, "status"));
	vm->running = json_is_true(json_object_get(ret, "running"));
	vm->disk_full = s && !strcmp(s, "io-error");
	vm->started = faccessat(vm->run_dirfd, "started", F_OK, 0) == 0;
	return qemu_find_memory(vm, why);
}

static int adopt_files(struct vm *vm, const struct record *rec, struct fail *why)
{
	if (rec->memory_file.there) {
		vm->memory_fd = record_file_find(rec->qemu, &rec->memory_file);
		if (vm->memory_fd < 0)
			return fail_set(why, vm->memory_fd, "the monitor's memory file: %s", strerror(-vm->memory_fd));
	}
	if (rec->disk.there) {
		vm->disk_fd = record_file_find(rec->qemu, &rec->disk);
		if (vm->disk_fd < 0)
			return fail_set(why, vm->disk_fd, "the monitor's disk: %s", strerror(-vm->disk_fd));
	}
	return 0;
}

static int adopt_in(struct vm *vm, const struct record *rec, struct fail *why)
{
	int r;

	vm->uid = rec->uid;
	vm->memory = rec->memory;
	vm->p.keeper = rec->keeper;
	vm->p.keeper_start = rec->keeper_start;
	vm->p.qemu = rec->qemu;
	vm->p.qemu_start = rec->qemu_start;
	if (rec->node[0] && !(vm->node_path = strdup(rec->node)))
		return fail_set(why, -ENOMEM, "no memory");
	vm->p.keeper_pidfd = same_process(rec->keeper, rec->keeper_start);
	if (vm->p.keeper_pidfd < 0)
		return adopt_gone(vm, why);
	vm->p.qemu_pidfd = same_process(rec->qemu, rec->qemu_start);
	if (vm->p.qemu_pidfd < 0) {
		/* ending just now: the keeper is about to note it */
		if (pidfd_wait(vm->p.keeper_pidfd, 2000) < 0)
			FAULT_OURS(pidfd_kill(vm->p.keeper_pidfd, SIGKILL));
		return adopt_gone(vm, why);
	}
	r = adopt_files(vm, rec, why);
	return r < 0 ? r : adopt_state(vm, why);
}

int qemu_adopt(const char *run_dir, struct vm **out, struct fail *why)
{
	struct record *rec = malloc(sizeof(*rec));
	struct vm *vm = NULL;
	autoclose int dirfd = dir_open(AT_FDCWD, run_dir);
	int r;

	if (!rec || dirfd < 0) {
		r = !rec ? fail_set(why, -ENOMEM, "no memory") : fail_set(why, -ESRCH, "there is no run directory %.100s", run_dir);
		goto out;
	}
	r = record_read(dirfd, rec, why);
	vm = qemu_vm_new(r == 0 ? rec->id : last_component(run_dir), run_dir, why);
	if (!vm) {
		r = why && why->err ? why->err : -ENOMEM;
		goto out;
	}
	/* no record: it never got as far as having a process */
	r = r < 0 ? adopt_gone(vm, why) : adopt_in(vm, rec, why);
out:
	free(rec);
	if (r < 0) {
		qemu_free(vm);
		return r;
	}
	*out = vm;
	return 0;
}

/* The number before " kB" in the line that begins with KEY. */
static uint64_t kb_after(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	return p ? strtoull(p + strlen(key), NULL, 10) * KIB : 0;
}

static void usage(pid_t pid, struct vm_status *out)
{
	autofree char *maps = NULL, *stat = NULL;
	char path[48], *p;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if (file_read(AT_FDCWD, path, &maps, 8192) > 0) {
		out->rss_bytes = kb_after(maps, "\nRss:");
		out->private_bytes = kb_after(maps, "\nPrivate_Clean:") + kb_after(maps, "\nPrivate_Dirty:");
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(AT_FDCWD, path, &stat, 8192) > 0 && (p = strrchr(stat, ')'))) {
		unsigned long long user, sys;

		/* state, then eleven numbers, then utime and stime */
		if (sscanf(p + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &user, &sys) == 2)
			out->cpu_s = (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
	}
}

int qemu_status(struct vm *vm, struct vm_status *out, struct fail *why)
{
	struct vm_status st = { 0 };

	if (vm->q)
		(void)qmp_poll(vm->q); /* after its end too: the last events are still there */
	if (vm->p.keeper_pidfd < 0 || pidfd_wait(vm->p.keeper_pidfd, 0) == 0) {
		launch_reap(vm->p.keeper_pidfd);
		st.exited = true;
		st.reason = exit_reason(vm->run_dirfd, vm->run_dir, vm->id, vm->ended, vm->killed);
		if (!vm->killed) /* kill() has emptied the run directory */
			remember_exit(vm->run_dirfd, st.reason);
		vm->running = false;
	} else {
		usage(vm->p.qemu, &st);
		st.running = vm->running;
		st.host_disk_full = vm->disk_full && !vm->running;
	}
	*out = st;
	return 0;
}
