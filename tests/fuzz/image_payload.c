/* Kernels and modules out of packages: whatever the bytes are, what comes out is bounded, and an
 * ELF file if it is called one. The first byte of the input chooses the reader. */
#include "image/modules.h"
#include "image/payload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void modules(struct str s)
{
	static const char *const wanted[] = { "a", "?b", "?ext4", NULL };
	size_t *order, n;
	struct modules m;
	struct str info, first, rest;

	modules_init(&m);
	if (!modinfo_of(s, &info, NULL)) {
		assert(info.p >= s.p && info.n <= s.n && (size_t)(info.p - s.p) <= s.n - info.n);
		modules_add(&m, "kernel/x.ko", info, NULL);
	}
	/* The same bytes as what several modules say of themselves. */
	for (rest = s; rest.n; modules_add(&m, "kernel/y.ko", first, NULL))
		str_cut(rest, '\n', &first, &rest);
	modules_add_builtin(&m, s);
	modules_add_builtin_info(&m, s);
	if (!modules_order(&m, wanted, &order, &n, NULL)) {
		assert(n <= m.n);
		for (size_t i = 0; i < n; i++) {
			assert(order[i] < m.n);
			for (size_t k = 0; k < i; k++)
				assert(order[k] != order[i]);
		}
		free(order);
	}
	modules_clear(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	autobuf struct buf out = { 0 };
	struct str s = { (const char *)data + 1, size - 1 };
	struct fail why;

	if (!size)
		return 0;
	buf_init(&out, 256 * KIB);
	switch (data[0] % 4) {
	case 0:
		if (!payload_extract(s, &out, &why))
			assert(elf_is_x86_64(buf_str(&out), 0));
		break;
	case 1:
		decompress(s, &out, &why);
		break;
	case 2:
		lz4_block(s, &out);
		break;
	default:
		modules(s);
	}
	assert(out.n <= out.max);
	return 0;
}
