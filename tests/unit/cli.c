/* cli.c - the parts of `space` that need no daemon: options, places, escapes, quantities. */
#include <stdio.h>

#include "cli/attach.h"
#include "cli/create.h"
#include "cli/term.h"
#include "test.h"

struct got {
	bool flag, other;
	const char *text;
	int64_t number;
	struct opt_list list;
};

static const struct opt opts[] = {
	{ "flag", 'f', OPT_FLAG, offsetof(struct got, flag), NULL, "" },
	{ "other", 'o', OPT_FLAG, offsetof(struct got, other), NULL, "" },
	{ "text", 't', OPT_STR, offsetof(struct got, text), "TEXT", "" },
	{ "number", 0, OPT_INT, offsetof(struct got, number), "N", "" },
	{ "env", 'e', OPT_LIST, offsetof(struct got, list), "NAME=VALUE", "" },
};

/* LINE is split at spaces. */
static int parse(const char *line, int stop_after, struct got *g, char **argv, int *n, struct fail *why)
{
	static char copy[256];
	struct opt_table t = { opts, ARRAY_LEN(opts), g };
	int argc = 1;

	memset(g, 0, sizeof(*g));
	snprintf(copy, sizeof(copy), "%s", line);
	argv[0] = (char *)"cmd";
	for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
		argv[argc++] = w;
	return opt_parse(&t, 1, stop_after, argc, argv, n, why);
}

TEST(options_in_all_forms)
{
	static const struct {
		const char *line;
		int stop, words;
		bool flag, other;
		const char *text;
		int number;
		size_t list;
	} rows[] = {
		{ "", -1, 0, false, false, NULL, 0, 0 },
		{ "a b", -1, 2, false, false, NULL, 0, 0 },
		{ "-f a -o", -1, 1, true, true, NULL, 0, 0 },
		{ "-fo", -1, 0, true, true, NULL, 0, 0 },
		{ "-fot x", -1, 0, true, true, "x", 0, 0 },
		{ "-tx", -1, 0, false, false, "x", 0, 0 },
		{ "-t=x", -1, 0, false, false, "x", 0, 0 },
		{ "--text=x --number 7", -1, 0, false, false, "x", 7, 0 },
		{ "--text= a", -1, 1, false, false, "", 0, 0 },
		{ "-e a=1 --env=b=2 -e c", -1, 0, false, false, NULL, 0, 3 },
		{ "-- -f", -1, 1, false, false, NULL, 0, 0 },
		{ "a -- -f --", -1, 3, false, false, NULL, 0, 0 },
		/* after so many words the rest belongs to the command in the sandbox */
		{ "-f ls -o", 0, 2, true, false, NULL, 0, 0 },
		{ "-- ls -o", 0, 2, false, false, NULL, 0, 0 },
		{ "id -f ls -o", 1, 3, true, false, NULL, 0, 0 },
		{ "id -- -o", 1, 2, false, false, NULL, 0, 0 },
		{ "id ls -- x", 1, 4, false, false, NULL, 0, 0 },
		{ "-", -1, 1, false, false, NULL, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct got g;
		char *argv[32];
		int n = -1;

		test_row("\"%s\"", rows[i].line);
		CHECK_INT(parse(rows[i].line, rows[i].stop, &g, argv, &n, NULL), 0);
		CHECK_INT(n, rows[i].words);
		CHECK_INT(g.flag, rows[i].flag);
		CHECK_INT(g.other, rows[i].other);
		CHECK_STR(g.text ? g.text : "-", rows[i].text ? rows[i].text : "-");
		CHECK_INT(g.number, rows[i].number);
		CHECK_INT(g.list.n, rows[i].list);
	}
	test_row(NULL);
}

TEST(options_that_are_wrong)
{
	static const struct {
		const char *line, *says;
	} rows[] = {
		{ "--flg", "no option --flg; did you mean --flag?" },
		{ "--wholly-other", "no option --wholly-other" },
		{ "-x", "no option -x" },
		{ "-fx", "no option -x" },
		{ "--text", "--text needs a value: TEXT" },
		{ "-ft", "-t needs a value: TEXT" },
		{ "--flag=yes", "--flag takes no value" },
		{ "--number x", "--number: a whole number, not \"x\"" },
		{ "--number -1", "--number: a whole number, not \"-1\"" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct got g;
		char *argv[32];
		struct fail why = { 0 };
		int n;

		test_row("\"%s\"", rows[i].line);
		CHECK_INT(parse(rows[i].line, -1, &g, argv, &n, &why), -EINVAL);
		CHECK_STR(why.msg, rows[i].says);
	}
	test_row(NULL);
}

TEST(nearest_names)
{
	static const char *const names[] = { "create", "exec", "kill", "ls", "logs", "template" };
	static const struct {
		const char *word;
		int at;
	} rows[] = { { "craete", 0 }, { "exce", 1 }, { "kil", 2 }, { "sl", 3 }, { "temp", 5 }, { "frobnicate", -1 }, { "log", 4 } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s", rows[i].word);
		CHECK_INT(nearest_name(rows[i].word, names, ARRAY_LEN(names)), rows[i].at);
	}
	test_row(NULL);
}

TEST(places)
{
	static const struct {
		const char *url, *socket, *host;
		int port;
		bool tls;
		const char *prefix;
	} rows[] = {
		{ "/run/space/api.sock", "/run/space/api.sock", "", 0, false, "" },
		{ "unix:/a/b", "/a/b", "", 0, false, "" },
		{ "unix:///a/b", "/a/b", "", 0, false, "" },
		{ "http://h", "", "h", 7070, false, "" },
		{ "h:81", "", "h", 81, false, "" },
		{ "http://h:81/", "", "h", 81, false, "" },
		{ "https://h", "", "h", 443, true, "" },
		{ "https://h/a/b/", "", "h", 443, true, "/a/b" },
		{ "http://[::1]:9", "", "::1", 9, false, "" },
	};
	static const char *const bad[] = { "", "unix:", "unix:x", "http://", "http://h:0", "http://h:70000", "http://h:x", "http://[::1", "h h" };
	struct place p;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s", rows[i].url);
		CHECK_INT(place_parse(rows[i].url, &p, NULL), 0);
		CHECK_STR(p.socket, rows[i].socket);
		CHECK_STR(p.host, rows[i].host);
		CHECK_INT(p.port, rows[i].port);
		CHECK_INT(p.tls, rows[i].tls);
		CHECK_STR(p.prefix, rows[i].prefix);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		test_row("%s", bad[i]);
		CHECK_INT(place_parse(bad[i], &p, NULL), -EINVAL);
	}
	test_row(NULL);
}

TEST(escapes_at_the_beginning_of_a_line)
{
	static const struct {
		const char *in, *out;
		enum escape_what what;
	} rows[] = {
		{ "ls\r", "ls\r", ESCAPE_NONE },	{ "~.", "", ESCAPE_LEAVE },	   { "ls\r~.", "ls\r", ESCAPE_LEAVE },
		{ "ls ~.", "ls ~.", ESCAPE_NONE },	{ "~~.", "~.", ESCAPE_NONE },	   { "~?", "", ESCAPE_HELP },
		{ "~/x", "~/x", ESCAPE_NONE },		{ "a\n~~~", "a\n~~", ESCAPE_NONE },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct escape whole = { 0 }, bytes = { 0 };
		enum escape_what what = ESCAPE_NONE;
		char out[64], one[64];
		size_t n, used, m = 0;

		test_row("\"%s\"", rows[i].in);
		CHECK_INT(escape_scan(&whole, str_of(rows[i].in), out, &n, &used), rows[i].what);
		CHECK_STR(((struct str){ out, n }), rows[i].out);
		/* and when every key comes by itself */
		for (const char *p = rows[i].in; *p && what == ESCAPE_NONE; p++) {
			what = escape_scan(&bytes, (struct str){ p, 1 }, one + m, &n, &used);
			m += n;
		}
		CHECK_INT(what, rows[i].what);
		CHECK_STR(((struct str){ one, m }), rows[i].out);
	}
	test_row(NULL);
}

/* Output is any bytes: NUL among them, and none of it is left out. */
TEST(bytes_of_output)
{
	static const struct {
		const char *event;
		struct str bytes;
		int r;
	} rows[] = {
		{ "{\"data\":\"hi\\n\",\"offset\":0}", STR("hi\n"), 0 },
		{ "{\"data\":\"a\\u0000b\"}", STR("a\0b"), 0 },
		{ "{\"data\":\"\\u0000\"}", STR("\0"), 0 },
		{ "{\"data\":\"\"}", STR(""), 0 },
		{ "{\"base64\":\"/wD+Cg==\"}", STR("\xff\0\xfe\n"), 0 },
		{ "{\"base64\":\"?\"}", STR(""), -EBADMSG },
		{ "{\"base64\":7}", STR(""), -EBADMSG },
		{ "{\"data\":7}", STR(""), -EBADMSG },
		{ "{}", STR(""), -EBADMSG },
	};
	autofree char *raw = NULL;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		autojson json_t *data = json_read_text(str_of(rows[i].event), NULL);
		struct str got = { 0 };

		test_row("%s", rows[i].event);
		REQUIRE(data != NULL);
		CHECK_INT(chunk_bytes(data, &raw, &got), rows[i].r);
		if (rows[i].r < 0)
			continue;
		CHECK_INT(got.n, rows[i].bytes.n);
		CHECK(!memcmp(got.p, rows[i].bytes.p, MIN(got.n, rows[i].bytes.n)));
	}
	test_row(NULL);
}

TEST(quantities)
{
	char t[AGO_LEN];

	CHECK_STR(size_text(t, 0), "0 B");
	CHECK_STR(size_text(t, 1023), "1023 B");
	CHECK_STR(size_text(t, 512.0 * 1024 * 1024), "512M");
	CHECK_STR(size_text(t, 5.0 * 1024 * 1024 * 1024), "5G");
	CHECK_STR(size_text(t, 4.7 * 1024 * 1024 * 1024), "4.7G");
	CHECK_STR(span(t, 0.25), "250 ms");
	CHECK_STR(span(t, 119), "119 s");
	CHECK_STR(span(t, 300), "5 min");
	CHECK_STR(span(t, 299.9), "5 min");
	CHECK_STR(span(t, 119.7), "2 min");
	CHECK_STR(span(t, 0.9999), "1 s");
	CHECK_STR(span(t, 86400), "24 h");
	CHECK_STR(ago(t, "not a time"), "-");
	CHECK_STR(ago(t, NULL), "-");
	CHECK(str_ends(str_of(ago(t, "2020-01-01T00:00:00Z")), " days ago"));
}

TEST(paths_are_escaped)
{
	autofree char *a = api_path("/v1/sandboxes/%s/x", "a/b?c");
	autofree char *b = api_path("/f/%P?q=%q&n=%d", "home/user/a b%", "/x&y=z", 7);

	CHECK_STR(a, "/v1/sandboxes/a%2Fb%3Fc/x");
	CHECK_STR(b, "/f/home/user/a%20b%25?q=/x%26y%3Dz&n=7");
}

TEST(pairs)
{
	struct opt_list good = { 2, { "A=1", "B=x=y" } }, bad = { 1, { "=x" } };
	struct fail why = { 0 };
	autojson json_t *j = pairs_json(&good, "env", false, &why);

	REQUIRE(j != NULL);
	CHECK_STR(get_str(j, "A"), "1");
	CHECK_STR(get_str(j, "B"), "x=y");
	CHECK(pairs_json(&bad, "env", false, &why) == NULL);
	CHECK_STR(why.msg, "--env \"=x\": NAME=VALUE is expected");
	setenv("SPACE_TEST_VALUE", "7", 1);
	{
		struct opt_list from = { 1, { "SPACE_TEST_VALUE" } };
		autojson json_t *k = pairs_json(&from, "env", true, &why);

		CHECK_STR(get_str(k, "SPACE_TEST_VALUE"), "7");
	}
}

/* What a create asks for, by its options; or the sentence that refuses them. */
TEST(create_bodies)
{
	static const struct {
		struct create_o o;
		const char *says; /* the body, or the message */
		bool bad;
	} rows[] = {
		{ { .template = NULL }, "{}", false },
		{ { .template = "web", .timeout = "2h", .auto_wake = true }, "{\"template\":\"web\",\"timeout\":\"2h\",\"auto_wake\":true}", false },
		{ { .from = "n1" }, "{\"checkpoint\":\"n1\"}", false },
		{ { .from = "n1", .disk_only = true }, "{\"snapshot\":\"n1\"}", false },
		{ { .from = "n1", .disk = "8G" }, "{\"checkpoint\":\"n1\",\"disk\":\"8G\"}", false },
		{ { .on_timeout = "suspend" }, "{\"on_timeout\":\"suspend\"}", false },
		{ { .on_timeout = "kill" }, "{\"on_timeout\":\"kill\"}", false },
		{ { .on_timeout = "pause" }, "--on-timeout: kill or suspend, not \"pause\"", true },
		{ { .from = "n1", .template = "web" }, "--from and --template: one of both", true },
		{ { .disk_only = true }, "--disk-only goes with --from NODE; --disk SIZE is how large the disk is", true },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fail why = { 0 };
		autojson json_t *body = create_request(&rows[i].o, &why);
		autofree char *text = body ? json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;

		test_row("row %zu", i);
		CHECK_INT(!body, rows[i].bad);
		CHECK_STR(text ? text : why.msg, rows[i].says);
	}
	test_row(NULL);
}

TEST(branch_bodies)
{
	struct opt_list none = { 0 }, meta = { 1, { "try=7" } }, bad = { 1, { "x" } };
	static const struct {
		int64_t n;
		const char *label, *timeout, *says;
	} rows[] = {
		{ 1, NULL, NULL, "{\"count\":1}" },
		{ 10, NULL, NULL, "{\"count\":10}" },
		{ 2, "fan-out", "10m", "{\"count\":2,\"label\":\"fan-out\",\"timeout\":\"10m\"}" },
	};
	struct fail why = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		autojson json_t *body = branch_request(rows[i].n, rows[i].label, rows[i].timeout, &none, &why);
		autofree char *text = json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER);

		CHECK_STR(text, rows[i].says);
	}
	{
		autojson json_t *body = branch_request(1, NULL, NULL, &meta, &why);

		CHECK_STR(get_str(json_object_get(body, "metadata"), "try"), "7");
	}
	CHECK(branch_request(1, NULL, NULL, &bad, &why) == NULL);
	CHECK(branch_request(1, "\xff", NULL, &none, &why) == NULL);
	CHECK(branch_request(65, NULL, NULL, &none, &why) == NULL);
	CHECK(branch_request(0, NULL, NULL, &none, &why) == NULL);
	CHECK_STR(why.msg, "--count: a whole number from 1 to 64, not 0");
}

TEST(prune_bodies)
{
	static const struct {
		const char *older, *kind;
		bool dry;
		const char *says;
		bool bad;
	} rows[] = {
		{ "7d", NULL, false, "{\"older_than\":\"7d\",\"dry_run\":false}", false },
		{ "0", "snapshot", true, "{\"older_than\":\"0\",\"dry_run\":true,\"kinds\":[\"snapshot\"]}", false },
		{ "1h", "snapshot,checkpoint", false,
			"{\"older_than\":\"1h\",\"dry_run\":false,\"kinds\":[\"snapshot\",\"checkpoint\"]}", false },
		{ NULL, NULL, false, "--older-than TIME says which: space prune --older-than 7d (0: all that nothing needs)", true },
		{ "soon", NULL, false, "--older-than: a time such as 12h or 7d, not \"soon\"", true },
		{ "7d", "template", false, "--kind: checkpoint or snapshot, not \"template\"", true },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct opt_list kinds = { rows[i].kind ? 1 : 0, { rows[i].kind } };
		struct fail why = { 0 };
		autojson json_t *body = prune_request(rows[i].older, &kinds, rows[i].dry, &why);
		autofree char *text = body ? json_dumps(body, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;

		test_row("row %zu", i);
		CHECK_INT(!body, rows[i].bad);
		CHECK_STR(text ? text : why.msg, rows[i].says);
	}
	test_row(NULL);
}

/* What the API advises, in the words of who types commands. */
TEST(remedies)
{
	static const struct {
		enum errcode code;
		const char *remedy, *subject, *node, *says;
	} rows[] = {
		{ ERR_sandbox_not_running, "space wake ID", "web", NULL, "space wake web" },
		{ ERR_sandbox_not_running, "space wake ID", NULL, NULL, "space wake ID" },
		{ ERR_agent_unreachable, "space logs ID shows it; space kill ID ends it", "i1", NULL, "space logs i1 shows it; space kill i1 ends it" },
		{ ERR_no_capacity, "IDs, UUID, ID_X, ID-1, VOID, ID", "i1", NULL, "IDs, UUID, ID_X, ID-1, VOID, i1" },
		{ ERR_checkpoint_mismatch, "space create --from ID --disk-only", "i1", "c1", "space create --from c1 --disk-only" },
		{ ERR_checkpoint_mismatch, "space create --from ID --disk-only", "i1", NULL, "space create --from ID --disk-only" },
		{ ERR_bad_request, "see /openapi.json for what this call takes", NULL, NULL, "space help branch" },
		{ ERR_bad_request, "see the list", NULL, NULL, "see the list" },
		{ ERR_unauthorized, "space key create makes one; send it as Authorization: Bearer KEY", "i1", NULL,
			"space key create, on the host, makes one; give it as SPACE_API_KEY=KEY or keep it with space context add NAME URL --key KEY --use" },
		{ ERR_internal, "", "i1", NULL, "" },
	};
	char out[REMEDY_LEN];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct cli c = { .command = "branch", .subject = rows[i].subject, .node = rows[i].node };

		test_row("%s", rows[i].remedy);
		CHECK_STR(cli_remedy(&c, rows[i].code, rows[i].remedy, out), rows[i].says);
	}
	test_row(NULL);
	{
		/* An id of any length stays within the buffer. */
		struct cli c = { .subject = "0123456789012345678901234567890123456789012345678901234567890123456789" };

		CHECK(strlen(cli_remedy(&c, ERR_internal, "ID ID ID ID ID ID ID ID ID ID ID ID ID ID ID ID ID ID ID ID", out)) == REMEDY_LEN - 1);
	}
}
