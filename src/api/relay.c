/* relay.c - bodies between the client and the agent: neither is read faster than the other takes it. */
#include "api/handlers.h"

#include "api/alive.h"

/* --- up --- */

struct upload {
	struct req *r;
	struct guest_call *call;
	relay_done_fn *done;
	struct buf answer;
	bool ended;	/* the agent has answered, or will not */
	bool sent;	/* the body is complete */
	bool cut;	/* the client's body broke off */
	bool over;	/* the agent says more than an answer is long */
};

static void upload_gone(struct req *r)
{
	struct upload *u = r->user;

	r->user = NULL;
	if (u && !u->ended)
		guest_cancel(u->call); /* the agent sees a cut body, and leaves the old file */
}

static void on_body(struct http_exchange *x, const char *p, ssize_t n, void *arg)
{
	struct req *r = arg;
	struct upload *u = r->user;

	if (!u || u->ended || u->sent)
		return;
	if (n < 0) {
		u->cut = true;
		guest_cancel(u->call);
	} else if (n == 0) {
		u->sent = true;
		guest_end(u->call);
	} else if (guest_write(u->call, p, (size_t)n) == 1) {
		http_body_pause(x);
	}
}

static void upload_drain(struct guest_call *c, void *arg)
{
	struct upload *u = arg;

	if (u->r->x && !u->sent)
		http_body_resume(u->r->x);
}

static void upload_data(struct guest_call *c, const char *p, size_t n, void *arg)
{
	struct upload *u = arg;

	if (!u->over && buf_add(&u->answer, p, n) < 0) {
		u->over = true;
		guest_cancel(c);
	}
}

static void upload_end(struct guest_call *c, const struct fail *why, void *arg)
{
	struct upload *u = arg;
	struct req *r = u->r;
	autojson json_t *reply = NULL;
	struct fail f = *why;

	u->ended = true;
	r->user = NULL;
	r->on_gone = NULL;
	if (!f.err && !u->cut && !u->over && u->done) {
		reply = json_read(buf_str(&u->answer), &f);
		if (!reply)
			fail_as(&f, ERR_agent_unreachable, "the agent's answer is not JSON");
	}
	if (u->over)
		fail_as(&f, ERR_agent_unreachable, "the agent's answer is longer than an answer can be");
	else if (u->cut)
		fail_as(&f, ERR_bad_request, "the body broke off");
	if (f.err)
		req_fail(r, &f);
	else if (u->done)
		u->done(r, reply);
	else
		req_empty(r, 204);
	buf_clear(&u->answer);
	free(u);
	req_unref(r);
}

void relay_upload(struct req *r, const char *method, const char *target, const char *user, enum errcode not_found,
		  relay_done_fn *done)
{
	static const struct guest_cb cb = { .data = upload_data, .drain = upload_drain, .end = upload_end };
	const struct http_head *h = http_req(r->x);
	struct guest_opts o = { .method = method, .target = target, .user = user,
		.ctype = "application/octet-stream", .not_found = not_found,
		/* What a command has not read may stay unread; and what was unpacked goes to the disk before the answer. */
		.limit_ms = done ? alive_limits.upload : -1 };
	struct fail why = { 0 };
	struct upload *u;

	if (h->framing == HTTP_BODY_NONE && !http_get(h, "Content-Length").p)
		return req_failf(r, ERR_length_required, "the body has no length and is not chunked");
	u = calloc(1, sizeof(*u));
	if (!u)
		return req_failf(r, ERR_no_capacity, "out of memory");
	/* An empty body of known length is sent as a chunked one: 0 means "none" here. */
	o.body_len = h->framing == HTTP_BODY_LENGTH && h->length ? (int64_t)h->length : -1;
	u->r = req_ref(r);
	u->done = done;
	buf_init(&u->answer, 64 * KIB);
	u->call = guest_call(r->api, r->sb, &o, &cb, u, &why);
	if (!u->call) {
		req_fail(r, &why);
		free(u);
		req_unref(r);
		return;
	}
	r->user = u;
	r->on_gone = upload_gone;
	http_body_read(r->x, 0, on_body, r);
}

/* --- down --- */

struct download {
	struct req *r;
	struct guest_call *call;
	const char *ctype;
	relay_head_fn *head;
	bool ended;
};

static void download_gone(struct req *r)
{
	struct download *d = r->user;

	r->user = NULL;
	if (d && !d->ended)
		guest_cancel(d->call);
}

static void client_drain(struct http_exchange *x, void *arg)
{
	struct req *r = arg;
	struct download *d = r->user;

	if (d && !d->ended)
		guest_resume(d->call);
}

static void download_head(struct guest_call *c, const struct http_head *h, void *arg)
{
	struct download *d = arg;
	struct req *r = d->r;
	int64_t length = h->framing == HTTP_BODY_LENGTH ? (int64_t)h->length : -1;

	if (!r->x)
		return;
	/* What the guest calls its bytes is not our business: as bytes they run nowhere. */
	http_add_header(r->x, "X-Content-Type-Options", "nosniff");
	if (d->head)
		d->head(r, h);
	http_on_drain(r->x, client_drain, r);
	req_start(r, h->status == 206 ? 206 : 200, d->ctype, length);
}

static void download_data(struct guest_call *c, const char *p, size_t n, void *arg)
{
	struct download *d = arg;

	if (d->r->x && http_write(d->r->x, p, n) == 1)
		guest_pause(c);
}

static void download_end(struct guest_call *c, const struct fail *why, void *arg)
{
	struct download *d = arg;
	struct req *r = d->r;

	d->ended = true;
	r->user = NULL;
	r->on_gone = NULL;
	if (!r->x)
		;
	else if (why->err)
		req_fail(r, why); /* resets the connection where the answer has begun */
	else
		http_end(r->x);
	free(d);
	req_unref(r);
}

void relay_download(struct req *r, const struct guest_opts *o, const char *ctype, relay_head_fn *head)
{
	static const struct guest_cb cb = { .head = download_head, .data = download_data, .end = download_end };
	struct fail why = { 0 };
	struct download *d = calloc(1, sizeof(*d));

	if (!d)
		return req_failf(r, ERR_no_capacity, "out of memory");
	d->r = req_ref(r);
	d->ctype = ctype;
	d->head = head;
	d->call = guest_call(r->api, r->sb, o, &cb, d, &why);
	if (!d->call) {
		req_fail(r, &why);
		free(d);
		req_unref(r);
		return;
	}
	r->user = d;
	r->on_gone = download_gone;
}
