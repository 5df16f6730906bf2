/* stream.c - see stream.h. */
#include "image/stream.h"

#include "base/cur.h"
#include "image/images.h"
#include "image/payload.h"

static const struct { const char *name; uint64_t max; } roles[] = {
	[ROLE_KERNEL] = { "kernel", VMLINUX_MAX },
	[ROLE_INITRD] = { "initrd", 256 * MIB },
	[ROLE_IMAGE] = { "image", 64 * GIB },
	[ROLE_MEMORY] = { "memory", 4096 * GIB },
	[ROLE_STATE] = { "state", 64 * MIB },
	[ROLE_DISK] = { "disk", 64 * 1024 * GIB },
};
static_assert(ARRAY_LEN(roles) == ROLES, "one row per role");

const char *stream_role_name(enum stream_role r)
{
	return roles[r].name;
}

void stream_head_clear(struct stream_head *h)
{
	image_info_clear(&h->image);
	json_decref(h->meta);
	h->meta = NULL;
}

const struct digest *stream_named(const struct stream_head *h, enum stream_role r)
{
	const struct digest *d = r == ROLE_KERNEL ? &h->node.kernel : r == ROLE_INITRD ? &h->node.initrd : r == ROLE_IMAGE ? &h->node.image : NULL;

	return d && d->hex[0] ? d : NULL;
}

/* --- the head --- */

int stream_head_write(const struct stream_head *h, struct buf *out, struct fail *why)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_int(&w, "format", STREAM_VERSION);
	jw_obj(&w, "node");
	node_members(&w, &h->node);
	jw_obj_end(&w);
	if (stream_named(h, ROLE_IMAGE))
		image_to_json(&w, "image", &h->image);
	if (h->meta)
		jw_json(&w, "meta", h->meta);
	jw_arr(&w, "files");
	for (unsigned r = 0; r < ROLES; r++) {
		if (!h->file[r].there)
			continue;
		jw_obj(&w, NULL);
		jw_str(&w, "role", roles[r].name);
		jw_int(&w, "bytes", (int64_t)h->file[r].bytes);
		jw_int(&w, "stored", (int64_t)h->file[r].stored);
		jw_obj_end(&w);
	}
	jw_arr_end(&w);
	jw_obj_end(&w);
	return w.err ? fail_set(why, w.err, "the head of an exported checkpoint: %s", strerror(-w.err)) : 0;
}

struct head_json {
	int64_t format;
	json_t *node, *image, *meta, *files;
};

static const struct field head_fields[] = {
	INT_FIELD(struct head_json, format, STREAM_VERSION, STREAM_VERSION, true),
	OBJ_FIELD(struct head_json, node, 64, true),
	OBJ_FIELD(struct head_json, image, 64, false),
	OBJ_FIELD(struct head_json, meta, 0, false),
	ARR_FIELD(struct head_json, files, ROLES, true),
};

struct file_json {
	const char *role;
	int64_t bytes, stored;
};

static const struct field file_fields[] = {
	STR_FIELD(struct file_json, role, 16, true),
	INT_FIELD(struct file_json, bytes, 1, INT64_MAX, true),
	INT_FIELD(struct file_json, stored, 0, INT64_MAX, false),
};

static int bad(struct fail *why, const char *what)
{
	return fail_as(why, ERR_bad_checkpoint, "%s", what);
}

static int read_files(const json_t *files, struct stream_head *h, struct fail *why)
{
	unsigned least = 0, r;
	json_t *v;
	size_t i;

	json_array_foreach(files, i, v) {
		struct file_json j = { 0 };
		int e = json_is_object(v) ? fields_read(v, file_fields, ARRAY_LEN(file_fields), &j, why) : bad(why, "files: not objects");

		if (e < 0 || !j.role)
			return e < 0 ? e : bad(why, "files: one without a role");
		for (r = least; r < ROLES && strcmp(roles[r].name, j.role); r++)
			;
		if (r == ROLES)
			return bad(why, "files: one of them is unknown, or they are out of order");
		if ((uint64_t)j.bytes > roles[r].max)
			return fail_as(why, ERR_bad_checkpoint, "files: %s is too large", roles[r].name);
		h->file[r].there = true;
		h->file[r].bytes = (uint64_t)j.bytes;
		h->file[r].stored = (uint64_t)MIN(j.stored, j.bytes);
		least = r + 1;
	}
	return 0;
}

/* What the parts say of each other. */
static int check_head(const struct stream_head *h, bool has_image, struct fail *why)
{
	const struct node *n = &h->node;

	if (str_has_ctl(str_of(n->label)) || str_has_ctl(str_of(n->driver)) || str_has_ctl(str_of(n->driver_version)) || str_has_ctl(str_of(n->kind)))
		return bad(why, "node: a control character in a text");
	for (unsigned r = 0; r < ROLES_NAMED; r++)
		if (h->file[r].there && !stream_named(h, r))
			return fail_as(why, ERR_bad_checkpoint, "node: it has a %s without a digest", roles[r].name);
	if (has_image != !!stream_named(h, ROLE_IMAGE) || (has_image && strcmp(h->image.digest.hex, n->image.hex)))
		return bad(why, "image: not the one of the node");
	if (h->file[ROLE_IMAGE].there && h->file[ROLE_IMAGE].bytes != h->image.bytes)
		return bad(why, "image: its length is not that of its file");
	if (n->has_memory != h->file[ROLE_MEMORY].there || n->has_memory != h->file[ROLE_STATE].there)
		return bad(why, "node: its memory and its state are not both there, or not both absent");
	if (n->has_memory && (h->file[ROLE_MEMORY].bytes != n->memory || n->memory % STREAM_PAGE))
		return bad(why, "node: its memory has another length");
	if (!!n->disk != h->file[ROLE_DISK].there || (n->disk && h->file[ROLE_DISK].bytes != n->disk))
		return bad(why, "node: its disk has another length");
	if (!n->has_memory && !n->disk)
		return bad(why, "node: it holds nothing");
	return 0;
}

int stream_head_read(struct str text, struct stream_head *out, struct fail *why)
{
	autojson json_t *obj = json_read(text, why);
	struct stream_head h = { 0 };
	struct head_json j = { 0 };
	int r;

	r = json_is_object(obj) ? fields_read(obj, head_fields, ARRAY_LEN(head_fields), &j, why) : bad(why, "not an object");
	if (!r)
		r = node_from_object(j.node, &h.node, why);
	if (!r && j.image) {
		(void)json_object_del(j.image, "name"); /* what it is called there says nothing here */
		r = image_from_json(j.image, &h.image, why);
	}
	if (!r)
		r = read_files(j.files, &h, why);
	if (!r)
		r = check_head(&h, j.image != NULL, why);
	if (r < 0) {
		stream_head_clear(&h);
		return r;
	}
	h.meta = json_incref(j.meta);
	*out = h;
	return 0;
}

/* --- records --- */

static void put_le(uint8_t *to, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

void record_pack(uint8_t out[STREAM_RECORD], const struct record *r)
{
	put_le(out, r->tag, 4);
	put_le(out + 4, r->role, 4);
	put_le(out + 8, r->value, 8);
	memcpy(out + 16, r->a, SHA_LEN);
	memcpy(out + 48, r->b, SHA_LEN);
}

void record_unpack(struct record *r, const uint8_t in[STREAM_RECORD])
{
	struct cur c = cur_of(in, STREAM_RECORD);

	r->tag = cur_le32(&c);
	r->role = cur_le32(&c);
	r->value = cur_le64(&c);
	memcpy(r->a, in + 16, SHA_LEN);
	memcpy(r->b, in + 48, SHA_LEN);
}

/* --- sums --- */

int sums_begin(struct stream_sums *s, const uint8_t head[SHA_LEN])
{
	*s = (struct stream_sums){ .file = EVP_MD_CTX_new(), .all = EVP_MD_CTX_new() };
	if (!s->file || !s->all || EVP_DigestInit_ex(s->file, EVP_sha256(), NULL) != 1 || EVP_DigestInit_ex(s->all, EVP_sha256(), NULL) != 1 ||
		EVP_DigestUpdate(s->all, head, SHA_LEN) != 1)
		return -ENOMEM;
	return 0;
}

int sums_chunk(struct stream_sums *s, const struct record *r)
{
	uint8_t b[8 + SHA_LEN];

	put_le(b, r->value, 8);
	memcpy(b + 8, r->b, SHA_LEN);
	s->chunks++;
	return EVP_DigestUpdate(s->file, b, sizeof(b)) == 1 ? 0 : -ENOMEM;
}

int sums_file(struct stream_sums *s, struct record *out, enum stream_role role)
{
	*out = (struct record){ .tag = TAG_DONE, .role = role, .value = s->chunks };
	if (EVP_DigestFinal_ex(s->file, out->b, NULL) != 1 || EVP_DigestInit_ex(s->file, EVP_sha256(), NULL) != 1 ||
		EVP_DigestUpdate(s->all, out->b, SHA_LEN) != 1)
		return -ENOMEM;
	s->chunks = 0;
	s->files++;
	return 0;
}

int sums_end(struct stream_sums *s, struct record *out)
{
	*out = (struct record){ .tag = TAG_STOP, .value = s->files };
	return EVP_DigestFinal_ex(s->all, out->b, NULL) == 1 ? 0 : -ENOMEM;
}

void sums_clear(struct stream_sums *s)
{
	EVP_MD_CTX_free(s->file);
	EVP_MD_CTX_free(s->all);
	s->file = s->all = NULL;
}
