/* rpc.h - Connect calls over the HTTP server: unary ones and server streams.
 *
 * An error of a stream goes into its last envelope, with HTTP 200, because E2B's clients look
 * nowhere else; that of a unary call is an HTTP status and a body. */
#ifndef SPACE_AGENT_RPC_H
#define SPACE_AGENT_RPC_H

#include "agent/agent.h"
#include "agent/connect.h"

#define RPC_BODY_MAX (16 * 1024 * 1024)
#define KEEPALIVE_DEFAULT_MS (90 * 1000)

/* A call, for the time of its function: what is needed longer has to be copied (a reference to req
 * may be taken). */
struct rpc {
	struct http_exchange *x;
	json_t *req;
	bool stream;
	int64_t timeout_ms; /* Connect-Timeout-Ms; 0: none */
	int64_t keepalive_ms;
};
typedef void rpc_fn(struct rpc *r);

struct rpc_method {
	const char *path; /* "/process.Process/Start" */
	rpc_fn *fn;
	bool stream;
};
const struct rpc_method *rpc_find(struct str path);
void rpc_handle(struct http_exchange *x, const struct rpc_method *m);

/* The user named by Authorization, else the default one. On failure the call has been answered. */
int rpc_user(struct rpc *r, struct user *u);
/* Member NAME of the request as a path, resolved. On failure the call has been answered. */
int rpc_path(struct rpc *r, const char *name, const struct user *u, char out[PATH_LEN]);

void rpc_reply(struct http_exchange *x, struct buf *body); /* empties BODY; none at all: "{}" */
void rpc_fail(struct http_exchange *x, bool stream, enum rpc_code code, const char *fmt, ...)
	PRINTF(4, 5);

/* Streams. A frame is built in B after rpc_frame(), and rpc_send() returns as http_write does; it
 * empties B. */
void rpc_start(struct http_exchange *x);
void rpc_frame(struct buf *b);
int rpc_send(struct http_exchange *x, struct buf *b);
void rpc_finish(struct http_exchange *x, enum rpc_code code, const char *msg);

#endif
