#include "cli/transfer.h"

#include "base/file.h"
#include "cli/term.h"

#define REPLY_MAX (64 * KIB)

struct under_way {
	struct cli *c;
	struct transfer *t;
	struct http_call *call;
	struct input *in;
	struct progress_bar *bar;
	struct buf reply;
	int status;
	int64_t expect; /* bytes of the answer, -1 unknown */
	bool done, ended;
	struct fail why;
};

static void give_up(struct under_way *u)
{
	if (u->in)
		input_pause(u->in);
	if (!u->ended)
		http_call_cancel(u->call);
}

static void on_head(struct http_call *call, const struct http_head *h, void *arg)
{
	struct under_way *u = arg;

	u->status = h->status;
	u->expect = h->framing == HTTP_BODY_LENGTH ? (int64_t)h->length : -1;
	if (u->t->method[0] == 'G' && h->status < 300 && u->t->at_head && u->t->at_head(u->t, h, u->t->arg, &u->why) < 0)
		give_up(u);
}

static void on_data(struct http_call *call, const char *data, size_t len, void *arg)
{
	struct under_way *u = arg;
	int r;

	if (u->why.err)
		return;
	if (u->t->method[0] != 'G' || u->status >= 300) {
		buf_add(&u->reply, data, MIN(len, REPLY_MAX - u->reply.n));
		return;
	}
	r = write_all(u->t->fd, data, len);
	if (r < 0) {
		fail_here(&u->why, r, "writing: %s", strerror(-r));
		give_up(u);
		return;
	}
	u->t->bytes += len;
	progress_bytes(u->bar, u->t->bytes, u->expect);
}

static void on_drain(struct http_call *call, void *arg)
{
	struct under_way *u = arg;

	if (u->in && !u->ended)
		input_resume(u->in);
}

static void on_end(struct http_call *call, const struct fail *why, void *arg)
{
	struct under_way *u = arg;

	u->done = u->ended = true;
	if (u->in)
		input_pause(u->in);
	if (u->why.err == 0)
		u->why = *why;
	/* A refusal says more than the connection that broke because we were still sending. */
	if (u->status >= 300)
		api_error(u->status, buf_str(&u->reply), &u->why);
	else if (u->why.err < 0 && u->status == 0)
		api_explain(u->c, &u->why);
	else if (why->err < 0 && u->why.err == why->err && fail_is_connection(why)) {
		fail_as(&u->why, ERR_daemon_down, "the connection to %.120s broke off; what came is not whole", u->c->where);
		fail_remedy(&u->why, "the same once more; space doctor checks the host");
	}
}

/* At the descriptor's end (len 0) or when it cannot be read. */
static void input_over(struct under_way *u, ssize_t len)
{
	struct transfer *t = u->t;

	if (len < 0)
		fail_here(&u->why, (int)len, "reading: %s", strerror((int)-len));
	else if (t->length >= 0 && t->bytes < (uint64_t)t->length)
		fail_here(&u->why, -EIO, "the file became shorter while it was read");
	else if (t->at_end)
		t->at_end(t->arg, &u->why);
	if (u->why.err < 0)
		give_up(u);
	else
		http_call_end(u->call);
}

static void on_input(const char *data, ssize_t len, void *arg)
{
	struct under_way *u = arg;
	struct transfer *t = u->t;
	int r;

	if (u->ended)
		return;
	if (len <= 0) {
		input_over(u, len);
		return;
	}
	/* A file that grows is sent as long as it was at the beginning. */
	if (t->length >= 0)
		len = (ssize_t)MIN((uint64_t)len, (uint64_t)t->length - t->bytes);
	r = len ? http_call_write(u->call, data, (size_t)len) : 0;
	t->bytes += (uint64_t)len;
	progress_bytes(u->bar, t->bytes, t->length);
	if (r != 0)
		input_pause(u->in);
	if (t->length >= 0 && t->bytes == (uint64_t)t->length) {
		input_pause(u->in);
		input_over(u, 0);
	}
}

static int begin(struct under_way *u, struct fail *why)
{
	static const struct http_call_cb cb = { .on_head = on_head, .on_data = on_data, .on_drain = on_drain, .on_end = on_end };
	struct transfer *t = u->t;
	bool put = t->method[0] == 'P';
	autobuf struct buf full;
	struct http_header h[8];
	struct http_call_opts o = { .method = t->method, .headers = h, .head_timeout_ms = -1 };

	buf_init(&full, 32 * KIB);
	if (!t->target || buf_addf(&full, "%s%s", u->c->prefix, t->target) < 0 || buf_addc(&full, 0) < 0)
		return fail_here(why, -ENAMETOOLONG, "a name or path is too long");
	o.target = full.p;
	o.nheaders = api_headers(u->c, h, 0);
	if (put) {
		h[o.nheaders++] = (struct http_header){ STR("Content-Type"), STR("application/octet-stream") };
		o.body_len = t->length;
		u->in = input_new(u->c->loop, t->fd, on_input, u);
		if (!u->in)
			return fail_here(why, -errno, "reading: %s", strerror(errno));
	}
	u->call = http_call_start(u->c->ep, &o, &cb, u);
	if (!u->call)
		return fail_here(why, -ENOMEM, "out of memory");
	if (put && t->length == 0)
		input_over(u, 0);
	else if (put)
		input_resume(u->in);
	return 0;
}

int transfer_run(struct cli *c, struct transfer *t, struct fail *why)
{
	struct under_way u = { .c = c, .t = t, .expect = -1 };
	int r = cli_connect(c, why);

	if (r < 0)
		return r;
	buf_init(&u.reply, REPLY_MAX);
	u.bar = progress_start(c, t->what);
	r = begin(&u, why);
	if (r == 0)
		cli_wait(c, &u.done);
	progress_end(u.bar);
	input_free(u.in);
	if (r == 0 && u.why.err < 0) {
		*why = u.why;
		r = u.why.err;
	}
	if (r == 0 && u.reply.n)
		t->answer = json_read(buf_str(&u.reply), NULL);
	buf_clear(&u.reply);
	return r;
}
