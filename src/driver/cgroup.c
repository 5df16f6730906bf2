/* cgroup.c - see cgroup.h. */
#include "driver/cgroup.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/str.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define PARENT "space"

static const char *const v1_controllers[] = { "memory", "pids", "cpu", "freezer" };
_Static_assert(ARRAY_LEN(v1_controllers) == CGROUP_MAX_FDS, "one descriptor a controller");

static bool unified(void)
{
	struct statfs fs;

	return statfs(CGROUP_ROOT, &fs) == 0 && (unsigned long)fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* How many hierarchies a monitor is in. */
static unsigned hierarchies(void)
{
	return unified() ? 1 : ARRAY_LEN(v1_controllers);
}

/* Directory of hierarchy I's parent ("space"), without the id. "" when the host has no such controller. */
static const char *parent_path(unsigned i, char *buf, size_t size)
{
	if (unified()) {
		snprintf(buf, size, CGROUP_ROOT "/" PARENT);
		return buf;
	}
	snprintf(buf, size, CGROUP_ROOT "/%s", v1_controllers[i]);
	if (access(buf, F_OK) < 0)
		return "";
	snprintf(buf, size, CGROUP_ROOT "/%s/" PARENT, v1_controllers[i]);
	return buf;
}

static int put(int dirfd, const char *file, const char *value)
{
	autoclose int fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return FAULT_OURS(write_all(fd, value, strlen(value)));
}

static int put_u64(int dirfd, const char *file, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return put(dirfd, file, text);
}

/* v2 hands controllers down one by one; one that is missing or taken limits nothing, the others still do. */
static void hand_down(const char *dir)
{
	static const char *const on[] = { "+memory", "+pids", "+cpu" };
	autoclose int fd = dir_open(AT_FDCWD, dir);

	if (fd < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(on); i++)
		(void)put(fd, "cgroup.subtree_control", on[i]);
}

/* Another VM's removal may take the empty parent away between our two mkdirs. */
static int make_dir(const char *parent, const char *id, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", parent, id);
	for (int i = 0; i < 50; i++) {
		if (FAULT(mkdir(parent, 0755)) == 0 && unified()) {
			hand_down(CGROUP_ROOT);
			hand_down(parent);
		}
		if (FAULT(mkdir(path, 0755)) == 0 || errno == EEXIST)
			return 0;
		if (errno != ENOENT)
			return -errno;
	}
	return -EAGAIN;
}

static int set_limits(int dirfd, unsigned i, const struct cgroup_limits *l)
{
	const char *what = unified() ? "" : v1_controllers[i];
	bool all = unified();
	int r = 0;

	if (all || !strcmp(what, "memory")) {
		r = put_u64(dirfd, all ? "memory.max" : "memory.limit_in_bytes", l->memory);
		if (r < 0 && !(all && r == -ENOENT))
			return r;
	}
	if (all || !strcmp(what, "pids")) {
		r = put_u64(dirfd, "pids.max", l->pids);
		if (r < 0 && !(all && r == -ENOENT))
			return r;
	}
	if (all)
		(void)put_u64(dirfd, "cpu.weight", MIN(100ULL * l->cpus, 10000));
	else if (!strcmp(what, "cpu"))
		(void)put_u64(dirfd, "cpu.shares", 1024ULL * l->cpus);
	return 0;
}

int cgroup_make(const char *id, const struct cgroup_limits *l, int fds[CGROUP_MAX_FDS], unsigned *n, struct fail *why)
{
	char parent[96], path[192];
	int got[CGROUP_MAX_FDS], r = 0;
	unsigned k = 0;

	for (unsigned i = 0; i < hierarchies() && r == 0; i++) {
		autoclose int dirfd = -1;

		if (!*parent_path(i, parent, sizeof(parent)))
			continue;
		r = make_dir(parent, id, path, sizeof(path));
		if (r == 0)
			r = dirfd = dir_open(AT_FDCWD, path);
		if (r >= 0)
			r = set_limits(dirfd, i, l);
		if (r == 0) {
			/* The keeper has one thread, and in v1 a thread may join alone: to move a whole process the kernel stops every fork
			 * of the host and waits 7 ms for that. */
			got[k] = openat(dirfd, unified() ? "cgroup.procs" : "tasks", O_WRONLY | O_CLOEXEC);
			if (got[k] < 0)
				r = -errno;
			else
				k++;
		}
	}
	if (r == 0 && k == 0)
		r = -ENOENT;
	if (r < 0) {
		while (k > 0)
			close(got[--k]);
		cgroup_remove(id, NULL);
		fail_as(why, ERR_host_unsuitable, "no cgroup can be made under " CGROUP_ROOT ": %s", strerror(-r));
		fail_remedy(why, "run spaced as root on a host whose cgroups are mounted and writable; space doctor checks");
		return r;
	}
	memcpy(fds, got, sizeof(got[0]) * k);
	*n = k;
	return 0;
}

/* How many processes are left, after each was sent SIGKILL. */
static int kill_members(const char *path)
{
	autofree char *text = NULL;
	autoclose int dirfd = dir_open(AT_FDCWD, path);
	int n = 0;

	if (dirfd < 0)
		return 0;
	(void)put(dirfd, "cgroup.kill", "1");
	if (file_read(dirfd, "cgroup.procs", &text, 64 * 1024) <= 0)
		return 0;
	for (char *p = text, *end; *p; p = *end ? end + 1 : end) {
		pid_t pid = (pid_t)strtol(p, &end, 10);

		if (end == p)
			break;
		FAULT(kill(pid, SIGKILL));
		n++;
	}
	return n;
}

int cgroup_remove(const char *id, struct fail *why)
{
	char parent[96], path[192];
	int r = 0;

	for (unsigned i = 0; i < hierarchies(); i++) {
		if (!*parent_path(i, parent, sizeof(parent)))
			continue;
		snprintf(path, sizeof(path), "%s/%s", parent, id);
		/* a process that was killed leaves its cgroup a moment after its pidfd says so */
		for (int tries = 0; FAULT(rmdir(path)) < 0 && errno != ENOENT; tries++) {
			const struct timespec pause = { .tv_nsec = 2 * 1000 * 1000 };

			if (errno != EBUSY || tries == 1000) {
				r = -errno;
				break;
			}
			kill_members(path);
			nanosleep(&pause, NULL);
		}
		FAULT(rmdir(parent)); /* fails while others are in it */
	}
	return r < 0 ? fail_set(why, r, "cgroup " PARENT "/%s cannot be removed: %s", id, strerror(-r)) : 0;
}

/* The number after WORD at the start of a line of FILE. */
static uint64_t counter(const char *path, const char *file, const char *word)
{
	autofree char *text = NULL;
	autoclose int dirfd = dir_open(AT_FDCWD, path);
	const char *p;

	if (dirfd < 0 || file_read(dirfd, file, &text, 4096) < 0)
		return 0;
	for (p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, word, strlen(word)) && p[strlen(word)] == ' ')
			return strtoull(p + strlen(word), NULL, 10);
	return 0;
}

bool cgroup_oom(const char *id)
{
	char parent[96], path[192];

	if (!*parent_path(0, parent, sizeof(parent)))
		return false;
	snprintf(path, sizeof(path), "%s/%s", parent, id);
	return counter(path, unified() ? "memory.events" : "memory.oom_control", "oom_kill") > 0;
}
