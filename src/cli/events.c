/* events.c - calls whose answer is a stream of server-sent events. */
#include "base/clock.h"
#include "cli/cli.h"

#define EVENT_MAX (4 * MIB)
#define ERROR_MAX (64 * KIB)
#define SILENCE_MS 60000 /* the server sends a comment every 15 s */
#define RESUME_MS 30000

struct sse_call {
	struct cli *c;
	struct http_call *call;
	struct sse_reader *reader;
	struct buf error; /* the body of a refusal */
	int status, bad;
	sse_call_event_fn *event;
	sse_call_end_fn *end;
	void *arg;
};

static void sse_event(struct str id, struct str event, struct str data, void *arg)
{
	struct sse_call *s = arg;

	s->event(id, event, data, s->arg);
}

static void sse_head(struct http_call *call, const struct http_head *h, void *arg)
{
	struct sse_call *s = arg;

	s->status = h->status;
}

static void sse_data(struct http_call *call, const char *data, size_t len, void *arg)
{
	struct sse_call *s = arg;

	if (s->status != 200) {
		buf_add(&s->error, data, MIN(len, ERROR_MAX - s->error.n));
		return;
	}
	s->bad = sse_reader_feed(s->reader, data, len);
	if (s->bad < 0)
		http_call_cancel(call);
}

static void sse_end(struct http_call *call, const struct fail *why, void *arg)
{
	struct sse_call *s = arg;
	struct fail f = *why;

	if (s->bad < 0)
		fail_here(&f, s->bad, "an event of the stream is too large");
	else if (f.err == 0 && s->status != 200)
		api_error(s->status, buf_str(&s->error), &f);
	s->end(s->status, &f, s->arg);
	sse_reader_free(s->reader);
	buf_clear(&s->error);
	free(s);
}

struct sse_call *sse_call_start(struct cli *c, const char *method, const char *target, const char *last_id,
	const char *body, sse_call_event_fn *event, sse_call_end_fn *end, void *arg)
{
	static const struct http_call_cb cb = { .on_head = sse_head, .on_data = sse_data, .on_end = sse_end };
	autobuf struct buf full;
	struct http_header h[8];
	struct http_call_opts o = { .method = method, .headers = h, .idle_timeout_ms = SILENCE_MS, .head_timeout_ms = 120000 };
	struct sse_call *s = calloc(1, sizeof(*s));

	buf_init(&full, 32 * KIB);
	if (!s || buf_addf(&full, "%s%s", c->prefix, target) < 0 || buf_addc(&full, 0) < 0)
		goto fail;
	*s = (struct sse_call){ .c = c, .event = event, .end = end, .arg = arg };
	buf_init(&s->error, ERROR_MAX);
	s->reader = sse_reader_new(EVENT_MAX, sse_event, s);
	if (!s->reader)
		goto fail;
	h[o.nheaders++] = (struct http_header){ STR("Accept"), STR("text/event-stream") };
	if (last_id && *last_id)
		h[o.nheaders++] = (struct http_header){ STR("Last-Event-ID"), str_of(last_id) };
	if (body)
		h[o.nheaders++] = (struct http_header){ STR("Content-Type"), STR("application/json") };
	o.nheaders = api_headers(c, h, o.nheaders);
	o.target = full.p;
	o.body_len = body ? (int64_t)strlen(body) : 0;
	s->call = http_call_start(c->ep, &o, &cb, s);
	if (!s->call)
		goto fail;
	if (body) {
		http_call_write(s->call, body, strlen(body));
		http_call_end(s->call);
	}
	return s;
fail:
	if (s)
		sse_reader_free(s->reader);
	free(s);
	return NULL;
}

void sse_call_cancel(struct sse_call *s)
{
	if (s)
		http_call_cancel(s->call);
}

/* --- following a log of events --- */
struct follow {
	struct sse_call *call;
	follow_fn *fn;
	void *arg;
	char last_id[96];
	int64_t alive_ms; /* when the server was last heard of */
	bool ended, stop, garbled; /* garbled: told says what could not be read */
	int status;
	struct fail why, told; /* told: the stream's last event said so */
};

static void follow_event(struct str id, struct str event, struct str data, void *arg)
{
	struct follow *f = arg;
	struct fail why = { 0 };
	autojson json_t *j = f->stop || f->garbled ? NULL : json_read_text(data, &why);

	f->alive_ms = mono_ms();
	if (f->stop || f->garbled)
		return;
	if (!j) {
		fail_here(&f->told, -EBADMSG, "an event of the server cannot be read: %.150s", why.msg);
		f->garbled = true;
		sse_call_cancel(f->call);
		return;
	}
	if (str_eqz(event, "error")) {
		fail_as(&f->told, err_by_name(get_str(j, "code"), strlen(get_str(j, "code"))), "%.200s", get_str(j, "message"));
		if (*get_str(j, "remedy"))
			fail_remedy(&f->told, "%.190s", get_str(j, "remedy"));
		return;
	}
	if (id.n && str_copy(f->last_id, sizeof(f->last_id), id) < 0)
		f->last_id[0] = 0;
	if (f->fn(id, event, j, f->arg)) {
		f->stop = true;
		sse_call_cancel(f->call);
	}
}

static void follow_end(int status, const struct fail *why, void *arg)
{
	struct follow *f = arg;

	f->ended = true;
	f->call = NULL;
	f->status = status;
	f->why = *why;
}

int api_follow(struct cli *c, const char *target, follow_fn *fn, void *arg, struct fail *why)
{
	struct follow f = { .fn = fn, .arg = arg, .alive_ms = mono_ms() };
	int delay = 100, r = cli_connect(c, why);

	if (r < 0)
		return r;
	if (!target)
		return fail_here(why, -ENOMEM, "a name or path is too long");
	for (bool first = true;; first = false) {
		f.ended = false;
		f.status = 0;
		f.told = (struct fail){ 0 };
		f.call = sse_call_start(c, "GET", target, f.last_id, NULL, follow_event, follow_end, &f);
		if (!f.call)
			return fail_here(why, -ENOMEM, "out of memory");
		cli_wait(c, &f.ended);
		if (f.garbled || (f.told.msg[0] && f.why.err == 0))
			f.why = f.told;
		if (f.garbled)
			break;
		if (f.stop || f.why.err == 0)
			return 0;
		/* The daemon stops, or we were too slow: the log goes on where it was. */
		if (f.told.msg[0] && f.told.code != ERR_daemon_down && f.told.code != ERR_deadline_exceeded)
			break;
		if (f.status == 200)
			delay = 100;
		/* At the first try a refusal is an answer; later the daemon may just be starting again. */
		if ((first && f.status == 0) || (f.status != 0 && f.status != 200 && f.status != 503) ||
			mono_ms() - f.alive_ms > RESUME_MS)
			break;
		cli_sleep(c, delay);
		delay = MIN(delay * 2, 1000);
	}
	*why = f.why;
	if (f.status == 0)
		api_explain(c, why);
	return why->err;
}

/* --- operations --- */
struct op_follow {
	struct progress_bar *bar;
	json_t *last;
};

static int op_event(struct str id, struct str event, json_t *data, void *arg)
{
	struct op_follow *o = arg;
	const char *state = get_str(data, "state");
	json_t *progress = json_object_get(data, "progress");

	if (!json_is_object(data))
		return 0;
	progress_step(o->bar, get_str(data, "step"), json_is_number(progress) ? json_number_value(progress) : -1);
	json_decref(o->last);
	o->last = json_incref(data);
	return !strcmp(state, "done") || !strcmp(state, "failed") || str_eqz(event, "done") || str_eqz(event, "failed");
}

int operation_wait(struct cli *c, const char *id, const char *what, json_t **result, struct fail *why)
{
	struct op_follow o = { .bar = progress_start(c, what) };
	autofree char *target = api_path("/v1/operations/%s", id);
	autojson json_t *op = NULL;
	const char *remedy;
	json_t *error;
	int r = api_follow(c, target, op_event, &o, why);

	progress_end(o.bar);
	json_decref(o.last);
	if (r < 0)
		return r;
	/* The record itself is the truth, whatever the stream said last. */
	r = api_call(c, "GET", target, NULL, &op, why);
	if (r < 0)
		return r;
	if (!strcmp(get_str(op, "state"), "done")) {
		if (result)
			*result = json_incref(json_object_get(op, "result"));
		return 0;
	}
	error = json_object_get(op, "error");
	remedy = get_str(error, "remedy");
	fail_as(why, err_by_name(get_str(error, "code"), strlen(get_str(error, "code"))), "%.200s",
		*get_str(error, "message") ? get_str(error, "message") : "the operation ended without a result");
	if (*remedy)
		fail_remedy(why, "%.190s", remedy);
	return why->err < 0 ? why->err : -EIO;
}
