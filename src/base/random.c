/* random.c - see random.h. */
#include "base/random.h"

#include <sys/random.h>

static const char id_digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";

void random_bytes(void *p, size_t n)
{
	char *at = p;

	while (n) {
		ssize_t got = getrandom(at, n, 0);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			abort(); /* EFAULT or ENOSYS: nothing sensible is possible without random
				    bytes */
		}
		at += got;
		n -= (size_t)got;
	}
}

void id_make(char out[ID_LEN + 1], char prefix)
{
	size_t n = 0;

	out[n++] = prefix;
	while (n < ID_LEN) {
		uint8_t bytes[32];

		random_bytes(bytes, sizeof(bytes));
		/* 252 is the largest multiple of 36 in a byte: what is above would favour some
		 * digits. */
		for (size_t i = 0; i < sizeof(bytes) && n < ID_LEN; i++)
			if (bytes[i] < 252)
				out[n++] = id_digits[bytes[i] % 36];
	}
	out[n] = '\0';
}

bool id_valid(struct str s, char prefix)
{
	if (s.n != ID_LEN || s.p[0] != prefix)
		return false;
	for (size_t i = 1; i < s.n; i++)
		if (!memchr(id_digits, s.p[i], 36))
			return false;
	return true;
}

void hex_encode(char *out, const void *p, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *in = p;

	for (size_t i = 0; i < n; i++) {
		*out++ = hex[in[i] >> 4];
		*out++ = hex[in[i] & 15];
	}
	*out = '\0';
}

int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int hex_decode(void *out, size_t n, struct str s)
{
	uint8_t *o = out;

	if (s.n != 2 * n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int hi = hex_digit(s.p[2 * i]), lo = hex_digit(s.p[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		o[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_len(size_t n)
{
	return (n + 2) / 3 * 4;
}

void base64_encode(char *out, const void *p, size_t n)
{
	const uint8_t *in = p;

	while (n >= 3) {
		uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

		*out++ = b64[v >> 18];
		*out++ = b64[v >> 12 & 63];
		*out++ = b64[v >> 6 & 63];
		*out++ = b64[v & 63];
		in += 3;
		n -= 3;
	}
	if (n) {
		uint32_t v = (uint32_t)in[0] << 16 | (n == 2 ? (uint32_t)in[1] << 8 : 0);

		*out++ = b64[v >> 18];
		*out++ = b64[v >> 12 & 63];
		*out++ = n == 2 ? b64[v >> 6 & 63] : '=';
		*out++ = '=';
	}
	*out = '\0';
}

static int b64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(void *out, size_t *n, struct str s)
{
	uint8_t *o = out;
	uint32_t v = 0;
	unsigned bits = 0;

	if (s.n && s.n % 4 == 0 && s.p[s.n - 1] == '=')
		s.n -= s.p[s.n - 2] == '=' ? 2 : 1;
	if (s.n % 4 == 1)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++) {
		int digit = b64_value(s.p[i]);

		if (digit < 0)
			return -EINVAL;
		v = (v << 6 | (uint32_t)digit) & 0xffff;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			*o++ = (uint8_t)(v >> bits);
		}
	}
	if (v & ((1U << bits) - 1)) /* two texts for the same bytes: one of them is wrong */
		return -EINVAL;
	*n = (size_t)(o - (uint8_t *)out);
	return 0;
}

bool mem_eq_ct(const void *a, const void *b, size_t n)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t diff = 0;

	for (size_t i = 0; i < n; i++)
		diff |= (uint8_t)(x[i] ^ y[i]);
	return diff == 0;
}
