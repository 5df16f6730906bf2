/* pack.c - a tree of files becomes an erofs: the last step of every build. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "image/images.h"
#include "image/tool.h"

#define DEPTH_MAX 200
int tree_begin(struct pool *p, const char *prefix, struct tree *t, struct fail *why)
{
	memset(t, 0, sizeof(*t));
	t->p = p;
	t->fd = -1;
	t->began_ns = real_ns();
	pool_tmpname(t->name, prefix);
	snprintf(t->path, sizeof(t->path), "%s/%s", p->tmp, t->name);
	if (FAULT(mkdirat(p->tmpfd, t->name, 0755)))
		return pool_fail(why, -errno, "%s", t->path);
	t->fd = dir_open(p->tmpfd, t->name);
	return t->fd < 0 ? pool_fail(why, t->fd, "%s", t->path) : 0;
}

void tree_end(struct tree *t)
{
	if (!t->p)
		return;
	if (t->fd >= 0)
		close(t->fd);
	FAULT_OURS(rm_rf(t->p->tmpfd, t->name));
	t->p = NULL;
}

/* --- walking --- */

/* Calls FN for everything below the directory FD (which is closed), not following links, not
 * leaving the file system. */
typedef int walk_fn(int dirfd, const char *name, const struct stat *st, void *arg);

static int walk(int fd, dev_t dev, int depth, walk_fn *fn, void *arg)
{
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		r = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (!r && (e = readdir(d))) {
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) {
			r = errno == ENOENT ? 0 : -errno;
			continue;
		}
		if (S_ISDIR(st.st_mode) && st.st_dev == dev)
			r = depth == DEPTH_MAX
				    ? -ELOOP
				    : walk(dir_open(dirfd(d), e->d_name), dev, depth + 1, fn, arg);
		if (!r)
			r = fn(dirfd(d), e->d_name, &st, arg);
	}
	closedir(d);
	return r;
}

static int walk_path(const char *path, walk_fn *fn, void *arg)
{
	int fd = dir_open(AT_FDCWD, path);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st)) {
		int r = -errno;

		close(fd);
		return r;
	}
	return walk(fd, st.st_dev, 0, fn, arg);
}

struct census {
	uint64_t bytes;
	int64_t since_ns; /* 0: none is too new */
	int64_t newest_s; /* of those before it */
};

static int count(int dirfd_, const char *name, const struct stat *st, void *arg)
{
	struct census *c = arg;

	(void)dirfd_;
	(void)name;
	if (S_ISREG(st->st_mode))
		c->bytes += (uint64_t)st->st_size;
	if ((!c->since_ns || st->st_mtim.tv_sec < c->since_ns / NS_PER_S) &&
		st->st_mtim.tv_sec > c->newest_s)
		c->newest_s = st->st_mtim.tv_sec;
	return 0;
}

/* Files made by the build get the time of the newest one that was not: the same packages then give
 * the same image. (Not all files get one time: Python compares a source's time with the one in its
 * compiled file, and would compile again at every start.) */
static int level(int dirfd_, const char *name, const struct stat *st, void *arg)
{
	const struct census *c = arg;
	struct timespec ts[2] = { { c->newest_s, 0 }, { c->newest_s, 0 } };

	if (st->st_mtim.tv_sec < c->since_ns / NS_PER_S)
		return 0;
	return FAULT(utimensat(dirfd_, name, ts, AT_SYMLINK_NOFOLLOW)) ? -errno : 0;
}

static int level_times(const char *root, struct census *c, struct fail *why)
{
	int r = walk_path(root, count, c);

	if (!r && c->since_ns)
		r = walk_path(root, level, c);
	return r < 0 ? pool_fail(why, r, "reading the image's files") : 0;
}

/* --- mkfs.erofs --- */

struct packing {
	const struct progress *pr;
	int fd;		/* the image under way */
	uint64_t bytes; /* of the files that go into it */
};

static void pack_tick(void *arg)
{
	struct packing *k = arg;
	struct stat st;
	double done = -1;

	if (!fstat(k->fd, &st) && k->bytes)
		done = MIN(0.99, (double)st.st_size / (double)k->bytes);
	step(k->pr, "packing the image", done);
}

/* The file system's UUID is made from the image's configuration. So the digest of the file covers
 * it: the same files with another ENV are another image, and the same of both is the same image
 * again. */
int image_uuid(char out[37], const struct image_info *i)
{
	autofree char *env =
		i->env ? json_dumps(i->env, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
	autofree char *cmd = i->cmd ? json_dumps(i->cmd, JSON_COMPACT) : strdup("[]");
	autobuf struct buf text = { 0 };
	struct digest d;
	const char *h = d.hex;

	buf_init(&text, 4 * POOL_JSON_MAX);
	if (!env || !cmd || buf_addf(&text, "%s\n%s\n%s\n%s\n", i->user, i->workdir, env, cmd))
		return -ENOMEM;
	digest_of_text(&d, buf_str(&text));
	snprintf(out, 37, "%.8s-%.4s-4%.3s-8%.3s-%.12s", h, h + 8, h + 12, h + 15, h + 18);
	return 0;
}

static int run_mkfs(const char *image, const char *root, const struct census *c,
	const struct image_info *info, struct packing *k, struct fail *why)
{
	char epoch[48], uuid[37], option[40];
	const char *const env[] = { epoch, NULL };
	/* Not compressed: a file's first use is 15 to 40 % faster under emulation (python3 650
	 * against 810 ms, git 95 against 180), and a template's page cache holds it as it is. Costs
	 * 128 MB for the base image. */
	const char *const argv[] = { "mkfs.erofs", "--quiet", "-x2", option, "-Eforce-inode-extended",
		image, root, NULL };
	const struct tool t = { .argv = argv,
		.env = env,
		.package = "erofs-utils",
		.timeout_s = 3600,
		.tick = pack_tick,
		.arg = k };

	if (image_uuid(uuid, info))
		return fail_set(why, -ENOMEM, "the image's configuration: out of memory");
	snprintf(option, sizeof(option), "-U%s", uuid);
	/* Later times are cut to this one, and it is the one in the superblock. */
	snprintf(epoch, sizeof(epoch), "SOURCE_DATE_EPOCH=%lld", (long long)c->newest_s);
	pack_tick(k);
	return FAULT_WHY(why, tool_run(&t, why));
}

int image_pack(struct pool *p, const char *name, const char *root, int64_t since_ns,
	const struct progress *pr, struct image_info *info, struct fail *why)
{
	struct census c = { .since_ns = since_ns };
	struct packing k = { .pr = pr };
	char tmp[POOL_TMPNAME], image[4400];
	autoclose int fd = -1;
	struct stat st;
	int r;

	step(pr, "packing the image", 0);
	r = level_times(root, &c, why);
	if (r < 0)
		return r;
	fd = pool_tmpfile(p, "erofs-", tmp, why);
	if (fd < 0)
		return fd;
	k.fd = fd;
	k.bytes = c.bytes;
	snprintf(image, sizeof(image), "%s/%s", p->tmp, tmp);
	r = run_mkfs(image, root, &c, info, &k, why);
	if (!r) {
		step(pr, "computing its digest", -1);
		r = digest_of_fd(&info->digest, fd, why);
	}
	if (!r && fstat(fd, &st))
		r = pool_fail(why, -errno, "packing the image");
	if (!r) {
		info->bytes = (uint64_t)st.st_size;
		info->created_ns = real_ns();
		step(pr, "storing the image", -1);
		r = image_store(p, tmp, name, info, why);
	}
	if (r < 0)
		FAULT(unlinkat(p->tmpfd, tmp, 0));
	return r;
}
