/* out.c - what people read: tables, times, sizes, errors. */
#include <stdarg.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/cli.h"

/* --- values of JSON objects, absent ones as empty --- */
const char *get_str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

double get_num(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

bool get_bool(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

/* --- text --- */
void put_safe(FILE *f, struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char ch = (unsigned char)s.p[i];

		/* C1 controls, which some terminals obey, are 0xc2 0x80..0x9f in UTF-8. */
		if (ch < 0x20 || ch == 0x7f)
			putc('?', f);
		else if (ch == 0xc2 && i + 1 < s.n && (unsigned char)s.p[i + 1] < 0xa0)
			continue;
		else
			putc(ch, f);
	}
}

void json_print(struct cli *c, const json_t *v)
{
	/* 15 digits: 65.909 is not 65.909000000000006 to anybody. */
	json_dumpf(v, stdout, JSON_ENCODE_ANY | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15) | (c->out_tty ? JSON_INDENT(2) : JSON_COMPACT));
	putchar('\n');
	fflush(stdout);
}

int fail_here(struct fail *f, int err, const char *fmt, ...)
{
	char msg[sizeof(((struct fail *)NULL)->msg)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	fail_set(f, err, "%s", msg);
	if (f)
		f->remedy[0] = 0;
	return err;
}

static bool word_char(char ch)
{
	return (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || ch == '_' || ch == '-';
}

const char *cli_remedy(const struct cli *c, enum errcode code, const char *remedy, char out[REMEDY_LEN])
{
	size_t n = 0;

	if (code == ERR_bad_request && strstr(remedy, "/openapi.json")) {
		snprintf(out, REMEDY_LEN, "space help%s%s", c->command ? " " : "", c->command ? c->command : "");
		return out;
	}
	if (code == ERR_unauthorized && strstr(remedy, "Authorization: Bearer")) {
		snprintf(out, REMEDY_LEN, "space key create, on the host, makes one; give it as SPACE_API_KEY=KEY or keep it with "
			"space context add NAME URL --key KEY --use");
		return out;
	}
	for (const char *p = remedy; *p && n + 1 < REMEDY_LEN; p++) {
		bool is_id = !strncmp(p, "ID", 2) && (p == remedy || !word_char(p[-1])) && !word_char(p[2]);
		bool from = p - remedy >= 7 && !strncmp(p - 7, "--from ", 7);
		const char *id = !is_id ? NULL : from ? c->node : c->subject;

		if (id) {
			n += (size_t)snprintf(out + n, REMEDY_LEN - n, "%.128s", id);
			n = MIN(n, (size_t)REMEDY_LEN - 1);
			p++;
		} else {
			out[n++] = *p;
		}
	}
	out[n] = 0;
	return out;
}

int cli_fail(struct cli *c, const struct fail *why)
{
	char text[REMEDY_LEN];
	const char *remedy = cli_remedy(c, why->code, why->remedy, text);

	if (c->json) {
		autojson json_t *j = json_pack("{s:s,s:s,s:s?}", "code", err_info(why->code)->name, "message", why->msg,
			"remedy", remedy[0] ? remedy : NULL);

		if (j)
			json_dumpf(j, stderr, JSON_COMPACT);
		fputc('\n', stderr);
		return EXIT_FAILED;
	}
	fputs("space: ", stderr);
	put_safe(stderr, str_of(why->msg));
	if (remedy[0]) {
		fputs("\n  try: ", stderr);
		put_safe(stderr, str_of(remedy));
	}
	fputc('\n', stderr);
	return EXIT_FAILED;
}

int cli_usage(struct cli *c, const char *fmt, ...)
{
	struct fail why = { .code = ERR_bad_request };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why.msg, sizeof(why.msg), fmt, ap);
	va_end(ap);
	cli_fail(c, &why);
	return EXIT_USAGE;
}

int cli_note(struct cli *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (c->json)
		return 0;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fputs("space: ", stderr);
	put_safe(stderr, str_of(text));
	fputc('\n', stderr);
	return 0;
}

/* --- quantities --- */
const char *span(char out[AGO_LEN], double s)
{
	/* Rounded, in the unit that the rounded value belongs to. */
	if (s < 0.9995)
		snprintf(out, AGO_LEN, "%.0f ms", s * 1000);
	else if (s < 119.5)
		snprintf(out, AGO_LEN, "%.0f s", s);
	else if (s < 119.5 * 60)
		snprintf(out, AGO_LEN, "%.0f min", s / 60);
	else if (s < 47.5 * 3600)
		snprintf(out, AGO_LEN, "%.0f h", s / 3600);
	else
		snprintf(out, AGO_LEN, "%.0f days", s / 86400);
	return out;
}

const char *ago(char out[AGO_LEN], const char *rfc3339)
{
	char text[AGO_LEN];
	int64_t ns;
	double s;

	if (!rfc3339 || rfc3339_parse(str_of(rfc3339), &ns) < 0)
		return "-";
	s = (double)(real_ns() - ns) / 1e9;
	if (s > -1 && s < 1)
		return "now";
	span(text, s < 0 ? -s : s);
	snprintf(out, AGO_LEN, s < 0 ? "in %.20s" : "%.20s ago", text);
	return out;
}

const char *size_text(char out[AGO_LEN], double b)
{
	static const char units[] = "BKMGTP";
	size_t u = 0;

	while (b >= 1024 && units[u + 1]) {
		b /= 1024;
		u++;
	}
	if (u == 0)
		snprintf(out, AGO_LEN, "%d B", (int)b);
	else
		snprintf(out, AGO_LEN, b < 10 && b != (double)(int)b ? "%.1f%c" : "%.0f%c", b, units[u]);
	return out;
}

const char *state_colour(const char *state)
{
	if (!strcmp(state, "running") || !strcmp(state, "done") || !strcmp(state, "ok"))
		return "32";
	if (!strcmp(state, "failed") || !strcmp(state, "fail"))
		return "31";
	if (!strcmp(state, "stopped"))
		return "2";
	return "33";
}

void show_line(struct cli *c, const char *name, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("%s%-12s%s ", c->colour ? "\033[1m" : "", name, c->colour ? "\033[0m" : "");
	put_safe(stdout, str_of(text));
	putchar('\n');
}

/* --- tables --- */
struct cell {
	char *text;
	const char *colour;
};

struct table {
	struct cli *c;
	const char *const *heads;
	size_t cols, n, cap;
	struct cell *cells;
};

struct table *table_new(struct cli *c, const char *const *heads)
{
	struct table *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	t->c = c;
	t->heads = heads;
	while (heads[t->cols])
		t->cols++;
	return t;
}

static void cell_add(struct table *t, char *text, const char *colour)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->cells = realloc(t->cells, t->cap * sizeof(*t->cells));
		if (!t->cells)
			abort();
	}
	t->cells[t->n++] = (struct cell){ text, colour };
}

void table_cell(struct table *t, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	va_end(ap);
	cell_add(t, text, NULL);
}

void table_cell_colour(struct table *t, const char *colour, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		abort();
	cell_add(t, copy, colour);
}

/* Columns on screen: code points, which is right for all that we print but wide East Asian names. */
static size_t text_width(const char *s)
{
	size_t w = 0;

	for (; *s; s++)
		w += ((unsigned char)*s & 0xc0) != 0x80;
	return w;
}

static void cell_print(const struct table *t, size_t col, const char *text, const char *colour, size_t width)
{
	bool right = t->heads[col][0] == '>', last = col + 1 == t->cols;
	size_t w = text_width(text), pad = width > w ? width - w : 0;

	if (right)
		printf("%*s", (int)pad, "");
	if (colour && t->c->colour)
		printf("\033[%sm", colour);
	put_safe(stdout, str_of(text));
	if (colour && t->c->colour)
		fputs("\033[0m", stdout);
	if (!right && !last)
		printf("%*s", (int)pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

void table_print(struct table *t)
{
	autofree size_t *width = calloc(t->cols, sizeof(*width));

	if (!width)
		abort();
	for (size_t i = 0; i < t->cols; i++)
		width[i] = text_width(t->heads[i] + (t->heads[i][0] == '>'));
	for (size_t i = 0; i < t->n; i++)
		width[i % t->cols] = MAX(width[i % t->cols], text_width(t->cells[i].text));
	for (size_t i = 0; i < t->cols; i++)
		cell_print(t, i, t->heads[i] + (t->heads[i][0] == '>'), "1", width[i]);
	for (size_t i = 0; i < t->n; i++) {
		cell_print(t, i % t->cols, t->cells[i].text, t->cells[i].colour, width[i % t->cols]);
		free(t->cells[i].text);
	}
	fflush(stdout);
	free(t->cells);
	free(t);
}
