/* create.h - making a sandbox: the options that `run` and `create` share. */
#ifndef SPACE_CLI_CREATE_H
#define SPACE_CLI_CREATE_H

#include "cli/cli.h"

struct create_o {
	const char *template, *name, *timeout, *idle_timeout, *memory, *disk;
	int64_t vcpu;
	struct opt_list env, meta, tmpfs;
	bool suspend, auto_wake, read_only;
};

#define CREATE_OPTS(type, m) \
	{ "template", 't', OPT_STR, offsetof(type, m.template), "NAME", "the template to start from (default: base)" }, \
	{ "name", 0, OPT_STR, offsetof(type, m.name), "NAME", "a name beside the id" }, \
	{ "timeout", 0, OPT_STR, offsetof(type, m.timeout), "TIME", "ends that long after its start: 90, 10m, 2h; 0: never" }, \
	{ "idle-timeout", 0, OPT_STR, offsetof(type, m.idle_timeout), "TIME", "ends after that long without activity" }, \
	{ "auto-wake", 0, OPT_FLAG, offsetof(type, m.auto_wake), NULL, "a call to it while paused wakes it" }, \
	{ "env", 'e', OPT_LIST, offsetof(type, m.env), "NAME=VALUE", "environment of its commands (NAME alone: as here)" }, \
	{ "meta", 'm', OPT_LIST, offsetof(type, m.meta), "KEY=VALUE", "a label to find it by" }, \
	{ "vcpu", 0, OPT_INT, offsetof(type, m.vcpu), "N", "virtual CPUs" }, \
	{ "memory", 0, OPT_STR, offsetof(type, m.memory), "SIZE", "memory: 512M, 2G" }, \
	{ "disk", 0, OPT_STR, offsetof(type, m.disk), "SIZE", "disk, at least the template's" }, \
	{ "read-only", 0, OPT_FLAG, offsetof(type, m.read_only), NULL, "a root file system that keeps nothing written" }, \
	{ "tmpfs", 0, OPT_LIST, offsetof(type, m.tmpfs), "PATH:SIZE", "memory as a directory: /work:256M" }

/* Words "NAME=VALUE" as a JSON object; with FROM_ENV "NAME" alone takes this environment's value. NULL with a usage error in WHY. */
json_t *pairs_json(const struct opt_list *l, const char *option, bool from_env, struct fail *why);
/* The request's body, or NULL with a usage error in WHY. */
json_t *create_request(const struct create_o *o, struct fail *why);
/* Creates and waits; BODY is released. Tried again over a broken connection without making two. */
int sandbox_create(struct cli *c, json_t *body, json_t **out, struct fail *why);

#endif
