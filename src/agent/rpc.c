#include "agent/rpc.h"

#include <stdarg.h>
#include <stdio.h>

#include "agent/fs.h"
#include "agent/process_rpc.h"
#include "agent/watch_rpc.h"
#include "base/random.h"

static const struct rpc_method methods[] = {
	{ "/process.Process/List", rpc_list, false },
	{ "/process.Process/Start", rpc_start_process, true },
	{ "/process.Process/Connect", rpc_connect, true },
	{ "/process.Process/Update", rpc_update, false },
	{ "/process.Process/SendInput", rpc_send_input, false },
	{ "/process.Process/StreamInput", rpc_stream_input, true },
	{ "/process.Process/SendSignal", rpc_send_signal, false },
	{ "/process.Process/CloseStdin", rpc_close_stdin, false },
	{ "/filesystem.Filesystem/Stat", rpc_stat, false },
	{ "/filesystem.Filesystem/MakeDir", rpc_make_dir, false },
	{ "/filesystem.Filesystem/Move", rpc_move, false },
	{ "/filesystem.Filesystem/ListDir", rpc_list_dir, false },
	{ "/filesystem.Filesystem/Remove", rpc_remove, false },
	{ "/filesystem.Filesystem/WatchDir", rpc_watch_dir, true },
	{ "/filesystem.Filesystem/CreateWatcher", rpc_create_watcher, false },
	{ "/filesystem.Filesystem/GetWatcherEvents", rpc_get_watcher_events, false },
	{ "/filesystem.Filesystem/RemoveWatcher", rpc_remove_watcher, false },
};

const struct rpc_method *rpc_find(struct str path)
{
	for (unsigned i = 0; i < ARRAY_LEN(methods); i++)
		if (str_eqz(path, methods[i].path))
			return &methods[i];
	return NULL;
}

/* --- answers --- */

void rpc_reply(struct http_exchange *x, struct buf *body)
{
	if (!body || body->n == 0)
		http_respond(x, 200, "application/json", "{}", 2);
	else
		http_respond_buf(x, 200, "application/json", body);
}

static void error_json(struct jw *w, enum rpc_code code, const char *msg)
{
	jw_str(w, "code", rpc_code_name(code));
	jw_str(w, "message", msg);
}

void rpc_fail(struct http_exchange *x, bool stream, enum rpc_code code, const char *fmt, ...)
{
	char msg[PATH_LEN + 256];
	struct buf b;
	struct jw w;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	if (stream) {
		rpc_start(x);
		rpc_finish(x, code, msg);
		return;
	}
	buf_init(&b, 64 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	error_json(&w, code, msg);
	jw_obj_end(&w);
	http_respond_buf(x, rpc_code_status(code), "application/json", &b);
	buf_clear(&b);
}

void rpc_start(struct http_exchange *x)
{
	http_head_forget(x);
	http_start(x, 200, "application/connect+json", -1);
}

void rpc_frame(struct buf *b)
{
	b->n = 0;
	(void)buf_add(b, "\0\0\0\0\0", FRAME_HEAD);
}

int rpc_send(struct http_exchange *x, struct buf *b)
{
	int r;

	if (b->n < FRAME_HEAD)
		return -ENOMEM;
	frame_head(b->p, 0, (uint32_t)(b->n - FRAME_HEAD));
	r = http_write(x, b->p, b->n);
	b->n = 0;
	return r;
}

void rpc_finish(struct http_exchange *x, enum rpc_code code, const char *msg)
{
	struct buf b;
	struct jw w;

	buf_init(&b, 64 * KIB);
	rpc_frame(&b);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	if (code != RPC_OK) {
		jw_obj(&w, "error");
		error_json(&w, code, msg);
		jw_obj_end(&w);
	}
	jw_obj_end(&w);
	if (w.err || b.n < FRAME_HEAD) {
		http_abort(x); /* a stream without its last envelope must not look whole */
	} else {
		frame_head(b.p, FRAME_END, (uint32_t)(b.n - FRAME_HEAD));
		(void)http_write(x, b.p, b.n);
		http_end(x);
	}
	buf_clear(&b);
}

/* --- requests --- */

int rpc_user(struct rpc *r, struct user *u)
{
	struct str auth = http_get(http_req(r->x), "authorization"), name, rest = { 0 };
	char text[256], plain[USER_NAME_MAX];
	size_t n;
	int err;

	snprintf(plain, sizeof(plain), "%s", agent.default_user);
	if (auth.p && auth.n > 6 && str_ieqz((struct str){ auth.p, 6 }, "basic ")) {
		auth = str_trim((struct str){ auth.p + 6, auth.n - 6 });
		if (auth.n > 300 || base64_decode(text, &n, auth) < 0) {
			rpc_fail(r->x, r->stream, RPC_UNAUTHENTICATED, "invalid username");
			return -EACCES;
		}
		str_cut((struct str){ text, n }, ':', &name, &rest);
		if (name.n > 0 && str_copy(plain, sizeof(plain), name) < 0) {
			rpc_fail(r->x, r->stream, RPC_UNAUTHENTICATED, "invalid username");
			return -EACCES;
		}
	}
	err = user_lookup(plain, u);
	if (err < 0)
		rpc_fail(r->x, r->stream, RPC_UNAUTHENTICATED, "invalid username: '%s'", plain);
	return err;
}

int rpc_path(struct rpc *r, const char *name, const struct user *u, char out[PATH_LEN])
{
	const char *path = "";
	struct fail why;
	int err = msg_str(r->req, name, &path);

	if (err < 0) {
		rpc_fail(r->x, r->stream, RPC_INVALID_ARGUMENT, "%s: a string", name);
		return err;
	}
	err = path_resolve(str_of(path), u->home, agent.default_workdir, out, &why);
	if (err < 0)
		rpc_fail(r->x, r->stream, RPC_INVALID_ARGUMENT, "%s: %s", name, why.msg);
	return err;
}

static int64_t header_int(struct http_exchange *x, const char *name, uint64_t max)
{
	struct str v = http_get(http_req(x), name);
	uint64_t n;

	return v.p && str_u64(v, max, &n) == 0 ? (int64_t)n : 0;
}

/* Takes the envelope off a stream's request: exactly one message, not compressed. */
static bool unwrap(struct http_exchange *x, struct str *body)
{
	struct str in = *body, payload;
	uint8_t flags;
	int r = frame_next(&in, RPC_BODY_MAX, &flags, &payload);

	if (r == 1 && flags == 0) {
		*body = payload;
		return true;
	}
	rpc_fail(x, true, RPC_INVALID_ARGUMENT,
		r == -EBADMSG ? "the envelope is compressed or not one"
			      : "the request must be one enveloped message");
	return false;
}

static void got_body(struct http_exchange *x, struct str body, const struct fail *why, void *arg)
{
	const struct rpc_method *m = arg;
	autojson json_t *req = NULL;
	struct rpc r = { .x = x, .stream = m->stream };
	struct fail bad = { 0 };

	if (why->err)
		return;			 /* answered already */
	if (m->fn == rpc_stream_input) { /* the only one whose request is a stream */
		rpc_stream_input_body(x, body);
		return;
	}
	if (m->stream && !unwrap(x, &body))
		return;
	req = json_read(body, &bad);
	if (!req || !json_is_object(req)) {
		rpc_fail(x, m->stream, RPC_INVALID_ARGUMENT, "the message is not a JSON object: %s",
			bad.msg);
		return;
	}
	r.req = req;
	r.timeout_ms = header_int(x, "connect-timeout-ms", 10000000000ULL);
	r.keepalive_ms = header_int(x, "keepalive-ping-interval", 86400) * 1000;
	if (r.keepalive_ms == 0)
		r.keepalive_ms = KEEPALIVE_DEFAULT_MS;
	m->fn(&r);
}

void rpc_handle(struct http_exchange *x, const struct rpc_method *m)
{
	struct str ctype = http_get(http_req(x), "content-type"), rest = { 0 };
	const char *want = m->stream ? "application/connect+json" : "application/json";

	str_cut(ctype, ';', &ctype, &rest);
	if (!str_ieqz(str_trim(ctype), want)) {
		http_add_header(x, "Accept-Post", want);
		http_respond_empty(x, 415);
		return;
	}
	http_body_whole(x, RPC_BODY_MAX, got_body, (void *)m);
}
