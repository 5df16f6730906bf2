/* tunnel.c - GET …/tcp/{port} with "Upgrade: tcp": a plain byte stream to a port of the guest. */
#include <stdio.h>

#include "api/guest.h"
#include "api/handlers.h"

struct tunnel {
	struct req *r;
	struct guest_call *call;	/* until it has become a stream */
	struct sandbox *sb;		/* held: an open tunnel is activity */
	struct http_stream *side[2];	/* 0: the client, 1: the guest */
	bool ended[2];			/* that side has nothing more to say */
	unsigned open;
};

static int side_of(struct tunnel *t, struct http_stream *s)
{
	return s == t->side[1];
}

static void on_stream_data(struct http_stream *s, const char *p, ssize_t n, void *arg)
{
	struct tunnel *t = arg;
	int from = side_of(t, s);
	struct http_stream *to = t->side[!from];

	if (!to)
		return;
	if (n < 0) {
		http_stream_close(to);
	} else if (n == 0) {
		t->ended[from] = true;
		http_stream_end(to);
		if (t->ended[!from]) {
			http_stream_close(s);
			http_stream_close(to);
		}
	} else if (http_stream_write(to, p, (size_t)n) == 1) {
		http_stream_pause(s);
	}
}

static void on_stream_drain(struct http_stream *s, void *arg)
{
	struct tunnel *t = arg;
	struct http_stream *from = t->side[!side_of(t, s)];

	if (from)
		http_stream_resume(from);
}

static void on_stream_close(struct http_stream *s, void *arg)
{
	struct tunnel *t = arg;
	int side = side_of(t, s);

	t->side[side] = NULL;
	if (t->side[!side] && !t->ended[side])
		http_stream_close(t->side[!side]);
	if (--t->open)
		return;
	sandbox_release(t->sb);
	free(t);
}

static const struct http_stream_cb stream_cb = { on_stream_data, on_stream_drain, on_stream_close };

static void tunnel_gone(struct req *r)
{
	struct tunnel *t = r->user;

	r->user = NULL;
	if (t && t->call)
		guest_cancel(t->call);
}

static void on_end(struct guest_call *c, const struct fail *why, void *arg)
{
	struct tunnel *t = arg;
	struct req *r = t->r;
	struct fail f = *why;

	if (!f.err)
		fail_as(&f, ERR_agent_unreachable, "the agent did not make a stream of it");
	r->user = NULL;
	r->on_gone = NULL;
	req_fail(r, &f);
	free(t);
	req_unref(r);
}

static void on_upgrade(struct guest_call *c, struct http_stream *s, void *arg)
{
	struct tunnel *t = arg;
	struct req *r = t->r;

	t->call = NULL;
	t->r = NULL;
	r->user = NULL;
	r->on_gone = NULL;
	t->sb = r->sb;
	sandbox_hold(t->sb);
	t->side[1] = s;
	t->open = 1;
	http_stream_set_cb(s, &stream_cb, t);
	if (r->x) {
		http_add_header(r->x, "Upgrade", "tcp");
		r->status = 101;
		t->side[0] = http_upgrade(r->x, 101, &stream_cb, t);
	}
	if (t->side[0])
		t->open++;
	else
		http_stream_close(s);
	req_unref(r);
}

void h_tcp(struct req *r)
{
	static const struct guest_cb cb = { .end = on_end, .upgrade = on_upgrade };
	const struct http_head *h = http_req(r->x);
	struct guest_opts o = { .method = "GET", .upgrade_tcp = true, .not_found = ERR_port_closed };
	struct fail why = { 0 };
	struct tunnel *t;
	char target[48];
	uint64_t port;

	if (str_u64(str_of(req_param(r, 1)), 65535, &port) < 0 || !port)
		return req_failf(r, ERR_bad_request, "port: from 1 to 65535");
	if (!h->upgrade || !http_has_token(h, "Upgrade", "tcp"))
		return req_failf(r, ERR_bad_request, "the call needs \"Connection: upgrade\" and \"Upgrade: tcp\"");
	t = calloc(1, sizeof(*t));
	if (!t)
		return req_failf(r, ERR_no_capacity, "out of memory");
	snprintf(target, sizeof(target), "/space/tcp/%u", (unsigned)port);
	o.target = target;
	t->r = req_ref(r);
	t->call = guest_call(r->api, r->sb, &o, &cb, t, &why);
	if (!t->call) {
		req_fail(r, &why);
		free(t);
		req_unref(r);
		return;
	}
	r->user = t;
	r->on_gone = tunnel_gone;
}
