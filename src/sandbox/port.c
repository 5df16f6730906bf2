/* port.c - the ways into a guest: to its agent, and to its ports.
 *
 * A way has a descriptor of the slot's namespace of its own, because a connect on a worker thread may outlast the sandbox. A port is tried
 * directly first; where nothing listens on the guest's address, the agent is asked for a pipe to 127.0.0.1 or ::1. */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/core.h"

#define FROZEN_MS 12000 /* a connect waits for a checkpoint that is being taken, if not too many wait; freezing the file systems may take 10 s */
#define PORTS_MAX 256	     /* a sandbox; the one unused for longest makes room */
#define PATIENT_MAX 6	     /* connects that wait in full at the same time; there are 16 worker threads for all */
#define IMPATIENT_MS 100
#define HEAD_MAX 4096

struct way {
	struct slot slot;
	int port;
	char token[65];
};

struct port_way {
	struct port_way *next;
	int port;
	int64_t used_ns;
	struct http_endpoint *e;
};

static atomic_int waiting;

static struct way *way_new(const struct slot *slot, int port, const char *token)
{
	struct way *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->slot = *slot;
	w->slot.tap_fd = -1;
	w->slot.ns_fd = fcntl(slot->ns_fd, F_DUPFD_CLOEXEC, 3);
	w->port = port;
	(void)str_copy(w->token, sizeof(w->token), str_of(token));
	if (w->slot.ns_fd < 0) {
		free(w);
		return NULL;
	}
	return w;
}

static void way_free(void *arg)
{
	struct way *w = arg;

	close(w->slot.ns_fd);
	free(w);
}

/* --- the agent --- */

static int agent_connect(void *arg, struct fail *why)
{
	struct way *w = arg;

	return slot_connect(&w->slot, AGENT_PORT, why);
}

static struct http_endpoint *endpoint(struct space *sp, struct way *w, http_connect_fn *fn, int timeout_ms, struct fail *why)
{
	struct http_endpoint_opts o = {
		.connect = fn, .connect_arg = w, .connect_free = way_free, .host_header = "localhost",
		.connect_timeout_ms = timeout_ms,
	};
	struct http_endpoint *e = NULL;
	int r = w ? http_endpoint_new(sp->loop, &o, &e) : -ENOMEM;

	if (r == 0)
		return e;
	if (w)
		way_free(w);
	fail_set(why, r, "no way to the guest: %s", strerror(-r));
	return NULL;
}

struct http_endpoint *agent_endpoint(struct space *sp, const struct slot *slot, struct fail *why)
{
	return endpoint(sp, way_new(slot, AGENT_PORT, ""), agent_connect, AGENT_CONNECT_MS, why);
}

int agent_open(struct sandbox_core *c, struct fail *why)
{
	assert(!c->agent && c->m);
	c->agent = agent_endpoint(c->sp, &c->m->slot, why);
	return c->agent ? 0 : why->err;
}

void ways_reset(struct sandbox_core *c)
{
	if (c->agent)
		http_endpoint_reset(c->agent);
	for (struct port_way *p = c->ports; p; p = p->next)
		http_endpoint_reset(p->e);
}

void ways_close(struct sandbox_core *c)
{
	struct http_endpoint *agent = c->agent;
	struct port_way *p = c->ports, *next;

	c->agent = NULL;
	c->ports = NULL;
	http_endpoint_free(agent);
	for (; p; p = next) {
		next = p->next;
		http_endpoint_free(p->e);
		free(p);
	}
}

/* --- ports; what follows runs on worker threads --- */

/* 0 when connected, -ETIMEDOUT or what connect() says. */
static int wait_connected(int fd, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	int err = 0, n;
	socklen_t len = sizeof(err);

	do
		n = poll(&pfd, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ETIMEDOUT;
	if (n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		return -errno;
	return -err;
}

static int connect_to(struct way *w, int port, int timeout_ms, struct fail *why)
{
	autoclose int fd = slot_connect(&w->slot, port, why);
	int r;

	if (fd < 0)
		return fd;
	r = wait_connected(fd, timeout_ms);
	return r < 0 ? r : steal_fd(&fd);
}

/* Takes the answer's head off the socket and not a byte more: what follows is the guest's. The status, or negative. */
static int read_head(int fd, int64_t until_ms)
{
	char buf[HEAD_MAX];
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	ssize_t n, seen = 0;
	char *end;
	int status = 0;

	for (;;) {
		if (mono_ms() >= until_ms)
			return -ETIMEDOUT;
		/* Peeking leaves the bytes there, so poll would be ready at once: only wait while there is nothing new. */
		(void)poll(&pfd, 1, (int)MIN(until_ms - mono_ms(), seen ? 5 : 1000));
		n = recv(fd, buf, sizeof(buf) - 1, MSG_PEEK | MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return n == 0 ? -ECONNRESET : -errno;
		buf[n] = '\0';
		end = memmem(buf, (size_t)n, "\r\n\r\n", 4);
		if (end)
			break;
		if (n == seen)
			usleep(2000);
		if (n == (ssize_t)sizeof(buf) - 1)
			return -EBADMSG;
		seen = n;
	}
	if (recv(fd, buf, (size_t)(end + 4 - buf), MSG_DONTWAIT) != end + 4 - buf)
		return -EBADMSG;
	return sscanf(buf, "HTTP/1.1 %3d", &status) == 1 ? status : -EBADMSG;
}

static int through_agent(struct way *w, int timeout_ms, struct fail *why)
{
	autoclose int fd = connect_to(w, AGENT_PORT, timeout_ms, why);
	char req[256];
	int n, r;

	if (fd < 0)
		return fail_as(why, ERR_agent_unreachable, "the agent inside the sandbox does not answer: %s", strerror(-fd));
	n = snprintf(req, sizeof(req),
		     "GET /space/tcp/%d HTTP/1.1\r\nHost: localhost\r\nX-Access-Token: %s\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n",
		     w->port, w->token);
	if (send(fd, req, (size_t)n, MSG_NOSIGNAL) != n)
		return fail_as(why, ERR_agent_unreachable, "the agent inside the sandbox broke off");
	r = read_head(fd, mono_ms() + timeout_ms + 500);
	if (r == 101)
		return steal_fd(&fd);
	if (r == 502)
		return fail_as(why, ERR_port_closed, "nothing listens on port %d in the sandbox", w->port);
	if (r < 0)
		fail_as(why, ERR_agent_unreachable, "the agent inside the sandbox opened no port: %s", strerror(-r));
	else
		fail_as(why, ERR_agent_unreachable, "the agent inside the sandbox opened no port: it answers %d", r);
	return r == 503 ? -EAGAIN : why->err;
}

static int port_connect(void *arg, struct fail *why)
{
	struct way *w = arg;
	int timeout_ms = atomic_fetch_add(&waiting, 1) < PATIENT_MAX ? AGENT_CONNECT_MS : IMPATIENT_MS;
	int64_t end = timeout_ms == AGENT_CONNECT_MS ? mono_ms() + FROZEN_MS : 0;
	int r = connect_to(w, w->port, timeout_ms, why);

	/* An agent that is frozen for a checkpoint says so, for a moment. */
	if (r == -ECONNREFUSED)
		while ((r = through_agent(w, timeout_ms, why)) == -EAGAIN && mono_ms() < end) {
			*why = (struct fail){ 0 };
			usleep(20000);
		}
	else if (r < 0)
		r = fail_as(why, ERR_agent_unreachable, "the sandbox's network does not answer: %s", strerror(-r));
	atomic_fetch_sub(&waiting, 1);
	return r;
}

/* --- what the API calls --- */

static int running_only(struct sandbox_core *c, struct fail *why)
{
	if (state_ended(c->state) || c->state == SANDBOX_STOPPING)
		return fail_as(why, ERR_sandbox_gone, "sandbox %s has ended%s%s", c->sb.id, c->sb.reason[0] ? ": " : "", c->sb.reason);
	if (c->state != SANDBOX_RUNNING || !c->agent || !c->m)
		return fail_as(why, ERR_sandbox_not_running, "sandbox %s is %s", c->sb.id, sandbox_state_name(c->state));
	return 0;
}

struct http_endpoint *sandbox_agent(struct sandbox *sb, struct fail *why)
{
	struct sandbox_core *c = core_of(sb);

	return running_only(c, why) < 0 ? NULL : c->agent;
}

const char *sandbox_token(const struct sandbox *sb)
{
	return sb->core->who.token;
}

static void drop_oldest(struct sandbox_core *c)
{
	struct port_way **oldest = &c->ports, *gone;

	for (struct port_way **p = &c->ports; *p; p = &(*p)->next)
		if ((*p)->used_ns < (*oldest)->used_ns)
			oldest = p;
	gone = *oldest;
	assert(gone); /* called when there are too many */
	*oldest = gone->next;
	http_endpoint_free(gone->e);
	free(gone);
}

struct http_endpoint *sandbox_port(struct sandbox *sb, int port, struct fail *why)
{
	struct sandbox_core *c = core_of(sb);
	unsigned n = 0;
	struct port_way *p;

	if (running_only(c, why) < 0)
		return NULL;
	if (port < 1 || port > 65535) {
		fail_as(why, ERR_bad_request, "a port is a number from 1 to 65535");
		return NULL;
	}
	if (port == AGENT_PORT)
		return c->agent;
	for (p = c->ports; p; p = p->next, n++) {
		if (p->port != port)
			continue;
		p->used_ns = mono_ns();
		return p->e;
	}
	if (n >= PORTS_MAX)
		drop_oldest(c);
	p = calloc(1, sizeof(*p));
	if (p)
		p->e = endpoint(c->sp, way_new(&c->m->slot, port, c->who.token), port_connect, FROZEN_MS + 2 * AGENT_CONNECT_MS, why);
	if (!p || !p->e) {
		if (!p)
			fail_set(why, -ENOMEM, "out of memory");
		free(p);
		return NULL;
	}
	p->port = port;
	p->used_ns = mono_ns();
	p->next = c->ports;
	c->ports = p;
	return p->e;
}

int sandbox_console(struct sandbox *sb, size_t max, char **out, size_t *len)
{
	struct sandbox_core *c = core_of(sb);

	if (c->m)
		return vm_console(c->m->run_dir, max, out, len);
	/* What it said last was kept when its machine went. */
	*len = c->last_words ? strlen(c->last_words) : 0;
	*out = str_dup(str_of(c->last_words));
	return *out ? 0 : -ENOMEM;
}
