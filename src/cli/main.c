/* main.c - finds the command, reads the options, runs it. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>

#include "base/clock.h"
#include "cli/cli.h"

static const struct {
	const char *title;
	const struct command *const *list;
} groups[] = {
	{ "Sandboxes",
		(const struct command *const[]){ &command_run, &command_create, &command_ls, &command_show, &command_kill,
			&command_timeout, NULL } },
	{ "Their state",
		(const struct command *const[]){ &command_pause, &command_suspend, &command_wake, &command_checkpoint, &command_snapshot,
			&command_branch, &command_rollback, &command_tree, &command_node, &command_export, &command_import, &command_prune,
			&command_fsck, NULL } },
	{ "Inside a sandbox",
		(const struct command *const[]){ &command_exec, &command_shell, &command_attach, &command_ps,
			&command_signal, &command_cp, &command_watch, &command_forward, &command_logs, &command_events,
			&command_stats, NULL } },
	{ "What sandboxes are made of",
		(const struct command *const[]){ &command_template, &command_image, &command_operation, NULL } },
	{ "Host and access",
		(const struct command *const[]){ &command_host, &command_df, &command_doctor, &command_key, &command_context,
			&command_config, &command_bench, &command_bugreport, NULL } },
	{ "This program", (const struct command *const[]){ &command_completion, &command_version, &command_help, NULL } },
};

static struct cli cli;

static const struct opt global_opts[] = {
	{ "host", 'H', OPT_STR, offsetof(struct cli, host), "URL", "where the API is (http://…, https://…, unix:/PATH)" },
	{ "json", 0, OPT_FLAG, offsetof(struct cli, json), NULL, "JSON on stdout, and errors as JSON on stderr" },
	{ "help", 'h', OPT_FLAG, offsetof(struct cli, help), NULL, "this text" },
};

static void print_opts(FILE *f, const struct opt *o, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char left[64];

		snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o[i].letter ? "-" : " ", o[i].letter ? o[i].letter : ' ',
			o[i].letter ? ", " : "  ", o[i].name, o[i].meta ? " " : "", o[i].meta ? o[i].meta : "");
		fprintf(f, "  %-28s %s\n", left, o[i].help);
	}
}

static void print_list(FILE *f, const struct command *const *list)
{
	for (; *list; list++)
		fprintf(f, "  %-18s %s\n", (*list)->name, (*list)->brief);
}

/* All commands, or one. */
int cli_help(struct cli *c, const struct command *cmd, FILE *f)
{
	if (!cmd) {
		fprintf(f, "space: sandboxes for the code of AI agents, each a virtual machine of its own\n\n"
			   "usage: space COMMAND [OPTIONS] [WORDS]\n");
		for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
			fprintf(f, "\n%s\n", groups[g].title);
			print_list(f, groups[g].list);
		}
		fprintf(f, "\nWith every command\n");
		print_opts(f, global_opts, ARRAY_LEN(global_opts));
		fprintf(f, "\nEnvironment: SPACE_URL, SPACE_API_KEY, SPACE_SOCKET, NO_COLOR.\n"
			   "\n  space run -- python3 -c 'print(6*7)'\n  space help run\n");
		return EXIT_OK;
	}
	fprintf(f, "usage: space %s%s%s%s\n\n%s.\n", cmd->name, cmd->sub ? " COMMAND" : "", cmd->args ? " " : "",
		cmd->args ? cmd->args : "", cmd->brief);
	if (cmd->detail)
		fprintf(f, "\n%s\n", cmd->detail);
	if (cmd->sub) {
		fprintf(f, "\n");
		print_list(f, cmd->sub);
	}
	if (!cmd->sub) {
		fprintf(f, "\nOptions\n");
		print_opts(f, cmd->opts, cmd->nopts);
		print_opts(f, global_opts, ARRAY_LEN(global_opts));
	}
	if (cmd->examples)
		fprintf(f, "\nExamples\n%s\n", cmd->examples);
	return EXIT_OK;
}

/* "ls" of "template ls". */
static const char *last_word(const char *name)
{
	const char *space = strrchr(name, ' ');

	return space ? space + 1 : name;
}

static const struct command *find_in(const struct command *const *list, const char *word)
{
	for (; *list; list++) {
		if (!strcmp(last_word((*list)->name), word) || ((*list)->alias && !strcmp((*list)->alias, word)))
			return *list;
	}
	return NULL;
}

static const struct command *find_command(const char *word)
{
	const struct command *cmd = NULL;

	for (size_t g = 0; g < ARRAY_LEN(groups) && !cmd; g++)
		cmd = find_in(groups[g].list, word);
	return cmd;
}

static int unknown_command(struct cli *c, const char *word, const struct command *parent)
{
	const char *names[64] = { NULL };
	size_t n = 0;
	int best;

	if (parent) {
		for (size_t i = 0; parent->sub[i]; i++)
			names[n++] = last_word(parent->sub[i]->name);
	} else {
		for (size_t g = 0; g < ARRAY_LEN(groups); g++)
			for (size_t i = 0; groups[g].list[i]; i++)
				names[n++] = groups[g].list[i]->name;
	}
	best = nearest_name(word, names, n);
	if (best >= 0)
		return cli_usage(c, "no command \"%s%s%s\"; did you mean \"%s\"?", parent ? parent->name : "",
			parent ? " " : "", word, names[best]);
	return cli_usage(c, "no command \"%s%s%s\"; \"space help%s%s\" lists them", parent ? parent->name : "",
		parent ? " " : "", word, parent ? " " : "", parent ? parent->name : "");
}

static int help_run(struct cli *c, int argc, char **argv)
{
	const struct command *cmd = NULL;

	if (argc > 0) {
		cmd = find_command(argv[0]);
		if (!cmd)
			return unknown_command(c, argv[0], NULL);
	}
	if (argc > 1) {
		const struct command *sub = cmd->sub ? find_in(cmd->sub, argv[1]) : NULL;

		if (!sub)
			return cmd->sub ? unknown_command(c, argv[1], cmd) :
					  cli_usage(c, "\"%s\" has no commands of its own", cmd->name);
		cmd = sub;
	}
	return cli_help(c, cmd, stdout);
}

const struct command command_help = {
	.name = "help",
	.args = "[COMMAND]",
	.brief = "Explain a command, or list all",
	.run = help_run,
	.max = 2,
	.stop_after = -1,
};

static int version_run(struct cli *c, int argc, char **argv)
{
	struct fail why = { 0 };
	autojson json_t *host = NULL;
	int r = cli_connect(c, &why);

	if (r == 0)
		r = api_call(c, "GET", "/v1/host", NULL, &host, &why);
	if (c->json) {
		autojson json_t *out = json_pack("{s:s,s:o?}", "version", SPACE_VERSION, "host", json_incref(host));

		json_print(c, out);
		return EXIT_OK;
	}
	printf("space %s\n", SPACE_VERSION);
	if (r == 0)
		printf("spaced %s on %s (%s, %s)\n", get_str(host, "version"), get_str(host, "hostname"),
			get_str(host, "isolation"), get_str(host, "driver_version"));
	else
		printf("spaced: %s\n", why.msg);
	return EXIT_OK;
}

const struct command command_version = {
	.name = "version",
	.brief = "Print the versions of this program and of the daemon it reaches",
	.run = version_run,
	.stop_after = -1,
};

/* Options of CMD and the global ones out of argv, then the command. ARGV[0] is the command's name. */
static int run_command(struct cli *c, const struct command *cmd, int argc, char **argv)
{
	struct opt_table tables[] = {
		{ cmd->opts, cmd->nopts, cmd->into },
		{ global_opts, ARRAY_LEN(global_opts), c },
	};
	struct fail why = { 0 };
	int n = 0;

	if (cmd->sub) {
		/* "space template --help" and "space --json template ls" */
		if (argc > 1 && argv[1][0] != '-') {
			const struct command *sub = find_in(cmd->sub, argv[1]);

			if (!sub)
				return unknown_command(c, argv[1], cmd);
			return run_command(c, sub, argc - 1, argv + 1);
		}
		if (argc > 1 && opt_parse(tables, ARRAY_LEN(tables), -1, argc, argv, &n, &why) < 0)
			return cli_usage(c, "%s", why.msg);
		cli_help(c, cmd, c->help ? stdout : stderr);
		return c->help ? EXIT_OK : EXIT_USAGE;
	}
	if (opt_parse(tables, ARRAY_LEN(tables), cmd->stop_after, argc, argv, &n, &why) < 0)
		return cli_usage(c, "%s: %s", cmd->name, why.msg);
	if (c->help)
		return cli_help(c, cmd, stdout);
	if (n < cmd->min)
		return cli_usage(c, "%s needs %s: space %s %s", cmd->name, n ? "more" : "something to work on", cmd->name,
			cmd->args ? cmd->args : "");
	if (cmd->max >= 0 && n > cmd->max)
		return cli_usage(c, "%s: \"%s\" is one word too many: space %s%s%s", cmd->name, argv[cmd->max], cmd->name,
			cmd->args ? " " : "", cmd->args ? cmd->args : "");
	c->command = cmd->name;
	/* "ID" of `key rm` and `operation wait` is no sandbox's. */
	if (n && cmd->args && !strncmp(cmd->args, "ID", 2) && !strchr(cmd->name, ' '))
		c->subject = argv[0];
	return cmd->run(c, n, argv);
}

/* A descriptor that was closed by the caller would become one of ours, which then is read as stdin or written as output.
 * Nothing comes from the one put in its place, and writing to stdout fails as it would have. */
static void hold_descriptors(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
			abort();
}

int main(int argc, char **argv)
{
	struct opt_table globals = { global_opts, ARRAY_LEN(global_opts), &cli };
	const struct command *cmd;
	struct fail why = { 0 };
	const char *term = getenv("TERM");
	int n = 0, r;

	hold_descriptors();
	setlocale(LC_CTYPE, "C.UTF-8");
	signal(SIGPIPE, SIG_IGN);
	cli.loop = uv_default_loop();
	cli.out_tty = isatty(1);
	cli.err_tty = isatty(2);
	cli.colour = cli.out_tty && !getenv("NO_COLOR") && (!term || strcmp(term, "dumb"));

	/* Options before the command are global ones; a copy of argv, because opt_parse() moves words. */
	if (argc > 1 && !strcmp(argv[1], "--version"))
		argv[1] = "version";
	if (opt_parse(&globals, 1, 0, argc, argv, &n, &why) < 0) {
		r = cli_usage(&cli, "%s", why.msg);
	} else if (n == 0) {
		r = cli.help ? EXIT_OK : EXIT_USAGE;
		cli_help(&cli, NULL, cli.help ? stdout : stderr);
	} else if (!(cmd = find_command(argv[0]))) {
		r = unknown_command(&cli, argv[0], NULL);
	} else {
		r = run_command(&cli, cmd, n, argv);
	}
	if (fflush(stdout) == EOF && r == EXIT_OK)
		r = EXIT_FAILED;
	/* Not exit(): libuv's destructor would wait for a worker that may be reading a terminal. */
	_exit(r);
}
