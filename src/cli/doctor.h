/* doctor.h - what a host needs, each thing found or not. */
#ifndef SPACE_CLI_DOCTOR_H
#define SPACE_CLI_DOCTOR_H

#include "cli/cli.h"

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };

struct finding {
	const char *what; /* "KVM" */
	enum verdict verdict;
	char text[200];	  /* what was found */
	char remedy[160]; /* the command that mends it; empty when all is well */
};

#define FINDINGS_MAX 48
struct findings {
	struct finding v[FINDINGS_MAX];
	size_t n;
};

void found(struct findings *f, const char *what, enum verdict v, const char *remedy, const char *fmt, ...) PRINTF(5, 6);
/* This machine. Changes nothing on it. STATE_DIR is looked at for disk space and for cloning. */
void doctor_host(struct findings *f, const char *state_dir);
/* The daemon that C reaches. false: none answers. */
bool doctor_daemon(struct cli *c, struct findings *f);
/* Where the local daemon keeps its state, for the caller to free: GIVEN if there is one, else what it says, else the default. */
char *doctor_state_dir(struct cli *c, const char *given);
json_t *findings_json(const struct findings *f);

#endif
