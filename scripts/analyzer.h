/* What clang's analyzer cannot see from one file, read by make lint only: what fail_set() and fail_as() return is below 0 and is
 * in WHY as well. */
#include "base/fail.h"

static inline int seen_fail(struct fail *f, int err, const char *fmt, ...)
{
	if (err >= 0)
		__builtin_unreachable();
	if (f)
		f->err = err;
	return err;
}
#define fail_set(f, err, ...) seen_fail(f, err, __VA_ARGS__)
#define fail_as(f, code, ...) seen_fail(f, (code) > 0 ? -(code) : -1, __VA_ARGS__)
