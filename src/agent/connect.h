/* connect.h - the Connect protocol with its JSON codec: what E2B's clients speak.
 *
 * Pure parts: codes, envelopes, and reading proto3 JSON leniently (camelCase and snake_case,
 * numbers in digits or strings, null is absent, unknown members are skipped). The calls themselves
 * are in rpc.h. */
#ifndef SPACE_AGENT_CONNECT_H
#define SPACE_AGENT_CONNECT_H

#include "base/json.h"

enum rpc_code {
	RPC_OK,
	RPC_CANCELED,
	RPC_UNKNOWN,
	RPC_INVALID_ARGUMENT,
	RPC_DEADLINE_EXCEEDED,
	RPC_NOT_FOUND,
	RPC_ALREADY_EXISTS,
	RPC_PERMISSION_DENIED,
	RPC_RESOURCE_EXHAUSTED,
	RPC_FAILED_PRECONDITION,
	RPC_ABORTED,
	RPC_OUT_OF_RANGE,
	RPC_UNIMPLEMENTED,
	RPC_INTERNAL,
	RPC_UNAVAILABLE,
	RPC_DATA_LOSS,
	RPC_UNAUTHENTICATED,
	RPC_CODES
};

const char *rpc_code_name(enum rpc_code code);
int rpc_code_status(enum rpc_code code); /* HTTP status of a unary error */

#define FRAME_HEAD 5
#define FRAME_END 0x02
#define FRAME_COMPRESSED 0x01

void frame_head(char out[FRAME_HEAD], uint8_t flags, uint32_t len);

/* The next envelope at the start of *IN, taken off it. 1; 0: needs more; -EBADMSG: flags we do not
 * know, or compressed; -EFBIG: more than MAX bytes. */
int frame_next(struct str *in, size_t max, uint8_t *flags, struct str *payload);

/* Members of a message. "a_b" is the proto name; "aB" is looked for first. NULL when absent or
 * null. */
json_t *msg_get(const json_t *msg, const char *name);
/* 0; -EINVAL for another type. OUT keeps its value when the member is absent. */
int msg_str(const json_t *msg, const char *name, const char **out);
int msg_bool(const json_t *msg, const char *name, bool *out);
int msg_int(const json_t *msg, const char *name, int64_t min, int64_t max, int64_t *out);
/* Bytes in base64 (standard or URL alphabet), for the caller to free; *out NULL when absent. */
int msg_bytes(const json_t *msg, const char *name, char **out, size_t *n);

#endif
