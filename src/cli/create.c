#include "cli/create.h"

#include "base/random.h"
#include "base/str.h"

json_t *pairs_json(const struct opt_list *l, const char *option, bool from_env, struct fail *why)
{
	autojson json_t *o = json_object();

	for (size_t i = 0; i < l->n; i++) {
		const char *eq = strchr(l->v[i], '=');
		const char *value = eq ? eq + 1 : from_env ? getenv(l->v[i]) : NULL;
		autofree char *name = strndup(l->v[i], eq ? (size_t)(eq - l->v[i]) : strlen(l->v[i]));

		if (!name || !*name || (!value && !from_env)) {
			fail_here(why, -EINVAL, "--%s \"%.100s\": NAME=VALUE is expected", option, l->v[i]);
			return NULL;
		}
		if (value && json_object_set_new(o, name, json_string(value)) < 0) {
			fail_here(why, -EINVAL, "--%s %.100s: not valid UTF-8", option, name);
			return NULL;
		}
	}
	return steal_ptr(o);
}

/* "/work:256M" */
static json_t *tmpfs_json(const struct opt_list *l, struct fail *why)
{
	autojson json_t *o = json_object();

	for (size_t i = 0; i < l->n; i++) {
		const char *colon = strrchr(l->v[i], ':');
		autofree char *path = colon ? strndup(l->v[i], (size_t)(colon - l->v[i])) : NULL;

		if (!path || path[0] != '/') {
			fail_here(why, -EINVAL, "--tmpfs \"%.100s\": PATH:SIZE is expected, such as /work:256M", l->v[i]);
			return NULL;
		}
		json_object_set_new(o, path, json_string(colon + 1));
	}
	return steal_ptr(o);
}

json_t *create_request(const struct create_o *o, struct fail *why)
{
	autojson json_t *b = json_pack("{s:s*,s:s*,s:s*,s:s*,s:s*,s:s*,s:s*,s:s*}", "template", o->template,
		o->disk_only ? "snapshot" : "checkpoint", o->from, "name", o->name, "timeout", o->timeout, "idle_timeout",
		o->idle_timeout, "on_timeout", o->on_timeout, "memory", o->memory, "disk", o->disk);
	const struct {
		const char *key;
		const struct opt_list *list;
		json_t *v;
	} maps[] = {
		{ "env", &o->env, pairs_json(&o->env, "env", true, why) },
		{ "metadata", &o->meta, pairs_json(&o->meta, "meta", false, why) },
		{ "tmpfs", &o->tmpfs, tmpfs_json(&o->tmpfs, why) },
	};
	bool bad = !b;

	if (o->from && o->template)
		bad = fail_here(why, -EINVAL, "--from and --template: one of both") < 0;
	else if (o->disk_only && !o->from)
		bad = fail_here(why, -EINVAL, "--disk-only goes with --from NODE; --disk SIZE is how large the disk is") < 0;
	else if (o->on_timeout && strcmp(o->on_timeout, "kill") && strcmp(o->on_timeout, "suspend"))
		bad = fail_here(why, -EINVAL, "--on-timeout: kill or suspend, not \"%.40s\"", o->on_timeout) < 0;
	for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
		if (!maps[i].v)
			bad = true;
		else if (maps[i].list->n)
			json_object_set(b, maps[i].key, maps[i].v);
		json_decref(maps[i].v);
	}
	if (!b)
		fail_here(why, -EINVAL, "an option is not valid UTF-8");
	if (bad)
		return NULL;
	if (o->vcpu)
		json_object_set_new(b, "vcpu", json_integer(o->vcpu));
	if (o->auto_wake)
		json_object_set_new(b, "auto_wake", json_true());
	if (o->read_only)
		json_object_set_new(b, "rootfs", json_string("read-only"));
	return steal_ptr(b);
}

/* On a machine where nothing was built yet the remedy is the one command that builds it. */
static void explain_template(struct cli *c, struct fail *why)
{
	autojson json_t *list = NULL;

	if (api_list(c, "/v1/templates", "templates", &list, NULL) < 0 || json_array_size(list))
		return;
	if (c->local)
		fail_remedy(why, "make up builds the image and the template \"base\" (make install'd: space image build base, then "
				 "space template build base --image base)");
	else
		fail_remedy(why, "space image build base && space template build base --image base");
}

int api_make(struct cli *c, const char *target, json_t *body, const char *what, json_t **out, struct fail *why)
{
	struct progress_bar *bar = progress_start(c, what);
	char key[ID_LEN + 1];
	struct api_opts o = { .header = { { "Idempotency-Key", key } } };
	int r = -EIO;

	id_make(key, 'k');
	for (int attempt = 0; attempt < 4; attempt++) {
		r = api_call_opts(c, "POST", target, json_incref(body), &o, out, why);
		if (r == 0 || why->code != ERR_daemon_down || attempt == 3)
			break;
		/* Broken off while the daemon worked: the same key gives what it made, if it did. */
		if (!strstr(why->msg, "broke off"))
			break;
		cli_sleep(c, 300 << attempt);
	}
	progress_end(bar);
	json_decref(body);
	return r;
}

/* A snapshot has no memory to continue from, whatever the caller thought it was. */
static int from_by_kind(struct cli *c, json_t *body, struct fail *why)
{
	const char *from = json_string_value(json_object_get(body, "checkpoint"));
	autofree char *path = NULL;
	autojson json_t *node = NULL;
	int r;

	if (!from)
		return 0;
	path = api_path("/v1/checkpoints/%s", from);
	r = api_call(c, "GET", path, NULL, &node, why);
	if (r == 0 && !strcmp(get_str(node, "kind"), "snapshot")) {
		json_object_set_new(body, "snapshot", json_string(from));
		json_object_del(body, "checkpoint");
	}
	return r;
}

int sandbox_create(struct cli *c, json_t *body, json_t **out, struct fail *why)
{
	int r = from_by_kind(c, body, why);

	if (r < 0) {
		json_decref(body);
		return r;
	}
	r = api_make(c, "/v1/sandboxes", body, "starting the sandbox", out, why);
	if (r < 0 && why->code == ERR_template_not_found)
		explain_template(c, why);
	return r;
}
