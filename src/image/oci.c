/* oci.c - images out of OCI layouts and registries: skopeo copies, umoci unpacks the layers, we
 * read the configuration.
 *
 * Kept of the configuration: Env, WorkingDir, User, and Entrypoint and Cmd as one command. */
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "image/images.h"
#include "image/oci.h"
#include "image/rootfs.h"
#include "image/tool.h"

#define TAG "image"
#define BLOB_MAX (8 * MIB) /* of an index, manifest or configuration */
#define REF_MAX 512

/* --- the configuration --- */

static const char *text_of(json_t *obj, const char *key)
{
	const char *s = json_string_value(json_object_get(obj, key));

	return s ? s : "";
}

/* ["NAME=value", …] into an object; what has no '=' is left out. */
static int read_env(json_t *list, json_t **out)
{
	json_t *env = json_object(), *v;
	size_t i;

	if (!env)
		return -ENOMEM;
	json_array_foreach(list, i, v)
	{
		struct str s = str_of(json_string_value(v)), key, value;
		autofree char *name = NULL;

		if (!str_cut(s, '=', &key, &value) || !key.n)
			continue;
		name = str_dup(key);
		if (!name || json_object_set_new(env, name, json_stringn(value.p, value.n))) {
			json_decref(env);
			return -ENOMEM;
		}
	}
	*out = env;
	return 0;
}

/* Entrypoint and then Cmd: together they are what runs. */
static int read_cmd(json_t *entry, json_t *cmd, json_t **out)
{
	json_t *both = json_array(), *v;
	size_t i;
	int r = both ? 0 : -ENOMEM;

	json_array_foreach(entry, i, v) if (!r && json_is_string(v)) r =
		json_array_append(both, v) ? -ENOMEM : 0;
	json_array_foreach(cmd, i, v) if (!r && json_is_string(v)) r =
		json_array_append(both, v) ? -ENOMEM : 0;
	if (r < 0 || !json_array_size(both)) {
		json_decref(both);
		return r;
	}
	*out = both;
	return 0;
}

int oci_config_read(struct str text, struct image_info *info, struct fail *why)
{
	autojson json_t *doc = json_read(text, why);
	json_t *config = json_object_get(doc, "config");
	struct str user, group;
	const char *arch;
	int r;

	if (!doc)
		return -EBADMSG;
	arch = text_of(doc, "architecture");
	if (*arch && strcmp(arch, "amd64"))
		return fail_as(why, ERR_unsupported, "the image is for %.32s, not for amd64", arch);
	/* "user:group": the group is the user's own. */
	str_cut(str_of(text_of(config, "User")), ':', &user, &group);
	if (str_copy(info->user, sizeof(info->user), user) || str_has_ctl(user))
		return fail_as(why, ERR_bad_request, "the image's User is too long or malformed");
	if (str_copy(info->workdir, sizeof(info->workdir), str_of(text_of(config, "WorkingDir"))) ||
		str_has_ctl(str_of(info->workdir)))
		return fail_as(
			why, ERR_bad_request, "the image's WorkingDir is too long or malformed");
	r = read_env(json_object_get(config, "Env"), &info->env);
	if (!r)
		r = read_cmd(json_object_get(config, "Entrypoint"), json_object_get(config, "Cmd"),
			&info->cmd);
	return r < 0 ? fail_set(why, r, "the image's configuration: out of memory") : 0;
}

/* blobs/sha256/HEX of the layout in DIR, by a descriptor's digest. */
static int read_blob(int dir, const char *digest, char **text, size_t *len, struct fail *why)
{
	struct digest d;
	char path[96];
	ssize_t n;

	if (digest_parse(&d, str_of(digest)))
		return fail_as(why, ERR_bad_request, "the OCI layout names a malformed digest");
	snprintf(path, sizeof(path), "blobs/sha256/%s", d.hex);
	n = file_read(dir, path, text, BLOB_MAX);
	if (n < 0)
		return fail_as(why, ERR_bad_request,
			"the OCI layout lacks %.20s… or it is over %llu MiB", digest,
			BLOB_MAX / MIB);
	*len = (size_t)n;
	return 0;
}

/* index.json -> manifest -> configuration. The layout is the one that skopeo just wrote, with one
 * image in it. */
static int read_config(int dir, struct image_info *info, struct fail *why)
{
	autofree char *index = NULL, *manifest = NULL, *config = NULL;
	autojson json_t *ij = NULL, *mj = NULL;
	ssize_t n = file_read(dir, "index.json", &index, BLOB_MAX);
	size_t len = 0;
	int r;

	if (n < 0)
		return fail_as(why, ERR_bad_request, "the OCI layout has no index.json");
	ij = json_read((struct str){ index, (size_t)n }, why);
	if (!ij)
		return -EBADMSG;
	r = read_blob(dir, text_of(json_array_get(json_object_get(ij, "manifests"), 0), "digest"),
		&manifest, &len, why);
	if (r < 0)
		return r;
	mj = json_read((struct str){ manifest, len }, why);
	if (!mj)
		return -EBADMSG;
	r = read_blob(dir, text_of(json_object_get(mj, "config"), "digest"), &config, &len, why);
	return r < 0 ? r : oci_config_read((struct str){ config, len }, info, why);
}

/* --- the tools --- */

struct waiting {
	const struct progress *pr;
	const char *what;
};

static void on_tick(void *arg)
{
	struct waiting *w = arg;

	step(w->pr, w->what, -1);
}

int oci_ref_check(const char *ref, struct fail *why)
{
	static const char *const kinds[] = { "oci:", "docker://",
		"oci-archive:", "docker-archive:" };
	struct str s = str_of(ref);

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		size_t n = strlen(kinds[i]);

		if (!str_starts(s, kinds[i]) || s.n == n || s.n > REF_MAX || str_has_ctl(s))
			continue;
		/* Files are named from the root: the daemon's directory is nobody's business. */
		if (strcmp(kinds[i], "docker://") && ref[n] != '/')
			continue;
		return 0;
	}
	fail_as(why, ERR_bad_request, "ref: not a reference to an image");
	fail_remedy(
		why, "oci:/PATH/OF/LAYOUT[:TAG], oci-archive:/FILE or docker://HOST/NAME[:TAG]");
	return -EINVAL;
}

/* skopeo and umoci log like time="…" level=fatal msg="…": what is in msg is meant for people. */
static int reword(const char *what, const char *remedy, int err, struct fail *why)
{
	char copy_[240], text[240];
	const char *s;
	size_t n = 0;

	if (!why || err == -ENOSPC || err == -ENODEV || err == -ETIMEDOUT || err == -ENOMEM)
		return err;
	memcpy(copy_, why->msg, sizeof(copy_));
	s = strstr(copy_, "msg=\"");
	if (!s)
		s = strstr(copy_, "failed: ");
	for (s = !s	     ? copy_
		 : *s == 'm' ? s + 5
			     : s + 8;
		*s && *s != '"' && n < sizeof(text) - 1; s++) {
		if (*s == '\\' && s[1])
			s++;
		text[n++] = *s;
	}
	text[n] = 0;
	n = n > 180 ? n - 180 : 0; /* the cause is at the end */
	fail_as(why, ERR_bad_request, "%s: %s%s", what, n ? "…" : "", text + n);
	fail_remedy(why, "%s", remedy);
	return why->err;
}

static int copy(struct pool *p, const char *ref, const char *layout, const struct progress *pr,
	struct fail *why)
{
	char target[4600];
	struct waiting w = { pr, "fetching the image" };
	const char *argv[16] = { "skopeo" };
	size_t n = 1;
	const struct tool t = { .argv = argv,
		.tmp = p->tmp,
		.package = "skopeo",
		.isolate = true,
		.timeout_s = 3600,
		.tick = on_tick,
		.arg = &w };
	int r;

	snprintf(target, sizeof(target), "oci:%s:" TAG, layout);
	/* Whose signatures count is the host's policy to say; where it has none, TLS and digests
	 * are what there is. */
	if (access("/etc/containers/policy.json", F_OK))
		argv[n++] = "--insecure-policy";
	argv[n++] = "--override-os=linux";
	argv[n++] = "--override-arch=amd64";
	argv[n++] = "--tmpdir";
	argv[n++] = p->tmp;
	argv[n++] = "copy";
	argv[n++] = "--quiet";
	/* Nobody has a certificate for it, and what is said to it crosses no network. For other
	 * hosts it is registries.conf that may allow this. */
	if (oci_ref_is_loopback(ref))
		argv[n++] = "--src-tls-verify=false";
	argv[n++] = ref;
	argv[n++] = target;
	step(pr, w.what, -1);
	r = FAULT_WHY(why, tool_run(&t, why));
	return r < 0 ? reword("the image cannot be fetched",
			       "skopeo inspect REF on this host says more", r, why)
		     : 0;
}

static int unpack(struct pool *p, const char *layout, const char *root, const struct progress *pr,
	struct fail *why)
{
	char image[4600];
	struct waiting w = { pr, "unpacking the layers" };
	const char *const argv[] = { "umoci", "--log=error", "raw", "unpack", "--image", image,
		root, NULL };
	const struct tool t = { .argv = argv,
		.tmp = p->tmp,
		.package = "umoci",
		.isolate = true,
		.timeout_s = 3600,
		.tick = on_tick,
		.arg = &w };
	int r;

	snprintf(image, sizeof(image), "%s:" TAG, layout);
	step(pr, w.what, -1);
	r = FAULT_WHY(why, tool_run(&t, why));
	return r < 0 ? reword("the image cannot be unpacked",
			       "umoci raw unpack on this host says more", r, why)
		     : 0;
}

static int build(struct pool *p, const char *name, const char *ref, struct tree *tree,
	const struct progress *pr, struct image_info *info, struct fail *why)
{
	char layout[4400], root[4400];
	autoclose int layout_fd = -1, root_fd = -1;
	int r;

	snprintf(layout, sizeof(layout), "%s/layout", tree->path);
	snprintf(root, sizeof(root), "%s/root", tree->path);
	r = copy(p, ref, layout, pr, why);
	if (r < 0)
		return r;
	layout_fd = dir_open(tree->fd, "layout");
	if (layout_fd < 0)
		return pool_fail(why, layout_fd, "%s", layout);
	r = read_config(layout_fd, info, why);
	if (!r)
		r = unpack(p, layout, root, pr, why);
	if (r < 0)
		return r;
	root_fd = dir_open(tree->fd, "root");
	if (root_fd < 0)
		return pool_fail(why, root_fd, "%s", root);
	r = rootfs_mount_points(root_fd, why);
	return r ? r : image_pack(p, name, root, tree->began_ns, pr, info, why);
}

int image_build_oci(struct pool *p, const char *name, const char *ref, const struct progress *pr,
	struct image_info *out, struct fail *why)
{
	struct image_info info = { 0 };
	struct tree tree;
	int r;

	r = image_name_check(name, why);
	if (!r)
		r = oci_ref_check(ref, why);
	if (!r)
		r = tree_begin(p, "oci-", &tree, why);
	if (r < 0)
		return r;
	r = build(p, name, ref, &tree, pr, &info, why);
	if (r < 0)
		image_info_clear(&info);
	else
		*out = info;
	step(pr, "cleaning up", -1);
	tree_end(&tree);
	return r;
}
