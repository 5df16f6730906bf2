/* meta.h - metadata of files: X-Metadata-KEY headers, kept as extended attributes user.e2b.KEY.
 *
 * An upload replaces the whole set. Where the file system has no attributes, there is no metadata
 * and no error. */
#ifndef SPACE_AGENT_META_H
#define SPACE_AGENT_META_H

#include "base/json.h"
#include "http/http.h"

#define META_MAX 32

struct meta {
	struct {
		char *key, *value;
	} v[META_MAX];
	unsigned n;
};

/* 0; -EINVAL with WHY: a key or value that does not fit (keys of token bytes up to 246, values
 * printable ASCII, 4096 in all). */
int meta_from_headers(struct meta *m, const struct http_head *h, struct fail *why);
void meta_clear(struct meta *m);
void meta_store(const struct meta *m, int fd);
void meta_json(struct jw *w, const struct meta *m); /* object "metadata", if there is any */
void meta_write(struct jw *w, const char *path);    /* the same of a file; follows no link */

#endif
