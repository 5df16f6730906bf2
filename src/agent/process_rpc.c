#include "agent/process_rpc.h"

#include <stdio.h>
#include <sys/stat.h>

#include "agent/process.h"
#include "agent/reader.h"
#include "base/clock.h"
#include "base/log.h"

#define ARGS_MAX 4096
#define RECENT_MS (30 * 1000) /* how long E2B's Connect still finds a process that has ended */

/* --- the environment: NAME=VALUE, later ones win --- */

struct env {
	char *v[ENV_MAX * 2 + 8];
	unsigned n;
};

static void env_clear(struct env *e)
{
	for (unsigned i = 0; i < e->n; i++)
		free(e->v[i]);
}

static int env_set(struct env *e, const char *name, const char *value)
{
	size_t n = strlen(name);
	char *text;
	unsigned i;

	if (n == 0 || strchr(name, '='))
		return 0; /* could not be read back */
	for (i = 0; i < e->n; i++)
		if (strncmp(e->v[i], name, n) == 0 && e->v[i][n] == '=')
			break;
	if (i + 1 >= ARRAY_LEN(e->v))
		return -ENOBUFS;
	if (asprintf(&text, "%s=%s", name, value) < 0)
		return -ENOMEM;
	if (i == e->n)
		e->n++;
	else
		free(e->v[i]);
	e->v[i] = text;
	return 0;
}

static int env_add(struct env *e, json_t *members)
{
	const char *name;
	json_t *value;
	int r = 0;

	json_object_foreach(members, name, value)
	{
		if (!json_is_string(value))
			return -EINVAL;
		r = env_set(e, name, json_string_value(value));
		if (r < 0)
			break;
	}
	return r;
}

static int env_make(struct env *e, const struct user *u, json_t *request)
{
	int r = env_set(e, "PATH", DEFAULT_PATH);

	if (r == 0)
		r = env_set(e, "HOME", u->home);
	if (r == 0)
		r = env_set(e, "USER", u->name);
	if (r == 0)
		r = env_set(e, "LOGNAME", u->name);
	if (r == 0)
		r = env_add(e, agent.env);
	if (r == 0 && request)
		r = env_add(e, request);
	return r;
}

static const char *env_get(const struct env *e, const char *name)
{
	size_t n = strlen(name);

	for (unsigned i = 0; i < e->n; i++)
		if (strncmp(e->v[i], name, n) == 0 && e->v[i][n] == '=')
			return e->v[i] + n + 1;
	return DEFAULT_PATH;
}

/* --- Start --- */

struct start_req {
	const char *cmd, *cwd, *tag;
	json_t *args, *envs, *config;
	bool stdin_pipe, tty, strict;
	int64_t cols, rows, deadline_ms, keep;
};

static int start_parse(json_t *req, struct start_req *q, struct fail *why)
{
	json_t *process = msg_get(req, "process"), *pty = msg_get(req, "pty"), *size,
	       *space = msg_get(req, "space");

	*q = (struct start_req){ .cwd = "", .stdin_pipe = true, .keep = KEEP_DEFAULT };
	if (!json_is_object(process))
		return fail_set(why, -EINVAL, "process: an object");
	q->config = process;
	if (msg_str(process, "cmd", &q->cmd) < 0 || !q->cmd || !q->cmd[0])
		return fail_set(why, -EINVAL, "process.cmd: a string that is not empty");
	if (msg_str(process, "cwd", &q->cwd) < 0)
		return fail_set(why, -EINVAL, "process.cwd: a string");
	q->args = msg_get(process, "args");
	if (q->args && (!json_is_array(q->args) || json_array_size(q->args) > ARGS_MAX))
		return fail_set(
			why, -EINVAL, "process.args: an array of at most %d strings", ARGS_MAX);
	q->envs = msg_get(process, "envs");
	if (q->envs && (!json_is_object(q->envs) || json_object_size(q->envs) > ENV_MAX))
		return fail_set(
			why, -EINVAL, "process.envs: an object of at most %d strings", ENV_MAX);
	if (msg_str(req, "tag", &q->tag) < 0)
		return fail_set(why, -EINVAL, "tag: a string");
	if (msg_bool(req, "stdin", &q->stdin_pipe) < 0)
		return fail_set(why, -EINVAL, "stdin: true or false");
	if (pty) {
		q->tty = true;
		size = msg_get(pty, "size");
		if (!json_is_object(pty) || msg_int(size, "cols", 0, 65535, &q->cols) < 0 ||
			msg_int(size, "rows", 0, 65535, &q->rows) < 0)
			return fail_set(why, -EINVAL, "pty.size: cols and rows from 0 to 65535");
	}
	if (msg_int(space, "deadline_ms", 0, INT32_MAX * 1000LL, &q->deadline_ms) < 0)
		return fail_set(why, -EINVAL, "space.deadlineMs: a whole number of milliseconds");
	if (msg_int(space, "keep_bytes", 0, KEEP_MAX, &q->keep) < 0)
		return fail_set(
			why, -EINVAL, "space.keepBytes: a whole number from 0 to %d", KEEP_MAX);
	if (msg_bool(space, "strict", &q->strict) < 0)
		return fail_set(why, -EINVAL, "space.strict: true or false");
	return 0;
}

static char **argv_make(const struct start_req *q)
{
	size_t n = json_array_size(q->args);
	char **argv = calloc(n + 2, sizeof(*argv));

	if (!argv)
		return NULL;
	argv[0] = (char *)q->cmd;
	for (size_t i = 0; i < n; i++) {
		argv[i + 1] = (char *)json_string_value(json_array_get(q->args, i));
		if (!argv[i + 1]) {
			free(argv);
			return NULL;
		}
	}
	return argv;
}

/* The working directory. 0, or the call has been answered. */
static int start_cwd(
	struct rpc *r, const struct start_req *q, const struct user *u, char cwd[PATH_LEN])
{
	struct fail why;
	struct stat st;

	if (path_resolve(str_of(q->cwd), u->home, agent.default_workdir, cwd, &why) < 0) {
		rpc_fail(r->x, true, RPC_INVALID_ARGUMENT, "cwd: %s", why.msg);
		return -EINVAL;
	}
	if (stat(cwd, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return 0;
		rpc_fail(r->x, true, RPC_INVALID_ARGUMENT, "cwd '%s' is not a directory", cwd);
		return -ENOTDIR;
	}
	rpc_fail(r->x, true, RPC_INVALID_ARGUMENT, "cwd '%s' does not exist", cwd);
	return -ENOENT;
}

void rpc_start_process(struct rpc *r)
{
	CLEANUP(env_clear) struct env env = { .n = 0 };
	autofree char **argv = NULL;
	struct process_opts o;
	struct start_req q;
	struct process *p;
	char cwd[PATH_LEN];
	struct user user;
	struct fail why;
	bool bad_cwd;
	int err;

	if (start_parse(r->req, &q, &why) < 0) {
		rpc_fail(r->x, true, RPC_INVALID_ARGUMENT, "%s", why.msg);
		return;
	}
	if (rpc_user(r, &user) < 0 || start_cwd(r, &q, &user, cwd) < 0)
		return;
	argv = argv_make(&q);
	err = argv ? env_make(&env, &user, q.envs) : -EINVAL;
	if (err < 0) {
		rpc_fail(r->x, true, RPC_INVALID_ARGUMENT,
			!argv		 ? "process.args: strings"
			: err == -EINVAL ? "process.envs: strings"
					 : "the environment is too large");
		return;
	}
	o = (struct process_opts){
		.cmd = q.cmd,
		.argv = argv,
		.envp = env.v,
		.path = env_get(&env, "PATH"),
		.cwd = cwd,
		.tag = q.tag,
		.user = &user,
		.config = q.config,
		.stdin_pipe = q.stdin_pipe,
		.tty = q.tty,
		.strict = q.strict,
		.cols = (uint16_t)q.cols,
		.rows = (uint16_t)q.rows,
		.keep = (size_t)q.keep,
		.deadline_ms = q.deadline_ms,
		.timeout_ms = r->timeout_ms,
	};
	err = process_start(&o, &p, &bad_cwd, &why);
	if (err < 0) {
		bool missing = q.strict && !bad_cwd && (err == -ENOENT || err == -ENOTDIR);
		bool callers = bad_cwd ||
			       (q.strict && (err == -EACCES || err == -E2BIG || err == -ENOEXEC));

		log_debug("start: %s", why.msg);
		rpc_fail(r->x, true,
			missing	  ? RPC_NOT_FOUND
			: callers ? RPC_INVALID_ARGUMENT
				  : RPC_INTERNAL,
			"%s", why.msg);
		return;
	}
	reader_start(
		r->x, p, &(struct reader_opts){ .keepalive_ms = r->keepalive_ms, .starter = true });
}

/* --- finding a process --- */

/* By the selector in member "process". NULL: the call has been answered. */
static struct process *selected(struct http_exchange *x, json_t *req, bool stream, bool ended_too)
{
	json_t *sel = msg_get(req, "process");
	const char *tag = NULL;
	struct process *p;
	int64_t pid = 0;

	if (msg_str(sel, "tag", &tag) < 0 || msg_int(sel, "pid", 0, UINT32_MAX, &pid) < 0 ||
		(!tag && pid == 0)) {
		rpc_fail(
			x, stream, RPC_INVALID_ARGUMENT, "process: {\"pid\":N} or {\"tag\":\"…\"}");
		return NULL;
	}
	p = tag		       ? process_by_tag(tag, ended_too)
	    : pid <= INT32_MAX ? process_by_pid((pid_t)pid, ended_too)
			       : NULL;
	if (!p && tag)
		rpc_fail(x, stream, RPC_NOT_FOUND, "process with tag %s not found", tag);
	else if (!p)
		rpc_fail(x, stream, RPC_NOT_FOUND, "process with pid %lld not found",
			(long long)pid);
	return p;
}

void rpc_connect(struct rpc *r)
{
	json_t *from = msg_get(r->req, "from_offset");
	struct process *p = selected(r->x, r->req, true, true);
	struct reader_opts o = {
		.keepalive_ms = r->keepalive_ms, .timeout_ms = r->timeout_ms, .replay = from != NULL
	};
	int64_t at[2] = { 0, 0 };

	if (!p)
		return;
	if (from && (!json_is_object(from) || msg_int(from, "stdout", 0, INT64_MAX, &at[0]) < 0 ||
			    msg_int(from, "stderr", 0, INT64_MAX, &at[1]) < 0)) {
		rpc_fail(r->x, true, RPC_INVALID_ARGUMENT,
			"fromOffset: {\"stdout\":N,\"stderr\":N}");
		return;
	}
	for (int i = 0; i < 2; i++) {
		o.from[i] = (uint64_t)at[i];
		if (from && o.from[i] > p->out[i].end) {
			rpc_fail(r->x, true, RPC_OUT_OF_RANGE,
				"fromOffset.%s: %lld bytes is all there is so far",
				i ? "stderr" : "stdout", (long long)p->out[i].end);
			return;
		}
	}
	if (!from && p->ended && mono_ms() - p->ended_ms > RECENT_MS) {
		rpc_fail(r->x, true, RPC_NOT_FOUND, "process with pid %d not found", (int)p->pid);
		return;
	}
	reader_start(r->x, p, &o);
}

void rpc_list(struct rpc *r)
{
	struct buf b;
	struct jw w;

	buf_init(&b, 16 * MIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_arr(&w, "processes");
	link_each_safe(l, tmp, processes_all())
	{
		struct process *p = container_of(l, struct process, link);

		if (p->ended || p->killed)
			continue;
		jw_obj(&w, NULL);
		jw_json(&w, "config", p->config);
		jw_int(&w, "pid", p->pid);
		if (p->tag)
			jw_str(&w, "tag", p->tag);
		jw_obj_end(&w);
	}
	jw_arr_end(&w);
	jw_obj_end(&w);
	if (w.err)
		rpc_fail(r->x, false, RPC_RESOURCE_EXHAUSTED, "the list is too long");
	else
		rpc_reply(r->x, &b);
	buf_clear(&b);
}

void rpc_update(struct rpc *r)
{
	struct process *p = selected(r->x, r->req, false, false);
	json_t *pty = msg_get(r->req, "pty"), *size = msg_get(pty, "size");
	int64_t cols = 0, rows = 0;
	int err;

	if (!p)
		return;
	if (pty) {
		if (msg_int(size, "cols", 0, 65535, &cols) < 0 ||
			msg_int(size, "rows", 0, 65535, &rows) < 0) {
			rpc_fail(r->x, false, RPC_INVALID_ARGUMENT,
				"pty.size: cols and rows from 0 to 65535");
			return;
		}
		err = process_resize(p, (uint16_t)cols, (uint16_t)rows);
		if (err < 0) {
			rpc_fail(r->x, false, RPC_INTERNAL,
				err == -ENOTTY ? "the process has no terminal"
					       : "the terminal could not be resized");
			return;
		}
	}
	rpc_reply(r->x, NULL);
}

/* --- input --- */

struct input_call {
	struct http_exchange *x;
	struct input *in;
	bool stream;
};

static void input_taken(int err, void *arg)
{
	struct input_call *c = arg;

	c->in = NULL; /* on_close frees C */
	if (err)
		rpc_fail(c->x, false, RPC_INTERNAL,
			"stdin is closed: the process has ended or does not read it any more");
	else
		rpc_reply(c->x, NULL);
}

static void input_gone(struct http_exchange *x, int err, void *arg)
{
	struct input_call *c = arg;

	if (c->in)
		input_forget(c->in);
	free(c);
}

/* Bytes of member "input" that fit the process. 0, or the reason in words. */
static const char *input_bytes(
	struct process *p, json_t *input, char **data, size_t *n, enum rpc_code *code)
{
	json_t *text = msg_get(input, "stdin"), *pty = msg_get(input, "pty");

	*code = RPC_INTERNAL;
	*data = NULL;
	if (!text && !pty) {
		*code = RPC_UNIMPLEMENTED;
		return "input: {\"stdin\":…} or {\"pty\":…}";
	}
	if (p->tty && !pty)
		return "the process has a terminal: send input.pty";
	if (!p->tty && !text)
		return "the process has no terminal: send input.stdin";
	if (!p->tty && !p->has_stdin)
		return "the process was started without stdin";
	*code = RPC_INVALID_ARGUMENT;
	if (msg_bytes(input, pty ? "pty" : "stdin", data, n) < 0)
		return "input: bytes in base64";
	return NULL;
}

void rpc_send_input(struct rpc *r)
{
	struct process *p = selected(r->x, r->req, false, false);
	struct input_call *c;
	enum rpc_code code;
	const char *bad;
	char *data;
	size_t n;
	int err;

	if (!p)
		return;
	bad = input_bytes(p, msg_get(r->req, "input"), &data, &n, &code);
	if (bad) {
		rpc_fail(r->x, false, code, "%s", bad);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		free(data);
		rpc_fail(r->x, false, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	c->x = r->x;
	http_on_close(r->x, input_gone, c);
	c->in = process_input(p, data, n, input_taken, c, &err);
	if (!c->in)
		rpc_fail(r->x, false, err == -ENOENT ? RPC_INTERNAL : RPC_RESOURCE_EXHAUSTED, "%s",
			err == -ENOENT ? "stdin is closed"
				       : "too much input waits for the process to read it");
}

/* StreamInput: a start message naming the process, then data and keepalives, read whole. */
void rpc_stream_input_body(struct http_exchange *x, struct str body)
{
	struct process *p = NULL;
	struct str payload;
	uint8_t flags;
	int r;

	while ((r = frame_next(&body, RPC_BODY_MAX, &flags, &payload)) == 1 &&
		!(flags & FRAME_END)) {
		autojson json_t *msg = json_read(payload, NULL);
		json_t *start = msg_get(msg, "start"), *data = msg_get(msg, "data");
		enum rpc_code code;
		const char *bad;
		char *bytes;
		size_t n;
		int err;

		if (start && !p) {
			p = selected(x, start, true, false);
			if (!p)
				return;
			continue;
		}
		if (!data)
			continue;
		if (!p) {
			rpc_fail(x, true, RPC_INVALID_ARGUMENT, "the first message must be start");
			return;
		}
		bad = input_bytes(p, msg_get(data, "input"), &bytes, &n, &code);
		if (bad || (!process_input(p, bytes, n, NULL, NULL, &err) && err < 0)) {
			rpc_fail(x, true, bad ? code : RPC_INTERNAL, "%s",
				bad ? bad : "stdin is closed or too much input waits");
			return;
		}
	}
	if (r < 0 || body.n > 0) {
		rpc_fail(x, true, RPC_INVALID_ARGUMENT,
			"the request is not a sequence of enveloped messages");
		return;
	}
	rpc_start(x);
	(void)http_write(x, "\0\0\0\0\2{}", 7);
	rpc_finish(x, RPC_OK, NULL);
}

void rpc_stream_input(struct rpc *r)
{
	rpc_fail(r->x, true, RPC_UNIMPLEMENTED,
		"not reached: its body is read by rpc_stream_input_body");
}

void rpc_close_stdin(struct rpc *r)
{
	struct process *p = selected(r->x, r->req, false, false);

	if (!p)
		return;
	if (process_close_stdin(p) == -ENOTTY)
		rpc_fail(r->x, false, RPC_UNKNOWN,
			"cannot close stdin for PTY process: send the end-of-file character "
			"instead");
	else
		rpc_reply(r->x, NULL);
}

/* --- signals --- */

void rpc_send_signal(struct rpc *r)
{
	struct process *p = selected(r->x, r->req, false, false);
	json_t *v = msg_get(r->req, "signal");
	int64_t sig = 0;
	int err;

	if (!p)
		return;
	if (json_is_string(v) && strcmp(json_string_value(v), "SIGNAL_SIGKILL") == 0)
		sig = 9;
	else if (json_is_string(v) && strcmp(json_string_value(v), "SIGNAL_SIGTERM") == 0)
		sig = 15;
	else if (msg_int(r->req, "signal", 1, 64, &sig) < 0 || sig == 0) {
		rpc_fail(r->x, false, RPC_UNIMPLEMENTED,
			"signal: SIGNAL_SIGKILL, SIGNAL_SIGTERM or a number from 1 to 64");
		return;
	}
	err = process_signal(p, (int)sig);
	if (err == -ESRCH)
		rpc_fail(r->x, false, RPC_NOT_FOUND, "process with pid %d not found", (int)p->pid);
	else if (err < 0)
		rpc_fail(r->x, false, RPC_INTERNAL, "the signal was not delivered: %s",
			strerror(-err));
	else
		rpc_reply(r->x, NULL);
}
