/* agent_ring.c - kept output by offsets, and the tar headers. */
#include <stdio.h>

#include "agent/ring.h"
#include "agent/tar.h"
#include "test.h"

/* Byte number I of the stream that the tests write. */
static char byte_at(uint64_t i)
{
	return (char)(i * 7 + i / 251);
}

static void add(struct ring *r, size_t n)
{
	char buf[8192];

	for (size_t i = 0; i < n; i++)
		buf[i] = byte_at(r->end + i);
	ring_add(r, buf, n);
}

static bool right_from(const struct ring *r, uint64_t at)
{
	while (at < r->end) {
		struct str s = ring_peek(r, at, 100);

		if (s.n == 0 || s.n > 100)
			return false;
		for (size_t i = 0; i < s.n; i++)
			if (s.p[i] != byte_at(at + i))
				return false;
		at += s.n;
	}
	return true;
}

TEST(ring_keeps_the_last_bytes)
{
	struct ring r;

	ring_init(&r, 10000, 20000);
	for (unsigned i = 0; i < 300; i++) {
		add(&r, 1 + i * 13 % 4000);
		CHECK(r.end - r.start <= 20000 && right_from(&r, r.start));
		CHECK(r.end - ring_kept(&r) == MIN(r.end, (uint64_t)10000));
	}
	CHECK_INT(r.cap, 20000);
	ring_shrink(&r);
	CHECK_INT(r.end - r.start, 10000);
	CHECK_INT(r.cap, 10000);
	CHECK(right_from(&r, r.start));
	ring_clear(&r);
	CHECK_INT(r.start, r.end);
}

TEST(ring_starts_small_and_grows)
{
	struct ring r;

	ring_init(&r, 1 << 20, 0);
	add(&r, 10);
	CHECK(r.cap <= 4096);
	for (int i = 0; i < 20; i++)
		add(&r, 1000);
	CHECK(r.cap < 65536 && r.start == 0 && right_from(&r, 0));
	ring_clear(&r);
}

TEST(ring_budget_holds)
{
	struct ring a, b;

	ring_set_budget(600 * 1024);
	ring_init(&a, 1 << 20, 0);
	ring_init(&b, 1 << 20, 0);
	for (int i = 0; i < 1000; i++) {
		add(&a, 1000);
		add(&b, 1000);
	}
	CHECK(a.cap + b.cap <= 600 * 1024 + RING_FLOOR);
	CHECK(a.cap >= RING_FLOOR && b.cap >= RING_FLOOR);
	CHECK(right_from(&a, a.start) && right_from(&b, b.start));
	CHECK_INT(a.end - a.start, a.cap);
	ring_clear(&a);
	ring_clear(&b);
	ring_set_budget(SIZE_MAX);
}

TEST(ring_takes_more_than_it_holds)
{
	struct ring r;

	ring_init(&r, 100, 100);
	add(&r, 8000);
	CHECK_INT(r.start, 7900);
	CHECK_INT(r.end, 8000);
	CHECK(right_from(&r, 7900));
	ring_clear(&r);
	ring_init(&r, 0, 100);
	add(&r, 50);
	CHECK_INT(ring_kept(&r), 50);
	ring_shrink(&r);
	CHECK(r.p == NULL);
}

static struct tar_entry entry(char type, const char *name)
{
	struct tar_entry e = {
		.type = type, .mode = 0640, .uid = 1000, .gid = 50, .mtime_s = 1700000000
	};

	snprintf(e.name, sizeof(e.name), "%s", name);
	return e;
}

/* Reads back what tar_header wrote. */
static int read_back(const struct buf *b, struct tar_entry *e)
{
	static struct tar_pax pax;
	size_t at = 0;
	int r;

	memset(&pax, 0, sizeof(pax));
	while (at + TAR_BLOCK <= b->n) {
		r = tar_parse((const uint8_t *)b->p + at, e);
		at += TAR_BLOCK;
		if (r != 1)
			return r;
		if (e->type != TAR_PAX) {
			tar_pax_apply(&pax, e);
			return at == b->n ? 1 : -EIO;
		}
		r = tar_pax_read(&pax, (struct str){ b->p + at, (size_t)e->size });
		if (r < 0)
			return r;
		at += (size_t)e->size + tar_padding(e->size);
	}
	return -EIO;
}

TEST(tar_headers_round_trip)
{
	static const size_t lengths[] = { 1, 99, 100, 101, 155, 200, 255, 256, 257, 1000, 4000 };

	for (unsigned i = 0; i < ARRAY_LEN(lengths); i++) {
		for (int slashes = 0; slashes < 2; slashes++) {
			struct tar_entry e = entry(TAR_SYMLINK, ""), got;
			struct buf b;

			memset(e.name, 'n', lengths[i]);
			for (size_t j = 40; slashes && j + 1 < lengths[i]; j += 41)
				e.name[j] = '/';
			memset(e.link, 'l', lengths[i]);
			e.mtime_s = 1LL << (i * 3 + 5);
			e.uid = 1U << (i + 20);
			buf_init(&b, 64 * KIB);
			test_row("%zu bytes, slashes %d", lengths[i], slashes);
			CHECK_INT(tar_header(&b, &e), 0);
			CHECK_INT(b.n % TAR_BLOCK, 0);
			if (CHECK_INT(read_back(&b, &got), 1)) {
				CHECK_STR(got.name, e.name);
				CHECK_STR(got.link, e.link);
				CHECK_INT(got.mtime_s, e.mtime_s);
				CHECK_INT(got.uid, e.uid);
				CHECK_INT(got.mode, 0640);
			}
			buf_clear(&b);
		}
	}
	test_row(NULL);
}

TEST(tar_sizes_over_8_gib)
{
	struct tar_entry e = entry(TAR_FILE, "big"), got;
	struct buf b;

	e.size = 1ULL << 40;
	buf_init(&b, 64 * KIB);
	CHECK_INT(tar_header(&b, &e), 0);
	CHECK_INT(read_back(&b, &got), 1);
	CHECK_INT(got.size, 1LL << 40);
	buf_clear(&b);
}

TEST(tar_refuses_damaged_headers)
{
	struct tar_entry e = entry(TAR_FILE, "x"), got;
	uint8_t zero[TAR_BLOCK] = { 0 };
	struct buf b;

	CHECK_INT(tar_parse(zero, &got), 0);
	buf_init(&b, 64 * KIB);
	CHECK_INT(tar_header(&b, &e), 0);
	b.p[3] ^= 1;
	CHECK_INT(tar_parse((uint8_t *)b.p, &got), -EBADMSG);
	buf_clear(&b);
}

TEST(tar_extended_headers)
{
	static struct tar_pax p;

	CHECK_INT(tar_pax_read(&p, STR("12 path=abc\n22 mtime=1700000000.5\n")), 0);
	CHECK_STR(p.name, "abc");
	CHECK_INT(p.mtime_s, 1700000000);
	CHECK_INT(p.mtime_ns, 500000000);
	CHECK_INT(tar_pax_read(&p, STR("13 path=abc\n")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("11 path=abc\n")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("3 =\n")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("9 size=x\n")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("99999999999999999999 a=b\n")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("nonsense")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("14 path=a\0bcd\n")), -EBADMSG);
	CHECK_INT(tar_pax_read(&p, STR("12 other=ab\n")), 0);
}

TEST(tar_names_stay_below)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "a/b", "a/b" },
		{ "/a//b/", "a/b" },
		{ "./a/./b", "a/b" },
		{ ".", "" },
		{ "/", "" },
		{ "..", NULL },
		{ "a/..", NULL },
		{ "../a", NULL },
		{ "a/../b", NULL },
		{ "...", "..." },
		{ "a/..b", "a/..b" },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		char s[64];

		strcpy(s, rows[i].in);
		test_row("%s", rows[i].in);
		CHECK_INT(tar_name_clean(s), rows[i].out ? 0 : -EINVAL);
		if (rows[i].out)
			CHECK_STR(s, rows[i].out);
	}
	test_row(NULL);
}
