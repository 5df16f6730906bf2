/* exchange.h - inside src/http only: what server.c (connections, requests) and exchange.c (answers, bodies) share.
 *
 * A server's connection and the exchange on it are one object: exchanges of a connection come one after another, and an
 * idle stream is to cost little. It moves
 *
 *	IDLE -> HEAD -> ACTIVE -> (DRAIN ->) IDLE, or from anywhere -> LINGER -> closed, or ACTIVE -> STREAM
 */
#ifndef SPACE_HTTP_EXCHANGE_H
#define SPACE_HTTP_EXCHANGE_H

#include "http/conn.h"
#include "http/server.h"

#define DRAIN_MAX (64 * KIB) /* of an unread body, to keep the connection */
#define SSE_SILENCE_MS 15000

enum http_state {
	HTTP_IDLE,	/* nothing of the next request is there */
	HTTP_HEAD,	/* its head is not whole yet */
	HTTP_ACTIVE,	/* an exchange is under way */
	HTTP_DRAIN,	/* answered; the rest of the request's body is thrown away */
	HTTP_LINGER,	/* answered for the last time; waits until the client has read that and closes */
	HTTP_STREAM,	/* upgraded */
};

enum http_body_state {
	BODY_WHOLE,	/* there is none, or all of it was taken off the connection */
	BODY_UNREAD,	/* nobody has asked for it */
	BODY_READING,
	BODY_BROKEN,	/* rubbish, too large, too slow: where the next request begins is not known */
};

enum http_answer_state { ANSWER_NONE, ANSWER_STARTED, ANSWER_ENDED };

struct http_request_block {
	struct http_head head;
	char bytes[]; /* what the head's slices point into */
};

struct http_exchange {
	struct hconn c;
	struct http_server *srv; /* NULL: see `orphan` */
	struct link link;	 /* in srv->conns */
	struct http_request_block *req;
	struct http_stream *stream;
	uint64_t body_left, body_seen, body_max;
	struct http_chunked chunked;
	http_body_fn *body_fn;
	void *body_arg;
	struct buf headers; /* of the answer, until it starts */
	int64_t out_left;   /* bytes of a body of known length; -1: chunked; -2: until the connection closes */
	http_close_fn *close_fn;
	void *close_arg;
	http_drain_fn *drain_fn;
	void *drain_arg;
	int64_t deadline, wrote_at;
	uint32_t head_seen; /* bytes of an incomplete head that were looked at */
	char id[17];
	uint8_t state, body, answer;
	bool body_chunked, expect, body_told, body_paused;
	int16_t body_err;
	bool keep, no_body, minor0, connect, forget, sse, has_date, has_server;
	bool over;	/* on_close was called, or would have been */
	bool aborted;
	bool orphan;	/* the connection is gone, and the handler, which did not ask to be told, has yet to answer */
	bool told_handler; /* the handler has been called for this request */
};

struct http_server {
	struct http_server_opts opts;
	struct hcore *core;
	http_request_fn *fn;
	void *arg;
	SSL_CTX *tls;
	struct link listeners, conns;
	unsigned n_conns, n_listeners;
	struct http_exchange *spare; /* to accept with, and close, when there is no memory: libuv insists on accepting */
	bool closing;
	void (*gone)(void *arg);
	void *gone_arg;
	struct hready ready;
};

/* A connection to accept into; NULL when not even the spare one is left. *no_memory: it is that one, to be closed at once. */
struct http_exchange *http_exchange_new(struct http_server *s, bool pipe, bool *no_memory);
void http_exchange_accepted(struct http_exchange *x);
void http_server_check_gone(struct http_server *s); /* frees it when it is closing and nothing is left of it */

/* listen.c */
void http_listeners_feed(struct http_server *s); /* those that had no memory to accept try again */
void http_listeners_close(struct http_server *s);

void http_exchange_deadline(struct http_exchange *x, int64_t ms); /* from now; 0: none */
/* The handler's answer is complete: of an orphan, nothing else is left. */
void http_exchange_answered(struct http_exchange *x);
const struct http_server_opts *http_exchange_opts(const struct http_exchange *x);
bool http_exchange_last(const struct http_exchange *x); /* the server is closing: no further request here */
/* Feeds bytes of the body to whoever reads it. Returns how many were taken. */
size_t http_exchange_body(struct http_exchange *x, const char *p, size_t n);
/* Tells the reader what is due: the end, or an error. */
void http_exchange_body_tell(struct http_exchange *x);
void http_exchange_body_fail(struct http_exchange *x, int err);
void http_exchange_ping(struct http_exchange *x); /* an SSE comment */

/* stream.c */
struct http_stream *http_stream_new(struct hconn *c); /* takes C's ops over */
void http_stream_on_over(struct http_stream *s, void (*over)(void *arg), void *arg); /* called once, soon, or before on_close */
void http_stream_gone(struct http_stream *s);	      /* C's destroy(): on_close, and the stream is gone */

#endif
