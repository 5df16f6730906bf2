/* file_put.c - PUT /space/file: a file is replaced as a whole or not at all. And POST
 * /files/compose. */
#define OPENSSL_SUPPRESS_DEPRECATED /* see sign.c */
#include "agent/agent.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <sys/stat.h>

#include "agent/fs.h"
#include "agent/xfer.h"
#include "base/file.h"
#include "base/random.h"

#define PIECE (64 * 1024)
#define NOT_REGULAR (-ENOTBLK) /* no file system's own */

struct put_call {
	struct user user;
	char path[PATH_LEN];
	int64_t mode; /* -1: as it was, or 0644 */
};

struct temp {
	int fd, dir;
	char name[64];
};

static int put_error(struct xfer *t, const char *path, int err)
{
	if (err == -ENOSPC || err == -EDQUOT)
		xfer_error(t, 507, "not enough disk space available: %s", path);
	else if (err == -EISDIR)
		xfer_error(t, 400, "path is a directory: %s", path);
	else if (err == NOT_REGULAR)
		xfer_error(t, 400, "path is not a regular file, and stays as it is: %s", path);
	else if (err == -ENOENT) /* parents are made: this is no place for files (/proc) */
		xfer_error(t, 400, "%s: no file can be made there", path);
	else if (err != -EPIPE && err != -EBADMSG && err != -ETIMEDOUT)
		xfer_error(t, errno_status(-err), "%s: %s", path, errno_words(-err));
	return err;
}

/* Only regular files are replaced: never a device, a pipe or a socket that programs have open. */
static int replaceable(const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		return -EISDIR;
	return S_ISREG(st->st_mode) || S_ISLNK(st->st_mode) ? 0 : NOT_REGULAR;
}

/* A link is written through, as a shell's ">" does: the file that it leads to is replaced. One that
 * leads to nothing is replaced itself. 0, or what is there must not be replaced. */
static int through_link(char path[PATH_LEN])
{
	autofree char *real = NULL;
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	if (S_ISLNK(st.st_mode)) {
		real = realpath(path, NULL);
		if (!real)
			return errno == ENOENT ? 0 : -errno;
		if (str_copy(path, PATH_LEN, str_of(real)) < 0)
			return -ENAMETOOLONG;
		if (lstat(path, &st) < 0)
			return 0;
	}
	return replaceable(&st);
}

static int temp_open(struct temp *tmp, const char *path, const struct user *u)
{
	char dir[PATH_LEN], rnd[ID_LEN + 1];
	int r;

	strcpy(dir, path);
	dir[path_dir_len(dir)] = '\0';
	r = mkdirs(dir, u->uid, u->gid);
	if (r < 0)
		return r;
	tmp->dir = dir_open(AT_FDCWD, dir);
	if (tmp->dir < 0)
		return tmp->dir;
	id_make(rnd, 't');
	snprintf(tmp->name, sizeof(tmp->name), ".space-%s", rnd);
	tmp->fd = openat(tmp->dir, tmp->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return tmp->fd < 0 ? -errno : 0;
}

static int receive(struct xfer *t, int fd, uint64_t *size, char hex[65])
{
	autofree char *buf = malloc(PIECE);
	uint8_t digest[32];
	SHA256_CTX sha;
	size_t n = 0;
	ssize_t got;
	int r = 0;

	if (!buf)
		return -ENOMEM;
	SHA256_Init(&sha);
	*size = 0;
	do { /* whole pieces: what comes off the wire is often small */
		got = xfer_read(t, buf + n, PIECE - n);
		if (got > 0)
			n += (size_t)got;
		if (n == PIECE || (got == 0 && n > 0)) {
			SHA256_Update(&sha, buf, n);
			r = write_all(fd, buf, n);
			*size += n;
			n = 0;
		}
	} while (got > 0 && r == 0);
	if (got < 0)
		return (int)got;
	SHA256_Final(digest, &sha);
	hex_encode(hex, digest, sizeof(digest));
	return r;
}

static int finish(struct temp *tmp, const struct put_call *c)
{
	struct str base = path_base(c->path);
	char name[256];
	struct stat st;
	mode_t mode = 0644;
	int r = str_copy(name, sizeof(name), base);

	if (r < 0)
		return r;
	if (fstatat(tmp->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		r = replaceable(&st); /* again: it may have come since */
		if (r < 0)
			return r;
		mode = S_ISLNK(st.st_mode) ? mode : st.st_mode & 07777;
	}
	if (c->mode >= 0)
		mode = (mode_t)c->mode;
	if ((fchown(tmp->fd, c->user.uid, c->user.gid) < 0 && errno != EPERM) ||
		fchmod(tmp->fd, mode) < 0 || fsync(tmp->fd) < 0)
		return -errno;
	if (renameat(tmp->dir, tmp->name, tmp->dir, name) < 0)
		return -errno;
	tmp->name[0] = '\0';
	return dir_sync(tmp->dir);
}

static void put_file(struct xfer *t, void *arg)
{
	struct put_call *c = arg;
	struct temp tmp = { -1, -1, "" };
	uint64_t size = 0;
	char hex[65];
	struct buf b;
	struct jw w;
	int r;

	r = through_link(c->path);
	if (r == 0)
		r = temp_open(&tmp, c->path, &c->user);
	if (r == 0)
		r = receive(t, tmp.fd, &size, hex);
	if (r == 0)
		r = finish(&tmp, c);
	if (tmp.name[0] && tmp.fd >= 0)
		(void)unlinkat(tmp.dir, tmp.name, 0);
	if (tmp.fd >= 0)
		close(tmp.fd);
	if (tmp.dir >= 0)
		close(tmp.dir);
	if (r < 0) {
		put_error(t, c->path, r);
		return;
	}
	buf_init(&b, 8 * PATH_LEN);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "path", c->path);
	jw_int(&w, "size", (int64_t)size);
	jw_str(&w, "sha256", hex);
	jw_obj_end(&w);
	xfer_respond(t, 201, "application/json", buf_str(&b));
	buf_clear(&b);
}

/* Octal digits, at most 07777. */
static int mode_parse(const char *s, int64_t *mode)
{
	char *end;
	long v = strtol(s, &end, 8);

	if (s[0] < '0' || s[0] > '7' || *end || v > 07777)
		return -EINVAL;
	*mode = v;
	return 0;
}

void handle_file_put(struct http_exchange *x)
{
	struct put_call *c = calloc(1, sizeof(*c));
	char mode[16];
	ssize_t n;

	if (!c) {
		answer_error(x, 500, "out of memory");
		return;
	}
	c->mode = -1;
	if (query_user(x, "user", &c->user) < 0 || query_path(x, "path", &c->user, c->path) < 0)
		goto out;
	n = query_str(x, "mode", mode, sizeof(mode));
	if (n != -ENOENT && n != 0 && (n < 0 || mode_parse(mode, &c->mode) < 0)) {
		answer_error(x, 400, "mode: octal digits up to 7777");
		goto out;
	}
	if (str_ends(str_of(c->path), "/")) {
		answer_error(x, 400, "path is a directory: %s", c->path);
		goto out;
	}
	xfer_start(x, true, put_file, c);
	return;
out:
	free(c);
}

/* --- compose: one file out of several --- */

struct compose_call {
	struct user user;
	char workdir[PATH_LEN];
};

static int append(int to, const char *path)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char buf[PIECE];
	struct stat st;
	ssize_t n = 0;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : NOT_REGULAR;
	while (r == 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		r = write_all(to, buf, (size_t)n);
	return n < 0 ? -errno : r;
}

static int compose_into(struct xfer *t, const struct compose_call *c, json_t *sources,
	const struct user *u, const char *path)
{
	struct temp tmp = { -1, -1, "" };
	struct put_call to = { .user = *u, .mode = -1 };
	char from[PATH_LEN];
	json_t *v;
	size_t i;
	int r = temp_open(&tmp, path, u);

	json_array_foreach(sources, i, v)
	{
		if (r == 0 && (!json_is_string(v) || path_resolve(str_of(json_string_value(v)),
							     u->home, c->workdir, from, NULL) < 0))
			r = -EINVAL;
		if (r == 0)
			r = append(tmp.fd, from);
	}
	strcpy(to.path, path);
	if (r == 0)
		r = finish(&tmp, &to);
	if (tmp.name[0] && tmp.fd >= 0)
		(void)unlinkat(tmp.dir, tmp.name, 0);
	if (tmp.fd >= 0)
		close(tmp.fd);
	if (tmp.dir >= 0)
		close(tmp.dir);
	if (r == -ENOENT)
		xfer_error(t, 404, "a source of %s does not exist", path);
	else if (r < 0)
		put_error(t, path, r);
	return r;
}

static void compose(struct xfer *t, void *arg)
{
	struct compose_call *c = arg;
	struct names names = { 0 };
	autojson json_t *req = NULL;
	const char *dest = NULL, *name = NULL;
	char path[PATH_LEN];
	struct user u = c->user;
	struct buf body, b;
	struct jw w;
	ssize_t n;

	buf_init(&body, MIB);
	while (buf_reserve(&body, 4096) == 0 && (n = xfer_read(t, body.p + body.n, 4096)) > 0)
		body.n += (size_t)n;
	req = json_read(buf_str(&body), NULL);
	buf_clear(&body);
	if (msg_str(req, "destination", &dest) < 0 || !dest ||
		msg_str(req, "username", &name) < 0 ||
		!json_is_array(msg_get(req, "source_paths"))) {
		xfer_error(
			t, 400, "{\"source_paths\":[…],\"destination\":\"…\",\"username\":\"…\"}");
		return;
	}
	if (name && name[0] && user_lookup(name, &u) < 0) {
		xfer_error(t, 401, "error looking up user '%s': no such user", name);
		return;
	}
	if (path_resolve(str_of(dest), u.home, c->workdir, path, NULL) < 0) {
		xfer_error(t, 400, "destination: not a path");
		return;
	}
	if (compose_into(t, c, msg_get(req, "source_paths"), &u, path) < 0)
		return;
	buf_init(&b, 16 * PATH_LEN);
	jw_init(&w, &b);
	if (entry_write(&w, NULL, path, &names) < 0)
		xfer_error(t, 500, "%s vanished", path);
	else
		xfer_respond(t, 200, "application/json", buf_str(&b));
	names_clear(&names);
	buf_clear(&b);
}

void handle_compose(struct http_exchange *x)
{
	struct compose_call *c = calloc(1, sizeof(*c));

	if (!c || user_lookup(agent.default_user, &c->user) < 0) {
		free(c);
		answer_error(x, 500, c ? "the default user is gone" : "out of memory");
		return;
	}
	strcpy(c->workdir, agent.default_workdir);
	xfer_start(x, true, compose, c);
}
