/* world.c - what there is before the first turn: a pool with an image, a kernel, an initramfs, and a template. See faults.h. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/file.h"
#include "faults.h"
#include "sandbox_fake.h"

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write_all(fd, text, strlen(text)) < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	close(fd);
}

static struct digest image, kernel, initrd;

static void make_node(struct pool *p, char id[24])
{
	struct node n = { .driver = "fake", .driver_version = "fake 1", .vcpus = 1, .memory = MEMORY, .disk = 64 * MIB, .has_memory = true,
			  .agent_protocol = AGENT_PROTOCOL };
	struct fail why = { 0 };
	char path[400];
	int fd = node_begin(p, n.id, &why);

	n.image = image;
	n.kernel = kernel;
	n.initrd = initrd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/memory", fd);
	put(path, "the template's");
	(void)!truncate(path, MEMORY);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/disk", fd);
	put(path, "the template's");
	if (truncate(path, 64 * MIB) < 0 || node_commit(p, fd, &n, &why) < 0) {
		fprintf(stderr, "a node for the template: %s\n", why.msg);
		exit(1);
	}
	close(fd);
	memcpy(id, n.id, sizeof(n.id));
}

/* pool/FOLDER/DIGEST with that ending, as it is found by its digest. */
static void put_by_digest(struct digest *d, const char *folder, const char *ending, const char *text)
{
	char path[400], to[400];
	autoclose int fd = -1;

	snprintf(path, sizeof(path), "%s/pool/%s/new", cfg.state_dir, folder);
	put(path, text);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || file_sha256(fd, d->hex) < 0)
		exit(1);
	snprintf(to, sizeof(to), "%s/pool/%s/%s", cfg.state_dir, folder, d->hex);
	if (ending[0] == '/')
		mkdir(to, 0700);
	strcat(to, ending);
	if (rename(path, to) < 0)
		exit(1);
}

/* Everything that a start from a node opens, and a pool that copies: what a clone does otherwise is the business of tests/unit/image_pool.c. */
void make_world(const char *dir)
{
	static const char *const folders[] = { "state/pool/images", "state/pool/kernels", "state/pool/initrds", "run" };
	char path[400], text[400];

	snprintf(cfg.state_dir, sizeof(cfg.state_dir), "%s/state", dir);
	snprintf(cfg.run_dir, sizeof(cfg.run_dir), "%s/run", dir);
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, folders[i]);
		if (mkdir_p(path, 0755) < 0)
			exit(1);
	}
	put_by_digest(&image, "images", ".erofs", "an image");
	put_by_digest(&kernel, "kernels", "/vmlinux", "a kernel");
	put_by_digest(&initrd, "initrds", ".cpio", "an initramfs");
	snprintf(text, sizeof(text), "{\"format\":1,\"digest\":\"sha256:%s\",\"bytes\":8,\"created_at\":\"2026-01-01T00:00:00Z\",\"user\":\"\",\"workdir\":\"\"}",
		 image.hex);
	snprintf(path, sizeof(path), "%s/pool/images/%s.json", cfg.state_dir, image.hex);
	put(path, text);
}

void make_config(void)
{
	config_defaults(&cfg);
	cfg.ready_monitors = 0;
	cfg.memory_limit = 64 * 512 * MIB;
	cfg.overcommit = 1;
	cfg.timeout_s = 0;
	cfg.uid_base = 1900000000;
}

static bool stored;

static void on_stored(void *arg, const struct fail *why)
{
	stored = !why->err;
}

static bool is_stored(struct space *sp)
{
	return stored;
}

bool make_template(struct space *sp)
{
	struct store_txn *t = store_begin(sp->store);
	struct fail why = { 0 };
	char text[900], node_id[24];

	make_node(sp->pool, node_id);
	snprintf(text, sizeof(text),
		 "{\"name\":\"base\",\"tenant\":\"default\",\"version\":1,\"image\":\"%s\",\"kernel\":\"%s\",\"disk\":67108864,\"created_ns\":1,"
		 "\"env\":{},\"variants\":[{\"vcpu\":1,\"memory\":2097152,\"read_only\":false,\"node\":\"%s\",\"generation\":5,\"bytes\":1}]}",
		 image.hex, kernel.hex, node_id);
	if (template_load(sp, str_of(text), &why) < 0 || tree_load(sp, node_id, STR("{}"), &why) < 0) {
		complain("template: %s", why.msg);
		return false;
	}
	store_put(t, "node", node_id, STR("{}"));
	store_commit(t, NULL, NULL);
	template_save(container_of(sp->templates.next, struct tmpl, link), on_stored, NULL);
	wait_until(is_stored, sp, 5000);
	return stored;
}

void end_world(const char *dir)
{
	DIR *d;
	struct dirent *e;
	char path[128];

	/* Monitors of sandboxes that live on. */
	snprintf(path, sizeof(path), "%s/born", dir);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (atoi(e->d_name) > 0)
			kill(atoi(e->d_name), SIGKILL);
	if (d)
		closedir(d);
	rm_rf(AT_FDCWD, dir);
}
