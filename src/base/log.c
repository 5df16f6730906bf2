/* log.c - see log.h. A line is put together on the stack and leaves in one write(2), so that lines
 * of several threads or processes never mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/str.h"

#define MSG_MAX 2048

static enum log_level max_level = LOG_LEVEL_INFO;
static bool as_json;
static char program[32] = "space";

static const char *const level_names[] = { "error", "warning", "info", "debug" };

void log_set_level(enum log_level max)
{
	max_level = max;
}

void log_set_json(bool on)
{
	as_json = on;
}

void log_set_program(const char *name)
{
	snprintf(program, sizeof(program), "%s", name);
}

/* Copies MSG into OUT: control bytes and what is not UTF-8 as \xNN (\u00NN in JSON). Cut where OUT
 * ends. */
static size_t escape(char *out, size_t size, struct str msg)
{
	size_t n = 0;

	while (msg.n) {
		unsigned char c = (unsigned char)msg.p[0];
		size_t len = str_utf8_len(msg);

		if (size - n < 8)
			break;
		if (len == 0 || c < 0x20 || c == 0x7f) {
			n += (size_t)snprintf(
				out + n, size - n, as_json ? "\\u%04x" : "\\x%02x", c);
			len = 1;
		} else {
			if (as_json && (c == '"' || c == '\\'))
				out[n++] = '\\';
			memcpy(out + n, msg.p, len);
			n += len;
		}
		msg.p += len;
		msg.n -= len;
	}
	out[n] = '\0';
	return n;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char msg[MSG_MAX], safe[MSG_MAX * 2], line[MSG_MAX * 2 + 160], when[RFC3339_LEN];
	int saved = errno, n;
	va_list ap;

	if (level > max_level)
		return;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	escape(safe, sizeof(safe), str_of(msg));
	rfc3339_format(when, real_ns());
	if (as_json)
		n = snprintf(line, sizeof(line),
			"{\"time\":\"%s\",\"level\":\"%s\",\"program\":\"%s\",\"message\":\"%s\"}"
			"\n",
			when, level_names[level], program, safe);
	else
		n = snprintf(line, sizeof(line), "%s %s %s: %s\n", when, program,
			level_names[level], safe);
	if (n > 0) {
		ssize_t r = write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1));

		(void)r; /* a log that can't be written has nobody to be told */
	}
	errno = saved;
}
