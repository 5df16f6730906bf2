/* files.c - files and directories of a sandbox, and trees of them as tar. */
#include <stdio.h>

#include "api/handlers.h"

#define PATH_LEN_MAX 4095
#define DEPTH_MAX 64

/* The guest's path in the request's: absolute, no "..", no control bytes. The guest's kernel is the one that follows links;
 * whatever they lead to is inside the guest. */
int guest_path_check(struct str p, const char *what, struct fail *why)
{
	struct str rest = p, one;

	if (!p.n || p.p[0] != '/')
		return fail_as(why, ERR_bad_path, "%s: an absolute path", what);
	if (p.n > PATH_LEN_MAX)
		return fail_as(why, ERR_bad_path, "%s: longer than %d bytes", what, PATH_LEN_MAX);
	if (str_has_ctl(p) || !str_is_utf8(p))
		return fail_as(why, ERR_bad_path, "%s: has a control byte or is not UTF-8", what);
	while (rest.n) {
		str_cut(rest, '/', &one, &rest);
		if (str_eqz(one, ".."))
			return fail_as(why, ERR_bad_path, "%s: has a \"..\"", what);
	}
	return 0;
}

struct path { char z[PATH_LEN_MAX + 1]; };

static int path_read(struct req *r, struct path *out, struct fail *why)
{
	const char *tail = req_param(r, 1);

	while (*tail == '/')
		tail++;
	if (snprintf(out->z, sizeof(out->z), "/%s", tail) >= (int)sizeof(out->z))
		return fail_as(why, ERR_bad_path, "longer than %d bytes", PATH_LEN_MAX);
	return guest_path_check(str_of(out->z), "path", why);
}

/* --- entries --- */

static const char *entry_type(json_t *e)
{
	const char *t = json_string_value(json_object_get(e, "type"));

	if (json_object_get(e, "symlinkTarget"))
		return "symlink";
	if (t && !strcmp(t, "FILE_TYPE_FILE"))
		return "file";
	return t && !strcmp(t, "FILE_TYPE_DIRECTORY") ? "directory" : "other";
}

static int64_t int64_of(json_t *v)
{
	uint64_t n;

	if (json_is_string(v) && !str_u64(str_of(json_string_value(v)), INT64_MAX, &n))
		return (int64_t)n;
	return json_integer_value(v);
}

static bool is_count(json_t *v)
{
	uint64_t n;

	if (json_is_string(v))
		return !str_u64(str_of(json_string_value(v)), INT64_MAX, &n);
	return json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool is_entry(json_t *e)
{
	return json_is_string(json_object_get(e, "name")) && json_is_string(json_object_get(e, "path")) &&
	       json_is_string(json_object_get(e, "type")) && is_count(json_object_get(e, "size"));
}

static void mode_text(char out[8], json_t *e)
{
	snprintf(out, 8, "%04o", (unsigned)int64_of(json_object_get(e, "mode")) & 07777);
}

static void entry_json(struct jw *w, const char *key, json_t *e)
{
	static const char *const same[] = { "name", "path" };
	json_t *target = json_object_get(e, "symlinkTarget");
	char mode[8];
	size_t i;

	jw_obj(w, key);
	for (i = 0; i < ARRAY_LEN(same); i++)
		jw_str(w, same[i], json_string_value(json_object_get(e, same[i])));
	jw_str(w, "type", entry_type(e));
	jw_int(w, "size", int64_of(json_object_get(e, "size")));
	mode_text(mode, e);
	jw_str(w, "mode", mode);
	jw_str(w, "owner", json_string_value(json_object_get(e, "owner")));
	jw_str(w, "group", json_string_value(json_object_get(e, "group")));
	jw_str(w, "modified_at", json_string_value(json_object_get(e, "modifiedTime")));
	if (target)
		jw_str(w, "target", json_string_value(target));
	jw_obj_end(w);
}

static void answer_entry(struct req *r, json_t *reply, int status)
{
	json_t *e = json_object_get(reply, "entry");
	struct buf b;
	struct jw w;

	if (!is_entry(e))
		return guest_nonsense(r);
	answer_begin(&w, &b);
	entry_json(&w, NULL, e);
	req_json(r, status, &w);
}

/* --- calls of filesystem.Filesystem --- */

static void rpc(struct req *r, const char *target, const char *key1, const char *v1, const char *key2,
		const char *v2, int64_t depth, guest_json_fn *done)
{
	struct guest_opts o = { .method = "POST", .target = target, .not_found = ERR_file_not_found };
	autofree char *user = NULL;
	autobuf struct buf b;
	struct fail why = { 0 };
	struct jw w;

	buf_init(&b, 64 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, key1, v1);
	if (key2)
		jw_str(&w, key2, v2);
	if (depth)
		jw_int(&w, "depth", depth);
	jw_obj_end(&w);
	if (w.err)
		return req_failf(r, ERR_no_capacity, "out of memory");
	if (req_query(r, "user", &user, &why) < 0)
		return req_fail(r, &why);
	o.body = buf_str(&b);
	o.user = user;
	req_ref(r);
	if (guest_json(r->api, r->sb, &o, done, r, &why) < 0) {
		req_fail(r, &why);
		req_unref(r);
	}
}

static void on_entry(json_t *reply, const struct fail *why, void *arg)
{
	struct req *r = arg;

	if (why->err)
		req_fail(r, why);
	else
		answer_entry(r, reply, 200);
	req_unref(r);
}

static void on_listed(json_t *reply, const struct fail *why, void *arg)
{
	guest_list(arg, reply, why, "entries", is_entry, entry_json);
}

/* --- reading --- */

static void copy_header(struct req *r, const struct http_head *h, const char *name)
{
	struct str v = http_get(h, name);
	char z[128];

	if (v.p && !str_copy(z, sizeof(z), v))
		http_add_header(r->x, name, z);
}

static void file_head(struct req *r, const struct http_head *h)
{
	copy_header(r, h, "Content-Range");
	copy_header(r, h, "Last-Modified");
	http_add_header(r->x, "Accept-Ranges", "bytes");
}

/* What the file is goes before its bytes; then they are fetched. */
static void on_file_stat(json_t *reply, const struct fail *why, void *arg)
{
	struct req *r = arg;
	json_t *e = json_object_get(reply, "entry");
	const char *type = json_string_value(json_object_get(e, "type"));
	const char *owner = json_string_value(json_object_get(e, "owner"));
	const char *mtime = json_string_value(json_object_get(e, "modifiedTime"));
	struct guest_opts o = { .method = "GET", .not_found = ERR_file_not_found };
	autobuf struct buf target;
	struct fail f = *why;
	struct path path;
	char mode[8];

	buf_init(&target, 16 * KIB);
	if (!r->x) {
		req_unref(r);
		return;
	}
	if (!f.err && !is_entry(e))
		fail_as(&f, ERR_agent_unreachable, "the agent's answer makes no sense");
	if (!f.err && !strcmp(type, "FILE_TYPE_DIRECTORY"))
		fail_as(&f, ERR_bad_request, "%.160s is a directory: ?list=1 lists it, …/tar/ fetches it",
			req_param(r, 1));
	if (!f.err && path_read(r, &path, &f) == 0 &&
	    guest_target(&target, "/files", "path", path.z, NULL) < 0)
		fail_set(&f, -ENOMEM, "out of memory");
	if (f.err) {
		req_fail(r, &f);
	} else {
		mode_text(mode, e);
		http_add_header(r->x, "X-Space-Mode", mode);
		if (owner)
			http_add_header(r->x, "X-Space-Owner", owner);
		if (mtime)
			http_add_header(r->x, "X-Space-Mtime", mtime);
		o.target = target.p;
		o.range = http_get(http_req(r->x), "Range");
		relay_download(r, &o, "application/octet-stream", file_head);
	}
	req_unref(r);
}

void h_file_get(struct req *r)
{
	bool list = false, stat = false;
	struct fail why = { 0 };
	uint64_t depth = 1;
	struct path path;

	if (path_read(r, &path, &why) < 0 || req_query_flag(r, "list", &list, &why) < 0 ||
	    req_query_flag(r, "stat", &stat, &why) < 0 ||
	    req_query_u64(r, "depth", DEPTH_MAX, &depth, &why) < 0)
		return req_fail(r, &why);
	if (list && stat)
		return req_failf(r, ERR_bad_request, "one of list and stat");
	if (list)
		return rpc(r, "/filesystem.Filesystem/ListDir", "path", path.z, NULL, NULL,
			   depth ? (int64_t)depth : 1, on_listed);
	rpc(r, "/filesystem.Filesystem/Stat", "path", path.z, NULL, NULL, 0,
	    stat ? on_entry : on_file_stat);
}

/* --- writing --- */

static void file_written(struct req *r, json_t *reply)
{
	const char *sum = json_string_value(json_object_get(reply, "sha256"));
	struct buf b;
	struct jw w;

	if (!json_is_string(json_object_get(reply, "path")) || !is_count(json_object_get(reply, "size")) ||
	    !sum || strlen(sum) != 64 || strspn(sum, "0123456789abcdef") != 64)
		return guest_nonsense(r);
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "path", json_string_value(json_object_get(reply, "path")));
	jw_int(&w, "size", int64_of(json_object_get(reply, "size")));
	jw_str(&w, "sha256", json_string_value(json_object_get(reply, "sha256")));
	jw_obj_end(&w);
	req_json(r, 201, &w);
}

static void on_dir_made(json_t *reply, const struct fail *why, void *arg)
{
	struct req *r = arg;
	struct path path;
	struct fail f = *why;

	if (!why->err)
		answer_entry(r, reply, 201);
	else if (why->code == ERR_conflict && path_read(r, &path, &f) == 0)
		rpc(r, "/filesystem.Filesystem/Stat", "path", path.z, NULL, NULL, 0, on_entry);
	else
		req_fail(r, &f);
	req_unref(r);
}

static int mode_check(const char *mode, struct fail *why)
{
	size_t i;

	for (i = 0; mode && (mode[i] || !i); i++)
		if (mode[i] < '0' || mode[i] > '7' || i > 4)
			return fail_as(why, ERR_bad_request, "mode: three or four octal digits");
	return 0;
}

void h_file_put(struct req *r)
{
	autofree char *mode = NULL, *user = NULL;
	autobuf struct buf target;
	struct fail why = { 0 };
	bool dir = false;
	struct path path;

	buf_init(&target, 20 * KIB);
	if (path_read(r, &path, &why) < 0 || req_query_flag(r, "dir", &dir, &why) < 0 ||
	    req_query(r, "mode", &mode, &why) < 0 || req_query(r, "user", &user, &why) < 0 ||
	    mode_check(mode, &why) < 0)
		return req_fail(r, &why);
	if (dir)
		return rpc(r, "/filesystem.Filesystem/MakeDir", "path", path.z, NULL, NULL, 0, on_dir_made);
	if (path.z[strlen(path.z) - 1] == '/')
		return req_failf(r, ERR_bad_path, "path: the name of a file; ?dir=1 makes a directory");
	if (guest_target(&target, "/space/file", "path", path.z, "user", user, "mode", mode, NULL) < 0)
		return req_failf(r, ERR_no_capacity, "out of memory");
	relay_upload(r, "PUT", target.p, NULL, ERR_file_not_found, file_written);
}

static void on_deleted(json_t *reply, const struct fail *why, void *arg)
{
	struct fail f = *why;

	if (f.err && f.code == ERR_file_not_found)
		f.err = 0; /* it is gone, which is what was asked for */
	answer_nothing(NULL, &f, arg);
}

void h_file_delete(struct req *r)
{
	struct fail why = { 0 };
	struct path path;

	if (path_read(r, &path, &why) < 0)
		return req_fail(r, &why);
	if (strspn(path.z, "/.") == strlen(path.z))
		return req_failf(r, ERR_bad_path, "path: not the root itself");
	rpc(r, "/filesystem.Filesystem/Remove", "path", path.z, NULL, NULL, 0, on_deleted);
}

void h_file_post(struct req *r)
{
	autofree char *to = NULL;
	struct fail why = { 0 };
	struct path path;

	if (path_read(r, &path, &why) < 0 || req_query(r, "move", &to, &why) < 0)
		return req_fail(r, &why);
	if (!to)
		return req_failf(r, ERR_bad_request, "move: the new path");
	if (guest_path_check(str_of(to), "move", &why) < 0)
		return req_fail(r, &why);
	rpc(r, "/filesystem.Filesystem/Move", "source", path.z, "destination", to, 0, on_entry);
}

/* --- tar --- */

static int tar_target(struct req *r, struct buf *target, struct fail *why)
{
	autofree char *user = NULL;
	struct path path;
	int err;

	buf_init(target, 20 * KIB);
	if ((err = path_read(r, &path, why)) < 0 || (err = req_query(r, "user", &user, why)) < 0)
		return err;
	if (guest_target(target, "/space/tar", "path", path.z, "user", user, NULL) < 0)
		return fail_set(why, -ENOMEM, "out of memory");
	return 0;
}

void h_tar_get(struct req *r)
{
	struct guest_opts o = { .method = "GET", .not_found = ERR_file_not_found };
	autobuf struct buf target = { 0 };
	struct fail why = { 0 };

	if (tar_target(r, &target, &why) < 0)
		return req_fail(r, &why);
	o.target = target.p;
	relay_download(r, &o, "application/x-tar", NULL);
}

static void tar_unpacked(struct req *r, json_t *reply)
{
	struct buf b;
	struct jw w;

	if (!is_count(json_object_get(reply, "files")) || !is_count(json_object_get(reply, "bytes")))
		return guest_nonsense(r);
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "files", int64_of(json_object_get(reply, "files")));
	jw_int(&w, "bytes", int64_of(json_object_get(reply, "bytes")));
	jw_obj_end(&w);
	req_json(r, 201, &w);
}

void h_tar_put(struct req *r)
{
	autobuf struct buf target = { 0 };
	struct fail why = { 0 };

	if (tar_target(r, &target, &why) < 0)
		return req_fail(r, &why);
	relay_upload(r, "PUT", target.p, NULL, ERR_file_not_found, tar_unpacked);
}
