/* agent_text.c - the agent's parsers: paths, users, Connect, ranges. Short enough to read as their
 * specification. */
#include "agent/connect.h"
#include "agent/path.h"
#include "agent/range.h"
#include "agent/users.h"
#include <stdio.h>

#include "test.h"

TEST(path_clean_is_gos)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "", "." },
		{ "/", "/" },
		{ "//", "/" },
		{ "a", "a" },
		{ "a/", "a" },
		{ "a//b", "a/b" },
		{ "a/./b", "a/b" },
		{ "./a", "a" },
		{ "a/..", "." },
		{ "a/../b", "b" },
		{ "/..", "/" },
		{ "/../a", "/a" },
		{ "/a/b/..", "/a" },
		{ "/a/../..", "/" },
		{ "..", ".." },
		{ "../..", "../.." },
		{ "../a/..", ".." },
		{ "a/../../b", "../b" },
		{ "/home/user/../../etc", "/etc" },
		{ "/a/...", "/a/..." },
		{ "/a/.b/..c", "/a/.b/..c" },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		char s[64];

		strcpy(s, rows[i].in);
		path_clean(s);
		test_row("\"%s\"", rows[i].in);
		CHECK_STR(s, rows[i].out);
	}
	test_row(NULL);
}

TEST(path_rules)
{
	static const struct {
		const char *in, *workdir, *out; /* out NULL: refused */
	} rows[] = {
		{ "", "", "/home/u" },
		{ "", "/work", "/work" },
		{ "", "sub", "/home/u/sub" },
		{ "~", "/work", "/home/u" },
		{ "~/", "/work", "/home/u" },
		{ "~/x/../y", "", "/home/u/y" },
		{ "~other", "", NULL },
		{ "~other/x", "", NULL },
		{ "/a/../b", "", "/a/../b" },
		{ "/", "", "/" },
		{ "x", "/work", "/home/u/x" },
		{ "./x//y/", "", "/home/u/x/y" },
		{ "../../etc", "", "/etc" },
		{ "a~b", "", "/home/u/a~b" },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		char out[PATH_LEN] = "";
		int r = path_resolve(str_of(rows[i].in), "/home/u", rows[i].workdir, out, NULL);

		test_row("\"%s\" in \"%s\"", rows[i].in, rows[i].workdir);
		CHECK_INT(r, rows[i].out ? 0 : -EINVAL);
		if (rows[i].out)
			CHECK_STR(out, rows[i].out);
	}
	test_row(NULL);
}

TEST(path_rules_refuse_nul_and_length)
{
	char out[PATH_LEN], big[PATH_LEN + 10];

	CHECK_INT(path_resolve(STR("a\0b"), "/h", "", out, NULL), -EINVAL);
	memset(big, 'x', sizeof(big));
	CHECK_INT(
		path_resolve((struct str){ big, sizeof(big) }, "/h", "", out, NULL), -ENAMETOOLONG);
	CHECK_INT(path_resolve((struct str){ big, PATH_LEN - 3 }, "/h", "", out, NULL),
		-ENAMETOOLONG);
	CHECK_INT(path_resolve((struct str){ big, PATH_LEN - 4 }, "/h", "", out, NULL), 0);
	CHECK_INT(path_resolve(STR("x"), "", "", out, NULL), -EINVAL);
}

TEST(path_parts)
{
	CHECK_STR(path_base("/a/b"), "b");
	CHECK_STR(path_base("/a/b//"), "b");
	CHECK_STR(path_base("/"), "/");
	CHECK_STR(path_base("x"), "x");
	CHECK_INT(path_dir_len("/a/b"), 2);
	CHECK_INT(path_dir_len("/a/b/"), 2);
	CHECK_INT(path_dir_len("/a"), 1);
	CHECK_INT(path_dir_len("/"), 1);
	CHECK_INT(path_dir_len("a"), 0);
}

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n\n# comment\nbad line\n"
			     "user:x:1000:1001::/home/user:/bin/bash\nneg:x:-1:0::/:/bin/"
			     "sh\nhuge:x:99999999999:0::/:/bin/sh\n"
			     "nohome:x:5:5:::/bin/sh\nlast:x:7:7:a:b:c:d";
static const char group[] = "root:x:0:\nsudo:x:27:other,user\nuser:x:1001:user\nx:y\nteam:x:50:"
			    "user\nnot:x:51:users,use\n";

TEST(users_come_with_their_groups)
{
	struct user u;

	CHECK_INT(user_find(str_of(passwd), str_of(group), STR("user"), &u), 0);
	CHECK_INT(u.uid, 1000);
	CHECK_INT(u.gid, 1001);
	CHECK_STR(u.home, "/home/user");
	CHECK_INT(u.ngroups, 3);
	CHECK_INT(u.groups[0], 1001);
	CHECK_INT(u.groups[1], 27);
	CHECK_INT(u.groups[2], 50);
}

TEST(users_with_damaged_lines_do_not_exist)
{
	static const char *const names[] = { "neg", "huge", "bad line", "use", "", "USER" };
	struct user u;

	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		test_row("%s", names[i]);
		CHECK_INT(user_find(str_of(passwd), str_of(group), str_of(names[i]), &u), -ENOENT);
	}
	test_row(NULL);
	CHECK_INT(user_find(str_of(passwd), str_of(group), STR("nohome"), &u), 0);
	CHECK_STR(u.home, "/");
}

TEST(users_with_more_groups_than_we_hold)
{
	static char text[64 * 1024];
	size_t n = 0;
	struct user u;

	for (int i = 0; i < 200; i++)
		n += (size_t)sprintf(text + n, "g%d:x:%d:user\n", i, 2000 + i);
	CHECK_INT(user_find(str_of(passwd), (struct str){ text, n }, STR("user"), &u), 0);
	CHECK_INT(u.ngroups, USER_GROUPS_MAX);
}

TEST(frames_one_after_another)
{
	struct str in = STR("\0\0\0\0\2{}\2\0\0\0\3abc\0\0\0\0\0\0\0"), payload;
	uint8_t flags;

	CHECK_INT(frame_next(&in, 100, &flags, &payload), 1);
	CHECK_STR(payload, "{}");
	CHECK_INT(frame_next(&in, 100, &flags, &payload), 1);
	CHECK_INT(flags, FRAME_END);
	CHECK_STR(payload, "abc");
	CHECK_INT(frame_next(&in, 100, &flags, &payload), 1);
	CHECK_INT(payload.n, 0);
	CHECK_INT(frame_next(&in, 100, &flags, &payload), 0); /* two bytes of a head */
	in = STR("\1\0\0\0\0");
	CHECK_INT(frame_next(&in, 100, &flags, &payload), -EBADMSG);
	in = STR("\0\0\0\0\145");
	CHECK_INT(frame_next(&in, 100, &flags, &payload), -EFBIG);
	in = STR("\0\377\377\377\377");
	CHECK_INT(frame_next(&in, 100, &flags, &payload), -EFBIG);
}

TEST(messages_are_read_leniently)
{
	autojson json_t *m = json_loads("{\"aB\":1,\"c_d\":\"x\",\"n\":null,\"num\":\"-5\","
					"\"real\":2.0,\"bad\":1.5,\"t\":true,"
					"\"bytes\":\"-_8=\",\"neg\":\"--5\"}",
		0, NULL);
	const char *s = "kept";
	bool b = false;
	int64_t i = 7;
	char *bytes = NULL;
	size_t n = 0;

	CHECK_INT(msg_int(m, "a_b", 0, 9, &i), 0);
	CHECK_INT(i, 1);
	CHECK_INT(msg_int(m, "a_b", 2, 9, &i), -EINVAL);
	CHECK_INT(msg_str(m, "c_d", &s), 0);
	CHECK_STR(s, "x");
	s = "kept";
	CHECK_INT(msg_str(m, "n", &s), 0);
	CHECK_STR(s, "kept");
	CHECK_INT(msg_str(m, "t", &s), -EINVAL);
	CHECK_INT(msg_int(m, "num", -9, 9, &i), 0);
	CHECK_INT(i, -5);
	CHECK_INT(msg_int(m, "real", 0, 9, &i), 0);
	CHECK_INT(i, 2);
	CHECK_INT(msg_int(m, "bad", 0, 9, &i), -EINVAL);
	CHECK_INT(msg_int(m, "neg", -9, 9, &i), -EINVAL);
	CHECK_INT(msg_bool(m, "t", &b), 0);
	CHECK(b);
	CHECK_INT(msg_bool(m, "num", &b), -EINVAL);
	CHECK_INT(msg_bytes(m, "bytes", &bytes, &n), 0);
	CHECK(n == 2 && memcmp(bytes, "\xfb\xff", 2) == 0);
	free(bytes);
	CHECK_INT(msg_bytes(m, "neg", &bytes, &n), -EINVAL);
	CHECK_INT(msg_bytes(m, "absent", &bytes, &n), 0);
	CHECK(bytes == NULL);
	CHECK(msg_get(NULL, "x") == NULL);
}

TEST(codes_have_names_and_statuses)
{
	CHECK_STR(rpc_code_name(RPC_NOT_FOUND), "not_found");
	CHECK_INT(rpc_code_status(RPC_NOT_FOUND), 404);
	CHECK_INT(rpc_code_status(RPC_CANCELED), 499);
	CHECK_INT(rpc_code_status(RPC_RESOURCE_EXHAUSTED), 429);
	CHECK_INT(rpc_code_status(RPC_UNAUTHENTICATED), 401);
}

TEST(ranges_of_ten_bytes)
{
	static const struct {
		const char *in;
		enum range_kind kind;
		uint64_t from, len;
	} rows[] = {
		{ "bytes=0-0", RANGE_PART, 0, 1 },
		{ "bytes=2-4", RANGE_PART, 2, 3 },
		{ "bytes=5-", RANGE_PART, 5, 5 },
		{ "bytes=-3", RANGE_PART, 7, 3 },
		{ "bytes=-30", RANGE_PART, 0, 10 },
		{ "bytes=0-999", RANGE_PART, 0, 10 },
		{ "bytes=9-9", RANGE_PART, 9, 1 },
		{ "bytes=0-18446744073709551615", RANGE_PART, 0, 10 },
		{ "bytes=10-", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=-0", RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=4-2", RANGE_WHOLE, 0, 0 },
		{ "bytes=1-2,3-4", RANGE_WHOLE, 0, 0 },
		{ "bytes=a-b", RANGE_WHOLE, 0, 0 },
		{ "bytes=", RANGE_WHOLE, 0, 0 },
		{ "bytes=-", RANGE_WHOLE, 0, 0 },
		{ "items=1-2", RANGE_WHOLE, 0, 0 },
		{ "bytes=0-18446744073709551616", RANGE_WHOLE, 0, 0 },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t from = 0, len = 0;

		test_row("%s", rows[i].in);
		CHECK_INT(range_parse(str_of(rows[i].in), 10, &from, &len), rows[i].kind);
		if (rows[i].kind == RANGE_PART) {
			CHECK_INT(from, rows[i].from);
			CHECK_INT(len, rows[i].len);
		}
	}
	test_row(NULL);
}

TEST(http_dates_both_ways)
{
	char text[HTTP_DATE_LEN];
	int64_t t = 0;

	http_date_format(text, 784111777);
	CHECK_STR(text, "Sun, 06 Nov 1994 08:49:37 GMT");
	CHECK_INT(http_date_parse(str_of(text), &t), 0);
	CHECK_INT(t, 784111777);
	CHECK_INT(http_date_parse(STR("Sunday, 06-Nov-94 08:49:37 GMT"), &t), -EINVAL);
	CHECK_INT(http_date_parse(STR("Sun, 06 Foo 1994 08:49:37 GMT"), &t), -EINVAL);
	CHECK_INT(http_date_parse(STR(""), &t), -EINVAL);
}

TEST(refused_codings)
{
	CHECK(!coding_refused(STR("gzip, deflate"), "identity"));
	CHECK(!coding_refused(STR(""), "identity"));
	CHECK(coding_refused(STR("identity;q=0, gzip"), "identity"));
	CHECK(coding_refused(STR("gzip, identity; q=0.00"), "identity"));
	CHECK(!coding_refused(STR("identity;q=0.5"), "identity"));
	CHECK(coding_refused(STR("gzip, *;q=0"), "identity"));
	CHECK(!coding_refused(STR("identity, *;q=0"), "identity"));
}
