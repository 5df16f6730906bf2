/* client.h - an HTTP/1.1 client on a libuv loop: calls to one peer over a pool of kept-alive connections.
 *
 * The peer is an endpoint; how to connect to it is a function, so that a socket made in another network namespace serves as well as
 * one to an address. A kept connection is looked at before it is used; one that turns out closed all the same before a byte of the
 * answer came is tried again once on a new one when nothing of the body has been sent and the method is idempotent (RFC 9110, 9.2.2).
 * Callbacks come from the loop only, never from inside a call. Kept connections do not keep the loop alive. */
#ifndef SPACE_HTTP_CLIENT_H
#define SPACE_HTTP_CLIENT_H

#include <uv.h>

#include "http/server.h"

struct http_endpoint;
struct http_call;

/* Starts connecting: returns a non-blocking socket (connected or connecting), or a negative errno. Runs on a worker thread. */
typedef int http_connect_fn(void *arg, struct fail *why);

struct http_endpoint_opts {
	const char *unix_path;		/* one of these three */
	const char *host; int port;
	http_connect_fn *connect; void *connect_arg;
	void (*connect_free)(void *connect_arg); /* may be NULL. On the loop, once, after http_endpoint_free() when no connect is under way any more */
	bool tls; const char *tls_ca_file; /* NULL: system roots */
	const char *host_header;	/* NULL: made from the above; "localhost" for Unix sockets */
	int connect_timeout_ms;		/* 0: 5 s */
	unsigned max_idle;		/* 0: 8 connections kept */
};
int http_endpoint_new(uv_loop_t *loop, const struct http_endpoint_opts *o, struct http_endpoint **out);
/* Aborts every call under way (-ECANCELED) and closes the kept connections: the peer is a new one now, or about to go. */
void http_endpoint_reset(struct http_endpoint *e);
void http_endpoint_free(struct http_endpoint *e); /* resets first */

struct http_call_cb {
	void (*on_head)(struct http_call *c, const struct http_head *h, void *arg); /* valid during the call only. 1xx but 101 are skipped */
	void (*on_data)(struct http_call *c, const char *data, size_t len, void *arg);
	void (*on_drain)(struct http_call *c, void *arg);
	/* Exactly once; C is invalid after it. WHY->err 0: the answer was whole. */
	void (*on_end)(struct http_call *c, const struct fail *why, void *arg);
	/* For a 101 or a CONNECT's 2xx, instead of on_end: the stream is the caller's. NULL: such an answer is an error. */
	void (*on_upgrade)(struct http_call *c, const struct http_head *h, struct http_stream *s, void *arg);
};
struct http_call_opts {
	const char *method, *target;
	const char *host;		/* NULL: the endpoint's */
	const struct http_header *headers; unsigned nheaders; /* Host, Content-Length, Transfer-Encoding and Connection are ours */
	int64_t body_len;		/* 0: none; -1: chunked */
	bool upgrade;			/* sends "Connection: upgrade"; the Upgrade header is among HEADERS */
	int head_timeout_ms;		/* 0: 60 s from the end of the request to the answer's head; -1: none */
	int idle_timeout_ms;		/* 0: none. Between two pieces of the answer's body */
};
/* NULL when out of memory; every other failure comes through on_end, later. */
struct http_call *http_call_start(struct http_endpoint *e, const struct http_call_opts *o, const struct http_call_cb *cb, void *arg);
/* 0, 1 above high water (wait for on_drain), -EPIPE: nothing is taken any more, but an answer may still come. -EINVAL: over body_len. */
int http_call_write(struct http_call *c, const void *data, size_t len);
void http_call_end(struct http_call *c);			/* the body is complete */
void http_call_pause(struct http_call *c);
void http_call_resume(struct http_call *c);
void http_call_cancel(struct http_call *c); /* on_end comes with -ECANCELED */
/* Gives a stream of an on_upgrade to its owner. */
void http_stream_set_cb(struct http_stream *s, const struct http_stream_cb *cb, void *arg);

/* A whole small call: BODY in, at most MAX bytes of answer out. done is called once; STATUS is 0 when WHY says why. */
typedef void http_fetch_fn(int status, struct str body, const struct fail *why, void *arg);
int http_fetch(struct http_endpoint *e, const struct http_call_opts *o, struct str body, size_t max, int timeout_ms, http_fetch_fn *done, void *arg);

/* Relays the exchange to the endpoint and the answer back: bodies both ways with back-pressure, 100-continue, upgrades, trailers dropped,
 * hop-by-hop headers (RFC 9110, 7.6.1) removed. The client going away cancels the call; the peer breaking off resets the client. Where no
 * head came from the peer, FAILED is asked to answer. Takes X over. */
struct http_proxy_opts {
	const char *target;		/* NULL: as the client sent it */
	const char *host;		/* NULL: the client's Host header goes through */
	const struct http_header *add; unsigned nadd;
	const char *const *drop; unsigned ndrop; /* names of request headers not passed on */
	void (*failed)(struct http_exchange *x, const struct fail *why, void *arg);
	void (*on_end)(uint64_t bytes_in, uint64_t bytes_out, void *arg); /* may be NULL; once, at the very end (of the upgraded stream too) */
	void *arg;
};
void http_proxy(struct http_exchange *x, struct http_endpoint *e, const struct http_proxy_opts *o);

/* Reading server-sent events: feeds bytes, calls back for each event. At most MAX bytes an event. */
struct sse_reader;
typedef void sse_event_fn(struct str id, struct str event, struct str data, void *arg);
struct sse_reader *sse_reader_new(size_t max, sse_event_fn *fn, void *arg);
int sse_reader_feed(struct sse_reader *r, const char *p, size_t n); /* 0, or -EFBIG, -ENOMEM */
struct str sse_reader_last_id(const struct sse_reader *r);
void sse_reader_free(struct sse_reader *r);

#endif
