/* line.c - see line.h. */
#include "driver/line.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"

#define NAME "line"
#define ENTRIES_MAX 1024

struct entry {
	uint64_t dev, ino;
	int64_t birth_ns;
};

static int entry_of(int fd, struct entry *out)
{
	struct statx x;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &x) < 0)
		return -errno;
	*out = (struct entry){ (uint64_t)x.stx_dev_major << 32 | x.stx_dev_minor, x.stx_ino,
			       x.stx_mask & STATX_BTIME ? x.stx_btime.tv_sec * NS_PER_S + x.stx_btime.tv_nsec : 0 };
	return 0;
}

/* The newest ENTRIES_MAX; the caller frees. */
static size_t entries(int run_dirfd, struct entry **out)
{
	char *text = NULL;
	ssize_t n = file_read(run_dirfd, NAME, &text, 2 * ENTRIES_MAX * sizeof(struct entry));

	*out = (struct entry *)text;
	return n < 0 ? 0 : (size_t)n / sizeof(struct entry);
}

/* Not synced: it is of no use after a power cut, when the VM is gone as well. */
void line_add(int run_dirfd, int memory_fd)
{
	autofree struct entry *all = NULL;
	size_t n = entries(run_dirfd, &all);
	autoclose int fd = -1;
	struct entry e;

	if (entry_of(memory_fd, &e) < 0)
		return;
	if (n >= ENTRIES_MAX) { /* the older half goes; the start file is the first, and stays */
		memmove(all + 1, all + n - ENTRIES_MAX / 2, ENTRIES_MAX / 2 * sizeof(*all));
		if (FAULT_OURS(file_write_atomic(run_dirfd, NAME, all, (1 + ENTRIES_MAX / 2) * sizeof(*all), 0600)) < 0)
			return;
	}
	fd = FAULT(openat(run_dirfd, NAME, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (fd >= 0)
		(void)FAULT_OURS(write_all(fd, &e, sizeof(e)));
}

bool line_has(int run_dirfd, int memory_fd)
{
	autofree struct entry *all = NULL;
	size_t n = entries(run_dirfd, &all);
	struct entry e;

	if (entry_of(memory_fd, &e) < 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!memcmp(&all[i], &e, sizeof(e)))
			return true;
	return false;
}
