#include "cli/term.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>

static struct termios saved;
static bool raw;

int term_raw(void)
{
	struct termios t;

	if (tcgetattr(0, &saved) < 0)
		return -errno;
	t = saved;
	cfmakeraw(&t);
	if (tcsetattr(0, TCSADRAIN, &t) < 0)
		return -errno;
	raw = true;
	return 0;
}

void term_restore(void)
{
	if (raw)
		tcsetattr(0, TCSADRAIN, &saved);
	raw = false;
}

void term_size(unsigned *cols, unsigned *rows)
{
	struct winsize ws = { 0 };

	for (int fd = 0; fd < 3; fd++) {
		if (ioctl(fd, TIOCGWINSZ, &ws) == 0 && ws.ws_col && ws.ws_row)
			break;
	}
	*cols = ws.ws_col ? ws.ws_col : 80;
	*rows = ws.ws_row ? ws.ws_row : 24;
}

#define BITE (64 * 1024)

struct input {
	uv_loop_t *loop;
	int fd, ep; /* ep -1: a file, always readable */
	input_fn *fn;
	void *arg;
	bool on;
	unsigned open; /* handles not closed yet */
	uv_poll_t poll;
	uv_idle_t idle;
	char buf[BITE];
};

static void input_read(struct input *in)
{
	ssize_t n = read(in->fd, in->buf, sizeof(in->buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0)
		input_pause(in);
	in->fn(in->buf, n < 0 ? -errno : n, in->arg);
}

static void input_polled(uv_poll_t *p, int status, int events)
{
	input_read(p->data);
}

static void input_idled(uv_idle_t *i)
{
	input_read(i->data);
}

struct input *input_new(uv_loop_t *loop, int fd, input_fn *fn, void *arg)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct input *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->loop = loop;
	in->fd = fd;
	in->fn = fn;
	in->arg = arg;
	in->ep = epoll_create1(EPOLL_CLOEXEC);
	if (in->ep < 0)
		goto fail;
	if (epoll_ctl(in->ep, EPOLL_CTL_ADD, fd, &ev) < 0) {
		int e = errno;

		close(in->ep);
		in->ep = -1;
		if (e != EPERM) { /* EPERM: a file, which is always ready */
			errno = e;
			goto fail;
		}
	}
	in->idle.data = in->poll.data = in;
	uv_idle_init(loop, &in->idle);
	in->open = 1;
	if (in->ep >= 0) {
		uv_poll_init(loop, &in->poll, in->ep);
		in->open = 2;
	}
	return in;
fail:
	free(in);
	return NULL;
}

void input_pause(struct input *in)
{
	if (!in->on)
		return;
	in->on = false;
	if (in->ep >= 0)
		uv_poll_stop(&in->poll);
	else
		uv_idle_stop(&in->idle);
}

void input_resume(struct input *in)
{
	if (in->on)
		return;
	in->on = true;
	if (in->ep >= 0)
		uv_poll_start(&in->poll, UV_READABLE, input_polled);
	else
		uv_idle_start(&in->idle, input_idled);
}

static void input_closed(uv_handle_t *h)
{
	struct input *in = h->data;

	if (--in->open)
		return;
	if (in->ep >= 0)
		close(in->ep);
	free(in);
}

void input_free(struct input *in)
{
	if (!in)
		return;
	input_pause(in);
	uv_close((uv_handle_t *)&in->idle, input_closed);
	if (in->ep >= 0)
		uv_close((uv_handle_t *)&in->poll, input_closed);
}

enum escape_what escape_scan(struct escape *e, struct str in, char *out, size_t *n, size_t *used)
{
	*n = 0;
	for (size_t i = 0; i < in.n; i++) {
		char ch = in.p[i];

		*used = i + 1;
		if (e->tilde) {
			e->tilde = false;
			if (ch == '.')
				return ESCAPE_LEAVE;
			if (ch == '?')
				return ESCAPE_HELP;
			e->bol_not = true;
			out[(*n)++] = '~';
			if (ch == '~')
				continue;
		} else if (ch == '~' && !e->bol_not) {
			e->tilde = true;
			continue;
		}
		out[(*n)++] = ch;
		e->bol_not = ch != '\r' && ch != '\n';
	}
	return ESCAPE_NONE;
}
