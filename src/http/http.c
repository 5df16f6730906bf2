/* http.c - reading the heads of requests and answers, see http.h.
 *
 * Lines are found by their LF, which must follow a CR; nothing inside a line may be a CR, LF, NUL
 * or other control byte. Each line is looked at once, and what frames or routes the message is
 * remembered in `struct framing` on the way. */
#include "http/http.h"

#include "base/str.h"

#define BAD(why, ...) fail_set(why, -EBADMSG, __VA_ARGS__)

/* RFC 9110, 5.6.2 */
static bool is_tchar(char c)
{
	if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
		return true;
	return c && strchr("!#$%&'*+-.^_`|~", c);
}

bool http_is_token(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!is_tchar(s.p[i]))
			return false;
	return s.n > 0;
}

bool http_is_value(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

/* 1: *line is the next line without its CRLF, and *left begins after it. 0: not whole yet. */
static int next_line(struct str *left, struct str *line, struct fail *why)
{
	const char *lf = left->n ? memchr(left->p, '\n', left->n) : NULL;
	size_t n;

	if (!lf)
		return 0;
	n = (size_t)(lf - left->p);
	if (n == 0 || lf[-1] != '\r')
		return BAD(why, "a line that ends in a bare LF");
	*line = (struct str){ left->p, n - 1 };
	if (line->n && memchr(line->p, '\r', line->n))
		return BAD(why, "a bare CR");
	left->p += n + 1;
	left->n -= n + 1;
	return 1;
}

static int read_version(struct http_head *h, struct str s, struct fail *why)
{
	if (s.n != 8 || !str_starts(s, "HTTP/") || s.p[5] < '0' || s.p[5] > '9' || s.p[6] != '.' ||
		s.p[7] < '0' || s.p[7] > '9')
		return BAD(why, "the version is malformed");
	if (s.p[5] != '1' || s.p[7] > '1')
		return fail_set(why, -EPROTO, "only HTTP/1.0 and HTTP/1.1 are spoken here");
	h->minor = s.p[7] - '0';
	return 0;
}

/* uri-host [":" port] as far as we take it: a name or an address in letters, digits and "-._~", or
 * [IPv6]. */
static bool is_authority(struct str s, bool need_port)
{
	struct str host = s, port = { NULL, 0 };
	uint64_t n;
	bool has_port;

	if (s.n && s.p[0] == '[') {
		const char *close = memchr(s.p, ']', s.n);

		if (!close || close == s.p + 1)
			return false;
		for (const char *p = s.p + 1; p < close; p++)
			if (!*p || !strchr("0123456789abcdefABCDEF:.", *p))
				return false;
		port = (struct str){ close + 1, s.n - (size_t)(close + 1 - s.p) };
		has_port = port.n > 0;
		if (has_port && port.p[0] != ':')
			return false;
		if (has_port)
			port = (struct str){ port.p + 1, port.n - 1 };
	} else {
		has_port = str_cut(s, ':', &host, &port);
		if (host.n == 0)
			return false;
		for (size_t i = 0; i < host.n; i++)
			if (!is_tchar(host.p[i]) || strchr("!#$%&'*+^`|", host.p[i]))
				return false;
	}
	if (!has_port)
		return !need_port;
	return str_u64(port, 65535, &n) == 0;
}

static void split_query(struct http_head *h, struct str s)
{
	if (!str_cut(s, '?', &h->path, &h->query))
		h->query = (struct str){ NULL, 0 };
}

static bool cut_scheme(struct str s, struct str *rest)
{
	static const char *const schemes[] = { "http://", "https://" };

	for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
		size_t n = strlen(schemes[i]);

		if (s.n > n && str_ieqz((struct str){ s.p, n }, schemes[i])) {
			*rest = (struct str){ s.p + n, s.n - n };
			return true;
		}
	}
	return false;
}

/* The target's authority, if it has one, goes to *authority: it has to agree with Host. */
static int read_target(struct http_head *h, struct str *authority, struct fail *why)
{
	struct str t = h->target, rest;
	size_t n;

	for (size_t i = 0; i < t.n; i++)
		if (t.p[i] <= 0x20 || t.p[i] >= 0x7f || t.p[i] == '#')
			return BAD(why, "the target has a byte that does not belong there");
	if (t.n == 0)
		return BAD(why, "no target");
	if (str_eqz(h->method, "CONNECT")) {
		if (!is_authority(t, true))
			return BAD(why, "the target of CONNECT is not HOST:PORT");
		*authority = t;
		return 0;
	}
	if (t.p[0] == '/') {
		split_query(h, t);
		return 0;
	}
	if (str_eqz(t, "*")) {
		if (!str_eqz(h->method, "OPTIONS"))
			return BAD(why, "the target * belongs to OPTIONS");
		h->path = t;
		return 0;
	}
	if (!cut_scheme(t, &rest))
		return BAD(why, "the target is neither a path nor a URL");
	for (n = 0; n < rest.n && rest.p[n] != '/' && rest.p[n] != '?'; n++)
		;
	*authority = (struct str){ rest.p, n };
	if (!is_authority(*authority, false))
		return BAD(why, "the target's host is malformed");
	split_query(h, (struct str){ rest.p + n, rest.n - n });
	if (h->path.n == 0)
		h->path = STR("/");
	return 0;
}

static int read_request_line(
	struct http_head *h, struct str line, struct str *authority, struct fail *why)
{
	struct str rest, version;
	int r;

	if (!str_cut(line, ' ', &h->method, &rest) || !str_cut(rest, ' ', &h->target, &version))
		return BAD(why, "the request line is malformed");
	if (!http_is_token(h->method) || h->method.n > 32)
		return BAD(why, "the method is malformed");
	/* The version before the target: another version's target is none of our business. */
	r = read_version(h, version, why);
	return r < 0 ? r : read_target(h, authority, why);
}

static int read_status_line(struct http_head *h, struct str line, struct fail *why)
{
	struct str version, rest, code, reason;
	uint64_t status;
	int r;

	if (!str_cut(line, ' ', &version, &rest))
		return BAD(why, "the status line is malformed");
	r = read_version(h, version, why);
	if (r < 0)
		return r;
	str_cut(rest, ' ', &code, &reason); /* old servers leave out the space with the reason */
	if (code.n != 3 || str_u64(code, 599, &status) < 0 || status < 100)
		return BAD(why, "the status is malformed");
	if (!http_is_value(reason))
		return BAD(why, "the reason has a control byte");
	h->status = (int)status;
	return 0;
}

/* What frames and routes, gathered while headers are read. */
struct framing {
	struct str host, length, coding;
	bool has_host, has_length, has_coding, has_upgrade;
	bool close, keep_alive, upgrade;
};

static int once(bool *seen, struct str *slot, struct str value, const char *name, struct fail *why)
{
	if (*seen)
		return BAD(why, "%s is there twice", name);
	*seen = true;
	*slot = value;
	return 0;
}

static bool list_next(struct str *list, struct str *item)
{
	while (list->n) {
		str_cut(*list, ',', item, list);
		*item = str_trim(*item);
		if (item->n)
			return true;
	}
	return false;
}

static int note_header(
	struct http_head *h, struct framing *f, struct str name, struct str value, struct fail *why)
{
	struct str item;

	/* By first letter: most headers are none of these. */
	switch (name.p[0] | 0x20) {
	case 'h':
		if (str_ieqz(name, "host"))
			return once(&f->has_host, &f->host, value, "Host", why);
		break;
	case 'c':
		if (str_ieqz(name, "content-length"))
			return once(&f->has_length, &f->length, value, "Content-Length", why);
		if (!str_ieqz(name, "connection"))
			break;
		while (list_next(&value, &item)) {
			if (!http_is_token(item))
				return BAD(why, "Connection is malformed");
			f->close |= str_ieqz(item, "close");
			f->keep_alive |= str_ieqz(item, "keep-alive");
			f->upgrade |= str_ieqz(item, "upgrade");
		}
		break;
	case 't':
		if (str_ieqz(name, "transfer-encoding"))
			return once(&f->has_coding, &f->coding, value, "Transfer-Encoding", why);
		break;
	case 'u':
		if (str_ieqz(name, "upgrade"))
			f->has_upgrade = value.n > 0;
		break;
	case 'e':
		if (str_ieqz(name, "expect") && str_ieqz(value, "100-continue"))
			h->expect_continue = true;
		break;
	}
	return 0;
}

static int read_header(struct http_head *h, struct framing *f, struct str line, struct fail *why)
{
	struct str name, value;

	if (line.p[0] == ' ' || line.p[0] == '\t')
		return BAD(why, "a folded header line");
	if (!str_cut(line, ':', &name, &value))
		return BAD(why, "a header line without a colon");
	if (!http_is_token(name))
		return BAD(why, "a header's name is malformed");
	value = str_trim(value);
	if (!http_is_value(value))
		return BAD(why, "a header's value has a control byte");
	if (h->nheaders == HTTP_HEADERS_MAX)
		return fail_set(why, -EFBIG, "more than %d headers", HTTP_HEADERS_MAX);
	h->headers[h->nheaders++] = (struct http_header){ name, value };
	return note_header(h, f, name, value, why);
}

/* Everything after the first line: 1 when the empty line was met. */
static int read_headers(struct http_head *h, struct framing *f, struct str *left, struct fail *why)
{
	struct str line = { NULL, 0 };

	for (;;) {
		int r = next_line(left, &line, why);

		if (r <= 0)
			return r;
		if (line.n == 0)
			return 1;
		r = read_header(h, f, line, why);
		if (r < 0)
			return r;
	}
}

/* Both sides: what Content-Length and Transfer-Encoding say. */
static int read_framing(struct http_head *h, const struct framing *f, struct fail *why)
{
	if (f->has_length && f->has_coding)
		return BAD(why, "both Content-Length and Transfer-Encoding");
	if (f->has_coding) {
		if (h->minor == 0)
			return BAD(why, "Transfer-Encoding in HTTP/1.0");
		if (!str_ieqz(f->coding, "chunked"))
			return fail_set(why, -ENOTSUP, "the transfer coding is not chunked");
		h->framing = HTTP_BODY_CHUNKED;
	} else if (f->has_length) {
		if (str_u64(f->length, INT64_MAX, &h->length) < 0)
			return BAD(why, "Content-Length is malformed");
		h->framing = h->length ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
	}
	h->keep_alive = h->minor == 1 ? !f->close : f->keep_alive && !f->close;
	return 0;
}

static ssize_t incomplete(struct str data, struct fail *why)
{
	if (data.n >= HTTP_HEAD_MAX)
		return fail_set(why, -EFBIG, "the head is over %d KiB", HTTP_HEAD_MAX / 1024);
	return 0;
}

static ssize_t finish(struct http_head *h, struct str data, struct str left, struct fail *why)
{
	h->size = data.n - left.n;
	if (h->size > HTTP_HEAD_MAX)
		return fail_set(why, -EFBIG, "the head is over %d KiB", HTTP_HEAD_MAX / 1024);
	return (ssize_t)h->size;
}

/* Not memset: most of a head is the table of headers, of which nothing past nheaders is read. */
static void head_reset(struct http_head *h)
{
	h->method = h->target = h->path = h->query = (struct str){ NULL, 0 };
	h->status = h->minor = 0;
	h->nheaders = 0;
	h->framing = HTTP_BODY_NONE;
	h->length = 0;
	h->keep_alive = h->upgrade = h->expect_continue = false;
	h->size = 0;
}

/* Letter case aside they have to be equal: "a:80" is not "a" here, since what is right depends on
 * the scheme. */
static bool same_authority(struct str a, struct str b)
{
	if (a.n != b.n)
		return false;
	for (size_t i = 0; i < a.n; i++) {
		char x = a.p[i], y = b.p[i];

		if (x >= 'A' && x <= 'Z')
			x = (char)(x + 32);
		if (y >= 'A' && y <= 'Z')
			y = (char)(y + 32);
		if (x != y)
			return false;
	}
	return true;
}

ssize_t http_request_parse(struct http_head *h, struct str data, struct fail *why)
{
	struct str left = data, line = { NULL, 0 }, authority = { NULL, 0 };
	struct framing f = { 0 };
	int r;

	head_reset(h);
	r = next_line(&left, &line, why);
	if (r == 0)
		return incomplete(data, why);
	if (r > 0)
		r = read_request_line(h, line, &authority, why);
	if (r < 0)
		return r;
	r = read_headers(h, &f, &left, why);
	if (r == 0)
		return incomplete(data, why);
	if (r > 0)
		r = read_framing(h, &f, why);
	if (r < 0)
		return r;
	if (!f.has_host && h->minor == 1)
		return BAD(why, "no Host");
	if (f.has_host && !is_authority(f.host, false))
		return BAD(why, "Host is malformed");
	if (f.has_host && authority.n && !same_authority(authority, f.host))
		return BAD(why, "Host and the target's host differ");
	if (str_eqz(h->method, "CONNECT") && h->framing != HTTP_BODY_NONE)
		return BAD(why, "CONNECT with a body");
	h->expect_continue &= h->minor == 1 && h->framing != HTTP_BODY_NONE;
	/* With a body, where the new protocol would begin is a matter of opinion. */
	h->upgrade = f.upgrade && f.has_upgrade && h->minor == 1 && h->framing == HTTP_BODY_NONE;
	return finish(h, data, left, why);
}

ssize_t http_response_parse(
	struct http_head *h, struct str data, struct str request_method, struct fail *why)
{
	struct str left = data, line = { NULL, 0 };
	struct framing f = { 0 };
	bool connected;
	int r;

	head_reset(h);
	r = next_line(&left, &line, why);
	if (r == 0)
		return incomplete(data, why);
	if (r > 0)
		r = read_status_line(h, line, why);
	if (r < 0)
		return r;
	r = read_headers(h, &f, &left, why);
	if (r == 0)
		return incomplete(data, why);
	if (r > 0)
		r = read_framing(h, &f, why);
	if (r < 0)
		return r;
	connected = str_eqz(request_method, "CONNECT") && h->status / 100 == 2;
	h->upgrade = h->status == 101 && f.upgrade && f.has_upgrade;
	if (h->status / 100 == 1 || h->status == 204 || h->status == 304 || connected ||
		str_eqz(request_method, "HEAD")) {
		/* Some peers send a last chunk all the same: not to be taken for the next answer. */
		if (h->framing == HTTP_BODY_CHUNKED)
			h->keep_alive = false;
		h->framing = HTTP_BODY_NONE;
	} else if (!f.has_length && !f.has_coding) {
		h->framing = HTTP_BODY_EOF;
		h->keep_alive = false;
	}
	return finish(h, data, left, why);
}

struct str http_get(const struct http_head *h, const char *name)
{
	for (unsigned i = 0; i < h->nheaders; i++)
		if (str_ieqz(h->headers[i].name, name))
			return h->headers[i].value;
	return (struct str){ NULL, 0 };
}

bool http_has_token(const struct http_head *h, const char *name, const char *token)
{
	for (unsigned i = 0; i < h->nheaders; i++) {
		struct str list = h->headers[i].value, item;

		if (!str_ieqz(h->headers[i].name, name))
			continue;
		while (list_next(&list, &item))
			if (str_ieqz(item, token))
				return true;
	}
	return false;
}

static void slice_move(struct str *s, const char *from, size_t size, const char *to)
{
	if (s->p >= from && s->p <= from + size) /* the path "/" of a bare URL lies elsewhere */
		s->p = to + (s->p - from);
}

void http_head_move(struct http_head *h, const char *from, const char *to)
{
	slice_move(&h->method, from, h->size, to);
	slice_move(&h->target, from, h->size, to);
	slice_move(&h->path, from, h->size, to);
	slice_move(&h->query, from, h->size, to);
	for (unsigned i = 0; i < h->nheaders; i++) {
		slice_move(&h->headers[i].name, from, h->size, to);
		slice_move(&h->headers[i].value, from, h->size, to);
	}
}
