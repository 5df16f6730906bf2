/* conn.h - inside src/http only: the bytes of one connection, TCP or Unix, plain or TLS, and the clockwork of a loop.
 *
 * A connection belongs to whoever embeds it (a server's exchange, a client's link); `ops` says who hears of its bytes and
 * changes hands with an upgrade. Nothing here is freed or unlinked but in libuv's close callback, after which destroy() is
 * called: so any callback may close any connection. Callbacks come from the loop only, never from inside a call
 * of the embedder: what has to be told later is told by way of hconn_kick().
 *
 * Memory: reading goes through one 64 KiB buffer a thread; what the reader does not take is kept in `in`. Writing tries the socket
 * first and queues the rest in segments of at most 64 KiB. Both are given back when empty. */
#ifndef SPACE_HTTP_CONN_H
#define SPACE_HTTP_CONN_H

#include <uv.h>

#include "base/fail.h"
#include "base/str.h"

typedef struct ssl_ctx_st SSL_CTX;

#define HCONN_READ (64 * KIB)	    /* taken off a socket at once, and kept at most */
#define HCONN_READ_AHEAD (16 * KIB) /* kept at most while nobody wants it: enough to notice that the peer has gone */
#define HCONN_HIGH_WATER (256 * KIB)

/* --- per loop: a sweep over deadlines, a list of what wants to be told something, the date --- */

struct hready {
	struct link link;
	void (*fn)(struct hready *r);
};

struct hcore;
struct hcore *hcore_get(uv_loop_t *loop); /* NULL when out of memory; counted */
void hcore_ref(struct hcore *k);
void hcore_put(struct hcore *k);
void hcore_defer(struct hcore *k, struct hready *r); /* r->fn is called once, soon; a second time changes nothing */
void hcore_hold(struct hcore *k, int by);	      /* while held, the sweep keeps the loop alive */
void hcore_due(struct hcore *k, int64_t at);	      /* the sweep comes no later (to 50 ms) */
int64_t hcore_now(const struct hcore *k);
uv_loop_t *hcore_loop(const struct hcore *k);
struct str hcore_date(struct hcore *k); /* "Date: …\r\n" */

/* A thing that is swept: tick() looks at its deadlines and says when the next one is (INT64_MAX: none). */
struct hsweep {
	struct link link;
	int64_t (*tick)(struct hsweep *s, int64_t now);
};
void hcore_sweep_add(struct hcore *k, struct hsweep *s);

/* --- a connection --- */

struct hconn;
struct hconn_ops {
	/* Takes bytes off the front; returns how many. 0: not enough to go on, or not now. */
	size_t (*data)(struct hconn *c, const char *p, size_t n);
	/* The peer's end of stream (0), or an error of reading or writing. Once; nothing is read any more. */
	void (*end)(struct hconn *c, int err);
	void (*drain)(struct hconn *c);	  /* unsent bytes fell below a quarter of high water; after a write said 1 */
	void (*flushed)(struct hconn *c); /* no unsent bytes are left; may be NULL */
	void (*kicked)(struct hconn *c);  /* after hconn_kick(); may be NULL */
	void (*open)(struct hconn *c, int err, const char *words); /* clients: connected and the TLS handshake done, or not */
	int64_t (*tick)(struct hconn *c, int64_t now);
	bool eager_end;			  /* `end` does not wait until what came before it was taken */
	bool write_end;			  /* an error of writing is an `end` too, though the peer may have sent more */
};

struct hseg;
struct htls;
struct hconn {
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} uv;
	const struct hconn_ops *ops;
	void (*destroy)(struct hconn *c);
	void *user; /* of ops */
	struct hcore *core;
	struct hsweep sweep;
	struct hready ready, gathered;
	struct htls *tls;
	char *in;
	uint32_t in_n, in_cap;
	struct hseg *out, *out_last;
	size_t unsent, high_water;
	uint64_t queued, taken; /* bytes ever given to write; of those, taken by the peer at the last sweep */
	int64_t taken_at;	/* when `taken` last moved */
	int32_t write_timeout_ms;
	int16_t werr, rerr;
	bool paused, held, reading, feeding, eof, eof_told, werr_told, closing, closed, full, shut, shut_sent, kick;
};

/* The handle is initialised; 0 or a negative errno. Counts a reference of CORE. After success only hconn_close ends it. */
int hconn_init(struct hconn *c, struct hcore *core, bool pipe, const struct hconn_ops *ops, void (*destroy)(struct hconn *));
void hconn_read_start(struct hconn *c); /* once the socket is there; reading starts and stops by itself from then on */
void hconn_pause(struct hconn *c);
void hconn_resume(struct hconn *c);
void hconn_hold(struct hconn *c, bool on); /* nothing is read or offered, whatever its owner says */
void hconn_kick(struct hconn *c);   /* leftovers are offered and ops->kicked called, soon */
/* 0, 1 (high water reached), -EPIPE. All the bytes are taken, or none. */
int hconn_writev(struct hconn *c, const uv_buf_t *bufs, unsigned n);
int hconn_write(struct hconn *c, const void *p, size_t n);
void hconn_shutdown(struct hconn *c); /* no more is written; the peer is told so after what is unsent */
void hconn_close(struct hconn *c, bool reset);
size_t hconn_buffered(const struct hconn *c); /* bytes read but not taken */
/* For tick(): resets are the caller's. False when nothing is unsent or something was taken lately; *due as in tick(). */
bool hconn_stalled(struct hconn *c, int64_t now, int64_t *due);

/* --- TLS, in tls.c: not linked into programs that never make a context --- */

struct htls_ops {
	int (*start)(struct hconn *c, SSL_CTX *ctx, const char *server_name); /* NULL: as server */
	void (*received)(struct hconn *c, const char *p, size_t n);
	ssize_t (*read)(struct hconn *c, char *p, size_t n); /* 0: nothing now; -EPIPE: closed properly; other errors */
	int (*write)(struct hconn *c, const uv_buf_t *bufs, unsigned n);
	void (*shutdown)(struct hconn *c);
	size_t (*pending)(const struct hconn *c);
	void (*free)(struct hconn *c);
	void (*ctx_ref)(SSL_CTX *ctx);
	void (*ctx_free)(SSL_CTX *ctx);
	SSL_CTX *(*client_ctx)(const char *ca_file, struct fail *why);
};
/* Weak in conn.c's view: NULL unless tls.c is linked, which http_tls_server() and http_endpoint_new() see to. */
extern const struct htls_ops htls_ops;
/* What TLS writes and what it reads go through: below and above the encryption. */
int hconn_raw_writev(struct hconn *c, const uv_buf_t *bufs, unsigned n);
void hconn_fail(struct hconn *c, int err);

#endif
