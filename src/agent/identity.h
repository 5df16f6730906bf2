/* identity.h - what makes this machine itself: name, ids, clock, entropy, trusted certificates. Set
 * by /init.
 *
 * In test mode nothing outside agent.root is written, and the clock is left alone. */
#ifndef SPACE_AGENT_IDENTITY_H
#define SPACE_AGENT_IDENTITY_H

#include "base/fail.h"
#include "base/str.h"

#define IDENTITY_DIR                                                                               \
	"/run/space" /* where init keeps the files that it binds over                              \
			/etc/{hostname,hosts,machine-id} */

int identity_hostname(const char *name, struct fail *why);  /* kernel, /etc/hostname, /etc/hosts */
int identity_machine_id(const char *hex, struct fail *why); /* /etc/machine-id */
int identity_clock(int64_t unix_ns, struct fail *why); /* only if it is off by more than 5 ms */
int identity_entropy(const void *seed, size_t n, struct fail *why);
int identity_ca(
	struct str pem, struct fail *why); /* trusted from now on, in the place of the last one */
int identity_marks(
	const char *id, const char *template_id); /* /run/e2b/…, which E2B's tools look at */
int identity_grow_disk(uint64_t bytes, struct fail *why); /* the ext4, to the size of its disk */
int identity_tmpfs(const char *path, uint64_t bytes, struct fail *why);
int identity_read_only(struct fail *why); /* the root, but for tmpfs mounts */
void identity_boot_id(char out[40]);

#endif
