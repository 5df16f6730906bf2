/* cmd_bugreport.c - bugreport: what is needed to understand a fault, in one archive, without secrets.
 *
 * Taken out before anything is written: keys, values of environments and metadata, labels, commands of templates, tokens. Never put in: files and
 * output of sandboxes, command lines, the database. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "base/proc.h"
#include "cli/doctor.h"

#define PART_MAX (8 * MIB)
#define REPORT_MAX (96 * MIB)

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

/* What a user wrote, and not what we need of it: values of env and metadata, labels of checkpoints, commands of templates. */
static bool is_users(const char *key)
{
	static const char *const keys[] = { "label", "cmd", "start_cmd", "ready_cmd", "token", "attach_token" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (!strcmp(key, keys[i]))
			return true;
	return false;
}

/* At any depth. */
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
		} else if (is_users(key) && !json_is_null(one)) {
			json_object_set_new(v, key, json_string("***"));
		} else {
			redact_json(one);
		}
	}
}

/* --- the archive: put together in memory, so that whatever happens there is nothing to clean up --- */

struct report {
	char name[48]; /* the one directory in it */
	time_t now;
	struct buf tar;
	int err;
};

/* The last of SIZE bytes stays NUL. */
static void octal(char *field, size_t size, uint64_t v)
{
	for (size_t i = size - 1; i-- > 0; v >>= 3)
		field[i] = (char)('0' + (v & 7));
}

/* One file, as POSIX's ustar has it: a header of 512 bytes, and the bytes in whole blocks. */
static void part_text(struct report *rep, const char *name, char *text)
{
	static const char zeros[512];
	char h[512] = { 0 };
	size_t n = strlen(text);
	unsigned sum = 0;

	redact_text(text);
	snprintf(h, 100, "%s/%s", rep->name, name);
	octal(h + 100, 8, 0600);
	octal(h + 108, 8, 0);
	octal(h + 116, 8, 0);
	octal(h + 124, 12, n);
	octal(h + 136, 12, (uint64_t)rep->now);
	memset(h + 148, ' ', 8); /* the sum is made with blanks in its place */
	h[156] = '0';
	memcpy(h + 257, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	octal(h + 148, 7, sum);
	if (buf_add(&rep->tar, h, sizeof(h)) < 0 || buf_add(&rep->tar, text, n) < 0 ||
	    buf_add(&rep->tar, zeros, -n % sizeof(zeros)) < 0)
		rep->err = -ENOBUFS;
}

static int archive_write(struct report *rep, const char *out, struct fail *why)
{
	static const char *const gzip[] = { "gzip", "-9", NULL };
	static const char end[1024];
	autobuf struct buf packed;
	int r;

	buf_init(&packed, REPORT_MAX);
	if (rep->err < 0 || buf_add(&rep->tar, end, sizeof(end)) < 0)
		return fail_set(why, -ENOBUFS, "bugreport: over %llu MiB", REPORT_MAX / MIB);
	r = run(&(struct run_opts){ .argv = gzip, .input = buf_str(&rep->tar), .out = &packed, .timeout_ms = 60000 }, NULL, why);
	if (r < 0)
		return r;
	r = file_write_atomic(AT_FDCWD, out, packed.p, packed.n, 0600);
	return r < 0 ? fail_here(why, r, "%s: %s", out, strerror(-r)) : 0;
}

/* --- its parts --- */

static void part_json(struct report *rep, const char *name, json_t *v)
{
	autofree char *text = NULL;

	redact_json(v);
	text = json_dumps(v, JSON_INDENT(2) | JSON_ENCODE_ANY);
	if (text)
		part_text(rep, name, text);
	json_decref(v);
}

static void part_call(struct cli *c, struct report *rep, const char *name, const char *target)
{
	struct fail why = { 0 };
	json_t *out = NULL;

	if (api_call_opts(c, "GET", target, NULL, &(struct api_opts){ .timeout_ms = 10000 }, &out, &why) < 0)
		out = json_pack("{s:s}", "unavailable", why.msg);
	if (out)
		part_json(rep, name, out);
}

static void part_run(struct report *rep, const char *name, const char *const *argv)
{
	autobuf struct buf out;
	struct run_opts o = { .argv = argv, .out = &out, .timeout_ms = 15000 };
	struct fail why = { 0 };

	buf_init(&out, PART_MAX);
	if (run(&o, NULL, &why) < 0 && !out.n)
		buf_addz(&out, why.msg);
	if (buf_addc(&out, 0) == 0)
		part_text(rep, name, out.p);
}

/* The last MiB of a file. */
static void part_tail(struct report *rep, const char *name, const char *path)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	autofree char *text = calloc(1, MIB + 1);
	struct stat st;
	ssize_t n;

	if (fd < 0 || !text || fstat(fd, &st) < 0)
		return;
	n = pread(fd, text, MIB, st.st_size > (off_t)MIB ? st.st_size - (off_t)MIB : 0);
	if (n > 0)
		part_text(rep, name, text);
}

static void collect(struct cli *c, struct report *rep)
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
		part_call(c, rep, "host.json", "/v1/host");
		part_call(c, rep, "config.json", "/v1/config");
		part_call(c, rep, "sandboxes.json", "/v1/sandboxes?all=1&limit=1000");
		part_call(c, rep, "templates.json", "/v1/templates");
		part_call(c, rep, "images.json", "/v1/images");
		part_call(c, rep, "operations.json", "/v1/operations");
		part_call(c, rep, "events.json", "/v1/events?limit=1000");
	}
	part_json(rep, "doctor.json", findings_json(&f));
	snprintf(path, sizeof(path), "%s/spaced.log", state_dir);
	part_tail(rep, "spaced.log", path);
	part_run(rep, "journal.txt", (const char *const[]){ "journalctl", "-u", "spaced", "-n", "2000", "--no-pager", NULL });
	part_run(rep, "packages.txt",
		(const char *const[]){ "dpkg-query", "-W", "qemu-system*", "seabios", "nftables", "mmdebstrap", "erofs-utils", "xfsprogs",
			"libuv1*", "libssl3*", "linux-image*", NULL });
	part_run(rep, "system.txt", (const char *const[]){ "sh", "-c", "uname -a; cat /etc/os-release /proc/meminfo; nproc; df -h; "
							    "grep -m1 'model name' /proc/cpuinfo; ls -l /dev/kvm /dev/net/tun", NULL });
}

static int report_run(struct cli *c, int argc, char **argv)
{
	struct report rep = { .now = time(NULL) };
	char file[64], stamp[32];
	struct fail why = { 0 };
	const char *out = report_o.out;
	int r;

	strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", gmtime(&rep.now));
	snprintf(rep.name, sizeof(rep.name), "space-report-%s", stamp);
	snprintf(file, sizeof(file), "%s.tar.gz", rep.name);
	if (!out)
		out = file;
	buf_init(&rep.tar, REPORT_MAX);
	collect(c, &rep);
	r = archive_write(&rep, out, &why);
	buf_clear(&rep.tar);
	if (r < 0)
		return cli_fail(c, &why);
	if (c->json)
		printf("{\"file\":\"%s\"}\n", out);
	else
		printf("%s\nLook through it (tar xzf) before you send it: keys, environments and labels are taken out, names are not.\n", out);
	return EXIT_OK;
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
