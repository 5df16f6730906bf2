/* tar.c - an archive from outside: names end within their fields, sizes are sane, and what was read
 * can be written and read back the same. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/tar.h"

static bool ends(const char *s)
{
	return memchr(s, '\0', PATH_LEN) != NULL;
}

/* Writes E and reads it back: at most one extended header before it. */
static void round_trip(const struct tar_entry *e)
{
	static struct tar_entry got;
	static struct tar_pax pax;
	struct buf b;
	size_t at = 0;

	buf_init(&b, 256 * KIB);
	assert(tar_header(&b, e) == 0 && b.n % TAR_BLOCK == 0);
	memset(&pax, 0, sizeof(pax));
	assert(tar_parse((uint8_t *)b.p, &got) == 1);
	if (got.type == TAR_PAX && b.n > TAR_BLOCK) {
		assert(tar_pax_read(&pax, (struct str){ b.p + TAR_BLOCK, (size_t)got.size }) == 0);
		at = TAR_BLOCK + (size_t)got.size + tar_padding(got.size);
		assert(tar_parse((uint8_t *)b.p + at, &got) == 1);
	}
	assert(at + TAR_BLOCK == b.n);
	tar_pax_apply(&pax, &got);
	assert(strcmp(got.name, e->name) == 0 && strcmp(got.link, e->link) == 0);
	assert(got.mode == e->mode && got.uid == e->uid && got.gid == e->gid &&
		got.mtime_s == e->mtime_s);
	buf_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct tar_entry e;
	static struct tar_pax pax;
	struct str records = { (const char *)p, n };

	memset(&pax, 0, sizeof(pax));
	if (tar_pax_read(&pax, records) == 0)
		assert(ends(pax.name) && ends(pax.link) && pax.mtime_ns < 1000000000);
	(void)tar_long_read(&pax, TAR_LONGNAME, records);
	for (size_t at = 0; at + TAR_BLOCK <= n; at += TAR_BLOCK) {
		uint8_t block[TAR_BLOCK];
		unsigned sum = 8 * ' ';

		memcpy(block, p + at, sizeof(block));
		for (unsigned i = 0; i < TAR_BLOCK;
			i++) /* a fuzzer does not find checksums by itself */
			sum += i >= 148 && i < 156 ? 0 : block[i];
		for (int i = 5; i >= 0; i--, sum >>= 3)
			block[148 + i] = (uint8_t)('0' + (sum & 7));
		block[154] = '\0';
		block[155] = ' ';
		if (tar_parse(block, &e) != 1)
			continue;
		assert(ends(e.name) && ends(e.link) && e.size <= INT64_MAX && e.mode <= 07777);
		tar_pax_apply(&pax, &e);
		assert(ends(e.name) && ends(e.link));
		if (strchr("0123456", e.type) && e.name[0] && !str_ends(str_of(e.name), "/"))
			round_trip(&e);
	}
	return 0;
}
