/* chunked.c - decoding of the chunked transfer coding (RFC 9112, 7.1), see http.h. */
#include "http/http.h"

#include "base/random.h"

#define LINE_MAX_LEN 256  /* a size and its extensions */
#define TRAILERS_MAX 8192 /* all of them together */

enum {
	SIZE_FIRST,
	SIZE,
	EXT,
	SIZE_LF,
	DATA,
	DATA_CR,
	DATA_LF,
	TRAILER_FIRST,
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LF,
	LAST_LF,
	END
};

void http_chunked_init(struct http_chunked *c)
{
	*c = (struct http_chunked){ .state = SIZE_FIRST };
}

static bool is_text(char c)
{
	return (c >= 0x20 && c != 0x7f) || c == '\t' || (unsigned char)c >= 0x80;
}

/* Trailers that would change how the message is framed or where it goes (RFC 9110, 6.5.1). */
static bool trailer_forbidden(const struct http_chunked *c)
{
	static const char *const names[] = { "content-length", "transfer-encoding", "host",
		"connection", "upgrade", "te", "trailer", "expect", "keep-alive" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (str_eqz((struct str){ c->name, c->name_n }, names[i]))
			return true;
	return false;
}

static int size_byte(struct http_chunked *c, char b)
{
	int d = hex_digit(b);

	if (d >= 0) {
		if (c->left > (uint64_t)INT64_MAX >> 4)
			return -EBADMSG;
		c->left = c->left << 4 | (unsigned)d;
		c->state = SIZE;
		return 0;
	}
	if (c->state == SIZE_FIRST)
		return -EBADMSG;
	if (b == '\r')
		c->state = SIZE_LF;
	else if (b == ';')
		c->state = EXT;
	else
		return -EBADMSG;
	return 0;
}

static int trailer_byte(struct http_chunked *c, char b)
{
	if (c->state == TRAILER_FIRST) {
		c->name_n = 0;
		if (b == '\r') {
			c->state = LAST_LF;
			return 0;
		}
		c->state = TRAILER_NAME;
		if (b == ':')
			return -EBADMSG;
	}
	if (c->state == TRAILER_NAME) {
		if (b == ':') {
			c->state = TRAILER_VALUE;
			return trailer_forbidden(c) ? -EBADMSG : 0;
		}
		if (!http_is_token((struct str){ &b, 1 }))
			return -EBADMSG;
		if (b >= 'A' && b <= 'Z')
			b = (char)(b + 32);
		if (c->name_n < sizeof(c->name))
			c->name[c->name_n++] = b;
		return 0;
	}
	if (b == '\r')
		c->state = TRAILER_LF;
	else if (!is_text(b))
		return -EBADMSG;
	return 0;
}

/* One byte that is not data. */
static int frame_byte(struct http_chunked *c, char b)
{
	switch (c->state) {
	case SIZE_FIRST:
	case SIZE:
		if (++c->line > LINE_MAX_LEN)
			return -EBADMSG;
		return size_byte(c, b);
	case EXT:
		if (++c->line > LINE_MAX_LEN || (b != '\r' && !is_text(b)))
			return -EBADMSG;
		if (b == '\r')
			c->state = SIZE_LF;
		return 0;
	case SIZE_LF:
		c->line = 0;
		c->state = c->left ? DATA : TRAILER_FIRST;
		return b == '\n' ? 0 : -EBADMSG;
	case DATA_CR:
		c->state = DATA_LF;
		return b == '\r' ? 0 : -EBADMSG;
	case DATA_LF:
		c->state = SIZE_FIRST;
		return b == '\n' ? 0 : -EBADMSG;
	case TRAILER_LF:
		c->state = TRAILER_FIRST;
		return b == '\n' ? 0 : -EBADMSG;
	case LAST_LF:
		c->state = END;
		return b == '\n' ? 0 : -EBADMSG;
	default:
		if (++c->line > TRAILERS_MAX)
			return -EBADMSG;
		return trailer_byte(c, b);
	}
}

int http_chunked_read(struct http_chunked *c, struct str *in, struct str *out)
{
	while (in->n && c->state != END) {
		int r;

		if (c->state == DATA) {
			size_t n = in->n < c->left ? in->n : (size_t)c->left;

			*out = (struct str){ in->p, n };
			in->p += n;
			in->n -= n;
			c->left -= n;
			if (c->left == 0)
				c->state = DATA_CR;
			return 1;
		}
		r = frame_byte(c, in->p[0]);
		if (r < 0)
			return r;
		in->p++;
		in->n--;
	}
	return c->state == END ? 2 : 0;
}
