/* stream.c - a connection after an upgrade: bytes both ways; see server.h. */
#include "http/client.h"
#include "http/exchange.h"

struct http_stream {
	struct hconn *c;
	struct http_stream_cb cb;
	void *arg;
	void (*over)(void *arg); /* of the exchange or call that this was; once */
	void *over_arg;
	struct hready ready;
	bool read_ended;
};

static size_t on_data(struct hconn *c, const char *p, size_t n)
{
	struct http_stream *s = c->user;

	s->cb.on_data(s, p, (ssize_t)n, s->arg);
	return n;
}

/* Both directions have ended. */
static void close_if_done(struct http_stream *s)
{
	if (s->read_ended && s->c->shut && !s->c->out)
		hconn_close(s->c, false);
}

static void on_end(struct hconn *c, int err)
{
	struct http_stream *s = c->user;

	s->read_ended = true;
	s->cb.on_data(s, NULL, err, s->arg);
	if (c->closing)
		return;
	if (err < 0)
		hconn_close(c, true);
	else
		close_if_done(s);
}

static void on_drain(struct hconn *c)
{
	struct http_stream *s = c->user;

	if (s->cb.on_drain)
		s->cb.on_drain(s, s->arg);
}

static void on_flushed(struct hconn *c)
{
	close_if_done(c->user);
}

static int64_t on_tick(struct hconn *c, int64_t now)
{
	int64_t due = INT64_MAX;

	if (hconn_stalled(c, now, &due))
		hconn_fail(c, -ETIMEDOUT);
	return due;
}

static const struct hconn_ops stream_ops = {
	.data = on_data,
	.end = on_end,
	.drain = on_drain,
	.flushed = on_flushed,
	.kicked = on_flushed,
	.tick = on_tick,
	.write_end = true,
};

static void tell_over(struct hready *r)
{
	struct http_stream *s = container_of(r, struct http_stream, ready);
	void (*over)(void *arg) = s->over;

	s->over = NULL;
	if (over)
		over(s->over_arg);
}

struct http_stream *http_stream_new(struct hconn *c)
{
	struct http_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->c = c;
	s->ready.fn = tell_over;
	link_init(&s->ready.link);
	c->ops = &stream_ops;
	c->user = s;
	return s;
}

void http_stream_on_over(struct http_stream *s, void (*over)(void *arg), void *arg)
{
	s->over = over;
	s->over_arg = arg;
	hcore_defer(s->c->core, &s->ready);
}

void http_stream_gone(struct http_stream *s)
{
	link_del(&s->ready.link);
	tell_over(&s->ready);
	if (s->cb.on_close)
		s->cb.on_close(s, s->arg);
	free(s);
}

void http_stream_set_cb(struct http_stream *s, const struct http_stream_cb *cb, void *arg)
{
	s->cb = *cb;
	s->arg = arg;
}

int http_stream_write(struct http_stream *s, const void *data, size_t len)
{
	return hconn_write(s->c, data, len);
}

void http_stream_pause(struct http_stream *s)
{
	hconn_pause(s->c);
}

void http_stream_resume(struct http_stream *s)
{
	hconn_resume(s->c);
}

void http_stream_end(struct http_stream *s)
{
	hconn_shutdown(s->c);
	if (s->read_ended)
		hconn_kick(s->c);
}

void http_stream_close(struct http_stream *s)
{
	hconn_close(s->c, !(s->read_ended && s->c->shut));
}
