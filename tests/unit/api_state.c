/* The routes of the state on a core of nothing: bodies, kinds and pages, the tree, streams with back-pressure, waking before a call. */
#include <stdio.h>
#include <time.h>

#include "api_front.h"
#include "base/clock.h"
#include "test.h"

static json_t *json_of(void)
{
	struct fail why = { 0 };

	return json_read(str_of(answer_body()), &why);
}

TEST(what_is_taken_has_a_label_and_a_key)
{
	static const struct { const char *path, *body; int status; const char *word; } rows[] = {
		{ "checkpoints", NULL, 201, "\"kind\":\"checkpoint\"" }, { "checkpoints", "{\"label\":\"a b\"}", 201, "\"label\":\"a b\"" },
		{ "checkpoints", "{\"label\":\"\"}", 400, "label" }, { "checkpoints", "{\"label\":\"a\\nb\"}", 400, "label" },
		{ "checkpoints", "{\"label\":\"nabcdefghij0123456789\"}", 400, "not like an id" },
		{ "checkpoints", "{\"labels\":\"x\"}", 400, "labels" }, { "snapshots", "{}", 201, "\"kind\":\"snapshot\"" },
		{ "snapshots", "[]", 400, "bad_json" }, { "suspend", NULL, 200, "\"state\":\"suspended\"" },
		{ "rollback", "{}", 400, "checkpoint" }, { "rollback", "{\"checkpoint\":\"before\"}", 200, "\"id\":" },
		{ "branch", NULL, 201, "\"sandboxes\":[]" }, { "branch", "{\"count\":0}", 400, "count" },
		{ "branch", "{\"count\":65}", 400, "from 1 to 64" }, { "fork", "{\"count\":2}", 201, "\"failed\":[{\"code\":\"no_capacity\"" },
		{ "branch", "{\"timeout\":\"x\"}", 400, "timeout" }, { "branch", "{\"metadata\":{\"a\":1}}", 400, "metadata.a" },
		{ "branch", "{\"env\":{}}", 400, "env" },
	};
	char target[96];
	size_t i;

	start();
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s %s", rows[i].path, rows[i].body ? rows[i].body : "no body");
		snprintf(target, sizeof(target), "/v1/sandboxes/box/%s", rows[i].path);
		CHECK_INT(ask("POST", target, rows[i].body), rows[i].status);
		CHECK(has(rows[i].word));
	}
	test_row(NULL);
	CHECK_STR(fake.rollback, "before");
	CHECK_INT(ask("POST", "/v1/sandboxes/box/branch", "{\"count\":2,\"timeout\":\"1m\",\"label\":\"keep\"}"), 201);
	CHECK_INT(fake.branch.count, 2);
	CHECK_INT(fake.branch.timeout_s, 60);
	CHECK(has("\"label\":\"keep\"") && has("\"kind\":\"branch\"") && has("\"sandboxes\":[{\"id\":\"iabcdefghij0123456789\""));
	CHECK_INT(exchange(false, "POST", "/v1/sandboxes/box/snapshots", "Idempotency-Key: k1\r\n", "{}", NULL), 201);
	CHECK_STR(fake.idem, "k1");
	CHECK(fake.disk_only);
	CHECK_INT(exchange(false, "POST", "/v1/sandboxes/box/checkpoints", "Idempotency-Key:\r\n", "{}", NULL), 400);
	CHECK_INT(ask("POST", "/v1/sandboxes/zzz/checkpoints", "{}"), 404);
	CHECK(has("sandbox_not_found"));
	fake.busy = true;
	CHECK_INT(ask("POST", "/v1/sandboxes/box/checkpoints", "{}"), 409);
	CHECK(has("\"code\":\"busy\""));
	CHECK_INT(ask("POST", "/v1/sandboxes/box/branch", "{}"), 409);
	CHECK_INT(ask("POST", "/v1/sandboxes/box/suspend", NULL), 409);
	CHECK_INT(fake.sb.users, 0);
}

TEST(slow_calls_answer_with_an_operation)
{
	static const struct { const char *path, *body, *kind; } rows[] = {
		{ "sandboxes/box/suspend", NULL, "suspend" }, { "sandboxes/box/checkpoints", "{}", "checkpoint" },
		{ "sandboxes/box/snapshots", NULL, "snapshot" }, { "sandboxes/box/branch", "{}", "branch" },
		{ "sandboxes/box/rollback", "{\"checkpoint\":\"x\"}", "rollback" }, { "prune", "{\"older_than\":\"7d\"}", "prune" },
	};
	char target[96], kind[64];
	size_t i;

	start();
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s", rows[i].path);
		snprintf(target, sizeof(target), "/v1/%s", rows[i].path);
		snprintf(kind, sizeof(kind), "\"kind\":\"%s\"", rows[i].kind);
		CHECK_INT(exchange(false, "POST", target, "Prefer: respond-async\r\n", rows[i].body, NULL), 202);
		CHECK(has(kind) && has("Location: /v1/operations/"));
		CHECK_INT(fake.op.state, OPERATION_DONE);
	}
	test_row(NULL);
	CHECK_INT(ask("POST", "/v1/fsck", NULL), 202);
	fake.busy = true;
	CHECK_INT(ask("POST", "/v1/fsck", NULL), 409);
}

TEST(creates_come_from_one_of_three)
{
	start();
	CHECK_INT(ask("POST", "/v1/sandboxes", "{\"checkpoint\":\"x\"}"), 201);
	CHECK_INT(ask("POST", "/v1/sandboxes", "{\"snapshot\":\"x\",\"on_timeout\":\"suspend\",\"auto_wake\":true}"), 201);
	CHECK_INT(ask("POST", "/v1/sandboxes", "{\"snapshot\":\"x\",\"checkpoint\":\"y\"}"), 400);
	CHECK_INT(ask("POST", "/v1/sandboxes", "{\"template\":\"x\",\"checkpoint\":\"y\"}"), 400);
	CHECK(has("one of template, checkpoint and snapshot"));
}

TEST(what_is_pruned_is_said_strictly)
{
	start();
	CHECK_INT(ask("POST", "/v1/prune", "{}"), 400);
	CHECK(has("older_than"));
	CHECK_INT(ask("POST", "/v1/prune", "{\"older_than\":\"7d\",\"kinds\":[]}"), 400);
	CHECK_INT(ask("POST", "/v1/prune", "{\"older_than\":\"7d\",\"kinds\":[\"suspend\"]}"), 400);
	CHECK_INT(ask("POST", "/v1/prune", "{\"older_than\":\"7d\",\"kinds\":[7]}"), 400);
	CHECK_INT(ask("POST", "/v1/prune", "{\"older_than\":\"7d\",\"kinds\":[\"snapshot\"],\"dry_run\":true}"), 200);
	CHECK_STR(answer_body(), "{\"removed\":[\"nabcdefghij0123456789\"],\"bytes\":5}");
	CHECK(fake.prune.snapshots && !fake.prune.checkpoints && fake.prune.dry_run);
	CHECK_INT(fake.prune.older_than_s, 7 * 86400);
	CHECK_INT(ask("POST", "/v1/prune", "{\"older_than\":0}"), 200);
	CHECK(fake.prune.snapshots && fake.prune.checkpoints && !fake.prune.dry_run);
	CHECK_INT(ask("GET", "/v1/usage", NULL), 200);
	CHECK(has("\"clone\":\"native\""));
}

/* Follows a list to its end: how many came; -1 if one came twice. Removes a node after the first page if REMOVE. */
static int follow(const char *path, const char *noun, unsigned limit, bool remove, bool parents_first)
{
	autojson json_t *seen = json_object();
	char target[256], next[64] = "";
	unsigned pages = 0;

	do {
		autojson json_t *j = NULL;
		const char *cursor;
		json_t *one;
		size_t i;

		snprintf(target, sizeof(target), "%s%climit=%u%s%s", path, strchr(path, '?') ? '&' : '?', limit, *next ? "&cursor=" : "", next);
		if (exchange(false, "GET", target, NULL, NULL, NULL) != 200 || !(j = json_of()))
			return -2;
		json_array_foreach (json_object_get(j, noun), i, one) {
			const char *id = json_string_value(json_object_get(one, "id"));
			const char *parent = json_string_value(json_object_get(one, "parent"));

			if (json_object_get(seen, id))
				return -1;
			if (parents_first && parent && !json_object_get(seen, parent))
				return -3;
			json_object_set_new(seen, id, json_true());
		}
		cursor = json_string_value(json_object_get(j, "next_cursor"));
		snprintf(next, sizeof(next), "%s", cursor ? cursor : "");
		if (pages++ == 0 && remove) { /* the one that the page ended with */
			char id[24];
			unsigned k, n = 0;

			snprintf(id, sizeof(id), "%s", strchr(next, '-') + 1);
			for (k = 0; k < fake.nnodes; k++)
				if (strcmp(fake.nodes[k].id, id))
					fake.nodes[n++] = fake.nodes[k];
			fake.nnodes = n;
		}
	} while (*next);
	return (int)json_object_size(seen);
}

TEST(lists_of_nodes_are_filtered_and_paged)
{
	start();
	fake_nodes(50);
	CHECK_INT(follow("/v1/checkpoints", "checkpoints", 7, false, false), 20);
	CHECK_INT(follow("/v1/checkpoints?kind=branch", "checkpoints", 7, false, false), 10);
	CHECK_INT(follow("/v1/checkpoints?kind=branch,suspend,template", "checkpoints", 3, true, false), 30);
	CHECK_INT(follow("/v1/snapshots", "checkpoints", 1, false, false), 10);
	CHECK_INT(follow("/v1/sandboxes/box/checkpoints", "checkpoints", 2, false, false), 10);
	CHECK_INT(follow("/v1/checkpoints?sandbox=box", "checkpoints", 100, false, false), 10);
	CHECK_INT(follow("/v1/checkpoints?sandbox=izzzzzzzzzz0123456789", "checkpoints", 1, false, false), 10);
	CHECK_INT(ask("GET", "/v1/checkpoints?sandbox=nobody", NULL), 404);
	CHECK_INT(ask("GET", "/v1/checkpoints?kind=nope", NULL), 400);
	CHECK_INT(ask("GET", "/v1/checkpoints?kind=", NULL), 400);
	CHECK_INT(ask("GET", "/v1/snapshots?kind=branch", NULL), 400);
	CHECK_INT(ask("GET", "/v1/checkpoints?cursor=x", NULL), 400);
	CHECK(has("bad_cursor"));
	/* The clock went back: the order of the list counts, not the times. */
	fake_nodes(50);
	fake.nodes[49].created_ns = 5;
	fake.nodes[20].created_ns = 0;
	CHECK_INT(follow("/v1/checkpoints?kind=suspend,template,checkpoint,snapshot,branch", "checkpoints", 1, false, false), 50);
	CHECK_INT(ask("GET", "/v1/checkpoints/label%207", NULL), 200);
	CHECK(has("\"id\":\"n00000000000000000007\""));
	CHECK_INT(ask("GET", "/v1/checkpoints/nope", NULL), 404);
	CHECK(has("checkpoint_not_found"));
	CHECK_INT(ask("DELETE", "/v1/checkpoints/label%207", NULL), 204);
	CHECK_STR(fake.removed, "n00000000000000000007");
	fake.busy = true;
	CHECK_INT(ask("DELETE", "/v1/checkpoints/label%207", NULL), 409);
}

TEST(the_tree_has_parents_first_and_is_quick)
{
	clock_t t0;
	int i;

	start();
	fake_nodes(50);
	CHECK_INT(follow("/v1/tree", "nodes", 7, false, true), 50);
	CHECK_INT(follow("/v1/tree", "nodes", 7, true, false), 50);
	snprintf(fake.sb.node, sizeof(fake.sb.node), "%s", fake.nodes[3].id);
	CHECK_INT(ask("GET", "/v1/tree?limit=4", NULL), 200);
	CHECK(has("\"id\":\"n00000000000000000003\"") &&
	      has("\"sandboxes\":[{\"id\":\"iabcdefghij0123456780\",\"name\":\"box\",\"state\":\"running\"},"));
	snprintf(fake.sb.checkpoint, sizeof(fake.sb.checkpoint), "%s", fake.nodes[5].id);
	CHECK_INT(ask("GET", "/v1/tree?limit=4", NULL), 200);
	CHECK(!has("\"name\":\"box\""));
	CHECK_INT(ask("GET", "/v1/tree", NULL), 200);
	CHECK(has("\"name\":\"box\""));
	/* Ten thousand of them: a page anywhere costs less than 50 ms. */
	fake_nodes(10000);
	for (i = 0; i < 10000; i += 3333) {
		char target[96];

		snprintf(target, sizeof(target), "/v1/tree?cursor=%lld-%s", (long long)fake.nodes[i].created_ns, fake.nodes[i].id);
		t0 = clock(); /* of the CPU: others run here, too */
		CHECK_INT(ask("GET", target, NULL), 200);
		CHECK(clock() - t0 < CLOCKS_PER_SEC / 20);
		snprintf(target, sizeof(target), "/v1/checkpoints?cursor=%lld-%s", (long long)fake.nodes[i].created_ns, fake.nodes[i].id);
		t0 = clock(); /* of the CPU: others run here, too */
		CHECK_INT(ask("GET", target, NULL), 200);
		CHECK(clock() - t0 < CLOCKS_PER_SEC / 20);
	}
	CHECK_INT(follow("/v1/tree", "nodes", 1000, false, true), 10000);
}

/* --- export --- */

static void run_for(int ms)
{
	int64_t end = mono_ms() + ms;

	while (mono_ms() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(500);
	}
}

static void wait_idle(void)
{
	int64_t end = mono_ms() + 5000;

	while (api.transfers && mono_ms() < end)
		run_for(2);
	CHECK_INT(api.transfers, 0);
	CHECK_INT(api.nstreams, 0);
}

static int begin(const char *head)
{
	int fd = dial(false);

	if (write(fd, head, strlen(head)) != (ssize_t)strlen(head))
		CHECK(false);
	return fd;
}

#define EXPORT "GET /v1/checkpoints/label%201/export HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

/* Reads to the end: how many bytes, and whether the last chunk came. */
static uint64_t drain(int fd, bool *whole)
{
	static char block[5 + 65536]; /* the end of the last piece goes before the next */
	size_t kept = 0;
	int64_t end = mono_ms() + 10000;
	uint64_t total = 0;

	while (mono_ms() < end) {
		ssize_t n = read(fd, block + kept, sizeof(block) - kept);

		if (n > 0) {
			size_t have = kept + (size_t)n;

			total += (uint64_t)n;
			kept = MIN(have, 5);
			memmove(block, block + have - kept, kept);
		} else if (n == 0 || errno != EAGAIN) {
			break;
		} else {
			run_for(1);
		}
	}
	*whole = kept == 5 && !memcmp(block, "0\r\n\r\n", 5);
	return total;
}

TEST(an_export_is_a_stream_and_waits_for_its_reader)
{
	bool whole;
	int fd;

	start();
	fake_nodes(5);
	fake.export_bytes = 10;
	CHECK_INT(exchange(false, "GET", "/v1/checkpoints/label%201/export", NULL, NULL, NULL), 200);
	CHECK(has("Content-Type: application/vnd.space.checkpoint") && has("eeeeeeeeee"));
	CHECK_INT(ask("GET", "/v1/checkpoints/nope/export", NULL), 404);
	wait_idle();
	fake.export_bytes = 20 * MIB;
	fd = begin(EXPORT);
	run_for(300);
	CHECK_INT(api.transfers, 1); /* the job waits in write(): we hold no 20 MiB */
	CHECK(drain(fd, &whole) > 20 * MIB);
	CHECK(whole);
	close(fd);
	wait_idle();
	/* The client leaves: the job ends. */
	fd = begin(EXPORT);
	run_for(50);
	CHECK_INT(api.transfers, 1);
	close(fd);
	wait_idle();
	/* It fails: with an answer before the first byte, and never with a whole answer after it. */
	fake.export_fails = true;
	fd = begin(EXPORT);
	drain(fd, &whole);
	CHECK(!whole);
	close(fd);
	wait_idle();
	fake.export_bytes = 0;
	CHECK_INT(exchange(false, "GET", "/v1/checkpoints/label%201/export", NULL, NULL, NULL), 500);
	CHECK(has("checkpoint_damaged"));
	wait_idle();
}

TEST(only_so_many_transfers_hold_worker_threads)
{
	struct fail why = { 0 };
	int fd[4], i;
	bool whole;

	start();
	fake_nodes(5);
	fake.export_bytes = 20 * MIB;
	for (i = 0; i < 4; i++)
		fd[i] = begin(EXPORT);
	run_for(100);
	CHECK_INT(ask("GET", "/v1/checkpoints/label%201/export", NULL), 429);
	CHECK(has("rate_limited"));
	CHECK_INT(ask("GET", "/v1/checkpoints/label%201", NULL), 200);
	/* The daemon stops: they end, and not as if they were whole. */
	fail_as(&why, ERR_daemon_down, "spaced is stopping");
	req_stop_streams(&api, NULL, &why);
	for (i = 0; i < 4; i++) {
		CHECK(drain(fd[i], &whole) < 20 * MIB);
		CHECK(!whole);
		close(fd[i]);
	}
	wait_idle();
}

/* --- import --- */

static bool read_answer(int fd)
{
	int64_t end = mono_ms() + 5000;
	char text[8192];
	size_t n = 0;

	while (mono_ms() < end) {
		ssize_t r = read(fd, text + n, sizeof(text) - 1 - n);

		if (r > 0)
			n += (size_t)r;
		else if (r == 0 || errno != EAGAIN)
			break;
		else
			run_for(1);
	}
	text[n] = '\0';
	free(answer);
	answer = strdup(text);
	return n > 0;
}

TEST(an_import_is_read_as_it_comes)
{
	static char block[1 << 16];
	char head[160];
	unsigned i;
	int fd;

	start();
	CHECK_INT(ask("POST", "/v1/checkpoints/import", "abc."), 201);
	CHECK(has("\"id\":\"nabcdefghij0123456789\""));
	CHECK_INT(fake.imported, 4);
	CHECK_INT(ask("POST", "/v1/checkpoints/import", NULL), 411);
	CHECK_INT(ask("POST", "/v1/checkpoints/import", ""), 400);
	CHECK_INT(ask("POST", "/v1/checkpoints/import", "abc"), 400);
	CHECK(has("the stream has no end"));
	wait_idle();
	/* More than any buffer. */
	memset(block, 'i', sizeof(block));
	snprintf(head, sizeof(head), "POST /v1/checkpoints/import HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %llu\r\n\r\n",
		 8 * MIB + 1);
	fd = begin(head);
	for (i = 0; i < 8 * MIB / sizeof(block);) {
		static size_t at;
		ssize_t n = write(fd, block + at, sizeof(block) - at);

		if (n > 0)
			at += (size_t)n;
		if (at == sizeof(block)) {
			at = 0;
			i++;
		}
		run_for(0);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	CHECK_INT(write(fd, ".", 1), 1);
	CHECK(read_answer(fd) && has("201"));
	CHECK_INT(fake.imported, 8 * MIB + 1);
	close(fd);
	wait_idle();
	/* What is refused at once is answered at once, however much was announced. */
	fd = begin(head);
	CHECK_INT(write(fd, "X", 1), 1);
	CHECK(read_answer(fd) && has("400") && has("not a checkpoint"));
	close(fd);
	wait_idle();
	/* A client that leaves in the middle. */
	fd = begin(head);
	CHECK_INT(write(fd, block, 1000), 1000);
	run_for(50);
	CHECK_INT(api.transfers, 1);
	close(fd);
	wait_idle();
	CHECK(!fake.import_whole);
}

/* --- waking --- */

TEST(a_call_wakes_what_sleeps)
{
	static const char *const calls[] = { "/v1/sandboxes/box/processes/5/output", "/v1/sandboxes/box/files/a", "/v1/sandboxes/box/tar/a",
		"/v1/sandboxes/box/ports/80/" };
	static const enum sandbox_state asleep[] = { SANDBOX_PAUSED, SANDBOX_SUSPENDED };
	static const enum sandbox_state going[][2] = { { SANDBOX_PAUSING, SANDBOX_PAUSED }, { SANDBOX_SUSPENDING, SANDBOX_SUSPENDED },
		{ SANDBOX_SUSPENDING, SANDBOX_RUNNING } };
	size_t i, j;
	int fd;

	start();
	for (i = 0; i < ARRAY_LEN(asleep); i++)
		for (j = 0; j < ARRAY_LEN(calls); j++) {
			test_row("%s, %s", calls[j], sandbox_state_name(asleep[i]));
			fake.sb.state = asleep[i];
			fake.sb.auto_wake = false;
			fake.wakes = 0;
			ask("GET", calls[j], NULL);
			CHECK_INT(fake.wakes, 0);
			fake.sb.auto_wake = true;
			ask("GET", calls[j], NULL);
			CHECK_INT(fake.wakes, 1);
			CHECK_INT(fake.sb.state, SANDBOX_RUNNING);
		}
	test_row(NULL);
	/* By host name; and who only looks wakes nobody. */
	fake.wakes = 0;
	fake.sb.state = SANDBOX_SUSPENDED;
	ask("GET", "/v1/sandboxes/box/metrics", NULL);
	ask("GET", "/v1/sandboxes/box/processes", NULL);
	ask("GET", "/v1/sandboxes/box", NULL);
	CHECK_INT(fake.wakes, 0);
	exchange(true, "GET", "/", "E2b-Sandbox-Id: iabcdefghij0123456789\r\nE2b-Sandbox-Port: 80\r\n", NULL, NULL);
	CHECK_INT(fake.wakes, 1);
	/* One that is just going to sleep is waited for, and then woken, unless it stayed awake. */
	for (i = 0; i < ARRAY_LEN(going); i++) {
		test_row("%s to %s", sandbox_state_name(going[i][0]), sandbox_state_name(going[i][1]));
		fake.wakes = 0;
		fake.sb.state = going[i][0];
		fd = begin("GET /v1/sandboxes/box/files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
		run_for(30);
		CHECK_INT(fake.wakes, 0);
		CHECK_INT(fake.sb.users, 1);
		fake_still(going[i][1]);
		CHECK(read_answer(fd) && has("409")); /* there is no guest here, but that is asked after waking only */
		CHECK_INT(fake.wakes, going[i][1] != SANDBOX_RUNNING);
		CHECK_INT(fake.sb.state, SANDBOX_RUNNING);
		close(fd);
	}
	test_row(NULL);
	/* The client leaves meanwhile; a wake that is refused is told. */
	fake.sb.state = SANDBOX_WAKING;
	fd = begin("GET /v1/sandboxes/box/files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	run_for(30);
	close(fd);
	run_for(30);
	fake_still(SANDBOX_RUNNING);
	run_for(10);
	CHECK_INT(fake.sb.users, 0);
	/* While something else is done to it, the call waits; unless its client leaves. */
	fake.sb.state = SANDBOX_SUSPENDED;
	fake.busy = true;
	fd = begin("GET /v1/sandboxes/box/files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	run_for(120);
	CHECK_INT(fake.sb.users, 1);
	fake.busy = false;
	CHECK(read_answer(fd) && has("409") && has("sandbox_not_running")); /* no guest here */
	CHECK_INT(fake.sb.state, SANDBOX_RUNNING);
	close(fd);
	fake.sb.state = SANDBOX_SUSPENDED;
	fake.busy = true;
	fd = begin("GET /v1/sandboxes/box/files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	run_for(30);
	close(fd);
	run_for(30);
	fake.busy = false;
	CHECK_INT(fake.sb.users, 0);
}
