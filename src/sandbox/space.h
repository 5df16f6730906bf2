/* space.h - the daemon's core as its API sees it: sandboxes, templates, images, operations, keys, events.
 *
 * Everything here runs on the one loop and never blocks; slow work happens in jobs. Structs are read by the API and changed only
 * by this room. A pointer to a sandbox, template or operation is good until the callback returns; keep ids, not pointers
 * (sandbox_hold() keeps one for a stream). */
#ifndef SPACE_SANDBOX_SPACE_H
#define SPACE_SANDBOX_SPACE_H

#include <uv.h>

#include "base/json.h"
#include "http/client.h"
#include "sandbox/config.h"

struct space;

#define TENANT_DEFAULT "default" /* of the local socket; its templates may be used by all */

int space_start(uv_loop_t *loop, const struct config *cfg, struct space **out, struct fail *why);
/* Leaves sandboxes running (they are adopted by the next start) and calls `gone` when everything else is put away. Before that every
 * subscription has been dropped and every hold released. */
void space_stop(struct space *sp, void (*gone)(void *arg), void *arg);
bool space_ready(const struct space *sp, struct fail *why); /* for /readyz: recovered, driver works, … */
const char *space_isolation(const struct space *sp);	    /* "kvm" or "emulated" */

/* VALUE is borrowed; NULL when WHY says why not. Exactly once. */
typedef void json_done_fn(json_t *value, const struct fail *why, void *arg);

/* --- sandboxes --- */
enum sandbox_state {
	SANDBOX_CREATING, SANDBOX_RUNNING, SANDBOX_PAUSING, SANDBOX_PAUSED, SANDBOX_SUSPENDING, SANDBOX_SUSPENDED,
	SANDBOX_WAKING, SANDBOX_STOPPING, SANDBOX_STOPPED, SANDBOX_FAILED, SANDBOX_STATES
};
const char *sandbox_state_name(enum sandbox_state s);

struct phase { const char *name; double ms; };

struct sandbox {
	char id[24], name[64], tenant[32];
	enum sandbox_state state;
	char reason[32];		/* why stopped or failed: "killed", "deadline", "idle", "guest_panic", "monitor_crash", … */
	char template[64];
	unsigned template_version;
	char node[24];			/* what it was started from */
	char checkpoint[24];		/* the latest node of its own state, the parent of the next; empty: `node` is */
	char image_digest[65], kernel_digest[65];
	unsigned vcpu;
	uint64_t memory, disk;
	bool read_only;			/* rootfs: read-only */
	int64_t created_ns, started_ns, ended_ns, deadline_ns, last_active_ns; /* 0: none */
	int64_t timeout_s, idle_timeout_s;  /* 0: none */
	bool suspend_on_timeout, auto_wake;
	json_t *env, *metadata;		/* objects; never NULL */
	const char *start;		/* "pool", "restore", "boot" */
	struct phase phases[8];
	unsigned nphases;
	unsigned instance;		/* counts rollbacks: commands of an earlier one are gone, whatever has their pid */
	unsigned users;			/* open streams, proxied connections, running API calls: activity */
	struct sandbox_core *core;	/* this room's own */
};

struct create_req {
	const char *template;		/* NULL: the default of the configuration */
	const char *name;
	int64_t timeout_s, idle_timeout_s; /* -1: the default; 0: none */
	bool suspend_on_timeout, auto_wake;
	json_t *env, *metadata, *tmpfs; /* may be NULL; borrowed. tmpfs: {"/work": bytes} */
	unsigned vcpu;			/* 0: the template's */
	uint64_t memory, disk;		/* 0: the template's */
	bool read_only;
	const char *idempotency_key;	/* may be NULL */
	const char *checkpoint;		/* from this node instead of a template: its processes go on */
	const char *snapshot;		/* from the disk of this node (a checkpoint's will do): boots */
};

/* SB is NULL when WHY says why not. Exactly once. */
typedef void sandbox_done_fn(struct sandbox *sb, const struct fail *why, void *arg);
void sandbox_create(struct space *sp, const char *tenant, const struct create_req *q, sandbox_done_fn *done, void *arg);
void sandbox_kill(struct sandbox *sb, const char *reason, sandbox_done_fn *done, void *arg); /* idempotent */
void sandbox_pause(struct sandbox *sb, sandbox_done_fn *done, void *arg);
void sandbox_wake(struct sandbox *sb, sandbox_done_fn *done, void *arg);
void sandbox_set_timeout(struct sandbox *sb, int64_t timeout_s, sandbox_done_fn *done, void *arg); /* from now on; 0: none */

/* --- state: checkpoints, snapshots, and what is started from them (docs/state.md) --- */

enum node_kind {
	NODE_TEMPLATE,		/* a template's, or a variant's */
	NODE_CHECKPOINT, NODE_SNAPSHOT, /* asked for; they stay until they are removed, or pruned */
	NODE_BRANCH,		/* what a branch was taken from; goes when no sandbox and no node needs it, unless it was given a label */
	NODE_SUSPEND,		/* a suspended sandbox; goes when it wakes or ends */
	NODE_KINDS
};
const char *node_kind_name(enum node_kind k);

/* A node of the tree as its record has it. */
struct checkpoint {
	char id[24], parent[24];	/* parent: empty when it has none; it may have been removed since */
	char tenant[32], sandbox[24];	/* sandbox: whose state it is; empty for a template's */
	char template[64], label[128];
	enum node_kind kind;
	char image_digest[65], kernel_digest[65];
	char driver[16], driver_version[128];
	unsigned vcpu;
	uint64_t memory, disk;		/* memory: 0 for a snapshot */
	bool read_only;
	uint64_t own_bytes, shared_bytes; /* stored for it alone; shared with its parent */
	double paused_ms;		/* how long the guest stood still for it */
	int64_t created_ns;
	unsigned children;		/* nodes whose parent it is, and living sandboxes that were started from it */
	char damaged[160];		/* file and offset where a digest did not hold; empty: none known */
};
struct checkpoint_req {
	const char *label;		/* may be NULL */
	bool disk_only;			/* a snapshot */
	const char *idempotency_key;	/* may be NULL: the same key for the same sandbox answers with the same node */
};
/* K is NULL when WHY says why not; good until the callback returns. Exactly once. */
typedef void checkpoint_done_fn(const struct checkpoint *k, const struct fail *why, void *arg);
/* The sandbox goes on (a paused one stays paused, of a suspended one the node it lies in is copied). */
void sandbox_checkpoint(struct sandbox *sb, const struct checkpoint_req *q, checkpoint_done_fn *done, void *arg);

/* Onto the disk; memory, monitor and slot are given back. Idempotent. sandbox_wake() undoes it, as it undoes a pause. */
void sandbox_suspend(struct sandbox *sb, sandbox_done_fn *done, void *arg);
/* The same id, as it was then; what has happened since is gone. CHECKPOINT: id or label of one of this sandbox's, or of an ancestor's. A snapshot
 * boots. */
void sandbox_rollback(struct sandbox *sb, const char *checkpoint, sandbox_done_fn *done, void *arg);

struct branch_req {
	unsigned count;			/* 1..64 */
	const char *label;		/* may be NULL: keeps the node it is taken from */
	int64_t timeout_s;		/* of the siblings; -1: as the parent's */
	json_t *metadata;		/* over the parent's; may be NULL */
};
struct branch_result {
	const struct checkpoint *from;	/* NULL when WHY says why nothing could be taken */
	struct sandbox **sandboxes;
	unsigned count;
	const struct fail *failed;	/* one for each that did not start */
	unsigned nfailed;
};
typedef void branch_done_fn(const struct branch_result *res, const struct fail *why, void *arg);
/* Siblings that continue from this instant, the parent untouched. Of a running, a paused or a suspended one. */
void sandbox_branch(struct sandbox *sb, const struct branch_req *q, branch_done_fn *done, void *arg);

/* By id, or by label when only one has it. NULL with WHY = checkpoint_not_found. TENANT NULL: all. */
const struct checkpoint *checkpoint_find(struct space *sp, const char *tenant, struct str id_or_label, struct fail *why);
/* Newest first; SANDBOX (may be NULL): only of that one; 1 to go on, 0 to stop. Templates' nodes are seen by every tenant that sees the template. */
void checkpoint_each(struct space *sp, const char *tenant, const char *sandbox, int (*fn)(const struct checkpoint *k, void *arg), void *arg);
/* Its children keep what they need. A template's node and a suspended sandbox's are refused (busy). */
void checkpoint_remove(struct space *sp, const char *tenant, const char *id, void (*done)(const struct fail *why, void *arg), void *arg);

struct prune_req {
	int64_t older_than_s;
	bool snapshots, checkpoints, dry_run;
	bool retention;			/* instead of older_than_s what the configuration says for the tenant of each */
};
/* VALUE: {"removed":[ids],"bytes":N}. Nothing that a living sandbox or a template needs. */
void checkpoint_prune(struct space *sp, const char *tenant, const struct prune_req *q, json_done_fn *done, void *arg);
/* What takes the room: {"pool":{"total":N,"free":N,"clone":"…"},"rows":[{"what":"images","count":N,"bytes":N},…]} */
void space_usage_json(struct space *sp, const char *tenant, json_done_fn *done, void *arg);
/* Every node's files against their digests; ends with {"checked":N,"damaged":[{"checkpoint":id,"file":…,"offset":N}]}. */
struct operation *space_fsck(struct space *sp, const char *tenant, struct fail *why);
/* A node as one stream (docs/export-format.md), written to FD by a job; FD is closed by it. DONE with {"checkpoint":id},
 * and "bytes" where FD is a file. */
void checkpoint_export(struct space *sp, const char *tenant, const char *id, int fd, json_done_fn *done, void *arg);
/* Reads one from FD, checks every digest, records it. */
void checkpoint_import(struct space *sp, const char *tenant, int fd, checkpoint_done_fn *done, void *arg);

/* By id, or by name when unique. Sandboxes that ended stay found for an hour. NULL with WHY = sandbox_not_found. */
struct sandbox *sandbox_find(struct space *sp, const char *tenant, struct str id_or_name, struct fail *why);
/* Those of a tenant (NULL: all) in order of creation, newest first; 1 to go on, 0 to stop. */
void sandbox_each(struct space *sp, const char *tenant, int (*fn)(struct sandbox *sb, void *arg), void *arg);

/* Activity: a sandbox with users is not idle. Also keeps the pointer good until released. */
void sandbox_hold(struct sandbox *sb);
void sandbox_release(struct sandbox *sb);
/* The pointer alone: for those who only look, which is no activity. */
void sandbox_keep(struct sandbox *sb);
void sandbox_unkeep(struct sandbox *sb);

/* The way to the agent: NULL with WHY (sandbox_gone, sandbox_not_running) unless it runs. Calls carry X-Access-Token: sandbox_token(). */
struct http_endpoint *sandbox_agent(struct sandbox *sb, struct fail *why);
const char *sandbox_token(const struct sandbox *sb);
/* The way to a TCP port of the guest, 127.0.0.1-bound ones included. */
struct http_endpoint *sandbox_port(struct sandbox *sb, int port, struct fail *why);
int sandbox_console(struct sandbox *sb, size_t max, char **out, size_t *len); /* reads a file; small */

/* --- events --- */
struct event { uint64_t seq; int64_t at_ns; const char *tenant, *sandbox, *type; struct str body; };
typedef void event_fn(const struct event *e, void *arg);
struct event_sub;
/* Calls FN for stored events with seq > AFTER first (UINT64_MAX: none), then for each new one once it is on disk. */
struct event_sub *event_subscribe(struct space *sp, const char *tenant, const char *sandbox, uint64_t after, event_fn *fn, void *arg);
void event_unsubscribe(struct event_sub *s);

/* --- operations: one life-cycle call each, to poll or to follow --- */
struct operation {
	char id[24], tenant[32], kind[24], target[24]; /* kind: "create", "image.build", "template.build", … */
	enum { OPERATION_RUNNING, OPERATION_DONE, OPERATION_FAILED } state;
	char step[96];
	double progress;		/* 0..1, -1 unknown */
	json_t *result;			/* of a done one; may be NULL */
	struct fail fail;		/* of a failed one */
	int64_t created_ns, ended_ns;
};
struct operation *operation_new(struct space *sp, const char *tenant, const char *kind, const char *target);
void operation_step(struct operation *op, const char *step, double progress);
void operation_end(struct operation *op, json_t *result, const struct fail *why); /* takes the reference */
struct operation *operation_find(struct space *sp, const char *tenant, struct str id);
/* Newest first; 1 to go on, 0 to stop. */
void operation_each(struct space *sp, const char *tenant, int (*fn)(struct operation *op, void *arg), void *arg);
/* FN at each change until it ended or the subscription is dropped. */
struct operation_sub;
struct operation_sub *operation_subscribe(struct operation *op, void (*fn)(struct operation *op, void *arg), void *arg);
void operation_unsubscribe(struct operation_sub *s);

/* --- templates and images --- */
struct template {
	char name[64];
	unsigned version;
	char node[24], image_digest[65], kernel_digest[65];
	unsigned vcpu;
	uint64_t memory, disk;
	int64_t created_ns;
	uint64_t bytes;
	json_t *env;		/* of image and build */
	char user[64], workdir[256], start_cmd[1024];
};
struct template_req {
	const char *name, *image;	/* image: name or digest */
	unsigned vcpu; uint64_t memory, disk; /* 0: defaults */
	json_t *setup;			/* ["shell command", …]; may be NULL */
	json_t *env;
	const char *start_cmd, *ready_cmd, *user, *workdir;
};
void template_each(struct space *sp, const char *tenant, int (*fn)(const struct template *t, void *arg), void *arg);
const struct template *template_find(struct space *sp, const char *tenant, const char *name, struct fail *why);
/* The operation reports progress and ends with {"template": …}. NULL with WHY when it cannot even start. */
struct operation *template_build(struct space *sp, const char *tenant, const struct template_req *q, struct fail *why);
int template_remove(struct space *sp, const char *tenant, const char *name, struct fail *why);

/* {"from":"packages","packages":[…]} | {"from":"dir","path":…} | {"from":"oci","ref":…}; runs space-image. */
struct operation *image_build(struct space *sp, const char *tenant, const char *name, json_t *source, struct fail *why);
/* VALUE of the list: {"images":[…]}; from the pool, in a job. */
void image_list_json(struct space *sp, json_done_fn *done, void *arg);
void image_remove_async(struct space *sp, const char *name, json_done_fn *done, void *arg);

/* --- keys --- */
enum scope { SCOPE_READ, SCOPE_USE, SCOPE_ADMIN };
struct key_info { char id[24], name[64], tenant[32]; enum scope scope; int64_t created_ns, last_used_ns; };
/* TEXT: "space_" or "e2b_" and 40 hex digits. NULL: unknown. Constant time in the digits. */
const struct key_info *key_check(struct space *sp, struct str text);
/* Makes one; TEXT (64 bytes) gets it, once: only its hash is kept. done comes when it is on disk. */
void key_create(struct space *sp, const char *tenant, const char *name, enum scope scope, char text[64], void (*done)(const struct key_info *k, const struct fail *why, void *arg), void *arg);
void key_delete(struct space *sp, const char *id, void (*done)(const struct fail *why, void *arg), void *arg);
void key_each(struct space *sp, int (*fn)(const struct key_info *k, void *arg), void *arg);
bool key_any(struct space *sp);

/* --- numbers for /metrics --- */
struct space_counts {
	unsigned sandboxes[SANDBOX_STATES];
	uint64_t creates, create_failures, kills;
	uint64_t checkpoints, suspends, wakes; /* snapshots and branches' nodes are among the checkpoints; wakes from suspension */
	unsigned nodes;
	uint64_t memory_reserved, memory_limit;
	unsigned slots_ready, monitors_ready;
};
void space_count(struct space *sp, struct space_counts *out);

/* --- looking in (inspect.c) --- */
struct pool;
const char *space_driver(const struct space *sp);	  /* "qemu" */
const char *space_driver_version(const struct space *sp);
/* "clone": a new disk or node shares what it has in common with what it was made from; "copy": the pool's file system cannot, and nothing may be mounted
 * for it, so that each is a sparse copy of its own. */
const char *space_storage(const struct space *sp);
struct pool *space_pool(const struct space *sp);	  /* for jobs that only look: pool_info() */
const json_t *sandbox_tmpfs(const struct sandbox *sb);	  /* {"/path":bytes}; may be NULL */
pid_t sandbox_monitor_pid(const struct sandbox *sb);	  /* 0: no monitor runs */
/* What an operation turned out to be about, once that is known (a create's sandbox). Written with the operation's end. */
void operation_set_target(struct operation *op, const char *target);
/* Stored events with seq > AFTER, oldest first, at most LIMIT, at once. NULL: all tenants, all sandboxes. */
int event_list(struct space *sp, const char *tenant, const char *sandbox, uint64_t after, unsigned limit, event_fn *fn, void *arg,
	       struct fail *why);

#endif
