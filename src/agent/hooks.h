/* hooks.h - /etc/space/clone.d: programs that a template or a user puts there, to run in everything that is started from a checkpoint before user
 * processes run again: to seed generators anew, to drop caches of secrets, to write down who the machine is now.
 *
 * Executable files that belong to root and that nobody else may write, in the order of their names (as run-parts has them), as root, one after another,
 * for 5 s each and 10 s together; then they are killed and the start goes on. What they write goes to the console. */
#ifndef SPACE_AGENT_HOOKS_H
#define SPACE_AGENT_HOOKS_H

#include <stdbool.h>
#include <sys/types.h>

typedef void hooks_fn(unsigned run, unsigned failed, void *arg);
void hooks_run(hooks_fn *fn, void *arg); /* FN may be called at once; not at all after hooks_cancel() */
void hooks_cancel(void);
bool hooks_reaped(pid_t pid, int status); /* true: it was one of ours */

#endif
