/* qmp.h - QEMU's machine protocol, blocking: one command at a time on a Unix socket, every wait with an end.
 *
 * QEMU serves one client: while we are connected nobody else is. Events that come meanwhile are handed to on_event. A message
 * is at most 1 MiB; a peer that sends more, or no JSON, is hung up on: what is behind the socket may have been taken over by its guest. */
#ifndef SPACE_QMP_H
#define SPACE_QMP_H

#include "base/json.h"

struct qmp;

typedef void qmp_event_fn(const char *name, json_t *data, void *arg); /* DATA may be NULL */

/* Connects to the socket NAME in a directory and negotiates. */
int qmp_open(int dirfd, const char *name, qmp_event_fn *on_event, void *arg, int timeout_ms, struct qmp **out, struct fail *why);
void qmp_close(struct qmp *q); /* NULL is fine */
bool qmp_usable(const struct qmp *q); /* false once a wait ran out or the peer spoke out of turn: connect again */

/* Executes CMD with ARGS (JSON text of an object, or NULL). *ret gets the answer, the caller's to drop, if not NULL. SEND_FD (-1: none)
 * goes along. -EREMOTEIO: QEMU refused, in its words; anything else: the connection is of no more use. */
int qmp_cmd(struct qmp *q, const char *cmd, const char *args, int send_fd, int timeout_ms, json_t **ret, struct fail *why);

/* Takes in the events that have come, without waiting. -EPIPE: the connection is at its end. */
int qmp_poll(struct qmp *q);

#endif
