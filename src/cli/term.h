/* term.h - this side's terminal and stdin. */
#ifndef SPACE_CLI_TERM_H
#define SPACE_CLI_TERM_H

#include <uv.h>

#include "base/str.h"

/* Puts the terminal on fd 0 into raw mode; it is put back by term_restore() and when a signal ends the program. */
int term_raw(void);
void term_restore(void);
void term_size(unsigned *cols, unsigned *rows);

/* Reads a descriptor without ever making it non-blocking (it may be the user's shell's too) and without a thread that
 * would hang in it: pollable ones are waited for through an epoll descriptor, files are read in bites. */
struct input;
/* LEN 0: the end; negative errno: failed. Nothing comes after either. */
typedef void input_fn(const char *data, ssize_t len, void *arg);
struct input *input_new(uv_loop_t *loop, int fd, input_fn *fn, void *arg); /* NULL with errno; reading begins with input_resume() */
void input_pause(struct input *in);
void input_resume(struct input *in);
void input_free(struct input *in); /* the descriptor stays open; NULL is fine */

/* ssh's escapes at the beginning of a line: "~." leaves, "~?" helps, "~~" is one '~'. */
struct escape {
	bool bol_not, tilde; /* zeroed: at the beginning of a line */
};
enum escape_what { ESCAPE_NONE, ESCAPE_LEAVE, ESCAPE_HELP };
/* Copies IN to OUT (room for in.n + 1 bytes) without the escapes; *used says how much of IN was looked at. */
enum escape_what escape_scan(struct escape *e, struct str in, char *out, size_t *n, size_t *used);

#endif
