/* doctor_host.c - looks at this machine. Every check is a function; none leaves anything behind. */
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/proc.h"
#include "cli/doctor.h"

#define DISK_NEEDED (6 * GIB)
#define MEMORY_NEEDED (2 * GIB)

void found(struct findings *f, const char *what, enum verdict v, const char *remedy, const char *fmt, ...)
{
	struct finding *it = &f->v[f->n];
	va_list ap;

	if (f->n == FINDINGS_MAX)
		return;
	f->n++;
	it->what = what;
	it->verdict = v;
	snprintf(it->remedy, sizeof(it->remedy), "%s", remedy ? remedy : "");
	va_start(ap, fmt);
	vsnprintf(it->text, sizeof(it->text), fmt, ap);
	va_end(ap);
}

static bool file_has_word(const char *path, const char *word)
{
	autofree char *text = NULL;
	size_t n = strlen(word);

	if (file_read(AT_FDCWD, path, &text, 4 * MIB) < 0)
		return false;
	for (char *p = strstr(text, word); p; p = strstr(p + 1, word)) {
		bool starts = p == text || strchr(" \t\n:", p[-1]);

		if (starts && (!p[n] || strchr(" \t\n", p[n])))
			return true;
	}
	return false;
}

static void check_user(struct findings *f)
{
	struct group *g = getgrnam("space");
	gid_t groups[256];
	int n = getgroups(256, groups);
	bool member = g && getegid() == g->gr_gid;

	for (int i = 0; g && i < n; i++)
		member = member || groups[i] == g->gr_gid;
	if (geteuid() == 0)
		found(f, "user", VERDICT_OK, NULL, "root");
	else if (member)
		found(f, "user", VERDICT_OK, NULL, "member of the group space (may use the API's socket)");
	else
		found(f, "user", VERDICT_WARN, "sudo space …, or sudo usermod -aG space $USER and log in again",
			"neither root nor in the group space: only TCP and a key are open to you");
}

static void check_system(struct findings *f)
{
	autofree char *text = NULL;
	struct utsname u;

	uname(&u);
	if (strcmp(u.machine, "x86_64"))
		found(f, "machine", VERDICT_FAIL, "use an x86-64 host", "%s; only x86_64 is supported", u.machine);
	if (file_read(AT_FDCWD, "/etc/os-release", &text, 64 * KIB) < 0 || !strstr(text, "ID=debian") ||
		!strstr(text, "VERSION_ID=\"12\""))
		found(f, "system", VERDICT_WARN, "use Debian 12", "not Debian 12: untested; Linux %.60s", u.release);
	else
		found(f, "system", VERDICT_OK, NULL, "Debian 12, Linux %.60s", u.release);
}

/* A /dev/kvm on a CPU that shows no virtualisation comes from a paravirtual module: it runs guests made for it only. */
static void check_kvm(struct findings *f)
{
	bool flags = file_has_word("/proc/cpuinfo", "vmx") || file_has_word("/proc/cpuinfo", "svm");
	autoclose int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	const char *why;

	if (fd >= 0 && flags) {
		found(f, "KVM", VERDICT_OK, NULL, "/dev/kvm, hardware virtualisation: sandboxes are isolated by it (kvm)");
		return;
	}
	why = fd >= 0 ? "/dev/kvm is there, but the CPU shows no vmx or svm: not hardware virtualisation" :
			flags && errno == EACCES ? "/dev/kvm may not be opened by you" :
			flags ? "no /dev/kvm" : "this CPU shows no virtualisation";
	found(f, "KVM", VERDICT_WARN,
		flags ? "modprobe kvm_intel || modprobe kvm_amd" : "nothing needed; on a host with KVM sandboxes are several times faster",
		"%s. Sandboxes run emulated (QEMU's TCG): just as isolated, several times slower", why);
}

static void check_device(struct findings *f, const char *path, const char *what, const char *need, const char *remedy)
{
	autoclose int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		found(f, what, VERDICT_OK, NULL, "%s", path);
	else if (errno == EACCES && geteuid() != 0)
		found(f, what, access(path, F_OK) == 0 ? VERDICT_OK : VERDICT_WARN, NULL, "%s (only root may open it)", path);
	else
		found(f, what, VERDICT_FAIL, remedy, "%s: %s; %s", path, strerror(errno), need);
}

/* PATH as root has it: a user's often lacks sbin. */
static bool program_find(const char *name, char *out, size_t size)
{
	static const char *const dirs[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		snprintf(out, size, "%s/%s", dirs[i], name);
		if (access(out, X_OK) == 0)
			return true;
	}
	return false;
}

static void check_programs(struct findings *f)
{
	static const struct {
		const char *name, *package, *need;
		enum verdict without;
	} programs[] = {
		{ "nft", "nftables", "filters of sandbox networks", VERDICT_FAIL },
		{ "mmdebstrap", "mmdebstrap", "images from Debian packages", VERDICT_FAIL },
		{ "mkfs.erofs", "erofs-utils", "images", VERDICT_FAIL },
		{ "mkfs.ext4", "e2fsprogs", "disks of sandboxes", VERDICT_FAIL },
		{ "mkfs.xfs", "xfsprogs", "a pool that clones files", VERDICT_WARN },
		{ "skopeo", "skopeo", "images from OCI registries", VERDICT_WARN },
		{ "umoci", "umoci", "images from OCI layouts", VERDICT_WARN },
	};
	char path[128], remedy[96];

	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		snprintf(remedy, sizeof(remedy), "apt-get install %s", programs[i].package);
		if (program_find(programs[i].name, path, sizeof(path)))
			found(f, programs[i].name, VERDICT_OK, NULL, "%s", path);
		else
			found(f, programs[i].name, programs[i].without, remedy, "not there: no %s", programs[i].need);
	}
}

static void check_qemu(struct findings *f)
{
	const char *argv[] = { "qemu-system-x86_64", "--version", NULL };
	autobuf struct buf out;
	struct run_opts o = { .argv = argv, .out = &out, .timeout_ms = 10000 };
	int major = 0, minor = 0;

	buf_init(&out, 4 * KIB);
	if (run(&o, NULL, NULL) < 0 || buf_addc(&out, 0) < 0 || sscanf(out.p, "QEMU emulator version %d.%d", &major, &minor) != 2)
		found(f, "QEMU", VERDICT_FAIL, "apt-get install qemu-system-x86", "no qemu-system-x86_64 that runs");
	else if (major < 7 || (major == 7 && minor < 2))
		found(f, "QEMU", VERDICT_FAIL, "apt-get install qemu-system-x86", "version %d.%d; 7.2 is the oldest that is tested", major, minor);
	else
		found(f, "QEMU", VERDICT_OK, NULL, "%.*s", (int)strcspn(out.p, "\n"), out.p);
}

/* The nearest directory above PATH that exists. */
static void existing_parent(char *path)
{
	while (access(path, F_OK) < 0) {
		char *slash = strrchr(path, '/');

		if (!slash || slash == path) {
			strcpy(path, "/");
			return;
		}
		*slash = 0;
	}
}

/* Two files without names, one cloned from the other. 1, 0, or -1: cannot be tried. */
static int can_clone(const char *dir)
{
	autoclose int a = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	autoclose int b = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char block[4096] = "space";

	if (a < 0 || b < 0 || write(a, block, sizeof(block)) != sizeof(block))
		return -1;
	return ioctl(b, FICLONE, a) == 0;
}

static void check_disk(struct findings *f, const char *state_dir)
{
	char dir[512], pool[600], size[AGO_LEN];
	struct statvfs sv;
	double bytes;
	bool xfs;
	int clone;

	snprintf(dir, sizeof(dir), "%s", state_dir);
	existing_parent(dir);
	if (statvfs(dir, &sv) == 0) {
		bytes = (double)sv.f_bavail * (double)sv.f_frsize;
		found(f, "disk", bytes < (double)DISK_NEEDED ? VERDICT_WARN : VERDICT_OK, "df -h; or another --state-dir",
			"%s free for %s", size_text(size, bytes), state_dir);
		if (bytes >= (double)DISK_NEEDED)
			f->v[f->n - 1].remedy[0] = 0;
	}
	snprintf(pool, sizeof(pool), "%s/pool", state_dir);
	clone = can_clone(access(pool, W_OK) == 0 ? pool : dir);
	xfs = file_has_word("/proc/filesystems", "xfs") || access("/sbin/mkfs.xfs", X_OK) == 0;
	if (clone == 1)
		found(f, "pool", VERDICT_OK, NULL, "its file system clones files");
	else if (clone < 0)
		found(f, "pool", VERDICT_OK, NULL, "not tried: %s may not be written by you", dir);
	else if (xfs && access("/dev/loop-control", F_OK) == 0)
		found(f, "pool", VERDICT_OK, NULL, "the file system cannot clone files; an XFS image is made and mounted for it");
	else
		found(f, "pool", VERDICT_WARN, "apt-get install xfsprogs; modprobe loop", "files cannot be cloned here: disks are copied, which is slower");
}

static void check_memory(struct findings *f)
{
	autofree char *text = NULL;
	char size[AGO_LEN];
	char *at;
	double bytes;

	if (file_read(AT_FDCWD, "/proc/meminfo", &text, 64 * KIB) < 0 || !(at = strstr(text, "MemAvailable:")))
		return;
	bytes = strtod(at + 13, NULL) * 1024;
	if (bytes < (double)MEMORY_NEEDED)
		found(f, "memory", VERDICT_WARN, "stop something, or use a larger host", "%s available; sandboxes take 512M each by default",
			size_text(size, bytes));
	else
		found(f, "memory", VERDICT_OK, NULL, "%s available", size_text(size, bytes));
}

static void check_cgroups(struct findings *f)
{
	struct statfs sf;

	if (statfs("/sys/fs/cgroup", &sf) == 0 && sf.f_type == CGROUP2_SUPER_MAGIC)
		found(f, "cgroups", VERDICT_OK, NULL, "version 2");
	else if (access("/sys/fs/cgroup/memory", F_OK) == 0)
		found(f, "cgroups", VERDICT_OK, NULL, "version 1 (memory, pids, cpu, freezer)");
	else
		found(f, "cgroups", VERDICT_WARN, "mount -t cgroup2 none /sys/fs/cgroup", "none mounted: sandboxes have no limits but QEMU's own");
}

/* May a child of ours have a network namespace of its own? Tried in one, so that nothing stays. */
static bool can_unshare(int flags)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(flags) == 0 ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void check_namespaces(struct findings *f)
{
	if (geteuid() != 0)
		found(f, "namespaces", VERDICT_OK, NULL, "not tried: only root may");
	else if (!can_unshare(CLONE_NEWNET))
		found(f, "namespaces", VERDICT_FAIL, "run spaced where network namespaces are allowed (not in a restricted container)",
			"a network namespace cannot be made");
	else if (!can_unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS))
		found(f, "namespaces", VERDICT_FAIL, "run spaced where mount namespaces are allowed", "a mount namespace cannot be made");
	else
		found(f, "namespaces", VERDICT_OK, NULL, "network, mount, IPC, UTS%s", can_unshare(CLONE_NEWUSER) ? ", user" : "");
}

void doctor_host(struct findings *f, const char *state_dir)
{
	check_user(f);
	check_system(f);
	check_kvm(f);
	check_device(f, "/dev/net/tun", "tun", "without it a sandbox has no network device", "modprobe tun");
	check_qemu(f);
	check_programs(f);
	check_disk(f, state_dir);
	check_memory(f);
	check_cgroups(f);
	check_namespaces(f);
}
