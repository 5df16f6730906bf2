/* str.h - text from outside: a slice that never assumes a NUL at its end. Passed by value. */
#ifndef SPACE_STR_H
#define SPACE_STR_H

#include "base/base.h"

struct str {
	const char *p;
	size_t n;
};

#define STR(lit) ((struct str){ (lit), sizeof(lit) - 1 })
#define STR_FMT "%.*s"
#define STR_ARG(s) (int)(s).n, (s).p

struct str str_of(const char *z); /* NULL gives the empty slice */
bool str_eq(struct str a, struct str b);
bool str_eqz(struct str a, const char *z);
bool str_ieqz(struct str a, const char *z); /* ASCII case is ignored */
bool str_starts(struct str s, const char *prefix);
bool str_ends(struct str s, const char *suffix);
/* Is the absolute PATH a directory that a Linux system cannot do with another in its place: /, /proc,
 * /sys, /dev and all below these three, /run, /etc; or has it a ".."? */
bool path_is_system(struct str path);
struct str str_trim(struct str s); /* spaces and tabs at both ends */

/* Cuts S at the first C: *head gets what is before, *tail what is after. false, and all in *head, if there is no C. */
bool str_cut(struct str s, char c, struct str *head, struct str *tail);

/* Decimal, digits only, no sign, no overflow, at most MAX. 0 or -EINVAL. */
int str_u64(struct str s, uint64_t max, uint64_t *out);

/* A duration ("90", "1.5s", "250ms", "10m", "2h", "7d"; without a unit: seconds) in ms, and a size ("512M", "5GiB", "1000",
 * "1.5g"; units are powers of 1024) in bytes. 0 or -EINVAL. */
int str_duration_ms(struct str s, int64_t *ms);
int str_size(struct str s, uint64_t *bytes);

/* A copy with a NUL, for the caller to free; NULL when out of memory. */
char *str_dup(struct str s);

/* Copies into a fixed buffer with a NUL; -ENAMETOOLONG if it does not fit, -EINVAL if S has a NUL. */
int str_copy(char *dst, size_t size, struct str s);

bool str_has_ctl(struct str s);	     /* a byte below 0x20, or 0x7f */
bool str_is_utf8(struct str s);	     /* well-formed, no surrogates, no overlong forms */
size_t str_utf8_len(struct str s);   /* bytes of the well-formed character at the start; 0 if there is none */
bool str_is_name(struct str s);	     /* [a-z0-9] then [a-z0-9._-], at most 63: names of templates, policies, … */
int str_ptrcmp(const void *a, const void *b); /* qsort of char * */

#endif
