/* debian.c - images out of Debian packages, by mmdebstrap with the host's own sources, keys and
 * proxies.
 *
 * mmdebstrap runs in namespaces of its own: what it mounts in the new root is gone with it, however
 * it ends. Manual pages, translations and documentation (but not the copyright files) are left out,
 * now and by later apt runs inside. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "image/apt.h"
#include "image/images.h"
#include "image/rootfs.h"
#include "image/tool.h"

#define CODENAME "bookworm"
#define PACKAGES_MAX 1000

/* In every image: what the tools of a sandbox lean on. */
static const char *const common[] = { "ca-certificates", "sudo", "procps", "iproute2" };

/* In the image that is built when no packages are named. */
static const char *const base[] = {
	"bash",
	"coreutils",
	"python3",
	"python-is-python3",
	"python3-pip",
	"python3-venv",
	"nodejs",
	"git",
	"curl",
	"ncurses-bin",
	"less",
	"tzdata",
	"iptables",
};

static const char *const dpkg_options[] = {
	"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*",
	"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/lintian/*",
	"--dpkgopt=path-exclude=/usr/share/doc/*",
	"--dpkgopt=path-include=/usr/share/doc/*/copyright",
	"--dpkgopt=force-unsafe-io", /* a sandbox's root is a clone: there is nothing that a power
					cut could lose */
};

/* What mmdebstrap says, and what it means for whoever waits. `done` is where the phase begins. */
static const struct phase {
	const char *says, *step;
	double done, span;
} phases[] = {
	{ "running apt-get update", "fetching package lists", 0.00, 0 },
	{ "downloading packages", "downloading packages", 0.05, 0 },
	{ "extracting archives", "unpacking packages", 0.15, 0 },
	{ "installing essential packages", "installing packages", 0.20, 0.65 },
	{ "installing remaining packages", "installing packages", 0.20, 0.65 },
	{ "cleaning package lists", "cleaning up", 0.85, 0 },
};

struct building {
	const struct progress *pr;
	const struct phase *phase;
	int rootfd;
	size_t total; /* packages downloaded */
};

static size_t count_debs(int rootfd)
{
	int fd = dir_open(rootfd, "var/cache/apt/archives");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	size_t n = 0;

	while (d && (e = readdir(d)))
		n += str_ends(str_of(e->d_name), ".deb");
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return n;
}

static size_t count_installed(int rootfd)
{
	autofree char *text = NULL;
	size_t n = 0;

	if (file_read(rootfd, "var/lib/dpkg/status", &text, 16 * MIB) < 0)
		return 0;
	for (const char *s = text; (s = strstr(s, "\nStatus: install ok installed\n")); s++)
		n++;
	return n;
}

static void on_tick(void *arg)
{
	struct building *b = arg;
	double done;

	if (!b->phase) {
		step(b->pr, phases[0].step, -1);
		return;
	}
	done = b->phase->done;
	if (b->phase->span > 0) {
		size_t here = count_debs(b->rootfd);

		b->total = MAX(b->total, here);
		if (b->total)
			done += b->phase->span * (double)MIN(count_installed(b->rootfd), b->total) /
				(double)b->total;
	}
	step(b->pr, b->phase->step, done);
}

static void on_line(struct str line, void *arg)
{
	struct building *b = arg;

	for (size_t i = 0; i < ARRAY_LEN(phases); i++)
		if (memmem(line.p, line.n, phases[i].says, strlen(phases[i].says))) {
			b->phase = &phases[i];
			on_tick(b);
			return;
		}
}

/* "--include=a,b,c" */
static int include_option(struct buf *out, const char *const *packages, size_t n, struct fail *why)
{
	int r = buf_addz(out, "--include=");

	for (size_t i = 0; !r && i < ARRAY_LEN(common); i++)
		r = buf_addf(out, "%s,", common[i]);
	for (size_t i = 0; !r && i < n; i++) {
		if (!apt_is_package(str_of(packages[i])))
			return fail_as(why, ERR_bad_request,
				"\"%.80s\" is no name of a Debian package", packages[i]);
		r = buf_addf(out, "%s%s", packages[i], i + 1 < n ? "," : "");
	}
	if (!r)
		r = buf_addc(out, 0);
	return r < 0 ? fail_set(why, r, "too many packages") : 0;
}

static int put(int dirfd_, const char *name, const struct buf *text, struct fail *why)
{
	int r = FAULT_OURS(file_write_atomic(dirfd_, name, text->p ? text->p : "", text->n, 0644));

	return r < 0 ? pool_fail(why, r, "writing %s", name) : 0;
}

/* sources.list and apt.conf for mmdebstrap, in DIR. */
static int write_inputs(struct apt *apt, int dir, const struct progress *pr, struct fail *why)
{
	autobuf struct buf sources = { 0 }, options = { 0 };
	int r;

	buf_init(&sources, 64 * KIB);
	buf_init(&options, 64 * KIB);
	r = apt_sources(apt, CODENAME, pr, &sources, why);
	if (!r)
		r = apt_acquire_options(&options, why);
	if (!r && buf_addz(&options, "Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n"))
		r = fail_set(why, -ENOBUFS, "apt's options: too many");
	if (!r)
		r = put(dir, "sources.list", &sources, why);
	return r ? r : put(dir, "apt.conf", &options, why);
}

/* A package that does not exist is the asker's mistake, not ours: mmdebstrap's words name it. */
static void blame(struct fail *why)
{
	const char *at = why ? strstr(why->msg, "Unable to locate package") : NULL;
	char copy[160];

	if (!at)
		return;
	snprintf(copy, sizeof(copy), "%.150s", at);
	fail_as(why, ERR_bad_request, "%s", copy);
	fail_remedy(why, "apt-cache search WORD finds the names of Debian's packages");
}

static int bootstrap(const struct apt *apt, const char *root, const char *include,
	struct building *b, struct fail *why)
{
	char sources[4400], options[4400];
	const char *argv[40] = { "mmdebstrap", "--mode=root", "--variant=minbase",
		"--format=directory", "--architectures=amd64", options, include };
	size_t n = 7;
	const struct tool t = { .argv = argv,
		.tmp = apt->pool->tmp,
		.package = "mmdebstrap",
		.isolate = true,
		.timeout_s = 3600,
		.line = on_line,
		.tick = on_tick,
		.arg = b };
	int r;

	snprintf(sources, sizeof(sources), "%s/sources.list", apt->dir);
	snprintf(options, sizeof(options), "--aptopt=%s/apt.conf", apt->dir);
	for (size_t i = 0; i < ARRAY_LEN(dpkg_options); i++)
		argv[n++] = dpkg_options[i];
	argv[n++] = CODENAME;
	argv[n++] = root;
	argv[n++] = sources;
	argv[n] = NULL;
	step(b->pr, phases[0].step, -1);
	r = FAULT_WHY(why, tool_run(&t, why));
	if (r < 0)
		blame(why);
	return r < 0 && why ? why->err : r;
}

static void describe(struct image_info *i)
{
	memset(i, 0, sizeof(*i));
	snprintf(i->user, sizeof(i->user), ROOTFS_USER);
	snprintf(i->workdir, sizeof(i->workdir), "/home/" ROOTFS_USER);
	i->env = json_pack("{s:s,s:s}", "PATH",
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/home/" ROOTFS_USER
		"/.local/bin",
		"LANG", "C.UTF-8");
}

static int build(struct pool *p, const char *name, const char *include, const struct progress *pr,
	struct image_info *info, struct fail *why)
{
	struct building b = { .pr = pr, .rootfd = -1 };
	struct apt apt = { 0 };
	struct tree tree;
	autoclose int dir = -1;
	int r;

	r = tree_begin(p, "root-", &tree, why);
	if (r < 0)
		return r;
	b.rootfd = tree.fd;
	r = apt_begin(p, &apt, why);
	if (!r) {
		dir = dir_open(p->tmpfd, apt.name);
		r = dir < 0 ? pool_fail(why, dir, "pool/tmp/%s", apt.name)
			    : write_inputs(&apt, dir, pr, why);
	}
	if (!r)
		r = bootstrap(&apt, tree.path, include, &b, why);
	if (!r)
		r = rootfs_finish(tree.fd, why);
	if (!r) {
		describe(info);
		r = image_pack(p, name, tree.path, tree.began_ns, pr, info, why);
		if (r < 0)
			image_info_clear(info);
	}
	step(pr, "cleaning up", -1);
	apt_end(&apt);
	tree_end(&tree);
	return r;
}

int image_build_debian(struct pool *p, const char *name, const char *const *packages, size_t n,
	const struct progress *pr, struct image_info *out, struct fail *why)
{
	autobuf struct buf include = { 0 };
	struct image_info info;
	int r;

	buf_init(&include, 128 * KIB);
	r = image_name_check(name, why);
	if (!r && n > PACKAGES_MAX)
		r = fail_as(why, ERR_bad_request, "packages: at most %d", PACKAGES_MAX);
	if (!r)
		r = include_option(&include, n ? packages : base, n ? n : ARRAY_LEN(base), why);
	if (!r)
		r = build(p, name, include.p, pr, &info, why);
	if (!r)
		*out = info;
	return r;
}
