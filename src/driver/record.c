/* record.c - see record.h. */
#include "driver/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"

#define RECORD_MAX (16 * 1024)

static void put_file(struct jw *w, const char *key, const struct record_file *f)
{
	if (!f->there) {
		jw_null(w, key);
		return;
	}
	jw_arr(w, key);
	jw_int(w, NULL, (int64_t)f->dev);
	jw_int(w, NULL, (int64_t)f->ino);
	jw_arr_end(w);
}

int record_write(int run_dirfd, const struct record *r, struct fail *why)
{
	struct buf autobuf b;
	struct jw w;
	int err;

	buf_init(&b, RECORD_MAX);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_int(&w, "version", 1);
	jw_str(&w, "id", r->id);
	jw_int(&w, "uid", r->uid);
	jw_int(&w, "memory", (int64_t)r->memory);
	jw_int(&w, "keeper", r->keeper);
	jw_int(&w, "keeper_start", (int64_t)r->keeper_start);
	jw_int(&w, "qemu", r->qemu);
	jw_int(&w, "qemu_start", (int64_t)r->qemu_start);
	put_file(&w, "memory_file", &r->memory_file);
	put_file(&w, "disk", &r->disk);
	jw_str(&w, "node", r->node);
	jw_obj_end(&w);
	err = w.err ? w.err : FAULT_OURS(file_write_atomic(run_dirfd, "monitor.json", b.p, b.n, 0600));
	return err < 0 ? fail_set(why, err, "run directory: monitor.json: %s", strerror(-err)) : 0;
}

static struct record_file get_file(const json_t *o, const char *key)
{
	json_t *a = json_object_get(o, key);

	if (json_array_size(a) != 2)
		return (struct record_file){ 0 };
	return (struct record_file){ .there = true, .dev = (dev_t)json_integer_value(json_array_get(a, 0)),
				     .ino = (ino_t)json_integer_value(json_array_get(a, 1)) };
}

static uint64_t get_int(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

static int get_str(const json_t *o, const char *key, char *out, size_t size)
{
	const char *z = json_string_value(json_object_get(o, key));

	return z ? str_copy(out, size, str_of(z)) : -EINVAL;
}

int record_read(int run_dirfd, struct record *r, struct fail *why)
{
	autofree char *text = NULL;
	autojson json_t *o = NULL;
	ssize_t n = file_read(run_dirfd, "monitor.json", &text, RECORD_MAX);

	if (n < 0)
		return fail_set(why, (int)n, "run directory: monitor.json: %s", strerror((int)-n));
	o = json_read((struct str){ text, (size_t)n }, why);
	*r = (struct record){ 0 };
	if (!o || json_integer_value(json_object_get(o, "version")) != 1 || get_str(o, "id", r->id, sizeof(r->id)) < 0 ||
	    get_str(o, "node", r->node, sizeof(r->node)) < 0)
		return fail_set(why, -EBADMSG, "run directory: monitor.json is not one of ours");
	r->uid = (uid_t)get_int(o, "uid");
	r->memory = get_int(o, "memory");
	r->keeper = (pid_t)get_int(o, "keeper");
	r->keeper_start = get_int(o, "keeper_start");
	r->qemu = (pid_t)get_int(o, "qemu");
	r->qemu_start = get_int(o, "qemu_start");
	r->memory_file = get_file(o, "memory_file");
	r->disk = get_file(o, "disk");
	return 0;
}

struct record_file record_file_of(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return (struct record_file){ 0 };
	return (struct record_file){ true, st.st_dev, st.st_ino };
}

int record_file_find(pid_t pid, const struct record_file *f)
{
	char path[64];
	DIR *d;
	struct dirent *e;
	int found = -ENOENT;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	if (!d)
		return -errno;
	while (found < 0 && (e = readdir(d))) {
		struct stat st;

		if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) < 0)
			continue;
		if (st.st_dev == f->dev && st.st_ino == f->ino) {
			found = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
			if (found < 0)
				found = -errno;
		}
	}
	closedir(d);
	return found;
}
