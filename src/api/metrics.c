#include "api/metrics.h"

#include <stdio.h>

#include "api/handlers.h"
#include "base/clock.h"

/* What a status is counted under. Anything else is "other"; the first is for proxied answers and clients that left. */
static const unsigned short statuses[] = { 0, 101, 200, 201, 202, 204, 206, 400, 401, 403, 404, 405, 409, 410, 411,
	413, 416, 429, 500, 501, 502, 503, 504, 507 };
#define OTHER ARRAY_LEN(statuses)

/* Seconds. A create from a ready monitor is some 10 ms, a cold boot under emulation some 10 s. */
static const double bounds[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120 };

#define PHASES_MAX 12

struct histogram {
	char phase[24];
	char start[12];
	uint64_t count[ARRAY_LEN(bounds) + 1];
	double sum;
};

struct metrics {
	uint64_t requests[OTHER + 1];		/* of no route */
	uint64_t (*by_route)[OTHER + 1];
	struct histogram phases[PHASES_MAX * 3]; /* by phase and kind of start: both are words of ours */
	unsigned nphases;
};

struct metrics *metrics_new(void)
{
	struct metrics *m = calloc(1, sizeof(*m));

	if (m)
		m->by_route = calloc(nroutes, sizeof(*m->by_route));
	if (m && !m->by_route) {
		free(m);
		m = NULL;
	}
	return m;
}

void metrics_free(struct metrics *m)
{
	if (m)
		free(m->by_route);
	free(m);
}

void metrics_request(struct api *api, const struct route *route, unsigned status)
{
	struct metrics *m = api->metrics;
	size_t i;

	if (!m)
		return;
	for (i = 0; i < OTHER; i++)
		if (statuses[i] == status)
			break;
	if (route)
		m->by_route[route_index(route)][i]++;
	else
		m->requests[i]++;
}

static struct histogram *histogram(struct metrics *m, const char *phase, const char *start)
{
	struct histogram *h;
	unsigned i;

	for (i = 0; i < m->nphases; i++)
		if (!strcmp(m->phases[i].phase, phase) && !strcmp(m->phases[i].start, start))
			return &m->phases[i];
	if (m->nphases == ARRAY_LEN(m->phases))
		return NULL;
	h = &m->phases[m->nphases++];
	snprintf(h->phase, sizeof(h->phase), "%s", phase);
	snprintf(h->start, sizeof(h->start), "%s", start);
	return h;
}

void metrics_created(struct api *api, const struct sandbox *sb)
{
	unsigned i, b;

	for (i = 0; api->metrics && i < sb->nphases; i++) {
		struct histogram *h = histogram(api->metrics, sb->phases[i].name,
						sb->start && *sb->start ? sb->start : "none");
		double s = sb->phases[i].ms / 1000;

		if (!h)
			return;
		for (b = 0; b < ARRAY_LEN(bounds) && s > bounds[b]; b++)
			;
		h->count[b]++;
		h->sum += s;
	}
}

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
	buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buf *b, const char *name, const char *type, const char *help, double v)
{
	head(b, name, type, help);
	buf_addf(b, "%s %.17g\n", name, v);
}

static void write_requests(struct metrics *m, struct buf *b)
{
	unsigned r;
	size_t s;

	head(b, "space_http_requests_total", "counter", "Requests that are over, by route and status.");
	for (r = 0; r <= nroutes; r++) {
		const uint64_t *row = r < nroutes ? m->by_route[r] : m->requests;

		for (s = 0; s <= OTHER; s++) {
			char status[8] = "other";

			if (!row[s])
				continue;
			if (s < OTHER)
				snprintf(status, sizeof(status), "%u", statuses[s]);
			buf_addf(b, "space_http_requests_total{route=\"%s\",status=\"%s\"} %llu\n",
				 r < nroutes ? routes[r].name : "none", status, (unsigned long long)row[s]);
		}
	}
}

static void write_phases(struct metrics *m, struct buf *b)
{
	unsigned i;
	size_t k;

	head(b, "space_create_phase_seconds", "histogram", "Time of each phase of a create, by kind of start.");
	for (i = 0; i < m->nphases; i++) {
		struct histogram *h = &m->phases[i];
		uint64_t sum = 0;

		for (k = 0; k <= ARRAY_LEN(bounds); k++) {
			char le[24] = "+Inf";

			if (k < ARRAY_LEN(bounds))
				snprintf(le, sizeof(le), "%g", bounds[k]);
			sum += h->count[k];
			buf_addf(b, "space_create_phase_seconds_bucket{phase=\"%s\",start=\"%s\",le=\"%s\"} %llu\n",
				 h->phase, h->start, le, (unsigned long long)sum);
		}
		buf_addf(b, "space_create_phase_seconds_sum{phase=\"%s\",start=\"%s\"} %.6f\n", h->phase, h->start,
			 h->sum);
		buf_addf(b, "space_create_phase_seconds_count{phase=\"%s\",start=\"%s\"} %llu\n", h->phase, h->start,
			 (unsigned long long)sum);
	}
}

int metrics_write(struct api *api, struct buf *b)
{
	struct space_counts c = { 0 };
	struct proc_usage u = { 0 };
	unsigned s;
	size_t rss = 0;

	space_count(api->sp, &c);
	head(b, "space_info", "gauge", "Version and isolation of this daemon.");
	buf_addf(b, "space_info{version=\"%s\",isolation=\"%s\",driver=\"%s\"} 1\n", SPACE_VERSION,
		 space_isolation(api->sp), space_driver(api->sp));
	head(b, "space_sandboxes", "gauge", "Sandboxes by state.");
	for (s = 0; s < SANDBOX_STATES; s++)
		buf_addf(b, "space_sandboxes{state=\"%s\"} %u\n", sandbox_state_name((enum sandbox_state)s),
			 c.sandboxes[s]);
	one(b, "space_creates_total", "counter", "Sandboxes created since the start.", (double)c.creates);
	one(b, "space_create_failures_total", "counter", "Creates that failed.", (double)c.create_failures);
	one(b, "space_kills_total", "counter", "Sandboxes killed.", (double)c.kills);
	one(b, "space_checkpoints_total", "counter", "Checkpoints and snapshots written.", (double)c.checkpoints);
	one(b, "space_suspends_total", "counter", "Sandboxes suspended.", (double)c.suspends);
	one(b, "space_wakes_total", "counter", "Sandboxes woken from suspension.", (double)c.wakes);
	one(b, "space_nodes", "gauge", "Nodes of the checkpoint tree.", (double)c.nodes);
	one(b, "space_memory_reserved_bytes", "gauge", "Guest memory promised to sandboxes.",
	    (double)c.memory_reserved);
	one(b, "space_memory_limit_bytes", "gauge", "Guest memory that may be promised.", (double)c.memory_limit);
	one(b, "space_slots_ready", "gauge", "Network slots made ahead.", c.slots_ready);
	one(b, "space_monitors_ready", "gauge", "Monitors started ahead.", c.monitors_ready);
	one(b, "space_streams", "gauge", "Open event streams.", api->nstreams);
	one(b, "space_http_connections", "gauge", "Open client connections.", http_server_conns(api->srv));
	write_requests(api->metrics, b);
	write_phases(api->metrics, b);
	uv_resident_set_memory(&rss);
	proc_times(&u);
	one(b, "process_resident_memory_bytes", "gauge", "Resident memory of the daemon.", (double)rss);
	one(b, "process_cpu_seconds_total", "counter", "CPU time of the daemon.", u.cpu_s);
	one(b, "process_uptime_seconds", "gauge", "Since the daemon started.",
	    (double)(mono_ms() - api->started_ms) / 1000);
	/* What did not fit shows as a text that breaks off: say it instead. */
	return b->n + 256 > b->max ? -ENOBUFS : 0;
}
