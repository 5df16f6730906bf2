#include "api/guest.h"

#include <stdarg.h>
#include <stdio.h>

#include "api/connect.h"
#include "base/clock.h"
#include "base/random.h"

#define PROBE_FIRST_MS 600	/* without a head: ask whether anybody is there */
#define PROBE_LIMIT_MS 1200	/* and this long for the answer: 1.8 s in all */
#define PROBE_MOST_MS 10000
/* An answer that has begun: a starved host must not look like a dead guest, so one miss proves nothing. */
#define SILENT_MS 3000		/* no byte for so long: ask */
#define PROBE_AGAIN_MS 300
#define MISSES_MAX 3
#define LIMIT_MS 60000		/* an agent that is alive, but does not answer or go on */

struct guest_call {
	struct api *api;
	struct sandbox *sb;
	struct http_call *call;
	const struct guest_cb *cb;
	void *arg;
	struct tick tick;
	struct buf error;	/* body of an answer that is an error */
	int error_status;
	enum errcode not_found;
	int probe_ms;		/* until the next one, while there is no head */
	int limit_ms;		/* -1: none */
	int64_t spent_ms;	/* of it */
	int64_t looked_ms;	/* when it was counted last */
	int64_t heard_ms;	/* the last byte */
	unsigned misses;	/* probes in a row */
	unsigned refs;		/* the call itself, and a probe under way */
	bool unreachable, late, cancelled;
	bool got_head;
	bool endless;		/* once it has begun, silence is no fault */
	bool whole_limit;	/* the limit is for all of the answer, not for each pause in it */
	bool sending, full;	/* the body: not all there yet; the guest does not take it */
	bool paused;		/* by us */
	bool quiet;
	bool ended;
};

static void call_unref(struct guest_call *c)
{
	if (--c->refs)
		return;
	buf_clear(&c->error);
	free(c);
}

/* --- errors --- */

static const struct { const char *name; enum errcode code; } connect_codes[] = {
	{ "invalid_argument", ERR_bad_request },    { "failed_precondition", ERR_bad_request },
	{ "out_of_range", ERR_bad_request },	    { "already_exists", ERR_conflict },
	{ "aborted", ERR_conflict },		    { "permission_denied", ERR_forbidden },
	{ "resource_exhausted", ERR_no_space },	    { "unimplemented", ERR_unsupported },
	{ "unavailable", ERR_agent_unreachable },   { "deadline_exceeded", ERR_deadline_exceeded },
	{ "unauthenticated", ERR_agent_unreachable },
};

static enum errcode code_of_status(int status)
{
	switch (status) {
	case 400: case 406: case 422:
		return ERR_bad_request;
	case 416:
		return ERR_bad_range;
	case 401:
		return ERR_agent_unreachable;
	case 403:
		return ERR_forbidden;
	case 409:
		return ERR_conflict;
	case 411:
		return ERR_length_required;
	case 413:
		return ERR_too_large;
	case 429: case 507:
		return ERR_no_space;
	case 501:
		return ERR_unsupported;
	case 502:
		return ERR_port_closed;
	case 503:
		return ERR_agent_unreachable;
	case 504:
		return ERR_deadline_exceeded;
	default:
		return ERR_internal;
	}
}

int guest_error_json(struct fail *why, int status, json_t *error, enum errcode not_found)
{
	json_t *code = json_object_get(error, "code");
	const char *name = json_string_value(code);
	const char *msg = json_string_value(json_object_get(error, "message"));
	enum errcode ours = code_of_status(status ? status : 500);
	size_t i;

	if (json_is_integer(code))
		ours = code_of_status((int)json_integer_value(code));
	for (i = 0; name && i < ARRAY_LEN(connect_codes); i++)
		if (!strcmp(name, connect_codes[i].name))
			ours = connect_codes[i].code;
	if (status == 404 || (name && !strcmp(name, "not_found")))
		ours = not_found ? not_found : ERR_not_found;
	/* A user that the guest does not know is the caller's mistake, not a broken token. */
	if (ours == ERR_agent_unreachable && msg && strstr(msg, "user"))
		ours = ERR_bad_request;
	fail_as(why, ours, "%s", msg ? msg : err_info(ours)->cause);
	if (ours == ERR_forbidden)
		fail_remedy(why, "the sandbox's kernel refuses this, whatever the key: use another path");
	return why->err;
}

int guest_error(struct fail *why, int status, struct str body, enum errcode not_found)
{
	struct fail bad = { 0 };
	autojson json_t *j = body.n ? json_read(body, &bad) : NULL;

	return guest_error_json(why, status, j, not_found);
}

void guest_gone(struct sandbox *sb, struct fail *why)
{
	struct fail f = { 0 };

	if (sandbox_agent(sb, &f))
		fail_as(why, ERR_agent_unreachable, "sandbox %s does not answer", sb->id);
	else
		*why = f;
}

/* --- is anybody there? --- */

static bool stands_still(const struct guest_call *c)
{
	enum sandbox_state s = c->sb->state;

	return s == SANDBOX_PAUSED || s == SANDBOX_PAUSING || s == SANDBOX_WAKING;
}

static void probed(int status, struct str body, const struct fail *why, void *arg)
{
	struct guest_call *c = arg;

	if (c->ended) {
		;
	} else if (status || stands_still(c)) {
		c->misses = 0;
		if (!c->got_head)
			c->probe_ms = MIN(c->probe_ms * 2, PROBE_MOST_MS);
		tick_set(&c->api->ticks, &c->tick, c->got_head ? SILENT_MS : c->probe_ms);
	} else if (!c->got_head || ++c->misses >= MISSES_MAX) {
		c->unreachable = true;
		http_call_cancel(c->call);
	} else {
		tick_set(&c->api->ticks, &c->tick, PROBE_AGAIN_MS);
	}
	call_unref(c);
}

/* Only time in which the guest could have gone on, and we waited for it, counts. */
static bool over_limit(struct guest_call *c)
{
	int64_t now = mono_ms(), passed = now - c->looked_ms;
	bool waited = !stands_still(c) && !c->paused && (!c->sending || c->full);

	c->looked_ms = now;
	if (waited && !(c->got_head && c->endless))
		c->spent_ms += passed;
	return c->limit_ms > 0 && c->spent_ms >= c->limit_ms;
}

static void heard(struct guest_call *c)
{
	c->heard_ms = mono_ms();
	c->misses = 0;
	if (!c->whole_limit)
		c->spent_ms = 0;
}

static void probe(struct tick *t)
{
	struct guest_call *c = container_of(t, struct guest_call, tick);
	struct http_call_opts o = { .method = "GET", .target = "/health" };
	struct fail why = { 0 };
	struct http_endpoint *e = sandbox_agent(c->sb, &why);
	int64_t silent = mono_ms() - c->heard_ms;

	if (over_limit(c)) {
		c->late = true;
		http_call_cancel(c->call);
		return;
	}
	if (c->got_head && !c->misses && silent < SILENT_MS) {
		tick_set(&c->api->ticks, &c->tick, SILENT_MS - silent);
		return;
	}
	if (!e) { /* it ended, or stands still: the core breaks the call off, or wakes it */
		tick_set(&c->api->ticks, &c->tick, PROBE_MOST_MS);
		return;
	}
	c->refs++;
	if (http_fetch(e, &o, (struct str){ 0 }, 4096, PROBE_LIMIT_MS, probed, c) < 0) {
		tick_set(&c->api->ticks, &c->tick, PROBE_FIRST_MS);
		call_unref(c);
	}
}

/* --- the call --- */

static void on_head(struct http_call *hc, const struct http_head *h, void *arg)
{
	struct guest_call *c = arg;

	c->got_head = true;
	heard(c);
	tick_set(&c->api->ticks, &c->tick, SILENT_MS);
	if (h->status / 100 == 2) {
		if (c->cb->head)
			c->cb->head(c, h, c->arg);
		return;
	}
	c->error_status = h->status;
}

static void on_data(struct http_call *hc, const char *p, size_t n, void *arg)
{
	struct guest_call *c = arg;

	heard(c);
	if (c->error_status) {
		if (buf_add(&c->error, p, n) < 0)
			http_call_cancel(c->call); /* what does not fit is not shown */
	} else if (c->cb->data)
		c->cb->data(c, p, n, c->arg);
}

static void on_drain(struct http_call *hc, void *arg)
{
	struct guest_call *c = arg;

	c->full = false;
	heard(c);
	if (c->cb->drain)
		c->cb->drain(c, c->arg);
}

static void hold(struct guest_call *c)
{
	if (c->quiet)
		sandbox_keep(c->sb);
	else
		sandbox_hold(c->sb);
}

static void release(struct sandbox *sb, bool quiet)
{
	if (quiet)
		sandbox_unkeep(sb);
	else
		sandbox_release(sb);
}

static void finish(struct guest_call *c, const struct fail *why)
{
	struct sandbox *sb = c->sb;

	c->ended = true;
	tick_clear(&c->tick);
	c->cb->end(c, why, c->arg);
	release(sb, c->quiet);
	call_unref(c);
}

static void on_end(struct http_call *hc, const struct fail *why, void *arg)
{
	struct guest_call *c = arg;
	struct fail f = *why, why_not;

	c->call = NULL;
	if (c->late)
		fail_as(&f, ERR_agent_unreachable, "the agent is there, but did not answer within %d s",
			c->limit_ms / 1000);
	else if (c->unreachable)
		guest_gone(c->sb, &f);
	else if (c->error_status)
		guest_error(&f, c->error_status, buf_str(&c->error), c->not_found);
	else if (f.err && (!c->cancelled || !sandbox_agent(c->sb, &why_not)))
		guest_gone(c->sb, &f); /* also where the core broke it off */
	finish(c, &f);
}

static void on_upgrade(struct http_call *hc, const struct http_head *h, struct http_stream *s, void *arg)
{
	struct guest_call *c = arg;
	struct sandbox *sb = c->sb;

	c->call = NULL;
	c->ended = true;
	tick_clear(&c->tick);
	c->cb->upgrade(c, s, c->arg);
	release(sb, c->quiet);
	call_unref(c);
}

static const struct http_call_cb call_cb = { on_head, on_data, on_drain, on_end, NULL };
static const struct http_call_cb upgrade_cb = { on_head, on_data, on_drain, on_end, on_upgrade };

struct headers {
	struct http_header h[8];
	unsigned n;
	char basic[160];
};

static void add(struct headers *hs, const char *name, struct str value)
{
	hs->h[hs->n++] = (struct http_header){ str_of(name), value };
}

static int headers_make(struct headers *hs, struct sandbox *sb, const struct guest_opts *o, struct fail *why)
{
	hs->n = 0;
	if (sandbox_token(sb) && *sandbox_token(sb))
		add(hs, "X-Access-Token", str_of(sandbox_token(sb)));
	if (o->user) {
		char text[72];
		int n = snprintf(text, sizeof(text), "%s:", o->user);

		if (!*o->user || n >= (int)sizeof(text) || strchr(o->user, ':') ||
		    str_has_ctl(str_of(o->user)))
			return fail_as(why, ERR_bad_request, "user: the name of a user in the sandbox");
		memcpy(hs->basic, "Basic ", 6);
		base64_encode(hs->basic + 6, text, (size_t)n);
		add(hs, "Authorization", str_of(hs->basic));
	}
	if (o->upgrade_tcp)
		add(hs, "Upgrade", STR("tcp"));
	if (o->connect_stream) {
		add(hs, "Content-Type", STR("application/connect+json"));
		add(hs, "Connect-Protocol-Version", STR("1"));
	} else if (o->body.n || o->body_len || o->ctype) {
		add(hs, "Content-Type", str_of(o->ctype ? o->ctype : "application/json"));
	}
	if (o->range.n)
		add(hs, "Range", o->range);
	return 0;
}

struct guest_call *guest_call(struct api *api, struct sandbox *sb, const struct guest_opts *o,
			      const struct guest_cb *cb, void *arg, struct fail *why)
{
	struct http_endpoint *e = sandbox_agent(sb, why);
	struct http_call_opts ho = { .method = o->method, .target = o->target, .upgrade = o->upgrade_tcp,
		.head_timeout_ms = -1 };
	struct guest_call *c;
	struct headers hs;
	char head[5];

	if (!e || headers_make(&hs, sb, o, why) < 0)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	*c = (struct guest_call){ .api = api, .sb = sb, .cb = cb, .arg = arg, .refs = 1,
		.not_found = o->not_found, .quiet = o->quiet, .probe_ms = PROBE_FIRST_MS,
		.limit_ms = o->limit_ms ? o->limit_ms : LIMIT_MS, .endless = o->connect_stream,
		.sending = o->body_len != 0 };
	c->looked_ms = c->heard_ms = mono_ms();
	buf_init(&c->error, 16 * KIB);
	tick_init(&c->tick, probe);
	ho.headers = hs.h;
	ho.nheaders = hs.n;
	ho.body_len = o->body_len ? o->body_len : (int64_t)o->body.n + (o->connect_stream ? 5 : 0);
	hold(c);
	c->call = http_call_start(e, &ho, o->upgrade_tcp ? &upgrade_cb : &call_cb, c);
	if (!c->call) {
		release(c->sb, c->quiet);
		free(c);
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	tick_set(&api->ticks, &c->tick, c->probe_ms);
	if (o->connect_stream) {
		connect_head(head, o->body.n);
		(void)http_call_write(c->call, head, sizeof(head));
	}
	if (o->body.n)
		(void)http_call_write(c->call, o->body.p, o->body.n);
	if (!o->body_len && ho.body_len)
		http_call_end(c->call);
	return c;
}

int guest_write(struct guest_call *c, const void *p, size_t n)
{
	int r = c->call ? http_call_write(c->call, p, n) : -EPIPE;

	c->full = r == 1;
	if (!c->full)
		heard(c); /* it takes what it is given */
	return r;
}

void guest_end(struct guest_call *c)
{
	c->sending = false;
	if (c->call)
		http_call_end(c->call);
}

void guest_pause(struct guest_call *c)
{
	c->paused = true;
	if (c->call)
		http_call_pause(c->call);
}

void guest_resume(struct guest_call *c)
{
	c->paused = false;
	if (c->call)
		http_call_resume(c->call);
}

bool guest_fell_silent(const struct guest_call *c)
{
	return c->unreachable && c->got_head;
}

void guest_cancel(struct guest_call *c)
{
	c->cancelled = true;
	if (c->call)
		http_call_cancel(c->call);
}

/* --- whole calls --- */

struct whole {
	struct buf text;
	guest_json_fn *done;
	void *arg;
	bool over;
};

static void whole_data(struct guest_call *c, const char *p, size_t n, void *arg)
{
	struct whole *w = arg;

	if (!w->over && buf_add(&w->text, p, n) < 0) {
		w->over = true;
		guest_cancel(c);
	}
}

static void whole_end(struct guest_call *c, const struct fail *why, void *arg)
{
	struct whole *w = arg;
	struct fail f = *why;
	json_t *reply = NULL;

	if (w->over)
		fail_as(&f, ERR_too_large, "the agent's answer is larger than %llu bytes", GUEST_ANSWER_MAX);
	else if (!f.err && w->text.n) {
		reply = json_read(buf_str(&w->text), &f);
		if (!reply)
			fail_as(&f, ERR_agent_unreachable, "the agent's answer is not JSON");
	}
	buf_clear(&w->text);
	w->done(reply, &f, w->arg);
	json_decref(reply);
	free(w);
}

int guest_json(struct api *api, struct sandbox *sb, const struct guest_opts *o, guest_json_fn *done,
	       void *arg, struct fail *why)
{
	static const struct guest_cb cb = { .data = whole_data, .end = whole_end };
	struct whole *w = calloc(1, sizeof(*w));
	struct guest_call *c;

	if (!w)
		return fail_set(why, -ENOMEM, "out of memory");
	buf_init(&w->text, GUEST_ANSWER_MAX);
	w->done = done;
	w->arg = arg;
	c = guest_call(api, sb, o, &cb, w, why);
	if (!c) {
		free(w);
		return why->err;
	}
	c->whole_limit = true;
	return 0;
}

int guest_target(struct buf *out, const char *target, ...)
{
	const char *key, *value;
	char sep = '?';
	va_list ap;
	int err = buf_addz(out, target);

	va_start(ap, target);
	while (!err && (key = va_arg(ap, const char *))) {
		value = va_arg(ap, const char *);
		if (!value)
			continue;
		err = buf_addf(out, "%c%s=", sep, key);
		if (!err)
			err = http_escape(out, str_of(value), "/");
		sep = '&';
	}
	va_end(ap);
	return err < 0 ? err : buf_addc(out, 0);
}
