/* rehearse.c - a clone runs once before anybody waits for it, and then stands still, frozen and verified, until it is claimed.
 *
 * Under emulation nearly all the time from loading a checkpoint to the first output goes into translating code that this process has
 * not run before: /init, fork, exec, the start of an interpreter. So a ready monitor does all of that ahead, as nobody: /init with an
 * identity that is thrown away, one command, /freeze, and its vCPUs stop. Claiming it is /init with the real identity, which renews all
 * that the first one set (and is checked as ever), on a guest that has its translations. A guest that fails here is not kept. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/random.h"
#include "sandbox/core.h"

#define REHEARSE_MS 30000
/* What clients run first, as the user they run it as: a shell, a program, and Python if it is there. Fails in an image without a shell;
 * nothing is lost then. */
#define REHEARSE_CMD "/bin/true; /bin/echo; python3 -c 'import os; print(os.getpid())' 2>/dev/null; true"

struct rehearsal {
	struct space *sp;
	struct machine *m;
	struct http_endpoint *agent;
	char token[65];
	rehearse_fn *fn;
	void *arg;
};

static void over(struct rehearsal *r, const struct fail *why)
{
	struct space *sp = r->sp;

	http_endpoint_free(r->agent);
	r->fn(r->m, why, r->arg);
	free(r);
	sp->jobs--;
	space_check_gone(sp);
}

static int stand_still_job(void *arg, struct fail *why)
{
	struct rehearsal *r = arg;

	return FAULT_WHY(why, r->sp->drv->pause(r->m->vm, why));
}

static void stands_still(void *arg, const struct fail *why)
{
	over(arg, why);
}

static void frozen(int status, json_t *answer, const struct fail *why, void *arg)
{
	struct rehearsal *r = arg;

	if (why->err)
		over(r, why);
	else
		space_job(r->sp, NULL, stand_still_job, stands_still, r);
}

static void ran(int status, struct str output, const struct fail *why, void *arg)
{
	struct rehearsal *r = arg;

	if (why->err == -ECANCELED)
		over(r, why);
	else
		agent_call(r->agent, r->token, "POST", "/freeze", NULL, REHEARSE_MS, frozen, r);
}

static void inited(int status, json_t *answer, const struct fail *why, void *arg)
{
	static const struct agent_run run = { .cmd = REHEARSE_CMD, .timeout_ms = REHEARSE_MS };
	struct rehearsal *r = arg;

	if (why->err)
		over(r, why);
	else
		agent_run(r->sp, r->agent, r->token, &run, ran, r);
}

static json_t *nobody(struct rehearsal *r)
{
	unsigned char raw[64];
	char entropy[96], machine_id[33], now[RFC3339_LEN];

	random_bytes(raw, 32);
	hex_encode(r->token, raw, 32);
	random_bytes(raw, 16);
	hex_encode(machine_id, raw, 16);
	random_bytes(raw, sizeof(raw));
	base64_encode(entropy, raw, sizeof(raw));
	entropy[base64_len(sizeof(raw))] = '\0';
	rfc3339_format(now, real_ns());
	return json_pack("{s:I,s:s,s:s,s:s,s:s,s:s,s:s,s:b}", "generation", (json_int_t)generation_after(0), "id", "nobody", "hostname",
		"space", "machine_id", machine_id, "entropy", entropy, "accessToken", r->token, "timestamp", now, "fresh", true);
}

struct rehearsal *rehearse(struct machine *m, rehearse_fn *fn, void *arg, struct fail *why)
{
	struct rehearsal *r = calloc(1, sizeof(*r));
	autojson json_t *j = NULL;

	if (!r) {
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	*r = (struct rehearsal){ .sp = m->sp, .m = m, .fn = fn, .arg = arg };
	j = nobody(r);
	r->agent = agent_endpoint(m->sp, &m->slot, why);
	if (!j || !r->agent) {
		http_endpoint_free(r->agent);
		free(r);
		if (!why->err)
			fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	m->sp->jobs++; /* space_stop() waits for us */
	agent_call(r->agent, NULL, "POST", "/init", j, REHEARSE_MS, inited, r);
	return r;
}

void rehearse_cancel(struct rehearsal *r)
{
	http_endpoint_reset(r->agent);
}
