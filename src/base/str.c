/* str.c - see str.h. */
#include "base/str.h"

struct str str_of(const char *z)
{
	return z ? (struct str){ z, strlen(z) } : (struct str){ NULL, 0 };
}

bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_eqz(struct str a, const char *z)
{
	return str_eq(a, str_of(z));
}

static unsigned char lower(char c)
{
	return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

bool str_ieqz(struct str a, const char *z)
{
	if (strlen(z) != a.n)
		return false;
	for (size_t i = 0; i < a.n; i++)
		if (lower(a.p[i]) != lower(z[i]))
			return false;
	return true;
}

bool str_starts(struct str s, const char *prefix)
{
	size_t n = strlen(prefix);

	return n == 0 || (s.n >= n && memcmp(s.p, prefix, n) == 0);
}

bool str_ends(struct str s, const char *suffix)
{
	size_t n = strlen(suffix);

	return n == 0 || (s.n >= n && memcmp(s.p + s.n - n, suffix, n) == 0);
}

bool path_is_system(struct str path)
{
	static const char *const whole[] = { "proc", "sys", "dev" }, *const alone[] = { "run", "etc" };
	struct str first = { 0 }, one;
	unsigned depth = 0;

	while (path.n) {
		str_cut(path, '/', &one, &path);
		if (!one.n || str_eqz(one, "."))
			continue;
		if (str_eqz(one, ".."))
			return true;
		if (depth++ == 0)
			first = one;
	}
	for (unsigned i = 0; i < ARRAY_LEN(whole); i++)
		if (depth && str_eqz(first, whole[i]))
			return true;
	for (unsigned i = 0; i < ARRAY_LEN(alone); i++)
		if (depth == 1 && str_eqz(first, alone[i]))
			return true;
	return depth == 0;
}

struct str str_trim(struct str s)
{
	while (s.n && (s.p[0] == ' ' || s.p[0] == '\t')) {
		s.p++;
		s.n--;
	}
	while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
		s.n--;
	return s;
}

bool str_cut(struct str s, char c, struct str *head, struct str *tail)
{
	const char *at = s.n ? memchr(s.p, c, s.n) : NULL;
	size_t n;

	if (!at) {
		*head = s;
		*tail = (struct str){ s.p ? s.p + s.n : NULL, 0 };
		return false;
	}
	n = (size_t)(at - s.p);
	*head = (struct str){ s.p, n };
	*tail = (struct str){ at + 1, s.n - n - 1 };
	return true;
}

int str_u64(struct str s, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	if (s.n == 0)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++) {
		unsigned digit = (unsigned char)s.p[i] - (unsigned)'0';

		if (digit > 9 || v > max / 10 || (v == max / 10 && digit > max % 10))
			return -EINVAL;
		v = v * 10 + digit;
	}
	*out = v;
	return 0;
}

/* The number before UNIT_AT, "12" or "12.345", times SCALE, rounded down, at most MAX. */
static int scaled(
	struct str s, const struct str *unit_at, uint64_t scale, uint64_t max, uint64_t *out)
{
	struct str number = { s.p, (size_t)(unit_at->p - s.p) }, whole, part;
	bool has_part = str_cut(number, '.', &whole, &part);
	uint64_t v, frac = 0, div = 1;

	if (str_u64(whole, max / scale, &v) < 0)
		return -EINVAL;
	v *= scale;
	if (has_part && (part.n == 0 || part.n > 6 || str_u64(part, 999999, &frac) < 0))
		return -EINVAL;
	for (size_t i = 0; has_part && i < part.n; i++)
		div *= 10;
	/* scale is at most 2^40 and frac under 2^20: no overflow. */
	frac = frac * scale / div;
	if (frac > max - v)
		return -EINVAL;
	*out = v + frac;
	return 0;
}

static struct str unit_of(struct str s)
{
	while (s.n && ((s.p[0] >= '0' && s.p[0] <= '9') || s.p[0] == '.')) {
		s.p++;
		s.n--;
	}
	return s;
}

int str_duration_ms(struct str s, int64_t *ms)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {
		{ "", 1000 },
		{ "ms", 1 },
		{ "s", 1000 },
		{ "m", 60 * 1000 },
		{ "h", 3600 * 1000 },
		{ "d", 86400 * 1000 },
	};
	struct str unit = unit_of(s);
	uint64_t v;

	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (!str_eqz(unit, units[i].unit))
			continue;
		if (scaled(s, &unit, units[i].ms, INT64_MAX, &v) < 0)
			return -EINVAL;
		*ms = (int64_t)v;
		return 0;
	}
	return -EINVAL;
}

int str_size(struct str s, uint64_t *bytes)
{
	static const char letters[] = "kmgt";
	struct str unit = unit_of(s), end = unit;
	uint64_t scale = 1;

	if (unit.n && lower(unit.p[0]) != 'b') {
		const char *at = strchr(letters, lower(unit.p[0]));

		if (!at || !*at)
			return -EINVAL;
		scale = 1ULL << (10 * (at - letters + 1));
		end.p++;
		end.n--;
		if (end.n && lower(end.p[0]) == 'i') {
			if (end.n != 2)
				return -EINVAL;
			end.p++;
			end.n--;
		}
	}
	if (end.n && !str_ieqz(end, "b"))
		return -EINVAL;
	return scaled(s, &unit, scale, UINT64_MAX, bytes);
}

char *str_dup(struct str s)
{
	char *z = malloc(s.n + 1);

	if (!z)
		return NULL;
	if (s.n)
		memcpy(z, s.p, s.n);
	z[s.n] = '\0';
	return z;
}

int str_copy(char *dst, size_t size, struct str s)
{
	if (s.n >= size)
		return -ENAMETOOLONG;
	if (s.n && memchr(s.p, 0, s.n))
		return -EINVAL;
	if (s.n)
		memcpy(dst, s.p, s.n);
	dst[s.n] = '\0';
	return 0;
}

bool str_has_ctl(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
			return true;
	return false;
}

size_t str_utf8_len(struct str s)
{
	const unsigned char *p = (const unsigned char *)s.p;
	unsigned lo = 0x80, hi = 0xbf;
	size_t n;

	if (s.n == 0)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (s.n < n)
		return 0;
	/* The second byte is where overlong forms, surrogates and what lies past U+10FFFF show. */
	if (p[0] == 0xe0)
		lo = 0xa0;
	else if (p[0] == 0xed)
		hi = 0x9f;
	else if (p[0] == 0xf0)
		lo = 0x90;
	else if (p[0] == 0xf4)
		hi = 0x8f;
	if (p[1] < lo || p[1] > hi)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	return n;
}

bool str_is_utf8(struct str s)
{
	while (s.n) {
		size_t n = str_utf8_len(s);

		if (n == 0)
			return false;
		s.p += n;
		s.n -= n;
	}
	return true;
}

bool str_is_name(struct str s)
{
	if (s.n == 0 || s.n > 63)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];
		bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

		if (!alnum && (i == 0 || (c != '.' && c != '_' && c != '-')))
			return false;
	}
	return true;
}

int str_ptrcmp(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}
