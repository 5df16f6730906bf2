/* sse_reader.c - reading server-sent events as WHATWG HTML, 9.2.6 says; see client.h. */
#include "http/client.h"

struct sse_reader {
	struct buf line, id, event, data;
	size_t max;
	sse_event_fn *fn;
	void *arg;
	bool started;  /* past the place where a byte order mark may be */
	bool after_cr; /* a LF that comes now belongs to the line before */
	bool has_data;
};

struct sse_reader *sse_reader_new(size_t max, sse_event_fn *fn, void *arg)
{
	struct sse_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->max = max;
	r->fn = fn;
	r->arg = arg;
	buf_init(&r->line, max);
	buf_init(&r->id, max);
	buf_init(&r->event, max);
	buf_init(&r->data, max);
	return r;
}

void sse_reader_free(struct sse_reader *r)
{
	if (!r)
		return;
	buf_clear(&r->line);
	buf_clear(&r->id);
	buf_clear(&r->event);
	buf_clear(&r->data);
	free(r);
}

struct str sse_reader_last_id(const struct sse_reader *r)
{
	return buf_str(&r->id);
}

static int put(struct buf *b, struct str s)
{
	int r = buf_adds(b, s);

	return r == -ENOBUFS ? -EFBIG : r;
}

static void dispatch(struct sse_reader *r)
{
	if (r->has_data)
		r->fn(buf_str(&r->id), buf_str(&r->event), buf_str(&r->data), r->arg);
	r->has_data = false;
	r->event.n = r->data.n = 0;
}

static int field(struct sse_reader *r, struct str name, struct str value)
{
	if (str_eqz(name, "data")) {
		int e = r->has_data ? put(&r->data, STR("\n")) : 0;

		r->has_data = true;
		return e < 0 ? e : put(&r->data, value);
	}
	if (str_eqz(name, "event")) {
		r->event.n = 0;
		return put(&r->event, value);
	}
	if (str_eqz(name, "id") && !(value.n && memchr(value.p, 0, value.n))) {
		r->id.n = 0;
		return put(&r->id, value);
	}
	return 0; /* `retry` and what we do not know */
}

static int whole_line(struct sse_reader *r)
{
	struct str line = buf_str(&r->line), name, value;
	int e;

	if (!r->started && str_starts(line, "\xef\xbb\xbf")) {
		line.p += 3;
		line.n -= 3;
	}
	r->started = true;
	if (line.n == 0) {
		dispatch(r);
		r->line.n = 0;
		return 0;
	}
	if (line.p[0] == ':') {
		r->line.n = 0;
		return 0;
	}
	if (str_cut(line, ':', &name, &value) && value.n && value.p[0] == ' ') {
		value.p++;
		value.n--;
	}
	e = field(r, name, value);
	r->line.n = 0;
	return e;
}

int sse_reader_feed(struct sse_reader *r, const char *p, size_t n)
{
	while (n) {
		size_t len;
		int e;

		if (r->after_cr && *p == '\n') {
			r->after_cr = false;
			p++;
			n--;
			continue;
		}
		r->after_cr = false;
		for (len = 0; len < n && p[len] != '\n' && p[len] != '\r'; len++)
			;
		/* A line and the data before it are one event, and that has the maximum. */
		if (r->line.n + len + r->data.n > r->max)
			return -EFBIG;
		e = put(&r->line, (struct str){ p, len });
		if (e < 0)
			return e;
		if (len == n)
			return 0;
		r->after_cr = p[len] == '\r';
		p += len + 1;
		n -= len + 1;
		e = whole_line(r);
		if (e < 0)
			return e;
	}
	/* Nothing is kept while nothing is half read. */
	if (r->line.n == 0 && r->line.cap > 4096)
		buf_clear(&r->line);
	if (r->data.n == 0 && r->data.cap > 4096)
		buf_clear(&r->data);
	return 0;
}
