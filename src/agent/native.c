/* native.c - the host's own calls on processes, beyond E2B's: /space/processes, /space/kill,
 * /space/stdin, /space/shutdown. */
#include "agent/agent.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "agent/process.h"
#include "base/clock.h"
#include "base/log.h"

static void write_stream(struct jw *w, const char *key, const struct ring *r)
{
	jw_obj(w, key);
	jw_int(w, "start", (int64_t)ring_kept(r));
	jw_int(w, "end", (int64_t)r->end);
	jw_obj_end(w);
}

static void write_process(struct jw *w, const struct process *p)
{
	jw_obj(w, NULL);
	jw_int(w, "pid", p->pid);
	jw_json(w, "cmd", json_object_get(p->config, "cmd"));
	jw_json(w, "args", json_object_get(p->config, "args"));
	jw_str(w, "cwd", p->cwd);
	jw_str(w, "tag", p->tag);
	jw_str(w, "user", p->user);
	jw_time(w, "startedAt", p->started_ns);
	jw_bool(w, "running", !p->ended);
	if (p->ended) {
		bool signaled = WIFSIGNALED(p->status);

		jw_int(w, "exitCode", signaled ? -1 : WEXITSTATUS(p->status));
		if (signaled)
			jw_int(w, "signal", WTERMSIG(p->status));
		else
			jw_null(w, "signal");
		jw_str(w, "reason", proc_reason_name(process_reason(p)));
	} else {
		jw_null(w, "exitCode");
		jw_null(w, "signal");
		jw_null(w, "reason");
	}
	write_stream(w, "stdout", &p->out[0]);
	write_stream(w, "stderr", &p->out[1]);
	jw_bool(w, "pty", p->tty);
	jw_obj_end(w);
}

void handle_processes(struct http_exchange *x)
{
	struct buf b;
	struct jw w;

	processes_expire();
	buf_init(&b, 32 * MIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_arr(&w, "processes");
	link_each_safe(l, tmp, processes_all())
		write_process(&w, container_of(l, struct process, link));
	jw_arr_end(&w);
	jw_obj_end(&w);
	if (w.err)
		answer_error(x, 500, "the list is too long");
	else
		http_respond_buf(x, 200, "application/json", &b);
	buf_clear(&b);
}

struct kill_req {
	int64_t pid, signal;
	bool group;
};

static void got_kill(struct http_exchange *x, struct str body, const struct fail *why, void *arg)
{
	static const struct field fields[] = {
		INT_FIELD(struct kill_req, pid, 1, INT32_MAX, true),
		INT_FIELD(struct kill_req, signal, 1, 64, false),
		BOOL_FIELD(struct kill_req, group, false),
	};
	struct kill_req q = { .signal = SIGKILL };
	autojson json_t *req = NULL;
	struct fail bad = { 0 };
	struct process *p;
	int r;

	if (why->err)
		return;
	req = json_read(body, &bad);
	if (!req || fields_read(req, fields, ARRAY_LEN(fields), &q, &bad) < 0) {
		answer_error(x, 400, "%s", bad.msg);
		return;
	}
	p = process_by_pid((pid_t)q.pid, true);
	r = !p	      ? -ESRCH
	    : q.group ? process_signal_group(p, (int)q.signal)
		      : process_signal(p, (int)q.signal);
	if (r == -ESRCH)
		answer_error(x, 404, "process with pid %lld not found", (long long)q.pid);
	else if (r < 0)
		answer_error(x, 500, "the signal was not delivered: %s", strerror(-r));
	else
		http_respond_empty(x, 204);
}

void handle_kill(struct http_exchange *x)
{
	http_body_whole(x, 4096, got_kill, NULL);
}

/* --- stdin, streamed: the next piece is read from the client when the process has taken the last
 * --- */

struct stdin_call {
	struct http_exchange *x;
	struct input *in;
	pid_t pid;
	bool shut;     /* close stdin after all of it */
	bool all_here; /* the body has ended */
	bool answered;
};

static void stdin_fail(struct stdin_call *c, int status, const char *msg)
{
	if (!c->answered)
		answer_error(c->x, status, "%s", msg);
	c->answered = true;
}

static void stdin_finish(struct stdin_call *c)
{
	struct process *p = process_by_pid(c->pid, false);

	if (c->answered)
		return;
	if (c->shut && p && !p->tty)
		(void)process_close_stdin(p);
	c->answered = true;
	http_respond_empty(c->x, 204);
}

static void stdin_taken(int err, void *arg)
{
	struct stdin_call *c = arg;

	c->in = NULL;
	if (err)
		stdin_fail(c, 409,
			"the process has ended or closed its stdin before it took all of the "
			"input");
	else if (c->all_here)
		stdin_finish(c);
	else
		http_body_resume(c->x);
}

static void stdin_body(struct http_exchange *x, const char *data, ssize_t len, void *arg)
{
	struct stdin_call *c = arg;
	struct process *p = process_by_pid(c->pid, false);
	char *copy;
	int err;

	if (len < 0 || c->answered)
		return; /* on_close follows */
	if (len == 0) {
		c->all_here = true;
		if (!c->in)
			stdin_finish(c);
		return;
	}
	copy = p ? malloc((size_t)len) : NULL;
	if (!copy) {
		stdin_fail(c, p ? 500 : 409, p ? "out of memory" : "the process has ended");
		return;
	}
	memcpy(copy, data, (size_t)len);
	if (c->in) /* a piece that was on its way when we paused: it waits behind the one before */
		input_forget(c->in);
	c->in = process_input(p, copy, (size_t)len, stdin_taken, c, &err);
	if (!c->in)
		stdin_fail(c, err == -ENOENT ? 409 : 500,
			err == -ENOENT ? "stdin is closed" : "too much input waits");
	else
		http_body_pause(x);
}

static void stdin_gone(struct http_exchange *x, int err, void *arg)
{
	struct stdin_call *c = arg;

	if (c->in)
		input_forget(c->in);
	free(c);
}

void handle_stdin(struct http_exchange *x)
{
	char pid_text[16], shut[8] = "";
	struct process *p = NULL;
	struct stdin_call *c;
	uint64_t pid;

	if (query_str(x, "pid", pid_text, sizeof(pid_text)) < 0 ||
		str_u64(str_of(pid_text), INT32_MAX, &pid) < 0) {
		answer_error(x, 400, "pid: a number");
		return;
	}
	(void)query_str(x, "close", shut, sizeof(shut));
	p = process_by_pid((pid_t)pid, true);
	if (!p) {
		answer_error(x, 404, "process with pid %llu not found", (unsigned long long)pid);
		return;
	}
	if (p->ended || !p->has_stdin || (!p->tty && !p->stdin_end)) {
		answer_error(x, 409,
			p->ended ? "the process has ended"
				 : "the process has no stdin, or it is closed");
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		answer_error(x, 500, "out of memory");
		return;
	}
	*c = (struct stdin_call){ .x = x, .pid = (pid_t)pid, .shut = strcmp(shut, "1") == 0 };
	http_on_close(x, stdin_gone, c);
	http_body_read(x, 0, stdin_body, c);
}

/* --- shutdown --- */

static void shutdown_now(uv_timer_t *t)
{
	init_power_off();
}

void handle_shutdown(struct http_exchange *x)
{
	static uv_timer_t timer;

	http_respond_empty(x, 204);
	if (agent.frozen || uv_is_active((uv_handle_t *)&timer))
		return;
	uv_timer_init(agent.loop, &timer);
	uv_timer_start(&timer, shutdown_now, 50, 0); /* the answer goes out first */
}
