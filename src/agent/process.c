#include "agent/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <termios.h>

#include "agent/cgroup.h"
#include "agent/hooks.h"
#include "agent/spawn.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#define ENDED_MAX 256
#define ENDED_KEEP_MS (3600 * 1000)
#define KEPT_LEAST                                                                                 \
	(16ULL * MIB) /* of all processes' output; an eighth of the memory, within these */
#define KEPT_MOST (256ULL * MIB)
#define RING_LEAST (256 * KIB) /* room for readers that lag, however little is kept */
#define READS_PER_TURN 8       /* chunks of one pipe before the loop looks at others */

/* One of our ends of a pipe or terminal, with its poll handle. Freed when libuv has let go of the
 * handle. */
struct pipe_end {
	uv_poll_t poll;
	int fd, events;
	struct process *p;
};

struct input {
	struct link link;
	struct process *p;
	char *data;
	size_t at, n;
	bool close; /* nothing to write: stdin is to be closed here */
	input_done_fn *done;
	void *arg;
};

static uv_loop_t *loop;
static uv_signal_t sigchld;
static struct link all;
static unsigned nrunning, nended;
static uint64_t kept_most;
static unsigned nlingering; /* ended ones whose children live on in their cgroups */

/* --- pipes --- */

static void on_ready(uv_poll_t *h, int status, int events);

static struct pipe_end *pipe_end_new(struct process *p, int fd)
{
	struct pipe_end *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->fd = fd;
	e->p = p;
	if (uv_poll_init(loop, &e->poll, fd) < 0) {
		free(e);
		return NULL;
	}
	return e;
}

static void pipe_end_freed(uv_handle_t *h)
{
	free(container_of((uv_poll_t *)h, struct pipe_end, poll));
}

static void pipe_end_close(struct pipe_end **pe)
{
	struct pipe_end *e = steal_ptr(*pe);

	if (!e)
		return;
	uv_poll_stop(&e->poll);
	close(e->fd);
	e->p = NULL;
	uv_close((uv_handle_t *)&e->poll, pipe_end_freed);
}

static void pipe_end_want(struct pipe_end *e, int events)
{
	if (!e || e->events == events)
		return;
	e->events = events;
	if (events)
		uv_poll_start(&e->poll, events, on_ready);
	else
		uv_poll_stop(&e->poll);
}

/* --- timers --- */

static void timer_freed(uv_handle_t *h)
{
	free(h);
}

static void timer_end(uv_timer_t **pt)
{
	uv_timer_t *t = steal_ptr(*pt);

	if (t) {
		t->data = NULL;
		uv_close((uv_handle_t *)t, timer_freed);
	}
}

static uv_timer_t *timer_new(struct process *p, int64_t ms, uv_timer_cb cb)
{
	uv_timer_t *t = malloc(sizeof(*t));

	if (!t)
		return NULL;
	uv_timer_init(loop, t);
	t->data = p;
	uv_timer_start(t, cb, (uint64_t)ms, 0);
	return t;
}

static void on_deadline(uv_timer_t *t)
{
	struct process *p = t->data;

	p->deadline_hit = true;
	log_info("process %d: deadline reached, its group is killed", (int)p->pid);
	process_signal_group(p, SIGKILL);
}

static void on_timeout(uv_timer_t *t)
{
	struct process *p = t->data;

	p->timeout_hit = true;
	process_signal(p, SIGKILL);
}

/* --- input --- */

static void input_free(struct input *in, int err)
{
	link_del(&in->link);
	in->p->input_bytes -= in->n - in->at;
	if (in->done)
		in->done(err, in->arg);
	free(in->data);
	free(in);
}

static void inputs_fail(struct process *p)
{
	while (!link_empty(&p->inputs))
		input_free(container_of(p->inputs.next, struct input, link), -EPIPE);
}

static struct pipe_end *input_end(struct process *p)
{
	return p->tty ? p->read[0] : p->stdin_end;
}

/* Writes as much of what waits as the process takes now. */
static void inputs_write(struct process *p)
{
	while (!link_empty(&p->inputs)) {
		struct input *in = container_of(p->inputs.next, struct input, link);
		struct pipe_end *e = input_end(p);
		ssize_t n;

		if (!e) {
			inputs_fail(p);
			return;
		}
		if (in->close) {
			pipe_end_close(&p->stdin_end);
			input_free(in, 0);
			continue;
		}
		n = in->n > in->at ? write(e->fd, in->data + in->at, in->n - in->at) : 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			if (!p->tty)
				pipe_end_close(&p->stdin_end);
			inputs_fail(p);
			return;
		}
		in->at += (size_t)n;
		p->input_bytes -= (size_t)n;
		if (in->at == in->n)
			input_free(in, 0);
	}
}

static struct input *input_add(
	struct process *p, char *data, size_t n, bool shut, input_done_fn *done, void *arg)
{
	struct input *in = calloc(1, sizeof(*in));

	if (!in) {
		free(data);
		return NULL;
	}
	*in = (struct input){
		.p = p, .data = data, .n = n, .close = shut, .done = done, .arg = arg
	};
	link_add_tail(&p->inputs, &in->link);
	p->input_bytes += n;
	return in;
}

struct input *process_input(
	struct process *p, char *data, size_t n, input_done_fn *done, void *arg, int *err)
{
	struct input *in;

	if (!input_end(p) || (!p->tty && !p->has_stdin)) {
		free(data);
		*err = -ENOENT;
		return NULL;
	}
	if (p->input_bytes + n > INPUT_MAX) {
		free(data);
		*err = -ENOBUFS;
		return NULL;
	}
	in = input_add(p, data, n, false, done, arg);
	*err = in ? 0 : -ENOMEM;
	process_flow(p); /* written at the loop's next turn, so that DONE is never called before we
			    return */
	return in;
}

void input_forget(struct input *in)
{
	in->done = NULL;
}

int process_close_stdin(struct process *p)
{
	if (p->tty)
		return -ENOTTY;
	if (link_empty(&p->inputs))
		pipe_end_close(&p->stdin_end);
	else if (!input_add(p, NULL, 0, true, NULL, NULL))
		return -ENOMEM;
	return 0;
}

/* --- output --- */

static void subs_pump(struct process *p)
{
	link_each_safe(l, tmp, &p->subs) container_of(l, struct sub, link)
		->pump(container_of(l, struct sub, link));
}

static bool lags(struct process *p, int stream)
{
	uint64_t most;

	if (link_empty(&p->subs))
		return false;
	ring_reserve(
		&p->out[stream], CHUNK_MAX); /* may find that there is less room than was thought */
	most = MIN(LAG_MAX, (uint64_t)MAX(p->out[stream].max, 2 * CHUNK_MAX) - CHUNK_MAX);
	link_each_safe(l, tmp,
		&p->subs) if (p->out[stream].end - container_of(l, struct sub, link)->at[stream] >=
			      most) return true;
	return false;
}

/* One read. 1: there may be more; 0: nothing now; -1: at its end. */
static int read_some(struct process *p, int stream)
{
	static char buf[CHUNK_MAX]; /* the loop's: nothing is kept in it */
	struct pipe_end *e = p->read[stream];
	ssize_t n = read(e->fd, buf, p->tty ? CHUNK_TTY_MAX : CHUNK_MAX);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) { /* EIO is how a terminal ends */
		pipe_end_close(&p->read[stream]);
		return -1;
	}
	ring_add(&p->out[stream], buf, (size_t)n);
	subs_pump(p);
	return 1;
}

static void on_ready(uv_poll_t *h, int status, int events)
{
	struct pipe_end *e = container_of(h, struct pipe_end, poll);
	struct process *p = e->p;
	int stream = -1;

	if (!p)
		return;
	for (int i = 0; i < 2; i++)
		if (p->read[i] == e)
			stream = i;
	if (status < 0)
		events = UV_READABLE | UV_WRITABLE; /* the call itself will say what is wrong */
	if ((events & UV_WRITABLE) && e == input_end(p))
		inputs_write(p);
	for (int i = 0;
		stream >= 0 && (events & (UV_READABLE | UV_DISCONNECT)) && i < READS_PER_TURN; i++)
		if (p->read[stream] != e || lags(p, stream) || read_some(p, stream) <= 0)
			break;
	process_flow(p);
	process_check_end(p);
}

void process_flow(struct process *p)
{
	bool waits = !link_empty(&p->inputs);

	for (int i = 0; i < 2; i++) {
		int want = lags(p, i) ? 0 : UV_READABLE;

		if (p->tty && i == 0 && waits)
			want |= UV_WRITABLE;
		pipe_end_want(p->read[i], want);
	}
	pipe_end_want(p->stdin_end, waits ? UV_WRITABLE : 0);
}

void sub_attach(struct sub *s, struct process *p)
{
	s->p = p;
	link_add_tail(&p->subs, &s->link);
}

void sub_detach(struct sub *s)
{
	struct process *p = s->p;

	if (!p)
		return;
	s->p = NULL;
	link_del(&s->link);
	if (p->ended && link_empty(&p->subs)) {
		ring_shrink(&p->out[0]);
		ring_shrink(&p->out[1]);
	}
	process_flow(p);
}

/* --- the end --- */

static void process_free(struct process *p)
{
	link_del(&p->link);
	timer_end(&p->deadline);
	timer_end(&p->timeout);
	for (int i = 0; i < 2; i++) {
		pipe_end_close(&p->read[i]);
		ring_clear(&p->out[i]);
	}
	pipe_end_close(&p->stdin_end);
	inputs_fail(p);
	json_decref(p->config);
	free(p->tag);
	free(p->cwd);
	free(p);
}

/* A machine that becomes another one begins with a clean list: what ended before, in its template,
 * is no business of the clone's. */
void processes_forget(void)
{
	link_each_safe(l, tmp, &all)
	{
		struct process *p = container_of(l, struct process, link);

		if (!p->ended || !link_empty(&p->subs))
			continue;
		if (p->cgroup) {
			cgroup_release(p->cgroup);
			nlingering--;
		}
		process_free(p);
		nended--;
	}
}

void processes_expire(void)
{
	int64_t now = mono_ms();
	uint64_t bytes = 0;

	link_each_safe(l, tmp, &all)
	{
		struct process *p = container_of(l, struct process, link);

		if (!p->ended || !link_empty(&p->subs))
			continue;
		if (nended > ENDED_MAX || now - p->ended_ms > ENDED_KEEP_MS) {
			if (p->cgroup) {
				cgroup_release(p->cgroup);
				nlingering--;
			}
			process_free(p);
			nended--;
		}
	}
	/* Newest first: those that do not fit any more lose their output, not their place in the
	 * list. */
	for (struct link *l = all.prev; l != &all; l = l->prev) {
		struct process *p = container_of(l, struct process, link);

		if (!p->ended || !link_empty(&p->subs))
			continue;
		bytes += p->out[0].cap + p->out[1].cap;
		if (bytes > kept_most / 2) {
			ring_clear(&p->out[0]);
			ring_clear(&p->out[1]);
		}
	}
}

/* Reads what is there already; what children still hold open, and perhaps still write to, is left
 * to them. */
static void drain_rest(struct process *p)
{
	for (int i = 0; i < 2; i++)
		for (int n = 0; n < READS_PER_TURN && p->read[i] && !lags(p, i); n++)
			if (read_some(p, i) <= 0)
				break;
}

/* The group goes with its last process; until then /space/kill reaches what the command left
 * behind. */
static void group_done(struct process *p)
{
	/* One that was killed is not used again: some kernels go on killing what starts in it. */
	if (p->cgroup && cgroup_retire(p->cgroup, !p->kill_asked && !p->deadline_hit && !p->timeout_hit))
		p->cgroup = 0;
}

static void lingering_sweep(void)
{
	cgroup_sweep();
	if (nlingering == 0)
		return;
	nlingering = 0;
	link_each_safe(l, tmp, &all)
	{
		struct process *p = container_of(l, struct process, link);

		if (!p->ended || !p->cgroup)
			continue;
		group_done(p);
		if (p->cgroup)
			nlingering++;
	}
}

void process_check_end(struct process *p)
{
	if (p->ended || !p->exited)
		return;
	if (p->kill_asked || p->deadline_hit || p->timeout_hit) {
		drain_rest(p);
	} else if (p->read[0] || p->read[1]) {
		/* A terminal is over with its process: what remains in it comes with EIO soon,
		 * unless children hold it. */
		return;
	}
	for (int i = 0; i < 2; i++)
		pipe_end_close(&p->read[i]);
	pipe_end_close(&p->stdin_end);
	inputs_fail(p);
	timer_end(&p->deadline);
	timer_end(&p->timeout);
	p->ended = true;
	p->ended_ms = mono_ms();
	nrunning--;
	nended++;
	subs_pump(p);
	if (link_empty(&p->subs)) {
		ring_shrink(&p->out[0]);
		ring_shrink(&p->out[1]);
	}
	group_done(p);
	if (p->cgroup)
		nlingering++;
	processes_expire();
}

static void on_sigchld(uv_signal_t *h, int signum)
{
	bool orphans = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct process *p;

		if (hooks_reaped(pid, status))
			continue;
		p = process_by_pid(pid, false);
		if (!p || p->exited) {
			orphans = true;
			continue;
		}
		p->exited = true;
		p->status = status;
		process_check_end(p);
	}
	if (orphans)
		lingering_sweep();
}

/* --- start --- */

void processes_init(uv_loop_t *l)
{
	struct sysinfo si;

	kept_most = sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit / 8 : 0;
	kept_most = MIN(MAX(kept_most, KEPT_LEAST), KEPT_MOST);
	ring_set_budget((size_t)kept_most);
	loop = l;
	link_init(&all);
	uv_signal_init(loop, &sigchld);
	uv_signal_start(&sigchld, on_sigchld, SIGCHLD);
	uv_unref((uv_handle_t *)&sigchld);
}

struct stdio {
	int child[3], ours[3];
};

static void stdio_close(int fd[3])
{
	for (int i = 0; i < 3; i++) {
		bool again = false;

		for (int j = 0; j < i; j++)
			again |= fd[j] == fd[i];
		if (fd[i] >= 0 && !again)
			close(fd[i]);
	}
	for (int i = 0; i < 3; i++)
		fd[i] = -1;
}

static int make_pipe(struct stdio *io, int i, bool input)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	io->child[i] = p[input ? 0 : 1];
	io->ours[i] = p[input ? 1 : 0];
	return fcntl(io->ours[i], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_tty(struct stdio *io, const struct process_opts *o)
{
	struct winsize w = { .ws_row = o->rows, .ws_col = o->cols };
	int unlocked = 0, slave;

	io->ours[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (io->ours[0] < 0 || ioctl(io->ours[0], TIOCSPTLCK, &unlocked) < 0)
		return -errno;
	slave = ioctl(io->ours[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	io->child[0] = io->child[1] = io->child[2] = slave;
	if (fchown(slave, o->user->uid, (gid_t)-1) < 0 || ioctl(slave, TIOCSWINSZ, &w) < 0)
		return -errno;
	return 0;
}

static int make_stdio(struct stdio *io, const struct process_opts *o)
{
	int r = 0;

	if (o->tty)
		return make_tty(io, o);
	if (o->stdin_pipe)
		r = make_pipe(io, 0, true);
	if (r == 0)
		r = make_pipe(io, 1, false);
	return r == 0 ? make_pipe(io, 2, false) : r;
}

static struct process *process_new(const struct process_opts *o)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	link_init(&p->link);
	link_init(&p->inputs);
	link_init(&p->subs);
	p->tty = o->tty;
	p->has_stdin = o->stdin_pipe || o->tty;
	p->config = json_incref(o->config);
	p->tag = o->tag ? strdup(o->tag) : NULL;
	p->cwd = strdup(o->cwd);
	strcpy(p->user, o->user->name);
	for (int i = 0; i < 2; i++)
		ring_init(&p->out[i], o->keep, MAX(o->keep, RING_LEAST) + CHUNK_MAX);
	if (!p->cwd || (o->tag && !p->tag)) {
		process_free(p);
		return NULL;
	}
	return p;
}

static int wire(struct process *p, struct stdio *io)
{
	p->read[0] = pipe_end_new(p, io->ours[p->tty ? 0 : 1]);
	if (!p->read[0])
		return -ENOMEM;
	io->ours[p->tty ? 0 : 1] = -1;
	if (p->tty)
		return 0;
	p->read[1] = pipe_end_new(p, io->ours[2]);
	if (!p->read[1])
		return -ENOMEM;
	io->ours[2] = -1;
	if (io->ours[0] >= 0) {
		p->stdin_end = pipe_end_new(p, io->ours[0]);
		if (!p->stdin_end)
			return -ENOMEM;
		io->ours[0] = -1;
	}
	return 0;
}

int process_start(
	const struct process_opts *o, struct process **out, bool *bad_cwd, struct fail *why)
{
	struct stdio io = { { -1, -1, -1 }, { -1, -1, -1 } };
	struct spawn s = {
		.cmd = o->cmd,
		.argv = o->argv,
		.envp = o->envp,
		.path = o->path,
		.cwd = o->cwd,
		.user = o->user,
		.tty = o->tty,
		.strict = o->strict,
	};
	autoclose int cgroup = -1;
	struct process *p;
	pid_t pid;
	int r;

	*bad_cwd = false;
	if (nrunning >= PROCESSES_MAX)
		return fail_set(why, -EAGAIN, "%u processes run already", nrunning);
	p = process_new(o);
	if (!p)
		return fail_set(why, -ENOMEM, "out of memory");
	r = make_stdio(&io, o);
	if (r == 0)
		r = wire(p, &io);
	if (r < 0) {
		fail_set(why, r, "no pipe or terminal for the process: %s", strerror(-r));
		goto fail;
	}
	cgroup = cgroup_make(&p->cgroup);
	p->has_cgroup = cgroup >= 0;
	if (cgroup < 0 && cgroups_on()) { /* a command outside of them could not be frozen */
		r = fail_set(why, cgroup, "no cgroup for the process: %s", strerror(-cgroup));
		goto fail;
	}
	memcpy(s.stdio, io.child, sizeof(s.stdio));
	s.cgroup_fd = cgroup;
	p->started_ns = real_ns();
	pid = spawn_run(&s);
	if (pid < 0) {
		r = pid;
		*bad_cwd = s.step == SPAWN_CWD;
		if (s.step == SPAWN_CWD)
			fail_set(why, r, "cwd '%s': %s", o->cwd, strerror(-r));
		else if (s.step == SPAWN_EXEC)
			fail_set(why, r, "'%s' cannot be executed: %s", o->cmd, strerror(-r));
		else
			fail_set(why, r, "the process did not start: %s", strerror(-r));
		goto fail;
	}
	stdio_close(io.child);
	p->pid = pid;
	link_add_tail(&all, &p->link);
	nrunning++;
	if (o->deadline_ms > 0)
		p->deadline = timer_new(p, o->deadline_ms, on_deadline);
	if (o->timeout_ms > 0)
		p->timeout = timer_new(p, o->timeout_ms, on_timeout);
	process_flow(p);
	*out = p;
	return 0;
fail:
	stdio_close(io.child);
	stdio_close(io.ours);
	if (p->has_cgroup)
		cgroup_release(p->cgroup);
	process_free(p);
	return r;
}

/* --- looking up, signals --- */

struct link *processes_all(void)
{
	return &all;
}

/* Running ones before ended ones, newer before older: pids come again. */
static struct process *find(
	bool (*is)(const struct process *p, const void *key), const void *key, bool ended_too)
{
	struct process *ended = NULL;

	for (struct link *l = all.prev; l != &all; l = l->prev) {
		struct process *p = container_of(l, struct process, link);

		if (!is(p, key))
			continue;
		if (!p->ended)
			return p;
		if (!ended)
			ended = p;
	}
	return ended_too ? ended : NULL;
}

static bool is_pid(const struct process *p, const void *key)
{
	return p->pid == *(const pid_t *)key;
}

static bool is_tag(const struct process *p, const void *key)
{
	return p->tag && strcmp(p->tag, key) == 0;
}

struct process *process_by_pid(pid_t pid, bool ended_too)
{
	return find(is_pid, &pid, ended_too);
}

struct process *process_by_tag(const char *tag, bool ended_too)
{
	return find(is_tag, tag, ended_too);
}

int process_resize(struct process *p, uint16_t cols, uint16_t rows)
{
	struct winsize w = { .ws_row = rows, .ws_col = cols };

	if (!p->tty || !p->read[0])
		return -ENOTTY;
	return ioctl(p->read[0]->fd, TIOCSWINSZ, &w) < 0 ? -errno : 0;
}
