/* qemu_args.h - QEMU's command line for one VM, and the descriptors that go with it. */
#ifndef SPACE_QEMU_ARGS_H
#define SPACE_QEMU_ARGS_H

#include "driver/accel.h"
#include "driver/driver.h"
#include "driver/launch.h"

#define QEMU_ARGS_MAX 96

struct qemu_args {
	char text[8192];
	size_t used;
	const char *argv[QEMU_ARGS_MAX + 1];
	unsigned n;
	int fds[LAUNCH_MAX_FDS];
	unsigned nfds;
	bool full; /* something did not fit: our own mistake, or a caller's command line of absurd length */
};

/* Everything that QEMU is to have open, besides what VM_SPEC names. */
struct qemu_ends {
	int qmp_fd;	/* listening */
	int console_fd; /* connected */
	int memory_fd;	/* file to map privately; -1: fresh memory */
	int kernel_fd, initrd_fd; /* readable by the VM's uid; -1 when it is restored */
};

int qemu_args_make(struct qemu_args *a, const struct vm_spec *spec, const struct qemu_ends *e, const struct accel *acc, struct fail *why);

#endif
