/* xfer.h - transfers: file bodies in plain blocking code, on a thread of their own.
 *
 * The thread reads the request's body and writes the answer as if they were files; the loop moves
 * the bytes between it and the connection, through one buffer each way, so that a side that stops
 * stops the other. At most XFER_MAX run at once; the next is answered 503. The thread's function
 * always answers (or its client has gone), and owns ARG until it returns. */
#ifndef SPACE_AGENT_XFER_H
#define SPACE_AGENT_XFER_H

#include "agent/agent.h"

#define XFER_MAX 64
#define XFER_BUF (128 * 1024)

struct xfer;
typedef void xfer_fn(struct xfer *t, void *arg);

/* Takes ARG over, which is freed with free() in the end. `body`: the request's body is wanted. */
void xfer_start(struct http_exchange *x, bool body, xfer_fn *fn, void *arg);

/* --- on the thread --- */
/* The next bytes of the body, at least one; 0 at its end; -EPIPE, -EBADMSG …: it was cut. */
ssize_t xfer_read(struct xfer *t, void *buf, size_t n);
/* Reads what remains and forgets it (for 30 s at most), so that the client gets to read an early
 * error. */
void xfer_skip(struct xfer *t);
/* Before the answer starts. NAME is a literal. */
void xfer_header(struct xfer *t, const char *name, const char *value);
/* A streamed answer; length -1: chunked. xfer_write: 0 or -EPIPE. A function that returns without
 * xfer_end resets the client. */
void xfer_head(struct xfer *t, int status, const char *ctype, int64_t length);
int xfer_write(struct xfer *t, const void *p, size_t n);
void xfer_end(struct xfer *t);
/* A whole answer, instead. */
void xfer_respond(struct xfer *t, int status, const char *ctype, struct str body);
void xfer_error(struct xfer *t, int status, const char *fmt, ...)
	PRINTF(3, 4); /* skips the body first */

#endif
