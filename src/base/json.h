/* json.h - JSON: a field table in, a writer out. Parsing is jansson's, bounded; writing goes straight into a buffer. */
#ifndef SPACE_JSON_H
#define SPACE_JSON_H

#include <jansson.h>

#include "base/buf.h"
#include "base/fail.h"

static inline void autojson_cleanup(json_t **j)
{
	json_decref(*j);
}
#define autojson CLEANUP(autojson_cleanup)

/* One JSON value out of exactly N bytes: strict UTF-8, no repeated key, no NUL in strings, nesting at most 32.
 * A new reference, or NULL with WHY = bad_json (position named). */
json_t *json_read(struct str text, struct fail *why);

/* The same, but strings may hold \u0000: for the output of commands, which is any bytes there are. Such a string is
 * json_string_value() with json_string_length(), never a C string. */
json_t *json_read_text(struct str text, struct fail *why);

enum field_kind { FIELD_STR, FIELD_INT, FIELD_BOOL, FIELD_NUM, FIELD_OBJ, FIELD_ARR, FIELD_ANY };

/* One field of a request body. The struct it goes into already holds the defaults.
 * STR: const char * that lives as long as the json_t. INT: int64_t. BOOL: bool. NUM: double. OBJ, ARR, ANY: json_t *, borrowed.
 * Where `has` is not 0 it is the offset of a bool that is set when the field was there and not null. */
struct field {
	const char *name;
	enum field_kind kind;
	size_t at, has;
	bool required;
	int64_t min, max; /* INT: the value. STR: bytes. ARR and OBJ: members. Both 0: anything */
};

#define STR_FIELD(type, member, max_len, req) { #member, FIELD_STR, offsetof(type, member), 0, req, 0, max_len }
#define INT_FIELD(type, member, lo, hi, req) { #member, FIELD_INT, offsetof(type, member), 0, req, lo, hi }
#define BOOL_FIELD(type, member, req) { #member, FIELD_BOOL, offsetof(type, member), 0, req, 0, 0 }
#define OBJ_FIELD(type, member, most, req) { #member, FIELD_OBJ, offsetof(type, member), 0, req, 0, most }
#define ARR_FIELD(type, member, most, req) { #member, FIELD_ARR, offsetof(type, member), 0, req, 0, most }
#define ANY_FIELD(type, member, req) { #member, FIELD_ANY, offsetof(type, member), 0, req, 0, 0 }

/* Reads OBJ into OUT by the table. An unknown field, a wrong type or a value out of range is an error that names the
 * field and says what it takes ("vcpu: a whole number from 1 to 32"). null is as if the field were absent. */
int fields_read(json_t *obj, const struct field *f, size_t nf, void *out, struct fail *why);

/* The same, but unknown fields are skipped (for protocols of others). */
int fields_read_loose(json_t *obj, const struct field *f, size_t nf, void *out, struct fail *why);

/* The writer. Puts commas and escapes; errors stick in `err` (-ENOBUFS, -ENOMEM), to be looked at once at the end.
 * A string that is not UTF-8 is written with U+FFFD in the place of each bad byte. NULL keys: inside arrays. */
struct jw {
	struct buf *b;
	int err;
	bool comma;
};

void jw_init(struct jw *w, struct buf *b);
void jw_obj(struct jw *w, const char *key);
void jw_obj_end(struct jw *w);
void jw_arr(struct jw *w, const char *key);
void jw_arr_end(struct jw *w);
void jw_str(struct jw *w, const char *key, const char *z); /* NULL writes null */
void jw_strn(struct jw *w, const char *key, struct str s);
void jw_int(struct jw *w, const char *key, int64_t v);
void jw_num(struct jw *w, const char *key, double v); /* three decimals */
void jw_bool(struct jw *w, const char *key, bool v);
void jw_null(struct jw *w, const char *key);
void jw_time(struct jw *w, const char *key, int64_t unix_ns); /* RFC 3339, ms; 0 writes null */
void jw_json(struct jw *w, const char *key, const json_t *v); /* NULL writes null */
void jw_base64(struct jw *w, const char *key, const void *p, size_t n);
void jw_fail(struct jw *w, const struct fail *f, const char *request_id); /* members code, message, remedy, request_id */

#endif
