/* key.c - API keys. Of a key only the SHA-256 of its digits is kept; a check is one hash and a walk that compares every key in full,
 * so that its time says nothing about the digits. */
#include <openssl/sha.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "sandbox/core.h"

#define KEY_DIGITS 40
#define KEYS_MAX 10000
#define USED_STEP_NS (60 * NS_PER_S) /* last_used is written no more often than this */

struct key_core {
	struct key_info info; /* first */
	struct link link;
	unsigned char hash[SHA256_DIGEST_LENGTH];
	bool stored; /* on disk: only then it opens anything */
	int64_t saved_used_ns;
};

static const char *const scopes[] = { "read", "use", "admin" };

static int write_key(const struct key_core *k, struct buf *b)
{
	char hex[2 * SHA256_DIGEST_LENGTH + 1];
	struct jw w;

	hex_encode(hex, k->hash, sizeof(k->hash));
	jw_init(&w, b);
	jw_obj(&w, NULL);
	jw_str(&w, "name", k->info.name);
	jw_str(&w, "tenant", k->info.tenant);
	jw_str(&w, "scope", scopes[k->info.scope]);
	jw_str(&w, "sha256", hex);
	jw_int(&w, "created_ns", k->info.created_ns);
	jw_int(&w, "last_used_ns", k->info.last_used_ns);
	jw_obj_end(&w);
	return w.err;
}

static int put_key(struct space *sp, const struct key_core *k, store_done_fn *done, void *arg)
{
	struct store_txn *t = store_begin(sp->store);
	struct buf b;
	int r;

	if (!t)
		return -ENOMEM;
	buf_init(&b, 4 * KIB);
	r = write_key(k, &b);
	if (r == 0)
		(void)store_put(t, "key", k->info.id, buf_str(&b));
	buf_clear(&b);
	FAULT_VOID(store_commit(t, done, arg));
	return 0;
}

int key_load(struct space *sp, const char *id, struct str body, struct fail *why)
{
	struct rec {
		const char *name, *tenant, *scope, *sha256;
		int64_t created_ns, last_used_ns;
	} r = { 0 };
	static const struct field fields[] = {
		STR_FIELD(struct rec, name, 63, true), STR_FIELD(struct rec, tenant, 31, true), STR_FIELD(struct rec, scope, 7, true),
		STR_FIELD(struct rec, sha256, 64, true), INT_FIELD(struct rec, created_ns, 0, INT64_MAX, false),
		INT_FIELD(struct rec, last_used_ns, 0, INT64_MAX, false),
	};
	autojson json_t *j = json_read(body, why);
	struct key_core *k;

	if (!j || fields_read_loose(j, fields, ARRAY_LEN(fields), &r, why) < 0)
		return why->err;
	k = calloc(1, sizeof(*k));
	if (!k)
		return fail_set(why, -ENOMEM, "out of memory");
	if (hex_decode(k->hash, sizeof(k->hash), str_of(r.sha256)) < 0) {
		free(k);
		return fail_as(why, ERR_state_version, "the record of key %s is not understood", id);
	}
	(void)str_copy(k->info.id, sizeof(k->info.id), str_of(id));
	(void)str_copy(k->info.name, sizeof(k->info.name), str_of(r.name));
	(void)str_copy(k->info.tenant, sizeof(k->info.tenant), str_of(r.tenant));
	for (size_t i = 0; i < ARRAY_LEN(scopes); i++)
		if (!strcmp(scopes[i], r.scope))
			k->info.scope = (enum scope)i;
	k->info.created_ns = r.created_ns;
	k->info.last_used_ns = k->saved_used_ns = r.last_used_ns;
	k->stored = true;
	link_add_tail(&sp->keys, &k->link);
	return 0;
}

/* The 40 digits behind either prefix, hashed; false if TEXT does not look like a key. */
static bool hash_text(struct str text, unsigned char out[SHA256_DIGEST_LENGTH])
{
	size_t skip = str_starts(text, "space_") ? 6 : str_starts(text, "e2b_") ? 4 : 0;
	unsigned char raw[KEY_DIGITS / 2];
	char digits[KEY_DIGITS + 1];

	if (!skip || text.n != skip + KEY_DIGITS || hex_decode(raw, sizeof(raw), (struct str){ text.p + skip, KEY_DIGITS }) < 0)
		return false;
	hex_encode(digits, raw, sizeof(raw)); /* upper case is the same key */
	SHA256((unsigned char *)digits, KEY_DIGITS, out);
	return true;
}

const struct key_info *key_check(struct space *sp, struct str text)
{
	unsigned char hash[SHA256_DIGEST_LENGTH];
	struct key_core *found = NULL;
	int64_t now;

	if (!hash_text(text, hash))
		return NULL;
	link_each_safe(l, next, &sp->keys) {
		struct key_core *k = container_of(l, struct key_core, link);

		if (mem_eq_ct(hash, k->hash, sizeof(hash)) && k->stored)
			found = k;
	}
	if (!found)
		return NULL;
	now = real_ns();
	found->info.last_used_ns = now;
	if (now - found->saved_used_ns > USED_STEP_NS) {
		found->saved_used_ns = now;
		(void)put_key(sp, found, NULL, NULL);
	}
	return &found->info;
}

struct key_job {
	struct key_core *k;
	void (*made)(const struct key_info *k, const struct fail *why, void *arg);
	void (*gone)(const struct fail *why, void *arg);
	void *arg;
};

static void key_stored(void *arg, const struct fail *why)
{
	struct key_job *j = arg;

	if (why->err) {
		link_del(&j->k->link);
		j->made(NULL, why, j->arg);
		free(j->k);
	} else {
		j->k->stored = true;
		log_info("key %s: created name=%s scope=%s tenant=%s", j->k->info.id, j->k->info.name, scopes[j->k->info.scope],
			 j->k->info.tenant);
		j->made(&j->k->info, why, j->arg);
	}
	free(j);
}

void key_create(struct space *sp, const char *tenant, const char *name, enum scope scope, char text[64],
		void (*done)(const struct key_info *k, const struct fail *why, void *arg), void *arg)
{
	struct key_core *k = calloc(1, sizeof(*k));
	struct key_job *j = calloc(1, sizeof(*j));
	unsigned char raw[KEY_DIGITS / 2];
	char digits[KEY_DIGITS + 1];
	struct fail why = { 0 };
	unsigned n = 0;

	link_each_safe(l, next, &sp->keys)
		n++;
	if (!k || !j)
		fail_set(&why, -ENOMEM, "out of memory");
	else if (n >= KEYS_MAX)
		fail_as(&why, ERR_too_large, "there are %u keys already", n);
	else if (str_copy(k->info.name, sizeof(k->info.name), str_of(name)) < 0 || str_has_ctl(str_of(name)))
		fail_as(&why, ERR_bad_request, "name: at most %zu characters, none of them a control character",
			sizeof(k->info.name) - 1);
	if (!k || !j || why.err) {
		free(k);
		free(j);
		done(NULL, &why, arg);
		return;
	}
	random_bytes(raw, sizeof(raw));
	hex_encode(digits, raw, sizeof(raw));
	snprintf(text, 64, "space_%s", digits);
	SHA256((unsigned char *)digits, KEY_DIGITS, k->hash);
	id_make(k->info.id, 'k');
	(void)str_copy(k->info.tenant, sizeof(k->info.tenant), str_of(tenant));
	k->info.scope = scope;
	k->info.created_ns = real_ns();
	link_add_tail(&sp->keys, &k->link);
	*j = (struct key_job){ .k = k, .made = done, .arg = arg };
	if (put_key(sp, k, key_stored, j) < 0) {
		fail_set(&why, -ENOMEM, "out of memory");
		key_stored(j, &why);
	}
}

static void key_removed(void *arg, const struct fail *why)
{
	struct key_job *j = arg;

	j->gone(why, j->arg);
	free(j);
}

void key_delete(struct space *sp, const char *id, void (*done)(const struct fail *why, void *arg), void *arg)
{
	struct fail why = { 0 };

	link_each_safe(l, next, &sp->keys) {
		struct key_core *k = container_of(l, struct key_core, link);
		struct key_job *j;
		struct store_txn *t;

		if (strcmp(k->info.id, id) || !k->stored)
			continue;
		j = calloc(1, sizeof(*j));
		t = store_begin(sp->store);
		if (!j || !t) {
			free(j);
			free(t);
			fail_set(&why, -ENOMEM, "out of memory");
			done(&why, arg);
			return;
		}
		log_info("key %s: deleted", id);
		link_del(&k->link); /* stops working now; the answer waits for the disk */
		free(k);
		*j = (struct key_job){ .gone = done, .arg = arg };
		(void)store_del(t, "key", id);
		FAULT_VOID(store_commit(t, key_removed, j));
		return;
	}
	fail_as(&why, ERR_key_not_found, "no key \"%s\"", id);
	done(&why, arg);
}

void key_each(struct space *sp, int (*fn)(const struct key_info *k, void *arg), void *arg)
{
	link_each_safe(l, next, &sp->keys) {
		struct key_core *k = container_of(l, struct key_core, link);

		if (k->stored && !fn(&k->info, arg))
			return;
	}
}

bool key_any(struct space *sp)
{
	link_each_safe(l, next, &sp->keys)
		if (container_of(l, struct key_core, link)->stored)
			return true;
	return false;
}

void keys_clear(struct space *sp)
{
	link_each_safe(l, next, &sp->keys) {
		link_del(l);
		free(container_of(l, struct key_core, link));
	}
}
