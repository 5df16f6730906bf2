/* core.c - goes through operations, points and ways to strike, one child a turn; see faults.h.
 *
 * usage: faults_core [--seed N] [--times N] [--long N] [--dir DIR] [--points FILE] [--quick 1] [OPERATION…]
 *
 * --quick: every pass is killed at, of the other ways to strike a quarter. --times: each point that was met is killed at least so often (20). --long: that many deaths at points and numbers drawn at random, after the
 * rest. --points: the names of scripts/fault-points --list; those of the rooms under test that were never struck are named at the end. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "faults.h"
#include "sandbox_fake.h"

#define MEMORY (2 * MIB)
#define TURN_S 60 /* a child that takes longer hangs */

struct model *model;
struct config cfg;
uv_loop_t loop;
static char dir[80];
static uint64_t seed = 1;

/* --- the loop --- */

static void nudge(uv_timer_t *t)
{
}

void wait_until(bool (*fn)(struct space *sp), struct space *sp, int ms)
{
	uv_timer_t t;

	uv_timer_init(&loop, &t);
	uv_timer_start(&t, nudge, 2, 2);
	for (int64_t until = mono_ms() + ms; !fn(sp) && mono_ms() < until;)
		uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&t, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
}

/* --- the world --- */

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write_all(fd, text, strlen(text)) < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	close(fd);
}

static struct digest image, kernel, initrd;

static void make_node(struct pool *p, char id[24])
{
	struct node n = { .driver = "fake", .driver_version = "fake 1", .vcpus = 1, .memory = MEMORY, .disk = 64 * MIB, .has_memory = true,
			  .agent_protocol = AGENT_PROTOCOL };
	struct fail why = { 0 };
	char path[400];
	int fd = node_begin(p, n.id, &why);

	n.image = image;
	n.kernel = kernel;
	n.initrd = initrd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/memory", fd);
	put(path, "the template's");
	(void)!truncate(path, MEMORY);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/disk", fd);
	put(path, "the template's");
	if (truncate(path, 64 * MIB) < 0 || node_commit(p, fd, &n, &why) < 0) {
		fprintf(stderr, "a node for the template: %s\n", why.msg);
		exit(1);
	}
	close(fd);
	memcpy(id, n.id, sizeof(n.id));
}

/* pool/FOLDER/DIGEST with that ending, as it is found by its digest. */
static void put_by_digest(struct digest *d, const char *folder, const char *ending, const char *text)
{
	char path[400], to[400];
	autoclose int fd = -1;

	snprintf(path, sizeof(path), "%s/pool/%s/new", cfg.state_dir, folder);
	put(path, text);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || file_sha256(fd, d->hex) < 0)
		exit(1);
	snprintf(to, sizeof(to), "%s/pool/%s/%s", cfg.state_dir, folder, d->hex);
	if (ending[0] == '/')
		mkdir(to, 0700);
	strcat(to, ending);
	if (rename(path, to) < 0)
		exit(1);
}

/* Everything that a start from a node opens, and a pool that copies: what a clone does otherwise is the business of tests/unit/image_pool.c. */
static void make_world(void)
{
	static const char *const folders[] = { "state/pool/images", "state/pool/kernels", "state/pool/initrds", "run" };
	char path[400], text[400];

	snprintf(cfg.state_dir, sizeof(cfg.state_dir), "%s/state", dir);
	snprintf(cfg.run_dir, sizeof(cfg.run_dir), "%s/run", dir);
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, folders[i]);
		if (mkdir_p(path, 0755) < 0)
			exit(1);
	}
	put_by_digest(&image, "images", ".erofs", "an image");
	put_by_digest(&kernel, "kernels", "/vmlinux", "a kernel");
	put_by_digest(&initrd, "initrds", ".cpio", "an initramfs");
	snprintf(text, sizeof(text), "{\"format\":1,\"digest\":\"sha256:%s\",\"bytes\":8,\"created_at\":\"2026-01-01T00:00:00Z\",\"user\":\"\",\"workdir\":\"\"}",
		 image.hex);
	snprintf(path, sizeof(path), "%s/pool/images/%s.json", cfg.state_dir, image.hex);
	put(path, text);
}

static void make_config(void)
{
	config_defaults(&cfg);
	cfg.ready_monitors = 0;
	cfg.memory_limit = 64 * 512 * MIB;
	cfg.overcommit = 1;
	cfg.timeout_s = 0;
	cfg.uid_base = 1900000000;
}

static bool stored;

static void on_stored(void *arg, const struct fail *why)
{
	stored = !why->err;
}

static bool is_stored(struct space *sp)
{
	return stored;
}

static bool make_template(struct space *sp)
{
	struct store_txn *t = store_begin(sp->store);
	struct fail why = { 0 };
	char text[900], node_id[24];

	make_node(sp->pool, node_id);
	snprintf(text, sizeof(text),
		 "{\"name\":\"base\",\"tenant\":\"default\",\"version\":1,\"image\":\"%s\",\"kernel\":\"%s\",\"disk\":67108864,\"created_ns\":1,"
		 "\"env\":{},\"variants\":[{\"vcpu\":1,\"memory\":2097152,\"read_only\":false,\"node\":\"%s\",\"generation\":5,\"bytes\":1}]}",
		 image.hex, kernel.hex, node_id);
	if (template_load(sp, str_of(text), &why) < 0 || tree_load(sp, node_id, STR("{}"), &why) < 0) {
		complain("template: %s", why.msg);
		return false;
	}
	store_put(t, "node", node_id, STR("{}"));
	store_commit(t, NULL, NULL);
	template_save(container_of(sp->templates.next, struct tmpl, link), on_stored, NULL);
	wait_until(is_stored, sp, 5000);
	return stored;
}

/* --- a turn --- */

/* Where a full disk, a full inode table or one that became read-only would be felt. */
#define WRITES "@(*.open*|*.mkdir*|*write*|*.ftruncate|*.fallocate|*.file_*|*.f*sync|*.dir_sync|*.rename*|*.sqlite3_exec|*.step_done|*.node_*|*.disk_clone|*.disk_make|*.pool_publish)"
#define CHANGES "@(*.open*|*.mkdir*|*write*|*.ftruncate|*.fallocate|*.file_*|*.rename*|*.unlink*|*.rmdir|*.rm_rf|*.sqlite3_exec|*.step_done|*.node_*|*.disk_*)"
#define OPENS "@(*.open*|*.memfd_create|*.fork|*.uv_spawn)"

struct round {
	enum op op;
	enum mode mode;
	unsigned long pass;   /* 0: nothing strikes */
	const char *point;    /* pattern; NULL: any */
	const char *err;      /* MODE_ERROR */
	bool onwards;
};

static void rule_of(const struct round *t, char *out, size_t size)
{
	static const char *const actions[MODES] = { "kill", "monitor", "both", "EIO" };

	snprintf(out, size, "%s %lu%s %s", t->point ? t->point : "*", t->pass, t->onwards ? "+" : "", t->mode == MODE_ERROR ? t->err : actions[t->mode]);
}

static void on_strike(const char *point)
{
	unsigned i;

	model->fired = struck_here = true;
	model->loss |= model->mode == MODE_MONITOR || model->mode == MODE_BOTH;
	snprintf(model->point, sizeof(model->point), "%s", point);
	for (i = 0; i < model->npoints && strcmp(model->points[i].name, point); i++)
		;
	if (i == model->npoints) {
		if (i == POINTS_MAX)
			return;
		snprintf(model->points[i].name, sizeof(model->points[i].name), "%s", point);
		model->points[i].op = model->op ? model->op : OP_START;
		model->npoints++;
	}
	model->points[i].struck[model->mode]++;
	model->kills += model->mode == MODE_KILL || model->mode == MODE_BOTH;
}

static struct space *start(struct fail *why)
{
	struct space *sp = NULL;

	uv_loop_init(&loop);
	return space_start(&loop, &cfg, &sp, why) < 0 ? NULL : sp;
}

static void child(const struct round *t)
{
	char rule[500];
	struct fail why = { 0 };
	struct space *sp;

	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	log_set_level(LOG_LEVEL_INFO);
	if (!getenv("FAULTS_LOG"))
		(void)!freopen("/dev/null", "w", stderr); /* what is complained of goes to stdout */
	alarm(TURN_S);
	fake_init(dir);
	fake.memory = MEMORY;
	fault_tell(on_strike);
	rule_of(t, rule, sizeof(rule));
	if (t->op == OP_START) { /* what was under way before it stays so */
		model->fired = false;
		model->mode = t->mode;
	}
	fault_rules(t->op == OP_START && t->pass ? rule : NULL);
	sp = start(&why);
	if (!sp) {
		if (!fault_fired())
			complain("it does not start: %s", why.msg);
		_exit(0);
	}
	fault_rules(NULL);
	if (link_empty(&sp->templates) && !make_template(sp))
		_exit(1);
	verify(sp, true);
	if (t->op == OP_START || t->op == OP_NONE)
		_exit(0);
	tidy(sp);
	if (!op_prepare(sp, t->op))
		_exit(0);
	model->fired = false;
	model->mode = t->mode;
	model->op = t->op;
	fault_rules(t->pass ? rule : NULL);
	op_run(sp, t->op);
	if (t->op == OP_STOP)
		_exit(0);
	/* Still here: nothing struck, or not us. */
	fault_rules(NULL);
	if (model->fired)
		verify(sp, false);
	if (model->fired && t->pass % 2 == 0)
		op_stop(sp);
	_exit(0);
}

/* False when it hung or broke. */
static bool go(const struct round *t)
{
	int status = 0;
	pid_t pid;

	model->turns++;
	model->verified = false;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		child(t);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && (WTERMSIG(status) != SIGKILL || !model->fired)) {
		complain("%s ended with signal %d%s", op_names[t->op], WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ": it hung" : "");
		return false;
	}
	return true;
}

/* --- going through them --- */

static uint64_t draw(uint64_t n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (seed >> 33) % n;
}

static void look(void)
{
	struct round t = { .op = OP_NONE };

	go(&t);
}

static bool quick; /* every pass is killed at; of the other ways to strike some */

/* From the first pass to the last, until nothing strikes any more. */
static unsigned walk(enum op op, enum mode mode, unsigned long step, const char *point, const char *err, bool onwards)
{
	struct round t = { .op = op, .mode = mode, .point = point, .err = err, .onwards = onwards };
	unsigned n = 0;

	if (quick && mode != MODE_KILL)
		step *= 4;

	for (t.pass = 1 + (step > 1 ? draw(step) : 0); t.pass < 100000; t.pass += step) {
		/* A start is struck on the way back from another death. */
		if (op == OP_START) {
			struct round before = { .op = (enum op)(OP_CREATE + draw(OPS - OP_CREATE)), .mode = MODE_KILL, .pass = 1 + draw(80) };

			go(&before);
		}
		go(&t);
		if (!model->fired)
			break;
		n++;
	}
	look();
	return n;
}

static void walk_op(enum op op)
{
	static const char *const errs[] = { "ENOSPC", "EIO", "EMFILE", "EDQUOT", "EROFS" };
	unsigned long failures = model->failures;
	int64_t t0 = mono_ms();
	unsigned k, m, b, e = 0, f = 0;

	k = walk(op, MODE_KILL, 1, NULL, NULL, false);
	m = walk(op, MODE_MONITOR, 3, NULL, NULL, false);
	b = walk(op, MODE_BOTH, 3, NULL, NULL, false);
	for (size_t i = 0; i < ARRAY_LEN(errs); i++)
		e += walk(op, MODE_ERROR, ARRAY_LEN(errs), NULL, errs[i], false);
	f += walk(op, MODE_ERROR, 2, WRITES, "ENOSPC", true);
	f += walk(op, MODE_ERROR, 3, CHANGES, "EROFS", true);
	f += walk(op, MODE_ERROR, 1, OPENS, "EMFILE", true);
	printf("%-32s killed %3u, monitor %3u, both %3u, errors %3u, errors from there on %3u: %lu failures, %.1f s\n", op_names[op], k, m, b, e, f,
	       model->failures - failures, (double)(mono_ms() - t0) / 1000);
	fflush(stdout);
}

/* Points that were struck less often than that, again, each at random passes of the operation that meets it. */
static void fill_up(unsigned times)
{
	for (unsigned i = 0; i < model->npoints; i++) {
		unsigned tries = 0;

		while (model->points[i].struck[MODE_KILL] + model->points[i].struck[MODE_BOTH] < times && tries++ < 3 * times) {
			struct round t = { .op = model->points[i].op, .mode = draw(4) ? MODE_KILL : MODE_BOTH, .point = model->points[i].name,
					  .pass = 1 + draw(tries < times ? 3 : 1) };

			go(&t);
		}
		if (model->points[i].struck[MODE_KILL] + model->points[i].struck[MODE_BOTH] < times)
			printf("# %s: killed %u times\n", model->points[i].name, model->points[i].struck[MODE_KILL] + model->points[i].struck[MODE_BOTH]);
	}
	look();
}

static void wander(unsigned long deaths)
{
	unsigned long until = model->kills + deaths;

	while (model->kills < until) {
		struct round t = { .op = (enum op)(OP_START + draw(OPS - OP_START)), .mode = draw(3) ? MODE_KILL : MODE_BOTH, .pass = 1 + draw(120) };

		go(&t);
	}
	look();
}

/* Those of FILE ("POINT PATH:LINE") that nothing struck. */
static void report_missing(const char *file)
{
	FILE *f = fopen(file, "r");
	char line[300], name[100], where[150];

	while (f && fgets(line, sizeof(line), f)) {
		bool met = false;

		if (sscanf(line, "%99s %149s", name, where) != 2 || strncmp(where, "src/sandbox/", 12))
			continue;
		for (unsigned i = 0; i < model->npoints && !met; i++)
			met = !strncmp(model->points[i].name, name, strlen(name)) && strlen(model->points[i].name) <= strlen(name) + 1;
		if (!met)
			printf("# not met: %s (%s)\n", name, where);
	}
	if (f)
		fclose(f);
}

/* --- the program --- */

static void clean(void)
{
	DIR *d;
	struct dirent *e;
	char path[128];

	/* Monitors of sandboxes that live on. */
	snprintf(path, sizeof(path), "%s/born", dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (atoi(e->d_name) > 0)
			kill(atoi(e->d_name), SIGKILL);
	if (d)
		closedir(d);
	rm_rf(AT_FDCWD, dir);
}

/* The parent does next to nothing but wait for a child, so that this may be done here. */
static void interrupted(int sig)
{
	clean();
	_exit(1);
}

static bool wanted(const char *name, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return n == 0;
}

int main(int argc, char **argv)
{
	unsigned times = 20;
	unsigned long deaths = 0;
	const char *points = NULL, *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	int at = 1;
	int64_t t0 = mono_ms();

	for (; at + 1 < argc && !strncmp(argv[at], "--", 2); at += 2) {
		if (!strcmp(argv[at], "--quick"))
			quick = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "--seed"))
			seed = strtoull(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "--times"))
			times = (unsigned)atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "--long"))
			deaths = strtoul(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "--dir"))
			base = argv[at + 1];
		else if (!strcmp(argv[at], "--points"))
			points = argv[at + 1];
	}
	if (geteuid() != 0) {
		fprintf(stderr, "skipped: needs root\n");
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("# seed %llu\n", (unsigned long long)seed);
	model = mmap(NULL, sizeof(*model), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(dir, sizeof(dir), "%s/space-faults-XXXXXX", base);
	if (model == MAP_FAILED || !mkdtemp(dir))
		return 1;
	signal(SIGTERM, interrupted);
	signal(SIGINT, interrupted);
	make_config();
	make_world();
	for (int op = OP_START; op < OPS; op++)
		if (wanted(op_names[op], argv + at, argc - at))
			walk_op((enum op)op);
	fill_up(times);
	wander(deaths);
	if (points)
		report_missing(points);
	clean();
	printf("# %lu turns, %lu deaths at %u points, %lu sandboxes lost with their monitor, %.0f s\n", model->turns, model->kills, model->npoints,
	       model->lost_by_monitor, (double)(mono_ms() - t0) / 1000);
	printf("%u passed, %lu failed\n", model->failures ? 0 : 1, model->failures);
	return model->failures != 0;
}
