#include "api/command.h"

#include <signal.h>
#include <stdio.h>

#include "api/alive.h"
#include "api/connect.h"
#include "base/clock.h"
#include "base/random.h"

#define HOLD_MS 50	 /* how long a cut character waits for its rest */
#define PART_MS 1000 /* after the last event: for the end of the agent's answer */
#define SLEEP_MS 1000	 /* between looks at a sandbox that is suspended */
#define RETRIES 6
#define STEADY_MS 10000 /* a connection that held for so long was a good one */
#define OFFSET_MAX (1LL << 53) /* what a number in JSON can say */
#define STDOUT 0
#define STDERR 1

static const char *const stream_names[] = { "stdout", "stderr" };

struct command {
	unsigned instance; /* of the sandbox, when it began */
	struct req *r;
	struct guest_call *call;
	struct connect_reader in;
	struct tick tick;	/* HOLD_MS, or the time between tries while there is no call */
	enum command_mode mode;
	int64_t pid;
	uint64_t off[2];	/* delivered: the next byte that the client has not seen */
	struct text_hold hold[2];
	struct str input;
	struct buf out[2];	/* with COMMAND_WAIT */
	uint64_t next[2];
	bool cut[2];
	bool pty, started;
	bool done;		/* the client has been told how it ended */
	bool broken;		/* nothing more is to be taken from this call */
	bool feeding, over;	/* in on_data(); and the call ended while there */
	struct fail end_why;
	struct fail told;	/* the agent's error in the last frame; err 0: none */
	unsigned tries;		/* since anything came of one */
	int64_t joined_ms;	/* when this call said "start"; 0: not yet */
};

static void connect_again(struct command *c);
static void retry(struct command *c, const struct fail *why);
static void ended(struct command *c, const struct fail *why);

/* --- signals --- */

static const struct { int n; const char *name; } signals[] = {
	{ SIGHUP, "HUP" },   { SIGINT, "INT" },	    { SIGQUIT, "QUIT" },   { SIGILL, "ILL" },
	{ SIGTRAP, "TRAP" }, { SIGABRT, "ABRT" },   { SIGBUS, "BUS" },	   { SIGFPE, "FPE" },
	{ SIGKILL, "KILL" }, { SIGUSR1, "USR1" },   { SIGSEGV, "SEGV" },   { SIGUSR2, "USR2" },
	{ SIGPIPE, "PIPE" }, { SIGALRM, "ALRM" },   { SIGTERM, "TERM" },   { SIGSTKFLT, "STKFLT" },
	{ SIGCHLD, "CHLD" }, { SIGCONT, "CONT" },   { SIGSTOP, "STOP" },   { SIGTSTP, "TSTP" },
	{ SIGTTIN, "TTIN" }, { SIGTTOU, "TTOU" },   { SIGURG, "URG" },	   { SIGXCPU, "XCPU" },
	{ SIGXFSZ, "XFSZ" }, { SIGVTALRM, "VTALRM" }, { SIGPROF, "PROF" }, { SIGWINCH, "WINCH" },
	{ SIGIO, "IO" },     { SIGPWR, "PWR" },	    { SIGSYS, "SYS" },
};

const char *signal_name(int sig)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(signals); i++)
		if (signals[i].n == sig)
			return signals[i].name;
	return NULL;
}

int signal_number(const char *name)
{
	size_t i;

	if (!strncmp(name, "SIG", 3))
		name += 3;
	for (i = 0; i < ARRAY_LEN(signals); i++)
		if (!strcmp(signals[i].name, name))
			return signals[i].n;
	return 0;
}

/* "signal: killed (core dumped)", in E2B's (and Go's) words, which are those of libc in small letters. */
static int signal_of_status(const char *status)
{
	size_t i, n;

	if (!status || strncmp(status, "signal: ", 8) != 0)
		return 0;
	status += 8;
	for (i = 0; i < ARRAY_LEN(signals); i++) {
		const char *words = sigdescr_np(signals[i].n);

		n = strlen(words);
		if (!strncasecmp(words, status, n) && (!status[n] || status[n] == ' '))
			return signals[i].n;
	}
	return 0;
}

static int64_t int_of(json_t *v)
{
	uint64_t n;

	if (json_is_integer(v))
		return json_integer_value(v);
	/* int64 of proto3's JSON is a text */
	if (json_is_string(v) && !str_u64(str_of(json_string_value(v)), INT64_MAX, &n))
		return (int64_t)n;
	return 0;
}

bool command_exit_sane(json_t *end)
{
	int64_t sig = int_of(json_object_get(end, "signal"));
	int64_t code = int_of(json_object_get(end, "exitCode"));

	return json_is_object(end) && sig >= 0 && sig <= SIGNAL_MAX && code >= INT32_MIN && code <= INT32_MAX;
}

void command_exit_json(struct jw *w, const char *key, json_t *end)
{
	int64_t sig = int_of(json_object_get(end, "signal"));
	const char *name = json_string_value(json_object_get(end, "signal"));
	const char *reason = json_string_value(json_object_get(end, "reason"));
	int64_t code = int_of(json_object_get(end, "exitCode"));
	char text[16];

	if (!sig && name)
		sig = signal_number(name);
	if (!sig)
		sig = signal_of_status(json_string_value(json_object_get(end, "status")));
	if (sig > SIGNAL_MAX) /* the guest's word: whoever asks for it has not looked at it */
		sig = 0;
	if (sig > 0) {
		code = 128 + sig;
		name = signal_name((int)sig);
		if (name)
			snprintf(text, sizeof(text), "SIG%s", name);
		else
			snprintf(text, sizeof(text), "%d", (int)sig);
	}
	jw_obj(w, key);
	jw_int(w, "code", code);
	jw_str(w, "signal", sig > 0 ? text : NULL);
	/* "killed" is the agent's word for a signal that was asked for: the signal says as much. */
	jw_str(w, "reason", reason && !strcmp(reason, "deadline") ? reason : sig > 0 ? "signaled" : "exited");
	jw_obj_end(w);
}

/* --- ids --- */

int command_id_parse(struct str id, uint64_t *out, uint64_t *err)
{
	struct str a, b;

	if (!str_cut(id, '-', &a, &b) || str_u64(a, INT64_MAX, out) < 0 || str_u64(b, INT64_MAX, err) < 0)
		return -EINVAL;
	return 0;
}

static int event(struct command *c, const char *name, struct jw *w)
{
	char id[48];
	int n;

	snprintf(id, sizeof(id), "%llu-%llu", (unsigned long long)c->off[STDOUT],
		 (unsigned long long)c->off[STDERR]);
	n = req_event(c->r, id, name, w);
	if (n == 1 && c->call)
		guest_pause(c->call);
	return n;
}

/* --- the end --- */

static void command_free(struct command *c)
{
	struct req *r = c->r;

	tick_clear(&c->tick);
	connect_reader_clear(&c->in);
	buf_clear(&c->out[STDOUT]);
	buf_clear(&c->out[STDERR]);
	r->on_gone = NULL;
	r->on_stop = NULL;
	r->user = NULL;
	free(c);
	req_unref(r);
}

/* Nothing more goes to the client. C is gone as soon as the call is. */
static void finish(struct command *c)
{
	c->done = true;
	tick_clear(&c->tick);
	if (c->call)
		guest_cancel(c->call);
	else if (!c->feeding)
		command_free(c);
}

/* The command has ended and its client has been told. What the agent has still to say is that its answer is whole: the connection then serves
 * the next call, whose guest need not open another. */
static void part(struct command *c)
{
	c->done = true;
	if (!c->call) {
		finish(c);
		return;
	}
	guest_resume(c->call);
	tick_set(&c->r->api->ticks, &c->tick, PART_MS);
}

/* Before the last thing is said: saying it may end the exchange at once, and then C is not to be finished twice. */
static void last_words(struct command *c)
{
	c->r->on_gone = NULL;
	c->r->on_stop = NULL;
	c->done = true;
}

static void refuse(struct command *c, const struct fail *why)
{
	last_words(c);
	if (c->mode == COMMAND_EVENTS && c->r->x && http_started(c->r->x))
		req_event_fail(c->r, why);
	else
		req_fail(c->r, why);
	finish(c);
}

/* The client left: the command goes on without it. */
static void on_gone(struct req *r)
{
	struct command *c = r->user;

	if (c && !c->done)
		finish(c);
}

static void on_stop(struct req *r, const struct fail *why)
{
	struct command *c = r->user;

	if (c && !c->done)
		refuse(c, why);
}

static void on_client_drain(struct http_exchange *x, void *arg)
{
	struct req *r = arg;
	struct command *c = r->user;

	if (c && c->call && !c->done)
		guest_resume(c->call);
}

/* --- output --- */

static void emit(struct command *c, int which, struct str data, bool text)
{
	struct buf b;
	struct jw w;

	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	if (text)
		jw_strn(&w, "data", data);
	else
		jw_base64(&w, "base64", data.p, data.n);
	jw_int(&w, "offset", (int64_t)c->off[which]);
	jw_obj_end(&w);
	c->off[which] += data.n;
	event(c, c->pty ? "pty" : stream_names[which], &w);
}

static void flush_held(struct command *c, int which)
{
	char held[3];
	size_t n = c->hold[which].n;

	if (!n)
		return;
	memcpy(held, c->hold[which].held, n);
	c->hold[which].n = 0;
	emit(c, which, (struct str){ held, n }, false);
}

static void on_tick(struct tick *t)
{
	struct command *c = container_of(t, struct command, tick);

	if (!c->call) {
		connect_again(c);
		return;
	}
	if (c->done) {
		guest_cancel(c->call); /* its answer did not come to an end */
		return;
	}
	req_ref(c->r);
	flush_held(c, STDOUT);
	flush_held(c, STDERR);
	req_unref(c->r);
}

static void output_event(struct command *c, int which, struct str data)
{
	autofree char *joined = NULL;
	struct str body;
	char head[4];
	size_t head_n;
	bool text;

	text_take(&c->hold[which], data, head, &head_n, &body, &text);
	if (head_n) {
		joined = malloc(head_n + body.n);
		if (!joined) { /* the connection is cut rather than a byte lost */
			c->broken = true;
			return;
		}
		memcpy(joined, head, head_n);
		memcpy(joined + head_n, body.p, body.n);
		body = (struct str){ joined, head_n + body.n };
	}
	if (body.n)
		emit(c, which, body, text);
	/* The time runs from when this character was cut, not from an earlier one that has been completed since. */
	if (!c->hold[STDOUT].n && !c->hold[STDERR].n)
		tick_clear(&c->tick);
	else if (c->hold[which].n && !c->hold[!which].n)
		tick_set(&c->r->api->ticks, &c->tick, HOLD_MS);
}

static void output_keep(struct command *c, int which, struct str data)
{
	size_t room = COMMAND_WAIT_MAX - c->out[which].n, take = MIN(room, data.n);

	c->off[which] += data.n;
	if (c->cut[which])
		return;
	if (buf_add(&c->out[which], data.p, take) < 0 || take < data.n) {
		/* Not in the middle of a character. */
		c->out[which].n -= utf8_tail(buf_str(&c->out[which]));
		c->cut[which] = true;
		c->next[which] = c->out[which].n;
	}
}

static void output(struct command *c, int which, json_t *v, json_t *offset)
{
	size_t len = json_string_length(v), n;
	autofree char *bytes = malloc(len * 3 / 4 + 4);
	struct str data;
	uint64_t at;

	if (!bytes || base64_decode(bytes, &n, (struct str){ json_string_value(v), len }) < 0) {
		c->broken = true; /* the call is given up, and tried again from here */
		return;
	}
	data = (struct str){ bytes, n };
	/* The agent says where this chunk belongs: what we have of it already is skipped. */
	if (offset) {
		uint64_t have = c->off[which] + c->hold[which].n;
		int64_t said = int_of(offset);

		if (said < 0 || said > OFFSET_MAX) {
			c->broken = true;
			return;
		}
		at = (uint64_t)said;
		if (at < have) {
			size_t skip = MIN(have - at, data.n);

			data.p += skip;
			data.n -= skip;
		}
	}
	if (!data.n)
		return;
	c->tries = 0;
	if (c->mode == COMMAND_WAIT)
		output_keep(c, which, data);
	else if (c->mode == COMMAND_EVENTS)
		output_event(c, which, data);
}

static void gap(struct command *c, json_t *g)
{
	const char *name = json_string_value(json_object_get(g, "stream"));
	int which = name && !strcmp(name, "stderr") ? STDERR : STDOUT;
	int64_t to = int_of(json_object_get(g, "to"));
	uint64_t from;
	struct buf b;
	struct jw w;

	if (to < 0 || to > OFFSET_MAX) {
		c->broken = true;
		return;
	}
	if (c->mode == COMMAND_EVENTS)
		flush_held(c, which);
	from = c->off[which];
	if ((uint64_t)to <= from)
		return;
	c->off[which] = (uint64_t)to;
	if (c->mode != COMMAND_EVENTS) {
		if (!c->cut[which])
			c->next[which] = from;
		c->cut[which] = true;
		return;
	}
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "stream", stream_names[which]);
	jw_int(&w, "from", (int64_t)from);
	jw_int(&w, "to", to);
	jw_obj_end(&w);
	event(c, "gap", &w);
}

/* --- begin and end of the command --- */

static void on_input(json_t *reply, const struct fail *why, void *arg)
{
	/* A command that ended before it had read its input is no failure of ours. */
}

static void send_input(struct command *c)
{
	struct fail why = { 0 };
	char target[64];
	struct guest_opts o = { .method = "POST", .target = target, .ctype = "application/octet-stream",
		.body = c->input, .limit_ms = -1 };

	if (!c->input.p)
		return;
	snprintf(target, sizeof(target), "/space/stdin?pid=%lld&close=1", (long long)c->pid);
	guest_json(c->r->api, c->r->sb, &o, on_input, NULL, &why);
	c->input = (struct str){ 0 };
}

static void answer_detached(struct command *c)
{
	char token[ATTACH_TOKEN_LEN], path[128];
	struct buf b;
	struct jw w;

	attach_token_make(c->r->api, c->r->sb->id, c->pid, real_ns() / NS_PER_MS, token);
	snprintf(path, sizeof(path), "/v1/sandboxes/%s/processes/%lld/output", c->r->sb->id,
		 (long long)c->pid);
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "pid", c->pid);
	jw_str(&w, "attach_token", token);
	jw_str(&w, "output", path);
	jw_obj_end(&w);
	last_words(c);
	req_json(c->r, 201, &w);
	finish(c);
}

static void on_started(struct command *c, json_t *start)
{
	struct buf b;
	struct jw w;
	int64_t pid = int_of(json_object_get(start, "pid"));

	if (pid < 1 || pid > INT32_MAX) {
		c->broken = true;
		return;
	}
	/* That it says so is no progress yet: the next thing may be nonsense, every time. */
	c->joined_ms = mono_ms();
	if (c->call)
		guest_endless(c->call);
	c->pid = pid;
	if (c->started)
		return; /* joined again after a break */
	c->started = true;
	send_input(c);
	if (c->mode == COMMAND_DETACH)
		return answer_detached(c);
	if (c->mode == COMMAND_WAIT)
		return;
	http_on_drain(c->r->x, on_client_drain, c->r);
	req_sse(c->r);
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "pid", c->pid);
	jw_obj_end(&w);
	event(c, "start", &w);
}

static void kept_json(struct command *c, struct jw *w, int which)
{
	struct str s = buf_str(&c->out[which]);

	jw_strn(w, stream_names[which], s);
	if (!str_is_utf8(s))
		jw_base64(w, which == STDOUT ? "stdout_base64" : "stderr_base64", s.p, s.n);
}

static void answer_waited(struct command *c, json_t *end)
{
	struct buf b;
	struct jw w;
	int i;

	buf_init(&b, 2 * 7 * COMMAND_WAIT_MAX); /* a NUL is six bytes in JSON */
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "pid", c->pid);
	kept_json(c, &w, STDOUT);
	kept_json(c, &w, STDERR);
	command_exit_json(&w, "exit", end);
	jw_obj(&w, "truncated");
	for (i = 0; i < 2; i++)
		jw_bool(&w, stream_names[i], c->cut[i]);
	jw_obj_end(&w);
	jw_obj(&w, "next");
	for (i = 0; i < 2; i++)
		jw_int(&w, stream_names[i], (int64_t)(c->cut[i] ? c->next[i] : c->off[i]));
	jw_obj_end(&w);
	jw_obj_end(&w);
	last_words(c);
	req_json(c->r, 200, &w);
	part(c);
}

static void on_exit_event(struct command *c, json_t *end)
{
	struct buf b;
	struct jw w;

	if (c->mode == COMMAND_WAIT)
		return answer_waited(c, end);
	flush_held(c, STDOUT);
	flush_held(c, STDERR);
	if (c->done)
		return; /* the client left just now */
	last_words(c);
	answer_begin(&w, &b);
	command_exit_json(&w, NULL, end);
	if (event(c, "exit", &w) >= 0 && c->r->x)
		http_end(c->r->x);
	part(c);
}

/* --- frames --- */

static int on_frame(uint8_t flags, struct str payload, void *arg)
{
	struct command *c = arg;
	struct fail bad = { 0 };
	autojson json_t *msg = json_read(payload, &bad);
	json_t *ev = json_object_get(msg, "event"), *data, *v;

	if (!msg)
		return -EBADMSG;
	if (flags & 2) {
		v = json_object_get(msg, "error");
		if (v && !c->done)
			guest_error_json(&c->told, 0, v, c->pid ? ERR_process_not_found : ERR_file_not_found);
		return 0;
	}
	if (!ev)
		ev = msg;
	if ((v = json_object_get(ev, "start")))
		on_started(c, v);
	if (c->done || c->broken || !c->started)
		return c->broken ? -EBADMSG : c->done ? 1 : 0;
	if ((v = json_object_get(ev, "gap")))
		gap(c, v);
	if (!c->broken && (data = json_object_get(ev, "data"))) {
		json_t *at = json_object_get(data, "offset");

		if ((v = json_object_get(data, "stdout")))
			output(c, STDOUT, v, at);
		if ((v = json_object_get(data, "stderr")))
			output(c, STDERR, v, at);
		if ((v = json_object_get(data, "pty"))) {
			c->pty = true;
			output(c, STDOUT, v, at);
		}
	}
	if (!c->done && !c->broken && (v = json_object_get(ev, "end"))) {
		if (command_exit_sane(v))
			on_exit_event(c, v);
		else
			c->broken = true;
	}
	return c->broken ? -EBADMSG : c->done ? 1 : 0;
}

static void on_data(struct guest_call *call, const char *p, size_t n, void *arg)
{
	struct command *c = arg;
	int err;

	if (c->done || c->broken)
		return;
	c->feeding = true;
	err = connect_feed(&c->in, p, n, on_frame, c);
	c->feeding = false;
	if (err < 0)
		c->broken = true;
	if (c->over)
		ended(c, &c->end_why);
	else if (err < 0)
		guest_cancel(call);
}

static void on_end(struct guest_call *call, const struct fail *why, void *arg)
{
	struct command *c = arg;

	c->call = NULL;
	if (guest_fell_silent(call))
		c->tries = RETRIES; /* that has been tried long enough */
	if (!c->feeding)
		return ended(c, why);
	c->over = true;
	c->end_why = *why;
}

static void ended(struct command *c, const struct fail *why)
{
	c->over = false;
	if (c->done)
		return command_free(c);
	/* Once it has begun, only "no such process" is final: a reader that was too slow for the agent joins again. */
	if (c->told.err && (!c->started || c->told.code == ERR_process_not_found))
		return refuse(c, &c->told);
	c->told.err = 0;
	if (!c->started || c->mode == COMMAND_DETACH) {
		struct fail f = *why;

		if (c->broken)
			fail_as(&f, ERR_agent_unreachable, "the agent's answer makes no sense");
		else if (!f.err)
			fail_as(&f, ERR_agent_unreachable, "the agent said nothing");
		return refuse(c, &f);
	}
	retry(c, why);
}

static const struct guest_cb command_cb = { .data = on_data, .end = on_end };

/* --- a connection that broke while the sandbox runs on --- */

static void retry(struct command *c, const struct fail *why)
{
	enum sandbox_state s = c->r->sb->state;
	struct fail f = *why;

	if (c->r->sb->instance != c->instance) { /* whatever has its pid now is not it */
		fail_as(&f, ERR_rolled_back, "sandbox %s was rolled back, and the command with it", c->r->sb->id);
		return refuse(c, &f);
	}
	connect_reader_clear(&c->in);
	c->hold[STDOUT].n = c->hold[STDERR].n = 0; /* they come again */
	if (c->joined_ms && mono_ms() - c->joined_ms >= STEADY_MS)
		c->tries = 0;
	c->joined_ms = 0;
	if (s != SANDBOX_PAUSING && s != SANDBOX_PAUSED && s != SANDBOX_WAKING && s != SANDBOX_SUSPENDING &&
	    s != SANDBOX_SUSPENDED &&
	    (s != SANDBOX_RUNNING || c->tries++ >= RETRIES)) {
		guest_gone(c->r->sb, &f);
		if (c->broken && f.code == ERR_agent_unreachable)
			fail_as(&f, ERR_agent_unreachable, "the agent's answer makes no sense");
		return refuse(c, &f);
	}
	/* A suspended one may sleep for days, and many may wait. */
	tick_set(&c->r->api->ticks, &c->tick, s == SANDBOX_SUSPENDED ? SLEEP_MS : alive_limits.retry);
}

static void connect_again(struct command *c)
{
	struct fail why = { 0 };
	char body[192];
	int n = snprintf(body, sizeof(body),
			 "{\"process\":{\"pid\":%lld},\"fromOffset\":{\"stdout\":%llu,\"stderr\":%llu}}",
			 (long long)c->pid, (unsigned long long)c->off[STDOUT],
			 (unsigned long long)c->off[STDERR]);
	struct guest_opts o = { .method = "POST", .target = "/process.Process/Connect",
		.connect_stream = true, .body = { body, (size_t)n }, .not_found = ERR_process_not_found };

	c->broken = false;
	c->call = guest_call(c->r->api, c->r->sb, &o, &command_cb, c, &why);
	if (c->call)
		return;
	if (c->started)
		retry(c, &why);
	else
		refuse(c, &why);
}

static struct command *command_new(struct req *r, enum command_mode mode)
{
	struct command *c = calloc(1, sizeof(*c));

	if (!c) {
		req_failf(r, ERR_no_capacity, "out of memory");
		return NULL;
	}
	c->r = req_ref(r);
	c->instance = r->sb->instance;
	c->mode = mode;
	connect_reader_init(&c->in);
	tick_init(&c->tick, on_tick);
	buf_init(&c->out[STDOUT], COMMAND_WAIT_MAX);
	buf_init(&c->out[STDERR], COMMAND_WAIT_MAX);
	r->user = c;
	r->on_gone = on_gone;
	req_is_stream(r, on_stop); /* also one that is waited for: whoever waits is told when we stop */
	return c;
}

void command_start(struct req *r, enum command_mode mode, struct str start, const char *user,
		   struct str input)
{
	struct command *c = command_new(r, mode);
	struct guest_opts o = { .method = "POST", .target = "/process.Process/Start",
		.connect_stream = true, .body = start, .user = user, .not_found = ERR_file_not_found };
	struct fail why = { 0 };

	if (!c)
		return;
	c->input = input;
	c->call = guest_call(r->api, r->sb, &o, &command_cb, c, &why);
	if (!c->call)
		refuse(c, &why);
}

void command_join(struct req *r, int64_t pid, uint64_t out, uint64_t err)
{
	struct command *c = command_new(r, COMMAND_EVENTS);

	if (!c)
		return;
	c->pid = pid;
	c->off[STDOUT] = out;
	c->off[STDERR] = err;
	connect_again(c);
}
