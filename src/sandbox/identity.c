/* identity.c - /init: telling a guest who it is now, and the check that it took it in.
 *
 * A clone is a new machine only once it has a new name, the host's time, fresh entropy and a token of its own; a guest that cannot
 * confirm that is not handed out. It confirms by what it answers: its id, machine id and generation are those that it was given; its
 * clock is ours; the 16 bytes that it draws, and the boot token that it drew before them, are like those of no other guest, neither of
 * the one it was taken from nor of its siblings. One that only goes on (after a pause, a save, a restart of ours) has the boot token that
 * it had. The clock counts as right when it is proven to be off by 100 ms at most. What is known is that the guest read it between our
 * question and its answer, so its error lies in an interval as wide as the way there and back; on a busy host that may be wider than 100
 * ms, and then it is asked again, with the time that it will be half a way later, until the interval is narrow enough. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define CLOCK_MS 100
#define TRIES_MAX 12
#define RETRY_MS 50

struct init_call {
	struct sandbox_core *c;
	bool fresh, applied; /* applied: the guest took it once; what is asked again is only its clock */
	bool drawn;	     /* … and what it drew was looked at */
	unsigned tries;
	bool undecided; /* its clock may be right: the way was too long to know */
	int64_t until_ms, sent_ns, way_ns; /* way: there and back, the last time */
	struct later *pause;
	identity_fn *fn;
	void *arg;
};

static void init_send(void *arg);

/* Milliseconds since 1970, so that a generation is higher than any that an earlier daemon gave and did not get to write down. */
int64_t generation_after(int64_t last)
{
	int64_t now = real_ns() / NS_PER_MS;

	return MAX(last + 1, now);
}

/* A sandbox's name may have what a host name may not. */
static void hostname_from(char out[64], const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i <= n; i++)
		out[i] = name[i] == '_' || name[i] == '.' ? '-' : name[i];
	while (n > 0 && out[n - 1] == '-')
		out[--n] = '\0';
}

void identity_new(struct sandbox_core *c)
{
	unsigned char raw[32];

	(void)str_copy(c->who.id, sizeof(c->who.id), str_of(c->sb.id));
	hostname_from(c->who.hostname, c->sb.name[0] ? c->sb.name : c->sb.id);
	random_bytes(raw, sizeof(raw));
	hex_encode(c->who.token, raw, 32);
	random_bytes(raw, 16);
	/* As systemd-machine-id-setup does: a version 4 UUID without its dashes. */
	raw[6] = (unsigned char)((raw[6] & 0x0f) | 0x40);
	raw[8] = (unsigned char)((raw[8] & 0x3f) | 0x80);
	hex_encode(c->who.machine_id, raw, 16);
}

static void finish(struct init_call *i, const struct fail *why)
{
	struct sandbox_core *c = i->c;

	later_clear(&i->pause);
	i->fn(why, i->arg);
	free(i);
	sandbox_release(&c->sb);
}

static void again(struct init_call *i, const struct fail *why)
{
	bool boots = i->c->booting && why->code == ERR_agent_unreachable;

	if ((i->tries >= TRIES_MAX && !boots && !i->undecided) || mono_ms() >= i->until_ms)
		finish(i, why);
	else
		later_set(i->c->sp, &i->pause, why->code == ERR_agent_unreachable ? RETRY_MS : 0, init_send, i);
}

#define DRAWN ARRAY_LEN(((struct space *)0)->randoms)
static_assert(DRAWN == ARRAY_LEN(((struct space *)0)->boots), "both are remembered for as many starts");

/* True if another guest drew the same: then its entropy was not renewed. The newest ones are remembered. */
static bool drawn_before(uint64_t seen[DRAWN], unsigned *n, uint64_t v)
{
	for (unsigned i = 0; i < MIN(*n, DRAWN); i++)
		if (seen[i] == v)
			return true;
	seen[(*n)++ % DRAWN] = v;
	return false;
}

static uint64_t token_hash(const char *token)
{
	uint64_t v = 14695981039346656037ULL; /* FNV-1a */

	for (const char *p = token; *p; p++)
		v = (v ^ (unsigned char)*p) * 1099511628211ULL;
	return v;
}

/* Living ones are looked at by their records as well, which outlive a restart of ours; its own from before its last start is one of them. */
static bool boot_token_used(struct space *sp, const char *token)
{
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!state_ended(c->state) && !strcmp(c->who.boot_token, token))
			return true;
	}
	return drawn_before(sp->boots, &sp->nboots, token_hash(token));
}

void boot_token_learn(struct space *sp, const char *token)
{
	if (token && token[0])
		(void)drawn_before(sp->boots, &sp->nboots, token_hash(token));
}

static int check_boot_token(struct init_call *i, const char *token, struct fail *why)
{
	struct identity *who = &i->c->who;
	size_t n = strlen(token);

	if (n < 16 || n >= sizeof(who->boot_token))
		return fail_as(why, ERR_guest_failed, "the guest did not say its boot token");
	if (i->fresh && !i->drawn) {
		if (boot_token_used(i->c->sp, token))
			return fail_as(why, ERR_guest_failed, "the guest's boot token is that of another one, or of its last start");
	} else if (who->boot_token[0] && strcmp(who->boot_token, token)) {
		return fail_as(why, ERR_guest_failed, "the guest's boot token has changed: it is not the one that it was");
	}
	(void)str_copy(who->boot_token, sizeof(who->boot_token), str_of(token));
	return 0;
}

/* The first half of a draw is its name here. */
static int check_random(struct init_call *i, struct str text, struct fail *why)
{
	unsigned char raw[64];
	size_t n = 0;
	uint64_t drawn;

	if (text.n > 64 || base64_decode(raw, &n, text) < 0 || n < 16)
		return fail_as(why, ERR_guest_failed, "the guest did not prove its entropy");
	memcpy(&drawn, raw, sizeof(drawn));
	if (i->fresh && drawn_before(i->c->sp->randoms, &i->c->sp->nrandoms, drawn))
		return fail_as(why, ERR_guest_failed, "the guest's random numbers are those of another one");
	return 0;
}

static const char *get(json_t *j, const char *key)
{
	const char *z = json_string_value(json_object_get(j, key));

	return z ? z : "";
}

/* 0, -EAGAIN when only the clock is in doubt, else what the guest did not confirm. */
static int check(struct init_call *i, json_t *j, struct fail *why)
{
	struct sandbox_core *c = i->c;
	int64_t at, now = real_ns(), least, most; /* of its clock's error */

	if (strcmp(get(j, "id"), c->who.id) || strcmp(get(j, "machine_id"), c->who.machine_id) ||
	    json_integer_value(json_object_get(j, "generation")) != c->who.generation)
		return fail_as(why, ERR_guest_failed, "the guest did not take its new identity");
	if (check_boot_token(i, get(j, "boot_token"), why) < 0 || check_random(i, str_of(get(j, "random")), why) < 0)
		return why->err;
	i->drawn = true;
	if (rfc3339_parse(str_of(get(j, "timestamp")), &at) < 0)
		return fail_as(why, ERR_guest_failed, "the guest did not say its time");
	i->way_ns = now - i->sent_ns;
	least = at - now;
	most = at - i->sent_ns;
	if (least >= -CLOCK_MS * NS_PER_MS && most <= CLOCK_MS * NS_PER_MS)
		return 0;
	i->undecided = least <= CLOCK_MS * NS_PER_MS && most >= -CLOCK_MS * NS_PER_MS;
	fail_as(why, ERR_guest_failed, "the guest's clock is off by %lld to %lld ms", (long long)(least / NS_PER_MS),
		(long long)(most / NS_PER_MS));
	return -EAGAIN;
}

static void init_answered(int status, json_t *j, const struct fail *why, void *arg)
{
	struct init_call *i = arg;
	struct sandbox_core *c = i->c;
	struct fail f = *why;
	int64_t theirs;
	int r;

	if (status == 409) { /* it has had a higher one */
		theirs = json_integer_value(json_object_get(j, "generation"));
		c->who.generation = MAX(c->who.generation, theirs) + (theirs ? 0 : 1000000000);
		again(i, &f);
		return;
	}
	if (status == 0 && f.err && f.err != -ECANCELED) {
		fail_as(&f, ERR_agent_unreachable, "the agent inside the sandbox does not answer: %s", why->msg);
		again(i, &f);
		return;
	}
	if (status == 503) { /* an earlier one of ours is still under way */
		again(i, &f);
		return;
	}
	if (f.err) {
		finish(i, &f);
		return;
	}
	i->applied = true;
	r = check(i, j, &f);
	if (r == -EAGAIN)
		again(i, &f);
	else
		finish(i, &f);
}

static json_t *message(struct init_call *i)
{
	struct sandbox_core *c = i->c;
	bool first = i->fresh && !i->applied;
	int64_t there;
	unsigned char entropy[64];
	char text[96], now[64];
	json_t *j;

	random_bytes(entropy, sizeof(entropy));
	base64_encode(text, entropy, sizeof(entropy));
	text[base64_len(sizeof(entropy))] = '\0';
	j = json_pack("{s:I,s:s,s:s,s:s,s:s,s:s,s:b,s:b,s:b}", "generation", (json_int_t)c->who.generation, "id", c->who.id, "hostname",
		      c->who.hostname, "machine_id", c->who.machine_id, "entropy", text, "accessToken", c->who.token, "readOnly",
		      first && !c->continues && c->sb.read_only, "fresh", first, "keepProcesses", c->continues);
	if (!j)
		return NULL;
	/* One that only goes on has these already: reading them again is a good part of what it does here. */
	if (first && c->guest_env)
		json_object_set(j, "envVars", c->guest_env);
	if (first && c->user[0])
		json_object_set_new(j, "defaultUser", json_string(c->user));
	if (first && c->workdir[0])
		json_object_set_new(j, "defaultWorkdir", json_string(c->workdir));
	/* Mounts are made once; what is in them stays over a pause, a checkpoint or a restart of ours. */
	if (first && !c->continues && c->tmpfs && json_object_size(c->tmpfs))
		json_object_set(j, "tmpfs", c->tmpfs);
	if (first && c->grown)
		json_object_set_new(j, "diskBytes", json_integer((json_int_t)c->sb.disk));
	i->sent_ns = real_ns();
	there = i->sent_ns + MAX(i->way_ns, 0) / 2; /* when it gets it, about */
	rfc3339_format(now, there);
	/* The format has milliseconds only; the agent takes nanoseconds. */
	snprintf(now + 19, sizeof(now) - 19, ".%09lldZ", (long long)(there % NS_PER_S));
	json_object_set_new(j, "timestamp", json_string(now));
	return j;
}

static void init_send(void *arg)
{
	struct init_call *i = arg;
	struct sandbox_core *c = i->c;
	struct fail why = { 0 };
	autojson json_t *j = NULL;

	if (!c->agent) { /* ended meanwhile */
		fail_as(&why, ERR_sandbox_gone, "the sandbox has ended");
		finish(i, &why);
		return;
	}
	i->tries++;
	c->who.generation = generation_after(c->who.generation);
	j = message(i);
	if (!j) {
		fail_set(&why, -ENOMEM, "out of memory");
		finish(i, &why);
		return;
	}
	agent_call(c->agent, NULL, "POST", "/init", j, (int)MAX(i->until_ms - mono_ms(), 100), init_answered, i);
}

void identity_send(struct sandbox_core *c, bool fresh, int timeout_ms, identity_fn *fn, void *arg)
{
	struct init_call *i = calloc(1, sizeof(*i));
	struct fail why = { 0 };

	if (!i) {
		fail_set(&why, -ENOMEM, "out of memory");
		fn(&why, arg);
		return;
	}
	sandbox_hold(&c->sb);
	*i = (struct init_call){ .c = c, .fresh = fresh, .until_ms = mono_ms() + timeout_ms, .fn = fn, .arg = arg };
	init_send(i);
}
