/* room.c - keeps free room in the storage pool: its image grows while the host has some to give.
 *
 * Looked at every few seconds in a job, never on a create's path: a create only asks for the last answer. */
#include "sandbox/core.h"

#include "base/log.h"

#define LOOK_MS (5 * 1000)
#define LEAST_FREE (512 * MIB) /* below this nothing new is started: those that run need what is left */

struct look {
	struct space *sp;
	uint64_t free;
};

static int look_job(void *arg, struct fail *why)
{
	struct look *l = arg;
	struct pool_info info;
	int r;

	if (!l->sp->cfg.pool_size)
		return pool_keep_room(l->sp->pool, &l->free, why);
	r = pool_info(l->sp->pool, &info, why); /* the operator has said how large it may be */
	if (r == 0)
		l->free = info.bytes_free;
	return r;
}

static void look(void *arg);

static void looked(void *arg, const struct fail *why)
{
	struct look *l = arg;
	struct space *sp = l->sp;

	if (why->err && !sp->room_failed)
		log_warning("%s free_mib=%llu", why->msg, (unsigned long long)(l->free / MIB));
	if (l->free < LEAST_FREE) /* some may have met the end of it */
		link_each_safe(at, next, &sp->sandboxes)
			pause_if_stuck(container_of(at, struct sandbox_core, link));
	sp->room_failed = why->err != 0;
	sp->room_free = l->free;
	free(l);
	if (!sp->stopping)
		later_set(sp, &sp->room, LOOK_MS, look, sp);
}

static void look(void *arg)
{
	struct look *l = calloc(1, sizeof(*l));

	if (!l) {
		later_set(arg, &((struct space *)arg)->room, LOOK_MS, look, arg);
		return;
	}
	*l = (struct look){ .sp = arg, .free = UINT64_MAX };
	space_job(l->sp, NULL, look_job, looked, l);
}

void room_watch(struct space *sp)
{
	sp->room_free = UINT64_MAX; /* nothing is known yet */
	look(sp);
}

int room_for_sandbox(struct space *sp, struct fail *why)
{
	if (sp->room_free >= LEAST_FREE)
		return 0;
	return fail_as(why, ERR_no_space, "the storage pool has %llu MiB left, too little for another sandbox",
		(unsigned long long)(sp->room_free / MIB));
}
