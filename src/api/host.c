/* host.c - what this host and daemon are: configuration, capacity, health, numbers, the API's own description. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>

#include "api/handlers.h"
#include "api/metrics.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/job.h"
#include "image/image.h"

/* --- processes, from /proc --- */

static uint64_t kib_of(const char *text, const char *name)
{
	const char *p = strstr(text, name);

	return p ? strtoull(p + strlen(name), NULL, 10) * KIB : 0;
}

void proc_usage(pid_t pid, struct proc_usage *out)
{
	autofree char *rollup = NULL, *stat = NULL;
	unsigned long long user, sys;
	char path[64];
	const char *p;

	*out = (struct proc_usage){ 0 };
	if (pid <= 0)
		return;
	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	if (file_read(AT_FDCWD, path, &rollup, 16 * KIB) > 0) {
		out->rss_bytes = kib_of(rollup, "\nRss:");
		out->private_bytes = kib_of(rollup, "\nPrivate_Clean:") + kib_of(rollup, "\nPrivate_Dirty:");
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read(AT_FDCWD, path, &stat, 4 * KIB) <= 0)
		return;
	/* Behind the name, which may hold anything: state is field 3, the times are 14 and 15. */
	p = strrchr(stat, ')');
	if (p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &sys) == 2)
		out->cpu_s = (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

void proc_times(struct proc_usage *out)
{
	struct rusage ru;

	if (getrusage(RUSAGE_SELF, &ru) < 0)
		return;
	out->cpu_s = (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
		     (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

/* --- configuration --- */

void h_config(struct req *r)
{
	bool yaml = req_accepts(r, "application/yaml");
	autobuf struct buf b;

	buf_init(&b, 64 * KIB);
	if ((yaml ? config_print(r->api->cfg, &b) : config_json(r->api->cfg, &b)) < 0)
		return req_failf(r, ERR_no_capacity, "out of memory");
	req_text(r, 200, yaml ? "application/yaml" : "application/json", b.p, b.n);
}

/* --- the host --- */

struct look {
	struct req *r;
	struct pool *pool;
	struct pool_info info;
	struct kernel_info kernel;
	bool has_kernel;
};

static int look_job(void *arg, struct fail *why)
{
	struct look *l = arg;
	struct fail none = { 0 };

	l->has_kernel = kernel_current(l->pool, &l->kernel, &none) == 0;
	return pool_info(l->pool, &l->info, why);
}

static void memory_json(struct api *api, struct jw *w)
{
	struct space_counts c = { 0 };
	unsigned s;

	space_count(api->sp, &c);
	jw_obj(w, "memory");
	jw_int(w, "limit", (int64_t)c.memory_limit);
	jw_int(w, "reserved", (int64_t)c.memory_reserved);
	jw_obj_end(w);
	jw_obj(w, "sandboxes");
	for (s = 0; s < SANDBOX_STATES; s++)
		jw_int(w, sandbox_state_name((enum sandbox_state)s), c.sandboxes[s]);
	jw_obj_end(w);
	jw_int(w, "slots_ready", c.slots_ready);
	jw_int(w, "monitors_ready", c.monitors_ready);
}

static void look_done(void *arg, const struct fail *why)
{
	static const char *const clones[] = { "native", "xfs-image", "copy" };
	struct look *l = arg;
	struct api *api = l->r->api;
	char hostname[256] = "";
	size_t rss = 0;
	struct buf b;
	struct jw w;

	if (why->err) {
		req_fail(l->r, why);
	} else {
		gethostname(hostname, sizeof(hostname) - 1);
		uv_resident_set_memory(&rss);
		answer_begin(&w, &b);
		jw_obj(&w, NULL);
		jw_str(&w, "version", SPACE_VERSION);
		jw_str(&w, "hostname", hostname);
		jw_str(&w, "isolation", space_isolation(api->sp));
		jw_str(&w, "driver", space_driver(api->sp));
		jw_str(&w, "driver_version", space_driver_version(api->sp));
		jw_str(&w, "kernel", l->has_kernel ? l->kernel.release : NULL);
		jw_obj(&w, "pool");
		jw_str(&w, "clone", clones[l->info.clone]);
		jw_int(&w, "bytes_total", (int64_t)l->info.bytes_total);
		jw_int(&w, "bytes_free", (int64_t)l->info.bytes_free);
		jw_obj_end(&w);
		memory_json(api, &w);
		jw_num(&w, "uptime_s", (double)(mono_ms() - api->started_ms) / 1000);
		jw_int(&w, "rss_bytes", (int64_t)rss);
		jw_obj_end(&w);
		req_json(l->r, 200, &w);
	}
	req_unref(l->r);
	free(l);
}

void h_host(struct req *r)
{
	struct look *l = calloc(1, sizeof(*l));

	if (!l)
		return req_failf(r, ERR_no_capacity, "out of memory");
	l->pool = space_pool(r->api->sp);
	l->r = req_ref(r);
	if (job_run(r->api->loop, NULL, look_job, look_done, l) == 0)
		return;
	free(l);
	req_failf(r, ERR_no_capacity, "out of memory");
	req_unref(r);
}

/* --- health, numbers, description --- */

void h_metrics(struct req *r)
{
	autobuf struct buf b;

	buf_init(&b, 1 * MIB);
	if (metrics_write(r->api, &b) < 0)
		return req_failf(r, ERR_no_capacity, "the numbers do not fit");
	req_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
}

void h_healthz(struct req *r)
{
	http_add_header(r->x, "Cache-Control", "no-store");
	req_text(r, 200, "text/plain", "ok\n", 3);
}

void h_readyz(struct req *r)
{
	struct fail why = { 0 };

	http_add_header(r->x, "Cache-Control", "no-store");
	if (space_ready(r->api->sp, &why))
		return req_text(r, 200, "text/plain", "ready\n", 6);
	if (err_info(why.code)->status < 500) /* whatever it is: not ready is 503 */
		why.code = ERR_host_unsuitable;
	req_fail(r, &why);
}

void h_openapi(struct req *r)
{
	autobuf struct buf b;

	buf_init(&b, 1 * MIB);
	if (openapi_write(&b) < 0)
		return req_failf(r, ERR_internal, "the description does not fit");
	req_text(r, 200, "application/json", b.p, b.n);
}
