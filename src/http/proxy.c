/* proxy.c - an exchange relayed to an endpoint; see http_proxy() in client.h.
 *
 * Two halves, the exchange (then its stream) and the call (then its stream), each told to stop
 * while the other is full. The relay goes when both have ended. */
#include <stdio.h>

#include "http/exchange.h"
#include "http/link.h"

struct relay {
	struct http_exchange *x;       /* NULL: over */
	struct http_call *c;	       /* NULL: over */
	struct http_stream *down, *up; /* to the client, to the peer */
	unsigned parts; /* of x, c, down, up: those that will still tell us that they ended */
	bool answered;	/* a head came from the peer */
	void (*failed)(struct http_exchange *x, const struct fail *why, void *arg);
	void (*on_end)(uint64_t bytes_in, uint64_t bytes_out, void *arg);
	void *arg;
	uint64_t in, out;
};

static void part_over(struct relay *r)
{
	if (--r->parts)
		return;
	if (r->on_end)
		r->on_end(r->in, r->out, r->arg);
	free(r);
}

/* --- headers --- */

static bool is_hop_by_hop(const struct http_head *h, struct str name)
{
	static const char *const names[] = { "connection", "proxy-connection", "keep-alive", "te",
		"transfer-encoding", "trailer", "upgrade", "content-length", "expect" };
	char z[64];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_ieqz(name, names[i]))
			return true;
	return str_copy(z, sizeof(z), name) == 0 && http_has_token(h, "connection", z);
}

static bool is_dropped(const struct http_proxy_opts *o, struct str name)
{
	for (unsigned i = 0; i < o->ndrop; i++)
		if (str_ieqz(name, o->drop[i]))
			return true;
	return str_ieqz(name, "host");
}

static unsigned request_headers(const struct http_head *h, const struct http_proxy_opts *o,
	struct http_header *out, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->nheaders && n < max; i++) {
		bool upgrade = h->upgrade && str_ieqz(h->headers[i].name, "upgrade");

		if (upgrade || (!is_hop_by_hop(h, h->headers[i].name) &&
				       !is_dropped(o, h->headers[i].name)))
			out[n++] = h->headers[i];
	}
	for (unsigned i = 0; i < o->nadd && n < max; i++)
		out[n++] = o->add[i];
	return n;
}

static void answer_headers(struct relay *r, const struct http_head *h, bool upgrade)
{
	for (unsigned i = 0; i < h->nheaders; i++)
		if ((upgrade && str_ieqz(h->headers[i].name, "upgrade")) ||
			!is_hop_by_hop(h, h->headers[i].name))
			http_add_header_str(r->x, h->headers[i].name, h->headers[i].value);
}

/* --- the client's side --- */

static void on_closed(struct http_exchange *x, int err, void *arg)
{
	struct relay *r = arg;

	r->x = NULL;
	if (err < 0 && r->c)
		http_call_cancel(r->c);
	part_over(r);
}

static void on_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	struct relay *r = arg;

	if (len < 0) {
		struct fail why;

		if (r->c)
			http_call_cancel(r->c);
		/* A client that is still there and sent rubbish, or nothing for too long, is told. */
		if (len == -EBADMSG || len == -ETIMEDOUT) {
			fail_as(&why, ERR_bad_request, "the request's body %s",
				len == -EBADMSG ? "is malformed" : "did not arrive in time");
			http_respond_fail(x, &why);
		}
		return;
	}
	if (!r->c)
		return; /* answered before its end: the server drains the rest */
	if (len == 0) {
		http_call_end(r->c);
		return;
	}
	r->in += (uint64_t)len;
	if (http_call_write(r->c, data, (size_t)len) == 1)
		http_body_pause(x);
}

static void on_drain_down(struct http_exchange *x, void *arg)
{
	struct relay *r = arg;

	if (r->c)
		http_call_resume(r->c);
}

/* --- the peer's side --- */

static void on_drain_up(struct http_call *c, void *arg)
{
	struct relay *r = arg;

	if (r->x)
		http_body_resume(r->x);
}

/* What to say in the answer's head about its body. HEAD's answers and 304 name the length of a body
 * that does not come. */
static int64_t length_of(const struct http_exchange *x, const struct http_head *h)
{
	if (h->framing == HTTP_BODY_LENGTH)
		return (int64_t)h->length;
	if (h->framing != HTTP_BODY_NONE)
		return -1;
	if (str_eqz(http_req(x)->method, "HEAD"))
		return http_get(h, "content-length").p ? (int64_t)h->length : -1;
	return 0;
}

static void on_head(struct http_call *c, const struct http_head *h, void *arg)
{
	struct relay *r = arg;

	r->answered = true;
	if (!r->x)
		return;
	answer_headers(r, h, false);
	http_start(r->x, h->status, NULL, length_of(r->x, h));
}

static void on_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	struct relay *r = arg;

	if (!r->x)
		return;
	r->out += len;
	if (http_write(r->x, data, len) == 1)
		http_call_pause(c);
}

static void on_call_end(struct http_call *c, const struct fail *why, void *arg)
{
	struct relay *r = arg;

	r->c = NULL;
	if (r->x && why->err == 0)
		http_end(r->x);
	else if (r->x && (r->answered || http_started(r->x)))
		http_abort(r->x);
	else if (r->x && r->failed)
		r->failed(r->x, why, r->arg);
	else if (r->x)
		http_respond_fail(r->x, why);
	part_over(r);
}

/* --- after an upgrade --- */

static struct http_stream **other_of(struct relay *r, struct http_stream *s)
{
	return s == r->down ? &r->up : &r->down;
}

static void on_stream_data(struct http_stream *s, const char *data, ssize_t len, void *arg)
{
	struct relay *r = arg;
	struct http_stream *other = *other_of(r, s);

	if (len > 0)
		*(s == r->down ? &r->in : &r->out) += (uint64_t)len;
	if (!other)
		return;
	if (len < 0)
		http_stream_close(other);
	else if (len == 0)
		http_stream_end(other);
	else if (http_stream_write(other, data, (size_t)len) == 1)
		http_stream_pause(s);
}

static void on_stream_drain(struct http_stream *s, void *arg)
{
	struct http_stream *other = *other_of(arg, s);

	if (other)
		http_stream_resume(other);
}

static void on_stream_close(struct http_stream *s, void *arg)
{
	struct relay *r = arg;
	struct http_stream *other = *other_of(r, s);

	if (s == r->down)
		r->down = NULL;
	else
		r->up = NULL;
	/* Whoever closed, the other is of no use without it. What it was still to be sent goes out
	 * first. */
	if (other) {
		http_stream_end(other);
		http_stream_resume(other);
	}
	part_over(r);
}

static const struct http_stream_cb stream_cb = {
	.on_data = on_stream_data,
	.on_drain = on_stream_drain,
	.on_close = on_stream_close,
};

static void on_upgrade(
	struct http_call *c, const struct http_head *h, struct http_stream *s, void *arg)
{
	struct relay *r = arg;

	/* The stream takes the place of the call among the parts. */
	r->c = NULL;
	r->up = s;
	http_stream_set_cb(s, &stream_cb, r);
	if (r->x) {
		answer_headers(r, h, true);
		r->down = http_upgrade(r->x, 101, &stream_cb, r);
	}
	if (r->down)
		r->parts++;
	else
		http_stream_close(s);
}

void http_proxy(struct http_exchange *x, struct http_endpoint *e, const struct http_proxy_opts *o)
{
	static const struct http_call_cb cb = { .on_head = on_head,
		.on_data = on_data,
		.on_drain = on_drain_up,
		.on_end = on_call_end,
		.on_upgrade = on_upgrade };
	struct http_header headers[HTTP_HEADERS_MAX + 16];
	const struct http_head *h = http_req(x);
	struct relay *r = calloc(1, sizeof(*r));
	autofree char *target = NULL, *method = str_dup(h->method), *host = NULL;
	struct str host_from = o->host ? str_of(o->host) : http_get(h, "host");
	struct http_call_opts opts = {
		.headers = headers,
		.nheaders = request_headers(h, o, headers, ARRAY_LEN(headers)),
		.body_len = h->framing == HTTP_BODY_CHUNKED ? -1 : (int64_t)h->length,
		.upgrade = h->upgrade,
		.head_timeout_ms =
			-1, /* how long an answer may take is between the client and the peer */
	};
	struct fail why;

	/* The origin-form of a target that came as a URL too. */
	if (o->target)
		target = str_dup(str_of(o->target));
	else if (asprintf(&target, STR_FMT "%s" STR_FMT, STR_ARG(h->path), h->query.p ? "?" : "",
			 STR_ARG(h->query)) < 0)
		target = NULL;
	host = host_from.p ? str_dup(host_from) : NULL;
	if (r && method && target && !str_eqz(h->method, "CONNECT")) {
		opts.method = method;
		opts.target = target;
		opts.host = host;
		r->x = x;
		r->failed = o->failed;
		r->on_end = o->on_end;
		r->arg = o->arg;
		r->parts = 2;
		http_on_close(x, on_closed, r);
		http_on_drain(x, on_drain_down, r);
		r->c = http_call_start(e, &opts, &cb, r);
		if (r->c) {
			if (!h->upgrade)
				http_body_read(x, 0, on_body, r);
			return;
		}
		http_on_close(x, NULL, NULL);
	}
	if (str_eqz(h->method, "CONNECT"))
		fail_as(&why, ERR_method_not_allowed, "CONNECT is not relayed");
	else
		fail_set(&why, -ENOMEM, "out of memory");
	free(r);
	http_respond_fail(x, &why);
	if (o->on_end)
		o->on_end(0, 0, o->arg);
}
