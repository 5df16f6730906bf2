/* deadline.c - when a sandbox ends, or is suspended, by itself: at its deadline, or after a time without any activity. One timer each.
 *
 * Activity is what the API does with it (streams, proxied connections, calls) and any command that runs in it; the template's own start
 * command does not count. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/core.h"

#define ASK_MS 2000
#define BUSY_MS 1000		 /* something else is under way: looked at again after this */
#define RETRY_NS (60 * NS_PER_S) /* a suspension that failed is tried again after this */
#define LONGEST_MS (60 * 1000LL) /* looked at this often anyway, in case the clock was set */

static void due(void *arg);

void deadline_arm(struct sandbox_core *c)
{
	int64_t now = real_ns(), at = INT64_MAX;

	if (c->ending || state_ended(c->state) || c->state == SANDBOX_SUSPENDED)
		return;
	if (c->sb.deadline_ns)
		at = c->sb.deadline_ns;
	if (c->sb.idle_timeout_s && c->state == SANDBOX_RUNNING)
		at = MIN(at, (c->sb.users ? now : c->sb.last_active_ns) + c->sb.idle_timeout_s * NS_PER_S);
	later_clear(&c->timer);
	if (at == INT64_MAX)
		return;
	later_set(c->sp, &c->timer, MIN(MAX((at - now) / NS_PER_MS + 1, 1), LONGEST_MS), due, c);
}

/* --- the end of its time --- */

static void suspended(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct sandbox_core *c = arg;

	if (why->err && !c->ending && c->state != SANDBOX_SUSPENDED) {
		log_error("sandbox %s: its time is up, and it could not be suspended: %s", c->sb.id, why->msg);
		c->sb.deadline_ns = real_ns() + RETRY_NS;
		c->sb.last_active_ns = real_ns();
		deadline_arm(c);
	}
	sandbox_unkeep(&c->sb);
}

static void time_is_up(struct sandbox_core *c, const char *reason)
{
	if (!c->sb.suspend_on_timeout) {
		core_end(c, reason, NULL);
	} else if (c->doing || c->start) {
		later_set(c->sp, &c->timer, BUSY_MS, due, c);
	} else {
		log_info("sandbox %s: its time is up: %s", c->sb.id, reason);
		sandbox_keep(&c->sb);
		sandbox_suspend(&c->sb, suspended, c);
	}
}

/* --- idle --- */

static bool anything_runs(json_t *answer)
{
	json_t *p;
	size_t i;

	json_array_foreach(json_object_get(answer, "processes"), i, p)
	{
		const char *tag = json_string_value(json_object_get(p, "tag"));

		if (json_is_true(json_object_get(p, "running")) && (!tag || strcmp(tag, TAG_START)))
			return true;
	}
	return false;
}

static void processes_known(int status, json_t *answer, const struct fail *why, void *arg)
{
	struct sandbox_core *c = arg;
	bool busy = !why->err && anything_runs(answer), idle = false;

	c->asking = false;
	if (!c->ending && c->state == SANDBOX_RUNNING) {
		/* Somebody may have come while we asked. A guest that does not answer has nothing going on that we could see. */
		if (busy || c->sb.users > 1)
			c->sb.last_active_ns = real_ns();
		if (real_ns() - c->idle_since_ns >= 0 && (busy || c->sb.users > 1 || c->sb.last_active_ns > c->idle_since_ns))
			deadline_arm(c);
		else
			idle = true;
	}
	c->holds--; /* not sandbox_release(): our own question is no activity */
	c->sb.users--;
	if (idle)
		time_is_up(c, "idle");
}

static void ask(struct sandbox_core *c)
{
	c->asking = true;
	c->holds++;
	c->sb.users++;
	c->idle_since_ns = c->sb.last_active_ns;
	agent_call(c->agent, c->who.token, "GET", "/space/processes", NULL, ASK_MS, processes_known, c);
}

static void due(void *arg)
{
	struct sandbox_core *c = arg;
	int64_t now = real_ns();

	if (c->ending)
		return;
	if (c->sb.deadline_ns && now >= c->sb.deadline_ns) {
		time_is_up(c, "deadline");
		return;
	}
	if (c->sb.idle_timeout_s && c->state == SANDBOX_RUNNING && !c->asking && !c->sb.users &&
	    now - c->sb.last_active_ns >= c->sb.idle_timeout_s * NS_PER_S && c->agent) {
		ask(c);
		return;
	}
	deadline_arm(c);
}

struct timeout_call {
	struct sandbox_core *c;
	sandbox_done_fn *done;
	void *arg;
};

static void timeout_written(void *arg, const struct fail *why)
{
	struct timeout_call *t = arg;

	t->done(why->err ? NULL : &t->c->sb, why, t->arg);
	sandbox_release(&t->c->sb);
	free(t);
}

void sandbox_set_timeout(struct sandbox *sb, int64_t timeout_s, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct timeout_call *t = calloc(1, sizeof(*t));
	int64_t most = c->sp->cfg.max_timeout_s;
	struct fail why = { 0 };

	if (!t)
		fail_set(&why, -ENOMEM, "out of memory");
	else if (c->ending || state_ended(c->state))
		fail_as(&why, ERR_sandbox_gone, "sandbox %s has ended: %s", sb->id, sb->reason);
	else if (timeout_s < 0 || (most && (timeout_s == 0 || timeout_s > most)))
		fail_as(&why, ERR_bad_request, "timeout: %s%lld seconds", most ? "from 1 to " : "from 0 to ",
			(long long)(most ? most : INT64_MAX / NS_PER_S));
	else if (timeout_s > 366 * 86400)
		fail_as(&why, ERR_bad_request, "timeout: at most a year; 0 for none");
	if (!t || why.err) {
		free(t);
		done(NULL, &why, arg);
		return;
	}
	sandbox_hold(sb);
	*t = (struct timeout_call){ c, done, arg };
	sb->timeout_s = timeout_s;
	/* that of a suspended one runs from its wake on */
	sb->deadline_ns = timeout_s && c->state != SANDBOX_SUSPENDED ? real_ns() + timeout_s * NS_PER_S : 0;
	core_save(c, "timeout", timeout_written, t);
	deadline_arm(c);
}
