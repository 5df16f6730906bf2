/* payload.c - see payload.h. */
#include "image/payload.h"

#include <elf.h>

#include "base/cur.h"

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_LZMA
#include <lzma.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

#define CHUNK (4 * MIB)

bool elf_is_x86_64(struct str s, unsigned type)
{
	Elf64_Ehdr h;

	if (s.n < sizeof(h))
		return false;
	memcpy(&h, s.p, sizeof(h));
	return !memcmp(h.e_ident, ELFMAG, SELFMAG) && h.e_ident[EI_CLASS] == ELFCLASS64 &&
	       h.e_ident[EI_DATA] == ELFDATA2LSB && h.e_machine == EM_X86_64 &&
	       (!type || h.e_type == type);
}

/* --- LZ4, as the kernel's build compresses: `lz4 -l`, 8 MiB blocks without checksums --- */

/* A length that did not fit its nibble goes on in bytes of 255. */
static size_t lz4_length(struct cur *c, size_t n)
{
	uint8_t b;

	if (n != 15)
		return n;
	do {
		b = cur_u8(c);
		n += b;
	} while (b == 255 && !c->bad);
	return n;
}

int lz4_block(struct str in, struct buf *out)
{
	struct cur c = cur_of(in.p, in.n);
	size_t start = out->n;
	int r;

	while (cur_left(&c)) {
		uint8_t token = cur_u8(&c);
		size_t lit = lz4_length(&c, token >> 4), len, dist;
		const uint8_t *p = cur_take(&c, lit);

		if (c.bad)
			return -EBADMSG;
		r = buf_add(out, p, lit);
		if (r < 0)
			return r;
		if (!cur_left(&c))
			return 0; /* the last sequence is literals only */
		dist = cur_u8(&c);
		dist |= (size_t)cur_u8(&c) << 8;
		len = lz4_length(&c, token & 15) + 4;
		if (c.bad || !dist || dist > out->n - start)
			return -EBADMSG;
		r = buf_reserve(out, len);
		if (r < 0)
			return r;
		/* The match may overlap what it makes: that is how runs are written. */
		if (dist >= len) {
			memcpy(out->p + out->n, out->p + out->n - dist, len);
		} else {
			for (size_t i = 0; i < len; i++)
				out->p[out->n + i] = out->p[out->n + i - dist];
		}
		out->n += len;
	}
	return out->n > start ? 0 : -EBADMSG;
}

static int lz4_legacy(struct str in, struct buf *out)
{
	struct cur c = cur_of(in.p, in.n);
	int r;

	(void)cur_take(&c, 4); /* magic */
	while (cur_left(&c) >= 4) {
		uint32_t n = cur_le32(&c);
		const uint8_t *p;

		/* In a bzImage the uncompressed size (4 bytes) comes after the last block; nothing
		 * marks the end. */
		if (n > cur_left(&c))
			return cur_left(&c) == 0 && out->n && n == (uint32_t)out->n ? 0 : -EBADMSG;
		p = cur_take(&c, n);
		r = lz4_block((struct str){ (const char *)p, n }, out);
		if (r < 0)
			return r;
	}
	return cur_left(&c) || !out->n ? -EBADMSG : 0;
}

/* --- what libraries do --- */

#ifdef HAVE_ZLIB
static int inflate_gzip(struct str in, struct buf *out)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)in.p, .avail_in = (uInt)in.n };
	int r = inflateInit2(&z, 16 + MAX_WBITS), s;

	if (r != Z_OK)
		return -ENOMEM;
	do {
		r = buf_reserve(out, MIN(CHUNK, out->max - out->n));
		if (!r && out->n == out->max)
			r = -ENOBUFS;
		if (r < 0) {
			inflateEnd(&z);
			return r;
		}
		z.next_out = (Bytef *)out->p + out->n;
		z.avail_out = (uInt)MIN(CHUNK, out->max - out->n);
		s = inflate(&z, Z_NO_FLUSH);
		out->n = (size_t)((char *)z.next_out - out->p);
	} while (s == Z_OK && (z.avail_in || !z.avail_out));
	inflateEnd(&z);
	return s == Z_STREAM_END ? 0 : -EBADMSG;
}
#endif

#ifdef HAVE_LZMA
static int unxz(struct str in, struct buf *out)
{
	lzma_stream s = LZMA_STREAM_INIT;
	lzma_ret l;
	int r = 0;

	if (lzma_stream_decoder(&s, 256 * MIB, 0) != LZMA_OK)
		return -ENOMEM;
	s.next_in = (const uint8_t *)in.p;
	s.avail_in = in.n;
	do {
		r = buf_reserve(out, MIN(CHUNK, out->max - out->n));
		if (!r && out->n == out->max)
			r = -ENOBUFS;
		if (r < 0)
			break;
		s.next_out = (uint8_t *)out->p + out->n;
		s.avail_out = MIN(CHUNK, out->max - out->n);
		l = lzma_code(&s, LZMA_RUN);
		out->n = (size_t)((char *)s.next_out - out->p);
	} while (l == LZMA_OK && (s.avail_in || !s.avail_out));
	lzma_end(&s);
	return r < 0 ? r : l == LZMA_STREAM_END ? 0 : -EBADMSG;
}
#endif

#ifdef HAVE_ZSTD
static int unzstd(struct str in, struct buf *out)
{
	ZSTD_DStream *z = ZSTD_createDStream();
	ZSTD_inBuffer src = { in.p, in.n, 0 };
	size_t left = 1;
	int r = 0;

	if (!z)
		return -ENOMEM;
	while (left) {
		ZSTD_outBuffer dst;
		size_t before = src.pos;

		r = buf_reserve(out, MIN(CHUNK, out->max - out->n));
		if (!r && out->n == out->max)
			r = -ENOBUFS;
		if (r < 0)
			break;
		dst = (ZSTD_outBuffer){ out->p + out->n, MIN(CHUNK, out->max - out->n), 0 };
		left = ZSTD_decompressStream(z, &dst, &src);
		out->n += dst.pos;
		if (ZSTD_isError(left) || (left && !dst.pos && src.pos == before)) {
			r = -EBADMSG;
			break;
		}
	}
	ZSTD_freeDStream(z);
	return r;
}
#endif

static const struct {
	const char *name, *magic;
	size_t n;
	int (*fn)(struct str in, struct buf *out);
} formats[] = {
	{ "LZ4", "\x02\x21\x4c\x18", 4, lz4_legacy },
#ifdef HAVE_ZLIB
	{ "gzip", "\x1f\x8b", 2, inflate_gzip },
#else
	{ "gzip", "\x1f\x8b", 2, NULL },
#endif
#ifdef HAVE_LZMA
	{ "xz",
		"\xfd"
		"7zXZ",
		6, unxz },
#else
	{ "xz",
		"\xfd"
		"7zXZ",
		6, NULL },
#endif
#ifdef HAVE_ZSTD
	{ "zstd", "\x28\xb5\x2f\xfd", 4, unzstd },
#else
	{ "zstd", "\x28\xb5\x2f\xfd", 4, NULL },
#endif
};

int decompress(struct str in, struct buf *out, struct fail *why)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		int r;

		if (in.n < formats[i].n || memcmp(in.p, formats[i].magic, formats[i].n))
			continue;
		if (!formats[i].fn)
			return fail_as(why, ERR_unsupported,
				"compressed with %s, which this build does not know",
				formats[i].name);
		if (in.n > UINT32_MAX)
			return fail_set(why, -EFBIG, "%s data over 4 GiB", formats[i].name);
		r = formats[i].fn(in, out);
		if (r == -ENOBUFS)
			return fail_set(
				why, r, "%s data: more than %zu bytes", formats[i].name, out->max);
		return r < 0 ? fail_set(why, r, "%s data: %s", formats[i].name,
				       r == -ENOMEM ? "out of memory" : "corrupt or cut off")
			     : 0;
	}
	return fail_set(why, -EBADMSG, "not compressed in a way that is known");
}

/* --- the bzImage (Documentation/arch/x86/boot.rst of the kernel) --- */

int payload_extract(struct str image, struct buf *out, struct fail *why)
{
	struct cur c = cur_of(image.p, image.n);
	uint8_t sects;
	uint16_t flag, version;
	uint32_t magic, at, len;
	struct str packed;
	int r;

	if (elf_is_x86_64(image, 0))
		return buf_adds(out, image);
	(void)cur_take(&c, 0x1f1);
	sects = cur_u8(&c); /* 1f1 setup_sects */
	(void)cur_take(&c, 0x1fe - 0x1f2);
	flag = cur_u8(&c); /* 1fe boot_flag */
	flag |= (uint16_t)(cur_u8(&c) << 8);
	(void)cur_take(&c, 2);
	magic = cur_le32(&c); /* 202 "HdrS" */
	version = cur_u8(&c); /* 206 */
	version |= (uint16_t)(cur_u8(&c) << 8);
	(void)cur_take(&c, 0x248 - 0x208);
	at = cur_le32(&c);  /* 248 payload_offset, from the end of the setup sectors */
	len = cur_le32(&c); /* 24c payload_length */
	if (c.bad || flag != 0xaa55 || magic != 0x53726448 || version < 0x208)
		return fail_set(
			why, -EBADMSG, "not a Linux bzImage of boot protocol 2.08 or later");
	c = cur_of(image.p, image.n);
	(void)cur_take(&c, ((sects ? sects : 4) + 1) * 512U);
	(void)cur_take(&c, at);
	packed.p = (const char *)cur_take(&c, len);
	packed.n = len;
	if (c.bad || !len)
		return fail_set(why, -EBADMSG, "the bzImage is cut off");
	r = decompress(packed, out, why);
	if (r < 0) {
		fail_prefix(why, "kernel payload");
		return r;
	}
	if (!elf_is_x86_64(buf_str(out), 0))
		return fail_set(why, -EBADMSG, "the bzImage's payload is not an x86-64 ELF file");
	return 0;
}
