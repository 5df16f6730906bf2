/* conn.c - the bytes of one connection; see conn.h. */
#include "http/conn.h"

#include <poll.h>
#include <sys/socket.h>

#define SEG_MIN 1024
#define SEG_MAX (64 * KIB)
#define GATHER_MAX SEG_MIN /* so much waits for the end of a turn of the loop */

extern const struct htls_ops htls_ops __attribute__((weak));

struct hseg {
	uv_write_t req;
	struct hconn *c;
	struct hseg *next;
	size_t n, cap;
	bool sent; /* given to libuv: nothing may be added */
	char data[];
};

/* Two a thread, made at first use and kept: the second for what comes out of TLS. */
static __thread char *read_buf, *plain_buf;

static char *shared_buf(char **buf)
{
	if (!*buf)
		*buf = malloc(HCONN_READ);
	return *buf;
}

size_t hconn_buffered(const struct hconn *c)
{
	return c->in_n + (c->tls ? htls_ops.pending(c) : 0);
}

/* --- reading --- */

static size_t read_room(const struct hconn *c)
{
	size_t most = c->paused ? HCONN_READ_AHEAD : HCONN_READ, have = hconn_buffered(c);

	return have < most ? most - have : 0;
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct hconn *c = container_of(h, struct hconn, uv.handle);
	size_t room = read_room(c);

	buf->base = shared_buf(&read_buf);
	buf->len = buf->base ? MAX(room, (size_t)1) : 0;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf);

/* Reads while there is room for what comes. */
static void read_update(struct hconn *c)
{
	bool want = !c->held && !c->eof && !c->closing && !c->rerr && read_room(c) > 0;

	if (want == c->reading)
		return;
	c->reading = want;
	if (!want) {
		uv_read_stop(&c->uv.stream);
	} else if (uv_read_start(&c->uv.stream, on_alloc, on_read) < 0) {
		c->reading = false;
		hconn_fail(c, -ENOTCONN);
	}
}

static bool keep(struct hconn *c, const char *p, size_t n)
{
	if (c->in_n + n > c->in_cap) {
		size_t cap = MAX(c->in_n + n, (size_t)512);
		char *grown = realloc(c->in, cap);

		if (!grown)
			return false;
		c->in = grown;
		c->in_cap = (uint32_t)cap;
	}
	memcpy(c->in + c->in_n, p, n);
	c->in_n += (uint32_t)n;
	return true;
}

/* Offers bytes as long as some are taken. Returns how many were. */
static size_t offer(struct hconn *c, const char *p, size_t n)
{
	size_t done = 0;

	while (done < n && !c->paused && !c->held && !c->closing) {
		size_t used = c->ops->data(c, p + done, n - done);

		if (used == 0)
			break;
		done += used;
	}
	return c->closing ? n : done;
}

static void offer_kept(struct hconn *c)
{
	size_t used;

	if (c->in_n == 0 || c->paused || c->feeding)
		return;
	c->feeding = true;
	used = offer(c, c->in, c->in_n);
	c->feeding = false;
	if (used == c->in_n) {
		free(c->in);
		c->in = NULL;
		c->in_n = c->in_cap = 0;
	} else if (used) {
		memmove(c->in, c->in + used, c->in_n - used);
		c->in_n -= (uint32_t)used;
	}
}

static void take(struct hconn *c, const char *p, size_t n)
{
	bool fresh = c->in_n == 0 && !c->paused;
	size_t used = 0;

	if (fresh) {
		c->feeding = true;
		used = offer(c, p, n);
		c->feeding = false;
	}
	if (used < n && !keep(c, p + used, n - used))
		hconn_fail(c, -ENOMEM);
	else if (!fresh)
		offer_kept(c);
}

/* Moves what TLS has decrypted, as long as it is wanted. */
static void tls_pump(struct hconn *c)
{
	while (c->tls && !c->closing && !c->rerr && c->in_n < HCONN_READ &&
		(!c->paused || c->in_n == 0)) {
		char *p = shared_buf(&plain_buf);
		ssize_t n = p ? htls_ops.read(c, p, MIN(HCONN_READ - c->in_n, 16 * KIB)) : -ENOMEM;

		if (n == 0)
			return;
		if (n == -EPIPE) {
			c->eof = true;
			return;
		}
		if (n < 0) {
			c->rerr = (int16_t)n;
			return;
		}
		take(c, p, (size_t)n);
	}
}

static void tell_end(struct hconn *c)
{
	int err = c->rerr ? c->rerr : c->eof ? 0 : c->werr;
	bool ended = c->eof || c->rerr || (c->werr && c->ops->write_end);

	if (!ended || c->eof_told || c->closing || (c->held && !c->rerr))
		return;
	/* What is left although nobody paused is the beginning of something that will never be
	 * whole. */
	if (c->paused && hconn_buffered(c) && !c->ops->eager_end && !c->rerr)
		return;
	c->eof_told = true;
	c->ops->end(c, err);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct hconn *c = container_of(s, struct hconn, uv.stream);

	if (n == 0)
		return;
	if (n == UV_EOF) {
		/* TLS that ends without saying so may have been cut off. */
		if (c->tls && !c->eof)
			c->rerr = -ECONNRESET;
		c->eof = true;
	} else if (n < 0) {
		c->rerr = (int16_t)(n == UV_ENOBUFS ? -ENOMEM : n);
	} else if (c->tls) {
		htls_ops.received(c, buf->base, (size_t)n);
		tls_pump(c);
	} else {
		take(c, buf->base, (size_t)n);
	}
	if (c->closing)
		return;
	read_update(c);
	tell_end(c);
}

void hconn_read_start(struct hconn *c)
{
	read_update(c);
}

void hconn_pause(struct hconn *c)
{
	c->paused = true;
	if (!c->feeding && !c->closing)
		read_update(c);
}

void hconn_resume(struct hconn *c)
{
	if (!c->paused)
		return;
	c->paused = false;
	if (c->closing)
		return;
	if (hconn_buffered(c) || c->eof || c->rerr)
		hconn_kick(c);
	read_update(c);
}

void hconn_hold(struct hconn *c, bool on)
{
	if (c->held == on || c->closing)
		return;
	c->held = on;
	if (!on && (hconn_buffered(c) || c->eof || c->rerr))
		hconn_kick(c);
	if (!c->feeding)
		read_update(c);
}

static void on_ready(struct hready *r)
{
	struct hconn *c = container_of(r, struct hconn, ready);
	bool kick = c->kick;

	if (c->closing)
		return;
	c->kick = false;
	offer_kept(c);
	tls_pump(c);
	if (!c->closing)
		tell_end(c);
	if (!c->closing && kick && c->ops->kicked)
		c->ops->kicked(c);
	if (!c->closing)
		read_update(c);
}

void hconn_kick(struct hconn *c)
{
	if (c->closing)
		return;
	c->kick = true;
	hcore_defer(c->core, &c->ready);
}

void hconn_fail(struct hconn *c, int err)
{
	if (!c->rerr)
		c->rerr = (int16_t)err;
	hcore_defer(c->core, &c->ready);
}

/* --- writing --- */

static void out_submit(struct hconn *c);
static void flush(struct hconn *c);

static void out_clear(struct hconn *c)
{
	/* The first may be libuv's, which gives it back by its callback. */
	struct hseg *s = c->out && c->out->sent ? c->out->next : c->out;

	if (c->out && c->out->sent)
		c->out->next = NULL;
	else
		c->out = NULL;
	c->out_last = c->out;
	while (s) {
		struct hseg *next = s->next;

		free(s);
		s = next;
	}
	c->unsent = c->out ? c->out->n : 0;
}

static void write_failed(struct hconn *c, int err)
{
	if (!c->werr)
		c->werr = (int16_t)(err == UV_EPIPE ? -EPIPE : err);
	out_clear(c);
	hcore_defer(c->core, &c->ready);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
	free(req);
}

static void shutdown_now(struct hconn *c)
{
	uv_shutdown_t *req;
	uv_os_fd_t fd;

	if (c->shut_sent || c->werr || c->closing)
		return;
	c->shut_sent = true;
	if (c->tls)
		htls_ops.shutdown(c);
	flush(c);
	if (!c->out) {
		/* libuv has nothing left to write, and would only do this. */
		if (uv_fileno(&c->uv.handle, &fd) == 0)
			shutdown(fd, SHUT_WR);
		return;
	}
	req = malloc(sizeof(*req)); /* after what TLS has just said */
	if (!req || uv_shutdown(req, &c->uv.stream, on_shutdown) < 0) {
		free(req);
		hconn_fail(c, -ENOMEM);
	}
}

static void all_written(struct hconn *c)
{
	if (c->shut)
		shutdown_now(c);
	if (c->ops->flushed)
		c->ops->flushed(c);
}

static void on_written(uv_write_t *req, int status)
{
	struct hseg *s = container_of(req, struct hseg, req);
	struct hconn *c = s->c;

	c->out = s->next;
	if (!c->out)
		c->out_last = NULL;
	c->unsent -= s->n;
	free(s);
	if (c->closing)
		return;
	if (status < 0) {
		write_failed(c, status);
		return;
	}
	if (c->out)
		out_submit(c);
	if (c->full && c->unsent < c->high_water / 4) {
		c->full = false;
		c->ops->drain(c);
	}
	if (!c->closing && !c->out)
		all_written(c);
}

static void out_submit(struct hconn *c)
{
	struct hseg *s = c->out;
	uv_buf_t b = uv_buf_init(s->data, (unsigned)s->n);
	int r;

	s->sent = true;
	r = uv_write(&s->req, &c->uv.stream, &b, 1, on_written);
	if (r < 0) {
		s->sent = false;
		write_failed(c, r);
	}
}

static struct hseg *seg_add(struct hconn *c, size_t want)
{
	size_t cap = MAX(want, MIN(c->unsent, SEG_MAX));
	struct hseg *s;

	cap = cap < SEG_MIN ? SEG_MIN : cap > SEG_MAX ? SEG_MAX : cap;
	s = malloc(sizeof(*s) + cap);
	if (!s)
		return NULL;
	s->c = c;
	s->next = NULL;
	s->n = 0;
	s->cap = cap;
	s->sent = false;
	if (c->out_last)
		c->out_last->next = s;
	else
		c->out = s;
	c->out_last = s;
	return s;
}

static int out_append(struct hconn *c, const char *p, size_t n)
{
	while (n) {
		struct hseg *s = c->out_last;
		size_t room;

		if (!s || s->sent || s->n == s->cap)
			s = seg_add(c, n);
		if (!s)
			return -ENOMEM;
		room = MIN(s->cap - s->n, n);
		memcpy(s->data + s->n, p, room);
		s->n += room;
		c->unsent += room;
		p += room;
		n -= room;
	}
	return 0;
}

static void flush(struct hconn *c)
{
	if (!c->out || c->out->sent)
		return;
	out_submit(c);
	hcore_due(c->core, hcore_now(c->core) + c->write_timeout_ms);
}

/* As much of what was gathered as the socket takes at once. */
static void try_gathered(struct hconn *c)
{
	struct hseg *s = c->out;
	uv_buf_t b;
	int r;

	if (!s || s->sent)
		return;
	b = uv_buf_init(s->data, (unsigned)s->n);
	r = uv_try_write(&c->uv.stream, &b, 1);
	if (r < 0 && r != UV_EAGAIN) {
		write_failed(c, r);
		return;
	}
	if (r <= 0)
		return;
	s->n -= (size_t)r;
	c->unsent -= (size_t)r;
	memmove(s->data, s->data + r, s->n);
	if (s->n)
		return;
	c->out = s->next;
	if (!c->out)
		c->out_last = NULL;
	free(s);
}

static void on_gathered(struct hready *r)
{
	struct hconn *c = container_of(r, struct hconn, gathered);

	if (c->closing || !c->out || c->out->sent)
		return;
	try_gathered(c);
	if (c->out)
		flush(c);
	else if (!c->werr)
		all_written(c);
}

/* What is said in pieces within one turn of the loop (a head, the first of a body, the end of it) goes out as one: each packet costs the
 * other side of a tap an interrupt. */
static bool gathers(const struct hconn *c, const uv_buf_t *bufs, unsigned n)
{
	size_t sum = c->out ? c->unsent : 0;

	if (c->out && c->out->sent)
		return false;
	for (unsigned i = 0; i < n; i++)
		sum += bufs[i].len;
	/* Below what counts as full: whoever waits for room hears of it from on_written() alone. */
	return sum <= GATHER_MAX && sum < c->high_water;
}

int hconn_raw_writev(struct hconn *c, const uv_buf_t *bufs, unsigned n)
{
	size_t sent = 0;
	bool later;

	if (c->werr || c->closing)
		return -EPIPE;
	later = gathers(c, bufs, n);
	if (!c->out)
		c->taken_at = hcore_now(c->core);
	else if (!later)
		try_gathered(c);
	if (!c->out && !later && !c->werr) {
		int r = uv_try_write(&c->uv.stream, bufs, n);

		if (r < 0 && r != UV_EAGAIN) {
			write_failed(c, r);
			return -EPIPE;
		}
		sent = r > 0 ? (size_t)r : 0;
	}
	for (unsigned i = 0; i < n; i++) {
		size_t skip = MIN(sent, bufs[i].len);

		c->queued += bufs[i].len;
		sent -= skip;
		if (out_append(c, bufs[i].base + skip, bufs[i].len - skip) < 0) {
			write_failed(c, -ENOMEM);
			return -EPIPE;
		}
	}
	if (later)
		hcore_defer(c->core, &c->gathered);
	else
		flush(c);
	return c->werr ? -EPIPE : 0;
}

int hconn_writev(struct hconn *c, const uv_buf_t *bufs, unsigned n)
{
	int r;

	if (c->werr || c->closing || c->shut || c->rerr)
		return -EPIPE;
	r = c->tls ? htls_ops.write(c, bufs, n) : hconn_raw_writev(c, bufs, n);
	if (r < 0)
		return r;
	if (c->unsent < c->high_water)
		return 0;
	c->full = true;
	return 1;
}

int hconn_write(struct hconn *c, const void *p, size_t n)
{
	uv_buf_t b = uv_buf_init((char *)p, (unsigned)n);

	if (n > UINT32_MAX)
		return -EPIPE;
	return n ? hconn_writev(c, &b, 1) : 0;
}

void hconn_shutdown(struct hconn *c)
{
	if (c->shut || c->closing)
		return;
	c->shut = true;
	if (!c->out)
		shutdown_now(c);
}

bool hconn_stalled(struct hconn *c, int64_t now, int64_t *due)
{
	uint64_t taken;

	if (!c->out)
		return false;
	/* Of the segment that is libuv's, the part that the peer has taken counts too. */
	taken = c->queued - c->unsent +
		(c->out->sent ? c->out->n - uv_stream_get_write_queue_size(&c->uv.stream) : 0);
	if (taken != c->taken) {
		c->taken = taken;
		c->taken_at = now;
	}
	if (now - c->taken_at >= c->write_timeout_ms)
		return true;
	*due = MIN(*due, c->taken_at + c->write_timeout_ms);
	return false;
}

/* --- life --- */

/* While nothing is read because nobody wants it, no read will say that the peer has gone. */
static bool peer_gone(const struct hconn *c)
{
	struct pollfd p = { -1, POLLRDHUP, 0 };

	if (c->reading || c->eof || c->rerr || !c->paused)
		return false;
	return uv_fileno(&c->uv.handle, &p.fd) == 0 && poll(&p, 1, 0) > 0;
}

static int64_t on_tick(struct hsweep *s, int64_t now)
{
	struct hconn *c = container_of(s, struct hconn, sweep);

	if (!c->closing && c->ops->eager_end && peer_gone(c))
		hconn_fail(c, -EPIPE);
	return c->closing || !c->ops->tick ? INT64_MAX : c->ops->tick(c, now);
}

int hconn_init(struct hconn *c, struct hcore *core, bool pipe, const struct hconn_ops *ops,
	void (*destroy)(struct hconn *))
{
	int r = pipe ? uv_pipe_init(hcore_loop(core), &c->uv.pipe, 0)
		     : uv_tcp_init(hcore_loop(core), &c->uv.tcp);

	if (r < 0)
		return r;
	c->ops = ops;
	c->destroy = destroy;
	c->core = core;
	c->high_water = HCONN_HIGH_WATER;
	c->write_timeout_ms = 60000;
	c->sweep.tick = on_tick;
	c->ready.fn = on_ready;
	link_init(&c->ready.link);
	c->gathered.fn = on_gathered;
	link_init(&c->gathered.link);
	hcore_ref(core);
	hcore_sweep_add(core, &c->sweep);
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct hconn *c = container_of(h, struct hconn, uv.handle);
	struct hcore *core = c->core;

	/* libuv has called back for what it had, so that all that is left is ours. */
	while (c->out) {
		struct hseg *s = c->out;

		c->out = s->next;
		free(s);
	}
	free(c->in);
	c->in = NULL;
	if (c->tls)
		htls_ops.free(c);
	link_del(&c->sweep.link);
	link_del(&c->ready.link);
	link_del(&c->gathered.link);
	c->closed = true;
	c->destroy(c);
	hcore_put(core);
}

void hconn_close(struct hconn *c, bool reset)
{
	if (c->closing)
		return;
	c->closing = true;
	if (!reset && !c->werr)
		try_gathered(c); /* said already; closing is to follow it */
	if (reset && c->uv.handle.type == UV_TCP && uv_tcp_close_reset(&c->uv.tcp, on_closed) == 0)
		return;
	uv_close(&c->uv.handle, on_closed);
}
