/* attach.h - this terminal (or these pipes) at a command in a sandbox.
 *
 * Output is written as it comes and exactly once: when the connection breaks, it is taken up again at the byte where it
 * broke, for up to 30 s, so that a restart of the daemon is not noticed. Stdin goes in requests of its own, one after
 * another. Signals that this program gets are sent on. There is one of these a process; it is never freed. */
#ifndef SPACE_CLI_ATTACH_H
#define SPACE_CLI_ATTACH_H

#include "cli/cli.h"

struct attach;

struct attach_opts {
	bool input;	  /* send fd 0 */
	bool tty;	  /* a PTY is at the other side: raw mode, resize, escapes */
	bool lines;	  /* with tty: stdin that is no terminal holds lines for a shell, and the last one counts without its end too */
	bool owner;	  /* the sandbox goes with the command: SIGTERM and SIGHUP leave at once */
	unsigned renew_s; /* 0: no. Every third of it the sandbox's deadline is set to that from now on */
};

/* From now on SIGINT, SIGTERM, SIGHUP and SIGQUIT are caught. */
struct attach *attach_new(struct cli *c);
/* The signal that came while no command ran, or that made us leave; 0: none. */
int attach_signalled(const struct attach *a);
/* Runs REQUEST (the body of exec; released), or follows PID when it is NULL. 0 and the command's status in *code; -EINTR: left (signal, or "~."), the
 * command runs on; else what failed. */
int attach_exec(struct attach *a, const char *sandbox, json_t *request, long pid, const struct attach_opts *o, int *code,
	struct fail *why);
/* The bytes of an event of output, its "data" or its "base64". *OUT lives in DATA or in *RAW, which is malloc'd and replaced
 * at each call. -EBADMSG if it has neither as it should be. */
int chunk_bytes(const json_t *data, char **raw, struct str *out);
long attach_pid(const struct attach *a); /* of the command; 0: none yet */

#endif
