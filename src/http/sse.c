/* sse.c - sending server-sent events; see server.h. Reading them is in sse_reader.c. */
#include "http/exchange.h"

void sse_start(struct http_exchange *x)
{
	http_add_header(x, "Cache-Control", "no-store");
	http_add_header(x, "X-Accel-Buffering", "no");
	http_head_forget(x);
	http_start(x, 200, "text/event-stream", -1);
	x->sse = !x->no_body;
	hcore_due(x->c.core, hcore_now(x->c.core) + SSE_SILENCE_MS);
}

static int add_line(struct buf *b, const char *field, const char *value)
{
	if (!value)
		return 0;
	if (strpbrk(value, "\r\n"))
		return -EINVAL;
	return buf_addf(b, "%s: %s\n", field, value);
}

int sse_send(struct http_exchange *x, const char *id, const char *event, struct str data)
{
	autobuf struct buf b = { 0 };
	int r;

	if (data.n && (memchr(data.p, '\n', data.n) || memchr(data.p, '\r', data.n)))
		return -EINVAL;
	buf_init(&b, data.n + 4 * KIB);
	r = buf_reserve(&b, data.n + 64 + (id ? strlen(id) : 0) + (event ? strlen(event) : 0));
	if (r == 0)
		r = add_line(&b, "id", id);
	if (r == 0)
		r = add_line(&b, "event", event);
	if (r == 0)
		r = buf_addz(&b, "data: ");
	if (r == 0)
		r = buf_adds(&b, data);
	if (r == 0)
		r = buf_addz(&b, "\n\n");
	return r < 0 ? r : http_write(x, b.p, b.n);
}
