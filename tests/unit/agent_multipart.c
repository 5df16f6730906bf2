/* agent_multipart.c - multipart/form-data, whole and cut at every byte. */
#include <stdio.h>

#include "agent/multipart.h"
#include "test.h"

/* What the callbacks saw: "[name|filename:data]" for each part. */
struct seen {
	char text[4096];
	size_t n;
	int stop_at; /* begin fails at this part; 0: never */
	int parts;
};

static void add(struct seen *s, const char *p, size_t n)
{
	if (n && s->n + n < sizeof(s->text)) {
		memcpy(s->text + s->n, p, n);
		s->n += n;
		s->text[s->n] = '\0';
	}
}

static int begin(const struct multipart_part *p, void *arg)
{
	struct seen *s = arg;

	if (++s->parts == s->stop_at)
		return -ECANCELED;
	add(s, "[", 1);
	add(s, p->name.p, p->name.n);
	add(s, "|", 1);
	if (p->filename.p)
		add(s, p->filename.p, p->filename.n);
	else
		add(s, "-", 1);
	add(s, ":", 1);
	return 0;
}

static int data(struct str piece, void *arg)
{
	add(arg, piece.p, piece.n);
	return 0;
}

static int end(void *arg)
{
	add(arg, "]", 1);
	return 0;
}

static const struct multipart_cb cb = { begin, data, end };

/* Feeds IN in pieces of STEP bytes. */
static int parse(struct str in, size_t step, struct seen *s)
{
	struct multipart m;
	int r = multipart_init(&m, "B", &cb, s);

	for (size_t at = 0; r == 0 && at < in.n; at += step)
		r = multipart_feed(&m, (struct str){ in.p + at, MIN(step, in.n - at) });
	if (r == 0)
		r = multipart_finish(&m);
	multipart_clear(&m);
	return r;
}

#define CD "Content-Disposition: form-data; "

TEST(multipart_bodies)
{
	static const struct {
		struct str in;
		const char *out; /* NULL: -EBADMSG */
	} rows[] = {
		{ STR("--B\r\n" CD "name=\"file\"; filename=\"a/b.txt\"\r\n\r\nhello\r\n--B--\r\n"),
			"[file|a/b.txt:hello]" },
		{ STR("preamble\r\n--B\r\n" CD "name=f\r\n\r\n\r\n--B--epilogue"), "[f|-:]" },
		{ STR("--B\r\n\r\nx\r\n--B--"), "[|-:x]" },
		{ STR("--B  \t\r\n" CD "name=\"a\"\r\nX: y\r\n\r\n1\r\n--B\r\n" CD
		      "name=\"b\"\r\n\r\n2\r\n--B--"),
			"[a|-:1][b|-:2]" },
		{ STR("--B\r\n" CD "name=\"f\"\r\n\r\n\r\n\r\r\n--\r\n--A\r\n--B--"),
			"[f|-:\r\n\r\r\n--\r\n--A]" },
		{ STR("--B\r\n" CD
		      "name=\"f\"; filename=\"q%22\\\"\\\\c\\d.txt\"\r\n\r\nx\r\n--B--"),
			"[f|q\"\"\\c\\d.txt:x]" },
		{ STR("--B\r\n" CD
		      "name=\"f\"; filename=\"x\"; filename*=UTF-8''%c3%bc%20y\r\n\r\nx\r\n--B--"),
			"[f|\xc3\xbc y:x]" },
		{ STR("--B\r\ncontent-disposition:form-data;name=f;filename=\"ü;=."
		      "txt\"\r\n\r\nx\r\n--B--"),
			"[f|ü;=.txt:x]" },
		{ STR("--B--"), "" },
		{ STR("--B\r\n" CD "name=\"f\"\r\n\r\nx\r\n--B-"), NULL },
		{ STR("--B\r\n" CD "name=\"f\"\r\n\r\nx\r\n"), NULL },
		{ STR("--B\r\n" CD "name=\"f\"\r\n\r\nx\r\n--BX\r\n"), NULL },
		{ STR("--Bx\r\n"), NULL },
		{ STR("--B-x\r\n"), NULL },
		{ STR("--B\rx"), NULL },
		{ STR(""), NULL },
		{ STR("no boundary at all"), NULL },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		for (size_t step = 1; step <= rows[i].in.n + 1; step++) {
			struct seen s = { .n = 0 };
			int r = parse(rows[i].in, step, &s);

			test_row("row %u in pieces of %zu", i, step);
			if (!CHECK_INT(r, rows[i].out ? 0 : -EBADMSG) ||
				(rows[i].out && !CHECK_STR(s.text, rows[i].out)))
				break;
		}
	}
	test_row(NULL);
}

TEST(multipart_head_has_a_limit)
{
	static char in[MULTIPART_HEAD_MAX + 100];
	struct seen s = { .n = 0 };
	int n = sprintf(in, "--B\r\nX: ");

	memset(in + n, 'x', sizeof(in) - (size_t)n);
	CHECK_INT(parse((struct str){ in, sizeof(in) }, 1000, &s), -ENOBUFS);
}

TEST(multipart_callback_stops_it)
{
	struct seen s = { .stop_at = 2 };

	CHECK_INT(parse(STR("--B\r\n\r\n1\r\n--B\r\n\r\n2\r\n--B--"), 7, &s), -ECANCELED);
	CHECK_STR(s.text, "[|-:1]");
}

TEST(multipart_boundaries)
{
	char out[MULTIPART_BOUNDARY_MAX + 1];
	char big[400];
	int n;

	CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary=abc"), out), 0);
	CHECK_STR(out, "abc");
	CHECK_INT(multipart_boundary(STR("multipart/form-data; charset=x; Boundary=\"a b\""), out),
		0);
	CHECK_STR(out, "a b");
	CHECK_INT(multipart_boundary(STR("multipart/form-data"), out), -EINVAL);
	CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary="), out), -EINVAL);
	CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary=\"open"), out), -EINVAL);
	n = sprintf(big, "multipart/form-data; boundary=");
	memset(big + n, 'b', 300);
	CHECK_INT(multipart_boundary((struct str){ big, (size_t)n + 300 }, out), -EINVAL);
}
