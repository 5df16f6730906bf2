#include "agent/users.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/file.h"

#define PASSWD_MAX (1024 * 1024)

/* The next line of *TEXT that is not empty; false at the end. */
static bool next_line(struct str *text, struct str *line)
{
	while (text->n > 0) {
		str_cut(*text, '\n', line, text);
		if (line->n > 0)
			return true;
	}
	return false;
}

/* Splits LINE at colons into exactly N fields; further colons stay in the last one. */
static bool split(struct str line, struct str *field, unsigned n)
{
	for (unsigned i = 0; i + 1 < n; i++) {
		struct str rest = { line.p, 0 };

		if (!str_cut(line, ':', &field[i], &rest))
			return false;
		line = rest;
	}
	field[n - 1] = line;
	return true;
}

static bool id_of(struct str s, uint32_t *out)
{
	uint64_t v;

	if (str_u64(s, UINT32_MAX - 1, &v) < 0)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool list_has(struct str list, struct str name)
{
	while (list.n > 0) {
		struct str one, rest = { list.p, 0 };

		str_cut(list, ',', &one, &rest);
		if (str_eq(one, name))
			return true;
		list = rest;
	}
	return false;
}

static void groups_find(struct str group, struct str name, struct user *u)
{
	struct str line, f[4];
	gid_t gid;

	u->groups[0] = u->gid;
	u->ngroups = 1;
	while (u->ngroups < USER_GROUPS_MAX && next_line(&group, &line)) {
		if (!split(line, f, 4) || !id_of(f[2], &gid) || gid == u->gid ||
			!list_has(f[3], name))
			continue;
		u->groups[u->ngroups++] = gid;
	}
}

int user_find(struct str passwd, struct str group, struct str name, struct user *out)
{
	struct str line, f[7];
	struct user u = { 0 };

	if (name.n == 0)
		return -ENOENT;
	while (next_line(&passwd, &line)) {
		if (!split(line, f, 7) || !str_eq(f[0], name))
			continue;
		if (!id_of(f[2], &u.uid) || !id_of(f[3], &u.gid) ||
			str_copy(u.name, sizeof(u.name), f[0]) < 0 ||
			str_copy(u.home, sizeof(u.home), f[5]) < 0)
			continue;
		if (u.home[0] != '/')
			strcpy(u.home, "/");
		groups_find(group, name, &u);
		*out = u;
		return 0;
	}
	return -ENOENT;
}

int user_lookup(const char *name, struct user *out)
{
	autofree char *passwd = NULL, *group = NULL;
	ssize_t np = file_read(AT_FDCWD, "/etc/passwd", &passwd, PASSWD_MAX);
	ssize_t ng = file_read(AT_FDCWD, "/etc/group", &group, PASSWD_MAX);
	int r;

	if (np < 0 && np != -ENOENT)
		return (int)np;
	r = user_find((struct str){ passwd, np < 0 ? 0 : (size_t)np },
		(struct str){ group, ng < 0 ? 0 : (size_t)ng }, str_of(name), out);
	if (r == -ENOENT && strcmp(name, "root") == 0) {
		*out = (struct user){ .name = "root", .home = "/root", .ngroups = 1 };
		return 0;
	}
	return r;
}

void names_clear(struct names *n)
{
	free(n->passwd);
	free(n->group);
	*n = (struct names){ 0 };
}

static void names_read(struct names *n)
{
	if (n->read)
		return;
	n->read = true;
	(void)file_read(AT_FDCWD, "/etc/passwd", &n->passwd, PASSWD_MAX);
	(void)file_read(AT_FDCWD, "/etc/group", &n->group, PASSWD_MAX);
}

/* The name of number ID in TEXT, whose lines have NFIELDS fields with name and number in the first
 * and third. */
static void name_of(const char *text, unsigned nfields, uint32_t id, char out[USER_NAME_MAX])
{
	struct str rest = str_of(text), line, f[7];
	uint32_t v;

	while (next_line(&rest, &line))
		if (split(line, f, nfields) && id_of(f[2], &v) && v == id &&
			str_copy(out, USER_NAME_MAX, f[0]) == 0)
			return;
	snprintf(out, USER_NAME_MAX, "%u", id);
}

const char *names_user(struct names *n, uid_t uid)
{
	if (!n->have_uid || n->uid != uid) {
		names_read(n);
		name_of(n->passwd, 7, uid, n->user);
		n->uid = uid;
		n->have_uid = true;
	}
	return n->user;
}

const char *names_group(struct names *n, gid_t gid)
{
	if (!n->have_gid || n->gid != gid) {
		names_read(n);
		name_of(n->group, 4, gid, n->grp);
		n->gid = gid;
		n->have_gid = true;
	}
	return n->grp;
}
