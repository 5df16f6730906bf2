/* console.c - reading the ring file that space-keeper writes. */
#include <fcntl.h>
#include <stdio.h>

#include "base/file.h"
#include "driver/driver.h"
#include "driver/keeper.h"

static int ring_read(int fd, size_t max, char **out, size_t *len)
{
	struct keep_ring head;
	autofree char *text = NULL;
	uint64_t n, from;
	int r = pread_all(fd, &head, sizeof(head), 0);

	if (r < 0 || head.magic != KEEP_RING_MAGIC)
		head.total = 0; /* not begun yet */
	n = MIN(head.total, (uint64_t)KEEP_RING_DATA);
	n = MIN(n, max);
	from = head.total - n;
	text = malloc(n + 1);
	if (!text)
		return -ENOMEM;
	for (uint64_t done = 0, k; done < n; done += k) {
		uint64_t at = (from + done) % KEEP_RING_DATA;

		k = MIN(n - done, KEEP_RING_DATA - at);
		r = pread_all(fd, text + done, k, (off_t)(KEEP_RING_HEAD + at));
		if (r < 0)
			return r;
	}
	text[n] = '\0';
	*out = steal_ptr(text);
	*len = n;
	return 0;
}

int vm_console(const char *run_dir, size_t max, char **out, size_t *len)
{
	char path[4096];
	autoclose int fd = -1;

	if (snprintf(path, sizeof(path), "%s/console", run_dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : ring_read(fd, max, out, len);
}
