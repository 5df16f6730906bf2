/* sign.h - the right to one file: X-Access-Token, or a signature in the query that its holder made
 * (e2b's signed URLs). */
#ifndef SPACE_AGENT_SIGN_H
#define SPACE_AGENT_SIGN_H

#include "agent/agent.h"

#define SIGNATURE_MAX 64

/* "v1_" and the base64, without padding, of SHA-256(path:operation:username:token[:expiration]). */
void signature_make(char out[SIGNATURE_MAX], const char *path, const char *operation,
	const char *username, const char *token, const char *expiration);

/* OPERATION is "read" or "write". false: the request has been answered with 401. */
bool files_allowed(struct http_exchange *x, const char *operation);

#endif
