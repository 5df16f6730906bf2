#include "api/guest.h"

#include <stdarg.h>
#include <stdio.h>

#include "api/alive.h"
#include "api/connect.h"
#include "api/handlers.h"
#include "base/clock.h"
#include "base/random.h"

#define AGAIN_MS 30		/* between tries while the guest is frozen */
#define SENT_MAX (256 * KIB)	/* of a body, kept until the answer begins */

/* What it takes to make a call again: for a moment, while a checkpoint is taken, the agent refuses every new one with 503 and has done
 * nothing for it. Given up when the answer begins, or the body is longer than what is kept of it. */
struct again {
	struct tick tick;
	struct guest_call *c;
	int64_t end_ms;
	struct guest_opts o;
	char *target, *user, *range, *body;
	struct buf sent;	/* the body so far */
	bool ended;		/* and that is all of it */
};

struct guest_call {
	struct api *api;
	struct sandbox *sb;
	struct http_call *call;
	const struct guest_cb *cb;
	void *arg;
	struct waiter_for waiter;
	struct again *again;	/* NULL: it is not made again */
	struct buf error;	/* body of an answer that is an error */
	int error_status;
	enum errcode not_found;
	bool unreachable, late, cancelled;
	bool endless;		/* once it has begun, silence is no fault */
	bool whole_limit;	/* the limit is for all of the answer, not for each pause in it */
	bool sending, full;	/* the body: not all there yet; the guest does not take it */
	bool paused;		/* by us */
	bool quiet;
};

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
	default: /* its failure, and not ours: whatever speaks there is the guest's */
		return ERR_agent_unreachable;
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
	if ((status == 401 || (name && !strcmp(name, "unauthenticated"))) && msg && strstr(msg, "user"))
		ours = ERR_bad_request;
	fail_as(why, ours, "%s", msg ? msg : ours == ERR_agent_unreachable ? "the agent inside the sandbox failed" : err_info(ours)->cause);
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

static void finish(struct guest_call *c, const struct fail *why);
static int launch(struct guest_call *c, const struct guest_opts *o, struct fail *why);

/* Ends it: on_end() or on_again() comes, later. */
static void guest_stop(struct guest_call *c)
{
	if (c->call)
		http_call_cancel(c->call);
	else if (c->again)
		tick_set(&c->api->ticks, &c->again->tick, 0);
}

static void given_up(struct waiter_for *w, enum alive_end how)
{
	struct guest_call *c = container_of(w, struct guest_call, waiter);

	c->late = how == ALIVE_LATE;
	c->unreachable = how == ALIVE_GONE;
	guest_stop(c);
}

/* Only time in which we wait for the guest counts. */
static void waits(struct guest_call *c)
{
	c->waiter.idle = c->paused || (c->sending && !c->full) || (c->waiter.begun && c->endless);
}

static void heard(struct guest_call *c)
{
	alive_heard(&c->waiter);
	if (!c->whole_limit)
		alive_again(&c->waiter);
}

/* --- the call --- */

static void again_drop(struct guest_call *c)
{
	struct again *a = c->again;

	c->again = NULL;
	if (!a)
		return;
	tick_clear(&a->tick);
	free(a->target);
	free(a->user);
	free(a->range);
	free(a->body);
	buf_clear(&a->sent);
	free(a);
}


static void on_head(struct http_call *hc, const struct http_head *h, void *arg)
{
	struct guest_call *c = arg;

	heard(c);
	if (h->status != 503)
		again_drop(c);
	c->waiter.begun = true;
	if (c->waiter.limit_ms < 0 && !c->again)
		c->waiter.limit_ms = alive_limits.call; /* what may take for ever is its beginning */
	waits(c);
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
	waits(c);
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

static void call_free(struct guest_call *c)
{
	again_drop(c);
	release(c->sb, c->quiet);
	buf_clear(&c->error);
	free(c);
}

static void on_again(struct tick *t)
{
	struct again *a = container_of(t, struct again, tick);
	struct guest_call *c = a->c;
	struct fail why = { 0 };

	if (c->cancelled || c->late || c->unreachable)
		fail_set(&why, -ECANCELED, "cancelled");
	else if (launch(c, &a->o, &why) == 0)
		return;
	finish(c, &why);
}

/* The guest stands still for a checkpoint: the call is made again in a moment. */
static bool refused_for_now(struct guest_call *c)
{
	struct again *a = c->again;
	struct fail why = { 0 };

	if (!a || c->error_status != 503 || c->cancelled || c->late || c->unreachable || mono_ms() >= a->end_ms || !sandbox_agent(c->sb, &why))
		return false;
	c->error_status = 0;
	buf_clear(&c->error);
	c->waiter.begun = false;
	c->full = c->sending; /* nothing more is taken for now */
	waits(c);
	tick_set(&c->api->ticks, &a->tick, AGAIN_MS);
	return true;
}

static void on_end(struct http_call *hc, const struct fail *why, void *arg)
{
	struct guest_call *c = arg;

	c->call = NULL;
	if (refused_for_now(c))
		return;
	finish(c, why);
}

static void finish(struct guest_call *c, const struct fail *why)
{
	struct fail f = *why, why_not;

	alive_leave(&c->waiter);
	if (c->late)
		fail_as(&f, ERR_agent_unreachable, "the agent is there, but did not answer within %d s",
			c->waiter.limit_ms / 1000);
	else if (c->unreachable)
		guest_gone(c->sb, &f);
	else if (c->error_status)
		guest_error(&f, c->error_status, buf_str(&c->error), c->not_found);
	else if (f.err && (!c->cancelled || !sandbox_agent(c->sb, &why_not)))
		guest_gone(c->sb, &f); /* also where the core broke it off */
	c->cb->end(c, &f, c->arg);
	call_free(c);
}

static void on_upgrade(struct http_call *hc, const struct http_head *h, struct http_stream *s, void *arg)
{
	struct guest_call *c = arg;

	c->call = NULL;
	alive_leave(&c->waiter);
	c->cb->upgrade(c, s, c->arg);
	call_free(c);
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

/* Begins, or begins anew: then with what has been sent of the body. */
static int launch(struct guest_call *c, const struct guest_opts *o, struct fail *why)
{
	struct http_endpoint *e = sandbox_agent(c->sb, why);
	struct http_call_opts ho = { .method = o->method, .target = o->target, .upgrade = o->upgrade_tcp,
		.head_timeout_ms = -1 };
	struct again *a = c->again;
	struct headers hs;
	char head[5];

	if (!e || headers_make(&hs, c->sb, o, why) < 0)
		return why->err;
	ho.headers = hs.h;
	ho.nheaders = hs.n;
	ho.body_len = o->body_len ? o->body_len : (int64_t)o->body.n + (o->connect_stream ? 5 : 0);
	c->call = http_call_start(e, &ho, o->upgrade_tcp ? &upgrade_cb : &call_cb, c);
	if (!c->call)
		return fail_set(why, -ENOMEM, "out of memory");
	if (o->connect_stream) {
		connect_head(head, o->body.n);
		(void)http_call_write(c->call, head, sizeof(head));
	}
	if (o->body.n)
		(void)http_call_write(c->call, o->body.p, o->body.n);
	if (a && a->sent.n)
		(void)http_call_write(c->call, a->sent.p, a->sent.n);
	if (ho.body_len && (!o->body_len || (a && a->ended)))
		http_call_end(c->call);
	if (c->full && c->cb->drain) { /* it was told to wait */
		c->full = false;
		waits(c);
		c->cb->drain(c, c->arg);
	}
	return 0;
}

/* A copy of O that outlives its caller. Without memory for it, the call is made once. */
static void again_new(struct guest_call *c, const struct guest_opts *o)
{
	struct again *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	c->again = a;
	a->c = c;
	a->o = *o;
	a->end_ms = mono_ms() + alive_limits.frozen;
	tick_init(&a->tick, on_again);
	buf_init(&a->sent, SENT_MAX);
	a->o.target = a->target = strdup(o->target);
	a->o.user = a->user = o->user ? strdup(o->user) : NULL;
	a->range = str_dup(o->range);
	a->o.range = (struct str){ a->range, o->range.n };
	a->body = str_dup(o->body);
	a->o.body = (struct str){ a->body, o->body.n };
	if (!a->target || (o->user && !a->user) || !a->range || !a->body)
		again_drop(c);
}

static void again_body(struct guest_call *c, const void *p, size_t n)
{
	if (c->again && buf_add(&c->again->sent, p, n) < 0)
		again_drop(c);
}

struct guest_call *guest_call(struct api *api, struct sandbox *sb, const struct guest_opts *o,
			      const struct guest_cb *cb, void *arg, struct fail *why)
{
	struct guest_call *c;

	if (!sandbox_agent(sb, why))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	*c = (struct guest_call){ .api = api, .sb = sb, .cb = cb, .arg = arg, .not_found = o->not_found, .quiet = o->quiet,
		.sending = o->body_len != 0, .whole_limit = o->body_len != 0,
		.waiter = { .limit_ms = o->limit_ms ? o->limit_ms : alive_limits.call, .end = given_up } };
	waits(c);
	buf_init(&c->error, 16 * KIB);
	hold(c);
	if (alive_wait(api, sb, &c->waiter) < 0)
		fail_set(why, -ENOMEM, "out of memory");
	else if (launch(c, o, why) == 0)
		again_new(c, o);
	if (!c->call) {
		alive_leave(&c->waiter);
		call_free(c);
		return NULL;
	}
	return c;
}

int guest_write(struct guest_call *c, const void *p, size_t n)
{
	int r = -EPIPE;

	again_body(c, p, n);
	if (c->call)
		r = http_call_write(c->call, p, n);
	else if (c->again)
		r = 1; /* it goes with what has been kept */
	c->full = r == 1;
	waits(c);
	if (!c->full)
		alive_again(&c->waiter); /* it takes what it is given */
	return r;
}

void guest_end(struct guest_call *c)
{
	c->sending = false;
	waits(c);
	if (c->again)
		c->again->ended = true;
	if (c->call)
		http_call_end(c->call);
}

void guest_pause(struct guest_call *c)
{
	c->paused = true;
	waits(c);
	if (c->call)
		http_call_pause(c->call);
}

void guest_resume(struct guest_call *c)
{
	c->paused = false;
	waits(c);
	if (c->call)
		http_call_resume(c->call);
}

bool guest_fell_silent(const struct guest_call *c)
{
	return c->unreachable && c->waiter.begun;
}

void guest_endless(struct guest_call *c)
{
	c->endless = true;
	waits(c);
}

void guest_cancel(struct guest_call *c)
{
	c->cancelled = true;
	guest_stop(c);
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

void guest_nonsense(struct req *r)
{
	req_failf(r, ERR_agent_unreachable, "the agent's answer makes no sense");
}

static bool all_sane(json_t *list, bool (*sane)(json_t *one))
{
	json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (!sane(one))
			return false;
	return json_is_array(list);
}

void guest_list(struct req *r, json_t *reply, const struct fail *why, const char *key, bool (*sane)(json_t *one),
		void (*write)(struct jw *w, const char *key, json_t *one))
{
	json_t *list = json_object_get(reply, key), *one;
	struct buf b;
	struct jw w;
	size_t i;

	if (why->err) {
		req_fail(r, why);
	} else if (!all_sane(list, sane)) {
		guest_nonsense(r);
	} else {
		answer_begin(&w, &b);
		jw_obj(&w, NULL);
		jw_arr(&w, key);
		json_array_foreach (list, i, one)
			write(&w, NULL, one);
		jw_arr_end(&w);
		jw_obj_end(&w);
		req_json(r, 200, &w);
	}
	req_unref(r);
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
