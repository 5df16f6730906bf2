/* log.h - one line an event: a sentence, then key=value, the object first.
 *
 * error: someone must act. warning: we carried on, and the line says so. info: a person's action or a state change.
 * debug: free. Control bytes are escaped, so that nothing from outside makes a line of its own. Written to stderr. */
#ifndef SPACE_LOG_H
#define SPACE_LOG_H

#include "base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level max);
void log_set_json(bool on);	   /* one JSON object a line instead */
void log_set_program(const char *name);
/* Where stderr is a file: it is cut to its latest half when it has grown past BYTES, so that a daemon that runs for years fills no disk. 0: it
 * grows. What is written by others in the moment of the cut may be lost. */
void log_set_limit(uint64_t bytes);
void log_at(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
