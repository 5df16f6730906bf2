/* metrics.c - GET /metrics: what the guest uses of its processors, memory and disk. */
#include "agent/agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/file.h"

struct cpu_sample {
	uint64_t busy, total;
	unsigned count;
};

static int cpu_sample(struct cpu_sample *s)
{
	unsigned long long v[8] = { 0 };
	autofree char *text = NULL;

	if (file_read(AT_FDCWD, "/proc/stat", &text, 1024 * 1024) < 0)
		return -EIO;
	/* user nice system idle iowait irq softirq steal */
	if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3,
		    v + 4, v + 5, v + 6, v + 7) < 5)
		return -EIO;
	*s = (struct cpu_sample){ .busy = v[0] + v[1] + v[2] + v[5] + v[6] };
	for (unsigned i = 0; i < 8; i++)
		s->total += v[i];
	for (const char *p = text; (p = strstr(p, "\ncpu")) != NULL; p += 4)
		s->count++;
	return 0;
}

/* Between this call and the one before; the first tells of the time since the boot. Of all
 * processors together: 100 at most. */
static double cpu_used_pct(struct cpu_sample *now)
{
	static struct cpu_sample last;
	uint64_t total = now->total - last.total;
	double pct = total ? 100.0 * (double)(now->busy - last.busy) / (double)total : 0;

	last = *now;
	return pct;
}

static uint64_t meminfo(const char *text, const char *name)
{
	const char *p = strstr(text, name);
	unsigned long long kib = 0;

	return p && sscanf(p + strlen(name), "%llu", &kib) == 1 ? kib * KIB : 0;
}

void handle_metrics(struct http_exchange *x)
{
	autofree char *mem = NULL;
	uint64_t total, avail, cache;
	struct cpu_sample cpu = { 0 };
	struct statvfs disk = { 0 };
	struct buf b;
	struct jw w;

	if (cpu_sample(&cpu) < 0 || file_read(AT_FDCWD, "/proc/meminfo", &mem, 64 * 1024) < 0 ||
		statvfs("/", &disk) < 0) {
		answer_error(x, 500, "the kernel's figures cannot be read");
		return;
	}
	total = meminfo(mem, "MemTotal:");
	avail = meminfo(mem, "MemAvailable:");
	cache = meminfo(mem, "\nCached:") + meminfo(mem, "\nBuffers:");
	buf_init(&b, 4096);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "ts", real_ns() / NS_PER_S);
	jw_int(&w, "cpu_count", cpu.count);
	jw_num(&w, "cpu_used_pct", cpu_used_pct(&cpu));
	jw_int(&w, "mem_total", (int64_t)total);
	jw_int(&w, "mem_used", (int64_t)(total - avail));
	jw_int(&w, "mem_cache", (int64_t)cache);
	jw_int(&w, "mem_total_mib", (int64_t)(total / MIB));
	jw_int(&w, "mem_used_mib", (int64_t)((total - avail) / MIB));
	jw_int(&w, "disk_used", (int64_t)((disk.f_blocks - disk.f_bfree) * disk.f_frsize));
	jw_int(&w, "disk_total", (int64_t)(disk.f_blocks * disk.f_frsize));
	jw_obj_end(&w);
	http_respond_buf(x, 200, "application/json", &b);
	buf_clear(&b);
}
