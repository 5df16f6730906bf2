/* cmd_host.c - host, config, key, bench, completion. */
#include <limits.h>

#include "cli/cli.h"

/* --- host --- */
static int host_run(struct cli *c, int argc, char **argv)
{
	autojson json_t *h = NULL;
	struct fail why = { 0 };
	char a[AGO_LEN], b[AGO_LEN];
	const char *state;
	json_t *n, *pool, *memory;

	if (api_call(c, "GET", "/v1/host", NULL, &h, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, h);
		return EXIT_OK;
	}
	pool = json_object_get(h, "pool");
	memory = json_object_get(h, "memory");
	printf("%s at %s: spaced %s, up %s\n", get_str(h, "hostname"), c->where, get_str(h, "version"), span(a, get_num(h, "uptime_s")));
	printf("isolation  %s (%s)\n", get_str(h, "isolation"),
		*get_str(h, "driver_version") ? get_str(h, "driver_version") : get_str(h, "driver"));
	printf("kernel     %s\n", get_str(h, "kernel"));
	printf("pool       %s free of %s, %s\n", size_text(a, get_num(pool, "bytes_free")), size_text(b, get_num(pool, "bytes_total")),
		get_str(pool, "clone"));
	printf("memory     %s reserved of %s\n", size_text(a, get_num(memory, "reserved")), size_text(b, get_num(memory, "limit")));
	printf("ready      %.0f monitors, %.0f slots\n", get_num(h, "monitors_ready"), get_num(h, "slots_ready"));
	printf("sandboxes ");
	json_object_foreach(json_object_get(h, "sandboxes"), state, n)
		printf(" %s %.0f", state, json_number_value(n));
	printf("\ndaemon     %s of memory\n", size_text(a, get_num(h, "rss_bytes")));
	return EXIT_OK;
}

const struct command command_host = {
	.name = "host",
	.brief = "Show the machine that runs the sandboxes, and what is left of it",
	.run = host_run,
	.stop_after = -1,
};

/* --- config --- */
static int config_show(struct cli *c, int argc, char **argv)
{
	struct api_opts o = { .header = { { "Accept", c->json ? "application/json" : "application/yaml" } }, .text = !c->json };
	autojson json_t *out = NULL;
	struct fail why = { 0 };

	if (api_call_opts(c, "GET", "/v1/config", NULL, &o, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, out);
	else
		fputs(json_string_value(out) ? json_string_value(out) : "", stdout);
	return EXIT_OK;
}

static const struct command *const config_sub[] = {
	&(const struct command){ .name = "config show", .brief = "Print the daemon's configuration in force, defaults included, as YAML",
		.run = config_show, .stop_after = -1 },
	NULL,
};

const struct command command_config = {
	.name = "config",
	.brief = "The daemon's configuration",
	.sub = config_sub,
};

/* --- key --- */
static struct {
	const char *scope;
} key_o = { .scope = "use" };

static const struct opt key_opts[] = {
	{ "scope", 's', OPT_STR, offsetof(__typeof__(key_o), scope), "SCOPE", "read (look), use (sandboxes; the default), admin (all)" },
};

static int key_create(struct cli *c, int argc, char **argv)
{
	autojson json_t *out = NULL;
	struct fail why = { 0 };

	if (api_call(c, "POST", "/v1/keys", json_pack("{s:s,s:s}", "name", argc ? argv[0] : "default", "scope", key_o.scope), &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, out);
		return EXIT_OK;
	}
	printf("%s\n", get_str(out, "key"));
	cli_note(c, "key %s, scope %s; it is shown this once", get_str(out, "id"), get_str(out, "scope"));
	return EXIT_OK;
}

static int key_ls(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "ID", "id", COL_TEXT },
		{ "NAME", "name", COL_TEXT },
		{ "SCOPE", "scope", COL_TEXT },
		{ "CREATED", "created_at", COL_AGO },
		{ "LAST USED", "last_used_at", COL_AGO },
		{ NULL },
	};

	return list_print(c, "/v1/keys", "keys", cols, NULL);
}

static int key_rm(struct cli *c, int argc, char **argv)
{
	return remove_each(c, "/v1/keys/%s", argc, argv);
}

static const struct command *const key_sub[] = {
	&(const struct command){ .name = "key create", .args = "[NAME]", .brief = "Make a key and print it, this once",
		.examples = "  export SPACE_URL=http://127.0.0.1:7070 SPACE_API_KEY=$(space key create ci)", .run = key_create,
		OPTS(key_opts, key_o), .max = 1, .stop_after = -1 },
	&(const struct command){ .name = "key ls", .alias = "list", .brief = "List the keys (not their text)", .run = key_ls, .stop_after = -1 },
	&(const struct command){ .name = "key rm", .args = "ID…", .brief = "Delete keys; they stop working within a second", .run = key_rm,
		.min = 1, .max = -1, .stop_after = -1 },
	NULL,
};

const struct command command_key = {
	.name = "key",
	.alias = "keys",
	.brief = "API keys, for clients that come over TCP",
	.sub = key_sub,
};

/* --- bench --- */
/* scripts/bench of the source tree that this program was built in: BUILD/src/cli/space, so three directories up. */
static int bench_run(struct cli *c, int argc, char **argv)
{
	char self[PATH_MAX - 64], script[PATH_MAX];
	struct fail why = { 0 };
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	for (int up = 0; n > 0 && up < 4; up++) {
		char *slash;

		self[n] = 0;
		slash = strrchr(self, '/');
		if (!slash)
			break;
		*slash = 0;
		n = slash - self;
		snprintf(script, sizeof(script), "%s/scripts/bench", self);
		if (access(script, X_OK) == 0) {
			char *args[34] = { script };

			for (int i = 0; i < argc && i < 32; i++)
				args[i + 1] = argv[i];
			execv(script, args);
			fail_here(&why, -errno, "%.180s: %s", script, strerror(errno));
			return cli_fail(c, &why);
		}
	}
	fail_here(&why, -ENOENT, "the benchmarks are in the source tree, and this program is not");
	fail_remedy(&why, "make bench, in the source tree");
	return cli_fail(c, &why);
}

const struct command command_bench = {
	.name = "bench",
	.args = "[WORD…]",
	.brief = "Measure this host: start-up, round trips, copies, memory (make bench)",
	.run = bench_run,
	.stop_after = -1,
	.max = 32,
};

/* --- completion --- */
#include "completion.h"

static int completion_run(struct cli *c, int argc, char **argv)
{
	if (!strcmp(argv[0], "bash"))
		fwrite(completion_bash, 1, sizeof(completion_bash), stdout);
	else if (!strcmp(argv[0], "zsh"))
		fwrite(completion_zsh, 1, sizeof(completion_zsh), stdout);
	else
		return cli_usage(c, "completion: bash or zsh, not \"%s\"", argv[0]);
	return EXIT_OK;
}

const struct command command_completion = {
	.name = "completion",
	.args = "bash|zsh",
	.brief = "Print the completion script of a shell",
	.examples = "  eval \"$(space completion bash)\"\n  space completion zsh > ~/.zfunc/_space",
	.run = completion_run,
	.stop_after = -1,
	.min = 1,
	.max = 1,
};
