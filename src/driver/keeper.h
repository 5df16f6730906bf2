/* keeper.h - what spaced and space-keeper say to each other, and the two files that the keeper writes.
 *
 * space-keeper is the parent of one QEMU. It confines itself (namespaces, root, uid, limits), starts QEMU, and then does two small things
 * that must survive a restart of spaced: it keeps the last megabyte of the guest's console in a ring file, and it notes how QEMU ended. It is
 * a static program that the driver carries in itself and runs from memory. When it goes, QEMU goes: so its pidfd is the monitor's. */
#ifndef SPACE_KEEPER_H
#define SPACE_KEEPER_H

#include <stdint.h>

/* Descriptors that the keeper finds open. */
enum {
	KEEP_TALK = 3,	  /* SOCK_SEQPACKET to spaced: struct keep_note up, one byte "go" down */
	KEEP_RING,	  /* console ring file */
	KEEP_LOG,	  /* what QEMU says on stderr: the first KEEP_LOG_MAX bytes */
	KEEP_EXIT,	  /* struct keep_exit, once QEMU ended */
	KEEP_CONSOLE,	  /* the keeper's end of the console */
	KEEP_QEMU_FDS,	  /* from here on: QEMU's, closed in the keeper */
};

#define KEEP_LOG_MAX (64 * 1024)
#define KEEP_RING_DATA (1024 * 1024)
#define KEEP_RING_HEAD 4096
#define KEEP_RING_MAGIC 0x31676e6972637073ULL

/* Start of the ring file; the data follow at KEEP_RING_HEAD, byte N of the console at N % KEEP_RING_DATA. */
struct keep_ring {
	uint64_t magic;
	uint64_t total; /* bytes ever written */
};

enum keep_step { KEEP_FORKED = 1, KEEP_FAILED }; /* that QEMU's program runs is told by the end of the conversation */

struct keep_note {
	int32_t step;
	int32_t err; /* errno of KEEP_FAILED */
	int32_t qemu; /* its pid, from KEEP_FORKED on */
	char what[64]; /* the step that failed */
};

#define KEEP_EXIT_MAGIC 0x74697865U
struct keep_exit {
	uint32_t magic;
	int32_t status; /* as from waitpid */
	int64_t at_ns;	/* CLOCK_REALTIME */
};

/* argv of the keeper: its name, then these as decimal text, then QEMU's argv. */
enum { KEEP_ARG_UID = 1, KEEP_ARG_FSIZE, KEEP_ARG_KVM, KEEP_ARG_QEMU };

#endif
