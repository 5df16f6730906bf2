/* proxy.c - HTTP to the ports of a sandbox: by path, by host name, by E2B's routing headers. */
#include "api/proxy.h"

#include <stdio.h>

#include "api/guest.h"
#include "api/handlers.h"
#include "base/random.h"

/* Of the agent's port, what E2B's clients need. Its control calls trust the host's address, which is ours: they are not for
 * everybody who may reach a port. Compared as sent; what could mean another path than it seems to is refused. */
bool proxy_agent_path(struct str p)
{
	static const char *const whole[] = { "/health", "/metrics", "/envs", "/files", "/files/compose" };
	static const char *const below[] = { "/process.Process/", "/filesystem.Filesystem/" };
	size_t i;

	if (memchr(p.p, '%', p.n) || memmem(p.p, p.n, "..", 2) || memmem(p.p, p.n, "//", 2))
		return false;
	for (i = 0; i < ARRAY_LEN(whole); i++)
		if (str_eqz(p, whole[i]))
			return true;
	for (i = 0; i < ARRAY_LEN(below); i++)
		if (str_starts(p, below[i]))
			return true;
	return false;
}

static int port_read(struct str s, int *port)
{
	uint64_t n;

	if (str_u64(s, 65535, &n) < 0 || !n)
		return -EINVAL;
	*port = (int)n;
	return 0;
}

static struct str without_port(struct str host)
{
	struct str name, port;

	if (host.n && host.p[0] == '[')
		return host;
	str_cut(host, ':', &name, &port);
	return name;
}

bool proxy_host_parse(struct str host, const char *domain, int *port, struct str *id)
{
	size_t dlen = strlen(domain);
	struct str label, rest, number;

	host = without_port(host);
	if (!dlen || !str_cut(host, '.', &label, &rest) || rest.n != dlen || strncasecmp(rest.p, domain, dlen) != 0)
		return false;
	if (!str_cut(label, '-', &number, &rest) || port_read(number, port) < 0)
		return false;
	/* Further parts after the id are somebody's decoration. */
	str_cut(rest, '-', id, &rest);
	return id_valid(*id, 'i');
}

/* --- a request under way --- */

struct passage {
	struct req *r;
	int port;
	bool e2b;	/* errors in E2B's words */
	char id[24];
	char target[];
};

static void e2b_fail(struct req *r, const char *id, int port, int status, const char *message)
{
	struct buf b;
	struct jw w;

	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "sandboxId", id);
	jw_str(&w, "message", message);
	if (port)
		jw_int(&w, "port", port);
	jw_int(&w, "code", status);
	jw_obj_end(&w);
	req_json(r, status, &w);
}

static void refuse(struct req *r, bool e2b, const char *id, int port, const struct fail *why)
{
	if (!e2b)
		return req_fail(r, why);
	if (why->code == ERR_port_closed)
		return e2b_fail(r, id, port, 502, "The sandbox is running but port is not open");
	if (why->code == ERR_not_found || why->code == ERR_bad_request)
		return e2b_fail(r, id, 0, err_info(why->code)->status, why->msg);
	e2b_fail(r, id, 0, why->code == ERR_busy ? 409 : 502, "The sandbox was not found");
}

static void on_failed(struct http_exchange *x, const struct fail *why, void *arg)
{
	struct passage *p = arg;
	struct fail f = { 0 };

	if (why->err == -ECONNREFUSED)
		fail_as(&f, ERR_port_closed, "nothing listens on port %d of sandbox %s", p->port, p->id);
	else
		guest_gone(p->r->sb, &f);
	if (f.code == ERR_agent_unreachable)
		fail_as(&f, ERR_agent_unreachable, "port %d of sandbox %s: %s", p->port, p->id, why->msg);
	refuse(p->r, p->e2b, p->id, p->port, &f);
}

static void on_passed(uint64_t bytes_in, uint64_t bytes_out, void *arg)
{
	struct passage *p = arg;
	struct req *r = p->r;

	free(p);
	req_over(r);
	req_unref(r);
}

static bool carries_key(const struct http_head *h)
{
	struct str v = http_get(h, "Authorization"), kind, rest;

	return v.p && str_cut(v, ' ', &kind, &rest) && auth_is_key(str_trim(rest));
}

/* Relays R, whose sandbox is held, to PORT. TARGET: what the guest sees. HOST: NULL leaves the client's. */
static void pass(struct req *r, int port, bool e2b, struct str target, const char *host, const char *prefix)
{
	static const char *const drop[] = { "X-API-Key", "X-Attach-Token", "Authorization" };
	static const char *const drop_by_path[] = { "X-API-Key", "X-Attach-Token", "X-Forwarded-Prefix",
		"X-Forwarded-Host", "Authorization" };
	struct http_header add[2];
	struct http_proxy_opts o = { .host = host, .failed = on_failed, .on_end = on_passed, .add = add,
		.drop = prefix ? drop_by_path : drop, .ndrop = prefix ? 5 : 3 };
	struct fail why = { 0 };
	struct http_endpoint *e = sandbox_port(r->sb, port, &why);
	struct passage *p;

	if (!e)
		return refuse(r, e2b, r->sb->id, port, &why);
	p = calloc(1, sizeof(*p) + target.n + 1);
	if (!p)
		return req_failf(r, ERR_no_capacity, "out of memory");
	p->r = req_ref(r);
	p->port = port;
	p->e2b = e2b;
	snprintf(p->id, sizeof(p->id), "%s", r->sb->id);
	memcpy(p->target, target.p, target.n);
	o.target = p->target;
	o.arg = p;
	/* A key is for us: the guest never sees one. Other credentials are the guest's own business. */
	if (!carries_key(http_req(r->x)))
		o.ndrop--;
	if (prefix) {
		add[o.nadd++] = (struct http_header){ STR("X-Forwarded-Prefix"), str_of(prefix) };
		add[o.nadd++] = (struct http_header){ STR("X-Forwarded-Host"),
			http_get(http_req(r->x), "Host") };
	}
	http_proxy(r->x, e, &o);
}

/* --- by path --- */

void h_port(struct req *r)
{
	const struct http_head *h = http_req(r->x);
	struct str rest = h->path, head, target;
	char host[32], prefix[96];
	autobuf struct buf t;
	int port, i;

	buf_init(&t, HTTP_HEAD_MAX);
	if (port_read(str_of(req_param(r, 1)), &port) < 0)
		return req_failf(r, ERR_bad_request, "port: from 1 to 65535");
	/* "", v1, sandboxes, ID, ports, PORT; the rest is the guest's, as it was sent. */
	for (i = 0; i < 6; i++)
		str_cut(rest, '/', &head, &rest);
	target = (struct str){ rest.n ? rest.p - 1 : "/", rest.n + (rest.n != 0) };
	if (!target.n)
		target = STR("/");
	if (port == GUEST_PORT && !proxy_agent_path(target))
		return req_failf(r, ERR_not_found, "this path of the agent is not reachable from outside");
	buf_adds(&t, target);
	if (h->query.n) {
		buf_addc(&t, '?');
		buf_adds(&t, h->query);
	}
	snprintf(host, sizeof(host), "localhost:%d", port);
	snprintf(prefix, sizeof(prefix), "/v1/sandboxes/%s/ports/%d", r->sb->id, port);
	pass(r, port, false, buf_str(&t), host, prefix);
}

/* --- by Host and by headers --- */

static void forward(struct req *r, int port)
{
	const struct http_head *h = http_req(r->x);

	/* Not "the target as the client sent it": an absolute form would name our host to the guest. */
	autobuf struct buf t;

	buf_init(&t, HTTP_HEAD_MAX);
	buf_adds(&t, h->path.n ? h->path : STR("/"));
	if (h->query.n) {
		buf_addc(&t, '?');
		buf_adds(&t, h->query);
	}
	pass(r, port, true, buf_str(&t), NULL, NULL);
}

static void awake(struct req *r, const struct fail *why)
{
	int port = (int)(intptr_t)r->user;

	r->user = NULL;
	if (why->err)
		refuse(r, true, r->sb->id, 0, why);
	else
		forward(r, port);
}

static void to_sandbox(struct req *r, struct str id, int port)
{
	const struct http_head *h = http_req(r->x);
	struct fail why = { 0 };
	char z[32];

	if (str_copy(z, sizeof(z), id) < 0)
		return e2b_fail(r, "", 0, 400, "E2b-Sandbox-Id: the id of a sandbox");
	if (port == GUEST_PORT && !proxy_agent_path(h->path))
		return e2b_fail(r, z, 0, 404, "this path of the agent is not reachable from outside");
	/* Only by id: names are for those who have a key. */
	r->sb = id_valid(id, 'i') ? sandbox_find(r->api->sp, API_TENANT, id, &why) : NULL;
	if (!r->sb)
		return e2b_fail(r, z, 0, 502, "The sandbox was not found");
	sandbox_hold(r->sb);
	r->held = true;
	r->user = (void *)(intptr_t)port;
	wake_first(r, awake);
}

bool proxy_by_host(struct req *r)
{
	const struct http_head *h = http_req(r->x);
	struct str host = http_get(h, "Host"), id, number;
	int port;

	if (r->api->stopping)
		return false;
	if (proxy_host_parse(host, r->api->cfg->domain, &port, &id)) {
		to_sandbox(r, id, port);
		return true;
	}
	id = http_get(h, "E2b-Sandbox-Id");
	if (!id.p)
		return false;
	number = http_get(h, "E2b-Sandbox-Port");
	if (port_read(number, &port) < 0)
		e2b_fail(r, "", 0, 400, "E2b-Sandbox-Port: from 1 to 65535");
	else
		to_sandbox(r, id, port);
	return true;
}
