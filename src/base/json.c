/* json.c - reading JSON, see json.h. The writer is in jw.c. */
#include "base/json.h"

#include <stdio.h>

#define DEPTH_MAX 32

/* jansson nests to 2048 and has no option for less: counted before it sees the text. Offset of the
 * bracket that is too deep, or -1. Strings are skipped the way any parser does; malformed ones are
 * left to jansson. */
static ssize_t too_deep(struct str t)
{
	unsigned depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < t.n; i++) {
		char c = t.p[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > DEPTH_MAX)
				return (ssize_t)i;
		} else if ((c == '}' || c == ']') && depth) {
			depth--;
		}
	}
	return -1;
}

/* jansson quotes what it met; only what can be shown is passed on. */
static void printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
			*s = '?';
}

static json_t *read_with(struct str text, size_t flags, struct fail *why)
{
	json_error_t err;
	json_t *j;
	ssize_t deep = too_deep(text);
	const char *nul;

	if (deep >= 0) {
		fail_as(why, ERR_bad_json, "not valid JSON: nested deeper than %d at byte %zd",
			DEPTH_MAX, deep);
		return NULL;
	}
	/* jansson takes a NUL after the value for the end of the text. */
	nul = text.n ? memchr(text.p, 0, text.n) : NULL;
	if (nul) {
		fail_as(why, ERR_bad_json, "not valid JSON: a NUL at byte %td", nul - text.p);
		return NULL;
	}
	j = json_loadb(
		text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &err);
	if (!j) {
		printable(err.text);
		fail_as(why, ERR_bad_json, "not valid JSON: line %d, column %d (byte %d): %.120s",
			err.line, err.column, err.position, err.text);
	}
	return j;
}

json_t *json_read(struct str text, struct fail *why)
{
	return read_with(text, 0, why);
}

json_t *json_read_text(struct str text, struct fail *why)
{
	return read_with(text, JSON_ALLOW_NUL, why);
}

static bool has_limits(const struct field *f)
{
	return f->min || f->max;
}

/* "vcpu: a whole number from 1 to 32" */
static int refuse(const struct field *f, struct fail *why)
{
	char limits[64] = "";

	if (has_limits(f) && (f->kind == FIELD_INT || f->min))
		snprintf(limits, sizeof(limits),
			f->kind == FIELD_INT ? " from %lld to %lld" : " of %lld to %lld",
			(long long)f->min, (long long)f->max);
	else if (has_limits(f))
		snprintf(limits, sizeof(limits), " of at most %lld", (long long)f->max);

	switch (f->kind) {
	case FIELD_STR:
		return fail_as(why, ERR_bad_request, "%s: a string%s%s", f->name, limits,
			*limits ? " bytes" : "");
	case FIELD_INT:
		return fail_as(why, ERR_bad_request, "%s: a whole number%s", f->name, limits);
	case FIELD_BOOL:
		return fail_as(why, ERR_bad_request, "%s: true or false", f->name);
	case FIELD_NUM:
		return fail_as(why, ERR_bad_request, "%s: a number", f->name);
	case FIELD_OBJ:
		return fail_as(why, ERR_bad_request, "%s: an object%s%s", f->name, limits,
			*limits ? " members" : "");
	case FIELD_ARR:
		return fail_as(why, ERR_bad_request, "%s: an array%s%s", f->name, limits,
			*limits ? " members" : "");
	case FIELD_ANY:
		break;
	}
	return fail_as(why, ERR_bad_request, "%s: is required", f->name);
}

static bool within(const struct field *f, int64_t v)
{
	return !has_limits(f) || (v >= f->min && v <= f->max);
}

static int field_read(const struct field *f, json_t *v, void *at, struct fail *why)
{
	switch (f->kind) {
	case FIELD_STR:
		if (!json_is_string(v) || !within(f, (int64_t)json_string_length(v)))
			return refuse(f, why);
		*(const char **)at = json_string_value(v);
		return 0;
	case FIELD_INT:
		if (!json_is_integer(v) || !within(f, json_integer_value(v)))
			return refuse(f, why);
		*(int64_t *)at = json_integer_value(v);
		return 0;
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return refuse(f, why);
		*(bool *)at = json_is_true(v);
		return 0;
	case FIELD_NUM:
		if (!json_is_number(v))
			return refuse(f, why);
		*(double *)at = json_number_value(v);
		return 0;
	case FIELD_OBJ:
		if (!json_is_object(v) || !within(f, (int64_t)json_object_size(v)))
			return refuse(f, why);
		break;
	case FIELD_ARR:
		if (!json_is_array(v) || !within(f, (int64_t)json_array_size(v)))
			return refuse(f, why);
		break;
	case FIELD_ANY:
		break;
	}
	*(json_t **)at = v;
	return 0;
}

static int check_known(json_t *obj, const struct field *f, size_t nf, struct fail *why)
{
	const char *key;
	json_t *v;

	json_object_foreach(obj, key, v)
	{
		char shown[64];
		size_t i;

		for (i = 0; i < nf && strcmp(f[i].name, key) != 0; i++)
			;
		if (i < nf)
			continue;
		snprintf(shown, sizeof(shown), "%s", key);
		printable(shown);
		return fail_as(why, ERR_bad_request, "%s: unknown field", shown);
	}
	return 0;
}

int fields_read_loose(json_t *obj, const struct field *f, size_t nf, void *out, struct fail *why)
{
	if (!json_is_object(obj))
		return fail_as(why, ERR_bad_request, "a JSON object is expected");
	for (size_t i = 0; i < nf; i++) {
		json_t *v = json_object_get(obj, f[i].name);
		int r;

		if (!v || json_is_null(v)) {
			if (f[i].required)
				return fail_as(why, ERR_bad_request, "%s: is required", f[i].name);
			continue;
		}
		r = field_read(&f[i], v, (char *)out + f[i].at, why);
		if (r < 0)
			return r;
		if (f[i].has)
			*(bool *)((char *)out + f[i].has) = true;
	}
	return 0;
}

int fields_read(json_t *obj, const struct field *f, size_t nf, void *out, struct fail *why)
{
	int r = json_is_object(obj) ? check_known(obj, f, nf, why) : 0;

	return r < 0 ? r : fields_read_loose(obj, f, nf, out, why);
}

static int dump_to_buf(const char *p, size_t n, void *arg)
{
	struct jw *w = arg;

	if (!w->err)
		w->err = buf_add(w->b, p, n);
	return w->err ? -1 : 0;
}

void jw_json(struct jw *w, const char *key, const json_t *v)
{
	size_t before = w->b->n;

	jw_null(w, key);
	if (!v || w->err)
		return;
	w->b->n -= MIN((size_t)4, w->b->n - before); /* the key stays, "null" goes */
	if (json_dump_callback(v, dump_to_buf, w, JSON_COMPACT | JSON_ENCODE_ANY) < 0 && !w->err)
		w->err = -ENOMEM;
}
