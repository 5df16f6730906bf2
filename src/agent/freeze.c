/* freeze.c - stands the guest still for a checkpoint of its disk.
 *
 * User processes are frozen by their cgroup; the file system by FIFREEZE, which must not outlast a
 * caller that forgot us: a watchdog thaws it after ten seconds. The call itself may wait for the
 * disk, so it runs on a worker thread. */
#include "agent/agent.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "agent/cgroup.h"
#include "base/job.h"
#include "base/log.h"

#define WATCHDOG_MS 10000

static uv_timer_t watchdog;
static bool watchdog_made, fs_frozen;

static void on_watchdog(uv_timer_t *t)
{
	log_warning("freeze: nobody thawed the file systems in %d s: thawed", WATCHDOG_MS / 1000);
	fs_thaw();
}

int fs_freeze(void)
{
	if (agent.disk_fd < 0)
		return 0; /* nothing is written to a disk */
	if (ioctl(agent.disk_fd, FIFREEZE, 0) < 0 && errno != EBUSY)
		return -errno;
	return 0;
}

void fs_thaw(void)
{
	if (watchdog_made)
		uv_timer_stop(&watchdog);
	if (agent.disk_fd >= 0 && fs_frozen && ioctl(agent.disk_fd, FITHAW, 0) < 0 &&
		errno != EINVAL)
		log_error("freeze: thaw: %s", strerror(errno));
	fs_frozen = false;
}

static int freeze_job(void *arg, struct fail *why)
{
	int r = fs_freeze();

	return r < 0 ? fail_set(why, r, "the file system does not freeze: %s", strerror(-r)) : 0;
}

struct freeze_call {
	struct http_exchange *x; /* NULL: its client has gone */
	bool answered;
};

static void freeze_done(void *arg, const struct fail *why)
{
	struct freeze_call *c = arg;

	if (why->err == 0)
		fs_frozen = true;
	if (fs_frozen && !agent.frozen) /* an /init overtook us */
		fs_thaw();
	if (fs_frozen) {
		if (!watchdog_made)
			uv_timer_init(agent.loop, &watchdog);
		watchdog_made = true;
		uv_timer_start(&watchdog, on_watchdog, WATCHDOG_MS, 0);
	}
	c->answered = true;
	if (!c->x) {
		free(c);
		return;
	}
	if (why->err)
		answer_error(c->x, 500, "%s", why->msg);
	else
		http_respond_empty(c->x, 204);
}

static void freeze_gone(struct http_exchange *x, int err, void *arg)
{
	struct freeze_call *c = arg;

	c->x = NULL;
	if (c->answered)
		free(c);
}

static int users_freeze(void)
{
	int r = cgroups_freeze(true);

	return r == -ENOTSUP && agent.test ? 0 : r;
}

static void freeze(struct http_exchange *x, bool fs)
{
	int r = users_freeze();
	struct freeze_call *c;

	if (r < 0) {
		(void)cgroups_freeze(false);
		answer_error(x, 500, "user processes do not stand still: %s", strerror(-r));
		return;
	}
	agent.frozen = true;
	memset(agent.token, 0, sizeof(agent.token));
	/* What is under way goes on after the thaw, if we are who we were; in a clone, /init ends it. Until then nothing more is taken
	 * from it: a write to a frozen file system would hold this loop, which is to thaw it. */
	http_server_hold(agent.http, x, true);
	if (!fs) {
		http_respond_empty(x, 204);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c || job_run(agent.loop, NULL, freeze_job, freeze_done, c) < 0) {
		free(c);
		answer_error(x, 500, "out of memory");
		return;
	}
	c->x = x;
	http_on_close(x, freeze_gone, c);
}

static void got_freeze(struct http_exchange *x, struct str body, const struct fail *why, void *arg)
{
	static const struct field fields[] = { { "fs", FIELD_BOOL, 0, 0, false, 0, 0 } };
	struct fail bad = { 0 };
	autojson json_t *req = NULL;
	bool fs = false;

	if (why->err)
		return;
	if (body.n > 0) {
		req = json_read(body, &bad);
		if (!req || fields_read(req, fields, ARRAY_LEN(fields), &fs, &bad) < 0) {
			answer_error(x, 400, "%s", bad.msg);
			return;
		}
	}
	freeze(x, fs);
}

void handle_freeze(struct http_exchange *x)
{
	http_body_whole(x, 4096, got_freeze, NULL);
}

void handle_thaw(struct http_exchange *x)
{
	fs_thaw();
	http_respond_empty(x, 204);
}
