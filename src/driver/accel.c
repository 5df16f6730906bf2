/* accel.c - see accel.h. */
#include "driver/accel.h"

#include <cpuid.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <x86intrin.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/proc.h"

int accel_qemu_version(const char *text, char *out, size_t size)
{
	static const char before[] = "QEMU emulator version ";
	const char *p = strstr(text, before);
	size_t n;

	if (!p)
		return -EINVAL;
	p += sizeof(before) - 1;
	n = strspn(p, "0123456789.");
	if (n < 3 || n >= size || !memchr(p, '.', n))
		return -EINVAL;
	memcpy(out, p, n);
	out[n] = '\0';
	return 0;
}

bool accel_cpu_flag(const char *cpuinfo, const char *flag)
{
	const char *line = strstr(cpuinfo, "\nflags"), *end;
	size_t n = strlen(flag);

	if (!line)
		return false;
	line++;
	end = line + strcspn(line, "\n");
	for (const char *p = line; (p = strstr(p, flag)) && p < end; p += n)
		if (p[-1] == ' ' && (p + n == end || p[n] == ' '))
			return true;
	return false;
}

/* The kernel's own conversion of TSC to time, which it shows to whoever counts events. */
static unsigned tsc_from_kernel(void)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(a), .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1 };
	autoclose int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	struct perf_event_mmap_page *pg;
	unsigned khz = 0;

	if (fd < 0)
		return 0;
	pg = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
	if (pg == MAP_FAILED)
		return 0;
	if (pg->cap_user_time && pg->time_mult)
		khz = (unsigned)(((1000000ULL << pg->time_shift) + pg->time_mult / 2) / pg->time_mult);
	munmap(pg, (size_t)sysconf(_SC_PAGESIZE));
	return khz;
}

static unsigned tsc_from_cpu(void)
{
	unsigned a, b, c, d;

	if (__get_cpuid(0x15, &a, &b, &c, &d) && a && b && c)
		return (unsigned)((uint64_t)c * b / a / 1000);
	return 0;
}

/* 20 ms against the clock: good to some parts in a million, so rounded to 10 kHz. */
static unsigned tsc_from_clock(void)
{
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	uint64_t c0, c1;
	int64_t t0, t1;

	t0 = mono_ns();
	c0 = __rdtsc();
	nanosleep(&pause, NULL);
	t1 = mono_ns();
	c1 = __rdtsc();
	return (unsigned)((double)(c1 - c0) * 1e6 / (double)(t1 - t0) / 10 + 0.5) * 10;
}

unsigned accel_tsc_khz(void)
{
	unsigned khz = tsc_from_kernel();

	if (!khz)
		khz = tsc_from_cpu();
	return khz ? khz : tsc_from_clock();
}

/* Empty if KVM works here, else why not. A module may offer /dev/kvm without hardware support behind it, and then runs no ordinary kernel. */
static void kvm_reason(char *out, size_t size)
{
	autofree char *cpuinfo = NULL;
	autoclose int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int version;

	out[0] = '\0';
	if (fd < 0) {
		snprintf(out, size, "/dev/kvm: %s", strerror(errno));
		return;
	}
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION) {
		snprintf(out, size, "/dev/kvm has API version %d, not %d", version, KVM_API_VERSION);
		return;
	}
	if (file_read(AT_FDCWD, "/proc/cpuinfo", &cpuinfo, 4 * MIB) < 0 ||
	    !(accel_cpu_flag(cpuinfo, "vmx") || accel_cpu_flag(cpuinfo, "svm")))
		snprintf(out, size, "there is a /dev/kvm, but the CPU shows neither vmx nor svm: it cannot run a stock kernel");
}

static int qemu_version(char *out, size_t size, struct fail *why)
{
	static const char *const argv[] = { QEMU_BINARY, "--version", NULL };
	struct buf autobuf text;
	struct run_opts o = { .argv = argv, .out = &text, .timeout_ms = 20000 };
	autofree char *z = NULL;
	int r;

	buf_init(&text, 4096);
	r = access(QEMU_BINARY, X_OK) < 0 ? fail_set(NULL, -errno, "%s", "") : FAULT_WHY(why, run(&o, NULL, why));
	if (r == -ENOENT) {
		r = fail_as(why, ERR_host_unsuitable, "QEMU is not installed: there is no " QEMU_BINARY);
		fail_remedy(why, "apt install qemu-system-x86");
		return r;
	}
	if (r < 0)
		return r;
	z = buf_steal(&text);
	if (!z || accel_qemu_version(z, out, size) < 0)
		return fail_as(why, ERR_host_unsuitable, QEMU_BINARY " does not tell its version");
	return 0;
}

/* What of the host's CPU a guest under KVM has seen. */
static void cpu_name(char *out, size_t size)
{
	unsigned a = 0, b, c, d;

	__get_cpuid(1, &a, &b, &c, &d);
	snprintf(out, size, "%08x", a);
}

int accel_find(const char *mode, struct accel *out, struct fail *why)
{
	struct accel a = { 0 };
	char cpu[16];
	int r;

	if (strcmp(mode, "auto") && strcmp(mode, "kvm") && strcmp(mode, "tcg"))
		return fail_set(why, -EINVAL, "accel: auto, kvm or tcg, not \"%s\"", mode);
	r = qemu_version(a.qemu, sizeof(a.qemu), why);
	if (r < 0)
		return r;
	if (strcmp(mode, "tcg"))
		kvm_reason(a.reason, sizeof(a.reason));
	else
		snprintf(a.reason, sizeof(a.reason), "accel is set to tcg");
	a.kvm = !a.reason[0];
	if (!a.kvm && !strcmp(mode, "kvm")) {
		fail_as(why, ERR_host_unsuitable, "KVM does not work here: %s", a.reason);
		fail_remedy(why, "set accel: auto in space.yaml to run guests emulated, or enable virtualization for this host");
		return why ? why->err : -ENODEV;
	}
	a.tsc_khz = accel_tsc_khz();
	cpu_name(cpu, sizeof(cpu));
	if (a.kvm)
		snprintf(a.version, sizeof(a.version), "qemu-%s devices-1 kvm cpu-%s", a.qemu, cpu);
	else
		snprintf(a.version, sizeof(a.version), "qemu-%s devices-1 tcg tsc-%uMHz", a.qemu, (a.tsc_khz + 500) / 1000);
	*out = a;
	return 0;
}
