/* cmd_bugreport.c - bugreport: what is needed to understand a fault, in one archive, without secrets.
 *
 * Taken out before anything is written: keys, values of environments and metadata, bearer tokens. Never put in: files and
 * output of sandboxes, command lines, the database. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "base/proc.h"
#include "cli/doctor.h"

#define PART_MAX (8 * MIB)

static struct {
	const char *out, *state_dir;
} report_o;

static const struct opt report_opts[] = {
	{ "output", 'o', OPT_STR, offsetof(__typeof__(report_o), out), "FILE", "the archive (default: space-report-TIME.tar.gz)" },
	{ "state-dir", 0, OPT_STR, offsetof(__typeof__(report_o), state_dir), "DIR", "where spaced keeps its state (/var/lib/space)" },
};

/* Keys ("space_" or "e2b_" and hex digits) and what follows "Bearer ", "token=", "key=" become stars, in place. */
static void redact_text(char *p)
{
	static const char *const marks[] = { "space_", "e2b_", "Bearer ", "token=", "key=", "token\":\"", "key\":\"", "password=" };

	for (; *p; p++) {
		for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
			size_t n = strlen(marks[i]), len;
			char *v = p + n;

			if (strncmp(p, marks[i], n))
				continue;
			len = i < 2 ? strspn(v, "0123456789abcdef") : strcspn(v, " \t\r\n\",;&'");
			if (len >= (i < 2 ? 16u : 1u))
				memset(v, '*', len);
		}
	}
}

/* Values of members named env and metadata, at any depth. */
static void redact_json(json_t *v)
{
	const char *key;
	json_t *one;
	size_t i;

	json_array_foreach(v, i, one)
		redact_json(one);
	json_object_foreach(v, key, one) {
		if ((!strcmp(key, "env") || !strcmp(key, "metadata")) && json_is_object(one)) {
			const char *name;
			json_t *value;

			json_object_foreach(one, name, value)
				json_object_set_new(one, name, json_string("***"));
		} else {
			redact_json(one);
		}
	}
}

static void part_text(int dir, const char *name, char *text)
{
	redact_text(text);
	file_write_atomic(dir, name, text, strlen(text), 0600);
}

static void part_json(int dir, const char *name, json_t *v)
{
	autofree char *text = NULL;

	redact_json(v);
	text = json_dumps(v, JSON_INDENT(2) | JSON_ENCODE_ANY);
	if (text)
		part_text(dir, name, text);
	json_decref(v);
}

static void part_call(struct cli *c, int dir, const char *name, const char *target)
{
	struct fail why = { 0 };
	json_t *out = NULL;

	if (api_call_opts(c, "GET", target, NULL, &(struct api_opts){ .timeout_ms = 10000 }, &out, &why) < 0)
		out = json_pack("{s:s}", "unavailable", why.msg);
	if (out)
		part_json(dir, name, out);
}

static void part_run(int dir, const char *name, const char *const *argv)
{
	autobuf struct buf out;
	struct run_opts o = { .argv = argv, .out = &out, .timeout_ms = 15000 };
	struct fail why = { 0 };

	buf_init(&out, PART_MAX);
	if (run(&o, NULL, &why) < 0 && !out.n)
		buf_addz(&out, why.msg);
	if (buf_addc(&out, 0) == 0)
		part_text(dir, name, out.p);
}

/* The last MiB of a file. */
static void part_tail(int dir, const char *name, const char *path)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	autofree char *text = calloc(1, MIB + 1);
	struct stat st;
	ssize_t n;

	if (fd < 0 || !text || fstat(fd, &st) < 0)
		return;
	n = pread(fd, text, MIB, st.st_size > (off_t)MIB ? st.st_size - (off_t)MIB : 0);
	if (n > 0)
		part_text(dir, name, text);
}

static void collect(struct cli *c, int dir)
{
	static struct findings f;
	autofree char *state_dir = NULL;
	char path[512];
	struct fail why = { 0 };

	if (cli_connect(c, &why) == 0)
		state_dir = doctor_state_dir(c, report_o.state_dir);
	if (!state_dir)
		state_dir = strdup("/var/lib/space");
	doctor_host(&f, state_dir);
	if (cli_connect(c, &why) == 0 && doctor_daemon(c, &f)) {
		part_call(c, dir, "host.json", "/v1/host");
		part_call(c, dir, "config.json", "/v1/config");
		part_call(c, dir, "sandboxes.json", "/v1/sandboxes?all=1&limit=1000");
		part_call(c, dir, "templates.json", "/v1/templates");
		part_call(c, dir, "images.json", "/v1/images");
		part_call(c, dir, "operations.json", "/v1/operations");
		part_call(c, dir, "events.json", "/v1/events?limit=1000");
	}
	part_json(dir, "doctor.json", findings_json(&f));
	snprintf(path, sizeof(path), "%s/spaced.log", state_dir);
	part_tail(dir, "spaced.log", path);
	part_run(dir, "journal.txt", (const char *const[]){ "journalctl", "-u", "spaced", "-n", "2000", "--no-pager", NULL });
	part_run(dir, "packages.txt",
		(const char *const[]){ "dpkg-query", "-W", "qemu-system*", "seabios", "nftables", "mmdebstrap", "erofs-utils", "xfsprogs",
			"libuv1*", "libssl3*", "linux-image*", NULL });
	part_run(dir, "system.txt", (const char *const[]){ "sh", "-c", "uname -a; cat /etc/os-release /proc/meminfo; nproc; df -h; "
							    "grep -m1 'model name' /proc/cpuinfo; ls -l /dev/kvm /dev/net/tun", NULL });
}

static int report_run(struct cli *c, int argc, char **argv)
{
	char tmp[] = "/tmp/space-report-XXXXXX", name[64], top[128], stamp[32];
	struct fail why = { 0 };
	autoclose int dir = -1;
	const char *out = report_o.out;
	time_t now = time(NULL);
	int r;

	strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", gmtime(&now));
	snprintf(name, sizeof(name), "space-report-%s", stamp);
	if (!mkdtemp(tmp))
		return cli_usage(c, "bugreport: %s: %s", tmp, strerror(errno));
	snprintf(top, sizeof(top), "%s/%s", tmp, name);
	mkdir(top, 0700);
	dir = dir_open(AT_FDCWD, top);
	if (dir >= 0) {
		char file[128], cwd[4096];

		snprintf(file, sizeof(file), "%s.tar.gz", name);
		if (!out)
			out = file;
		collect(c, dir);
		const char *const tar[] = { "tar", "-czf", out, "-C", tmp, name, NULL };

		r = run(&(struct run_opts){ .argv = tar, .timeout_ms = 60000, .cwd = getcwd(cwd, sizeof(cwd)) }, NULL, &why);
		if (r == 0)
			chmod(out, 0600);
		if (r == 0 && c->json)
			printf("{\"file\":\"%s\"}\n", out);
		else if (r == 0)
			printf("%s\nLook through it (tar xzf) before you send it: keys, environments and labels are taken out, names are not.\n", out);
	} else {
		r = fail_here(&why, dir, "%s: %s", top, strerror(-dir));
	}
	rm_rf(AT_FDCWD, tmp);
	return r < 0 ? cli_fail(c, &why) : EXIT_OK;
}

const struct command command_bugreport = {
	.name = "bugreport",
	.brief = "Pack what is needed to report a fault, without secrets",
	.detail = "Holds what doctor finds, the daemon's configuration and log, records of sandboxes and events, package versions. Keys,\n"
		  "environment values and labels are replaced by stars; files and output of sandboxes are not looked at.",
	.run = report_run,
	OPTS(report_opts, report_o),
	.stop_after = -1,
};
