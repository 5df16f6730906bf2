/* digest.c - SHA-256 in the two forms it is written: "sha256:HEX" outside, HEX in paths. */
#include <openssl/sha.h>

#include "base/random.h"
#include "image/pool.h"

int digest_parse(struct digest *d, struct str s)
{
	uint8_t raw[32];

	if (str_starts(s, "sha256:")) {
		s.p += 7;
		s.n -= 7;
	}
	if (s.n != 64 || hex_decode(raw, sizeof(raw), s))
		return -EINVAL;
	hex_encode(d->hex, raw, sizeof(raw)); /* lower case, whatever came */
	return 0;
}

bool digest_valid(const struct digest *d)
{
	struct digest again;
	size_t n = strnlen(d->hex, sizeof(d->hex));

	return n == 64 && !digest_parse(&again, (struct str){ d->hex, n }) &&
	       !strcmp(again.hex, d->hex);
}

int digest_of_fd(struct digest *d, int fd, struct fail *why)
{
	int r = file_sha256(fd, d->hex);

	return r < 0 ? pool_fail(why, r, "computing a digest") : 0;
}

void digest_of_text(struct digest *d, struct str s)
{
	uint8_t raw[SHA256_DIGEST_LENGTH];

	SHA256((const unsigned char *)s.p, s.n, raw);
	hex_encode(d->hex, raw, sizeof(raw));
}
