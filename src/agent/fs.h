/* fs.h - filesystem.Filesystem, and what an entry of it looks like. */
#ifndef SPACE_AGENT_FS_H
#define SPACE_AGENT_FS_H

#include "agent/rpc.h"

rpc_fn rpc_stat, rpc_make_dir, rpc_move, rpc_list_dir, rpc_remove;

/* Writes the EntryInfo of PATH as the object KEY. 0, or -errno of lstat and then nothing is
 * written. Blocks on the disk. */
int entry_write(struct jw *w, const char *key, const char *path, struct names *names);

/* "-rw-r--r--", "dtrwxrwxrwx", "Lrwxrwxrwx": Go's way of writing a mode. */
void mode_text(char out[16], mode_t mode);

/* Makes the directory PATH and its missing parents, 0755, each new one owned by UID and GID. 0 if
 * it was there. */
int mkdirs(const char *path, uid_t uid, gid_t gid);

/* What a file system says no with, for the caller: an errno as the code of a call, and as an HTTP
 * status. INTERNAL, 500: it is not the request's fault. And the same in words. */
enum rpc_code errno_code(int err);
int errno_status(int err);
const char *errno_words(int err);

#endif
