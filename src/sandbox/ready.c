/* ready.c - ready monitors: clones that have been started, rehearsed (rehearse.c) and stopped, so that a create has only to say who
 * they are.
 *
 * Each is made for one node and one tenant. The default template has cfg.ready_monitors of them; a template used within the last ten
 * minutes has one. One is made at a time, after the creates that are under way, so that refilling does not slow what it is for. They
 * hold no reservation: a ready one has some 30 MiB of its own, the rest of its guest's memory is the template's. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define LATELY_NS (600 * NS_PER_S)
#define OTHERS_MAX 4	  /* ready ones of other than the default template */
#define RETRY_MS 5000	  /* after a failure */
#define SETTLE_MS 2	  /* after a claim; creates under way come first */
#define BUSY_MS 20

struct ready {
	struct link link; /* in sp->ready */
	struct machine *m;
	char node[24];
	uv_poll_t *poll;
	int pidfd;
	bool making, dropped;
	struct rehearsal *rehearsal;
};

static void poll_closed(uv_handle_t *h)
{
	free(h);
}

static void unwatch(struct ready *r)
{
	if (!r->poll)
		return;
	uv_poll_stop(r->poll);
	uv_close((uv_handle_t *)r->poll, poll_closed);
	close(r->pidfd);
	r->poll = NULL;
}

static void ready_free(struct ready *r)
{
	unwatch(r);
	link_del(&r->link);
	free(r);
}

/* It died while it waited. */
static void on_exit_event(uv_poll_t *p, int status, int events)
{
	struct ready *r = p->data;
	struct machine *m = r->m;
	struct space *sp = m->sp;

	log_warning("machine %s: a ready monitor ended; another one is made", m->id);
	ready_free(r);
	machine_discard(m);
	later_set(sp, &sp->refill, RETRY_MS, (void (*)(void *))ready_refill, sp);
}

static int watch(struct ready *r)
{
	r->pidfd = dup(vm_pidfd(r->m->vm));
	r->poll = calloc(1, sizeof(*r->poll));
	if (r->pidfd < 0 || !r->poll || uv_poll_init(r->m->sp->loop, r->poll, r->pidfd) < 0) {
		if (r->pidfd >= 0)
			close(r->pidfd);
		free(r->poll);
		r->poll = NULL;
		return -ENOMEM;
	}
	r->poll->data = r;
	uv_poll_start(r->poll, UV_READABLE, on_exit_event);
	uv_unref((uv_handle_t *)r->poll);
	return 0;
}

unsigned ready_count(const struct space *sp)
{
	unsigned n = 0;

	for (struct link *l = sp->ready.next; l != &sp->ready; l = l->next)
		n += !container_of(l, struct ready, link)->making;
	return n;
}

struct machine *ready_claim(struct space *sp, const char *tenant, const char *node)
{
	link_each_safe(l, next, &sp->ready) {
		struct ready *r = container_of(l, struct ready, link);
		struct machine *m = r->m;

		if (r->making || strcmp(m->tenant, tenant) || strcmp(r->node, node))
			continue;
		ready_free(r);
		return m;
	}
	return NULL;
}

/* --- making one --- */

static int make_job(void *arg, struct fail *why)
{
	struct machine *m = arg;
	int r = machine_prepare(m, &m->src->files, why);

	return r < 0 ? r : machine_start(m, why);
}

static struct ready *ready_of(const struct machine *m)
{
	link_each_safe(l, next, &m->sp->ready)
		if (container_of(l, struct ready, link)->m == m)
			return container_of(l, struct ready, link);
	return NULL;
}

static void made(struct machine *m, const struct fail *why, void *arg)
{
	struct space *sp = m->sp;
	struct ready *mine = ready_of(m);

	/* Dropped while it was made, or not made, or the daemon stops. */
	if (!mine || why->err || sp->stopping || watch(mine) < 0) {
		if (why->err)
			log_warning("machine %s: no ready monitor: %s", m->id, why->msg);
		if (mine)
			ready_free(mine);
		machine_discard(m);
		if (!sp->stopping)
			later_set(sp, &sp->refill, RETRY_MS, (void (*)(void *))ready_refill, sp);
		return;
	}
	mine->making = false;
	mine->rehearsal = NULL;
	ready_refill(sp);
}

static void started(void *arg, const struct fail *why)
{
	struct machine *m = arg;
	struct ready *mine = ready_of(m);
	struct fail f = *why;

	if (mine && !f.err && !m->sp->stopping)
		mine->rehearsal = rehearse(m, made, NULL, &f);
	if (!mine || !mine->rehearsal)
		made(m, &f, NULL);
}

static void source_there(struct source *s, const struct fail *why, void *arg)
{
	struct ready *r = arg;
	struct space *sp = r->m->sp;

	if (why->err || sp->stopping || r->dropped) {
		if (why->err)
			log_warning("template: no ready monitors: %s", why->msg);
		machine_free(r->m);
		source_unref(s);
		ready_free(r);
		return;
	}
	r->m->src = s;
	r->m->vcpus = s->node.vcpus;
	r->m->memory = s->node.memory;
	r->m->disk = s->node.disk;
	space_job(sp, NULL, make_job, started, r->m);
}

static void make_one(struct space *sp, struct variant *v, const char *tenant)
{
	struct ready *r = calloc(1, sizeof(*r));
	char id[ID_LEN + 1];

	id_make(id, 'i');
	if (r)
		r->m = machine_new(sp, id, tenant, "ready");
	if (!r || !r->m) {
		free(r);
		return;
	}
	(void)str_copy(r->node, sizeof(r->node), str_of(v->node));
	r->making = true;
	link_add_tail(&sp->ready, &r->link);
	source_get(sp, tenant, v->node, source_there, r);
}

static unsigned have(struct space *sp, const struct variant *v)
{
	unsigned n = 0;

	link_each_safe(l, next, &sp->ready)
		n += !strcmp(container_of(l, struct ready, link)->node, v->node);
	return n;
}

static bool any_making(struct space *sp)
{
	link_each_safe(l, next, &sp->ready)
		if (container_of(l, struct ready, link)->making)
			return true;
	return false;
}

/* Which variant lacks one. TENANT is whom it is for: the template's own. */
static bool wanted_more(struct space *sp, struct variant **out, const char **tenant)
{
	struct tmpl *def = tmpl_find(sp, TENANT_DEFAULT, sp->cfg.template);
	unsigned others = 0;

	if (!sp->cfg.ready_monitors)
		return false;
	link_each_safe(lt, nt, &sp->templates) {
		struct tmpl *t = container_of(lt, struct tmpl, link);

		link_each_safe(lv, nv, &t->variants) {
			struct variant *v = container_of(lv, struct variant, link);
			bool first = t == def && lv == t->variants.next;
			unsigned want = first ? sp->cfg.ready_monitors : 0;

			if (!first && v->used_ns && mono_ns() - v->used_ns < LATELY_NS && others < OTHERS_MAX) {
				want = 1;
				others++;
			}
			if (!v->node[0] || have(sp, v) >= want)
				continue;
			*out = v;
			*tenant = t->tenant;
			return true;
		}
	}
	return false;
}

static void refill_slots_done(void *arg, const struct fail *why)
{
	struct space *sp = arg;

	sp->slots_refilling = false;
	if (why->err)
		log_warning("slots: none could be made ahead: %s", why->msg);
	if (sp->stopping || sp->refill)
		return;
	if (why->err)
		later_set(sp, &sp->refill, RETRY_MS, (void (*)(void *))ready_refill, sp);
	else if (slots_ready(sp->slots) < sp->cfg.ready_slots)
		ready_refill(sp); /* one was taken meanwhile, by who found this refill still going on */
}

static int refill_slots_job(void *arg, struct fail *why)
{
	struct space *sp = arg;

	return FAULT_WHY(why, slots_refill(sp->slots, why));
}

static void refill_now(void *arg)
{
	struct space *sp = arg;
	struct variant *v;
	const char *tenant;

	if (sp->stopping || !sp->recovered)
		return;
	if (sp->counts[SANDBOX_CREATING]) {
		later_set(sp, &sp->refill, BUSY_MS, refill_now, sp);
		return;
	}
	if (!sp->slots_refilling && slots_ready(sp->slots) < sp->cfg.ready_slots) {
		sp->slots_refilling = true;
		space_job(sp, NULL, refill_slots_job, refill_slots_done, sp);
	}
	if (!any_making(sp) && wanted_more(sp, &v, &tenant))
		make_one(sp, v, tenant);
}

void ready_refill(struct space *sp)
{
	if (!sp->stopping && !sp->refill)
		later_set(sp, &sp->refill, SETTLE_MS, refill_now, sp);
}

/* Those of a node that goes away, or all. What is being made finds itself unlisted when it is done. */
void ready_drop(struct space *sp, const char *node)
{
	link_each_safe(l, next, &sp->ready) {
		struct ready *r = container_of(l, struct ready, link);
		struct machine *m = r->m;

		if (node && strcmp(r->node, node))
			continue;
		if (r->making && !m->src) { /* waits for its source, and looks when it comes */
			r->dropped = true;
			continue;
		}
		if (r->making) {
			if (r->rehearsal)
				rehearse_cancel(r->rehearsal);
			link_del(&r->link);
			free(r);
			continue;
		}
		ready_free(r);
		machine_discard(m);
	}
}
