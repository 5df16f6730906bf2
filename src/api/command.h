/* command.h - one command's stream from the agent to a client: as events, as one answer, or only its beginning.
 *
 * Takes a reference of R and keeps it until the stream is over. The client's slowness pauses the agent; a broken connection
 * to an agent whose sandbox still runs is made again from where it was; the client leaving ends the stream and never the
 * command. Offsets count bytes delivered. */
#ifndef SPACE_API_COMMAND_H
#define SPACE_API_COMMAND_H

#include "api/guest.h"

#define COMMAND_WAIT_MAX (1 * MIB) /* of each stream, with COMMAND_WAIT */

enum command_mode { COMMAND_EVENTS, COMMAND_WAIT, COMMAND_DETACH };

/* START: the body of process.Process/Start. INPUT (may be NULL) goes to stdin, which is then closed; it lives as long as R. */
void command_start(struct req *r, enum command_mode mode, struct str start, const char *user, struct str input);
/* Joins a command that was started before, from these offsets on. */
void command_join(struct req *r, int64_t pid, uint64_t out, uint64_t err);

/* "STDOUT-STDERR". */
int command_id_parse(struct str id, uint64_t *out, uint64_t *err);

/* The members of an exit status: code, signal and reason, from the agent's words. END has exitCode, signal or status, reason. */
#define SIGNAL_MAX 64
/* Whether an agent's END is one: an object, its numbers those of signals and exit codes. */
bool command_exit_sane(json_t *end);
void command_exit_json(struct jw *w, const char *key, json_t *end);
const char *signal_name(int sig); /* "TERM"; NULL: none of that number */
int signal_number(const char *name); /* "TERM" or "SIGTERM"; 0: none */

#endif
