/* agent_client.c - this room as a client of the agent: small JSON calls, and commands of template builds by Connect's Start. */
#include <stdio.h>

#include "base/cur.h"
#include "base/log.h"
#include "base/random.h"
#include "http/client.h"
#include "sandbox/core.h"

#define ANSWER_MAX (1 * MIB)
#define FRAME_MAX (256 * KIB)
#define TAIL_MAX 4096

/* --- small calls --- */

struct call {
	agent_json_fn *fn;
	void *arg;
};

static void call_end(int status, struct str body, const struct fail *why, void *arg)
{
	struct call *c = arg;
	struct fail f = *why, ignored = { 0 };
	autojson json_t *j = NULL;

	if (!f.err && body.n)
		j = json_read(body, &ignored);
	if (!f.err && (status < 200 || status > 299)) {
		const char *said = json_string_value(json_object_get(j, "message"));

		fail_as(&f, ERR_guest_failed, "the agent answered %d%s%s", status, said ? ": " : "", said ? said : "");
	}
	c->fn(status, j, &f, c->arg);
	free(c);
}

void agent_call(struct http_endpoint *e, const char *token, const char *method, const char *target, json_t *body, int timeout_ms,
		agent_json_fn *fn, void *arg)
{
	struct http_header h[2];
	struct http_call_opts o = { .method = method, .target = target, .headers = h, .head_timeout_ms = timeout_ms };
	autofree char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	struct call *c = calloc(1, sizeof(*c));
	struct fail why = { 0 };
	int r = c && (text || !body) ? 0 : -ENOMEM;

	if (token)
		h[o.nheaders++] = (struct http_header){ STR("X-Access-Token"), str_of(token) };
	if (text) {
		h[o.nheaders++] = (struct http_header){ STR("Content-Type"), STR("application/json") };
		o.body_len = (int64_t)strlen(text);
	}
	if (r == 0) {
		c->fn = fn;
		c->arg = arg;
		r = http_fetch(e, &o, str_of(text), ANSWER_MAX, timeout_ms, call_end, c);
	}
	if (r < 0) {
		free(c);
		fail_set(&why, r, "calling the agent: %s", strerror(-r));
		fn(0, NULL, &why, arg);
	}
}

/* --- commands --- */

struct running {
	agent_run_fn *fn;
	void *arg;
	struct http_call *call;
	struct buf in;	    /* bytes of frames not whole yet */
	char tail[TAIL_MAX]; /* the end of the output */
	size_t ntail;
	int http_status, exit;
	bool leave, started, ended;
	struct fail fail;
	struct later *timer;
};

static void on_deadline(void *arg)
{
	struct running *r = arg;

	if (!r->fail.err)
		fail_as(&r->fail, ERR_deadline_exceeded, "the command did not end in time");
	http_call_cancel(r->call);
}

static void keep_tail(struct running *r, const char *p, size_t n)
{
	if (n > TAIL_MAX) {
		p += n - TAIL_MAX;
		n = TAIL_MAX;
	}
	if (r->ntail + n > TAIL_MAX) {
		size_t drop = r->ntail + n - TAIL_MAX;

		memmove(r->tail, r->tail + drop, r->ntail - drop);
		r->ntail -= drop;
	}
	memcpy(r->tail + r->ntail, p, n);
	r->ntail += n;
}

static void on_output(struct running *r, const char *base64)
{
	size_t len = strlen(base64), n = 0;
	autofree char *raw = malloc(len * 3 / 4 + 3);

	if (raw && base64_decode(raw, &n, str_of(base64)) == 0)
		keep_tail(r, raw, n);
}

static void on_end_event(struct running *r, json_t *end)
{
	json_t *code = json_object_get(end, "exitCode");

	r->ended = true;
	r->exit = code ? (int)json_integer_value(code) : 0;
	if (r->exit == 0 && !json_is_true(json_object_get(end, "exited")))
		r->exit = 255; /* a signal, in whatever words */
}

static void on_message(struct running *r, unsigned flags, struct str text)
{
	struct fail why = { 0 };
	autojson json_t *j = json_read(text, &why);
	json_t *event, *data, *v;
	const char *key;

	if (flags & 2) {
		json_t *error = json_object_get(j, "error");
		const char *said = json_string_value(json_object_get(error, "message"));

		if (error && !r->fail.err)
			fail_as(&r->fail, ERR_guest_failed, "%s", said ? said : "the agent refused the command");
		return;
	}
	event = json_object_get(j, "event");
	if (json_object_get(event, "start"))
		r->started = true;
	data = json_object_get(event, "data");
	json_object_foreach(data, key, v)
		if (json_is_string(v) && (!strcmp(key, "stdout") || !strcmp(key, "stderr") || !strcmp(key, "pty")))
			on_output(r, json_string_value(v));
	if (json_object_get(event, "end"))
		on_end_event(r, json_object_get(event, "end"));
}

/* Envelopes: a byte of flags, four of length, the text. False when the stream makes no sense. */
static bool read_frames(struct running *r)
{
	for (;;) {
		struct cur c = cur_of(r->in.p, r->in.n);
		unsigned flags = cur_u8(&c);
		uint32_t n = cur_be32(&c);
		const uint8_t *p;

		if (c.bad)
			return true;
		if (n > FRAME_MAX)
			return false;
		p = cur_take(&c, n);
		if (c.bad)
			return true;
		on_message(r, flags, (struct str){ (const char *)p, n });
		buf_drop(&r->in, 5 + (size_t)n);
	}
}

static void run_head(struct http_call *c, const struct http_head *h, void *arg)
{
	struct running *r = arg;

	r->http_status = h->status;
}

static void run_data(struct http_call *c, const char *data, size_t len, void *arg)
{
	struct running *r = arg;

	if (r->http_status != 200) {
		keep_tail(r, data, len);
		return;
	}
	if (buf_add(&r->in, data, len) < 0 || !read_frames(r)) {
		if (!r->fail.err)
			fail_as(&r->fail, ERR_guest_failed, "the agent's answer is not understood");
		http_call_cancel(c);
	} else if (r->leave && r->started) {
		http_call_cancel(c); /* the process does not mind */
	}
}

static void run_end(struct http_call *c, const struct fail *why, void *arg)
{
	struct running *r = arg;
	struct fail f = { 0 };

	later_clear(&r->timer);
	if (r->fail.err)
		f = r->fail;
	else if (r->leave && r->started)
		r->exit = 0;
	else if (why->err)
		f = *why;
	else if (r->http_status != 200)
		fail_as(&f, ERR_guest_failed, "the agent answered %d: %.*s", r->http_status, (int)MIN(r->ntail, 150), r->tail);
	else if (!r->ended)
		fail_as(&f, ERR_guest_failed, "the agent's answer broke off");
	r->fn(r->exit, (struct str){ r->tail, r->ntail }, &f, r->arg);
	buf_clear(&r->in);
	free(r);
}

static char *start_message(const struct agent_run *o, size_t *len)
{
	autojson json_t *j = json_pack("{s:{s:s,s:[s,s,s],s:{}},s:b,s:{s:I}}", "process", "cmd", "/bin/bash", "args", "-l", "-c", o->cmd,
				       "envs", "stdin", 0, "space", "deadlineMs", (json_int_t)(o->leave ? 0 : o->timeout_ms));
	autofree char *text = NULL;
	char *frame;
	size_t n;

	if (!j)
		return NULL;
	if (o->leave) /* it may run as long as it likes */
		json_object_del(j, "space");
	if (o->tag)
		json_object_set_new(j, "tag", json_string(o->tag));
	if (o->cwd)
		json_object_set_new(json_object_get(j, "process"), "cwd", json_string(o->cwd));
	text = json_dumps(j, JSON_COMPACT);
	if (!text)
		return NULL;
	n = strlen(text);
	frame = malloc(n + 5);
	if (!frame)
		return NULL;
	frame[0] = 0;
	for (int i = 0; i < 4; i++)
		frame[1 + i] = (char)(n >> (24 - 8 * i));
	memcpy(frame + 5, text, n);
	*len = n + 5;
	return frame;
}

static void basic_auth(char out[128], const char *user)
{
	char plain[72];

	snprintf(plain, sizeof(plain), "%.64s:", user);
	memcpy(out, "Basic ", 6);
	base64_encode(out + 6, plain, strlen(plain));
	out[6 + base64_len(strlen(plain))] = '\0';
}

void agent_run(struct space *sp, struct http_endpoint *e, const char *token, const struct agent_run *o, agent_run_fn *fn, void *arg)
{
	static const struct http_call_cb cb = { .on_head = run_head, .on_data = run_data, .on_end = run_end };
	char auth[128];
	struct http_header h[] = {
		{ STR("Content-Type"), STR("application/connect+json") }, { STR("Connect-Protocol-Version"), STR("1") },
		{ STR("X-Access-Token"), str_of(token) }, { STR("Authorization"), { 0 } },
	};
	struct http_call_opts opts = { .method = "POST", .target = "/process.Process/Start", .headers = h, .nheaders = 3 };
	struct running *r = calloc(1, sizeof(*r));
	struct fail why = { 0 };
	size_t len = 0;
	autofree char *frame = start_message(o, &len);

	if (o->user && o->user[0]) {
		basic_auth(auth, o->user);
		h[opts.nheaders++].value = str_of(auth);
	}
	opts.body_len = (int64_t)len;
	if (r && frame) {
		r->fn = fn;
		r->arg = arg;
		r->leave = o->leave;
		r->exit = 255;
		buf_init(&r->in, FRAME_MAX + 64 * KIB);
		r->call = http_call_start(e, &opts, &cb, r);
	}
	if (!r || !r->call) {
		free(r);
		fail_set(&why, -ENOMEM, "out of memory");
		fn(255, (struct str){ "", 0 }, &why, arg);
		return;
	}
	later_set(sp, &r->timer, (int64_t)o->timeout_ms + 2000, on_deadline, r);
	(void)http_call_write(r->call, frame, len);
	http_call_end(r->call);
}
