/* build_guest.c - what a build does with its guest: boot it, make it somebody, run the recipe, warm it up, stand it still. See build.h. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/build.h"

#define SETUP_MS (30 * 60 * 1000)
#define READY_EVERY_MS 250
#define WARM_MS (120 * 1000)
#define POLL_MS 100

/* Once through what sandboxes run first, so that its pages are in the saved memory. */
#define WARM_CMD "for p in bash python3 node; do command -v $p >/dev/null || continue; case $p in " \
		 "bash) bash -lc true;; python3) python3 -c 'import sys, os, json, subprocess';; node) node -e 0;; esac; done; " \
		 "for p in true echo cat ls env sh sleep; do /bin/$p --version; done >/dev/null 2>&1 </dev/null; sync"

/* --- kernel, files, machine --- */

static void child_step(const char *what, double done, void *arg)
{
	struct build *b = arg;

	operation_step(b->op, what, done < 0 ? -1 : done * 0.1); /* a tenth of the whole */
}

static void kernel_there(json_t *last, const struct fail *why, void *arg)
{
	struct build *b = arg;

	if (!build_failed(b, why))
		build_next(b);
}

void build_kernel(struct build *b)
{
	static char *const args[] = { (char *)"kernel", NULL };
	struct fail why = { 0 };

	if (child_run(b->sp, args, child_step, kernel_there, b, &why) < 0)
		(void)build_failed(b, &why);
}

static int fill_from_image(struct build *b, struct fail *why)
{
	struct template *t = &b->t->t;
	struct image_info i;
	int r = image_find(b->sp->pool, b->image, &i, why);
	json_t *env;

	if (r < 0)
		return r;
	b->node.image = i.digest;
	if (!b->is_variant) {
		(void)str_copy(t->image_digest, sizeof(t->image_digest), str_of(i.digest.hex));
		if (!t->user[0])
			(void)str_copy(t->user, sizeof(t->user), str_of(i.user));
		if (!t->workdir[0])
			(void)str_copy(t->workdir, sizeof(t->workdir), str_of(i.workdir));
		env = i.env ? json_deep_copy(i.env) : json_object();
		if (env && t->env)
			json_object_update(env, t->env);
		json_decref(t->env);
		t->env = env;
	}
	image_info_clear(&i);
	return 0;
}

static int open_disk(struct build *b, struct fail *why)
{
	struct variant *first = container_of(b->t->variants.next, struct variant, link);
	autoclose int node = -1;

	if (b->files.read_only)
		return 0;
	if (!b->is_variant || first->read_only) {
		b->files.disk = FAULT_WHY(why, disk_make(b->sp->pool, b->t->t.disk, why));
		return MIN(b->files.disk, 0);
	}
	node = node_open(b->sp->pool, b->t->t.node, why);
	if (node < 0)
		return node;
	b->files.disk = openat(node, "disk", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return b->files.disk < 0 ? fail_set(why, -errno, "the template's disk: %s", strerror(errno)) : 0;
}

static int open_files(struct build *b, struct fail *why)
{
	struct space *sp = b->sp;
	struct kernel_info k;
	char agent[300];
	int r;

	snprintf(agent, sizeof(agent), "%s/space-agent", sp->cfg.libexec_dir);
	if ((r = fill_from_image(b, why)) < 0 || (r = kernel_current(sp->pool, &k, why)) < 0 ||
	    (r = initrd_ensure(sp->pool, &k.digest, agent, &b->node.initrd, why)) < 0)
		return r;
	b->node.kernel = k.digest;
	if (!b->is_variant)
		(void)str_copy(b->t->t.kernel_digest, sizeof(b->t->t.kernel_digest), str_of(k.digest.hex));
	if ((r = b->files.kernel = kernel_open(sp->pool, &b->node.kernel, why)) < 0 ||
	    (r = b->files.initrd = initrd_open(sp->pool, &b->node.initrd, why)) < 0 ||
	    (r = b->files.image = image_open(sp->pool, &b->node.image, why)) < 0)
		return r;
	return open_disk(b, why);
}

static int boot_job(void *arg, struct fail *why)
{
	struct build *b = arg;
	int r = open_files(b, why);

	/* Only on the boot that is saved: freed pages are zero then, and zero pages take no room. */
	snprintf(b->files.cmdline, sizeof(b->files.cmdline), "space.root=%s init_on_free=1 init_on_alloc=0", b->files.read_only ? "ro" : "rw");
	if (r == 0)
		r = machine_prepare(b->m, &b->files, why);
	if (r == 0)
		r = machine_start(b->m, why);
	return r;
}

static void booted(void *arg, const struct fail *why)
{
	struct build *b = arg;
	struct fail f = *why;

	if (!f.err && !b->why.err)
		b->agent = agent_endpoint(b->sp, &b->m->slot, &f);
	if (!build_failed(b, &f))
		build_next(b);
}

void build_boot(struct build *b)
{
	space_job(b->sp, NULL, boot_job, booted, b);
}

/* --- the agent --- */

static bool machine_died(struct build *b)
{
	struct pollfd p = { .fd = vm_pidfd(b->m->vm), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void health(int status, json_t *answer, const struct fail *why, void *arg)
{
	struct build *b = arg;
	struct fail f = { 0 }, none = { 0 };

	if (b->why.err) {
		(void)build_failed(b, &none);
	} else if (!why->err) {
		if (!build_failed(b, &none))
			build_next(b);
	} else if (machine_died(b)) {
		fail_as(&f, ERR_guest_failed, "the guest ended while it booted");
		(void)build_failed(b, &f);
	} else if (mono_ms() > b->until_ms) {
		fail_as(&f, ERR_guest_failed, "the guest did not come up in %d s: %s", BOOT_TIMEOUT_MS / 1000, why->msg);
		(void)build_failed(b, &f);
	} else {
		b->busy = false;
		later_set(b->sp, &b->pause, POLL_MS, build_again, b);
	}
}

void build_wait_agent(struct build *b)
{
	agent_call(b->agent, NULL, "GET", "/health", NULL, 2000, health, b);
}

static void inited(int status, json_t *answer, const struct fail *why, void *arg)
{
	struct build *b = arg;
	struct fail f = *why;

	if (!f.err)
		b->node.agent_protocol = (unsigned)json_integer_value(json_object_get(answer, "protocol"));
	if (!build_failed(b, &f))
		build_next(b);
}

void build_init(struct build *b)
{
	struct template *t = &b->t->t;
	unsigned char raw[64];
	char entropy[96], now[RFC3339_LEN];
	autojson json_t *j = NULL;
	struct fail why = { 0 };

	random_bytes(raw, sizeof(raw));
	hex_encode(b->token, raw, 32);
	hex_encode(b->machine_id, raw + 32, 16);
	random_bytes(raw, sizeof(raw));
	base64_encode(entropy, raw, sizeof(raw));
	entropy[base64_len(sizeof(raw))] = '\0';
	rfc3339_format(now, real_ns());
	b->generation = generation_after(0);
	j = json_pack("{s:I,s:s,s:s,s:s,s:s,s:s,s:s,s:O?}", "generation", (json_int_t)b->generation, "id", b->m->id, "hostname", "template",
		      "machine_id", b->machine_id, "timestamp", now, "entropy", entropy, "accessToken", b->token, "envVars", t->env);
	if (!j) {
		fail_set(&why, -ENOMEM, "out of memory");
		(void)build_failed(b, &why);
		return;
	}
	if (t->user[0])
		json_object_set_new(j, "defaultUser", json_string(t->user));
	if (t->workdir[0])
		json_object_set_new(j, "defaultWorkdir", json_string(t->workdir));
	agent_call(b->agent, NULL, "POST", "/init", j, INIT_TIMEOUT_MS, inited, b);
}

/* --- the recipe --- */

static void one_line(char *out, size_t size, struct str s)
{
	size_t n = 0;

	if (s.n > size - 1) {
		s.p += s.n - (size - 1);
		s.n = size - 1;
	}
	for (size_t i = 0; i < s.n; i++)
		out[n++] = (unsigned char)s.p[i] < 0x20 ? ' ' : s.p[i];
	out[n] = '\0';
}

static void setup_done(int status, struct str output, const struct fail *why, void *arg)
{
	struct build *b = arg;
	struct fail f = *why;
	char tail[140];

	one_line(tail, sizeof(tail), output);
	if (!f.err && status)
		fail_as(&f, ERR_bad_request, "setup step %zu exited with %d: %s", b->setup_at + 1, status, tail);
	if (build_failed(b, &f))
		return;
	b->setup_at++;
	build_again(b);
}

static void workdir_made(int status, struct str output, const struct fail *why, void *arg)
{
	struct build *b = arg;
	struct fail f = *why;
	char tail[140];

	one_line(tail, sizeof(tail), output);
	if (!f.err && status)
		fail_as(&f, ERR_bad_request, "workdir: it could not be made: %s", tail);
	if (!build_failed(b, &f))
		build_next(b);
}

/* As a container's WORKDIR: it is made if it is not there, and everything from here on begins in it. */
bool build_workdir(struct build *b)
{
	struct template *t = &b->t->t;
	char cmd[4096], quoted[4 * sizeof(t->workdir)];
	size_t n = 0;

	if (t->workdir[0] != '/')
		return false;
	for (const char *p = t->workdir; *p; p++) {
		if (*p == '\'') {
			memcpy(quoted + n, "'\\''", 4);
			n += 4;
		} else {
			quoted[n++] = *p;
		}
	}
	quoted[n] = '\0';
	snprintf(cmd, sizeof(cmd), "test -d '%s' || { mkdir -p -- '%s' && chown -- '%s' '%s'; }", quoted, quoted,
		 t->user[0] ? t->user : "user", quoted);
	agent_run(b->sp, b->agent, b->token, &(struct agent_run){ .cmd = cmd, .user = "root", .cwd = "/", .timeout_ms = WARM_MS },
		  workdir_made, b);
	return true;
}

bool build_setup(struct build *b)
{
	const char *cmd = json_string_value(json_array_get(b->t->setup, b->setup_at));
	size_t n = json_array_size(b->t->setup);
	char step[96];

	if (!cmd || (b->is_variant && !b->files.read_only))
		return false;
	snprintf(step, sizeof(step), "setup %zu of %zu: %.60s", b->setup_at + 1, n, cmd);
	operation_step(b->op, step, 0.5 + 0.1 * (double)b->setup_at / (double)n);
	agent_run(b->sp, b->agent, b->token, &(struct agent_run){ .cmd = cmd, .user = "root", .timeout_ms = SETUP_MS }, setup_done, b);
	return true;
}

static void started(int status, struct str output, const struct fail *why, void *arg)
{
	struct build *b = arg;

	if (!build_failed(b, why))
		build_next(b);
}

bool build_start(struct build *b)
{
	struct agent_run run = { .cmd = b->t->t.start_cmd, .user = b->t->t.user, .tag = TAG_START, .leave = true, .timeout_ms = WARM_MS };

	if (!run.cmd[0])
		return false;
	agent_run(b->sp, b->agent, b->token, &run, started, b);
	return true;
}

static void ready_asked(int status, struct str output, const struct fail *why, void *arg)
{
	struct build *b = arg;
	struct fail f = { 0 };
	char tail[120];

	if (!why->err && status == 0) {
		if (!build_failed(b, why))
			build_next(b);
		return;
	}
	one_line(tail, sizeof(tail), output);
	if (mono_ms() > b->until_ms)
		fail_as(&f, ERR_deadline_exceeded, "the template was not ready in %d s: %s", BUILD_READY_MS / 1000, why->err ? why->msg : tail);
	if (build_failed(b, &f))
		return;
	later_set(b->sp, &b->pause, READY_EVERY_MS, build_again, b);
}

bool build_ready(struct build *b)
{
	struct agent_run run = { .cmd = b->t->ready_cmd, .user = b->t->t.user, .timeout_ms = WARM_MS };

	if (!run.cmd[0])
		return false;
	agent_run(b->sp, b->agent, b->token, &run, ready_asked, b);
	return true;
}

static void warmed(int status, struct str output, const struct fail *why, void *arg)
{
	struct build *b = arg;

	/* An image may have no shell at all; then there is nothing to warm. */
	if (why->err)
		log_info("template %s: nothing was warmed up: %s", b->t->t.name, why->msg);
	if (!build_failed(b, &(struct fail){ 0 }))
		build_next(b);
}

void build_warm(struct build *b)
{
	static const struct agent_run run = { .cmd = WARM_CMD, .user = "root", .cwd = "/", .timeout_ms = WARM_MS };

	agent_run(b->sp, b->agent, b->token, &run, warmed, b);
}

static void frozen(int status, json_t *answer, const struct fail *why, void *arg)
{
	struct build *b = arg;

	if (!build_failed(b, why))
		build_next(b);
}

void build_freeze(struct build *b)
{
	agent_call(b->agent, b->token, "POST", "/freeze", NULL, 15000, frozen, b);
}
