/* http.h - strict HTTP/1.1 (RFC 9112): one parser for server, client and proxy.
 *
 * A head is read whole into one bounded buffer, in one pass, and what comes out are slices into it. "Need more" and
 * "never" are different answers. Refused, never repaired: both Content-Length and Transfer-Encoding, a repeated Host,
 * Content-Length or Transfer-Encoding, a bare CR or LF, folding, white space before the colon, NUL or control bytes,
 * a transfer coding that is not exactly "chunked", a missing or malformed Host, a target that is neither origin-form, "*",
 * absolute-form nor authority-form (CONNECT only), trailers that frame or route. */
#ifndef SPACE_HTTP_H
#define SPACE_HTTP_H

#include "base/buf.h"
#include "base/fail.h"

#define HTTP_HEADERS_MAX 100
#define HTTP_HEAD_MAX (32 * 1024)

struct http_header {
	struct str name, value; /* the value has no white space at its ends */
};

enum http_framing { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_EOF /* answers only */ };

struct http_head {
	struct str method, target;	 /* requests; TARGET as it was sent */
	struct str path, query;		 /* of an origin-form or absolute-form target, still percent-encoded; query without '?' */
	int status;			 /* answers */
	int minor;			 /* HTTP/1.MINOR */
	struct http_header headers[HTTP_HEADERS_MAX];
	unsigned nheaders;
	enum http_framing framing;
	uint64_t length;		 /* with HTTP_BODY_LENGTH */
	bool keep_alive, upgrade;	 /* upgrade: "Connection: upgrade" and an Upgrade header are there */
	bool expect_continue;
	size_t size;			 /* bytes of the whole head */
};

/* Reads a request's (answer's) head at the start of DATA. Its size, 0 for "need more", or -EBADMSG (malformed: 400), -EFBIG (431:
 * head over HTTP_HEAD_MAX or too many headers), -EPROTO (505: not HTTP/1.0 or 1.1), -ENOTSUP (501: transfer coding). WHY says what. */
ssize_t http_request_parse(struct http_head *h, struct str data, struct fail *why);
/* REQUEST_METHOD decides the framing: HEAD and CONNECT answers have no body. */
ssize_t http_response_parse(struct http_head *h, struct str data, struct str request_method, struct fail *why);

/* The value of the header NAME (case ignored), or an empty slice with p == NULL. */
struct str http_get(const struct http_head *h, const char *name);
/* H was parsed at FROM; its bytes are now at TO: the slices follow. */
void http_head_move(struct http_head *h, const char *from, const char *to);
/* Fit to be a header's name (RFC 9110 token) and value (no control bytes but tab)? */
bool http_is_token(struct str s);
bool http_is_value(struct str s);
/* Does the comma-separated list in header NAME hold TOKEN? */
bool http_has_token(const struct http_head *h, const char *name, const char *token);

/* Chunked decoding, incremental. */
struct http_chunked {
	int state;
	uint64_t left;
	unsigned line;		/* bytes of the current line, or of all trailers, seen */
	char name[20];		/* of the trailer being read, in lower case, as far as it fits */
	uint8_t name_n;
};
void http_chunked_init(struct http_chunked *c);
/* Takes bytes off *IN; *out gets a slice of IN that is body. 1: there is a slice; 0: needs more; 2: the body has ended (rest of IN is
 * the next message); -EBADMSG. */
int http_chunked_read(struct http_chunked *c, struct str *in, struct str *out);

/* Percent-decoding into DST (at most S.n bytes and a NUL): the length, -EINVAL for a malformed escape or a NUL, or -ENAMETOOLONG.
 * `plus`: '+' is a space. */
ssize_t http_unescape(char *dst, size_t size, struct str s, bool plus);
int http_escape(struct buf *b, struct str s, const char *also_safe); /* unreserved characters and ALSO_SAFE stay */

/* The first value of KEY in a query string, decoded, for the caller to free. NULL in *out if absent. 0, -EINVAL, -ENOMEM. */
int http_query(struct str query, const char *key, char **out);
/* Walks a query: 1 and a pair (still encoded), 0 at its end. */
int http_query_next(struct str *query, struct str *key, struct str *value);

const char *http_reason(int status); /* "OK", … never NULL */

#endif
