/* sha.c - file_sha256() of file.h. In a file of its own, since programs without it need no
 * libcrypto. */
#include <openssl/evp.h>

#include "base/file.h"
#include "base/random.h"

static void ctx_cleanup(EVP_MD_CTX **c)
{
	EVP_MD_CTX_free(*c);
}

int file_sha256(int fd, char hex[65])
{
	CLEANUP(ctx_cleanup) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	const size_t size = 256 * KIB;
	autofree char *buf = malloc(size);
	uint8_t digest[32];
	off_t at = 0;

	if (!ctx || !buf || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL))
		return -ENOMEM;
	for (;;) {
		ssize_t n = pread(fd, buf, size, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		if (!EVP_DigestUpdate(ctx, buf, (size_t)n))
			return -EIO;
		at += n;
	}
	if (!EVP_DigestFinal_ex(ctx, digest, NULL))
		return -EIO;
	hex_encode(hex, digest, sizeof(digest));
	return 0;
}
