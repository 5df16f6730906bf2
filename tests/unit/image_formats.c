/* What the image room reads and writes byte by byte: kernels, modules, the initramfs,
 * configurations. */
#include <elf.h>
#include <stdio.h>

#include "base/random.h"
#include "image/apt.h"
#include "image/cpio.h"
#include "image/modules.h"
#include "image/oci.h"
#include "image/payload.h"
#include "test.h"

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

/* --- LZ4 --- */

TEST(lz4_blocks)
{
	static const struct {
		const char *name;
		struct str in, out;
		int r;
	} rows[] = {
		{ "literals only", STR("\x50hello"), STR("hello"), 0 },
		{ "a match that overlaps itself",
			STR("\x13"
			    "a\x01\x00\x10z"),
			STR("aaaaaaaaz"), 0 },
		{ "a match further back",
			STR("\x40"
			    "abcd\x04\x00\x10!"),
			STR("abcdabcd!"), 0 },
		{ "sixteen literals take a second byte",
			STR("\xf0\x01"
			    "0123456789abcdef"),
			STR("0123456789abcdef"), 0 },
		{ "empty", STR(""), STR(""), -EBADMSG },
		{ "literals past the end", STR("\x50hell"), STR(""), -EBADMSG },
		{ "offset of zero",
			STR("\x10"
			    "a\x00\x00"),
			STR(""), -EBADMSG },
		{ "offset before the start",
			STR("\x10"
			    "a\x02\x00"),
			STR(""), -EBADMSG },
		{ "offset cut off",
			STR("\x10"
			    "a\x01"),
			STR(""), -EBADMSG },
		{ "length never ends", STR("\xf0\xff\xff\xff"), STR(""), -EBADMSG },
		{ "match length never ends",
			STR("\x1f"
			    "a\x01\x00\xff\xff"),
			STR(""), -EBADMSG },
		{ "more than the maximum",
			STR("\x1f"
			    "a\x01\x00\xff\xff\xff\x00\x10z"),
			STR(""), -ENOBUFS },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		autobuf struct buf out = { 0 };

		test_row("%s", rows[i].name);
		buf_init(&out, 64);
		CHECK_INT(lz4_block(rows[i].in, &out), rows[i].r);
		if (!rows[i].r)
			CHECK_STR(buf_str(&out), rows[i].out);
	}
	test_row(NULL);
}

/* --- bzImages --- */

static void put32(char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (char)(v >> (8 * i));
}

/* An ELF header and some more bytes, as the payload's content. */
static void make_elf(char elf[200])
{
	Elf64_Ehdr h = { .e_type = ET_EXEC, .e_machine = EM_X86_64 };

	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	memset(elf, 'k', 200);
	memcpy(elf, &h, sizeof(h));
}

/* A bzImage with one setup sector, PAYLOAD at 16 bytes into the rest, the length field saying LEN.
 */
static size_t make_bzimage(char *out, size_t room, const char *payload, size_t n, uint32_t len)
{
	size_t at = 2 * 512 + 16;

	assert(at + n <= room);
	memset(out, 0, at);
	out[0x1f1] = 1;
	out[0x1fe] = 0x55;
	out[0x1ff] = (char)0xaa;
	memcpy(out + 0x202, "HdrS", 4);
	out[0x206] = 0x0f;
	out[0x207] = 0x02;
	put32(out + 0x248, 16);
	put32(out + 0x24c, len);
	memcpy(out + at, payload, n);
	return at + n;
}

/* LZ4's legacy frame of ELF, literals only, with the uncompressed size after it as the kernel's
 * build adds. */
static size_t make_lz4(char *out, const char elf[200])
{
	put32(out, 0x184c2102);
	put32(out + 4, 202);
	out[8] = (char)0xf0;
	out[9] = (char)(200 - 15);
	memcpy(out + 10, elf, 200);
	put32(out + 210, 200);
	return 214;
}

TEST(payload_of_a_bzimage)
{
	char elf[200], lz4[300], image[2048];
	autobuf struct buf out = { 0 };
	struct fail why;
	size_t n, len;

	make_elf(elf);
	len = make_lz4(lz4, elf);
	n = make_bzimage(image, sizeof(image), lz4, len, (uint32_t)len);
	buf_init(&out, 4096);
	CHECK_INT(payload_extract((struct str){ image, n }, &out, &why), 0);
	CHECK_STR(buf_str(&out), ((struct str){ elf, 200 }));
	buf_clear(&out);
	CHECK_INT(payload_extract((struct str){ elf, 200 }, &out, &why),
		0); /* an ELF file is taken as it is */
	CHECK_INT(out.n, 200);
	buf_clear(&out);
	buf_init(&out, 100);
	CHECK_INT(payload_extract((struct str){ image, n }, &out, &why), -ENOBUFS);
}

/* Every prefix of a good image and every single damaged byte of its header: an error or an ELF
 * file, never more. */
TEST(payload_of_damaged_images)
{
	char elf[200], lz4[300], image[2048], copy[2048];
	struct fail why;
	size_t n, len;

	make_elf(elf);
	len = make_lz4(lz4, elf);
	n = make_bzimage(image, sizeof(image), lz4, len, (uint32_t)len);
	for (size_t cut = 0; cut < n; cut++) {
		autobuf struct buf out = { 0 };
		autofree char *exact =
			malloc(cut ? cut : 1); /* so that a sanitizer sees one byte too many */

		memcpy(exact, image, cut);
		buf_init(&out, 4096);
		test_row("cut to %zu", cut);
		CHECK(payload_extract((struct str){ exact, cut }, &out, &why) < 0);
	}
	for (size_t at = 0; at < n; at++) {
		for (unsigned v = 0; v < 4; v++) {
			static const uint8_t values[] = { 0, 0x7f, 0x80, 0xff };
			autobuf struct buf out = { 0 };

			memcpy(copy, image, n);
			copy[at] = (char)values[v];
			buf_init(&out, 4096);
			test_row("byte %zu is %u", at, values[v]);
			if (!payload_extract((struct str){ copy, n }, &out, &why))
				CHECK(elf_is_x86_64(buf_str(&out), 0));
		}
	}
	test_row(NULL);
}

TEST(payload_that_is_not_a_kernel)
{
	char image[2048], lz4[300], elf[200];
	autobuf struct buf out = { 0 };
	struct fail why;
	size_t n, len;

	buf_init(&out, 4096);
	memset(elf, 'x', sizeof(elf));
	len = make_lz4(lz4, elf);
	n = make_bzimage(image, sizeof(image), lz4, len, (uint32_t)len);
	CHECK_INT(payload_extract((struct str){ image, n }, &out, &why), -EBADMSG);
	CHECK(strstr(why.msg, "ELF"));
	n = make_bzimage(image, sizeof(image), "neither", 7, 7);
	CHECK_INT(payload_extract((struct str){ image, n }, &out, &why), -EBADMSG);
	n = make_bzimage(image, sizeof(image), lz4, len, 0xffffffffu);
	CHECK_INT(payload_extract((struct str){ image, n }, &out, &why), -EBADMSG);
}

#ifdef HAVE_ZLIB
TEST(gzip_is_bounded)
{
	static char zeros[200000];
	char packed[4096];
	z_stream z = { .next_in = (Bytef *)zeros,
		.avail_in = sizeof(zeros),
		.next_out = (Bytef *)packed,
		.avail_out = sizeof(packed) };
	autobuf struct buf out = { 0 };
	struct fail why;

	REQUIRE(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
	REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
	buf_init(&out, 1 * MIB);
	CHECK_INT(decompress((struct str){ packed, z.total_out }, &out, &why), 0);
	CHECK_INT(out.n, sizeof(zeros));
	buf_clear(&out);
	CHECK_INT(decompress((struct str){ packed, z.total_out / 2 }, &out, &why), -EBADMSG);
	buf_clear(&out);
	buf_init(&out, 1000);
	CHECK_INT(decompress((struct str){ packed, z.total_out }, &out, &why), -ENOBUFS);
	deflateEnd(&z);
}
#endif

/* --- modules --- */

#define INFO(text) ((struct str){ text, sizeof(text) })

/* What a few of Debian's modules say of themselves, in this order of a directory walk. */
static void sample(struct modules *m)
{
	struct fail why;

	modules_init(m);
	CHECK_INT(modules_add(m, "kernel/fs/erofs/erofs.ko",
			  INFO("license=GPL\0depends=libcrc32c\0name=erofs\0softdep=pre: crc32c"),
			  &why),
		0);
	CHECK_INT(modules_add(m, "kernel/drivers/block/virtio_blk.ko",
			  INFO("depends=virtio_ring,virtio\0name=virtio_blk"), &why),
		0);
	CHECK_INT(modules_add(m, "kernel/drivers/virtio/virtio.ko", INFO("depends=\0name=virtio"),
			  &why),
		0);
	CHECK_INT(modules_add(m, "kernel/drivers/virtio/virtio_ring.ko",
			  INFO("depends=\0name=virtio_ring"), &why),
		0);
	CHECK_INT(modules_add(m, "kernel/lib/libcrc32c.ko.xz",
			  INFO("depends=\0softdep=pre: crc32c"), &why),
		0);
	CHECK_INT(modules_add(m, "kernel/arch/x86/crc32c-intel.ko",
			  INFO("alias=crc32c\0alias=cpu:type:x86\0name=crc32c_intel"), &why),
		0);
	CHECK_INT(modules_add(m, "kernel/crypto/crc32c_generic.ko",
			  INFO("alias=crc32c\0name=crc32c_generic"), &why),
		0);
	CHECK_INT(modules_add(m, "kernel/a.ko", INFO("name=a\0softdep=post: b"), &why), 0);
	CHECK_INT(modules_add(m, "kernel/b.ko", INFO("name=b\0softdep=pre: a"), &why), 0);
	CHECK_INT(
		modules_add(m, "kernel/broken.ko", INFO("name=broken\0depends=nowhere"), &why), 0);
	CHECK_INT(modules_add_builtin(
			  m, STR("kernel/fs/ext4/ext4.ko\nkernel/net/packet/af-packet.ko\n")),
		0);
}

static void order_text(
	const struct modules *m, const char *const *wanted, int expect, const char *text)
{
	autofree size_t *order = NULL;
	autobuf struct buf b = { 0 };
	struct fail why;
	size_t n = 0;

	buf_init(&b, 1024);
	test_row("%s", text);
	if (!CHECK_INT(modules_order(m, wanted, &order, &n, &why), expect) || expect) {
		if (expect)
			CHECK(strstr(why.msg, text));
		return;
	}
	for (size_t i = 0; i < n; i++)
		buf_addf(&b, "%s%s", i ? " " : "", m->v[order[i]].name);
	CHECK_STR(buf_str(&b), text);
	test_row(NULL);
}

TEST(modules_in_order)
{
	struct modules m;

	sample(&m);
	order_text(&m, (const char *const[]){ "virtio_blk", NULL }, 0,
		"virtio_ring virtio virtio_blk");
	order_text(&m, (const char *const[]){ "virtio-blk", "virtio", NULL }, 0,
		"virtio_ring virtio virtio_blk");
	order_text(&m, (const char *const[]){ "erofs", NULL }, 0, "crc32c_generic libcrc32c erofs");
	order_text(&m, (const char *const[]){ "ext4", "af_packet", "virtio", NULL }, 0,
		"virtio"); /* the rest is built in */
	order_text(&m, (const char *const[]){ "?nosuch", "virtio", NULL }, 0, "virtio");
	order_text(&m, (const char *const[]){ "a", NULL }, 0, "a b"); /* softdeps in a circle end */
	order_text(&m, (const char *const[]){ "nosuch", NULL }, -ENOENT, "nosuch");
	order_text(&m, (const char *const[]){ "broken", NULL }, -ENOENT, "nowhere");
	order_text(&m, (const char *const[]){ "../x", NULL }, -EBADMSG, "../x");
	CHECK_INT(modules_add_builtin_info(&m, INFO("crc32c_generic.alias=crc32c\0crc32c_generic."
						    "license=GPL\0x.alias=pci:v0")),
		0);
	order_text(&m, (const char *const[]){ "erofs", NULL }, 0,
		"libcrc32c erofs"); /* the kernel itself answers to crc32c */
	modules_clear(&m);
}

TEST(modules_that_are_malformed)
{
	struct modules m;
	struct fail why;

	modules_init(&m);
	CHECK(modules_add(&m, "x.ko", INFO("name=../../etc"), &why) < 0);
	CHECK(modules_add(&m, "x.ko", INFO("name="), &why) < 0);
	CHECK(modules_add(&m, "x.ko", INFO("name=a\nb"), &why) < 0);
	CHECK_INT(modules_add(&m, "kernel/x-y.ko.zst", INFO(""), &why), 0);
	CHECK_STR(m.v[0].name, "x_y");
	CHECK_INT(m.n, 1);
	modules_clear(&m);
}

/* An ELF file of two sections (names and .modinfo), then every prefix of it. */
TEST(modinfo_of_an_elf)
{
	struct {
		Elf64_Ehdr h;
		Elf64_Shdr sh[3];
		char names[24];
		char info[16];
	} f = { .names = "\0.modinfo\0.shstrtab", .info = "name=test" };
	struct str out;
	struct fail why;

	memcpy(f.h.e_ident, ELFMAG, SELFMAG);
	f.h.e_ident[EI_CLASS] = ELFCLASS64;
	f.h.e_shoff = offsetof(__typeof__(f), sh);
	f.h.e_shentsize = sizeof(f.sh[0]);
	f.h.e_shnum = 3;
	f.h.e_shstrndx = 2;
	f.sh[1] = (Elf64_Shdr){ .sh_name = 1,
		.sh_type = SHT_PROGBITS,
		.sh_offset = offsetof(__typeof__(f), info),
		.sh_size = sizeof(f.info) };
	f.sh[2] = (Elf64_Shdr){ .sh_name = 10,
		.sh_type = SHT_STRTAB,
		.sh_offset = offsetof(__typeof__(f), names),
		.sh_size = sizeof(f.names) };
	CHECK_INT(modinfo_of((struct str){ (char *)&f, sizeof(f) }, &out, &why), 0);
	CHECK_STR(out.p, "name=test");
	for (size_t cut = 0; cut < sizeof(f); cut++) {
		autofree char *exact = malloc(cut ? cut : 1);

		memcpy(exact, &f, cut);
		CHECK(modinfo_of((struct str){ exact, cut }, &out, &why) < 0);
	}
	f.sh[1].sh_offset = UINT64_MAX - 4;
	CHECK(modinfo_of((struct str){ (char *)&f, sizeof(f) }, &out, &why) < 0);
	f.sh[1].sh_offset = 0;
	f.sh[1].sh_size = UINT64_MAX;
	CHECK(modinfo_of((struct str){ (char *)&f, sizeof(f) }, &out, &why) < 0);
	f.h.e_shoff = UINT64_MAX - 8;
	CHECK(modinfo_of((struct str){ (char *)&f, sizeof(f) }, &out, &why) < 0);
}

/* --- cpio: read back as the kernel's init/initramfs.c reads it --- */

static uint32_t hex8(const char *p)
{
	char t[9] = { 0 };

	memcpy(t, p, 8);
	return (uint32_t)strtoul(t, NULL, 16);
}

TEST(cpio_reads_back)
{
	static const struct {
		const char *path;
		uint32_t mode;
		const char *data;
	} expect[] = { { "dev", 040755, "" }, { "dev/console", 020600, "" },
		{ "init", 0100755, "program" }, { "modules/order", 0100600, "abcd" },
		{ "TRAILER!!!", 0, "" } };
	autobuf struct buf b = { 0 };
	struct cpio c;
	size_t at = 0;

	buf_init(&b, 4096);
	cpio_begin(&c, &b);
	cpio_dir(&c, "dev", 0755);
	cpio_device(&c, "dev/console", 0600, 5, 1);
	cpio_file(&c, "init", 0755, STR("program"));
	cpio_file(&c, "modules/order", 0600, STR("abcd"));
	CHECK_INT(cpio_end(&c), 0);
	for (size_t i = 0; i < ARRAY_LEN(expect); i++) {
		const char *h = b.p + at;
		size_t names, size;

		test_row("%s", expect[i].path);
		REQUIRE(at + 110 <= b.n && !memcmp(h, "070701", 6));
		names = hex8(h + 6 + 11 * 8);
		size = hex8(h + 6 + 6 * 8);
		CHECK_INT(hex8(h + 6 + 8), expect[i].mode);
		CHECK_INT(hex8(h + 6 + 5 * 8), 0); /* mtime */
		CHECK_INT(names, strlen(expect[i].path) + 1);
		CHECK_STR(h + 110, expect[i].path);
		at = (at + 110 + names + 3) & ~3UL;
		REQUIRE(at + size <= b.n);
		CHECK_STR(((struct str){ b.p + at, size }), expect[i].data);
		if (!strcmp(expect[i].path, "dev/console")) {
			CHECK_INT(hex8(h + 6 + 9 * 8), 5);
			CHECK_INT(hex8(h + 6 + 10 * 8), 1);
		}
		at = (at + size + 3) & ~3UL;
	}
	test_row(NULL);
	CHECK_INT(at, b.n);
}

TEST(cpio_is_bounded)
{
	autobuf struct buf b = { 0 };
	char path[400];
	struct cpio c;

	buf_init(&b, 200);
	cpio_begin(&c, &b);
	cpio_file(&c, "x", 0600, STR("0123456789"));
	cpio_file(&c, "y", 0600, STR("0123456789"));
	CHECK_INT(cpio_end(&c), -ENOBUFS);
	buf_clear(&b);
	buf_init(&b, 4096);
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	cpio_begin(&c, &b);
	cpio_dir(&c, path, 0755);
	CHECK_INT(cpio_end(&c), -ENAMETOOLONG);
}

/* --- what users name --- */

TEST(names_of_packages)
{
	static const char *const good[] = { "bash", "libc6", "g++-12", "python3.11", "libfoo:amd64",
		"0ad", "curl=7.88.1-10+deb12u14", "x11=1:1~rc1" };
	static const char *const bad[] = { "", "a", "-o", "a b", "a,b", "a;b", "$(x)", "../x",
		"Bash", "a/b", "bash\n", "?essential", "~n", "a=", "curl=", "curl=1 2", "=1",
		"curl=$(x)" };

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (!CHECK(apt_is_package(str_of(good[i]))))
			test_row("%s", good[i]);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (!CHECK(!apt_is_package(str_of(bad[i]))))
			test_row("%s", bad[i]);
	CHECK(!apt_is_package(STR("ab\0cd")));
	test_row(NULL);
}

TEST(references_to_images)
{
	static const char *const good[] = { "oci:/srv/layout", "oci:/srv/layout:tag",
		"docker://host/name:tag", "oci-archive:/x.tar", "docker-archive:/x.tar" };
	static const char *const bad[] = { "", "oci:", "docker://", "oci:relative",
		"oci-archive:../x", "containers-storage:x", "docker-daemon:x", "dir:/x", "--help",
		"/etc", "docker://a\nb" };
	struct fail why;

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		CHECK_INT(oci_ref_check(good[i], &why), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		test_row("%s", bad[i]);
		CHECK_INT(oci_ref_check(bad[i], &why), -EINVAL);
	}
	test_row(NULL);
}

TEST(registries_on_this_host)
{
	static const struct { const char *ref; bool here; } rows[] = {
		{ "docker://127.0.0.1:5000/a", true }, { "docker://127.1.2.3/a", true },
		{ "docker://localhost:5000/a:b", true }, { "docker://localhost/a", true },
		{ "docker://LocalHost:1/a", true }, { "docker://[::1]:5000/a", true },
		{ "docker://localhost.example.org/a", false }, { "docker://registry:5000/a", false },
		{ "docker://10.0.0.1:5000/127.0.0.1", false }, { "oci:/docker://127.0.0.1", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s", rows[i].ref);
		CHECK_INT(oci_ref_is_loopback(rows[i].ref), rows[i].here);
	}
	test_row(NULL);
}

TEST(oci_configurations)
{
	static const struct {
		const char *text;
		int r;
		const char *user, *workdir, *env, *cmd;
	} rows[] = {
		{ "{\"architecture\":\"amd64\",\"config\":{\"Env\":[\"A=1\",\"B=x=y\",\"nonsense\","
		  "\"=z\"],\"User\":\"app:grp\",\"WorkingDir\":\"/srv\","
		  "\"Entrypoint\":[\"/run\"],\"Cmd\":[\"-a\",\"b c\"]}}",
			0, "app", "/srv", "{\"A\":\"1\",\"B\":\"x=y\"}",
			"[\"/run\",\"-a\",\"b c\"]" },
		{ "{\"config\":{}}", 0, "", "", "{}", NULL },
		{ "{}", 0, "", "", "{}", NULL },
		{ "{\"config\":{\"Cmd\":null,\"Env\":null,\"Entrypoint\":null}}", 0, "", "", "{}",
			NULL },
		{ "{\"config\":{\"Env\":[1,null,{}],\"Cmd\":[1,\"x\"]}}", 0, "", "", "{}",
			"[\"x\"]" },
		{ "{\"architecture\":\"arm64\",\"config\":{}}", -ENOTSUP, 0, 0, 0, 0 },
		{ "{\"config\":{\"User\":"
		  "\"0123456789012345678901234567890123456789012345678901234567890123456789\"}}",
			-EINVAL, 0, 0, 0, 0 },
		{ "{\"config\":{\"WorkingDir\":\"a\\nb\"}}", -EINVAL, 0, 0, 0, 0 },
		{ "not json", -EBADMSG, 0, 0, 0, 0 },
		{ "", -EBADMSG, 0, 0, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct image_info info = { 0 };
		struct fail why;

		test_row("%.60s", rows[i].text);
		if (CHECK_INT(oci_config_read(str_of(rows[i].text), &info, &why), rows[i].r) &&
			!rows[i].r) {
			autofree char *env = json_dumps(info.env, JSON_COMPACT | JSON_SORT_KEYS);
			autofree char *cmd = info.cmd ? json_dumps(info.cmd, JSON_COMPACT) : NULL;

			CHECK_STR(info.user, rows[i].user);
			CHECK_STR(info.workdir, rows[i].workdir);
			CHECK_STR(env, rows[i].env);
			CHECK_STR(cmd, rows[i].cmd);
		}
		image_info_clear(&info);
	}
	test_row(NULL);
}
