/* api.c - calls that are waited for. */
#include <stdarg.h>

#include "cli/cli.h"

static int path_arg(struct buf *b, char kind, va_list *ap)
{
	switch (kind) {
	case 's':
		return http_escape(b, str_of(va_arg(*ap, const char *)), "");
	case 'q':
		return http_escape(b, str_of(va_arg(*ap, const char *)), "/:,");
	case 'P':
		return http_escape(b, str_of(va_arg(*ap, const char *)), "/");
	case 'd':
		return buf_addf(b, "%lld", (long long)va_arg(*ap, int));
	}
	return -EINVAL;
}

char *api_path(const char *fmt, ...)
{
	autobuf struct buf b;
	va_list ap;
	int r = 0;

	buf_init(&b, 16 * KIB);
	va_start(ap, fmt);
	for (; *fmt && r == 0; fmt++) {
		if (*fmt == '%' && fmt[1])
			r = path_arg(&b, *++fmt, &ap);
		else
			r = buf_addc(&b, *fmt);
	}
	va_end(ap);
	return r < 0 ? NULL : buf_steal(&b);
}

void cli_wait(struct cli *c, const bool *done)
{
	while (!*done)
		if (!uv_run(c->loop, UV_RUN_ONCE) && !*done)
			abort(); /* nothing is left that could ever set it: a fault of ours */
}

static void sleep_over(uv_timer_t *t)
{
	*(bool *)t->data = true;
}

static void sleep_closed(uv_handle_t *h)
{
	*(bool *)h->data = true;
}

void cli_sleep(struct cli *c, int ms)
{
	bool over = false, closed = false;
	uv_timer_t t;

	uv_timer_init(c->loop, &t);
	t.data = &over;
	uv_timer_start(&t, sleep_over, (uint64_t)ms, 0);
	cli_wait(c, &over);
	t.data = &closed;
	uv_close((uv_handle_t *)&t, sleep_closed);
	cli_wait(c, &closed);
}

unsigned api_headers(struct cli *c, struct http_header *h, unsigned n)
{
	static char bearer[512];

	h[n++] = (struct http_header){ STR("User-Agent"), STR("space/" SPACE_VERSION) };
	if (c->key) {
		snprintf(bearer, sizeof(bearer), "Bearer %s", c->key);
		h[n++] = (struct http_header){ STR("Authorization"), str_of(bearer) };
	}
	return n;
}

int api_error(int status, struct str body, struct fail *why)
{
	autojson json_t *j = json_read(body, NULL);
	const char *code = get_str(j, "code"), *remedy = get_str(j, "remedy");
	enum errcode e = err_by_name(code, strlen(code));

	if (e == ERR_NONE || !*get_str(j, "message")) {
		fail_here(why, -EIO, "the server answered %d %s%s%.150s", status, http_reason(status),
			*get_str(j, "message") ? ": " : "", get_str(j, "message"));
		if (status == 502 || status == 503 || status == 504)
			fail_remedy(why, "see whether a proxy stands between; space doctor checks the host");
		return -EIO;
	}
	fail_as(why, e, "%.200s", get_str(j, "message"));
	if (*remedy)
		fail_remedy(why, "%.190s", remedy);
	return why->err;
}

bool fail_is_connection(const struct fail *why)
{
	switch (-why->err) {
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ENOENT:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENETDOWN:
	case ENOTCONN:
		return true;
	}
	return false;
}

void api_explain(struct cli *c, struct fail *why)
{
	int err = -why->err;

	if (err == EACCES || err == EPERM) {
		fail_as(why, ERR_forbidden, "you may not open %.150s", c->where);
		fail_remedy(why, "sudo space …, or be in the group that socket_group in space.yaml names");
		return;
	}
	if (!fail_is_connection(why))
		return;
	if (err == EPIPE || err == ECONNRESET) {
		fail_as(why, ERR_daemon_down, "the connection to %.150s broke off", c->where);
	} else if (err == ETIMEDOUT) {
		fail_as(why, ERR_daemon_down, "no answer from %.150s", c->where);
	} else {
		fail_as(why, ERR_daemon_down, "no SPACE daemon answers at %.150s", c->where);
	}
	if (c->local)
		fail_remedy(why, "make up (in the source tree) starts it; systemctl start spaced where it is installed");
	else
		fail_remedy(why, "space context ls shows which host is meant; is spaced running there?");
}

struct waited {
	bool done, text;
	int status;
	json_t *out;
	struct fail why;
};

static void waited_done(int status, struct str body, const struct fail *why, void *arg)
{
	struct waited *w = arg;

	w->status = status;
	w->done = true;
	if (status == 0) {
		w->why = *why;
	} else if (status >= 300) {
		api_error(status, body, &w->why);
	} else if (w->text) {
		w->out = json_stringn_nocheck(body.p ? body.p : "", body.n);
	} else if (body.n) {
		w->out = json_read(body, &w->why);
		if (!w->out)
			fail_prefix(&w->why, "the server's answer");
	}
}

int api_call_opts(struct cli *c, const char *method, const char *target, json_t *body, const struct api_opts *o,
	json_t **out, struct fail *why)
{
	autofree char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	autobuf struct buf full;
	struct http_header h[8];
	struct http_call_opts call = { .method = method, .headers = h, .head_timeout_ms = -1 };
	struct waited w = { .text = o->text };
	struct fail unasked;
	int r;

	if (!why)
		why = &unasked;
	json_decref(body);
	buf_init(&full, 32 * KIB);
	r = cli_connect(c, why);
	if (r < 0)
		return r;
	if (!target || (body && !text) || buf_addf(&full, "%s%s", c->prefix, target) < 0 || buf_addc(&full, 0) < 0)
		return fail_here(why, -ENOMEM, "a name or path is too long");
	call.target = full.p;
	for (size_t i = 0; i < ARRAY_LEN(o->header) && o->header[i][0]; i++)
		h[call.nheaders++] = (struct http_header){ str_of(o->header[i][0]), str_of(o->header[i][1]) };
	call.nheaders = api_headers(c, h, call.nheaders);
	if (text)
		h[call.nheaders++] = (struct http_header){ STR("Content-Type"), STR("application/json") };
	call.body_len = text ? (int64_t)strlen(text) : 0;
	r = http_fetch(c->ep, &call, str_of(text), ANSWER_MAX, o->timeout_ms ? o->timeout_ms : 600 * 1000, waited_done, &w);
	if (r < 0)
		return fail_here(why, r, "%s", strerror(-r));
	cli_wait(c, &w.done);
	if (o->status)
		*o->status = w.status;
	if (w.why.err < 0) {
		*why = w.why;
		if (w.status == 0)
			api_explain(c, why);
		json_decref(w.out);
		return why->err;
	}
	if (out)
		*out = w.out;
	else
		json_decref(w.out);
	return 0;
}

int api_call(struct cli *c, const char *method, const char *target, json_t *body, json_t **out, struct fail *why)
{
	return api_call_opts(c, method, target, body, &(struct api_opts){ .timeout_ms = 0 }, out, why);
}

int api_call_shown(struct cli *c, const char *doing, const char *name, const char *method, const char *target, json_t *body, json_t **out,
	struct fail *why)
{
	struct progress_bar *bar;
	char what[96];
	int r;

	snprintf(what, sizeof(what), "%s %.63s", doing, name);
	bar = progress_start(c, what);
	r = api_call(c, method, target, body, out, why);
	progress_end(bar);
	return r;
}

int api_list(struct cli *c, const char *target, const char *noun, json_t **out, struct fail *why)
{
	autojson json_t *all = json_array();
	autofree char *cursor = NULL;

	for (unsigned page = 0; page < 1000; page++) {
		autojson json_t *part = NULL;
		autobuf struct buf at;
		const char *next;
		int r;

		buf_init(&at, 8 * KIB);
		buf_addf(&at, "%s%climit=1000", target, strchr(target, '?') ? '&' : '?');
		if (cursor) {
			buf_addz(&at, "&cursor=");
			http_escape(&at, str_of(cursor), "");
		}
		buf_addc(&at, 0);
		r = api_call(c, "GET", at.p, NULL, &part, why);
		if (r < 0)
			return r;
		json_array_extend(all, json_object_get(part, noun));
		next = json_string_value(json_object_get(part, "next_cursor"));
		if (!next)
			break;
		free(cursor);
		cursor = strdup(next);
	}
	*out = steal_ptr(all);
	return 0;
}
