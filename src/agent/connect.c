#include "agent/connect.h"

#include <ctype.h>

#include "base/random.h"

static const struct {
	const char *name;
	int status;
} codes[] = {
	[RPC_OK] = { "ok", 200 },
	[RPC_CANCELED] = { "canceled", 499 },
	[RPC_UNKNOWN] = { "unknown", 500 },
	[RPC_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[RPC_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[RPC_NOT_FOUND] = { "not_found", 404 },
	[RPC_ALREADY_EXISTS] = { "already_exists", 409 },
	[RPC_PERMISSION_DENIED] = { "permission_denied", 403 },
	[RPC_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[RPC_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[RPC_ABORTED] = { "aborted", 409 },
	[RPC_OUT_OF_RANGE] = { "out_of_range", 400 },
	[RPC_UNIMPLEMENTED] = { "unimplemented", 501 },
	[RPC_INTERNAL] = { "internal", 500 },
	[RPC_UNAVAILABLE] = { "unavailable", 503 },
	[RPC_DATA_LOSS] = { "data_loss", 500 },
	[RPC_UNAUTHENTICATED] = { "unauthenticated", 401 },
};
static_assert(ARRAY_LEN(codes) == RPC_CODES, "one row per code");

const char *rpc_code_name(enum rpc_code code)
{
	return codes[code].name;
}

int rpc_code_status(enum rpc_code code)
{
	return codes[code].status;
}

void frame_head(char out[FRAME_HEAD], uint8_t flags, uint32_t len)
{
	out[0] = (char)flags;
	out[1] = (char)(len >> 24);
	out[2] = (char)(len >> 16);
	out[3] = (char)(len >> 8);
	out[4] = (char)len;
}

int frame_next(struct str *in, size_t max, uint8_t *flags, struct str *payload)
{
	const uint8_t *p = (const uint8_t *)in->p;
	uint32_t len;

	if (in->n < 1)
		return 0;
	if (p[0] & (uint8_t)~FRAME_END) /* compressed ones too: we never offer a coding */
		return -EBADMSG;
	if (in->n < FRAME_HEAD)
		return 0;
	len = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	if (len > max)
		return -EFBIG;
	if (in->n - FRAME_HEAD < len)
		return 0;
	*flags = p[0];
	*payload = (struct str){ in->p + FRAME_HEAD, len };
	*in = (struct str){ in->p + FRAME_HEAD + len, in->n - FRAME_HEAD - len };
	return 1;
}

json_t *msg_get(const json_t *msg, const char *name)
{
	char camel[64];
	size_t n = 0;
	json_t *v;

	for (const char *p = name; *p && n + 1 < sizeof(camel); p++)
		camel[n++] = *p == '_' && p[1] ? (char)toupper((unsigned char)*++p) : *p;
	camel[n] = '\0';
	v = json_object_get(msg, camel);
	if (!v)
		v = json_object_get(msg, name);
	return json_is_null(v) ? NULL : v;
}

int msg_str(const json_t *msg, const char *name, const char **out)
{
	json_t *v = msg_get(msg, name);

	if (!v)
		return 0;
	if (!json_is_string(v))
		return -EINVAL;
	*out = json_string_value(v);
	return 0;
}

int msg_bool(const json_t *msg, const char *name, bool *out)
{
	json_t *v = msg_get(msg, name);

	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return -EINVAL;
	*out = json_is_true(v);
	return 0;
}

int msg_int(const json_t *msg, const char *name, int64_t min, int64_t max, int64_t *out)
{
	json_t *v = msg_get(msg, name);
	int64_t n;

	if (!v)
		return 0;
	if (json_is_integer(v)) {
		n = json_integer_value(v);
	} else if (json_is_real(v)) {
		double d = json_real_value(v);

		if (!(d >= -9e15 && d <= 9e15) || d != (double)(int64_t)d)
			return -EINVAL;
		n = (int64_t)d;
	} else if (json_is_string(v)) {
		struct str s = str_of(json_string_value(v));
		bool minus = s.n > 0 && s.p[0] == '-';
		uint64_t u;

		if (minus)
			s = (struct str){ s.p + 1, s.n - 1 };
		if (str_u64(s, INT64_MAX, &u) < 0)
			return -EINVAL;
		n = minus ? -(int64_t)u : (int64_t)u;
	} else {
		return -EINVAL;
	}
	if (n < min || n > max)
		return -EINVAL;
	*out = n;
	return 0;
}

int msg_bytes(const json_t *msg, const char *name, char **out, size_t *n)
{
	json_t *v = msg_get(msg, name);
	autofree char *text = NULL, *bytes = NULL;
	size_t len;

	*out = NULL;
	if (!v)
		return 0;
	if (!json_is_string(v))
		return -EINVAL;
	len = json_string_length(v);
	text = malloc(len + 1);
	bytes = malloc(len * 3 / 4 + 4);
	if (!text || !bytes)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++) {
		char c = json_string_value(v)[i];

		text[i] = c == '-' ? '+' : c == '_' ? '/' : c;
	}
	if (base64_decode(bytes, n, (struct str){ text, len }) < 0)
		return -EINVAL;
	*out = steal_ptr(bytes);
	return 0;
}
