/* fail.h - one failure: what code branches on, and the words for whoever asked.
 *
 * A struct fail lives on the caller's stack. Functions return a negative errno and fill the struct in; an error path
 * allocates nothing. Library code does not log: whoever gives up does, once. */
#ifndef SPACE_FAIL_H
#define SPACE_FAIL_H

#include "base/base.h"

enum errcode {
	ERR_NONE = 0,
#define ERR(code, status, eno, cause, remedy) ERR_##code,
#include "base/errors.def"
#undef ERR
	ERR_CODES
};

struct fail {
	int err; /* negative errno; 0 when nothing failed */
	enum errcode code;
	char msg[240];
	char remedy[200];
};

struct errinfo {
	const char *name; /* "no_capacity" */
	int status;	  /* HTTP */
	int err;	  /* positive errno */
	const char *cause, *remedy;
};

/* The row of the table; ERR_NONE and numbers out of range give that of `internal`. */
const struct errinfo *err_info(enum errcode code);

/* The code of that name, ERR_NONE if there is none. */
enum errcode err_by_name(const char *name, size_t len);

/* Fills F in with ERR (negative errno) and a message; the code is found from the errno. Returns ERR. F may be NULL. */
int fail_set(struct fail *f, int err, const char *fmt, ...) PRINTF(3, 4);

/* The same by code: the table gives errno and remedy. Returns the negative errno. */
int fail_as(struct fail *f, enum errcode code, const char *fmt, ...) PRINTF(3, 4);

/* Puts a more precise remedy into F, which is already filled in. */
void fail_remedy(struct fail *f, const char *fmt, ...) PRINTF(2, 3);

/* Puts "PREFIX: " before the message. */
void fail_prefix(struct fail *f, const char *fmt, ...) PRINTF(2, 3);

#endif
