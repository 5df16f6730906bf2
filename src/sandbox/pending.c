/* pending.c - what of space.h is not there yet: each answers so. Whoever brings the real one takes it out here. */
#include "sandbox/core.h"

static void not_yet(struct fail *why)
{
	*why = (struct fail){ 0 };
	fail_as(why, ERR_unsupported, "this is not there yet");
}

void space_usage_json(struct space *sp, const char *tenant, json_done_fn *done, void *arg)
{
	struct fail why;

	not_yet(&why);
	done(NULL, &why, arg);
}

struct operation *space_fsck(struct space *sp, const char *tenant, struct fail *why)
{
	not_yet(why);
	return NULL;
}

void checkpoint_export(struct space *sp, const char *tenant, const char *id, int fd, json_done_fn *done, void *arg)
{
	struct fail why;

	close(fd);
	not_yet(&why);
	done(NULL, &why, arg);
}

void checkpoint_import(struct space *sp, const char *tenant, int fd, checkpoint_done_fn *done, void *arg)
{
	struct fail why;

	close(fd);
	not_yet(&why);
	done(NULL, &why, arg);
}

