/* dir.c - an image out of a directory, as it is: owners, modes, times, links and extended
 * attributes are kept. */
#include <stdio.h>
#include <sys/stat.h>

#include "image/images.h"

/* Is INNER the directory OUTER, or below it? Both are absolute and without links. */
static bool is_below(const char *inner, const char *outer)
{
	size_t n = strlen(outer);

	return !strcmp(outer, "/") || (!strncmp(inner, outer, n) && (!inner[n] || inner[n] == '/'));
}

static int check_dir(struct pool *p, const char *dir, char **real, struct fail *why)
{
	struct stat st;

	if (!dir || dir[0] != '/') {
		fail_as(why, ERR_bad_request, "path: an absolute path of a directory on the host");
		return -EINVAL;
	}
	*real = realpath(dir, NULL);
	if (!*real || stat(*real, &st)) {
		int err = -errno;

		fail_as(why, ERR_bad_request, "%.150s: %s", dir, strerror(-err));
		fail_remedy(why, "name a directory on the host that holds a root file system");
		return err == -ENOENT ? -EINVAL : err;
	}
	if (!S_ISDIR(st.st_mode)) {
		fail_as(why, ERR_bad_request, "%.150s: not a directory", dir);
		fail_remedy(why,
			"an OCI layout is built with oci:PATH, an unpacked root by its directory");
		return -ENOTDIR;
	}
	/* It would hold itself. */
	if (is_below(p->path, *real) || is_below(*real, p->path)) {
		fail_as(why, ERR_bad_request, "%.150s: holds the storage pool, or is in it", dir);
		fail_remedy(why, "copy what the image shall hold to a directory of its own");
		return -EINVAL;
	}
	return 0;
}

int image_build_dir(struct pool *p, const char *name, const char *dir, const struct progress *pr,
	struct image_info *out, struct fail *why)
{
	struct image_info info = { 0 };
	autofree char *real = NULL;
	int r;

	r = image_name_check(name, why);
	if (!r)
		r = check_dir(p, dir, &real, why);
	if (!r)
		r = image_pack(p, name, real, 0, pr, &info, why);
	if (!r)
		*out = info;
	return r;
}
