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

static void source_free(struct source *s)
{
	close_fd(&s->files.kernel);
	close_fd(&s->files.initrd);
	close_fd(&s->files.image);
	close_fd(&s->files.node);
	close_fd(&s->files.memory);
	close_fd(&s->files.disk);
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

static int open_files(struct source *s, struct fail *why)
{
	struct space *sp = s->sp;
	struct machine_files *f = &s->files;
	int r;

	r = node_read(sp->pool, s->node.id, &s->node, why);
	if (r < 0)
		return r;
	if (strcmp(s->node.driver, sp->drv->name) || strcmp(s->node.driver_version, sp->drv_version)) {
		fail_as(why, ERR_unsupported, "checkpoint %s was made by %s %s; this host has %s %s", s->node.id, s->node.driver,
			s->node.driver_version, sp->drv->name, sp->drv_version);
		fail_remedy(why, "build the template again: space template build");
		return -ENOTSUP;
	}
	if ((r = f->node = node_open(sp->pool, s->node.id, why)) < 0 ||
	    (r = f->kernel = kernel_open(sp->pool, &s->node.kernel, why)) < 0 ||
	    (r = f->initrd = initrd_open(sp->pool, &s->node.initrd, why)) < 0 ||
	    (r = f->image = image_open(sp->pool, &s->node.image, why)) < 0)
		return r;
	f->disk = openat(f->node, "disk", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (f->disk < 0 && errno != ENOENT)
		return fail_set(why, -errno, "checkpoint %s: disk: %s", s->node.id, strerror(errno));
	f->read_only = f->disk < 0;
	snprintf(f->cmdline, sizeof(f->cmdline), "space.root=%s", f->read_only ? "ro" : "rw");
	f->memory = driver_memory_memfd(f->node, s->node.memory, why);
	return f->memory < 0 ? f->memory : 0;
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

	if (!s)
		return NULL;
	s->sp = sp;
	s->files = (struct machine_files){ .kernel = -1, .initrd = -1, .image = -1, .node = -1, .memory = -1, .disk = -1 };
	link_init(&s->waiting);
	link_add_tail(&sp->sources, &s->link);
	(void)str_copy(s->tenant, sizeof(s->tenant), str_of(tenant));
	(void)str_copy(s->node.id, sizeof(s->node.id), str_of(node));
	return s;
}

void source_get(struct space *sp, const char *tenant, const char *node, source_fn *fn, void *arg)
{
	struct source *s = find_any(sp, tenant, node);
	struct source_wait *w;
	struct fail why = { 0 };
	bool fresh = !s;

	if (s && s->loaded) {
		fn(source_ref(s), &why, arg);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (w && !s)
		s = source_new(sp, tenant, node);
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
