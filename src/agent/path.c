#include "agent/path.h"

#include <stdio.h>

void path_clean(char *s)
{
	bool rooted = s[0] == '/';
	size_t r = 0, w = 0, floor; /* nothing before FLOOR may be taken back by ".." */
	size_t n = strlen(s);

	if (rooted)
		r = w = 1;
	floor = w;
	while (r < n) {
		size_t len = strcspn(s + r, "/");

		if (len == 0) {
			r++;
			continue;
		}
		if (len == 1 && s[r] == '.') {
			r += len;
			continue;
		}
		if (len == 2 && s[r] == '.' && s[r + 1] == '.') {
			r += len;
			if (w > floor) {
				while (w > floor && s[w - 1] != '/')
					w--;
				if (w > floor)
					w--; /* the slash before it */
			} else if (!rooted) {
				if (w > 0)
					s[w++] = '/';
				s[w++] = '.';
				s[w++] = '.';
				floor = w;
			}
			continue;
		}
		if (w > (rooted ? 1U : 0U))
			s[w++] = '/';
		memmove(s + w, s + r, len);
		w += len;
		r += len;
	}
	if (w == 0)
		s[w++] = '.';
	s[w] = '\0';
}

static int join(const char *home, struct str rest, char out[PATH_LEN])
{
	int n;

	if (rest.n >= PATH_LEN)
		return -ENAMETOOLONG;
	n = snprintf(out, PATH_LEN, "%s/%.*s", home, STR_ARG(rest));
	if (n < 0 || n >= PATH_LEN)
		return -ENAMETOOLONG;
	path_clean(out);
	return 0;
}

int path_resolve(struct str path, const char *home, const char *workdir, char out[PATH_LEN],
	struct fail *why)
{
	int r;

	if (path.n && memchr(path.p, '\0', path.n))
		return fail_set(why, -EINVAL, "the path has a NUL byte");
	if (home[0] != '/')
		return fail_set(why, -EINVAL, "the user has no home directory");
	if (path.n == 0 && workdir && workdir[0] != '\0') {
		if (workdir[0] == '/')
			r = str_copy(out, PATH_LEN, str_of(workdir));
		else
			r = join(home, str_of(workdir), out);
	} else if (path.n == 0) {
		r = str_copy(out, PATH_LEN, str_of(home));
	} else if (path.p[0] == '/') {
		r = str_copy(out, PATH_LEN, path);
	} else if (path.p[0] == '~') {
		if (path.n > 1 && path.p[1] != '/')
			return fail_set(
				why, -EINVAL, "cannot expand the home directory of another user");
		r = join(home, (struct str){ path.p + 1, path.n - 1 }, out);
	} else {
		r = join(home, path, out);
	}
	if (r < 0)
		return fail_set(why, r, "the path is too long");
	return 0;
}

struct str path_base(const char *path)
{
	size_t end = strlen(path), at;

	while (end > 1 && path[end - 1] == '/')
		end--;
	at = end;
	if (end == 1 && path[0] == '/')
		return (struct str){ path, 1 };
	while (at > 0 && path[at - 1] != '/')
		at--;
	return (struct str){ path + at, end - at };
}

size_t path_dir_len(const char *path)
{
	size_t end = strlen(path);

	while (end > 1 && path[end - 1] == '/')
		end--;
	while (end > 0 && path[end - 1] != '/')
		end--;
	while (end > 1 && path[end - 1] == '/')
		end--;
	return end;
}
