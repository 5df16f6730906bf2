/* template_build.c - making a node that sandboxes start from: boot the image, become somebody, run the recipe, stand still, save.
 *
 * One struct build for a template (boot from an empty disk, run the setup) and for a variant of one (another size: boot from the template's
 * disk, where the setup's work is already; a read-only root has no disk, so there the setup runs again). A failure anywhere ends in
 * build_end(), which takes the machine apart. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/build.h"

#define BUILDS_MAX 4

static const struct {
	const char *what;
	double progress;
} steps[] = {
	[STEP_KERNEL] = { "kernel", 0.02 }, [STEP_BOOT] = { "starting the machine", 0.1 }, [STEP_AGENT] = { "booting", 0.15 },
	[STEP_INIT] = { "identity", 0.5 }, [STEP_WORKDIR] = { "identity", 0.5 }, [STEP_SETUP] = { "setup", 0.5 }, [STEP_START] = { "start command", 0.6 },
	[STEP_READY] = { "waiting until it is ready", 0.65 }, [STEP_WARM] = { "warming up", 0.7 }, [STEP_FREEZE] = { "standing still", 0.85 },
	[STEP_SAVE] = { "saving", 0.87 }, [STEP_NOTE] = { "saving", 0.95 }, [STEP_COMMIT] = { "saving", 0.96 },
	[STEP_RECORD] = { "recording", 0.99 }, [STEP_DONE] = { "done", 1 },
};

static void run_step(struct build *b);

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* --- the end --- */

static json_t *result_of(const struct tmpl *t)
{
	struct fail ignored = { 0 };
	struct buf b;
	struct jw w;
	json_t *j;

	buf_init(&b, 256 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	template_write(&w, "template", &t->t);
	jw_obj_end(&w);
	j = w.err ? NULL : json_read(buf_str(&b), &ignored);
	buf_clear(&b);
	return j;
}

static void build_free(struct build *b)
{
	struct space *sp = b->sp;

	link_del(&b->link);
	close_fd(&b->files.kernel);
	close_fd(&b->files.initrd);
	close_fd(&b->files.image);
	close_fd(&b->files.disk);
	json_decref(b->meta);
	tmpl_unref(b->t);
	free(b);
	space_check_gone(sp);
}

/* The machine is gone; who waited is told. */
static void build_over(struct build *b)
{
	struct build_wait *w = b->waiting, *next;
	struct variant *v = b->v;
	struct fail why = b->why;
	json_t *result = NULL;

	b->sp->memory_reserved -= b->reserved;
	b->waiting = NULL;
	v->build = NULL;
	if (why.err)
		log_warning("template %s: %s not built: %s", b->t->t.name, b->is_variant ? "variant" : "version", why.msg);
	else
		result = result_of(b->t);
	if (!why.err && b->t->dead)
		fail_as(&why, ERR_template_not_found, "template \"%s\" was removed or replaced meanwhile", b->t->t.name);
	if (why.err && b->is_variant) { /* the next create tries again */
		link_del(&v->link);
	}
	for (; w; w = next) {
		next = w->next;
		w->fn(why.err ? NULL : v, &why, w->arg);
		free(w);
	}
	if (why.err && b->is_variant)
		free(v);
	operation_end(b->op, result, &why);
	if (b->entry)
		tree_unpin(b->entry);
	nodes_collect(b->sp);
	ready_refill(b->sp);
	build_free(b);
}

static int undo_job(void *arg, struct fail *why)
{
	struct build *b = arg;

	if (b->node_fd >= 0) {
		close_fd(&b->node_fd);
		(void)FAULT_OURS(node_abort(b->sp->pool, b->node.id));
	}
	return b->m ? machine_destroy(b->m, why) : 0;
}

static void undone(void *arg, const struct fail *why)
{
	struct build *b = arg;

	if (why->err)
		log_error("template %s: not everything of its machine could be removed: %s", b->t->t.name, why->msg);
	machine_free(b->m);
	b->m = NULL;
	build_over(b);
}

static void build_end(struct build *b, const struct fail *why)
{
	struct http_endpoint *agent = b->agent;

	if (why && !b->why.err)
		b->why = *why;
	later_clear(&b->pause);
	b->agent = NULL;
	http_endpoint_free(agent);
	space_job(b->sp, NULL, undo_job, undone, b);
}

bool build_failed(struct build *b, const struct fail *why)
{
	b->busy = false;
	if (!why->err && !b->why.err)
		return false;
	build_end(b, b->why.err ? &b->why : why);
	return true;
}

/* --- saving --- */

static int save_job(void *arg, struct fail *why)
{
	struct build *b = arg;
	const struct driver *drv = b->sp->drv;
	int fd = FAULT_WHY(why, node_begin(b->sp->pool, b->node.id, why)), r;
	struct vm_save *save;

	if (fd < 0)
		return fd;
	b->node_fd = fd;
	r = FAULT_WHY(why, drv->save_begin(b->m->vm, fd, -1, &save, why));
	if (r < 0)
		return r;
	r = FAULT_WHY(why, drv->save_still(save, why));
	if (r == 0)
		return FAULT_WHY(why, drv->save_end(save, true, &b->saved, why));
	(void)FAULT_WHY(NULL, drv->save_end(save, false, NULL, NULL));
	return r;
}

static void saved(void *arg, const struct fail *why)
{
	struct build *b = arg;

	if (!build_failed(b, why))
		build_next(b);
}

static void noted(void *arg, const struct fail *why)
{
	struct build *b = arg;

	if (!build_failed(b, why))
		build_next(b);
}

static void node_fill(struct build *b)
{
	struct node *n = &b->node;

	n->vcpus = b->v->vcpu;
	n->memory = b->v->memory;
	n->disk = b->files.read_only ? 0 : b->t->t.disk;
	n->has_memory = true;
	n->own_bytes = b->saved.memory_bytes + b->saved.state_bytes;
	n->created_ns = real_ns();
	(void)str_copy(n->driver, sizeof(n->driver), str_of(b->sp->drv->name));
	(void)str_copy(n->driver_version, sizeof(n->driver_version), str_of(b->sp->drv_version));
	(void)str_copy(n->label, sizeof(n->label), str_of(b->t->t.name));
	(void)str_copy(n->kind, sizeof(n->kind), str_of(node_kind_name(NODE_TEMPLATE)));
	n->read_only = b->files.read_only;
}

static struct tree_node *tree_entry(struct build *b)
{
	const struct node *n = &b->node;
	struct checkpoint k = { .kind = NODE_TEMPLATE, .vcpu = n->vcpus, .memory = n->memory, .disk = n->disk, .read_only = b->files.read_only,
				.own_bytes = n->own_bytes, .paused_ms = b->saved.paused_ms, .created_ns = n->created_ns };
	struct tree_node *t;

	(void)str_copy(k.id, sizeof(k.id), str_of(n->id));
	(void)str_copy(k.tenant, sizeof(k.tenant), str_of(b->t->tenant));
	(void)str_copy(k.template, sizeof(k.template), str_of(b->t->t.name));
	(void)str_copy(k.image_digest, sizeof(k.image_digest), str_of(n->image.hex));
	(void)str_copy(k.kernel_digest, sizeof(k.kernel_digest), str_of(n->kernel.hex));
	(void)str_copy(k.driver, sizeof(k.driver), str_of(n->driver));
	(void)str_copy(k.driver_version, sizeof(k.driver_version), str_of(n->driver_version));
	t = tree_add(b->sp, &k);
	if (t) {
		(void)str_copy(t->initrd_digest, sizeof(t->initrd_digest), str_of(n->initrd.hex));
		t->generation = b->generation;
		t->there = true; /* as far as its record goes; it is pinned until it is */
	}
	return t;
}

/* The node's name is on disk before the node is: a crash in between leaves a name without a node, never the other way round. No template has that name
 * yet, so the next start removes it, whether there is a node or not. */
static void note_node(struct build *b)
{
	struct store_txn *t = store_begin(b->sp->store);
	struct fail why = { 0 };

	node_fill(b);
	b->entry = t ? tree_entry(b) : NULL;
	/* where it is imported there may be no such template */
	b->meta = json_pack("{s:s,s:s,s:s,s:I,s:O?,s:I}", "template", b->t->t.name, "user", b->t->t.user, "workdir", b->t->t.workdir, "template_version",
			    (json_int_t)b->t->t.version, "guest_env", b->t->t.env, "generation", (json_int_t)b->generation);
	if (!b->entry || !b->meta || tree_put(b->entry, t) < 0) {
		free(t);
		fail_set(&why, -ENOMEM, "out of memory");
		(void)build_failed(b, &why);
		return;
	}
	FAULT_VOID(store_commit(t, noted, b));
}

static int commit_job(void *arg, struct fail *why)
{
	struct build *b = arg;
	int r = node_meta_write(b->node_fd, b->meta, why);

	if (r == 0)
		r = FAULT_WHY(why, node_commit(b->sp->pool, b->node_fd, &b->node, why));

	if (r == 0)
		close_fd(&b->node_fd);
	return r;
}

static void committed(void *arg, const struct fail *why)
{
	struct build *b = arg;
	struct variant *v = b->v;

	if (build_failed(b, why))
		return;
	(void)str_copy(v->node, sizeof(v->node), str_of(b->node.id));
	v->generation = b->generation;
	v->bytes = b->node.own_bytes;
	if (!b->is_variant) {
		struct template *t = &b->t->t;

		(void)str_copy(t->node, sizeof(t->node), str_of(b->node.id));
		t->bytes = v->bytes;
		t->created_ns = b->node.created_ns;
	}
	build_next(b);
}

static void recorded(void *arg, const struct fail *why)
{
	struct build *b = arg;
	if (why->err && b->is_variant)
		b->v->node[0] = '\0';
	if (!why->err && !b->is_variant) {
		b->t->refs++; /* the list's */
		template_publish(b->t);
	}
	b->busy = false;
	build_end(b, why); /* also when all is well: the machine goes */
}

/* --- the order --- */

static void run_step(struct build *b)
{
	bool under_way = true;

	b->busy = true;
	switch (b->step) {
	case STEP_KERNEL:
		build_kernel(b);
		break;
	case STEP_BOOT:
		build_boot(b);
		break;
	case STEP_AGENT:
		build_wait_agent(b);
		break;
	case STEP_INIT:
		build_init(b);
		break;
	case STEP_WORKDIR:
		under_way = build_workdir(b);
		break;
	case STEP_SETUP:
		under_way = build_setup(b);
		break;
	case STEP_START:
		under_way = build_start(b);
		break;
	case STEP_READY:
		under_way = build_ready(b);
		break;
	case STEP_WARM:
		build_warm(b);
		break;
	case STEP_FREEZE:
		build_freeze(b);
		break;
	case STEP_SAVE:
		space_job(b->sp, NULL, save_job, saved, b);
		break;
	case STEP_NOTE:
		note_node(b);
		break;
	case STEP_COMMIT:
		space_job(b->sp, NULL, commit_job, committed, b);
		break;
	case STEP_RECORD:
		if (b->t->dead) /* its record is gone, and must not come back */
			recorded(b, &(struct fail){ 0 });
		else
			template_save(b->t, recorded, b);
		break;
	case STEP_DONE:
		break;
	}
	if (under_way)
		return; /* B may be gone */
	b->busy = false;
	build_next(b);
}

void build_again(void *arg)
{
	run_step(arg);
}

void build_next(struct build *b)
{
	b->step++;
	if (b->step == STEP_AGENT)
		b->until_ms = mono_ms() + BOOT_TIMEOUT_MS;
	if (b->step == STEP_READY)
		b->until_ms = mono_ms() + BUILD_READY_MS;
	operation_step(b->op, steps[b->step].what, steps[b->step].progress);
	run_step(b);
}

/* --- the beginning --- */

static unsigned builds(const struct space *sp)
{
	unsigned n = 0;

	for (struct link *l = sp->builds.next; l != &sp->builds; l = l->next)
		n++;
	return n;
}

static struct build *build_begin(struct tmpl *t, struct variant *v, bool is_variant, const char *image, const char *kind, const char *tenant,
				 struct fail *why)
{
	struct space *sp = t->sp;
	uint64_t bytes = v->memory;
	struct build *b;
	char id[ID_LEN + 1];

	if (builds(sp) >= BUILDS_MAX) {
		fail_as(why, ERR_no_capacity, "%d templates are being built already", BUILDS_MAX);
		fail_remedy(why, "wait for one of them: space template ls");
		return NULL;
	}
	if (bytes > sp->memory_limit - MIN(sp->memory_reserved, sp->memory_limit)) {
		fail_as(why, ERR_no_capacity, "no memory to build a template of %llu MiB", (unsigned long long)(v->memory / MIB));
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	b->sp = sp;
	b->t = t;
	b->v = v;
	b->is_variant = is_variant;
	b->node_fd = -1;
	b->files = (struct machine_files){ .kernel = -1, .initrd = -1, .image = -1, .node = -1, .memory = -1, .disk = -1,
					   .read_only = v->read_only };
	(void)str_copy(b->image, sizeof(b->image), str_of(image));
	id_make(id, 'i');
	b->m = machine_new(sp, id, t->tenant, "build");
	b->op = b->m ? operation_new(sp, tenant, kind, t->t.name) : NULL;
	if (!b->op) {
		machine_free(b->m);
		free(b);
		fail_as(why, ERR_no_capacity, "too many operations are under way");
		return NULL;
	}
	b->m->vcpus = v->vcpu;
	b->m->memory = v->memory;
	b->m->disk = t->t.disk;
	b->reserved = bytes;
	sp->memory_reserved += bytes;
	v->build = b;
	link_add_tail(&sp->builds, &b->link);
	return b;
}

void build_variant(struct variant *v, variant_fn *fn, void *arg)
{
	struct build_wait *w = calloc(1, sizeof(*w)), **at;
	struct build *b = v->build;
	struct fail why = { 0 };
	bool fresh = !b;

	if (!w)
		fail_set(&why, -ENOMEM, "out of memory");
	else if (!b) {
		b = build_begin(v->t, v, true, v->t->t.image_digest, "template.variant", v->t->tenant, &why);
		if (b)
			v->t->refs++;
	}
	if (!b || !w) {
		free(w);
		if (fresh && b) /* cannot be: W was looked at first */
			abort();
		if (!v->build) {
			link_del(&v->link);
			free(v);
		}
		fn(NULL, &why, arg);
		return;
	}
	w->fn = fn;
	w->arg = arg;
	for (at = &b->waiting; *at; at = &(*at)->next)
		;
	*at = w;
	if (!fresh)
		return;
	log_info("template %s: building for vcpu=%u memory=%llu%s", v->t->t.name, v->vcpu, (unsigned long long)v->memory,
		 v->read_only ? " read-only" : "");
	b->step = STEP_KERNEL;
	operation_step(b->op, steps[STEP_KERNEL].what, steps[STEP_KERNEL].progress);
	run_step(b);
}

static int check_text(const char *what, const char *z, size_t size, struct fail *why)
{
	if (z && strlen(z) >= size)
		return fail_as(why, ERR_bad_request, "%s: at most %zu bytes", what, size - 1);
	return 0;
}

static int check(struct space *sp, const char *tenant, const struct template_req *q, struct fail *why)
{
	json_t *v;
	size_t i;
	int r;

	if (sp->stopping)
		return fail_as(why, ERR_daemon_down, "spaced is stopping");
	if (!q->name || !str_is_name(str_of(q->name)))
		return fail_as(why, ERR_bad_request, "name: a-z and 0-9, then also \".\", \"_\" and \"-\", at most 63");
	if (!q->image || !q->image[0] || strlen(q->image) > 127 || str_has_ctl(str_of(q->image)))
		return fail_as(why, ERR_bad_request, "image: a name or a digest");
	if (q->vcpu > 32)
		return fail_as(why, ERR_bad_request, "vcpu: a whole number from 1 to 32");
	if (q->memory && (q->memory % (2 * MIB) || q->memory < 128 * MIB || q->memory > 1024 * GIB))
		return fail_as(why, ERR_bad_request, "memory: a multiple of 2M, from 128M on");
	if (q->disk && (q->disk % 4096 || q->disk < 64 * MIB || q->disk > 16384 * GIB))
		return fail_as(why, ERR_bad_request, "disk: a multiple of 4096, from 64M to 16T");
	if ((r = check_text("start_cmd", q->start_cmd, sizeof(((struct template *)0)->start_cmd), why)) < 0 ||
	    (r = check_text("ready_cmd", q->ready_cmd, sizeof(((struct tmpl *)0)->ready_cmd), why)) < 0 ||
	    (r = check_text("user", q->user, sizeof(((struct template *)0)->user), why)) < 0 ||
	    (r = check_text("workdir", q->workdir, sizeof(((struct template *)0)->workdir), why)) < 0)
		return r;
	if (q->workdir && q->workdir[0] && (q->workdir[0] != '/' || str_has_ctl(str_of(q->workdir))))
		return fail_as(why, ERR_bad_request, "workdir: an absolute path");
	if (q->user && (strchr(q->user, '\'') || str_has_ctl(str_of(q->user))))
		return fail_as(why, ERR_bad_request, "user: a name of the image's");
	if (q->setup && (!json_is_array(q->setup) || json_array_size(q->setup) > 1000))
		return fail_as(why, ERR_bad_request, "setup: a list of at most 1000 commands");
	json_array_foreach(q->setup, i, v)
		if (!json_is_string(v) || json_string_length(v) > 64 * KIB)
			return fail_as(why, ERR_bad_request, "setup[%zu]: a command of at most 64 KiB", i);
	if (q->env && !json_is_object(q->env))
		return fail_as(why, ERR_bad_request, "env: an object of strings");
	link_each_safe(l, next, &sp->builds) {
		struct build *b = container_of(l, struct build, link);

		if (!b->is_variant && !strcmp(b->t->t.name, q->name) && !strcmp(b->t->tenant, tenant))
			return fail_as(why, ERR_busy, "template \"%s\" is being built already", q->name);
	}
	return 0;
}

struct operation *template_build(struct space *sp, const char *tenant, const struct template_req *q, struct fail *why)
{
	struct tmpl *t, *old;
	struct variant *v;
	struct build *b;

	if (check(sp, tenant, q, why) < 0)
		return NULL;
	t = tmpl_new(sp, tenant, q->name);
	if (!t) {
		fail_set(why, -ENOMEM, "out of memory");
		return NULL;
	}
	old = tmpl_find(sp, tenant, q->name);
	t->t.version = old && !strcmp(old->tenant, tenant) ? old->t.version + 1 : 1;
	t->t.vcpu = q->vcpu ? q->vcpu : sp->cfg.vcpu;
	t->t.memory = q->memory ? q->memory : sp->cfg.memory;
	t->t.disk = q->disk ? q->disk : sp->cfg.disk;
	t->t.env = q->env ? json_deep_copy(q->env) : NULL;
	t->setup = q->setup ? json_deep_copy(q->setup) : NULL;
	(void)str_copy(t->t.user, sizeof(t->t.user), str_of(q->user));
	(void)str_copy(t->t.workdir, sizeof(t->t.workdir), str_of(q->workdir));
	(void)str_copy(t->t.start_cmd, sizeof(t->t.start_cmd), str_of(q->start_cmd));
	(void)str_copy(t->ready_cmd, sizeof(t->ready_cmd), str_of(q->ready_cmd));
	v = variant_add(t, t->t.vcpu, t->t.memory, false);
	b = v ? build_begin(t, v, false, q->image, "template.build", tenant, why) : NULL;
	if (!b) {
		if (!v)
			fail_set(why, -ENOMEM, "out of memory");
		tmpl_unref(t);
		return NULL;
	}
	log_info("template %s: building version %u from image %s", t->t.name, t->t.version, q->image);
	b->step = STEP_KERNEL;
	operation_step(b->op, steps[STEP_KERNEL].what, steps[STEP_KERNEL].progress);
	run_step(b);
	return b->op;
}

bool builds_use_image(struct space *sp, const char *digest)
{
	link_each_safe(l, next, &sp->builds)
		if (!strcmp(container_of(l, struct build, link)->node.image.hex, digest))
			return true;
	return false;
}

/* The daemon stops: each ends at the end of what it is doing; calls under way are cut. */
void builds_stop(struct space *sp)
{
	link_each_safe(l, next, &sp->builds) {
		struct build *b = container_of(l, struct build, link);

		if (b->why.err || b->step >= STEP_SAVE)
			continue;
		fail_as(&b->why, ERR_internal, "interrupted: spaced was stopped");
		fail_remedy(&b->why, "build it again");
		if (b->agent && b->busy)
			http_endpoint_reset(b->agent);
		else if (!b->busy)
			build_end(b, NULL);
	}
}
