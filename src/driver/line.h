/* line.h - RUN_DIR/line: the memory files that agree with a VM in every page that is not its own: the one that it was started from, and those of
 * each save since (qemu_save.c says why it matters). A file is known by its inode and the time of its birth. What has fallen out of the list costs
 * a save that stores more than it needs to, never a wrong one. */
#ifndef SPACE_LINE_H
#define SPACE_LINE_H

#include <stdbool.h>

void line_add(int run_dirfd, int memory_fd);
bool line_has(int run_dirfd, int memory_fd);

#endif
