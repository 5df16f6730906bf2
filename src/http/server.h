/* server.h - an HTTP/1.1 server on a libuv loop.
 *
 * One exchange is one request and its answer. Exchanges of a connection come one after another (a pipelined request waits). Bodies
 * stream both ways with back-pressure. An idle stream (SSE) costs under 1 KiB: the head is given up at http_start() when the
 * handler has said http_head_forget(), buffers exist only while bytes are in flight, and deadlines are swept once a second over one list instead of
 * a timer each. Everything runs on the loop. */
#ifndef SPACE_HTTP_SERVER_H
#define SPACE_HTTP_SERVER_H

#include <uv.h>

#include "base/json.h"
#include "http/http.h"

struct http_server;
struct http_exchange;
typedef struct ssl_ctx_st SSL_CTX;

struct http_server_opts {
	unsigned max_conns;	   /* 0: 20,000; more are accepted and closed at once with 503 */
	int head_timeout_ms;	   /* 0: 10 s from the first byte to the whole head */
	int idle_timeout_ms;	   /* 0: 640 s between requests */
	int body_timeout_ms;	   /* 0: 60 s without a byte of the request body while it is being read */
	int write_timeout_ms;	   /* 0: 60 s without the client taking a byte while we have some for it; then reset */
	size_t high_water;	   /* 0: 256 KiB of unsent answer; http_write() then says 1 */
	const char *server_name;   /* value of the Server header; NULL: none */
};

/* Called when a request's head is there. The handler answers now or later; until it does, it holds X. */
typedef void http_request_fn(struct http_exchange *x, void *arg);

int http_server_new(uv_loop_t *loop, const struct http_server_opts *o, http_request_fn *fn, void *arg, struct http_server **out);
/* All listen calls: 0 or a negative errno with WHY. Several may be made. `port` 0 picks one; *bound_port (may be NULL) says which. */
int http_server_listen_tcp(struct http_server *s, const char *host, int port, SSL_CTX *tls, int *bound_port, struct fail *why);
int http_server_listen_unix(struct http_server *s, const char *path, mode_t mode, struct fail *why); /* an old socket there is replaced */
int http_server_listen_fd(struct http_server *s, int fd, SSL_CTX *tls, struct fail *why); /* takes FD */
/* New connections get this context from now on; old ones keep theirs until they close. */
void http_server_set_tls(struct http_server *s, SSL_CTX *tls);
/* Stops listening; `gone` (may be NULL) is called when the last connection has closed, upgraded ones too, and then the server is freed.
 * `now`: connections are reset instead of waited for. May be called again with `now` before that. */
void http_server_close(struct http_server *s, bool now, void (*gone)(void *arg), void *arg);
unsigned http_server_conns(const struct http_server *s);
/* Resets every connection, upgraded ones too, but that of BUT (may be NULL); goes on listening. on_close is called soon, not from here. */
void http_server_reset(struct http_server *s, const struct http_exchange *but);
/* Nothing more is read from connections that have an exchange under way or were upgraded, but that of BUT; false undoes it for all. Answers go on. */
void http_server_hold(struct http_server *s, const struct http_exchange *but, bool on);

/* A context for http_server_listen_*: TLS 1.2 and 1.3, ALPN http/1.1. 0 or -EINVAL with WHY. Freed with SSL_CTX_free. */
int http_tls_server(const char *cert_file, const char *key_file, SSL_CTX **out, struct fail *why);

/* --- the request --- */
const struct http_head *http_req(const struct http_exchange *x);
void http_head_forget(struct http_exchange *x);		   /* the head is not read any more once the answer has started */
/* Peer of a Unix socket: true and its uid. Peer of TCP: false. */
bool http_peer_uid(const struct http_exchange *x, uid_t *uid);
const char *http_peer(const struct http_exchange *x);	   /* "127.0.0.1:4711", "unix:0": for logs. Until the next call */
const char *http_request_id(struct http_exchange *x);	   /* 16 hex digits, made at first use; sent back as X-Request-Id */

/* Body: on_body(x, data, len, arg) for each piece; len 0 once at its end; a negative errno instead of len when the client went away or
 * sent rubbish (-EPIPE, -EBADMSG, -ETIMEDOUT, -EFBIG past MAX; 0 = no maximum). Nothing is read before this call. 100-continue is sent by it. */
typedef void http_body_fn(struct http_exchange *x, const char *data, ssize_t len, void *arg);
void http_body_read(struct http_exchange *x, uint64_t max, http_body_fn *fn, void *arg);
void http_body_pause(struct http_exchange *x);
void http_body_resume(struct http_exchange *x);
/* The whole body at once; WHY->err is 0 or it failed (too_large, …), and then the exchange has been answered already. */
typedef void http_whole_fn(struct http_exchange *x, struct str body, const struct fail *why, void *arg);
void http_body_whole(struct http_exchange *x, size_t max, http_whole_fn *fn, void *arg);

/* --- the answer --- */
/* Called exactly once, when the exchange is over: answered whole (0), or the client is gone (-EPIPE …). X is invalid after it. Never from
 * inside a call of the handler's. A handler that answers later without asking for this keeps X, which takes no bytes any more when the client
 * has gone, until it has answered. */
typedef void http_close_fn(struct http_exchange *x, int err, void *arg);
void http_on_close(struct http_exchange *x, http_close_fn *fn, void *arg);

/* A header of the answer, before it starts. -EINVAL for bytes that do not belong into one, and for those that frame (Content-Length,
 * Transfer-Encoding, Connection), which are ours. */
int http_add_header(struct http_exchange *x, const char *name, const char *value);
int http_add_header_str(struct http_exchange *x, struct str name, struct str value);
/* Whole answers. An unread request body is drained up to 64 KiB, else the connection closes. */
void http_respond(struct http_exchange *x, int status, const char *ctype, const void *body, size_t len);
void http_respond_buf(struct http_exchange *x, int status, const char *ctype, struct buf *body); /* empties BODY */
void http_respond_empty(struct http_exchange *x, int status);	      /* 204 without, others with Content-Length: 0 */
void http_respond_fail(struct http_exchange *x, const struct fail *f); /* {"code","message","remedy","request_id"} with the table's status */
/* Streamed: `length` -1 is chunked; http_end() short of a `length` resets the connection, http_write() past it says -EINVAL. After http_start: http_write as long as it returns 0; on 1 (above high water) stop until on_drain; -EPIPE: gone. */
void http_start(struct http_exchange *x, int status, const char *ctype, int64_t length);
bool http_started(const struct http_exchange *x);
int http_write(struct http_exchange *x, const void *data, size_t len);
typedef void http_drain_fn(struct http_exchange *x, void *arg);
void http_on_drain(struct http_exchange *x, http_drain_fn *fn, void *arg); /* each time the unsent bytes fall under a quarter of high water */
size_t http_unsent(const struct http_exchange *x);
void http_end(struct http_exchange *x);
void http_abort(struct http_exchange *x); /* resets the connection: the client must not take what it has for the whole */

/* --- upgrades: after http_upgrade() the connection is a plain byte stream --- */
struct http_stream;
struct http_stream_cb {
	void (*on_data)(struct http_stream *s, const char *data, ssize_t len, void *arg); /* 0: peer's end; <0: error */
	void (*on_drain)(struct http_stream *s, void *arg);
	void (*on_close)(struct http_stream *s, void *arg); /* once; S is invalid after it */
};
/* Sends 101 with the headers added so far (200 for CONNECT) and hands the stream over. X is over: on_close of X is called with 0. */
struct http_stream *http_upgrade(struct http_exchange *x, int status, const struct http_stream_cb *cb, void *arg);
int http_stream_write(struct http_stream *s, const void *data, size_t len); /* as http_write */
void http_stream_pause(struct http_stream *s);
void http_stream_resume(struct http_stream *s);
void http_stream_end(struct http_stream *s);   /* shuts our side down after what is unsent */
void http_stream_close(struct http_stream *s); /* at once; on_close still comes */

/* --- server-sent events (WHATWG HTML, section 9.2) --- */
/* 200 text/event-stream, no caching, chunked; the head is forgotten. A comment line every 15 s of silence keeps proxies awake. */
void sse_start(struct http_exchange *x);
/* One event. ID and EVENT may be NULL. DATA must have no newline (JSON has none). Returns as http_write. */
int sse_send(struct http_exchange *x, const char *id, const char *event, struct str data);

#endif
