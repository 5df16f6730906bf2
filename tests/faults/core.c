/* core.c - goes through operations, points and ways to strike, one child a turn; see faults.h.
 *
 * usage: faults_core [--seed N] [--times N] [--long N] [--jobs N] [--dir DIR] [--points FILE --rare FILE] [--quick 1] [OPERATION…]
 *
 * --quick: every pass is killed at, of the other ways to strike a quarter. --times: each point that was met is killed at least so often (20; with
 * --quick only those that an operation meets in peace); one that cannot be is a failure. --long: that many deaths at points and numbers drawn at random, after the rest. --jobs: so many worlds side
 * by side, each with an operation of its own (one more than there are processors). --points and --rare: see points.h. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "faults.h"
#include "points.h"
#include "sandbox_fake.h"

#define TURN_S 60 /* a child that takes longer hangs */
#define JOBS_MAX 16
#define BROKEN_MAX 3 /* turns in a row, after which an operation is left */
#define WORLD_TURNS 400 /* then a new one: what has ended stays known for an hour, and each start reads it */

struct model *model;
struct config cfg;
uv_loop_t loop;
static char top[60], dir[80]; /* of all; of this job's world */
static uint64_t seed = 1, state;

/* What the jobs share. */
static struct board {
	atomic_uint next; /* of what is handed out just now: operations, points */
	struct model model[JOBS_MAX];
} *board;
static unsigned jobs;

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
	const char *rule;     /* of an error that comes before it; NULL: none */
};

static void rule_of(const struct round *t, char *out, size_t size)
{
	static const char *const actions[MODES] = { "kill", "monitor", "both", "EIO" };

	snprintf(out, size, "%s%s%s %lu%s %s", t->rule ? t->rule : "", t->rule ? "\n" : "", t->point ? t->point : "*", t->pass, t->onwards ? "+" : "",
		 t->mode == MODE_ERROR && t->err ? t->err : actions[t->rule ? MODE_KILL : t->mode]);
}

static struct model_point *point_of(const char *name)
{
	struct model_point *p;

	for (unsigned i = 0; i < model->npoints; i++)
		if (!strcmp(model->points[i].name, name))
			return &model->points[i];
	if (model->npoints == POINTS_MAX)
		abort();
	p = &model->points[model->npoints];
	*p = (struct model_point){ 0 };
	snprintf(p->name, sizeof(p->name), "%s", name);
	model->npoints++;
	return p;
}

/* The less has to happen before it the better; WAY without an operation is none. */
static int rank(const struct way *w)
{
	return !w->op ? 4 : w->by_monitor ? 3 : w->rule[0] ? 2 : w->op == OP_START ? 1 : 0;
}

/* At every pass. What is met by the preparations, in peace, is on the way of whatever they do. */
static void on_pass(const char *name)
{
	struct way way = model->way;
	struct model_point *p;

	if (!model->starting && model->op != model->way.op)
		way = (struct way){ .op = model->op };
	way.by_monitor = model->fired && model->mode != MODE_KILL && model->mode != MODE_ERROR;
	p = point_of(name);
	if (rank(&way) < rank(&p->way))
		p->way = way;
}

static void on_fault(const char *name, int what)
{
	on_pass(name);
	if (what == FAULT_PASSED)
		return;
	model->fired = struck_here = true;
	model->loss |= what == FAULT_KILLS && (model->mode == MODE_MONITOR || model->mode == MODE_BOTH);
	snprintf(model->point, sizeof(model->point), "%s", name);
	/* One for which an error was needed is killed in a turn of errors. */
	point_of(name)->struck[what != FAULT_KILLS ? MODE_ERROR : model->mode == MODE_ERROR ? MODE_KILL : model->mode]++;
	model->kills += what == FAULT_KILLS && model->mode != MODE_MONITOR;
}

static struct space *start(struct fail *why)
{
	struct space *sp = NULL;

	uv_loop_init(&loop);
	return space_start(&loop, &cfg, &sp, why) < 0 ? NULL : sp;
}

/* A start's way is that of the turn before it. */
static void set_way(const struct round *t, const char *rule)
{
	struct way was = model->way;

	model->way = (struct way){ .op = OP_START, .before = was.op };
	snprintf(model->way.rule_before, RULE_MAX, "%s", model->last_rule);
	model->last_rule[0] = '\0';
	if (t->op == OP_START && t->mode == MODE_ERROR)
		snprintf(model->way.rule, sizeof(model->way.rule), "%s", t->rule ? t->rule : rule);
}

static void child(const struct round *t)
{
	char rule[RULE_MAX];
	struct fail why = { 0 };
	struct space *sp;

	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	log_set_level(LOG_LEVEL_INFO);
	if (!getenv("FAULTS_LOG"))
		(void)!freopen("/dev/null", "w", stderr); /* what is complained of goes to stdout */
	alarm(TURN_S);
	fake_init(dir);
	fake.memory = MEMORY;
	fault_tell(on_fault);
	rule_of(t, rule, sizeof(rule));
	set_way(t, rule);
	if (t->op == OP_START) { /* what was under way before it stays so */
		model->fired = false;
		model->mode = t->mode;
	}
	fault_rules(t->op == OP_START && t->pass ? rule : NULL);
	model->starting = true;
	sp = start(&why);
	if (sp)
		wait_until(at_rest, sp, 5000);
	model->starting = false;
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
	model->way = (struct way){ .op = t->op };
	/* Kept for a death as well: a start that follows is reached by it. */
	snprintf(model->way.rule, sizeof(model->way.rule), "%s", t->mode == MODE_ERROR ? (t->rule ? t->rule : rule) : "");
	snprintf(model->last_rule, sizeof(model->last_rule), "%s", rule);
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
	model->world_turns++;
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

/* --- worlds --- */

static void new_world(void)
{
	static unsigned n;

	if (dir[0])
		end_world(dir);
	snprintf(dir, sizeof(dir), "%s/%u.%u", top, (unsigned)(model - board->model), n++);
	make_world(dir);
	model->nsb = model->nnodes = 0;
	model->op = OP_NONE;
	model->way = (struct way){ 0 };
	model->last_rule[0] = '\0';
	model->fired = model->loss = false;
	model->point[0] = '\0';
	model->world_turns = 0;
}

static uint64_t draw(uint64_t n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 33) % n;
}

/* Of operation or point N, whichever job has it. */
static void seed_for(unsigned n)
{
	state = seed * 1000003 + n;
	for (int i = 0; i < 4; i++)
		draw(2);
}

/* --- going through them --- */

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
	unsigned n = 0, broken = 0;

	if (quick && mode != MODE_KILL)
		step *= 4;
	for (t.pass = 1 + (step > 1 ? draw(step) : 0); broken < BROKEN_MAX; t.pass += step) {
		/* A start is struck on the way back from another death. */
		if (op == OP_START) {
			struct round before = { .op = (enum op)(OP_CREATE + draw(OPS - OP_CREATE)), .mode = MODE_KILL, .pass = 1 + draw(80) };

			go(&before);
		}
		broken = go(&t) ? 0 : broken + 1;
		if (!model->fired)
			break;
		n++;
	}
	look();
	if (!n && mode == MODE_KILL)
		complain("%s passes no point", op_names[op]);
	return n;
}

/* Killed at every pass; or, as a piece of work of its own, struck in all the other ways. */
static void walk_op(enum op op, bool others)
{
	static const char *const errs[] = { "ENOSPC", "EIO", "EMFILE", "EDQUOT", "EROFS" };
	unsigned long failures = model->failures;
	int64_t t0 = mono_ms();
	unsigned k = 0, m, b, e = 0, f = 0;

	new_world();
	seed_for(op + (others ? 500 : 0));
	if (!others) {
		k = walk(op, MODE_KILL, 1, NULL, NULL, false);
		printf("%-32s killed %3u: ", op_names[op], k);
	} else {
		m = walk(op, MODE_MONITOR, 3, NULL, NULL, false);
		b = walk(op, MODE_BOTH, 3, NULL, NULL, false);
		for (size_t i = 0; i < ARRAY_LEN(errs); i++)
			e += walk(op, MODE_ERROR, ARRAY_LEN(errs), NULL, errs[i], false);
		f += walk(op, MODE_ERROR, 2, WRITES, "ENOSPC", true);
		f += walk(op, MODE_ERROR, 3, CHANGES, "EROFS", true);
		f += walk(op, MODE_ERROR, 1, OPENS, "EMFILE", true);
		printf("%-32s monitor %3u, both %3u, errors %3u, errors from there on %3u: ", op_names[op], m, b, e, f);
	}
	printf("%lu failures, %.1f s\n", model->failures - failures, (double)(mono_ms() - t0) / 1000);
	fflush(stdout);
}

/* --- points --- */

/* By all jobs, that of the daemon alone or with its monitor. */
static unsigned deaths_at(const char *point)
{
	unsigned n = 0;

	for (unsigned j = 0; j < jobs; j++)
		for (unsigned i = 0; i < board->model[j].npoints; i++)
			if (!strcmp(board->model[j].points[i].name, point))
				n += board->model[j].points[i].struck[MODE_KILL] + board->model[j].points[i].struck[MODE_BOTH];
	return n;
}

/* The N-th of all, each once; NULL past the last. */
static const struct model_point *point_number(unsigned n)
{
	for (unsigned j = 0; j < jobs; j++)
		for (unsigned i = 0; i < board->model[j].npoints; i++) {
			const struct model_point *p = &board->model[j].points[i];
			bool again = false;

			for (unsigned k = 0; k < j && !again; k++)
				for (unsigned l = 0; l < board->model[k].npoints && !again; l++)
					again = !strcmp(board->model[k].points[l].name, p->name);
			if (!again && n-- == 0)
				return p;
		}
	return NULL;
}

static bool met(const char *name)
{
	for (unsigned j = 0; j < jobs; j++)
		for (unsigned i = 0; i < board->model[j].npoints; i++)
			if (!strcmp(board->model[j].points[i].name, name))
				return true;
	return false;
}

/* Those that need a start after another death, an error or a dead monitor to be met are struck as they come with --quick. */
static bool is_asked(const struct model_point *p)
{
	return !points_rare(p->name) && (!quick || rank(&p->way) == 0);
}

/* What came before, then the point: N-th turn of that. */
static bool go_way(const char *name, const struct way *w, unsigned n)
{
	struct round before = { .op = w->before, .mode = MODE_KILL, .pass = 1 + draw(120) };
	struct round t = { .op = w->op, .mode = draw(4) ? MODE_KILL : MODE_BOTH, .point = name, .pass = 1 + (n % 3 ? draw(n % 5 + 1) : 0) };

	if (w->op == OP_START && w->before > OP_START) {
		if (n % 4 != 3 && w->rule_before[0]) {
			before.rule = w->rule_before;
			before.pass = 1000000;
		}
		go(&before);
	}
	if (w->rule[0]) {
		t.rule = w->rule;
		t.mode = MODE_ERROR;
		t.pass = 1;
	}
	return go(&t);
}

/* A point that was struck less often than that, again, on a way that meets it. */
static void fill_up(const char *name, const struct way *ways, unsigned nways, unsigned times)
{
	unsigned tries = 0, broken = 0;

	while (deaths_at(name) < times && tries++ < 3 * times + 10 && broken < BROKEN_MAX)
		broken = go_way(name, &ways[tries % nways], tries) ? 0 : broken + 1;
}

static void wander(unsigned long deaths)
{
	unsigned long until = model->kills + deaths;

	for (unsigned broken = 0; model->kills < until && broken < BROKEN_MAX;) {
		struct round t = { .op = (enum op)(OP_START + draw(OPS - OP_START)), .mode = draw(3) ? MODE_KILL : MODE_BOTH, .pass = 1 + draw(120) };

		if (model->world_turns > WORLD_TURNS) {
			look();
			new_world();
		}
		broken = go(&t) ? 0 : broken + 1;
	}
}

/* --- the program --- */

static unsigned times = 20;
static unsigned long deaths;
static char **names;
static int nnames;
static pid_t job_pids[JOBS_MAX];

/* A job does next to nothing but wait for a child, so that this may be done here. */
static void interrupted(int sig)
{
	for (unsigned i = 0; i < JOBS_MAX; i++)
		if (job_pids[i] > 0)
			kill(job_pids[i], SIGTERM);
	for (unsigned i = 0; i < JOBS_MAX; i++)
		if (job_pids[i] > 0)
			waitpid(job_pids[i], NULL, 0);
	end_world(dir[0] ? dir : top);
	_exit(1);
}

static bool wanted(const char *name)
{
	for (int i = 0; i < nnames; i++)
		if (!strcmp(names[i], name))
			return true;
	return nnames == 0;
}

/* The longest come first, so that nobody waits for one of them at the end. */
static void job_walks(void)
{
	static const enum op longest[] = { OP_BRANCH, OP_ROLLBACK, OP_BRANCH_SUSPENDED, OP_SUSPEND };
	enum op order[OPS + ARRAY_LEN(longest)];
	unsigned n, count = 0;

	for (size_t i = 0; i < ARRAY_LEN(longest); i++)
		order[count++] = longest[i];
	for (unsigned op = OP_START; op < OPS; op++) {
		bool again = false;

		for (size_t i = 0; i < ARRAY_LEN(longest); i++)
			again |= longest[i] == (enum op)op;
		if (!again)
			order[count++] = (enum op)op;
	}
	while ((n = atomic_fetch_add(&board->next, 1)) < 2 * count)
		if (wanted(op_names[order[n / 2]]))
			walk_op(order[n / 2], n % 2);
}

static void job_points(void)
{
	const struct model_point *p;
	unsigned n;

	new_world();
	while ((p = point_number(n = atomic_fetch_add(&board->next, 1)))) {
		struct way ways[JOBS_MAX];
		unsigned nways = 0;
		char name[80];

		seed_for(1000 + n);
		memcpy(name, p->name, sizeof(name));
		for (unsigned j = 0; j < jobs; j++)
			for (unsigned i = 0; i < board->model[j].npoints; i++)
				if (!strcmp(board->model[j].points[i].name, name))
					ways[nways++] = board->model[j].points[i].way;
		if (is_asked(p))
			fill_up(name, ways, nways, times);
		if (model->world_turns > WORLD_TURNS) {
			look();
			new_world();
		}
	}
	look();
}

static void job_wanders(void)
{
	new_world();
	seed_for(100000 + (unsigned)(model - board->model));
	wander(deaths / jobs + 1);
	look();
}

static void in_all_jobs(void (*fn)(void))
{
	int status;

	atomic_store(&board->next, 0);
	fflush(NULL);
	for (unsigned j = 0; j < jobs; j++) {
		model = &board->model[j];
		job_pids[j] = fork();
		if (job_pids[j] == 0) {
			memset(job_pids, 0, sizeof(job_pids));
			fn();
			if (dir[0])
				end_world(dir);
			fflush(NULL);
			_exit(0);
		}
	}
	for (unsigned j = 0; j < jobs; j++) {
		if (waitpid(job_pids[j], &status, 0) < 0 || status) {
			board->model[j].failures++;
			printf("job %u broke\n", j);
		}
		job_pids[j] = 0;
	}
}

static unsigned long report(bool all)
{
	static const char *const rooms[] = { "src/sandbox/", "src/store/", NULL };
	unsigned long failures = 0, turns = 0, kills = 0, lost = 0;
	const struct model_point *p;
	unsigned n = 0;

	for (unsigned j = 0; j < jobs; j++) {
		failures += board->model[j].failures;
		turns += board->model[j].turns;
		kills += board->model[j].kills;
		lost += board->model[j].lost_by_monitor;
	}
	for (; (p = point_number(n)); n++)
		if (deaths_at(p->name) < times && is_asked(p)) {
			printf("%s: killed %u times of %u, in %s after %s%s%s\n", p->name, deaths_at(p->name), times, op_names[p->way.op],
			       op_names[p->way.before], p->way.rule[0] ? " with " : "", p->way.rule);
			failures += all;
		}
	if (all)
		failures += points_missing(rooms, met);
	printf("# %lu turns, %lu deaths at %u points, %lu sandboxes lost with their monitor, %u at a time\n", turns, kills, n, lost, jobs);
	return failures;
}

int main(int argc, char **argv)
{
	const char *points = NULL, *rare = NULL, *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	int at = 1;
	int64_t t0 = mono_ms();
	unsigned long failures;

	jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN) + 1;
	for (; at + 1 < argc && !strncmp(argv[at], "--", 2); at += 2) {
		if (!strcmp(argv[at], "--quick"))
			quick = atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "--seed"))
			seed = strtoull(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "--times"))
			times = (unsigned)atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "--long"))
			deaths = strtoul(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "--jobs"))
			jobs = (unsigned)atoi(argv[at + 1]);
		else if (!strcmp(argv[at], "--dir"))
			base = argv[at + 1];
		else if (!strcmp(argv[at], "--points"))
			points = argv[at + 1];
		else if (!strcmp(argv[at], "--rare"))
			rare = argv[at + 1];
	}
	names = argv + at;
	nnames = argc - at;
	jobs = jobs < 1 ? 1 : jobs > JOBS_MAX ? JOBS_MAX : jobs;
	if (geteuid() != 0) {
		fprintf(stderr, "skipped: needs root\n");
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("# seed %llu\n", (unsigned long long)seed);
	if (points && points_load(points, rare) < 0)
		return 1;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(top, sizeof(top), "%s/space-faults-XXXXXX", base);
	if (board == MAP_FAILED || !mkdtemp(top))
		return 1;
	signal(SIGTERM, interrupted);
	signal(SIGINT, interrupted);
	make_config();
	in_all_jobs(job_walks);
	printf("# every pass of every operation: %.0f s\n", (double)(mono_ms() - t0) / 1000);
	in_all_jobs(job_points);
	if (deaths)
		in_all_jobs(job_wanders);
	failures = report(points && !nnames);
	end_world(top);
	printf("# %.0f s\n", (double)(mono_ms() - t0) / 1000);
	printf("%u passed, %lu failed\n", failures ? 0 : 1, failures);
	return failures != 0;
}
