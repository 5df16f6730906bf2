/* memory.c - see memory.h; what was measured and why it is done so: docs/driver.md. */
#include "driver/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/str.h"
#include "driver/driver.h"

#define PM_PRESENT (1ULL << 63)
#define PM_SWAPPED (1ULL << 62)
#define PM_FILE (1ULL << 61) /* or shared anonymous: not this process's own */

#define BITE (256 * KIB)

static const char zero_page[MEM_PAGE];

int mem_guest_open(pid_t pid, uint64_t hva, uint64_t size, struct mem_guest *out, struct fail *why)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail_set(why, -errno, "%s: %s", path, strerror(errno));
	*out = (struct mem_guest){ .pid = pid, .hva = hva, .size = size, .pagemap_fd = fd };
	return 0;
}

void mem_guest_close(struct mem_guest *g)
{
	if (g->pagemap_fd >= 0)
		close(g->pagemap_fd);
	g->pagemap_fd = -1;
}

void mem_runs_clear(struct mem_runs *r)
{
	free(r->v);
	*r = (struct mem_runs){ 0 };
}

static int runs_add(struct mem_runs *r, uint64_t at)
{
	struct mem_run *v;
	size_t cap;

	r->bytes += MEM_PAGE;
	if (r->n > 0 && r->v[r->n - 1].at + r->v[r->n - 1].len == at) {
		r->v[r->n - 1].len += MEM_PAGE;
		return 0;
	}
	if (r->n == r->cap) {
		cap = r->cap ? 2 * r->cap : 256;
		v = realloc(r->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		r->v = v;
		r->cap = cap;
	}
	r->v[r->n++] = (struct mem_run){ at, MEM_PAGE };
	return 0;
}

int mem_private(const struct mem_guest *g, struct mem_runs *out, struct fail *why)
{
	uint64_t entries[4096], pages = g->size / MEM_PAGE;

	*out = (struct mem_runs){ 0 };
	for (uint64_t at = 0; at < pages;) {
		size_t n = MIN(ARRAY_LEN(entries), pages - at);
		off_t where = (off_t)((g->hva / MEM_PAGE + at) * sizeof(entries[0]));
		int r = pread_all(g->pagemap_fd, entries, n * sizeof(entries[0]), where);

		for (size_t i = 0; i < n && r == 0; i++)
			if ((entries[i] & (PM_PRESENT | PM_SWAPPED)) && !(entries[i] & PM_FILE))
				r = runs_add(out, (at + i) * MEM_PAGE);
		if (r < 0) {
			mem_runs_clear(out);
			return fail_set(why, r, "reading the monitor's page map: %s", strerror(-r));
		}
		at += n;
	}
	return 0;
}

/* LEN bytes at AT of the guest into DST. */
static int guest_read(const struct mem_guest *g, char *dst, uint64_t at, uint64_t len)
{
	while (len > 0) {
		struct iovec to = { dst, len }, from = { (void *)(uintptr_t)(g->hva + at), len };
		ssize_t n = process_vm_readv(g->pid, &to, 1, &from, 1, 0);

		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		dst += n;
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

static uint64_t mem_available(void)
{
	autofree char *text = NULL;
	char *p;

	if (file_read(AT_FDCWD, "/proc/meminfo", &text, 16 * 1024) < 0)
		return 0;
	p = strstr(text, "MemAvailable:");
	return p ? strtoull(p + 13, NULL, 10) * KIB : 0;
}

int mem_copy_new(uint64_t size, uint64_t private_bytes, bool sparse, struct mem_copy *out)
{
	struct mem_copy c = { .size = size };

	if (private_bytes > mem_available() / 2)
		return -ENOMEM;
	c.base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (c.base == MAP_FAILED)
		return -errno;
	if (sparse) {
		c.bite = malloc(BITE);
		c.set = calloc(1, size / MEM_PAGE / 8 + 1);
		if (!c.bite || !c.set) {
			mem_copy_free(&c);
			return -ENOMEM;
		}
	}
	*out = c;
	return 0;
}

void mem_copy_free(struct mem_copy *c)
{
	if (c->base)
		munmap(c->base, c->size);
	free(c->bite);
	free(c->set);
	*c = (struct mem_copy){ 0 };
}

/* A page that is zero and was never copied is left alone: it reads as zero without being there. */
static void keep_page(const struct mem_copy *c, uint64_t at, const char *page)
{
	uint64_t n = at / MEM_PAGE;
	bool was = c->set[n / 8] & (1 << (n % 8));

	if (!was && !memcmp(page, zero_page, MEM_PAGE))
		return;
	memcpy(c->base + at, page, MEM_PAGE);
	c->set[n / 8] |= (uint8_t)(1 << (n % 8));
}

static int copy_sparse(const struct mem_copy *c, const struct mem_guest *g, const struct mem_runs *runs, struct fail *why)
{
	for (size_t i = 0; i < runs->n; i++) {
		uint64_t at = runs->v[i].at, end = at + runs->v[i].len;

		for (uint64_t len; at < end; at += len) {
			int r;

			len = MIN(BITE, end - at);
			r = guest_read(g, c->bite, at, len);
			if (r < 0)
				return fail_set(why, r, "reading the guest's memory: %s", strerror(-r));
			for (uint64_t k = 0; k < len; k += MEM_PAGE)
				keep_page(c, at + k, c->bite + k);
		}
	}
	return 0;
}

/* Many runs with one call: they are short, a page or two on average. */
int mem_copy_read(const struct mem_copy *c, const struct mem_guest *g, const struct mem_runs *runs, struct fail *why)
{
	struct iovec to[512], from[512];

	if (c->bite)
		return copy_sparse(c, g, runs, why);
	for (size_t i = 0; i < runs->n;) {
		size_t k = 0, sum = 0;
		ssize_t n;

		for (; k < ARRAY_LEN(to) && i + k < runs->n && sum < 64 * MIB; k++) {
			const struct mem_run *run = &runs->v[i + k];

			to[k] = (struct iovec){ c->base + run->at, run->len };
			from[k] = (struct iovec){ (void *)(uintptr_t)(g->hva + run->at), run->len };
			sum += run->len;
		}
		n = process_vm_readv(g->pid, to, k, from, k, 0);
		if (n < 0)
			return fail_set(why, -errno, "reading the guest's memory: %s", strerror(errno));
		if ((size_t)n < sum) {
			/* cut short, at most once in two GiB: the rest of this batch one by one */
			for (size_t j = 0; j < k; j++) {
				int r = guest_read(g, to[j].iov_base, runs->v[i + j].at, runs->v[i + j].len);

				if (r < 0)
					return fail_set(why, r, "reading the guest's memory: %s", strerror(-r));
			}
		}
		i += k;
	}
	return 0;
}

static int punch(int fd, uint64_t at, uint64_t len)
{
	if (FAULT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len)) == 0)
		return 0;
	if (errno != EOPNOTSUPP)
		return -errno;
	for (; len > 0; at += MEM_PAGE, len -= MEM_PAGE) {
		int r = FAULT_OURS(pwrite_all(fd, zero_page, MEM_PAGE, (off_t)at));

		if (r < 0)
			return r;
	}
	return 0;
}

enum page_kind { PAGE_SAME, PAGE_ZERO, PAGE_NEW };

static enum page_kind page_kind(const char *now, const char *was)
{
	if (was && !memcmp(now, was, MEM_PAGE))
		return PAGE_SAME;
	if (!memcmp(now, zero_page, MEM_PAGE))
		return was ? PAGE_ZERO : PAGE_SAME;
	return PAGE_NEW;
}

/* LEN bytes at AT, NOW against WAS (NULL: zeros): stretches of one kind are written with one call. */
static int write_bite(int fd, const char *now, const char *was, uint64_t at, uint64_t len, uint64_t *written)
{
	for (uint64_t i = 0, j; i < len; i = j) {
		enum page_kind kind = page_kind(now + i, was ? was + i : NULL);
		int r = 0;

		for (j = i + MEM_PAGE; j < len && page_kind(now + j, was ? was + j : NULL) == kind;)
			j += MEM_PAGE;
		if (kind == PAGE_NEW) {
			r = FAULT_OURS(pwrite_all(fd, now + i, j - i, (off_t)(at + i)));
			*written += j - i;
		} else if (kind == PAGE_ZERO) {
			r = punch(fd, at + i, j - i);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

int mem_write(int out_fd, int parent_fd, const struct mem_copy *c, const struct mem_guest *g, const struct mem_runs *runs,
	      uint64_t *written, struct fail *why)
{
	autofree char *was = parent_fd >= 0 ? malloc(BITE) : NULL, *own = c ? NULL : malloc(BITE);

	*written = 0;
	if ((parent_fd >= 0 && !was) || (!c && !own))
		return fail_set(why, -ENOMEM, "no memory");
	for (size_t i = 0; i < runs->n; i++) {
		uint64_t at = runs->v[i].at, end = at + runs->v[i].len;

		for (uint64_t len; at < end; at += len) {
			int r = 0;

			len = MIN(BITE, end - at);
			if (was)
				r = pread_all(parent_fd, was, len, (off_t)at);
			if (r == 0 && !c)
				r = guest_read(g, own, at, len);
			if (r == 0)
				r = write_bite(out_fd, c ? c->base + at : own, was, at, len, written);
			if (r < 0)
				return fail_set(why, r, "writing the checkpoint's memory: %s", strerror(-r));
		}
	}
	return 0;
}

/* Every data extent of FD into the mapping TO of the same size. */
static int read_extents(int fd, char *to, uint64_t size)
{
	for (off_t at = 0; (uint64_t)at < size;) {
		off_t from = lseek(fd, at, SEEK_DATA), end;
		int r;

		if (from < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(fd, from, SEEK_HOLE);
		if (end < 0)
			return -errno;
		if ((uint64_t)end > size)
			end = (off_t)size;
		if (from >= end)
			return 0;
		r = pread_all(fd, to + from, (size_t)(end - from), from);
		if (r < 0)
			return r;
		at = end;
	}
	return 0;
}

/* What maps it for writing keeps it from being sealed: a child, too, that was forked off just before it was kept from that, and has not come to its exec(). */
static int seal(int fd)
{
	for (int tries = 0; FAULT(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) < 0; tries++) {
		if (errno != EBUSY || tries == 200)
			return -errno;
		usleep(10000);
	}
	return 0;
}

int driver_memory_memfd(int node_dirfd, uint64_t memory, struct fail *why)
{
	autoclose int file = openat(node_dirfd, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW), fd = -1;
	struct stat st;
	char *p;
	int r;

	if (file < 0 || fstat(file, &st) < 0)
		return fail_set(why, -errno, "the checkpoint's memory: %s", strerror(errno));
	if ((uint64_t)st.st_size != memory)
		return fail_set(why, -EINVAL, "the checkpoint's memory has %lld bytes, not %llu", (long long)st.st_size,
				(unsigned long long)memory);
	fd = FAULT(memfd_create("space-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0 || FAULT(ftruncate(fd, st.st_size)) < 0)
		return fail_set(why, -errno, "memory file: %s", strerror(errno));
	p = mmap(NULL, memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail_set(why, -errno, "memory file: %s", strerror(errno));
	(void)madvise(p, memory, MADV_DONTFORK);
	/* after some generations its extents are many and short: one by one each would wait for the disk */
	(void)posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
	r = read_extents(file, p, memory);
	munmap(p, memory);
	if (r < 0)
		return fail_set(why, r, "reading the checkpoint's memory: %s", strerror(-r));
	r = seal(fd);
	if (r < 0)
		return fail_set(why, r, "sealing the memory file: %s", strerror(-r));
	return steal_fd(&fd);
}
