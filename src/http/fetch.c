/* fetch.c - a whole small call; see http_fetch() in client.h. */
#include "http/link.h"

struct fetch {
	struct buf body;
	int status;
	int fault;
	http_fetch_fn *done;
	void *arg;
};

static void on_head(struct http_call *c, const struct http_head *h, void *arg)
{
	struct fetch *f = arg;

	f->status = h->status;
	if (h->framing == HTTP_BODY_LENGTH && h->length <= f->body.max)
		f->fault = buf_reserve(&f->body, (size_t)h->length);
	else if (h->framing == HTTP_BODY_LENGTH)
		f->fault = -EFBIG;
	if (f->fault)
		http_call_cancel(c);
}

static void on_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	struct fetch *f = arg;
	int r = buf_add(&f->body, data, len);

	if (r < 0) {
		f->fault = r == -ENOBUFS ? -EFBIG : r;
		http_call_cancel(c);
	}
}

static void on_end(struct http_call *c, const struct fail *why, void *arg)
{
	struct fetch *f = arg;
	struct fail own = *why;

	if (f->fault)
		fail_set(&own, f->fault,
			f->fault == -EFBIG ? "the answer is over %zu bytes"
					   : "no memory for an answer of up to %zu bytes",
			f->body.max);
	if (own.err)
		f->done(0, (struct str){ NULL, 0 }, &own, f->arg);
	else
		f->done(f->status, buf_str(&f->body), &own, f->arg);
	buf_clear(&f->body);
	free(f);
}

int http_fetch(struct http_endpoint *e, const struct http_call_opts *o, struct str body, size_t max,
	int timeout_ms, http_fetch_fn *done, void *arg)
{
	static const struct http_call_cb cb = {
		.on_head = on_head, .on_data = on_data, .on_end = on_end
	};
	struct http_call_opts opts = *o;
	struct fetch *f = calloc(1, sizeof(*f));
	struct http_call *c;

	if (!f)
		return -ENOMEM;
	buf_init(&f->body, max);
	f->done = done;
	f->arg = arg;
	opts.body_len = (int64_t)body.n;
	c = http_call_start(e, &opts, &cb, f);
	if (!c) {
		free(f);
		return -ENOMEM;
	}
	if (timeout_ms > 0)
		http_call_timeout(c, timeout_ms);
	http_call_write(c, body.p, body.n);
	http_call_end(c);
	return 0;
}
