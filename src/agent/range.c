#include "agent/range.h"

#include <stdio.h>
#include <time.h>

enum range_kind range_parse(struct str value, uint64_t size, uint64_t *from, uint64_t *len)
{
	struct str a, b = { 0 };
	uint64_t lo, hi = 0;

	if (!str_starts(value, "bytes="))
		return RANGE_WHOLE;
	value = (struct str){ value.p + 6, value.n - 6 };
	if (memchr(value.p, ',', value.n) || !str_cut(value, '-', &a, &b))
		return RANGE_WHOLE;
	a = str_trim(a);
	b = str_trim(b);
	if (a.n == 0) { /* the last so many */
		if (str_u64(b, UINT64_MAX, &hi) < 0)
			return RANGE_WHOLE;
		if (hi == 0 || size == 0)
			return RANGE_UNSATISFIABLE;
		*len = MIN(hi, size);
		*from = size - *len;
		return RANGE_PART;
	}
	if (str_u64(a, UINT64_MAX, &lo) < 0 ||
		(b.n > 0 && (str_u64(b, UINT64_MAX, &hi) < 0 || hi < lo)))
		return RANGE_WHOLE;
	if (lo >= size)
		return RANGE_UNSATISFIABLE;
	*from = lo;
	*len = (b.n > 0 && hi < size - 1 ? hi + 1 : size) - lo;
	return RANGE_PART;
}

static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep",
	"Oct", "Nov", "Dec" };

void http_date_format(char out[HTTP_DATE_LEN], int64_t unix_s)
{
	time_t t = (time_t)unix_s;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 8099) {
		t = 0;
		gmtime_r(&t, &tm);
	}
	snprintf(out, HTTP_DATE_LEN, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7],
		tm.tm_mday % 100, months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000,
		tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
}

int http_date_parse(struct str s, int64_t *unix_s)
{
	char text[40], month[4] = "", end[4] = "";
	struct tm tm = { 0 };
	unsigned m;

	if (s.n != 29 || str_copy(text, sizeof(text), s) < 0)
		return -EINVAL;
	if (sscanf(text + 4, " %2d %3s %4d %2d:%2d:%2d %3s", &tm.tm_mday, month, &tm.tm_year,
		    &tm.tm_hour, &tm.tm_min, &tm.tm_sec, end) != 7 ||
		strcmp(end, "GMT") != 0)
		return -EINVAL;
	for (m = 0; m < 12; m++)
		if (strcmp(month, months[m]) == 0)
			break;
	if (m == 12)
		return -EINVAL;
	tm.tm_mon = (int)m;
	tm.tm_year -= 1900;
	*unix_s = timegm(&tm);
	return 0;
}

bool coding_refused(struct str accept, const char *coding)
{
	bool star_refused = false, seen = false, refused = false;

	while (accept.n > 0) {
		struct str one, rest = { accept.p, 0 }, name, q = { 0 };
		bool zero;

		str_cut(accept, ',', &one, &rest);
		accept = rest;
		str_cut(one, ';', &name, &q);
		name = str_trim(name);
		q = str_trim(q);
		zero = str_starts(q, "q=0");
		for (size_t i = 3; zero && i < q.n; i++)
			zero = q.p[i] == '.' || q.p[i] == '0';
		if (str_ieqz(name, coding)) {
			seen = true;
			refused = zero;
		} else if (str_eqz(name, "*")) {
			star_refused = zero;
		}
	}
	return seen ? refused : star_refused;
}

const char *media_type(const char *name, struct str head)
{
	static const struct {
		const char *end, *type;
	} types[] = {
		{ ".txt", "text/plain; charset=utf-8" },
		{ ".html", "text/html; charset=utf-8" },
		{ ".htm", "text/html; charset=utf-8" },
		{ ".css", "text/css; charset=utf-8" },
		{ ".js", "text/javascript; charset=utf-8" },
		{ ".mjs", "text/javascript; charset=utf-8" },
		{ ".json", "application/json" },
		{ ".xml", "text/xml; charset=utf-8" },
		{ ".csv", "text/csv; charset=utf-8" },
		{ ".md", "text/markdown; charset=utf-8" },
		{ ".svg", "image/svg+xml" },
		{ ".png", "image/png" },
		{ ".jpg", "image/jpeg" },
		{ ".jpeg", "image/jpeg" },
		{ ".gif", "image/gif" },
		{ ".webp", "image/webp" },
		{ ".ico", "image/x-icon" },
		{ ".pdf", "application/pdf" },
		{ ".wasm", "application/wasm" },
		{ ".zip", "application/zip" },
		{ ".gz", "application/gzip" },
		{ ".tar", "application/x-tar" },
		{ ".mp3", "audio/mpeg" },
		{ ".mp4", "video/mp4" },
		{ ".webm", "video/webm" },
	};
	struct str n = str_of(name);

	for (unsigned i = 0; i < ARRAY_LEN(types); i++) {
		size_t len = strlen(types[i].end);

		if (n.n > len && str_ieqz((struct str){ n.p + n.n - len, len }, types[i].end))
			return types[i].type;
	}
	if (head.n >= 8 && memcmp(head.p, "\x89PNG\r\n\x1a\n", 8) == 0)
		return "image/png";
	for (size_t i = 0; i < head.n; i++) {
		unsigned char c = (unsigned char)head.p[i];

		if (c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != 0x1b)
			return "application/octet-stream";
	}
	return "text/plain; charset=utf-8";
}
