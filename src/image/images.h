/* images.h - building an image, from the inside of this room: a tree of files becomes an erofs in
 * the store.
 *
 * images/DIGEST.erofs and images/DIGEST.json (its configuration) are written once and never
 * changed; names/images/NAME points at a digest. The same tree with the same configuration always
 * gives the same digest: file times later than the build's start are set to the newest one before
 * it, and the file system's UUID is made from the configuration. */
#ifndef SPACE_IMAGE_IMAGES_H
#define SPACE_IMAGE_IMAGES_H

#include "image/pool.h"

/* A tree being made: a directory in the pool's tmp. */
struct tree {
	struct pool *p;
	char name[POOL_TMPNAME];
	char path[4300];
	int fd;
	int64_t began_ns;
};

int tree_begin(struct pool *p, const char *prefix, struct tree *t, struct fail *why);
void tree_end(struct tree *t); /* removes it */

/* NAME as an image may be called; NULL and "" are fine (none). */
int image_name_check(const char *name, struct fail *why);

/* Makes an erofs of the directory ROOT (a path) and puts it into the store. INFO holds user,
 * workdir, env and cmd; digest, bytes, created_ns and name are filled in. Times of files at or
 * after SINCE_NS are levelled (0: all are kept). Used by all builders as their last step. */
int image_pack(struct pool *p, const char *name, const char *root, int64_t since_ns,
	const struct progress *pr, struct image_info *info, struct fail *why);

/* The file TMPNAME of the tmp directory becomes the image that INFO describes, and NAME (if any)
 * its name. */
int image_store(struct pool *p, const char *tmpname, const char *name, struct image_info *info,
	struct fail *why);

/* The UUID that the file system of an image with this configuration has, as text. 0 or -ENOMEM. */
int image_uuid(char out[37], const struct image_info *i);

/* {"name":…,"digest":"sha256:…","bytes":…,"created_at":…,"user":…,"workdir":…,"env":{},"cmd":[]} */
void image_to_json(struct jw *w, const char *key, const struct image_info *i);
/* The same object read back, from outside. OUT is to be cleared. */
int image_from_json(json_t *obj, struct image_info *out, struct fail *why);

#endif
