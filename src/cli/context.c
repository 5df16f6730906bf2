/* context.c - named hosts: ~/.config/space/contexts.json, {"current":NAME,"contexts":{NAME:{"url":…,"key":…}}}.
 *
 * It may hold keys, so it is written with mode 0600. */
#include <fcntl.h>

#include "base/file.h"
#include "cli/cli.h"

#define CONTEXTS_MAX (256 * KIB)

static int contexts_path(char *out, size_t size, bool make, struct fail *why)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char dir[3072];
	int r;

	if (config && config[0] == '/')
		snprintf(dir, sizeof(dir), "%s/space", config);
	else if (home && home[0] == '/')
		snprintf(dir, sizeof(dir), "%s/.config/space", home);
	else
		return fail_here(why, -ENOENT, "HOME is not set, so there is no place for contexts");
	if (make) {
		r = mkdir_p(dir, 0700);
		if (r < 0)
			return fail_here(why, r, "%.180s: %s", dir, strerror(-r));
	}
	snprintf(out, size, "%s/contexts.json", dir);
	return 0;
}

/* An empty object if there is no file. */
static int contexts_load(json_t **out, struct fail *why)
{
	autofree char *text = NULL;
	char path[4096];
	ssize_t n;
	int r = contexts_path(path, sizeof(path), false, why);

	if (r < 0)
		return r;
	n = file_read(AT_FDCWD, path, &text, CONTEXTS_MAX);
	if (n == -ENOENT || n == -ENOTDIR) {
		*out = json_pack("{s:n,s:{}}", "current", "contexts");
		return *out ? 0 : -ENOMEM;
	}
	if (n < 0)
		return fail_here(why, (int)n, "%.180s: %s", path, strerror((int)-n));
	*out = json_read((struct str){ text, (size_t)n }, why);
	if (!*out || !json_is_object(json_object_get(*out, "contexts"))) {
		json_decref(*out);
		*out = NULL;
		fail_here(why, -EBADMSG, "%.180s is not a file of contexts", path);
		fail_remedy(why, "rm %.150s, then space context add NAME URL", path);
		return -EBADMSG;
	}
	return 0;
}

static int contexts_save(json_t *all, struct fail *why)
{
	autofree char *text = json_dumps(all, JSON_INDENT(2) | JSON_SORT_KEYS);
	char path[4096];
	int r = contexts_path(path, sizeof(path), true, why);

	if (r < 0)
		return r;
	if (!text)
		return fail_here(why, -ENOMEM, "out of memory");
	r = file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600);
	if (r < 0)
		return fail_here(why, r, "%.180s: %s", path, strerror(-r));
	return 0;
}

int context_current(char **url, char **key, struct fail *why)
{
	autojson json_t *all = NULL;
	const char *name;
	json_t *one;
	int r;

	*url = *key = NULL;
	if (!getenv("HOME") && !getenv("XDG_CONFIG_HOME"))
		return 0;
	r = contexts_load(&all, why);
	if (r < 0)
		return r;
	name = get_str(all, "current");
	if (!*name)
		return 0;
	one = json_object_get(json_object_get(all, "contexts"), name);
	if (!one)
		return 0;
	*url = strdup(get_str(one, "url"));
	if (*get_str(one, "key"))
		*key = strdup(get_str(one, "key"));
	return *url ? 0 : -ENOMEM;
}

static int context_ls(struct cli *c, int argc, char **argv)
{
	static const char *const heads[] = { "CURRENT", "NAME", "URL", "KEY", NULL };
	autojson json_t *all = NULL;
	struct fail why = { 0 };
	const char *name, *current;
	struct table *t;
	json_t *one, *contexts;

	if (contexts_load(&all, &why) < 0)
		return cli_fail(c, &why);
	contexts = json_object_get(all, "contexts");
	current = get_str(all, "current");
	if (c->json) {
		json_object_foreach(contexts, name, one)
			json_object_set_new(one, "key", json_boolean(*get_str(one, "key") != 0));
		json_print(c, all);
		return EXIT_OK;
	}
	t = table_new(c, heads);
	table_cell(t, "%s", *current ? "" : "*");
	table_cell(t, "(this machine)");
	table_cell(t, "unix:/run/space/api.sock");
	table_cell(t, "-");
	json_object_foreach(contexts, name, one) {
		table_cell(t, "%s", strcmp(name, current) ? "" : "*");
		table_cell(t, "%s", name);
		table_cell(t, "%s", get_str(one, "url"));
		table_cell(t, "%s", *get_str(one, "key") ? "yes" : "no");
	}
	table_print(t);
	return EXIT_OK;
}

static struct {
	const char *key;
	bool use;
} add_o;
static const struct opt add_opts[] = {
	{ "key", 'k', OPT_STR, offsetof(__typeof__(add_o), key), "KEY", "the key to send ('-': read it from stdin)" },
	{ "use", 'u', OPT_FLAG, offsetof(__typeof__(add_o), use), NULL, "make it the current one too" },
};

static int context_add(struct cli *c, int argc, char **argv)
{
	autojson json_t *all = NULL;
	struct fail why = { 0 };
	struct place p;
	json_t *one;
	char line[256] = "";

	if (!str_is_name(str_of(argv[0])))
		return cli_usage(c, "\"%s\" is no name for a context: small letters, digits, '.', '_' and '-'", argv[0]);
	if (place_parse(argv[1], &p, &why) < 0)
		return cli_usage(c, "%s", why.msg);
	if (add_o.key && !strcmp(add_o.key, "-")) {
		if (!fgets(line, sizeof(line), stdin))
			return cli_usage(c, "no key on stdin");
		line[strcspn(line, "\r\n")] = 0;
		add_o.key = line;
	}
	if (contexts_load(&all, &why) < 0)
		return cli_fail(c, &why);
	one = json_pack("{s:s,s:s*}", "url", argv[1], "key", add_o.key);
	json_object_set_new(json_object_get(all, "contexts"), argv[0], one);
	if (add_o.use)
		json_object_set_new(all, "current", json_string(argv[0]));
	if (contexts_save(all, &why) < 0)
		return cli_fail(c, &why);
	return EXIT_OK;
}

static int context_use(struct cli *c, int argc, char **argv)
{
	autojson json_t *all = NULL;
	struct fail why = { 0 };
	bool none = !strcmp(argv[0], "-");

	if (contexts_load(&all, &why) < 0)
		return cli_fail(c, &why);
	if (!none && !json_object_get(json_object_get(all, "contexts"), argv[0])) {
		fail_here(&why, -ENOENT, "no context \"%s\"", argv[0]);
		fail_remedy(&why, "space context ls");
		return cli_fail(c, &why);
	}
	json_object_set_new(all, "current", none ? json_null() : json_string(argv[0]));
	if (contexts_save(all, &why) < 0)
		return cli_fail(c, &why);
	return EXIT_OK;
}

static int context_rm(struct cli *c, int argc, char **argv)
{
	autojson json_t *all = NULL;
	struct fail why = { 0 };

	if (contexts_load(&all, &why) < 0)
		return cli_fail(c, &why);
	if (json_object_del(json_object_get(all, "contexts"), argv[0]) < 0) {
		fail_here(&why, -ENOENT, "no context \"%s\"", argv[0]);
		fail_remedy(&why, "space context ls");
		return cli_fail(c, &why);
	}
	if (!strcmp(get_str(all, "current"), argv[0]))
		json_object_set_new(all, "current", json_null());
	if (contexts_save(all, &why) < 0)
		return cli_fail(c, &why);
	return EXIT_OK;
}

static const struct command *const context_sub[] = {
	&(const struct command){ .name = "context ls", .alias = "list", .brief = "List the contexts", .run = context_ls,
		.stop_after = -1 },
	&(const struct command){ .name = "context use", .args = "NAME|-", .brief = "Use this one from now on ('-': this machine)",
		.run = context_use, .min = 1, .max = 1, .stop_after = -1 },
	&(const struct command){ .name = "context add", .args = "NAME URL", .brief = "Add or replace a context", .run = context_add,
		.min = 2, .max = 2, .stop_after = -1, OPTS(add_opts, add_o),
		.examples = "  space context add lab https://space.example.org:7070 --key - --use < key.txt" },
	&(const struct command){ .name = "context rm", .args = "NAME", .brief = "Forget a context", .run = context_rm, .min = 1,
		.max = 1, .stop_after = -1 },
	NULL,
};

const struct command command_context = {
	.name = "context",
	.brief = "Named hosts, so that SPACE_URL and SPACE_API_KEY need not be set",
	.detail = "Kept in ~/.config/space/contexts.json. --host, SPACE_URL and SPACE_SOCKET go before the current context.",
	.sub = context_sub,
};
