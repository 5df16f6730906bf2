/* payload.h - the ELF kernel inside a Linux bzImage, and compressed kernel modules.
 *
 * Pure functions from bytes to bytes. The input is untrusted: nothing is read outside it, and
 * nothing over the stated maximum comes out. */
#ifndef SPACE_IMAGE_PAYLOAD_H
#define SPACE_IMAGE_PAYLOAD_H

#include "base/buf.h"
#include "base/fail.h"

#define VMLINUX_MAX (192 * MIB)
#define MODULE_MAX (64 * MIB)

/* The ELF file out of a bzImage; an ELF file is taken as it is. OUT is empty before, created with
 * its maximum. 0, -EBADMSG, -ENOBUFS, -ENOTSUP (compressed in a way that this build does not know).
 */
int payload_extract(struct str image, struct buf *out, struct fail *why);

/* A whole stream of gzip, xz, zstd or LZ4's legacy frame, told by its first bytes; bytes after its
 * end are ignored. */
int decompress(struct str in, struct buf *out, struct fail *why);

/* Is this the start of a 64-bit x86 ELF file of that type (ET_EXEC 2, ET_REL 1, …; 0: any)? */
bool elf_is_x86_64(struct str s, unsigned type);

/* One LZ4 block, appended to OUT. 0, -EBADMSG, -ENOBUFS, -ENOMEM. */
int lz4_block(struct str in, struct buf *out);

#endif
