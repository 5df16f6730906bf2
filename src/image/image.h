/* image.h - the storage pool: kernels, initramfs, images (read-only roots), templates and checkpoint nodes, disks.
 *
 * STATE/pool is a file system that clones files (the host's own if it can, else an XFS image that we make and mount, else sparse
 * copies, and pool_info says so). Layout:
 *   kernels/DIGEST/{vmlinux,modules/,release,order}    initrds/DIGEST.cpio
 *   images/DIGEST.erofs, images/DIGEST.json            names/images/NAME -> DIGEST (a file holding it)
 *   nodes/NODEID/{node.json,memory,state,disk,meta.json,digests}   templates are rows of the database that point at a node
 *   sandboxes/ID/disk                                   disks/BYTES.ext4 (empty ones)
 *   tmp/PID-RANDOM/ (work in progress of one process; the next pool_open() removes those of dead ones)
 * Everything is written under tmp/, synced, and renamed into place. Digests are "sha256:" + 64 hex digits in the API, bare hex in paths. All
 * functions block. */
#ifndef SPACE_IMAGE_H
#define SPACE_IMAGE_H

#include "base/fail.h"
#include "base/json.h"

struct pool;

enum pool_clone { POOL_CLONE_NATIVE, POOL_CLONE_XFS_IMAGE, POOL_CLONE_COPY };

struct pool_info {
	enum pool_clone clone;
	uint64_t bytes_total, bytes_free;
};

/* Opens STATE_DIR/pool, making it first where needed (may_mount: an XFS image may be made and mounted). SIZE: of that image in bytes; 0: a few
 * GiB, and pool_keep_room() lets it grow. One that is there and smaller than SIZE grows, never shrinks. A struct pool may be used by all threads at once. */
int pool_open(const char *state_dir, bool may_mount, uint64_t size, struct pool **out, struct fail *why);
void pool_close(struct pool *p);	/* leaves a mount in place: monitors may use it */
int pool_unmount(const char *state_dir, struct fail *why); /* for make down and purge; fine if nothing is mounted */
int pool_info(struct pool *p, struct pool_info *out, struct fail *why);
/* Makes an XFS image larger that has little room left, as far as the host's own file system has some. *free gets what is free then. Other
 * pools just tell. To be called now and then, by one caller at a time. */
int pool_keep_room(struct pool *p, uint64_t *free, struct fail *why);
int pool_dirfd(const struct pool *p);

/* Progress of a slow call: a step's name and how far (0..1, or -1 unknown). May be NULL. Called on the caller's thread. */
struct progress {
	void (*step)(const char *what, double done, void *arg);
	void *arg;
};

struct digest { char hex[65]; };	/* 64 digits and a NUL */

struct image_info {
	struct digest digest;
	char name[64];			/* as asked for; may be empty */
	uint64_t bytes;
	int64_t created_ns;
	char user[64], workdir[256];	/* defaults from the image's configuration; may be empty */
	json_t *env;			/* {"NAME":"value"}; owned, may be NULL */
	json_t *cmd;			/* ["…"]; owned, may be NULL */
};
void image_info_clear(struct image_info *i);

int image_find(struct pool *p, const char *name_or_digest, struct image_info *out, struct fail *why); /* -ENOENT: image_not_found */
int image_list(struct pool *p, struct image_info **out, size_t *n, struct fail *why); /* caller clears each and frees */
int image_open(struct pool *p, const struct digest *d, struct fail *why); /* read-only descriptor of the erofs file */
int image_remove(struct pool *p, const char *name_or_digest, struct fail *why); /* the caller has checked that no template uses it */

/* Builds: NAME may be NULL. */
int image_build_debian(struct pool *p, const char *name, const char *const *packages, size_t n, const struct progress *pr, struct image_info *out, struct fail *why);
int image_build_dir(struct pool *p, const char *name, const char *dir, const struct progress *pr, struct image_info *out, struct fail *why);
/* REF: "oci:/path/to/layout[:tag]" or "docker://host/name[:tag]" (skopeo's words). */
int image_build_oci(struct pool *p, const char *name, const char *ref, const struct progress *pr, struct image_info *out, struct fail *why);

/* Debian's cloud kernel, downloaded by apt, unpacked, its ELF payload extracted, its modules laid out. Found again at once if it is there. */
struct kernel_info {
	struct digest digest;	/* of vmlinux */
	char release[64];	/* "6.1.0-57-cloud-amd64" */
};
int kernel_ensure(struct pool *p, const struct progress *pr, struct kernel_info *out, struct fail *why); /* fetches if there is none */
int kernel_current(struct pool *p, struct kernel_info *out, struct fail *why);	 /* -ENOENT if there is none */
int kernel_open(struct pool *p, const struct digest *d, struct fail *why);	 /* the vmlinux */
/* An initramfs for that kernel: AGENT as /init and the modules it needs, in order. Made once per (kernel, agent), then found. */
int initrd_ensure(struct pool *p, const struct digest *kernel, const char *agent_path, struct digest *out, struct fail *why);
int initrd_open(struct pool *p, const struct digest *d, struct fail *why);

/* A node of the checkpoint tree, as in node.json (created_ns 0: now; digests may be empty). */
struct node {
	char id[24];		/* "n" + 20 */
	char parent[24];	/* empty: none */
	struct digest image, kernel, initrd;
	char driver[16], driver_version[128];
	unsigned vcpus;
	uint64_t memory, disk;	/* bytes */
	bool has_memory;	/* a checkpoint; else a snapshot */
	uint64_t own_bytes;
	int64_t created_ns;
	char label[128];
	unsigned agent_protocol;
	bool read_only;			/* no disk; the root's upper layer is in memory */
	char kind[12];			/* "template", "checkpoint", "snapshot", "branch", "suspend", or empty: the caller's word for it */
};
int node_begin(struct pool *p, char id[24], struct fail *why);	     /* makes tmp/NODEID; returns its directory descriptor */
int node_commit(struct pool *p, int dirfd, const struct node *n, struct fail *why); /* node.json, sync, rename into nodes/ */
int node_abort(struct pool *p, const char *id);
int node_read(struct pool *p, const char *id, struct node *out, struct fail *why);
int node_open(struct pool *p, const char *id, struct fail *why);     /* directory descriptor */
int node_remove(struct pool *p, const char *id, struct fail *why);

/* Words about the sandbox that a node needs to be started somewhere else (environment, user, working directory, …): an object of the caller's, at most
 * 512 KiB. Written before node_commit(), and carried by an export. One that was imported may say anything. *out: a new reference, NULL: there is
 * none. */
int node_meta_write(int dirfd, const json_t *meta, struct fail *why);
int node_meta_read(struct pool *p, const char *id, json_t **out, struct fail *why);

/* What a node's files take in the pool: bytes of extents (FIEMAP) that PARENT (may be NULL: none) does not share, and those that it does. Where the
 * pool cannot clone, everything is its own. */
int node_usage(struct pool *p, const char *id, const char *parent, uint64_t *own, uint64_t *shared, struct fail *why);

/* Digests: one SHA-256 for each MiB of `memory`, `state` and `disk`, in nodes/ID/digests, written once, after the node is there (never on the hot
 * path). Holes are not read: a MiB without data has the digest of zeroes. node_verify(): 0, or -EBADMSG with WHERE ("disk at offset N") of the first
 * MiB that does not hold; -ENOENT: it has no digests yet. */
int node_digest(struct pool *p, const char *id, struct fail *why);
int node_verify(struct pool *p, const char *id, char where[160], struct fail *why);

/* A node as one stream: a header with a version, node.json, the files sparsely, their digests, and the image, kernel and initramfs that it needs
 * (docs/export-format.md has the format). Import reads from a stream that may lie: every length is bounded, every digest checked before the node is
 * committed under a new id (given back), with digests; parents are not needed. What is there already (image, kernel) is skipped. PR may be NULL.
 * IN_FD is read to its end: whoever feeds it has to close it, and a reader that waits for ever is ended by closing the other side (then it is cut:
 * bad_checkpoint, and nothing is left). SIGPIPE must be ignored by who calls node_export(). */
int node_export(struct pool *p, const char *id, int out_fd, const struct progress *pr, struct fail *why);
int node_import(struct pool *p, int in_fd, const struct progress *pr, struct node *out, struct fail *why);

/* Bytes that the pool's folders take (st_blocks; shared extents counted once where FIEMAP tells): for `space df`. */
struct pool_usage { struct { unsigned count; uint64_t bytes; } images, kernels, nodes, disks; };
int pool_usage(struct pool *p, struct pool_usage *out, struct fail *why);

/* Disks. disk_make: an empty ext4 of SIZE bytes, sparse, without a name: gone with its last descriptor. disk_clone: sandboxes/ID/disk from a node's disk (or from an open
 * one), owned by UID, grown to SIZE when larger; the descriptor. */
int disk_make(struct pool *p, uint64_t size, struct fail *why);
int disk_clone(struct pool *p, const char *sandbox_id, int src_fd, uid_t uid, uint64_t size, bool *cloned, struct fail *why);
int disk_remove(struct pool *p, const char *sandbox_id, struct fail *why);
/* A clone takes 8 ms for every 1,000 extents, and a running sandbox's is made while its guest stands still: see rewrite.c. How many there are (of a
 * node: in the one of its files that has most; 0 where the file system cannot tell), and putting together what is in pieces, to be called in the
 * background when there are more than DISK_EXTENTS_MAX. That costs room, since what is rewritten is shared with nobody any more; what is in few pieces
 * stays shared. Also while a monitor uses the disk: busy when it was written to within the last seconds or meanwhile, and nothing has changed then
 * (pause the sandbox, or try again later); reads and writes wait for some tenths of a second. -EOPNOTSUPP where nothing is cloned. */
#define DISK_EXTENTS_MAX 20000
int disk_extents(struct pool *p, const char *sandbox_id, uint64_t *n, struct fail *why);
int disk_rewrite(struct pool *p, const char *sandbox_id, struct fail *why);
int node_extents(struct pool *p, const char *id, uint64_t *n, struct fail *why);
int node_rewrite(struct pool *p, const char *id, struct fail *why);
int disk_list(struct pool *p, char (**ids)[24], size_t *n, struct fail *why);

#endif
