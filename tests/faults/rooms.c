/* rooms.c - the rooms below the core by themselves: the storage pool, and slots, killed at every point of what they do, and with every call that
 * changes something failing once. Each turn is a child that first looks at what the last one left.
 *
 * usage: faults_rooms [--times N] [--points FILE --rare FILE] [image|net]
 *
 * --times: each point is killed at so often (20), before and after the call taken together; one that is not is a failure. --points and --rare: see points.h */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"
#include "image/image.h"
#include "net/slot.h"
#include "points.h"

#define TURN_S 60
#define PASSES_MAX 4096
#define ROUNDS_MAX 64

static struct {
	bool image, node, node_copy, removing; /* acknowledged; removing: may be gone */
	char node_id[24], copy_id[24];
	struct digest digest;
	bool fired, at_end;
	char point[80];
	unsigned long failures, deaths, errors;
} *m;
static char dir[80], state[100], run_dir[100];

static void complain(const char *fmt, ...) PRINTF(1, 2);
static void complain(const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (++m->failures < 30)
		printf("at %s: %s\n", m->point, text);
}

static unsigned entries(const char *path)
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

/* --- the storage pool --- */

static struct pool *open_pool(void)
{
	struct pool *p = NULL;
	struct fail why = { 0 };

	if (pool_open(state, false, 0, &p, &why) < 0 && !m->fired)
		complain("the pool does not open: %s", why.msg);
	return p;
}

static void put(int dirfd, const char *name, const char *text)
{
	autoclose int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) < 0 || ftruncate(fd, MIB) < 0)
		complain("%s: %s", name, strerror(errno));
}

static void image_work(void)
{
	struct fail why = { 0 };
	struct image_info info = { 0 };
	struct node n = { .driver = "fake", .driver_version = "1", .vcpus = 1, .memory = MIB, .disk = MIB, .has_memory = true }, copy;
	struct pool *p = open_pool();
	char src[120], out[120], id[24];
	bool cloned;
	int fd, disk;

	if (!p)
		return;
	snprintf(src, sizeof(src), "%s/tree", dir);
	if (image_build_dir(p, "img", src, NULL, &info, &why) == 0) {
		m->digest = info.digest;
		m->image = true;
	}
	image_info_clear(&info);
	disk = disk_make(p, 32 * MIB, &why);
	id_make(id, 'i');
	fd = disk < 0 ? -1 : disk_clone(p, id, disk, 1900000001, 48 * MIB, &cloned, &why);
	if (fd >= 0) {
		close(fd);
		(void)disk_remove(p, id, &why);
	}
	if (disk >= 0)
		close(disk);
	fd = node_begin(p, n.id, &why);
	if (fd >= 0) {
		put(fd, "memory", "memory");
		put(fd, "disk", "disk");
		put(fd, "state", "state");
		n.image = m->digest;
		snprintf(m->node_id, sizeof(m->node_id), "%s", n.id);
		if (node_commit(p, fd, &n, &why) == 0)
			m->node = true;
		else
			(void)node_abort(p, n.id);
		close(fd);
	}
	snprintf(out, sizeof(out), "%s/export", dir);
	fd = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (m->node && m->image && node_export(p, n.id, fd, NULL, &why) == 0 && lseek(fd, 0, SEEK_SET) == 0 &&
	    node_import(p, fd, NULL, &copy, &why) == 0) {
		snprintf(m->copy_id, sizeof(m->copy_id), "%s", copy.id);
		m->node_copy = true;
	}
	close(fd);
	m->removing = true;
	if (m->node)
		(void)node_remove(p, m->node_id, &why);
	if (m->node_copy)
		(void)node_remove(p, m->copy_id, &why);
	if (m->image)
		(void)image_remove(p, "img", &why);
	m->node = m->node_copy = m->image = m->removing = false; /* one that could not be removed may be there or not */
	pool_close(p);
}

static void check_node(struct pool *p, const char *id)
{
	struct fail why = { 0 };
	struct node n;
	char text[8] = "";
	int fd = node_open(p, id, &why), f;

	if (fd < 0 || node_read(p, id, &n, &why) < 0) {
		complain("node %s: %s", id, why.msg);
		return;
	}
	f = openat(fd, "memory", O_RDONLY | O_CLOEXEC);
	if (f < 0 || read(f, text, 6) != 6 || strcmp(text, "memory"))
		complain("node %s: its memory has \"%s\"", id, text);
	close(f);
	close(fd);
}

static void image_check(void)
{
	struct pool *p = open_pool();
	struct fail why = { 0 };
	char path[200], hex[65], (*ids)[24] = NULL;
	size_t n = 0;
	int fd;

	if (!p)
		return;
	if (m->image && !m->removing) {
		struct image_info i;

		fd = image_open(p, &m->digest, &why);
		if (fd < 0 || file_sha256(fd, hex) < 0 || strcmp(hex, m->digest.hex))
			complain("the image: %s", why.msg);
		if (image_find(p, "img", &i, &why) < 0)
			complain("the image's name: %s", why.msg);
		else
			image_info_clear(&i);
		close(fd);
	}
	if (m->node && !m->removing)
		check_node(p, m->node_id);
	if (m->node_copy && !m->removing)
		check_node(p, m->copy_id);
	snprintf(path, sizeof(path), "%s/pool/tmp", state);
	if (entries(path) != 2)
		complain("%u entries in pool/tmp", entries(path));
	/* What the core does at a start: disks and nodes without a record go. */
	if (disk_list(p, &ids, &n, &why) == 0)
		for (size_t i = 0; i < n; i++)
			if (disk_remove(p, ids[i], &why) < 0)
				complain("disk %s: %s", ids[i], why.msg);
	free(ids);
	snprintf(path, sizeof(path), "%s/pool/nodes", state);
	for (DIR *d = opendir(path); d; d = NULL) {
		struct dirent *e;

		while ((e = readdir(d)))
			if (e->d_name[0] == 'n') {
				char one[24];

				snprintf(one, sizeof(one), "%.23s", e->d_name);
				check_node(p, one); /* nodes/ never holds half of one */
				if (node_remove(p, one, &why) < 0)
					complain("node %s cannot be removed: %s", one, why.msg);
			}
		closedir(d);
	}
	m->node = m->node_copy = m->removing = false;
	snprintf(path, sizeof(path), "%s/pool/disks/%llu.ext4", state, 32 * MIB);
	unlink(path); /* so that it is made anew */
	pool_close(p);
	snprintf(path, sizeof(path), "%s/pool/tmp", state);
	if (entries(path))
		complain("%u entries in pool/tmp of a closed pool", entries(path));
}

/* --- slots --- */

static void net_work(void)
{
	struct slots *s = NULL;
	struct slot a = { .ns_fd = -1, .tap_fd = -1 }, b = a;
	struct fail why = { 0 };

	if (slots_new(run_dir, 1, &s, &why) < 0)
		return;
	(void)slots_refill(s, &why);
	if (slot_claim(s, &a, &why) == 0) {
		int fd = slot_connect(&a, 49983, &why);

		if (fd >= 0)
			close(fd);
	}
	if (slot_claim(s, &b, &why) == 0)
		(void)slot_release(s, &b, &why);
	(void)slots_sweep(s, &why);
	if (a.name[0])
		(void)slot_release(s, &a, &why);
	slots_free(s);
}

static void net_check(void)
{
	struct slots *s = NULL;
	struct fail why = { 0 };
	char path[200];
	autofree char *mounts = NULL;

	if (slots_new(run_dir, 0, &s, &why) < 0) {
		complain("slots: %s", why.msg);
		return;
	}
	if (slots_sweep(s, &why) < 0)
		complain("sweep: %s", why.msg);
	snprintf(path, sizeof(path), "%s/netns", run_dir);
	if (entries(path))
		complain("%u slots that belong to nothing", entries(path));
	slots_free(s);
	if (file_read(AT_FDCWD, "/proc/self/mounts", &mounts, 4 * MIB) > 0 && strstr(mounts, run_dir))
		complain("a mount is left");
}

/* --- turns --- */

static void on_strike(const char *point, int what)
{
	if (what == FAULT_PASSED)
		return;
	m->fired = true;
	snprintf(m->point, sizeof(m->point), "%s", point);
}

static void turn(void (*check)(void), void (*work)(void), const char *rule)
{
	int status = 0;
	pid_t pid;

	m->at_end = false;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		alarm(TURN_S);
		m->fired = false;
		fault_tell(on_strike);
		fault_rules(NULL);
		check();
		fault_rules(rule);
		work();
		m->at_end = true;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && (WTERMSIG(status) != SIGKILL || !m->fired))
		complain("ended with signal %d", WTERMSIG(status));
}

static void nothing(void)
{
}

/* By point, whether before or after its call. */
static struct {
	char name[80];
	int deaths;
} points[512];
static int npoints;
static char met_names[1024][80]; /* of all rooms */
static int nmet;

static bool met(const char *name)
{
	for (int i = 0; i < nmet; i++)
		if (!strcmp(met_names[i], name))
			return true;
	return false;
}

static int *deaths_at(const char *point)
{
	size_t n = strcspn(point, "+");
	int i;

	for (i = 0; i < npoints; i++)
		if (strlen(points[i].name) == n && !strncmp(points[i].name, point, n))
			return &points[i].deaths;
	if (npoints == (int)ARRAY_LEN(points))
		abort();
	snprintf(points[i].name, sizeof(points[i].name), "%.*s", (int)n, point);
	npoints++;
	return &points[i].deaths;
}

static void room(const char *name, void (*check)(void), void (*work)(void), int times)
{
	static int *of_pass[PASSES_MAX];
	static const char *const errs[] = { "ENOSPC", "EIO", "EMFILE", "EDQUOT", "EROFS" };
	unsigned long failures = m->failures, kills = 0, errors = 0;
	int64_t t0 = mono_ms();
	char rule[100];

	npoints = 0;
	memset(of_pass, 0, sizeof(of_pass));
	/* All passes once; then those again whose point has not been met often enough. */
	for (int round = 0; round < ROUNDS_MAX; round++) {
		unsigned long before = kills;

		for (unsigned long k = 1; k < PASSES_MAX && (round == 0 || of_pass[k]); k++) {
			if (round && *of_pass[k] >= times)
				continue;
			snprintf(rule, sizeof(rule), "* %lu kill", k);
			turn(check, work, rule);
			if (!m->fired)
				break;
			of_pass[k] = deaths_at(m->point);
			++*of_pass[k];
			kills++;
		}
		if (kills == before)
			break;
	}
	for (int i = 0; i < npoints; i++)
		if (points[i].deaths < times && !points_rare(points[i].name))
			complain("%s: killed %d times of %d", points[i].name, points[i].deaths, times);
	for (int i = 0; i < npoints && nmet < (int)ARRAY_LEN(met_names); i++)
		memcpy(met_names[nmet++], points[i].name, sizeof(points[i].name));
	for (unsigned long k = 1;; k++) {
		snprintf(rule, sizeof(rule), "* %lu %s", k, errs[k % ARRAY_LEN(errs)]);
		turn(check, work, rule);
		if (!m->fired)
			break;
		errors++;
	}
	turn(check, nothing, NULL);
	m->deaths += kills;
	m->errors += errors;
	printf("%-8s %d points, killed %lu, errors %lu: %lu failures, %.1f s\n", name, npoints, kills, errors, m->failures - failures, (double)(mono_ms() - t0) / 1000);
}

static void interrupted(int sig)
{
	rm_rf(AT_FDCWD, dir);
	_exit(1);
}

int main(int argc, char **argv)
{
	/* Not the image builder's: a program of its own that works in a directory which the next pool_open() removes (tests/e2e/killed-while-building-an-image.py). */
	static const char *const files[] = { "src/image/pool.c", "src/image/disk.c", "src/image/node.c", "src/image/images.c", "src/net/", NULL };
	const char *list = NULL, *rare = NULL;
	int times = 20, at = 1;
	char path[200];

	for (; at + 1 < argc && !strncmp(argv[at], "--", 2); at += 2)
		if (!strcmp(argv[at], "--times"))
			times = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "--points"))
			list = argv[at + 1];
		else if (!strcmp(argv[at], "--rare"))
			rare = argv[at + 1];
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (geteuid() != 0 || m == MAP_FAILED || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		fprintf(stderr, "skipped: needs root, and the right to mount\n");
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (list && points_load(list, rare) < 0)
		return 1;
	snprintf(dir, sizeof(dir), "%s/space-faults-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(dir))
		return 1;
	signal(SIGTERM, interrupted);
	signal(SIGINT, interrupted);
	snprintf(state, sizeof(state), "%s/state", dir);
	snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
	snprintf(path, sizeof(path), "%s/pool/images", state);
	mkdir_p(path, 0700); /* a pool that copies */
	snprintf(path, sizeof(path), "%s/tree/bin", dir);
	mkdir_p(path, 0755);
	snprintf(path, sizeof(path), "%s/tree/bin/sh", dir);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755));
	if (at >= argc || !strcmp(argv[at], "image"))
		room("image", image_check, image_work, times);
	if (at >= argc || !strcmp(argv[at], "net"))
		room("net", net_check, net_work, times);
	rm_rf(AT_FDCWD, dir);
	if (list && at >= argc)
		m->failures += points_missing(files, met);
	printf("%d passed, %lu failed\n", m->failures ? 0 : 1, m->failures);
	return m->failures != 0;
}
