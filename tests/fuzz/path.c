/* path.c - path rules: an answer is absolute and shorter than PATH_LEN, cleaning is done once and
 * for all, a cleaned rooted path has no ".." left, and a name in an archive that was accepted has
 * none either. The first byte chooses home and working directory. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/path.h"
#include "agent/tar.h"

static bool has_dotdot(const char *s)
{
	while (*s) {
		size_t n = strcspn(s, "/");

		if (n == 2 && s[0] == '.' && s[1] == '.')
			return true;
		s += n + (s[n] == '/');
	}
	return false;
}

static void clean(const char *text, size_t n)
{
	char *once = malloc(n + 2), *twice;

	assert(once);
	memcpy(once, text, n);
	once[n] = '\0';
	n = strlen(once);
	path_clean(once);
	assert(strlen(once) <= (n ? n : 1));
	twice = strdup(once);
	path_clean(twice);
	assert(strcmp(once, twice) == 0);
	assert(once[0] != '/' || !has_dotdot(once));
	assert(path_dir_len(once) <= strlen(once));
	assert(path_base(once).n > 0);
	free(once);
	free(twice);
}

static void archive_name(const char *text, size_t n)
{
	char *name = malloc(n + 1);

	assert(name);
	memcpy(name, text, n);
	name[n] = '\0';
	if (tar_name_clean(name) == 0)
		assert(name[0] != '/' && !has_dotdot(name) && strlen(name) <= n);
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const char *const homes[] = { "/", "/root", "/home/user", "" }, *const dirs[] = { "",
		"/work", "sub/../x", "~" };
	struct str path;
	char out[PATH_LEN];

	if (n < 1)
		return 0;
	path = (struct str){ (const char *)p + 1, n - 1 };
	if (path_resolve(path, homes[p[0] & 3], dirs[p[0] >> 2 & 3], out, NULL) == 0) {
		assert(out[0] == '/' && strlen(out) < PATH_LEN);
		assert(n > 1 && path.p[0] == '/' ? strlen(out) == path.n : true);
		assert(path_base(out).n > 0 && path_dir_len(out) >= 1);
	}
	clean(path.p, path.n);
	archive_name(path.p, path.n);
	return 0;
}
