/* apt.c - see apt.h. */
#include "image/apt.h"

#include <dirent.h>
#include <stdio.h>

#include "base/fault.h"
#include "image/tool.h"

#define APT_ARGS 24

static bool made_of(struct str s, const char *chars)
{
	for (size_t i = 0; i < s.n; i++)
		if (!s.p[i] || !strchr(chars, s.p[i]))
			return false;
	return true;
}

bool apt_is_package(struct str s)
{
	static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.:";
	struct str name, version;

	if (s.n > 128)
		return false;
	if (str_cut(s, '=', &name, &version) &&
		(!version.n || !made_of(version, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvw"
						 "xyz0123456789+-.:~")))
		return false;
	return name.n >= 2 && made_of(name, lower) && !strchr("+-.:", name.p[0]);
}

int apt_begin(struct pool *p, struct apt *a, struct fail *why)
{
	memset(a, 0, sizeof(*a));
	a->pool = p;
	pool_tmpname(a->name, "apt-");
	snprintf(a->dir, sizeof(a->dir), "%s/%s", p->tmp, a->name);
	if (FAULT(mkdirat(p->tmpfd, a->name, 0700)))
		return pool_fail(why, -errno, "%s", a->dir);
	return 0;
}

void apt_end(struct apt *a)
{
	if (a->pool)
		FAULT_OURS(rm_rf(a->pool->tmpfd, a->name));
	a->pool = NULL;
}

struct ticking {
	const struct progress *pr;
	const char *what;
	struct buf *lines; /* may be NULL */
};

static void on_tick(void *arg)
{
	struct ticking *t = arg;

	step(t->pr, t->what, -1);
}

static void on_line(struct str line, void *arg)
{
	struct ticking *t = arg;

	if (t->lines && !buf_adds(t->lines, line))
		buf_addc(t->lines, '\n');
}

/* Runs an apt program with the options that keep it off the host's state. WORDS is NULL-terminated.
 */
static int apt_run(struct apt *a, const char *program, const char *const *words,
	struct ticking *tick, int timeout_s, struct fail *why)
{
	char lists[4400], cachedir[4400];
	const char *argv[APT_ARGS] = { program, "-q", "-o", "APT::Sandbox::User=root", "-o",
		"Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", cachedir };
	size_t n = 10;
	const struct tool t = { .argv = argv,
		.cwd = a->dir,
		.tmp = a->pool->tmp,
		.package = "apt",
		.timeout_s = timeout_s,
		.line = on_line,
		.tick = on_tick,
		.arg = tick };

	snprintf(cachedir, sizeof(cachedir), "Dir::Cache::archives=%s/archives", a->dir);
	if (a->own_lists) {
		snprintf(lists, sizeof(lists), "Dir::State::lists=%s/lists", a->dir);
		argv[n++] = "-o";
		argv[n++] = lists;
	}
	while (*words && n < APT_ARGS - 1)
		argv[n++] = *words++;
	argv[n] = NULL;
	return FAULT_WHY(why, tool_run(&t, why));
}

static int fetch_lists(struct apt *a, const struct progress *pr, struct fail *why)
{
	static const char *const words[] = { "update", "-o", "Acquire::Languages=none", NULL };
	struct ticking tick = { pr, "fetching package lists", NULL };
	char sub[64];

	snprintf(sub, sizeof(sub), "%s/lists", a->name);
	if (FAULT(mkdirat(a->pool->tmpfd, sub, 0700)) && errno != EEXIST)
		return pool_fail(why, -errno, "package lists");
	snprintf(sub, sizeof(sub), "%s/lists/partial", a->name);
	if (FAULT(mkdirat(a->pool->tmpfd, sub, 0700)) && errno != EEXIST)
		return pool_fail(why, -errno, "package lists");
	a->own_lists = true;
	step(pr, tick.what, -1);
	return apt_run(a, "apt-get", words, &tick, 600, why);
}

/* "  Depends: linux-image-6.1.0-57-cloud-amd64" */
static int pick_dependency(struct str text, const char *prefix, char out[128])
{
	struct str line, rest = text, key, value;
	bool more;

	do {
		more = str_cut(rest, '\n', &line, &rest);
		if (!str_cut(str_trim(line), ':', &key, &value))
			continue;
		if (!str_ends(key, "Depends"))
			continue;
		value = str_trim(value);
		if (str_starts(value, prefix) && apt_is_package(value))
			return str_copy(out, 128, value);
	} while (more);
	return -ENOENT;
}

int apt_dependency(struct apt *a, const char *package, const char *prefix,
	const struct progress *pr, char out[128], struct fail *why)
{
	const char *const words[] = { "depends", "--important", package, NULL };
	int r;

	for (int tries = 0;; tries++) {
		autobuf struct buf text = { 0 };
		struct ticking tick = { pr, "looking for the package", &text };

		buf_init(&text, 64 * KIB);
		r = apt_run(a, "apt-cache", words, &tick, 60, why);
		if (!r && !pick_dependency(buf_str(&text), prefix, out))
			return 0;
		if (r == -ENODEV)
			return r;
		if (tries || fetch_lists(a, pr, why) < 0)
			break;
	}
	fail_as(why, ERR_host_unsuitable, "the host's package archives have no %s", package);
	fail_remedy(why, "apt-get update; the archive of Debian 12 must be among apt's sources");
	return -ENODEV;
}

/* The one file of the directory that ends in .deb. */
static int find_deb(struct apt *a, char path[4400])
{
	DIR *d = opendir(a->dir);
	struct dirent *e;
	int r = -ENOENT;

	if (!d)
		return -errno;
	while ((e = readdir(d)))
		if (str_ends(str_of(e->d_name), ".deb")) {
			snprintf(path, 4400, "%s/%.99s", a->dir, e->d_name);
			r = 0;
		}
	closedir(d);
	return r;
}

int apt_download(struct apt *a, const char *package, const struct progress *pr, char path[4400],
	struct fail *why)
{
	const char *const words[] = { "download", package, NULL };
	struct ticking tick = { pr, "downloading the package", NULL };
	int r;

	r = apt_run(a, "apt-get", words, &tick, 1800, why);
	/* Lists that are weeks old name versions that the archive no longer has. */
	if (r < 0 && r != -ENODEV && r != -ENOSPC && !a->own_lists) {
		r = fetch_lists(a, pr, why);
		if (!r)
			r = apt_run(a, "apt-get", words, &tick, 1800, why);
	}
	if (!r && find_deb(a, path))
		r = fail_as(why, ERR_internal, "apt-get download %s left no package", package);
	return r;
}

int apt_sources(struct apt *a, const char *codename, const struct progress *pr, struct buf *out,
	struct fail *why)
{
	static const char format[] = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
	static const char keyring[] = "/usr/share/keyrings/debian-archive-keyring.gpg";
	static const char *const words[] = { "indextargets", "--format", format,
		"Created-By: Packages", "Origin: Debian", NULL };

	for (int tries = 0; tries < 2; tries++) {
		autobuf struct buf text = { 0 };
		struct ticking tick = { pr, "reading apt's sources", &text };
		struct str line, rest, uri, suite, component;
		bool more;
		int r;

		buf_init(&text, 64 * KIB);
		r = apt_run(a, "apt-get", words, &tick, 60, why);
		if (r < 0)
			return r;
		rest = buf_str(&text);
		do {
			more = str_cut(rest, '\n', &line, &rest);
			if (!str_cut(line, ' ', &uri, &suite) ||
				!str_cut(suite, ' ', &suite, &component))
				continue;
			/* bookworm, bookworm-updates, bookworm-security; no backports, no other
			 * release. */
			if (!str_starts(suite, codename) || str_ends(suite, "backports") ||
				str_ends(suite, "backports-sloppy"))
				continue;
			r = buf_addf(out,
				"deb [signed-by=%s] " STR_FMT " " STR_FMT " " STR_FMT "\n", keyring,
				STR_ARG(uri), STR_ARG(suite), STR_ARG(component));
			if (r < 0)
				return fail_set(why, r, "apt's sources: too many");
		} while (more);
		if (out->n)
			return 0;
		/* Without lists apt does not know whose archive a source is. */
		if (!tries && (r = fetch_lists(a, pr, why)) < 0)
			return r;
	}
	fail_as(why, ERR_host_unsuitable, "apt's sources have no archive of Debian %s", codename);
	fail_remedy(why, "add one to /etc/apt/sources.list and run apt-get update");
	return -ENODEV;
}

int apt_acquire_options(struct buf *out, struct fail *why)
{
	static const char *const argv[] = { "apt-config", "dump", "--no-empty", NULL };
	autobuf struct buf text = { 0 };
	struct ticking tick = { NULL, NULL, &text };
	const struct tool t = {
		.argv = argv, .package = "apt", .timeout_s = 30, .line = on_line, .arg = &tick
	};
	struct str line, rest;
	bool more;
	int r;

	buf_init(&text, 256 * KIB);
	r = FAULT_WHY(why, tool_run(&t, why));
	if (r < 0)
		return r;
	rest = buf_str(&text);
	do {
		more = str_cut(rest, '\n', &line, &rest);
		if (!str_starts(line, "Acquire::http") && !str_starts(line, "Acquire::Retries") &&
			!str_starts(line, "Acquire::ForceIPv"))
			continue;
		if (buf_adds(out, line) || buf_addc(out, '\n'))
			return fail_set(why, -ENOBUFS, "apt's options: too many");
	} while (more);
	return 0;
}
