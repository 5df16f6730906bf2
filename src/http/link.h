/* link.h - inside src/http only: endpoints and their connections (link.c), and the calls over them (client.c). */
#ifndef SPACE_HTTP_LINK_H
#define SPACE_HTTP_LINK_H

#include "http/client.h"
#include "http/conn.h"

struct http_endpoint {
	struct hcore *core;
	unsigned refs; /* its owner, calls, links, attempts to connect */
	char *unix_path, *host, *host_header;
	int port;
	http_connect_fn *connect;
	void *connect_arg;
	void (*connect_free)(void *connect_arg);
	SSL_CTX *tls;
	int connect_timeout_ms;
	unsigned max_idle, n_idle;
	struct link idle, links, calls;
	bool freed;
};

void http_endpoint_put(struct http_endpoint *e);

/* One connection to an endpoint. */
struct hlink {
	struct hconn c;
	struct http_endpoint *e;
	struct link all, link; /* in e->links; in e->idle */
	struct http_call *call;
	struct http_stream *stream;
	struct hattempt *attempt; /* while connecting */
	int64_t idle_since;
	bool used; /* kept from an earlier call */
};

/* A kept connection that looks alive, or NULL. */
struct hlink *hlink_reuse(struct http_endpoint *e);
/* The call is over: keeps L for the next one if there is room for it, or closes it in any case. */
void hlink_keep(struct hlink *l);
void hlink_drop(struct hlink *l, bool reset);
/* Begins to connect for C; ends in http_call_connected() or http_call_failed(), later. 0 or -ENOMEM. */
int hattempt_start(struct http_endpoint *e, struct http_call *c);
void hattempt_abandon(struct hattempt *a);

struct http_call {
	struct http_endpoint *e;
	struct link link;      /* in e->calls */
	struct hsweep sweep;
	struct hready ready;   /* on_end, later */
	struct http_call_cb cb;
	void *arg;
	struct hattempt *attempt; /* one of these two */
	struct hlink *l;
	char method[33];
	struct buf head;       /* of the request: until the answer begins */
	struct buf body;       /* framed, before there is a connection */
	int64_t body_left;     /* -1: chunked */
	enum http_framing framing;
	uint64_t left;
	struct http_chunked chunked;
	uint32_t head_seen;
	unsigned interim;      /* answers of 1xx so far */
	int head_timeout_ms, idle_timeout_ms;
	int64_t deadline;      /* of what is being waited for */
	int64_t total_deadline;
	struct fail why;
	bool want_upgrade, sent_all, sent_body, got_head, keep, retried, paused, full, ending, upgraded;
};

void http_call_connected(struct http_call *c, struct hlink *l);
PRINTF(3, 4) void http_call_failed(struct http_call *c, int err, const char *fmt, ...);
void http_call_timeout(struct http_call *c, int ms); /* for the whole of it */
size_t http_call_data(struct http_call *c, const char *p, size_t n);
void http_call_broken(struct http_call *c, int err); /* the connection has ended */
void http_call_drained(struct http_call *c);

#endif
