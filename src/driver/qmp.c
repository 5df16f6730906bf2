/* qmp.c - see qmp.h. */
#include "driver/qmp.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fault.h"

#define QMP_MAX (1024 * 1024)

struct qmp {
	int fd;
	bool broken;
	struct buf in;
	qmp_event_fn *on_event;
	void *arg;
};

static int broken(struct qmp *q, int err, const char *what, struct fail *why)
{
	q->broken = true;
	return fail_set(why, err, "the monitor: %s: %s", what, strerror(-err));
}

/* Reads what there is, waiting until DEADLINE for the first byte. 0: something came. */
static int fill(struct qmp *q, int64_t deadline)
{
	int64_t left = deadline - mono_ms();
	struct pollfd p = { .fd = q->fd, .events = POLLIN };
	ssize_t n;
	int r;

	r = poll(&p, 1, left > 0 ? (int)left : 0);
	if (r < 0)
		return errno == EINTR ? 0 : -errno;
	if (r == 0)
		return -ETIMEDOUT;
	r = buf_reserve(&q->in, q->in.n + 4096 <= QMP_MAX ? 4096 : 1);
	if (r < 0)
		return r;
	n = recv(q->fd, q->in.p + q->in.n, q->in.cap - q->in.n, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	q->in.n += (size_t)n;
	return 0;
}

/* One whole message out of the buffer: 1 and *out, 0 when none is there yet. */
static int take(struct qmp *q, json_t **out, struct fail *why)
{
	char *nl = q->in.n ? memchr(q->in.p, '\n', q->in.n) : NULL;
	size_t n;

	if (!nl)
		return 0;
	n = (size_t)(nl - q->in.p) + 1;
	*out = json_read((struct str){ q->in.p, n }, why);
	buf_drop(&q->in, n);
	return *out ? 1 : -EBADMSG;
}

/* True if MSG was an event, which is then dealt with. */
static bool event(struct qmp *q, json_t *msg)
{
	const char *name = json_string_value(json_object_get(msg, "event"));

	if (!name)
		return false;
	if (q->on_event)
		q->on_event(name, json_object_get(msg, "data"), q->arg);
	return true;
}

/* The next message that is no event. */
static int answer(struct qmp *q, int64_t deadline, json_t **out, struct fail *why)
{
	for (;;) {
		autojson json_t *msg = NULL;
		int r = take(q, &msg, why);

		if (r < 0)
			return broken(q, r, "not JSON", why);
		if (r == 0) {
			r = fill(q, deadline);
			if (r < 0)
				return broken(q, r, "no answer", why);
			continue;
		}
		if (!event(q, msg)) {
			*out = steal_ptr(msg);
			return 0;
		}
	}
}

static int push(struct qmp *q, const struct buf *b, int send_fd, struct fail *why)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl = { 0 };
	size_t at = 0;

	while (at < b->n) {
		struct iovec v = { b->p + at, b->n - at };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
		ssize_t n;

		if (at == 0 && send_fd >= 0) {
			m.msg_control = &ctl;
			m.msg_controllen = sizeof(ctl.room);
			ctl.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
			memcpy(CMSG_DATA(&ctl.h), &send_fd, sizeof(int));
		}
		n = FAULT(sendmsg(q->fd, &m, MSG_NOSIGNAL));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return broken(q, -errno, "sending", why);
		at += (size_t)n;
	}
	return 0;
}

int qmp_cmd(struct qmp *q, const char *cmd, const char *args, int send_fd, int timeout_ms, json_t **ret, struct fail *why)
{
	int64_t deadline = mono_ms() + timeout_ms;
	autojson json_t *msg = NULL;
	struct buf autobuf b;
	json_t *err, *res;
	int r;

	if (q->broken)
		return fail_set(why, -EPIPE, "the connection to the monitor is broken");
	buf_init(&b, 64 * 1024);
	r = buf_addf(&b, "{\"execute\":\"%s\"%s%s}\n", cmd, args ? ",\"arguments\":" : "", args ? args : "");
	if (r < 0)
		return fail_set(why, r, "%s: %s", cmd, strerror(-r));
	r = push(q, &b, send_fd, why);
	if (r == 0)
		r = answer(q, deadline, &msg, why);
	if (r < 0) {
		fail_prefix(why, "%s", cmd);
		return r;
	}
	err = json_object_get(msg, "error");
	if (err) {
		const char *desc = json_string_value(json_object_get(err, "desc"));

		return fail_set(why, -EREMOTEIO, "%s: %s", cmd, desc ? desc : "refused");
	}
	res = json_object_get(msg, "return");
	if (!res)
		return broken(q, -EBADMSG, "neither return nor error", why);
	if (ret)
		*ret = json_incref(res);
	return 0;
}

int qmp_poll(struct qmp *q)
{
	int r;

	do {
		autojson json_t *msg = NULL;

		while ((r = take(q, &msg, NULL)) > 0) {
			event(q, msg);
			json_decref(msg);
			msg = NULL;
		}
		if (r < 0)
			break;
		r = fill(q, 0);
	} while (r == 0);
	if (r == -ETIMEDOUT)
		return 0;
	q->broken = true;
	return -EPIPE;
}

bool qmp_usable(const struct qmp *q)
{
	return q && !q->broken;
}

void qmp_close(struct qmp *q)
{
	if (!q)
		return;
	if (q->fd >= 0)
		close(q->fd);
	buf_clear(&q->in);
	free(q);
}

int qmp_open(int dirfd, const char *name, qmp_event_fn *on_event, void *arg, int timeout_ms, struct qmp **out, struct fail *why)
{
	struct timeval limit = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct qmp *q = calloc(1, sizeof(*q));
	autojson json_t *hello = NULL;
	int r;

	if (!q)
		return fail_set(why, -ENOMEM, "no memory");
	buf_init(&q->in, QMP_MAX);
	q->on_event = on_event;
	q->arg = arg;
	/* through the descriptor: a run directory's path may be longer than a socket address */
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dirfd, name);
	q->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (q->fd < 0) {
		r = fail_set(why, -errno, "socket: %s", strerror(errno));
		goto fail;
	}
	setsockopt(q->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* of connect too */
	if (connect(q->fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		r = fail_set(why, -errno, "connecting to the monitor: %s", strerror(errno));
		goto fail;
	}
	r = answer(q, mono_ms() + timeout_ms, &hello, why);
	if (r == 0 && !json_object_get(hello, "QMP"))
		r = fail_set(why, -EPROTO, "the monitor does not speak QMP");
	if (r == 0)
		r = qmp_cmd(q, "qmp_capabilities", NULL, -1, timeout_ms, NULL, why);
	if (r < 0)
		goto fail;
	*out = q;
	return 0;
fail:
	qmp_close(q);
	return r;
}
