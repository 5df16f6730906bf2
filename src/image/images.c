/* images.c - the image store: what is there, what it is called, what its configuration says. */
#include "image/images.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"

#define IMAGE_FORMAT 1

struct image_json {
	int64_t format, bytes;
	const char *digest, *created_at, *user, *workdir;
	json_t *env, *cmd;
};

static const struct field image_fields[] = {
	INT_FIELD(struct image_json, format, IMAGE_FORMAT, IMAGE_FORMAT, true),
	INT_FIELD(struct image_json, bytes, 0, INT64_MAX, true),
	STR_FIELD(struct image_json, digest, 71, true),
	STR_FIELD(struct image_json, created_at, 40, true),
	STR_FIELD(struct image_json, user, 63, false),
	STR_FIELD(struct image_json, workdir, 255, false),
	OBJ_FIELD(struct image_json, env, 1024, false),
	ARR_FIELD(struct image_json, cmd, 1024, false),
};

void image_info_clear(struct image_info *i)
{
	json_decref(i->env);
	json_decref(i->cmd);
	memset(i, 0, sizeof(*i));
}

static void config_members(struct jw *w, const struct image_info *i)
{
	if (i->env) {
		jw_json(w, "env", i->env);
	} else {
		jw_obj(w, "env");
		jw_obj_end(w);
	}
	if (i->cmd) {
		jw_json(w, "cmd", i->cmd);
	} else {
		jw_arr(w, "cmd");
		jw_arr_end(w);
	}
}

void image_to_json(struct jw *w, const char *key, const struct image_info *i)
{
	char digest[80];

	snprintf(digest, sizeof(digest), "sha256:%s", i->digest.hex);
	jw_obj(w, key);
	if (i->name[0])
		jw_str(w, "name", i->name);
	else
		jw_null(w, "name");
	jw_str(w, "digest", digest);
	jw_int(w, "bytes", (int64_t)i->bytes);
	jw_time(w, "created_at", i->created_ns);
	jw_str(w, "user", i->user);
	jw_str(w, "workdir", i->workdir);
	config_members(w, i);
	jw_obj_end(w);
}

static bool values_are_text(const json_t *env, const json_t *cmd)
{
	const char *key;
	json_t *v;
	size_t i;

	json_object_foreach((json_t *)(uintptr_t)env, key, v) if (!json_is_string(v)) return false;
	json_array_foreach(cmd, i, v) if (!json_is_string(v)) return false;
	return true;
}

int image_from_json(json_t *obj, struct image_info *out, struct fail *why)
{
	struct image_info i = { 0 };
	struct image_json j = { 0 };
	int r = fields_read(obj, image_fields + 1, ARRAY_LEN(image_fields) - 1, &j, why);

	if (r < 0)
		return r;
	if (digest_parse(&i.digest, str_of(j.digest)) || rfc3339_parse(str_of(j.created_at), &i.created_ns) ||
		str_copy(i.user, sizeof(i.user), str_of(j.user)) ||
		str_copy(i.workdir, sizeof(i.workdir), str_of(j.workdir)) || str_has_ctl(str_of(j.user)) ||
		str_has_ctl(str_of(j.workdir)) || !values_are_text(j.env, j.cmd))
		return fail_as(why, ERR_bad_request, "malformed");
	i.bytes = (uint64_t)j.bytes;
	i.env = json_incref(j.env);
	i.cmd = json_incref(j.cmd);
	*out = i;
	return 0;
}

/* images/DIGEST.json */
static int config_write(struct pool *p, const struct image_info *i, struct fail *why)
{
	char digest[80], name[96], file[80];
	autobuf struct buf text = { 0 };
	autoclose int fd = -1;
	struct jw w;
	int r;

	buf_init(&text, POOL_JSON_MAX);
	snprintf(digest, sizeof(digest), "sha256:%s", i->digest.hex);
	snprintf(file, sizeof(file), "%s.json", i->digest.hex);
	jw_init(&w, &text);
	jw_obj(&w, NULL);
	jw_int(&w, "format", IMAGE_FORMAT);
	jw_str(&w, "digest", digest);
	jw_int(&w, "bytes", (int64_t)i->bytes);
	jw_time(&w, "created_at", i->created_ns);
	jw_str(&w, "user", i->user);
	jw_str(&w, "workdir", i->workdir);
	config_members(&w, i);
	jw_obj_end(&w);
	if (w.err || buf_addc(&text, '\n'))
		return fail_as(why, ERR_too_large, "the image's configuration is over %llu KiB",
			POOL_JSON_MAX / KIB);
	fd = pool_tmpfile(p, "config-", name, why);
	if (fd < 0)
		return fd;
	r = FAULT_OURS(write_all(fd, text.p, text.n));
	if (r < 0)
		return pool_fail(why, r, "the image's configuration");
	return FAULT_WHY(why, pool_publish(p, name, "images", file, why));
}

/* Fills OUT in from images/DIGEST.json; the name is the caller's business. -ENOENT without words.
 */
static int config_read(
	struct pool *p, const struct digest *d, struct image_info *out, struct fail *why)
{
	autofree char *text = NULL;
	autojson json_t *obj = NULL;
	struct image_json j = { 0 };
	struct digest own;
	char path[96];
	ssize_t n;
	int r;

	snprintf(path, sizeof(path), "images/%s.json", d->hex);
	n = file_read(p->fd, path, &text, POOL_JSON_MAX);
	if (n < 0)
		return (int)n;
	memset(out, 0, sizeof(*out));
	obj = json_read((struct str){ text, (size_t)n }, why);
	r = obj ? fields_read(obj, image_fields, ARRAY_LEN(image_fields), &j, why) : -EBADMSG;
	if (!r && (digest_parse(&own, str_of(j.digest)) || strcmp(own.hex, d->hex) ||
			  rfc3339_parse(str_of(j.created_at), &out->created_ns) ||
			  str_copy(out->user, sizeof(out->user), str_of(j.user)) ||
			  str_copy(out->workdir, sizeof(out->workdir), str_of(j.workdir)) ||
			  !values_are_text(j.env, j.cmd)))
		r = fail_as(why, ERR_internal, "malformed");
	if (r < 0) {
		fail_prefix(why, "pool/%s", path);
		return r == -ENOENT ? -EIO : r;
	}
	out->digest = *d;
	out->bytes = (uint64_t)j.bytes;
	out->env = json_incref(j.env);
	out->cmd = json_incref(j.cmd);
	return 0;
}

static int unknown(const char *what, struct fail *why)
{
	return fail_as(why, ERR_image_not_found, "no image \"%.80s\"", what);
}

/* NAME or digest into a digest; *name gets the name if it was one. */
static int resolve(
	struct pool *p, const char *what, struct digest *d, char name[64], struct fail *why)
{
	char text[80];

	name[0] = 0;
	if (str_is_name(str_of(what)) && !pool_name_read(p, "images", what, text, sizeof(text))) {
		if (digest_parse(d, str_of(text)))
			return fail_as(why, ERR_internal, "pool/names/images/%s: malformed", what);
		return str_copy(name, 64, str_of(what));
	}
	return digest_parse(d, str_of(what)) ? unknown(what, why) : 0;
}

int image_find(struct pool *p, const char *name_or_digest, struct image_info *out, struct fail *why)
{
	struct image_info i;
	struct digest d;
	char name[64];
	int r;

	r = resolve(p, name_or_digest, &d, name, why);
	if (r < 0)
		return r;
	r = config_read(p, &d, &i, why);
	if (r == -ENOENT)
		return unknown(name_or_digest, why);
	if (r < 0)
		return r;
	memcpy(i.name, name, sizeof(i.name));
	*out = i;
	return 0;
}

/* --- lists --- */

/* Calls FN for each plain entry of a directory of the pool, until it answers other than 0. */
static int each_entry(struct pool *p, const char *dir, int (*fn)(const char *entry, void *arg),
	void *arg, struct fail *why)
{
	int fd = dir_open(p->fd, dir), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return pool_fail(why, r, "pool/%s", dir);
	}
	while (!r && (e = readdir(d)))
		if (e->d_name[0] != '.')
			r = fn(e->d_name, arg);
	closedir(d);
	return r;
}

struct listing {
	struct pool *p;
	struct image_info *v;
	size_t n, room;
	struct fail *why;
};

static int list_add(struct listing *l, const struct digest *d, const char *name)
{
	int r;

	if (l->n == l->room) {
		struct image_info *more =
			reallocarray(l->v, l->room ? l->room * 2 : 16, sizeof(*more));

		if (!more)
			return fail_set(l->why, -ENOMEM, "listing images: out of memory");
		l->v = more;
		l->room = l->room ? l->room * 2 : 16;
	}
	r = config_read(l->p, d, &l->v[l->n], NULL);
	if (r < 0)
		return 0; /* removed meanwhile, or damaged: image_find() says what is wrong with it
			   */
	snprintf(l->v[l->n].name, sizeof(l->v[l->n].name), "%.63s", name);
	l->n++;
	return 0;
}

static int list_name(const char *entry, void *arg)
{
	struct listing *l = arg;
	struct digest d;
	char text[80];

	if (!str_is_name(str_of(entry)) ||
		pool_name_read(l->p, "images", entry, text, sizeof(text)) ||
		digest_parse(&d, str_of(text)))
		return 0;
	return list_add(l, &d, entry);
}

static int list_nameless(const char *entry, void *arg)
{
	struct listing *l = arg;
	struct str s = str_of(entry);
	struct digest d;

	if (!str_ends(s, ".json"))
		return 0;
	s.n -= 5;
	if (digest_parse(&d, s))
		return 0;
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i].digest.hex, d.hex))
			return 0;
	return list_add(l, &d, "");
}

static int by_name(const void *a, const void *b)
{
	const struct image_info *x = a, *y = b;

	/* The nameless ones come last. */
	if (!x->name[0] != !y->name[0])
		return x->name[0] ? -1 : 1;
	return x->name[0] ? strcmp(x->name, y->name) : strcmp(x->digest.hex, y->digest.hex);
}

int image_list(struct pool *p, struct image_info **out, size_t *n, struct fail *why)
{
	struct listing l = { .p = p, .why = why };
	int r;

	r = each_entry(p, "names/images", list_name, &l, why);
	if (!r)
		r = each_entry(p, "images", list_nameless, &l, why);
	if (r < 0) {
		for (size_t i = 0; i < l.n; i++)
			image_info_clear(&l.v[i]);
		free(l.v);
		return r;
	}
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_name);
	*out = l.v;
	*n = l.n;
	return 0;
}

int image_open(struct pool *p, const struct digest *d, struct fail *why)
{
	char path[96];
	int fd;

	if (!digest_valid(d))
		return fail_as(why, ERR_bad_request, "not a digest of an image");
	snprintf(path, sizeof(path), "images/%s.erofs", d->hex);
	fd = openat(p->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? unknown(d->hex, why) : pool_fail(why, -errno, "pool/%s", path);
}

/* --- removing --- */

struct removal {
	struct pool *p;
	const struct digest *d;
	bool names_too; /* remove the names that point at it; else only count them */
	unsigned names;
};

static int removal_name(const char *entry, void *arg)
{
	struct removal *rm = arg;
	char text[80];
	struct digest d;

	if (!pool_name_read(rm->p, "images", entry, text, sizeof(text)) &&
		!digest_parse(&d, str_of(text)) && !strcmp(d.hex, rm->d->hex)) {
		rm->names++;
		if (rm->names_too)
			return FAULT_OURS(pool_name_remove(rm->p, "images", entry));
	}
	return 0;
}

int image_remove(struct pool *p, const char *name_or_digest, struct fail *why)
{
	struct digest d;
	struct removal rm = { .p = p, .d = &d };
	struct image_info info;
	char name[64], path[96];
	int r;

	r = resolve(p, name_or_digest, &d, name, why);
	if (r < 0)
		return r;
	r = config_read(p, &d, &info, NULL);
	if (r == -ENOENT && !name[0])
		return unknown(name_or_digest, why);
	if (!r)
		image_info_clear(&info);
	rm.names_too = !name[0];
	r = name[0] ? FAULT_OURS(pool_name_remove(p, "images", name)) : 0;
	if (!r)
		r = each_entry(p, "names/images", removal_name, &rm, why);
	if (r < 0)
		return pool_fail(why, r, "removing image %s", name_or_digest);
	if (name[0] && rm.names)
		return 0; /* it has another name */
	/* The configuration goes first: what has none does not exist. */
	snprintf(path, sizeof(path), "images/%s.json", d.hex);
	if (FAULT(unlinkat(p->fd, path, 0)) && errno != ENOENT)
		return pool_fail(why, -errno, "pool/%s", path);
	snprintf(path, sizeof(path), "images/%s.erofs", d.hex);
	if (FAULT(unlinkat(p->fd, path, 0)) && errno != ENOENT)
		return pool_fail(why, -errno, "pool/%s", path);
	return 0;
}

/* --- adding: called by image_pack() of pack.c --- */

int image_name_check(const char *name, struct fail *why)
{
	struct digest d;

	if (!name || !*name)
		return 0;
	if (!str_is_name(str_of(name)) || !digest_parse(&d, str_of(name))) {
		fail_as(why, ERR_bad_request, "\"%.80s\" is no name for an image", name);
		fail_remedy(why, "a name is at most 63 of a-z, 0-9, '.', '_' and '-', and begins "
				 "with a letter or digit");
		return -EINVAL;
	}
	return 0;
}

int image_store(struct pool *p, const char *tmpname, const char *name, struct image_info *info,
	struct fail *why)
{
	struct image_info old;
	char file[80];
	int r;

	snprintf(file, sizeof(file), "%s.erofs", info->digest.hex);
	r = FAULT_WHY(why, pool_publish(p, tmpname, "images", file, why));
	if (r < 0)
		return r;
	/* The same content again is the same image: it keeps the time of its first making. */
	if (!config_read(p, &info->digest, &old, NULL)) {
		info->created_ns = old.created_ns;
		image_info_clear(&old);
	}
	r = config_write(p, info, why);
	if (!r && name && *name) {
		snprintf(info->name, sizeof(info->name), "%.63s", name);
		r = FAULT_WHY(why, pool_name_write(p, "images", name, info->digest.hex, why));
	}
	return r;
}
