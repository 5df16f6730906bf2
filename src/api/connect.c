#include "api/connect.h"

void connect_reader_init(struct connect_reader *c)
{
	buf_init(&c->in, CONNECT_FRAME_MAX + 5);
}

void connect_reader_clear(struct connect_reader *c)
{
	buf_clear(&c->in);
}

bool connect_mid_frame(const struct connect_reader *c)
{
	return c->in.n != 0;
}

void connect_head(char out[5], size_t n)
{
	out[0] = 0;
	out[1] = (char)(n >> 24);
	out[2] = (char)(n >> 16);
	out[3] = (char)(n >> 8);
	out[4] = (char)n;
}

/* The size of the frame that P begins, head and all; 0: its head is not whole. */
static ssize_t frame_size(const char *p, size_t n)
{
	const uint8_t *u = (const uint8_t *)p;
	size_t len;

	if (n < 5)
		return 0;
	if (u[0] & 1)
		return -EBADMSG;
	len = (size_t)u[1] << 24 | (size_t)u[2] << 16 | (size_t)u[3] << 8 | u[4];
	return len > CONNECT_FRAME_MAX ? -EFBIG : (ssize_t)(len + 5);
}

int connect_feed(struct connect_reader *c, const char *p, size_t n, connect_frame_fn *fn, void *arg)
{
	while (n) {
		bool kept = c->in.n != 0;
		ssize_t size = kept ? frame_size(c->in.p, c->in.n) : frame_size(p, n);
		size_t want;
		int err;

		if (size < 0)
			return (int)size;
		if (!kept && size && (size_t)size <= n) {
			err = fn((uint8_t)p[0], (struct str){ p + 5, (size_t)size - 5 }, arg);
			if (err)
				return err;
			p += size;
			n -= (size_t)size;
			continue;
		}
		/* A frame that is not all there: keep what there is of it, and no byte of the next one. */
		want = size ? (size_t)size - c->in.n : 5 - MIN(c->in.n, 4);
		want = MIN(want, n);
		err = buf_add(&c->in, p, want);
		if (err < 0)
			return err == -ENOBUFS ? -EFBIG : err;
		p += want;
		n -= want;
		size = frame_size(c->in.p, c->in.n);
		if (size < 0)
			return (int)size;
		if (size && (size_t)size == c->in.n) {
			struct buf whole = c->in;

			connect_reader_init(c);
			err = fn((uint8_t)whole.p[0], (struct str){ whole.p + 5, (size_t)size - 5 }, arg);
			buf_clear(&whole);
			if (err)
				return err;
		}
	}
	return 0;
}

/* --- text --- */

static unsigned char_len(uint8_t c)
{
	return c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

size_t utf8_tail(struct str s)
{
	size_t back;

	for (back = 1; back <= 3 && back <= s.n; back++) {
		uint8_t c = (uint8_t)s.p[s.n - back];
		unsigned len;

		if ((c & 0xc0) == 0x80)
			continue;
		len = char_len(c);
		if (len <= back)
			return 0; /* whole, or no character at all */
		if (back >= 2) {
			uint8_t second = (uint8_t)s.p[s.n - back + 1];

			/* Overlong forms, surrogates and numbers past U+10FFFF are never completed. */
			if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) ||
			    (c == 0xf0 && second < 0x90) || (c == 0xf4 && second > 0x8f))
				return 0;
		}
		return back;
	}
	return 0;
}

void text_take(struct text_hold *h, struct str data, char head[4], size_t *head_n, struct str *body,
	       bool *text)
{
	size_t fill = 0, tail;
	char joined[4 + 4];

	memcpy(joined, h->held, h->n);
	*head_n = h->n;
	*body = data;
	*text = true;
	if (h->n) {
		/* Complete the cut character, if DATA does. */
		fill = char_len(h->held[0]) - h->n;
		fill = MIN(fill, data.n);
		memcpy(joined + h->n, data.p, fill);
		*head_n += fill;
		if (utf8_tail((struct str){ joined, *head_n }) == *head_n) {
			/* Still cut: DATA was too short. */
			memcpy(h->held, joined, *head_n);
			h->n = (uint8_t)*head_n;
			*head_n = 0;
			*body = (struct str){ data.p, 0 };
			return;
		}
		*text = str_is_utf8((struct str){ joined, *head_n });
		if (*text) {
			*body = (struct str){ data.p + fill, data.n - fill };
		} else {
			*head_n = h->n;
		}
	}
	memcpy(head, joined, *head_n);
	h->n = 0;
	tail = utf8_tail(*body);
	*text = *text && str_is_utf8((struct str){ body->p, body->n - tail });
	if (*text) {
		memcpy(h->held, body->p + body->n - tail, tail);
		h->n = (uint8_t)tail;
		body->n -= tail;
	}
}
