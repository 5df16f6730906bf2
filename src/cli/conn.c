/* conn.c - where the API is: --host, SPACE_URL, SPACE_SOCKET, the current context, the default socket, in this order. */
#include "base/str.h"
#include "cli/cli.h"

#define DEFAULT_SOCKET "/run/space/api.sock"
#define DEFAULT_PORT 7070

static int place_bad(const char *url, struct fail *why)
{
	return fail_here(why, -EINVAL, "\"%.120s\" is not an address: http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH",
		url);
}

/* "[::1]:70", "host", "host:70" */
static int host_port_parse(struct str s, int default_port, struct place *out)
{
	struct str host = s, port = { NULL, 0 };
	uint64_t n = (uint64_t)default_port;

	if (str_starts(s, "[")) {
		struct str rest;

		s.p++;
		s.n--;
		if (!str_cut(s, ']', &host, &rest) || (rest.n && rest.p[0] != ':'))
			return -EINVAL;
		if (rest.n)
			port = (struct str){ rest.p + 1, rest.n - 1 };
	} else {
		str_cut(s, ':', &host, &port);
	}
	if (port.n && (str_u64(port, 65535, &n) < 0 || n == 0))
		return -EINVAL;
	if (!host.n || str_has_ctl(host) || memchr(host.p, ' ', host.n))
		return -EINVAL;
	out->port = (int)n;
	return str_copy(out->host, sizeof(out->host), host);
}

int place_parse(const char *url, struct place *out, struct fail *why)
{
	struct str s = str_of(url), host, path;
	struct place p = { .port = 0 };
	int port = DEFAULT_PORT;

	if (str_starts(s, "unix:") || str_starts(s, "/")) {
		const char *path_at = url + (url[0] == '/' ? 0 : 5);

		while (path_at[0] == '/' && path_at[1] == '/')
			path_at++;
		if (path_at[0] != '/' || str_copy(p.socket, sizeof(p.socket), str_of(path_at)) < 0)
			return place_bad(url, why);
		*out = p;
		return 0;
	}
	if (str_starts(s, "https://")) {
		p.tls = true;
		port = 443;
		s = str_of(url + 8);
	} else if (str_starts(s, "http://")) {
		s = str_of(url + 7);
	}
	str_cut(s, '/', &host, &path);
	while (path.n && path.p[path.n - 1] == '/')
		path.n--;
	if (host_port_parse(host, port, &p) < 0 || path.n + 2 > sizeof(p.prefix) || str_has_ctl(path))
		return place_bad(url, why);
	if (path.n)
		snprintf(p.prefix, sizeof(p.prefix), "/" STR_FMT, STR_ARG(path));
	*out = p;
	return 0;
}

static int place_find(struct cli *c, struct place *p, struct fail *why)
{
	const char *url = c->host && *c->host ? c->host : getenv("SPACE_URL");
	const char *key = getenv("SPACE_API_KEY");
	autofree char *context_url = NULL;
	autofree char *context_key = NULL;
	int r;

	c->key = key && *key ? key : NULL;
	if (url && *url)
		return place_parse(url, p, why);
	url = getenv("SPACE_SOCKET");
	if (url && *url)
		return place_parse(url, p, why);
	r = context_current(&context_url, &context_key, why);
	if (r < 0)
		return r;
	if (!context_url)
		return place_parse(DEFAULT_SOCKET, p, why);
	if (!c->key)
		c->key = steal_ptr(context_key); /* for the life of the program */
	return place_parse(context_url, p, why);
}

int cli_connect(struct cli *c, struct fail *why)
{
	static struct place p;
	struct http_endpoint_opts o = { .connect_timeout_ms = 5000 };
	int r;

	if (c->ep)
		return 0;
	r = place_find(c, &p, why);
	if (r < 0)
		return r;
	if (p.socket[0]) {
		o.unix_path = p.socket;
		c->local = true;
		snprintf(c->where, sizeof(c->where), "%s", p.socket);
	} else {
		o.host = p.host;
		o.port = p.port;
		o.tls = p.tls;
		o.tls_ca_file = getenv("SPACE_CA_FILE");
		snprintf(c->where, sizeof(c->where), "%s://%s:%d%s", p.tls ? "https" : "http", p.host, p.port, p.prefix);
	}
	c->prefix = p.prefix;
	r = http_endpoint_new(c->loop, &o, &c->ep);
	if (r < 0)
		return fail_here(why, r, "cannot use %s: %s", c->where, strerror(-r));
	return 0;
}
