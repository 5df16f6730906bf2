/* The storage pool on an ext4 that has no inode left: a node that is begun, filled or committed there says so, and leaves nothing; the next one, once
 * there is room, is whole. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/file.h"
#include "image/image.h"
#include "image/pool.h"
#include "test.h"

#define FILES_MAX 400

static char top[] = "/tmp/space-test-inodes-XXXXXX";

static int entries(const char *state, const char *folder)
{
	char path[200];
	struct dirent *e;
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/%s", state, folder);
	d = opendir(path);
	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return d ? n : -1;
}

static void fill_name(char out[200], int n)
{
	snprintf(out, 200, "%s/m/f%d", top, n);
}

static int fill(void)
{
	char name[200];
	int n = 0;

	for (; n < FILES_MAX; n++) {
		int fd;

		fill_name(name, n);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			break;
		close(fd);
	}
	return n;
}

static void make_room(int *n, int count)
{
	char name[200];

	for (; count > 0 && *n > 0; count--) {
		fill_name(name, --*n);
		unlink(name);
	}
}

/* As a save does it. 0, or the step that failed: 1 begin, 2 a file of it, 3 commit. */
static int make_node(struct pool *p, char id[24], struct fail *why)
{
	struct node n = { .driver = "none", .driver_version = "1", .vcpus = 1, .memory = MIB, .disk = MIB, .agent_protocol = 1 };
	autoclose int dir = node_begin(p, n.id, why), disk = -1;
	int step = 0;

	if (dir < 0)
		return 1;
	memcpy(id, n.id, sizeof(n.id));
	disk = openat(dir, "disk", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (disk < 0) {
		fail_set(why, -errno, "disk: %s", strerror(errno));
		step = 2;
	} else if (ftruncate(disk, MIB) < 0 || node_commit(p, dir, &n, why) < 0) {
		step = 3;
	}
	if (step)
		(void)node_abort(p, n.id);
	return step;
}

/* Exits with the line that did not hold. */
#define HOLDS(x)                  \
	do {                      \
		if (!(x))         \
			_exit(__LINE__ % 250 + 1); \
	} while (0)

static void on_full_table(void)
{
	char cmd[300], state[100], id[24];
	bool seen[4] = { false };
	struct fail why = { 0 };
	struct pool *p;
	int n;

	HOLDS(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	snprintf(cmd, sizeof(cmd), "cd %s && truncate -s 16M i && mkfs.ext4 -q -F -N 128 i && mkdir m && mount -o loop i m && mkdir m/state", top);
	HOLDS(system(cmd) == 0);
	snprintf(state, sizeof(state), "%s/m/state", top);
	HOLDS(pool_open(state, false, 0, &p, &why) == 0);
	n = fill();
	HOLDS(n > 0 && n < FILES_MAX);
	for (int room = 0; room < 12; room++) {
		int had = entries(state, "pool/nodes"), step;

		memset(&why, 0, sizeof(why));
		step = make_node(p, id, &why);
		seen[step] = true;
		if (!step) {
			HOLDS(entries(state, "pool/nodes") == had + 1);
			break;
		}
		HOLDS(why.code == ERR_no_space && why.msg[0]);
		HOLDS(entries(state, "pool/nodes") == had);
		make_room(&n, 1);
	}
	HOLDS(seen[1] && seen[2] && seen[3] && seen[0]);
	pool_close(p);
	HOLDS(pool_open(state, false, 0, &p, &why) == 0);
	HOLDS(entries(state, "pool/tmp") == 2); /* our own directory and its lock: nothing half-made */
	_exit(0);
}

TEST(full_inode_table_leaves_nothing_half_made)
{
	int status = 0;
	pid_t pid;

	if (geteuid() != 0 || system("command -v mkfs.ext4 >/dev/null"))
		test_skip("it needs root, and mkfs.ext4");
	REQUIRE(mkdtemp(top));
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		on_full_table();
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 0);
	rm_rf(AT_FDCWD, top);
}
