#include "agent/multipart.h"

#include <stdio.h>

#include "base/random.h"

enum { PREAMBLE, AFTER_DELIM, CLOSING, HEAD, BODY, EPILOGUE, BROKEN };

/* One parameter at *S: "; key=value" or "; key="value"". false at the end or for rubbish. VALUE is
 * still escaped. */
static bool param_next(struct str *s, struct str *key, struct str *value, bool *quoted)
{
	size_t i = 0, at;

	if (s->n == 0) /* an absent header is an empty slice of nothing */
		return false;
	while (i < s->n && (s->p[i] == ' ' || s->p[i] == '\t' || s->p[i] == ';'))
		i++;
	at = i;
	while (i < s->n && s->p[i] != '=' && s->p[i] != ';')
		i++;
	*key = str_trim((struct str){ s->p + at, i - at });
	*value = (struct str){ s->p + i, 0 };
	*quoted = false;
	if (i < s->n && s->p[i] == '=') {
		i++;
		while (i < s->n && (s->p[i] == ' ' || s->p[i] == '\t'))
			i++;
		if (i < s->n && s->p[i] == '"') {
			at = ++i;
			while (i < s->n && s->p[i] != '"')
				i += s->p[i] == '\\' && i + 1 < s->n ? 2 : 1;
			if (i >= s->n)
				return false; /* no closing quote */
			*value = (struct str){ s->p + at, i - at };
			*quoted = true;
			i++;
		} else {
			at = i;
			while (i < s->n && s->p[i] != ';')
				i++;
			*value = str_trim((struct str){ s->p + at, i - at });
		}
	}
	*s = (struct str){ s->p + i, s->n - i };
	return key->n > 0;
}

ssize_t header_param(struct str value, const char *key, char *out, size_t size)
{
	struct str first, rest = { value.p, 0 }, k, v;
	bool quoted;
	size_t n = 0;

	str_cut(value, ';', &first, &rest);
	while (param_next(&rest, &k, &v, &quoted)) {
		if (!str_ieqz(k, key))
			continue;
		for (size_t i = 0; i < v.n; i++) {
			/* Only these two are escaped by clients; a lone backslash belongs to the
			 * name. */
			if (quoted && v.p[i] == '\\' && i + 1 < v.n &&
				(v.p[i + 1] == '"' || v.p[i + 1] == '\\'))
				i++;
			if (n + 1 >= size)
				return -ENOBUFS;
			out[n++] = v.p[i];
		}
		out[n] = '\0';
		return (ssize_t)n;
	}
	return -ENOENT;
}

int multipart_boundary(struct str ctype, char out[MULTIPART_BOUNDARY_MAX + 1])
{
	ssize_t n = header_param(ctype, "boundary", out, MULTIPART_BOUNDARY_MAX + 1);

	if (n <= 0)
		return -EINVAL;
	for (ssize_t i = 0; i < n; i++)
		if (out[i] < 0x20 || out[i] > 0x7e)
			return -EINVAL;
	return 0;
}

int multipart_init(
	struct multipart *m, const char *boundary, const struct multipart_cb *cb, void *arg)
{
	int n;

	*m = (struct multipart){ .cb = cb, .arg = arg, .state = PREAMBLE };
	buf_init(&m->head, MULTIPART_HEAD_MAX);
	n = snprintf(m->delim, sizeof(m->delim), "\r\n--%s", boundary);
	if (n <= 4 || (size_t)n >= sizeof(m->delim))
		return -EINVAL;
	m->ndelim = (size_t)n;
	m->matched = 2; /* the first delimiter may stand at the very beginning */
	return 0;
}

void multipart_clear(struct multipart *m)
{
	buf_clear(&m->head);
}

/* WHATWG forms write a quote in a name as %22, and nothing else that a file name can hold. */
static size_t unquote(char *p, size_t n)
{
	size_t w = 0;

	for (size_t r = 0; r < n; r++) {
		if (n - r >= 3 && memcmp(p + r, "%22", 3) == 0) {
			p[w++] = '"';
			r += 2;
		} else {
			p[w++] = p[r];
		}
	}
	return w;
}

/* RFC 5987: UTF-8''per%20cent. The length, or -EINVAL. */
static ssize_t unextend(char *p, size_t n)
{
	char *q = memchr(p, '\'', n);
	size_t w = 0, r;

	if (!q || (q - p) != 5 || !str_ieqz((struct str){ p, 5 }, "utf-8"))
		return -EINVAL;
	q = memchr(q + 1, '\'', n - (size_t)(q + 1 - p));
	if (!q)
		return -EINVAL;
	for (r = (size_t)(q + 1 - p); r < n; r++) {
		if (p[r] == '%') {
			int hi = n - r > 2 ? hex_digit(p[r + 1]) : -1,
			    lo = n - r > 2 ? hex_digit(p[r + 2]) : -1;

			if (hi < 0 || lo < 0)
				return -EINVAL;
			p[w++] = (char)(hi << 4 | lo);
			r += 2;
		} else {
			p[w++] = p[r];
		}
	}
	return (ssize_t)w;
}

static int part_begin(struct multipart *m)
{
	struct str rest = buf_str(&m->head), line, name, value, disp = { 0 };
	char field[256], file[MULTIPART_HEAD_MAX];
	struct multipart_part part = { 0 };
	ssize_t n;

	while (rest.n > 0) {
		str_cut(rest, '\n', &line, &rest);
		if (line.n > 0 && line.p[line.n - 1] == '\r')
			line.n--;
		if (line.n > 0 && str_cut(line, ':', &name, &value) &&
			str_ieqz(str_trim(name), "content-disposition"))
			disp = str_trim(value);
	}
	n = header_param(disp, "name", field, sizeof(field));
	if (n >= 0)
		part.name = (struct str){ field, (size_t)n };
	n = header_param(disp, "filename*", file, sizeof(file));
	if (n >= 0)
		n = unextend(file, (size_t)n);
	if (n < 0) {
		n = header_param(disp, "filename", file, sizeof(file));
		if (n >= 0)
			n = (ssize_t)unquote(file, (size_t)n);
	}
	if (n >= 0)
		part.filename = (struct str){ file, (size_t)n };
	buf_clear(&m->head);
	return m->cb->begin(&part, m->arg);
}

static int emit(struct multipart *m, const char *p, size_t n)
{
	if (m->state != BODY || n == 0)
		return 0;
	return m->cb->data((struct str){ p, n }, m->arg);
}

/* Body or preamble: passes on what is not a delimiter. A CR occurs in the delimiter only at its
 * beginning, so that after a mismatch nothing of what was matched can begin another one. */
static int feed_body(struct multipart *m, struct str *in)
{
	int r;

	while (in->n > 0) {
		if (m->matched == 0) {
			const char *cr = memchr(in->p, '\r', in->n);
			size_t n = cr ? (size_t)(cr - in->p) : in->n;

			r = emit(m, in->p, n);
			if (r < 0)
				return r;
			*in = (struct str){ in->p + n, in->n - n };
			if (in->n == 0)
				return 0;
		}
		if (in->p[0] != m->delim[m->matched]) {
			/* In the preamble the CRLF before the first delimiter is only assumed, and
			 * nothing is passed on. */
			size_t held = m->matched;

			m->matched = 0;
			r = emit(m, m->delim, held);
			if (r < 0)
				return r;
			if (in->p[0] != '\r') {
				r = emit(m, in->p, 1);
				if (r < 0)
					return r;
				*in = (struct str){ in->p + 1, in->n - 1 };
			}
			continue;
		}
		*in = (struct str){ in->p + 1, in->n - 1 };
		if (++m->matched < m->ndelim)
			continue;
		m->matched = 0;
		r = m->state == BODY ? m->cb->end(m->arg) : 0;
		m->state = AFTER_DELIM;
		m->crlf = false;
		return r;
	}
	return 0;
}

/* The rest of a delimiter's line: "--" closes, white space is skipped, CRLF begins the head. */
static int feed_after(struct multipart *m, struct str *in)
{
	char c = in->p[0];

	*in = (struct str){ in->p + 1, in->n - 1 };
	if (m->state == CLOSING) {
		if (c != '-')
			return -EBADMSG;
		m->state = EPILOGUE;
	} else if (m->crlf) {
		if (c != '\n')
			return -EBADMSG;
		m->state = HEAD;
	} else if (c == '\r') {
		m->crlf = true;
	} else if (c == '-') {
		m->state = CLOSING;
	} else if (c != ' ' && c != '\t') {
		return -EBADMSG;
	}
	return 0;
}

static bool head_whole(const struct buf *b)
{
	return (b->n == 2 && memcmp(b->p, "\r\n", 2) == 0) ||
	       (b->n >= 4 && memcmp(b->p + b->n - 4, "\r\n\r\n", 4) == 0);
}

static int feed_head(struct multipart *m, struct str *in)
{
	while (in->n > 0) {
		const char *nl = memchr(in->p, '\n', in->n);
		size_t n = nl ? (size_t)(nl - in->p) + 1 : in->n;
		int r = buf_add(&m->head, in->p, n);

		if (r < 0)
			return r;
		*in = (struct str){ in->p + n, in->n - n };
		if (nl && head_whole(&m->head)) {
			m->state = BODY;
			return part_begin(m);
		}
	}
	return 0;
}

int multipart_feed(struct multipart *m, struct str in)
{
	int r = 0;

	while (in.n > 0 && r == 0) {
		switch (m->state) {
		case PREAMBLE:
		case BODY:
			r = feed_body(m, &in);
			break;
		case AFTER_DELIM:
		case CLOSING:
			r = feed_after(m, &in);
			break;
		case HEAD:
			r = feed_head(m, &in);
			break;
		case EPILOGUE:
			return 0;
		default:
			return -EBADMSG;
		}
	}
	if (r < 0)
		m->state = BROKEN;
	return r;
}

int multipart_finish(struct multipart *m)
{
	return m->state == EPILOGUE ? 0 : -EBADMSG;
}
