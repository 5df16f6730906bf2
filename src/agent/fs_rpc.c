/* fs_rpc.c - filesystem.Filesystem's unary calls. Each is a blocking function on a worker thread
 * with its own copy of the request; they act as root, and give what they make to the user of the
 * call. */
#include "agent/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/job.h"

#define ANSWER_MAX (64 * 1024 * 1024)
#define DEPTH_MAX 64

struct fs_call {
	struct http_exchange *x; /* NULL: the client has gone */
	bool over;		 /* the job has ended */
	int (*fn)(struct fs_call *c);
	struct user user;
	char path[PATH_LEN], dest[PATH_LEN];
	unsigned depth;
	struct names names;
	struct buf out;
	struct jw w;
	enum rpc_code code;
	char msg[PATH_LEN + 128];
};

static void call_free(struct fs_call *c)
{
	names_clear(&c->names);
	buf_clear(&c->out);
	free(c);
}

static int job(void *arg, struct fail *why)
{
	struct fs_call *c = arg;

	(void)c->fn(c);
	return 0;
}

static void job_done(void *arg, const struct fail *why)
{
	struct fs_call *c = arg;

	c->over = true;
	if (!c->x) {
		call_free(c);
		return;
	}
	if (c->code == RPC_OK && c->w.err) {
		c->code = RPC_RESOURCE_EXHAUSTED;
		snprintf(c->msg, sizeof(c->msg), "the answer is larger than %d MiB",
			ANSWER_MAX >> 20);
	}
	if (c->code != RPC_OK)
		rpc_fail(c->x, false, c->code, "%s", c->msg);
	else
		rpc_reply(c->x, &c->out);
}

static void gone(struct http_exchange *x, int err, void *arg)
{
	struct fs_call *c = arg;

	c->x = NULL;
	if (c->over)
		call_free(c);
}

static void call_start(struct rpc *r, struct fs_call *c, int (*fn)(struct fs_call *c))
{
	c->fn = fn;
	c->x = r->x;
	buf_init(&c->out, ANSWER_MAX);
	jw_init(&c->w, &c->out);
	http_on_close(r->x, gone, c);
	if (job_run(agent.loop, NULL, job, job_done, c) < 0) {
		c->over = true;
		rpc_fail(r->x, false, RPC_RESOURCE_EXHAUSTED, "out of memory");
	}
}

/* The call with its user and the path in member NAME. NULL: it has been answered. */
static struct fs_call *call_new(struct rpc *r, const char *name)
{
	struct fs_call *c = calloc(1, sizeof(*c));

	if (!c) {
		rpc_fail(r->x, false, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	if (rpc_user(r, &c->user) < 0 || rpc_path(r, name, &c->user, c->path) < 0) {
		free(c);
		return NULL;
	}
	return c;
}

PRINTF(3, 4) static int refuse(struct fs_call *c, enum rpc_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->msg, sizeof(c->msg), fmt, ap);
	va_end(ap);
	c->code = code;
	return -1;
}

static int refuse_errno(struct fs_call *c, const char *what, int err)
{
	return refuse(c, errno_code(err), "%s: %s", what, errno_words(err));
}

static int answer_entry(struct fs_call *c, const char *path)
{
	int r;

	jw_obj(&c->w, NULL);
	r = entry_write(&c->w, "entry", path, &c->names);
	jw_obj_end(&c->w);
	if (r == -ENOENT || r == -ENOTDIR)
		return refuse(c, RPC_NOT_FOUND, "file not found: %s", path);
	return r < 0 ? refuse_errno(c, path, -r) : 0;
}

static int do_stat(struct fs_call *c)
{
	return answer_entry(c, c->path);
}

void rpc_stat(struct rpc *r)
{
	struct fs_call *c = call_new(r, "path");

	if (c)
		call_start(r, c, do_stat);
}

static int do_make_dir(struct fs_call *c)
{
	struct stat st;
	int r;

	if (stat(c->path, &st) == 0)
		return S_ISDIR(st.st_mode)
			       ? refuse(c, RPC_ALREADY_EXISTS, "directory already exists: %s",
					 c->path)
			       : refuse(c, RPC_INVALID_ARGUMENT,
					 "path already exists but it is not a directory: %s",
					 c->path);
	r = mkdirs(c->path, c->user.uid, c->user.gid);
	return r < 0 ? refuse_errno(c, c->path, -r) : answer_entry(c, c->path);
}

void rpc_make_dir(struct rpc *r)
{
	struct fs_call *c = call_new(r, "path");

	if (c)
		call_start(r, c, do_make_dir);
}

static int do_move(struct fs_call *c)
{
	char dir[PATH_LEN];
	struct stat st;
	int r;

	if (lstat(c->path, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? refuse(c, RPC_NOT_FOUND, "source file not found: %s", c->path)
			       : refuse_errno(c, c->path, errno);
	strcpy(dir, c->dest);
	dir[path_dir_len(dir)] = '\0';
	r = mkdirs(dir, c->user.uid, c->user.gid);
	if (r < 0)
		return refuse_errno(c, c->dest, -r);
	if (rename(c->path, c->dest) < 0)
		return refuse(c, errno_code(errno), "cannot move %s to %s: %s", c->path, c->dest,
			errno == EINVAL ? "a directory cannot go into itself"
					: errno_words(errno));
	return answer_entry(c, c->dest);
}

void rpc_move(struct rpc *r)
{
	struct fs_call *c = call_new(r, "source");

	if (!c)
		return;
	if (rpc_path(r, "destination", &c->user, c->dest) < 0)
		free(c);
	else
		call_start(r, c, do_move);
}

/* Entries of one directory in the order of their names; NULL at the end of *LIST. */
static int names_of(const char *path, char ***list, size_t *n)
{
	DIR *d = opendir(path);
	struct dirent *e;
	size_t cap = 0;

	*list = NULL;
	*n = 0;
	if (!d)
		return -errno;
	while ((e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (*n == cap) {
			char **p = realloc(*list, (cap = cap ? cap * 2 : 64) * sizeof(*p));

			if (!p)
				break;
			*list = p;
		}
		(*list)[*n] = strdup(e->d_name);
		if (!(*list)[*n])
			break;
		(*n)++;
	}
	closedir(d);
	if (e) {
		for (size_t i = 0; i < *n; i++)
			free((*list)[i]);
		free(*list);
		return -ENOMEM;
	}
	if (*n > 0)
		qsort(*list, *n, sizeof(**list), str_ptrcmp);
	return 0;
}

/* Pre-order; what vanishes meanwhile is left out. PATH holds the directory's path and is as before
 * on return. */
static int list_below(struct fs_call *c, char path[PATH_LEN], unsigned depth)
{
	size_t len = strlen(path), n;
	char **list;
	int r = names_of(path, &list, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct stat st;

		if (r == 0 && !c->w.err &&
			(size_t)snprintf(path + len, PATH_LEN - len, "%s%s",
				len > 0 && path[len - 1] == '/' ? "" : "/",
				list[i]) < PATH_LEN - len &&
			entry_write(&c->w, NULL, path, &c->names) == 0 && depth > 1 &&
			lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
			r = list_below(c, path, depth - 1);
			if (r != -ENOMEM)
				r = 0;
		}
		path[len] = '\0';
		free(list[i]);
	}
	free(list);
	return r;
}

static int do_list_dir(struct fs_call *c)
{
	struct stat st;
	int r;

	if (stat(c->path, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? refuse(c, RPC_NOT_FOUND, "directory not found: %s", c->path)
			       : refuse_errno(c, c->path, errno);
	if (!S_ISDIR(st.st_mode))
		return refuse(c, RPC_INVALID_ARGUMENT, "path is not a directory: %s", c->path);
	jw_obj(&c->w, NULL);
	jw_arr(&c->w, "entries");
	r = list_below(c, c->path, c->depth);
	jw_arr_end(&c->w);
	jw_obj_end(&c->w);
	return r < 0 ? refuse_errno(c, c->path, -r) : 0;
}

void rpc_list_dir(struct rpc *r)
{
	int64_t depth = 1;
	struct fs_call *c;

	if (msg_int(r->req, "depth", 0, UINT32_MAX, &depth) < 0) {
		rpc_fail(r->x, false, RPC_INVALID_ARGUMENT, "depth: a whole number from 0");
		return;
	}
	c = call_new(r, "path");
	if (!c)
		return;
	c->depth = (unsigned)MIN(MAX(depth, 1), DEPTH_MAX);
	call_start(r, c, do_list_dir);
}

static int do_remove(struct fs_call *c)
{
	struct stat st, root;
	int r;

	for (size_t n = strlen(c->path); n > 1 && c->path[n - 1] == '/'; n--)
		c->path[n - 1] = '\0'; /* the link itself, not what it leads to */
	if (lstat(c->path, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : refuse_errno(c, c->path, errno);
	if (stat("/", &root) == 0 && st.st_dev == root.st_dev && st.st_ino == root.st_ino)
		return refuse(c, RPC_INVALID_ARGUMENT, "the root directory cannot be removed");
	r = rm_rf(AT_FDCWD, c->path);
	return r < 0 && r != -ENOENT
		       ? refuse(c, errno_code(-r), "cannot remove %s: %s", c->path,
				 errno_words(-r))
		       : 0;
}

void rpc_remove(struct rpc *r)
{
	struct fs_call *c = call_new(r, "path");

	if (c)
		call_start(r, c, do_remove);
}
