/* cmd_cp.c - cp: files and trees, both ways.
 *
 * Trees go as one tar stream; this side's end of it is the system's tar. What comes out of a sandbox is hostile: it is
 * unpacked by GNU tar's own rules (no absolute names, no "..", no writing through links), without owners, without set-id
 * bits, and with CAP_MKNOD dropped, so that root on this machine gets no device and no setuid file. */
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <linux/capability.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/transfer.h"

static struct {
	const char *user, *mode;
	bool recursive, quiet;
} cp_o;

static const struct opt cp_opts[] = {
	{ "recursive", 'r', OPT_FLAG, offsetof(__typeof__(cp_o), recursive), NULL, "directories with all in them" },
	{ "user", 'u', OPT_STR, offsetof(__typeof__(cp_o), user), "NAME", "who owns it in the sandbox" },
	{ "mode", 0, OPT_STR, offsetof(__typeof__(cp_o), mode), "MODE", "its mode in the sandbox, such as 0755 (else: as here)" },
	{ "quiet", 'q', OPT_FLAG, offsetof(__typeof__(cp_o), quiet), NULL, "no summary" },
};

/* --- a place: "PATH", "-", or "ID:PATH" --- */
struct end {
	const char *id; /* NULL: this machine */
	char *path;
	bool is_dir, exists;
};

static int end_parse(char *word, struct end *e)
{
	char *colon = strchr(word, ':'), *slash = strchr(word, '/');

	if (!colon || (slash && slash < colon) || colon == word) {
		e->path = strdup(word);
		return 0;
	}
	*colon = 0;
	e->id = word;
	e->path = strdup(colon + 1);
	return 0;
}

/* A relative path in the sandbox begins where commands start. */
static int end_absolute(struct cli *c, struct end *e, struct fail *why)
{
	autofree char *target = api_path("/v1/sandboxes/%s/exec?wait=1", e->id);
	autojson json_t *out = NULL;
	char *full = NULL, *cwd;
	int r;

	if (e->path[0] == '/')
		return 0;
	r = api_call(c, "POST", target, json_pack("{s:[s]}", "cmd", "pwd"), &out, why);
	if (r < 0)
		return r;
	cwd = (char *)get_str(out, "stdout");
	if (cwd[0] != '/')
		return fail_here(why, -EINVAL, "\"%.80s\": give an absolute path in the sandbox", e->path);
	if (asprintf(&full, "%.*s/%s", (int)strcspn(cwd, "\n"), cwd, e->path) < 0)
		return fail_here(why, -ENOMEM, "out of memory");
	free(e->path);
	e->path = full;
	return 0;
}

static int end_stat(struct cli *c, struct end *e, struct fail *why)
{
	autofree char *target = NULL;
	autojson json_t *entry = NULL;
	struct stat st;
	int r;

	if (!e->id) {
		e->exists = strcmp(e->path, "-") && stat(e->path, &st) == 0;
		e->is_dir = e->exists && S_ISDIR(st.st_mode);
		return 0;
	}
	r = end_absolute(c, e, why);
	if (r < 0)
		return r;
	target = api_path("/v1/sandboxes/%s/files/%P?stat=1", e->id, e->path + 1);
	r = api_call(c, "GET", target, NULL, &entry, why);
	if (r < 0 && why->code == ERR_file_not_found)
		return 0;
	if (r < 0)
		return r;
	e->exists = true;
	e->is_dir = !strcmp(get_str(entry, "type"), "directory");
	/* A link to a directory is one, as for cp. */
	if (!strcmp(get_str(entry, "type"), "symlink") && *get_str(entry, "target")) {
		autofree char *slash = api_path("/v1/sandboxes/%s/files/%P/?stat=1", e->id, e->path + 1);
		autojson json_t *there = NULL;

		if (api_call(c, "GET", slash, NULL, &there, NULL) == 0)
			e->is_dir = !strcmp(get_str(there, "type"), "directory");
	}
	return 0;
}

static const char *last_component(const char *path)
{
	static char copy[4096];

	snprintf(copy, sizeof(copy), "%s", path);
	return basename(copy);
}

/* "DIR" and "FILE" as "DIR/FILE". */
static int end_enter(struct end *e, const char *name, struct fail *why)
{
	char *full = NULL;
	size_t n = strlen(e->path);

	if (asprintf(&full, "%s%s%s", e->path, n && e->path[n - 1] == '/' ? "" : "/", name) < 0)
		return fail_here(why, -ENOMEM, "out of memory");
	free(e->path);
	e->path = full;
	return 0;
}

static bool ends_in_slash(const char *path)
{
	size_t n = strlen(path);

	return n > 1 && path[n - 1] == '/';
}

static void summary(struct cli *c, const char *from, const char *to, uint64_t bytes, int64_t began_ms, double files)
{
	char size[AGO_LEN], rate[AGO_LEN];
	double s = (double)(mono_ms() - began_ms) / 1000;

	if (c->json) {
		autojson json_t *j = json_pack("{s:s,s:s,s:I,s:f}", "from", from, "to", to, "bytes", (json_int_t)bytes, "seconds", s);

		if (files >= 0)
			json_object_set_new(j, "files", json_integer((json_int_t)files));
		json_print(c, j);
	} else if (!cp_o.quiet && c->err_tty) {
		cli_note(c, "%s in %.1f s (%s/s)", size_text(size, (double)bytes), s,
			size_text(rate, s > 0 ? (double)bytes / s : 0));
	}
}

/* --- one file, up --- */
static int put_file(struct cli *c, const struct end *from, struct end *to, struct fail *why)
{
	bool is_stdin = !strcmp(from->path, "-");
	autofree char *target = NULL;
	autoclose int fd = -1;
	struct transfer t = { .method = "PUT", .length = -1, .what = "copying" };
	int64_t began = mono_ms();
	struct stat st = { .st_mode = 0644 };
	char mode[16];
	int r;

	if (!is_stdin) {
		fd = open(from->path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			return fail_here(why, -errno, "%.180s: %s", from->path, strerror(errno));
		if (S_ISREG(st.st_mode))
			t.length = st.st_size;
	}
	if (to->is_dir || ends_in_slash(to->path)) {
		if (is_stdin)
			return fail_here(why, -EISDIR, "%s is a directory: name the file that stdin becomes", to->path);
		r = end_enter(to, last_component(from->path), why);
		if (r < 0)
			return r;
	}
	snprintf(mode, sizeof(mode), "%04o", (unsigned)st.st_mode & 0777);
	target = cp_o.user ? api_path("/v1/sandboxes/%s/files/%P?mode=%q&user=%q", to->id, to->path + 1, cp_o.mode ? cp_o.mode : mode,
				     cp_o.user) :
			     api_path("/v1/sandboxes/%s/files/%P?mode=%q", to->id, to->path + 1, cp_o.mode ? cp_o.mode : mode);
	t.target = target;
	t.fd = is_stdin ? 0 : fd;
	r = transfer_run(c, &t, why);
	json_decref(t.answer);
	if (r == 0)
		summary(c, from->path, to->path, t.bytes, began, -1);
	return r;
}

/* --- one file, down --- */
struct get {
	char *tmp, *path; /* written under TMP, renamed to PATH */
	mode_t mode;
	struct timespec mtime;
	bool to_stdout;
};

static int get_head(struct transfer *t, const struct http_head *h, void *arg, struct fail *why)
{
	struct get *g = arg;
	struct str mode = http_get(h, "X-Space-Mode"), mtime = http_get(h, "X-Space-Mtime");
	char octal[16];
	int64_t ns;

	if (mode.n && str_copy(octal, sizeof(octal), mode) == 0)
		g->mode = (mode_t)strtoul(octal, NULL, 8) & 0777;
	if (rfc3339_parse(mtime, &ns) == 0)
		g->mtime = (struct timespec){ ns / NS_PER_S, ns % NS_PER_S };
	if (g->to_stdout) {
		t->fd = 1;
		return 0;
	}
	t->fd = open(g->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (t->fd < 0)
		return fail_here(why, -errno, "%.180s: %s", g->tmp, strerror(errno));
	return 0;
}

static int get_finish(struct get *g, int fd, struct fail *why)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, g->mtime };
	struct stat st;

	/* What is no plain file (a terminal, /dev/null) cannot be replaced and was asked to be written to. */
	if (fchmod(fd, g->mode) < 0 || (g->mtime.tv_sec && futimens(fd, times) < 0))
		return fail_here(why, -errno, "%.180s: %s", g->tmp, strerror(errno));
	if (lstat(g->path, &st) == 0 && S_ISDIR(st.st_mode))
		return fail_here(why, -EISDIR, "%.180s is a directory", g->path);
	if (rename(g->tmp, g->path) < 0)
		return fail_here(why, -errno, "%.180s: %s", g->path, strerror(errno));
	return 0;
}

static int get_file(struct cli *c, const struct end *from, struct end *to, struct fail *why)
{
	autofree char *target = api_path("/v1/sandboxes/%s/files/%P", from->id, from->path + 1);
	struct get g = { .mode = 0644, .to_stdout = !strcmp(to->path, "-") };
	struct transfer t = { .method = "GET", .fd = -1, .target = target, .what = "copying", .at_head = get_head, .arg = &g };
	autofree char *tmp = NULL;
	int64_t began = mono_ms();
	struct stat st;
	int r;

	if (to->is_dir || ends_in_slash(to->path)) {
		r = end_enter(to, last_component(from->path), why);
		if (r < 0)
			return r;
	}
	if (!g.to_stdout && stat(to->path, &st) == 0 && !S_ISREG(st.st_mode)) {
		g.to_stdout = true; /* a device or a pipe: written, not replaced */
		t.fd = open(to->path, O_WRONLY | O_CLOEXEC);
		if (t.fd < 0 || dup2(t.fd, 1) < 0)
			return fail_here(why, -errno, "%.180s: %s", to->path, strerror(errno));
	}
	if (asprintf(&tmp, "%s.space-%d", to->path, (int)getpid()) < 0)
		return fail_here(why, -ENOMEM, "out of memory");
	g.tmp = tmp;
	g.path = to->path;
	r = transfer_run(c, &t, why);
	if (r == 0 && !g.to_stdout)
		r = get_finish(&g, t.fd, why);
	if (r < 0 && !g.to_stdout && t.fd >= 0)
		unlink(tmp);
	if (t.fd > 2)
		close(t.fd);
	if (r == 0 && !(g.to_stdout && c->json))
		summary(c, from->path, to->path, t.bytes, began, -1);
	return r;
}

/* --- trees --- */
struct child {
	pid_t pid;
	bool reading; /* it makes an archive */
};

static int child_wait(struct child *t, struct fail *why)
{
	int status;

	if (!t->pid)
		return 0;
	while (waitpid(t->pid, &status, 0) < 0)
		if (errno != EINTR)
			return fail_here(why, -errno, "waiting for tar: %s", strerror(errno));
	t->pid = 0;
	/* 1: something changed while it was read, which tar has said. */
	if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || (t->reading && WEXITSTATUS(status) == 1)))
		return 0;
	return fail_here(why, -EIO, "tar on this machine failed; its own words are above");
}

static int child_at_end(void *arg, struct fail *why)
{
	return child_wait(arg, why);
}

/* Starts tar with one end of a pipe at FD_THERE (0 or 1); returns our end. */
static int child_start(struct child *t, char *const argv[], int fd_there, struct fail *why)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return fail_here(why, -errno, "pipe: %s", strerror(errno));
	fcntl(p[0], F_SETPIPE_SZ, 1 << 20); /* fewer changes between the two of us; refused is fine */
	t->pid = fork();
	if (t->pid < 0) {
		close(p[0]);
		close(p[1]);
		return fail_here(why, -errno, "fork: %s", strerror(errno));
	}
	if (t->pid == 0) {
		dup2(p[fd_there], fd_there);
		signal(SIGPIPE, SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fd_there == 0) {
			prctl(PR_CAPBSET_DROP, CAP_MKNOD, 0, 0, 0);
			prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
			umask(0); /* the archive's modes; --no-same-permissions takes the set-id bits off */
		}
		execvp("tar", argv);
		dprintf(2, "space: tar: %s\n", strerror(errno));
		_exit(127);
	}
	close(p[fd_there]);
	return p[!fd_there];
}

/* "dir", "dir/", "dir/.": the last takes what is in it. */
static bool names_contents(const char *path)
{
	size_t n = strlen(path);

	return !strcmp(path, ".") || (n >= 2 && !strcmp(path + n - 2, "/."));
}

static int put_tree(struct cli *c, const struct end *from, struct end *to, struct fail *why)
{
	autofree char *real = realpath(from->path, NULL);
	autofree char *target = NULL;
	struct child tar = { .reading = true };
	struct transfer t = { .method = "PUT", .length = -1, .what = "copying", .at_end = child_at_end, .arg = &tar };
	/* Into a directory that exists goes the tree with its name; else the tree becomes the directory. */
	bool named = to->is_dir && !names_contents(from->path);
	char *const argv[] = { "tar", "--create", "--format=posix", "--pax-option=delete=atime,delete=ctime", "-C", NULL,
		"--", NULL, NULL };
	char *words[ARRAY_LEN(argv)];
	int64_t began = mono_ms();
	int r;

	if (!real)
		return fail_here(why, -errno, "%.180s: %s", from->path, strerror(errno));
	memcpy(words, argv, sizeof(words));
	if (named) {
		char *slash = strrchr(real, '/');

		words[7] = slash[1] ? slash + 1 : (char *)".";
		*slash = 0;
		words[5] = *real ? real : (char *)"/";
	} else {
		words[5] = real;
		words[7] = (char *)".";
	}
	target = cp_o.user ? api_path("/v1/sandboxes/%s/tar/%P?user=%q", to->id, to->path + 1, cp_o.user) :
			     api_path("/v1/sandboxes/%s/tar/%P", to->id, to->path + 1);
	t.target = target;
	t.fd = child_start(&tar, words, 1, why);
	if (t.fd < 0)
		return t.fd;
	r = transfer_run(c, &t, why);
	close(t.fd);
	if (r < 0 && tar.pid)
		kill(tar.pid, SIGKILL);
	child_wait(&tar, NULL);
	if (r == 0)
		summary(c, from->path, to->path, t.bytes, began, get_num(t.answer, "files"));
	json_decref(t.answer);
	return r;
}

static int get_tree(struct cli *c, const struct end *from, struct end *to, struct fail *why)
{
	autofree char *target = api_path("/v1/sandboxes/%s/tar/%P", from->id, from->path + 1);
	struct transfer t = { .method = "GET", .target = target, .what = "copying" };
	struct child tar = { 0 };
	bool named = to->is_dir && !names_contents(from->path);
	char *const argv[] = { "tar", "--extract", "--no-same-owner", "--no-same-permissions", "-C", to->path,
		named ? NULL : "--strip-components=1", NULL };
	int64_t began = mono_ms();
	bool made = false;
	struct fail mine = { 0 };
	int r;

	if (!to->is_dir) {
		if (to->exists)
			return fail_here(why, -ENOTDIR, "%.180s is not a directory", to->path);
		if (mkdir(to->path, 0777) < 0)
			return fail_here(why, -errno, "%.180s: %s", to->path, strerror(errno));
		made = true;
	}
	t.fd = child_start(&tar, argv, 0, why);
	if (t.fd < 0)
		return t.fd;
	r = transfer_run(c, &t, why);
	if (r < 0 && why->err != -EPIPE)
		kill(tar.pid, SIGKILL);
	close(t.fd);
	/* When tar ended early it has said why, which is more than that the pipe broke. */
	if (child_wait(&tar, &mine) < 0 && (r == 0 || why->err == -EPIPE)) {
		*why = mine;
		r = mine.err;
	}
	if (r < 0 && made)
		rmdir(to->path); /* succeeds only if nothing came */
	if (r == 0)
		summary(c, from->path, to->path, t.bytes, began, -1);
	return r;
}

/* --- the command --- */
static int copy(struct cli *c, struct end *from, struct end *to, struct fail *why)
{
	int r = end_stat(c, from, why);

	if (r == 0)
		r = end_stat(c, to, why);
	if (r < 0)
		return r;
	if (!from->exists && strcmp(from->path, "-")) {
		fail_as(why, ERR_file_not_found, "no file %.180s %s", from->path, from->id ? "in the sandbox" : "on this machine");
		why->remedy[0] = 0;
		return why->err;
	}
	if (from->is_dir && !cp_o.recursive) {
		fail_here(why, -EISDIR, "%.180s is a directory", from->path);
		fail_remedy(why, "space cp -r");
		return -EISDIR;
	}
	if (to->id)
		return from->is_dir ? put_tree(c, from, to, why) : put_file(c, from, to, why);
	return from->is_dir ? get_tree(c, from, to, why) : get_file(c, from, to, why);
}

static int cp_run(struct cli *c, int argc, char **argv)
{
	struct end to = { 0 };
	struct fail why = { 0 };
	int status = EXIT_OK;

	end_parse(argv[argc - 1], &to);
	for (int i = 0; i < argc - 1; i++) {
		struct end from = { 0 }, into = { .id = to.id, .path = strdup(to.path) };

		end_parse(argv[i], &from);
		c->subject = to.id ? to.id : from.id;
		if (!from.id == !to.id)
			return cli_usage(c, "cp: one side is a sandbox (ID:PATH), the other this machine");
		if (argc > 2 && end_stat(c, &into, &why) == 0 && !into.is_dir)
			return cli_usage(c, "cp: several sources need a directory to go to, and %s is none", into.path);
		if (copy(c, &from, &into, &why) < 0)
			status = cli_fail(c, &why);
		free(from.path);
		free(into.path);
	}
	free(to.path);
	return status;
}

const struct command command_cp = {
	.name = "cp",
	.args = "FROM… TO",
	.brief = "Copy files and directories between this machine and a sandbox",
	.detail = "One side is ID:PATH. '-' is stdin or stdout. A relative path in the sandbox begins at the directory where\n"
		  "commands start. Directories need -r; DIR/. copies what is in DIR. A file that is replaced stays whole until the\n"
		  "new one is. What comes out of a sandbox loses owners, set-id bits and devices.",
	.examples = "  space cp data.csv $id:/home/user/\n"
		    "  space cp $id:results.json .\n"
		    "  space cp -r src $id:/home/user/src\n"
		    "  pg_dump db | space cp - $id:/tmp/db.sql",
	.run = cp_run,
	OPTS(cp_opts, cp_o),
	.stop_after = -1,
	.min = 2,
	.max = 64,
};
