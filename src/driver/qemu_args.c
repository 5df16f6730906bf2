/* qemu_args.c - see qemu_args.h. Changing a device, its order or the CPU makes old nodes unreadable: raise "devices-1" in accel.c then. */
#include "driver/qemu_args.h"

#include <stdarg.h>
#include <stdio.h>

#include "driver/qemu_limits.h"

/* Words that every guest gets. What each is for, and what it saves: docs/driver.md. */
#define WORDS "console=ttyS0 quiet panic=-1 reboot=t init_on_free=1 init_on_alloc=0 random.trust_cpu=on cryptomgr.notests nowatchdog"
/* Emulated only. mitigations=off: there is no speculation between guest user and guest kernel to mitigate in translated code that is
 * confined in one unprivileged host process, while retpolines cost translations; no boundary of the host's rests on it. norandmaps: QEMU
 * keeps translations by virtual address, so a program whose libraries lie elsewhere each time is translated anew each time; every exec
 * takes two to seven times as long then. psi, lsm: less code to translate on every path. */
#define WORDS_TCG " tsc=reliable no_timer_check mitigations=off norandmaps psi=0 lsm=landlock"

/* A fixed CPU for emulation: what TCG of 7.2 can do of an EPYC, without the features whose absence it would warn about. AMD, because
 * Linux then keeps no second set of page tables, whose switching empties the emulated TLB at every system call. */
#define CPU_TCG "EPYC,-rdseed,-sha-ni,-fxsr-opt,-misalignsse,-3dnowprefetch,-osvw,-topoext,-perfctr-core,-clzero,-xsaveerptr," \
		"-ibpb,-nrip-save,-xsavec,-xsaves,-svm,-npt"

/* The guest's kernel counts disks from the highest transport down. */
enum { BUS_RNG = 4, BUS_NET, BUS_DISK, BUS_IMAGE };

static void add(struct qemu_args *a, const char *fmt, ...) PRINTF(2, 3);

static void add(struct qemu_args *a, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (a->full || a->n == QEMU_ARGS_MAX) {
		a->full = true;
		return;
	}
	va_start(ap, fmt);
	n = vsnprintf(a->text + a->used, sizeof(a->text) - a->used, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(a->text) - a->used) {
		a->full = true;
		return;
	}
	a->argv[a->n++] = a->text + a->used;
	a->used += (size_t)n + 1;
}

/* The number that FD will have in QEMU. */
static int pass(struct qemu_args *a, int fd)
{
	if (a->nfds == LAUNCH_MAX_FDS) {
		a->full = true;
		return -1;
	}
	a->fds[a->nfds] = fd;
	return LAUNCH_FD_FIRST + (int)a->nfds++;
}

static void add_block(struct qemu_args *a, const char *name, int set, int fd, bool read_only)
{
	add(a, "-add-fd");
	add(a, "fd=%d,set=%d", pass(a, fd), set);
	add(a, "-blockdev");
	/* nobody else opens these files for writing: that is the caller's affair, and a lock would be the descriptor's, which we share */
	add(a, "driver=file,node-name=%s,filename=/dev/fdset/%d,locking=off,aio=threads,%s", name, set,
	    read_only ? "read-only=on" : "read-only=off,discard=unmap");
	add(a, "-device");
	/* a full host stops the guest, which loses nothing, instead of breaking its file system */
	add(a, "virtio-blk-device,bus=virtio-mmio-bus.%d,id=%s-dev,drive=%s%s", read_only ? BUS_IMAGE : BUS_DISK, name, name,
	    read_only ? "" : ",werror=enospc,rerror=report");
}

static void add_boot(struct qemu_args *a, const struct vm_spec *spec, const struct qemu_ends *e, const struct accel *acc)
{
	char clock[64] = "";

	if (!acc->kvm && acc->tsc_khz)
		snprintf(clock, sizeof(clock), " tsc_early_khz=%u", acc->tsc_khz);
	add(a, "-kernel");
	add(a, "/proc/self/fd/%d", pass(a, e->kernel_fd));
	add(a, "-initrd");
	add(a, "/proc/self/fd/%d", pass(a, e->initrd_fd));
	add(a, "-append");
	add(a, WORDS "%s%s%s%s", acc->kvm ? "" : WORDS_TCG, clock, spec->cmdline ? " " : "", spec->cmdline ? spec->cmdline : "");
}

int qemu_args_make(struct qemu_args *a, const struct vm_spec *spec, const struct qemu_ends *e, const struct accel *acc, struct fail *why)
{
	memset(a, 0, sizeof(*a));
	add(a, QEMU_BINARY);
	add(a, "-nodefaults");
	add(a, "-no-user-config");
	add(a, "-no-reboot");
	add(a, "-S");
	add(a, "-display");
	add(a, "none");
	add(a, "-sandbox");
	add(a, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	/* rtc=on: without one the kernel waits a second for it, twice */
	add(a, "-M");
	add(a, "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=on,auto-kernel-cmdline=off,x-option-roms=off,memory-backend=ram,"
	       "mem-merge=off,dump-guest-core=off,suppress-vmdesc=on");
	add(a, "-accel");
	if (acc->kvm)
		add(a, "kvm");
	else
		add(a, "tcg,tb-size=%llu", QEMU_TB_BYTES / MIB);
	add(a, "-cpu");
	add(a, "%s", acc->kvm ? "host" : CPU_TCG);
	add(a, "-smp");
	add(a, "%u", spec->vcpus);
	add(a, "-m");
	add(a, "%lluM", (unsigned long long)(spec->memory / MIB));
	add(a, "-object");
	if (e->memory_fd >= 0)
		add(a, "memory-backend-file,id=ram,size=%llu,mem-path=/proc/self/fd/%d,share=off", (unsigned long long)spec->memory,
		    pass(a, e->memory_fd));
	else
		add(a, "memory-backend-ram,id=ram,size=%llu", (unsigned long long)spec->memory);
	add(a, "-chardev");
	add(a, "socket,id=qmp,fd=%d,server=on,wait=off", pass(a, e->qmp_fd));
	add(a, "-mon");
	add(a, "chardev=qmp,mode=control");
	add(a, "-chardev");
	add(a, "socket,id=console,fd=%d", pass(a, e->console_fd));
	add(a, "-serial");
	add(a, "chardev:console");
	add(a, "-global");
	add(a, "virtio-mmio.force-legacy=off");

	add_block(a, "image", 1, spec->image_fd, true);
	if (spec->disk_fd >= 0)
		add_block(a, "disk", 2, spec->disk_fd, false);
	if (spec->tap_fd >= 0) {
		/* guest_announce with no rounds of announcing (load_state()) leaves a timer missing that a reset of the device then uses:
		 * QEMU 7.2 died of it */
		add(a, "-netdev");
		add(a, "tap,id=net,fd=%d,vhost=off", pass(a, spec->tap_fd));
		add(a, "-device");
		add(a, "virtio-net-device,bus=virtio-mmio-bus.%d,netdev=net,mac=02:00:00:00:00:02,guest_announce=off", BUS_NET);
	}
	add(a, "-object");
	add(a, "rng-builtin,id=rng");
	add(a, "-device");
	add(a, "virtio-rng-device,bus=virtio-mmio-bus.%d,rng=rng", BUS_RNG);

	if (spec->node_fd >= 0) {
		/* device states are saved without a configuration section (xen-save-devices-state writes none) */
		add(a, "-global");
		add(a, "migration.send-configuration=off");
		add(a, "-incoming");
		add(a, "defer");
	} else {
		add_boot(a, spec, e, acc);
	}
	a->argv[a->n] = NULL;
	if (a->full)
		return fail_set(why, -E2BIG, "the kernel command line is too long");
	return 0;
}
