/* init.c - PID 1: from the kernel's hand-over to a root file system that users live in.
 *
 * The initramfs holds this program as /init, the modules, and /modules/order that lists them.
 * Kernel's command line: space.root=rw|ro. Whatever fails is said on the console in one line, and
 * the machine is switched off, so that the monitor ends. */
#include "agent/agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "agent/identity.h"
#include "base/clock.h"
#include "base/cur.h"
#include "base/file.h"
#include "base/log.h"

#define DISK_WAIT_MS 10000
#define NEWROOT "/newroot"

static void console_open(void)
{
	int fd;

	mknod("/dev/console", S_IFCHR | 0600, makedev(5, 1)); /* is there, mostly */
	fd = open("/dev/console", O_RDWR | O_NOCTTY);
	if (fd < 0)
		fd = open("/dev/null", O_RDWR);
	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		if (fd != i)
			dup2(fd, i);
	if (fd > 2)
		close(fd);
}

static void power_off(void)
{
	reboot(RB_POWER_OFF);
	reboot(RB_AUTOBOOT); /* no way to switch off: the monitor takes a reset for an end as well
			      */
	for (;;)
		pause();
}

_Noreturn void init_give_up(const char *why)
{
	log_error("init: %s", why);
	if (!agent.pid1 && getpid() != 1)
		exit(1);
	sync();
	usleep(50 * 1000); /* the console is drained by an interrupt */
	power_off();
	for (;;)
		pause();
}

struct mount_row {
	const char *what, *where, *type;
	unsigned long flags;
	const char *data;
};

static int mount_all(const struct mount_row *m, size_t n, struct fail *why)
{
	for (size_t i = 0; i < n; i++) {
		if (mkdir(m[i].where, 0755) < 0 && errno != EEXIST)
			return fail_set(why, -errno, "mkdir %s: %s", m[i].where, strerror(errno));
		if (mount(m[i].what, m[i].where, m[i].type, m[i].flags, m[i].data) < 0 &&
			errno != EBUSY)
			return fail_set(why, -errno, "mount %s: %s", m[i].where, strerror(errno));
	}
	return 0;
}

/* --- modules --- */

static void module_insert(const char *name)
{
	char path[300];
	autoclose int fd = -1;

	snprintf(path, sizeof(path), "/modules/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	/* ENODEV: for hardware that this machine does not have (crc32c-intel without its
	 * instruction). */
	if (fd < 0 ||
		(syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV))
		log_warning("init: module %s: %s", name, strerror(errno));
	(void)unlink(path); /* its memory is the guest's to use */
}

/* /modules/order: one file name a line, "#" begins a comment. A module that is missing here shows
 * when what needs it fails. */
static void modules_insert(void)
{
	autofree char *text = NULL;
	struct str rest, line;
	char name[256];

	if (file_read(AT_FDCWD, "/modules/order", &text, 64 * 1024) < 0)
		return; /* everything needed is built in */
	rest = str_of(text);
	while (rest.n > 0) {
		str_cut(rest, '\n', &line, &rest);
		line = str_trim(line);
		if (line.n == 0 || line.p[0] == '#' || str_copy(name, sizeof(name), line) < 0)
			continue;
		module_insert(name);
	}
}

/* --- disks --- */

enum disk_kind { DISK_NONE, DISK_EROFS, DISK_EXT4 };

/* What is on a disk, by its magic number: the order of the names depends on the monitor. */
static enum disk_kind disk_kind(const char *dev)
{
	autoclose int fd = open(dev, O_RDONLY | O_CLOEXEC);
	uint8_t sb[64];
	struct cur c;

	if (fd < 0 || pread_all(fd, sb, sizeof(sb), 1024) < 0)
		return DISK_NONE;
	c = cur_of(sb, sizeof(sb));
	if (cur_le32(&c) == 0xE0F5E1E2)
		return DISK_EROFS;
	return sb[56] == 0x53 && sb[57] == 0xEF ? DISK_EXT4 : DISK_NONE;
}

static bool disks_find(char image[16], char disk[16])
{
	image[0] = disk[0] = '\0';
	for (int c = 'a'; c <= 'h'; c++) {
		char dev[16];

		snprintf(dev, sizeof(dev), "/dev/vd%c", c);
		switch (disk_kind(dev)) {
		case DISK_EROFS:
			if (!image[0])
				memcpy(image, dev, sizeof(dev));
			break;
		case DISK_EXT4:
			if (!disk[0])
				memcpy(disk, dev, sizeof(dev));
			break;
		default:
			break;
		}
	}
	return image[0] != '\0';
}

static bool cmdline_has(const char *word)
{
	autofree char *text = NULL;
	struct str rest, one;

	if (file_read(AT_FDCWD, "/proc/cmdline", &text, 64 * 1024) < 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	for (rest = str_of(text); rest.n > 0;) {
		str_cut(rest, ' ', &one, &rest);
		if (str_eqz(one, word))
			return true;
	}
	return false;
}

/* The layer that takes what is written: the ext4 disk, or memory when the root is to forget
 * everything. */
static int upper_mount(const char *disk, bool forget, struct fail *why)
{
	if (forget || !disk[0]) {
		if (mount("tmpfs", "/rw", "tmpfs", MS_NODEV, "mode=0755,size=25%") < 0)
			return fail_set(why, -errno, "mount tmpfs for the upper layer: %s",
				strerror(errno));
	} else {
		if (mount(disk, "/rw", "ext4", MS_NOATIME, "") < 0)
			return fail_set(why, -errno, "mount %s (ext4): %s", disk, strerror(errno));
		agent.disk_fd = dir_open(AT_FDCWD, "/rw");
	}
	if ((mkdir("/rw/upper", 0755) < 0 && errno != EEXIST) ||
		(mkdir("/rw/work", 0755) < 0 && errno != EEXIST))
		return fail_set(why, -errno, "upper layer: %s", strerror(errno));
	return 0;
}

static int root_mount(struct fail *why)
{
	char image[16], disk[16];
	int64_t until = mono_ms() + DISK_WAIT_MS;
	int r;

	while (!disks_find(image, disk)) {
		if (mono_ms() > until)
			return fail_set(why, -ENODEV, "no disk with an erofs image appeared");
		usleep(2000);
	}
	mkdir("/rom", 0755);
	mkdir("/rw", 0755);
	mkdir(NEWROOT, 0755);
	if (mount(image, "/rom", "erofs", MS_RDONLY, "") < 0)
		return fail_set(why, -errno, "mount %s (erofs): %s", image, strerror(errno));
	r = upper_mount(disk, cmdline_has("space.root=ro"), why);
	if (r < 0)
		return r;
	if (mount("overlay", NEWROOT, "overlay", MS_NOATIME,
		    "lowerdir=/rom,upperdir=/rw/upper,workdir=/rw/work") < 0)
		return fail_set(why, -errno, "mount overlay: %s", strerror(errno));
	return 0;
}

/* What stays of the initramfs would be memory that nobody can reach any more. */
static void initramfs_clear(void)
{
	(void)rm_rf(AT_FDCWD, "/modules");
	(void)unlink("/init");
}

static int root_switch(struct fail *why)
{
	static const char *const moved[] = { "/proc", "/sys", "/dev" };
	char to[64];

	for (unsigned i = 0; i < ARRAY_LEN(moved); i++) {
		snprintf(to, sizeof(to), NEWROOT "%s", moved[i]);
		if ((mkdir(to, 0755) < 0 && errno != EEXIST) ||
			mount(moved[i], to, NULL, MS_MOVE, NULL) < 0)
			return fail_set(why, -errno, "move %s: %s", moved[i], strerror(errno));
	}
	initramfs_clear();
	if (chdir(NEWROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
		chdir("/") < 0)
		return fail_set(why, -errno, "switch to the new root: %s", strerror(errno));
	return 0;
}

/* --- the new root --- */

static void dev_links(void)
{
	static const struct {
		const char *to, *name;
	} l[] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
		{ "pts/ptmx", "/dev/ptmx" },
	};

	(void)unlink("/dev/ptmx"); /* the kernel's node of that name opens the same; containers
				      expect the link */
	for (unsigned i = 0; i < ARRAY_LEN(l); i++)
		if (symlink(l[i].to, l[i].name) < 0 && errno != EEXIST)
			log_warning("init: %s: %s", l[i].name, strerror(errno));
	mkdir("/dev/net", 0755);
	(void)mknod("/dev/net/tun", S_IFCHR | 0666,
		makedev(10, 200)); /* loads tun at first use, where it is a module */
	(void)chmod("/dev/net/tun", 0666);
	(void)chmod("/dev/fuse", 0666);
}

static int root_fill(struct fail *why)
{
	static const struct mount_row m[] = {
		{ "devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
			"gid=5,mode=620,ptmxmode=666" },
		{ "shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777" },
		{ "mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL },
		{ "run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=20%" },
		{ "cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC,
			"nsdelegate" },
	};
	int r = mount_all(m, 3, why);

	if (r == -ENODEV) /* no message queues in this kernel */
		r = 0;
	if (r == 0)
		r = mount_all(m + 3, ARRAY_LEN(m) - 3, why);
	if (r < 0)
		return r;
	mkdir("/tmp", 01777);
	(void)chmod("/tmp", 01777);
	mkdir("/run/lock", 01777);
	(void)chmod("/run/lock", 01777);
	mkdir("/run/user", 0755);
	dev_links();
	return 0;
}

static void self_protect(void)
{
	struct rlimit files = { 65536, 1048576 };
	autoclose int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)write_all(fd, "-1000", 5);
	setrlimit(RLIMIT_NOFILE, &files);
	reboot(RB_DISABLE_CAD); /* ctrl-alt-del becomes SIGINT */
}

static void hostname_set(void)
{
	autofree char *name = NULL;
	ssize_t n = file_read(AT_FDCWD, "/etc/hostname", &name, 4096);
	size_t len = n > 0 ? strcspn(name, " \t\n") : 0;

	if ((len == 0 || len > 64 || sethostname(name, len) < 0) && sethostname("space", 5) < 0)
		log_warning("init: hostname: %s", strerror(errno));
}

/* The three files that say who a machine is lie in memory and are bound over those of the image. So
 * a clone gets its identity without waiting for a disk, and a disk carries nobody's. A root without
 * one of them, or with a link there, keeps it on disk. */
static void identity_bind(void)
{
	static const char *const names[] = { "hostname", "hosts", "machine-id" };

	mkdir(IDENTITY_DIR, 0755);
	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		char etc[64], own[64];
		autofree char *text = NULL;
		struct stat st;
		ssize_t n;

		snprintf(etc, sizeof(etc), "/etc/%s", names[i]);
		snprintf(own, sizeof(own), IDENTITY_DIR "/%s", names[i]);
		if (lstat(etc, &st) < 0 && errno == ENOENT)
			(void)file_write_atomic(AT_FDCWD, etc, "", 0, 0644);
		if (lstat(etc, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		n = file_read(AT_FDCWD, etc, &text, 64 * KIB);
		if (file_write_atomic(
			    AT_FDCWD, own, text, n > 0 ? (size_t)n : 0, st.st_mode & 0777) < 0 ||
			mount(own, etc, NULL, MS_BIND, NULL) < 0) {
			log_warning("init: %s stays on disk: %s", etc, strerror(errno));
			(void)unlink(own);
		}
	}
}

int init_run(struct fail *why)
{
	static const struct mount_row early[] = {
		{ "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL },
		{ "sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL },
		{ "devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755" },
	};
	int r;

	agent.pid1 = true;
	r = mount_all(early, ARRAY_LEN(early), why);
	console_open();
	if (r < 0)
		return r;
	modules_insert();
	r = root_mount(why);
	if (r == 0)
		r = root_switch(why);
	if (r == 0)
		r = root_fill(why);
	if (r < 0)
		return r;
	self_protect();
	hostname_set();
	identity_bind();
	return net_up(why);
}

/* --- the end --- */

static void reap_for(int ms)
{
	int64_t until = mono_ms() + ms;

	while (mono_ms() < until) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0)
			return; /* nobody is left */
		if (pid == 0)
			usleep(10 * 1000);
	}
}

/* The root is ours until the end, so nothing can be unmounted; read-only, the disk is as clean. Its
 * mount has no path in this root any more, but a descriptor. */
static void disk_finish(void)
{
	char path[40];

	sync();
	(void)mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	if (agent.disk_fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", agent.disk_fd);
	if (mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
		log_warning("init: the disk stays writable to the end: %s", strerror(errno));
	sync();
}

void init_power_off(void)
{
	log_info("init: shutting down");
	if (!agent.pid1)
		exit(0);
	sync();
	kill(-1, SIGTERM);
	reap_for(2000);
	kill(-1, SIGKILL);
	reap_for(1000);
	disk_finish();
	power_off();
}
