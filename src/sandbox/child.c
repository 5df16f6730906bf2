/* child.c - space-image, run for one command: its lines of JSON become steps of an operation, its last one the result. */
#include <signal.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define LINE_MAX_BYTES (4 * MIB)
#define STDERR_MAX 4096

struct child {
	struct link link;
	struct space *sp;
	uv_process_t proc;
	uv_pipe_t out, err;
	unsigned open; /* handles */
	struct buf line, said;
	json_t *last;
	int64_t status;
	int signal;
	bool exited, stopped;
	child_step_fn *step;
	child_done_fn *done;
	void *arg;
};

static void finish(struct child *c)
{
	struct fail why = { 0 };
	json_t *error = json_object_get(c->last, "error");
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *msg = json_string_value(json_object_get(error, "message"));
	const char *remedy = json_string_value(json_object_get(error, "remedy"));
	enum errcode e = code ? err_by_name(code, strlen(code)) : ERR_NONE;

	if (c->stopped) {
		fail_as(&why, ERR_internal, "interrupted: spaced was stopped");
	} else if (error) {
		fail_as(&why, e == ERR_NONE ? ERR_internal : e, "%s", msg ? msg : "space-image failed");
		if (remedy)
			fail_remedy(&why, "%s", remedy);
	} else if (c->signal || c->status || !c->last) {
		fail_as(&why, ERR_internal, "space-image ended with %s %d: %.*s", c->signal ? "signal" : "status",
			c->signal ? c->signal : (int)c->status, (int)MIN(c->said.n, 120), c->said.p ? c->said.p : "");
	}
	link_del(&c->link);
	c->done(why.err ? NULL : c->last, &why, c->arg);
	json_decref(c->last);
	buf_clear(&c->line);
	buf_clear(&c->said);
	c->sp->jobs--;
	space_check_gone(c->sp);
	free(c);
}

static void on_closed(uv_handle_t *h)
{
	struct child *c = h->data;

	if (--c->open == 0)
		finish(c);
}

static void on_line(struct child *c, struct str line)
{
	struct fail ignored = { 0 };
	json_t *j = line.n ? json_read(line, &ignored) : NULL;
	json_t *step = json_object_get(j, "step"), *done = json_object_get(j, "done");

	if (!j)
		return;
	if (step) {
		if (c->step)
			c->step(json_string_value(step), json_is_number(done) ? json_number_value(done) : -1, c->arg);
		json_decref(j);
		return;
	}
	json_decref(c->last);
	c->last = j;
}

static void on_out(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct child *c = s->data;
	char *nl;

	if (n < 0) {
		uv_close((uv_handle_t *)s, on_closed);
		return;
	}
	if (buf_add(&c->line, b->base, (size_t)n) < 0) {
		log_warning("space-image: a line over %llu bytes is left out", LINE_MAX_BYTES);
		buf_clear(&c->line);
		return;
	}
	while (c->line.n && (nl = memchr(c->line.p, '\n', c->line.n))) {
		size_t len = (size_t)(nl - c->line.p);

		on_line(c, (struct str){ c->line.p, len });
		buf_drop(&c->line, len + 1);
	}
}

static void on_err(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct child *c = s->data;

	if (n < 0)
		uv_close((uv_handle_t *)s, on_closed);
	else
		(void)buf_add(&c->said, b->base, MIN((size_t)n, c->said.max - c->said.n));
}

/* One scratch buffer for all children: what is read is copied before the next read. */
static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
	static char scratch[64 * KIB];

	*b = uv_buf_init(scratch, sizeof(scratch));
}

static void on_exit_event(uv_process_t *p, int64_t status, int sig)
{
	struct child *c = p->data;

	c->status = status;
	c->signal = sig;
	c->exited = true;
	uv_close((uv_handle_t *)p, on_closed);
}

int child_run(struct space *sp, char *const *args, child_step_fn *step, child_done_fn *done, void *arg, struct fail *why)
{
	struct child *c = calloc(1, sizeof(*c));
	char path[300], size[32], *argv[1100];
	char *env[] = { (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", (char *)"LANG=C.UTF-8", (char *)"HOME=/root",
			NULL };
	uv_stdio_container_t io[3] = { { .flags = UV_IGNORE } };
	uv_process_options_t o = { .file = path, .args = argv, .env = env, .exit_cb = on_exit_event, .stdio = io, .stdio_count = 3,
				   .flags = UV_PROCESS_DETACHED };
	size_t n = 0;
	int r;

	if (!c)
		return fail_set(why, -ENOMEM, "out of memory");
	snprintf(path, sizeof(path), "%s/space-image", sp->cfg.libexec_dir);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)sp->cfg.pool_size);
	argv[n++] = path;
	argv[n++] = (char *)"--state-dir";
	argv[n++] = sp->cfg.state_dir;
	if (sp->cfg.pool_size) {
		argv[n++] = (char *)"--pool-size";
		argv[n++] = size;
	}
	while (*args && n < ARRAY_LEN(argv) - 1)
		argv[n++] = *args++;
	argv[n] = NULL;
	*c = (struct child){ .sp = sp, .step = step, .done = done, .arg = arg };
	buf_init(&c->line, LINE_MAX_BYTES);
	buf_init(&c->said, STDERR_MAX);
	uv_pipe_init(sp->loop, &c->out, 0);
	uv_pipe_init(sp->loop, &c->err, 0);
	c->proc.data = c->out.data = c->err.data = c;
	io[1] = (uv_stdio_container_t){ .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->out };
	io[2] = (uv_stdio_container_t){ .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->err };
	link_add_tail(&sp->children, &c->link);
	sp->jobs++;
	c->open = 3;
	r = FAULT_OURS(uv_spawn(sp->loop, &c->proc, &o));
	if (r < 0) {
		/* The three handles close all the same; who asked hears of it as of any other failure, later. */
		log_error("%s: %s", path, uv_strerror(r));
		(void)buf_addf(&c->said, "%s: %s", path, uv_strerror(r));
		c->status = 127;
		uv_close((uv_handle_t *)&c->proc, on_closed);
		uv_close((uv_handle_t *)&c->out, on_closed);
		uv_close((uv_handle_t *)&c->err, on_closed);
		return 0;
	}
	uv_read_start((uv_stream_t *)&c->out, on_alloc, on_out);
	uv_read_start((uv_stream_t *)&c->err, on_alloc, on_err);
	return 0;
}

void children_stop(struct space *sp)
{
	link_each_safe(l, next, &sp->children) {
		struct child *c = container_of(l, struct child, link);

		c->stopped = true;
		if (!c->exited)
			uv_process_kill(&c->proc, SIGTERM);
	}
}
