/* fault.h - points at which a test lets the program die, lets its monitor die, or lets a call fail. Only in a build with
 * -Dfaults=true: otherwise each macro is its argument, and nothing of it, not even a name, is in the program.
 *
 * A point is a call that changes something outside of us, wrapped:
 *
 *	if (FAULT(renameat(tmp, id, nodes, id)) < 0)
 *
 * and is named after the function that it stands in and what is called: in node_commit() this one is "node_commit.renameat", passed before
 * the call, and "node_commit.renameat+", passed after it. Two of the same call in one function have one name and are told apart by the
 * number of the pass. scripts/fault-points fails for a state-changing call without one.
 *
 * What happens at a point is said by rules, one a line:
 *
 *	POINT COUNT ACTION
 *
 * POINT is a name or a pattern as for fnmatch(3), with "@(a|b)"; "*" is every point. COUNT is the number of the pass that is meant, "3+" for the third and all later
 * ones, "%20" for every 20th. ACTION is
 *	kill      SIGKILL to this process
 *	monitor   SIGKILL to the monitor that the thread had in its hands last
 *	both      the one, then the other
 *	ENOSPC, EIO, EMFILE, EDQUOT, EROFS, ENOMEM, …   the call is not made, and fails with that; at a "+" nothing happens
 * "trace FILE" appends the name of every point that is passed to FILE. Rules come from the file that $SPACE_FAULT_FILE names, which is looked at at
 * every point, so that a test changes it while the daemon runs, or from fault_rules(). When an action strikes, the file is renamed to FILE.fired first:
 * the next start is not struck by the same rule. (Rules with "+" or "%" stay, unless they kill.) */
#ifndef SPACE_FAULT_H
#define SPACE_FAULT_H

#ifdef SPACE_FAULTS

#include <stdbool.h>
#include <sys/types.h>

/* The error to fail with, and errno set to it; 0 to go on; or does not return. */
int fault_before(const char *func, const char *call);
long fault_after(const char *func, const char *call, long result);
int fault_sql(int err);
void fault_monitor(pid_t pid);

/* Replaces the rules; NULL for none. -1 when one is not understood. For tests that have the program's parts in their own process. */
int fault_rules(const char *text);
unsigned long fault_passes(void); /* since the rules were set */
bool fault_fired(void);
/* Called at every pass with FAULT_PASSED, and before an action strikes with FAULT_KILLS or the error. */
enum { FAULT_PASSED = 0, FAULT_KILLS = -1 };
void fault_tell(void (*fn)(const char *point, int what));

/* The call returns -1 and sets errno. */
#define FAULT(call)                                                                                        \
	((__typeof__(call))(fault_before(__func__, #call) ? -1 : fault_after(__func__, #call, (long)(call))))
/* The call returns -errno. */
#define FAULT_OURS(call)                                                                                   \
	((__typeof__(call))(fault_before(__func__, #call) ? fault_ours() : fault_after(__func__, #call, (long)(call))))
/* The call returns -errno and tells WHY (base/fail.h). */
#define FAULT_WHY(why, call)                                                                               \
	((__typeof__(call))(fault_before(__func__, #call) ? fail_set(why, (int)fault_ours(), "injected: %s", strerror(errno)) : \
							    fault_after(__func__, #call, (long)(call))))
/* The call returns a code of SQLite. */
#define FAULT_SQL(call)                                                                                    \
	(fault_before(__func__, #call) ? fault_sql(-(int)fault_ours()) : (int)fault_after(__func__, #call, (long)(call)))
/* The call returns nothing, so it cannot fail; it can only be the last. */
#define FAULT_VOID(call) ((void)fault_before(__func__, #call), (call), (void)fault_after(__func__, #call, 0))
/* Whose monitor is meant from now on, on this thread. */
#define FAULT_MONITOR(pid) fault_monitor(pid)
long fault_ours(void); /* -errno of the last injected one */

#else

#define FAULT(call) (call)
#define FAULT_OURS(call) (call)
#define FAULT_WHY(why, call) (call)
#define FAULT_SQL(call) (call)
#define FAULT_VOID(call) (call)
#define FAULT_MONITOR(pid) ((void)0)

#endif
#endif
