/* Reading request bodies by field tables, and writing JSON. */
#include "test.h"

#include "base/json.h"

struct req {
	const char *name;
	int64_t vcpu, big;
	bool wait, has_wait;
	double ratio;
	json_t *env, *list, *any;
};

static const struct field fields[] = {
	STR_FIELD(struct req, name, 8, true),
	INT_FIELD(struct req, vcpu, 1, 32, false),
	INT_FIELD(struct req, big, INT64_MIN, INT64_MAX, false),
	{ "wait", FIELD_BOOL, offsetof(struct req, wait), offsetof(struct req, has_wait), false, 0, 0 },
	{ "ratio", FIELD_NUM, offsetof(struct req, ratio), 0, false, 0, 0 },
	OBJ_FIELD(struct req, env, 2, false),
	ARR_FIELD(struct req, list, 3, false),
	ANY_FIELD(struct req, any, false),
};

TEST(fields)
{
	static const struct {
		const char *text, *message; /* NULL: accepted */
	} rows[] = {
		{ "{\"name\":\"a\"}", NULL },
		{ "{\"name\":\"a\",\"vcpu\":null,\"wait\":true,\"ratio\":1,\"env\":{},\"list\":[1,2,3],\"any\":7}", NULL },
		{ "{\"name\":\"a\",\"big\":9223372036854775807}", NULL },
		{ "{}", "name: is required" },
		{ "{\"name\":null}", "name: is required" },
		{ "{\"name\":1}", "name: a string of at most 8 bytes" },
		{ "{\"name\":\"123456789\"}", "name: a string of at most 8 bytes" },
		{ "{\"name\":\"a\",\"vcpu\":0}", "vcpu: a whole number from 1 to 32" },
		{ "{\"name\":\"a\",\"vcpu\":33}", "vcpu: a whole number from 1 to 32" },
		{ "{\"name\":\"a\",\"vcpu\":1.5}", "vcpu: a whole number from 1 to 32" },
		{ "{\"name\":\"a\",\"vcpu\":\"1\"}", "vcpu: a whole number from 1 to 32" },
		{ "{\"name\":\"a\",\"wait\":1}", "wait: true or false" },
		{ "{\"name\":\"a\",\"ratio\":\"x\"}", "ratio: a number" },
		{ "{\"name\":\"a\",\"env\":[]}", "env: an object of at most 2 members" },
		{ "{\"name\":\"a\",\"env\":{\"a\":1,\"b\":2,\"c\":3}}", "env: an object of at most 2 members" },
		{ "{\"name\":\"a\",\"list\":[1,2,3,4]}", "list: an array of at most 3 members" },
		{ "{\"name\":\"a\",\"nmae\":1}", "nmae: unknown field" },
		{ "{\"name\":\"a\",\"x\\ny\":1}", "x?y: unknown field" },
		{ "[]", "a JSON object is expected" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fail why = { 0 };
		struct req q = { .vcpu = 2 };
		autojson json_t *j = json_read(str_of(rows[i].text), &why);
		int r;

		test_row("%.60s", rows[i].text);
		if (!CHECK(j != NULL))
			continue;
		r = fields_read(j, fields, ARRAY_LEN(fields), &q, &why);
		CHECK_INT(r, rows[i].message ? -EINVAL : 0);
		CHECK_STR(why.msg, rows[i].message ? rows[i].message : "");
		if (r == 0) {
			CHECK_STR(q.name, "a");
			CHECK_INT(q.vcpu, 2);
			CHECK(q.wait == q.has_wait);
		}
	}
}

TEST(loose_fields_skip_the_unknown)
{
	struct req q = { 0 };
	autojson json_t *j = json_read(STR("{\"name\":\"a\",\"other\":[1]}"), NULL);

	CHECK_INT(fields_read_loose(j, fields, ARRAY_LEN(fields), &q, NULL), 0);
	CHECK_STR(q.name, "a");
}

TEST(bad_texts)
{
	static const char *const rows[] = { "", " ", "{", "{}x", "{\"a\":1,\"a\":2}", "{\"a\":\"\\u0000\"}", "[1,]",
		"{'a':1}", "\"\xff\"", "\"\xed\xa0\x80\"", "nul", "[1e999]", "18446744073709551616", "\"a\nb\"", "01",
		"{} {}", "// x\n1", "\xef\xbb\xbf{}" };
	char deep[80];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fail why = { 0 };

		test_row("%zu", i);
		CHECK(json_read(str_of(rows[i]), &why) == NULL);
		CHECK_INT(why.code, ERR_bad_json);
		CHECK(strstr(why.msg, "line") != NULL);
	}
	test_row(NULL);
	CHECK(json_read((struct str){ "1\0", 2 }, NULL) == NULL);
	/* json_read_text() takes an escaped NUL in a value, and nothing else that json_read() refuses. */
	{
		autojson json_t *j = json_read_text(STR("{\"a\":\"x\\u0000y\"}"), NULL);

		CHECK_INT(json_string_length(json_object_get(j, "a")), 3);
		CHECK(json_object_get(j, "a") && !memcmp(json_string_value(json_object_get(j, "a")), "x\0y", 3));
	}
	CHECK(json_read_text(STR("{\"\\u0000\":1}"), NULL) == NULL);
	CHECK(json_read_text(STR("{\"a\":1,\"a\":2}"), NULL) == NULL);
	CHECK(json_read_text((struct str){ "1\0", 2 }, NULL) == NULL);
	for (int n = 32; n <= 33; n++) {
		autojson json_t *j = NULL;

		memset(deep, '[', (size_t)n);
		memset(deep + n, ']', (size_t)n);
		j = json_read((struct str){ deep, 2 * (size_t)n }, NULL);
		CHECK((j != NULL) == (n == 32));
	}
	{
		autojson json_t *j = json_read(STR("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[ \\\" [[\""), NULL);

		CHECK(j != NULL);
	}
}

TEST(writer)
{
	autobuf struct buf b = { 0 };
	autojson json_t *given = json_read(STR("{\"k\":[1,2.5,null]}"), NULL);
	struct jw w;

	buf_init(&b, 4096);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "s", "a\"\\\n\t\x01\xc3\xa4\xff\x7f");
	jw_str(&w, "none", NULL);
	jw_arr(&w, "list");
	jw_int(&w, NULL, INT64_MIN);
	jw_num(&w, NULL, 1.5);
	jw_num(&w, NULL, 1.0 / 0.0);
	jw_obj(&w, NULL);
	jw_obj_end(&w);
	jw_bool(&w, NULL, true);
	jw_arr_end(&w);
	jw_time(&w, "t", 1767323045678000000);
	jw_time(&w, "t0", 0);
	jw_json(&w, "j", given);
	jw_json(&w, "j0", NULL);
	jw_base64(&w, "b", "foob", 4);
	jw_strn(&w, "cut", (struct str){ "abc", 2 });
	jw_obj_end(&w);
	CHECK_INT(w.err, 0);
	CHECK_STR(buf_str(&b), "{\"s\":\"a\\\"\\\\\\n\\t\\u0001\xc3\xa4\xef\xbf\xbd\x7f\",\"none\":null,"
			       "\"list\":[-9223372036854775808,1.500,null,{},true],\"t\":\"2026-01-02T03:04:05.678Z\","
			       "\"t0\":null,\"j\":{\"k\":[1,2.5,null]},\"j0\":null,\"b\":\"Zm9vYg==\",\"cut\":\"ab\"}");
}

TEST(writer_errors_stick)
{
	autobuf struct buf b = { 0 };
	struct jw w;

	buf_init(&b, 8);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "key", "value");
	jw_obj_end(&w);
	CHECK_INT(w.err, -ENOBUFS);
}

TEST(writer_of_failures)
{
	autobuf struct buf b = { 0 };
	struct fail f;
	struct jw w;

	buf_init(&b, 4096);
	jw_init(&w, &b);
	fail_as(&f, ERR_sandbox_not_found, "no sandbox %s", "ix");
	jw_obj(&w, NULL);
	jw_fail(&w, &f, "0123");
	jw_obj_end(&w);
	CHECK_STR(buf_str(&b), "{\"code\":\"sandbox_not_found\",\"message\":\"no sandbox ix\",\"remedy\":\"space ls\","
			       "\"request_id\":\"0123\"}");
}
