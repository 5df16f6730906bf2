/* rootfs.h - what makes a Debian root a sandbox's root: its user, and nothing of the build host or
 * the build's moment.
 *
 * Works below the directory descriptor of a tree that was just made by dpkg, and is trusted as
 * such. */
#ifndef SPACE_IMAGE_ROOTFS_H
#define SPACE_IMAGE_ROOTFS_H

#include "base/fail.h"

#define ROOTFS_USER "user"
#define ROOTFS_UID 1000

/* The user `user` (uid 1000, shell bash, home /home/user, sudo without password), pip that installs
 * without asking, and a clean-up. */
int rootfs_finish(int rootfd, struct fail *why);

/* The directories that the agent mounts on, where they are absent. */
int rootfs_mount_points(int rootfd, struct fail *why);

#endif
