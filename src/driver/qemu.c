/* qemu.c - the qemu driver: one QEMU a VM, spoken to by QMP. How it is confined: keeper.c; with what options: qemu_args.c; how it is saved:
 * qemu_save.c; how it is found again and how it ended: qemu_adopt.c. */
#include "driver/line.h"
#include "driver/qemu.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/proc.h"
#include "driver/accel.h"
#include "driver/cgroup.h"
#include "driver/qemu_args.h"
#include "driver/qemu_limits.h"
#include "driver/record.h"

static pthread_mutex_t accel_lock = PTHREAD_MUTEX_INITIALIZER;
static char accel_mode[8] = "auto";
static struct accel accel;
static bool accel_known;

int driver_qemu_set_accel(const char *mode)
{
	if (strcmp(mode, "auto") && strcmp(mode, "kvm") && strcmp(mode, "tcg"))
		return -EINVAL;
	pthread_mutex_lock(&accel_lock);
	snprintf(accel_mode, sizeof(accel_mode), "%s", mode);
	accel_known = false;
	pthread_mutex_unlock(&accel_lock);
	return 0;
}

const char *driver_qemu_accel_reason(void)
{
	return accel.reason;
}

static int get_accel(bool again, struct accel *out, struct fail *why)
{
	int r = 0;

	pthread_mutex_lock(&accel_lock);
	if (again || !accel_known) {
		r = accel_find(accel_mode, &accel, why);
		accel_known = r == 0;
	}
	*out = accel;
	pthread_mutex_unlock(&accel_lock);
	return r;
}

static int qemu_probe(const char **isolation, char version[128], struct fail *why)
{
	struct accel a;
	int r = get_accel(true, &a, why);

	if (r < 0)
		return r;
	*isolation = a.kvm ? "kvm" : "emulated";
	memcpy(version, a.version, sizeof(a.version));
	return 0;
}

/* QEMU opens these as its own uid. What only root may read is copied: the kernel and the initramfs, at a cold boot only. */
static int readable_copy(int fd, struct fail *why)
{
	autoclose int copy = -1;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return fail_set(why, -errno, "kernel: %s", strerror(errno));
	if (st.st_mode & S_IROTH) {
		r = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		return r < 0 ? fail_set(why, -errno, "kernel: %s", strerror(errno)) : r;
	}
	copy = FAULT(memfd_create("space-kernel", MFD_CLOEXEC));
	if (copy < 0)
		return fail_set(why, -errno, "kernel: %s", strerror(errno));
	r = FAULT_OURS(file_copy_sparse(copy, fd));
	return r < 0 ? fail_set(why, r, "kernel: %s", strerror(-r)) : steal_fd(&copy);
}

/* A node's memory used once: a nameless clone of its file, which this QEMU may open. Where files cannot be cloned, memory of our own. */
static int memory_once(const struct vm_spec *spec, struct fail *why)
{
	autoclose int from = openat(spec->node_fd, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	autoclose int to = -1;
	struct stat st;

	if (from < 0 || fstat(from, &st) < 0)
		return fail_set(why, -errno, "the checkpoint's memory: %s", strerror(errno));
	if ((uint64_t)st.st_size != spec->memory)
		return fail_set(why, -EINVAL, "the checkpoint's memory has %lld bytes, not %llu", (long long)st.st_size,
				(unsigned long long)spec->memory);
	to = FAULT(openat(spec->node_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	if (to >= 0 && FAULT_OURS(file_clone(to, from)) == 0 && FAULT(fchown(to, spec->uid, spec->uid)) == 0)
		return steal_fd(&to);
	return driver_memory_memfd(spec->node_fd, spec->memory, why);
}

static int listen_qmp(int run_dirfd, struct fail *why)
{
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/qmp.sock", run_dirfd);
	/* root's alone: QEMU has the descriptor, nobody else needs the name */
	if (fd < 0 || FAULT(fchmod(fd, 0600)) < 0 || FAULT(bind(fd, (struct sockaddr *)&a, sizeof(a))) < 0 ||
	    FAULT(fchmodat(run_dirfd, "qmp.sock", 0600, 0)) < 0 || listen(fd, 4) < 0)
		return fail_set(why, -errno, "run directory: qmp.sock: %s", strerror(errno));
	return steal_fd(&fd);
}

static char *path_of_fd(int fd)
{
	char link[40], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	return n > 0 ? str_dup((struct str){ path, (size_t)n }) : NULL;
}

static void on_event(const char *name, json_t *data, void *arg)
{
	struct vm *vm = arg;
	const char *reason = json_string_value(json_object_get(data, "reason"));

	if (!strcmp(name, "STOP")) {
		vm->running = false;
	} else if (!strcmp(name, "RESUME")) {
		vm->running = true;
	} else if (!strcmp(name, "SHUTDOWN") && reason) {
		snprintf(vm->ended, sizeof(vm->ended), "%s", reason);
	} else if (!strcmp(name, "BLOCK_IO_ERROR") && json_is_true(json_object_get(data, "nospace"))) {
		vm->disk_full = true;
	}
}

int qemu_connect(struct vm *vm, struct fail *why)
{
	if (qmp_usable(vm->q))
		return 0;
	qmp_close(vm->q);
	vm->q = NULL;
	return qmp_open(vm->run_dirfd, "qmp.sock", on_event, vm, QEMU_QMP_TIMEOUT_MS, &vm->q, why);
}

int qemu_cmd(struct vm *vm, const char *cmd, const char *args, json_t **ret, struct fail *why)
{
	int r = qemu_connect(vm, why);

	FAULT_MONITOR(vm->p.qemu);
	return r < 0 ? r : qmp_cmd(vm->q, cmd, args, -1, QEMU_QMP_TIMEOUT_MS, ret, why);
}

/* Where the guest's memory is in QEMU: asked for, not guessed from its map. */
int qemu_find_memory(struct vm *vm, struct fail *why)
{
	autojson json_t *ret = NULL;
	const char *text, *p;
	uint64_t hva;
	int r = qemu_cmd(vm, "human-monitor-command", "{\"command-line\":\"gpa2hva 0\"}", &ret, why);

	if (r < 0)
		return r;
	text = json_string_value(ret);
	p = text ? strstr(text, " is 0x") : NULL;
	hva = p ? strtoull(p + 6, NULL, 16) : 0;
	if (!hva || hva % MEM_PAGE)
		return fail_set(why, -EPROTO, "the monitor does not say where the guest's memory is: %.100s", text ? text : "");
	return mem_guest_open(vm->p.qemu, hva, vm->memory, &vm->guest, why);
}

static int wait_loaded(struct vm *vm, struct fail *why)
{
	int64_t deadline = mono_ms() + QEMU_QMP_TIMEOUT_MS;
	const struct timespec pause = { .tv_nsec = 500 * 1000 };

	for (;;) {
		autojson json_t *ret = NULL;
		const char *s;
		int r = qemu_cmd(vm, "query-migrate", NULL, &ret, why);

		if (r < 0)
			return r;
		s = json_string_value(json_object_get(ret, "status"));
		if (s && !strcmp(s, "completed"))
			return 0;
		if (s && !strcmp(s, "failed"))
			return fail_set(why, -EIO, "the checkpoint's device state does not load");
		if (mono_ms() > deadline)
			return fail_set(why, -ETIMEDOUT, "the checkpoint's device state does not load in time");
		nanosleep(&pause, NULL);
	}
}

static int load_state(struct vm *vm, int node_fd, struct fail *why)
{
	autoclose int fd = openat(node_fd, "state", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int r;

	if (fd < 0)
		return fail_set(why, -errno, "the checkpoint's device state: %s", strerror(errno));
	/* the guest is to hear of its new place from the agent, not from five rounds of announcements */
	r = qemu_cmd(vm, "migrate-set-parameters", "{\"announce-rounds\":0}", NULL, why);
	if (r == 0)
		r = qmp_cmd(vm->q, "getfd", "{\"fdname\":\"state\"}", fd, QEMU_QMP_TIMEOUT_MS, NULL, why);
	if (r == 0)
		r = qemu_cmd(vm, "migrate-incoming", "{\"uri\":\"fd:state\"}", NULL, why);
	return r < 0 ? r : wait_loaded(vm, why);
}

static void vm_record(const struct vm *vm, struct record *rec)
{
	*rec = (struct record){
		.uid = vm->uid, .memory = vm->memory, .keeper = vm->p.keeper, .keeper_start = vm->p.keeper_start, .qemu = vm->p.qemu,
		.qemu_start = vm->p.qemu_start, .memory_file = record_file_of(vm->memory_fd), .disk = record_file_of(vm->disk_fd),
	};
	snprintf(rec->id, sizeof(rec->id), "%s", vm->id);
	if (vm->node_path)
		snprintf(rec->node, sizeof(rec->node), "%s", vm->node_path);
}

static int on_forked(pid_t keeper, pid_t qemu, void *arg, struct fail *why)
{
	struct vm *vm = arg;
	struct record rec;

	vm->p.keeper = keeper;
	vm->p.qemu = qemu;
	vm->p.keeper_start = proc_starttime(keeper);
	vm->p.qemu_start = proc_starttime(qemu);
	FAULT_MONITOR(qemu);
	vm_record(vm, &rec);
	return record_write(vm->run_dirfd, &rec, why);
}

static int vm_launch(struct vm *vm, const struct vm_spec *spec, const struct accel *acc, struct fail *why)
{
	/* Touching a hole of the shared memfd gives the file a page, charged to whoever touched it, before the guest gets its own copy. */
	uint64_t memory = spec->memory_fd >= 0 ? 2 * vm->memory : vm->memory;
	struct cgroup_limits limits = { .memory = memory + QEMU_TB_BYTES + QEMU_OVERHEAD_BYTES, .pids = QEMU_PIDS, .cpus = spec->vcpus };
	struct qemu_ends e = { .memory_fd = vm->memory_fd, .kernel_fd = -1, .initrd_fd = -1 };
	autoclose int qmp = -1, keeper_end = -1, qemu_end = -1, kernel = -1, initrd = -1;
	int cg[CGROUP_MAX_FDS], pair[2], r;
	unsigned ncg = 0;
	struct stat disk = { 0 };
	struct qemu_args *args;

	qmp = listen_qmp(vm->run_dirfd, why);
	if (qmp < 0)
		return qmp;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(why, -errno, "socketpair: %s", strerror(errno));
	keeper_end = pair[0];
	qemu_end = pair[1];
	if (spec->node_fd < 0) {
		if ((kernel = readable_copy(spec->kernel_fd, why)) < 0)
			return kernel;
		if ((initrd = readable_copy(spec->initrd_fd, why)) < 0)
			return initrd;
	}
	e.qmp_fd = qmp;
	e.console_fd = qemu_end;
	e.kernel_fd = kernel;
	e.initrd_fd = initrd;
	if (spec->disk_fd >= 0 && fstat(spec->disk_fd, &disk) < 0)
		return fail_set(why, -errno, "disk: %s", strerror(errno));

	args = malloc(sizeof(*args));
	if (!args)
		return fail_set(why, -ENOMEM, "no memory");
	r = qemu_args_make(args, spec, &e, acc, why);
	if (r == 0)
		r = cgroup_make(vm->id, &limits, cg, &ncg, why);
	if (r == 0) {
		const struct launch l = {
			.id = vm->id, .run_dirfd = vm->run_dirfd, .uid = vm->uid, .kvm = acc->kvm, .cgroup_fds = cg, .ncgroup = ncg,
			.fsize = MAX(MAX((uint64_t)disk.st_size, spec->disk_max), 16 * MIB), .console_fd = keeper_end, .fds = args->fds, .nfds = args->nfds,
			.argv = args->argv, .forked = on_forked, .arg = vm,
		};

		r = FAULT_WHY(why, launch(&l, &vm->p, why));
	}
	for (unsigned i = 0; i < ncg; i++)
		close(cg[i]);
	free(args);
	return r;
}

struct vm *qemu_vm_new(const char *id, const char *run_dir, struct fail *why)
{
	struct vm *vm = calloc(1, sizeof(*vm));

	if (!vm || !(vm->run_dir = strdup(run_dir))) {
		free(vm);
		fail_set(why, -ENOMEM, "no memory");
		return NULL;
	}
	vm->memory_fd = vm->disk_fd = vm->guest.pagemap_fd = vm->p.keeper_pidfd = vm->p.qemu_pidfd = -1;
	vm->run_dirfd = dir_open(AT_FDCWD, run_dir);
	if (vm->run_dirfd < 0) {
		fail_set(why, vm->run_dirfd, "run directory %.100s: %s", run_dir, strerror(-vm->run_dirfd));
	} else if (str_copy(vm->id, sizeof(vm->id), str_of(id)) < 0 || !path_is_plain(str_of(id))) {
		fail_set(why, -EINVAL, "not an id: %.60s", id);
	} else {
		return vm;
	}
	if (vm->run_dirfd >= 0)
		close(vm->run_dirfd);
	free(vm->run_dir);
	free(vm);
	return NULL;
}

void qemu_free(struct vm *vm)
{
	if (!vm)
		return;
	qmp_close(vm->q);
	mem_guest_close(&vm->guest);
	for (int i = 0, fds[] = { vm->memory_fd, vm->disk_fd, vm->p.keeper_pidfd, vm->p.qemu_pidfd, vm->run_dirfd }; i < 5; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(vm->node_path);
	free(vm->run_dir);
	free(vm);
}

static int empty_dir(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d)
		return -errno;
	while (r == 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			r = FAULT_OURS(rm_rf(dirfd, e->d_name));
	closedir(d);
	return r;
}

static int qemu_kill(struct vm *vm, struct fail *why)
{
	int r = 0, r2;

	FAULT_MONITOR(vm->p.qemu);
	vm->killed = true;
	qmp_close(vm->q);
	vm->q = NULL;
	if (vm->p.qemu_pidfd >= 0)
		FAULT_OURS(pidfd_kill(vm->p.qemu_pidfd, SIGKILL));
	if (vm->p.keeper_pidfd >= 0 && pidfd_wait(vm->p.keeper_pidfd, 5000) < 0) {
		FAULT_OURS(pidfd_kill(vm->p.keeper_pidfd, SIGKILL));
		r = pidfd_wait(vm->p.keeper_pidfd, 5000);
		if (r < 0)
			fail_set(why, r, "monitor %d does not end: %s", (int)vm->p.qemu, strerror(-r));
	}
	launch_reap(vm->p.keeper_pidfd);
	r2 = cgroup_remove(vm->id, r == 0 ? why : NULL);
	if (r == 0)
		r = r2;
	r2 = empty_dir(vm->run_dirfd);
	if (r == 0 && r2 < 0)
		r = fail_set(why, r2, "run directory: %s", strerror(-r2));
	vm->running = false;
	return r;
}

static int prepare_in(struct vm *vm, const struct vm_spec *spec, struct fail *why)
{
	struct record rec;
	struct accel acc;
	int r = get_accel(false, &acc, why);

	if (r < 0)
		return r;
	vm_record(vm, &rec);
	r = record_write(vm->run_dirfd, &rec, why); /* names the cgroup that is about to be */
	if (r == 0)
		r = vm_launch(vm, spec, &acc, why);
	if (r == 0)
		r = qmp_open(vm->run_dirfd, "qmp.sock", on_event, vm, 3 * QEMU_QMP_TIMEOUT_MS, &vm->q, why);
	if (r == 0)
		r = qemu_find_memory(vm, why);
	if (r == 0 && spec->node_fd >= 0)
		r = load_state(vm, spec->node_fd, why);
	return r;
}

/* The monitor's own words, if it had any, are worth more than that the connection broke. */
static void explain(struct vm *vm, struct fail *why)
{
	char words[160];

	if (!why)
		return;
	if (vm->p.keeper_pidfd >= 0)
		pidfd_wait(vm->p.keeper_pidfd, 200);
	launch_last_words(vm->run_dirfd, words, sizeof(words));
	if (words[0] && strlen(why->msg) + strlen(words) + 4 < sizeof(why->msg)) {
		strcat(why->msg, " (");
		strcat(why->msg, words);
		strcat(why->msg, ")");
	}
}

/* What is saved of this VM may be built upon the node that it starts from. */
static void note_start(struct vm *vm, const struct vm_spec *spec)
{
	autoclose int fd = openat(spec->node_fd, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0)
		line_add(vm->run_dirfd, fd);
}

static int qemu_prepare(const struct vm_spec *spec, struct vm **out, struct fail *why)
{
	struct vm *vm;
	int r = 0;

	if (spec->vcpus == 0 || spec->memory == 0 || spec->memory % (2 * MIB))
		return fail_set(why, -EINVAL, "a VM has at least one vCPU, and memory in steps of 2 MiB");
	vm = qemu_vm_new(spec->id, spec->run_dir, why);
	if (!vm)
		return why && why->err ? why->err : -EINVAL;
	vm->uid = spec->uid;
	vm->memory = spec->memory;
	if (spec->disk_fd >= 0 && (vm->disk_fd = fcntl(spec->disk_fd, F_DUPFD_CLOEXEC, 0)) < 0)
		r = fail_set(why, -errno, "disk: %s", strerror(errno));
	if (r == 0 && spec->node_fd >= 0) {
		vm->node_path = path_of_fd(spec->node_fd);
		vm->memory_fd = spec->memory_fd >= 0 ? fcntl(spec->memory_fd, F_DUPFD_CLOEXEC, 0) : memory_once(spec, why);
		if (vm->memory_fd < 0)
			r = spec->memory_fd >= 0 ? fail_set(why, -errno, "memory file: %s", strerror(errno)) : vm->memory_fd;
		else
			note_start(vm, spec);
	}
	if (r == 0)
		r = prepare_in(vm, spec, why);
	if (r < 0) {
		explain(vm, why);
		qemu_kill(vm, NULL);
		qemu_free(vm);
		return r;
	}
	*out = vm;
	return 0;
}

int qemu_stop(struct vm *vm, struct fail *why)
{
	int r = qemu_cmd(vm, "stop", NULL, NULL, why);

	if (r == 0)
		vm->running = false;
	return r;
}

int qemu_cont(struct vm *vm, struct fail *why)
{
	int r;

	vm->disk_full = false;
	r = qemu_cmd(vm, "cont", NULL, NULL, why);
	if (r == 0)
		vm->running = true;
	return r;
}

static int qemu_start(struct vm *vm, struct fail *why)
{
	int fd = FAULT(openat(vm->run_dirfd, "started", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));

	if (fd < 0)
		return fail_set(why, -errno, "run directory: started: %s", strerror(errno));
	close(fd);
	vm->started = true;
	return qemu_cont(vm, why);
}

static int qemu_pause(struct vm *vm, struct fail *why)
{
	return qemu_stop(vm, why);
}

static int qemu_resume(struct vm *vm, struct fail *why)
{
	return vm->started ? qemu_cont(vm, why) : fail_set(why, -EBUSY, "the VM was never started");
}

/* "Max file size             5368709120           5368709120           bytes" */
static uint64_t file_size_limit(pid_t pid)
{
	static const char line[] = "Max file size";
	autofree char *text = NULL;
	char path[40];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	if (file_read(AT_FDCWD, path, &text, 64 * KIB) < 0 || !(at = strstr(text, line)))
		return 0;
	return strtoull(at + sizeof(line) - 1, NULL, 10); /* 0 for "unlimited" cannot be: we set one */
}

/* Raising another uid's limit takes CAP_SYS_RESOURCE, which some hosts do not have to give: there what prepare() was told has to do. */
static int raise_limit(struct vm *vm, uint64_t bytes, struct fail *why)
{
	struct rlimit limit = { bytes, bytes };

	if (file_size_limit(vm->p.qemu) >= bytes || FAULT(prlimit(vm->p.qemu, RLIMIT_FSIZE, &limit, NULL)) == 0)
		return 0;
	return fail_as(why, ERR_host_unsuitable, "the monitor's file size limit: %s", strerror(errno));
}

static int qemu_resize_disk(struct vm *vm, uint64_t bytes, struct fail *why)
{
	char args[96];
	int r;

	if (vm->disk_fd < 0)
		return fail_set(why, -EINVAL, "the VM has no disk");
	r = raise_limit(vm, bytes, why);
	if (r < 0)
		return r;
	snprintf(args, sizeof(args), "{\"node-name\":\"disk\",\"size\":%llu}", (unsigned long long)bytes);
	return qemu_cmd(vm, "block_resize", args, NULL, why);
}

pid_t vm_pid(const struct vm *vm)
{
	return vm->p.qemu;
}

int vm_pidfd(const struct vm *vm)
{
	return vm->p.keeper_pidfd;
}

const struct driver driver_qemu = {
	.name = "qemu", .probe = qemu_probe, .prepare = qemu_prepare, .start = qemu_start, .pause = qemu_pause, .resume = qemu_resume,
	.save_begin = qemu_save_begin, .save_still = qemu_save_still, .save_end = qemu_save_end, .resize_disk = qemu_resize_disk,
	.kill = qemu_kill, .adopt = qemu_adopt, .status = qemu_status, .free = qemu_free,
};
