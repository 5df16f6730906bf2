#define OPENSSL_SUPPRESS_DEPRECATED /* the plain SHA256_* calls: 14 KB of a static program instead \
				       of 3 MB */
#include "agent/sign.h"

#include <openssl/sha.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/random.h"

void signature_make(char out[SIGNATURE_MAX], const char *path, const char *operation,
	const char *username, const char *token, const char *expiration)
{
	const char *parts[] = { path, operation, username, token, expiration };
	uint8_t digest[32];
	SHA256_CTX c;
	size_t n;

	SHA256_Init(&c);
	for (unsigned i = 0; i < ARRAY_LEN(parts) && parts[i]; i++) {
		if (i > 0)
			SHA256_Update(&c, ":", 1);
		SHA256_Update(&c, parts[i], strlen(parts[i]));
	}
	SHA256_Final(digest, &c);
	strcpy(out, "v1_");
	base64_encode(out + 3, digest, sizeof(digest));
	n = 3 + base64_len(sizeof(digest));
	while (n > 3 && out[n - 1] == '=')
		n--;
	out[n] = '\0';
}

bool files_allowed(struct http_exchange *x, const char *operation)
{
	char path[PATH_LEN] = "", user[USER_NAME_MAX] = "", given[SIGNATURE_MAX + 64] = "",
	     exp[32] = "", want[SIGNATURE_MAX];
	bool present, expires;
	uint64_t at = 0;
	ssize_t n;

	if (token_ok(x, &present) && (present || agent.token[0] == '\0'))
		return true;
	if (present) {
		answer_error(x, 401, "access token present in header but does not match");
		return false;
	}
	n = query_str(x, "signature", given, sizeof(given));
	if (n <= 0) {
		answer_error(x, 401,
			n == -ENOENT || n == 0 ? "missing signature query parameter"
					       : "invalid signature");
		return false;
	}
	n = query_str(x, "path", path, sizeof(path));
	if (n >= 0 || n == -ENOENT)
		n = query_str(x, "username", user, sizeof(user));
	expires = query_str(x, "signature_expiration", exp, sizeof(exp)) > 0;
	if ((n < 0 && n != -ENOENT) || (expires && str_u64(str_of(exp), INT64_MAX, &at) < 0)) {
		answer_error(x, 401, "invalid signature");
		return false;
	}
	signature_make(want, path, operation, user, agent.token, expires ? exp : NULL);
	if (strlen(given) != strlen(want) || !mem_eq_ct(given, want, strlen(want))) {
		answer_error(x, 401, "invalid signature");
		return false;
	}
	if (expires && (int64_t)at < real_ns() / NS_PER_S) {
		answer_error(x, 401, "signature is already expired");
		return false;
	}
	return true;
}
