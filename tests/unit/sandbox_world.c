#include "sandbox_world.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "sandbox_fake.h"
#include "test.h"

static char root[] = "/tmp/space-test-core-XXXXXX";
uv_loop_t loop;
struct config cfg;

__attribute__((destructor)) static void clean(void)
{
	if (!strstr(root, "XXXXXX"))
		rm_rf(AT_FDCWD, root);
}

/* A new world each test: nothing of the one before may be in it. */
void world(const char *name)
{
	static bool served;
	char dir[64];

	if (strstr(root, "XXXXXX") && !mkdtemp(root))
		abort();
	snprintf(dir, sizeof(dir), "%s/%s", root, name);
	memset(&fake, 0, sizeof(fake));
	if (!served)
		fake_init(dir);
	served = true;
	snprintf(fake.dir, sizeof(fake.dir), "%s", dir);
	config_defaults(&cfg);
	snprintf(cfg.state_dir, sizeof(cfg.state_dir), "%s/state", dir);
	snprintf(cfg.run_dir, sizeof(cfg.run_dir), "%s/run", dir);
	cfg.ready_monitors = 0;
	cfg.memory_limit = 20 * 512 * MIB;
	cfg.overcommit = 1;
}

static const char template[] =
	"{\"name\":\"base\",\"tenant\":\"default\",\"version\":1,\"image\":\"aa\",\"kernel\":\"bb\",\"disk\":67108864,\"created_ns\":1,"
	"\"env\":{\"A\":\"template\",\"B\":\"template\"},\"variants\":[{\"vcpu\":1,\"memory\":536870912,\"read_only\":false,"
	"\"node\":\"naaaaaaaaaaaaaaaaaaaa\",\"generation\":5,\"bytes\":1}]}";

struct space *up(void)
{
	struct space *sp = NULL;
	struct fail why = { 0 };

	log_set_level(LOG_LEVEL_ERROR);
	uv_loop_init(&loop);
	if (space_start(&loop, &cfg, &sp, &why) < 0) {
		printf("space: %s\n", why.msg);
		return NULL;
	}
	if (link_empty(&sp->templates))
		CHECK_INT(template_load(sp, STR(template), &why), 0);
	return sp;
}

static void on_gone(void *arg)
{
	*(bool *)arg = true;
}

void down(struct space *sp)
{
	bool gone = false;

	space_stop(sp, on_gone, &gone);
	for (int64_t until = mono_ms() + 10000; !gone && mono_ms() < until;)
		uv_run(&loop, UV_RUN_ONCE);
	CHECK(gone);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&loop), 0);
}

void on_end(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct ends *e = arg;

	if (sb) {
		e->ok++;
		snprintf(e->id, sizeof(e->id), "%s", sb->id);
		snprintf(e->start, sizeof(e->start), "%s", sb->start);
	} else {
		e->failed++;
		e->code = why->code;
		snprintf(e->msg, sizeof(e->msg), "%s", why->msg);
	}
}

static void nudge(uv_timer_t *t)
{
}

void spin(const int *a, const int *b, int want, int ms)
{
	uv_timer_t t;

	uv_timer_init(&loop, &t);
	uv_timer_start(&t, nudge, 5, 5);
	for (int64_t until = mono_ms() + ms; *a + (b ? *b : 0) < want && mono_ms() < until;)
		uv_run(&loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&t, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
}

void wait_ms(int ms)
{
	int never = 0;

	spin(&never, NULL, 1, ms);
}

void create(struct space *sp, const struct create_req *q, struct ends *e)
{
	static const struct create_req plain = { .timeout_s = -1, .idle_timeout_s = -1 };
	int before = e->ok + e->failed;

	sandbox_create(sp, TENANT_DEFAULT, q ? q : &plain, on_end, e);
	spin(&e->ok, &e->failed, before + 1, 10000);
}

struct sandbox *get(struct space *sp, const char *id)
{
	struct fail why = { 0 };

	return sandbox_find(sp, TENANT_DEFAULT, str_of(id), &why);
}

void kill_it(struct space *sp, const char *id)
{
	struct ends e = { 0 };

	sandbox_kill(get(sp, id), "killed", on_end, &e);
	spin(&e.ok, &e.failed, 1, 10000);
	CHECK_INT(e.ok, 1);
}

/* Runs a daemon in a child that is killed with -9 while DO's work stands; the parent then starts another one on what is left. */
void before(void (*work)(struct space *sp))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct space *sp = up();

		fake_init(fake.dir); /* threads do not survive a fork */
		if (sp)
			work(sp);
		kill(getpid(), SIGKILL);
	}
	waitpid(pid, &status, 0);
	CHECK(WIFSIGNALED(status));
}
