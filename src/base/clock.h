/* clock.h - time. Durations are int64_t in the unit that the name ends with. */
#ifndef SPACE_CLOCK_H
#define SPACE_CLOCK_H

#include "base/str.h"

#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

int64_t mono_ns(void); /* CLOCK_MONOTONIC */
int64_t mono_ms(void);
int64_t real_ns(void); /* CLOCK_REALTIME, since 1970 */

#define RFC3339_LEN 32
/* "2026-01-02T03:04:05.678Z" */
void rfc3339_format(char out[RFC3339_LEN], int64_t unix_ns);
/* Any zone, up to nine decimals. 0 or -EINVAL. */
int rfc3339_parse(struct str s, int64_t *unix_ns);

#endif
