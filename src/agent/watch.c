#include "agent/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "agent/path.h"
#include "base/log.h"

#define MASK (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define BUCKETS 256
#define DEPTH_MAX 128
#define READS_PER_TURN 4

/* One watched directory. */
struct dir {
	struct dir *next;
	int wd;
	char rel[]; /* path below the root; "" is the root */
};

struct watch {
	int fd;
	bool recursive, started, paused, closed;
	uv_poll_t poll;
	char root[PATH_LEN];
	struct dir *bucket[BUCKETS];
	unsigned ndirs;
	/* What a scan has reported and the queue may report again: emptied when the queue is. */
	json_t *seen;
	char last_write[PATH_LEN]; /* of this batch: one event a burst is enough */
	const struct watch_cb *cb;
	void *arg;
};

const char *watch_type_name(enum watch_type t)
{
	static const char *const names[] = { "EVENT_TYPE_UNSPECIFIED", "EVENT_TYPE_CREATE",
		"EVENT_TYPE_WRITE", "EVENT_TYPE_REMOVE", "EVENT_TYPE_RENAME", "EVENT_TYPE_CHMOD" };

	return names[t];
}

/* --- the directories --- */

static struct dir *dir_of(struct watch *w, int wd)
{
	struct dir *d = w->bucket[(unsigned)wd % BUCKETS];

	while (d && d->wd != wd)
		d = d->next;
	return d;
}

static void dir_forget(struct watch *w, int wd)
{
	for (struct dir **pd = &w->bucket[(unsigned)wd % BUCKETS]; *pd; pd = &(*pd)->next) {
		if ((*pd)->wd == wd) {
			struct dir *d = *pd;

			*pd = d->next;
			free(d);
			w->ndirs--;
			return;
		}
	}
}

static int full_path(const struct watch *w, const char *rel, char out[PATH_LEN])
{
	size_t n = strlen(w->root);
	int len = snprintf(
		out, PATH_LEN, "%s%s%s", w->root, rel[0] && w->root[n - 1] != '/' ? "/" : "", rel);

	return len < PATH_LEN ? 0 : -ENAMETOOLONG;
}

static int join(const char *rel, const char *name, char out[PATH_LEN])
{
	int len = snprintf(out, PATH_LEN, "%s%s%s", rel, rel[0] ? "/" : "", name);

	return len < PATH_LEN ? 0 : -ENAMETOOLONG;
}

static int dir_add(struct watch *w, const char *rel)
{
	char path[PATH_LEN];
	size_t n = strlen(rel);
	struct dir *d;
	int wd;

	if (w->ndirs >= WATCH_DIRS_MAX)
		return -ENOSPC;
	if (full_path(w, rel, path) < 0)
		return -ENAMETOOLONG;
	wd = inotify_add_watch(w->fd, path, MASK | IN_ONLYDIR | (rel[0] ? IN_DONT_FOLLOW : 0));
	if (wd < 0)
		return -errno;
	dir_forget(w, wd); /* the same directory under another name */
	d = malloc(sizeof(*d) + n + 1);
	if (!d) {
		inotify_rm_watch(w->fd, wd);
		return -ENOMEM;
	}
	d->wd = wd;
	memcpy(d->rel, rel, n + 1);
	d->next = w->bucket[(unsigned)wd % BUCKETS];
	w->bucket[(unsigned)wd % BUCKETS] = d;
	w->ndirs++;
	return 0;
}

/* A directory has left the tree, or got another name in it: its watches would report under the old
 * one. */
static void tree_forget(struct watch *w, const char *rel)
{
	size_t n = strlen(rel);

	for (unsigned i = 0; i < BUCKETS; i++) {
		struct dir **pd = &w->bucket[i];

		while (*pd) {
			struct dir *d = *pd;

			if (strncmp(d->rel, rel, n) != 0 || (d->rel[n] && d->rel[n] != '/')) {
				pd = &d->next;
				continue;
			}
			*pd = d->next;
			inotify_rm_watch(w->fd, d->wd);
			free(d);
			w->ndirs--;
		}
	}
}

static void tell(struct watch *w, enum watch_type type, const char *rel)
{
	char path[PATH_LEN];

	if (!w->closed && full_path(w, rel, path) == 0)
		w->cb->event(type, rel, path, w->arg);
}

/* Watches the directory REL and all below it, watch first, then look: nothing can be made in
 * between unseen. With TELL_ALL everything found is reported as created, and files with something
 * in them as written. */
static int tree_add(struct watch *w, const char *rel, bool tell_all, unsigned depth)
{
	char path[PATH_LEN], below[PATH_LEN];
	struct dirent *e;
	struct stat st;
	int r = dir_add(w, rel);
	DIR *d;

	if (r < 0 || (!w->recursive && !tell_all))
		return r;
	if (depth > DEPTH_MAX || full_path(w, rel, path) < 0 || !(d = opendir(path)))
		return depth > DEPTH_MAX ? -ELOOP : -errno;
	while (r == 0 && !w->closed && (e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
			join(rel, e->d_name, below) < 0 ||
			fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (tell_all) {
			json_object_set_new(w->seen, below, json_true());
			tell(w, WATCH_CREATE, below);
			if (S_ISREG(st.st_mode) && st.st_size > 0)
				tell(w, WATCH_WRITE, below);
		}
		if (S_ISDIR(st.st_mode)) {
			r = tree_add(w, below, tell_all, depth + 1);
			if (r == -ENOENT || r == -ENOTDIR || r == -EACCES || r == -ENAMETOOLONG ||
				r == -ELOOP)
				r = 0; /* gone again, or out of reach: not the whole tree's failure
					*/
		}
	}
	closedir(d);
	return r;
}

/* --- opening --- */

static bool on_network(const char *path)
{
	static const uint32_t types[] = {
		0x6969 /* nfs */,
		0xff534d42 /* cifs */,
		0xfe534d42 /* smb2 */,
		0x517b /* smb */,
		0x65735546 /* fuse */,
		0x01021997 /* 9p */,
		0x00c36400 /* ceph */,
		0x5346414f /* afs */,
		0x6b414653 /* kafs */,
		0x73757245 /* coda */,
		0x013111a8 /* gpfs */,
		0x0bd00bd0 /* lustre */,
	};
	struct statfs fs;

	if (statfs(path, &fs) < 0)
		return false;
	for (unsigned i = 0; i < ARRAY_LEN(types); i++)
		if ((uint32_t)fs.f_type == types[i])
			return true;
	return false;
}

int watch_open(const char *path, bool recursive, bool network, struct watch **out, struct fail *why)
{
	struct watch *w;
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return fail_set(
			why, errno == ENOTDIR ? -ENOENT : -errno, "path not found: %s", path);
	if (!S_ISDIR(st.st_mode))
		return fail_set(why, -ENOTDIR, "path is not a directory: %s", path);
	if (!network && on_network(path))
		return fail_set(why, -EREMOTE,
			"path is on a network file system, whose changes are not all seen: %s",
			path);
	w = calloc(1, sizeof(*w));
	if (!w)
		return fail_set(why, -ENOMEM, "out of memory");
	w->recursive = recursive;
	w->seen = json_object();
	snprintf(w->root, sizeof(w->root), "%s", path);
	w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	r = w->fd < 0 ? -errno : w->seen ? tree_add(w, "", false, 0) : -ENOMEM;
	if (r < 0) {
		fail_set(why, r,
			r == -ENOSPC || r == -EMFILE ? "too many directories are watched: %s"
						     : "cannot watch %s",
			path);
		watch_close(w);
		return r;
	}
	*out = w;
	return 0;
}

/* --- events --- */

static void on_new_dir(struct watch *w, const char *rel)
{
	int r = tree_add(w, rel, true, 0);

	if (r == -ENOSPC || r == -ENOMEM) {
		log_warning("watch: %s: %s", w->root, strerror(-r));
		if (!w->closed)
			w->cb->lost(w->arg);
	}
}

static void on_event(struct watch *w, const struct inotify_event *e)
{
	struct dir *d = dir_of(w, e->wd);
	bool is_dir = e->mask & IN_ISDIR;
	char rel[PATH_LEN];

	if (e->mask & IN_IGNORED) {
		dir_forget(w, e->wd);
		return;
	}
	if (!d || e->len == 0 || join(d->rel, e->name, rel) < 0)
		return; /* of the directory itself: its parent tells the same by name */
	if (!(e->mask & IN_MODIFY))
		w->last_write[0] = '\0';
	if (e->mask & (IN_CREATE | IN_MOVED_TO)) {
		if (json_object_del(w->seen, rel) == 0)
			return; /* the scan has told it, and watches it if it is a directory */
		tell(w, WATCH_CREATE, rel);
		if (is_dir && w->recursive && !w->closed)
			on_new_dir(w, rel);
	} else if (e->mask & IN_MODIFY) {
		if (strcmp(w->last_write, rel) != 0)
			tell(w, WATCH_WRITE, rel);
		snprintf(w->last_write, sizeof(w->last_write), "%s", rel);
	} else if (e->mask & (IN_DELETE | IN_MOVED_FROM)) {
		json_object_del(w->seen, rel);
		if (is_dir && w->recursive)
			tree_forget(w, rel);
		tell(w, e->mask & IN_DELETE ? WATCH_REMOVE : WATCH_RENAME, rel);
	} else if (e->mask & IN_ATTRIB) {
		tell(w, WATCH_CHMOD, rel);
	}
}

static void on_readable(uv_poll_t *h, int status, int events)
{
	struct watch *w = container_of(h, struct watch, poll);
	static char buf[16 * 1024] __attribute__((aligned(8)));

	for (int i = 0; i < READS_PER_TURN && !w->closed && !w->paused; i++) {
		ssize_t n = read(w->fd, buf, sizeof(buf)), at = 0;

		if (n <= 0) {
			if (json_object_size(w->seen) > 0)
				json_object_clear(w->seen);
			w->last_write[0] = '\0';
			return;
		}
		while (at < n && !w->closed) {
			const struct inotify_event *e = (const struct inotify_event *)(buf + at);

			at += (ssize_t)(sizeof(*e) + e->len);
			if (e->mask & IN_Q_OVERFLOW) {
				w->cb->lost(w->arg);
				return;
			}
			on_event(w, e);
		}
	}
}

int watch_start(struct watch *w, uv_loop_t *loop, const struct watch_cb *cb, void *arg)
{
	int r;

	w->cb = cb;
	w->arg = arg;
	r = uv_poll_init(loop, &w->poll, w->fd);
	if (r < 0)
		return r;
	w->started = true;
	return uv_poll_start(&w->poll, UV_READABLE, on_readable);
}

void watch_pause(struct watch *w)
{
	w->paused = true;
	uv_poll_stop(&w->poll);
}

void watch_resume(struct watch *w)
{
	w->paused = false;
	uv_poll_start(&w->poll, UV_READABLE, on_readable);
}

static void watch_free(struct watch *w)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		while (w->bucket[i]) {
			struct dir *d = w->bucket[i];

			w->bucket[i] = d->next;
			free(d);
		}
	}
	json_decref(w->seen);
	free(w);
}

static void poll_closed(uv_handle_t *h)
{
	watch_free(container_of((uv_poll_t *)h, struct watch, poll));
}

void watch_close(struct watch *w)
{
	if (!w || w->closed)
		return;
	w->closed = true;
	if (w->started)
		uv_poll_stop(&w->poll);
	if (w->fd >= 0)
		close(steal_fd(&w->fd));
	if (w->started)
		uv_close((uv_handle_t *)&w->poll, poll_closed);
	else
		watch_free(w);
}
