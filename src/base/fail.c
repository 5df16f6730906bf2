/* fail.c - see fail.h. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/str.h"

static const struct errinfo table[ERR_CODES] = {
	[ERR_NONE] = { "internal", 500, EIO, "a fault of SPACE's own",
		"space bugreport packs what is needed to report it" },
#define ERR(code, status, eno, cause, remedy) [ERR_##code] = { #code, status, eno, cause, remedy },
#include "base/errors.def"
#undef ERR
};

/* Several codes share an errno; this says which one an errno without further words means. */
static const struct {
	int err;
	enum errcode code;
} by_errno[] = {
	{ EINVAL, ERR_bad_request },
	{ EBADMSG, ERR_bad_request },
	{ ENAMETOOLONG, ERR_bad_request },
	{ ENOENT, ERR_not_found },
	{ ESRCH, ERR_not_found },
	{ EACCES, ERR_forbidden },
	{ EPERM, ERR_forbidden },
	{ EBUSY, ERR_busy },
	{ EEXIST, ERR_conflict },
	{ ECONNREFUSED, ERR_daemon_down },
	{ EHOSTUNREACH, ERR_agent_unreachable },
	{ ENETUNREACH, ERR_agent_unreachable },
	{ ETIMEDOUT, ERR_deadline_exceeded },
	{ EAGAIN, ERR_no_capacity },
	{ ENOMEM, ERR_no_capacity },
	{ ENOSPC, ERR_no_space },
	{ EDQUOT, ERR_no_space },
	{ EFBIG, ERR_too_large },
	{ ENOBUFS, ERR_too_large },
	{ ENODEV, ERR_host_unsuitable },
	{ ENOTSUP, ERR_unsupported },
	{ ENOSYS, ERR_unsupported },
};

const struct errinfo *err_info(enum errcode code)
{
	if ((unsigned)code >= ERR_CODES)
		code = ERR_NONE;
	return &table[code];
}

enum errcode err_by_name(const char *name, size_t len)
{
	for (unsigned i = 1; i < ERR_CODES; i++)
		if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
			return (enum errcode)i;
	return ERR_NONE;
}

static enum errcode code_of_errno(int err)
{
	for (size_t i = 0; i < ARRAY_LEN(by_errno); i++)
		if (by_errno[i].err == err)
			return by_errno[i].code;
	return ERR_internal;
}

PRINTF(4, 0)
static void fill(struct fail *f, int err, enum errcode code, const char *fmt, va_list ap)
{
	char msg[sizeof(f->msg)];

	/* By way of a copy: the arguments may be F's own message. */
	vsnprintf(msg, sizeof(msg), fmt, ap);
	f->err = err;
	f->code = code;
	memcpy(f->msg, msg, sizeof(msg));
	snprintf(f->remedy, sizeof(f->remedy), "%s", err_info(code)->remedy);
}

int fail_set(struct fail *f, int err, const char *fmt, ...)
{
	va_list ap;

	if (f) {
		va_start(ap, fmt);
		fill(f, err, code_of_errno(-err), fmt, ap);
		va_end(ap);
	}
	return err;
}

int fail_as(struct fail *f, enum errcode code, const char *fmt, ...)
{
	int err = -err_info(code)->err;
	va_list ap;

	if (f) {
		va_start(ap, fmt);
		fill(f, err, code, fmt, ap);
		va_end(ap);
	}
	return err;
}

void fail_remedy(struct fail *f, const char *fmt, ...)
{
	char text[sizeof(f->remedy)];
	va_list ap;

	if (!f)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(f->remedy, text, sizeof(text));
}

void fail_prefix(struct fail *f, const char *fmt, ...)
{
	char text[2 * sizeof(f->msg)];
	va_list ap;
	size_t n;

	if (!f)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(f->msg), fmt, ap);
	va_end(ap);
	n = strlen(text);
	snprintf(text + n, sizeof(text) - n, ": %s", f->msg);
	memcpy(f->msg, text, sizeof(f->msg) - 1);
	f->msg[sizeof(f->msg) - 1] = '\0';
}
