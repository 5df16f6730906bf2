/* kill.c - the end of a sandbox, in one order for every cause: the record says "stopping" and why; then the machine goes with all that
 * was its own; then the reservation is given back, and the record says how it ended. A crash in between is finished by the next start. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/core.h"

#define LAST_WORDS 8192

static const char *const stopped_reasons[] = { "killed", "deadline", "idle", "guest_shutdown" };

enum sandbox_state end_state(const char *reason)
{
	for (size_t i = 0; i < ARRAY_LEN(stopped_reasons); i++)
		if (!strcmp(reason, stopped_reasons[i]))
			return SANDBOX_STOPPED;
	return SANDBOX_FAILED;
}

/* The last line of the console that says anything. */
static struct str last_line(const char *text)
{
	struct str s = str_of(text), line = { NULL, 0 };
	size_t at = s.n;

	while (at > 0) {
		size_t end = at;

		while (at > 0 && s.p[at - 1] != '\n')
			at--;
		line = str_trim((struct str){ s.p + at, end - at });
		while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == ' '))
			line.n--;
		if (line.n)
			return line;
		at -= at > 0;
	}
	return (struct str){ "", 0 };
}

/* A guest that died says why on its console; the message is the place where somebody looks. */
static void add_last_words(struct sandbox_core *c)
{
	size_t used = strlen(c->fail.msg), room = sizeof(c->fail.msg) - used - 1;
	const char *panic = c->last_words ? strstr(c->last_words, "Kernel panic") : NULL;
	struct str line = panic ? (struct str){ panic, strcspn(panic, "\r\n") } : last_line(c->last_words);
	char clean[128];
	size_t n = 0;

	if (!c->fail.err || !line.n || room < 40 || strncmp(c->sb.reason, "guest_", 6))
		return;
	for (size_t i = 0; i < line.n && n < sizeof(clean) - 1; i++)
		if ((unsigned char)line.p[i] >= 0x20 && (unsigned char)line.p[i] < 0x7f)
			clean[n++] = line.p[i];
	clean[n] = '\0';
	snprintf(c->fail.msg + used, room, " (console: %s)", clean);
}

static void ended(void *arg, const struct fail *why)
{
	struct sandbox_core *c = arg;
	struct fail gone = { 0 };

	if (c->state == SANDBOX_FAILED && c->fail.err)
		gone = c->fail;
	else
		fail_as(&gone, ERR_sandbox_gone, "sandbox %s has ended: %s", c->sb.id, c->sb.reason);
	waiters_call(&c->creators, NULL, &gone);
	/* One whose end is not on disk would be there again after a restart. */
	waiters_call(&c->killers, why->err ? NULL : &c->sb, why);
	nodes_collect(c->sp);
	sandbox_release(&c->sb);
}

static int destroy_job(void *arg, struct fail *why)
{
	struct sandbox_core *c = arg;
	/* Whoever asked for the end from outside knows why; of any other one the console may say it. */
	bool by_itself = c->fail.err || !strcmp(c->sb.reason, "guest_shutdown");
	size_t n;

	if (!c->dying)
		return 0;
	if (by_itself && vm_console(c->dying->run_dir, LAST_WORDS, &c->last_words, &n) < 0)
		c->last_words = NULL;
	return machine_destroy(c->dying, why);
}

static void destroyed(void *arg, const struct fail *why)
{
	struct sandbox_core *c = arg;

	if (why->err)
		log_error("sandbox %s: not everything of its machine could be removed: %s", c->sb.id, why->msg);
	machine_free(c->dying);
	c->dying = NULL;
	core_release_memory(c);
	add_last_words(c);
	core_move(c, end_state(c->sb.reason), NULL, ended, c);
	ready_refill(c->sp);
}

static void stopping_written(void *arg, const struct fail *why)
{
	struct sandbox_core *c = arg;

	c->dying = c->m; /* nobody on the loop looks into it any more */
	c->m = NULL;
	space_job(c->sp, c->q, destroy_job, destroyed, c);
}

void core_end(struct sandbox_core *c, const char *reason, const struct fail *why)
{
	struct fail none = { 0 };

	if (c->ending || state_ended(c->state))
		return;
	c->ending = true;
	sandbox_hold(&c->sb); /* until it has ended */
	later_clear(&c->timer);
	watch_stop(c);
	ways_close(c);
	if (why && end_state(reason) == SANDBOX_FAILED)
		c->fail = *why;
	if (end_state(reason) == SANDBOX_STOPPED)
		c->sp->kills++;
	(void)str_copy(c->sb.reason, sizeof(c->sb.reason), str_of(reason));
	if (state_may(c->state, SANDBOX_STOPPING))
		core_move(c, SANDBOX_STOPPING, reason, stopping_written, c);
	else
		stopping_written(c, &none); /* one that was never handed out is undone without a word */
}

/* Recovery: an end that an earlier daemon had begun. The reason is in the record. */
void core_end_again(struct sandbox_core *c)
{
	struct fail none = { 0 };

	assert(c->state == SANDBOX_STOPPING && !c->ending);
	c->ending = true;
	sandbox_hold(&c->sb);
	stopping_written(c, &none);
}

void sandbox_kill(struct sandbox *sb, const char *reason, sandbox_done_fn *done, void *arg)
{
	struct sandbox_core *c = core_of(sb);
	struct fail why = { 0 };

	if (state_ended(c->state) && !c->ending) {
		done(sb, &why, arg);
		return;
	}
	if (state_ended(c->state) && c->ending && c->sb.state == c->state) {
		done(sb, &why, arg); /* on disk, and those who waited have been told */
		return;
	}
	if (waiter_add(&c->killers, done, arg) < 0) {
		fail_set(&why, -ENOMEM, "out of memory");
		done(NULL, &why, arg);
		return;
	}
	if (c->start)
		start_interrupt(c, reason, NULL);
	else
		core_end(c, reason, NULL);
}
