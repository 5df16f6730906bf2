/* initrd.c - the guest's first root: the agent as /init, and the modules in the order in which it
 * inserts them.
 *
 *   /init  /dev/console  /modules/NNN-name.ko  /modules/order (those names, one a line)  and empty
 * directories to mount on
 *
 * Not compressed: the kernel then copies instead of decompressing, which counts under emulation.
 * Found again by what it was made of: names/initrds/DIGEST-OF(layout, kernel, list of modules,
 * agent) holds the digest. */
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "image/cpio.h"
#include "image/pool.h"

#define LAYOUT 1 /* raise it when the archive is laid out differently */
#define INITRD_MAX (256 * MIB)
#define AGENT_MAX (32 * MIB)

struct parts {
	const struct digest *kernel;
	char *agent, *order; /* file contents */
	size_t agent_len, order_len;
};

static int read_parts(struct pool *p, const char *agent_path, struct parts *in, struct fail *why)
{
	char path[128];
	ssize_t n;

	n = file_read(AT_FDCWD, agent_path, &in->agent, AGENT_MAX);
	if (n < 0) {
		fail_as(why, ERR_host_unsuitable, "the agent %s: %s", agent_path,
			strerror((int)-n));
		fail_remedy(why, "make builds space-agent");
		return (int)n;
	}
	in->agent_len = (size_t)n;
	if (n < 4 || memcmp(in->agent, "\177ELF", 4))
		return fail_as(
			why, ERR_host_unsuitable, "the agent %s is not a program", agent_path);
	snprintf(path, sizeof(path), "kernels/%s/order", in->kernel->hex);
	n = file_read(p->fd, path, &in->order, 64 * KIB);
	if (n < 0)
		return fail_as(
			why, ERR_not_found, "no kernel sha256:%s in the pool", in->kernel->hex);
	in->order_len = (size_t)n;
	return 0;
}

/* What the archive is made of, as one digest. The kernel's digest and the list of modules name
 * every module. */
static int key_of(const struct parts *in, struct digest *key)
{
	autobuf struct buf text = { 0 };
	struct digest agent;

	buf_init(&text, 128 * KIB);
	digest_of_text(&agent, (struct str){ in->agent, in->agent_len });
	if (buf_addf(&text, "%d\n%s\n%s\n", LAYOUT, in->kernel->hex, agent.hex) ||
		buf_add(&text, in->order, in->order_len))
		return -ENOMEM;
	digest_of_text(key, buf_str(&text));
	return 0;
}

static int add_modules(struct pool *p, const struct parts *in, struct cpio *c, struct fail *why)
{
	autobuf struct buf order = { 0 };
	struct str line, rest = { in->order, in->order_len };
	char path[256], name[128];
	unsigned i = 0;
	bool more;

	buf_init(&order, 128 * KIB);
	do {
		autofree char *ko = NULL;
		ssize_t n;

		more = str_cut(rest, '\n', &line, &rest);
		if (!line.n)
			continue;
		if (line.p[0] == '#') { /* a comment goes along */
			if (!c->err)
				c->err = buf_addf(&order, STR_FMT "\n", STR_ARG(line));
			continue;
		}
		if (!path_is_plain(line) || line.n > 80)
			return fail_as(
				why, ERR_internal, "the kernel's list of modules is malformed");
		snprintf(path, sizeof(path), "kernels/%s/modules/" STR_FMT, in->kernel->hex,
			STR_ARG(line));
		n = file_read(p->fd, path, &ko, 64 * MIB);
		if (n < 0)
			return pool_fail(why, (int)n, "pool/%s", path);
		snprintf(name, sizeof(name), "%03u-" STR_FMT, i++, STR_ARG(line));
		snprintf(path, sizeof(path), "modules/%s", name);
		cpio_file(c, path, 0600, (struct str){ ko, (size_t)n });
		if (!c->err)
			c->err = buf_addf(&order, "%s\n", name);
	} while (more);
	cpio_file(c, "modules/order", 0600, buf_str(&order));
	return 0;
}

static int compose(struct pool *p, const struct parts *in, struct buf *out, struct fail *why)
{
	static const char *const dirs[] = { "dev", "proc", "sys", "run", "tmp", "newroot",
		"modules" };
	struct cpio c;
	int r;

	cpio_begin(&c, out);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		cpio_dir(&c, dirs[i], 0755);
	cpio_device(&c, "dev/console", 0600, 5, 1);
	cpio_file(&c, "init", 0755, (struct str){ in->agent, in->agent_len });
	r = add_modules(p, in, &c, why);
	if (r < 0)
		return r;
	r = cpio_end(&c);
	return r < 0 ? fail_set(why, r, "initramfs: %s", r == -ENOBUFS ? "too large" : strerror(-r))
		     : 0;
}

static int store(struct pool *p, const struct buf *archive, const struct digest *key,
	struct digest *d, struct fail *why)
{
	char name[POOL_TMPNAME], file[80];
	autoclose int fd = pool_tmpfile(p, "initrd-", name, why);
	int r;

	if (fd < 0)
		return fd;
	digest_of_text(d, buf_str(archive));
	snprintf(file, sizeof(file), "%s.cpio", d->hex);
	r = FAULT_OURS(write_all(fd, archive->p, archive->n));
	r = r < 0 ? pool_fail(why, r, "pool/initrds") : FAULT_WHY(why, pool_publish(p, name, "initrds", file, why));
	if (r < 0) {
		FAULT(unlinkat(p->tmpfd, name, 0));
		return r;
	}
	return FAULT_WHY(why, pool_name_write(p, "initrds", key->hex, d->hex, why));
}

int initrd_ensure(struct pool *p, const struct digest *kernel, const char *agent_path,
	struct digest *out, struct fail *why)
{
	struct parts in = { .kernel = kernel };
	struct digest key, d;
	autobuf struct buf archive = { 0 };
	char text[80], file[96];
	int r;

	buf_init(&archive, INITRD_MAX);
	if (!digest_valid(kernel))
		return fail_as(why, ERR_bad_request, "not a digest of a kernel");
	r = read_parts(p, agent_path, &in, why);
	if (!r && key_of(&in, &key))
		r = fail_set(why, -ENOMEM, "initramfs: out of memory");
	if (r < 0)
		goto out;
	if (!pool_name_read(p, "initrds", key.hex, text, sizeof(text)) &&
		!digest_parse(&d, str_of(text))) {
		snprintf(file, sizeof(file), "initrds/%s.cpio", d.hex);
		if (!faccessat(p->fd, file, R_OK, 0)) {
			*out = d;
			goto out;
		}
	}
	r = compose(p, &in, &archive, why);
	if (!r)
		r = store(p, &archive, &key, &d, why);
	if (!r)
		*out = d;
out:
	free(in.agent);
	free(in.order);
	return r;
}

int initrd_open(struct pool *p, const struct digest *d, struct fail *why)
{
	char path[96];
	int fd;

	if (!digest_valid(d))
		return fail_as(why, ERR_bad_request, "not a digest of an initramfs");
	snprintf(path, sizeof(path), "initrds/%s.cpio", d->hex);
	fd = openat(p->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? fail_as(why, ERR_not_found,
						 "no initramfs sha256:%s in the pool", d->hex)
				       : pool_fail(why, -errno, "pool/%s", path);
	return fd;
}
