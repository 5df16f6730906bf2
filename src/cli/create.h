/* create.h - making a sandbox: the options that `run` and `create` share; bodies of requests. */
#ifndef SPACE_CLI_CREATE_H
#define SPACE_CLI_CREATE_H

#include "cli/cli.h"

struct create_o {
	const char *template, *from, *name, *timeout, *idle_timeout, *on_timeout, *memory, *disk;
	int64_t vcpu;
	struct opt_list env, meta, tmpfs;
	bool disk_only, auto_wake, read_only;
};

#define CREATE_OPTS(type, m) \
	{ "template", 't', OPT_STR, offsetof(type, m.template), "NAME", "the template to start from (default: base)" }, \
	{ "from", 0, OPT_STR, offsetof(type, m.from), "NODE", "instead of a template: a checkpoint (its processes go on) or snapshot (boots)" }, \
	{ "disk-only", 0, OPT_FLAG, offsetof(type, m.disk_only), NULL, "with --from: boot from a checkpoint's disk, without its processes" }, \
	{ "name", 0, OPT_STR, offsetof(type, m.name), "NAME", "a name beside the id" }, \
	{ "timeout", 0, OPT_STR, offsetof(type, m.timeout), "TIME", "ends that long after its start: 90, 10m, 2h; 0: never (5m)" }, \
	{ "idle-timeout", 0, OPT_STR, offsetof(type, m.idle_timeout), "TIME", "ends after that long without activity" }, \
	{ "on-timeout", 0, OPT_STR, offsetof(type, m.on_timeout), "WHAT", "at its deadline: kill (usual) or suspend" }, \
	{ "auto-wake", 0, OPT_FLAG, offsetof(type, m.auto_wake), NULL, "a call to it while paused or suspended wakes it" }, \
	{ "env", 'e', OPT_LIST, offsetof(type, m.env), "NAME=VALUE", "environment of its commands (NAME alone: as here)" }, \
	{ "meta", 'm', OPT_LIST, offsetof(type, m.meta), "KEY=VALUE", "a label to find it by" }, \
	{ "vcpu", 0, OPT_INT, offsetof(type, m.vcpu), "N", "virtual CPUs (as the template; base: 1)" }, \
	{ "memory", 0, OPT_STR, offsetof(type, m.memory), "SIZE", "memory: 512M, 2G (as the template; base: 512M)" }, \
	{ "disk", 0, OPT_STR, offsetof(type, m.disk), "SIZE", "disk, at least the template's (as the template; base: 5G)" }, \
	{ "read-only", 0, OPT_FLAG, offsetof(type, m.read_only), NULL, "a root file system that keeps nothing written" }, \
	{ "tmpfs", 0, OPT_LIST, offsetof(type, m.tmpfs), "PATH:SIZE", "memory as a directory: /work:256M" }

/* Words "NAME=VALUE" as a JSON object; with FROM_ENV "NAME" alone takes this environment's value. NULL with a usage error in WHY. */
json_t *pairs_json(const struct opt_list *l, const char *option, bool from_env, struct fail *why);
/* The request's body, or NULL with a usage error in WHY. */
json_t *create_request(const struct create_o *o, struct fail *why);
/* Bodies of POST …/branch (cmd_state.c; COUNT 1 to 64) and of POST /v1/prune (cmd_node.c), NULL with a usage error in WHY. */
json_t *branch_request(int64_t count, const char *label, const char *timeout, const struct opt_list *meta, struct fail *why);
json_t *prune_request(const char *older_than, const struct opt_list *kinds, bool dry_run, struct fail *why);
/* POST that makes something, and waits; BODY (may be NULL) is released. Tried again over a broken connection without making two.
 * WHAT is what progress says. */
int api_make(struct cli *c, const char *target, json_t *body, const char *what, json_t **out, struct fail *why);
/* Creates a sandbox. The kind of the node that --from names decides whether it continues or boots. BODY is released. */
int sandbox_create(struct cli *c, json_t *body, json_t **out, struct fail *why);

#endif
