/* qemu.h - a VM of the qemu driver, between its files. */
#ifndef SPACE_QEMU_H
#define SPACE_QEMU_H

#include "driver/driver.h"
#include "driver/launch.h"
#include "driver/memory.h"
#include "driver/qmp.h"

struct vm {
	char id[64];
	char *run_dir;
	int run_dirfd;
	uid_t uid;
	uint64_t memory;
	struct launched p;
	struct qmp *q;
	struct mem_guest guest;	/* where its memory is */
	int memory_fd;		/* the node's memory, below the guest's own; -1: nothing */
	int disk_fd;		/* -1: none */
	char *node_path;	/* directory of the node it was started from; NULL: it booted */
	bool running, started, killed;
	bool disk_full;
	char ended[24];		/* QEMU's word for why the guest ended; "" */
};

/* A VM with nothing attached yet; NULL and WHY. */
struct vm *qemu_vm_new(const char *id, const char *run_dir, struct fail *why);
void qemu_free(struct vm *vm);
/* A connection that broke, because a wait ran out on a loaded host, is made again. */
int qemu_connect(struct vm *vm, struct fail *why);
int qemu_cmd(struct vm *vm, const char *cmd, const char *args, json_t **ret, struct fail *why);
int qemu_find_memory(struct vm *vm, struct fail *why);

/* Stops and continues the vCPUs. */
int qemu_stop(struct vm *vm, struct fail *why);
int qemu_cont(struct vm *vm, struct fail *why);

int qemu_save_begin(struct vm *vm, int node_dirfd, int parent_fd, struct vm_save **out, struct fail *why);
int qemu_save_still(struct vm_save *s, struct fail *why);
int qemu_save_end(struct vm_save *s, bool keep, struct vm_saved *saved, struct fail *why);

int qemu_adopt(const char *run_dir, struct vm **out, struct fail *why);
int qemu_status(struct vm *vm, struct vm_status *out, struct fail *why);

/* Why a monitor ended: WAIT_STATUS of QEMU (-1: unknown), its own word, the console's last lines. */
const char *qemu_exit_reason(int wait_status, const char *ended, bool killed, bool oom, const char *console);

#endif
