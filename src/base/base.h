/* base.h - the few macros that every file uses. */
#ifndef SPACE_BASE_H
#define SPACE_BASE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> /* MIN and MAX: <uv.h> brings it in as well */
#include <sys/types.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KIB (1024ULL)
#define MIB (1024ULL * KIB)
#define GIB (1024ULL * MIB)

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define MUST_CHECK __attribute__((warn_unused_result))

static inline void autofree_cleanup(void *p)
{
	free(*(void **)p);
}

/* -1 is the only "no descriptor". errno survives the close, so that error paths may report it. */
static inline void autoclose_cleanup(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

#define autofree CLEANUP(autofree_cleanup)
#define autoclose CLEANUP(autoclose_cleanup)

static inline void *steal_ptr_from(void *pp)
{
	void *p = *(void **)pp;

	*(void **)pp = NULL;
	return p;
}

static inline int steal_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#define steal_ptr(p) ((__typeof__(p))steal_ptr_from(&(p)))

/* Doubly linked list, intrusive, circular: an empty list points at itself. */
struct link {
	struct link *next, *prev;
};

static inline void link_init(struct link *l)
{
	l->next = l->prev = l;
}

static inline bool link_empty(const struct link *l)
{
	return l->next == l;
}

static inline void link_add_tail(struct link *list, struct link *item)
{
	item->prev = list->prev;
	item->next = list;
	list->prev->next = item;
	list->prev = item;
}

/* An item that was removed points at itself, so that removing it twice does nothing. */
static inline void link_del(struct link *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	link_init(item);
}

#define link_each_safe(it, tmp, list) \
	for (struct link *it = (list)->next, *tmp = it->next; it != (list); it = tmp, tmp = it->next)

#endif
