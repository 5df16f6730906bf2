/* modules.c - see modules.h. */
#include "image/modules.h"

#include <elf.h>
#include <stdio.h>

#define MODULE_NAME 64
#define SOFTDEP_MAX 4096

void modules_init(struct modules *m)
{
	memset(m, 0, sizeof(*m));
	buf_init(&m->builtin, 1 * MIB);
}

static void module_free(struct module *m)
{
	free(m->name);
	free(m->path);
	free(m->depends);
	free(m->softdep);
	free(m->alias);
}

void modules_clear(struct modules *m)
{
	for (size_t i = 0; i < m->n; i++)
		module_free(&m->v[i]);
	free(m->v);
	buf_clear(&m->builtin);
	memset(m, 0, sizeof(*m));
}

/* The kernel's own spelling of a name: '-' is '_'. 0 or -EINVAL. */
static int canonical(char out[MODULE_NAME], struct str s)
{
	if (!s.n || s.n >= MODULE_NAME || str_has_ctl(s) || memchr(s.p, '/', s.n))
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++)
		out[i] = s.p[i] == '-' ? '_' : s.p[i];
	out[s.n] = 0;
	return 0;
}

/* "kernel/fs/ext4/ext4.ko.xz" -> "ext4" */
static struct str stem(struct str path)
{
	const char *slash = memrchr(path.p, '/', path.n);
	struct str head, tail;

	if (slash) {
		path.n -= (size_t)(slash + 1 - path.p);
		path.p = slash + 1;
	}
	str_cut(path, '.', &head, &tail);
	return head;
}

int modules_add_builtin(struct modules *m, struct str text)
{
	struct str line, rest = text;
	char name[MODULE_NAME];
	bool more;
	int r;

	do {
		more = str_cut(rest, '\n', &line, &rest);
		if (canonical(name, stem(line)))
			continue;
		r = buf_addf(&m->builtin, "%s\n", name);
		if (r < 0)
			return r;
	} while (more);
	return 0;
}

/* "crc32c_generic.alias=crc32c": what a built-in module is called besides. */
int modules_add_builtin_info(struct modules *m, struct str text)
{
	struct str line, rest = text, key, value;
	char name[MODULE_NAME];
	bool more;
	int r;

	do {
		more = str_cut(rest, '\0', &line, &rest);
		if (!str_cut(line, '=', &key, &value) || !str_ends(key, ".alias") ||
			memchr(value.p, ':', value.n) || canonical(name, value))
			continue;
		r = buf_addf(&m->builtin, "%s\n", name);
		if (r < 0)
			return r;
	} while (more);
	return 0;
}

/* Adds VALUE to *text, which is blank-separated and bounded. */
static int append(char **text, struct str value, size_t max)
{
	size_t have = *text ? strlen(*text) : 0;
	char *t;

	if (have + value.n + 2 > max)
		return -ENOBUFS;
	t = realloc(*text, have + value.n + 2);
	if (!t)
		return -ENOMEM;
	if (have)
		t[have++] = ' ';
	memcpy(t + have, value.p, value.n);
	t[have + value.n] = 0;
	*text = t;
	return 0;
}

static int take_field(struct module *m, struct str key, struct str value)
{
	char name[MODULE_NAME];

	if (str_eqz(key, "name") && !m->name) {
		if (canonical(name, value))
			return -EBADMSG;
		m->name = strdup(name);
		return m->name ? 0 : -ENOMEM;
	}
	if (str_eqz(key, "depends"))
		return append(&m->depends, value, 2048);
	if (str_eqz(key, "softdep"))
		return append(&m->softdep, value, SOFTDEP_MAX);
	/* Names of devices are no business of ours, and there are thousands; what a softdep names
	 * has neither ':' nor '*'. */
	if (str_eqz(key, "alias") && value.n < MODULE_NAME && !memchr(value.p, ':', value.n) &&
		!memchr(value.p, '*', value.n)) {
		int r = append(&m->alias, value, 4096);

		return r == -ENOBUFS ? 0 : r;
	}
	return 0;
}

int modules_add(struct modules *m, const char *path, struct str modinfo, struct fail *why)
{
	struct module new = { 0 };
	struct str line, rest = modinfo, key, value;
	bool more;
	int r = 0;

	if (m->n == MODULES_MAX)
		return fail_set(why, -E2BIG, "more than %d kernel modules", MODULES_MAX);
	do {
		more = str_cut(rest, '\0', &line, &rest);
		if (str_cut(line, '=', &key, &value))
			r = take_field(&new, key, value);
	} while (!r && more);
	if (!r && !new.name) {
		char name[MODULE_NAME];

		/* Modules older than the `name` field are called after their file. */
		r = canonical(name, stem(str_of(path))) ? -EBADMSG : 0;
		new.name = r ? NULL : strdup(name);
	}
	new.path = r ? NULL : strdup(path);
	if (!r && (m->n & (m->n - 1)) == 0) { /* room for a power of two */
		struct module *v = reallocarray(m->v, m->n ? m->n * 2 : 1, sizeof(*v));

		if (v)
			m->v = v;
		else
			r = -ENOMEM;
	}
	if (!r && (!new.name || !new.path))
		r = -ENOMEM;
	if (r < 0) {
		module_free(&new);
		return fail_set(why, r, "kernel module %s: %s", path,
			r == -ENOMEM ? "out of memory" : "its .modinfo is malformed");
	}
	m->v[m->n++] = new;
	return 0;
}

int modinfo_of(struct str elf, struct str *out, struct fail *why)
{
	Elf64_Ehdr h;
	Elf64_Shdr sh, names;

	if (elf.n < sizeof(h))
		return fail_set(why, -EBADMSG, "not an ELF file");
	memcpy(&h, elf.p, sizeof(h));
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
		h.e_shentsize != sizeof(sh) || h.e_shstrndx >= h.e_shnum || h.e_shoff > elf.n ||
		elf.n - h.e_shoff < (uint64_t)h.e_shnum * sizeof(sh))
		return fail_set(why, -EBADMSG, "not a 64-bit ELF file with sections");
	memcpy(&names, elf.p + h.e_shoff + h.e_shstrndx * sizeof(sh), sizeof(names));
	if (names.sh_offset > elf.n || names.sh_size > elf.n - names.sh_offset)
		return fail_set(why, -EBADMSG, "the ELF file is cut off");
	for (unsigned i = 0; i < h.e_shnum; i++) {
		static const char want[] = ".modinfo";

		memcpy(&sh, elf.p + h.e_shoff + i * sizeof(sh), sizeof(sh));
		if (sh.sh_type != SHT_PROGBITS || sh.sh_name > names.sh_size ||
			names.sh_size - sh.sh_name < sizeof(want) ||
			memcmp(elf.p + names.sh_offset + sh.sh_name, want, sizeof(want)))
			continue;
		if (sh.sh_offset > elf.n || sh.sh_size > elf.n - sh.sh_offset)
			break;
		*out = (struct str){ elf.p + sh.sh_offset, sh.sh_size };
		return 0;
	}
	return fail_set(why, -EBADMSG, "no .modinfo section");
}

/* --- order --- */

struct walk {
	const struct modules *m;
	uint8_t *mark; /* 0 unseen, 1 under way (a cycle of softdeps ends here), 2 in the order */
	size_t *order, n;
	struct fail *why;
};

static bool word_in(const char *list, const char *word)
{
	struct str rest = str_of(list), w;
	bool more;

	do {
		more = str_cut(rest, ' ', &w, &rest);
		if (str_eqz(w, word))
			return true;
	} while (more);
	return false;
}

static bool is_builtin(const struct modules *m, const char *name)
{
	struct str rest = buf_str(&m->builtin), line;
	bool more;

	do {
		more = str_cut(rest, '\n', &line, &rest);
		if (str_eqz(line, name))
			return true;
	} while (more);
	return false;
}

/* By name, else by alias (unless the kernel itself answers to it); of several the generic one,
 * since the others may find no hardware. -1: none. */
static ssize_t module_find(const struct modules *m, const char *name)
{
	ssize_t found = -1;

	for (size_t i = 0; i < m->n; i++)
		if (!strcmp(m->v[i].name, name))
			return (ssize_t)i;
	if (is_builtin(m, name))
		return -1;
	for (size_t i = 0; i < m->n; i++) {
		if (!m->v[i].alias || !word_in(m->v[i].alias, name))
			continue;
		if (found < 0 || str_ends(str_of(m->v[i].name), "_generic"))
			found = (ssize_t)i;
	}
	return found;
}

static int visit(struct walk *w, struct str name, bool optional);

static int visit_depends(struct walk *w, const struct module *m)
{
	struct str rest = str_of(m->depends), word;
	bool more;
	int r;

	do {
		more = str_cut(rest, ',', &word, &rest);
		word = str_trim(word);
		if (!word.n)
			continue;
		r = visit(w, word, false);
		if (r < 0)
			return r;
	} while (more);
	return 0;
}

/* Softdeps of the kind WHEN ("pre:" or "post:"); what is not there is no loss. */
static int visit_softdeps(struct walk *w, const struct module *m, const char *when)
{
	struct str rest = str_of(m->softdep), word;
	bool on = false, more;
	int r;

	do {
		more = str_cut(rest, ' ', &word, &rest);
		if (!word.n)
			continue;
		if (str_ends(word, ":")) {
			on = str_eqz(word, when);
			continue;
		}
		r = on ? visit(w, word, true) : 0;
		if (r < 0)
			return r;
	} while (more);
	return 0;
}

static int visit(struct walk *w, struct str name, bool optional)
{
	char c[MODULE_NAME];
	const struct module *m;
	ssize_t i;
	int r;

	if (canonical(c, name))
		return optional ? 0
				: fail_set(w->why, -EBADMSG,
					  "\"" STR_FMT "\" is no name of a kernel module",
					  (int)MIN(name.n, 40), name.p);
	i = module_find(w->m, c);
	if (i < 0) {
		if (optional || is_builtin(w->m, c))
			return 0;
		return fail_set(w->why, -ENOENT, "this kernel has no module %s", c);
	}
	if (w->mark[i])
		return 0;
	w->mark[i] = 1;
	m = &w->m->v[i];
	r = visit_softdeps(w, m, "pre:");
	if (!r)
		r = visit_depends(w, m);
	if (r < 0)
		return r;
	w->mark[i] = 2;
	w->order[w->n++] = (size_t)i;
	return visit_softdeps(w, m, "post:");
}

int modules_order(const struct modules *m, const char *const *wanted, size_t **order, size_t *n,
	struct fail *why)
{
	autofree uint8_t *mark = calloc(m->n + 1, 1);
	autofree size_t *list = calloc(m->n + 1, sizeof(*list));
	struct walk w = { .m = m, .mark = mark, .order = list, .why = why };

	if (!mark || !list)
		return fail_set(why, -ENOMEM, "ordering kernel modules: out of memory");
	for (; *wanted; wanted++) {
		bool optional = **wanted == '?';
		int r = visit(&w, str_of(*wanted + optional), optional);

		if (r < 0)
			return r;
	}
	*order = steal_ptr(list);
	*n = w.n;
	return 0;
}
