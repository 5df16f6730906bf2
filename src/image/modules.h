/* modules.h - which kernel modules to insert, and in which order.
 *
 * Every module says in its .modinfo section what it is called, which modules it needs (`depends`),
 * which ones it wants inserted before it or after it (`softdep`), and by which other names it is
 * known (`alias`). That is what depmod makes modules.dep from; reading it here saves the host from
 * needing depmod, and no list of ours goes stale when a kernel moves a function from one module to
 * another. */
#ifndef SPACE_IMAGE_MODULES_H
#define SPACE_IMAGE_MODULES_H

#include "base/buf.h"
#include "base/fail.h"

#define MODULES_MAX 8192

struct module {
	char *name;    /* as the kernel spells it: '_', never '-' */
	char *path;    /* of the file; the caller's business */
	char *depends; /* "a,b" */
	char *softdep; /* "pre: a b post: c", several joined by a blank */
	char *alias;   /* blank-separated */
};

struct modules {
	struct module *v;
	size_t n;
	struct buf builtin; /* names, one a line, of what is not a module in this kernel */
};

void modules_init(struct modules *m);
void modules_clear(struct modules *m);

/* Adds one from what its .modinfo says: "key=value" strings, each with a NUL after it. PATH is
 * copied. */
int modules_add(struct modules *m, const char *path, struct str modinfo, struct fail *why);
/* The text of modules.builtin: a path a line. */
int modules_add_builtin(struct modules *m, struct str text);
/* The bytes of modules.builtin.modinfo, for the other names of what is built in. */
int modules_add_builtin_info(struct modules *m, struct str text);

/* The .modinfo section of an ELF relocatable: a slice of ELF. -EBADMSG. */
int modinfo_of(struct str elf, struct str *out, struct fail *why);

/* Walks WANTED (NULL-terminated; "?name" may be absent) and what they need; *order gets indexes
 * into m->v, each once, needed ones first; the caller frees it. -ENOENT names what is in neither
 * the kernel nor its modules. */
int modules_order(const struct modules *m, const char *const *wanted, size_t **order, size_t *n,
	struct fail *why);

#endif
