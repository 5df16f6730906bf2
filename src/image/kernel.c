/* kernel.c - Debian's kernel for the guests: downloaded and unpacked into the pool, never installed
 * on the host.
 *
 * kernels/DIGEST/ holds what a guest needs and no more: the ELF kernel, the modules of the list
 * below with everything they need (decompressed), their order, and the list itself (`wanted`). A
 * kernel that was laid out for another list is laid out again from its package. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/cur.h"
#include "base/fault.h"
#include "image/apt.h"
#include "image/modules.h"
#include "image/payload.h"
#include "image/pool.h"
#include "image/tool.h"

#define PACKAGE "linux-image-cloud-amd64"
#define PREFIX "linux-image-6"
#define CURRENT "current"
#define KERNEL_LAYOUT 1 /* raise it when the directory is laid out differently */

/* What the agent needs to mount the root and to be reached comes first; the rest, below a comment
 * line of the order, is for use inside and may be inserted once it serves. All of it is in a
 * template's memory, and so in everything that is started from one. '?': this kernel may lack it.
 */
#define LATER "# later: for use inside"
/* clang-format off */
static const char *const wanted[] = {
	/* to boot */
	"virtio_mmio", "virtio_blk", "virtio_net", "virtio_rng", "erofs", "ext4", "overlay", "af_packet",
#define WANTED_TO_BOOT 8
	/* FUSE, VPNs and tunnels, loop mounts, containers' networks */
	"fuse", "tun", "loop", "veth", "bridge", "br_netfilter", "dummy",
	/* nft, and iptables on top of it */
	"nf_tables", "nft_compat", "nft_chain_nat", "nft_ct", "nft_masq", "nft_nat", "nft_redir",
	"nft_reject_inet", "?nft_reject_ipv4", "?nft_reject_ipv6", "nft_limit", "nft_log",
	"?nft_fib_inet", "?nft_counter", "nf_conntrack", "?nf_conntrack_netlink",
	"xt_MASQUERADE", "xt_REDIRECT", "xt_nat", "xt_conntrack", "?xt_state", "xt_tcpudp",
	"xt_addrtype", "xt_comment", "xt_mark", "xt_multiport", "xt_limit", "xt_LOG", "xt_owner",
	"?ipt_REJECT", "?ip6t_REJECT",
	NULL,
};
/* clang-format on */

struct maker {
	struct pool *p;
	const struct progress *pr;
	char src[POOL_TMPNAME]; /* the unpacked package, in the pool's tmp */
	char dst[POOL_TMPNAME]; /* what becomes kernels/DIGEST */
	int srcfd, dstfd;
	struct modules mods;
	struct kernel_info info;
};

/* --- finding one --- */

static void wanted_text(struct buf *b)
{
	buf_addf(b, "# layout %d\n", KERNEL_LAYOUT);
	for (const char *const *w = wanted; *w; w++)
		buf_addf(b, "%s\n", *w);
}

/* Modules end in a signature and this mark. The guest's kernel does not insist on one, and checking
 * it is nearly half of the time that inserting a module takes under emulation (62 modules: 300 ms
 * without, 530 with), so it is cut off: the kernel says once that it is tainted. */
static struct str unsigned_module(struct str elf)
{
	static const char mark[] = "~Module signature appended~\n";
	const size_t trailer =
		12; /* struct module_signature; its last four bytes are the signature's length */
	struct cur c;
	uint32_t n;

	if (!str_ends(elf, mark) || elf.n < sizeof(mark) - 1 + trailer)
		return elf;
	c = cur_of(elf.p + elf.n - (sizeof(mark) - 1) - 4, 4);
	n = cur_be32(&c);
	if (n > elf.n - (sizeof(mark) - 1) - trailer)
		return elf;
	elf.n -= sizeof(mark) - 1 + trailer + n;
	return elf;
}

/* Is the kernel of that digest there, and laid out for today's list? */
static int kernel_check(struct pool *p, struct kernel_info *k)
{
	autobuf struct buf want = { 0 };
	autofree char *have = NULL, *release = NULL;
	char path[128];
	ssize_t n;

	buf_init(&want, 64 * KIB);
	wanted_text(&want);
	snprintf(path, sizeof(path), "kernels/%s/wanted", k->digest.hex);
	n = file_read(p->fd, path, &have, 64 * KIB);
	if (n < 0)
		return (int)n;
	if ((size_t)n != want.n || memcmp(have, want.p, want.n))
		return -ESTALE;
	snprintf(path, sizeof(path), "kernels/%s/release", k->digest.hex);
	n = file_read(p->fd, path, &release, sizeof(k->release) - 1);
	if (n < 0)
		return (int)n;
	while (n > 0 && release[n - 1] == '\n')
		n--;
	snprintf(path, sizeof(path), "kernels/%s/vmlinux", k->digest.hex);
	if (faccessat(p->fd, path, R_OK, 0))
		return -errno;
	return str_copy(k->release, sizeof(k->release), (struct str){ release, (size_t)n });
}

int kernel_current(struct pool *p, struct kernel_info *out, struct fail *why)
{
	struct kernel_info k = { 0 };
	char text[80];

	if (pool_name_read(p, "kernels", CURRENT, text, sizeof(text)) ||
		digest_parse(&k.digest, str_of(text)) || kernel_check(p, &k)) {
		fail_as(why, ERR_not_found, "there is no guest kernel in the pool yet");
		fail_remedy(why, "make up fetches one");
		return -ENOENT;
	}
	*out = k;
	return 0;
}

int kernel_open(struct pool *p, const struct digest *d, struct fail *why)
{
	char path[128];
	int fd;

	if (!digest_valid(d))
		return fail_as(why, ERR_bad_request, "not a digest of a kernel");
	snprintf(path, sizeof(path), "kernels/%s/vmlinux", d->hex);
	fd = openat(p->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? fail_as(why, ERR_not_found,
						 "no kernel sha256:%s in the pool", d->hex)
				       : pool_fail(why, -errno, "pool/%s", path);
	return fd;
}

/* --- making one --- */

static void unpack_tick(void *arg)
{
	struct maker *m = arg;

	step(m->pr, "unpacking the kernel", -1);
}

static int unpack(struct maker *m, const char *deb, struct fail *why)
{
	char dir[4400];
	const char *const argv[] = { "dpkg-deb", "-x", deb, dir, NULL };
	const struct tool t = {
		.argv = argv, .tmp = m->p->tmp, .package = "dpkg", .timeout_s = 300,
		.tick = unpack_tick, .arg = m
	};
	int r;

	snprintf(dir, sizeof(dir), "%s/%s", m->p->tmp, m->src);
	if (FAULT(mkdirat(m->p->tmpfd, m->src, 0700)))
		return pool_fail(why, -errno, "%s", dir);
	step(m->pr, "unpacking the kernel", -1);
	r = FAULT_WHY(why, tool_run(&t, why));
	if (r < 0)
		return r;
	m->srcfd = dir_open(m->p->tmpfd, m->src);
	return m->srcfd < 0 ? pool_fail(why, m->srcfd, "%s", dir) : 0;
}

/* The release is the one directory under lib/modules (or usr/lib/modules, as newer packages have
 * it). */
static int find_release(struct maker *m, int *modfd, struct fail *why)
{
	static const char *const roots[] = { "lib/modules", "usr/lib/modules" };

	for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
		int fd = dir_open(m->srcfd, roots[i]), r = -ENOENT;
		DIR *d = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *e;

		if (!d)
			continue;
		while ((e = readdir(d))) {
			struct str s = str_of(e->d_name);

			if (path_is_plain(s) &&
				!str_copy(m->info.release, sizeof(m->info.release), s))
				r = *modfd = dir_open(dirfd(d), e->d_name);
		}
		closedir(d);
		if (r >= 0)
			return 0;
	}
	return fail_as(why, ERR_internal, "the kernel package holds no modules");
}

static int write_file(int dirfd_, const char *name, struct str s, struct fail *why)
{
	autoclose int fd =
		FAULT(openat(dirfd_, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	int r = fd < 0 ? -errno : FAULT_OURS(write_all(fd, s.p, s.n));

	if (!r && FAULT(fsync(fd)))
		r = -errno;
	return r < 0 ? pool_fail(why, r, "writing %s", name) : 0;
}

static int make_vmlinux(struct maker *m, struct fail *why)
{
	autofree char *image = NULL;
	autobuf struct buf elf = { 0 };
	autoclose int fd = -1;
	char path[128];
	ssize_t n;
	int r;

	buf_init(&elf, VMLINUX_MAX);
	snprintf(path, sizeof(path), "boot/vmlinuz-%s", m->info.release);
	step(m->pr, "extracting the kernel", -1);
	n = file_read(m->srcfd, path, &image, 128 * MIB);
	if (n < 0)
		return fail_as(
			why, ERR_internal, "%s of the kernel package: %s", path, strerror((int)-n));
	r = payload_extract((struct str){ image, (size_t)n }, &elf, why);
	if (!r)
		r = write_file(m->dstfd, "vmlinux", buf_str(&elf), why);
	if (r < 0)
		return r;
	fd = openat(m->dstfd, "vmlinux", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? pool_fail(why, -errno, "vmlinux") : digest_of_fd(&m->info.digest, fd, why);
}

static bool is_module(struct str name)
{
	return str_ends(name, ".ko") || str_ends(name, ".ko.xz") || str_ends(name, ".ko.zst") ||
	       str_ends(name, ".ko.gz");
}

/* A module file as an ELF image in OUT, whatever it is compressed with. */
static int load_module(int modfd, const char *path, struct buf *out, struct fail *why)
{
	autofree char *text = NULL;
	ssize_t n = file_read(modfd, path, &text, MODULE_MAX);
	struct str s = { text, (size_t)n };
	int r;

	if (n < 0)
		return pool_fail(why, (int)n, "%s", path);
	r = elf_is_x86_64(s, 0) ? buf_adds(out, s) : decompress(s, out, why);
	return r < 0 ? fail_set(why, r, "kernel module %s cannot be read", path) : 0;
}

/* Reads what every module below DIR says of itself. PATH is DIR's, from MODFD. */
static int scan(struct maker *m, int modfd, const char *path, int depth, struct fail *why)
{
	int fd = dir_open(modfd, path), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		r = fd < 0 ? fd : -errno;
		if (fd >= 0)
			close(fd);
		return pool_fail(why, r, "%s", path);
	}
	while (!r && (e = readdir(d))) {
		struct str s = str_of(e->d_name), info = { 0 };
		autobuf struct buf elf = { 0 };
		char sub[512];

		buf_init(&elf, MODULE_MAX);
		if (!path_is_plain(s))
			continue;
		if ((size_t)snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name) >= sizeof(sub))
			continue;
		if (e->d_type == DT_DIR && depth < 12)
			r = scan(m, modfd, sub, depth + 1, why);
		if (e->d_type != DT_REG || !is_module(s))
			continue;
		r = load_module(modfd, sub, &elf, why);
		if (!r)
			r = modinfo_of(buf_str(&elf), &info, why);
		if (!r)
			r = modules_add(&m->mods, sub, info, why);
	}
	closedir(d);
	return r;
}

/* modules/NAME.ko for each of the order, and the order: one name a line, the first BOOT ones above
 * the comment. */
static int lay_out(
	struct maker *m, int modfd, const size_t *order, size_t n, size_t boot, struct fail *why)
{
	autobuf struct buf text = { 0 };
	autoclose int dir = -1;
	int r = 0;

	buf_init(&text, 64 * KIB);
	if (FAULT(mkdirat(m->dstfd, "modules", 0700)))
		return pool_fail(why, -errno, "modules");
	dir = dir_open(m->dstfd, "modules");
	if (dir < 0)
		return pool_fail(why, dir, "modules");
	for (size_t i = 0; i < n && !r; i++) {
		const struct module *mod = &m->mods.v[order[i]];
		autobuf struct buf elf = { 0 };
		char name[80];

		buf_init(&elf, MODULE_MAX);
		snprintf(name, sizeof(name), "%s.ko", mod->name);
		r = load_module(modfd, mod->path, &elf, why);
		if (!r)
			r = write_file(dir, name, unsigned_module(buf_str(&elf)), why);
		if (!r)
			r = buf_addf(&text, "%s%s\n", i == boot ? LATER "\n" : "", name);
	}
	if (!r)
		r = write_file(m->dstfd, "order", buf_str(&text), why);
	if (!r && FAULT(fsync(dir)))
		r = pool_fail(why, -errno, "modules");
	return r;
}

static int make_modules(struct maker *m, int modfd, struct fail *why)
{
	autofree char *builtin = NULL, *info = NULL;
	const char *to_boot[WANTED_TO_BOOT + 1] = { NULL };
	autofree size_t *order = NULL, *first = NULL;
	ssize_t len = file_read(modfd, "modules.builtin", &builtin, 1 * MIB);
	ssize_t info_len = file_read(modfd, "modules.builtin.modinfo", &info,
		4 * MIB); /* kernels before 5.2 have none */
	size_t n, boot;
	int r;

	step(m->pr, "ordering the kernel's modules", -1);
	if (len < 0)
		return pool_fail(why, (int)len, "modules.builtin");
	if (modules_add_builtin(&m->mods, (struct str){ builtin, (size_t)len }) ||
		(info_len > 0 &&
			modules_add_builtin_info(&m->mods, (struct str){ info, (size_t)info_len })))
		return fail_set(why, -ENOMEM, "modules.builtin: out of memory");
	r = scan(m, modfd, "kernel", 0, why);
	/* The same walk over the front of the list gives the front of the order. */
	for (size_t i = 0; i < WANTED_TO_BOOT; i++)
		to_boot[i] = wanted[i];
	if (!r)
		r = modules_order(&m->mods, to_boot, &first, &boot, why);
	if (!r)
		r = modules_order(&m->mods, wanted, &order, &n, why);
	return r ? r : lay_out(m, modfd, order, n, boot, why);
}

/* tmp/DST becomes kernels/DIGEST; one that was laid out for an older list makes room. */
static int publish(struct maker *m, struct fail *why)
{
	autobuf struct buf text = { 0 };
	autoclose int kernels = dir_open(m->p->fd, "kernels");
	char release[80];
	int r;

	buf_init(&text, 64 * KIB);
	wanted_text(&text);
	r = write_file(m->dstfd, "wanted", buf_str(&text), why);
	snprintf(release, sizeof(release), "%s\n", m->info.release);
	if (!r)
		r = write_file(m->dstfd, "release", str_of(release), why);
	if (r < 0)
		return r;
	if (kernels < 0 || FAULT(fsync(m->dstfd)))
		return pool_fail(why, kernels < 0 ? kernels : -errno, "pool/kernels");
	/* One that is there (laid out for an older list, or by another process just now) is exchanged:
	 * whoever looks sees either, whole. */
	if (FAULT(renameat2(m->p->tmpfd, m->dst, kernels, m->info.digest.hex, RENAME_NOREPLACE)) &&
		FAULT(renameat2(m->p->tmpfd, m->dst, kernels, m->info.digest.hex, RENAME_EXCHANGE)))
		return pool_fail(why, -errno, "pool/kernels/%s", m->info.digest.hex);
	if (FAULT(fsync(kernels)))
		return pool_fail(why, -errno, "pool/kernels/%s", m->info.digest.hex);
	return FAULT_WHY(why, pool_name_write(m->p, "kernels", CURRENT, m->info.digest.hex, why));
}

static int make(struct maker *m, const char *deb, struct fail *why)
{
	autoclose int modfd = -1;
	int r;

	r = unpack(m, deb, why);
	if (r < 0)
		return r;
	if (FAULT(mkdirat(m->p->tmpfd, m->dst, 0700)))
		return pool_fail(why, -errno, "pool/tmp/%s", m->dst);
	m->dstfd = dir_open(m->p->tmpfd, m->dst);
	if (m->dstfd < 0)
		return pool_fail(why, m->dstfd, "pool/tmp/%s", m->dst);
	r = find_release(m, &modfd, why);
	if (!r)
		r = make_vmlinux(m, why);
	if (!r)
		r = make_modules(m, modfd, why);
	return r ? r : publish(m, why);
}

int kernel_ensure(
	struct pool *p, const struct progress *pr, struct kernel_info *out, struct fail *why)
{
	struct maker m = { .p = p, .pr = pr, .srcfd = -1, .dstfd = -1 };
	struct apt apt;
	char package[128], deb[4400];
	int r;

	if (!kernel_current(p, out, NULL))
		return 0;
	r = apt_begin(p, &apt, why);
	if (r < 0)
		return r;
	modules_init(&m.mods);
	pool_tmpname(m.src, "deb-");
	pool_tmpname(m.dst, "kernel-");
	step(pr, "downloading the kernel", -1);
	r = apt_dependency(&apt, PACKAGE, PREFIX, pr, package, why);
	if (!r)
		r = apt_download(&apt, package, pr, deb, why);
	if (!r)
		r = make(&m, deb, why);
	if (!r)
		*out = m.info;
	modules_clear(&m.mods);
	if (m.srcfd >= 0)
		close(m.srcfd);
	if (m.dstfd >= 0)
		close(m.dstfd);
	FAULT_OURS(rm_rf(p->tmpfd, m.src));
	FAULT_OURS(rm_rf(p->tmpfd, m.dst));
	apt_end(&apt);
	return r;
}
