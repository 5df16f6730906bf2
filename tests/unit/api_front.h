/* api_front.h - the API on a core of nothing, asked through its sockets. */
#ifndef SPACE_TEST_API_FRONT_H
#define SPACE_TEST_API_FRONT_H

#include "api/api.h"
#include "api_fake.h"

extern struct api api;
extern uv_loop_t loop;
extern char *answer; /* head and body of the last exchange */

void start(void);
int dial(bool tcp); /* a non-blocking socket to it; the caller runs the loop */
/* One exchange: the status; the whole answer is in `answer`. Ends at the connection's end, or at UNTIL. */
int exchange(bool tcp, const char *method, const char *target, const char *headers, const char *body, const char *until);
int ask(const char *method, const char *target, const char *body);
const char *answer_body(void);
bool has(const char *text);

#endif
