#include "agent/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"

#define DEPTH_MAX 16
#define RELEASED_MAX 4096

static int user_fd = -1; /* directory of the group of all user processes */
static char user_path[64];
static unsigned last_id;
static unsigned spare;	   /* an empty one that the next command gets: making and removing one is a tenth of an exec */
static unsigned *released; /* ids waiting to be empty */
static unsigned nreleased, cap_released;

static int put(int dirfd, const char *name, const char *text)
{
	autoclose int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

void cgroups_init(bool test)
{
	static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

	for (unsigned i = 0; i < ARRAY_LEN(roots) && user_fd < 0; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/cgroup.procs", roots[i]);
		if (access(path, W_OK) < 0)
			continue;
		if (test)
			snprintf(user_path, sizeof(user_path), "%s/space-agent-%d", roots[i],
				(int)getpid());
		else
			snprintf(user_path, sizeof(user_path), "%s/user", roots[i]);
		if (mkdir(user_path, 0755) < 0 && errno != EEXIST)
			continue;
		user_fd = dir_open(AT_FDCWD, user_path);
		if (user_fd < 0)
			user_fd = -1;
	}
}

bool cgroups_on(void)
{
	return user_fd >= 0;
}

static void name_of(unsigned id, char out[16])
{
	snprintf(out, 16, "p%u", id);
}

int cgroup_make(unsigned *id)
{
	char name[16];
	int fd;

	if (user_fd < 0)
		return -ENOTSUP;
	if (spare) {
		*id = spare;
		spare = 0;
		name_of(*id, name);
		fd = dir_open(user_fd, name);
		if (fd >= 0)
			return fd;
	}
	name_of(++last_id, name);
	if (mkdirat(user_fd, name, 0755) < 0)
		return -errno;
	fd = dir_open(user_fd, name);
	if (fd < 0)
		unlinkat(user_fd, name, AT_REMOVEDIR);
	else
		*id = last_id;
	return fd;
}

/* Calls FN for every directory below (and with) the group, deepest first. */
static void each_below(int dirfd, const char *name, unsigned depth,
	void (*fn)(int dirfd, const char *name, void *arg), void *arg)
{
	autoclose int fd = dir_open(dirfd, name);
	struct dirent *e;
	DIR *d;

	if (fd >= 0 && depth < DEPTH_MAX && (d = fdopendir(dup(fd))) != NULL) {
		while ((e = readdir(d)) != NULL)
			if (e->d_type == DT_DIR && e->d_name[0] != '.')
				each_below(fd, e->d_name, depth + 1, fn, arg);
		closedir(d);
	}
	fn(dirfd, name, arg);
}

struct signal_arg {
	int sig, reached;
};

static void signal_one(int dirfd, const char *name, void *arg)
{
	struct signal_arg *a = arg;
	autoclose int fd = dir_open(dirfd, name);
	autofree char *text = NULL;
	struct str rest, line;
	uint64_t pid;
	ssize_t n;

	n = fd < 0 ? fd : file_read(fd, "cgroup.procs", &text, 1024 * 1024);
	if (n <= 0)
		return;
	rest = (struct str){ text, (size_t)n };
	while (rest.n > 0) {
		str_cut(rest, '\n', &line, &rest);
		if (str_u64(line, INT32_MAX, &pid) == 0 && pid > 1 && kill((pid_t)pid, a->sig) == 0)
			a->reached++;
	}
}

int cgroup_signal(unsigned id, int sig)
{
	struct signal_arg a = { .sig = sig };
	char name[16], file[32];

	if (user_fd < 0)
		return -ENOTSUP;
	name_of(id, name);
	if (sig == SIGKILL) {
		snprintf(file, sizeof(file), "%s/cgroup.kill", name);
		if (put(user_fd, file, "1") ==
			0) /* 5.14 and later; also catches what forks meanwhile */
			return 1;
	}
	each_below(user_fd, name, 0, signal_one, &a);
	return a.reached;
}

bool cgroup_populated(unsigned id)
{
	autofree char *text = NULL;
	char file[32];

	if (user_fd < 0)
		return false;
	snprintf(file, sizeof(file), "p%u/cgroup.events", id);
	return file_read(user_fd, file, &text, 4096) > 0 && strstr(text, "populated 1");
}

static void remove_one(int dirfd, const char *name, void *arg)
{
	int *err = arg;

	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		*err = -errno;
}

static int group_remove(unsigned id)
{
	char name[16];
	int err = 0;

	name_of(id, name);
	if (unlinkat(user_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (cgroup_populated(id))
		return -EBUSY;
	each_below(user_fd, name, 0, remove_one, &err);
	return err;
}

void cgroup_release(unsigned id)
{
	if (user_fd < 0 || id == 0 || group_remove(id) == 0)
		return;
	if (nreleased == cap_released) {
		unsigned cap = cap_released ? cap_released * 2 : 16;
		unsigned *p = cap <= RELEASED_MAX ? realloc(released, cap * sizeof(*p)) : NULL;

		if (!p)
			return; /* the empty directory stays until the guest ends */
		released = p;
		cap_released = cap;
	}
	released[nreleased++] = id;
}

/* Somebody may have made groups below it. */
static bool is_leaf(unsigned id)
{
	struct stat st;
	char name[16];

	name_of(id, name);
	return fstatat(user_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 2;
}

bool cgroup_retire(unsigned id, bool again)
{
	if (cgroup_populated(id))
		return false;
	if (again && user_fd >= 0 && !spare && is_leaf(id))
		spare = id;
	else
		cgroup_release(id);
	return true;
}

void cgroup_sweep(void)
{
	for (unsigned i = 0; i < nreleased;) {
		if (group_remove(released[i]) == 0)
			released[i] = released[--nreleased];
		else
			i++;
	}
}

int cgroups_freeze(bool on)
{
	int64_t until = mono_ms() + 2000;
	struct pollfd p = { .events = POLLPRI };
	int r;

	if (user_fd < 0)
		return -ENOTSUP;
	r = put(user_fd, "cgroup.freeze", on ? "1" : "0");
	if (r < 0 || !on)
		return r;
	p.fd = openat(user_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (p.fd < 0)
		return -errno;
	r = -ETIMEDOUT;
	do {
		char text[256];
		ssize_t n = pread(p.fd, text, sizeof(text) - 1, 0);

		if (n > 0) {
			text[n] = '\0';
			/* An empty group counts as frozen as well: nothing in it can run. */
			if (strstr(text, "frozen 1") || strstr(text, "populated 0"))
				r = 0;
		}
	} while (r < 0 && mono_ms() < until && poll(&p, 1, (int)(until - mono_ms())) >= 0);
	close(p.fd);
	return r;
}

static void kill_and_remove(int dirfd, const char *name, void *arg)
{
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

void cgroups_end(void)
{
	if (user_fd < 0)
		return;
	(void)put(user_fd, "cgroup.freeze", "0");
	(void)put(user_fd, "cgroup.kill", "1");
	for (int i = 0; i < 100 && access(user_path, F_OK) == 0; i++) {
		each_below(AT_FDCWD, user_path, 0, kill_and_remove, NULL);
		usleep(10000);
	}
	close(user_fd);
	user_fd = -1;
}
