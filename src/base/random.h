/* random.h - random bytes, ids, and the text forms of bytes. */
#ifndef SPACE_RANDOM_H
#define SPACE_RANDOM_H

#include "base/buf.h"

void random_bytes(void *p, size_t n); /* getrandom(2); cannot fail once the kernel is seeded */

#define ID_LEN 21
/* PREFIX and 20 of [a-z0-9]: the form of every id. */
void id_make(char out[ID_LEN + 1], char prefix);
bool id_valid(struct str s, char prefix);

void hex_encode(char *out, const void *p, size_t n); /* 2n digits and a NUL */
int hex_digit(char c);				   /* its value, either case; -1: none */
int hex_decode(void *out, size_t n, struct str s);   /* exactly n bytes; 0 or -EINVAL */

size_t base64_len(size_t n); /* with padding, without a NUL */
void base64_encode(char *out, const void *p, size_t n);
/* Standard alphabet; padding may be missing. *n gets the length; OUT holds at least s.n * 3 / 4 + 3 bytes. 0 or -EINVAL. */
int base64_decode(void *out, size_t *n, struct str s);

bool mem_eq_ct(const void *a, const void *b, size_t n); /* time depends on n only */

#endif
