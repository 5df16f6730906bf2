/* route.c - from a request's head to its handler. */
#include <stdio.h>

#include "api/api.h"
#include "api/metrics.h"
#include "api/proxy.h"
#include "base/log.h"

/* Takes the next piece of a path or pattern, up to the next '/'. */
static struct str piece(struct str *rest)
{
	struct str head, tail;

	str_cut(*rest, '/', &head, &tail);
	*rest = tail;
	return head;
}

/* Does PATH fit PATTERN? Pieces in braces are put into PIECES, still percent-encoded: a %2F inside one stays inside it. */
static bool fits(const char *pattern, struct str path, struct str pieces[API_PARAMS])
{
	struct str pat = str_of(pattern + 1);
	unsigned n = 0;

	if (!path.n || path.p[0] != '/')
		return false;
	path.p++;
	path.n--;
	for (;;) {
		bool pat_more = memchr(pat.p, '/', pat.n), path_more = memchr(path.p, '/', path.n);
		struct str want, have;

		if (str_ends(pat, "...}") && !pat_more) { /* the rest, whatever it is */
			pieces[n] = path;
			return true;
		}
		if (str_eqz(pat, "..."))
			return true;
		want = piece(&pat);
		have = piece(&path);
		if (want.n && want.p[0] == '{') {
			if (!have.n)
				return false;
			assert(n < API_PARAMS);
			pieces[n++] = have;
		} else if (!str_eq(want, have)) {
			return false;
		}
		if (pat_more && str_eqz(pat, "...") && !path_more)
			return true; /* also without the last slash */
		if (pat_more != path_more)
			return false;
		if (!pat_more)
			return true;
	}
}

const struct route *route_find(struct str method, struct str path, struct str pieces[API_PARAMS],
			       struct buf *allow)
{
	bool exact = false; /* a row without pieces has this very path: what could be a piece elsewhere is not meant */
	unsigned i;

	for (i = 0; i < nroutes; i++) {
		struct str got[API_PARAMS] = { { 0 } };

		if ((exact && strchr(routes[i].pattern, '{')) || !fits(routes[i].pattern, path, got))
			continue;
		exact |= str_eqz(path, routes[i].pattern);
		if (!routes[i].method || str_eqz(method, routes[i].method)) {
			memcpy(pieces, got, sizeof(got));
			return &routes[i];
		}
		if (allow)
			buf_addf(allow, "%s%s", allow->n ? ", " : "", routes[i].method);
	}
	return NULL;
}

unsigned route_index(const struct route *rt)
{
	return (unsigned)(rt - routes);
}

static bool query_takes(const char *names, struct str key)
{
	struct str rest = str_of(names), one;

	while (rest.n) {
		str_cut(rest, ' ', &one, &rest);
		if (str_eq(one, key))
			return true;
		if (str_ends(one, ".*") && key.n >= one.n && !memcmp(one.p, key.p, one.n - 1))
			return true;
	}
	return false;
}

static int query_check(const struct route *rt, struct str query, struct fail *why)
{
	struct str key, value;

	if (rt->flags & ROUTE_RAW_QUERY)
		return 0;
	while (http_query_next(&query, &key, &value) == 1) {
		if (!key.n && !value.n)
			continue;
		if (!rt->query || !query_takes(rt->query, key))
			return fail_as(why, ERR_bad_request, "this call takes no \"%.*s\"%s%s",
				       (int)MIN(key.n, 64), key.p, rt->query ? "; it takes: " : "",
				       rt->query ? rt->query : "");
	}
	return 0;
}

static int params_decode(struct req *r, const struct str pieces[API_PARAMS], struct fail *why)
{
	size_t room = 0, at = 0;
	unsigned i;

	if (!pieces[0].p)
		return 0;
	for (i = 0; i < API_PARAMS; i++)
		room += pieces[i].n + 1;
	r->params = malloc(room);
	if (!r->params)
		return fail_set(why, -ENOMEM, "out of memory");
	for (i = 0; i < API_PARAMS; i++) {
		ssize_t n = http_unescape(r->params + at, room - at, pieces[i], false);

		if (n < 0)
			return fail_as(why, ERR_bad_path,
				       "the path has a NUL or a malformed percent-escape");
		r->at[i] = (uint16_t)at; /* a head is 32 KiB at most */
		at += (size_t)n + 1;
	}
	return 0;
}

static void run(struct req *r)
{
	struct sandbox *sb = r->sb;

	r->route->fn(r);
	if (!r->held && r->sb == sb)
		r->sb = NULL; /* the core may free it as soon as we return */
}

static void awake(struct req *r, const struct fail *why)
{
	if (why->err)
		req_fail(r, why);
	else
		run(r);
}

static void dispatch(struct req *r)
{
	struct fail why = { 0 };

	if (!(r->route->flags & ROUTE_SANDBOX))
		return r->route->fn(r);
	r->sb = sandbox_find(r->api->sp, r->tenant, str_of(req_param(r, 0)), &why);
	if (!r->sb)
		return req_fail(r, &why);
	if (r->route->flags & ROUTE_RUNNING) {
		bool quiet = r->route->flags & ROUTE_QUIET;

		if (quiet)
			sandbox_keep(r->sb);
		else
			sandbox_hold(r->sb);
		r->held = true;
		if (!quiet)
			return wake_first(r, awake);
	}
	run(r);
}

static void not_found(struct req *r, const struct http_head *h, struct buf *allow)
{
	if (!allow->n)
		return req_failf(r, ERR_not_found, "there is nothing at %.*s",
				 (int)MIN(h->path.n, 120), h->path.p);
	if (!buf_addc(allow, 0))
		http_add_header(r->x, "Allow", allow->p);
	req_failf(r, ERR_method_not_allowed, "%.*s does not take %.*s", (int)MIN(h->path.n, 120),
		  h->path.p, (int)MIN(h->method.n, 20), h->method.p);
}

static void serve(struct req *r)
{
	const struct http_head *h = http_req(r->x);
	struct str pieces[API_PARAMS] = { { 0 } };
	autobuf struct buf allow;
	struct fail why = { 0 };

	buf_init(&allow, 128);
	r->route = route_find(h->method, h->path, pieces, &allow);
	log_debug("request %s: %.*s %.*s peer=%s", http_request_id(r->x), STR_ARG(h->method),
		  (int)MIN(h->path.n, 512), h->path.p, http_peer(r->x));
	if (!r->route)
		return not_found(r, h, &allow);
	if (r->api->stopping)
		return req_failf(r, ERR_daemon_down, "spaced is stopping");
	if (params_decode(r, pieces, &why) < 0 || auth_check(r, &why) < 0 ||
	    query_check(r->route, h->query, &why) < 0)
		return req_fail(r, &why);
	if ((r->route->flags & ROUTE_LOCAL_ONLY) && !r->local)
		return req_failf(r, ERR_forbidden, "this call is only for the local socket");
	dispatch(r);
}

void route_request(struct http_exchange *x, void *arg)
{
	struct api *api = arg;
	struct req *r = req_new(api, x);
	struct fail why = { 0 };

	if (!r) {
		fail_set(&why, -ENOMEM, "out of memory");
		http_respond_fail(x, &why);
		return;
	}
	/* An answer may end the exchange, and with it R's own reference, before its handler has returned. */
	req_ref(r);
	if (!proxy_by_host(r))
		serve(r);
	req_unref(r);
}
