#include "agent/tar.h"

#include <stdio.h>

/* Offsets and lengths of the fields in a header. */
enum {
	NAME = 0,
	NAME_N = 100,
	MODE = 100,
	UID = 108,
	GID = 116,
	SIZE = 124,
	MTIME = 136,
	SUM = 148,
	TYPE = 156,
	LINK = 157,
	LINK_N = 100,
	MAGIC = 257,
	MAJOR = 329,
	MINOR = 337,
	PREFIX = 345,
	PREFIX_N = 155,
	ID_N = 8,
	BIG_N = 12,
};

/* Octal digits, or GNU's base 256 when the first bit is set. */
static int number(const uint8_t *p, size_t n, uint64_t *out)
{
	uint64_t v = 0;
	size_t i = 0;

	if (p[0] & 0x80) {
		if (p[0] != 0x80)
			return -EBADMSG; /* negative, or more than 64 bits */
		for (i = 1; i < n; i++) {
			if (v >> 56)
				return -EBADMSG;
			v = v << 8 | p[i];
		}
		*out = v;
		return 0;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0');
	if (i < n && p[i] != '\0' && p[i] != ' ')
		return -EBADMSG;
	*out = v;
	return 0;
}

/* The sum of all bytes, the sum's own field taken as spaces. */
static unsigned sum_of(const uint8_t *block)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < TAR_BLOCK; i++)
		sum += i >= SUM && i < SUM + 8 ? ' ' : block[i];
	return sum;
}

static bool all_zero(const uint8_t *block)
{
	for (unsigned i = 0; i < TAR_BLOCK; i++)
		if (block[i])
			return false;
	return true;
}

static size_t field_len(const uint8_t *p, size_t n)
{
	const uint8_t *nul = memchr(p, '\0', n);

	return nul ? (size_t)(nul - p) : n;
}

static void names_read(const uint8_t *b, struct tar_entry *e)
{
	size_t n = 0, len;

	/* GNU's own format has other things where ustar has the prefix. */
	if (memcmp(b + MAGIC, "ustar\0", 6) == 0 && b[PREFIX]) {
		n = field_len(b + PREFIX, PREFIX_N);
		memcpy(e->name, b + PREFIX, n);
		e->name[n++] = '/';
	}
	len = field_len(b + NAME, NAME_N);
	memcpy(e->name + n, b + NAME, len);
	e->name[n + len] = '\0';
	len = field_len(b + LINK, LINK_N);
	memcpy(e->link, b + LINK, len);
	e->link[len] = '\0';
}

int tar_parse(const uint8_t block[TAR_BLOCK], struct tar_entry *e)
{
	uint64_t sum, mode, uid, gid, mtime, major = 0, minor = 0;

	if (block[0] == '\0' && all_zero(block))
		return 0;
	memset(e, 0, offsetof(struct tar_entry, name));
	if (number(block + SUM, 8, &sum) < 0 || sum != sum_of(block) ||
		number(block + MODE, ID_N, &mode) < 0 || number(block + UID, ID_N, &uid) < 0 ||
		number(block + GID, ID_N, &gid) < 0 || number(block + SIZE, BIG_N, &e->size) < 0 ||
		number(block + MTIME, BIG_N, &mtime) < 0)
		return -EBADMSG;
	e->type = (char)block[TYPE];
	if (e->type == '\0' || e->type == '7')
		e->type = TAR_FILE;
	if ((e->type == TAR_CHAR || e->type == TAR_BLOCKDEV) &&
		(number(block + MAJOR, ID_N, &major) < 0 ||
			number(block + MINOR, ID_N, &minor) < 0))
		return -EBADMSG;
	names_read(block, e);
	if (e->type == TAR_FILE && str_ends(str_of(e->name), "/"))
		e->type = TAR_DIR; /* as the oldest tars wrote it */
	if (e->size > INT64_MAX || mtime > INT64_MAX)
		return -EBADMSG;
	if (e->type >= TAR_SYMLINK && e->type <= TAR_FIFO)
		e->size = 0; /* whatever the field says, nothing follows */
	e->mode = (mode_t)(mode & 07777);
	e->uid = (uint32_t)uid;
	e->gid = (uint32_t)gid;
	e->major = (uint32_t)major;
	e->minor = (uint32_t)minor;
	e->mtime_s = (int64_t)mtime;
	e->mtime_ns = 0;
	return 1;
}

/* --- extended headers --- */

static int time_read(struct str s, int64_t *sec, uint32_t *ns)
{
	struct str whole, part = { 0 };
	bool minus = s.n > 0 && s.p[0] == '-';
	uint64_t v;

	if (minus)
		s = (struct str){ s.p + 1, s.n - 1 };
	str_cut(s, '.', &whole, &part);
	if (str_u64(whole, INT64_MAX, &v) < 0)
		return -EBADMSG;
	*sec = minus ? -(int64_t)v : (int64_t)v;
	*ns = 0;
	for (size_t i = 0; i < 9; i++) {
		unsigned digit = 0;

		if (i < part.n) {
			if (part.p[i] < '0' || part.p[i] > '9')
				return -EBADMSG;
			digit = (unsigned)(part.p[i] - '0');
		}
		*ns = *ns * 10 + digit;
	}
	if (minus)
		*ns = 0; /* before 1970: to the second */
	return 0;
}

static int record(struct tar_pax *p, struct str key, struct str value)
{
	uint64_t v;
	int r = 0;

	if (str_eqz(key, "path")) {
		r = str_copy(p->name, sizeof(p->name), value);
		p->has_name = r == 0;
	} else if (str_eqz(key, "linkpath")) {
		r = str_copy(p->link, sizeof(p->link), value);
		p->has_link = r == 0;
	} else if (str_eqz(key, "size")) {
		r = str_u64(value, INT64_MAX, &p->size);
		p->has_size = r == 0;
	} else if (str_eqz(key, "mtime")) {
		r = time_read(value, &p->mtime_s, &p->mtime_ns);
		p->has_mtime = r == 0;
	} else if (str_eqz(key, "uid") || str_eqz(key, "gid")) {
		r = str_u64(value, UINT32_MAX, &v);
		if (r == 0 && key.p[0] == 'u') {
			p->uid = (uint32_t)v;
			p->has_uid = true;
		} else if (r == 0) {
			p->gid = (uint32_t)v;
			p->has_gid = true;
		}
	}
	return r == 0 || r == -ENAMETOOLONG ? r : -EBADMSG;
}

/* "LENGTH KEY=VALUE\n", LENGTH being that of the whole record in digits, itself included. */
int tar_pax_read(struct tar_pax *p, struct str records)
{
	while (records.n > 0) {
		struct str digits, rest, key, value;
		uint64_t len;
		int r;

		if (!str_cut(records, ' ', &digits, &rest) ||
			str_u64(digits, TAR_PAX_MAX, &len) < 0 || len > records.n ||
			len < digits.n + 3 || records.p[len - 1] != '\n')
			return -EBADMSG;
		rest.n = (size_t)len - digits.n - 2;
		if (!str_cut(rest, '=', &key, &value))
			return -EBADMSG;
		r = record(p, key, value);
		if (r < 0)
			return r;
		records = (struct str){ records.p + len, records.n - (size_t)len };
	}
	return 0;
}

int tar_long_read(struct tar_pax *p, char type, struct str text)
{
	const char *nul = memchr(text.n ? text.p : "", '\0', text.n);

	if (nul)
		text.n = (size_t)(nul - text.p);
	return record(p, type == TAR_LONGNAME ? STR("path") : STR("linkpath"), text);
}

void tar_pax_apply(const struct tar_pax *p, struct tar_entry *e)
{
	if (p->has_name)
		strcpy(e->name, p->name);
	if (p->has_link)
		strcpy(e->link, p->link);
	if (p->has_size)
		e->size = p->size;
	if (p->has_uid)
		e->uid = p->uid;
	if (p->has_gid)
		e->gid = p->gid;
	if (p->has_mtime) {
		e->mtime_s = p->mtime_s;
		e->mtime_ns = p->mtime_ns;
	}
	if (e->type == TAR_FILE && str_ends(str_of(e->name), "/"))
		e->type = TAR_DIR;
}

/* --- writing --- */

static void octal(uint8_t *p, size_t n, uint64_t v)
{
	for (size_t i = n - 1; i-- > 0; v >>= 3)
		p[i] = (uint8_t)('0' + (v & 7));
	p[n - 1] = '\0';
}

/* Puts NAME into name and prefix. false: it does not fit. */
static bool name_fits(uint8_t *b, const char *name)
{
	size_t n = strlen(name), cut;

	if (n <= NAME_N) {
		memcpy(b + NAME, name, n);
		return true;
	}
	for (cut = n - NAME_N - 1; cut < n && cut <= PREFIX_N; cut++)
		if (name[cut] == '/' && cut > 0 && n - cut - 1 > 0)
			break;
	if (cut >= n || cut > PREFIX_N)
		return false;
	memcpy(b + PREFIX, name, cut);
	memcpy(b + NAME, name + cut + 1, n - cut - 1);
	return true;
}

static void seal(uint8_t *b)
{
	memcpy(b + MAGIC, "ustar\00000", 8);
	octal(b + SUM, 7, sum_of(b));
	b[SUM + 7] = ' ';
}

static int pax_add(struct buf *b, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3,
	       len; /* space, '=', newline, and the digits */

	for (size_t digits = 1;; digits++) {
		char text[24];

		len = body + digits;
		if ((size_t)snprintf(text, sizeof(text), "%zu", len) == digits)
			break;
	}
	return buf_addf(b, "%zu %s=%s\n", len, key, value);
}

static int pax_header(struct buf *b, struct buf *records)
{
	uint8_t h[TAR_BLOCK] = { 0 };
	static const char zeros[TAR_BLOCK];
	int r;

	memcpy(h + NAME, "././@PaxHeader", 14);
	octal(h + MODE, ID_N, 0644);
	octal(h + UID, ID_N, 0);
	octal(h + GID, ID_N, 0);
	octal(h + SIZE, BIG_N, records->n);
	octal(h + MTIME, BIG_N, 0);
	h[TYPE] = TAR_PAX;
	seal(h);
	r = buf_add(b, h, sizeof(h));
	if (r == 0)
		r = buf_adds(b, buf_str(records));
	return r == 0 ? buf_add(b, zeros, tar_padding(records->n)) : r;
}

#define ID_MAX 07777777U
#define BIG_MAX 077777777777ULL

int tar_header(struct buf *b, const struct tar_entry *e)
{
	uint8_t h[TAR_BLOCK] = { 0 };
	char text[32];
	struct buf rec;
	size_t nlink = strlen(e->link);
	int r = 0;

	buf_init(&rec, TAR_PAX_MAX);
	if (!name_fits(h, e->name)) {
		r = pax_add(&rec, "path", e->name);
		memcpy(h + NAME, e->name, NAME_N);
	}
	if (nlink > LINK_N && r == 0)
		r = pax_add(&rec, "linkpath", e->link);
	memcpy(h + LINK, e->link, MIN(nlink, (size_t)LINK_N));
	if (e->size > BIG_MAX && r == 0) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)e->size);
		r = pax_add(&rec, "size", text);
	}
	if ((e->mtime_s < 0 || (uint64_t)e->mtime_s > BIG_MAX) && r == 0) {
		snprintf(text, sizeof(text), "%lld", (long long)e->mtime_s);
		r = pax_add(&rec, "mtime", text);
	}
	if (e->uid > ID_MAX && r == 0) {
		snprintf(text, sizeof(text), "%u", e->uid);
		r = pax_add(&rec, "uid", text);
	}
	if (e->gid > ID_MAX && r == 0) {
		snprintf(text, sizeof(text), "%u", e->gid);
		r = pax_add(&rec, "gid", text);
	}
	octal(h + MODE, ID_N, e->mode & 07777);
	octal(h + UID, ID_N, MIN(e->uid, ID_MAX));
	octal(h + GID, ID_N, MIN(e->gid, ID_MAX));
	octal(h + SIZE, BIG_N, MIN(e->size, BIG_MAX));
	octal(h + MTIME, BIG_N, e->mtime_s < 0 ? 0 : MIN((uint64_t)e->mtime_s, BIG_MAX));
	octal(h + MAJOR, ID_N, e->major & ID_MAX);
	octal(h + MINOR, ID_N, e->minor & ID_MAX);
	h[TYPE] = (uint8_t)e->type;
	seal(h);
	if (r == 0 && rec.n > 0)
		r = pax_header(b, &rec);
	if (r == 0)
		r = buf_add(b, h, sizeof(h));
	buf_clear(&rec);
	return r;
}

int tar_name_clean(char *name)
{
	size_t n = strlen(name), w = 0;

	for (size_t i = 0; i < n;) {
		size_t len = strcspn(name + i, "/");

		if (len == 2 && name[i] == '.' && name[i + 1] == '.')
			return -EINVAL;
		if (len > 0 && !(len == 1 && name[i] == '.')) {
			if (w > 0)
				name[w++] = '/';
			memmove(name + w, name + i, len);
			w += len;
		}
		i += len + 1;
	}
	name[w] = '\0';
	return 0;
}
