/* preflight.h - what must be there before anything is made: each thing that is missing is told with the command that mends it. */
#ifndef SPACE_API_PREFLIGHT_H
#define SPACE_API_PREFLIGHT_H

#include "base/fail.h"
#include "sandbox/config.h"

/* Looks at everything and changes nothing. TELL is called for each thing that is missing; returns how many. */
int preflight(const struct config *cfg, void (*tell)(const struct fail *why));

/* The state and run directories, made where they are absent. */
int places_make(const struct config *cfg, struct fail *why);
/* RUN/spaced.pid, held locked while we live: 0, or ERR_conflict and who has it. *fd is kept open by the caller. */
int pidfile_lock(const struct config *cfg, int *fd, struct fail *why);
void pidfile_drop(const struct config *cfg, int *fd);

/* The socket of cfg.listen, bound and not yet listening, so that an occupied port is told before anything else is done. -1 in *fd
 * for "off". *public: it is not a loopback address. */
int listen_bind(const struct config *cfg, int *fd, bool *public, struct fail *why);

/* Gives up the capabilities that nothing here needs. Children get them back: they are other programs, with duties of their own. */
int confine(struct fail *why);

#endif
