/* range.h - the parts of RFC 9110 that a file server needs: one byte range, HTTP dates, quality of
 * a coding, media types. */
#ifndef SPACE_AGENT_RANGE_H
#define SPACE_AGENT_RANGE_H

#include "base/str.h"

enum range_kind {
	RANGE_WHOLE /* none, several, or not understood */,
	RANGE_PART,
	RANGE_UNSATISFIABLE
};

/* "bytes=a-b", "bytes=a-", "bytes=-n" of SIZE bytes. */
enum range_kind range_parse(struct str value, uint64_t size, uint64_t *from, uint64_t *len);

#define HTTP_DATE_LEN 32
void http_date_format(
	char out[HTTP_DATE_LEN], int64_t unix_s);   /* "Sun, 06 Nov 1994 08:49:37 GMT" */
int http_date_parse(struct str s, int64_t *unix_s); /* that form only. 0 or -EINVAL */

/* Is CODING refused by an Accept-Encoding value: "CODING;q=0", or "*;q=0" without a word for it? */
bool coding_refused(struct str accept, const char *coding);

/* By the name's ending, else by the first bytes. A literal. */
const char *media_type(const char *name, struct str head);

#endif
