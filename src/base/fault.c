/* fault.c - see fault.h. Part of a build for tests alone; it uses nothing of ours, so that every program can have it. */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RULES_MAX 64
#define TEXT_MAX 8192

enum action { ACT_NONE, ACT_KILL, ACT_MONITOR, ACT_BOTH, ACT_ERRNO };

struct rule {
	char point[400];
	unsigned long count, passed;
	bool onwards, every;
	enum action action;
	int err;
};

static const struct { const char *name; int err; } errors[] = {
	{ "ENOSPC", ENOSPC }, { "EIO", EIO }, { "EMFILE", EMFILE }, { "ENFILE", ENFILE }, { "EDQUOT", EDQUOT }, { "EROFS", EROFS },
	{ "ENOMEM", ENOMEM }, { "EACCES", EACCES }, { "EAGAIN", EAGAIN }, { "EBUSY", EBUSY }, { "ENOENT", ENOENT }, { "EPERM", EPERM },
	{ "EOPNOTSUPP", EOPNOTSUPP },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static unsigned nrules;
static int trace_fd = -1;
static unsigned long passes;
static bool fired;
static const char *file;	/* of the rules; NULL: fault_rules() alone */
static struct stat file_was;
static pid_t self;		/* whom "kill" means: not a child of ours between its fork and its exec */
static pid_t last_monitor;
static void (*tell)(const char *point, int what);
static __thread pid_t monitor;
static __thread int injected;

__attribute__((constructor)) static void begin(void)
{
	file = getenv("SPACE_FAULT_FILE");
	self = getpid();
}

static int parse_line(char *line)
{
	char point[400], count[24], action[24], path[512];
	struct rule *r = &rules[nrules];
	char *end;

	if (sscanf(line, "trace %511s", path) == 1) {
		if (trace_fd >= 0)
			close(trace_fd);
		trace_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		return trace_fd < 0 ? -1 : 0;
	}
	if (sscanf(line, "%399s %23s %23s", point, count, action) != 3)
		return line[strspn(line, " \t")] ? -1 : 0;
	if (nrules == RULES_MAX)
		return -1;
	memset(r, 0, sizeof(*r));
	strcpy(r->point, point);
	r->every = count[0] == '%';
	r->count = strtoul(count + r->every, &end, 10);
	r->onwards = *end == '+';
	if (!r->count)
		return -1;
	r->action = !strcmp(action, "kill") ? ACT_KILL : !strcmp(action, "monitor") ? ACT_MONITOR : !strcmp(action, "both") ? ACT_BOTH : ACT_NONE;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (!strcmp(action, errors[i].name)) {
			r->action = ACT_ERRNO;
			r->err = errors[i].err;
		}
	nrules += r->action != ACT_NONE;
	return r->action == ACT_NONE ? -1 : 0;
}

static int parse(char *text)
{
	char *save = NULL;
	int r = 0;

	nrules = 0;
	passes = 0;
	fired = false;
	if (trace_fd >= 0)
		close(trace_fd);
	trace_fd = -1;
	for (char *line = strtok_r(text, "\n;", &save); line; line = strtok_r(NULL, "\n;", &save))
		if (parse_line(line) < 0) {
			fprintf(stderr, "fault: \"%s\" is not understood\n", line);
			r = -1;
		}
	return r;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The lock is held. */
static void look_at_file(void)
{
	char text[TEXT_MAX];
	struct stat st = { 0 };
	ssize_t n;
	int fd;

	if (stat(file, &st) < 0)
		memset(&st, 0, sizeof(st));
	if (same_file(&st, &file_was))
		return;
	file_was = st;
	fd = open(file, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	parse(text);
}

static void write_trace(const char *name)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s\n", name);

	if (write(trace_fd, line, (size_t)n) != n)
		abort();
}

static void strike(const struct rule *r, const char *name)
{
	pid_t m = monitor ? monitor : last_monitor;
	char done[600];

	fired = true;
	if (tell)
		tell(name, r->action == ACT_ERRNO ? r->err : FAULT_KILLS);
	if (file && (r->action != ACT_ERRNO || !(r->onwards || r->every))) {
		snprintf(done, sizeof(done), "%s.fired", file);
		rename(file, done);
	}
	if ((r->action == ACT_MONITOR || r->action == ACT_BOTH) && m > 0 && kill(m, SIGKILL) == 0)
		for (int i = 0; i < 200 && kill(m, 0) == 0; i++) /* gone before whoever comes after us looks */
			usleep(1000);
	if (r->action == ACT_KILL || r->action == ACT_BOTH) {
		kill(self, SIGKILL);
		while (getpid() == self) /* a child goes on, as it does when its parent dies */
			pause();
	}
}

/* The lock is held. The error to fail with. */
static int pass(const char *name)
{
	size_t n = strlen(name);
	bool after = n && name[n - 1] == '+';
	int err = 0;

	passes++;
	if (tell)
		tell(name, FAULT_PASSED);
	if (trace_fd >= 0)
		write_trace(name);
	for (unsigned i = 0; i < nrules; i++) {
		struct rule *r = &rules[i];

		/* An error is made before the call; what happens after it is not among its passes. */
		if ((after && r->action == ACT_ERRNO) || fnmatch(r->point, name, FNM_EXTMATCH))
			continue;
		r->passed++;
		if (!(r->every ? r->passed % r->count == 0 : r->onwards ? r->passed >= r->count : r->passed == r->count))
			continue;
		strike(r, name);
		if (r->action == ACT_ERRNO)
			err = r->err;
	}
	return err;
}

static void name_of(char out[80], const char *func, const char *call, const char *suffix)
{
	size_t n = 0;
	int skip = 0;

	while (call[skip] == '(' || call[skip] == ' ')
		skip++;
	while (call[skip + n] && call[skip + n] != '(' && call[skip + n] != ' ')
		n++;
	snprintf(out, 80, "%.40s.%.*s%s", func, (int)(n > 36 ? 36 : n), call + skip, suffix);
}

/* In a child between fork and exec no lock can be waited for, and nothing there is counted: only the parent is meant. */
static int at(const char *func, const char *call, const char *suffix)
{
	char name[80];
	int err;

	if (getpid() != self)
		return 0;
	name_of(name, func, call, suffix);
	pthread_mutex_lock(&lock);
	if (file)
		look_at_file();
	err = pass(name);
	pthread_mutex_unlock(&lock);
	return err;
}

int fault_before(const char *func, const char *call)
{
	int was = errno;

	injected = at(func, call, "");
	errno = injected ? injected : was;
	return injected;
}

long fault_after(const char *func, const char *call, long result)
{
	int was = errno;

	(void)at(func, call, "+");
	errno = was;
	return result;
}

long fault_ours(void)
{
	return -injected;
}

/* Numbers of sqlite3.h, which not every program has. */
int fault_sql(int err)
{
	return err == ENOSPC || err == EDQUOT ? 13 /* FULL */ : err == EROFS ? 8 /* READONLY */ : err == ENOMEM ? 7 /* NOMEM */ :
	       err == EMFILE || err == ENFILE ? 14 /* CANTOPEN */ : 10 /* IOERR */;
}

void fault_monitor(pid_t pid)
{
	monitor = last_monitor = pid;
}

int fault_rules(const char *text)
{
	char copy[TEXT_MAX];
	int r;

	pthread_mutex_lock(&lock);
	self = getpid(); /* a test's child is a program of its own */
	snprintf(copy, sizeof(copy), "%s", text ? text : "");
	r = parse(copy);
	pthread_mutex_unlock(&lock);
	return r;
}

unsigned long fault_passes(void)
{
	return passes;
}

bool fault_fired(void)
{
	return fired;
}

void fault_tell(void (*fn)(const char *point, int what))
{
	tell = fn;
}
