/* files.c - GET /files: one file, whole or a range of it, as its bytes are. Never compressed: the
 * wire is local. */
#include "agent/agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "agent/fs.h"
#include "agent/range.h"
#include "agent/sign.h"
#include "agent/xfer.h"
#include "base/file.h"

#define PIECE (64 * 1024)
#define PROC_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572

struct get_call {
	char path[PATH_LEN];
	char range[128], since[64], unmodified[64], if_range[64];
	bool identity_refused;
};

static void copy_header(const struct http_exchange *x, const char *name, char *out, size_t size)
{
	struct str v = http_get(http_req(x), name);

	out[0] = '\0';
	if (v.p && v.n < size)
		(void)str_copy(out, size, v);
}

/* A size that stat tells and reading need not keep to: kernel files. */
static bool size_unknown(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == PROC_MAGIC || fs.f_type == SYSFS_MAGIC);
}

static void send_open_ended(struct xfer *t, int fd, int status, const char *type)
{
	autofree char *buf = malloc(PIECE);
	ssize_t n;

	if (!buf)
		return;
	n = read(fd, buf, PIECE); /* the first read is where such files fail, and then there is
				     still a status to say so with */
	if (n < 0) { /* EIO: no disk's, but what the kernel answers for this one, now */
		xfer_error(t, errno == EIO ? 400 : errno_status(errno), "error reading file: %s",
			errno == EIO ? "the kernel does not let it be read" : errno_words(errno));
		return;
	}
	xfer_head(t, status, type, -1);
	while (n > 0) {
		if (xfer_write(t, buf, (size_t)n) < 0)
			return;
		n = read(fd, buf, PIECE);
	}
	if (n == 0)
		xfer_end(t);
}

/* Exactly LEN bytes from AT on. A file that shrinks meanwhile breaks the answer off: the client
 * must not take it for whole. */
static void send_part(struct xfer *t, int fd, uint64_t at, uint64_t len)
{
	autofree char *buf = malloc(PIECE);

	while (buf && len > 0) {
		ssize_t n = pread(fd, buf, MIN(len, (uint64_t)PIECE), (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || xfer_write(t, buf, (size_t)n) < 0)
			return;
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
	if (buf)
		xfer_end(t);
}

static void disposition(struct xfer *t, const char *path)
{
	struct str base = path_base(path);
	struct buf b;

	buf_init(&b, 4 * PATH_LEN);
	if (buf_addz(&b, "inline; filename*=utf-8''") == 0 && http_escape(&b, base, "") == 0 &&
		buf_addc(&b, '\0') == 0)
		xfer_header(t, "Content-Disposition", b.p);
	buf_clear(&b);
}

/* If-…: 0 to go on, else the status. */
static int preconditions(const struct get_call *c, int64_t mtime)
{
	int64_t at;

	if (c->unmodified[0] && http_date_parse(str_of(c->unmodified), &at) == 0 && mtime > at)
		return 412;
	if (c->since[0] && http_date_parse(str_of(c->since), &at) == 0 && mtime <= at)
		return 304;
	return 0;
}

static void send_file(struct xfer *t, const struct get_call *c, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, from = 0, len = size;
	enum range_kind kind = RANGE_WHOLE;
	char head[512], text[96];
	const char *type;
	ssize_t n;
	int status;
	int64_t at;

	http_date_format(text, st->st_mtime);
	xfer_header(t, "Last-Modified", text);
	xfer_header(t, "Vary", "Accept-Encoding");
	disposition(t, c->path);
	if (size_unknown(fd)) {
		send_open_ended(t, fd, 200, "application/octet-stream");
		return;
	}
	xfer_header(t, "Accept-Ranges", "bytes");
	n = pread(fd, head, sizeof(head), 0);
	if (n < 0) {
		xfer_error(t, errno_status(errno), "error reading file: %s", errno_words(errno));
		return;
	}
	type = media_type(c->path, (struct str){ head, (size_t)n });
	status = preconditions(c, st->st_mtime);
	if (status) {
		xfer_respond(t, status, type, (struct str){ 0 });
		return;
	}
	if (c->range[0] && (!c->if_range[0] || (http_date_parse(str_of(c->if_range), &at) == 0 &&
						       at == st->st_mtime)))
		kind = range_parse(str_of(c->range), size, &from, &len);
	if (kind == RANGE_UNSATISFIABLE) {
		snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
		xfer_header(t, "Content-Range", text);
		xfer_error(t, 416, "the range is outside of the file");
		return;
	}
	if (kind == RANGE_PART) {
		snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)from,
			(unsigned long long)(from + len - 1), (unsigned long long)size);
		xfer_header(t, "Content-Range", text);
	}
	xfer_head(t, kind == RANGE_PART ? 206 : 200, type, (int64_t)len);
	send_part(t, fd, from, len);
}

/* stat(2). Nobody, root included, may follow another user's link in a directory like /tmp
 * (fs.protected_symlinks); but reading such a file is what the owner of the sandbox asks for, so
 * PATH becomes what it leads to. */
static int stat_through(char path[PATH_LEN], struct stat *st)
{
	autofree char *real = NULL;

	if (stat(path, st) == 0)
		return 0;
	if (errno != EACCES)
		return -1;
	real = realpath(path, NULL);
	if (!real || str_copy(path, PATH_LEN, str_of(real)) < 0)
		return -1;
	return stat(path, st);
}

static void get_file(struct xfer *t, void *arg)
{
	struct get_call *c = arg;
	autoclose int fd = -1;
	struct stat st;

	if (c->identity_refused && c->range[0]) {
		xfer_error(t, 406, "ranges are of the plain bytes, which Accept-Encoding refuses");
		return;
	}
	if (stat_through(c->path, &st) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			xfer_error(t, 404, "path '%s' does not exist", c->path);
		else
			xfer_error(t, errno_status(errno), "path '%s': %s", c->path,
				errno_words(errno));
		return;
	}
	if (S_ISDIR(st.st_mode)) {
		xfer_error(t, 400, "path '%s' is a directory", c->path);
		return;
	}
	/* Opening a pipe could wait for ever, opening a device set it going, and neither ends. */
	if (S_ISREG(st.st_mode)) {
		fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (fd < 0 || fstat(fd, &st) < 0) {
			xfer_error(t, errno_status(errno), "path '%s': %s", c->path,
				errno_words(errno));
			return;
		}
	}
	if (!S_ISREG(st.st_mode)) { /* or has become one since */
		xfer_error(t, 400, "path '%s' is not a regular file", c->path);
		return;
	}
	send_file(t, c, fd, &st);
}

void handle_files_get(struct http_exchange *x)
{
	struct get_call *c;
	struct user u;

	if (!files_allowed(x, "read") || query_user(x, "username", &u) < 0)
		return;
	c = calloc(1, sizeof(*c));
	if (!c) {
		answer_error(x, 500, "out of memory");
		return;
	}
	if (query_path(x, "path", &u, c->path) < 0) {
		free(c);
		return;
	}
	copy_header(x, "range", c->range, sizeof(c->range));
	copy_header(x, "if-modified-since", c->since, sizeof(c->since));
	copy_header(x, "if-unmodified-since", c->unmodified, sizeof(c->unmodified));
	copy_header(x, "if-range", c->if_range, sizeof(c->if_range));
	c->identity_refused = coding_refused(http_get(http_req(x), "accept-encoding"), "identity");
	xfer_start(x, false, get_file, c);
}
