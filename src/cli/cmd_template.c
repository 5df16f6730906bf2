/* cmd_template.c - template, image, operation: what sandboxes are made of. */
#include <limits.h>

#include "cli/create.h"

static int build(struct cli *c, const char *target, json_t *body, const char *what, const char *noun, bool detach)
{
	autojson json_t *out = NULL, *result = NULL;
	struct fail why = { 0 };
	const char *id;
	json_t *made;
	char size[AGO_LEN];

	if (api_call(c, "POST", target, body, &out, &why) < 0)
		return cli_fail(c, &why);
	id = get_str(json_object_get(out, "operation"), "id");
	if (detach) {
		if (c->json)
			json_print(c, out);
		else
			printf("%s\n", id);
		return EXIT_OK;
	}
	if (operation_wait(c, id, what, &result, &why) < 0)
		return cli_fail(c, &why);
	made = json_object_get(result, noun) ? json_object_get(result, noun) : result;
	if (c->json)
		json_print(c, made);
	else
		printf("%s %s (%s)\n", noun, get_str(made, "name"), size_text(size, get_num(made, "bytes")));
	return EXIT_OK;
}

/* --- templates --- */
static int template_ls(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "NAME", "name", COL_TEXT },
		{ ">VERSION", "version", COL_NUM },
		{ ">CPU", "vcpu", COL_NUM },
		{ ">MEMORY", "memory", COL_SIZE },
		{ ">DISK", "disk", COL_SIZE },
		{ ">STORED", "bytes", COL_SIZE },
		{ "IMAGE", "digests.image", COL_DIGEST },
		{ "CREATED", "created_at", COL_AGO },
		{ NULL },
	};

	return list_print(c, "/v1/templates", "templates", cols, NULL);
}

static int template_show(struct cli *c, int argc, char **argv)
{
	return show_one(c, "/v1/templates/%s", argv[0]);
}

static int template_rm(struct cli *c, int argc, char **argv)
{
	return remove_each(c, "/v1/templates/%s", argc, argv);
}

static struct {
	const char *image, *memory, *disk, *start, *ready, *user, *workdir;
	int64_t vcpu;
	struct opt_list setup, env;
	bool detach;
} tb_o;

static const struct opt tb_opts[] = {
	{ "image", 'i', OPT_STR, offsetof(__typeof__(tb_o), image), "NAME", "the image to boot (default: the template's name)" },
	{ "setup", 's', OPT_LIST, offsetof(__typeof__(tb_o), setup), "TEXT", "a shell line to run as root before it is saved; several in order" },
	{ "start", 0, OPT_STR, offsetof(__typeof__(tb_o), start), "TEXT", "a command that runs when it is saved, and in every sandbox" },
	{ "ready", 0, OPT_STR, offsetof(__typeof__(tb_o), ready), "TEXT", "it is saved once this shell line succeeds" },
	{ "env", 'e', OPT_LIST, offsetof(__typeof__(tb_o), env), "NAME=VALUE", "environment of all commands" },
	{ "user", 'u', OPT_STR, offsetof(__typeof__(tb_o), user), "NAME", "the user of commands that name none" },
	{ "workdir", 'w', OPT_STR, offsetof(__typeof__(tb_o), workdir), "DIR", "the directory of commands that name none" },
	{ "vcpu", 0, OPT_INT, offsetof(__typeof__(tb_o), vcpu), "N", "virtual CPUs (1)" },
	{ "memory", 0, OPT_STR, offsetof(__typeof__(tb_o), memory), "SIZE", "memory (512M)" },
	{ "disk", 0, OPT_STR, offsetof(__typeof__(tb_o), disk), "SIZE", "disk (5G)" },
	{ "detach", 'd', OPT_FLAG, offsetof(__typeof__(tb_o), detach), NULL, "print the operation's id and do not wait" },
};

static int template_build(struct cli *c, int argc, char **argv)
{
	json_t *body = json_pack("{s:s,s:s,s:s*,s:s*,s:s*,s:s*,s:s*,s:s*}", "name", argv[0], "image", tb_o.image ? tb_o.image : argv[0],
		"memory", tb_o.memory, "disk", tb_o.disk, "start_cmd", tb_o.start, "ready_cmd", tb_o.ready, "user", tb_o.user, "workdir",
		tb_o.workdir);
	struct fail why = { 0 };
	json_t *env = pairs_json(&tb_o.env, "env", true, &why), *setup = json_array();
	char what[128];

	for (size_t i = 0; i < tb_o.setup.n; i++)
		json_array_append_new(setup, json_string(tb_o.setup.v[i]));
	if (!body || !env)
		return cli_usage(c, "template build: %s", env ? "an option is not valid UTF-8" : why.msg);
	if (json_object_size(env))
		json_object_set(body, "env", env);
	if (json_array_size(setup))
		json_object_set(body, "setup", setup);
	if (tb_o.vcpu)
		json_object_set_new(body, "vcpu", json_integer(tb_o.vcpu));
	json_decref(env);
	json_decref(setup);
	snprintf(what, sizeof(what), "template %.64s", argv[0]);
	return build(c, "/v1/templates", body, what, "template", tb_o.detach);
}

static const struct command *const template_sub[] = {
	&(const struct command){ .name = "template ls", .alias = "list", .brief = "List the templates", .run = template_ls, .stop_after = -1 },
	&(const struct command){ .name = "template show", .args = "NAME", .brief = "Show one", .run = template_show, .min = 1, .max = 1,
		.stop_after = -1 },
	&(const struct command){ .name = "template build", .args = "NAME", .brief = "Boot an image, set it up, save it as a template",
		.detail = "The same name again makes a new version. Ctrl-C leaves the build going: space operation wait ID.",
		.examples = "  space template build base --image base\n"
			    "  space template build web --image base --setup 'mkdir -p /srv/app && echo hello > /srv/app/index.html' \\\n"
			    "    --start 'python3 -m http.server -d /srv/app 8000' --ready 'bash -c \": </dev/tcp/127.0.0.1/8000\"'",
		.run = template_build, OPTS(tb_opts, tb_o), .min = 1, .max = 1, .stop_after = -1 },
	&(const struct command){ .name = "template rm", .args = "NAME…", .brief = "Remove templates; sandboxes made from them go on",
		.run = template_rm, .min = 1, .max = -1, .stop_after = -1 },
	NULL,
};

const struct command command_template = {
	.name = "template",
	.alias = "templates",
	.brief = "Templates: saved machines that sandboxes continue from",
	.sub = template_sub,
};

/* --- images --- */
static int image_ls(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "NAME", "name", COL_TEXT },
		{ "DIGEST", "digest", COL_DIGEST },
		{ ">SIZE", "bytes", COL_SIZE },
		{ "CREATED", "created_at", COL_AGO },
		{ NULL },
	};

	return list_print(c, "/v1/images", "images", cols, NULL);
}

static int image_show(struct cli *c, int argc, char **argv)
{
	return show_one(c, "/v1/images/%s", argv[0]);
}

static int image_rm(struct cli *c, int argc, char **argv)
{
	return remove_each(c, "/v1/images/%s", argc, argv);
}

static struct {
	const char *dir, *oci;
	struct opt_list packages;
	bool detach;
} ib_o;

static const struct opt ib_opts[] = {
	{ "package", 'p', OPT_LIST, offsetof(__typeof__(ib_o), packages), "NAME[,…]", "a Debian package to put in; several" },
	{ "dir", 0, OPT_STR, offsetof(__typeof__(ib_o), dir), "PATH", "from a directory that is a root file system" },
	{ "oci", 0, OPT_STR, offsetof(__typeof__(ib_o), oci), "REF", "from an OCI image: docker://HOST/NAME:TAG or oci:PATH[:TAG]" },
	{ "detach", 'd', OPT_FLAG, offsetof(__typeof__(ib_o), detach), NULL, "print the operation's id and do not wait" },
};

/* "a,b" and "c" as ["a","b","c"] */
static json_t *package_list(void)
{
	json_t *out = json_array();

	for (size_t i = 0; i < ib_o.packages.n; i++) {
		struct str rest = str_of(ib_o.packages.v[i]), one;

		while (rest.n) {
			str_cut(rest, ',', &one, &rest);
			if (one.n)
				json_array_append_new(out, json_stringn(one.p, one.n));
		}
	}
	return out;
}

static int image_build(struct cli *c, int argc, char **argv)
{
	bool debian = !ib_o.dir && !ib_o.oci;
	char full[PATH_MAX], what[128];
	json_t *body;

	if ((ib_o.dir && ib_o.oci) || (!debian && ib_o.packages.n))
		return cli_usage(c, "image build: one of --package, --dir and --oci");
	if (ib_o.dir && !realpath(ib_o.dir, full))
		return cli_usage(c, "image build: %s: %s", ib_o.dir, strerror(errno));
	if (ib_o.dir)
		body = json_pack("{s:s,s:s,s:s}", "name", argv[0], "from", "dir", "path", full);
	else if (ib_o.oci)
		body = json_pack("{s:s,s:s,s:s}", "name", argv[0], "from", "oci", "ref", ib_o.oci);
	else
		body = json_pack("{s:s,s:s,s:o}", "name", argv[0], "from", "packages", "packages", package_list());
	if (!body)
		return cli_usage(c, "image build: a name is not valid UTF-8");
	snprintf(what, sizeof(what), "image %.64s", argv[0]);
	return build(c, "/v1/images", body, what, "image", ib_o.detach);
}

static const struct command *const image_sub[] = {
	&(const struct command){ .name = "image ls", .alias = "list", .brief = "List the images", .run = image_ls, .stop_after = -1 },
	&(const struct command){ .name = "image show", .args = "NAME", .brief = "Show one", .run = image_show, .min = 1, .max = 1,
		.stop_after = -1 },
	&(const struct command){ .name = "image build", .args = "NAME", .brief = "Build a read-only root file system",
		.detail = "Without --dir and --oci from Debian packages: a base with Python 3, Node.js and git, and those named beside it.",
		.examples = "  space image build base\n"
			    "  space image build data -p python3-numpy,python3-pandas\n"
			    "  space image build alpine --oci docker://docker.io/library/alpine:3",
		.run = image_build, OPTS(ib_opts, ib_o), .min = 1, .max = 1, .stop_after = -1 },
	&(const struct command){ .name = "image rm", .args = "NAME…", .brief = "Remove images that no template uses", .run = image_rm,
		.min = 1, .max = -1, .stop_after = -1 },
	NULL,
};

const struct command command_image = {
	.name = "image",
	.alias = "images",
	.brief = "Images: read-only root file systems that templates boot",
	.sub = image_sub,
};

/* --- operations --- */
static int operation_ls(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "ID", "id", COL_TEXT },
		{ "KIND", "kind", COL_TEXT },
		{ "TARGET", "target", COL_TEXT },
		{ "STATE", "state", COL_STATE },
		{ "STEP", "step", COL_TEXT },
		{ "ERROR", "error.message", COL_TEXT },
		{ "BEGAN", "created_at", COL_AGO },
		{ NULL },
	};

	return list_print(c, "/v1/operations", "operations", cols, NULL);
}

static int operation_wait_run(struct cli *c, int argc, char **argv)
{
	autojson json_t *result = NULL;
	struct fail why = { 0 };

	if (operation_wait(c, argv[0], "operation", &result, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, result);
	else
		printf("%s done\n", argv[0]);
	return EXIT_OK;
}

static const struct command *const operation_sub[] = {
	&(const struct command){ .name = "operation ls", .alias = "list", .brief = "List what is under way or ended within the hour",
		.run = operation_ls, .stop_after = -1 },
	&(const struct command){ .name = "operation wait", .args = "ID", .brief = "Wait for one and show its progress",
		.run = operation_wait_run, .min = 1, .max = 1, .stop_after = -1 },
	NULL,
};

const struct command command_operation = {
	.name = "operation",
	.alias = "op",
	.brief = "Operations: builds and other slow work",
	.sub = operation_sub,
};
