/* main.c - space-agent: PID 1 and the server of commands and files in a guest, or, with --test, the
 * same server on any host. */
#include "agent/agent.h"

#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "agent/cgroup.h"
#include "agent/process.h"
#include "agent/process_rpc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

struct agent agent = { .disk_fd = -1 };

static const char usage[] =
	"usage: space-agent --test [--port N] [--root DIR] [--user NAME] [--wait-init] [--slow-ms "
	"N]\n"
	"\n"
	"As PID 1 of a guest it takes no options. With --test it serves the guest protocol on "
	"127.0.0.1, without any of\n"
	"init's duties (docs/agent.md).\n"
	"  --port N      49983 by default\n"
	"  --root DIR    where /init writes hostname, machine id and the like; nowhere without it\n"
	"  --user NAME   the default user; \"user\" if there is one, else root\n"
	"  --wait-init   serve nothing before the first /init, as in a guest\n"
	"  --slow-ms N   let a reader go that takes nothing for N ms instead of 60,000\n";

static void on_term(uv_signal_t *h, int signum)
{
	if (agent.test) {
		cgroups_end();
		exit(0);
	}
	init_power_off();
}

static void watch_signals(void)
{
	static const int sigs[] = { SIGTERM, SIGINT, SIGPWR };
	static uv_signal_t h[ARRAY_LEN(sigs)];

	for (unsigned i = 0; i < ARRAY_LEN(sigs); i++) {
		uv_signal_init(agent.loop, &h[i]);
		uv_signal_start(&h[i], on_term, sigs[i]);
	}
	signal(SIGPIPE, SIG_IGN);
}

void boot_token_new(void)
{
	uint8_t token[16];

	random_bytes(token, sizeof(token));
	hex_encode(agent.boot_token, token, sizeof(token));
}

static void state_init(const char *user)
{
	struct user u;

	agent.loop = uv_default_loop();
	boot_token_new();
	agent.env = json_object();
	if (!agent.env)
		init_give_up("out of memory");
	json_object_set_new(agent.env, "E2B_SANDBOX", json_string("true"));
	snprintf(agent.default_user, sizeof(agent.default_user), "%s",
		user			       ? user
		: user_lookup("user", &u) == 0 ? "user"
					       : "root");
}

/* One arena, and large blocks straight from the kernel: an idle agent is small, and a busy one
 * gives back what it took. */
static void memory_init(void)
{
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 64 * 1024);
	mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}

static int serve(const char *host, int port)
{
	struct fail why;

	watch_signals();
	cgroups_init(agent.test);
	processes_init(agent.loop);
	if (server_start(host, port, &why) < 0)
		init_give_up(why.msg);
	log_info("agent: serving on %s:%d after %lld ms, %lld of them ours", host, port,
		(long long)mono_ms(), (long long)(mono_ms() - agent.started));
	uv_run(agent.loop, UV_RUN_DEFAULT);
	init_give_up("the loop has ended");
}

static int test_main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "test", no_argument, NULL, 't' },
		{ "port", required_argument, NULL, 'p' },
		{ "root", required_argument, NULL, 'r' },
		{ "user", required_argument, NULL, 'u' },
		{ "wait-init", no_argument, NULL, 'w' },
		{ "slow-ms", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	uint64_t port = AGENT_PORT, slow = (uint64_t)slow_reader_ms;
	const char *user = NULL;
	bool wait_init = false;
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 't':
			agent.test = true;
			break;
		case 'p':
			if (str_u64(str_of(optarg), 65535, &port) < 0)
				c = '?';
			break;
		case 's':
			if (str_u64(str_of(optarg), INT32_MAX, &slow) < 0)
				c = '?';
			break;
		case 'r':
			agent.root = optarg;
			break;
		case 'u':
			user = optarg;
			break;
		case 'w':
			wait_init = true;
			break;
		case 'v':
			printf("space-agent %s\n", SPACE_VERSION);
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		}
		if (c == '?') {
			fputs(usage, stderr);
			return 2;
		}
	}
	if (!agent.test || optind != argc) {
		fputs(usage, stderr);
		return 2;
	}
	slow_reader_ms = (int64_t)slow;
	agent.ready = !wait_init;
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come to us here as they do to PID 1 */
	state_init(user);
	return serve("127.0.0.1", (int)port);
}

int main(int argc, char **argv)
{
	struct fail why;

	agent.started = mono_ms();
	umask(022);
	/* Commands inherit what is ignored: started under nohup, none of them would die of a hang-up. */
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	memory_init();
	log_set_program("space-agent");
	/* The kernel gives PID 1 the words of its command line that it does not know. */
	if (getpid() != 1 || (argc > 1 && strcmp(argv[1], "--test") == 0))
		return test_main(argc, argv);
	agent.root = "";
	if (init_run(&why) < 0)
		init_give_up(why.msg);
	state_init(NULL);
	return serve("0.0.0.0", AGENT_PORT);
}
