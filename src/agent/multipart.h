/* multipart.h - multipart/form-data (RFC 7578), read as it comes in pieces of any size.
 *
 * Holds one part's head (16 KiB at most) and never a part's body: that is passed on as it arrives.
 * Calls back in the order begin, data…, end for each part; a callback that returns a negative errno
 * stops the parser, and feed returns it. */
#ifndef SPACE_AGENT_MULTIPART_H
#define SPACE_AGENT_MULTIPART_H

#include "base/buf.h"

#define MULTIPART_HEAD_MAX (16 * 1024)
#define MULTIPART_BOUNDARY_MAX 200 /* RFC 2046 says 70 */

struct multipart_part {
	struct str name;     /* of the form's field */
	struct str filename; /* with its directories; p == NULL if there is none */
};

struct multipart_cb {
	int (*begin)(const struct multipart_part *part, void *arg);
	int (*data)(struct str piece, void *arg);
	int (*end)(void *arg);
};

struct multipart {
	char delim[MULTIPART_BOUNDARY_MAX + 5]; /* "\r\n--" and the boundary */
	size_t ndelim, matched;
	int state;
	bool crlf; /* a CR of the line after a delimiter was seen */
	struct buf head;
	const struct multipart_cb *cb;
	void *arg;
};

/* The boundary of a Content-Type value, without quotes. 0 or -EINVAL. */
int multipart_boundary(struct str ctype, char out[MULTIPART_BOUNDARY_MAX + 1]);

int multipart_init(
	struct multipart *m, const char *boundary, const struct multipart_cb *cb, void *arg);
void multipart_clear(struct multipart *m);
int multipart_feed(struct multipart *m,
	struct str in);			   /* 0, -EBADMSG, -ENOBUFS, or what a callback returned */
int multipart_finish(struct multipart *m); /* -EBADMSG unless the closing delimiter was there */

/* The parameter KEY of a header value such as `form-data; name="file"`, unquoted, into OUT. The
 * length, -ENOENT, -ENOBUFS. */
ssize_t header_param(struct str value, const char *key, char *out, size_t size);

#endif
