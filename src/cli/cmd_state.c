/* cmd_state.c - what is done to the state of a sandbox: pause, suspend, wake, checkpoint, snapshot, branch, rollback. */
#include "cli/create.h"

/* --- pause, suspend, wake --- */
static int pause_run(struct cli *c, int argc, char **argv)
{
	return each_sandbox(c, "POST", "/pause", "pausing", argc, argv);
}

static int suspend_run(struct cli *c, int argc, char **argv)
{
	return each_sandbox(c, "POST", "/suspend", "suspending", argc, argv);
}

static int wake_run(struct cli *c, int argc, char **argv)
{
	return each_sandbox(c, "POST", "/wake", "waking", argc, argv);
}

const struct command command_pause = {
	.name = "pause",
	.args = "ID…",
	.brief = "Let sandboxes stand still; they keep their memory",
	.run = pause_run,
	.stop_after = -1,
	.min = 1,
	.max = -1,
};

const struct command command_suspend = {
	.name = "suspend",
	.args = "ID…",
	.brief = "Put sandboxes onto the disk and give their memory back; space wake goes on with the same processes",
	.detail = "Suspending one that is suspended already is fine.",
	.examples = "  space suspend $id\n  space wake $id",
	.run = suspend_run,
	.stop_after = -1,
	.min = 1,
	.max = -1,
};

const struct command command_wake = {
	.name = "wake",
	.alias = "resume",
	.args = "ID…",
	.brief = "Let paused and suspended sandboxes go on",
	.run = wake_run,
	.stop_after = -1,
	.min = 1,
	.max = -1,
};

/* --- checkpoint, snapshot --- */
static struct {
	const char *label;
	bool quiet;
} save_o;

static const struct opt save_opts[] = {
	{ "label", 'l', OPT_STR, offsetof(__typeof__(save_o), label), "TEXT", "a name to find it by, beside its id" },
	{ "quiet", 'q', OPT_FLAG, offsetof(__typeof__(save_o), quiet), NULL, "print the id and nothing else" },
};

static void save_note(struct cli *c, const json_t *node, const char *sandbox)
{
	char own[AGO_LEN], shared[AGO_LEN], still[64] = "";

	if (json_is_number(json_object_get(node, "paused_ms")))
		snprintf(still, sizeof(still), ", it stood still for %.0f ms", get_num(node, "paused_ms"));
	cli_note(c, "%s of %s, %s of its own, %s shared%s", get_str(node, "kind"), sandbox, size_text(own, get_num(node, "own_bytes")),
		size_text(shared, get_num(node, "shared_bytes")), still);
}

static int save(struct cli *c, const char *id, const char *suffix, const char *doing)
{
	autofree char *path = sandbox_path(id, suffix);
	autojson json_t *node = NULL;
	struct fail why = { 0 };
	json_t *body = json_pack("{s:s*}", "label", save_o.label);
	char what[96];

	if (!body)
		return cli_usage(c, "--label is not valid UTF-8");
	snprintf(what, sizeof(what), "%s of %.63s", doing, id);
	if (api_make(c, path, body, what, &node, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, node);
		return EXIT_OK;
	}
	printf("%s\n", get_str(node, "id"));
	if (c->out_tty && !save_o.quiet)
		save_note(c, node, id);
	return EXIT_OK;
}

static int checkpoint_run(struct cli *c, int argc, char **argv)
{
	/* "checkpoint ls" is what many will try first. */
	if (argc == 2 || !strcmp(argv[0], "ls"))
		return cli_usage(c, "checkpoint takes the id of a sandbox (and --label TEXT); what was saved: space node ls, show, rm");
	return save(c, argv[0], "/checkpoints", "checkpoint");
}

static int snapshot_run(struct cli *c, int argc, char **argv)
{
	return save(c, argv[0], "/snapshots", "snapshot");
}

const struct command command_checkpoint = {
	.name = "checkpoint",
	.args = "ID",
	.brief = "Save disk, memory and processes of a sandbox as they are now, and print the id of the node",
	.detail = "The sandbox goes on; it stands still for a moment. space rollback comes back to it, space create --from continues it in a\n"
		  "new sandbox. It stays until space node rm or space prune removes it.",
	.examples = "  c=$(space checkpoint $id --label before-refactor)\n  space rollback $id $c\n  space create --from before-refactor",
	.run = checkpoint_run,
	OPTS(save_opts, save_o),
	.stop_after = -1,
	.min = 1,
	.max = 2,
};

const struct command command_snapshot = {
	.name = "snapshot",
	.args = "ID",
	.brief = "Save the disk of a sandbox alone, and print the id of the node",
	.detail = "Its file systems are at rest for that moment. What is started from a snapshot boots; nothing of memory is kept.",
	.examples = "  s=$(space snapshot $id)\n  space create --from $s",
	.run = snapshot_run,
	OPTS(save_opts, save_o),
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

/* --- branch --- */
#define BRANCHES_MAX 64 /* of one call, as the API has it */

static struct {
	int64_t count;
	const char *label, *timeout;
	struct opt_list meta;
	bool quiet;
} branch_o = { .count = 1 };

static const struct opt branch_opts[] = {
	{ "count", 'n', OPT_INT, offsetof(__typeof__(branch_o), count), "N", "how many siblings, 1 to 64 (1)" },
	{ "label", 'l', OPT_STR, offsetof(__typeof__(branch_o), label), "TEXT", "keep the node they come from, under this name" },
	{ "timeout", 0, OPT_STR, offsetof(__typeof__(branch_o), timeout), "TIME", "of the siblings: 90, 10m, 2h; 0: never (usually as the parent's)" },
	{ "meta", 'm', OPT_LIST, offsetof(__typeof__(branch_o), meta), "KEY=VALUE", "a label of the siblings, over the parent's" },
	{ "quiet", 'q', OPT_FLAG, offsetof(__typeof__(branch_o), quiet), NULL, "print the ids and nothing else" },
};

json_t *branch_request(int64_t count, const char *label, const char *timeout, const struct opt_list *meta, struct fail *why)
{
	autojson json_t *body = json_pack("{s:I,s:s*,s:s*}", "count", (json_int_t)count, "label", label, "timeout", timeout);
	autojson json_t *pairs = pairs_json(meta, "meta", false, why);
	bool bad = count < 1 || count > BRANCHES_MAX;

	if (bad)
		fail_here(why, -EINVAL, "--count: a whole number from 1 to %d, not %lld", BRANCHES_MAX, (long long)count);
	else if (!body)
		fail_here(why, -EINVAL, "an option is not valid UTF-8");
	if (bad || !body || !pairs)
		return NULL;
	if (meta->n)
		json_object_set(body, "metadata", pairs);
	return steal_ptr(body);
}

/* Those that did not start: each is an error of its own, told as such. */
static int branch_failures(struct cli *c, const json_t *out)
{
	int status = EXIT_OK;
	json_t *error;
	size_t i;

	json_array_foreach(json_object_get(out, "failed"), i, error) {
		struct fail why = { 0 };
		const char *code = get_str(error, "code"), *remedy = get_str(error, "remedy");

		fail_as(&why, err_by_name(code, strlen(code)), "a sibling did not start: %.180s", get_str(error, "message"));
		if (*remedy)
			fail_remedy(&why, "%.190s", remedy);
		c->subject = NULL; /* it is not about the parent */
		status = cli_fail(c, &why);
	}
	return status;
}

static int branch_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = sandbox_path(argv[0], "/branch");
	autojson json_t *out = NULL;
	struct fail why = { 0 };
	json_t *body = branch_request(branch_o.count, branch_o.label, branch_o.timeout, &branch_o.meta, &why);

	if (!body)
		return cli_usage(c, "branch: %s", why.msg);
	if (api_call_shown(c, "branching", argv[0], "POST", path, body, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, out);
	else
		print_ids(json_object_get(out, "sandboxes"));
	fflush(stdout); /* before what failed */
	if (c->out_tty && !branch_o.quiet)
		cli_note(c, "%zu of %s, from node %s", json_array_size(json_object_get(out, "sandboxes")), argv[0],
			get_str(json_object_get(out, "checkpoint"), "id"));
	return branch_failures(c, out);
}

const struct command command_branch = {
	.name = "branch",
	.alias = "fork",
	.args = "ID",
	.brief = "Make siblings that continue from this instant of a sandbox, and print their ids",
	.detail = "The sandbox itself goes on untouched. Each sibling is a new machine: its own id, address, hostname, tokens and randomness.\n"
		  "The exit status is 1 if one of them did not start; those that did are printed and live. space fork is the same.",
	.examples = "  for i in $(space branch $id -n 10); do space exec -d $i -- ./try-something $i; done",
	.run = branch_run,
	OPTS(branch_opts, branch_o),
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

/* --- rollback --- */
static int rollback_run(struct cli *c, int argc, char **argv)
{
	autofree char *path = sandbox_path(argv[0], "/rollback");
	autojson json_t *sb = NULL;
	struct fail why = { 0 };
	json_t *body = json_pack("{s:s}", "checkpoint", argv[1]);

	c->node = argv[1];
	if (!body)
		return cli_usage(c, "rollback: the checkpoint's name is not valid UTF-8");
	if (api_call_shown(c, "rolling back", argv[0], "POST", path, body, &sb, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, sb);
	else
		printf("%s %s\n", get_str(sb, "id"), get_str(sb, "state"));
	return EXIT_OK;
}

const struct command command_rollback = {
	.name = "rollback",
	.args = "ID NODE",
	.brief = "Take a sandbox back to a checkpoint or snapshot of it; the id stays",
	.detail = "What has happened in it since is gone; take a checkpoint first to be able to come back. NODE is an id or a label, of this\n"
		  "sandbox or of what it came from. From a checkpoint its processes go on, from a snapshot it boots.",
	.examples = "  space rollback $id before-refactor",
	.run = rollback_run,
	.stop_after = -1,
	.min = 2,
	.max = 2,
};
