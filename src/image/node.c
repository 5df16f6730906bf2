/* node.c - the checkpoint tree on disk: nodes/ID/{node.json,memory,state,disk}.
 *
 * A node is written in the pool's own tmp directory and renamed when everything in it is on disk:
 * nodes/ never holds half of one. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/random.h"
#include "image/nodes.h"

/* 1: no kind, no read_only. What is new in a format has a default that is right for what older ones wrote. */
#define NODE_FORMAT 2

/* node.json as fields_read() fills it in. */
struct node_json {
	int64_t format;
	const char *id, *parent, *image, *kernel, *initrd, *driver, *driver_version, *created,
		*label, *kind;
	int64_t vcpus, memory, disk, own_bytes, agent_protocol;
	bool has_memory, read_only;
};

static const struct field node_fields[] = {
	INT_FIELD(struct node_json, format, 1, NODE_FORMAT, true),
	STR_FIELD(struct node_json, id, 23, true),
	STR_FIELD(struct node_json, parent, 23, false),
	STR_FIELD(struct node_json, image, 71, true),
	STR_FIELD(struct node_json, kernel, 71, true),
	STR_FIELD(struct node_json, initrd, 71, true),
	STR_FIELD(struct node_json, driver, 15, true),
	STR_FIELD(struct node_json, driver_version, 127, true),
	INT_FIELD(struct node_json, vcpus, 1, 1024, true),
	INT_FIELD(struct node_json, memory, 0, INT64_MAX, true),
	INT_FIELD(struct node_json, disk, 0, INT64_MAX, true),
	BOOL_FIELD(struct node_json, has_memory, true),
	BOOL_FIELD(struct node_json, read_only, false),
	STR_FIELD(struct node_json, kind, 11, false),
	INT_FIELD(struct node_json, own_bytes, 0, INT64_MAX, true),
	STR_FIELD(struct node_json, created, 40, true),
	STR_FIELD(struct node_json, label, 127, false),
	INT_FIELD(struct node_json, agent_protocol, 0, 1000000, true),
};

static int bad_id(struct fail *why)
{
	return fail_as(why, ERR_bad_request, "not an id of a checkpoint");
}

static void digest_write(struct jw *w, const char *key, const struct digest *d)
{
	char text[80];

	snprintf(text, sizeof(text), "sha256:%s", d->hex);
	jw_str(w, key, d->hex[0] ? text : "");
}

void node_members(struct jw *w, const struct node *n)
{
	jw_int(w, "format", NODE_FORMAT);
	jw_str(w, "id", n->id);
	jw_str(w, "parent", n->parent);
	digest_write(w, "image", &n->image);
	digest_write(w, "kernel", &n->kernel);
	digest_write(w, "initrd", &n->initrd);
	jw_str(w, "driver", n->driver);
	jw_str(w, "driver_version", n->driver_version);
	jw_int(w, "vcpus", n->vcpus);
	jw_int(w, "memory", (int64_t)n->memory);
	jw_int(w, "disk", (int64_t)n->disk);
	jw_bool(w, "has_memory", n->has_memory);
	jw_int(w, "own_bytes", (int64_t)n->own_bytes);
	jw_time(w, "created", n->created_ns ? n->created_ns : real_ns());
	jw_str(w, "label", n->label);
	jw_int(w, "agent_protocol", n->agent_protocol);
	jw_bool(w, "read_only", n->read_only);
	jw_str(w, "kind", n->kind);
}

static int node_to_json(const struct node *n, struct buf *out)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	node_members(&w, n);
	jw_obj_end(&w);
	return w.err ? w.err : buf_addc(out, '\n');
}

/* What the table cannot say. */
static int node_from_json(const struct node_json *j, struct node *n, struct fail *why)
{
	struct {
		const char *name, *text;
		struct digest *to;
	} digests[] = {
		{ "image", j->image, &n->image },
		{ "kernel", j->kernel, &n->kernel },
		{ "initrd", j->initrd, &n->initrd },
	};

	if (!id_valid(str_of(j->id), 'n') ||
		(j->parent && *j->parent && !id_valid(str_of(j->parent), 'n')))
		return fail_as(why, ERR_internal, "an id in it is malformed");
	for (size_t i = 0; i < ARRAY_LEN(digests); i++)
		if (*digests[i].text && digest_parse(digests[i].to, str_of(digests[i].text)))
			return fail_as(why, ERR_internal, "%s: not a digest", digests[i].name);
	if (rfc3339_parse(str_of(j->created), &n->created_ns))
		return fail_as(why, ERR_internal, "created: not a time");
	if (str_copy(n->id, sizeof(n->id), str_of(j->id)) ||
		str_copy(n->parent, sizeof(n->parent), str_of(j->parent)) ||
		str_copy(n->driver, sizeof(n->driver), str_of(j->driver)) ||
		str_copy(n->driver_version, sizeof(n->driver_version), str_of(j->driver_version)) ||
		str_copy(n->label, sizeof(n->label), str_of(j->label)) ||
		str_copy(n->kind, sizeof(n->kind), str_of(j->kind)))
		return fail_as(why, ERR_internal, "a text in it is too long");
	n->vcpus = (unsigned)j->vcpus;
	n->memory = (uint64_t)j->memory;
	n->disk = (uint64_t)j->disk;
	n->has_memory = j->has_memory;
	n->read_only = j->format == 1 ? !j->disk : j->read_only;
	n->own_bytes = (uint64_t)j->own_bytes;
	n->agent_protocol = (unsigned)j->agent_protocol;
	return 0;
}

/* One that a later version wrote says so in its first field; the rest of it may be anything. */
static int check_format(json_t *obj, struct fail *why)
{
	json_int_t v = json_integer_value(json_object_get(obj, "format"));

	if (v <= NODE_FORMAT)
		return 0;
	fail_as(why, ERR_checkpoint_mismatch, "it has format %lld, and this version reads up to %d", (long long)v, NODE_FORMAT);
	fail_remedy(why, "use the version of SPACE that made it, or a later one");
	return -ENOTSUP;
}

int node_from_object(json_t *obj, struct node *out, struct fail *why)
{
	struct node_json j = { 0 };
	struct node n = { 0 };
	int r = check_format(obj, why);

	if (!r)
		r = fields_read(obj, node_fields, ARRAY_LEN(node_fields), &j, why);
	if (!r)
		r = node_from_json(&j, &n, why);
	if (!r)
		*out = n;
	return r;
}

int node_begin(struct pool *p, char id[24], struct fail *why)
{
	char name[ID_LEN + 1];
	int fd;

	id_make(name, 'n');
	if (FAULT(mkdirat(p->tmpfd, name, 0700)))
		return pool_fail(why, -errno, "a new checkpoint");
	fd = dir_open(p->tmpfd, name);
	if (fd < 0) {
		FAULT(unlinkat(p->tmpfd, name, AT_REMOVEDIR));
		return pool_fail(why, fd, "a new checkpoint");
	}
	pool_spare_blocks(fd, false); /* what is made in it inherits this */
	memcpy(id, name, sizeof(name));
	return fd;
}

/* Everything in the directory, then the directory. */
static int sync_files(int dirfd_)
{
	int fd = openat(dirfd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	while (!r && (e = readdir(d))) {
		autoclose int f = -1;

		if (e->d_type != DT_REG)
			continue;
		f = openat(fd, e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (f < 0 || FAULT(fsync(f)))
			r = -errno;
	}
	if (!r && FAULT(fsync(fd)))
		r = -errno;
	closedir(d);
	return r;
}

static int absent(const char *id, int err, struct fail *why)
{
	if (err != -ENOENT)
		return pool_fail(why, err, "checkpoint %s", id);
	fail_as(why, ERR_not_found, "no checkpoint %s", id);
	return -ENOENT;
}

/* node.json of the directory DIRFD, which is that of node ID. */
static int read_json(int dirfd, const char *id, struct node *out, struct fail *why)
{
	autofree char *text = NULL;
	autojson json_t *obj = NULL;
	struct node n = { 0 };
	ssize_t len = file_read(dirfd, "node.json", &text, 16 * KIB);
	int r;

	if (len < 0)
		return absent(id, (int)len, why);
	obj = json_read((struct str){ text, (size_t)len }, why);
	r = obj ? node_from_object(obj, &n, why) : -EBADMSG;
	if (!r && strcmp(n.id, id))
		r = fail_as(why, ERR_internal, "it is of another checkpoint, %s", n.id);
	if (r < 0) {
		fail_prefix(why, "node.json of checkpoint %s", id);
		return r;
	}
	*out = n;
	return 0;
}

/* What fails here has not happened: the caller takes back what belongs to a node that is not there. */
static int move_into_place(struct pool *p, const char *id, struct fail *why)
{
	autoclose int nodes = dir_open(p->fd, "nodes");
	int r;

	if (nodes < 0 || FAULT(renameat(p->tmpfd, id, nodes, id)))
		return pool_fail(why, nodes < 0 ? nodes : -errno, "checkpoint %s", id);
	if (!FAULT(fsync(nodes)))
		return 0;
	r = -errno;
	(void)FAULT(renameat(nodes, id, p->tmpfd, id));
	return pool_fail(why, r, "checkpoint %s", id);
}

int node_commit(struct pool *p, int dirfd, const struct node *n, struct fail *why)
{
	autobuf struct buf text = { 0 };
	struct node check;
	int r;

	buf_init(&text, 16 * KIB);
	if (!id_valid(str_of(n->id), 'n'))
		return bad_id(why);
	r = node_to_json(n, &text);
	if (!r)
		r = FAULT_OURS(file_write_atomic(dirfd, "node.json", text.p, text.n, 0600));
	if (!r)
		r = sync_files(dirfd);
	if (r < 0)
		return pool_fail(why, r, "checkpoint %s", n->id);
	/* What cannot be read again must not be acknowledged. */
	r = read_json(dirfd, n->id, &check, why);
	return r < 0 ? r : move_into_place(p, n->id, why);
}

int node_abort(struct pool *p, const char *id)
{
	return id_valid(str_of(id), 'n') ? FAULT_OURS(rm_rf(p->tmpfd, id)) : -EINVAL;
}

int node_read(struct pool *p, const char *id, struct node *out, struct fail *why)
{
	autoclose int dir = node_open(p, id, why);

	return dir < 0 ? dir : read_json(dir, id, out, why);
}

int node_meta_write(int dirfd, const json_t *meta, struct fail *why)
{
	autobuf struct buf text = { 0 };
	struct jw w;
	int r;

	buf_init(&text, NODE_META_MAX);
	jw_init(&w, &text);
	jw_json(&w, NULL, meta);
	if (w.err)
		return fail_as(why, ERR_too_large, "what a checkpoint says of its sandbox is over %llu KiB", NODE_META_MAX / KIB);
	r = FAULT_OURS(file_write_atomic(dirfd, NODE_META, text.p, text.n, 0600));
	return r < 0 ? pool_fail(why, r, "a new checkpoint") : 0;
}

int node_meta_read(struct pool *p, const char *id, json_t **out, struct fail *why)
{
	autoclose int dir = node_open(p, id, why);
	autofree char *text = NULL;
	json_t *obj;
	ssize_t n;

	if (dir < 0)
		return dir;
	n = file_read(dir, NODE_META, &text, NODE_META_MAX);
	if (n < 0 && n != -ENOENT)
		return pool_fail(why, (int)n, NODE_META " of checkpoint %s", id);
	obj = n < 0 ? NULL : json_read((struct str){ text, (size_t)n }, why);
	if (n >= 0 && !json_is_object(obj)) {
		json_decref(obj);
		fail_as(why, ERR_internal, NODE_META " of checkpoint %s is malformed", id);
		return -EBADMSG;
	}
	*out = obj;
	return 0;
}

int node_open(struct pool *p, const char *id, struct fail *why)
{
	char path[64];
	int fd;

	if (!id_valid(str_of(id), 'n'))
		return bad_id(why);
	snprintf(path, sizeof(path), "nodes/%s", id);
	fd = dir_open(p->fd, path);
	return fd < 0 ? absent(id, fd, why) : fd;
}

int node_remove(struct pool *p, const char *id, struct fail *why)
{
	autoclose int nodes = dir_open(p->fd, "nodes");
	char gone[POOL_TMPNAME];
	int r;

	if (!id_valid(str_of(id), 'n'))
		return bad_id(why);
	if (nodes < 0)
		return pool_fail(why, nodes, "pool/nodes");
	/* Out of nodes/ first, so that an interrupted removal leaves no half of a checkpoint there.
	 */
	pool_tmpname(gone, "gone-");
	if (FAULT(renameat(nodes, id, p->tmpfd, gone)))
		return absent(id, -errno, why);
	r = FAULT(fsync(nodes)) ? -errno : FAULT_OURS(rm_rf(p->tmpfd, gone));
	return r < 0 ? pool_fail(why, r, "removing checkpoint %s", id) : 0;
}
