/* sandbox_world.h - a core with a template, on the fakes of sandbox_fake.h, for tests of it. */
#ifndef SANDBOX_WORLD_H
#define SANDBOX_WORLD_H

#include "sandbox/core.h"

extern uv_loop_t loop;
extern struct config cfg;

void world(const char *name); /* a new one each test: nothing of the one before is in it */
struct space *up(void);
void down(struct space *sp);
/* WORK in a daemon of its own, a child that is killed with -9 when it returns. The parent may then start another one on what is left. */
void before(void (*work)(struct space *sp));

/* How calls ended. */
struct ends {
	int ok, failed, gone;
	enum errcode code;
	char id[24], msg[240], start[16];
};

void on_end(struct sandbox *sb, const struct fail *why, void *arg); /* ARG: struct ends */
/* The loop, until *A (and *B, which may be NULL) have come to WANT together, or MS is over. */
void spin(const int *a, const int *b, int want, int ms);
void wait_ms(int ms);
void create(struct space *sp, const struct create_req *q, struct ends *e); /* Q NULL: a plain one */
struct sandbox *get(struct space *sp, const char *id);
void kill_it(struct space *sp, const char *id);

#endif
