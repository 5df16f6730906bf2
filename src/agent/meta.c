#include "agent/meta.h"

#include <ctype.h>
#include <stdio.h>
#include <sys/xattr.h>

#define PREFIX "user.e2b."
#define HEADER "x-metadata-"
#define KEY_MAX 246
#define SUM_MAX 4096
#define LIST_MAX (64 * 1024)

static bool token_byte(unsigned char c)
{
	return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int add(struct meta *m, struct str key, struct str value)
{
	char *k = str_dup(key), *v = str_dup(value);

	if (!k || !v) {
		free(k);
		free(v);
		return -ENOMEM;
	}
	for (char *p = k; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	for (unsigned i = 0; i < m->n; i++) {
		if (strcmp(m->v[i].key, k) ==
			0) { /* named twice: the first holds, as it does for other headers */
			free(k);
			free(v);
			return 0;
		}
	}
	m->v[m->n].key = k;
	m->v[m->n++].value = v;
	return 0;
}

int meta_from_headers(struct meta *m, const struct http_head *h, struct fail *why)
{
	size_t sum = 0;
	int r;

	*m = (struct meta){ 0 };
	for (unsigned i = 0; i < h->nheaders; i++) {
		struct str key = h->headers[i].name, value = h->headers[i].value;

		if (key.n <= strlen(HEADER) ||
			!str_ieqz((struct str){ key.p, strlen(HEADER) }, HEADER))
			continue;
		key = (struct str){ key.p + strlen(HEADER), key.n - strlen(HEADER) };
		if (key.n > KEY_MAX)
			return fail_set(
				why, -EINVAL, "metadata: a key of more than %d bytes", KEY_MAX);
		for (size_t j = 0; j < key.n; j++)
			if (!token_byte((unsigned char)key.p[j]))
				return fail_set(why, -EINVAL,
					"metadata: a key has a byte that does not belong into one");
		for (size_t j = 0; j < value.n; j++)
			if (value.p[j] < 0x20 || value.p[j] > 0x7e)
				return fail_set(
					why, -EINVAL, "metadata: values are printable ASCII");
		sum += key.n + value.n;
		if (sum > SUM_MAX || m->n == META_MAX)
			return fail_set(why, -EINVAL,
				"metadata: at most %d keys and %d bytes in all", META_MAX, SUM_MAX);
		r = add(m, key, value);
		if (r < 0)
			return fail_set(why, r, "out of memory");
	}
	return 0;
}

void meta_clear(struct meta *m)
{
	for (unsigned i = 0; i < m->n; i++) {
		free(m->v[i].key);
		free(m->v[i].value);
	}
	m->n = 0;
}

void meta_store(const struct meta *m, int fd)
{
	autofree char *list = malloc(LIST_MAX);
	char name[sizeof(PREFIX) + KEY_MAX];
	ssize_t n = list ? flistxattr(fd, list, LIST_MAX) : -1;

	for (char *p = list; n > 0 && p < list + n; p += strlen(p) + 1)
		if (strncmp(p, PREFIX, strlen(PREFIX)) == 0)
			(void)fremovexattr(fd, p);
	for (unsigned i = 0; i < m->n; i++) {
		snprintf(name, sizeof(name), PREFIX "%s", m->v[i].key);
		if (fsetxattr(fd, name, m->v[i].value, strlen(m->v[i].value), 0) < 0)
			return;
	}
}

void meta_json(struct jw *w, const struct meta *m)
{
	if (m->n == 0)
		return;
	jw_obj(w, "metadata");
	for (unsigned i = 0; i < m->n; i++)
		jw_str(w, m->v[i].key, m->v[i].value);
	jw_obj_end(w);
}

void meta_write(struct jw *w, const char *path)
{
	char list[4096], value[SUM_MAX + 1];
	ssize_t n = llistxattr(path, list, sizeof(list)), len;
	bool any = false;

	for (char *p = list; n > 0 && p < list + n; p += strlen(p) + 1) {
		if (strncmp(p, PREFIX, strlen(PREFIX)) != 0)
			continue;
		len = lgetxattr(path, p, value, sizeof(value));
		if (len < 0)
			continue;
		if (!any)
			jw_obj(w, "metadata");
		any = true;
		jw_strn(w, p + strlen(PREFIX), (struct str){ value, (size_t)len });
	}
	if (any)
		jw_obj_end(w);
}
