/* ops.c - the operations, each through to its answer; the model learns of it when the answer is there. See faults.h. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "faults.h"

#define ANSWER_MS 20000
#define KEEP_SANDBOXES 6
#define KEEP_NODES 5

const char *const op_names[OPS] = {
	"nothing", "start", "stop", "create", "kill", "pause", "wake", "timeout", "key", "checkpoint", "snapshot", "create from a checkpoint",
	"create from a snapshot", "suspend", "wake from suspension", "kill of a suspended one", "checkpoint of a suspended one",
	"checkpoint of a paused one", "branch", "branch of a suspended one", "rollback", "remove", "prune", "export", "import",
};

static struct answer {
	bool done, ok;
	char id[24];
	struct fail why;
} answer;

static bool answered(struct space *sp)
{
	return answer.done;
}

static bool await(struct space *sp)
{
	wait_until(answered, sp, ANSWER_MS);
	if (!answer.done)
		complain("no answer in %d s", ANSWER_MS / 1000);
	return answer.ok;
}

static void settle_answer(bool ok, const char *id, const struct fail *why)
{
	answer.done = true;
	answer.ok = ok;
	if (id)
		snprintf(answer.id, sizeof(answer.id), "%s", id);
	if (why)
		answer.why = *why;
}

/* --- answers --- */

static void on_sandbox(struct sandbox *sb, const struct fail *why, void *arg)
{
	enum op op = (enum op)(intptr_t)arg;
	struct model_sb *m = sb ? model_find(sb->id) : NULL;
	struct model_node *n = model_node(model->node_id);

	settle_answer(sb != NULL, sb ? sb->id : NULL, why);
	if (!sb)
		return;
	switch (op) {
	case OP_CREATE:
		model_add(sb->id, SANDBOX_RUNNING, "");
		break;
	case OP_CREATE_CHECKPOINT:
	case OP_CREATE_SNAPSHOT:
		model_add(sb->id, SANDBOX_RUNNING, n ? n->content : "");
		break;
	case OP_KILL:
	case OP_KILL_SUSPENDED:
		model_drop(sb->id);
		break;
	case OP_ROLLBACK:
		if (m && n)
			snprintf(m->content, sizeof(m->content), "%s", n->content);
		/* fallthrough */
	default:
		if (m)
			m->state = sb->state;
	}
}

static void on_node(const struct checkpoint *k, const struct fail *why, void *arg)
{
	struct model_sb *m = model_find(model->target);
	struct model_node *n = model_node(model->node_id);

	settle_answer(k != NULL, k ? k->id : NULL, why);
	if (k)
		model_add_node(k->id, k->sandbox, arg ? (n ? n->content : "") : m ? m->content : "", k->kind == NODE_SNAPSHOT);
}

static void on_branch(const struct branch_result *res, const struct fail *why, void *arg)
{
	struct model_sb *parent = model_find(model->target);
	char content[24];

	settle_answer(res->from != NULL, NULL, why);
	snprintf(content, sizeof(content), "%s", parent ? parent->content : "");
	for (unsigned i = 0; i < res->count; i++)
		model_add(res->sandboxes[i]->id, SANDBOX_RUNNING, content);
	if (res->nfailed && model->mode == MODE_KILL)
		complain("a sibling did not start: %s", res->failed[0].msg);
}

static void on_removed(const struct fail *why, void *arg)
{
	settle_answer(!why->err, NULL, why);
	if (!why->err)
		model_drop_node(model->node_id);
}

static void on_pruned(json_t *value, const struct fail *why, void *arg)
{
	json_t *id;
	size_t i;

	settle_answer(value != NULL, NULL, why);
	json_array_foreach(json_object_get(value, "removed"), i, id)
		model_drop_node(json_string_value(id));
}

static void on_json(json_t *value, const struct fail *why, void *arg)
{
	settle_answer(value != NULL, NULL, why);
}

static void on_key(const struct key_info *k, const struct fail *why, void *arg)
{
	settle_answer(k != NULL, NULL, why);
}

static void on_gone(void *arg)
{
	settle_answer(true, NULL, NULL);
}

/* --- calls --- */

static struct sandbox *target(struct space *sp)
{
	struct sandbox_core *c = core_by_id(sp, str_of(model->target));

	return c ? &c->sb : NULL;
}

static int export_file(int flags)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/export", cfg.state_dir);
	return open(path, flags | O_CLOEXEC, 0600);
}

static void call(struct space *sp, enum op op)
{
	struct create_req q = { .timeout_s = 0, .idle_timeout_s = 0 };
	struct checkpoint_req k = { 0 };
	struct branch_req b = { .count = 2, .timeout_s = -1 };
	struct prune_req p = { .checkpoints = true, .snapshots = true };
	void *arg = (void *)(intptr_t)op;
	struct sandbox *sb = target(sp);
	char text[64];

	switch (op) {
	case OP_CREATE_CHECKPOINT:
	case OP_CREATE_SNAPSHOT:
		*(op == OP_CREATE_CHECKPOINT ? &q.checkpoint : &q.snapshot) = model->node_id;
		/* fallthrough */
	case OP_CREATE:
		sandbox_create(sp, TENANT_DEFAULT, &q, on_sandbox, arg);
		break;
	case OP_KILL:
	case OP_KILL_SUSPENDED:
		sandbox_kill(sb, "killed", on_sandbox, arg);
		break;
	case OP_PAUSE:
		sandbox_pause(sb, on_sandbox, arg);
		break;
	case OP_WAKE:
	case OP_WAKE_SUSPENDED:
		sandbox_wake(sb, on_sandbox, arg);
		break;
	case OP_TIMEOUT:
		sandbox_set_timeout(sb, 3600, on_sandbox, arg);
		break;
	case OP_KEY:
		key_create(sp, TENANT_DEFAULT, "k", SCOPE_USE, text, on_key, arg);
		break;
	case OP_SUSPEND:
		sandbox_suspend(sb, on_sandbox, arg);
		break;
	case OP_SNAPSHOT:
		k.disk_only = true;
		/* fallthrough */
	case OP_CHECKPOINT:
	case OP_CHECKPOINT_PAUSED:
	case OP_CHECKPOINT_SUSPENDED:
		sandbox_checkpoint(sb, &k, on_node, NULL);
		break;
	case OP_BRANCH:
	case OP_BRANCH_SUSPENDED:
		sandbox_branch(sb, &b, on_branch, arg);
		break;
	case OP_ROLLBACK:
		sandbox_rollback(sb, model->node_id, on_sandbox, arg);
		break;
	case OP_REMOVE:
		checkpoint_remove(sp, TENANT_DEFAULT, model->node_id, on_removed, arg);
		break;
	case OP_PRUNE:
		checkpoint_prune(sp, TENANT_DEFAULT, &p, on_pruned, arg);
		break;
	case OP_EXPORT:
		checkpoint_export(sp, TENANT_DEFAULT, model->node_id, export_file(O_WRONLY | O_CREAT | O_TRUNC), on_json, arg);
		break;
	case OP_IMPORT:
		checkpoint_import(sp, TENANT_DEFAULT, export_file(O_RDONLY), on_node, arg);
		break;
	case OP_STOP:
		space_stop(sp, on_gone, NULL);
		break;
	default:
		settle_answer(true, NULL, NULL);
	}
}

/* Nothing strikes here. The answer, or a complaint. */
static bool plainly(struct space *sp, enum op op, const char *id, const char *node)
{
	enum op was = model->op;

	model->op = op;
	snprintf(model->target, sizeof(model->target), "%s", id ? id : "");
	snprintf(model->node_id, sizeof(model->node_id), "%s", node ? node : "");
	answer = (struct answer){ 0 };
	call(sp, op);
	if (!await(sp) && (op != OP_REMOVE || answer.why.code != ERR_busy))
		complain("in peace: %s", answer.why.msg);
	model->op = was;
	return answer.ok;
}

void op_run(struct space *sp, enum op op)
{
	answer = (struct answer){ 0 };
	model->op = op;
	call(sp, op);
	/* A node that a suspended sandbox lies in is not removed. */
	if (!await(sp) && !fault_fired() && (op != OP_REMOVE || answer.why.code != ERR_busy))
		complain("failed without a cause: %s", answer.why.msg);
	if (answer.ok) /* else it may have been done or not */
		model->op = OP_NONE;
}

void op_stop(struct space *sp)
{
	answer = (struct answer){ 0 };
	space_stop(sp, on_gone, NULL);
	(void)await(sp);
}

/* --- what an operation needs --- */

static const char *fresh(void)
{
	static char text[24];

	snprintf(text, sizeof(text), "content %u", ++model->serial);
	return text;
}

/* One that is in that state, made if there is none. NULL after a complaint. */
static const char *one_in(struct space *sp, enum sandbox_state state)
{
	char id[24];

	for (unsigned i = 0; i < model->nsb; i++)
		if (model->sb[i].state == state && model->sb[i].content[0])
			return model->sb[i].id;
	if (!plainly(sp, OP_CREATE, NULL, NULL))
		return NULL;
	memcpy(id, answer.id, sizeof(id));
	write_content(id, fresh());
	if (state == SANDBOX_PAUSED && !plainly(sp, OP_PAUSE, id, NULL))
		return NULL;
	if (state == SANDBOX_SUSPENDED && !plainly(sp, OP_SUSPEND, id, NULL))
		return NULL;
	return model_find(id) ? model_find(id)->id : NULL;
}

/* A checkpoint or snapshot; OF: of that sandbox. */
static const char *one_node(struct space *sp, bool snapshot, const char *of)
{
	for (unsigned i = 0; i < model->nnodes; i++)
		if (model->node[i].snapshot == snapshot && model->node[i].content[0] && (!of || !strcmp(model->node[i].sandbox, of)))
			return model->node[i].id;
	if (!of)
		of = one_in(sp, SANDBOX_RUNNING);
	if (!of || !plainly(sp, snapshot ? OP_SNAPSHOT : OP_CHECKPOINT, of, NULL))
		return NULL;
	return model->node[model->nnodes - 1].id;
}

bool op_prepare(struct space *sp, enum op op)
{
	const char *id = "", *node = "";
	char of[24], which[24];

	switch (op) {
	case OP_KILL:
	case OP_PAUSE:
	case OP_TIMEOUT:
	case OP_CHECKPOINT:
	case OP_SNAPSHOT:
	case OP_SUSPEND:
	case OP_BRANCH:
		id = one_in(sp, SANDBOX_RUNNING);
		break;
	case OP_WAKE:
	case OP_CHECKPOINT_PAUSED:
		id = one_in(sp, SANDBOX_PAUSED);
		break;
	case OP_WAKE_SUSPENDED:
	case OP_KILL_SUSPENDED:
	case OP_CHECKPOINT_SUSPENDED:
	case OP_BRANCH_SUSPENDED:
		id = one_in(sp, SANDBOX_SUSPENDED);
		break;
	case OP_ROLLBACK:
		id = one_in(sp, SANDBOX_RUNNING);
		node = id ? one_node(sp, false, id) : NULL;
		if (id && node)
			write_content(id, fresh());
		break;
	case OP_CREATE_CHECKPOINT:
	case OP_EXPORT:
	case OP_REMOVE:
		node = one_node(sp, false, NULL);
		break;
	case OP_PRUNE: /* what a living one came from stays */
		node = one_node(sp, false, NULL);
		snprintf(of, sizeof(of), "%s", node && model_node(node) ? model_node(node)->sandbox : "");
		if (model_find(of) && !plainly(sp, OP_KILL, of, NULL))
			return false;
		break;
	case OP_CREATE_SNAPSHOT:
		node = one_node(sp, true, NULL);
		break;
	case OP_IMPORT:
		node = one_node(sp, false, NULL);
		if (!node || !plainly(sp, OP_EXPORT, NULL, node))
			return false;
		break;
	default:
		break;
	}
	if (!id || !node)
		return false;
	snprintf(of, sizeof(of), "%s", id);
	snprintf(which, sizeof(which), "%s", node);
	memcpy(model->target, of, sizeof(of));
	memcpy(model->node_id, which, sizeof(which));
	return true;
}

void tidy(struct space *sp)
{
	char id[24];

	while (model->nsb > KEEP_SANDBOXES || (model->nsb && !model->sb[model->nsb - 1].content[0] && model->sb[model->nsb - 1].state == SANDBOX_RUNNING)) {
		memcpy(id, model->sb[model->nsb - 1].id, sizeof(id));
		if (!plainly(sp, OP_KILL, id, NULL))
			return;
	}
	for (unsigned i = 0; model->nnodes > KEEP_NODES && i < model->nnodes;) { /* one that a suspended sandbox lies in is refused */
		memcpy(id, model->node[i].id, sizeof(id));
		i += !plainly(sp, OP_REMOVE, NULL, id);
	}
}
