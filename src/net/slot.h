/* slot.h - slots: ready network namespaces, each with a tap and `lo` and nothing else.
 *
 * A slot is a namespace kept alive by a bind mount RUN/netns/NAME. In it: tap0 (MAC 02:00:00:00:00:01, 100.64.0.1/30, permanent
 * neighbour 100.64.0.2 = 02:00:00:00:00:02), lo up, ip_forward 0, IPv6 off, and a fixed nftables ruleset that lets the host talk to the guest and
 * the guest to nobody. Made by netlink and ioctl; only the ruleset goes through `nft -j -f -`. All functions block (jobs) unless said
 * otherwise. A namespace is never used for a second sandbox. */
#ifndef SPACE_SLOT_H
#define SPACE_SLOT_H

#include "base/fail.h"

#define SLOT_GUEST_IP "100.64.0.2"
#define SLOT_HOST_IP "100.64.0.1"
#define SLOT_GUEST_MAC "02:00:00:00:00:02"

struct slots;

struct slot {
	char name[16];	/* file name under RUN/netns */
	int ns_fd;	/* the namespace */
	int tap_fd;	/* to be passed to the monitor, then closed by slot_close_tap(); -1 after adoption */
};

/* RUN_DIR/netns is made. READY slots are kept made ahead (by slots_refill, which the caller runs as a job). 0 or -errno. */
int slots_new(const char *run_dir, unsigned ready, struct slots **out, struct fail *why);
void slots_free(struct slots *s); /* removes the ready ones; claimed ones stay */
int slots_refill(struct slots *s, struct fail *why);
unsigned slots_ready(struct slots *s); /* does not block */

int slot_claim(struct slots *s, struct slot *out, struct fail *why); /* a ready one, else a new one */
int slot_adopt(struct slots *s, const char *name, struct slot *out, struct fail *why);
void slot_close_tap(struct slot *slot);
int slot_release(struct slots *s, struct slot *slot, struct fail *why); /* the namespace goes, with everything in it */
/* Removes every namespace under RUN/netns that is neither claimed, adopted nor ready. For recovery. Returns how many. */
int slots_sweep(struct slots *s, struct fail *why);

/* A non-blocking TCP socket in the slot's namespace, connecting to the guest's PORT: the descriptor or -errno. On a worker thread: it
 * enters the namespace and comes back. Nothing waits. */
int slot_connect(const struct slot *slot, int port, struct fail *why);

#endif
