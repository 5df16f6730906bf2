/* main.c - spaced: options, start, signals, end. See docs/man/spaced.8. */
#include <getopt.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "api/api.h"
#include "api/metrics.h"
#include "api/preflight.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#define FILES_WANTED 262144
#define GRACE_MS 1000	 /* for answers under way, when we stop */
#define LOG_MAX (64 * MIB) /* of a file that our log goes to */

struct daemon {
	uv_loop_t loop;
	struct config cfg;
	struct api api;
	uv_signal_t term, intr, hup;
	uv_timer_t grace;
	SSL_CTX *tls;
	int pidfile, tcp;
	bool public;
	bool grace_over;
	bool server_gone;
};

/* --- talking to whoever started us --- */

static void say(const struct fail *why)
{
	const struct errinfo *e = err_info(why->code);

	fprintf(stderr, "spaced: %s\n", why->msg[0] ? why->msg : e->cause);
	fprintf(stderr, "  remedy: %s\n", why->remedy[0] ? why->remedy : e->remedy);
}

/* systemd's readiness protocol: one datagram. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = -1;
	socklen_t len;

	if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(sa.sun_path))
		return;
	memcpy(sa.sun_path, path, strlen(path));
	if (path[0] == '@')
		sa.sun_path[0] = '\0';
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sa, len);
}

static void log_settings(const struct config *cfg)
{
	static const struct { const char *name; enum log_level level; } levels[] = { { "error", LOG_LEVEL_ERROR },
		{ "warning", LOG_LEVEL_WARNING }, { "info", LOG_LEVEL_INFO }, { "debug", LOG_LEVEL_DEBUG } };
	size_t i;

	for (i = 0; i < ARRAY_LEN(levels); i++)
		if (!strcmp(cfg->log_level, levels[i].name))
			log_set_level(levels[i].level);
	log_set_json(cfg->log_json);
}

/* --- options --- */

enum { OPT_STATE = 256, OPT_RUN, OPT_CONFIG, OPT_LIBEXEC, OPT_FOREGROUND, OPT_PRINT, OPT_CHECK, OPT_VERSION, OPT_HELP };

static const struct option longs[] = {
	{ "state-dir", required_argument, NULL, OPT_STATE },
	{ "run-dir", required_argument, NULL, OPT_RUN },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "libexec-dir", required_argument, NULL, OPT_LIBEXEC },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "print-config", no_argument, NULL, OPT_PRINT },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

static const char help[] =
	"usage: spaced [OPTION]…\n"
	"The daemon of SPACE: runs sandboxes and serves their API.\n\n"
	"  --state-dir DIR    database, images, templates, disks (/var/lib/space)\n"
	"  --run-dir DIR      the local socket, sandboxes' sockets (/run/space)\n"
	"  --config FILE      settings (/etc/space/space.yaml; may be absent)\n"
	"  --libexec-dir DIR  where space-agent and space-image are\n"
	"  --foreground       stay in the foreground (always so)\n"
	"  --print-config     print the settings in force, as YAML with comments\n"
	"  --check            look whether this host can run it, change nothing\n"
	"  --version, --help\n\n"
	"SIGTERM ends it and leaves sandboxes running; SIGHUP reads certificates and log_level anew.\n";

enum mode { MODE_RUN, MODE_PRINT, MODE_CHECK, MODE_DONE, MODE_BAD };

static enum mode set_dir(char *out, size_t size, const char *v, enum mode mode)
{
	if (v[0] == '/' && !str_copy(out, size, str_of(v)))
		return mode;
	fprintf(stderr, "spaced: %.200s: an absolute path of at most %zu bytes\n", v, size - 1);
	return MODE_BAD;
}

static enum mode options(struct config *cfg, int argc, char **argv)
{
	enum mode mode = MODE_RUN;
	int o;

	while (mode != MODE_BAD && (o = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (o) {
		case OPT_STATE:
			mode = set_dir(cfg->state_dir, sizeof(cfg->state_dir), optarg, mode);
			break;
		case OPT_RUN:
			mode = set_dir(cfg->run_dir, sizeof(cfg->run_dir), optarg, mode);
			break;
		case OPT_CONFIG:
			mode = set_dir(cfg->config_file, sizeof(cfg->config_file), optarg, mode);
			break;
		case OPT_LIBEXEC:
			mode = set_dir(cfg->libexec_dir, sizeof(cfg->libexec_dir), optarg, mode);
			break;
		case OPT_FOREGROUND:
			break;
		case OPT_PRINT:
			mode = MODE_PRINT;
			break;
		case OPT_CHECK:
			mode = MODE_CHECK;
			break;
		case OPT_VERSION:
			printf("spaced %s\n", SPACE_VERSION);
			return MODE_DONE;
		case OPT_HELP:
			fputs(help, stdout);
			return MODE_DONE;
		default:
			mode = MODE_BAD;
		}
	}
	if (mode != MODE_BAD && optind < argc) {
		fprintf(stderr, "spaced: %s: not an option\n", argv[optind]);
		mode = MODE_BAD;
	}
	if (mode == MODE_BAD)
		fputs("spaced --help lists the options\n", stderr);
	return mode;
}

static int print_config(const struct config *cfg)
{
	autobuf struct buf b;

	buf_init(&b, 64 * KIB);
	if (config_print(cfg, &b) < 0)
		return 1;
	return fwrite(b.p, 1, b.n, stdout) == b.n && !fflush(stdout) ? 0 : 1;
}

/* --- the process --- */

static void process_settings(void)
{
	struct rlimit rl;

	setenv("UV_THREADPOOL_SIZE", "16", 1);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	/* Sixteen workers with an arena each would keep what they once used: two serve them all. Big buffers go back at once. */
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	mallopt(M_TRIM_THRESHOLD, 256 * 1024);
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		struct rlimit more = { MAX(rl.rlim_max, FILES_WANTED), MAX(rl.rlim_max, FILES_WANTED) };

		if (setrlimit(RLIMIT_NOFILE, &more) < 0) { /* not ours to raise: what there is, then */
			rl.rlim_cur = rl.rlim_max;
			(void)setrlimit(RLIMIT_NOFILE, &rl);
		}
	}
}

/* --- the end: streams are told, answers get a second, sandboxes run on --- */

static void on_space_gone(void *arg)
{
	struct daemon *d = arg;

	uv_close((uv_handle_t *)&d->term, NULL);
	uv_close((uv_handle_t *)&d->intr, NULL);
	uv_close((uv_handle_t *)&d->hup, NULL);
	tick_clear(&d->api.trim);
	ticks_close(&d->api.ticks);
}

static void on_server_gone(void *arg)
{
	struct daemon *d = arg;

	d->server_gone = true;
	uv_close((uv_handle_t *)&d->grace, NULL);
	space_stop(d->api.sp, on_space_gone, d);
}

static void on_grace(uv_timer_t *t)
{
	struct daemon *d = t->data;

	http_server_close(d->api.srv, true, on_server_gone, d);
}

static void stop(struct daemon *d, int sig)
{
	struct fail why = { 0 };

	if (d->api.stopping) {
		log_warning("spaced: %s again: ends at once", strsignal(sig));
		_exit(1);
	}
	log_info("spaced: stops, sandboxes run on signal=%d", sig);
	notify("STOPPING=1");
	d->api.stopping = true;
	fail_as(&why, ERR_daemon_down, "spaced is stopping; what runs in the sandbox goes on");
	fail_remedy(&why, "connect again, with Last-Event-ID, when it is back");
	req_stop_streams(&d->api, NULL, &why);
	uv_timer_start(&d->grace, on_grace, GRACE_MS, 0);
	http_server_close(d->api.srv, false, on_server_gone, d);
}

static void on_stop_signal(uv_signal_t *s, int sig)
{
	stop(s->data, sig);
}

/* --- SIGHUP --- */

static int tls_load(struct daemon *d, struct fail *why)
{
	SSL_CTX *ctx;

	if (!d->cfg.tls_cert[0])
		return 0;
	if (http_tls_server(d->cfg.tls_cert, d->cfg.tls_key, &ctx, why) < 0)
		return why->err;
	if (d->tls)
		SSL_CTX_free(d->tls);
	d->tls = ctx;
	return 0;
}

static void on_hup(uv_signal_t *s, int sig)
{
	struct daemon *d = s->data;
	struct config *fresh = malloc(sizeof(*fresh));
	struct fail why = { 0 };

	if (!fresh)
		return;
	*fresh = d->cfg;
	config_defaults(fresh);
	if (config_load(fresh, d->cfg.config_file, &why) < 0) {
		log_error("spaced: settings kept as they were: %s", why.msg);
	} else {
		memcpy(d->cfg.log_level, fresh->log_level, sizeof(fresh->log_level));
		d->cfg.log_json = fresh->log_json;
		log_settings(&d->cfg);
	}
	free(fresh);
	if (tls_load(d, &why) < 0) {
		log_error("spaced: certificate kept as it was: %s", why.msg);
		return;
	}
	if (d->tls)
		http_server_set_tls(d->api.srv, d->tls);
	log_info("spaced: certificates and log_level read anew");
}

/* --- the start --- */

static int unix_listen(struct daemon *d, struct fail *why)
{
	char path[sizeof(d->cfg.run_dir) + 16];
	int err;

	snprintf(path, sizeof(path), "%s/api.sock", d->cfg.run_dir);
	err = http_server_listen_unix(d->api.srv, path, 0660, why);
	if (err < 0)
		return err;
	if (d->api.has_group && chown(path, 0, d->api.group) < 0)
		return fail_set(why, -errno, "%s: %s", path, strerror(errno));
	log_info("spaced: listens socket=%s", path);
	return 0;
}

static int tcp_listen(struct daemon *d, struct fail *why)
{
	int err;

	if (d->tcp < 0)
		return 0;
	if (d->public && !key_any(d->api.sp)) {
		fail_as(why, ERR_forbidden, "listen: %s is not a loopback address, and no key exists", d->cfg.listen);
		fail_remedy(why, "start with listen: 127.0.0.1:7070, make one with space key create, then change it");
		return why->err;
	}
	if (d->public && !d->tls)
		log_warning("spaced: serves %s without TLS: keys cross the network in the clear", d->cfg.listen);
	err = http_server_listen_fd(d->api.srv, steal_fd(&d->tcp), d->tls, why);
	if (!err)
		log_info("spaced: listens address=%s tls=%s", d->cfg.listen, d->tls ? "yes" : "no");
	return err;
}

static int api_start(struct daemon *d, struct fail *why)
{
	struct http_server_opts o = { .server_name = "space" };
	struct api *api = &d->api;
	int err;

	api->loop = &d->loop;
	api->cfg = &d->cfg;
	api->started_ms = mono_ms();
	link_init(&api->streams);
	tick_init(&api->trim, req_trim);
	api->metrics = metrics_new();
	if (!api->metrics)
		return fail_set(why, -ENOMEM, "out of memory");
	err = auth_init(api, why);
	if (err < 0)
		return err;
	err = http_server_new(&d->loop, &o, route_request, api, &api->srv);
	if (err < 0)
		return fail_set(why, err, "out of memory");
	if ((err = unix_listen(d, why)) < 0)
		return err;
	return tcp_listen(d, why);
}

static void signals_start(struct daemon *d)
{
	uv_timer_init(&d->loop, &d->grace);
	uv_signal_init(&d->loop, &d->term);
	uv_signal_init(&d->loop, &d->intr);
	uv_signal_init(&d->loop, &d->hup);
	d->grace.data = d->term.data = d->intr.data = d->hup.data = d;
	uv_signal_start(&d->term, on_stop_signal, SIGTERM);
	uv_signal_start(&d->intr, on_stop_signal, SIGINT);
	uv_signal_start(&d->hup, on_hup, SIGHUP);
}

static void on_given_up(void *arg)
{
	uv_stop(arg);
}

static int give_up(struct daemon *d, const struct fail *why)
{
	say(why);
	if (d->api.sp) { /* it has begun to make things ready: they go */
		space_stop(d->api.sp, on_given_up, &d->loop);
		uv_run(&d->loop, UV_RUN_DEFAULT);
	}
	pidfile_drop(&d->cfg, &d->pidfile);
	return 1;
}

static int serve(struct daemon *d)
{
	char path[sizeof(d->cfg.run_dir) + 16];
	struct fail why = { 0 };

	if (places_make(&d->cfg, &why) < 0 || pidfile_lock(&d->cfg, &d->pidfile, &why) < 0 ||
	    listen_bind(&d->cfg, &d->tcp, &d->public, &why) < 0 || tls_load(d, &why) < 0 || confine(&why) < 0)
		return give_up(d, &why);
	if (uv_loop_init(&d->loop) < 0)
		return 1;
	ticks_init(&d->api.ticks, &d->loop);
	signals_start(d);
	if (space_start(&d->loop, &d->cfg, &d->api.sp, &why) < 0 || api_start(d, &why) < 0)
		return give_up(d, &why);
	log_info("spaced: ready version=%s state=%s isolation=%s", SPACE_VERSION, d->cfg.state_dir,
		 space_isolation(d->api.sp));
	notify("READY=1");
	uv_run(&d->loop, UV_RUN_DEFAULT);
	snprintf(path, sizeof(path), "%s/api.sock", d->cfg.run_dir);
	unlink(path);
	pidfile_drop(&d->cfg, &d->pidfile);
	metrics_free(d->api.metrics);
	if (d->tls)
		SSL_CTX_free(d->tls);
	log_info("spaced: ended");
	return 0;
}

static int check(const struct config *cfg)
{
	struct fail why = { 0 };
	autoclose int fd = -1;
	bool public;
	int n = preflight(cfg, say);

	if (!n && listen_bind(cfg, &fd, &public, &why) < 0) {
		say(&why);
		n++;
	}
	if (!n)
		puts("spaced: this host has what is needed; space doctor looks deeper");
	return n ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct daemon d = { .pidfile = -1, .tcp = -1 };
	struct fail why = { 0 };
	enum mode mode;

	log_set_program("spaced");
	log_set_limit(LOG_MAX);
	config_defaults(&d.cfg);
	mode = options(&d.cfg, argc, argv);
	if (mode == MODE_DONE || mode == MODE_BAD)
		return mode == MODE_BAD ? 2 : 0;
	if (config_load(&d.cfg, d.cfg.config_file, &why) < 0) {
		say(&why);
		return 1;
	}
	log_settings(&d.cfg);
	if (mode == MODE_PRINT)
		return print_config(&d.cfg);
	if (mode == MODE_CHECK)
		return check(&d.cfg);
	if (preflight(&d.cfg, say))
		return 1;
	process_settings();
	return serve(&d);
}
