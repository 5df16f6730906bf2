/* space.yaml: what is taken, what is refused and how it is told, and that what is printed reads back as the same. */
#include <fcntl.h>
#include <stdio.h>

#include "base/file.h"
#include "sandbox/config.h"
#include "test.h"

static int load(struct config *c, const char *text, struct fail *why)
{
	char path[] = "/tmp/space-test-config-XXXXXX";
	int fd = mkstemp(path), r;

	CHECK(fd >= 0);
	CHECK_INT(write_all(fd, text, strlen(text)), 0);
	close(fd);
	config_defaults(c);
	r = config_load(c, path, why);
	unlink(path);
	return r;
}

TEST(config_takes_every_key)
{
	struct fail why = { 0 };
	struct config c;

	CHECK_INT(load(&c,
		       "# a comment\nlisten: \"[::1]:7171\"\ntls:\n  cert: /etc/c.pem\n  key: /etc/k.pem\ndomain: sb.example\nlog_level: debug\n"
		       "log_format: json\nsocket_group: agents\naccel: tcg\novercommit: 2.25\nmemory_limit: 8G\npool_size: 100G\n"
		       "ready_monitors: 0\nready_slots: 9\nuid_base: 500000\nmax_sandboxes: 17\noutput_keep: 2M\n"
		       "defaults:\n  template: py\n  vcpu: 2\n  memory: 1G\n  disk: 10G\n  timeout: 10m\n  idle_timeout: 90\n  max_timeout: 1d\n",
		       &why), 0);
	CHECK_STR(why.msg, "");
	CHECK_STR(c.listen, "[::1]:7171");
	CHECK_STR(c.tls_cert, "/etc/c.pem");
	CHECK_STR(c.domain, "sb.example");
	CHECK_STR(c.accel, "tcg");
	CHECK(c.log_json);
	CHECK(c.overcommit > 2.24 && c.overcommit < 2.26);
	CHECK_INT(c.memory_limit, 8 * GIB);
	CHECK_INT(c.ready_monitors, 0);
	CHECK_INT(c.max_sandboxes, 17);
	CHECK_INT(c.output_keep, 2 * MIB);
	CHECK_STR(c.template, "py");
	CHECK_INT(c.vcpu, 2);
	CHECK_INT(c.memory, GIB);
	CHECK_INT(c.timeout_s, 600);
	CHECK_INT(c.idle_timeout_s, 90);
	CHECK_INT(c.max_timeout_s, 86400);
}

TEST(config_may_be_empty_or_absent)
{
	struct fail why = { 0 };
	struct config c;

	CHECK_INT(load(&c, "", &why), 0);
	CHECK_INT(load(&c, "# nothing\n", &why), 0);
	CHECK_INT(load(&c, "tls:\ndefaults:\n", &why), 0);
	CHECK_STR(c.template, "base");
	CHECK_INT(c.timeout_s, 300);
	CHECK_INT(config_load(&c, "/nonexistent/space.yaml", &why), -ENOENT);
	CHECK(strstr(why.msg, "/nonexistent/space.yaml"));
}

TEST(config_names_the_key_and_its_line)
{
	static const struct {
		const char *text, *key, *line;
	} rows[] = {
		{ "listen: 127.0.0.1:7070\nlisden: x\n", "unknown key \"lisden\"", "line 2" },
		{ "defaults:\n  vcpu: 1\n  vcpus: 2\n", "unknown key \"defaults.vcpus\"", "line 3" },
		{ "tls:\n  certificate: x\n", "tls.certificate", "line 2" },
		{ "vcpu: 1\n", "unknown key \"vcpu\"", "line 1" },
		{ "listen: 7070\n", "listen: ADDRESS:PORT", "line 1" },
		{ "listen: localhost:99999\n", "listen", "line 1" },
		{ "\n\nlog_level: loud\n", "log_level: one of error|warning|info|debug", "line 3" },
		{ "accel: xen\n", "accel: one of", "line 1" },
		{ "overcommit: lots\n", "overcommit: a number", "line 1" },
		{ "overcommit: 99\n", "overcommit: from 0.1 to 16", "line 1" },
		{ "overcommit: nan\n", "overcommit: from", "line 1" },
		{ "memory_limit: 12X\n", "memory_limit: a size", "line 1" },
		{ "max_sandboxes: 0\n", "max_sandboxes: from 1 to 2000", "line 1" },
		{ "max_sandboxes: -3\n", "max_sandboxes: a whole number", "line 1" },
		{ "ready_slots: [1]\n", "ready_slots: takes one value", "line 1" },
		{ "ready_slots: 1\nready_slots: 2\n", "ready_slots: given twice", "line 2" },
		{ "retention: soon\n", "retention: a duration", "line 1" },
		{ "retention: [1]\n", "retention: takes one value", "line 1" },
		{ "retention:\n  a: 1d\n  a: 2d\n", "retention.a: given twice", "line 3" },
		{ "retention: {default: 1d, default: 2d}\n", "retention.default: given twice", "line 1" },
		{ "retention: {A B: 1d}\n", "retention: \"default\", or the name", "line 1" },
		{ "retention: {a: {b: 1}}\n", "retention.a: takes one value", "line 1" },
		{ "retention: 1d\nretention: {a: 2d}\n", "retention: given twice", "line 2" },
		{ "defaults: 5\n", "defaults: takes a mapping", "line 1" },
		{ "defaults:\n  timeout: soon\n", "timeout: a duration", "line 2" },
		{ "defaults:\n  template: \"Not A Name\"\n", "template: a name", "line 2" },
		{ "- a\n- b\n", "has to be a mapping", "line 1" },
		{ "just text\n", "has to be a mapping", "line 1" },
		{ "a: &x 1\nb: *x\n", "unknown key \"a\"", "line 1" },
		{ "listen: 'unclosed\n", "not valid YAML", "line" },
		{ "domain: \"a\\tb\"\n", "domain: at most", "line 1" },
		{ "? [a, b]\n: c\n", "a key has to be a plain word", "line 1" },
		{ "tls:\n  cert: /x\n", "tls: needs both", "" },
		{ "defaults:\n  memory: 513M\n", "defaults.memory: a multiple of 2M", "" },
		{ "defaults:\n  timeout: 2h\n  max_timeout: 1h\n", "defaults.timeout is longer", "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fail why = { 0 };
		struct config c, untouched;

		test_row("row %zu: %s -> %s", i, rows[i].text, why.msg);
		config_defaults(&untouched);
		CHECK(load(&c, rows[i].text, &why) < 0);
		CHECK(strstr(why.msg, rows[i].key));
		CHECK(strstr(why.msg, rows[i].line));
		CHECK(why.remedy[0]);
		CHECK_STR(c.listen, untouched.listen);
		if (!strstr(why.msg, rows[i].key))
			printf("  got: %s\n", why.msg);
	}
	test_row(NULL);
}

TEST(config_retention_for_all_or_by_tenant)
{
	static const struct {
		const char *text;
		int64_t others, team;
	} rows[] = {
		{ "", 0, 0 },
		{ "retention: 30d\n", 30 * 86400, 30 * 86400 },
		{ "retention: {default: 30d, team: 7d}\n", 30 * 86400, 7 * 86400 },
		{ "retention:\n  team: 12h\nlog_level: info\n", 0, 12 * 3600 },
		{ "retention:\n  team: 0\n  default: 60\n", 60, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fail why = { 0 };
		struct config c, again;
		struct buf out;
		char *text;

		test_row("row %zu: %s", i, rows[i].text);
		CHECK_INT(load(&c, rows[i].text, &why), 0);
		CHECK_STR(why.msg, "");
		CHECK_INT(config_retention(&c, "default"), rows[i].others);
		CHECK_INT(config_retention(&c, "other"), rows[i].others);
		CHECK_INT(config_retention(&c, "team"), rows[i].team);
		buf_init(&out, 64 * KIB);
		CHECK_INT(config_print(&c, &out), 0);
		text = str_dup(buf_str(&out));
		CHECK_INT(load(&again, text, &why), 0);
		CHECK_INT(config_retention(&again, "other"), rows[i].others);
		CHECK_INT(config_retention(&again, "team"), rows[i].team);
		free(text);
		buf_clear(&out);
		CHECK_INT(config_json(&c, &out), 0);
		CHECK_INT(memmem(out.p, out.n, "\"team\":", 7) != NULL, i > 1);
		buf_clear(&out);
	}
	test_row(NULL);
}

TEST(config_prints_what_it_reads)
{
	struct fail why = { 0 };
	struct config a, b;
	struct buf out, again;
	char *text;

	CHECK_INT(load(&a, "domain: 'a\"b\\c'\nmemory_limit: 12345\novercommit: 1.25\ndefaults: {timeout: 90, disk: 6G}\n", &why), 0);
	buf_init(&out, 64 * KIB);
	buf_init(&again, 64 * KIB);
	CHECK_INT(config_print(&a, &out), 0);
	text = str_dup(buf_str(&out));
	CHECK_INT(load(&b, text, &why), 0);
	CHECK_STR(why.msg, "");
	memcpy(b.config_file, a.config_file, sizeof(b.config_file));
	CHECK_INT(config_print(&b, &again), 0);
	CHECK_STR(buf_str(&out), buf_str(&again));
	CHECK(strstr(text, "\nlisten: \"127.0.0.1:7070\"\n"));
	CHECK(strstr(text, "  memory: 512M\n"));
	buf_clear(&again);
	CHECK_INT(config_json(&a, &again), 0);
	CHECK(memmem(again.p, again.n, "\"defaults\":{", 12));
	free(text);
	buf_clear(&out);
	buf_clear(&again);
}
