/* cmd_exec.c - run, exec, shell, attach: commands with this terminal at them. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cli/attach.h"
#include "cli/create.h"
#include "cli/term.h"

struct exec_o {
	const char *cwd, *user, *limit, *tag, *shell;
	struct opt_list env;
	bool tty, no_tty, input, no_input, detach, keep;
};

#define EXEC_OPTS(type, m) \
	{ "cwd", 'w', OPT_STR, offsetof(type, m.cwd), "DIR", "working directory in the sandbox" }, \
	{ "user", 'u', OPT_STR, offsetof(type, m.user), "NAME", "as this user of the sandbox (root, user)" }, \
	{ "shell", 'c', OPT_STR, offsetof(type, m.shell), "TEXT", "a line for the sandbox's shell instead of CMD" }, \
	{ "input", 'i', OPT_FLAG, offsetof(type, m.input), NULL, "pass stdin even if it is a terminal" }, \
	{ "no-input", 'n', OPT_FLAG, offsetof(type, m.no_input), NULL, "do not pass stdin" }

/* Is there something on fd 0 to pass on? /dev/null and a closed descriptor are nothing. */
static bool stdin_is_worth_it(void)
{
	struct stat st;

	if (fstat(0, &st) < 0)
		return false;
	return !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

/* The body of exec; *a gets how to attach. NULL with a usage error in WHY. */
static json_t *exec_request(const struct exec_o *o, int argc, char **argv, bool tty, struct attach_opts *a, struct fail *why)
{
	autojson json_t *b = json_pack("{s:s*,s:s*,s:s*,s:s*,s:s*}", "cwd", o->cwd, "user", o->user, "timeout", o->limit, "tag",
		o->tag, "shell", o->shell);
	autojson json_t *env = pairs_json(&o->env, "env", true, why);
	autojson json_t *cmd = json_array();
	unsigned cols, rows;

	if (!env)
		return NULL;
	if (!b || (!argc && !o->shell) || (argc && o->shell)) {
		fail_here(why, -EINVAL, !b ? "an option is not valid UTF-8" : argc ? "--shell and a command: one of both" :
											   "a command is missing");
		return NULL;
	}
	for (int i = 0; i < argc; i++) {
		if (json_array_append_new(cmd, json_string(argv[i])) < 0) {
			fail_here(why, -EINVAL, "word %d of the command is not valid UTF-8", i + 1);
			return NULL;
		}
	}
	if (argc)
		json_object_set(b, "cmd", cmd);
	a->tty = tty;
	/* With a terminal at the other side even /dev/null is something: its end. */
	a->input = !o->no_input && !o->detach && (tty || (stdin_is_worth_it() && (o->input || !isatty(0))));
	if (a->input || tty)
		json_object_set_new(b, "stdin", json_true());
	if (tty) {
		const char *term = getenv("TERM");

		term_size(&cols, &rows);
		json_object_set_new(b, "pty", json_pack("{s:i,s:i}", "cols", cols, "rows", rows));
		if (term && *term)
			json_object_set_new(env, "TERM", json_string(term));
	}
	if (json_object_size(env))
		json_object_set(b, "env", env);
	return steal_ptr(b);
}

/* After attach_exec(): what this program exits with. */
static int exec_status(struct cli *c, const struct attach *a, int r, int code, const char *sandbox, const struct fail *why)
{
	int sig = attach_signalled(a);

	if (r == 0)
		return code;
	if (r != -EINTR)
		return cli_fail(c, why);
	if (sig == SIGPIPE)
		return 128 + SIGPIPE;
	if (sandbox && attach_pid(a))
		cli_note(c, "left; the command goes on: space attach %s %ld", sandbox, attach_pid(a));
	return sig ? 128 + sig : EXIT_OK;
}

/* --- run --- */
static struct {
	struct create_o create;
	struct exec_o exec;
	bool quiet;
} run_o;

static const struct opt run_opts[] = {
	CREATE_OPTS(__typeof__(run_o), create),
	EXEC_OPTS(__typeof__(run_o), exec),
	{ "tty", 'T', OPT_FLAG, offsetof(__typeof__(run_o), exec.tty), NULL, "a terminal for the command (usual if both ends are one)" },
	{ "no-tty", 0, OPT_FLAG, offsetof(__typeof__(run_o), exec.no_tty), NULL, "no terminal, whatever is here" },
	{ "keep", 'k', OPT_FLAG, offsetof(__typeof__(run_o), exec.keep), NULL, "do not remove the sandbox; its id goes to stderr" },
};

/* The sandbox goes, whatever happened; asked for again while the daemon is away. */
static int run_remove(struct cli *c, const char *id, struct fail *why)
{
	autofree char *path = api_path("/v1/sandboxes/%s", id);
	int r = -ENOMEM;

	for (int attempt = 0; path && attempt < 8; attempt++) {
		r = api_call(c, "DELETE", path, NULL, NULL, why);
		if (r == 0 || why->code != ERR_daemon_down)
			break;
		cli_sleep(c, MIN(200 << attempt, 3000));
	}
	if (r < 0 && (why->code == ERR_sandbox_not_found || why->code == ERR_sandbox_gone))
		return 0;
	return r;
}

static int run_in(struct cli *c, struct attach *a, const json_t *sb, json_t *request, struct attach_opts *o)
{
	const char *id = get_str(sb, "id");
	struct fail why = { 0 }, gone = { 0 };
	bool keep = run_o.exec.keep;
	int code = EXIT_FAILED, r = -EINTR, status;

	c->subject = id;
	/* While we live it does not end under us, and soon after us it does: unless a time was asked for. */
	if (!run_o.create.timeout && !keep)
		o->renew_s = (unsigned)MIN(get_num(sb, "timeout"), 86400.0);
	o->owner = !keep;
	if (keep)
		cli_note(c, "sandbox %s", id);
	if (c->json) {
		autojson json_t *line = json_pack("{s:s,s:O}", "event", "sandbox", "sandbox", sb);

		json_print(c, line);
	}
	if (attach_signalled(a))
		json_decref(request);
	else
		r = attach_exec(a, id, request, 0, o, &code, &why);
	status = r == -EINTR && !keep && !attach_signalled(a) ? EXIT_FAILED : exec_status(c, a, r, code, keep ? id : NULL, &why);
	if (!keep && run_remove(c, id, &gone) < 0) {
		fail_prefix(&gone, "sandbox %s is not removed", id);
		fail_remedy(&gone, "space kill %s", id);
		cli_fail(c, &gone);
		if (status == EXIT_OK)
			status = EXIT_FAILED;
	}
	return status;
}

static int run_run(struct cli *c, int argc, char **argv)
{
	bool tty = run_o.exec.tty || (!run_o.exec.no_tty && !run_o.exec.no_input && !c->json && isatty(0) && isatty(1));
	struct attach_opts o = { 0 };
	struct fail why = { 0 };
	autojson json_t *sb = NULL;
	json_t *request, *body;
	struct attach *a;
	int status;

	request = exec_request(&run_o.exec, argc, argv, tty, &o, &why);
	body = request ? create_request(&run_o.create, &why) : NULL;
	if (!body) {
		json_decref(request);
		return cli_usage(c, "run: %s", why.msg);
	}
	/* Signals are caught from here on, so that a sandbox that is just being made is removed too. */
	a = attach_new(c);
	c->node = run_o.create.from;
	if (sandbox_create(c, body, &sb, &why) < 0) {
		json_decref(request);
		status = cli_fail(c, &why);
		return attach_signalled(a) ? 128 + attach_signalled(a) : status;
	}
	return run_in(c, a, sb, request, &o);
}

const struct command command_run = {
	.name = "run",
	.args = "[--] CMD [WORD…]",
	.brief = "Create a sandbox, run a command in it with this terminal attached, remove the sandbox",
	.detail = "The exit status is the command's (128+n if signal n ended it). Ctrl-C goes to the command. The sandbox is\n"
		  "removed when this program ends, however it ends; while it runs the sandbox's deadline is moved on, unless\n"
		  "--timeout is given. On a terminal, ~. at the beginning of a line leaves.",
	.examples = "  space run -- python3 -c 'print(6*7)'\n"
		    "  space run --memory 2G --vcpu 2 -- bash\n"
		    "  echo '1+1' | space run -- python3 -i\n"
		    "  space run -c 'uname -r; id'",
	.run = run_run,
	OPTS(run_opts, run_o),
	.stop_after = 0,
	.max = -1,
};

/* --- exec --- */
static struct {
	struct exec_o exec;
} exec_o;

static const struct opt exec_opts[] = {
	EXEC_OPTS(__typeof__(exec_o), exec),
	{ "tty", 't', OPT_FLAG, offsetof(__typeof__(exec_o), exec.tty), NULL, "a terminal for the command" },
	{ "env", 'e', OPT_LIST, offsetof(__typeof__(exec_o), exec.env), "NAME=VALUE", "environment of the command (NAME alone: as here)" },
	{ "timeout", 0, OPT_STR, offsetof(__typeof__(exec_o), exec.limit), "TIME", "the command is killed after that long" },
	{ "tag", 0, OPT_STR, offsetof(__typeof__(exec_o), exec.tag), "TEXT", "a name for the command, shown by space ps" },
	{ "detach", 'd', OPT_FLAG, offsetof(__typeof__(exec_o), exec.detach), NULL, "start it and print its pid" },
};

static int exec_detached(struct cli *c, const char *id, json_t *request)
{
	autofree char *path = api_path("/v1/sandboxes/%s/exec?detach=1", id);
	autojson json_t *out = NULL;
	struct fail why = { 0 };

	if (api_call(c, "POST", path, request, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, out);
	else
		printf("%.0f\n", get_num(out, "pid"));
	return EXIT_OK;
}

static int exec_run(struct cli *c, int argc, char **argv)
{
	struct attach_opts o = { 0 };
	struct fail why = { 0 };
	json_t *request;
	struct attach *a;
	int code = EXIT_FAILED, r;

	request = exec_request(&exec_o.exec, argc - 1, argv + 1, exec_o.exec.tty, &o, &why);
	if (!request)
		return cli_usage(c, "exec: %s", why.msg);
	if (exec_o.exec.detach)
		return exec_detached(c, argv[0], request);
	r = cli_connect(c, &why);
	if (r < 0) {
		json_decref(request);
		return cli_fail(c, &why);
	}
	a = attach_new(c);
	r = attach_exec(a, argv[0], request, 0, &o, &code, &why);
	return exec_status(c, a, r, code, argv[0], &why);
}

const struct command command_exec = {
	.name = "exec",
	.args = "ID [--] CMD [WORD…]",
	.brief = "Run a command in a sandbox",
	.detail = "The exit status is the command's (128+n if signal n ended it). Stdin is passed unless it is a terminal. Ctrl-C\n"
		  "goes to the command. When the connection breaks or the daemon is restarted, the output goes on where it was.",
	.examples = "  space exec $id -- bash -c 'echo hi; exit 3'\n"
		    "  tar c src | space exec $id -- tar x -C /home/user\n"
		    "  space exec -t $id -- python3\n"
		    "  pid=$(space exec -d $id -- make -j4); space attach $id $pid",
	.run = exec_run,
	OPTS(exec_opts, exec_o),
	.stop_after = 1,
	.min = 1,
	.max = -1,
};

/* --- shell --- */
static struct {
	const char *cwd, *user;
} shell_o;

static const struct opt shell_opts[] = {
	{ "cwd", 'w', OPT_STR, offsetof(__typeof__(shell_o), cwd), "DIR", "working directory in the sandbox" },
	{ "user", 'u', OPT_STR, offsetof(__typeof__(shell_o), user), "NAME", "as this user of the sandbox (root, user)" },
};

static int shell_run(struct cli *c, int argc, char **argv)
{
	/* A login shell, the best there is; images made from a directory or from OCI may have sh only. */
	char *words[] = { "/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi" };
	struct exec_o e = { .cwd = shell_o.cwd, .user = shell_o.user, .tty = true, .input = true, .tag = "shell" };
	struct attach_opts o = { .lines = true };
	struct fail why = { 0 };
	json_t *request = exec_request(&e, ARRAY_LEN(words), words, true, &o, &why);
	struct attach *a;
	int code = EXIT_FAILED, r;

	if (!request)
		return cli_usage(c, "shell: %s", why.msg);
	if (cli_connect(c, &why) < 0) {
		json_decref(request);
		return cli_fail(c, &why);
	}
	a = attach_new(c);
	r = attach_exec(a, argv[0], request, 0, &o, &code, &why);
	return exec_status(c, a, r, code, argv[0], &why);
}

const struct command command_shell = {
	.name = "shell",
	.alias = "sh",
	.args = "ID",
	.brief = "Open a shell in a sandbox",
	.detail = "~. at the beginning of a line leaves and lets the shell go on; space attach ID PID comes back to it. Lines may come through a\n"
		  "pipe too; the shell ends with them.",
	.examples = "  space shell $id\n  space shell -u root $id\n  echo 'uname -r' | space shell $id",
	.run = shell_run,
	OPTS(shell_opts, shell_o),
	.stop_after = -1,
	.min = 1,
	.max = 1,
};

/* --- attach --- */
static struct {
	bool no_input;
} attach_o;

static const struct opt attach_cmd_opts[] = {
	{ "no-input", 'n', OPT_FLAG, offsetof(__typeof__(attach_o), no_input), NULL, "only read the output" },
};

/* Has that process a terminal? 1, 0, or a negative errno. */
static int process_has_tty(struct cli *c, const char *id, long pid, struct fail *why)
{
	autofree char *path = api_path("/v1/sandboxes/%s/processes", id);
	autojson json_t *out = NULL;
	json_t *p;
	size_t i;
	int r = api_call(c, "GET", path, NULL, &out, why);

	if (r < 0)
		return r;
	json_array_foreach(json_object_get(out, "processes"), i, p) {
		json_t *pty = json_object_get(p, "pty");

		if ((long)get_num(p, "pid") == pid)
			return pty && !json_is_false(pty) && !json_is_null(pty);
	}
	return fail_as(why, ERR_process_not_found, "no process %ld in sandbox %.60s", pid, id);
}

static int attach_run(struct cli *c, int argc, char **argv)
{
	struct attach_opts o = { 0 };
	struct fail why = { 0 };
	struct attach *a;
	int code = EXIT_FAILED, r;
	uint64_t pid;

	if (str_u64(str_of(argv[1]), INT32_MAX, &pid) < 0 || pid == 0)
		return cli_usage(c, "attach: \"%s\" is no pid; space ps %s lists them", argv[1], argv[0]);
	r = process_has_tty(c, argv[0], (long)pid, &why);
	if (r < 0)
		return cli_fail(c, &why);
	o.tty = r == 1;
	/* Only a terminal's stdin: that of a pipe ended for good with the program that fed it. */
	o.input = o.tty && !attach_o.no_input && isatty(0);
	a = attach_new(c);
	r = attach_exec(a, argv[0], NULL, (long)pid, &o, &code, &why);
	return exec_status(c, a, r, code, argv[0], &why);
}

const struct command command_attach = {
	.name = "attach",
	.args = "ID PID",
	.brief = "Follow a command that runs in a sandbox, from the oldest output that is kept",
	.examples = "  space attach $id 412",
	.run = attach_run,
	OPTS(attach_cmd_opts, attach_o),
	.stop_after = -1,
	.min = 2,
	.max = 2,
};
