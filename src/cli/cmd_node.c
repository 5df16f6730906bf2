/* cmd_node.c - the tree of saved states: tree, node, export, import, prune, fsck, df. */
#include <sys/stat.h>

#include "cli/create.h"
#include "cli/transfer.h"
#include "cli/tree.h"

/* --- tree --- */
static void tree_row(const char *branches, const json_t *item, bool sandbox, void *arg)
{
	struct table *t = arg;
	bool damaged = *get_str(item, "damaged");
	const char *name = get_str(item, sandbox ? "name" : "label");
	char text[AGO_LEN];

	/* A template's node is known by the template's name, a suspended sandbox's by that sandbox. */
	if (!sandbox && !*name && !strcmp(get_str(item, "kind"), "template"))
		name = get_str(item, "template");
	else if (!sandbox && !*name && !strcmp(get_str(item, "kind"), "suspend"))
		name = get_str(item, "sandbox");
	table_cell(t, "%s%s", branches, get_str(item, "id"));
	if (sandbox)
		table_cell_colour(t, state_colour(get_str(item, "state")), get_str(item, "state"));
	else if (damaged)
		table_cell_colour(t, "31", "damaged");
	else
		table_cell(t, "%s", get_str(item, "kind"));
	table_cell(t, "%.63s", name);
	table_cell(t, "%s", sandbox ? "" : size_text(text, get_num(item, "own_bytes")));
	table_cell(t, "%s", sandbox ? "" : size_text(text, get_num(item, "shared_bytes")));
	table_cell(t, "%s", *get_str(item, "created_at") ? ago(text, get_str(item, "created_at")) : "");
}

static void tree_keep(const char *branches, const json_t *item, bool sandbox, void *arg)
{
	if (!sandbox)
		json_array_append(arg, (json_t *)item);
}

static int tree_run(struct cli *c, int argc, char **argv)
{
	static const char *const heads[] = { "TREE", "WHAT", "NAME", ">OWN", ">SHARED", "CREATED", NULL };
	autojson json_t *nodes = NULL, *kept = json_array();
	const char *only = argc ? argv[0] : NULL;
	struct table *t = NULL;
	struct fail why = { 0 };
	int lines;

	if (api_list(c, "/v1/tree", "nodes", &nodes, &why) < 0)
		return cli_fail(c, &why);
	if (!c->json)
		t = table_new(c, heads);
	lines = tree_draw(nodes, only, c->json ? tree_keep : tree_row, c->json ? (void *)kept : t);
	if (lines <= 0 && only) {
		fail_as(&why, ERR_checkpoint_not_found, "nothing in the tree is called \"%.100s\"", only);
		return cli_fail(c, &why);
	}
	if (c->json)
		json_print(c, kept);
	else if (lines <= 0 && c->out_tty)
		cli_note(c, "the tree is empty; space template build plants one");
	else
		table_print(t);
	return EXIT_OK;
}

const struct command command_tree = {
	.name = "tree",
	.args = "[ID]",
	.brief = "Draw who came from whom: templates, checkpoints, snapshots, and the sandboxes started from them",
	.detail = "OWN is what is stored for that node alone, SHARED what it has in common with the one above it. With the id or label of a\n"
		  "node, or the id or name of a sandbox: only what leads to it and what came from it.",
	.examples = "  space tree\n  space tree before-refactor",
	.run = tree_run,
	.stop_after = -1,
	.max = 1,
};

/* --- node --- */
static struct {
	const char *kind;
	bool quiet;
} ls_o;

static const struct opt ls_opts[] = {
	{ "kind", 'k', OPT_STR, offsetof(__typeof__(ls_o), kind), "KIND[,…]", "only these: template, checkpoint, snapshot, branch, suspend" },
	{ "quiet", 'q', OPT_FLAG, offsetof(__typeof__(ls_o), quiet), NULL, "ids only" },
};

/* A list of one sandbox's nodes takes no kind; then it is asked of the list of all. */
static char *node_ls_path(const char *id, const char *kind)
{
	if (kind)
		return id ? api_path("/v1/checkpoints?kind=%q&sandbox=%q", kind, id) : api_path("/v1/checkpoints?kind=%q", kind);
	return id ? api_path("/v1/sandboxes/%s/checkpoints", id) : api_path("/v1/checkpoints");
}

static int node_ls(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "ID", "id", COL_TEXT },
		{ "KIND", "kind", COL_TEXT },
		{ "LABEL", "label", COL_TEXT },
		{ "SANDBOX", "sandbox", COL_TEXT },
		{ ">MEMORY", "memory", COL_SIZE },
		{ ">OWN", "own_bytes", COL_SIZE },
		{ ">SHARED", "shared_bytes", COL_SIZE },
		{ "CREATED", "created_at", COL_AGO },
		{ "DAMAGED", "damaged", COL_TEXT },
		{ NULL },
	};
	autofree char *path = node_ls_path(argc ? argv[0] : NULL, ls_o.kind);
	autojson json_t *list = NULL;
	struct fail why = { 0 };

	if (!ls_o.quiet || c->json)
		return list_print(c, path, "checkpoints", cols, "nothing is saved; space checkpoint ID does");
	if (api_list(c, path, "checkpoints", &list, &why) < 0)
		return cli_fail(c, &why);
	print_ids(list);
	return EXIT_OK;
}

static void show_text(struct cli *c, const char *name, const json_t *o, const char *key)
{
	if (*get_str(o, key))
		show_line(c, name, "%s", get_str(o, key));
}

static int node_show(struct cli *c, int argc, char **argv)
{
	autofree char *path = api_path("/v1/checkpoints/%s", argv[0]);
	autojson json_t *n = NULL;
	struct fail why = { 0 };
	char a[AGO_LEN], b[AGO_LEN];

	if (api_call(c, "GET", path, NULL, &n, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, n);
		return EXIT_OK;
	}
	show_line(c, "id", "%s", get_str(n, "id"));
	show_line(c, "kind", "%s", get_str(n, "kind"));
	show_text(c, "label", n, "label");
	show_text(c, "damaged", n, "damaged");
	show_text(c, "sandbox", n, "sandbox");
	show_text(c, "parent", n, "parent");
	show_text(c, "template", n, "template");
	if (get_num(n, "memory") > 0)
		show_line(c, "size", "%.0f vCPU, %s memory, %s disk, root %s", get_num(n, "vcpu"), size_text(a, get_num(n, "memory")),
			size_text(b, get_num(n, "disk")), get_str(n, "rootfs"));
	else
		show_line(c, "size", "%s disk, root %s", size_text(b, get_num(n, "disk")), get_str(n, "rootfs"));
	show_line(c, "stored", "%s of its own, %s shared with its parent", size_text(a, get_num(n, "own_bytes")),
		size_text(b, get_num(n, "shared_bytes")));
	show_line(c, "needed by", "%.0f", get_num(n, "children"));
	show_line(c, "created", "%s (%s)", get_str(n, "created_at"), ago(a, get_str(n, "created_at")));
	if (json_is_number(json_object_get(n, "paused_ms")))
		show_line(c, "stood still", "%.1f ms", get_num(n, "paused_ms"));
	show_line(c, "driver", "%s %s", get_str(n, "driver"), get_str(n, "driver_version"));
	show_text(c, "image", json_object_get(n, "digests"), "image");
	show_text(c, "kernel", json_object_get(n, "digests"), "kernel");
	return EXIT_OK;
}

static int node_rm(struct cli *c, int argc, char **argv)
{
	return remove_each(c, "/v1/checkpoints/%s", argc, argv);
}

static const struct command *const node_sub[] = {
	&(const struct command){ .name = "node ls", .alias = "list", .args = "[ID]", .brief = "List what is saved, of all sandboxes or of one",
		.run = node_ls, OPTS(ls_opts, ls_o), .max = 1, .stop_after = -1 },
	&(const struct command){ .name = "node show", .args = "NODE", .brief = "Show one, by its id or label", .run = node_show, .min = 1,
		.max = 1, .stop_after = -1 },
	&(const struct command){ .name = "node rm", .args = "NODE…", .brief = "Remove nodes; what came from them stays whole",
		.run = node_rm, .min = 1, .max = -1, .stop_after = -1 },
	NULL,
};

const struct command command_node = {
	.name = "node",
	.alias = "nodes",
	.brief = "Nodes: the checkpoints and snapshots that are saved",
	.sub = node_sub,
};

/* --- export, import --- */
static int export_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = api_path("/v1/checkpoints/%s/export", argv[0]);
	struct transfer t = { .method = "GET", .target = path, .fd = 1, .length = -1, .what = "exporting" };
	struct fail why = { 0 };
	char size[AGO_LEN];

	if (c->out_tty)
		return cli_usage(c, "export writes bytes, and this is a terminal: space export %.60s > FILE", argv[0]);
	if (transfer_run(c, &t, &why) < 0)
		return cli_fail(c, &why);
	if (c->err_tty)
		cli_note(c, "%s exported", size_text(size, (double)t.bytes));
	return EXIT_OK;
}

const struct command command_export = {
	.name = "export",
	.args = "NODE",
	.brief = "Write a checkpoint or snapshot to stdout, with all it needs",
	.detail = "One stream: memory, disk, image and kernel, each with its digest. Another SPACE takes it in with space import, and needs\n"
		  "neither parents nor image of it. If the exit status is not 0, what was written is not whole.",
	.examples = "  space export $c > work.space\n  space export $c | ssh other space import",
	.run = export_run,
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

static int import_run(struct cli *c, int argc, char **argv)
{
	autoclose int file = argc && strcmp(argv[0], "-") ? open(argv[0], O_RDONLY | O_CLOEXEC) : -1;
	struct transfer t = { .method = "POST", .target = "/v1/checkpoints/import", .fd = 0, .length = -1, .what = "importing" };
	struct fail why = { 0 };
	struct stat st;
	char own[AGO_LEN];
	off_t at;

	if (argc && strcmp(argv[0], "-")) {
		if (file < 0) {
			fail_here(&why, -errno, "%.150s: %s", argv[0], strerror(errno));
			return cli_fail(c, &why);
		}
		t.fd = file;
	}
	if (isatty(t.fd))
		return cli_usage(c, "import reads what space export wrote, and this is a terminal: space import < FILE");
	/* The rest of a file has a length, so that progress has an end. */
	at = lseek(t.fd, 0, SEEK_CUR);
	if (fstat(t.fd, &st) == 0 && S_ISREG(st.st_mode) && at >= 0 && at <= st.st_size)
		t.length = st.st_size - at;
	if (transfer_run(c, &t, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, t.answer);
	else
		printf("%s\n", get_str(t.answer, "id"));
	if (c->out_tty)
		cli_note(c, "%s%s%s, %s", get_str(t.answer, "kind"), *get_str(t.answer, "label") ? " " : "", get_str(t.answer, "label"),
			size_text(own, get_num(t.answer, "own_bytes")));
	json_decref(t.answer);
	return EXIT_OK;
}

const struct command command_import = {
	.name = "import",
	.args = "[FILE]",
	.brief = "Read what space export wrote, from stdin or FILE, and print the id of the new node",
	.detail = "Every digest is checked before the node exists. One that was saved by another driver, processor or kernel cannot be\n"
		  "continued here; its disk boots all the same: space create --from NODE --disk-only.",
	.examples = "  space import < work.space",
	.run = import_run,
	.stop_after = -1,
	.max = 1,
};

/* --- prune --- */
static struct {
	const char *older_than;
	struct opt_list kind;
	bool dry_run;
} prune_o;

static const struct opt prune_opts[] = {
	{ "older-than", 0, OPT_STR, offsetof(__typeof__(prune_o), older_than), "TIME", "those saved longer ago than that: 12h, 7d; 0: all" },
	{ "kind", 'k', OPT_LIST, offsetof(__typeof__(prune_o), kind), "KIND", "only checkpoint, or only snapshot (usually both)" },
	{ "dry-run", 'n', OPT_FLAG, offsetof(__typeof__(prune_o), dry_run), NULL, "say what would go, and remove nothing" },
};

json_t *prune_request(const char *older_than, const struct opt_list *kinds, bool dry_run, struct fail *why)
{
	autojson json_t *body = NULL, *list = json_array();
	int64_t ms;

	if (!older_than) {
		fail_here(why, -EINVAL, "--older-than TIME says which: space prune --older-than 7d (0: all that nothing needs)");
		return NULL;
	}
	if (str_duration_ms(str_of(older_than), &ms) < 0) {
		fail_here(why, -EINVAL, "--older-than: a time such as 12h or 7d, not \"%.60s\"", older_than);
		return NULL;
	}
	for (size_t i = 0; i < kinds->n; i++) {
		struct str rest = str_of(kinds->v[i]), one;

		while (rest.n) {
			str_cut(rest, ',', &one, &rest);
			if (!str_eqz(one, "checkpoint") && !str_eqz(one, "snapshot")) {
				fail_here(why, -EINVAL, "--kind: checkpoint or snapshot, not \"%.*s\"", (int)MIN(one.n, (size_t)40), one.p);
				return NULL;
			}
			json_array_append_new(list, json_stringn(one.p, one.n));
		}
	}
	body = json_pack("{s:s,s:b}", "older_than", older_than, "dry_run", dry_run);
	if (body && json_array_size(list))
		json_object_set(body, "kinds", list);
	return steal_ptr(body);
}

static int prune_run(struct cli *c, int argc, char **argv)
{
	autojson json_t *out = NULL;
	struct fail why = { 0 };
	json_t *body = prune_request(prune_o.older_than, &prune_o.kind, prune_o.dry_run, &why);
	char size[AGO_LEN];
	size_t n;

	if (!body)
		return cli_usage(c, "prune: %s", why.msg);
	if (api_call_shown(c, "removing", "old nodes", "POST", "/v1/prune", body, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, out);
		return EXIT_OK;
	}
	print_ids(json_object_get(out, "removed"));
	n = json_array_size(json_object_get(out, "removed"));
	cli_note(c, "%zu node%s %s, %s", n, n == 1 ? "" : "s", prune_o.dry_run ? "would go" : "removed", size_text(size, get_num(out, "bytes")));
	return EXIT_OK;
}

const struct command command_prune = {
	.name = "prune",
	.brief = "Remove old checkpoints and snapshots that nothing needs, and print their ids",
	.detail = "Kept are those that a sandbox that lives or a template was started from.",
	.examples = "  space prune --older-than 7d --dry-run\n  space prune --older-than 0 --kind snapshot",
	.run = prune_run,
	OPTS(prune_opts, prune_o),
	.stop_after = -1,
};

/* --- fsck --- */
static int fsck_run(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "NODE", "checkpoint", COL_TEXT },
		{ "FILE", "file", COL_TEXT },
		{ ">OFFSET", "offset", COL_NUM },
		{ NULL },
	};
	autojson json_t *out = NULL, *result = NULL;
	struct fail why = { 0 };
	json_t *damaged;

	if (api_call(c, "POST", "/v1/fsck", NULL, &out, &why) < 0 ||
		operation_wait(c, get_str(json_object_get(out, "operation"), "id"), "checking", &result, &why) < 0)
		return cli_fail(c, &why);
	damaged = json_object_get(result, "damaged");
	if (c->json) {
		json_print(c, result);
	} else {
		if (json_array_size(damaged))
			list_rows(c, damaged, cols);
		printf("%.0f checked, %zu damaged\n", get_num(result, "checked"), json_array_size(damaged));
	}
	return json_array_size(damaged) ? EXIT_FAILED : EXIT_OK;
}

const struct command command_fsck = {
	.name = "fsck",
	.brief = "Check the files of all nodes against their digests",
	.detail = "Reads all of them, so it takes as long as the disk does. The exit status is 1 if something is damaged. A damaged node is\n"
		  "refused from then on; the others are not touched by it. space node rm removes it.",
	.run = fsck_run,
	.stop_after = -1,
};

/* --- df --- */
static int df_run(struct cli *c, int argc, char **argv)
{
	static const struct column cols[] = {
		{ "WHAT", "what", COL_TEXT },
		{ ">COUNT", "count", COL_NUM },
		{ ">SIZE", "bytes", COL_SIZE },
		{ NULL },
	};
	autojson json_t *out = NULL;
	struct fail why = { 0 };
	char free_[AGO_LEN], total[AGO_LEN];
	json_t *pool;

	if (api_call_shown(c, "measuring", "the pool", "GET", "/v1/usage", NULL, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, out);
		return EXIT_OK;
	}
	pool = json_object_get(out, "pool");
	list_rows(c, json_object_get(out, "rows"), cols);
	printf("\npool: %s free of %s (%s)\n", size_text(free_, get_num(pool, "free")), size_text(total, get_num(pool, "total")),
		get_str(pool, "clone"));
	return EXIT_OK;
}

const struct command command_df = {
	.name = "df",
	.brief = "Show what takes the room on the host's disk",
	.detail = "What nodes share with each other counts once.",
	.run = df_run,
	.stop_after = -1,
};
