/* users.h - who is who in the guest, from /etc/passwd and /etc/group.
 *
 * Our own reader: the agent is linked statically, where NSS does not work, and the files belong to
 * the guest, so every line is taken as hostile: bounded, and skipped when it does not have its
 * fields. Nothing is cached between requests, because the guest may add users at any time. */
#ifndef SPACE_AGENT_USERS_H
#define SPACE_AGENT_USERS_H

#include "base/fail.h"
#include "base/str.h"

#define USER_NAME_MAX 64
#define USER_GROUPS_MAX 64

struct user {
	uid_t uid;
	gid_t gid;
	char name[USER_NAME_MAX];
	char home[256];
	gid_t groups[USER_GROUPS_MAX]; /* the primary one is first */
	unsigned ngroups;
};

/* Finds NAME in the texts of the two files. 0 or -ENOENT. */
int user_find(struct str passwd, struct str group, struct str name, struct user *out);

/* The same on the files themselves. "root" is there even when /etc/passwd is not. 0, -ENOENT,
 * -errno. */
int user_lookup(const char *name, struct user *out);

/* Names of uids and gids for one answer: the files are read at the first question. */
struct names {
	char *passwd, *group;
	bool read;
	bool have_uid, have_gid; /* the last answers */
	uid_t uid;
	gid_t gid;
	char user[USER_NAME_MAX], grp[USER_NAME_MAX];
};
void names_clear(struct names *n);
const char *names_user(struct names *n,
	uid_t uid); /* a number in digits when unknown; valid until the next call */
const char *names_group(struct names *n, gid_t gid);

#endif
