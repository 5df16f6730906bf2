/* nouns.c - templates, images, keys. */
#include <stdio.h>

#include "api/handlers.h"
#include "base/log.h"
#include "image/oci.h"

#define ENV_MAX 1000
#define ENV_BYTES (256 * KIB)
#define SETUP_MAX 64
#define SETUP_BYTES (256 * KIB)
#define PACKAGES_MAX 1000

/* --- templates --- */

static void template_json(struct jw *w, const char *key, const struct template *t)
{
	jw_obj(w, key);
	jw_str(w, "name", t->name);
	jw_int(w, "version", t->version);
	jw_str(w, "node", t->node);
	digests_json(w, t->image_digest, t->kernel_digest, t->node);
	jw_int(w, "vcpu", t->vcpu);
	jw_int(w, "memory", (int64_t)t->memory);
	jw_int(w, "disk", (int64_t)t->disk);
	jw_time(w, "created_at", t->created_ns);
	jw_int(w, "bytes", (int64_t)t->bytes);
	jw_json(w, "env", t->env);
	jw_str(w, "user", t->user[0] ? t->user : NULL);
	jw_str(w, "workdir", t->workdir[0] ? t->workdir : NULL);
	jw_str(w, "start_cmd", t->start_cmd[0] ? t->start_cmd : NULL);
	jw_obj_end(w);
}

/* Lists that the core gives in an order of its own are paged by name. */
struct by_name {
	struct jw w;
	uint64_t limit, n;
	char after[128], last[128];
	bool more;
};

static int by_name_read(struct req *r, struct by_name *l, struct fail *why)
{
	autofree char *cursor = NULL;
	int err;

	l->limit = 100;
	if ((err = req_query_u64(r, "limit", 1000, &l->limit, why)) < 0 ||
	    (err = req_query(r, "cursor", &cursor, why)) < 0)
		return err;
	if (!l->limit)
		return fail_as(why, ERR_bad_request, "limit: a whole number from 1 to 1000");
	if (cursor && (!str_starts(str_of(cursor), "at-") ||
		       str_copy(l->after, sizeof(l->after), str_of(cursor + 3)) < 0))
		return fail_as(why, ERR_bad_cursor, "not a cursor of this list");
	return 0;
}

/* Reads what is asked for, and begins {NOUN:[. False: answered. */
static bool by_name_begin(struct req *r, struct by_name *l, struct buf *b, const char *noun)
{
	struct fail why = { 0 };

	if (by_name_read(r, l, &why) < 0) {
		req_fail(r, &why);
		return false;
	}
	answer_begin(&l->w, b);
	jw_obj(&l->w, NULL);
	jw_arr(&l->w, noun);
	return true;
}

/* The items come in their list's order, so the page begins behind the one that the last page ended with. */
static bool by_name_take(struct by_name *l, const char *name)
{
	if (l->after[0]) {
		if (!strcmp(l->after, name))
			l->after[0] = '\0';
		return false;
	}
	if (l->n == l->limit) {
		l->more = true;
		return false;
	}
	l->n++;
	snprintf(l->last, sizeof(l->last), "%s", name);
	return true;
}

static void by_name_answer(struct req *r, struct by_name *l)
{
	char cursor[160];

	if (l->after[0]) {
		buf_clear(l->w.b);
		return req_failf(r, ERR_bad_cursor, "what the last page ended with is gone");
	}
	jw_arr_end(&l->w);
	snprintf(cursor, sizeof(cursor), "at-%s", l->last);
	jw_str(&l->w, "next_cursor", l->more ? cursor : NULL);
	jw_obj_end(&l->w);
	req_json(r, 200, &l->w);
}

static int list_template(const struct template *t, void *arg)
{
	struct by_name *l = arg;

	if (by_name_take(l, t->name))
		template_json(&l->w, NULL, t);
	return !l->more;
}

void h_templates(struct req *r)
{
	struct by_name l = { 0 };
	struct buf b;

	if (!by_name_begin(r, &l, &b, "templates"))
		return;
	template_each(r->api->sp, r->tenant, list_template, &l);
	by_name_answer(r, &l);
}

void h_template(struct req *r)
{
	struct fail why = { 0 };
	const struct template *t = template_find(r->api->sp, r->tenant, req_param(r, 0), &why);
	struct buf b;
	struct jw w;

	if (!t)
		return req_fail(r, &why);
	answer_begin(&w, &b);
	template_json(&w, NULL, t);
	req_json(r, 200, &w);
}

struct template_body {
	const char *name, *image, *start_cmd, *ready_cmd, *user, *workdir;
	json_t *memory, *disk, *setup, *env;
	int64_t vcpu;
};

const struct field template_fields[] = {
	STR_FIELD(struct template_body, name, 63, true),
	STR_FIELD(struct template_body, image, 127, true),
	INT_FIELD(struct template_body, vcpu, 1, 32, false),
	ANY_FIELD(struct template_body, memory, false),
	ANY_FIELD(struct template_body, disk, false),
	ARR_FIELD(struct template_body, setup, SETUP_MAX, false),
	OBJ_FIELD(struct template_body, env, ENV_MAX, false),
	STR_FIELD(struct template_body, start_cmd, 1023, false),
	STR_FIELD(struct template_body, ready_cmd, 1023, false),
	STR_FIELD(struct template_body, user, 63, false),
	STR_FIELD(struct template_body, workdir, 255, false),
};
const unsigned ntemplate_fields = ARRAY_LEN(template_fields);

static int template_read(json_t *body, struct template_req *q, struct fail *why)
{
	struct template_body b = { 0 };
	int err = fields_read(body, template_fields, ntemplate_fields, &b, why);

	*q = (struct template_req){ 0 };
	if (err < 0 || (err = value_size(b.memory, "memory", 64 * MIB, 1ULL << 46, &q->memory, why)) < 0 ||
	    (err = value_size(b.disk, "disk", 64 * MIB, 1ULL << 46, &q->disk, why)) < 0 ||
	    (err = value_env(b.env, "env", ENV_MAX, ENV_BYTES, why)) < 0)
		return err;
	if (b.setup && (err = value_strings(b.setup, "setup", 0, SETUP_MAX, SETUP_BYTES, why)) < 0)
		return err;
	if (!str_is_name(str_of(b.name)))
		return fail_as(why, ERR_bad_request,
			       "name: a small letter or digit, then [a-z0-9._-], at most 63");
	if (b.workdir && (err = guest_path_check(str_of(b.workdir), "workdir", why)) < 0)
		return err;
	q->name = b.name;
	q->image = b.image;
	q->vcpu = (unsigned)b.vcpu;
	q->setup = b.setup;
	q->env = b.env;
	q->start_cmd = b.start_cmd;
	q->ready_cmd = b.ready_cmd;
	q->user = b.user;
	q->workdir = b.workdir;
	return 0;
}

static void template_body(struct req *r, json_t *body)
{
	struct template_req q;
	struct fail why = { 0 };
	struct operation *op;

	if (template_read(body, &q, &why) < 0)
		return req_fail(r, &why);
	op = template_build(r->api->sp, r->tenant, &q, &why);
	if (!op)
		return req_fail(r, &why);
	log_info("template %s: build asked for operation=%s peer=%s", q.name, op->id, http_peer(r->x));
	req_operation(r, op);
}

void h_template_build(struct req *r)
{
	req_body(r, template_body);
}

void h_template_delete(struct req *r)
{
	struct fail why = { 0 };

	if (template_remove(r->api->sp, r->tenant, req_param(r, 0), &why) < 0)
		return req_fail(r, &why);
	log_info("template %s: removed peer=%s", req_param(r, 0), http_peer(r->x));
	req_empty(r, 204);
}

/* --- images --- */

static void on_images(json_t *value, const struct fail *why, void *arg)
{
	struct req *r = arg;
	struct by_name l = { 0 };
	json_t *image;
	struct buf b;
	size_t i;

	if (why->err) {
		req_fail(r, why);
	} else if (by_name_begin(r, &l, &b, "images")) {
		json_array_foreach (json_object_get(value, "images"), i, image) {
			const char *digest = json_string_value(json_object_get(image, "digest"));

			if (by_name_take(&l, digest ? digest : ""))
				jw_json(&l.w, NULL, image);
		}
		by_name_answer(r, &l);
	}
	req_unref(r);
}

void h_images(struct req *r)
{
	image_list_json(r->api->sp, on_images, req_ref(r));
}

/* By name, by digest, by the digest's bare digits. */
static bool image_is(json_t *image, const char *what)
{
	const char *name = json_string_value(json_object_get(image, "name"));
	const char *digest = json_string_value(json_object_get(image, "digest"));

	return (name && !strcmp(name, what)) || (digest && !strcmp(digest, what)) ||
	       (digest && str_starts(str_of(digest), "sha256:") && !strcmp(digest + 7, what));
}

static void on_image(json_t *value, const struct fail *why, void *arg)
{
	struct req *r = arg;
	json_t *image, *found = NULL;
	struct buf b;
	struct jw w;
	size_t i;

	json_array_foreach (json_object_get(value, "images"), i, image)
		if (image_is(image, req_param(r, 0)))
			found = image;
	if (why->err) {
		req_fail(r, why);
	} else if (!found) {
		req_failf(r, ERR_image_not_found, "no image \"%.80s\"", req_param(r, 0));
	} else {
		answer_begin(&w, &b);
		jw_json(&w, NULL, found);
		req_json(r, 200, &w);
	}
	req_unref(r);
}

void h_image(struct req *r)
{
	image_list_json(r->api->sp, on_image, req_ref(r));
}

struct image_body {
	const char *name, *from, *path, *ref;
	json_t *packages;
};

const struct field image_fields[] = {
	STR_FIELD(struct image_body, name, 63, false),
	STR_FIELD(struct image_body, from, 16, true),
	ARR_FIELD(struct image_body, packages, PACKAGES_MAX, false),
	STR_FIELD(struct image_body, path, 4095, false),
	STR_FIELD(struct image_body, ref, 1023, false),
};
const unsigned nimage_fields = ARRAY_LEN(image_fields);

static bool package_name(const char *s)
{
	const char *p = s;

	/* Debian policy 5.6.1; a version may follow. It becomes an argument, so it must not begin like an option. */
	for (; *p; p++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789+-.:=~_", *p) && !(*p >= 'A' && *p <= 'Z'))
			return false;
	return *s && *s != '-' && strlen(s) < 256;
}

static int image_read(struct req *r, json_t *body, struct image_body *q, struct fail *why)
{
	int err = fields_read(body, image_fields, nimage_fields, q, why);
	json_t *p;
	size_t i;

	if (err < 0)
		return err;
	if (q->name && *q->name && !str_is_name(str_of(q->name)))
		return fail_as(why, ERR_bad_request,
			       "name: a small letter or digit, then [a-z0-9._-], at most 63");
	if (!strcmp(q->from, "packages")) {
		if (!q->packages || q->path || q->ref)
			return fail_as(why, ERR_bad_request, "from packages: takes packages, and no path or ref");
		err = value_strings(q->packages, "packages", 0, PACKAGES_MAX, 64 * KIB, why);
		json_array_foreach (q->packages, i, p)
			if (!err && !package_name(json_string_value(p)))
				err = fail_as(why, ERR_bad_request, "packages[%zu]: the name of a Debian package", i);
		return err;
	}
	if (!strcmp(q->from, "dir")) {
		if (!q->path || q->packages || q->ref)
			return fail_as(why, ERR_bad_request, "from dir: takes path, and no packages or ref");
		err = guest_path_check(str_of(q->path), "path", why);
		if (!err && !r->local)
			err = fail_as(why, ERR_forbidden, "a directory of the host is read only for the local socket");
		return err;
	}
	if (strcmp(q->from, "oci") != 0)
		return fail_as(why, ERR_bad_request, "from: \"packages\", \"dir\" or \"oci\"");
	if (!q->ref || q->packages || q->path)
		return fail_as(why, ERR_bad_request, "from oci: takes ref, and no packages or path");
	if (str_has_ctl(str_of(q->ref)) ||
	    (!str_starts(str_of(q->ref), "docker://") && !str_starts(str_of(q->ref), "oci:")))
		return fail_as(why, ERR_bad_request, "ref: docker://HOST/NAME[:TAG] or oci:/PATH[:TAG]");
	if (str_starts(str_of(q->ref), "oci:") && !r->local)
		return fail_as(why, ERR_forbidden, "a layout on the host is read only for the local socket");
	if (oci_ref_is_loopback(q->ref) && !r->local)
		return fail_as(why, ERR_forbidden, "a registry on the host itself is asked only for the local socket");
	return 0;
}

static void image_body(struct req *r, json_t *body)
{
	struct image_body q = { 0 };
	autojson json_t *source = NULL; /* what to build from, without the name */
	struct fail why = { 0 };
	struct operation *op;

	if (image_read(r, body, &q, &why) < 0)
		return req_fail(r, &why);
	source = json_copy(body);
	if (!source)
		return req_failf(r, ERR_no_capacity, "out of memory");
	json_object_del(source, "name");
	op = image_build(r->api->sp, r->tenant, q.name && *q.name ? q.name : NULL, source, &why);
	if (!op)
		return req_fail(r, &why);
	log_info("image %s: build asked for from=%s operation=%s peer=%s", q.name ? op->target : "-", q.from,
		 op->id, http_peer(r->x));
	req_operation(r, op);
}

void h_image_build(struct req *r)
{
	req_body(r, image_body);
}

void h_image_delete(struct req *r)
{
	image_remove_async(r->api->sp, req_param(r, 0), answer_nothing, req_ref(r));
}

/* --- keys --- */

static const char *const scope_names[] = { "read", "use", "admin" };

static void key_json(struct jw *w, const struct key_info *k, const char *text)
{
	jw_obj(w, NULL);
	jw_str(w, "id", k->id);
	jw_str(w, "name", k->name);
	jw_str(w, "scope", scope_names[k->scope]);
	if (text)
		jw_str(w, "key", text);
	else
		jw_time(w, "last_used_at", k->last_used_ns);
	jw_time(w, "created_at", k->created_ns);
	jw_obj_end(w);
}

static int list_key(const struct key_info *k, void *arg)
{
	struct by_name *l = arg;

	if (by_name_take(l, k->id))
		key_json(&l->w, k, NULL);
	return !l->more;
}

void h_keys(struct req *r)
{
	struct by_name l = { 0 };
	struct buf b;

	if (!by_name_begin(r, &l, &b, "keys"))
		return;
	key_each(r->api->sp, list_key, &l);
	by_name_answer(r, &l);
}

struct key_body { const char *name, *scope; };

const struct field key_fields[] = {
	STR_FIELD(struct key_body, name, 63, false),
	STR_FIELD(struct key_body, scope, 16, false),
};
const unsigned nkey_fields = ARRAY_LEN(key_fields);

struct key_made {
	struct req *r;
	char text[64];
};

static void on_key_made(const struct key_info *k, const struct fail *why, void *arg)
{
	struct key_made *m = arg;
	struct buf b;
	struct jw w;

	if (!k) {
		req_fail(m->r, why);
	} else {
		answer_begin(&w, &b);
		key_json(&w, k, m->text);
		req_json(m->r, 201, &w);
	}
	req_unref(m->r);
	explicit_bzero(m->text, sizeof(m->text));
	free(m);
}

static void key_body(struct req *r, json_t *body)
{
	struct key_body q = { .name = "", .scope = "use" };
	struct fail why = { 0 };
	struct key_made *m;
	size_t i;

	if (fields_read(body, key_fields, nkey_fields, &q, &why) < 0)
		return req_fail(r, &why);
	for (i = 0; i < ARRAY_LEN(scope_names); i++)
		if (!strcmp(q.scope, scope_names[i]))
			break;
	if (i == ARRAY_LEN(scope_names))
		return req_failf(r, ERR_bad_request, "scope: \"read\", \"use\" or \"admin\"");
	m = calloc(1, sizeof(*m));
	if (!m)
		return req_failf(r, ERR_no_capacity, "out of memory");
	m->r = req_ref(r);
	key_create(r->api->sp, r->tenant, q.name, (enum scope)i, m->text, on_key_made, m);
}

void h_key_create(struct req *r)
{
	req_body(r, key_body);
}

static void on_key_gone(const struct fail *why, void *arg)
{
	struct req *r = arg;
	struct fail f = { 0 };

	if (why->err) {
		req_fail(r, why);
	} else {
		/* A stream that was opened with it would go on for hours. Its own request is not a stream. */
		fail_as(&f, ERR_unauthorized, "the key was deleted");
		req_stop_streams(r->api, req_param(r, 0), &f);
		req_empty(r, 204);
	}
	req_unref(r);
}

void h_key_delete(struct req *r)
{
	key_delete(r->api->sp, req_param(r, 0), on_key_gone, req_ref(r));
}
