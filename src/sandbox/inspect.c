/* inspect.c - what the API shows beside the records: small looks into the core. */
#include "sandbox/core.h"

const char *space_driver(const struct space *sp)
{
	return sp->drv->name;
}

const char *space_driver_version(const struct space *sp)
{
	return sp->drv_version;
}

const char *space_storage(const struct space *sp)
{
	return sp->copies ? "copy" : "clone";
}

struct pool *space_pool(const struct space *sp)
{
	return sp->pool;
}

const json_t *sandbox_tmpfs(const struct sandbox *sb)
{
	return sb->core->tmpfs;
}

pid_t sandbox_monitor_pid(const struct sandbox *sb)
{
	const struct sandbox_core *c = sb->core;

	return c->m && c->m->vm ? vm_pid(c->m->vm) : 0;
}

void operation_set_target(struct operation *op, const char *target)
{
	(void)str_copy(op->target, sizeof(op->target), str_of(target));
}

struct listing {
	event_fn *fn;
	void *arg;
};

static int on_row(void *arg, const struct store_event_row *row)
{
	struct listing *l = arg;
	struct event e = { row->seq, row->at_ns, row->tenant, row->sandbox, row->type, row->body };

	l->fn(&e, l->arg);
	return 0;
}

int event_list(struct space *sp, const char *tenant, const char *sandbox, uint64_t after, unsigned limit, event_fn *fn, void *arg,
	       struct fail *why)
{
	struct listing l = { fn, arg };

	return store_events(sp->store, tenant, sandbox, after, limit, on_row, &l, why);
}
