/* accel.h - what this host can run guests with: KVM where it truly works, else QEMU's emulation. Found once, then remembered. */
#ifndef SPACE_ACCEL_H
#define SPACE_ACCEL_H

#include "base/fail.h"

#define QEMU_BINARY "/usr/bin/qemu-system-x86_64"

struct accel {
	bool kvm;
	char reason[160];	/* why not KVM; "" when it is */
	char qemu[32];		/* "7.2.22" */
	unsigned tsc_khz;	/* of the host; 0 if it cannot be told */
	char version[128];	/* what a node must match */
};

/* MODE: "auto", "kvm", "tcg". -ENODEV with a remedy when QEMU is missing or KVM was asked for and does not work. */
int accel_find(const char *mode, struct accel *out, struct fail *why);

/* The host's TSC in kHz as its kernel calibrated it, else as the CPU or a short measurement says. */
unsigned accel_tsc_khz(void);

/* "QEMU emulator version 7.2.22 (Debian …)" -> "7.2.22"; -EINVAL for anything else. */
int accel_qemu_version(const char *text, char *out, size_t size);

/* Does a /proc/cpuinfo have FLAG? */
bool accel_cpu_flag(const char *cpuinfo, const char *flag);

#endif
