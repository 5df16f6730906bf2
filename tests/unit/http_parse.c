/* The parser: what is taken, and the long list of what is not. */
#include "test.h"

#include <stdio.h>

#include "http/http.h"

#define HOST "Host: a\r\n"

static const struct {
	const char *text;
	size_t n; /* 0: up to the NUL */
	int err;  /* as http_request_parse() */
} bad_requests[] = {
	/* the request line */
	{ "GET / HTTP/1.1\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: a\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ " GET / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET  / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /  HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1 \r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET\t/ HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET\r\n\r\n", 0, -EBADMSG },
	{ "/ HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "G(T / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "G\xc3\x84T / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GETGETGETGETGETGETGETGETGETGETGET / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / http/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.10\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/11\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/x.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/2.0\r\n" HOST "\r\n", 0, -EPROTO },
	{ "GET / HTTP/1.2\r\n" HOST "\r\n", 0, -EPROTO },
	{ "GET / HTTP/0.9\r\n" HOST "\r\n", 0, -EPROTO },
	{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, -EPROTO },
	/* the target */
	{ "GET a HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET * HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /a#b HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /\x01 HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /\x7f HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET http:/// HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET http://b/ HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET http://a:99999/ HTTP/1.1\r\nHost: a:99999\r\n\r\n", 0, -EBADMSG },
	{ "CONNECT / HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "CONNECT a HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "CONNECT a:b HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "CONNECT a:80 HTTP/1.1\r\nHost: b:80\r\n\r\n", 0, -EBADMSG },
	{ "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\n\r\nabc", 0, -EBADMSG },
	{ "GET a:80 HTTP/1.1\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET /\0 HTTP/1.1\r\n" HOST "\r\n", 28, -EBADMSG },
	/* Host */
	{ "GET / HTTP/1.1\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: []:1\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.0\r\nHost: \"\r\n\r\n", 0, -EBADMSG },
	/* header lines */
	{ "GET / HTTP/1.1\r\n" HOST "A : b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A\t: b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n A: b\r\n" HOST "\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A\xc3\xa4: b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A(: b\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: b\nC: d\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n", 0, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "A: \0\r\n\r\n", 34, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "\0A: b\r\n\r\n", 36, -EBADMSG },
	{ "GET / HTTP/1.1\r\n" HOST "Connection: a b\r\n\r\n", 0, -EBADMSG },
	/* framing */
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\ncontent-length: 6\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 5 5\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 9223372036854775808\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked;q=1\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n", 0, -ENOTSUP },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \x0b" "chunked\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 0, -EBADMSG },
	{ "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0, -EBADMSG },
};

TEST(malformed_requests_are_refused)
{
	for (size_t i = 0; i < ARRAY_LEN(bad_requests); i++) {
		struct str text = { bad_requests[i].text, bad_requests[i].n ? bad_requests[i].n : strlen(bad_requests[i].text) };
		struct fail why = { 0 };
		struct http_head h;

		test_row("%zu: %.60s", i, text.p);
		CHECK_INT(http_request_parse(&h, text, &why), bad_requests[i].err);
		CHECK(why.msg[0] != '\0');
	}
	CHECK(ARRAY_LEN(bad_requests) >= 40);
}

TEST(good_requests)
{
	static const struct {
		const char *text, *path, *query;
		enum http_framing framing;
		uint64_t length;
		bool keep, upgrade, expect;
	} rows[] = {
		{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "GET /a%20b?c=d&e HTTP/1.1\r\nhost:a:80\r\nX:\r\n\r\n", "/a%20b", "c=d&e", HTTP_BODY_NONE, 0, true, false, false },
		{ "GET /? HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, false, false, false },
		{ "GET / HTTP/1.0\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, false, false, false },
		{ "GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "GET http://a.b:1/c?d HTTP/1.1\r\nHost: A.b:1\r\n\r\n", "/c", "d", HTTP_BODY_NONE, 0, true, false, false },
		{ "GET HTTP://a?d HTTP/1.1\r\nHost: a\r\n\r\n", "/", "d", HTTP_BODY_NONE, 0, true, false, false },
		{ "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "*", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", "", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0042\r\n\r\n", "/", "", HTTP_BODY_LENGTH, 42, true, false, false },
		{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\t CHUNKED \r\nExpect: 100-Continue\r\n\r\n", "/", "",
			HTTP_BODY_CHUNKED, 0, true, false, true },
		{ "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Upgrade\r\nUpgrade: websocket\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true,
			true, false },
		{ "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true, false, false },
		{ "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\n", "/", "",
			HTTP_BODY_LENGTH, 1, true, false, false },
		{ "GET / HTTP/1.1\r\nHost: a\r\nX: obs \xe4\xf6 text\r\n\r\n", "/", "", HTTP_BODY_NONE, 0, true, false, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str text = str_of(rows[i].text);
		struct fail why = { 0 };
		struct http_head h;

		test_row("%zu: %.60s", i, rows[i].text);
		/* Whatever the pieces it comes in, it is either not whole or right. */
		for (size_t n = 0; n < text.n; n++)
			CHECK_INT(http_request_parse(&h, (struct str){ text.p, n }, &why), 0);
		if (!CHECK_INT(http_request_parse(&h, text, &why), text.n))
			continue;
		CHECK_STR(h.path, rows[i].path);
		CHECK_STR(h.query, rows[i].query);
		CHECK_INT(h.framing, rows[i].framing);
		CHECK_INT(h.length, rows[i].length);
		CHECK(h.keep_alive == rows[i].keep && h.upgrade == rows[i].upgrade && h.expect_continue == rows[i].expect);
	}
}

TEST(heads_have_limits)
{
	autofree char *big = malloc(HTTP_HEAD_MAX + 100);
	struct http_head h;
	struct fail why;
	size_t n;

	n = (size_t)sprintf(big, "GET / HTTP/1.1\r\n" HOST);
	for (int i = 0; i < HTTP_HEADERS_MAX - 1; i++)
		n += (size_t)sprintf(big + n, "A: b\r\n");
	sprintf(big + n, "\r\n");
	CHECK_INT(http_request_parse(&h, str_of(big), &why), n + 2);
	CHECK_INT(h.nheaders, HTTP_HEADERS_MAX);
	sprintf(big + n, "A: b\r\n\r\n");
	CHECK_INT(http_request_parse(&h, str_of(big), &why), -EFBIG);

	n = (size_t)sprintf(big, "GET / HTTP/1.1\r\n" HOST "A: ");
	memset(big + n, 'x', HTTP_HEAD_MAX);
	CHECK_INT(http_request_parse(&h, (struct str){ big, HTTP_HEAD_MAX - 1 }, &why), 0);
	CHECK_INT(http_request_parse(&h, (struct str){ big, HTTP_HEAD_MAX }, &why), -EFBIG);
	memcpy(big + HTTP_HEAD_MAX - 4, "\r\n\r\n", 4);
	CHECK_INT(http_request_parse(&h, (struct str){ big, HTTP_HEAD_MAX }, &why), HTTP_HEAD_MAX);
	memcpy(big + HTTP_HEAD_MAX - 4, "xx\r\n\r\n", 6);
	CHECK_INT(http_request_parse(&h, (struct str){ big, HTTP_HEAD_MAX + 2 }, &why), -EFBIG);
	memset(big, 'x', HTTP_HEAD_MAX);
	CHECK_INT(http_request_parse(&h, (struct str){ big, HTTP_HEAD_MAX }, &why), -EFBIG);
}

TEST(headers_are_found)
{
	struct str text = STR("GET /p?q HTTP/1.1\r\nHost: a\r\nX-One:  1 \t\r\nList: a, b\r\nx-one: 2\r\nLIST: ,c ,\r\n\r\n");
	autofree char *copy = malloc(text.n);
	struct http_head h;

	CHECK_INT(http_request_parse(&h, text, NULL), text.n);
	memcpy(copy, text.p, text.n);
	http_head_move(&h, text.p, copy);
	CHECK(h.method.p == copy);
	CHECK_STR(h.query, "q");
	CHECK_STR(http_get(&h, "x-one"), "1");
	CHECK(http_get(&h, "none").p == NULL);
	CHECK(http_has_token(&h, "list", "B") && http_has_token(&h, "list", "c") && !http_has_token(&h, "list", ""));
	CHECK(!http_has_token(&h, "list", "d"));
}

TEST(answers)
{
	static const struct {
		const char *method, *text;
		int status; /* or the error */
		enum http_framing framing;
		bool keep;
	} rows[] = {
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, HTTP_BODY_LENGTH, true },
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, HTTP_BODY_NONE, true },
		{ "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, HTTP_BODY_CHUNKED, true },
		{ "GET", "HTTP/1.1 200\r\n\r\n", 200, HTTP_BODY_EOF, false },
		{ "GET", "HTTP/1.1 200 \xe4\r\nConnection: close\r\nContent-Length: 1\r\n\r\n", 200, HTTP_BODY_LENGTH, false },
		{ "GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", 200, HTTP_BODY_LENGTH, false },
		{ "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, HTTP_BODY_NONE, true },
		{ "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, HTTP_BODY_NONE, false },
		{ "GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, HTTP_BODY_NONE, true },
		{ "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 30\r\n\r\n", 304, HTTP_BODY_NONE, true },
		{ "GET", "HTTP/1.1 100 Continue\r\n\r\n", 100, HTTP_BODY_NONE, true },
		{ "CONNECT", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, HTTP_BODY_NONE, true },
		{ "CONNECT", "HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\n", 403, HTTP_BODY_LENGTH, true },
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", -EBADMSG, 0, false },
		{ "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3,3\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", -ENOTSUP, 0, false },
		{ "GET", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 200 OK\nA: b\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 99 OK\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 600 OK\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 2000 OK\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1  200 OK\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/1.1 2x0 OK\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/2 200\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "HTTP/2.0 200 OK\r\n\r\n", -EPROTO, 0, false },
		{ "GET", "ICY 200 OK\r\n\r\n", -EBADMSG, 0, false },
		{ "GET", "hello\r\n\r\n", -EBADMSG, 0, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str text = str_of(rows[i].text);
		struct http_head h;
		ssize_t r = http_response_parse(&h, text, str_of(rows[i].method), NULL);

		test_row("%zu: %s", i, rows[i].text);
		if (rows[i].status < 0) {
			CHECK_INT(r, rows[i].status);
			continue;
		}
		CHECK_INT(r, text.n);
		CHECK_INT(h.status, rows[i].status);
		CHECK_INT(h.framing, rows[i].framing);
		CHECK(h.keep_alive == rows[i].keep);
	}
}

/* --- chunks --- */

/* Decodes TEXT given in pieces of STEP bytes. What is left is the start of the next message. */
static int decode(struct str text, size_t step, struct buf *out, size_t *left)
{
	struct http_chunked c;
	int r = 0;

	http_chunked_init(&c);
	out->n = 0;
	while (text.n) {
		struct str in = { text.p, MIN(step, text.n) }, piece;
		size_t given = in.n;

		do {
			r = http_chunked_read(&c, &in, &piece);
			if (r == 1)
				buf_adds(out, piece);
		} while (r == 1);
		text.p += given - in.n;
		text.n -= given - in.n;
		if (r != 0)
			break;
	}
	*left = text.n;
	return r;
}

TEST(chunks)
{
	static char long_ext[400], long_trailer[9000];
	const struct {
		const char *text;
		int end; /* 2: whole; 0: more is needed; -EBADMSG */
		const char *body;
		size_t left;
	} rows[] = {
		{ "3\r\nabc\r\n0\r\n\r\nGET", 2, "abc", 3 },
		{ "0\r\n\r\n", 2, "", 0 },
		{ "0000\r\n\r\n", 2, "", 0 },
		{ "3;x=y;z\r\nabc\r\nA\r\n0123456789\r\n0;q\r\n\r\n", 2, "abc0123456789", 0 },
		{ "1\r\na\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n", 2, "a", 0 },
		{ "5\r\nab", 0, "ab", 0 },
		{ "3\r\nabc", 0, "abc", 0 },
		{ "3\r\nabc\r\n0\r\n", 0, "abc", 0 },
		{ "3\nabc\r\n0\r\n\r\n", -EBADMSG, "", 0 },
		{ "3\r\nabc\n0\r\n\r\n", -EBADMSG, "abc", 0 },
		{ "3\r\nabcd\r\n0\r\n\r\n", -EBADMSG, "abc", 0 },
		{ "3\rabc\r\n", -EBADMSG, "", 0 },
		{ "\r\nabc\r\n", -EBADMSG, "", 0 },
		{ ";x\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "g\r\n", -EBADMSG, "", 0 },
		{ "0x3\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "-3\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "3 \r\nabc\r\n", -EBADMSG, "", 0 },
		{ " 3\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "3 ;x\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "3;a\nb\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "3;a\x01\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "7fffffffffffffff\r\n", 0, "", 0 },
		{ "8000000000000000\r\n", -EBADMSG, "", 0 },
		{ "ffffffffffffffff\r\n", -EBADMSG, "", 0 },
		{ "10000000000000003\r\nabc\r\n", -EBADMSG, "", 0 },
		{ "0\r\nContent-Length: 3\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\ntransfer-ENCODING: chunked\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\nHost: b\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\nA : b\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\n: b\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\nA: b\r\n c\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\nA: b\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\nA\r\n\r\n", -EBADMSG, "", 0 },
		{ "0\r\n\rx", -EBADMSG, "", 0 },
		{ long_ext, -EBADMSG, "", 0 },
		{ long_trailer, -EBADMSG, "", 0 },
	};
	autobuf struct buf out = { 0 };

	memset(long_ext, 'x', sizeof(long_ext) - 1);
	memcpy(long_ext, "3;", 2);
	memset(long_trailer, 'x', sizeof(long_trailer) - 1);
	memcpy(long_trailer, "0\r\nA:", 5);
	buf_init(&out, 1000);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str text = str_of(rows[i].text);

		for (size_t step = 1; step <= text.n; step += step < 8 ? 1 : text.n) {
			size_t left;

			test_row("%zu by %zu: %.40s", i, step, rows[i].text);
			CHECK_INT(decode(text, step, &out, &left), rows[i].end);
			CHECK_STR(buf_str(&out), rows[i].body);
			if (rows[i].end == 2)
				CHECK_INT(left, rows[i].left);
		}
	}
	CHECK_INT(decode(STR("1\r\n\0\r\n0\r\n\r\n"), 3, &out, &(size_t){ 0 }), 2);
	CHECK_INT(decode(STR("1;\0\r\nx"), 3, &out, &(size_t){ 0 }), -EBADMSG);
}

/* --- percent-encoding --- */

TEST(escapes)
{
	static const struct {
		const char *text, *plain; /* NULL: refused */
		bool plus;
	} rows[] = {
		{ "", "", false }, { "a%20b", "a b", false }, { "a+b", "a+b", false }, { "a+b%2B", "a b+", true },
		{ "%c3%A4", "\xc3\xa4", false }, { "%2e%2E%2f", "../", false }, { "%", NULL, false }, { "%1", NULL, false },
		{ "%g1", NULL, false }, { "%1g", NULL, false }, { "%00", NULL, false }, { "a%0", NULL, false }, { "%%41", NULL, false },
	};
	autobuf struct buf b = { 0 };
	char out[32];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct str s = str_of(rows[i].text);

		test_row("%s", rows[i].text);
		CHECK_INT(http_unescape(out, sizeof(out), s, rows[i].plus), rows[i].plain ? (ssize_t)strlen(rows[i].plain) : -EINVAL);
		if (rows[i].plain)
			CHECK_STR(out, rows[i].plain);
	}
	CHECK_INT(http_unescape(out, 3, STR("abc"), false), -ENAMETOOLONG);
	CHECK_INT(http_unescape(out, 4, STR("abc"), false), 3);
	CHECK_INT(http_unescape(out, 0, STR(""), false), -ENAMETOOLONG);
	buf_init(&b, 20);
	CHECK_INT(http_escape(&b, STR("a b/\xc3\xa4~"), "/"), 0);
	CHECK_STR(buf_str(&b), "a%20b/%C3%A4~");
	CHECK_INT(http_escape(&b, STR("\n\n\n"), NULL), -ENOBUFS);
	CHECK_INT(b.n, 13);
}

TEST(queries)
{
	struct str q = STR("a=1&b=&c&&a=2&d%5B=x+y%26&%zz=1"), k, v;
	char *out;
	int n = 0;

	CHECK_INT(http_query(q, "a", &out), 0);
	CHECK_STR(out, "1");
	free(out);
	CHECK_INT(http_query(q, "b", &out), 0);
	CHECK_STR(out, "");
	free(out);
	CHECK_INT(http_query(q, "c", &out), 0);
	CHECK_STR(out, "");
	free(out);
	CHECK_INT(http_query(q, "d[", &out), 0);
	CHECK_STR(out, "x y&");
	free(out);
	CHECK_INT(http_query(q, "none", &out), -EINVAL); /* it had to look at %zz */
	CHECK_INT(http_query(STR("a=1"), "none", &out), 0);
	CHECK(out == NULL);
	CHECK_INT(http_query(STR("a=%00"), "a", &out), -EINVAL);
	CHECK_INT(http_query((struct str){ NULL, 0 }, "a", &out), 0);
	while (http_query_next(&q, &k, &v))
		n++;
	CHECK_INT(n, 6);
}
