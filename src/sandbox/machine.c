/* machine.c - a monitor process and everything that is its own: uid, slot, disk, run directory. Made in one order, undone in the other;
 * machine_destroy() undoes whatever part of it there is, so that no failure on the way leaves anything behind.
 *
 * RUN/sandboxes/ID/machine.json says what belongs to the process, for the daemon that comes after us. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/proc.h"
#include "sandbox/core.h"

#define NOTE "machine.json"
#define NOTE_MAX 4096

/* --- uids --- */

int uids_init(struct uids *u, unsigned base, unsigned count)
{
	u->base = base;
	u->count = count;
	u->next = 0;
	u->used = calloc((count + 63) / 64, sizeof(uint64_t));
	uv_mutex_init(&u->mu);
	return u->used ? 0 : -ENOMEM;
}

void uids_clear(struct uids *u)
{
	if (!u->used)
		return;
	free(u->used);
	u->used = NULL;
	uv_mutex_destroy(&u->mu);
}

/* The one that was free for longest, about: a file of the last owner that was overlooked is not the next one's. */
static int uid_take(struct uids *u, uid_t *out)
{
	int r = -EAGAIN;

	uv_mutex_lock(&u->mu);
	for (unsigned i = 0; i < u->count && r < 0; i++) {
		unsigned n = (u->next + i) % u->count;

		if (u->used[n / 64] & (1ULL << (n % 64)))
			continue;
		u->used[n / 64] |= 1ULL << (n % 64);
		u->next = (n + 1) % u->count;
		*out = u->base + n;
		r = 0;
	}
	uv_mutex_unlock(&u->mu);
	return r;
}

/* False if it is out of range: the configuration's base has changed. Such a uid stays its monitor's until that ends. */
static bool uid_mark(struct uids *u, uid_t uid, bool used)
{
	unsigned n = uid - u->base;

	if (uid < u->base || n >= u->count)
		return false;
	uv_mutex_lock(&u->mu);
	if (used)
		u->used[n / 64] |= 1ULL << (n % 64);
	else
		u->used[n / 64] &= ~(1ULL << (n % 64));
	uv_mutex_unlock(&u->mu);
	return true;
}

/* --- the struct --- */

struct machine *machine_new(struct space *sp, const char *id, const char *tenant, const char *role)
{
	struct machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->sp = sp;
	m->slot.ns_fd = m->slot.tap_fd = -1;
	(void)str_copy(m->id, sizeof(m->id), str_of(id));
	(void)str_copy(m->tenant, sizeof(m->tenant), str_of(tenant));
	(void)str_copy(m->role, sizeof(m->role), str_of(role));
	if (snprintf(m->run_dir, sizeof(m->run_dir), "%s/sandboxes/%s", sp->cfg.run_dir, id) >= (int)sizeof(m->run_dir)) {
		free(m);
		return NULL;
	}
	return m;
}

void machine_free(struct machine *m)
{
	if (!m)
		return;
	if (m->vm)
		m->sp->drv->free(m->vm);
	if (m->slot.tap_fd >= 0)
		close(m->slot.tap_fd);
	if (m->slot.ns_fd >= 0)
		close(m->slot.ns_fd);
	source_unref(m->src);
	free(m);
}

/* --- the note for our successor --- */

static int note_write(const struct machine *m, struct fail *why)
{
	autoclose int dir = dir_open(AT_FDCWD, m->run_dir), fd = -1;
	struct buf b;
	struct jw w;
	int r;

	if (dir < 0)
		return fail_set(why, dir, "%s: %s", m->run_dir, strerror(-dir));
	buf_init(&b, NOTE_MAX);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "id", m->id);
	jw_str(&w, "tenant", m->tenant);
	jw_str(&w, "role", m->role);
	jw_int(&w, "uid", m->uid);
	jw_str(&w, "slot", m->has_slot ? m->slot.name : "");
	jw_int(&w, "vcpus", m->vcpus);
	jw_int(&w, "memory", (int64_t)m->memory);
	jw_int(&w, "disk", m->has_disk ? (int64_t)m->disk : 0);
	jw_obj_end(&w);
	/* Atomic, but not synced: it is of no use after a power cut, when the process is gone as well. */
	fd = FAULT(openat(dir, NOTE ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
	r = w.err ? w.err : fd < 0 ? -errno : FAULT_OURS(write_all(fd, b.p, b.n));
	if (r == 0 && FAULT(renameat(dir, NOTE ".new", dir, NOTE)) < 0)
		r = -errno;
	buf_clear(&b);
	return r < 0 ? fail_set(why, r, "%s/%s: %s", m->run_dir, NOTE, strerror(-r)) : 0;
}

static int note_read(struct machine *m, char slot[16], struct fail *why)
{
	struct note {
		const char *tenant, *role, *slot;
		int64_t uid, vcpus, memory, disk;
	} n = { 0 };
	static const struct field fields[] = {
		STR_FIELD(struct note, tenant, 31, true), STR_FIELD(struct note, role, 11, true), STR_FIELD(struct note, slot, 15, true),
		INT_FIELD(struct note, uid, 1, UINT32_MAX, true), INT_FIELD(struct note, vcpus, 0, 1024, true),
		INT_FIELD(struct note, memory, 0, INT64_MAX, true), INT_FIELD(struct note, disk, 0, INT64_MAX, true),
	};
	autoclose int dir = dir_open(AT_FDCWD, m->run_dir);
	autofree char *text = NULL;
	autojson json_t *j = NULL;
	ssize_t len;

	if (dir < 0)
		return fail_set(why, dir, "%s: %s", m->run_dir, strerror(-dir));
	m->has_dir = true;
	len = file_read(dir, NOTE, &text, NOTE_MAX);
	if (len < 0)
		return fail_set(why, (int)len, "%s/%s: %s", m->run_dir, NOTE, strerror((int)-len));
	j = json_read((struct str){ text, (size_t)len }, why);
	if (!j || fields_read_loose(j, fields, ARRAY_LEN(fields), &n, why) < 0)
		return why->err;
	(void)str_copy(m->tenant, sizeof(m->tenant), str_of(n.tenant));
	(void)str_copy(m->role, sizeof(m->role), str_of(n.role));
	(void)str_copy(slot, 16, str_of(n.slot));
	m->uid = (uid_t)n.uid;
	m->vcpus = (unsigned)n.vcpus;
	m->memory = (uint64_t)n.memory;
	m->disk = (uint64_t)n.disk;
	m->has_disk = n.disk > 0;
	return 0;
}

void machine_set_role(struct machine *m, const char *role)
{
	struct fail why = { 0 };

	(void)str_copy(m->role, sizeof(m->role), str_of(role));
	if (note_write(m, &why) < 0)
		log_warning("machine %s: %s", m->id, why.msg);
}

/* --- making --- */

static double since_ms(int64_t t0)
{
	return (double)(mono_ns() - t0) / NS_PER_MS;
}

static int make_disk(struct machine *m, const struct machine_files *f, int *fd, struct fail *why)
{
	int64_t t0 = mono_ns();
	bool cloned;

	if (f->read_only)
		return 0;
	m->has_disk = true; /* from here on there may be something to remove */
	*fd = FAULT_WHY(why, disk_clone(m->sp->pool, m->id, f->disk, m->uid, m->disk, &cloned, why));
	m->disk_ms = since_ms(t0);
	return *fd < 0 ? *fd : 0;
}

static int make_process(struct machine *m, const struct machine_files *f, int disk, struct fail *why)
{
	struct vm_spec spec = {
		.id = m->id, .run_dir = m->run_dir, .uid = m->uid, .vcpus = m->vcpus, .memory = m->memory, .kernel_fd = f->kernel,
		.initrd_fd = f->initrd, .cmdline = f->cmdline, .image_fd = f->image, .disk_fd = disk, .disk_max = m->disk_max, .tap_fd = m->slot.tap_fd,
		.node_fd = f->node, .memory_fd = f->memory,
	};
	int64_t t0 = mono_ns();
	int r = FAULT_WHY(why, m->sp->drv->prepare(&spec, &m->vm, why));

	m->monitor_ms = since_ms(t0);
	return r;
}

int machine_prepare(struct machine *m, const struct machine_files *f, struct fail *why)
{
	struct space *sp = m->sp;
	autoclose int disk = -1;
	int r;

	r = uid_take(&sp->uids, &m->uid);
	if (r < 0)
		return fail_as(why, ERR_no_capacity, "every uid for monitors is in use");
	m->has_uid = true;
	r = FAULT_OURS(mkdir_p(m->run_dir, 0711));
	if (r < 0)
		return fail_set(why, r, "%s: %s", m->run_dir, strerror(-r));
	m->has_dir = true;
	r = FAULT_WHY(why, slot_claim(sp->slots, &m->slot, why));
	if (r < 0)
		return r;
	m->has_slot = true;
	if ((r = make_disk(m, f, &disk, why)) < 0 || (r = make_process(m, f, disk, why)) < 0)
		return r;
	slot_close_tap(&m->slot);
	return note_write(m, why);
}

int machine_start(struct machine *m, struct fail *why)
{
	int64_t t0 = mono_ns();
	int r = FAULT_WHY(why, m->sp->drv->start(m->vm, why));

	m->load_ms = since_ms(t0);
	return r;
}

int machine_grow(struct machine *m, uint64_t disk, struct fail *why)
{
	char path[64];
	autoclose int fd = -1;
	int r;

	if (!m->has_disk || disk <= m->disk)
		return 0;
	snprintf(path, sizeof(path), "sandboxes/%s/disk", m->id);
	fd = openat(pool_dirfd(m->sp->pool), path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || FAULT(ftruncate(fd, (off_t)disk)) < 0)
		return fail_set(why, -errno, "growing the disk: %s", strerror(errno));
	r = FAULT_WHY(why, m->sp->drv->resize_disk(m->vm, disk, why));
	if (r == 0)
		m->disk = disk;
	return r;
}

/* --- undoing --- */

static void keep_first(struct fail *why, int *r, int r2, const struct fail *f)
{
	if (r2 < 0 && *r == 0) {
		*r = r2;
		if (why)
			*why = *f;
	}
}

int machine_destroy(struct machine *m, struct fail *why)
{
	struct space *sp = m->sp;
	struct fail f = { 0 };
	int r = 0, r2;

	if (m->vm) {
		bool lives;

		r2 = FAULT_WHY(&f, sp->drv->kill(m->vm, &f));
		keep_first(why, &r, r2, &f);
		lives = r2 < 0 && pidfd_wait(vm_pidfd(m->vm), 0) < 0;
		sp->drv->free(m->vm);
		m->vm = NULL;
		if (lives) /* its note, its files and its uid stay: by them the next start finds it, and tries again */
			return r;
	}
	if (m->has_slot) {
		slot_close_tap(&m->slot);
		r2 = FAULT_WHY(&f, slot_release(sp->slots, &m->slot, &f));
		keep_first(why, &r, r2, &f);
		m->has_slot = false;
		m->slot.ns_fd = m->slot.tap_fd = -1;
	}
	if (m->has_disk) {
		r2 = FAULT_WHY(&f, disk_remove(sp->pool, m->id, &f));
		keep_first(why, &r, r2, &f);
		m->has_disk = false;
	}
	if (m->has_dir) {
		r2 = FAULT_OURS(rm_rf(AT_FDCWD, m->run_dir));
		if (r2 < 0)
			fail_set(&f, r2, "%s: %s", m->run_dir, strerror(-r2));
		keep_first(why, &r, r2, &f);
		m->has_dir = false;
	}
	if (m->has_uid)
		(void)uid_mark(&sp->uids, m->uid, false);
	m->has_uid = false;
	return r;
}

/* Also without its note (the last daemon ended before it was written) the process is found, so that it can be destroyed. */
int machine_adopt(struct machine *m, struct fail *why)
{
	struct space *sp = m->sp;
	struct fail no_vm = { 0 };
	char slot[16] = "";
	int r = note_read(m, slot, why), r2;

	m->has_dir = true;
	r2 = sp->drv->adopt(m->run_dir, &m->vm, &no_vm);
	if (r < 0)
		return r2 < 0 ? -ESRCH : r;
	m->has_uid = uid_mark(&sp->uids, m->uid, true);
	if (slot[0]) {
		r = slot_adopt(sp->slots, slot, &m->slot, why);
		m->has_slot = r == 0;
		if (r < 0)
			return r;
	}
	if (r2 < 0 && why)
		*why = no_vm;
	return r2;
}

/* --- in the background --- */

static int discard_job(void *arg, struct fail *why)
{
	return machine_destroy(arg, why);
}

static void discarded(void *arg, const struct fail *why)
{
	struct machine *m = arg;
	struct space *sp = m->sp;

	if (why->err)
		log_warning("machine %s: not everything of it could be removed: %s", m->id, why->msg);
	machine_free(m);
	nodes_collect(sp); /* it may have been the last user of a removed template's */
}

void machine_discard(struct machine *m)
{
	space_job(m->sp, NULL, discard_job, discarded, m);
}
