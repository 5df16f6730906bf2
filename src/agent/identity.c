#include "agent/identity.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "agent/agent.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#define CLOCK_OFF_NS (5 * NS_PER_MS)
#define BUNDLE_MAX (8 * 1024 * 1024)
#define EXT4_RESIZE _IOW('f', 16, uint64_t) /* EXT4_IOC_RESIZE_FS: the new number of blocks */

static int put(const char *path, struct str text, mode_t mode, struct fail *why)
{
	char full[PATH_LEN];
	int r;

	if (!agent.root)
		return 0;
	snprintf(full, sizeof(full), "%s%s", agent.root, path);
	full[path_dir_len(full)] = '\0';
	r = mkdir_p(full, 0755);
	snprintf(full, sizeof(full), "%s%s", agent.root, path);
	if (r == 0)
		r = file_write_atomic(AT_FDCWD, full, text.p, text.n, mode);
	return r < 0 ? fail_set(why, r, "%s: %s", path, strerror(-r)) : 0;
}

/* For what lies in memory: a file replaced at once is worth nothing there, and under emulation the way to it costs a clone 18 ms of its
 * start. */
static int put_in_place(const char *path, struct str text, mode_t mode)
{
	char full[PATH_LEN];
	autoclose int fd = -1;
	int r;

	if (!agent.root)
		return 0;
	snprintf(full, sizeof(full), "%s%s", agent.root, path);
	full[path_dir_len(full)] = '\0';
	r = mkdir_p(full, 0755);
	snprintf(full, sizeof(full), "%s%s", agent.root, path);
	if (r == 0 && (fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode)) < 0)
		r = -errno;
	return r < 0 ? r : write_all(fd, text.p, text.n);
}

static ssize_t get(const char *path, char **out, size_t max)
{
	char full[PATH_LEN];

	if (!agent.root)
		return -ENOENT;
	snprintf(full, sizeof(full), "%s%s", agent.root, path);
	return file_read(AT_FDCWD, full, out, max);
}

/* One of the files bound over /etc by init: written in place, in memory. Where it is not bound, on
 * the disk. */
static int put_bound(const char *name, struct str text, mode_t mode, struct fail *why)
{
	char path[64];
	autoclose int fd = -1;
	int r;

	snprintf(path, sizeof(path), IDENTITY_DIR "/%s", name);
	if (agent.pid1)
		fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		snprintf(path, sizeof(path), "/etc/%s", name);
		return put(path, text, mode, why);
	}
	r = write_all(fd, text.p, text.n);
	return r < 0 ? fail_set(why, r, "/etc/%s: %s", name, strerror(-r)) : 0;
}

int identity_hostname(const char *name, struct fail *why)
{
	char text[300];
	int n, r;

	if (!agent.test && sethostname(name, strlen(name)) < 0)
		return fail_set(why, -errno, "hostname: %s", strerror(errno));
	n = snprintf(text, sizeof(text), "%s\n", name);
	r = put_bound("hostname", (struct str){ text, (size_t)n }, 0644, why);
	if (r < 0)
		return r;
	n = snprintf(text, sizeof(text),
		"127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		name);
	return put_bound("hosts", (struct str){ text, (size_t)n }, 0644, why);
}

int identity_machine_id(const char *hex, struct fail *why)
{
	char text[40];
	int n = snprintf(text, sizeof(text), "%s\n", hex);

	return put_bound("machine-id", (struct str){ text, (size_t)n }, 0444, why);
}

int identity_clock(int64_t unix_ns, struct fail *why)
{
	struct timespec ts = { unix_ns / NS_PER_S, unix_ns % NS_PER_S };
	int64_t off = real_ns() - unix_ns;

	if (agent.test || (off < CLOCK_OFF_NS && off > -CLOCK_OFF_NS))
		return 0;
	return clock_settime(CLOCK_REALTIME, &ts) < 0
		       ? fail_set(why, -errno, "clock: %s", strerror(errno))
		       : 0;
}

int identity_entropy(const void *seed, size_t n, struct fail *why)
{
	enum { SEED_MAX = 64 };
	union {
		struct rand_pool_info info; /* the bytes follow it */
		char room[sizeof(struct rand_pool_info) + SEED_MAX];
	} pool = { .info = { .entropy_count = (int)n * 8, .buf_size = (int)n } };
	autoclose int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

	if (n > SEED_MAX)
		return fail_set(why, -EINVAL, "entropy: at most %d bytes", SEED_MAX);
	memcpy(pool.room + sizeof(pool.info), seed, n);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool) < 0)
		return agent.test ? 0 : fail_set(why, -errno, "entropy: %s", strerror(errno));
	/* Without this the generator goes on with what it had, which the clone's parent has as
	 * well. */
	if (ioctl(fd, RNDRESEEDCRNG, 0) < 0 && !agent.test)
		return fail_set(why, -errno, "reseed: %s", strerror(errno));
	return 0;
}

int identity_ca(struct str pem, struct fail *why)
{
	static const char file[] = "/usr/local/share/ca-certificates/space.crt",
			  bundle[] = "/etc/ssl/certs/ca-certificates.crt";
	autofree char *old = NULL, *text = NULL;
	ssize_t nold = get(file, &old, BUNDLE_MAX), n;
	struct buf b;
	int r;

	if (nold >= 0 && (size_t)nold == pem.n && memcmp(old, pem.p, pem.n) == 0)
		return 0;
	n = get(bundle, &text, BUNDLE_MAX);
	if (n < 0 && n != -ENOENT)
		return fail_set(why, (int)n, "%s: %s", bundle, strerror((int)-n));
	buf_init(&b, 2 * BUNDLE_MAX);
	r = 0;
	if (n > 0) { /* without the one before */
		char *at = nold > 0 ? memmem(text, (size_t)n, old, (size_t)nold) : NULL;

		r = buf_add(&b, text, at ? (size_t)(at - text) : (size_t)n);
		if (r == 0 && at)
			r = buf_add(&b, at + nold, (size_t)(text + n - (at + nold)));
		if (r == 0 && b.n > 0 && b.p[b.n - 1] != '\n')
			r = buf_addc(&b, '\n');
	}
	if (r == 0)
		r = buf_adds(&b, pem);
	if (r == 0 && pem.n > 0 && pem.p[pem.n - 1] != '\n')
		r = buf_addc(&b, '\n');
	if (r < 0)
		fail_set(why, r, "%s: too large", bundle);
	else
		r = put(bundle, buf_str(&b), 0644, why);
	buf_clear(&b);
	return r < 0 ? r : put(file, pem, 0644, why);
}

int identity_marks(const char *id, const char *template_id)
{
	static const struct {
		const char *path;
	} marks[] = { { "/run/e2b/.E2B_SANDBOX" }, { "/run/e2b/.E2B_SANDBOX_ID" },
		{ "/run/e2b/.E2B_TEMPLATE_ID" } };
	const char *text[] = { "true", id, template_id };
	static char written[256];
	char all[256];
	int r = 0;

	snprintf(all, sizeof(all), "%s/%s", id ? id : "", template_id ? template_id : "");
	if (!strcmp(all, written))
		return 0;
	for (unsigned i = 0; i < ARRAY_LEN(marks) && r == 0; i++)
		r = text[i] ? put_in_place(marks[i].path, str_of(text[i]), 0444) : 0;
	if (r == 0)
		memcpy(written, all, sizeof(written));
	return r;
}

int identity_grow_disk(uint64_t bytes, struct fail *why)
{
	struct statvfs st;
	uint64_t blocks;

	if (agent.disk_fd < 0)
		return 0;
	if (fstatvfs(agent.disk_fd, &st) < 0)
		return fail_set(why, -errno, "disk: %s", strerror(errno));
	blocks = bytes / st.f_bsize;
	if (ioctl(agent.disk_fd, EXT4_RESIZE, &blocks) < 0 && errno != EBUSY)
		return fail_set(why, -errno, "the disk does not grow to %llu bytes: %s",
			(unsigned long long)bytes, strerror(errno));
	return 0;
}

int identity_tmpfs(const char *path, uint64_t bytes, struct fail *why)
{
	autofree char *real = NULL;
	char data[64];
	int r = mkdir_p(path, 0755);

	if (r == 0 && !(real = realpath(path, NULL)))
		r = -errno;
	if (r < 0)
		return fail_set(why, r, "tmpfs %s: %s", path, strerror(-r));
	if (path_is_system(str_of(real))) /* by a link of the image: /var/run */
		return fail_set(why, -EINVAL,
			"tmpfs %s: leads to %s, the system's own, which cannot be covered", path,
			real);
	snprintf(data, sizeof(data), "mode=1777,size=%llu", (unsigned long long)bytes);
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, data) < 0)
		return fail_set(why, -errno, "tmpfs %s: %s", path, strerror(errno));
	return 0;
}

int identity_read_only(struct fail *why)
{
	static const char *const scratch[] = { "/tmp", "/var/tmp" };

	/* Programs cannot do without these two. */
	for (unsigned i = 0; i < ARRAY_LEN(scratch); i++)
		if (mount("tmpfs", scratch[i], "tmpfs", MS_NOSUID | MS_NODEV,
			    "mode=1777,size=25%") < 0 &&
			errno != ENOENT)
			return fail_set(why, -errno, "tmpfs %s: %s", scratch[i], strerror(errno));
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
		return fail_set(why, -errno, "read-only root: %s",
			errno == EBUSY ? "a process has a file open for writing" : strerror(errno));
	return 0;
}

void identity_boot_id(char out[40])
{
	autofree char *text = NULL;

	out[0] = '\0';
	if (file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &text, 256) > 0) {
		text[strcspn(text, "\n")] = '\0';
		snprintf(out, 40, "%s", text);
	}
}
