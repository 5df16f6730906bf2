/* source.c - nodes, opened once for all the machines that start from them: descriptors, and the memory as one sealed memfd whose pages
 * all of them share. Kept while anybody uses it, and a few beyond that, since opening one reads its whole memory file. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/core.h"

#define IDLE_MAX 2		      /* sources kept without a user */
#define IDLE_NS (600 * NS_PER_S) /* … and for how long */

struct source_wait {
	struct link link;
	source_fn *fn;
	void *arg;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void machine_files_close(struct machine_files *f)
{
	close_fd(&f->kernel);
	close_fd(&f->initrd);
	close_fd(&f->image);
	close_fd(&f->node);
	close_fd(&f->memory);
	close_fd(&f->disk);
}

static void source_free(struct source *s)
{
	machine_files_close(&s->files);
	link_del(&s->link);
	free(s);
}

/* Oldest first; those over the limit or too old go. */
static void trim(struct space *sp, int64_t older_than)
{
	unsigned idle = 0;

	link_each_safe(l, next, &sp->sources)
		idle += container_of(l, struct source, link)->refs == 0;
	link_each_safe(l, next, &sp->sources) {
		struct source *s = container_of(l, struct source, link);

		if (s->refs == 0 && (idle > IDLE_MAX || s->used_ns < older_than)) {
			idle--;
			source_free(s);
		}
	}
}

struct source *source_ref(struct source *s)
{
	s->refs++;
	return s;
}

void source_unref(struct source *s)
{
	struct space *sp;

	if (!s)
		return;
	assert(s->refs > 0);
	if (--s->refs)
		return;
	s->used_ns = mono_ns();
	if (!s->loaded || s->sp->stopping) {
		source_free(s);
		return;
	}
	sp = s->sp;
	link_del(&s->link);
	link_add_tail(&sp->sources, &s->link);
	trim(sp, mono_ns() - IDLE_NS);
	nodes_collect(sp); /* it may have been the last use of one that is to go; S is not looked at after this */
}

/* --- one node's files --- */

/* Its memory holds a kernel that knows this machine, and an agent that knows our calls: neither can be exchanged. */
static int fits(struct space *sp, const struct node *n, bool template, struct fail *why)
{
	const char *what = template ? "the template's checkpoint" : "checkpoint";

	if (strcmp(n->driver, sp->drv->name) || strcmp(n->driver_version, sp->drv_version))
		fail_as(why, ERR_checkpoint_mismatch, "%s %s was made by %s %s; this host has %s %s", what, n->id, n->driver, n->driver_version,
			sp->drv->name, sp->drv_version);
	else if (n->agent_protocol != AGENT_PROTOCOL)
		fail_as(why, ERR_checkpoint_mismatch, "%s %s has an agent of protocol %u in its memory; this version speaks %u", what, n->id,
			n->agent_protocol, AGENT_PROTOCOL);
	else
		return 0;
	if (template)
		fail_remedy(why, "build the template again: space template build");
	return why->err;
}

int node_startable(struct space *sp, const struct checkpoint *k, bool boot, struct fail *why)
{
	if (k->damaged[0])
		return fail_as(why, ERR_checkpoint_damaged, "checkpoint %s is damaged: %s", k->id, k->damaged);
	if (boot)
		return 0;
	if (!k->memory) {
		fail_as(why, ERR_bad_request, "%s is a snapshot: a disk without memory, which no process can go on from", k->id);
		return fail_remedy(why, "boot it: space create --from ID"), why->err;
	}
	if (k->driver[0] && (strcmp(k->driver, sp->drv->name) || strcmp(k->driver_version, sp->drv_version)))
		return fail_as(why, ERR_checkpoint_mismatch, "checkpoint %s was made by %s %s; this host has %s %s", k->id, k->driver,
			       k->driver_version, sp->drv->name, sp->drv_version);
	return 0;
}

/* A disk boots with any kernel of ours: the newest one has the agent that we know. Where there is none, with the kernel and initramfs that the node came
 * with from elsewhere: there are no modules to make another initramfs of. */
static int choose_kernel(struct space *sp, struct node *n, struct fail *why)
{
	struct fail none = { 0 };
	struct kernel_info k;
	char agent[300];

	if (kernel_current(sp->pool, &k, &none) < 0)
		return 0;
	snprintf(agent, sizeof(agent), "%s/space-agent", sp->cfg.libexec_dir);
	n->kernel = k.digest;
	return initrd_ensure(sp->pool, &n->kernel, agent, &n->initrd, why);
}

int node_files_open(struct space *sp, struct node *n, bool template, bool boot, bool memfd, struct machine_files *f, struct fail *why)
{
	int r;

	*f = (struct machine_files){ .kernel = -1, .initrd = -1, .image = -1, .node = -1, .memory = -1, .disk = -1 };
	r = node_read(sp->pool, n->id, n, why);
	if (r < 0)
		return r;
	if (!boot && !n->has_memory)
		return fail_as(why, ERR_bad_request, "%s is a snapshot: a disk without memory", n->id);
	if ((r = boot ? choose_kernel(sp, n, why) : fits(sp, n, template, why)) < 0 || (r = f->node = node_open(sp->pool, n->id, why)) < 0 ||
	    (r = f->kernel = kernel_open(sp->pool, &n->kernel, why)) < 0 || (r = f->initrd = initrd_open(sp->pool, &n->initrd, why)) < 0 ||
	    (r = f->image = image_open(sp->pool, &n->image, why)) < 0)
		return r;
	f->disk = openat(f->node, "disk", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (f->disk < 0 && errno != ENOENT)
		return fail_set(why, -errno, "checkpoint %s: disk: %s", n->id, strerror(errno));
	f->read_only = f->disk < 0;
	snprintf(f->cmdline, sizeof(f->cmdline), "space.root=%s", f->read_only ? "ro" : "rw");
	if (boot) {
		close_fd(&f->node);
		return 0;
	}
	if (memfd)
		f->memory = driver_memory_memfd(f->node, n->memory, why);
	return memfd && f->memory < 0 ? f->memory : 0;
}

int machine_from_node(struct machine *m, const char *id, bool boot, uint64_t target, struct node *n, struct fail *why)
{
	struct machine_files f;
	int r;

	*n = (struct node){ 0 };
	(void)str_copy(n->id, sizeof(n->id), str_of(id));
	r = node_files_open(m->sp, n, false, boot, false, &f, why);
	if (r == 0) {
		if (!boot) {
			m->vcpus = n->vcpus;
			m->memory = n->memory;
		}
		m->disk = f.read_only ? 0 : boot ? MAX(n->disk, target) : n->disk;
		m->disk_max = MAX(m->disk, target);
		r = machine_prepare(m, &f, why);
	}
	machine_files_close(&f);
	if (r == 0)
		r = machine_start(m, why);
	return r == 0 && !boot ? machine_grow(m, target, why) : r;
}

static int open_files(struct source *s, struct fail *why)
{
	return node_files_open(s->sp, &s->node, s->template, false, true, &s->files, why);
}

static int load_job(void *arg, struct fail *why)
{
	return open_files(arg, why);
}

static void loaded(void *arg, const struct fail *why)
{
	struct source *s = arg;

	s->loaded = !why->err;
	if (!s->loaded)
		link_del(&s->link); /* nobody else is to find it */
	link_each_safe(l, next, &s->waiting) {
		struct source_wait *w = container_of(l, struct source_wait, link);

		link_del(&w->link);
		if (s->loaded)
			w->fn(source_ref(s), why, w->arg);
		else
			w->fn(NULL, why, w->arg);
		free(w);
	}
	source_unref(s); /* the job's own */
}

static struct source *find_any(struct space *sp, const char *tenant, const char *node)
{
	link_each_safe(l, next, &sp->sources) {
		struct source *s = container_of(l, struct source, link);

		if (!strcmp(s->node.id, node) && !strcmp(s->tenant, tenant))
			return s;
	}
	return NULL;
}

static struct source *source_new(struct space *sp, const char *tenant, const char *node)
{
	struct source *s = calloc(1, sizeof(*s));
	struct tree_node *n;

	if (!s)
		return NULL;
	s->sp = sp;
	s->files = (struct machine_files){ .kernel = -1, .initrd = -1, .image = -1, .node = -1, .memory = -1, .disk = -1 };
	link_init(&s->waiting);
	link_add_tail(&sp->sources, &s->link);
	(void)str_copy(s->tenant, sizeof(s->tenant), str_of(tenant));
	(void)str_copy(s->node.id, sizeof(s->node.id), str_of(node));
	n = tree_find(sp, node);
	s->template = !n || n->k.kind == NODE_TEMPLATE;
	return s;
}

void source_get(struct space *sp, const char *tenant, const char *node, source_fn *fn, void *arg)
{
	const char *whose = strcmp(sp->cfg.share, "host") ? tenant : "";
	struct source *s = find_any(sp, whose, node);
	struct source_wait *w;
	struct fail why = { 0 };
	bool fresh = !s;

	if (s && s->loaded) {
		fn(source_ref(s), &why, arg);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (w && !s)
		s = source_new(sp, whose, node);
	if (!w || !s) {
		free(w);
		fail_set(&why, -ENOMEM, "out of memory");
		fn(NULL, &why, arg);
		return;
	}
	w->fn = fn;
	w->arg = arg;
	link_add_tail(&s->waiting, &w->link);
	if (fresh)
		space_job(sp, NULL, load_job, loaded, source_ref(s));
}

void source_forget(struct space *sp, const char *node)
{
	link_each_safe(l, next, &sp->sources) {
		struct source *s = container_of(l, struct source, link);

		if (s->refs == 0 && !strcmp(s->node.id, node))
			source_free(s);
	}
}

void sources_clear(struct space *sp)
{
	link_each_safe(l, next, &sp->sources) {
		struct source *s = container_of(l, struct source, link);

		if (s->refs == 0)
			source_free(s);
	}
}
