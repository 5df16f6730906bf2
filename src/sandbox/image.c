/* image.c - images as the API sees them: built by space-image, listed and removed in jobs. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/core.h"

#define PACKAGES_MAX 1000

/* --- building --- */

static void build_step(const char *what, double done, void *arg)
{
	operation_step(arg, what, done);
}

static void build_done(json_t *last, const struct fail *why, void *arg)
{
	struct operation *op = arg;

	if (why->err)
		log_warning("image %s: not built: %s", op->target, why->msg);
	else
		log_info("image %s: built", op->target);
	operation_end(op, json_incref(last), why);
}

static bool path_ok(const char *p)
{
	return p && p[0] == '/' && strlen(p) < 4096 && !str_has_ctl(str_of(p));
}

static int packages(json_t *list, const char *name, char **argv, struct fail *why)
{
	json_t *v;
	size_t i, n = 0;

	if (list && !json_is_array(list))
		return fail_as(why, ERR_bad_request, "packages: a list of package names");
	if (json_array_size(list) > PACKAGES_MAX)
		return fail_as(why, ERR_bad_request, "packages: at most %d of them", PACKAGES_MAX);
	argv[n++] = (char *)(json_array_size(list) ? "build-packages" : "build-base");
	argv[n++] = (char *)name;
	json_array_foreach(list, i, v)
	{
		const char *p = json_string_value(v);

		/* Debian's rule for names, and what apt takes behind one: :arch, =version. Never an option. */
		if (!p || strlen(p) < 2 || strlen(p) > 128 || p[0] == '-' ||
		    strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.:=~") != strlen(p))
			return fail_as(why, ERR_bad_request, "packages: \"%.60s\" is no package name", p ? p : "?");
		argv[n++] = (char *)p;
	}
	argv[n] = NULL;
	return 0;
}

static int command(json_t *source, const char *name, char **argv, struct fail *why)
{
	const char *from = json_string_value(json_object_get(source, "from"));
	const char *path = json_string_value(json_object_get(source, "path"));
	const char *ref = json_string_value(json_object_get(source, "ref"));

	if (from && !strcmp(from, "packages"))
		return packages(json_object_get(source, "packages"), name, argv, why);
	argv[1] = (char *)name;
	argv[3] = NULL;
	if (from && !strcmp(from, "dir")) {
		if (!path_ok(path))
			return fail_as(why, ERR_bad_request, "path: an absolute path on the host");
		argv[0] = (char *)"build-dir";
		argv[2] = (char *)path;
		return 0;
	}
	if (from && !strcmp(from, "oci")) {
		if (!ref || strlen(ref) > 4095 || str_has_ctl(str_of(ref)) ||
		    (!str_starts(str_of(ref), "oci:") && !str_starts(str_of(ref), "docker://")))
			return fail_as(why, ERR_bad_request, "ref: oci:/path[:tag] or docker://host/name[:tag]");
		argv[0] = (char *)"build-oci";
		argv[2] = (char *)ref;
		return 0;
	}
	return fail_as(why, ERR_bad_request, "from: packages, dir or oci");
}

struct operation *image_build(struct space *sp, const char *tenant, const char *name, json_t *source, struct fail *why)
{
	char *argv[PACKAGES_MAX + 3];
	struct operation *op;

	if (sp->stopping) {
		fail_as(why, ERR_daemon_down, "spaced is stopping");
		return NULL;
	}
	if (!name || !str_is_name(str_of(name))) {
		fail_as(why, ERR_bad_request, "name: a-z and 0-9, then also \".\", \"_\" and \"-\", at most 63");
		return NULL;
	}
	if (command(source, name, argv, why) < 0)
		return NULL;
	op = operation_new(sp, tenant, "image.build", name);
	if (!op) {
		fail_as(why, ERR_no_capacity, "too many operations are under way");
		return NULL;
	}
	if (child_run(sp, argv, build_step, build_done, op, why) < 0) {
		operation_end(op, NULL, why);
		return NULL;
	}
	return op;
}

/* --- listing and removing --- */

struct image_job {
	struct space *sp;
	char name[128];
	json_t *value;
	char digest[65];
	json_done_fn *done;
	void *arg;
};

static json_t *image_json(const struct image_info *i)
{
	char digest[80], at[RFC3339_LEN];

	snprintf(digest, sizeof(digest), "sha256:%s", i->digest.hex);
	rfc3339_format(at, i->created_ns);
	return json_pack("{s:s,s:s,s:I,s:s,s:s,s:s,s:O?,s:O?}", "name", i->name, "digest", digest, "bytes", (json_int_t)i->bytes, "created_at",
			 at, "user", i->user, "workdir", i->workdir, "env", i->env, "cmd", i->cmd);
}

static int list_job(void *arg, struct fail *why)
{
	struct image_job *j = arg;
	struct image_info *all = NULL;
	json_t *list = json_array();
	size_t n = 0;
	int r = image_list(j->sp->pool, &all, &n, why);

	for (size_t i = 0; i < n; i++) {
		json_array_append_new(list, image_json(&all[i]));
		image_info_clear(&all[i]);
	}
	free(all);
	if (r == 0)
		j->value = json_pack("{s:o}", "images", list);
	else
		json_decref(list);
	return r;
}

static void job_done(void *arg, const struct fail *why)
{
	struct image_job *j = arg;

	j->done(why->err ? NULL : j->value, why, j->arg);
	json_decref(j->value);
	free(j);
}

static struct image_job *job_new(struct space *sp, const char *name, json_done_fn *done, void *arg)
{
	struct image_job *j = calloc(1, sizeof(*j));
	struct fail why = { 0 };

	if (!j || str_copy(j->name, sizeof(j->name), str_of(name)) < 0) {
		if (j)
			fail_as(&why, ERR_image_not_found, "no image \"%.60s\"", name);
		else
			fail_set(&why, -ENOMEM, "out of memory");
		free(j);
		done(NULL, &why, arg);
		return NULL;
	}
	j->sp = sp;
	j->done = done;
	j->arg = arg;
	return j;
}

void image_list_json(struct space *sp, json_done_fn *done, void *arg)
{
	struct image_job *j = job_new(sp, "", done, arg);

	if (j)
		space_job(sp, NULL, list_job, job_done, j);
}

static int find_job(void *arg, struct fail *why)
{
	struct image_job *j = arg;
	struct image_info i;
	int r = image_find(j->sp->pool, j->name, &i, why);

	if (r < 0)
		return r;
	(void)str_copy(j->digest, sizeof(j->digest), str_of(i.digest.hex));
	j->value = image_json(&i);
	image_info_clear(&i);
	return 0;
}

static int remove_job(void *arg, struct fail *why)
{
	struct image_job *j = arg;

	return FAULT_WHY(why, image_remove(j->sp->pool, j->name, why));
}

static int in_use(struct space *sp, const char *digest, struct fail *why)
{
	link_each_safe(l, next, &sp->templates) {
		struct tmpl *t = container_of(l, struct tmpl, link);

		if (!strcmp(t->t.image_digest, digest)) {
			fail_as(why, ERR_conflict, "template %s uses this image", t->t.name);
			fail_remedy(why, "space template rm %s, then again", t->t.name);
			return why->err;
		}
	}
	link_each_safe(l, next, &sp->sandboxes) {
		struct sandbox_core *c = container_of(l, struct sandbox_core, link);

		if (!state_ended(c->state) && !strcmp(c->sb.image_digest, digest)) {
			fail_as(why, ERR_conflict, "sandbox %s uses this image", c->sb.id);
			fail_remedy(why, "space kill %s, then again", c->sb.id);
			return why->err;
		}
	}
	if (builds_use_image(sp, digest))
		return fail_as(why, ERR_conflict, "a template is being built from this image");
	return 0;
}

static void found(void *arg, const struct fail *why)
{
	struct image_job *j = arg;
	struct fail f = *why;

	if (f.err || in_use(j->sp, j->digest, &f) < 0)
		job_done(j, &f);
	else
		space_job(j->sp, NULL, remove_job, job_done, j);
}

void image_remove_async(struct space *sp, const char *name, json_done_fn *done, void *arg)
{
	struct image_job *j = job_new(sp, name, done, arg);

	if (j)
		space_job(sp, NULL, find_job, found, j);
}
