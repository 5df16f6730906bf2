#include "net/slot.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "net/netns.h"

#ifndef NSFS_MAGIC
#define NSFS_MAGIC 0x6e736673
#endif

#define READY_MAX 256	  /* more is a mistake in the configuration */
#define KNOWN_MAX 16384	  /* slots of one daemon */

/* One namespace that is not to be swept. */
struct known {
	struct slot slot; /* descriptors: of ready ones only */
	bool ready;
};

struct slots {
	char dir[280];
	pthread_mutex_t lock;
	unsigned want;	 /* ready ones to keep */
	unsigned making; /* by refills under way */
	unsigned nready;
	struct known *known;
	size_t n, cap;
};

/* --- the directory --- */

/* A mount point of its own, so that what is mounted below spreads nowhere and one umount of the tree takes all. */
static int dir_make(const char *dir, struct fail *why)
{
	struct statx here, up;
	char parent[300];
	int r = FAULT_OURS(mkdir_p(dir, 0711));

	if (r < 0)
		return fail_set(why, r, "%s: %s", dir, strerror(-r));
	snprintf(parent, sizeof(parent), "%s/..", dir);
	if (statx(AT_FDCWD, dir, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &here) < 0 ||
	    statx(AT_FDCWD, parent, 0, STATX_MNT_ID, &up) < 0)
		return fail_set(why, -errno, "%s: %s", dir, strerror(errno));
	if (here.stx_mnt_id == up.stx_mnt_id && FAULT(mount(dir, dir, NULL, MS_BIND, NULL)) < 0) {
		r = errno;
		if (r != EPERM)
			return fail_set(why, -r, "mounting %s: %s", dir, strerror(r));
		r = fail_as(why, ERR_host_unsuitable, "mounting %s is not permitted here", dir);
		fail_remedy(why, "run spaced as root, with CAP_SYS_ADMIN");
		return r;
	}
	if (FAULT(mount(NULL, dir, NULL, MS_PRIVATE, NULL)) < 0) {
		r = fail_set(why, -errno, "making %s a private mount: %s", dir, strerror(errno));
		FAULT(umount2(dir, MNT_DETACH));
		return r;
	}
	return 0;
}

static int slot_path(const struct slots *s, const char *name, char *out, size_t size)
{
	int n = snprintf(out, size, "%s/%s", s->dir, name);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* Takes the name away. The namespace itself goes when its last descriptor and process are gone. */
static int name_remove(const struct slots *s, const char *name)
{
	char path[320];
	int r = slot_path(s, name, path, sizeof(path));

	if (r < 0)
		return r;
	/* A name may have been mounted on twice by a daemon that was killed in between. */
	while (FAULT(umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW)) == 0)
		;
	if (errno != EINVAL && errno != ENOENT)
		return -errno;
	return FAULT(unlink(path)) < 0 && errno != ENOENT ? -errno : 0;
}

static int name_mount(const struct slots *s, const char *name, int ns_fd)
{
	char path[320], src[40];
	int fd, r = slot_path(s, name, path, sizeof(path));

	if (r < 0)
		return r;
	fd = FAULT(open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	close(fd);
	snprintf(src, sizeof(src), "/proc/self/fd/%d", ns_fd);
	if (FAULT(mount(src, path, NULL, MS_BIND, NULL)) == 0)
		return 0;
	r = -errno;
	FAULT(unlink(path));
	return r;
}

/* --- the books; the lock is held --- */

static struct known *known_find(struct slots *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->known[i].slot.name, name))
			return &s->known[i];
	return NULL;
}

static int known_add(struct slots *s, const struct slot *slot, bool ready)
{
	if (s->n >= KNOWN_MAX)
		return -ENOBUFS;
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		struct known *more = reallocarray(s->known, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->known = more;
		s->cap = cap;
	}
	s->known[s->n].slot = *slot;
	s->known[s->n].ready = ready;
	s->n++;
	s->nready += ready;
	return 0;
}

static void known_del(struct slots *s, struct known *k)
{
	s->nready -= k->ready;
	*k = s->known[--s->n];
}

/* --- making --- */

/* A new slot, in the books from before it has a name, so that a sweep on another thread never takes it for a stray. */
static int slot_make(struct slots *s, bool ready, struct slot *out, struct fail *why)
{
	autoclose int ns = -1, tap = -1;
	struct slot slot = { .ns_fd = -1, .tap_fd = -1 };
	uint8_t rnd[6];
	int r = netns_make(&ns, &tap, why);

	if (r < 0)
		return r;
	random_bytes(rnd, sizeof(rnd));
	slot.name[0] = 's';
	hex_encode(slot.name + 1, rnd, sizeof(rnd));
	pthread_mutex_lock(&s->lock);
	r = known_add(s, &slot, false);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return fail_set(why, r, "too many slots");
	r = name_mount(s, slot.name, ns);
	pthread_mutex_lock(&s->lock);
	if (r < 0) {
		known_del(s, known_find(s, slot.name));
	} else {
		struct known *k = known_find(s, slot.name);

		slot.ns_fd = steal_fd(&ns);
		slot.tap_fd = steal_fd(&tap);
		if (ready) {
			k->slot = slot;
			k->ready = true;
			s->nready++;
		}
	}
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return fail_set(why, r, "naming a slot %s/%s: %s", s->dir, slot.name, strerror(-r));
	if (out)
		*out = slot;
	return 0;
}

int slots_new(const char *run_dir, unsigned ready, struct slots **out, struct fail *why)
{
	struct slots *s;
	int n, r;

	if (ready > READY_MAX)
		return fail_as(why, ERR_bad_request, "ready_slots: at most %d", READY_MAX);
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail_set(why, -ENOMEM, "out of memory");
	n = snprintf(s->dir, sizeof(s->dir), "%s/netns", run_dir);
	if (n < 0 || (size_t)n >= sizeof(s->dir))
		r = fail_set(why, -ENAMETOOLONG, "the run directory's name is too long");
	else
		r = dir_make(s->dir, why);
	(void)netns_home(); /* once for all, not at the first connect */
	if (r < 0) {
		free(s);
		return r;
	}
	pthread_mutex_init(&s->lock, NULL);
	s->want = ready;
	*out = s;
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		struct known *k = &s->known[i];

		if (!k->ready)
			continue;
		close(k->slot.ns_fd);
		slot_close_tap(&k->slot);
		name_remove(s, k->slot.name);
	}
	/* Only when nothing is left in it: otherwise it waits for whoever adopts what is. */
	if (FAULT(rmdir(s->dir)) < 0 && errno == EBUSY) {
		DIR *d = opendir(s->dir);
		struct dirent *e;
		bool empty = d != NULL;

		while (d && (e = readdir(d)))
			if (e->d_name[0] != '.')
				empty = false;
		if (d)
			closedir(d);
		if (empty && FAULT(umount2(s->dir, MNT_DETACH | UMOUNT_NOFOLLOW)) == 0)
			FAULT(rmdir(s->dir));
	}
	pthread_mutex_destroy(&s->lock);
	free(s->known);
	free(s);
}

int slots_refill(struct slots *s, struct fail *why)
{
	bool more;
	int r = 0;

	do {
		pthread_mutex_lock(&s->lock);
		more = s->nready + s->making < s->want;
		s->making += more;
		pthread_mutex_unlock(&s->lock);
		if (!more)
			break;
		r = slot_make(s, true, NULL, why);
		pthread_mutex_lock(&s->lock);
		s->making--;
		pthread_mutex_unlock(&s->lock);
	} while (r == 0);
	return r;
}

unsigned slots_ready(struct slots *s)
{
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = s->nready;
	pthread_mutex_unlock(&s->lock);
	return n;
}

int slot_claim(struct slots *s, struct slot *out, struct fail *why)
{
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->n && !found; i++) {
		struct known *k = &s->known[i];

		if (!k->ready)
			continue;
		*out = k->slot;
		k->ready = false;
		k->slot.ns_fd = k->slot.tap_fd = -1;
		s->nready--;
		found = true;
	}
	pthread_mutex_unlock(&s->lock);
	return found ? 0 : slot_make(s, false, out, why);
}

static bool slot_name_ok(const char *name)
{
	return strlen(name) < sizeof(((struct slot *)0)->name) && path_is_plain(str_of(name));
}

int slot_adopt(struct slots *s, const char *name, struct slot *out, struct fail *why)
{
	struct slot slot = { .ns_fd = -1, .tap_fd = -1 };
	autoclose int fd = -1;
	char path[320];
	struct statfs fs;
	int r;

	if (!slot_name_ok(name) || slot_path(s, name, path, sizeof(path)) < 0)
		return fail_set(why, -EINVAL, "\"%.32s\" is not the name of a slot", name);
	strcpy(slot.name, name); /* its length was checked */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return fail_set(why, -errno, "slot %s: %s", name, strerror(errno));
	/* An empty file is what a reboot or a daemon killed half-way leaves. */
	if (fstatfs(fd, &fs) < 0 || fs.f_type != NSFS_MAGIC || ioctl(fd, NS_GET_NSTYPE) != CLONE_NEWNET)
		return fail_set(why, -ENOENT, "slot %s: no network namespace is mounted there", name);
	pthread_mutex_lock(&s->lock);
	r = known_find(s, name) ? -EBUSY : known_add(s, &slot, false);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return fail_set(why, r, "slot %s: %s", name, r == -EBUSY ? "it is in use" : strerror(-r));
	slot.ns_fd = steal_fd(&fd);
	*out = slot;
	return 0;
}

void slot_close_tap(struct slot *slot)
{
	if (slot->tap_fd >= 0)
		close(slot->tap_fd);
	slot->tap_fd = -1;
}

int slot_release(struct slots *s, struct slot *slot, struct fail *why)
{
	struct known *k;
	int r;

	slot_close_tap(slot);
	if (slot->ns_fd >= 0)
		close(slot->ns_fd);
	slot->ns_fd = -1;
	if (!slot_name_ok(slot->name))
		return fail_set(why, -EINVAL, "\"%.16s\" is not the name of a slot", slot->name);
	r = name_remove(s, slot->name);
	pthread_mutex_lock(&s->lock);
	k = known_find(s, slot->name);
	if (k)
		known_del(s, k);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return fail_set(why, r, "removing slot %s/%s: %s", s->dir, slot->name, strerror(-r));
	return 0;
}

int slots_sweep(struct slots *s, struct fail *why)
{
	DIR *d = opendir(s->dir);
	struct dirent *e;
	int swept = 0, first = 0, r;

	if (!d)
		return fail_set(why, -errno, "%s: %s", s->dir, strerror(errno));
	while ((e = readdir(d))) {
		struct known *k;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		pthread_mutex_lock(&s->lock);
		k = known_find(s, e->d_name);
		pthread_mutex_unlock(&s->lock);
		if (k)
			continue;
		r = name_remove(s, e->d_name);
		if (r == 0)
			swept++;
		else if (!first)
			first = fail_set(why, r, "removing slot %s/%s: %s", s->dir, e->d_name, strerror(-r));
	}
	closedir(d);
	return first ? first : swept;
}

int slot_connect(const struct slot *slot, int port, struct fail *why)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(SLOT_GUEST_IP) };
	autoclose int fd = -1;
	int one = 1;

	if (port < 1 || port > 65535)
		return fail_set(why, -EINVAL, "port: a whole number from 1 to 65535");
	fd = netns_socket(slot->ns_fd, why);
	if (fd < 0)
		return steal_fd(&fd);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	to.sin_port = htons((uint16_t)port);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
		return fail_set(why, -errno, "connecting to port %d of the sandbox: %s", port, strerror(errno));
	return steal_fd(&fd);
}
