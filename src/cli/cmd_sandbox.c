/* cmd_sandbox.c - create, ls, show, kill, timeout, ps, signal. */
#include <stdarg.h>
#include <strings.h>

#include "cli/create.h"

char *sandbox_path(const char *id, const char *what)
{
	autofree char *base = api_path("/v1/sandboxes/%s", id);
	char *out = NULL;

	return base && asprintf(&out, "%s%s", base, what) >= 0 ? out : NULL;
}

int each_sandbox(struct cli *c, const char *method, const char *suffix, const char *doing, int argc, char **argv)
{
	autojson json_t *all = json_array();
	int status = EXIT_OK;

	for (int i = 0; i < argc; i++) {
		autofree char *path = sandbox_path(argv[i], suffix);
		autojson json_t *sb = NULL;
		struct fail why = { 0 };

		c->subject = argv[i];
		if (api_call_shown(c, doing, argv[i], method, path, NULL, &sb, &why) < 0) {
			if (argc > 1 && !strstr(why.msg, argv[i]))
				fail_prefix(&why, "%.100s", argv[i]);
			status = cli_fail(c, &why);
			continue;
		}
		if (c->json)
			json_array_append(all, sb);
		else
			printf("%s %s\n", get_str(sb, "id"), get_str(sb, "state"));
	}
	if (c->json)
		json_print(c, argc == 1 && json_array_size(all) == 1 ? json_array_get(all, 0) : all);
	return status;
}

/* --- create --- */
static struct {
	struct create_o create;
	bool quiet;
} create_o;

static const struct opt create_opts[] = {
	CREATE_OPTS(__typeof__(create_o), create),
	{ "quiet", 'q', OPT_FLAG, offsetof(__typeof__(create_o), quiet), NULL, "print the id and nothing else" },
};

static int create_run(struct cli *c, int argc, char **argv)
{
	struct fail why = { 0 };
	autojson json_t *sb = NULL;
	json_t *body = create_request(&create_o.create, &why);
	char ends[AGO_LEN];

	if (!body)
		return cli_usage(c, "create: %s", why.msg);
	c->node = create_o.create.from;
	if (sandbox_create(c, body, &sb, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, sb);
	} else if (create_o.quiet) {
		printf("%s\n", get_str(sb, "id"));
	} else {
		double ms = get_num(json_object_get(sb, "phases"), "total");

		printf("%s\n", get_str(sb, "id"));
		cli_note(c, "%s from %s in %.0f ms (%s), ends %s", get_str(sb, "state"),
			create_o.create.from ? create_o.create.from : get_str(sb, "template"), ms,
			get_str(sb, "isolation"), json_is_string(json_object_get(sb, "deadline_at")) ?
							  ago(ends, get_str(sb, "deadline_at")) : "never");
	}
	return EXIT_OK;
}

const struct command command_create = {
	.name = "create",
	.brief = "Create a sandbox and print its id",
	.examples = "  id=$(space create -q)\n"
		    "  space create --timeout 2h --memory 1G --meta job=42\n"
		    "  space create --from $checkpoint --timeout 1h --on-timeout suspend --auto-wake\n"
		    "  space create --read-only --tmpfs /work:256M",
	.run = create_run,
	OPTS(create_opts, create_o),
	.stop_after = -1,
};

/* --- ls --- */
static struct {
	const char *state;
	struct opt_list meta;
	bool all, quiet;
} ls_o;

static const struct opt ls_opts[] = {
	{ "all", 'a', OPT_FLAG, offsetof(__typeof__(ls_o), all), NULL, "those that have ended too" },
	{ "state", 's', OPT_STR, offsetof(__typeof__(ls_o), state), "STATE[,…]", "only those in these states" },
	{ "meta", 'm', OPT_LIST, offsetof(__typeof__(ls_o), meta), "KEY=VALUE", "only those with this label" },
	{ "quiet", 'q', OPT_FLAG, offsetof(__typeof__(ls_o), quiet), NULL, "ids only" },
};

static int ls_target(struct buf *b, struct fail *why)
{
	int r = buf_addf(b, "/v1/sandboxes?%s", ls_o.all ? "all=1&" : "");

	if (r == 0 && ls_o.state) {
		buf_addz(b, "state=");
		http_escape(b, str_of(ls_o.state), ",");
		r = buf_addc(b, '&');
	}
	for (size_t i = 0; i < ls_o.meta.n && r == 0; i++) {
		struct str key, value;

		if (!str_cut(str_of(ls_o.meta.v[i]), '=', &key, &value))
			return fail_here(why, -EINVAL, "--meta \"%.80s\": KEY=VALUE is expected", ls_o.meta.v[i]);
		buf_addz(b, "metadata.");
		http_escape(b, key, "");
		buf_addc(b, '=');
		http_escape(b, value, "");
		r = buf_addc(b, '&');
	}
	b->n -= b->p && b->n && (b->p[b->n - 1] == '&' || b->p[b->n - 1] == '?');
	buf_addc(b, 0);
	return r;
}

static void ls_row(struct table *t, const json_t *sb)
{
	const char *state = get_str(sb, "state"), *reason = get_str(sb, "reason"), *name = get_str(sb, "name");
	const json_t *deadline = json_object_get(sb, "deadline_at");
	const char *ended = get_str(sb, "ended_at");
	char text[AGO_LEN], shown[96];

	snprintf(shown, sizeof(shown), "%s%s%.40s%s", state, *reason ? " (" : "", reason, *reason ? ")" : "");
	table_cell(t, "%s", get_str(sb, "id"));
	table_cell(t, "%s", *name ? name : "-");
	table_cell_colour(t, state_colour(state), shown);
	table_cell(t, "%s", get_str(sb, "template"));
	table_cell(t, "%.0f", get_num(sb, "vcpu"));
	table_cell(t, "%s", size_text(text, get_num(sb, "memory")));
	table_cell(t, "%s", ago(text, get_str(sb, "created_at")));
	if (*ended)
		table_cell(t, "%s", ago(text, ended));
	else
		table_cell(t, "%s", json_is_string(deadline) ? ago(text, json_string_value(deadline)) : "never");
}

static int ls_run(struct cli *c, int argc, char **argv)
{
	static const char *const heads[] = { "ID", "NAME", "STATE", "TEMPLATE", ">CPU", ">MEMORY", "CREATED", "ENDS", NULL };
	autobuf struct buf target;
	autojson json_t *list = NULL;
	struct fail why = { 0 };
	struct table *t;
	json_t *sb;
	size_t i;

	buf_init(&target, 8 * KIB);
	if (ls_target(&target, &why) < 0)
		return cli_usage(c, "ls: %s", why.msg);
	if (api_list(c, target.p, "sandboxes", &list, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, list);
		return EXIT_OK;
	}
	if (ls_o.quiet) {
		json_array_foreach(list, i, sb)
			printf("%s\n", get_str(sb, "id"));
		return EXIT_OK;
	}
	if (!json_array_size(list) && c->out_tty) {
		cli_note(c, "no sandboxes%s; space create makes one", ls_o.all ? "" : " (space ls -a shows ended ones too)");
		return EXIT_OK;
	}
	t = table_new(c, heads);
	json_array_foreach(list, i, sb)
		ls_row(t, sb);
	table_print(t);
	return EXIT_OK;
}

const struct command command_ls = {
	.name = "ls",
	.alias = "list",
	.brief = "List sandboxes",
	.examples = "  space ls\n  space ls -q --meta job=42 | xargs space kill\n  space ls --json | jq -r '.[].id'",
	.run = ls_run,
	OPTS(ls_opts, ls_o),
	.stop_after = -1,
};

/* --- show --- */
static void show_map(struct cli *c, const char *name, const json_t *map)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)map, key, v) {
		autofree char *text = json_is_string(v) ? strdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY);

		show_line(c, name, "%s=%s", key, text ? text : "");
		name = "";
	}
}

static void show_time(struct cli *c, const char *name, const json_t *sb, const char *key)
{
	const char *at = get_str(sb, key);
	char text[AGO_LEN];

	if (*at)
		show_line(c, name, "%s (%s)", at, ago(text, at));
}

static void show_phases(struct cli *c, const json_t *sb)
{
	const char *key;
	char text[512] = "";
	json_t *v;

	json_object_foreach(json_object_get(sb, "phases"), key, v) {
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%s%.40s %.1f", n ? ", " : "", key, json_number_value(v));
	}
	if (text[0])
		show_line(c, "start", "%s, ms: %s", get_str(sb, "start"), text);
}

static int show_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = sandbox_path(argv[0], "");
	autojson json_t *sb = NULL;
	struct fail why = { 0 };
	char memory[AGO_LEN], disk[AGO_LEN], text[AGO_LEN];

	if (api_call(c, "GET", path, NULL, &sb, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, sb);
		return EXIT_OK;
	}
	show_line(c, "id", "%s", get_str(sb, "id"));
	if (*get_str(sb, "name"))
		show_line(c, "name", "%s", get_str(sb, "name"));
	show_line(c, "state", "%s%s%s", get_str(sb, "state"), *get_str(sb, "reason") ? ", reason: " : "", get_str(sb, "reason"));
	show_line(c, "isolation", "%s (%s)", get_str(sb, "isolation"), get_str(sb, "driver"));
	show_line(c, "template", "%s version %.0f, node %s", get_str(sb, "template"), get_num(sb, "template_version"),
		get_str(sb, "node"));
	show_line(c, "size", "%.0f vCPU, %s memory, %s disk, root %s", get_num(sb, "vcpu"),
		size_text(memory, get_num(sb, "memory")), size_text(disk, get_num(sb, "disk")), get_str(sb, "rootfs"));
	show_map(c, "tmpfs", json_object_get(sb, "tmpfs"));
	show_time(c, "created", sb, "created_at");
	show_time(c, "ended", sb, "ended_at");
	show_time(c, !strcmp(get_str(sb, "on_timeout"), "suspend") ? "suspends" : "deadline", sb, "deadline_at");
	show_time(c, "last active", sb, "last_active_at");
	if (get_num(sb, "idle_timeout") > 0)
		show_line(c, "idle limit", "%s", span(text, get_num(sb, "idle_timeout")));
	show_phases(c, sb);
	show_map(c, "env", json_object_get(sb, "env"));
	show_map(c, "metadata", json_object_get(sb, "metadata"));
	show_map(c, "digests", json_object_get(sb, "digests"));
	return EXIT_OK;
}

const struct command command_show = {
	.name = "show",
	.alias = "inspect",
	.args = "ID",
	.brief = "Show a sandbox: what it runs, its times, how it was started",
	.run = show_run,
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

/* --- kill, timeout --- */
static struct {
	bool all;
} kill_o;

static const struct opt kill_opts[] = {
	{ "all", 'a', OPT_FLAG, offsetof(__typeof__(kill_o), all), NULL, "all sandboxes" },
};

static int kill_all(struct cli *c)
{
	autojson json_t *list = NULL;
	autofree char **ids = NULL;
	struct fail why = { 0 };
	size_t n;

	if (api_list(c, "/v1/sandboxes", "sandboxes", &list, &why) < 0)
		return cli_fail(c, &why);
	n = json_array_size(list);
	ids = calloc(n + 1, sizeof(*ids));
	for (size_t i = 0; ids && i < n; i++)
		ids[i] = (char *)get_str(json_array_get(list, i), "id");
	return each_sandbox(c, "DELETE", "", "ending", ids ? (int)n : 0, ids);
}

static int kill_run(struct cli *c, int argc, char **argv)
{
	if (kill_o.all)
		return argc ? cli_usage(c, "kill: --all and an id: one of both") : kill_all(c);
	if (!argc)
		return cli_usage(c, "kill needs an id: space kill ID…, or --all");
	return each_sandbox(c, "DELETE", "", "ending", argc, argv);
}

const struct command command_kill = {
	.name = "kill",
	.alias = "rm",
	.args = "ID…",
	.brief = "End sandboxes and remove what they hold",
	.detail = "Killing one that has ended already is fine.",
	.examples = "  space kill $id\n  space kill --all",
	.run = kill_run,
	OPTS(kill_opts, kill_o),
	.stop_after = -1,
	.max = -1,
};

static int timeout_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = sandbox_path(argv[0], "/timeout");
	autojson json_t *sb = NULL;
	struct fail why = { 0 };
	char text[AGO_LEN];

	if (api_call(c, "POST", path, json_pack("{s:s}", "timeout", argv[1]), &sb, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, sb);
	else
		printf("%s ends %s\n", get_str(sb, "id"),
			*get_str(sb, "deadline_at") ? ago(text, get_str(sb, "deadline_at")) : "never");
	return EXIT_OK;
}

const struct command command_timeout = {
	.name = "timeout",
	.args = "ID TIME",
	.brief = "Let a sandbox end that long from now on (0: never)",
	.examples = "  space timeout $id 2h",
	.run = timeout_run,
	.stop_after = -1,
	.min = 2,
	.max = 2,
};

/* --- ps, signal --- */
static void ps_row(struct table *t, const json_t *p)
{
	autobuf struct buf line;
	const json_t *args = json_object_get(p, "args"), *ended = json_object_get(p, "exit");
	char text[AGO_LEN];
	json_t *word;
	size_t i;

	buf_init(&line, 4 * KIB);
	buf_addz(&line, get_str(p, "cmd"));
	json_array_foreach((json_t *)args, i, word)
		buf_addf(&line, " %s", json_string_value(word) ? json_string_value(word) : "");
	table_cell(t, "%.0f", get_num(p, "pid"));
	table_cell(t, "%s", get_str(p, "user"));
	if (get_bool(p, "running")) {
		table_cell_colour(t, "32", "running");
	} else {
		char shown[64];
		const char *sig = get_str(ended, "signal");

		if (*sig)
			snprintf(shown, sizeof(shown), "%.20s", sig);
		else
			snprintf(shown, sizeof(shown), "exit %.0f",
				json_is_object(ended) ? get_num(ended, "code") : json_number_value(ended));
		table_cell(t, "%s", shown);
	}
	table_cell(t, "%s", ago(text, get_str(p, "started_at")));
	table_cell(t, "%s", *get_str(p, "tag") ? get_str(p, "tag") : "-");
	table_cell(t, "%.*s", (int)MIN(line.n, (size_t)100), line.p ? line.p : "");
}

static int ps_run(struct cli *c, int argc, char **argv)
{
	static const char *const heads[] = { ">PID", "USER", "STATE", "STARTED", "TAG", "COMMAND", NULL };
	autofree char *path = sandbox_path(argv[0], "/processes");
	autojson json_t *out = NULL;
	struct fail why = { 0 };
	struct table *t;
	json_t *p;
	size_t i;

	if (api_call(c, "GET", path, NULL, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, json_object_get(out, "processes"));
		return EXIT_OK;
	}
	t = table_new(c, heads);
	json_array_foreach(json_object_get(out, "processes"), i, p)
		ps_row(t, p);
	table_print(t);
	return EXIT_OK;
}

const struct command command_ps = {
	.name = "ps",
	.alias = "processes",
	.args = "ID",
	.brief = "List the commands started in a sandbox, those that ended within the hour too",
	.run = ps_run,
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

static struct {
	bool group;
} signal_o;

static const struct opt signal_opts[] = {
	{ "group", 'g', OPT_FLAG, offsetof(__typeof__(signal_o), group), NULL, "to every process that the command started" },
};

static int signal_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = api_path("/v1/sandboxes/%s/processes/%s/signal", argv[0], argv[1]);
	const char *sig = argc > 2 ? argv[2] : "TERM";
	struct fail why = { 0 };
	uint64_t n;
	json_t *body;

	if (!strncasecmp(sig, "SIG", 3))
		sig += 3;
	body = str_u64(str_of(sig), 64, &n) == 0 ? json_pack("{s:i,s:b}", "signal", (int)n, "group", signal_o.group) :
						   json_pack("{s:s,s:b}", "signal", sig, "group", signal_o.group);
	if (api_call(c, "POST", path, body, NULL, &why) < 0)
		return cli_fail(c, &why);
	return EXIT_OK;
}

const struct command command_signal = {
	.name = "signal",
	.args = "ID PID [SIGNAL]",
	.brief = "Send a signal to a command (TERM if none is named)",
	.examples = "  space signal $id 412 INT\n  space signal -g $id 412 KILL",
	.run = signal_run,
	OPTS(signal_opts, signal_o),
	.stop_after = -1,
	.min = 2,
	.max = 3,
};
