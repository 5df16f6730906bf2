#include "cli/attach.h"

#include <signal.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "cli/term.h"

#define RESUME_MS 30000
#define STDIN_MAX (256 * KIB)
#define EOT 4 /* ^D */
#define EOT_FIRST_MS 500
#define EOT_MOST_MS 16000

static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH };

struct attach {
	struct cli *c;
	struct attach_opts o;
	const char *sandbox;
	char *request; /* NULL once the command has started */
	long pid;
	bool running, done;
	int code, signalled, left;
	unsigned interrupts;
	struct fail why; /* err 0: the command ended and CODE is its status */

	/* output */
	struct sse_call *call;
	char last_id[64];
	uint64_t at[2];
	char *raw; /* where base64 is decoded to */
	int64_t alive_ms;
	int delay_ms;
	bool heard, told;
	uv_timer_t retry, renew;
	uv_signal_t signals[ARRAY_LEN(caught)];

	/* input */
	struct input *in;
	struct escape escape;
	struct buf pending, sending; /* read, not sent yet; in the request under way */
	bool in_eof, in_closed, in_busy, in_lost;
	bool eot; /* stdin was no terminal and has ended: the PTY is told so by ^D */
	char in_last;
	int eot_ms;
	uv_timer_t eot_again;
	struct http_call *in_call;
	int in_status;
};

static void attach_finish(struct attach *a)
{
	a->done = true;
	a->running = false;
}

static void attach_fail(struct attach *a, const struct fail *why)
{
	if (a->done)
		return;
	a->why = *why;
	attach_finish(a);
}

static void attach_leave(struct attach *a, int sig)
{
	a->left = sig;
	attach_fail(a, &(struct fail){ .err = -EINTR, .msg = "left" });
}

/* --- small calls beside the stream --- */
static void beside_done(int status, struct str body, const struct fail *why, void *arg)
{
	/* A signal to a process that just ended, a resize that came too late: nothing to do about it. */
}

static void beside(struct attach *a, char *path, json_t *body)
{
	autofree char *target = path;
	autofree char *text = json_dumps(body, JSON_COMPACT);
	autobuf struct buf full;
	struct http_header h[8];
	struct http_call_opts o = { .method = "POST", .headers = h };

	json_decref(body);
	buf_init(&full, 4 * KIB);
	if (!target || !text || buf_addf(&full, "%s%s", a->c->prefix, target) < 0 || buf_addc(&full, 0) < 0)
		return;
	h[o.nheaders++] = (struct http_header){ STR("Content-Type"), STR("application/json") };
	o.nheaders = api_headers(a->c, h, o.nheaders);
	o.target = full.p;
	o.body_len = (int64_t)strlen(text);
	http_fetch(a->c->ep, &o, str_of(text), 64 * KIB, 10000, beside_done, a);
}

static void send_signal(struct attach *a, int sig, bool group)
{
	if (a->pid)
		beside(a, api_path("/v1/sandboxes/%s/processes/%d/signal", a->sandbox, (int)a->pid),
			json_pack("{s:i,s:b}", "signal", sig, "group", group));
}

static void send_size(struct attach *a)
{
	unsigned cols, rows;

	term_size(&cols, &rows);
	if (a->pid)
		beside(a, api_path("/v1/sandboxes/%s/processes/%d/resize", a->sandbox, (int)a->pid),
			json_pack("{s:i,s:i}", "cols", cols, "rows", rows));
}

static void on_renew(uv_timer_t *t)
{
	struct attach *a = t->data;

	beside(a, api_path("/v1/sandboxes/%s/timeout", a->sandbox), json_pack("{s:i}", "timeout", a->o.renew_s));
}

static void on_signal(uv_signal_t *s, int sig)
{
	struct attach *a = s->data;

	if (sig == SIGWINCH) {
		if (a->running && a->o.tty)
			send_size(a);
		return;
	}
	a->signalled = sig;
	if (!a->running)
		return;
	if (a->o.owner && (sig == SIGTERM || sig == SIGHUP)) {
		attach_leave(a, sig);
	} else if (sig == SIGTERM) {
		send_signal(a, sig, false);
	} else if (sig == SIGHUP) {
		send_signal(a, sig, false);
		attach_leave(a, sig);
	} else if (++a->interrupts >= 3 || !a->pid) {
		attach_leave(a, sig);
	} else {
		/* What a terminal does: everything in the foreground gets it. */
		send_signal(a, sig, true);
		if (a->interrupts == 2)
			cli_note(a->c, "once more leaves the command alone");
	}
}

/* --- stdin --- */
static void stdin_send(struct attach *a);

static void stdin_stop(struct attach *a)
{
	a->in_closed = true;
	buf_clear(&a->pending);
	if (a->in)
		input_pause(a->in);
}

static void stdin_head(struct http_call *call, const struct http_head *h, void *arg)
{
	struct attach *a = arg;

	a->in_status = h->status;
}

static void stdin_end(struct http_call *call, const struct fail *why, void *arg)
{
	struct attach *a = arg;

	a->in_call = NULL;
	a->in_busy = false;
	if (a->done)
		return;
	if (a->in_status == 204 || a->in_status == 200) {
		buf_clear(&a->sending);
	} else if (a->in_status == 0 && (why->err == -ECONNREFUSED || why->err == -ENOENT)) {
		/* No connection, so nothing of it arrived: again, when the output is back. */
		a->in_busy = true;
		return;
	} else if (a->in_status == 0 && !a->o.tty) {
		a->in_lost = true;
		stdin_stop(a);
		return;
	} else if (a->in_status != 0) {
		/* The command has closed its stdin or has ended: what is left has no reader. */
		stdin_stop(a);
		return;
	} else {
		buf_clear(&a->sending);
	}
	stdin_send(a);
}

/* Sends what was read so far, if no request is under way. A request ends when the command has taken all of it. */
static void stdin_send(struct attach *a)
{
	static const struct http_call_cb cb = { .on_head = stdin_head, .on_end = stdin_end };
	autofree char *path = NULL;
	autobuf struct buf full;
	struct http_header h[8];
	struct http_call_opts o = { .method = "POST", .headers = h, .head_timeout_ms = -1 };

	buf_init(&full, 4 * KIB);
	if (a->in && !a->in_eof && a->pending.n < STDIN_MAX / 2)
		input_resume(a->in);
	if (a->in_busy || a->in_closed || !a->pid || (!a->pending.n && !a->sending.n && (!a->in_eof || a->eot)))
		return;
	if (!a->sending.n) {
		struct buf swap = a->sending;

		a->sending = a->pending;
		a->pending = swap;
	}
	if (a->in_eof && !a->eot && !a->pending.n)
		a->in_closed = true; /* this request is the last */
	path = api_path(a->in_closed ? "/v1/sandboxes/%s/processes/%d/stdin?close=1" : "/v1/sandboxes/%s/processes/%d/stdin",
		a->sandbox, (int)a->pid);
	if (!path || buf_addf(&full, "%s%s", a->c->prefix, path) < 0 || buf_addc(&full, 0) < 0)
		return;
	o.nheaders = api_headers(a->c, h, 0);
	h[o.nheaders++] = (struct http_header){ STR("Content-Type"), STR("application/octet-stream") };
	o.target = full.p;
	o.body_len = (int64_t)a->sending.n;
	a->in_status = 0;
	a->in_busy = true;
	a->in_call = http_call_start(a->c->ep, &o, &cb, a);
	if (a->in_call && a->sending.n) {
		http_call_write(a->in_call, a->sending.p, a->sending.n);
		http_call_end(a->in_call);
	}
}

static void on_eot_again(uv_timer_t *t)
{
	struct attach *a = t->data;

	if (a->done || a->in_closed)
		return;
	if (a->pid && !a->in_busy && !a->pending.n && !a->sending.n) {
		buf_addc(&a->pending, EOT);
		stdin_send(a);
	}
	a->eot_ms = MIN(a->eot_ms * 2, EOT_MOST_MS);
	uv_timer_start(&a->eot_again, on_eot_again, (uint64_t)a->eot_ms, 0);
}

/* A PTY has no end of its own: whoever reads from it is told by ^D. One is not enough: while a program turns the terminal from lines
 * to keys the ^D that waits there becomes a NUL, and one that the program before took is none for the shell. */
static void stdin_ended(struct attach *a)
{
	a->in_eof = true;
	a->eot = a->o.tty && !isatty(0);
	if (!a->eot)
		return;
	if (a->o.lines && a->in_last && a->in_last != '\n')
		buf_addc(&a->pending, '\n');
	buf_addc(&a->pending, EOT);
	a->eot_ms = EOT_FIRST_MS;
	uv_timer_start(&a->eot_again, on_eot_again, (uint64_t)a->eot_ms, 0);
}

/* Keys that were typed, less the escapes. */
static void stdin_keys(struct attach *a, struct str data)
{
	autofree char *out = malloc(data.n + 1);

	while (out && data.n) {
		size_t n, used;
		enum escape_what what = escape_scan(&a->escape, data, out, &n, &used);

		buf_add(&a->pending, out, n);
		data.p += used;
		data.n -= used;
		if (what == ESCAPE_LEAVE) {
			attach_leave(a, 0);
			return;
		}
		if (what == ESCAPE_HELP)
			fprintf(stderr, "~?\r\n  ~.  leave; the command goes on\r\n  ~~  one ~\r\n");
	}
}

static void stdin_read(const char *data, ssize_t len, void *arg)
{
	struct attach *a = arg;

	if (len <= 0) {
		stdin_ended(a);
	} else if (a->o.tty && isatty(0)) {
		stdin_keys(a, (struct str){ data, (size_t)len });
	} else {
		buf_add(&a->pending, data, (size_t)len);
		a->in_last = data[len - 1];
	}
	if (a->pending.n >= STDIN_MAX / 2)
		input_pause(a->in);
	if (!a->done)
		stdin_send(a);
}

/* --- output --- */
static void put_output(struct attach *a, int stream, struct str s)
{
	int r = write_all(stream == 0 ? 1 : 2, s.p, s.n);

	if (r < 0) {
		struct fail why = { 0 };

		fail_here(&why, r, "cannot write the command's output: %s", strerror(-r));
		if (r == -EPIPE)
			attach_leave(a, SIGPIPE);
		else
			attach_fail(a, &why);
	}
}

int chunk_bytes(const json_t *data, char **raw, struct str *out)
{
	const json_t *text = json_object_get(data, "data"), *coded = json_object_get(data, "base64");
	struct str in = { json_string_value(coded), json_string_length(coded) };

	if (!coded) {
		*out = (struct str){ json_string_value(text), json_string_length(text) };
		return json_is_string(text) ? 0 : -EBADMSG;
	}
	if (!json_is_string(coded))
		return -EBADMSG;
	free(*raw);
	*raw = malloc(in.n * 3 / 4 + 4);
	if (!*raw)
		return -ENOMEM;
	out->p = *raw;
	return base64_decode(*raw, &out->n, in) < 0 ? -EBADMSG : 0;
}

/* Bytes that cannot be read are not left out in silence: what came before stands, and the command's failure is told. */
static void attach_garbled(struct attach *a, int err, const char *how)
{
	struct fail why = { 0 };

	fail_here(&why, err, "the command's output cannot be read any further: %.150s", how);
	attach_fail(a, &why);
}

static void on_chunk(struct attach *a, int stream, json_t *data)
{
	uint64_t offset = (uint64_t)json_integer_value(json_object_get(data, "offset"));
	struct str s = { 0 };
	int r = chunk_bytes(data, &a->raw, &s);

	if (r < 0) {
		attach_garbled(a, r, r == -ENOMEM ? "out of memory" : "an event without valid data");
		return;
	}
	if (!json_object_get(data, "offset"))
		offset = a->at[stream];
	/* After a resume the server goes on where we said; a byte that came twice is dropped all the same. */
	if (offset < a->at[stream]) {
		size_t again = (size_t)MIN(a->at[stream] - offset, s.n);

		s.p += again;
		s.n -= again;
		offset += again;
	}
	a->at[stream] = offset + s.n;
	if (s.n)
		put_output(a, stream, s);
}

static void on_gap(struct attach *a, json_t *data)
{
	int stream = !strcmp(get_str(data, "stream"), "stderr");
	double from = get_num(data, "from"), to = get_num(data, "to");

	a->at[stream] = (uint64_t)to;
	cli_note(a->c, "%.0f bytes of %s are lost: more came than is kept while nobody read", to - from,
		stream ? "stderr" : "stdout");
}

static void on_exit_event(struct attach *a, json_t *data)
{
	const char *reason = get_str(data, "reason");
	json_t *code = json_object_get(data, "code");

	a->code = json_is_integer(code) ? (int)json_integer_value(code) : 128 + SIGKILL;
	if (!strcmp(reason, "deadline")) {
		cli_note(a->c, "the command's time limit ran out");
		if (!json_is_integer(code))
			a->code = 124;
	} else if (!strcmp(reason, "killed")) {
		cli_note(a->c, "the sandbox ended before the command did");
	}
	attach_finish(a);
}

static void on_error_event(struct attach *a, json_t *data)
{
	struct fail why = { 0 };
	const char *code = get_str(data, "code");

	fail_as(&why, err_by_name(code, strlen(code)), "%.200s", get_str(data, "message"));
	if (why.err == 0)
		why.err = -EIO;
	if (*get_str(data, "remedy"))
		fail_remedy(&why, "%.190s", get_str(data, "remedy"));
	/* We were too slow for the server, or it is about to stop: the output goes on where it was. */
	if (why.code == ERR_deadline_exceeded || why.code == ERR_daemon_down)
		return;
	attach_fail(a, &why);
}

static void print_event(struct str id, struct str event, json_t *data)
{
	autojson json_t *line = json_pack("{s:s%,s:s%}", "event", event.p, event.n, "id", id.p ? id.p : "", id.n);

	json_object_update_missing(line, data);
	json_dumpf(line, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
	putchar('\n');
	fflush(stdout);
}

static void on_event(struct str id, struct str event, struct str text, void *arg)
{
	struct attach *a = arg;
	struct fail why = { 0 };
	autojson json_t *data = a->done ? NULL : json_read_text(text, &why);

	if (a->done)
		return;
	if (!data) {
		attach_garbled(a, -EBADMSG, why.msg);
		return;
	}
	a->alive_ms = mono_ms();
	a->heard = true;
	if (a->told)
		cli_note(a->c, "back");
	a->told = false;
	if (a->c->json)
		print_event(id, event, data);
	if (str_eqz(event, "start")) {
		a->pid = (long)get_num(data, "pid");
		a->request = NULL;
		stdin_send(a);
	} else if (str_eqz(event, "stdout") || str_eqz(event, "pty") || str_eqz(event, "stderr")) {
		if (!a->c->json)
			on_chunk(a, str_eqz(event, "stderr"), data);
	} else if (str_eqz(event, "gap")) {
		on_gap(a, data);
	} else if (str_eqz(event, "exit")) {
		on_exit_event(a, data);
	} else if (str_eqz(event, "error")) {
		on_error_event(a, data);
	}
	if (id.n && str_copy(a->last_id, sizeof(a->last_id), id) < 0)
		a->last_id[0] = 0;
}

static void stream_start(struct attach *a);

static void on_retry(uv_timer_t *t)
{
	stream_start(t->data);
}

static void on_stream_end(int status, const struct fail *why, void *arg)
{
	struct attach *a = arg;
	struct fail f = *why;

	a->call = NULL;
	if (a->done)
		return;
	if (status == 0)
		api_explain(a->c, &f);
	else if (status == 200 && f.err == 0)
		fail_here(&f, -EPIPE, "the output broke off");
	/* Before it has started nobody knows whether it did: it is not asked for twice. */
	if (!a->pid || !a->heard || (status != 0 && status != 200 && status != 503) || mono_ms() - a->alive_ms > RESUME_MS) {
		attach_fail(a, &f);
		return;
	}
	if (status == 200)
		a->delay_ms = 50;
	if (!a->told && mono_ms() - a->alive_ms > 2000) {
		cli_note(a->c, "the connection is lost; trying again");
		a->told = true;
	}
	uv_timer_start(&a->retry, on_retry, (uint64_t)a->delay_ms, 0);
	a->delay_ms = MIN(a->delay_ms * 2, 1000);
}

static void stream_start(struct attach *a)
{
	autofree char *path = NULL;

	if (a->request) {
		path = api_path("/v1/sandboxes/%s/exec", a->sandbox);
		if (path)
			a->call = sse_call_start(a->c, "POST", path, NULL, a->request, on_event, on_stream_end, a);
	} else {
		path = api_path(a->last_id[0] ? "/v1/sandboxes/%s/processes/%d/output" :
						"/v1/sandboxes/%s/processes/%d/output?offset=0",
			a->sandbox, (int)a->pid);
		if (path)
			a->call = sse_call_start(a->c, "GET", path, a->last_id, NULL, on_event, on_stream_end, a);
		/* Stdin that found no connection waits for the output's. */
		if (a->in_busy && !a->in_call) {
			a->in_busy = false;
			a->in_closed = false;
			stdin_send(a);
		}
	}
	if (!a->call) {
		struct fail why = { 0 };

		fail_here(&why, -ENOMEM, "out of memory");
		attach_fail(a, &why);
	}
}

struct attach *attach_new(struct cli *c)
{
	struct attach *a = calloc(1, sizeof(*a));

	if (!a)
		abort();
	a->c = c;
	buf_init(&a->pending, STDIN_MAX);
	buf_init(&a->sending, STDIN_MAX);
	uv_timer_init(c->loop, &a->retry);
	uv_timer_init(c->loop, &a->renew);
	uv_timer_init(c->loop, &a->eot_again);
	a->retry.data = a->renew.data = a->eot_again.data = a;
	for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
		struct sigaction was;

		uv_signal_init(c->loop, &a->signals[i]);
		a->signals[i].data = a;
		/* What nohup made ignored stays ignored. */
		if (sigaction(caught[i], NULL, &was) == 0 && was.sa_handler == SIG_IGN)
			continue;
		uv_signal_start(&a->signals[i], on_signal, caught[i]);
		uv_unref((uv_handle_t *)&a->signals[i]);
	}
	return a;
}

int attach_signalled(const struct attach *a)
{
	return a->left ? a->left : a->signalled;
}

long attach_pid(const struct attach *a)
{
	return a->pid;
}

int attach_exec(struct attach *a, const char *sandbox, json_t *request, long pid, const struct attach_opts *o, int *code,
	struct fail *why)
{
	autofree char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	bool raw = o->tty && isatty(0) && !a->c->json;

	json_decref(request);
	if (request && !text)
		return fail_here(why, -EINVAL, "the command or its environment is not valid UTF-8");
	a->o = *o;
	a->sandbox = sandbox;
	a->request = text;
	a->pid = pid;
	a->running = true;
	a->signalled = 0;
	a->alive_ms = mono_ms();
	a->delay_ms = 50;
	if (o->input)
		a->in = input_new(a->c->loop, 0, stdin_read, a); /* NULL: stdin is closed */
	if (!a->in && o->input)
		stdin_ended(a);
	a->in_eof = !a->in;
	a->in_closed = !o->input;
	if (raw)
		term_raw();
	if (o->renew_s)
		uv_timer_start(&a->renew, on_renew, o->renew_s * 1000 / 3, o->renew_s * 1000 / 3);
	stream_start(a);
	if (!a->done)
		cli_wait(a->c, &a->done);
	term_restore();
	uv_timer_stop(&a->renew);
	uv_timer_stop(&a->retry);
	uv_timer_stop(&a->eot_again);
	input_free(a->in);
	a->in = NULL;
	if (a->in_call)
		http_call_cancel(a->in_call);
	sse_call_cancel(a->call);
	a->signalled = a->left;
	if (a->why.err < 0) {
		*why = a->why;
		return why->err;
	}
	if (a->in_lost)
		return fail_here(why, -EPIPE, "the connection broke while stdin was being sent: the command did not get all of it");
	*code = a->code;
	return 0;
}
