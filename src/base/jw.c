/* jw.c - the JSON writer of json.h. In a file of its own, since a program that only writes JSON
 * needs no parser. */
#include <math.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"

void jw_init(struct jw *w, struct buf *b)
{
	*w = (struct jw){ .b = b };
}

static void put(struct jw *w, const char *p, size_t n)
{
	if (!w->err)
		w->err = buf_add(w->b, p, n);
}

static void put_string(struct jw *w, struct str s)
{
	static const char hex[] = "0123456789abcdef";
	size_t run = 0; /* bytes at s.p that go out as they are */

	put(w, "\"", 1);
	while (run < s.n) {
		unsigned char c = (unsigned char)s.p[run];
		size_t len = c < 0x80 ? 1 : str_utf8_len((struct str){ s.p + run, s.n - run });
		char esc[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
		const char *as = esc;
		size_t n = sizeof(esc);

		if (len && c >= 0x20 && c != '"' && c != '\\') {
			run += len;
			continue;
		}
		if (len == 0) {
			as = "\xef\xbf\xbd";
			n = 3;
		} else if (c == '"' || c == '\\') {
			esc[1] = (char)c;
			n = 2;
		} else if (c == '\n' || c == '\t' || c == '\r') {
			esc[1] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
			n = 2;
		}
		put(w, s.p, run);
		put(w, as, n);
		s.p += run + 1;
		s.n -= run + 1;
		run = 0;
	}
	put(w, s.p, run);
	put(w, "\"", 1);
}

/* What comes before each value: a comma if one came before, and its key. */
static void before(struct jw *w, const char *key)
{
	if (w->comma)
		put(w, ",", 1);
	w->comma = true;
	if (key) {
		put_string(w, str_of(key));
		put(w, ":", 1);
	}
}

void jw_obj(struct jw *w, const char *key)
{
	before(w, key);
	put(w, "{", 1);
	w->comma = false;
}

void jw_obj_end(struct jw *w)
{
	put(w, "}", 1);
	w->comma = true;
}

void jw_arr(struct jw *w, const char *key)
{
	before(w, key);
	put(w, "[", 1);
	w->comma = false;
}

void jw_arr_end(struct jw *w)
{
	put(w, "]", 1);
	w->comma = true;
}

void jw_null(struct jw *w, const char *key)
{
	before(w, key);
	put(w, "null", 4);
}

void jw_strn(struct jw *w, const char *key, struct str s)
{
	before(w, key);
	put_string(w, s);
}

void jw_str(struct jw *w, const char *key, const char *z)
{
	if (z)
		jw_strn(w, key, str_of(z));
	else
		jw_null(w, key);
}

void jw_int(struct jw *w, const char *key, int64_t v)
{
	before(w, key);
	if (!w->err)
		w->err = buf_addf(w->b, "%lld", (long long)v);
}

void jw_num(struct jw *w, const char *key, double v)
{
	if (!isfinite(v)) {
		jw_null(w, key);
		return;
	}
	before(w, key);
	if (!w->err)
		w->err = buf_addf(w->b, "%.3f", v);
}

void jw_bool(struct jw *w, const char *key, bool v)
{
	before(w, key);
	put(w, v ? "true" : "false", v ? 4 : 5);
}

void jw_time(struct jw *w, const char *key, int64_t unix_ns)
{
	char text[RFC3339_LEN];

	if (unix_ns == 0) {
		jw_null(w, key);
		return;
	}
	rfc3339_format(text, unix_ns);
	jw_str(w, key, text);
}

void jw_base64(struct jw *w, const char *key, const void *p, size_t n)
{
	size_t len = base64_len(n);

	before(w, key);
	put(w, "\"", 1);
	if (!w->err)
		w->err = buf_reserve(w->b, len + 1); /* base64_encode() ends with a NUL */
	if (!w->err) {
		base64_encode(w->b->p + w->b->n, p, n);
		w->b->n += len;
	}
	put(w, "\"", 1);
}

void jw_fail(struct jw *w, const struct fail *f, const char *request_id)
{
	const struct errinfo *info = err_info(f->code);

	jw_str(w, "code", info->name);
	jw_str(w, "message", f->msg[0] ? f->msg : info->cause);
	jw_str(w, "remedy", f->remedy[0] ? f->remedy : info->remedy);
	if (request_id)
		jw_str(w, "request_id", request_id);
}
