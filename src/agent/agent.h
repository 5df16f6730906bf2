/* agent.h - what the parts of the agent share.
 *
 * One process, one loop. Everything here is touched on the loop only; transfers (xfer.h) and jobs
 * get copies of what they need. docs/agent.md is the protocol. */
#ifndef SPACE_AGENT_H
#define SPACE_AGENT_H

#include <uv.h>

#include "agent/path.h"
#include "agent/users.h"
#include "base/json.h"
#include "http/server.h"

#define AGENT_PORT 49983
#define ENVD_VERSION "0.6.13" /* what E2B's clients take us for */
#define AGENT_PROTOCOL 2 /* 2: /init takes fresh and keepProcesses */
#define HOST_ADDR "100.64.0.1"
#define GUEST_ADDR "100.64.0.2"
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define ENV_MAX 512 /* members of an environment */

struct agent {
	uv_loop_t *loop;
	struct http_server *http;
	bool test;	  /* on some host, without init duties */
	bool pid1;	  /* init duties were done */
	const char *root; /* test mode: where identity files go; "" in the guest; NULL: nowhere */
	int disk_fd;	  /* root of the writable ext4 as mounted before chroot; -1: none */
	int64_t started;  /* mono_ms */
	char boot_token[33]; /* a new one for each boot, and for each start from a checkpoint */

	/* set by /init */
	bool ready;  /* the first one has come */
	bool frozen; /* /freeze came after it: nothing but /init is served */
	int64_t generation;
	char id[64], machine_id[33], hostname[64];
	char token[257]; /* "": open */
	json_t *env;	 /* object of strings: the global environment */
	char default_user[USER_NAME_MAX];
	char default_workdir[PATH_LEN];
};
extern struct agent agent;

/* main.c */
void boot_token_new(void);
/* server.c */
int server_start(const char *host, int port, struct fail *why);
/* {"code":STATUS,"message":"…"}, the shape of E2B's plain HTTP errors. */
void answer_error(struct http_exchange *x, int status, const char *fmt, ...) PRINTF(3, 4);
void error_text(struct buf *b, int status,
	const char *msg); /* that text; B is begun here, the caller clears it */
bool token_ok(struct http_exchange *x, bool *present); /* X-Access-Token; true when none is set */

/* The query parameter KEY into a fixed buffer: length, -ENOENT when absent, -EINVAL, -ENAMETOOLONG.
 */
ssize_t query_str(const struct http_exchange *x, const char *key, char *out, size_t size);
/* User and path of a request that names them as queries. Answers the error itself and returns it.
 */
int query_user(struct http_exchange *x, const char *key, struct user *u);
int query_path(struct http_exchange *x, const char *key, const struct user *u, char out[PATH_LEN]);

/* handlers, one line each in the routing table of server.c */
void handle_health(struct http_exchange *x);
void handle_metrics(struct http_exchange *x);
void handle_envs(struct http_exchange *x);
void handle_init(struct http_exchange *x);
void handle_freeze(struct http_exchange *x);
void handle_thaw(struct http_exchange *x);
void handle_files_get(struct http_exchange *x);
void handle_files_post(struct http_exchange *x);
void handle_compose(struct http_exchange *x);
void handle_file_put(struct http_exchange *x);
void handle_tar_get(struct http_exchange *x);
void handle_tar_put(struct http_exchange *x);
void handle_tcp(struct http_exchange *x);
void handle_processes(struct http_exchange *x);
void handle_kill(struct http_exchange *x);
void handle_stdin(struct http_exchange *x);
void handle_shutdown(struct http_exchange *x);

/* init.c */
int init_run(struct fail *why);		      /* all of PID 1's duties before serving */
_Noreturn void init_give_up(const char *why); /* says so on the console and ends the machine */
void init_power_off(void); /* SIGTERM, 2 s, SIGKILL, unmount, off: does not return in a guest */
/* init_net.c */
int net_up(struct fail *why);
void net_neighbour(void); /* the host's hardware address is what it should be */
int write_resolv_conf(void);
/* freeze.c */
int fs_freeze(void); /* 0 or -errno; thaws by itself after 10 s */
void fs_thaw(void);

#endif
