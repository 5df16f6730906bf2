/* config.h - space.yaml. Every key has a default, so the file may be absent; an unknown or malformed key is an error that names it and its line. */
#ifndef SPACE_CONFIG_H
#define SPACE_CONFIG_H

#include "base/buf.h"
#include "base/fail.h"

#define RETENTIONS_MAX 64

struct config {
	/* places: set by options of spaced, not by the file */
	char state_dir[256];		/* /var/lib/space */
	char run_dir[256];		/* /run/space */
	char config_file[256];		/* /etc/space/space.yaml */
	char libexec_dir[256];		/* where space-agent and space-image are */

	char listen[64];		/* listen: 127.0.0.1:7070; another than loopback needs a key to exist. "off": no TCP */
	char tls_cert[256], tls_key[256]; /* tls: {cert:, key:} */
	char domain[128];		/* domain: for PORT-ID.DOMAIN; default "localhost" */
	char log_level[16];		/* log_level: info */
	bool log_json;			/* log_format: text | json */
	char socket_group[32];		/* socket_group: space */

	char accel[8];			/* accel: auto | kvm | tcg */
	double overcommit;		/* overcommit: 1.5 */
	uint64_t memory_limit;		/* memory_limit: bytes for sandboxes; 0: the host's memory less 1 GiB */
	uint64_t pool_size;		/* pool_size: of the XFS image; 0: starts small and grows */
	unsigned ready_monitors;	/* ready_monitors: 2. QEMUs already started for the default template */
	unsigned ready_slots;		/* ready_slots: 4 */
	unsigned uid_base;		/* uid_base: monitors' uids are uid_base + n; 0: chosen by the state directory */
	unsigned max_sandboxes;		/* max_sandboxes: 1000 */

	/* defaults of a sandbox */
	char template[64];		/* defaults: {template: base, vcpu: 1, memory: 512M, disk: 5G, timeout: 300s, idle_timeout: 0} */
	unsigned vcpu;
	uint64_t memory, disk;
	int64_t timeout_s, idle_timeout_s, max_timeout_s;
	char share[8];			/* share: tenant | host: between whom the memory pages of a template or checkpoint are shared */
	int64_t retention_s;		/* retention: checkpoints and snapshots that nothing needs go when they are older; 0: they stay */
	struct retention { char tenant[32]; int64_t s; } retentions[RETENTIONS_MAX]; /* retention: {default: 30d, TENANT: 7d}; default: of all others */
	unsigned nretentions;
	uint64_t output_keep;		/* output_keep: 1M of each process's output */
};

int64_t config_retention(const struct config *c, const char *tenant); /* in seconds; 0: its checkpoints stay */
void config_defaults(struct config *c);
int config_load(struct config *c, const char *path, struct fail *why); /* an absent file is fine when PATH is the default one */
int config_print(const struct config *c, struct buf *out);		/* as YAML, with each default's meaning in a comment */
int config_json(const struct config *c, struct buf *out);

#endif
