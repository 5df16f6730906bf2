/* publish.h - an imported node and the kernel, initramfs and image that came with it become part of the pool, or none of them does.
 *
 * What has a digest as its name is written to the pool's tmp directory, and published just before the node is. If that fails, what was published for
 * it is taken back; if the process dies between the two, tmp/PID-RANDOM/NODE.undo says what was under way, and the next pool_open() takes back what no
 * node and no name refers to.
 *
 * Of a kernel only the vmlinux is kept: its modules are in the initramfs, whose digest covers them, while a directory of modules out of a stream would
 * have nothing that vouches for it, and would go into every initramfs made here later. kernel_ensure() lays such a kernel out anew. */
#ifndef SPACE_IMAGE_PUBLISH_H
#define SPACE_IMAGE_PUBLISH_H

#include "image/stream.h"

struct publish {
	struct pool *p;
	const struct stream_head *head;
	int fd[ROLES_NAMED];		       /* to be written to; -1: nothing is needed */
	char name[ROLES_NAMED][POOL_TMPNAME]; /* in tmp, while it is there */
	bool came[ROLES_NAMED];		       /* this stream has it */
	bool made[ROLES_NAMED];		       /* it was published by us */
};
/* Opens a file for each that is not there. What a node needs and neither pool nor stream have is an error. */
int publish_begin(struct publish *u, struct pool *p, const struct stream_head *head, struct fail *why);
/* The file is complete: has it the digest that is its name? */
int publish_check(struct publish *u, enum stream_role r, struct fail *why);
int publish_commit(struct publish *u, int node_dirfd, const struct node *n, struct fail *why);
void publish_end(struct publish *u); /* closes and removes what is left; fine on one that never began */

/* For pool_open(): the directory DIR of the tmp directory ALL belonged to a process that died. */
void publish_undo(struct pool *p, int all, const char *dir);

#endif
