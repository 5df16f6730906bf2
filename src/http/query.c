/* query.c - percent-encoding, query strings and reason phrases, see http.h. */
#include "http/http.h"

#include "base/random.h"

ssize_t http_unescape(char *dst, size_t size, struct str s, bool plus)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (c == '%') {
			int hi = i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1,
			    lo = i + 2 < s.n ? hex_digit(s.p[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return -EINVAL;
			c = (char)(hi << 4 | lo);
			i += 2;
		} else if (c == '+' && plus) {
			c = ' ';
		}
		if (c == '\0')
			return -EINVAL;
		if (n + 1 >= size)
			return -ENAMETOOLONG;
		dst[n++] = c;
	}
	if (size == 0)
		return -ENAMETOOLONG;
	dst[n] = '\0';
	return (ssize_t)n;
}

int http_escape(struct buf *b, struct str s, const char *also_safe)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t before = b->n;
	int r = 0;

	for (size_t i = 0; i < s.n && r == 0; i++) {
		unsigned char c = (unsigned char)s.p[i];
		bool safe = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
			    (c >= 'a' && c <= 'z') ||
			    (c && (strchr("-._~", c) || (also_safe && strchr(also_safe, c))));
		char esc[3] = { '%', digits[c >> 4], digits[c & 15] };

		r = safe ? buf_addc(b, (char)c) : buf_add(b, esc, 3);
	}
	if (r < 0)
		b->n = before;
	return r;
}

int http_query_next(struct str *query, struct str *key, struct str *value)
{
	while (query->n) {
		struct str pair;

		str_cut(*query, '&', &pair, query);
		if (pair.n == 0)
			continue;
		str_cut(pair, '=', key, value);
		return 1;
	}
	return 0;
}

int http_query(struct str query, const char *key, char **out)
{
	struct str k, v;

	*out = NULL;
	while (http_query_next(&query, &k, &v)) {
		autofree char *name = malloc(k.n + 1), *value = NULL;
		ssize_t n;

		if (!name)
			return -ENOMEM;
		n = http_unescape(name, k.n + 1, k, true);
		if (n < 0)
			return -EINVAL;
		if (strcmp(name, key) != 0)
			continue;
		value = malloc(v.n + 1);
		if (!value)
			return -ENOMEM;
		if (http_unescape(value, v.n + 1, v, true) < 0)
			return -EINVAL;
		*out = steal_ptr(value);
		return 0;
	}
	return 0;
}

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} rows[] = {
		{ 100, "Continue" },
		{ 101, "Switching Protocols" },
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 207, "Multi-Status" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 303, "See Other" },
		{ 304, "Not Modified" },
		{ 307, "Temporary Redirect" },
		{ 308, "Permanent Redirect" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 402, "Payment Required" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 410, "Gone" },
		{ 411, "Length Required" },
		{ 412, "Precondition Failed" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 421, "Misdirected Request" },
		{ 422, "Unprocessable Content" },
		{ 426, "Upgrade Required" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
		{ 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			return rows[i].reason;
	return "Status";
}
