/* nodes.h - node.json, for the files of this room that write or read one elsewhere than in nodes/. */
#ifndef SPACE_IMAGE_NODES_H
#define SPACE_IMAGE_NODES_H

#include "image/pool.h"

#define NODE_META "meta.json"
#define NODE_META_MAX (512 * KIB)

/* The members of node.json into an open object; its fields out of one (strictly: unknown ones are refused). */
void node_members(struct jw *w, const struct node *n);
int node_from_object(json_t *obj, struct node *out, struct fail *why);

/* What the files of a directory that is being made take. */
uint64_t node_files_bytes(int dirfd);

#endif
