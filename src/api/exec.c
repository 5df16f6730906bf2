/* exec.c - POST …/exec: a command in a sandbox. */
#include <stdio.h>

#include "api/command.h"
#include "api/handlers.h"

#define CMD_MAX 256
#define CMD_BYTES (128 * KIB)
#define ENV_MAX 1000
#define ENV_BYTES (256 * KIB)
#define TIMEOUT_MAX_S (30 * 86400LL)

struct exec_req {
	json_t *cmd, *env, *pty, *timeout;
	const char *shell, *cwd, *user, *tag, *input;
	bool stdin_pipe;
	int64_t timeout_ms, cols, rows;
};

const struct field exec_fields[] = {
	ARR_FIELD(struct exec_req, cmd, CMD_MAX, false),
	STR_FIELD(struct exec_req, shell, CMD_BYTES, false),
	STR_FIELD(struct exec_req, cwd, 4095, false),
	OBJ_FIELD(struct exec_req, env, ENV_MAX, false),
	STR_FIELD(struct exec_req, user, 63, false),
	ANY_FIELD(struct exec_req, timeout, false),
	{ "stdin", FIELD_BOOL, offsetof(struct exec_req, stdin_pipe), 0, false, 0, 0 },
	OBJ_FIELD(struct exec_req, pty, 2, false),
	STR_FIELD(struct exec_req, tag, 128, false),
	STR_FIELD(struct exec_req, input, API_BODY_MAX, false),
};
const unsigned nexec_fields = ARRAY_LEN(exec_fields);

const struct field resize_fields[] = {
	INT_FIELD(struct resize_req, cols, 1, 65535, true),
	INT_FIELD(struct resize_req, rows, 1, 65535, true),
};
const unsigned nresize_fields = ARRAY_LEN(resize_fields);

static int exec_read(struct req *r, json_t *body, struct exec_req *q, bool wait, struct fail *why)
{
	int err = fields_read(body, exec_fields, nexec_fields, q, why);

	if (err < 0)
		return err;
	if (!q->cmd == !q->shell)
		return fail_as(why, ERR_bad_request, "one of cmd and shell");
	if (q->input && !wait)
		return fail_as(why, ERR_bad_request, "input: only with ?wait=1; else stdin: true, and POST …/stdin");
	if (q->cwd && str_has_ctl(str_of(q->cwd)))
		return fail_as(why, ERR_bad_path, "cwd: a path without control bytes");
	if (q->pty) {
		struct resize_req size = { 0 };

		err = fields_read(q->pty, resize_fields, nresize_fields, &size, why);
		if (err < 0) {
			fail_prefix(why, "pty");
			return err;
		}
		q->cols = size.cols;
		q->rows = size.rows;
	}
	if (q->cmd && (err = value_strings(q->cmd, "cmd", 1, CMD_MAX, CMD_BYTES, why)) < 0)
		return err;
	if (q->cmd && !json_string_length(json_array_get(q->cmd, 0)))
		return fail_as(why, ERR_bad_request, "cmd[0]: the program's name");
	if ((err = value_env(q->env, "env", ENV_MAX, ENV_BYTES, why)) < 0)
		return err;
	return value_ms(q->timeout, "timeout", TIMEOUT_MAX_S, &q->timeout_ms, why);
}

/* A terminal says what it is, unless the caller does. */
static void env_write(struct jw *w, const struct exec_req *q)
{
	const char *key;
	json_t *v;

	if (!q->env && !q->pty)
		return;
	jw_obj(w, "envs");
	if (q->pty && !json_object_get(q->env, "TERM"))
		jw_str(w, "TERM", "xterm-256color");
	json_object_foreach (q->env, key, v)
		jw_json(w, key, v);
	jw_obj_end(w);
}

/* The agent's Start. `shell` is what E2B's clients and most agents mean by a command line: bash. */
static int start_write(struct req *r, const struct exec_req *q, struct buf *out)
{
	size_t i;
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_obj(&w, "process");
	if (q->cmd) {
		jw_json(&w, "cmd", json_array_get(q->cmd, 0));
		jw_arr(&w, "args");
		for (i = 1; i < json_array_size(q->cmd); i++)
			jw_json(&w, NULL, json_array_get(q->cmd, i));
		jw_arr_end(&w);
	} else {
		jw_str(&w, "cmd", "/bin/bash");
		jw_arr(&w, "args");
		jw_str(&w, NULL, "-c");
		jw_str(&w, NULL, q->shell);
		jw_arr_end(&w);
	}
	env_write(&w, q);
	if (q->cwd)
		jw_str(&w, "cwd", q->cwd);
	jw_obj_end(&w);
	if (q->pty) {
		jw_obj(&w, "pty");
		jw_obj(&w, "size");
		jw_int(&w, "cols", q->cols);
		jw_int(&w, "rows", q->rows);
		jw_obj_end(&w);
		jw_obj_end(&w);
	}
	if (q->tag)
		jw_str(&w, "tag", q->tag);
	jw_bool(&w, "stdin", q->stdin_pipe || q->input);
	jw_obj(&w, "space");
	if (q->timeout_ms)
		jw_int(&w, "deadlineMs", q->timeout_ms);
	jw_int(&w, "keepBytes", (int64_t)r->api->cfg->output_keep);
	jw_obj_end(&w);
	jw_obj_end(&w);
	return w.err;
}

static void exec_body(struct req *r, json_t *body)
{
	struct exec_req q = { 0 };
	struct fail why = { 0 };
	bool wait = false, detach = false;
	autobuf struct buf start;

	buf_init(&start, 4 * MIB); /* escapes may make a body of 1 MiB longer */
	if (req_query_flag(r, "wait", &wait, &why) < 0 ||
	    req_query_flag(r, "detach", &detach, &why) < 0 || exec_read(r, body, &q, wait, &why) < 0)
		return req_fail(r, &why);
	if (wait && detach)
		return req_failf(r, ERR_bad_request, "one of wait and detach");
	if (start_write(r, &q, &start) < 0)
		return req_failf(r, ERR_no_capacity, "out of memory");
	command_start(r, wait ? COMMAND_WAIT : detach ? COMMAND_DETACH : COMMAND_EVENTS, buf_str(&start),
		      q.user, str_of(q.input));
}

void h_exec(struct req *r)
{
	req_body(r, exec_body);
}
