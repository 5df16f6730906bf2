#include "agent/agent.h"

#include <stdarg.h>
#include <stdio.h>

#include "agent/rpc.h"
#include "base/random.h"

#define TOKEN_MESSAGE                                                                              \
	"unauthorized access, please provide a valid access token or method signing if supported"

enum route_flags {
	HOST_ONLY = 1, /* from the host's address, whatever the token */
	NO_TOKEN = 2,  /* the handler checks for itself, or nothing is to be checked */
	EARLY = 4,     /* served before the first /init */
	ALWAYS = 8,    /* served while frozen as well */
};

static const struct route {
	const char *method, *path;
	void (*fn)(struct http_exchange *x);
	unsigned flags;
} routes[] = {
	{ "GET", "/health", handle_health, NO_TOKEN | EARLY },
	{ "POST", "/init", handle_init, HOST_ONLY | EARLY | ALWAYS },
	{ "POST", "/freeze", handle_freeze, HOST_ONLY | EARLY | ALWAYS },
	{ "GET", "/metrics", handle_metrics, 0 },
	{ "GET", "/envs", handle_envs, 0 },
	{ "GET", "/files", handle_files_get, NO_TOKEN },
	{ "POST", "/files", handle_files_post, NO_TOKEN },
	{ "POST", "/files/compose", handle_compose, 0 },
	{ "POST", "/space/thaw", handle_thaw, HOST_ONLY | ALWAYS },
	{ "GET", "/space/tcp/", handle_tcp, HOST_ONLY }, /* the port follows */
	{ "GET", "/space/tar", handle_tar_get, HOST_ONLY },
	{ "PUT", "/space/tar", handle_tar_put, HOST_ONLY },
	{ "PUT", "/space/file", handle_file_put, HOST_ONLY },
	{ "GET", "/space/processes", handle_processes, HOST_ONLY },
	{ "POST", "/space/kill", handle_kill, HOST_ONLY },
	{ "POST", "/space/stdin", handle_stdin, HOST_ONLY },
	{ "POST", "/space/shutdown", handle_shutdown, HOST_ONLY | EARLY },
};

void error_text(struct buf *b, int status, const char *msg)
{
	struct jw w;

	buf_init(b, 64 * KIB);
	jw_init(&w, b);
	jw_obj(&w, NULL);
	jw_int(&w, "code", status);
	jw_str(&w, "message", msg);
	jw_obj_end(&w);
}

void answer_error(struct http_exchange *x, int status, const char *fmt, ...)
{
	char msg[PATH_LEN + 256];
	struct buf b;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	error_text(&b, status, msg);
	http_respond_buf(x, status, "application/json; charset=utf-8", &b);
	buf_clear(&b);
}

bool token_ok(struct http_exchange *x, bool *present)
{
	struct str given = http_get(http_req(x), "x-access-token");
	size_t n = strlen(agent.token);

	*present = given.p && given.n > 0;
	return n == 0 || (*present && given.n == n && mem_eq_ct(given.p, agent.token, n));
}

static bool from_host(struct http_exchange *x)
{
	const char *want = agent.test ? "127.0.0.1:" : HOST_ADDR ":";

	return strncmp(http_peer(x), want, strlen(want)) == 0;
}

/* --- queries --- */

ssize_t query_str(const struct http_exchange *x, const char *key, char *out, size_t size)
{
	autofree char *v = NULL;
	int r = http_query(http_req(x)->query, key, &v);

	if (r < 0)
		return r;
	if (!v)
		return -ENOENT;
	r = str_copy(out, size, str_of(v));
	return r < 0 ? r : (ssize_t)strlen(out);
}

int query_user(struct http_exchange *x, const char *key, struct user *u)
{
	char name[USER_NAME_MAX];
	ssize_t n = query_str(x, key, name, sizeof(name));

	if (n < 0 && n != -ENOENT) {
		answer_error(x, 401, "error looking up user: the name is too long or malformed");
		return (int)n;
	}
	if (n <= 0)
		strcpy(name, agent.default_user);
	if (user_lookup(name, u) < 0) {
		answer_error(x, 401, "error looking up user '%s': no such user", name);
		return -ENOENT;
	}
	return 0;
}

int query_path(struct http_exchange *x, const char *key, const struct user *u, char out[PATH_LEN])
{
	char path[PATH_LEN];
	struct fail why;
	ssize_t n = query_str(x, key, path, sizeof(path));

	if (n < 0 && n != -ENOENT) {
		answer_error(x, 400,
			"%s: the path is too long or has a malformed escape or a NUL byte", key);
		return (int)n;
	}
	if (n < 0)
		path[0] = '\0';
	if (path_resolve(str_of(path), u->home, agent.default_workdir, out, &why) < 0) {
		answer_error(x, 400, "%s: %s", key, why.msg);
		return -EINVAL;
	}
	return 0;
}

/* --- routing --- */

static const struct route *route_find(const struct http_head *h, bool *other_method)
{
	*other_method = false;
	for (unsigned i = 0; i < ARRAY_LEN(routes); i++) {
		size_t n = strlen(routes[i].path);
		bool prefix = routes[i].path[n - 1] == '/';

		if (!(prefix ? str_starts(h->path, routes[i].path)
			     : str_eqz(h->path, routes[i].path)))
			continue;
		if (str_eqz(h->method, routes[i].method))
			return &routes[i];
		*other_method = true;
	}
	return NULL;
}

static void preflight(struct http_exchange *x)
{
	struct str asked = http_get(http_req(x), "access-control-request-headers");
	char headers[1024] = "*";

	if (asked.p && asked.n > 0)
		(void)str_copy(headers, sizeof(headers), asked);
	http_add_header(
		x, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
	http_add_header(x, "Access-Control-Allow-Headers", headers);
	http_add_header(x, "Access-Control-Max-Age", "7200");
	http_respond_empty(x, 204);
}

static void on_request(struct http_exchange *x, void *arg)
{
	const struct http_head *h = http_req(x);
	const struct rpc_method *m = NULL;
	const struct route *r;
	bool other, present;
	unsigned flags;

	http_add_header(x, "Access-Control-Allow-Origin", "*");
	http_add_header(x, "Access-Control-Expose-Headers", "*");
	if (str_eqz(h->method, "OPTIONS")) {
		preflight(x);
		return;
	}
	r = route_find(h, &other);
	if (!r)
		m = rpc_find(h->path);
	if (!r && (!m || !str_eqz(h->method, "POST"))) {
		answer_error(x, other || m ? 405 : 404,
			other || m ? "this path takes another method" : "no such path");
		return;
	}
	flags = r ? r->flags : 0;
	if ((flags & HOST_ONLY) && !from_host(x)) {
		answer_error(x, 403, "this call is for the host only");
		return;
	}
	if ((agent.frozen && !(flags & ALWAYS)) || (!agent.ready && !(flags & EARLY))) {
		answer_error(x, 503,
			agent.frozen ? "frozen: only /init is served"
				     : "waiting for the first /init");
		return;
	}
	if (!(flags & (HOST_ONLY | NO_TOKEN)) && !token_ok(x, &present)) {
		answer_error(x, 401, TOKEN_MESSAGE);
		return;
	}
	if (m)
		rpc_handle(x, m);
	else
		r->fn(x);
}

int server_start(const char *host, int port, struct fail *why)
{
	struct http_server_opts o = {
		.max_conns = 4096,
		.idle_timeout_ms = 640 * 1000,
		/* Longer than the 60 s after which a slow reader is let go, so that it still finds
		   the event that says so. */
		.write_timeout_ms = 300 * 1000,
		.body_timeout_ms = 300 * 1000,
		.high_water = 128 * 1024,
	};
	int r;

	r = http_server_new(agent.loop, &o, on_request, NULL, &agent.http);
	if (r < 0)
		return fail_set(why, r, "no server: %s", strerror(-r));
	return http_server_listen_tcp(agent.http, host, port, NULL, NULL, why);
}
