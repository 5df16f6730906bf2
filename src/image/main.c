/* space-image - builds what the pool holds: the guest's kernel, its initramfs, images. Run by
 * spaced as a child of its own.
 *
 * Prints one JSON object a line: {"step":"unpacking the kernel","done":0.4} (done: 0 to 1, null if
 * unknown) and last {"image":{…}}, {"kernel":{…}},
 * {"initrd":{…}}, {"images":[…]}, {"pool":{…}} or {"error":{code,message,remedy}}. Exit status 0, 1
 * (failed) or 2 (wrong usage).
 *
 * The work is done by a child; this process waits for it. SIGTERM, SIGINT, SIGHUP, the death of who
 * started us, a crash of the child and our own death all end the same way: the child and everything
 * that it started are killed, and what it had begun is swept out of the pool. */
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "image/images.h"

#define LINE_BYTES (1 * MIB)

static const char usage[] =
	"usage: space-image --state-dir DIR [--pool-size BYTES] [--no-mount] COMMAND\n"
	"  build-base [NAME]             Debian 12 with Python, Node.js, git, curl, sudo (name: "
	"base)\n"
	"  build-packages NAME PKG...    Debian 12 with these packages\n"
	"  build-dir NAME DIR            a directory\n"
	"  build-oci NAME REF            oci:PATH[:TAG] or docker://HOST/NAME[:TAG]\n"
	"  ls | show NAME | rm NAME      images by name or digest\n"
	"  kernel                        the guest's kernel, fetched if there is none\n"
	"  initrd AGENT                  the guest's initramfs with the program AGENT\n"
	"  pool-mount | pool-unmount     the storage pool\n";

struct options {
	const char *state_dir;
	uint64_t pool_size;
	bool may_mount;
};

/* --- what is printed --- */

static void emit(struct buf *b)
{
	if (!buf_addc(b, '\n'))
		write_all(STDOUT_FILENO, b->p, b->n);
}

static void emit_fail(const struct fail *f)
{
	autobuf struct buf b = { 0 };
	struct jw w;

	buf_init(&b, 16 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_obj(&w, "error");
	jw_fail(&w, f, NULL);
	jw_obj_end(&w);
	jw_obj_end(&w);
	emit(&b);
}

/* Steps come as often as the work likes to say them; four lines a second are enough for anybody. */
static void emit_step(const char *what, double done, void *arg)
{
	static int64_t last;
	static char before[128];
	autobuf struct buf b = { 0 };
	int64_t now = mono_ms();
	struct jw w;

	(void)arg;
	if (now - last < 250 && !strcmp(what, before))
		return;
	last = now;
	snprintf(before, sizeof(before), "%s", what);
	buf_init(&b, 4 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "step", what);
	if (done < 0)
		jw_null(&w, "done");
	else
		jw_num(&w, "done", done > 1 ? 1 : done);
	jw_obj_end(&w);
	emit(&b);
}

static const struct progress progress = { emit_step, NULL };

static int emit_image(struct image_info *i)
{
	autobuf struct buf b = { 0 };
	struct jw w;

	buf_init(&b, LINE_BYTES);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	image_to_json(&w, "image", i);
	jw_obj_end(&w);
	emit(&b);
	image_info_clear(i);
	return 0;
}

/* --- the commands: each gets the pool and its own arguments --- */

static int cmd_build_base(struct pool *p, char **argv, int n, struct fail *why)
{
	struct image_info i;
	int r = image_build_debian(p, n ? argv[0] : "base", NULL, 0, &progress, &i, why);

	return r < 0 ? r : emit_image(&i);
}

static int cmd_build_packages(struct pool *p, char **argv, int n, struct fail *why)
{
	struct image_info i;
	int r = image_build_debian(
		p, argv[0], (const char *const *)argv + 1, (size_t)n - 1, &progress, &i, why);

	return r < 0 ? r : emit_image(&i);
}

static int cmd_build_dir(struct pool *p, char **argv, int n, struct fail *why)
{
	struct image_info i;
	int r = image_build_dir(p, argv[0], argv[1], &progress, &i, why);

	(void)n;
	return r < 0 ? r : emit_image(&i);
}

static int cmd_build_oci(struct pool *p, char **argv, int n, struct fail *why)
{
	struct image_info i;
	int r = image_build_oci(p, argv[0], argv[1], &progress, &i, why);

	(void)n;
	return r < 0 ? r : emit_image(&i);
}

static int cmd_show(struct pool *p, char **argv, int n, struct fail *why)
{
	struct image_info i;
	int r = image_find(p, argv[0], &i, why);

	(void)n;
	return r < 0 ? r : emit_image(&i);
}

static int cmd_rm(struct pool *p, char **argv, int n, struct fail *why)
{
	struct image_info i;
	int r = image_find(p, argv[0], &i, why);

	(void)n;
	if (!r)
		r = FAULT_WHY(why, image_remove(p, argv[0], why));
	return r < 0 ? r : emit_image(&i);
}

static int cmd_ls(struct pool *p, char **argv, int n, struct fail *why)
{
	autobuf struct buf b = { 0 };
	struct image_info *v;
	struct jw w;
	size_t count;
	int r = image_list(p, &v, &count, why);

	(void)argv;
	(void)n;
	if (r < 0)
		return r;
	buf_init(&b, 16 * LINE_BYTES);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_arr(&w, "images");
	for (size_t i = 0; i < count; i++) {
		image_to_json(&w, NULL, &v[i]);
		image_info_clear(&v[i]);
	}
	jw_arr_end(&w);
	jw_obj_end(&w);
	free(v);
	if (w.err)
		return fail_as(why, ERR_too_large, "too many images to list");
	emit(&b);
	return 0;
}

static void emit_digest(const char *what, const struct digest *d, const char *release)
{
	autobuf struct buf b = { 0 };
	char text[80];
	struct jw w;

	buf_init(&b, 4 * KIB);
	snprintf(text, sizeof(text), "sha256:%s", d->hex);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_obj(&w, what);
	jw_str(&w, "digest", text);
	if (release)
		jw_str(&w, "release", release);
	jw_obj_end(&w);
	jw_obj_end(&w);
	emit(&b);
}

static int cmd_kernel(struct pool *p, char **argv, int n, struct fail *why)
{
	struct kernel_info k;
	int r = kernel_ensure(p, &progress, &k, why);

	(void)argv;
	(void)n;
	if (!r)
		emit_digest("kernel", &k.digest, k.release);
	return r;
}

static int cmd_initrd(struct pool *p, char **argv, int n, struct fail *why)
{
	struct kernel_info k;
	struct digest d;
	int r = kernel_current(p, &k, why);

	(void)n;
	if (!r)
		r = initrd_ensure(p, &k.digest, argv[0], &d, why);
	if (!r)
		emit_digest("initrd", &d, NULL);
	return r;
}

static int cmd_pool(struct pool *p, char **argv, int n, struct fail *why)
{
	static const char *const names[] = {
		[POOL_CLONE_NATIVE] = "native",
		[POOL_CLONE_XFS_IMAGE] = "xfs-image",
		[POOL_CLONE_COPY] = "copy",
	};
	autobuf struct buf b = { 0 };
	struct pool_info i;
	struct jw w;
	int r = pool_info(p, &i, why);

	(void)argv;
	(void)n;
	if (r < 0)
		return r;
	buf_init(&b, 8 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_obj(&w, "pool");
	jw_str(&w, "path", p->path);
	jw_str(&w, "clone", names[i.clone]);
	jw_int(&w, "bytes_total", (int64_t)i.bytes_total);
	jw_int(&w, "bytes_free", (int64_t)i.bytes_free);
	jw_obj_end(&w);
	jw_obj_end(&w);
	emit(&b);
	return 0;
}

static const struct command {
	const char *name;
	int min, max; /* arguments */
	int (*fn)(struct pool *p, char **argv, int n, struct fail *why);
} commands[] = {
	{ "build-base", 0, 1, cmd_build_base },
	{ "build-packages", 2, 1001, cmd_build_packages },
	{ "build-dir", 2, 2, cmd_build_dir },
	{ "build-oci", 2, 2, cmd_build_oci },
	{ "ls", 0, 0, cmd_ls },
	{ "show", 1, 1, cmd_show },
	{ "rm", 1, 1, cmd_rm },
	{ "kernel", 0, 0, cmd_kernel },
	{ "initrd", 1, 1, cmd_initrd },
	{ "pool-mount", 0, 0, cmd_pool },
	{ "pool-unmount", 0, 0, NULL },
};

/* --- the child, and who watches over it --- */

static int work(const struct options *o, const struct command *c, char **argv, int n)
{
	struct fail why = { 0 };
	struct pool *p;
	int r;

	if (!c->fn) {
		r = pool_unmount(o->state_dir, &why);
	} else {
		r = pool_open(o->state_dir, o->may_mount, o->pool_size, &p, &why);
		if (!r) {
			r = c->fn(p, argv, n, &why);
			pool_close(p);
		}
	}
	if (r < 0)
		emit_fail(&why);
	return r < 0 ? 1 : 0;
}

/* Everything that the child started is ours now (we are the subreaper): wait until all of it is
 * gone. */
static void reap_all(void)
{
	int64_t until = mono_ms() + 10000;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && mono_ms() < until)
		if (pid == 0)
			usleep(10000);
}

/* Opening the pool removes what dead processes left in its tmp directory. */
static void sweep(const struct options *o)
{
	struct pool *p;

	if (!pool_open(o->state_dir, o->may_mount, 0, &p, NULL))
		pool_close(p);
}

static int interrupted(const struct options *o, pid_t pid, int sig)
{
	struct fail why = { 0 };

	if (pid > 0)
		kill(pid, SIGKILL);
	reap_all();
	sweep(o);
	if (sig)
		fail_set(&why, -ECANCELED, "stopped by signal %d; nothing was left behind", sig);
	else
		fail_as(&why, ERR_internal, "space-image's worker died");
	fail_remedy(&why, "run it again");
	emit_fail(&why);
	return 1;
}

static int watch(const struct options *o, pid_t pid, int sfd)
{
	for (;;) {
		struct signalfd_siginfo si;
		int status;

		if (read(sfd, &si, sizeof(si)) != sizeof(si))
			continue;
		if (si.ssi_signo != SIGCHLD)
			return interrupted(o, pid, (int)si.ssi_signo);
		for (pid_t got; (got = waitpid(-1, &status, WNOHANG)) > 0;) {
			if (got != pid)
				continue;
			if (WIFEXITED(status) && WEXITSTATUS(status) <= 2)
				return WEXITSTATUS(status);
			return interrupted(o, -1, 0);
		}
	}
}

static int supervise(const struct options *o, const struct command *c, char **argv, int n)
{
	pid_t self = getpid(), pid;
	sigset_t set;
	int sfd;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody waits for the result of a daemon that is gone */
	signal(SIGPIPE, SIG_IGN);	  /* nobody reads any more: the work goes on to its end */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sfd = signalfd(-1, &set, SFD_CLOEXEC);
	pid = sfd < 0 ? -1 : FAULT(fork());
	if (pid < 0) {
		fprintf(stderr, "space-image: %s\n", strerror(errno));
		return 1;
	}
	if (pid == 0) {
		/* Signals stay blocked here: a Ctrl-C goes to the whole group, and only the parent
		 * acts on it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(getppid() == self ? work(o, c, argv, n) : 1);
	}
	return watch(o, pid, sfd);
}

static int wrong_usage(void)
{
	fputs(usage, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "state-dir", required_argument, NULL, 's' },
		{ "pool-size", required_argument, NULL, 'p' },
		{ "no-mount", no_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	struct options o = { .may_mount = true };
	int c;

	log_set_program("space-image");
	while ((c = getopt_long(argc, argv, "+h", longs, NULL)) >= 0) {
		switch (c) {
		case 's':
			o.state_dir = optarg;
			break;
		case 'p':
			if (str_size(str_of(optarg), &o.pool_size))
				return wrong_usage();
			break;
		case 'n':
			o.may_mount = false;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		case 'v':
			puts("space-image " SPACE_VERSION);
			return 0;
		default:
			return wrong_usage();
		}
	}
	if (!o.state_dir || optind == argc)
		return wrong_usage();
	argv += optind + 1;
	argc -= optind + 1;
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(commands[i].name, argv[-1]))
			continue;
		if (argc < commands[i].min || argc > commands[i].max)
			return wrong_usage();
		return supervise(&o, &commands[i], argv, argc);
	}
	return wrong_usage();
}
