/* faults.h - the core, with its real store and its real pool, on the driver, slots and agent of tests/unit/sandbox_fake.c, killed at every point.
 *
 * A world lives through all of an operation's turns; several worlds are gone through side by side. Each turn is a child: it starts the daemon's core on what the last one left, compares all that it finds
 * with the model (which lies in memory that parent and children share), then does one operation with a rule set, and mostly dies of it. So a
 * death costs a few milliseconds, and the next turn is the restart that the death is about.
 *
 * model.c knows what was acknowledged and looks whether it is there; ops.c does the operations; world.c is what was there before; core.c goes
 * through points and reports. */
#ifndef FAULTS_H
#define FAULTS_H

#include "sandbox/core.h"

#define SB_MAX 64
#define NODES_MAX 128
#define POINTS_MAX 1024

enum op {
	OP_NONE, OP_START, OP_STOP, OP_CREATE, OP_KILL, OP_PAUSE, OP_WAKE, OP_TIMEOUT, OP_KEY, OP_CHECKPOINT, OP_SNAPSHOT, OP_CREATE_CHECKPOINT,
	OP_CREATE_SNAPSHOT, OP_SUSPEND, OP_WAKE_SUSPENDED, OP_KILL_SUSPENDED, OP_CHECKPOINT_SUSPENDED, OP_CHECKPOINT_PAUSED, OP_BRANCH,
	OP_BRANCH_SUSPENDED, OP_ROLLBACK, OP_REMOVE, OP_PRUNE, OP_EXPORT, OP_IMPORT, OPS
};
extern const char *const op_names[OPS];

/* What strikes: the daemon, the monitor, both, or an error to a call. */
enum mode { MODE_KILL, MODE_MONITOR, MODE_BOTH, MODE_ERROR, MODES };

struct model_sb {
	char id[24];
	enum sandbox_state state;
	char content[24];	 /* what its memory and its disk say; empty: not written yet */
};

struct model_node {
	char id[24], sandbox[24], content[24];
	bool snapshot;
};

#define RULE_MAX 700

/* How an operation was gone through: for a start that of before counts as well. */
struct way {
	enum op op, before;
	char rule[RULE_MAX], rule_before[RULE_MAX]; /* an error's; empty: nothing has to fail on the way to the point */
	bool by_monitor;	/* after its end */
};

struct model_point {
	char name[80];
	unsigned struck[MODES];
	struct way way;		/* on which it was passed first; one without an error if there is any */
};

struct model {
	struct model_sb sb[SB_MAX];
	struct model_node node[NODES_MAX];
	unsigned nsb, nnodes;
	/* Under way: its answer has not come. */
	enum op op;
	char target[24], node_id[24];
	enum mode mode;
	struct way way;		/* that of this turn */
	char last_rule[RULE_MAX]; /* of the operation before a start, deaths too */
	bool starting;
	bool fired;		/* a rule has struck in this turn */
	bool loss;		/* a monitor was killed since it was last compared */
	bool verified;		/* the child came as far as having compared */
	char point[80];		/* where it struck last */
	unsigned serial, world_turns;
	/* sums */
	unsigned long turns, kills, failures, lost_by_monitor;
	struct model_point points[POINTS_MAX];
	unsigned npoints;
};
extern struct model *model;
extern bool struck_here; /* a rule struck in this very process */
extern struct config cfg;
extern uv_loop_t loop;

void complain(const char *fmt, ...) PRINTF(1, 2);
void wait_until(bool (*fn)(struct space *sp), struct space *sp, int ms);

/* model.c */
struct model_sb *model_find(const char *id);
struct model_node *model_node(const char *id);
void model_add(const char *id, enum sandbox_state state, const char *content);
void model_drop(const char *id);
void model_add_node(const char *id, const char *sandbox, const char *content, bool snapshot);
void model_drop_node(const char *id);
/* Compares; what was under way may have been done or not. Then the model says what is. RESTART:
 * the daemon has just started. */
void verify(struct space *sp, bool restart);
bool at_rest(struct space *sp); /* nothing is under way */
void write_content(const char *id, const char *text);

/* world.c */
#define MEMORY (2 * MIB)
void make_config(void);
void make_world(const char *dir); /* cfg points into it from then on */
bool make_template(struct space *sp);
void end_world(const char *dir);

/* ops.c */
void op_run(struct space *sp, enum op op);
void op_stop(struct space *sp); /* in peace */
bool op_prepare(struct space *sp, enum op op); /* makes what the operation needs; false if that failed */
void tidy(struct space *sp);		      /* ends what is more than a turn needs */

#endif
