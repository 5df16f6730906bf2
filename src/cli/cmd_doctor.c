/* cmd_doctor.c - doctor: prints the findings; --try makes, uses and removes a sandbox. */
#include "base/clock.h"
#include "cli/create.h"
#include "cli/doctor.h"

static struct {
	bool try;
	const char *state_dir, *template;
} doctor_o;

static const struct opt doctor_opts[] = {
	{ "try", 0, OPT_FLAG, offsetof(__typeof__(doctor_o), try), NULL, "create a sandbox, run a command in it, remove it" },
	{ "template", 't', OPT_STR, offsetof(__typeof__(doctor_o), template), "NAME", "the template to try" },
	{ "state-dir", 0, OPT_STR, offsetof(__typeof__(doctor_o), state_dir), "DIR", "where spaced keeps its state (/var/lib/space)" },
};

static const char *const verdicts[] = { "ok", "warn", "fail" };

json_t *findings_json(const struct findings *f)
{
	json_t *all = json_array();

	for (size_t i = 0; i < f->n; i++)
		json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:s?}", "check", f->v[i].what, "verdict", verdicts[f->v[i].verdict],
			"found", f->v[i].text, "remedy", f->v[i].remedy[0] ? f->v[i].remedy : NULL));
	return all;
}

bool doctor_daemon(struct cli *c, struct findings *f)
{
	autojson json_t *host = NULL, *templates = NULL;
	struct fail why = { 0 };
	size_t n;

	if (cli_connect(c, &why) < 0 || api_call(c, "GET", "/v1/host", NULL, &host, &why) < 0) {
		found(f, "daemon", VERDICT_FAIL, why.remedy, "%s", why.msg);
		return false;
	}
	found(f, "daemon", VERDICT_OK, NULL, "spaced %.40s at %.100s, %.20s", get_str(host, "version"), c->where, get_str(host, "isolation"));
	if (strcmp(get_str(host, "version"), SPACE_VERSION))
		found(f, "version", VERDICT_WARN, "restart spaced, or use the space that belongs to it", "this program is %s, spaced is %.40s",
			SPACE_VERSION, get_str(host, "version"));
	if (!strcmp(get_str(json_object_get(host, "pool"), "clone"), "copy"))
		found(f, "storage", VERDICT_WARN, "a state directory on XFS or btrfs, or let spaced mount (root, CAP_SYS_ADMIN, a loop device)",
			"spaced may not mount a file system that clones files: disks and checkpoints are copied, which is slower and takes more room");
	if (api_list(c, "/v1/templates", "templates", &templates, &why) < 0) {
		found(f, "template", VERDICT_FAIL, why.remedy, "%s", why.msg);
		return true;
	}
	n = json_array_size(templates);
	if (!n)
		found(f, "template", VERDICT_FAIL, "space image build base && space template build base --image base (or make up)", "there is none");
	else
		found(f, "template", VERDICT_OK, NULL, "%zu, among them %.60s", n, get_str(json_array_get(templates, 0), "name"));
	return true;
}

char *doctor_state_dir(struct cli *c, const char *given)
{
	autojson json_t *config = NULL;

	if (!given && c->local && api_call(c, "GET", "/v1/config", NULL, &config, NULL) == 0 && *get_str(config, "state_dir"))
		given = get_str(config, "state_dir");
	return strdup(given ? given : "/var/lib/space");
}

/* Create, exec, delete, each timed. */
static void doctor_try(struct cli *c, struct findings *f)
{
	struct create_o o = { .template = doctor_o.template, .timeout = "60" };
	autojson json_t *sb = NULL, *out = NULL;
	autofree char *path = NULL;
	autofree char *exec = NULL;
	struct fail why = { 0 };
	int64_t t0 = mono_ms(), t1, t2;
	json_t *body = create_request(&o, &why);

	if (!body || sandbox_create(c, body, &sb, &why) < 0) {
		found(f, "try: create", VERDICT_FAIL, why.remedy, "%s", why.msg);
		return;
	}
	t1 = mono_ms();
	found(f, "try: create", VERDICT_OK, NULL, "%s, by %s, in %d ms", get_str(sb, "id"), get_str(sb, "start"), (int)(t1 - t0));
	exec = api_path("/v1/sandboxes/%s/exec?wait=1", get_str(sb, "id"));
	if (api_call(c, "POST", exec, json_pack("{s:[s,s,s]}", "cmd", "/bin/sh", "-c", "echo $((6*7)); uname -r"), &out, &why) < 0)
		found(f, "try: exec", VERDICT_FAIL, why.remedy, "%s", why.msg);
	else if (strncmp(get_str(out, "stdout"), "42\n", 3))
		found(f, "try: exec", VERDICT_FAIL, "space bugreport", "6*7 came out as \"%.20s\"", get_str(out, "stdout"));
	else
		found(f, "try: exec", VERDICT_OK, NULL, "a command answered in %d ms; its kernel is %.*s", (int)(mono_ms() - t1),
			(int)strcspn(get_str(out, "stdout") + 3, "\n"), get_str(out, "stdout") + 3);
	path = api_path("/v1/sandboxes/%s", get_str(sb, "id"));
	t2 = mono_ms();
	if (api_call(c, "DELETE", path, NULL, NULL, &why) < 0)
		found(f, "try: delete", VERDICT_FAIL, why.remedy, "%s", why.msg);
	else
		found(f, "try: delete", VERDICT_OK, NULL, "gone in %d ms", (int)(mono_ms() - t2));
}

static int findings_print(struct cli *c, const struct findings *f)
{
	static const char *const colours[] = { "32", "33", "31" };
	unsigned count[3] = { 0 };

	for (size_t i = 0; i < f->n; i++) {
		const struct finding *it = &f->v[i];

		count[it->verdict]++;
		if (c->json)
			continue;
		if (c->colour)
			printf("\033[%sm%-4s\033[0m  %-12s  ", colours[it->verdict], verdicts[it->verdict], it->what);
		else
			printf("%-4s  %-12s  ", verdicts[it->verdict], it->what);
		put_safe(stdout, str_of(it->text));
		putchar('\n');
		if (it->remedy[0] && it->verdict != VERDICT_OK)
			printf("      %-12s  try: %s\n", "", it->remedy);
	}
	if (!c->json)
		printf("%u ok, %u to look at, %u missing\n", count[VERDICT_OK], count[VERDICT_WARN], count[VERDICT_FAIL]);
	return count[VERDICT_FAIL] ? EXIT_FAILED : EXIT_OK;
}

static int doctor_run(struct cli *c, int argc, char **argv)
{
	static struct findings f;
	autofree char *state_dir = NULL;
	struct fail why = { 0 };
	bool up;

	/* Of another host only its daemon can be asked. */
	if (cli_connect(c, &why) < 0)
		return cli_fail(c, &why);
	state_dir = doctor_state_dir(c, doctor_o.state_dir);
	if (c->local && state_dir)
		doctor_host(&f, state_dir);
	up = doctor_daemon(c, &f);
	if (up && doctor_o.try)
		doctor_try(c, &f);
	if (c->json) {
		autojson json_t *all = findings_json(&f);

		json_print(c, all);
	}
	return findings_print(c, &f);
}

const struct command command_doctor = {
	.name = "doctor",
	.brief = "Check each thing that a host needs, and name the command that mends what is missing",
	.detail = "Changes nothing. The exit status is 1 if something fails; warnings are no failures.",
	.examples = "  space doctor\n  space doctor --try",
	.run = doctor_run,
	OPTS(doctor_opts, doctor_o),
	.stop_after = -1,
};
