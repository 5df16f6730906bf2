#include "cli/opt.h"

#include <stdio.h>

#include "base/str.h"

static const struct opt *opt_find(const struct opt_table *tables, size_t ntables, struct str name, char letter,
	void **into)
{
	for (size_t t = 0; t < ntables; t++) {
		for (size_t i = 0; i < tables[t].n; i++) {
			const struct opt *o = &tables[t].opts[i];

			if (letter ? o->letter == letter : str_eqz(name, o->name)) {
				*into = tables[t].into;
				return o;
			}
		}
	}
	return NULL;
}

static int opt_store(const struct opt *o, void *into, const char *value, struct fail *why)
{
	char *at = (char *)into + o->at;
	struct opt_list *list;
	uint64_t v;

	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)at = true;
		return 0;
	case OPT_STR:
		*(const char **)at = value;
		return 0;
	case OPT_INT:
		if (str_u64(str_of(value), INT64_MAX, &v) < 0)
			return fail_set(why, -EINVAL, "--%s: a whole number, not \"%s\"", o->name, value);
		*(int64_t *)at = (int64_t)v;
		return 0;
	case OPT_LIST:
		list = (struct opt_list *)at;
		if (list->n == OPT_LIST_MAX)
			return fail_set(why, -EINVAL, "--%s: at most %d of them", o->name, OPT_LIST_MAX);
		list->v[list->n++] = value;
		return 0;
	}
	return 0;
}

static int opt_unknown(const struct opt_table *tables, size_t ntables, struct str name, struct fail *why)
{
	const char *names[64];
	char word[48];
	size_t n = 0;
	int best;

	for (size_t t = 0; t < ntables; t++)
		for (size_t i = 0; i < tables[t].n && n < ARRAY_LEN(names); i++)
			names[n++] = tables[t].opts[i].name;
	snprintf(word, sizeof(word), STR_FMT, STR_ARG(name));
	best = nearest_name(word, names, n);
	if (best >= 0)
		return fail_set(why, -EINVAL, "no option --%s; did you mean --%s?", word, names[best]);
	return fail_set(why, -EINVAL, "no option --%s", word);
}

/* "--name…" at argv[*i]. */
static int opt_long(const struct opt_table *tables, size_t ntables, int argc, char **argv, int *i, struct fail *why)
{
	struct str name, value;
	bool given = str_cut(str_of(argv[*i] + 2), '=', &name, &value);
	void *into = NULL;
	const struct opt *o = opt_find(tables, ntables, name, 0, &into);

	if (!o)
		return opt_unknown(tables, ntables, name, why);
	if (o->kind == OPT_FLAG) {
		if (given)
			return fail_set(why, -EINVAL, "--%s takes no value", o->name);
		return opt_store(o, into, NULL, why);
	}
	if (given)
		return opt_store(o, into, value.p, why);
	if (*i + 1 >= argc)
		return fail_set(why, -EINVAL, "--%s needs a value: %s", o->name, o->meta);
	return opt_store(o, into, argv[++*i], why);
}

/* "-abc" at argv[*i]: flags, the last of which may take a value. */
static int opt_short(const struct opt_table *tables, size_t ntables, int argc, char **argv, int *i, struct fail *why)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		void *into = NULL;
		const struct opt *o = opt_find(tables, ntables, (struct str){ NULL, 0 }, *p, &into);
		int r;

		if (!o)
			return fail_set(why, -EINVAL, "no option -%c", *p);
		if (o->kind == OPT_FLAG) {
			r = opt_store(o, into, NULL, why);
			if (r < 0)
				return r;
			continue;
		}
		if (p[1])
			return opt_store(o, into, p[1] == '=' ? p + 2 : p + 1, why);
		if (*i + 1 >= argc)
			return fail_set(why, -EINVAL, "-%c needs a value: %s", *p, o->meta);
		return opt_store(o, into, argv[++*i], why);
	}
	return 0;
}

int opt_parse(const struct opt_table *tables, size_t ntables, int stop_after, int argc, char **argv, int *nwords,
	struct fail *why)
{
	int n = 0, i = 1, r;

	for (; i < argc; i++) {
		bool full = stop_after >= 0 && n >= stop_after;

		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (argv[i][0] != '-' || !argv[i][1]) {
			if (full)
				break;
			argv[n++] = argv[i];
			continue;
		}
		if (argv[i][1] == '-')
			r = opt_long(tables, ntables, argc, argv, &i, why);
		else
			r = opt_short(tables, ntables, argc, argv, &i, why);
		if (r < 0)
			return r;
	}
	while (i < argc)
		argv[n++] = argv[i++];
	*nwords = n;
	return 0;
}

/* Edits (insert, delete, replace, swap of neighbours) that make B of A. */
static unsigned edit_distance(const char *a, const char *b)
{
	enum { MOST = 32 };
	unsigned d[MOST + 1][MOST + 1];
	size_t na = strnlen(a, MOST), nb = strnlen(b, MOST);

	for (size_t i = 0; i <= na; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= nb; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		for (size_t j = 1; j <= nb; j++) {
			unsigned same = a[i - 1] == b[j - 1] ? 0 : 1;
			unsigned best = MIN(d[i - 1][j] + 1, d[i][j - 1] + 1);

			best = MIN(best, d[i - 1][j - 1] + same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, d[i - 2][j - 2] + 1);
			d[i][j] = best;
		}
	}
	return d[na][nb];
}

int nearest_name(const char *word, const char *const *names, size_t n)
{
	unsigned best = 3;
	size_t len = strlen(word);
	int at = -1;

	if (len > 24)
		return -1;
	for (size_t i = 0; i < n; i++) {
		unsigned d = edit_distance(word, names[i]);

		/* A word of two letters is near to everything; the beginning of a name is near to it. */
		if (len >= 3 && !strncmp(word, names[i], len))
			d = 1;
		if (d < best && d < len && d < strlen(names[i])) {
			best = d;
			at = (int)i;
		}
	}
	return at;
}
