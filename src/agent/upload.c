/* upload.c - POST /files: one file as the body, or any number as multipart/form-data, plain or
 * gzip.
 *
 * Written in place, as E2B's server does it: an upload that breaks off leaves what has arrived.
 * (PUT /space/file is the one that does not.) Needs 256 KiB, however large the files are. */
#include "agent/agent.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zlib.h>

#include "agent/fs.h"
#include "agent/meta.h"
#include "agent/multipart.h"
#include "agent/sign.h"
#include "agent/xfer.h"
#include "base/file.h"

#define PIECE (64 * 1024)
#define FILES_MAX 10000 /* of one request */

struct upload {
	struct user user;
	char workdir[PATH_LEN];
	char path[PATH_LEN]; /* the query's, resolved */
	char boundary[MULTIPART_BOUNDARY_MAX + 1];
	bool has_path, multipart, gzip;
	struct meta meta;

	/* while it runs */
	struct xfer *t;
	int status; /* of the error; 0: none */
	char msg[PATH_LEN + 200];
	int fd;		   /* file being written; -1: none, or a part that is skipped */
	char at[PATH_LEN]; /* its path */
	char *buf;	   /* what of it is not written yet: PIECE bytes */
	size_t nbuf;
	char **done; /* paths so far */
	unsigned ndone;
};

PRINTF(3, 4) static int refuse(struct upload *u, int status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(u->msg, sizeof(u->msg), fmt, ap);
	va_end(ap);
	u->status = status;
	return -ECANCELED;
}

static int refuse_errno(struct upload *u, const char *what, int err)
{
	if (err == ENOSPC || err == EDQUOT)
		return refuse(u, 507, "not enough disk space available: %s", u->at);
	/* Parents are made first: ENOENT says that this is no place for files (/proc). */
	return refuse(u, err == ENOENT ? 400 : errno_status(err), "%s %s: %s", what, u->at,
		errno_words(err));
}

static int flush(struct upload *u)
{
	int r = u->nbuf ? write_all(u->fd, u->buf, u->nbuf) : 0;

	u->nbuf = 0;
	return r < 0 ? refuse_errno(u, "error writing file", -r) : 0;
}

static int file_data(struct str piece, void *arg)
{
	struct upload *u = arg;

	while (u->fd >= 0 && piece.n > 0) {
		size_t n = MIN(piece.n, PIECE - u->nbuf);
		int r;

		memcpy(u->buf + u->nbuf, piece.p, n);
		u->nbuf += n;
		piece = (struct str){ piece.p + n, piece.n - n };
		r = u->nbuf == PIECE ? flush(u) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

static int file_end(void *arg)
{
	struct upload *u = arg;
	int r;

	if (u->fd < 0)
		return 0;
	r = flush(u);
	if (r == 0)
		meta_store(&u->meta, u->fd);
	if (close(steal_fd(&u->fd)) < 0 && r == 0)
		r = refuse_errno(u, "error writing file", errno);
	return r;
}

static int remember(struct upload *u)
{
	char **p;

	for (unsigned i = 0; i < u->ndone; i++)
		if (strcmp(u->done[i], u->at) == 0)
			return refuse(u, 400,
				"you cannot upload multiple files to the same path '%s' in one "
				"upload request",
				u->at);
	if (u->ndone == FILES_MAX)
		return refuse(u, 400, "more than %d files in one request", FILES_MAX);
	p = realloc(u->done, (u->ndone + 1) * sizeof(*p));
	if (!p)
		return refuse(u, 500, "out of memory");
	u->done = p;
	p[u->ndone] = strdup(u->at);
	return p[u->ndone++] ? 0 : refuse(u, 500, "out of memory");
}

/* Opens u->at for writing, with the directories that it needs. */
static int file_begin(struct upload *u)
{
	char dir[PATH_LEN];
	struct stat st;
	int r = remember(u);

	if (r < 0)
		return r;
	strcpy(dir, u->at);
	dir[path_dir_len(dir)] = '\0';
	r = mkdirs(dir, u->user.uid, u->user.gid);
	if (r < 0)
		return refuse_errno(u, "error ensuring directories of", -r);
	if (stat(u->at, &st) == 0 && S_ISDIR(st.st_mode))
		return refuse(u, 400, "path is a directory: %s", u->at);
	if (stat(u->at, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		return refuse(u, 400, "path is not a file: %s", u->at);
	u->fd = open(u->at, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
	if (u->fd < 0)
		return errno == EISDIR ? refuse(u, 400, "path is a directory: %s", u->at)
				       : refuse_errno(u, "error opening file", errno);
	if (fchown(u->fd, u->user.uid, u->user.gid) < 0 && errno != EPERM && errno != EINVAL)
		return refuse_errno(u, "error changing the owner of", errno);
	return 0;
}

static int part_begin(const struct multipart_part *part, void *arg)
{
	struct upload *u = arg;
	struct fail why;

	u->fd = -1;
	if (!str_eqz(part->name, "file"))
		return 0;
	if (u->has_path)
		strcpy(u->at, u->path);
	else if (part->filename.n == 0)
		return refuse(u, 400, "a part has no file name, and the request no path");
	else if (path_resolve(part->filename, u->user.home, u->workdir, u->at, &why) < 0)
		return refuse(u, 400, "%s", why.msg);
	return file_begin(u);
}

static const struct multipart_cb part_cb = { part_begin, file_data, file_end };

/* --- the body, through gzip and multipart as it needs --- */

struct sink {
	struct upload *u;
	struct multipart *m; /* NULL: the body is the file */
};

static int sink_put(struct sink *s, struct str piece)
{
	int r = s->m ? multipart_feed(s->m, piece) : file_data(piece, s->u);

	if (r == -EBADMSG)
		return refuse(s->u, 400, "the body is not multipart/form-data with that boundary");
	if (r == -ENOBUFS)
		return refuse(s->u, 400, "the head of a part is larger than %d bytes",
			MULTIPART_HEAD_MAX);
	return r;
}

static int read_plain(struct sink *s, char *buf)
{
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = xfer_read(s->u->t, buf, PIECE)) > 0)
		r = sink_put(s, (struct str){ buf, (size_t)n });
	return r == 0 && n < 0 ? (int)n : r;
}

static int inflate_some(struct sink *s, z_stream *z, char *out, bool *ended)
{
	while (z->avail_in > 0) {
		int e, r;

		if (*ended) { /* another member follows the one before */
			if (inflateReset(z) != Z_OK)
				return -EBADMSG;
			*ended = false;
		}
		z->next_out = (Bytef *)out;
		z->avail_out = PIECE;
		e = inflate(z, Z_NO_FLUSH);
		if (e != Z_OK && e != Z_STREAM_END && e != Z_BUF_ERROR)
			return refuse(
				s->u, 400, "the body is not gzip: %s", z->msg ? z->msg : "damaged");
		r = sink_put(s, (struct str){ out, PIECE - z->avail_out });
		if (r < 0)
			return r;
		*ended = e == Z_STREAM_END;
		if (e == Z_BUF_ERROR && z->avail_out > 0)
			break;
	}
	return 0;
}

static int read_gzip(struct sink *s, char *buf)
{
	autofree char *out = malloc(PIECE);
	bool ended = false;
	z_stream z = { 0 };
	ssize_t n;
	int r = 0;

	if (!out || inflateInit2(&z, 15 + 16) != Z_OK)
		return refuse(s->u, 500, "out of memory");
	while (r == 0 && (n = xfer_read(s->u->t, buf, PIECE)) > 0) {
		z.next_in = (Bytef *)buf;
		z.avail_in = (uInt)n;
		r = inflate_some(s, &z, out, &ended);
	}
	inflateEnd(&z);
	if (r == 0 && n < 0)
		return (int)n;
	return r == 0 && !ended ? refuse(s->u, 400, "the gzip data ends early") : r;
}

static int receive(struct upload *u, char *buf)
{
	struct multipart m;
	struct sink s = { u, u->multipart ? &m : NULL };
	int r;

	if (!u->multipart) {
		strcpy(u->at, u->path);
		r = file_begin(u);
		if (r == 0)
			r = u->gzip ? read_gzip(&s, buf) : read_plain(&s, buf);
		return r == 0 ? file_end(u) : r;
	}
	if (multipart_init(&m, u->boundary, &part_cb, u) < 0)
		return refuse(u, 400, "the boundary of multipart/form-data is missing or too long");
	r = u->gzip ? read_gzip(&s, buf) : read_plain(&s, buf);
	if (r == 0 && multipart_finish(&m) < 0)
		r = refuse(u, 400, "the multipart body ends early");
	multipart_clear(&m);
	return r;
}

static void answer(struct upload *u)
{
	struct buf b;
	struct jw w;

	buf_init(&b, 64 * MIB);
	jw_init(&w, &b);
	jw_arr(&w, NULL);
	for (unsigned i = 0; i < u->ndone; i++) {
		jw_obj(&w, NULL);
		jw_str(&w, "path", u->done[i]);
		jw_strn(&w, "name", path_base(u->done[i]));
		jw_str(&w, "type", "file");
		meta_json(&w, &u->meta);
		jw_obj_end(&w);
	}
	jw_arr_end(&w);
	if (w.err)
		xfer_error(u->t, 500, "out of memory");
	else
		xfer_respond(u->t, 200, "application/json", buf_str(&b));
	buf_clear(&b);
}

static void upload(struct xfer *t, void *arg)
{
	struct upload *u = arg;
	autofree char *buf = malloc(PIECE);
	int r;

	u->t = t;
	u->fd = -1;
	u->buf = malloc(PIECE);
	r = buf && u->buf ? receive(u, buf) : refuse(u, 500, "out of memory");
	if (r < 0 && u->fd >= 0) { /* what has come of it stays */
		(void)write_all(u->fd, u->buf, u->nbuf);
		close(u->fd);
	}
	if (r == 0)
		answer(u);
	else if (u->status)
		xfer_error(t, u->status, "%s", u->msg);
	for (unsigned i = 0; i < u->ndone; i++)
		free(u->done[i]);
	free(u->done);
	free(u->buf);
	meta_clear(&u->meta);
}

/* Content-Type and Content-Encoding. 0, or the request has been answered. */
static int body_form(struct http_exchange *x, struct upload *u)
{
	struct str ctype = http_get(http_req(x), "content-type"),
		   coding = http_get(http_req(x), "content-encoding"), type, rest = { 0 };

	str_cut(ctype, ';', &type, &rest);
	type = str_trim(type);
	u->multipart = str_ieqz(type, "multipart/form-data");
	if (!u->multipart && !str_ieqz(type, "application/octet-stream")) {
		answer_error(
			x, 400, "Content-Type: multipart/form-data or application/octet-stream");
		return -EINVAL;
	}
	if (u->multipart && multipart_boundary(ctype, u->boundary) < 0) {
		answer_error(x, 400, "the boundary of multipart/form-data is missing or too long");
		return -EINVAL;
	}
	u->gzip = coding.n > 0 && (str_ieqz(coding, "gzip") || str_ieqz(coding, "x-gzip"));
	if (coding.n > 0 && !u->gzip && !str_ieqz(coding, "identity")) {
		answer_error(x, 400, "Content-Encoding: gzip or none");
		return -EINVAL;
	}
	return 0;
}

void handle_files_post(struct http_exchange *x)
{
	struct upload *u;
	struct fail why;
	char given[PATH_LEN];
	ssize_t n;

	if (!files_allowed(x, "write"))
		return;
	u = calloc(1, sizeof(*u));
	if (!u) {
		answer_error(x, 500, "out of memory");
		return;
	}
	if (query_user(x, "username", &u->user) < 0 || body_form(x, u) < 0)
		goto out;
	n = query_str(x, "path", given, sizeof(given));
	u->has_path = n > 0;
	if (!u->has_path && !u->multipart) {
		answer_error(x, 400, "path query parameter is required for raw body upload");
		goto out;
	}
	strcpy(u->workdir, agent.default_workdir);
	if (n != -ENOENT && query_path(x, "path", &u->user, u->path) < 0)
		goto out;
	if (meta_from_headers(&u->meta, http_req(x), &why) < 0) {
		answer_error(x, 400, "%s", why.msg);
		meta_clear(&u->meta);
		goto out;
	}
	xfer_start(x, true, upload, u);
	return;
out:
	free(u);
}
