/* qemu_limits.h - the sizes that bound one QEMU. */
#ifndef SPACE_QEMU_LIMITS_H
#define SPACE_QEMU_LIMITS_H

#include "base/base.h"

/* Room for translated code. When it is full QEMU starts again with an empty one. */
#define QEMU_TB_BYTES (128 * MIB)
/* What the monitor may use beside the guest's memory and the translated code: heap, stacks, page cache of its files, keeper. */
#define QEMU_OVERHEAD_BYTES (192 * MIB)
/* Threads: vCPUs, main, up to 64 that wait for disks. */
#define QEMU_PIDS 128
#define QEMU_QMP_TIMEOUT_MS 10000

#endif
