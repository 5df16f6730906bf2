/* clock.c - see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t mono_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

int64_t mono_ms(void)
{
	return mono_ns() / NS_PER_MS;
}

int64_t real_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

void rfc3339_format(char out[RFC3339_LEN], int64_t unix_ns)
{
	int64_t ns = unix_ns % NS_PER_S;
	time_t s = (time_t)(unix_ns / NS_PER_S);
	struct tm tm;
	char date[RFC3339_LEN];

	if (ns < 0) {
		ns += NS_PER_S;
		s--;
	}
	gmtime_r(&s, &tm); /* an int64_t of nanoseconds ends in 2262: always four digits of year */
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, RFC3339_LEN, "%.19s.%03dZ", date, (int)(ns / NS_PER_MS));
}

/* Takes N digits off S. -1 if there are not as many. */
static int digits(struct str *s, size_t n)
{
	uint64_t v;

	if (s->n < n || str_u64((struct str){ s->p, n }, 99999, &v) < 0)
		return -1;
	s->p += n;
	s->n -= n;
	return (int)v;
}

static bool one_of(struct str *s, const char *set)
{
	if (s->n == 0 || !s->p[0] || !strchr(set, s->p[0]))
		return false;
	s->p++;
	s->n--;
	return true;
}

static int fraction(struct str *s, int64_t *ns)
{
	int64_t scale = NS_PER_S;

	*ns = 0;
	if (!one_of(s, "."))
		return 0;
	while (s->n && s->p[0] >= '0' && s->p[0] <= '9') {
		scale /= 10;
		if (scale == 0)
			return -EINVAL;
		*ns += (s->p[0] - '0') * scale;
		s->p++;
		s->n--;
	}
	return scale == NS_PER_S ? -EINVAL : 0;
}

static int zone(struct str *s, int64_t *offset_s)
{
	int sign, h, m;

	*offset_s = 0;
	if (one_of(s, "Zz"))
		return 0;
	if (s->n == 0)
		return -EINVAL;
	sign = s->p[0] == '-' ? -1 : 1;
	if (!one_of(s, "+-"))
		return -EINVAL;
	h = digits(s, 2);
	if (!one_of(s, ":"))
		return -EINVAL;
	m = digits(s, 2);
	if (h < 0 || h > 23 || m < 0 || m > 59)
		return -EINVAL;
	*offset_s = sign * (h * 3600 + m * 60);
	return 0;
}

static bool day_exists(int y, int m, int d)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;

	return m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1] + (m == 2 && leap);
}

int rfc3339_parse(struct str s, int64_t *unix_ns)
{
	int64_t ns, offset;
	struct tm tm = { 0 };
	int y, mo, d, h, mi, sec;

	y = digits(&s, 4);
	if (!one_of(&s, "-"))
		return -EINVAL;
	mo = digits(&s, 2);
	if (!one_of(&s, "-"))
		return -EINVAL;
	d = digits(&s, 2);
	if (!one_of(&s, "Tt "))
		return -EINVAL;
	h = digits(&s, 2);
	if (!one_of(&s, ":"))
		return -EINVAL;
	mi = digits(&s, 2);
	if (!one_of(&s, ":"))
		return -EINVAL;
	sec = digits(&s, 2);
	/* 60 is a leap second; it becomes the first of the next minute. Years that int64_t
	 * nanoseconds can't hold are out. */
	if (y < 1678 || y > 2261 || !day_exists(y, mo, d) || h < 0 || h > 23 || mi < 0 || mi > 59 ||
		sec < 0 || sec > 60)
		return -EINVAL;
	if (fraction(&s, &ns) < 0 || zone(&s, &offset) < 0 || s.n)
		return -EINVAL;
	tm.tm_year = y - 1900;
	tm.tm_mon = mo - 1;
	tm.tm_mday = d;
	tm.tm_hour = h;
	tm.tm_min = mi;
	tm.tm_sec = sec;
	*unix_ns = ((int64_t)timegm(&tm) - offset) * NS_PER_S + ns;
	return 0;
}
