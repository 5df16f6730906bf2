/* slow.c - calls that take their time: answered at their end, or at once with an operation (Prefer: respond-async). */
#include <stdio.h>

#include "api/handlers.h"

struct slow *slow_begin(struct req *r, const char *kind, const char *target, int status)
{
	struct slow *s = calloc(1, sizeof(*s));
	struct operation *op;

	if (!s) {
		req_failf(r, ERR_no_capacity, "out of memory");
		return NULL;
	}
	s->status = status;
	if (req_wants_async(r)) {
		op = operation_new(r->api->sp, r->tenant, kind, target);
		if (!op) {
			free(s);
			req_failf(r, ERR_rate_limited, "too many operations are under way");
			return NULL;
		}
		snprintf(s->op, sizeof(s->op), "%s", op->id);
		req_operation(r, op);
	}
	s->r = req_ref(r);
	return s;
}

static void end_operation(struct slow *s, const char *noun, const void *what, slow_write_fn *write, const struct fail *why)
{
	struct operation *op = operation_find(s->r->api->sp, s->r->tenant, str_of(s->op));
	json_t *result = NULL;
	struct fail f = *why;
	struct buf b;
	struct jw w;

	if (!op)
		return;
	if (what) {
		f = (struct fail){ 0 };
		answer_begin(&w, &b);
		if (noun)
			jw_obj(&w, NULL);
		write(s->r, &w, noun, what);
		if (noun)
			jw_obj_end(&w);
		if (w.err)
			fail_set(&f, w.err, "the result does not fit into memory");
		else
			result = json_read(buf_str(&b), &f);
		buf_clear(&b);
	}
	operation_end(op, result, &f);
}

void slow_end(struct slow *s, const char *noun, const void *what, slow_write_fn *write, const struct fail *why)
{
	struct req *r = s->r;
	struct buf b;
	struct jw w;

	if (s->op[0]) {
		end_operation(s, noun, what, write, why);
	} else if (!what) {
		req_fail(r, why);
	} else {
		answer_begin(&w, &b);
		write(r, &w, NULL, what);
		req_json(r, s->status, &w);
	}
	free(s);
	req_unref(r);
}

void slow_sandbox(struct sandbox *sb, const struct fail *why, void *arg)
{
	struct slow *s = arg;
	struct operation *op;

	if (sb && s->op[0] && (op = operation_find(s->r->api->sp, s->r->tenant, str_of(s->op))))
		operation_set_target(op, sb->id);
	slow_end(s, "sandbox", sb, sandbox_write, why);
}
