#include "agent/xfer.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"

#define HEADERS_MAX 8
#define SKIP_MS (30 * 1000)
#define STACK (256 * 1024)

enum answer_state { ANSWER_NONE, ANSWER_HEAD, ANSWER_WHOLE, ANSWER_STREAM };

/* One direction: a circular buffer. */
struct way {
	char *p;
	size_t at, n; /* first byte, how many */
};

struct xfer {
	/* the loop's */
	struct http_exchange *x;
	uv_async_t wake;
	pthread_t thread;
	bool paused; /* the body is not being read */
	bool full;   /* the connection is above high water */
	bool started, ended;
	void *arg;
	xfer_fn *fn;

	/* both, under the lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct way in, out;
	bool in_ended;
	int in_err;
	bool gone; /* the client has */
	bool out_end, out_abort, returned;
	enum answer_state state;
	int status;
	char ctype[96];
	int64_t length;
	char *whole;
	size_t nwhole;
	struct {
		const char *name;
		char *value;
	} headers[HEADERS_MAX];
	unsigned nheaders;
};

static unsigned running;

/* --- circular buffers --- */

static size_t way_put(struct way *w, const char *p, size_t n)
{
	size_t done = 0;

	while (done < n && w->n < XFER_BUF) {
		size_t to = (w->at + w->n) % XFER_BUF,
		       piece = MIN(MIN(n - done, XFER_BUF - w->n), XFER_BUF - to);

		memcpy(w->p + to, p + done, piece);
		w->n += piece;
		done += piece;
	}
	return done;
}

static void way_drop(struct way *w, size_t n)
{
	w->at = (w->at + n) % XFER_BUF;
	w->n -= n;
}

static struct str way_front(const struct way *w)
{
	return (struct str){ w->p + w->at, MIN(w->n, XFER_BUF - w->at) };
}

/* --- the loop's side --- */

static void wake_closed(uv_handle_t *h)
{
	struct xfer *t = container_of((uv_async_t *)h, struct xfer, wake);

	for (unsigned i = 0; i < t->nheaders; i++)
		free(t->headers[i].value);
	free(t->whole);
	free(t->in.p);
	free(t->out.p);
	free(t->arg);
	pthread_cond_destroy(&t->cond);
	pthread_mutex_destroy(&t->lock);
	free(t);
	running--;
}

static void reap(struct xfer *t)
{
	if (t->x || !t->returned || uv_is_closing((uv_handle_t *)&t->wake))
		return;
	pthread_join(t->thread, NULL);
	uv_close((uv_handle_t *)&t->wake, wake_closed);
}

static void on_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	struct xfer *t = arg;
	bool pause = false;

	pthread_mutex_lock(&t->lock);
	if (len <= 0) {
		t->in_ended = true;
		t->in_err = (int)len;
	} else if (!t->returned && way_put(&t->in, data, (size_t)len) < (size_t)len) {
		t->in_ended = true; /* cannot be: pieces are at most half of the buffer, and it was
				       at most half full */
		t->in_err = -EIO;
	} else {
		pause = t->in.n > XFER_BUF / 2;
	}
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
	if (pause && !t->paused) {
		t->paused = true;
		http_body_pause(x);
	}
}

static void start_answer(struct xfer *t)
{
	t->started = true;
	for (unsigned i = 0; i < t->nheaders; i++)
		http_add_header(t->x, t->headers[i].name, t->headers[i].value);
	if (t->state == ANSWER_WHOLE) {
		t->ended = true;
		http_respond(t->x, t->status, t->ctype, t->whole, t->nwhole);
	} else {
		http_start(t->x, t->status, t->ctype, t->length);
	}
}

/* Moves what the thread has written to the connection, as far as that takes it. */
static void push(struct xfer *t)
{
	while (t->x && !t->full && t->out.n > 0) {
		struct str s = way_front(&t->out);
		int r = http_write(t->x, s.p, s.n);

		if (r < 0)
			break;
		t->full = r == 1;
		way_drop(&t->out, s.n);
	}
}

static void on_wake(uv_async_t *h)
{
	struct xfer *t = container_of(h, struct xfer, wake);
	bool resume = false, end = false, abort_it = false;

	pthread_mutex_lock(&t->lock);
	if (t->x && !t->started && (t->state == ANSWER_WHOLE || t->state == ANSWER_STREAM))
		start_answer(t);
	if (t->x && t->started && !t->ended) {
		push(t);
		end = t->out_end && t->out.n == 0;
		abort_it = t->returned && !t->out_end;
	} else if (t->x && !t->started) {
		abort_it = t->returned;
	}
	if (t->x && t->paused && t->in.n <= XFER_BUF / 4) {
		t->paused = false;
		resume = true;
	}
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
	if (end || abort_it) {
		t->ended = true;
		if (abort_it)
			http_abort(t->x);
		else
			http_end(t->x);
	} else if (resume && !t->ended) {
		http_body_resume(t->x);
	}
	reap(t);
}

static void on_drain(struct http_exchange *x, void *arg)
{
	struct xfer *t = arg;

	t->full = false;
	uv_async_send(&t->wake);
}

static void on_close(struct http_exchange *x, int err, void *arg)
{
	struct xfer *t = arg;

	t->x = NULL;
	pthread_mutex_lock(&t->lock);
	t->gone = true;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
	uv_async_send(&t->wake);
}

static void *run(void *arg)
{
	struct xfer *t = arg;

	t->fn(t, t->arg);
	pthread_mutex_lock(&t->lock);
	t->returned = true;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
	uv_async_send(&t->wake);
	return NULL;
}

static int thread_start(struct xfer *t)
{
	pthread_attr_t a;
	int r;

	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, STACK);
	r = pthread_create(&t->thread, &a, run, t);
	pthread_attr_destroy(&a);
	return -r;
}

void xfer_start(struct http_exchange *x, bool body, xfer_fn *fn, void *arg)
{
	struct xfer *t = running < XFER_MAX ? calloc(1, sizeof(*t)) : NULL;

	if (t) {
		t->in.p = body ? malloc(XFER_BUF) : NULL;
		t->out.p = malloc(XFER_BUF);
	}
	if (!t || !t->out.p || (body && !t->in.p)) {
		if (t) {
			free(t->in.p);
			free(t->out.p);
		}
		free(t);
		free(arg);
		answer_error(x, 503, "%d transfers run already: try again in a moment", XFER_MAX);
		return;
	}
	t->x = x;
	t->fn = fn;
	t->arg = arg;
	t->in_ended = !body;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->cond, NULL);
	uv_async_init(agent.loop, &t->wake, on_wake);
	running++;
	http_on_close(x, on_close, t);
	http_on_drain(x, on_drain, t);
	if (thread_start(t) < 0) {
		t->returned = true;
		t->x = NULL;
		http_on_close(x, NULL, NULL);
		http_on_drain(x, NULL, NULL);
		uv_close((uv_handle_t *)&t->wake, wake_closed);
		answer_error(x, 503, "no thread for the transfer");
		return;
	}
	if (body)
		http_body_read(x, 0, on_body, t);
}

/* --- the thread's side --- */

ssize_t xfer_read(struct xfer *t, void *buf, size_t n)
{
	struct str s;
	ssize_t r = 0;
	bool low;

	pthread_mutex_lock(&t->lock);
	while (t->in.n == 0 && !t->in_ended && !t->gone)
		pthread_cond_wait(&t->cond, &t->lock);
	if (t->in.n > 0) {
		s = way_front(&t->in);
		r = (ssize_t)MIN(s.n, n);
		memcpy(buf, s.p, (size_t)r);
		way_drop(&t->in, (size_t)r);
	} else {
		r = t->gone ? -EPIPE : t->in_err;
	}
	low = t->in.n <= XFER_BUF / 4;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
	if (low && r > 0)
		uv_async_send(&t->wake);
	return r;
}

void xfer_skip(struct xfer *t)
{
	int64_t until = mono_ms() + SKIP_MS;
	char buf[4096];

	while (mono_ms() < until && xfer_read(t, buf, sizeof(buf)) > 0)
		;
}

void xfer_header(struct xfer *t, const char *name, const char *value)
{
	if (t->nheaders == HEADERS_MAX)
		return;
	t->headers[t->nheaders].name = name;
	t->headers[t->nheaders].value = strdup(value);
	if (t->headers[t->nheaders].value)
		t->nheaders++;
}

void xfer_head(struct xfer *t, int status, const char *ctype, int64_t length)
{
	pthread_mutex_lock(&t->lock);
	t->status = status;
	snprintf(t->ctype, sizeof(t->ctype), "%s", ctype);
	t->length = length;
	t->state = ANSWER_STREAM;
	pthread_mutex_unlock(&t->lock);
	uv_async_send(&t->wake);
}

int xfer_write(struct xfer *t, const void *p, size_t n)
{
	const char *from = p;
	int r = 0;

	while (n > 0 && r == 0) {
		size_t put;

		pthread_mutex_lock(&t->lock);
		while (t->out.n == XFER_BUF && !t->gone)
			pthread_cond_wait(&t->cond, &t->lock);
		r = t->gone ? -EPIPE : 0;
		put = r == 0 ? way_put(&t->out, from, n) : 0;
		pthread_mutex_unlock(&t->lock);
		uv_async_send(&t->wake);
		from += put;
		n -= put;
	}
	return r;
}

void xfer_end(struct xfer *t)
{
	pthread_mutex_lock(&t->lock);
	t->out_end = true;
	pthread_mutex_unlock(&t->lock);
	uv_async_send(&t->wake);
}

void xfer_respond(struct xfer *t, int status, const char *ctype, struct str body)
{
	char *copy = malloc(body.n + 1);

	if (!copy)
		return; /* the client is reset */
	memcpy(copy, body.n ? body.p : "", body.n);
	pthread_mutex_lock(&t->lock);
	t->status = status;
	snprintf(t->ctype, sizeof(t->ctype), "%s", ctype);
	t->whole = copy;
	t->nwhole = body.n;
	t->state = ANSWER_WHOLE;
	pthread_mutex_unlock(&t->lock);
	uv_async_send(&t->wake);
}

void xfer_error(struct xfer *t, int status, const char *fmt, ...)
{
	char msg[PATH_LEN + 256];
	struct buf b;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	xfer_skip(t);
	error_text(&b, status, msg);
	xfer_respond(t, status, "application/json; charset=utf-8", buf_str(&b));
	buf_clear(&b);
}
