/* cli_tree.c - how the tree of nodes is drawn: joints, what a word picks out of it, shapes that a server should never send. */
#include <stdio.h>

#include "base/clock.h"
#include "cli/tree.h"
#include "test.h"

static void line(const char *branches, const json_t *item, bool sandbox, void *arg)
{
	struct buf *b = arg;

	buf_addf(b, "%s%s\n", branches, get_str(item, "id"));
}

static int draw(const char *nodes, const char *only, struct buf *b)
{
	struct fail why = { 0 };
	autojson json_t *j = json_read(str_of(nodes), &why);
	int n;

	if (!j) {
		test_check(false, __FILE__, __LINE__, why.msg);
		return -EINVAL;
	}
	b->n = 0;
	n = tree_draw(j, only, line, b);
	buf_addc(b, 0);
	return n;
}

/* base has a sandbox, a checkpoint with a branch and two siblings, and a snapshot; other stands beside it. */
static const char garden[] =
	"[{\"id\":\"base\",\"kind\":\"template\",\"sandboxes\":[{\"id\":\"i1\",\"name\":\"one\"}]},"
	"{\"id\":\"other\",\"kind\":\"template\"},"
	"{\"id\":\"c1\",\"parent\":\"base\",\"label\":\"before\",\"sandbox\":\"i1\"},"
	"{\"id\":\"b1\",\"parent\":\"c1\",\"sandbox\":\"i1\",\"sandboxes\":[{\"id\":\"i2\"},{\"id\":\"i3\"}]},"
	"{\"id\":\"s1\",\"parent\":\"base\",\"sandbox\":\"i9\"},"
	"{\"id\":\"c2\",\"parent\":\"b1\",\"sandbox\":\"i2\"}]";

TEST(trees_are_drawn)
{
	static const struct {
		const char *nodes, *only, *drawn;
	} rows[] = {
		{ "[]", NULL, "" },
		{ "[{\"id\":\"a\"}]", NULL, "a\n" },
		{ "[{\"id\":\"a\"},{\"id\":\"b\"}]", NULL, "a\nb\n" },
		{ "[{\"id\":\"a\"},{\"id\":\"b\",\"parent\":\"a\"},{\"id\":\"c\",\"parent\":\"a\"}]", NULL, "a\n├─ b\n└─ c\n" },
		{ garden, NULL, "base\n├─ i1\n├─ c1\n│  └─ b1\n│     ├─ i2\n│     ├─ i3\n│     └─ c2\n└─ s1\nother\n" },
		/* what leads to it, and what came from it */
		{ garden, "b1", "base\n└─ c1\n   └─ b1\n      ├─ i2\n      ├─ i3\n      └─ c2\n" },
		{ garden, "before", "base\n└─ c1\n   └─ b1\n      ├─ i2\n      ├─ i3\n      └─ c2\n" },
		{ garden, "s1", "base\n└─ s1\n" },
		{ garden, "other", "other\n" },
		/* a sandbox: where it was started, and its own states; its name is as good as its id */
		{ garden, "i3", "base\n└─ c1\n   └─ b1\n      └─ i3\n" },
		{ garden, "i2", "base\n└─ c1\n   └─ b1\n      ├─ i2\n      └─ c2\n" },
		{ garden, "one", "base\n├─ i1\n└─ c1\n   └─ b1\n      ├─ i2\n      ├─ i3\n      └─ c2\n" },
		{ garden, "nothing", "" },
		/* a parent that is gone, that is itself, or that comes later, is none */
		{ "[{\"id\":\"a\",\"parent\":\"gone\"}]", NULL, "a\n" },
		{ "[{\"id\":\"a\",\"parent\":\"a\"}]", NULL, "a\n" },
		{ "[{\"id\":\"a\",\"parent\":\"b\"},{\"id\":\"b\",\"parent\":\"a\"}]", NULL, "a\n└─ b\n" },
		{ "[7,null,{\"parent\":5,\"sandboxes\":3}]", NULL, "\n\n\n" },
	};
	autobuf struct buf b;

	buf_init(&b, 64 * KIB);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("row %zu, %s", i, rows[i].only ? rows[i].only : "all");
		draw(rows[i].nodes, rows[i].only, &b);
		CHECK_STR(b.p, rows[i].drawn);
	}
	test_row(NULL);
}

static void count_bytes(const char *branches, const json_t *item, bool sandbox, void *arg)
{
	size_t *longest = arg;

	*longest = MAX(*longest, strlen(branches));
}

/* Ten thousand checkpoints of one sandbox, each upon the one before. */
TEST(a_deep_tree_is_cheap)
{
	autojson json_t *nodes = json_array();
	size_t longest = 0;
	int64_t began;

	for (int i = 0; i < 10000; i++) {
		char id[16], parent[16];

		snprintf(id, sizeof(id), "n%d", i);
		snprintf(parent, sizeof(parent), "n%d", i - 1);
		json_array_append_new(nodes, json_pack("{s:s,s:s}", "id", id, "parent", parent));
	}
	began = mono_ms();
	CHECK_INT(tree_draw(nodes, NULL, count_bytes, &longest), 10000);
	CHECK_INT(tree_draw(nodes, "n9999", count_bytes, &longest), 10000);
	CHECK(longest < 256);
	CHECK(mono_ms() - began < 1000);
}
