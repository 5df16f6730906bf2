/* build.h - inside this room: a node being made, step by step. template_build.c has the order, the saving and both ends; build_guest.c what
 * happens with the guest in between. Each step ends in build_failed() or build_next(), from the loop. */
#ifndef SPACE_SANDBOX_BUILD_H
#define SPACE_SANDBOX_BUILD_H

#include "sandbox/core.h"

#define BUILD_READY_MS (5 * 60 * 1000) /* for the ready command to succeed */

enum step { STEP_KERNEL, STEP_BOOT, STEP_AGENT, STEP_INIT, STEP_WORKDIR, STEP_SETUP, STEP_START, STEP_READY, STEP_WARM, STEP_FREEZE, STEP_SAVE, STEP_NOTE,
	    STEP_COMMIT, STEP_RECORD, STEP_DONE };

struct build_wait {
	struct build_wait *next;
	variant_fn *fn;
	void *arg;
};

struct build {
	struct link link;
	struct space *sp;
	struct operation *op;
	struct tmpl *t;	   /* counted. The new one, or the variant's */
	struct variant *v; /* inside T */
	bool is_variant;
	enum step step;
	char image[128];
	struct machine *m;
	struct machine_files files;
	struct http_endpoint *agent;
	char token[65], machine_id[33];
	int64_t generation, until_ms;
	uint64_t reserved;
	size_t setup_at;
	struct later *pause;
	struct build_wait *waiting;
	int node_fd;
	struct node node;
	struct vm_saved saved;
	struct tree_node *entry; /* pinned, once it is recorded */
	json_t *meta;		 /* the template's words, for whoever imports its node */
	bool busy;	 /* a job, call or child is under way */
	struct fail why; /* once it has failed or was stopped */
};

void build_next(struct build *b); /* the step after this one */
void build_again(void *b);	  /* this one again, from a timer */
/* The end of every step: true when the build is over, because of WHY or because it was stopped meanwhile. */
bool build_failed(struct build *b, const struct fail *why);

/* build_guest.c, one a step. Those that return bool: false, there is nothing to do. */
void build_kernel(struct build *b);
void build_boot(struct build *b);
void build_wait_agent(struct build *b);
void build_init(struct build *b);
bool build_workdir(struct build *b);
bool build_setup(struct build *b);
bool build_start(struct build *b);
bool build_ready(struct build *b);
void build_warm(struct build *b);
void build_freeze(struct build *b);

#endif
