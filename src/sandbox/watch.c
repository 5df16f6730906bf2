/* watch.c - the end of a monitor, seen on its pidfd: why it ended, and what the sandbox becomes. */
#include <fcntl.h>
#include <stdio.h>

#include "base/log.h"
#include "sandbox/core.h"

struct exit_watch {
	uv_poll_t poll;
	int fd; /* a copy: the driver closes its own when it forgets the VM */
	struct sandbox_core *c;
};

static void closed(uv_handle_t *h)
{
	struct exit_watch *w = h->data;

	close(w->fd);
	free(w);
}

void watch_stop(struct sandbox_core *c)
{
	struct exit_watch *w = c->watch;

	if (!w)
		return;
	c->watch = NULL;
	uv_poll_stop(&w->poll);
	uv_close((uv_handle_t *)&w->poll, closed);
}

struct why_job {
	struct sandbox_core *c;
	struct machine *m;
	char reason[32];
};

static int ask_why(void *arg, struct fail *why)
{
	struct why_job *j = arg;
	struct vm_status st = { 0 };

	if (j->m->sp->drv->status(j->m->vm, &st, why) < 0 || !st.exited || !st.reason)
		st.reason = "monitor_crash";
	snprintf(j->reason, sizeof(j->reason), "%s", st.reason);
	return 0;
}

static void told_why(void *arg, const struct fail *why)
{
	struct why_job *j = arg;
	struct sandbox_core *c = j->c;
	struct fail f = { 0 };

	/* A kill may have come first; then the end is expected. */
	if (c->m == j->m && !c->ending) {
		fail_as(&f, ERR_guest_failed, "the sandbox's machine ended by itself: %s", j->reason);
		if (c->start)
			start_interrupt(c, j->reason, &f);
		else if (c->revival)
			revive_interrupt(c, &f);
		else
			core_end(c, j->reason, &f);
	}
	sandbox_release(&c->sb);
	free(j);
}

static void on_exit_event(uv_poll_t *p, int status, int events)
{
	struct exit_watch *w = p->data;
	struct sandbox_core *c = w->c;
	struct why_job *j = calloc(1, sizeof(*j));

	watch_stop(c);
	ways_reset(c);
	if (!j) {
		core_end(c, "monitor_crash", NULL);
		return;
	}
	j->c = c;
	j->m = c->m;
	sandbox_hold(&c->sb);
	space_job(c->sp, c->q, ask_why, told_why, j);
}

void watch_explain(struct fail *f, enum errcode code)
{
	switch (f->err) {
	case -EPIPE: case -ECONNRESET: case -ECONNREFUSED: case -ECANCELED: case -ESRCH:
		break;
	default:
		return;
	}
	if (f->code != ERR_internal && f->code != ERR_not_found && f->code != ERR_daemon_down)
		return; /* it has been said better already */
	log_info("the monitor is gone: %s", f->msg);
	fail_as(f, code, "the sandbox's machine ended by itself");
}

int watch_start(struct sandbox_core *c)
{
	struct exit_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->c = c;
	w->fd = fcntl(vm_pidfd(c->m->vm), F_DUPFD_CLOEXEC, 3);
	if (w->fd < 0 || uv_poll_init(c->sp->loop, &w->poll, w->fd) < 0) {
		if (w->fd >= 0)
			close(w->fd);
		free(w);
		return -ENOMEM;
	}
	w->poll.data = w;
	uv_poll_start(&w->poll, UV_READABLE, on_exit_event);
	uv_unref((uv_handle_t *)&w->poll);
	c->watch = w;
	return 0;
}
