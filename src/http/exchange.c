/* exchange.c - the body of a request and the answer to it; see server.h. */
#include <stdio.h>
#include <sys/socket.h>

#include "base/random.h"
#include "http/client.h"
#include "http/exchange.h"

/* --- the request --- */

const struct http_head *http_req(const struct http_exchange *x)
{
	static const struct http_head none;

	return x->req ? &x->req->head : &none;
}

void http_head_forget(struct http_exchange *x)
{
	x->forget = true;
	if (x->answer != ANSWER_NONE) {
		free(x->req);
		x->req = NULL;
	}
}

bool http_peer_uid(const struct http_exchange *x, uid_t *uid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	uv_os_fd_t fd;

	if (x->c.closing || x->c.uv.handle.type != UV_NAMED_PIPE ||
		uv_fileno(&x->c.uv.handle, &fd) < 0)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return false;
	*uid = cred.uid;
	return true;
}

const char *http_peer(const struct http_exchange *x)
{
	static __thread char text[72];
	struct sockaddr_storage a;
	int len = sizeof(a);
	char host[INET6_ADDRSTRLEN];
	uid_t uid;

	if (http_peer_uid(x, &uid)) {
		snprintf(text, sizeof(text), "unix:%u", (unsigned)uid);
		return text;
	}
	if (x->c.closing || x->c.uv.handle.type != UV_TCP ||
		uv_tcp_getpeername(&x->c.uv.tcp, (struct sockaddr *)&a, &len) < 0)
		return "gone";
	if (a.ss_family == AF_INET) {
		uv_ip4_name((struct sockaddr_in *)&a, host, sizeof(host));
		snprintf(text, sizeof(text), "%s:%d", host,
			ntohs(((struct sockaddr_in *)&a)->sin_port));
	} else {
		uv_ip6_name((struct sockaddr_in6 *)&a, host, sizeof(host));
		snprintf(text, sizeof(text), "[%s]:%d", host,
			ntohs(((struct sockaddr_in6 *)&a)->sin6_port));
	}
	return text;
}

const char *http_request_id(struct http_exchange *x)
{
	uint8_t bytes[8];

	if (!x->id[0]) {
		random_bytes(bytes, sizeof(bytes));
		hex_encode(x->id, bytes, sizeof(bytes));
	}
	return x->id;
}

static bool dead(const struct http_exchange *x)
{
	return x->over || x->aborted || x->c.closing;
}

/* --- its body --- */

void http_exchange_body_fail(struct http_exchange *x, int err)
{
	x->body = BODY_BROKEN;
	x->body_err = (int16_t)err;
	x->deadline = 0;
	http_exchange_body_tell(x);
}

void http_exchange_body_tell(struct http_exchange *x)
{
	if (!x->body_fn || x->body_told || (x->body_paused && !x->body_err))
		return;
	if (x->body == BODY_BROKEN || x->body == BODY_WHOLE) {
		x->body_told = true;
		x->body_fn(x, NULL, x->body == BODY_BROKEN ? x->body_err : 0, x->body_arg);
	}
}

static void body_whole(struct http_exchange *x)
{
	x->body = BODY_WHOLE;
	x->deadline = 0;
	hconn_pause(&x->c); /* what follows is the next request */
	http_exchange_body_tell(x);
}

static void body_piece(struct http_exchange *x, struct str s)
{
	x->body_seen += s.n;
	if (x->deadline && x->state == HTTP_ACTIVE)
		http_exchange_deadline(x, http_exchange_opts(x)->body_timeout_ms);
	if (x->body_fn && s.n)
		x->body_fn(x, s.p, (ssize_t)s.n, x->body_arg);
}

size_t http_exchange_body(struct http_exchange *x, const char *p, size_t n)
{
	struct str in = { p, n }, piece;
	int r;

	if (!x->body_chunked) {
		piece = (struct str){ p, (size_t)MIN((uint64_t)n, x->body_left) };
		x->body_left -= piece.n;
		body_piece(x, piece);
		if (x->body_left == 0 && !x->aborted && !x->c.closing && x->body == BODY_READING)
			body_whole(x);
		return piece.n;
	}
	r = http_chunked_read(&x->chunked, &in, &piece);
	if (r == 1 && x->body_max && x->state == HTTP_ACTIVE &&
		x->body_seen + piece.n > x->body_max)
		r = -EFBIG;
	if (r == 1)
		body_piece(x, piece);
	else if (r == 2)
		body_whole(x);
	else if (r < 0)
		http_exchange_body_fail(x, r);
	return r < 0 ? n : n - in.n;
}

void http_body_read(struct http_exchange *x, uint64_t max, http_body_fn *fn, void *arg)
{
	if (dead(x) || x->body_fn)
		return;
	x->body_fn = fn;
	x->body_arg = arg;
	x->body_max = max;
	if (x->body == BODY_UNREAD) {
		x->body = BODY_READING;
		if (max && !x->body_chunked && x->body_left > max) {
			x->body = BODY_BROKEN;
			x->body_err = -EFBIG;
		}
	}
	if (x->body != BODY_READING) {
		hconn_kick(&x->c);
		return;
	}
	if (x->expect && x->answer == ANSWER_NONE) {
		if (hconn_buffered(&x->c) == 0)
			hconn_write(&x->c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
		x->expect = false;
	}
	http_exchange_deadline(x, http_exchange_opts(x)->body_timeout_ms);
	hconn_resume(&x->c);
}

void http_body_pause(struct http_exchange *x)
{
	if (dead(x) || x->body_paused)
		return;
	x->body_paused = true;
	x->deadline = 0; /* now it is us who are slow */
	hconn_pause(&x->c);
}

void http_body_resume(struct http_exchange *x)
{
	if (dead(x) || !x->body_paused)
		return;
	x->body_paused = false;
	if (x->body == BODY_READING) {
		http_exchange_deadline(x, http_exchange_opts(x)->body_timeout_ms);
		hconn_resume(&x->c);
	} else {
		hconn_kick(&x->c);
	}
}

struct whole {
	struct buf b;
	http_whole_fn *fn;
	void *arg;
};

static void whole_failed(struct http_exchange *x, struct whole *w, int err)
{
	struct fail why;

	if (err == -EFBIG)
		fail_as(&why, ERR_too_large, "the request's body is over %zu bytes", w->b.max);
	else if (err == -EBADMSG)
		fail_as(&why, ERR_bad_request, "the request's body is not framed as HTTP/1.1 says");
	else if (err == -ETIMEDOUT)
		fail_as(&why, ERR_bad_request, "the request's body did not arrive in time");
	else
		fail_set(&why, err, "the request's body: %s", strerror(-err));
	http_respond_fail(x, &why);
	w->fn(x, (struct str){ NULL, 0 }, &why, w->arg);
	buf_clear(&w->b);
	free(w);
}

static void on_whole(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	static const struct fail none;
	struct whole *w = arg;

	if (len > 0) {
		int r = buf_add(&w->b, data, (size_t)len);

		if (r == 0)
			return;
		len = r == -ENOBUFS ? -EFBIG : r;
		x->body = BODY_BROKEN;
		x->body_told = true;
	}
	if (len < 0) {
		whole_failed(x, w, (int)len);
		return;
	}
	w->fn(x, buf_str(&w->b), &none, w->arg);
	buf_clear(&w->b);
	free(w);
}

void http_body_whole(struct http_exchange *x, size_t max, http_whole_fn *fn, void *arg)
{
	struct whole *w;

	if (dead(x) || x->body_fn)
		return;
	w = malloc(sizeof(*w));
	if (!w) {
		struct fail why;

		fail_set(&why, -ENOMEM, "out of memory");
		http_respond_fail(x, &why);
		fn(x, (struct str){ NULL, 0 }, &why, arg);
		return;
	}
	buf_init(&w->b, max);
	w->fn = fn;
	w->arg = arg;
	http_body_read(x, max, on_whole, w);
}

/* --- the answer --- */

void http_on_close(struct http_exchange *x, http_close_fn *fn, void *arg)
{
	x->close_fn = fn;
	x->close_arg = arg;
}

void http_on_drain(struct http_exchange *x, http_drain_fn *fn, void *arg)
{
	x->drain_fn = fn;
	x->drain_arg = arg;
}

size_t http_unsent(const struct http_exchange *x)
{
	return x->c.unsent;
}

bool http_started(const struct http_exchange *x)
{
	return x->answer != ANSWER_NONE;
}

int http_add_header(struct http_exchange *x, const char *name, const char *value)
{
	return http_add_header_str(x, str_of(name), str_of(value));
}

int http_add_header_str(struct http_exchange *x, struct str name, struct str value)
{
	static const char *const ours[] = { "content-length", "transfer-encoding", "connection",
		"keep-alive" };
	size_t before = x->headers.n;
	int r;

	if (x->answer != ANSWER_NONE || !http_is_token(name) || !http_is_value(value))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (str_ieqz(name, ours[i]))
			return -EINVAL;
	x->has_date |= str_ieqz(name, "date");
	x->has_server |= str_ieqz(name, "server");
	(void)((r = buf_adds(&x->headers, name)) || (r = buf_addz(&x->headers, ": ")) ||
		(r = buf_adds(&x->headers, value)) || (r = buf_addz(&x->headers, "\r\n")));
	if (r < 0)
		x->headers.n = before;
	return r;
}

static int add_common(struct http_exchange *x, struct buf *b, int status, const char *ctype)
{
	const char *name = http_exchange_opts(x)->server_name;
	int r = buf_addf(b, "HTTP/1.1 %d %s\r\n", status, http_reason(status));

	if (r == 0 && !x->has_date)
		r = buf_adds(b, hcore_date(x->c.core));
	if (r == 0 && name && !x->has_server)
		r = buf_addf(b, "Server: %s\r\n", name);
	if (r == 0 && ctype)
		r = buf_addf(b, "Content-Type: %s\r\n", ctype);
	if (r == 0 && x->id[0])
		r = buf_addf(b, "X-Request-Id: %s\r\n", x->id);
	return r < 0 ? r : buf_adds(b, buf_str(&x->headers));
}

/* Whether another request may follow on this connection, as far as can be known when the answer
 * starts. */
static bool may_keep(const struct http_exchange *x)
{
	if (!x->keep || http_exchange_last(x) || x->body == BODY_BROKEN)
		return false;
	/* A client that waits for "100 Continue" may send the body or not after another answer. */
	if (x->body == BODY_UNREAD && (x->expect || (!x->body_chunked && x->body_left > DRAIN_MAX)))
		return false;
	return true;
}

static int add_framing(struct http_exchange *x, struct buf *b, int status, int64_t length)
{
	int r = 0;

	x->out_left = length;
	if (status / 100 == 1 || status == 204 || status == 304) {
		x->no_body = true;
	} else if (length >= 0) {
		r = buf_addf(b, "Content-Length: %lld\r\n", (long long)length);
	} else if (!x->minor0) {
		r = buf_addz(b, "Transfer-Encoding: chunked\r\n");
	} else {
		x->out_left = -2;
		x->keep = false;
	}
	if (r == 0 && !x->keep)
		r = buf_addz(b, "Connection: close\r\n");
	else if (r == 0 && x->minor0)
		r = buf_addz(b, "Connection: keep-alive\r\n");
	return r < 0 ? r : buf_addz(b, "\r\n");
}

static void started(struct http_exchange *x)
{
	x->answer = ANSWER_STARTED;
	x->wrote_at = hcore_now(x->c.core);
	buf_clear(&x->headers);
	if (x->forget) {
		free(x->req);
		x->req = NULL;
	}
}

/* The head, with as much of the body as is there already. */
static void start(struct http_exchange *x, int status, const char *ctype, int64_t length,
	const void *body, size_t len)
{
	autobuf struct buf b = { 0 };
	uv_buf_t bufs[2];
	int r;

	if (x->answer != ANSWER_NONE)
		return;
	if (dead(x)) {
		x->answer = ANSWER_STARTED;
		return;
	}
	if (ctype && !http_is_value(str_of(ctype)))
		ctype = NULL; /* from a guest's file, say: left out rather than let in */
	buf_init(&b, HTTP_HEAD_MAX + KIB);
	x->keep = may_keep(x);
	r = add_common(x, &b, status, ctype);
	if (r == 0)
		r = add_framing(x, &b, status, length);
	if (r < 0) {
		x->answer = ANSWER_STARTED;
		http_abort(x);
		return;
	}
	bufs[0] = uv_buf_init(b.p, (unsigned)b.n);
	bufs[1] = uv_buf_init((char *)body, (unsigned)len);
	started(x);
	hconn_writev(&x->c, bufs, len && !x->no_body ? 2 : 1);
	x->out_left -= (int64_t)len;
}

void http_start(struct http_exchange *x, int status, const char *ctype, int64_t length)
{
	start(x, status, ctype, length, NULL, 0);
}

int http_write(struct http_exchange *x, const void *data, size_t len)
{
	char size[20];
	uv_buf_t bufs[3];

	if (dead(x) || x->answer != ANSWER_STARTED)
		return -EPIPE;
	if (len == 0 || x->no_body)
		return 0;
	if (len > UINT32_MAX)
		return -EINVAL;
	x->wrote_at = hcore_now(x->c.core);
	if (x->out_left == -1) {
		bufs[0] = uv_buf_init(size, (unsigned)snprintf(size, sizeof(size), "%zx\r\n", len));
		bufs[1] = uv_buf_init((char *)data, (unsigned)len);
		bufs[2] = uv_buf_init((char *)"\r\n", 2);
		return hconn_writev(&x->c, bufs, 3);
	}
	if (x->out_left >= 0) {
		if ((uint64_t)len > (uint64_t)x->out_left)
			return -EINVAL; /* more than was promised: none of it goes out */
		x->out_left -= (int64_t)len;
	}
	return hconn_write(&x->c, data, len);
}

void http_exchange_ping(struct http_exchange *x)
{
	http_write(x, ":\n\n", 3);
}

void http_end(struct http_exchange *x)
{
	if (x->answer != ANSWER_STARTED)
		return;
	if (!dead(x) && !x->no_body) {
		if (x->out_left > 0) {
			http_abort(x); /* less than was promised: the client must not wait for the
					  rest */
			return;
		}
		if (x->out_left == -1)
			hconn_write(&x->c, "0\r\n\r\n", 5);
	}
	http_exchange_answered(x);
	if (!dead(x))
		hconn_kick(&x->c);
}

void http_abort(struct http_exchange *x)
{
	if (x->orphan) {
		http_exchange_answered(x);
		return;
	}
	if (dead(x))
		return;
	x->aborted = true;
	hconn_kick(&x->c);
}

void http_respond(
	struct http_exchange *x, int status, const char *ctype, const void *body, size_t len)
{
	if (x->answer != ANSWER_NONE)
		return;
	if (len <= UINT32_MAX) {
		start(x, status, ctype, (int64_t)len, body, len);
		http_end(x);
	} else {
		http_abort(x);
	}
}

void http_respond_buf(struct http_exchange *x, int status, const char *ctype, struct buf *body)
{
	http_respond(x, status, ctype, body->p, body->n);
	buf_clear(body);
}

void http_respond_empty(struct http_exchange *x, int status)
{
	http_respond(x, status, NULL, NULL, 0);
}

void http_respond_fail(struct http_exchange *x, const struct fail *f)
{
	autobuf struct buf b = { 0 };
	struct jw w;

	buf_init(&b, 8 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_fail(&w, f, http_request_id(x));
	jw_obj_end(&w);
	http_respond(x, err_info(f->code)->status, "application/json", b.p, b.n);
}

/* --- upgrades --- */

static void upgrade_over(void *arg)
{
	struct http_exchange *x = arg;

	x->over = true;
	free(x->req);
	x->req = NULL;
	if (x->close_fn)
		x->close_fn(x, 0, x->close_arg);
}

struct http_stream *http_upgrade(
	struct http_exchange *x, int status, const struct http_stream_cb *cb, void *arg)
{
	autobuf struct buf b = { 0 };
	struct http_stream *s;
	int r;

	if (dead(x) || x->answer != ANSWER_NONE)
		return NULL;
	s = http_stream_new(&x->c);
	if (!s)
		return NULL;
	buf_init(&b, HTTP_HEAD_MAX + KIB);
	r = add_common(x, &b, status, NULL);
	if (r == 0 && status == 101)
		r = buf_addz(&b, "Connection: Upgrade\r\n");
	if (r == 0)
		r = buf_addz(&b, "\r\n");
	x->stream = s;
	x->state = HTTP_STREAM;
	x->answer = ANSWER_ENDED;
	x->deadline = 0;
	buf_clear(&x->headers);
	http_stream_set_cb(s, cb, arg);
	http_stream_on_over(s, upgrade_over, x);
	if (r == 0)
		hconn_write(&x->c, b.p, b.n);
	else
		http_stream_close(s);
	hconn_resume(&x->c);
	return s;
}
