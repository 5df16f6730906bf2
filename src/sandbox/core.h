/* core.h - what the files of this room share, and nobody else includes.
 *
 * Who may touch what: everything here belongs to the loop thread, except the functions that say "blocking" (they run in jobs, on
 * worker threads, and touch only what is handed to them, the pool, the slots, the driver and the uid table). */
#ifndef SPACE_SANDBOX_CORE_H
#define SPACE_SANDBOX_CORE_H

#include "base/job.h"
#include "driver/driver.h"
#include "image/image.h"
#include "net/slot.h"
#include "sandbox/space.h"
#include "store/store.h"

#define AGENT_PORT 49983
#define AGENT_PROTOCOL 2		  /* what /init of our agents says (agent/agent.h); a checkpoint with another one in its memory is not started */
#define AGENT_CONNECT_MS 1400		  /* a guest whose network is gone is found out in this time */
#define INIT_TIMEOUT_MS 30000		  /* from running vCPUs to the answer of /init */
#define BOOT_TIMEOUT_MS 180000		  /* the same for a cold boot; emulation on a busy host is slow */
#define ENDED_KEEP_NS (3600 * NS_PER_S)	  /* ended sandboxes and operations stay found this long */
#define ENDED_MAX 10000			  /* … but no more than this many */
#define OPERATIONS_MAX 1000
#define EVENTS_PER_SANDBOX 1000
#define EVENTS_MAX 200000
#define SANDBOX_BUCKETS 1024
#define NODE_BUCKETS 4096
#define TAG_START "space.start"		  /* the template's start command: no sign of activity */

struct sandbox_core;
struct machine;
struct source;
struct take;
struct tmpl;
struct tree_node;
struct variant;
struct build;

/* --- uids of monitors (machine.c): one each, never one that a living monitor has --- */
struct uids {
	uv_mutex_t mu;
	unsigned base, count, next;
	uint64_t *used;
};

struct ready_group;
struct live_event;

struct space {
	uv_loop_t *loop;
	struct config cfg;
	struct store *store;
	struct pool *pool;
	struct slots *slots;
	const struct driver *drv;
	const char *isolation;
	char drv_version[128];
	bool copies; /* the pool cannot clone */
	struct uids uids;

	bool recovered, stopping, going;
	void (*gone)(void *arg);
	void *gone_arg;
	unsigned jobs; /* under way: space_stop() waits for them */

	struct link sandboxes; /* oldest first */
	struct sandbox_core *by_id[SANDBOX_BUCKETS];
	unsigned counts[SANDBOX_STATES];
	unsigned living, ended;
	uint64_t creates, create_failures, kills;
	uint64_t memory_limit, memory_reserved; /* the limit has overcommit in it */
	uint64_t randoms[1024];			/* what guests drew at their /init, newest over oldest */
	uint64_t boots[1024];			/* … and the boot tokens that they drew, alike */
	unsigned nrandoms, nboots;

	struct tree_node **node_hash; /* NODE_BUCKETS of them */
	bool nodes_sorted, verifying;
	struct later *verify;
	int64_t retained_ns, disks_ns, disks_at_ns;
	bool rewriting;
	uint64_t checkpoints, suspends, wakes;

	struct link templates, nodes, builds, children, sources, ready, operations, subs, keys;
	unsigned noperations;
	bool publishing; /* event_publish() walks the subscriptions */
	bool slots_refilling, refill_again;
	struct later *sweep, *refill, *room;
	uint64_t room_free; /* bytes free in the storage pool when it was looked at last */
	bool room_failed;   /* it should have grown and could not: said once */
	int64_t trimmed_ns;
};

/* --- space.c --- */
/* A job that space_stop() waits for. Never fails: without memory DONE is called at once with the failure. */
void space_job(struct space *sp, struct job_queue *q, job_fn *fn, job_done_fn *done, void *arg);
void space_check_gone(struct space *sp);

/* One-shot timers. *slot is what can be cleared; it is NULL again before FN is called. */
struct later;
void later_set(struct space *sp, struct later **slot, int64_t ms, void (*fn)(void *arg), void *arg);
void later_clear(struct later **slot);

/* --- room.c: keeps free room in the storage pool, or says that there is none --- */
void room_watch(struct space *sp);			   /* from now on; space_stop() ends it by clearing sp->room */
int room_for_sandbox(struct space *sp, struct fail *why); /* no_space when what is left would not last */

/* --- machines (machine.c): a monitor process with all that is its own: uid, slot, disk, run directory --- */
struct machine {
	struct space *sp;
	char id[24]; /* of the sandbox that it is or will be */
	char tenant[32];
	char role[12]; /* "sandbox", "ready", "build" */
	char run_dir[320];
	struct source *src; /* counted; NULL: it booted, or was adopted */
	unsigned vcpus;
	uint64_t memory, disk; /* disk: bytes of its file now */
	uint64_t disk_max;     /* what machine_grow() will make of it; 0: nothing */
	bool has_slot, has_uid, has_disk, has_dir;
	uid_t uid;
	struct slot slot;
	struct vm *vm;
	double monitor_ms, disk_ms, load_ms; /* what preparing and starting took */
};

/* What a machine is made from: descriptors are borrowed. */
struct machine_files {
	int kernel, initrd, image, node, memory, disk; /* -1: none */
	bool read_only;				       /* no disk; the root's upper layer is in memory */
	char cmdline[512];
};

struct machine *machine_new(struct space *sp, const char *id, const char *tenant, const char *role);
void machine_free(struct machine *m); /* the struct; the process goes on if it was not destroyed */
int machine_prepare(struct machine *m, const struct machine_files *f, struct fail *why);	/* blocking */
int machine_start(struct machine *m, struct fail *why);					/* blocking */
int machine_grow(struct machine *m, uint64_t disk, struct fail *why);			/* blocking */
int machine_destroy(struct machine *m, struct fail *why); /* blocking; fine on one that is half made or gone */
int machine_adopt(struct machine *m, struct fail *why);	  /* blocking; -ESRCH: its process is gone */
void machine_set_role(struct machine *m, const char *role); /* blocking, one small file */
/* Destroys and frees in a job of its own, in the background. */
void machine_discard(struct machine *m);
int uids_init(struct uids *u, unsigned base, unsigned count);
void uids_clear(struct uids *u);

/* --- sources (source.c): a node, opened once for all machines that start from it --- */
struct source {
	struct link link;
	struct space *sp;
	unsigned refs;
	char tenant[32]; /* memory pages are shared within a tenant only; empty: between all, where the configuration says so */
	struct node node;
	bool template; /* a template's: says what helps when it does not fit this host */
	bool loaded;
	struct machine_files files;
	struct link waiting;
	int64_t used_ns;
};
typedef void source_fn(struct source *s, const struct fail *why, void *arg); /* S carries a reference for the callee */
void source_get(struct space *sp, const char *tenant, const char *node, source_fn *fn, void *arg);
struct source *source_ref(struct source *s);
void source_unref(struct source *s);
void source_forget(struct space *sp, const char *node); /* the node goes away: nothing is kept for later */
/* Blocking, for one machine alone: N->id's files into F, which machine_files_close() gives back, also after a failure; the rest of N is read. BOOT: kernel and
 * initramfs as new templates have them, and its disk. TEMPLATE only chooses the words of a refusal. MEMFD: the memory as a sealed memfd, else -1. */
int node_files_open(struct space *sp, struct node *n, bool template, bool boot, bool memfd, struct machine_files *f, struct fail *why);
void machine_files_close(struct machine_files *f);
/* Blocking: M, which is new, started from its own copy of node ID. Its sizes are the node's; those of one that boots are set already, and its disk becomes
 * TARGET bytes at least. N gets what was read. */
int machine_from_node(struct machine *m, const char *id, bool boot, uint64_t target, struct node *n, struct fail *why);
/* Can it be started here at all? As far as its record says. ERR_checkpoint_mismatch, checkpoint_damaged, or bad_request for one without memory. */
int node_startable(struct space *sp, const struct checkpoint *k, bool boot, struct fail *why);
void sources_clear(struct space *sp);

/* --- ready monitors (ready.c) --- */
/* One that was made for this source, or NULL. It is the caller's, its role still "ready". */
struct machine *ready_claim(struct space *sp, const char *tenant, const char *node);
void ready_refill(struct space *sp); /* soon, in the background */
void ready_drop(struct space *sp, const char *node); /* NULL: all */
unsigned ready_count(const struct space *sp);

/* --- rehearse.c: a started machine runs as nobody once, then stands still, frozen. FN comes once, later --- */
struct rehearsal;
typedef void rehearse_fn(struct machine *m, const struct fail *why, void *arg);
struct rehearsal *rehearse(struct machine *m, rehearse_fn *fn, void *arg, struct fail *why); /* NULL: FN does not come */
void rehearse_cancel(struct rehearsal *r); /* FN comes soon, with -ECANCELED */

/* --- sandboxes --- */
struct waiter {
	struct waiter *next;
	sandbox_done_fn *done;
	void *arg;
};

struct identity {
	char id[24], hostname[64], machine_id[33], token[65];
	char boot_token[65]; /* the guest's own, of its last start; empty: not known */
	int64_t generation;
};

struct port_way;
struct revival;
struct start;

struct sandbox_core {
	struct sandbox sb; /* first: what the API sees. sb.state follows when it is on disk */
	struct space *sp;
	struct link link;
	struct sandbox_core *hash_next;
	enum sandbox_state state; /* what it is now */
	unsigned holds, moves;	  /* moves: on their way to the disk */
	bool unlisted;		  /* waits for its last hold to go */
	struct job_queue *q;
	struct machine *m, *dying; /* dying: m, once the job that destroys it owns it */
	struct identity who;
	json_t *tmpfs, *guest_env; /* guest_env: the template's and the sandbox's */
	bool was_paused;	   /* of one that is suspending: before that */
	bool grown;		   /* its disk is larger than the template's */
	char user[64], workdir[256];
	char idem[129];
	uint64_t idem_hash;
	uint64_t reserved;
	struct fail fail; /* of a failed one */
	struct waiter *creators, *killers;
	struct start *start;
	bool doing;  /* a pause, wake, suspension, checkpoint, branch or rollback is under way */
	struct turn *turn;	/* which of those that change its state */
	struct take *take;	/* or the checkpoint */
	char initrd_digest[65]; /* of the nodes that are saved of it */
	char lies_in[24];	/* the node of a suspended one, from the record that says SUSPENDED until the one that says RUNNING */
	bool continues;		/* started from a checkpoint: its processes, their output and its mounts go on */
	bool booting;		/* its first /init waits for a boot */
	struct revival *revival; /* revive() is under way */
	bool stuck_asked; /* pause_if_stuck() is under way */
	bool ending; /* core_end() was called */
	struct http_endpoint *agent;
	struct port_way *ports;
	struct later *timer;
	struct exit_watch *watch;
	bool asking; /* the agent is being asked whether anything runs */
	int64_t idle_since_ns;
	char *last_words; /* the end of the console, once the machine is gone; of those that ended by themselves */
};

static inline struct sandbox_core *core_of(struct sandbox *sb)
{
	return sb->core;
}

/* state.c */
struct sandbox_core *core_new(struct space *sp, const char *id, const char *tenant);
void core_unlist(struct sandbox_core *c);
struct sandbox_core *core_by_id(struct space *sp, struct str id);
bool state_ended(enum sandbox_state s);
bool state_may(enum sandbox_state from, enum sandbox_state to);
/* The one function that moves a sandbox: record and event in one transaction, DONE once it is on disk. REASON may be NULL. */
void core_move(struct sandbox_core *c, enum sandbox_state to, const char *reason, store_done_fn *done, void *arg);
/* Writes the record again without a move, with an event if TYPE is not NULL. */
void core_save(struct sandbox_core *c, const char *type, store_done_fn *done, void *arg);
int core_put(struct sandbox_core *c, struct store_txn *t); /* its record as it is now, into T */
int core_load(struct space *sp, struct str body, struct fail *why); /* record.c: a record read back */
int core_write(const struct sandbox_core *c, enum sandbox_state as, struct buf *out);
void core_release_memory(struct sandbox_core *c);
int waiter_add(struct waiter **list, sandbox_done_fn *done, void *arg);
void waiters_call(struct waiter **list, struct sandbox *sb, const struct fail *why);

/* start.c: from admitted to running. NODE: what it starts from when READY is NULL. BOOT: from its disk alone.
 * BOOT_MS: how long it took to boot and save a machine of this size first; 0: there was one. */
void start_begin(struct sandbox_core *c, struct machine *ready, const char *node, bool boot, int64_t t0_ns, double boot_ms);
void start_interrupt(struct sandbox_core *c, const char *reason, const struct fail *why); /* a kill, or the monitor's end */

/* create.c */
int admit(struct space *sp, uint64_t bytes, struct fail *why); /* one sandbox more, of BYTES: is there room? */
/* What one that is started from N takes over of the guest in it: user, directory, environment, size, … */
int core_from_node(struct sandbox_core *c, const struct tree_node *n);
void core_drop(struct sandbox_core *c); /* C was never anywhere but in memory; its creators are answered otherwise. NULL is fine */
json_t *core_guest(const struct sandbox_core *c); /* that, for the node that is saved of C: n->guest */
int check_metadata(json_t *o, struct fail *why);

/* identity.c */
void identity_new(struct sandbox_core *c);
void boot_token_learn(struct space *sp, const char *token); /* nobody may have it any more; NULL is fine */
typedef void identity_fn(const struct fail *why, void *arg);
/* Tells the guest who it is now and checks its answer. FRESH: it came out of a node, so nobody may have its random bytes. */
void identity_send(struct sandbox_core *c, bool fresh, int timeout_ms, identity_fn *fn, void *arg);
int64_t generation_after(int64_t last);

/* watch.c: the monitor's end */
int watch_start(struct sandbox_core *c);
/* F in the caller's words where a broken connection to the monitor is all that it says: the machine has ended, which is CODE. */
void watch_explain(struct fail *f, enum errcode code);
void watch_stop(struct sandbox_core *c);

/* kill.c, deadline.c, pause.c */
void pause_if_stuck(struct sandbox_core *c); /* asks its monitor whether it has stopped by itself, for want of room on the host */
/* Ends a sandbox whatever it is doing; the reason says whether it has stopped or failed. WHY, if not NULL, is what a failed one tells. */
void core_end(struct sandbox_core *c, const char *reason, const struct fail *why);
void core_end_again(struct sandbox_core *c);
enum sandbox_state end_state(const char *reason);
void deadline_arm(struct sandbox_core *c);

/* pause.c: one change of state under way. C is held and `doing` meanwhile; of checkpoints and branches only `doing` is set. */
enum turn_kind { TURN_PAUSE, TURN_WAKE, TURN_SUSPEND, TURN_ROLLBACK };
struct turn {
	struct sandbox_core *c;
	enum turn_kind kind;
	enum sandbox_state from; /* where it began */
	struct machine *m;	 /* the one it had then, or NULL: jobs of one sandbox come one after another, so it is there for the turn's own */
	sandbox_done_fn *done;
	void *arg;
	unsigned pending;	   /* of what goes side by side */
	struct waiter *joined;	 /* who asked for the same meanwhile */
	struct tree_node *node;	 /* pinned, where there is one */
	struct fail why;	 /* the answer, where steps come between */
};
/* NULL: DONE was called, because it is so already or cannot be; or it will be with the answer of the same turn that is under way (never a rollback). */
struct turn *turn_begin(struct sandbox_core *c, enum turn_kind kind, sandbox_done_fn *done, void *arg);
void turn_end(struct turn *t, const struct fail *why); /* frees T */
/* sandbox_wake() of a suspended one is in pause.c too: memory_reserve(), WAKING, revive(c, c->lies_in, false, true, …), RUNNING; SUSPENDED if that fails. */
int memory_reserve(struct sandbox_core *c, struct fail *why); /* c->sb.memory again, or no_capacity; core_release_memory() undoes it */

/* port.c: the ways into the guest. They go when its machine does. */
int agent_open(struct sandbox_core *c, struct fail *why);
void ways_reset(struct sandbox_core *c); /* calls under way are cut; the next connect anew */
void ways_close(struct sandbox_core *c);
struct http_endpoint *agent_endpoint(struct space *sp, const struct slot *slot, struct fail *why); /* the caller's to free */

/* recover.c */
int recover_begin(struct space *sp, struct fail *why);

/* --- the agent as a client sees it (agent_client.c) --- */
struct agent_run {
	const char *cmd, *user, *tag, *cwd; /* cmd is for /bin/bash -l -c; tag and cwd may be NULL */
	int timeout_ms;
	bool leave; /* done is called once it has started; it goes on */
};
/* STATUS is the exit status; OUTPUT the end of what it wrote, both streams. */
typedef void agent_run_fn(int status, struct str output, const struct fail *why, void *arg);
void agent_run(struct space *sp, struct http_endpoint *e, const char *token, const struct agent_run *o, agent_run_fn *fn, void *arg);
typedef void agent_json_fn(int status, json_t *answer, const struct fail *why, void *arg);
/* One small call, JSON both ways; BODY may be NULL. ANSWER is borrowed, NULL if there was none. */
void agent_call(struct http_endpoint *e, const char *token, const char *method, const char *target, json_t *body, int timeout_ms,
		agent_json_fn *fn, void *arg);

/* --- templates (template.c, template_build.c) --- */
struct variant {
	struct link link;
	struct tmpl *t;
	unsigned vcpu;
	uint64_t memory, bytes;
	bool read_only;
	char node[24];	    /* empty while it is being made */
	int64_t generation; /* of its last /init; those of its clones are higher */
	int64_t used_ns;
	struct build *build;
};

struct tmpl {
	struct link link;
	struct space *sp;
	unsigned refs;	   /* the list's one, and one for each build of a variant */
	bool dead;	   /* removed or replaced */
	struct template t; /* what the API sees */
	char tenant[32];
	json_t *setup;
	char ready_cmd[1024];
	struct link variants; /* the first is the template's own size */
};

struct tmpl *tmpl_new(struct space *sp, const char *tenant, const char *name);
void tmpl_unref(struct tmpl *t);
struct tmpl *tmpl_find(struct space *sp, const char *tenant, const char *name);
int template_load(struct space *sp, struct str body, struct fail *why);
void template_save(struct tmpl *t, store_done_fn *done, void *arg);
void template_publish(struct tmpl *t); /* takes the caller's reference */
void template_write(struct jw *w, const char *key, const struct template *t);
void templates_clear(struct space *sp);
struct variant *variant_add(struct tmpl *t, unsigned vcpu, uint64_t memory, bool read_only);
struct variant *variant_find(struct tmpl *t, unsigned vcpu, uint64_t memory, bool read_only);
typedef void variant_fn(struct variant *v, const struct fail *why, void *arg);
/* Calls FN when the variant has a node, at once if it has one; builds it first otherwise. */
void variant_get(struct tmpl *t, unsigned vcpu, uint64_t memory, bool read_only, variant_fn *fn, void *arg);
void build_variant(struct variant *v, variant_fn *fn, void *arg);
void builds_stop(struct space *sp);
bool builds_use_image(struct space *sp, const char *digest);

/* child.c: space-image with these arguments. DONE comes once, later; LAST, its last line, is borrowed. */
typedef void child_step_fn(const char *what, double done, void *arg);
typedef void child_done_fn(json_t *last, const struct fail *why, void *arg);
int child_run(struct space *sp, char *const *args, child_step_fn *step, child_done_fn *done, void *arg, struct fail *why);
void children_stop(struct space *sp);

/* --- tree.c: the records of nodes, in memory by id; a node goes when nothing needs it any more --- */
struct tree_node {
	struct checkpoint k; /* first: what the API sees */
	struct space *sp;
	struct link link;	/* sp->nodes, oldest first */
	struct tree_node *hash_next;
	char initrd_digest[65];
	int64_t generation;	/* of the last /init of what was saved; those of its clones are higher */
	unsigned pins;		/* being made, read or started from: it is not removed */
	char idem[129];
	json_t *guest;	/* what a clone takes over, core_guest(); NULL for a template's, whose template says it */
	bool there;	/* whole and recorded; else it is just being made, and nobody sees it */
	bool removing;	/* nobody sees it any more */
	bool digested, verified, verify; /* upkeep.c */
	bool needed;	/* nodes_collect() */
	bool old_record;
};
struct tree_node *tree_add(struct space *sp, const struct checkpoint *k); /* pinned once; not `there`, not on disk */
struct tree_node *tree_find(struct space *sp, const char *id);		  /* also one that is not `there`, or is being removed */
int tree_load(struct space *sp, const char *id, struct str body, struct fail *why); /* from its record; those of the first version say little */
int tree_put(struct tree_node *n, struct store_txn *t);			   /* its record, into T */
static inline void tree_pin(struct tree_node *n)
{
	n->pins++;
}
void tree_unpin(struct tree_node *n);
void tree_forget(struct tree_node *n);
bool tree_seen_by(const struct tree_node *n, const char *tenant);
/* Files and record, in the background. DONE may be NULL. */
/* REASON: for the event; NULL: nobody has heard of it, or its end is told otherwise. */
void tree_remove(struct tree_node *n, const char *reason, void (*done)(const struct fail *why, void *arg), void *arg);
json_t *node_meta(const struct tree_node *n); /* a copy of N's words about its guest, for node_meta_write() in a job */
/* An event about N, of its tenant and of the sandbox whose state it is; REASON may be NULL. To be published once T is on disk. */
int tree_event(struct tree_node *n, struct store_txn *t, const char *type, const char *reason, struct live_event **ev);
void tree_write(struct jw *w, const char *key, const struct checkpoint *k); /* for results and events: id, kind, label, parent */
void tree_clear(struct space *sp);
void nodes_collect(struct space *sp); /* removes what nothing needs: templates' old nodes, branch and suspend nodes */

/* upkeep.c: digests are computed and looked at in the background */
void verify_watch(struct space *sp);
void upkeep(struct space *sp); /* one step of it, as the timer takes it */
void verify_soon(struct tree_node *n); /* something was started from it: its digests are compared once */

/* --- save.c: writing a node from a machine. Freeze, save, /init with the same identity; a guest that does not answer is saved as it stands --- */
typedef void save_fn(struct tree_node *n, const struct fail *why, void *arg); /* N is pinned for the callee */
struct save_req {
	enum node_kind kind; /* NODE_SNAPSHOT: the disk alone, with the guest's file systems frozen, and thawed whatever happens */
	const char *label, *idem; /* may be NULL */
	bool leave_stopped;	  /* a suspension: the vCPUs do not run again after the instant that was saved */
};
/* C runs or is paused, `doing` is set, and nothing of it changes meanwhile but that it may end (then: sandbox_gone). Afterwards it is as it was before; a
 * paused one stays paused, its user processes frozen until the /init of its wake. N is in C's line: c->sb.checkpoint (not for snapshots and suspensions). */
void save_node(struct sandbox_core *c, const struct save_req *q, save_fn *fn, void *arg);
int savable(struct sandbox_core *c, struct fail *why); /* take.c: runs, is paused or suspended, and nothing else is done to it */

/* --- revive.c: a sandbox that exists gets a machine again, from a node: wake, rollback, recovery --- */
/* C has no machine. NODE's disk and memory become its own. FRESH_ID: a clone's identity is renewed (never for a wake). FN once it is confirmed and runs; after a
 * failure C has no machine again, and its state is the caller's to set. SLOT: kept from before, or NULL. */
void revive(struct sandbox_core *c, const char *node, bool boot, bool keep_identity, identity_fn *fn, void *arg);
void revive_interrupt(struct sandbox_core *c, const struct fail *why); /* its monitor has ended */

/* --- events, operations, keys --- */
/* Into T, to be published when T is on disk; *ev goes to event_publish() then (also on failure, with OK false). */
int event_add(struct space *sp, struct store_txn *t, const char *tenant, const char *sandbox, const char *type, struct str body,
	      struct live_event **ev);
void event_publish(struct space *sp, struct live_event *ev, bool ok);
void events_clear(struct space *sp);
int operation_load(struct space *sp, struct str body, struct fail *why);
void operations_sweep(struct space *sp);
void operations_clear(struct space *sp);
int key_load(struct space *sp, const char *id, struct str body, struct fail *why);
void keys_clear(struct space *sp);

#endif
