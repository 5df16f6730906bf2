/* transfer.c - a node as one stream, out and in.
 *
 * The core reads or writes a descriptor in a job; here is the other end of that pipe, on the loop. Neither side runs ahead: going
 * out, the pipe is not read while the client does not take what there is, and so the job waits in write(); coming in, the client is
 * not read while the pipe is full. A job that waits for a client holds a worker thread, so only a few transfers go on at a time. */
#include <fcntl.h>
#include <stdio.h>

#include "api/handlers.h"
#include "base/log.h"

#define TRANSFERS_MAX 4		/* of the 16 worker threads */
#define PIECE (64 * KIB)
#define QUEUE_HIGH (256 * KIB)	/* read from the client, and not taken by the pipe yet */
#define PIPE_BYTES (256 * KIB)

struct transfer {
	struct req *r;
	uv_pipe_t pipe;
	unsigned refs;		/* the core's job, and the pipe until it is closed */
	bool closing;
	bool job_ended;
	bool whole;		/* out: the pipe has ended. In: the body has, or broke off */
	struct fail why;	/* of the job */
	char piece[];		/* out: PIECE */
};

static void transfer_unref(struct transfer *t)
{
	if (--t->refs)
		return;
	t->r->api->transfers--;
	req_unref(t->r);
	free(t);
}

static void on_pipe_closed(uv_handle_t *h)
{
	transfer_unref(h->data);
}

static void pipe_close(struct transfer *t)
{
	if (t->closing)
		return;
	t->closing = true;
	uv_close((uv_handle_t *)&t->pipe, on_pipe_closed);
}

/* Nothing more is done for the client. The job notices that its pipe has ended. */
static void let_go(struct transfer *t)
{
	t->r->user = NULL;
	t->r->on_gone = NULL;
	t->r->on_stop = NULL;
	pipe_close(t);
}

static void on_gone(struct req *r)
{
	if (r->user)
		let_go(r->user);
}

static void on_stop(struct req *r, const struct fail *why)
{
	if (r->user)
		let_go(r->user);
	req_fail(r, why);
}

/* Our end of a pipe whose other end, *fd, is the job's. NULL: answered. */
static struct transfer *transfer_new(struct req *r, bool out, int *fd)
{
	struct transfer *t;
	struct fail why = { 0 };
	int ends[2];

	if (r->api->transfers >= TRANSFERS_MAX) {
		req_failf(r, ERR_rate_limited, "%d exports and imports are under way already", TRANSFERS_MAX);
		return NULL;
	}
	t = calloc(1, sizeof(*t) + (out ? PIECE : 0));
	if (!t || pipe2(ends, O_CLOEXEC) < 0) {
		fail_set(&why, t ? -errno : -ENOMEM, "a pipe: %s", strerror(t ? errno : ENOMEM));
		req_fail(r, &why);
		free(t);
		return NULL;
	}
	(void)fcntl(ends[0], F_SETPIPE_SZ, (int)PIPE_BYTES); /* larger is only faster */
	uv_pipe_init(r->api->loop, &t->pipe, 0);
	t->pipe.data = t;
	t->refs = 2;
	t->r = req_ref(r);
	r->api->transfers++;
	if (uv_pipe_open(&t->pipe, ends[out ? 0 : 1]) < 0)
		close(ends[out ? 0 : 1]); /* then the job finds its pipe ended, and says so */
	*fd = ends[out ? 1 : 0];
	req_is_stream(r, on_stop);
	r->user = t;
	r->on_gone = on_gone;
	return t;
}

/* --- out --- */

static void out_settle(struct transfer *t)
{
	struct req *r = t->r;

	if (!r->user || !t->job_ended || !(t->whole || t->why.err))
		return;
	let_go(t);
	if (t->why.err)
		req_fail(r, &t->why); /* resets the connection where the answer has begun */
	else if (!http_started(r->x))
		req_failf(r, ERR_internal, "the export was empty");
	else
		http_end(r->x);
}

static void out_alloc(uv_handle_t *h, size_t want, uv_buf_t *b)
{
	struct transfer *t = h->data;

	*b = uv_buf_init(t->piece, PIECE);
}

static void out_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b);

static void on_client_drain(struct http_exchange *x, void *arg)
{
	struct req *r = arg;
	struct transfer *t = r->user;

	if (t && !t->closing && !t->whole)
		uv_read_start((uv_stream_t *)&t->pipe, out_alloc, out_read);
}

static void out_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct transfer *t = s->data;
	struct req *r = t->r;

	if (!n || !r->user)
		return;
	if (n < 0) {
		t->whole = true;
		uv_read_stop(s);
		return out_settle(t);
	}
	/* Only now: what fails before its first byte has an ordinary answer. */
	if (!http_started(r->x)) {
		http_add_header(r->x, "X-Content-Type-Options", "nosniff");
		http_on_drain(r->x, on_client_drain, r);
		req_start(r, 200, CHECKPOINT_TYPE, -1);
	}
	if (r->x && http_write(r->x, b->base, (size_t)n) == 1)
		uv_read_stop(s);
}

static void on_exported(json_t *value, const struct fail *why, void *arg)
{
	struct transfer *t = arg;

	t->job_ended = true;
	t->why = *why;
	out_settle(t);
	transfer_unref(t);
}

void h_checkpoint_export(struct req *r)
{
	const struct checkpoint *k = req_checkpoint(r);
	struct transfer *t;
	char id[24];
	int fd;

	if (!k)
		return;
	snprintf(id, sizeof(id), "%s", k->id);
	t = transfer_new(r, true, &fd);
	if (!t)
		return;
	uv_read_start((uv_stream_t *)&t->pipe, out_alloc, out_read);
	checkpoint_export(r->api->sp, r->tenant, id, fd, on_exported, t);
}

/* --- in --- */

struct piece {
	uv_write_t w;
	struct transfer *t;
	char bytes[];
};

static size_t queued(const struct transfer *t)
{
	return uv_stream_get_write_queue_size((const uv_stream_t *)&t->pipe);
}

/* What is queued is lost when the pipe is closed; so it is closed when nothing is. */
static void in_end(struct transfer *t)
{
	if (t->whole && !t->closing && !queued(t))
		pipe_close(t);
}

static void on_written(uv_write_t *w, int status)
{
	struct piece *p = container_of(w, struct piece, w);
	struct transfer *t = p->t;

	free(p);
	if (status < 0) {
		pipe_close(t); /* the job has ended, and says why */
	} else if (!t->whole && t->r->x && t->r->user && queued(t) < QUEUE_HIGH / 4) {
		http_body_resume(t->r->x);
	}
	in_end(t);
}

/* Returns 1 when the pipe is full. */
static int in_write(struct transfer *t, const char *p, size_t n)
{
	uv_buf_t b = uv_buf_init((char *)p, (unsigned)n);
	int done = queued(t) ? 0 : uv_try_write((uv_stream_t *)&t->pipe, &b, 1);
	struct piece *rest;

	if (done == (int)n)
		return 0;
	if (done < 0)
		done = 0; /* EAGAIN; or the pipe has ended, which the next write says as well */
	rest = malloc(sizeof(*rest) + n - (size_t)done);
	if (!rest)
		return -ENOMEM;
	rest->t = t;
	memcpy(rest->bytes, p + done, n - (size_t)done);
	b = uv_buf_init(rest->bytes, (unsigned)(n - (size_t)done));
	if (uv_write(&rest->w, (uv_stream_t *)&t->pipe, &b, 1, on_written) < 0) {
		free(rest);
		return -EPIPE;
	}
	return queued(t) > QUEUE_HIGH;
}

static void on_body(struct http_exchange *x, const char *p, ssize_t n, void *arg)
{
	struct req *r = arg;
	struct transfer *t = r->user;
	int full;

	if (!t || t->closing)
		return; /* what is still on its way is for nobody: the job has its reasons, and says them */
	if (n <= 0) {
		t->whole = true; /* a body that broke off is a stream without its end, and refused as such */
		return in_end(t);
	}
	full = in_write(t, p, (size_t)n);
	if (full < 0)
		pipe_close(t); /* the job finds the stream cut */
	else if (full)
		http_body_pause(x);
}

static void on_imported(const struct checkpoint *k, const struct fail *why, void *arg)
{
	struct transfer *t = arg;
	struct req *r = t->r;
	struct buf b;
	struct jw w;

	if (r->user) {
		let_go(t);
		if (!k) {
			req_fail(r, why);
		} else {
			answer_begin(&w, &b);
			checkpoint_write(r, &w, NULL, k);
			req_json(r, 201, &w);
		}
	}
	pipe_close(t);
	transfer_unref(t);
}

void h_checkpoint_import(struct req *r)
{
	const struct http_head *h = http_req(r->x);
	struct transfer *t;
	int fd;

	if (h->framing == HTTP_BODY_NONE && !http_get(h, "Content-Length").p)
		return req_failf(r, ERR_length_required, "the body has no length and is not chunked");
	t = transfer_new(r, false, &fd);
	if (!t)
		return;
	http_body_read(r->x, 0, on_body, r);
	checkpoint_import(r->api->sp, r->tenant, fd, on_imported, t);
}
