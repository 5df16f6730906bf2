/* cmd_logs.c - logs, events, watch, stats: what a sandbox does, as it does it. */
#include "base/clock.h"
#include "cli/cli.h"

/* --- logs --- */
static struct {
	const char *tail;
	bool follow, raw;
} logs_o;

static const struct opt logs_opts[] = {
	{ "follow", 'f', OPT_FLAG, offsetof(__typeof__(logs_o), follow), NULL, "go on printing what comes" },
	{ "tail", 0, OPT_STR, offsetof(__typeof__(logs_o), tail), "SIZE", "only the last so many bytes (64K)" },
	{ "raw", 0, OPT_FLAG, offsetof(__typeof__(logs_o), raw), NULL, "control bytes too, on a terminal" },
};

/* The guest writes what it likes to its console; a terminal gets its text, not its escapes. */
static void put_console(struct cli *c, struct str s)
{
	if (!c->out_tty || logs_o.raw) {
		fwrite(s.p, 1, s.n, stdout);
		return;
	}
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '\r')
			continue;
		if (s.p[i] == '\033') { /* ESC [ … letter */
			i += i + 1 < s.n && s.p[i + 1] == '[';
			while (i + 1 < s.n && (s.p[i + 1] < '@' || s.p[i + 1] > '~'))
				i++;
			i++;
			continue;
		}
		if (s.p[i] == '\n' || s.p[i] == '\t')
			putchar(s.p[i]);
		else
			put_safe(stdout, (struct str){ s.p + i, 1 });
	}
}

/* What of NOW comes after OLD. The log is the console's last MiB: its beginning moves on. */
static struct str logs_new(struct str old, struct str now)
{
	size_t key = MIN(old.n, (size_t)512);

	if (old.n <= now.n && (!old.n || !memcmp(old.p, now.p, old.n)))
		return (struct str){ now.p + old.n, now.n - old.n };
	for (size_t at = now.n; at >= key; at--)
		if (!memcmp(now.p + at - key, old.p + old.n - key, key))
			return (struct str){ now.p + at, now.n - at };
	return now;
}

static int logs_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = NULL;
	autojson json_t *last = NULL;
	struct fail why = { 0 };
	uint64_t tail = 0;

	if (logs_o.tail && str_size(str_of(logs_o.tail), &tail) < 0)
		return cli_usage(c, "logs: --tail \"%s\": a size, such as 64K", logs_o.tail);
	path = tail ? api_path("/v1/sandboxes/%s/logs?tail=%d", argv[0], (int)MIN(tail, 1 << 30)) :
		      api_path("/v1/sandboxes/%s/logs", argv[0]);
	for (;;) {
		autojson json_t *text = NULL;
		struct str now, part;

		if (api_call_opts(c, "GET", path, NULL, &(struct api_opts){ .text = true }, &text, &why) < 0) {
			/* A sandbox that ends, or a daemon that is started again, is no failure of following. */
			if (!last || !(why.code == ERR_daemon_down))
				return last ? EXIT_OK : cli_fail(c, &why);
		} else {
			now = (struct str){ json_string_value(text), json_string_length(text) };
			part = last ? logs_new((struct str){ json_string_value(last), json_string_length(last) }, now) : now;
			put_console(c, part);
			fflush(stdout);
			json_decref(last);
			last = json_incref(text);
		}
		if (!logs_o.follow || ferror(stdout))
			return EXIT_OK;
		cli_sleep(c, 500);
	}
}

const struct command command_logs = {
	.name = "logs",
	.args = "ID",
	.brief = "Print the console of a sandbox: its kernel and what is written to /dev/console",
	.examples = "  space logs $id\n  space logs -f --tail 4K $id",
	.run = logs_run,
	OPTS(logs_opts, logs_o),
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

/* --- events --- */
static struct {
	const char *after;
	bool follow;
} events_o;

static const struct opt events_opts[] = {
	{ "follow", 'f', OPT_FLAG, offsetof(__typeof__(events_o), follow), NULL, "go on with those that come" },
	{ "after", 0, OPT_STR, offsetof(__typeof__(events_o), after), "SEQ", "only those after this number" },
};

/* What a value is for a person: of a thing with an id that, and its kind. For the caller to free. */
static char *event_value(const json_t *v)
{
	char *text = NULL;

	if (json_is_string(v))
		return strdup(json_string_value(v));
	if (!*get_str(v, "id"))
		return json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	return asprintf(&text, "%s%s%s", get_str(v, "id"), *get_str(v, "kind") ? " kind=" : "", get_str(v, "kind")) < 0 ? NULL : text;
}

static void event_print(struct cli *c, json_t *e)
{
	static const char *const own[] = { "seq", "at", "sandbox", "type", "tenant" };
	const char *key;
	json_t *v;

	if (c->json) {
		json_dumpf(e, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
		putchar('\n');
		fflush(stdout);
		return;
	}
	printf("%-8.0f %.19s  %-21s  ", get_num(e, "seq"), get_str(e, "at"), get_str(e, "sandbox"));
	put_safe(stdout, str_of(get_str(e, "type")));
	json_object_foreach(e, key, v) {
		autofree char *text = NULL;
		bool skip = json_is_null(v);

		for (size_t i = 0; i < ARRAY_LEN(own); i++)
			skip = skip || !strcmp(key, own[i]);
		if (skip)
			continue;
		text = event_value(v);
		printf(" ");
		put_safe(stdout, str_of(key));
		printf("=");
		put_safe(stdout, str_of(text));
	}
	putchar('\n');
	fflush(stdout);
}

static int on_log_event(struct str id, struct str event, json_t *data, void *arg)
{
	if (json_is_object(data))
		event_print(arg, data);
	return ferror(stdout) != 0;
}

static int events_run(struct cli *c, int argc, char **argv)
{
	autofree char *base = argc ? api_path("/v1/sandboxes/%s/events", argv[0]) : strdup("/v1/events");
	autofree char *query = events_o.after ? api_path("?after=%q", events_o.after) : strdup("");
	autofree char *target = NULL;
	autojson json_t *list = NULL;
	struct fail why = { 0 };
	json_t *e;
	size_t i;

	if (!base || !query || asprintf(&target, "%s%s", base, query) < 0)
		return EXIT_FAILED;
	if (events_o.follow)
		return api_follow(c, target, on_log_event, c, &why) < 0 ? cli_fail(c, &why) : EXIT_OK;
	if (api_list(c, target, "events", &list, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, list);
		return EXIT_OK;
	}
	json_array_foreach(list, i, e)
		event_print(c, e);
	return EXIT_OK;
}

const struct command command_events = {
	.name = "events",
	.args = "[ID]",
	.brief = "Print what happened to a sandbox, or to all",
	.examples = "  space events $id\n  space events -f --json | jq -r .type",
	.run = events_run,
	OPTS(events_opts, events_o),
	.stop_after = -1,
	.max = 1,
};

/* --- watch --- */
static struct {
	bool recursive;
} watch_o;

static const struct opt watch_opts[] = {
	{ "recursive", 'r', OPT_FLAG, offsetof(__typeof__(watch_o), recursive), NULL, "directories below it too" },
};

static int on_watch_event(struct str id, struct str event, json_t *data, void *arg)
{
	struct cli *c = arg;

	if (c->json) {
		autojson json_t *line = json_pack("{s:s%}", "event", event.p ? event.p : "", event.n);

		json_object_update_missing(line, data);
		json_print(c, line);
	} else if (str_eqz(event, "start")) {
		cli_note(c, "watching %s", get_str(data, "path"));
	} else {
		printf("%-7.*s ", STR_ARG(event));
		put_safe(stdout, str_of(*get_str(data, "name") ? get_str(data, "name") : get_str(data, "path")));
		putchar('\n');
		fflush(stdout);
	}
	return ferror(stdout) != 0;
}

static int watch_run(struct cli *c, int argc, char **argv)
{
	autofree char *target = api_path(watch_o.recursive ? "/v1/sandboxes/%s/watch?path=%q&recursive=1" :
							     "/v1/sandboxes/%s/watch?path=%q",
		argv[0], argv[1]);
	struct fail why = { 0 };

	return api_follow(c, target, on_watch_event, c, &why) < 0 ? cli_fail(c, &why) : EXIT_OK;
}

const struct command command_watch = {
	.name = "watch",
	.args = "ID PATH",
	.brief = "Print changes below a directory of a sandbox, until Ctrl-C",
	.examples = "  space watch -r $id /home/user",
	.run = watch_run,
	OPTS(watch_opts, watch_o),
	.stop_after = -1,
	.min = 2,
	.max = 2,
};

/* --- stats --- */
static struct {
	bool follow;
} stats_o;

static const struct opt stats_opts[] = {
	{ "follow", 'f', OPT_FLAG, offsetof(__typeof__(stats_o), follow), NULL, "again every two seconds" },
};

static void stats_row(struct table *t, const char *id, const json_t *m)
{
	char used[AGO_LEN], total[AGO_LEN];

	table_cell(t, "%s", id);
	table_cell(t, "%.1f %%", get_num(m, "cpu_used_pct"));
	table_cell(t, "%s of %s", size_text(used, get_num(m, "mem_used")), size_text(total, get_num(m, "mem_total")));
	table_cell(t, "%s of %s", size_text(used, get_num(m, "disk_used")), size_text(total, get_num(m, "disk_total")));
	table_cell(t, "%s", size_text(used, get_num(m, "host_private")));
	table_cell(t, "%.1f s", get_num(m, "host_cpu_s"));
}

static int stats_once(struct cli *c, int argc, char **argv)
{
	static const char *const heads[] = { "ID", ">CPU", ">MEMORY", ">DISK", ">HOST MEMORY", ">HOST CPU", NULL };
	autojson json_t *list = json_array(), *all = json_object();
	struct table *t = NULL;
	struct fail why = { 0 };
	int status = EXIT_OK;

	for (int i = 0; i < argc; i++)
		json_array_append_new(list, json_pack("{s:s}", "id", argv[i]));
	if (!argc) {
		json_decref(list);
		list = NULL;
		if (api_list(c, "/v1/sandboxes?state=running", "sandboxes", &list, &why) < 0)
			return cli_fail(c, &why);
	}
	if (!c->json)
		t = table_new(c, heads);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *id = get_str(json_array_get(list, i), "id");
		autofree char *path = api_path("/v1/sandboxes/%s/metrics", id);
		autojson json_t *m = NULL;

		if (api_call(c, "GET", path, NULL, &m, &why) < 0) {
			/* One that ended between the list and here is none of ours. */
			if (argc || (why.code != ERR_sandbox_gone && why.code != ERR_sandbox_not_found))
				status = cli_fail(c, &why);
			continue;
		}
		json_object_set(all, id, m);
		if (t)
			stats_row(t, id, m);
	}
	if (!t) {
		json_print(c, argc == 1 && status == EXIT_OK ? json_object_get(all, argv[0]) : all);
	} else {
		if (stats_o.follow && c->out_tty)
			fputs("\033[H\033[J", stdout);
		table_print(t);
	}
	return status;
}

static int stats_run(struct cli *c, int argc, char **argv)
{
	int status;

	for (;;) {
		status = stats_once(c, argc, argv);
		if (!stats_o.follow || status != EXIT_OK || ferror(stdout))
			return status;
		cli_sleep(c, 2000);
	}
}

const struct command command_stats = {
	.name = "stats",
	.alias = "metrics",
	.args = "[ID…]",
	.brief = "Show what sandboxes use: CPU, memory, disk, inside and on the host",
	.examples = "  space stats -f\n  space stats --json $id",
	.run = stats_run,
	OPTS(stats_opts, stats_o),
	.stop_after = -1,
	.max = -1,
};
