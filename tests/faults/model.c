/* model.c - what was acknowledged, and whether it is there: see faults.h. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "faults.h"
#include "sandbox_fake.h"

#define BIT(s) (1u << SANDBOX_##s)

/* --- the books --- */

void complain(const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	model->failures++;
	if (model->failures <= 40)
		printf("%s, %s at %s%s: %s\n", op_names[model->op],
			((const char *[]){ "killed", "its monitor killed", "both killed", "an error" })[model->mode], model->point[0] ? model->point : "no point",
			model->fired ? "" : " (not yet)", text);
}

struct model_sb *model_find(const char *id)
{
	for (unsigned i = 0; i < model->nsb; i++)
		if (!strcmp(model->sb[i].id, id))
			return &model->sb[i];
	return NULL;
}

struct model_node *model_node(const char *id)
{
	for (unsigned i = 0; i < model->nnodes; i++)
		if (!strcmp(model->node[i].id, id))
			return &model->node[i];
	return NULL;
}

void model_add(const char *id, enum sandbox_state state, const char *content)
{
	struct model_sb *sb = &model->sb[model->nsb];

	if (model->nsb == SB_MAX)
		abort();
	*sb = (struct model_sb){ .state = state };
	snprintf(sb->id, sizeof(sb->id), "%s", id);
	snprintf(sb->content, sizeof(sb->content), "%s", content);
	model->nsb++; /* last: a death before it has added nothing */
}

void model_drop(const char *id)
{
	struct model_sb *sb = model_find(id);

	if (sb)
		*sb = model->sb[--model->nsb];
}

void model_add_node(const char *id, const char *sandbox, const char *content, bool snapshot)
{
	struct model_node *n = &model->node[model->nnodes];

	if (model->nnodes == NODES_MAX)
		abort();
	*n = (struct model_node){ .snapshot = snapshot };
	snprintf(n->id, sizeof(n->id), "%s", id);
	snprintf(n->sandbox, sizeof(n->sandbox), "%s", sandbox);
	snprintf(n->content, sizeof(n->content), "%s", content);
	model->nnodes++;
}

void model_drop_node(const char *id)
{
	struct model_node *n = model_node(id);

	if (n)
		*n = model->node[--model->nnodes];
}

/* --- contents --- */

static bool read_text(const char *path, char out[24])
{
	autofree char *text = NULL;
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[24];
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (n < 0)
		return false;
	buf[n] = '\0';
	snprintf(out, 24, "%s", buf);
	return true;
}

static void memory_path(char out[400], const char *id)
{
	snprintf(out, 400, "%s/sandboxes/%s/content", cfg.run_dir, id);
}

static void disk_path(char out[400], const char *id)
{
	snprintf(out, 400, "%s/pool/sandboxes/%s/disk", cfg.state_dir, id);
}

void write_content(const char *id, const char *text)
{
	struct model_sb *sb = model_find(id);
	char path[400], all[24] = "";
	int fd;

	if (!sb)
		return;
	sb->content[0] = '\0'; /* neither the old nor the new, until both are written */
	snprintf(all, sizeof(all), "%s", text);
	memory_path(path, id);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite(fd, all, sizeof(all), 0) != sizeof(all))
		complain("%s: %s", path, strerror(errno));
	close(fd);
	disk_path(path, id);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || pwrite(fd, all, sizeof(all), 0) != sizeof(all))
		complain("%s: %s", path, strerror(errno));
	close(fd);
	snprintf(sb->content, sizeof(sb->content), "%s", text);
}

static bool is_one_of(const char *have, const char *a, const char *b)
{
	return !strcmp(have, a) || (b && !strcmp(have, b));
}

/* What memory and disk say: the same, and what it should be. */
static void check_content(struct model_sb *sb)
{
	bool back = model->op == OP_ROLLBACK && !strcmp(model->target, sb->id);
	struct model_node *n = back ? model_node(model->node_id) : NULL;
	char path[400], mem[24] = "", disk[24] = "";
	bool has_mem;

	if (!sb->content[0])
		return;
	memory_path(path, sb->id);
	has_mem = read_text(path, mem) && mem[0]; /* one that booted has none, or an empty one */
	disk_path(path, sb->id);
	if (!read_text(path, disk))
		complain("sandbox %s has no disk", sb->id);
	else if (!is_one_of(disk, sb->content, n ? n->content : NULL))
		complain("sandbox %s: its disk has \"%s\" and should have \"%s\"", sb->id, disk, sb->content);
	else if (has_mem && strcmp(mem, disk))
		complain("sandbox %s: its memory has \"%s\", its disk \"%s\"", sb->id, mem, disk);
	else
		snprintf(sb->content, sizeof(sb->content), "%s", disk);
}

/* --- what may be --- */

static unsigned allowed(const struct model_sb *sb)
{
	unsigned mask = 1u << sb->state;

	if (model->op && !strcmp(sb->id, model->target))
		switch (model->op) {
		case OP_KILL:
		case OP_KILL_SUSPENDED: /* its machine may be gone, and that it was to go not be written */
			mask |= BIT(STOPPED) | (model->mode == MODE_ERROR ? BIT(FAILED) : 0);
			break;
		case OP_PAUSE:
			mask |= BIT(PAUSED);
			break;
		case OP_WAKE:
		case OP_WAKE_SUSPENDED:
			mask |= BIT(RUNNING);
			break;
		case OP_ROLLBACK: /* lies in the checkpoint meanwhile */
			mask |= BIT(RUNNING) | BIT(SUSPENDED);
			break;
		case OP_SUSPEND:
			mask |= BIT(SUSPENDED);
			break;
		default:
			break;
		}
	if (model->loss && (mask & (BIT(RUNNING) | BIT(PAUSED))))
		mask |= BIT(FAILED);
	return mask;
}

static void check_known(struct space *sp, bool restart)
{
	for (unsigned i = 0; i < model->nsb; i++) {
		struct model_sb *sb = &model->sb[i];
		struct sandbox_core *c = core_by_id(sp, str_of(sb->id));

		if (!c) {
			complain("sandbox %s (%s) is not there any more", sb->id, sandbox_state_name(sb->state));
		} else if (!(allowed(sb) & (1u << c->sb.state))) {
			complain("sandbox %s was %s and is %s (%s: %s)", sb->id, sandbox_state_name(sb->state), sandbox_state_name(c->sb.state),
				 c->sb.reason, c->fail.msg);
		} else if (c->sb.state == SANDBOX_FAILED) {
			model->lost_by_monitor++;
			if (!c->sb.reason[0])
				complain("sandbox %s failed without a reason", sb->id);
		}
		if (!restart && c && model->op && state_ended(c->sb.state) && !strcmp(sb->id, model->target))
			continue; /* its end may not have got to the disk: nobody was told of it */
		if (!c || state_ended(c->sb.state)) {
			*sb = model->sb[--model->nsb];
			i--;
			continue;
		}
		/* In a daemon that could not write it down the target may be in a state that a restart does not find; nobody was told so. */
		if (restart || strcmp(sb->id, model->target))
			sb->state = c->sb.state;
		if (c->sb.state == SANDBOX_RUNNING || c->sb.state == SANDBOX_PAUSED)
			check_content(sb);
		else if (model->op == OP_ROLLBACK && !strcmp(sb->id, model->target) && model_node(model->node_id)) /* it lies in the checkpoint */
			snprintf(sb->content, sizeof(sb->content), "%s", model_node(model->node_id)->content);
	}
}

static bool may_make_sandboxes(enum op op)
{
	return op == OP_CREATE || op == OP_CREATE_CHECKPOINT || op == OP_CREATE_SNAPSHOT || op == OP_BRANCH || op == OP_BRANCH_SUSPENDED;
}

static void check_unknown(struct space *sp)
{
	unsigned extra = 0;

	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (state_ended(c->sb.state)) {
			if (c->sb.state == SANDBOX_FAILED && !c->sb.reason[0])
				complain("sandbox %s failed without a reason", c->sb.id);
			continue;
		}
		if (model_find(c->sb.id))
			continue;
		extra++;
		if (!may_make_sandboxes(model->op) || c->sb.state != SANDBOX_RUNNING)
			complain("sandbox %s: nobody knows it, and it is %s", c->sb.id, sandbox_state_name(c->sb.state));
		model_add(c->sb.id, c->sb.state, "");
	}
	if (extra > 2)
		complain("%u sandboxes that nobody knows", extra);
}

/* --- nodes --- */

static void check_node(struct space *sp, struct model_node *n)
{
	bool may_go = model->op == OP_PRUNE || (model->op == OP_REMOVE && !strcmp(model->node_id, n->id));
	struct fail why = { 0 };
	char path[400], text[24] = "";

	if (!checkpoint_find(sp, TENANT_DEFAULT, str_of(n->id), &why)) {
		if (!may_go)
			complain("checkpoint %s is not there any more: %s", n->id, why.msg);
		model_drop_node(n->id);
		return;
	}
	snprintf(path, sizeof(path), "%s/pool/nodes/%s/disk", cfg.state_dir, n->id);
	if (!read_text(path, text) || strcmp(text, n->content))
		complain("checkpoint %s: its disk has \"%s\" and should have \"%s\"", n->id, text, n->content);
	snprintf(path, sizeof(path), "%s/pool/nodes/%s/memory", cfg.state_dir, n->id);
	if (!n->snapshot && (!read_text(path, text) || strcmp(text, n->content)))
		complain("checkpoint %s: its memory has \"%s\" and should have \"%s\"", n->id, text, n->content);
}

static int on_node(const struct checkpoint *k, void *arg)
{
	unsigned *extra = arg;
	char path[400], text[24] = "";

	if ((k->kind != NODE_CHECKPOINT && k->kind != NODE_SNAPSHOT) || model_node(k->id))
		return 1;
	++*extra;
	snprintf(path, sizeof(path), "%s/pool/nodes/%s/disk", cfg.state_dir, k->id);
	if (!read_text(path, text))
		complain("checkpoint %s, not acknowledged, has no disk", k->id);
	model_add_node(k->id, k->sandbox, text, k->kind == NODE_SNAPSHOT);
	return 1;
}

static void check_nodes(struct space *sp)
{
	unsigned extra = 0;

	for (unsigned i = model->nnodes; i > 0; i--)
		check_node(sp, &model->node[i - 1]);
	checkpoint_each(sp, TENANT_DEFAULT, NULL, on_node, &extra);
	if (extra > (model->op == OP_NONE || model->op == OP_START ? 0 : 1))
		complain("%u checkpoints that nobody knows", extra);
}

/* --- leftovers --- */

static unsigned count_dir(const char *path, bool (*mine)(struct space *sp, const char *name), struct space *sp, char odd[64])
{
	DIR *d = opendir(path);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			n++;
			if (mine && !mine(sp, e->d_name))
				snprintf(odd, 64, "%.63s", e->d_name);
		}
	if (d)
		closedir(d);
	return n;
}

static bool has_machine(struct space *sp, const char *id)
{
	struct sandbox_core *c = core_by_id(sp, str_of(id));

	return c && (c->sb.state == SANDBOX_RUNNING || c->sb.state == SANDBOX_PAUSED);
}

static bool is_node(struct space *sp, const char *id)
{
	return tree_find(sp, id) != NULL;
}

static unsigned monitors(void)
{
	char path[128];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/born", fake.dir);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		char stat[64];
		autofree char *text = NULL;
		pid_t pid = atoi(e->d_name);

		if (pid <= 0)
			continue;
		snprintf(stat, sizeof(stat), "/proc/%d/stat", (int)pid);
		if (file_read(AT_FDCWD, stat, &text, 4096) < 0 || strstr(text, ") Z "))
			unlinkat(dirfd(d), e->d_name, 0);
		else
			n++;
	}
	if (d)
		closedir(d);
	return n;
}

static char leftover[300];
bool struck_here;

static bool nothing_left(struct space *sp)
{
	char path[400], odd[64] = "";
	unsigned machines = 0, n;

	for (unsigned i = 0; i < model->nsb; i++)
		machines += has_machine(sp, model->sb[i].id);
	snprintf(path, sizeof(path), "%s/sandboxes", cfg.run_dir);
	if ((n = count_dir(path, has_machine, sp, odd)) != machines || odd[0])
		return snprintf(leftover, sizeof(leftover), "%u run directories for %u machines %s", n, machines, odd), false;
	snprintf(path, sizeof(path), "%s/pool/sandboxes", cfg.state_dir);
	if ((n = count_dir(path, has_machine, sp, odd)) != machines || odd[0])
		return snprintf(leftover, sizeof(leftover), "%u disks for %u machines %s", n, machines, odd), false;
	snprintf(path, sizeof(path), "%s/slots", fake.dir);
	if ((n = count_dir(path, NULL, sp, odd)) != machines)
		return snprintf(leftover, sizeof(leftover), "%u slots for %u machines", n, machines), false;
	if ((n = monitors()) != machines)
		return snprintf(leftover, sizeof(leftover), "%u monitors for %u machines", n, machines), false;
	snprintf(path, sizeof(path), "%s/pool/nodes", cfg.state_dir);
	(void)count_dir(path, is_node, sp, odd);
	if (odd[0])
		return snprintf(leftover, sizeof(leftover), "node %s in the pool, without a record", odd), false;
	snprintf(path, sizeof(path), "%s/pool/tmp", cfg.state_dir);
	if ((n = count_dir(path, NULL, sp, odd)) != 2)
		return snprintf(leftover, sizeof(leftover), "%u entries in pool/tmp", n), false;
	return true;
}

/* Records of nodes whose files are gone. */
static void check_records(struct space *sp)
{
	link_each_safe(l, next, &sp->nodes) {
		struct tree_node *n = container_of(l, struct tree_node, link);
		char path[400];

		snprintf(path, sizeof(path), "%s/pool/nodes/%s/node.json", cfg.state_dir, n->k.id);
		if (!n->removing && access(path, F_OK) < 0)
			complain("checkpoint %s (%s) has a record and no files", n->k.id, node_kind_name(n->k.kind));
	}
}

bool at_rest(struct space *sp)
{
	if (sp->jobs)
		return false;
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (c->sb.state != c->state || c->start || c->doing || c->moves || (c->ending && !state_ended(c->state)))
			return false;
	}
	return true;
}

void verify(struct space *sp, bool restart)
{
	wait_until(at_rest, sp, 5000);
	if (!at_rest(sp))
		complain("something is still under way five seconds later");
	check_known(sp, restart);
	check_unknown(sp);
	check_nodes(sp);
	/* What could not be removed for an error is the next start's, which the next turn looks at. */
	if (!struck_here || model->mode != MODE_ERROR) {
		wait_until(nothing_left, sp, 1000);
		if (!nothing_left(sp))
			complain("left behind: %s", leftover);
	}
	check_records(sp);
	if (restart) { /* before that an end may not have been seen yet, and what failed may have been done all the same */
		model->loss = false;
		model->op = OP_NONE;
		model->target[0] = model->node_id[0] = '\0';
	}
	model->verified = true;
}
