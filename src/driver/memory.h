/* memory.h - a guest's memory as seen from outside its monitor: which pages are its own, what is in them, and the node's file of them.
 *
 * Every monitor maps memory privately: over nothing, or over the file of the node it was started from. A page that it has written
 * is anonymous; /proc/PID/pagemap says which those are, and process_vm_readv reads them without the monitor's help. */
#ifndef SPACE_MEMORY_H
#define SPACE_MEMORY_H

#include "base/fail.h"

#define MEM_PAGE 4096ULL

struct mem_guest {
	pid_t pid;
	uint64_t hva;	   /* where the monitor has it */
	uint64_t size;
	int pagemap_fd;
};

/* A list of page runs, growing; at most one entry for every second page. */
struct mem_run {
	uint64_t at, len;  /* bytes from the start of the guest's memory */
};
struct mem_runs {
	struct mem_run *v;
	size_t n, cap;
	uint64_t bytes;
};

int mem_guest_open(pid_t pid, uint64_t hva, uint64_t size, struct mem_guest *out, struct fail *why);
void mem_guest_close(struct mem_guest *g);

/* Pages that the monitor has written (or that it touched, where nothing lies below). */
int mem_private(const struct mem_guest *g, struct mem_runs *out, struct fail *why);
void mem_runs_clear(struct mem_runs *r);

/* A copy of private pages, taken while the guest runs and again while it stands still: the second time the room is there already,
 * which is most of the time that it takes. Page N is at its own offset; what was not copied costs nothing. */
struct mem_copy {
	char *base;
	uint64_t size;
	char *bite;		/* SPARSE: where pages are looked at first */
	uint8_t *set;		/* SPARSE: a bit for each page that was copied */
};
/* -ENOMEM when the host has no room for PRIVATE_BYTES: then the pages are read one bite at a time, while the guest stands still. SPARSE: zero
 * pages take no room, for a guest that has zeroed all of its memory; somewhat slower otherwise. */
int mem_copy_new(uint64_t size, uint64_t private_bytes, bool sparse, struct mem_copy *out);
int mem_copy_read(const struct mem_copy *c, const struct mem_guest *g, const struct mem_runs *runs, struct fail *why);
void mem_copy_free(struct mem_copy *c);

/* Writes into OUT_FD (a clone of the parent's file, or empty) those pages of RUNS that differ from PARENT_FD (-1: from zero). Zero pages
 * become holes. From C if that is given, else straight from the guest. *written counts the bytes of pages written. */
int mem_write(int out_fd, int parent_fd, const struct mem_copy *c, const struct mem_guest *g, const struct mem_runs *runs,
	      uint64_t *written, struct fail *why);

#endif
