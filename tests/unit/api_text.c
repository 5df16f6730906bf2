/* Frames of the Connect protocol cut anywhere, characters cut anywhere, ids of a command's events, names of signals. */
#include <stdio.h>

#include "api/command.h"
#include "api/connect.h"
#include "api/proxy.h"
#include "test.h"

/* --- text out of bytes --- */

TEST(utf8_tail_holds_back_what_may_still_become_a_character)
{
	static const struct { struct str s; size_t tail; } rows[] = {
		{ STR(""), 0 }, { STR("a"), 0 }, { STR("\xc3"), 1 }, { STR("\xc3\xa9"), 0 }, { STR("\xe2\x82"), 2 },
		{ STR("\xe2\x82\xac"), 0 }, { STR("x\xf0\x9f\x98"), 3 }, { STR("\xf0\x9f\x98\x80"), 0 },
		{ STR("\xff"), 0 }, { STR("\x80"), 0 }, { STR("\x80\x80\x80"), 0 }, { STR("\xc0"), 0 }, { STR("\xf5"), 0 },
		{ STR("\xe0\x80"), 0 }, { STR("\xed\xa0"), 0 }, { STR("\xf4\x90"), 0 }, { STR("\xf4\x8f"), 2 },
		{ STR("\xc3\xa9\xe2"), 1 }, { STR("\xe2\xe2"), 1 }, { STR("\xf0\x9f\x98z"), 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("row %zu", i);
		CHECK_INT(utf8_tail(rows[i].s), rows[i].tail);
	}
	test_row(NULL);
}

/* Everything that goes in comes out, in order, whatever the cuts; and all of it as text when it is text. */
static void through(struct str all, size_t cut, bool is_text)
{
	struct text_hold h = { 0 };
	char out[256];
	size_t n = 0, at;

	for (at = 0; at < all.n; at += cut) {
		struct str piece = { all.p + at, MIN(cut, all.n - at) }, body;
		char head[4];
		size_t head_n;
		bool text;

		text_take(&h, piece, head, &head_n, &body, &text);
		memcpy(out + n, head, head_n);
		memcpy(out + n + head_n, body.p, body.n);
		if (text)
			CHECK(str_is_utf8((struct str){ out + n, head_n + body.n }));
		if (is_text)
			CHECK(text);
		n += head_n + body.n;
		CHECK(h.n <= 3);
	}
	if (is_text)
		CHECK_INT(h.n, 0);
	memcpy(out + n, h.held, h.n);
	n += h.n;
	CHECK_STR(((struct str){ out, n }), all);
}

TEST(no_byte_is_lost_and_text_stays_text_however_it_is_cut)
{
	static const struct { struct str s; bool text; } rows[] = {
		{ STR("plain"), true },
		{ STR("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\xf0\x9f\x98\x80 end"), true },
		{ STR("\xff\xfe\x00\x0a\x80\x81\xe2\x82"), false },
		{ STR("a\xe2\x82z\xf0\x9f\x98\x80\xf0\x9f"), false },
		{ STR("\xf0\xf0\xf0\xf0\xe2\xe2\xc3\xc3"), false },
	};
	size_t i, cut;

	for (i = 0; i < ARRAY_LEN(rows); i++)
		for (cut = 1; cut <= rows[i].s.n; cut++) {
			test_row("row %zu cut %zu", i, cut);
			through(rows[i].s, cut, rows[i].text);
		}
	test_row(NULL);
}

/* --- frames --- */

struct got {
	char text[256];
	size_t n;
	unsigned frames, ends;
	int stop_after;
};

static int on_frame(uint8_t flags, struct str payload, void *arg)
{
	struct got *g = arg;

	memcpy(g->text + g->n, payload.p, payload.n);
	g->n += payload.n;
	g->text[g->n++] = '|';
	g->frames++;
	if (flags & 2)
		g->ends++;
	return g->stop_after && (int)g->frames == g->stop_after ? 7 : 0;
}

TEST(frames_come_out_whole_however_they_are_cut)
{
	static const char bytes[] = "\0\0\0\0\3abc\0\0\0\0\0\0\0\0\0\1x\2\0\0\0\2{}";
	struct str all = { bytes, sizeof(bytes) - 1 };
	size_t cut;

	for (cut = 1; cut <= all.n; cut++) {
		struct connect_reader c;
		struct got g = { .n = 0 };
		size_t at;

		test_row("cut %zu", cut);
		connect_reader_init(&c);
		for (at = 0; at < all.n; at += cut)
			CHECK_INT(connect_feed(&c, all.p + at, MIN(cut, all.n - at), on_frame, &g), 0);
		CHECK_STR(((struct str){ g.text, g.n }), STR("abc||x|{}|"));
		CHECK_INT(g.frames, 4);
		CHECK_INT(g.ends, 1);
		CHECK(!connect_mid_frame(&c));
		CHECK(!c.in.p);
		connect_reader_clear(&c);
	}
	test_row(NULL);
}

TEST(a_frame_that_is_compressed_or_too_large_is_refused)
{
	struct connect_reader c;
	struct got g = { .n = 0 };

	connect_reader_init(&c);
	CHECK_INT(connect_feed(&c, "\1\0\0\0\1x", 6, on_frame, &g), -EBADMSG);
	CHECK_INT(connect_feed(&c, "\0\xff\xff\xff\xff", 5, on_frame, &g), -EFBIG);
	connect_reader_clear(&c);
	connect_reader_init(&c);
	CHECK_INT(connect_feed(&c, "\0\xff", 2, on_frame, &g), 0);
	CHECK(connect_mid_frame(&c));
	CHECK_INT(connect_feed(&c, "\xff\xff\xff", 3, on_frame, &g), -EFBIG);
	connect_reader_clear(&c);
	CHECK_INT(g.frames, 0);
}

TEST(whoever_reads_frames_may_stop)
{
	struct connect_reader c;
	struct got g = { .stop_after = 1 };

	connect_reader_init(&c);
	CHECK_INT(connect_feed(&c, "\0\0\0\0\1a\0\0\0\0\1b", 12, on_frame, &g), 7);
	CHECK_INT(g.frames, 1);
	connect_reader_clear(&c);
}

/* --- ids and signals --- */

TEST(the_id_of_an_event_says_where_to_go_on)
{
	static const struct { const char *id; int err; uint64_t out, errs; } rows[] = {
		{ "0-0", 0, 0, 0 }, { "6-4", 0, 6, 4 }, { "9223372036854775807-1", 0, INT64_MAX, 1 }, { "6", -EINVAL, 0, 0 },
		{ "-6-4", -EINVAL, 0, 0 }, { "6-", -EINVAL, 0, 0 }, { "a-b", -EINVAL, 0, 0 }, { "", -EINVAL, 0, 0 },
		{ "99999999999999999999-0", -EINVAL, 0, 0 }, { "1-2-3", -EINVAL, 0, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t out = 0, err = 0;

		test_row("%s", rows[i].id);
		CHECK_INT(command_id_parse(str_of(rows[i].id), &out, &err), rows[i].err);
		if (!rows[i].err) {
			CHECK_INT(out, rows[i].out);
			CHECK_INT(err, rows[i].errs);
		}
	}
	test_row(NULL);
}

TEST(an_exit_is_told_in_our_words)
{
	static const struct { const char *in, *out; } rows[] = {
		{ "{\"exited\":true,\"status\":\"exit status 0\"}", "{\"code\":0,\"signal\":null,\"reason\":\"exited\"}" },
		{ "{\"exitCode\":3,\"exited\":true,\"reason\":\"exited\"}", "{\"code\":3,\"signal\":null,\"reason\":\"exited\"}" },
		{ "{\"exitCode\":-1,\"status\":\"signal: killed\",\"reason\":\"deadline\"}",
		  "{\"code\":137,\"signal\":\"SIGKILL\",\"reason\":\"deadline\"}" },
		{ "{\"exitCode\":-1,\"status\":\"signal: segmentation fault (core dumped)\"}",
		  "{\"code\":139,\"signal\":\"SIGSEGV\",\"reason\":\"signaled\"}" },
		{ "{\"exitCode\":-1,\"signal\":15}", "{\"code\":143,\"signal\":\"SIGTERM\",\"reason\":\"signaled\"}" },
		{ "{\"exitCode\":-1,\"signal\":\"SIGHUP\"}", "{\"code\":129,\"signal\":\"SIGHUP\",\"reason\":\"signaled\"}" },
		{ "{\"exitCode\":-1,\"signal\":40}", "{\"code\":168,\"signal\":\"40\",\"reason\":\"signaled\"}" },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct fail why = { 0 };
		autojson json_t *j = json_read(str_of(rows[i].in), &why);
		autobuf struct buf b;
		struct jw w;

		test_row("%s", rows[i].in);
		buf_init(&b, 1024);
		jw_init(&w, &b);
		command_exit_json(&w, NULL, j);
		CHECK_STR(buf_str(&b), rows[i].out);
	}
	test_row(NULL);
	CHECK_INT(signal_number("TERM"), 15);
	CHECK_INT(signal_number("SIGKILL"), 9);
	CHECK_INT(signal_number("NOPE"), 0);
	CHECK_INT(signal_number(""), 0);
}

/* --- hosts --- */

TEST(a_host_name_leads_to_a_port_of_a_sandbox)
{
	static const struct { const char *host; bool ok; int port; const char *id; } rows[] = {
		{ "3000-iabcdefghij0123456789.localhost", true, 3000, "iabcdefghij0123456789" },
		{ "3000-iabcdefghij0123456789.LOCALHOST:7070", true, 3000, "iabcdefghij0123456789" },
		{ "1-iabcdefghij0123456789-more.localhost", true, 1, "iabcdefghij0123456789" },
		{ "0-iabcdefghij0123456789.localhost", false, 0, "" },
		{ "70000-iabcdefghij0123456789.localhost", false, 0, "" },
		{ "3000-iabcdefghij0123456789.example.com", false, 0, "" },
		{ "3000-iabcdefghij0123456789", false, 0, "" },
		{ "3000-Iabcdefghij0123456789.localhost", false, 0, "" },
		{ "3000-short.localhost", false, 0, "" },
		{ "localhost", false, 0, "" }, { "[::1]:7070", false, 0, "" }, { "127.0.0.1:7070", false, 0, "" }, { "", false, 0, "" },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct str id;
		int port;
		bool ok;

		test_row("%s", rows[i].host);
		ok = proxy_host_parse(str_of(rows[i].host), "localhost", &port, &id);
		CHECK_INT(ok, rows[i].ok);
		if (ok && rows[i].ok) {
			CHECK_INT(port, rows[i].port);
			CHECK_STR(id, rows[i].id);
		}
	}
	test_row(NULL);
}

TEST(the_agents_control_calls_are_not_for_everybody)
{
	static const char *const yes[] = { "/health", "/files", "/process.Process/Start", "/filesystem.Filesystem/Stat" };
	static const char *const no[] = { "/init", "/freeze", "/space/kill", "/space/shutdown", "//init", "/%69nit", "/files/../init",
		"/process.Process", "/process.Process/../init", "/process.Process//x", "/", "", "/Init", "/space", "/health/../init", "/filesX" };
	size_t i;

	for (i = 0; i < ARRAY_LEN(yes); i++)
		CHECK(proxy_agent_path(str_of(yes[i])));
	for (i = 0; i < ARRAY_LEN(no); i++) {
		test_row("%s", no[i]);
		CHECK(!proxy_agent_path(str_of(no[i])));
	}
	test_row(NULL);
}
