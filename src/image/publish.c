/* publish.c - see publish.h. */
#include "image/publish.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/random.h"
#include "image/images.h"

/* One at a time decides what is there and makes the rest: else one import could count on what another one takes back. */
static pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;

static const char *const folder[ROLES_NAMED] = { "kernels", "initrds", "images" };

static bool is_there(struct pool *p, enum stream_role r, const struct digest *d)
{
	struct image_info info;
	int fd;

	if (r == ROLE_IMAGE) {
		if (image_find(p, d->hex, &info, NULL))
			return false;
		image_info_clear(&info);
	}
	fd = r == ROLE_KERNEL ? kernel_open(p, d, NULL) : r == ROLE_INITRD ? initrd_open(p, d, NULL) : image_open(p, d, NULL);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int missing(enum stream_role r, const struct digest *d, struct fail *why)
{
	return fail_as(why, r == ROLE_IMAGE ? ERR_image_not_found : ERR_bad_checkpoint, "the checkpoint needs the %s sha256:%s, which is not there",
		stream_role_name(r), d->hex);
}

int publish_begin(struct publish *u, struct pool *p, const struct stream_head *head, struct fail *why)
{
	*u = (struct publish){ .p = p, .head = head, .fd = { -1, -1, -1 } };
	for (unsigned r = 0; r < ROLES_NAMED; r++) {
		const struct digest *d = stream_named(head, r);

		u->came[r] = head->file[r].there;
		if (!d || is_there(p, r, d))
			continue;
		if (!u->came[r])
			return missing(r, d, why);
		u->fd[r] = pool_tmpfile(p, "import-", u->name[r], why);
		if (u->fd[r] < 0)
			return u->fd[r];
	}
	return 0;
}

/* The configuration that comes with an image is vouched for by the image: its UUID is made from it (pack.c). */
static int check_uuid(const struct publish *u, struct fail *why)
{
	uint8_t raw[16];
	char want[37], hex[33], have[37];
	const char *h = hex;

	if (pread_all(u->fd[ROLE_IMAGE], raw, sizeof(raw), 1024 + 48))
		return fail_as(why, ERR_bad_checkpoint, "the image is no erofs");
	hex_encode(hex, raw, sizeof(raw));
	snprintf(have, sizeof(have), "%.8s-%.4s-%.4s-%.4s-%.12s", h, h + 8, h + 12, h + 16, h + 20);
	if (image_uuid(want, &u->head->image))
		return fail_set(why, -ENOMEM, "importing a checkpoint: out of memory");
	return strcmp(want, have) ? fail_as(why, ERR_bad_checkpoint, "the image's configuration is not the one that it was made with") : 0;
}

int publish_check(struct publish *u, enum stream_role r, struct fail *why)
{
	const struct digest *d = stream_named(u->head, r);
	struct digest have;
	int e = digest_of_fd(&have, u->fd[r], why);

	if (e < 0)
		return e;
	if (strcmp(have.hex, d->hex))
		return fail_as(why, ERR_bad_checkpoint, "the stream is damaged: the digest of its %s is another one", stream_role_name(r));
	return r == ROLE_IMAGE ? check_uuid(u, why) : 0;
}

/* --- publishing --- */

static int publish_kernel(struct publish *u, const char *hex, struct fail *why)
{
	autoclose int kernels = dir_open(u->p->fd, "kernels"), dir = -1;
	char name[POOL_TMPNAME];
	int e = 0;

	pool_tmpname(name, "kernel-");
	if (FAULT(fsync(u->fd[ROLE_KERNEL])) || FAULT(mkdirat(u->p->tmpfd, name, 0700)))
		return pool_fail(why, -errno, "pool/kernels");
	dir = dir_open(u->p->tmpfd, name);
	if (dir < 0 || kernels < 0 || FAULT(renameat(u->p->tmpfd, u->name[ROLE_KERNEL], dir, "vmlinux")) || FAULT(fsync(dir)) ||
		FAULT(renameat2(u->p->tmpfd, name, kernels, hex, RENAME_NOREPLACE)) || FAULT(fsync(kernels)))
		e = pool_fail(why, -errno, "pool/kernels/%s", hex);
	if (e)
		FAULT_OURS(rm_rf(u->p->tmpfd, name));
	return e;
}

static int publish_one(struct publish *u, enum stream_role r, struct fail *why)
{
	const struct digest *d = stream_named(u->head, r);
	struct image_info info;
	char file[80];

	switch (r) {
	case ROLE_KERNEL:
		return publish_kernel(u, d->hex, why);
	case ROLE_INITRD:
		snprintf(file, sizeof(file), "%s.cpio", d->hex);
		return FAULT_WHY(why, pool_publish(u->p, u->name[r], "initrds", file, why));
	default:
		info = u->head->image; /* its objects are borrowed */
		return image_store(u->p, u->name[r], NULL, &info, why);
	}
}

static void take_back(struct pool *p, enum stream_role r, const struct digest *d)
{
	autoclose int dir = dir_open(p->fd, folder[r]);
	char file[80];

	if (dir < 0)
		return;
	/* An image without its configuration does not exist. */
	snprintf(file, sizeof(file), r == ROLE_IMAGE ? "%s.json" : r == ROLE_INITRD ? "%s.cpio" : "%s", d->hex);
	if (r == ROLE_KERNEL)
		FAULT_OURS(rm_rf(dir, file));
	else
		FAULT(unlinkat(dir, file, 0));
	if (r == ROLE_IMAGE) {
		snprintf(file, sizeof(file), "%s.erofs", d->hex);
		FAULT(unlinkat(dir, file, 0));
	}
	FAULT(fsync(dir));
}

/* "kernel HEX", a line for each that is about to be made. */
static int note(struct publish *u, const char *undo)
{
	autobuf struct buf text = { 0 };
	int e = 0;

	buf_init(&text, 1024);
	for (unsigned r = 0; r < ROLES_NAMED && !e; r++)
		if (u->fd[r] >= 0)
			e = buf_addf(&text, "%s %s\n", stream_role_name(r), stream_named(u->head, r)->hex);
	return e || !text.n ? e : FAULT_OURS(file_write_atomic(u->p->tmpfd, undo, text.p, text.n, 0600));
}

static int publish_all(struct publish *u, int node_dirfd, const struct node *n, struct fail *why)
{
	for (unsigned r = 0; r < ROLES_NAMED; r++) {
		const struct digest *d = stream_named(u->head, r);
		int e;

		if (!d || is_there(u->p, r, d))
			continue;
		if (u->fd[r] < 0) /* it was there when we began */
			return missing(r, d, why);
		u->made[r] = true;
		e = publish_one(u, r, why);
		if (e < 0)
			return e;
		u->name[r][0] = 0;
	}
	return FAULT_WHY(why, node_commit(u->p, node_dirfd, n, why));
}

int publish_commit(struct publish *u, int node_dirfd, const struct node *n, struct fail *why)
{
	char undo[32];
	int e;

	snprintf(undo, sizeof(undo), "%s.undo", n->id);
	pthread_mutex_lock(&publishing);
	e = note(u, undo);
	if (e < 0)
		pool_fail(why, e, "importing a checkpoint");
	else
		e = publish_all(u, node_dirfd, n, why);
	for (unsigned r = 0; e < 0 && r < ROLES_NAMED; r++)
		if (u->made[r])
			take_back(u->p, r, stream_named(u->head, r));
	FAULT(unlinkat(u->p->tmpfd, undo, 0));
	pthread_mutex_unlock(&publishing);
	return e;
}

void publish_end(struct publish *u)
{
	for (unsigned r = 0; u->p && r < ROLES_NAMED; r++) {
		if (u->fd[r] >= 0)
			close(u->fd[r]);
		if (u->name[r][0])
			FAULT(unlinkat(u->p->tmpfd, u->name[r], 0));
	}
	u->p = NULL;
}

/* --- after a death in between --- */

static bool names_it(struct pool *p, enum stream_role r, const struct digest *d)
{
	static const char *const kinds[] = { "kernels", "initrds", "images" };
	char path[64], text[80];
	bool found = false;
	struct dirent *e;
	DIR *dp;
	int fd;

	snprintf(path, sizeof(path), "names/%s", kinds[r]);
	fd = dir_open(p->fd, path);
	dp = fd < 0 ? NULL : fdopendir(fd);
	if (!dp) {
		if (fd >= 0)
			close(fd);
		return true; /* when in doubt it stays */
	}
	while (!found && (e = readdir(dp)))
		found = e->d_name[0] != '.' && !pool_name_read(p, kinds[r], e->d_name, text, sizeof(text)) && !strcmp(text, d->hex);
	closedir(dp);
	return found;
}

static bool node_needs_it(struct pool *p, enum stream_role r, const struct digest *d)
{
	int fd = dir_open(p->fd, "nodes");
	DIR *dp = fd < 0 ? NULL : fdopendir(fd);
	bool found = false;
	struct dirent *e;

	if (!dp) {
		if (fd >= 0)
			close(fd);
		return true;
	}
	while (!found && (e = readdir(dp))) {
		struct stream_head h = { 0 };
		const struct digest *have;

		if (!id_valid(str_of(e->d_name), 'n'))
			continue;
		if (node_read(p, e->d_name, &h.node, NULL)) {
			found = true; /* what it needs cannot be told */
			break;
		}
		have = stream_named(&h, r);
		found = have && !strcmp(have->hex, d->hex);
	}
	closedir(dp);
	return found;
}

static void undo_line(struct pool *p, struct str line)
{
	struct str word, hex;
	struct digest d;

	if (!str_cut(line, ' ', &word, &hex) || digest_parse(&d, hex))
		return;
	for (unsigned r = 0; r < ROLES_NAMED; r++)
		if (str_eqz(word, stream_role_name(r)) && !names_it(p, r, &d) && !node_needs_it(p, r, &d))
			take_back(p, r, &d);
}

void publish_undo(struct pool *p, int all, const char *dir)
{
	int fd = dir_open(all, dir);
	DIR *dp = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dp) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(dp))) {
		autofree char *text = NULL;
		struct str line, rest;
		ssize_t n;

		if (!str_ends(str_of(e->d_name), ".undo"))
			continue;
		n = file_read(fd, e->d_name, &text, 1024);
		for (rest = (struct str){ text, n > 0 ? (size_t)n : 0 }; rest.n;) {
			str_cut(rest, '\n', &line, &rest);
			undo_line(p, line);
		}
	}
	closedir(dp);
}
