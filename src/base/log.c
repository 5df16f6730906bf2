/* log.c - see log.h. A line is put together on the stack and leaves in one write(2), so that lines
 * of several threads or processes never mix. */
#include "base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/str.h"

#define MSG_MAX 2048

static enum log_level max_level = LOG_LEVEL_INFO;
static bool as_json;
static char program[32] = "space";
static uint64_t limit;
static atomic_uint lines; /* since the file was looked at */
static atomic_flag cutting = ATOMIC_FLAG_INIT;

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

void log_set_limit(uint64_t bytes)
{
	limit = bytes;
}

/* The latest half moves to the beginning, from the start of a line on. By a descriptor of its own: stderr's appends. */
static void cut(off_t size)
{
	static char buf[64 * 1024];
	off_t from = size - (off_t)(limit / 2), to = 0;
	int fd = open("/proc/self/fd/2", O_RDWR | O_CLOEXEC);
	bool whole = false;
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = pread(fd, buf, sizeof(buf), from)) > 0) {
		char *at = whole ? buf : memchr(buf, '\n', (size_t)n);

		from += n;
		if (!at)
			continue;
		at += !whole;
		whole = true;
		n = pwrite(fd, at, (size_t)(buf + n - at), to);
		if (n < 0)
			break;
		to += n;
	}
	if (ftruncate(fd, to) < 0) {
		/* it grows on; there is nobody to be told */
	}
	close(fd);
}

static void bound(void)
{
	struct stat st;

	if (!limit || atomic_fetch_add(&lines, 1) % 256 || atomic_flag_test_and_set(&cutting))
		return;
	if (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit)
		cut(st.st_size);
	atomic_flag_clear(&cutting);
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
		bound();
	}
	errno = saved;
}
