/* pending.c - what of space.h is not there yet: each answers so. Whoever brings the real one takes it out here. */
#include "sandbox/core.h"

static void not_yet(struct fail *why)
{
	*why = (struct fail){ 0 };
	fail_as(why, ERR_unsupported, "this is not there yet");
}

void sandbox_checkpoint(struct sandbox *sb, const struct checkpoint_req *q, checkpoint_done_fn *done, void *arg)
{
	struct fail why;

	not_yet(&why);
	done(NULL, &why, arg);
}

void sandbox_suspend(struct sandbox *sb, sandbox_done_fn *done, void *arg)
{
	struct fail why;

	not_yet(&why);
	done(NULL, &why, arg);
}

void sandbox_rollback(struct sandbox *sb, const char *checkpoint, sandbox_done_fn *done, void *arg)
{
	struct fail why;

	not_yet(&why);
	done(NULL, &why, arg);
}

void sandbox_branch(struct sandbox *sb, const struct branch_req *q, branch_done_fn *done, void *arg)
{
	struct branch_result res = { 0 };
	struct fail why;

	not_yet(&why);
	done(&res, &why, arg);
}

const struct checkpoint *checkpoint_find(struct space *sp, const char *tenant, struct str id_or_label, struct fail *why)
{
	fail_as(why, ERR_checkpoint_not_found, "no checkpoint \"%.*s\"", (int)MIN(id_or_label.n, 64), id_or_label.p ? id_or_label.p : "");
	return NULL;
}

void checkpoint_each(struct space *sp, const char *tenant, const char *sandbox, int (*fn)(const struct checkpoint *k, void *arg), void *arg)
{
}

void checkpoint_remove(struct space *sp, const char *tenant, const char *id, void (*done)(const struct fail *why, void *arg), void *arg)
{
	struct fail why;

	not_yet(&why);
	done(&why, arg);
}

void checkpoint_prune(struct space *sp, const char *tenant, const struct prune_req *q, json_done_fn *done, void *arg)
{
	struct fail why;

	not_yet(&why);
	done(NULL, &why, arg);
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

const char *node_kind_name(enum node_kind k)
{
	static const char *const names[] = { "template", "checkpoint", "snapshot", "branch", "suspend" };

	static_assert(ARRAY_LEN(names) == NODE_KINDS, "one name per kind");
	return k < NODE_KINDS ? names[k] : "unknown";
}

void save_node(struct sandbox_core *c, const struct save_req *q, save_fn *fn, void *arg)
{
	struct fail why;

	not_yet(&why);
	fn(NULL, &why, arg);
}

void revive(struct sandbox_core *c, const char *node, bool boot, bool keep_identity, identity_fn *fn, void *arg)
{
	struct fail why;

	not_yet(&why);
	fn(&why, arg);
}
