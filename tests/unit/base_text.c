/* Text, buffers, cursors, numbers, times, and the text forms of bytes. */
#include "test.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/cur.h"
#include "base/fail.h"
#include "base/random.h"

TEST(cut_and_trim)
{
	struct str head, tail;

	CHECK(str_cut(STR("a=b=c"), '=', &head, &tail));
	CHECK_STR(head, "a");
	CHECK_STR(tail, "b=c");
	CHECK(!str_cut(STR("abc"), '=', &head, &tail));
	CHECK_STR(head, "abc");
	CHECK_INT(tail.n, 0);
	CHECK_STR(str_trim(STR(" \t x y\t ")), "x y");
	CHECK_INT(str_trim(STR("  ")).n, 0);
	CHECK(str_starts(STR("abc"), "ab") && !str_starts(STR("a"), "ab"));
	CHECK(str_ends(STR("abc"), "bc") && !str_ends(STR("c"), "bc"));
	CHECK(str_ieqz(STR("Content-LENGTH"), "content-length"));
	CHECK(!str_ieqz(STR("k"), "\xe2\x84\xaa")); /* KELVIN SIGN is not a k */
}

TEST(durations)
{
	static const struct {
		const char *text;
		int64_t ms; /* -1: refused */
	} rows[] = {
		{ "90", 90000 }, { "0", 0 }, { "1.5s", 1500 }, { "10m", 600000 }, { "2h", 7200000 },
		{ "7d", 604800000 }, { "250ms", 250 }, { "0.001", 1 }, { "", -1 }, { "s", -1 },
		{ "1.", -1 }, { ".5", -1 }, { "-1", -1 }, { "1 s", -1 }, { "1S", -1 }, { "1sm", -1 },
		{ "99999999999999999999", -1 }, { "9223372036854775807", -1 },
		{ "9223372036854775807ms", INT64_MAX }, { "9223372036854775808ms", -1 },
		{ "1.0000001s", -1 }, { "1.2.3", -1 }, { "0x10", -1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t ms = -1;

		test_row("%s", rows[i].text);
		CHECK_INT(str_duration_ms(str_of(rows[i].text), &ms), rows[i].ms < 0 ? -EINVAL : 0);
		CHECK_INT(ms, rows[i].ms);
	}
}

TEST(sizes)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} rows[] = {
		{ "1000", 1000 }, { "512M", 512 << 20 }, { "5GiB", 5LL << 30 }, { "1k", 1024 },
		{ "1.5g", 3LL << 29 }, { "2T", 2LL << 40 }, { "3KB", 3072 }, { "7B", 7 }, { "", -1 },
		{ "M", -1 }, { "1i", -1 }, { "1Ki", -1 }, { "1KiBB", -1 }, { "1X", -1 }, { "-1", -1 },
		{ "1 M", -1 }, { "99999999999T", -1 }, { "1iB", -1 }, { "1bb", -1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t v = (uint64_t)-1;

		test_row("%s", rows[i].text);
		CHECK_INT(str_size(str_of(rows[i].text), &v), rows[i].bytes < 0 ? -EINVAL : 0);
		CHECK_INT(v, rows[i].bytes);
	}
}

TEST(numbers)
{
	uint64_t v = 7;

	CHECK_INT(str_u64(STR("18446744073709551615"), UINT64_MAX, &v), 0);
	CHECK(v == UINT64_MAX);
	CHECK_INT(str_u64(STR("18446744073709551616"), UINT64_MAX, &v), -EINVAL);
	CHECK_INT(str_u64(STR("256"), 255, &v), -EINVAL);
	CHECK_INT(str_u64(STR("255"), 255, &v), 0);
	CHECK_INT(str_u64(STR("10"), 9, &v), -EINVAL);
	CHECK_INT(str_u64(STR(""), 9, &v), -EINVAL);
	CHECK_INT(str_u64(STR("+1"), 9, &v), -EINVAL);
	CHECK_INT(str_u64(STR("00012"), 100, &v), 0);
	CHECK_INT(v, 12);
}

TEST(utf8)
{
	static const struct {
		const char *text;
		bool ok;
	} rows[] = {
		{ "", true }, { "abc", true }, { "\xc3\xa4", true }, { "\xe2\x82\xac", true },
		{ "\xf0\x9f\x98\x80", true }, { "\xf4\x8f\xbf\xbf", true }, { "\xf4\x90\x80\x80", false },
		{ "\xc0\x80", false }, { "\xc1\xbf", false }, { "\xe0\x80\x80", false },
		{ "\xed\xa0\x80", false }, { "\xf0\x80\x80\x80", false }, { "\xff", false },
		{ "\x80", false }, { "\xe2\x82", false }, { "a\xc3", false }, { "\xf5\x80\x80\x80", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%zu", i);
		CHECK(str_is_utf8(str_of(rows[i].text)) == rows[i].ok);
	}
}

TEST(names_and_copies)
{
	char small[4];
	autofree char *dup = str_dup((struct str){ "abcdef", 3 });

	CHECK(str_is_name(STR("base")) && str_is_name(STR("0a.b_c-d")));
	CHECK(!str_is_name(STR("")) && !str_is_name(STR("Base")) && !str_is_name(STR(".a")));
	CHECK(!str_is_name(STR("a/b")) && !str_is_name(STR("a b")));
	CHECK_INT(str_copy(small, sizeof(small), STR("abc")), 0);
	CHECK_INT(str_copy(small, sizeof(small), STR("abcd")), -ENAMETOOLONG);
	CHECK_INT(str_copy(small, sizeof(small), STR("a\0b")), -EINVAL);
	CHECK_STR(small, "abc");
	CHECK_STR(dup, "abc");
	CHECK(str_has_ctl(STR("a\nb")) && str_has_ctl(STR("\x7f")) && !str_has_ctl(STR("\xc3\xa4 b")));
}

TEST(buffers_keep_their_maximum)
{
	autobuf struct buf b = { 0 };
	char *z;

	buf_init(&b, 10);
	CHECK_INT(buf_addz(&b, "12345678"), 0);
	CHECK_INT(buf_addz(&b, "abc"), -ENOBUFS);
	CHECK_STR(buf_str(&b), "12345678");
	CHECK_INT(buf_addf(&b, "%d", 123), -ENOBUFS);
	CHECK_INT(buf_addf(&b, "%d", 12), 0);
	CHECK_INT(buf_addc(&b, 'x'), -ENOBUFS);
	CHECK_INT(b.n, 10);
	CHECK(b.cap <= 10);
	CHECK_INT(buf_reserve(&b, SIZE_MAX), -ENOBUFS);
	buf_drop(&b, 8);
	CHECK_STR(buf_str(&b), "12");
	buf_drop(&b, 99);
	CHECK_INT(b.n, 0);
	buf_addz(&b, "end");
	z = buf_steal(&b);
	CHECK_STR(z, "end");
	free(z);
	CHECK(b.p == NULL && b.n == 0);

	buf_init(&b, 1000);
	CHECK_INT(buf_addf(&b, "%0500d", 7), 0);
	CHECK_INT(b.n, 500);
	CHECK_INT(buf_addf(&b, "%0501d", 7), -ENOBUFS);
	CHECK_INT(b.n, 500);
}

TEST(cursors_stay_inside)
{
	static const uint8_t data[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
	struct cur c = cur_of(data, sizeof(data)), sub;

	CHECK_INT(cur_u8(&c), 1);
	CHECK_INT(cur_be16(&c), 0x0203);
	sub = cur_sub(&c, 4);
	CHECK_INT(cur_le32(&sub), 0x07060504);
	CHECK(!sub.bad && cur_left(&sub) == 0);
	CHECK_INT(cur_u8(&sub), 0);
	CHECK(sub.bad && !c.bad);
	CHECK_INT(cur_left(&c), 3);
	CHECK_INT(cur_be32(&c), 0);
	CHECK(c.bad);
	CHECK(cur_take(&c, 1) == NULL); /* bad stays bad, though a byte was left */
	c = cur_of(data, 4);
	CHECK(cur_take(&c, SIZE_MAX) == NULL);
	c = cur_of(data, 8);
	CHECK(cur_le64(&c) == 0x0807060504030201ULL);
	c = cur_of(data, 6);
	CHECK(cur_le64(&c) == 0 && c.bad);
	c = cur_of(NULL, 0);
	CHECK_INT(cur_u8(&c), 0);
}

TEST(failures_carry_code_and_remedy)
{
	struct fail f = { 0 };

	CHECK_INT(fail_as(&f, ERR_no_capacity, "of %d MiB, %d are left", 512, 3), -EAGAIN);
	CHECK_STR(f.msg, "of 512 MiB, 3 are left");
	CHECK_STR(err_info(f.code)->name, "no_capacity");
	CHECK_INT(err_info(f.code)->status, 503);
	CHECK(strstr(f.remedy, "space.yaml") != NULL);
	fail_prefix(&f, "sandbox %s", "ix");
	CHECK_STR(f.msg, "sandbox ix: of 512 MiB, 3 are left");
	fail_remedy(&f, "%s", "wait");
	CHECK_STR(f.remedy, "wait");
	CHECK_INT(fail_set(&f, -ENOSPC, "disk"), -ENOSPC);
	CHECK_INT(f.code, ERR_no_space);
	CHECK_INT(fail_set(NULL, -EIO, "nobody asked"), -EIO);
	fail_set(&f, -EIO, "%0300d", 1);
	CHECK_INT(strlen(f.msg), sizeof(f.msg) - 1);
	fail_prefix(&f, "p");
	CHECK_INT(strlen(f.msg), sizeof(f.msg) - 1);
	CHECK_INT(err_by_name("too_large", 9), ERR_too_large);
	CHECK_INT(err_by_name("too_larg", 8), ERR_NONE);
	CHECK_STR(err_info((enum errcode)999)->name, "internal");
}

TEST(rfc3339)
{
	static const struct {
		const char *text;
		int64_t ns; /* -1: refused */
	} rows[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "2026-01-02T03:04:05.678Z", 1767323045678000000 },
		{ "2026-01-02t03:04:05.678z", 1767323045678000000 },
		{ "2026-01-02T04:34:05.678+01:30", 1767323045678000000 },
		{ "2026-01-01T23:04:05.678-04:00", 1767323045678000000 },
		{ "2026-01-02T03:04:05.123456789Z", 1767323045123456789 },
		{ "2024-02-29T00:00:00Z", 1709164800000000000 },
		{ "2016-12-31T23:59:60Z", 1483228800000000000 },
		{ "2023-02-29T00:00:00Z", -1 }, { "2026-13-01T00:00:00Z", -1 },
		{ "2026-00-01T00:00:00Z", -1 }, { "2026-01-32T00:00:00Z", -1 },
		{ "2026-01-01T24:00:00Z", -1 }, { "2026-01-01T00:60:00Z", -1 },
		{ "2026-01-01T00:00:61Z", -1 }, { "2026-01-01T00:00:00", -1 },
		{ "2026-01-01T00:00:00.Z", -1 }, { "2026-01-01T00:00:00.0123456789Z", -1 },
		{ "2026-01-01T00:00:00+0100", -1 }, { "2026-01-01T00:00:00Zx", -1 },
		{ "2026-1-01T00:00:00Z", -1 }, { "", -1 }, { "2026-01-01", -1 },
		{ "9999-01-01T00:00:00Z", -1 }, { "0001-01-01T00:00:00Z", -1 },
	};
	char text[RFC3339_LEN];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t ns = -1;

		test_row("%s", rows[i].text);
		CHECK_INT(rfc3339_parse(str_of(rows[i].text), &ns), rows[i].ns == -1 ? -EINVAL : 0);
		CHECK_INT(ns, rows[i].ns);
	}
	rfc3339_format(text, 1767323045678999999);
	CHECK_STR(text, "2026-01-02T03:04:05.678Z");
	rfc3339_format(text, -1);
	CHECK_STR(text, "1969-12-31T23:59:59.999Z");
	rfc3339_format(text, INT64_MAX);
	CHECK_STR(text, "2262-04-11T23:47:16.854Z");
}

TEST(base64)
{
	static const struct {
		const char *plain, *text;
	} rows[] = {
		{ "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" }, { "foobar", "Zm9vYmFy" }, { "\xff\xef\xbe", "/+++" },
	};
	static const char *const bad[] = { "Z", "Zg=", "Zg===", "Z===", "Zh==", "Zm9=", "Zm9v=", "Zm 9v",
		"Zm9v\n", "====", "=", "Zg==Zg==", "-_-_" };
	char out[64];
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str text = str_of(rows[i].text);

		test_row("%s", rows[i].text);
		base64_encode(out, rows[i].plain, strlen(rows[i].plain));
		CHECK_STR(out, rows[i].text);
		CHECK_INT(base64_len(strlen(rows[i].plain)), text.n);
		CHECK_INT(base64_decode(out, &n, text), 0);
		CHECK_STR(((struct str){ out, n }), rows[i].plain);
		while (text.n && text.p[text.n - 1] == '=')
			text.n--;
		CHECK_INT(base64_decode(out, &n, text), 0);
		CHECK_STR(((struct str){ out, n }), rows[i].plain);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		test_row("%s", bad[i]);
		CHECK_INT(base64_decode(out, &n, str_of(bad[i])), -EINVAL);
	}
}

TEST(hex_ids_and_comparison)
{
	char id[ID_LEN + 1], other[ID_LEN + 1], hex[9];
	uint8_t bytes[4];

	hex_encode(hex, "\x00\xff\x1a\xb2", 4);
	CHECK_STR(hex, "00ff1ab2");
	CHECK_INT(hex_decode(bytes, 4, STR("00FF1aB2")), 0);
	CHECK(memcmp(bytes, "\x00\xff\x1a\xb2", 4) == 0);
	CHECK_INT(hex_decode(bytes, 4, STR("00ff1ab")), -EINVAL);
	CHECK_INT(hex_decode(bytes, 4, STR("00ff1abg")), -EINVAL);
	id_make(id, 'i');
	id_make(other, 'i');
	CHECK(id_valid(str_of(id), 'i') && !id_valid(str_of(id), 'p'));
	CHECK(strcmp(id, other) != 0);
	id[5] = 'A';
	CHECK(!id_valid(str_of(id), 'i'));
	CHECK(mem_eq_ct("abc", "abc", 3) && !mem_eq_ct("abc", "abd", 3));
}
