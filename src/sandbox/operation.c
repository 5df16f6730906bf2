/* operation.c - operations: the record of one slow call, to poll or to follow. In memory, and in the store from begin to end, so that
 * a restart can say of each one that was under way that it was interrupted. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

struct op_core {
	struct operation op; /* first */
	struct space *sp;
	struct link link, subs;
	bool unlisted, telling;
};

struct operation_sub {
	struct link link;
	struct op_core *o;
	bool dropped;
	void (*fn)(struct operation *op, void *arg);
	void *arg;
};

static const char *const state_names[] = { "running", "done", "failed" };

static void save(struct op_core *o)
{
	struct operation *op = &o->op;
	struct store_txn *t = store_begin(o->sp->store);
	struct buf b;
	struct jw w;

	if (!t)
		return;
	buf_init(&b, 256 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "id", op->id);
	jw_str(&w, "tenant", op->tenant);
	jw_str(&w, "kind", op->kind);
	jw_str(&w, "target", op->target);
	jw_str(&w, "state", state_names[op->state]);
	jw_int(&w, "created_ns", op->created_ns);
	jw_int(&w, "ended_ns", op->ended_ns);
	if (op->result)
		jw_json(&w, "result", op->result);
	if (op->fail.err) {
		jw_obj(&w, "error");
		jw_fail(&w, &op->fail, NULL);
		jw_obj_end(&w);
	}
	jw_obj_end(&w);
	if (w.err == 0)
		(void)store_put(t, "operation", op->id, buf_str(&b));
	buf_clear(&b);
	FAULT_VOID(store_commit(t, NULL, NULL));
}

static struct op_core *op_make(struct space *sp, const char *id, const char *tenant, const char *kind, const char *target)
{
	struct op_core *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->sp = sp;
	link_init(&o->subs);
	(void)str_copy(o->op.id, sizeof(o->op.id), str_of(id));
	(void)str_copy(o->op.tenant, sizeof(o->op.tenant), str_of(tenant));
	(void)str_copy(o->op.kind, sizeof(o->op.kind), str_of(kind));
	(void)str_copy(o->op.target, sizeof(o->op.target), str_of(target));
	o->op.progress = -1;
	link_add_tail(&sp->operations, &o->link);
	sp->noperations++;
	return o;
}

static void op_maybe_free(struct op_core *o)
{
	if (!o->unlisted || !link_empty(&o->subs))
		return;
	json_decref(o->op.result);
	free(o);
}

static void op_unlist(struct op_core *o, bool forget)
{
	if (forget) {
		struct store_txn *t = store_begin(o->sp->store);

		if (t) {
			(void)store_del(t, "operation", o->op.id);
			FAULT_VOID(store_commit(t, NULL, NULL));
		}
	}
	link_del(&o->link);
	o->sp->noperations--;
	o->unlisted = true;
	op_maybe_free(o);
}

struct operation *operation_new(struct space *sp, const char *tenant, const char *kind, const char *target)
{
	char id[ID_LEN + 1];
	struct op_core *o;

	if (sp->noperations >= OPERATIONS_MAX)
		operations_sweep(sp);
	if (sp->noperations >= 2 * OPERATIONS_MAX)
		return NULL; /* so many are running at once */
	id_make(id, 'o');
	o = op_make(sp, id, tenant, kind, target ? target : "");
	if (!o)
		return NULL;
	o->op.created_ns = real_ns();
	save(o);
	return &o->op;
}

static void tell(struct op_core *o)
{
	o->telling = true;
	link_each_safe(l, next, &o->subs) {
		struct operation_sub *s = container_of(l, struct operation_sub, link);

		if (!s->dropped)
			s->fn(&o->op, s->arg);
	}
	o->telling = false;
	link_each_safe(l, next, &o->subs) {
		struct operation_sub *s = container_of(l, struct operation_sub, link);

		if (s->dropped) {
			link_del(&s->link);
			free(s);
		}
	}
}

void operation_step(struct operation *op, const char *step, double progress)
{
	struct op_core *o = container_of(op, struct op_core, op);

	if (op->state != OPERATION_RUNNING)
		return;
	if (step) {
		snprintf(op->step, sizeof(op->step), "%s", step);
	}
	op->progress = progress;
	tell(o);
}

void operation_end(struct operation *op, json_t *result, const struct fail *why)
{
	struct op_core *o = container_of(op, struct op_core, op);

	if (op->state != OPERATION_RUNNING) {
		json_decref(result);
		return;
	}
	op->ended_ns = real_ns();
	op->state = why && why->err ? OPERATION_FAILED : OPERATION_DONE;
	op->result = result;
	if (op->state == OPERATION_FAILED)
		op->fail = *why;
	else
		op->progress = 1;
	save(o);
	tell(o);
}

struct operation *operation_find(struct space *sp, const char *tenant, struct str id)
{
	link_each_safe(l, next, &sp->operations) {
		struct op_core *o = container_of(l, struct op_core, link);

		if (str_eqz(id, o->op.id) && (!tenant || !strcmp(tenant, o->op.tenant)))
			return &o->op;
	}
	return NULL;
}

void operation_each(struct space *sp, const char *tenant, int (*fn)(struct operation *op, void *arg), void *arg)
{
	struct link *prev;

	for (struct link *l = sp->operations.prev; l != &sp->operations; l = prev) {
		struct op_core *o = container_of(l, struct op_core, link);

		prev = l->prev;
		if (!tenant || !strcmp(tenant, o->op.tenant))
			if (!fn(&o->op, arg))
				return;
	}
}

struct operation_sub *operation_subscribe(struct operation *op, void (*fn)(struct operation *op, void *arg), void *arg)
{
	struct operation_sub *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->o = container_of(op, struct op_core, op);
	s->fn = fn;
	s->arg = arg;
	link_add_tail(&s->o->subs, &s->link);
	return s;
}

/* A walk over the subscriptions may be under way: it frees what is marked at its end. Outside of one nobody is being called. */
void operation_unsubscribe(struct operation_sub *s)
{
	if (!s || s->dropped)
		return;
	s->dropped = true;
	if (s->o->telling)
		return;
	link_del(&s->link);
	op_maybe_free(s->o);
	free(s);
}

/* Ended more than an hour ago, or the oldest ended ones of too many. */
void operations_sweep(struct space *sp)
{
	int64_t now = real_ns();

	link_each_safe(l, next, &sp->operations) {
		struct op_core *o = container_of(l, struct op_core, link);

		if (o->op.state == OPERATION_RUNNING)
			continue;
		if (now - o->op.ended_ns > ENDED_KEEP_NS || sp->noperations > OPERATIONS_MAX)
			op_unlist(o, true);
	}
}

void operations_clear(struct space *sp)
{
	link_each_safe(l, next, &sp->operations)
		op_unlist(container_of(l, struct op_core, link), false);
}

int operation_load(struct space *sp, struct str body, struct fail *why)
{
	struct rec {
		const char *id, *tenant, *kind, *target, *state;
		int64_t created_ns, ended_ns;
		json_t *result, *error;
	} r = { 0 };
	static const struct field fields[] = {
		STR_FIELD(struct rec, id, 23, true), STR_FIELD(struct rec, tenant, 31, true), STR_FIELD(struct rec, kind, 23, true),
		STR_FIELD(struct rec, target, 23, false), STR_FIELD(struct rec, state, 15, true),
		INT_FIELD(struct rec, created_ns, 0, INT64_MAX, false), INT_FIELD(struct rec, ended_ns, 0, INT64_MAX, false),
		ANY_FIELD(struct rec, result, false), OBJ_FIELD(struct rec, error, 8, false),
	};
	autojson json_t *j = json_read(body, why);
	struct op_core *o;
	struct fail f = { 0 };

	if (!j || fields_read_loose(j, fields, ARRAY_LEN(fields), &r, why) < 0)
		return why->err;
	o = op_make(sp, r.id, r.tenant, r.kind, r.target);
	if (!o)
		return fail_set(why, -ENOMEM, "out of memory");
	o->op.created_ns = r.created_ns;
	if (!strcmp(r.state, "running")) {
		fail_as(&f, ERR_internal, "interrupted: spaced was restarted");
		fail_remedy(&f, "call it again");
		operation_end(&o->op, NULL, &f);
		return 0;
	}
	o->op.ended_ns = r.ended_ns;
	o->op.state = strcmp(r.state, "done") ? OPERATION_FAILED : OPERATION_DONE;
	o->op.progress = o->op.state == OPERATION_DONE ? 1 : -1;
	o->op.result = r.result ? json_incref(r.result) : NULL;
	if (o->op.state == OPERATION_FAILED) {
		const char *code = json_string_value(json_object_get(r.error, "code"));
		const char *msg = json_string_value(json_object_get(r.error, "message"));
		enum errcode e = code ? err_by_name(code, strlen(code)) : ERR_internal;

		fail_as(&o->op.fail, e == ERR_NONE ? ERR_internal : e, "%s", msg ? msg : "unknown");
	}
	return 0;
}
