#include "cli/tree.h"

#include <limits.h>

/* Deeper lines are drawn as if they were this deep, so that a line has an end. */
#define DEEP 24
#define BRANCHES (DEEP * 8 + 16) /* bytes: a level is at most "│  " */

enum shown { HIDDEN, LEADS, SHOWN }; /* LEADS: only because something below it is SHOWN */

struct item {
	const json_t *node;
	int parent, first, last, next; /* children and siblings, -1: none */
	enum shown shown;
};

struct drawing {
	struct item *items;
	int n, lines;
	const char *only;
	tree_line_fn *fn;
	void *arg;
};

static bool is_named(const json_t *o, const char *key, const char *word)
{
	const char *s = get_str(o, key);

	return *s && !strcmp(s, word);
}

static bool sandbox_wanted(const struct drawing *d, const struct item *it, const json_t *sb)
{
	return it->shown == SHOWN || is_named(sb, "id", d->only) || is_named(sb, "name", d->only);
}

/* Parents come before children, so one pass joins them; a parent that stands behind its child is none, which rules out rings. */
static void join(struct drawing *d, json_t *at)
{
	int roots = -1;

	for (int i = 0; i < d->n; i++) {
		const char *of = get_str(d->items[i].node, "parent");
		const json_t *p = *of ? json_object_get(at, of) : NULL;
		int parent = json_is_integer(p) ? (int)json_integer_value(p) : -1, prev;

		d->items[i].parent = parent;
		if (parent >= 0) {
			prev = d->items[parent].last;
			d->items[parent].last = i;
			if (prev < 0)
				d->items[parent].first = i;
		} else {
			prev = roots;
			roots = i;
		}
		if (prev >= 0)
			d->items[prev].next = i;
		json_object_set_new(at, get_str(d->items[i].node, "id"), json_integer(i));
	}
}

/* A sandbox may be meant by its name; the nodes that are its own state know its id only. */
static const char *id_of(const struct drawing *d, const char *word)
{
	json_t *sb;
	size_t k;

	for (int i = 0; i < d->n; i++)
		json_array_foreach(json_object_get(d->items[i].node, "sandboxes"), k, sb)
			if (is_named(sb, "name", word))
				return get_str(sb, "id");
	return word;
}

static void choose(struct drawing *d)
{
	const char *sandbox = d->only ? id_of(d, d->only) : NULL;

	for (int i = 0; i < d->n; i++) {
		struct item *it = &d->items[i];
		const json_t *n = it->node, *sandboxes = json_object_get(n, "sandboxes");
		json_t *sb;
		size_t k;

		if (!d->only || is_named(n, "id", d->only) || is_named(n, "label", d->only) || is_named(n, "sandbox", sandbox) ||
			(it->parent >= 0 && d->items[it->parent].shown == SHOWN))
			it->shown = SHOWN;
		if (it->shown == SHOWN)
			continue;
		json_array_foreach((json_t *)sandboxes, k, sb)
			if (sandbox_wanted(d, it, sb))
				it->shown = LEADS;
	}
	for (int i = d->n - 1; i >= 0; i--) {
		int parent = d->items[i].parent;

		if (d->items[i].shown != HIDDEN && parent >= 0 && d->items[parent].shown == HIDDEN)
			d->items[parent].shown = LEADS;
	}
}

static int next_shown(const struct drawing *d, int i)
{
	while (i >= 0 && d->items[i].shown == HIDDEN)
		i = d->items[i].next;
	return i;
}

/* The way to I: a line for each ancestor that has more to come, from the root (or DEEP levels up) down. */
static void branches(const struct drawing *d, int i, bool last, char *out)
{
	const char *part[DEEP + 1];
	int n = 0, up = i;

	part[n++] = last ? "└─ " : "├─ ";
	for (; n <= DEEP && d->items[up].parent >= 0; up = d->items[up].parent)
		part[n++] = next_shown(d, d->items[up].next) >= 0 ? "│  " : "   ";
	*out = 0;
	while (n)
		out = stpcpy(out, part[--n]);
}

static void draw_sandboxes(struct drawing *d, int i)
{
	const json_t *list = json_object_get(d->items[i].node, "sandboxes");
	bool more = next_shown(d, d->items[i].first) >= 0;
	size_t n = json_array_size(list), end = 0;
	char text[BRANCHES];

	for (size_t k = 0; k < n; k++)
		if (sandbox_wanted(d, &d->items[i], json_array_get(list, k)))
			end = k + 1;
	for (size_t k = 0; k < end; k++) {
		const json_t *sb = json_array_get(list, k);

		if (!sandbox_wanted(d, &d->items[i], sb))
			continue;
		branches(d, i, k + 1 == end && !more, text);
		d->fn(text, sb, true, d->arg);
		d->lines++;
	}
}

/* I's own line: the way to its parent, and its joint there. */
static void draw_node(struct drawing *d, int i)
{
	char text[BRANCHES] = "";

	if (d->items[i].parent >= 0)
		branches(d, d->items[i].parent, next_shown(d, d->items[i].next) < 0, text);
	d->fn(text, d->items[i].node, false, d->arg);
	d->lines++;
	draw_sandboxes(d, i);
}

static void draw_all(struct drawing *d)
{
	int i = next_shown(d, d->n ? 0 : -1);

	while (i >= 0) {
		int next;

		draw_node(d, i);
		next = next_shown(d, d->items[i].first);
		/* Down, else on to the next one of the nearest ancestor that has one. */
		while (next < 0 && i >= 0) {
			next = next_shown(d, d->items[i].next);
			i = d->items[i].parent;
		}
		i = next;
	}
}

int tree_draw(const json_t *nodes, const char *only, tree_line_fn *fn, void *arg)
{
	size_t n = json_array_size(nodes);
	struct drawing d = { .n = (int)n, .only = only, .fn = fn, .arg = arg };
	autojson json_t *at = json_object();

	if (n > INT_MAX / 2)
		return -E2BIG;
	d.items = calloc(n ? n : 1, sizeof(*d.items));
	if (!d.items || !at) {
		free(d.items);
		return -ENOMEM;
	}
	for (int i = 0; i < d.n; i++)
		d.items[i] = (struct item){ json_array_get(nodes, (size_t)i), -1, -1, -1, -1, HIDDEN };
	join(&d, at);
	choose(&d);
	draw_all(&d);
	free(d.items);
	return d.lines;
}
