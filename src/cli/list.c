/* list.c - the nouns of the API (templates, images, keys, nodes, …): listed as a table, shown, removed. */
#include "cli/cli.h"

#define COLUMNS_MAX 16

/* "digests.image" is a member of a member. */
static const json_t *member(const json_t *o, const char *key)
{
	struct str head, rest;
	char name[64];

	while (str_cut(str_of(key), '.', &head, &rest)) {
		if (str_copy(name, sizeof(name), head) < 0)
			return NULL;
		o = json_object_get(o, name);
		key = rest.p;
	}
	return json_object_get(o, key);
}

static const char *short_digest(char out[AGO_LEN], const char *digest)
{
	const char *hex = strncmp(digest, "sha256:", 7) ? digest : digest + 7;

	snprintf(out, AGO_LEN, "%.12s", hex);
	return out;
}

static void cell_of(struct table *t, const struct column *col, const json_t *row)
{
	const json_t *v = member(row, col->key);
	const char *s = json_string_value(v);
	char text[AGO_LEN];

	switch (col->kind) {
	case COL_NUM:
		table_cell(t, "%.0f", json_number_value(v));
		return;
	case COL_SIZE:
		table_cell(t, "%s", size_text(text, json_number_value(v)));
		return;
	case COL_AGO:
		table_cell(t, "%s", s ? ago(text, s) : "never");
		return;
	case COL_STATE:
		table_cell_colour(t, state_colour(s ? s : ""), s ? s : "-");
		return;
	case COL_DIGEST:
		table_cell(t, "%s", s ? short_digest(text, s) : "-");
		return;
	case COL_TEXT:
		table_cell(t, "%.60s", s && *s ? s : "-");
	}
}

void list_rows(struct cli *c, const json_t *list, const struct column *cols)
{
	const char *heads[COLUMNS_MAX + 1] = { NULL };
	struct table *t;
	json_t *row;
	size_t i;

	for (size_t n = 0; n < COLUMNS_MAX && cols[n].head; n++)
		heads[n] = cols[n].head;
	t = table_new(c, heads);
	json_array_foreach((json_t *)list, i, row)
		for (size_t n = 0; heads[n]; n++)
			cell_of(t, &cols[n], row);
	table_print(t);
}

int list_print(struct cli *c, const char *target, const char *noun, const struct column *cols, const char *none)
{
	autojson json_t *list = NULL;
	struct fail why = { 0 };

	if (api_list(c, target, noun, &list, &why) < 0)
		return cli_fail(c, &why);
	if (c->json)
		json_print(c, list);
	else if (none && c->out_tty && !json_array_size(list))
		cli_note(c, "%s", none);
	else
		list_rows(c, list, cols);
	return EXIT_OK;
}

void print_ids(const json_t *list)
{
	json_t *v;
	size_t i;

	json_array_foreach((json_t *)list, i, v)
		printf("%s\n", json_is_string(v) ? json_string_value(v) : get_str(v, "id"));
}

int show_one(struct cli *c, const char *fmt, const char *name)
{
	autofree char *path = api_path(fmt, name);
	autofree char *text = NULL;
	autojson json_t *out = NULL;
	struct fail why = { 0 };

	if (api_call(c, "GET", path, NULL, &out, &why) < 0)
		return cli_fail(c, &why);
	if (c->json) {
		json_print(c, out);
		return EXIT_OK;
	}
	text = json_dumps(out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	printf("%s\n", text ? text : "");
	return EXIT_OK;
}

int remove_each(struct cli *c, const char *fmt, int argc, char **argv)
{
	autojson json_t *gone = json_array();
	int status = EXIT_OK;

	for (int i = 0; i < argc; i++) {
		autofree char *path = api_path(fmt, argv[i]);
		struct fail why = { 0 };

		if (api_call(c, "DELETE", path, NULL, NULL, &why) < 0) {
			if (argc > 1)
				fail_prefix(&why, "%.100s is not removed", argv[i]);
			status = cli_fail(c, &why);
		} else if (argc > 1 && !c->json) {
			printf("%s removed\n", argv[i]);
			fflush(stdout); /* before what fails after it */
		} else {
			json_array_append_new(gone, json_string(argv[i]));
		}
	}
	if (argc > 1 && c->json)
		json_print(c, gone);
	return status;
}
