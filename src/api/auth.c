/* auth.c - who asks, and what they may do.
 *
 * On the Unix socket the peer's uid is the credential: root, our own uid, and the members of socket_group. On TCP it is a
 * key. An attach token opens the output of the one command it was made for, and nothing else. */
#include <fcntl.h>
#include <grp.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <pwd.h>
#include <stdio.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"

#define KEY_DIGITS 40
#define MAC_LEN 32

static const char *const scope_names[] = { "read", "use", "admin" };

int auth_init(struct api *api, struct fail *why)
{
	autoclose int dir = dir_open(AT_FDCWD, api->cfg->state_dir);
	autofree char *text = NULL;
	ssize_t n;
	int err;

	if (dir < 0)
		return fail_set(why, dir, "%s: %s", api->cfg->state_dir, strerror(-dir));
	n = file_read(dir, "attach.key", &text, 64);
	if (n == (ssize_t)sizeof(api->attach_key)) {
		memcpy(api->attach_key, text, sizeof(api->attach_key));
	} else if (n >= 0 || n == -ENOENT) {
		random_bytes(api->attach_key, sizeof(api->attach_key));
		err = file_write_atomic(dir, "attach.key", api->attach_key, sizeof(api->attach_key), 0600);
		if (err < 0)
			return fail_set(why, err, "%s/attach.key: %s", api->cfg->state_dir, strerror(-err));
	} else {
		return fail_set(why, (int)n, "%s/attach.key: %s", api->cfg->state_dir,
				strerror((int)-n));
	}
	if (api->cfg->socket_group[0]) {
		struct group *g = getgrnam(api->cfg->socket_group);

		api->has_group = g != NULL;
		if (g)
			api->group = g->gr_gid;
	}
	return 0;
}

/* Is UID in the group? The socket's mode has let it connect already; this holds also where somebody widened that. Reads
 * the user database, so the last answers are kept for some seconds. */
static bool in_group(struct api *api, uid_t uid)
{
	static struct { uid_t uid; bool in; int64_t until_ms; } seen[16];
	int64_t now = mono_ms();
	unsigned slot = uid % ARRAY_LEN(seen);
	struct passwd *pw;
	gid_t groups[64];
	int n = ARRAY_LEN(groups), i;
	bool in = false;

	if (!api->has_group)
		return false;
	if (seen[slot].uid == uid && seen[slot].until_ms > now)
		return seen[slot].in;
	pw = getpwuid(uid);
	if (pw && getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) >= 0)
		for (i = 0; i < n; i++)
			in = in || groups[i] == api->group;
	seen[slot].uid = uid;
	seen[slot].in = in;
	seen[slot].until_ms = now + 5000;
	return in;
}

bool auth_is_key(struct str t)
{
	size_t i;

	if (str_starts(t, "space_"))
		t = (struct str){ t.p + 6, t.n - 6 };
	else if (str_starts(t, "e2b_"))
		t = (struct str){ t.p + 4, t.n - 4 };
	else
		return false;
	if (t.n != KEY_DIGITS)
		return false;
	for (i = 0; i < t.n; i++)
		if (!((t.p[i] >= '0' && t.p[i] <= '9') || (t.p[i] >= 'a' && t.p[i] <= 'f') ||
		      (t.p[i] >= 'A' && t.p[i] <= 'F')))
			return false;
	return true;
}

static struct str key_of(struct req *r)
{
	const struct http_head *h = http_req(r->x);
	struct str v = http_get(h, "Authorization"), kind, rest;

	if (v.p && str_cut(v, ' ', &kind, &rest) && str_ieqz(kind, "bearer") &&
	    auth_is_key(str_trim(rest))) {
		r->key_in_authorization = true;
		return str_trim(rest);
	}
	return http_get(h, "X-API-Key");
}

/* The one copy of a tenant's name. There are few, and they are made by the operator; they stay. */
static const char *tenant_name(const char *name)
{
	static char *names[256];
	unsigned i;

	if (!strcmp(name, API_TENANT))
		return API_TENANT;
	for (i = 0; i < ARRAY_LEN(names) && names[i]; i++)
		if (!strcmp(names[i], name))
			return names[i];
	return i < ARRAY_LEN(names) ? (names[i] = strdup(name)) : NULL;
}

static int need(struct req *r, struct fail *why)
{
	if (r->scope >= r->route->scope)
		return 0;
	return fail_as(why, ERR_forbidden, "this call needs a key of scope \"%s\"; yours has \"%s\"",
		       scope_names[r->route->scope], scope_names[r->scope]);
}

static int by_token(struct req *r, struct fail *why)
{
	struct str token = http_get(http_req(r->x), "X-Attach-Token");
	autofree char *text = NULL;
	uint64_t pid;
	int err;

	if (!token.p) {
		err = req_query(r, "attach_token", &text, why);
		if (err < 0)
			return err;
		if (!text)
			return 0;
		token = str_of(text);
	}
	/* By id only: a name may be another sandbox's tomorrow. */
	if (str_u64(str_of(req_param(r, 1)), INT32_MAX, &pid) < 0 ||
	    attach_token_check(r->api, token, req_param(r, 0), (int64_t)pid, &r->attach_ms) < 0)
		return fail_as(why, ERR_unauthorized, "the attach token is not for this command");
	r->tenant = API_TENANT;
	return 1;
}

int auth_check(struct req *r, struct fail *why)
{
	const struct key_info *k;
	struct str text;
	uid_t uid;
	int err;

	r->local = http_peer_uid(r->x, &uid);
	if (r->route->flags & ROUTE_ATTACH) {
		err = by_token(r, why);
		if (err)
			return err < 0 ? err : 0;
	}
	r->tenant = API_TENANT;
	if (r->local) {
		if (uid != 0 && uid != geteuid() && !in_group(r->api, uid)) {
			if (r->route->flags & ROUTE_PUBLIC)
				return 0;
			fail_as(why, ERR_forbidden, "uid %u may not use the local socket", (unsigned)uid);
			fail_remedy(why, "become root, or a member of the group \"%s\"",
				    r->api->cfg->socket_group);
			return why->err;
		}
		r->scope = SCOPE_ADMIN;
		return 0;
	}
	if (r->route->flags & ROUTE_PUBLIC)
		return 0;
	text = key_of(r);
	if (!text.n)
		return fail_as(why, ERR_unauthorized, "the call carries no key");
	k = auth_is_key(text) ? key_check(r->api->sp, text) : NULL;
	if (!k)
		return fail_as(why, ERR_unauthorized, "the key is not known");
	r->scope = (unsigned char)k->scope;
	r->key = strdup(k->id);
	r->tenant = tenant_name(k->tenant);
	if (!r->key || !r->tenant)
		return fail_set(why, -ENOMEM, "out of memory");
	return need(r, why);
}

/* --- attach tokens: MS-MAC, the MAC over sandbox, pid and time --- */

static void mac(struct api *api, const char *sandbox, int64_t pid, int64_t ms, uint8_t out[MAC_LEN])
{
	char text[96];
	unsigned len = MAC_LEN;
	int n = snprintf(text, sizeof(text), "attach:%.32s:%lld:%lld", sandbox, (long long)pid,
			 (long long)ms);

	memset(out, 0, MAC_LEN);
	HMAC(EVP_sha256(), api->attach_key, sizeof(api->attach_key), (const uint8_t *)text, (size_t)n,
	     out, &len);
}

void attach_token_make(struct api *api, const char *sandbox, int64_t pid, int64_t now_ms,
		       char out[ATTACH_TOKEN_LEN])
{
	uint8_t m[MAC_LEN];
	int n = snprintf(out, ATTACH_TOKEN_LEN, "%lld-", (long long)now_ms);

	mac(api, sandbox, pid, now_ms, m);
	hex_encode(out + n, m, MAC_LEN);
}

int attach_token_check(struct api *api, struct str token, const char *sandbox, int64_t pid,
		       int64_t *made_ms)
{
	uint8_t want[MAC_LEN], have[MAC_LEN];
	struct str ms, hex;
	uint64_t n;

	if (!str_cut(token, '-', &ms, &hex) || str_u64(ms, INT64_MAX, &n) < 0 || !n ||
	    hex_decode(have, MAC_LEN, hex) < 0)
		return -EACCES;
	mac(api, sandbox, pid, (int64_t)n, want);
	if (!mem_eq_ct(want, have, MAC_LEN))
		return -EACCES;
	*made_ms = (int64_t)n;
	return 0;
}
