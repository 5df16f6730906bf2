/* sandbox_fake.h - a driver, slots, a pool and an agent for tests of the core: real processes for monitors (so that they die and outlive us
 * as real ones do), directories for slots and disks, a thread that answers as the agent. What goes wrong is set in `fake`. */
#ifndef SANDBOX_FAKE_H
#define SANDBOX_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>

enum fake_agent { FAKE_AGENT_GOOD, FAKE_AGENT_CUTS, FAKE_AGENT_WRONG_ID, FAKE_AGENT_CLOCK_OFF, FAKE_AGENT_SAME_RANDOM, FAKE_AGENT_OLD_MACHINE,
		  FAKE_AGENT_OLD_BOOT, FAKE_AGENT_NO_BOOT, FAKE_AGENT_SHORT_RANDOM, FAKE_AGENT_OLD_GENERATION, FAKE_AGENT_HANGS };

struct fake {
	atomic_int prepare_fails, start_fails, disk_full, slot_fails, save_fails, still_fails, commit_fails, verify_fails; /* how many of the next calls fail */
	_Atomic enum fake_agent agent;
	atomic_int processes;	     /* commands that the agent says are running */
	atomic_int prepares, starts, kills, inits, pauses, resumes, saves, digests;
	atomic_int start_delay_ms, save_delay_ms;
	_Atomic long long last_generation;
	long long memory;	     /* bytes of a saved guest's memory file; 0: as many as it has content */
	atomic_int fresh, kept;	     /* /init calls that said so */
	char dir[64];		     /* of pool and slots; shared by "daemons" that follow each other */
};
extern struct fake fake;

void fake_init(const char *dir);
/* What is left of sandboxes: machines' processes, slots, disks, run directories. */
unsigned fake_left(const char *run_dir);
unsigned fake_nodes(void); /* nodes in the pool, and half-made ones */

#endif
