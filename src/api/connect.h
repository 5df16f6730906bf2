/* connect.h - the Connect protocol's frames, and text out of bytes: what a command's output goes through.
 *
 * What comes from the agent comes from the guest, and is believed as little as anything else from there. */
#ifndef SPACE_API_CONNECT_H
#define SPACE_API_CONNECT_H

#include "base/json.h"

#define CONNECT_FRAME_MAX (256 * KIB) /* a chunk of output is at most 32 KiB, before base64 */

/* Frames as they arrive, cut anywhere: 5 bytes (flags, length) and a payload. */
struct connect_reader {
	struct buf in;
};

/* FLAGS has 2 in the last frame of a stream. Returning non-zero stops the reader. */
typedef int connect_frame_fn(uint8_t flags, struct str payload, void *arg);

void connect_reader_init(struct connect_reader *c);
void connect_reader_clear(struct connect_reader *c);
/* 0, what FN returned, or -EBADMSG (compressed), -EFBIG, -ENOMEM. Whole frames in DATA are not copied. Once it has not returned 0 it is
 * not to be fed again. */
int connect_feed(struct connect_reader *c, const char *data, size_t n, connect_frame_fn *fn, void *arg);
bool connect_mid_frame(const struct connect_reader *c);
/* The head of one frame with flags 0. */
void connect_head(char out[5], size_t payload);

/* Bytes that are to be shown as text: a character cut by the end of a chunk is held back (3 bytes at most) until the rest of
 * it comes or somebody calls for it. */
struct text_hold {
	uint8_t held[3];
	uint8_t n;
};

/* What of (held + DATA) can go out now. *head is what was held and now goes first: with TEXT it is to be put before *body; then
 * the rest is held. TEXT says whether head + body is UTF-8: if not, all of it goes out, and nothing is held. */
void text_take(struct text_hold *h, struct str data, char head[4], size_t *head_n, struct str *body, bool *text);
/* How many bytes at the end of S are the beginning of a character that more bytes could complete. 0 to 3. */
size_t utf8_tail(struct str s);

#endif
