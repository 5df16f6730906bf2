/* driver.h - what runs a VM: one table of functions per monitor.
 *
 * All functions block and are called from jobs (base/job.h), for one VM one after another. A VM is a process of its own that outlives us: after a
 * restart it is adopted from its run directory. Nothing here knows of sandboxes, policies or the database. */
#ifndef SPACE_DRIVER_H
#define SPACE_DRIVER_H

#include "base/fail.h"

/* A VM to be, with every file resolved. Descriptors are borrowed for the time of the call. */
struct vm_spec {
	const char *id;			/* sandbox id, for names of processes and cgroups */
	const char *run_dir;		/* exists, empty; sockets and the console log go here */
	uid_t uid;			/* the monitor's own uid and gid */
	unsigned vcpus;
	uint64_t memory;		/* bytes, a multiple of 2 MiB */
	int kernel_fd, initrd_fd;	/* a vmlinux (ELF) and a cpio archive */
	const char *cmdline;		/* what the caller adds to the driver's own words */
	int image_fd;			/* read-only, vda */
	int disk_fd;			/* read-write, vdb; owned by `uid`. -1: none (read-only root) */
	uint64_t disk_max;		/* what resize_disk() may make of it later; 0: it stays. The monitor can write no further */
	int tap_fd;			/* IFF_VNET_HDR, one queue. -1: no network */
	int node_fd;			/* directory of the checkpoint node to continue from; -1: boot */
	int memory_fd;			/* the node's memory as a sealed memfd shared by all its VMs; -1: the driver opens node_fd's file */
};

struct vm_saved {
	uint64_t memory_bytes;		/* bytes of the memory file that were written over what it is a clone of */
	uint64_t memory_shared;		/* bytes that it has in common with that */
	uint64_t state_bytes;
	double paused_ms;		/* how long the guest stood still */
};

struct vm_status {
	bool running;			/* vCPUs run */
	bool exited;
	bool host_disk_full;		/* stopped by itself: the host has no room for what the guest wrote; resume() tries again */
	const char *reason;		/* once exited: "guest_shutdown", "guest_panic", "guest_reset", "monitor_crash", "oom", "killed"; static */
	uint64_t rss_bytes, private_bytes; /* from smaps_rollup */
	double cpu_s;
};

struct vm;
struct vm_save;

struct driver {
	const char *name;	/* "qemu" */
	/* Can this host run it? 0, or why not. *isolation gets "kvm" or "emulated", VERSION what a node must match to be restored here. */
	int (*probe)(const char **isolation, char version[128], struct fail *why);
	/* A monitor process, confined, with everything attached, memory mapped and the device state loaded; no vCPU runs. This is the slow
	 * part, done ahead. */
	int (*prepare)(const struct vm_spec *spec, struct vm **vm, struct fail *why);
	/* Runs. */
	int (*start)(struct vm *vm, struct fail *why);
	int (*pause)(struct vm *vm, struct fail *why);
	int (*resume)(struct vm *vm, struct fail *why);
	/* A save writes `memory` and `state` (and `disk`, a clone of spec's disk, if it has one) into NODE_DIRFD, in three steps, so that the guest
	 * stands still for the second alone:
	 *   save_begin  makes the files: `memory` as a clone of PARENT_FD's (the directory of the node that was saved of this VM before, or that it was
	 *               started from; -1: of none), and copies what the guest has to itself while it runs. A parent that is neither, or whose memory
	 *               is not there, does no harm: then it is a clone of what the VM was started from;
	 *   save_still  stops the vCPUs, takes device state, the pages written since and the disk, all of one instant; runs them again if they ran;
	 *   save_end    writes what differs from the parent, syncs, and frees S, which it does also after an error of the others. KEEP false: undo,
	 *               nothing is written; the VM may be gone then.
	 * What is in NODE_DIRFD after an error is the caller's to remove. A VM that is paused stays so. */
	int (*save_begin)(struct vm *vm, int node_dirfd, int parent_fd, struct vm_save **s, struct fail *why);
	int (*save_still)(struct vm_save *s, struct fail *why);
	int (*save_end)(struct vm_save *s, bool keep, struct vm_saved *saved, struct fail *why);
	int (*resize_disk)(struct vm *vm, uint64_t bytes, struct fail *why); /* only grows; the file has grown already */
	/* Ends the monitor and waits for it; removes its cgroup and everything in run_dir. Fine on one that is gone. */
	int (*kill)(struct vm *vm, struct fail *why);
	/* A monitor that outlived us, from its run directory. -ESRCH: it is gone, and so is its cgroup; driver_last_exit() says why it went. */
	int (*adopt)(const char *run_dir, struct vm **vm, struct fail *why);
	int (*status)(struct vm *vm, struct vm_status *out, struct fail *why);
	void (*free)(struct vm *vm); /* forgets it; the process goes on */
};

pid_t vm_pid(const struct vm *vm);
int vm_pidfd(const struct vm *vm); /* readable when the monitor is gone; the VM's own, do not close */
/* The tail of the guest's console, at most MAX bytes, for the caller to free. */
int vm_console(const char *run_dir, size_t max, char **out, size_t *len);

extern const struct driver driver_qemu;

/* "auto" (the default), "kvm" or "tcg"; before the first probe. -EINVAL for another word. */
int driver_qemu_set_accel(const char *mode);
/* Why guests do not run with KVM here; "" if they do, or before the first probe. */
const char *driver_qemu_accel_reason(void);
/* How the monitor of that run directory ended: a word as in vm_status, "monitor_crash" when nothing is known. */
const char *driver_last_exit(const char *run_dir);

/* The node's memory file as a sealed memfd (WRITE, GROW, SHRINK, SEAL; holes kept), to be shared by every VM of the node. */
int driver_memory_memfd(int node_dirfd, uint64_t memory, struct fail *why);

#endif
