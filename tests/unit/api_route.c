/* The API through its front door, on a core of nothing: routes, methods, keys and scopes, bodies, lists, the description. */
#include <stdio.h>

#include "api_front.h"
#include "test.h"

/* --- routes --- */

TEST(a_path_finds_its_route_and_its_pieces)
{
	static const struct { const char *method, *path, *name, *p0, *p1, *allow; } rows[] = {
		{ "GET", "/v1/sandboxes", "list_sandboxes", "", "", NULL },
		{ "POST", "/v1/sandboxes", "create_sandbox", "", "", NULL },
		{ "GET", "/v1/sandboxes/", NULL, NULL, NULL, "" },
		{ "GET", "/v1/sandboxes/i1", "get_sandbox", "i1", "", NULL },
		{ "GET", "/v1/sandboxes/i1/", NULL, NULL, NULL, "" },
		{ "PUT", "/v1/sandboxes/i1", NULL, NULL, NULL, "GET, DELETE" },
		{ "GET", "/v1/sandboxes/i1/files/", "get_file", "i1", "", NULL },
		{ "GET", "/v1/sandboxes/i1/files", NULL, NULL, NULL, "" },
		{ "GET", "/v1/sandboxes/i1/files/a/b%2Fc//d", "get_file", "i1", "a/b%2Fc//d", NULL },
		{ "GET", "/v1/sandboxes/a%2Fb", "get_sandbox", "a%2Fb", "", NULL },
		{ "PATCH", "/v1/sandboxes/i1/ports/80/x/y", "proxy_port", "i1", "80", NULL },
		{ "GET", "/v1/sandboxes/i1/ports/80/", "proxy_port", "i1", "80", NULL },
		{ "GET", "/v1/sandboxes/i1/ports/80", "proxy_port", "i1", "80", NULL },
		{ "GET", "/v1/sandboxes/i1/ports/", NULL, NULL, NULL, "" },
		{ "GET", "/v1/sandboxes/i1/processes/7/output", "get_output", "i1", "7", NULL },
		{ "GET", "/v1/sandboxes/i1/processes/7/exec", NULL, NULL, NULL, "" },
		{ "GET", "/", NULL, NULL, NULL, "" },
		{ "GET", "*", NULL, NULL, NULL, "" },
		{ "GET", "", NULL, NULL, NULL, "" },
		{ "DELETE", "/healthz", NULL, NULL, NULL, "GET" },
		{ "GET", "/v1/checkpoints/n1", "get_checkpoint", "n1", "", NULL },
		{ "GET", "/v1/checkpoints/import", NULL, NULL, NULL, "POST" },
		{ "POST", "/v1/checkpoints/import", "import_checkpoint", "", "", NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct str pieces[API_PARAMS] = { { 0 } };
		autobuf struct buf allow;
		const struct route *rt;

		test_row("%s %s", rows[i].method, rows[i].path);
		buf_init(&allow, 128);
		rt = route_find(str_of(rows[i].method), str_of(rows[i].path), pieces, &allow);
		CHECK_STR(rt ? rt->name : "none", rows[i].name ? rows[i].name : "none");
		if (rt && rows[i].name) {
			CHECK_STR(pieces[0], rows[i].p0);
			CHECK_STR(pieces[1], rows[i].p1);
		} else if (!rt && rows[i].allow) {
			CHECK_STR(buf_str(&allow), rows[i].allow);
		}
	}
	test_row(NULL);
}

TEST(every_route_is_whole)
{
	unsigned i, j;

	for (i = 0; i < nroutes; i++) {
		test_row("%s", routes[i].name);
		CHECK(routes[i].fn && routes[i].summary && routes[i].status && routes[i].pattern[0] == '/');
		/* Whatever needs a running sandbox needs a sandbox; whatever changes something needs more than "read". */
		CHECK(!(routes[i].flags & ROUTE_RUNNING) || (routes[i].flags & ROUTE_SANDBOX));
		CHECK((routes[i].method && !strcmp(routes[i].method, "GET")) || routes[i].scope >= SCOPE_USE);
		for (j = 0; j < i; j++) {
			CHECK(strcmp(routes[i].name, routes[j].name));
			CHECK(strcmp(routes[i].pattern, routes[j].pattern) || !routes[i].method || !routes[j].method ||
			      strcmp(routes[i].method, routes[j].method));
		}
	}
	test_row(NULL);
}

TEST(the_description_is_json_and_names_every_route)
{
	autobuf struct buf b;
	struct fail why = { 0 };
	autojson json_t *doc = NULL;
	json_t *paths;
	const char *path;
	json_t *ops;
	size_t n = 0;
	unsigned i, want = 0;

	buf_init(&b, 1 << 20);
	CHECK_INT(openapi_write(&b), 0);
	doc = json_read(buf_str(&b), &why);
	REQUIRE(doc);
	CHECK_STR(json_string_value(json_object_get(doc, "openapi")), "3.1.0");
	paths = json_object_get(doc, "paths");
	json_object_foreach (paths, path, ops)
		n += json_object_size(ops);
	for (i = 0; i < nroutes; i++)
		want += routes[i].method ? 1 : 7;
	CHECK_INT(n, want);
}

/* --- through the front door --- */

TEST(errors_have_code_message_remedy_and_number)
{
	start();
	CHECK_INT(ask("GET", "/nothing", NULL), 404);
	CHECK(has("\"code\":\"not_found\"") && has("\"remedy\":\"") && has("\"request_id\":\"") && has("X-Request-Id: "));
	CHECK_INT(ask("DELETE", "/v1/sandboxes", NULL), 405);
	CHECK(has("Allow: POST, GET") && has("method_not_allowed"));
	CHECK_INT(ask("GET", "/v1/sandboxes/zzz", NULL), 404);
	CHECK(has("sandbox_not_found"));
	CHECK_INT(ask("GET", "/v1/sandboxes/a%00b", NULL), 400);
	CHECK(has("bad_path"));
	CHECK_INT(ask("GET", "/v1/sandboxes?nope=1", NULL), 400);
	CHECK(has("this call takes no \\\"nope\\\""));
	CHECK_INT(ask("GET", "/v1/sandboxes/box/files/etc/../passwd", NULL), 400);
	CHECK(has("bad_path"));
	CHECK_INT(ask("GET", "/v1/sandboxes/box/files/a%0ab", NULL), 400);
	CHECK_INT(ask("PUT", "/v1/sandboxes/box/files/a", NULL), 411);
	CHECK_INT(fake.sb.users, 0);
}

TEST(bodies_are_read_strictly)
{
	static const struct { const char *body; int status; const char *word; } rows[] = {
		{ NULL, 201, "\"id\":" }, { "{}", 201, "\"state\":\"running\"" }, { "{", 400, "bad_json" }, { "[]", 400, "bad_json" },
		{ "{\"x\":1}", 400, "x" }, { "{\"vcpu\":0}", 400, "vcpu" }, { "{\"vcpu\":\"2\"}", 400, "vcpu" },
		{ "{\"name\":\"a\",\"name\":\"b\"}", 400, "bad_json" }, { "{\"memory\":-1}", 400, "memory" },
		{ "{\"memory\":\"512M\"}", 201, "" }, { "{\"memory\":\"x\"}", 400, "memory" }, { "{\"timeout\":\"10m\"}", 201, "" },
		{ "{\"timeout\":1.5}", 201, "" }, { "{\"timeout\":-1}", 400, "timeout" }, { "{\"timeout\":true}", 400, "timeout" },
		{ "{\"env\":{\"A\":1}}", 400, "env.A" }, { "{\"env\":{\"A=\":\"\"}}", 400, "env" },
		{ "{\"metadata\":{\"a\":{}}}", 400, "metadata.a" }, { "{\"rootfs\":\"x\"}", 400, "rootfs" },
		{ "{\"on_timeout\":\"suspend\"}", 201, "" }, { "{\"on_timeout\":\"x\"}", 400, "on_timeout" },
		{ "{\"tmpfs\":{\"/w\":\"1M\"}}", 201, "" }, { "{\"tmpfs\":{\"w\":\"1M\"}}", 400, "bad_request" },
		{ "{\"tmpfs\":{\"/\":\"1M\"}}", 400, "tmpfs./" }, { "{\"tmpfs\":{\"/proc\":\"1M\"}}", 400, "tmpfs./proc" },
		{ "{\"tmpfs\":{\"//dev/./shm/\":\"1M\"}}", 400, "tmpfs.//dev" }, { "{\"tmpfs\":{\"/sys/fs\":\"1M\"}}", 400, "tmpfs./sys" },
		{ "{\"tmpfs\":{\"/run/\":\"1M\"}}", 400, "tmpfs./run" }, { "{\"tmpfs\":{\"/etc\":\"1M\"}}", 400, "tmpfs./etc" },
		{ "{\"tmpfs\":{\"/run/x\":\"1M\"}}", 201, "" }, { "{\"tmpfs\":{\"/process\":\"1M\"}}", 201, "" },
		{ "{\"tmpfs\":{\"/w\":0}}", 400, "tmpfs" }, { "{\"name\":\"A B\"}", 400, "name" },
		{ "{\"name\":\"iabcdefghij0123456789\"}", 400, "name" }, { "{\"template\":null}", 201, "" },
	};
	size_t i;

	start();
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		test_row("%s", rows[i].body ? rows[i].body : "no body");
		CHECK_INT(ask("POST", "/v1/sandboxes", rows[i].body), rows[i].status);
		CHECK(has(rows[i].word));
	}
	test_row(NULL);
	CHECK_INT(ask("POST", "/v1/sandboxes", "{\"timeout\":1.5,\"memory\":\"1GiB\"}"), 201);
	CHECK_INT(fake.timeout_s, 2);
	CHECK_INT(fake.memory, 1 << 30);
	fake.no_capacity = true;
	CHECK_INT(ask("POST", "/v1/sandboxes", "{}"), 503);
	CHECK(has("no_capacity") && has("Retry-After: 1"));
	CHECK_INT(ask("POST", "/v1/sandboxes/box/exec", "{\"shell\":\"a\",\"cmd\":[\"b\"]}"), 400);
	CHECK_INT(ask("POST", "/v1/sandboxes/box/exec?wait=1&detach=1", "{\"shell\":\"a\"}"), 400);
	CHECK_INT(ask("POST", "/v1/sandboxes/box/exec", "{\"shell\":\"a\",\"input\":\"x\"}"), 400);
	CHECK_INT(ask("POST", "/v1/sandboxes/box/exec", "{\"shell\":\"a\",\"pty\":{\"cols\":0,\"rows\":1}}"), 400);
	CHECK(has("pty: cols"));
	CHECK_INT(ask("POST", "/v1/sandboxes/box/exec", "{\"shell\":\"a\"}"), 409);
	CHECK(has("sandbox_not_running"));
	CHECK_INT(ask("POST", "/v1/sandboxes/box/exec", NULL), 400);
	CHECK_INT(ask("POST", "/v1/images", "{\"from\":\"packages\",\"packages\":[\"-oX\"]}"), 400);
	CHECK_INT(ask("POST", "/v1/images", "{\"from\":\"packages\",\"packages\":[\"g++\",\"a=1:2~3\"]}"), 202);
	CHECK_INT(ask("POST", "/v1/images", "{\"from\":\"oci\",\"ref\":\"dir:/etc\"}"), 400);
	CHECK_INT(fake.sb.users, 0);
}

TEST(a_slow_call_may_answer_with_an_operation)
{
	start();
	CHECK_INT(exchange(false, "POST", "/v1/sandboxes", "Prefer: respond-async\r\n", "{}", NULL), 202);
	CHECK(has("Location: /v1/operations/oabcdefghij0123456789") && has("\"operation\":{\"id\":\"oabcdefghij0123456789\""));
	CHECK_INT(ask("GET", "/v1/operations/oabcdefghij0123456789", NULL), 200);
	CHECK(has("\"state\":\"done\""));
	CHECK_INT(exchange(false, "GET", "/v1/operations/oabcdefghij0123456789", "Accept: text/event-stream\r\n", NULL, NULL), 200);
	CHECK(has("event: done"));
	CHECK_INT(ask("GET", "/v1/operations/oxx", NULL), 404);
}

TEST(lists_are_paged_without_repeating_or_skipping)
{
	struct fail why = { 0 };
	char target[160] = "/v1/sandboxes?limit=1";
	unsigned pages;

	start();
	for (pages = 0; pages < 5; pages++) {
		autojson json_t *j = NULL;
		const char *next;
		char id[40];

		CHECK_INT(exchange(false, "GET", target, NULL, NULL, NULL), 200);
		j = json_read(str_of(answer_body()), &why);
		REQUIRE(j);
		snprintf(id, sizeof(id), "iabcdefghij012345678%u", 2 - pages);
		CHECK_INT(json_array_size(json_object_get(j, "sandboxes")), 1);
		CHECK_STR(json_string_value(json_object_get(json_array_get(json_object_get(j, "sandboxes"), 0), "id")), id);
		next = json_string_value(json_object_get(j, "next_cursor"));
		if (!next)
			break;
		snprintf(target, sizeof(target), "/v1/sandboxes?limit=1&cursor=%s", next);
	}
	CHECK_INT(pages, 2);
	CHECK_INT(ask("GET", "/v1/sandboxes?metadata.team=a+b&state=running,paused", NULL), 200);
	CHECK(has("iabcdefghij0123456780"));
	CHECK_INT(ask("GET", "/v1/sandboxes?metadata.team=b", NULL), 200);
	CHECK(has("\"sandboxes\":[]"));
	CHECK_INT(ask("GET", "/v1/sandboxes?state=running,nope", NULL), 400);
	CHECK_INT(ask("GET", "/v1/sandboxes?limit=0", NULL), 400);
	CHECK_INT(ask("GET", "/v1/sandboxes?cursor=%21", NULL), 400);
	CHECK(has("bad_cursor"));
	CHECK_INT(ask("GET", "/v1/templates?limit=2", NULL), 200);
	CHECK(has("\"next_cursor\":\"at-t1\""));
	CHECK_INT(ask("GET", "/v1/templates?limit=2&cursor=at-t1", NULL), 200);
	CHECK(has("\"name\":\"t2\"") && has("\"next_cursor\":null") && !has("\"name\":\"t1\""));
}

TEST(events_come_as_a_list_or_as_a_stream_that_resumes)
{
	start();
	CHECK_INT(ask("GET", "/v1/events?limit=2", NULL), 200);
	CHECK(has("{\"seq\":1,\"at\":\"2023-11-14T22:13:20.000Z\",\"sandbox\":\"iabcdefghij0123456789\",\"type\":\"created\",\"k\":1}"));
	CHECK(has("\"next_cursor\":\"2\""));
	CHECK_INT(exchange(false, "GET", "/v1/events", "Accept: text/event-stream\r\nLast-Event-ID: 2\r\n", NULL, "\"k\":1}\n\n"), 200);
	CHECK(has("id: 3\n") && !has("id: 2\n") && has("event: created\n"));
	CHECK_INT(exchange(false, "GET", "/v1/events", "Accept: text/event-stream\r\nLast-Event-ID: x\r\n", NULL, NULL), 400);
	CHECK_INT(api.nstreams, 0);
}

TEST(keys_open_what_their_scope_says)
{
	static const struct { const char *method, *path; enum scope least; } rows[] = {
		{ "GET", "/v1/sandboxes", SCOPE_READ }, { "POST", "/v1/sandboxes", SCOPE_USE },
		{ "DELETE", "/v1/sandboxes/box", SCOPE_USE }, { "POST", "/v1/sandboxes/box/exec", SCOPE_USE },
		{ "GET", "/v1/sandboxes/box/tcp/80", SCOPE_USE }, { "GET", "/metrics", SCOPE_READ },
		{ "POST", "/v1/keys", SCOPE_ADMIN }, { "DELETE", "/v1/keys/x", SCOPE_ADMIN }, { "POST", "/v1/images", SCOPE_ADMIN },
		{ "DELETE", "/v1/images/x", SCOPE_ADMIN }, { "POST", "/v1/templates", SCOPE_ADMIN },
		{ "DELETE", "/v1/templates/x", SCOPE_ADMIN }, { "GET", "/v1/keys", SCOPE_READ },
	};
	static const char *const ways[] = { "Authorization: Bearer " FAKE_KEY "\r\n", "X-API-Key: " FAKE_KEY "\r\n" };
	size_t i, s;

	start();
	for (i = 0; i < ARRAY_LEN(rows); i++)
		for (s = SCOPE_READ; s <= SCOPE_ADMIN; s++) {
			int status;

			test_row("%s %s scope %zu", rows[i].method, rows[i].path, s);
			fake.scope = (enum scope)s;
			status = exchange(true, rows[i].method, rows[i].path, ways[s % 2], strcmp(rows[i].method, "POST") ? NULL : "{}", NULL);
			CHECK_INT(status == 403, s < rows[i].least);
			CHECK(status != 401);
		}
	test_row(NULL);
	CHECK_INT(exchange(true, "GET", "/v1/sandboxes", NULL, NULL, NULL), 401);
	CHECK(has("WWW-Authenticate: Bearer") && has("unauthorized"));
	CHECK_INT(exchange(true, "GET", "/v1/sandboxes", "X-API-Key: space_0000\r\n", NULL, NULL), 401);
	CHECK_INT(exchange(true, "GET", "/healthz", NULL, NULL, NULL), 200);
	CHECK_INT(exchange(true, "GET", "/readyz", NULL, NULL, NULL), 200);
	CHECK_INT(exchange(true, "GET", "/openapi.json", NULL, NULL, NULL), 200);
	fake.not_ready = true;
	CHECK_INT(exchange(true, "GET", "/readyz", NULL, NULL, NULL), 503);
	fake.scope = SCOPE_ADMIN;
	CHECK_INT(exchange(true, "POST", "/v1/images", ways[0], "{\"from\":\"dir\",\"path\":\"/etc\"}", NULL), 403);
	CHECK_INT(ask("POST", "/v1/images", "{\"from\":\"dir\",\"path\":\"/etc\"}"), 202);
}

TEST(an_attach_token_is_for_one_command)
{
	char token[ATTACH_TOKEN_LEN], header[160], target[200];
	int64_t made;

	start();
	attach_token_make(&api, fake.sb.id, 42, 1234, token);
	CHECK_INT(attach_token_check(&api, str_of(token), fake.sb.id, 42, &made), 0);
	CHECK_INT(made, 1234);
	CHECK_INT(attach_token_check(&api, str_of(token), fake.sb.id, 43, &made), -EACCES);
	CHECK_INT(attach_token_check(&api, str_of(token), "iabcdefghij0123456780", 42, &made), -EACCES);
	token[0] = '9';
	CHECK_INT(attach_token_check(&api, str_of(token), fake.sb.id, 42, &made), -EACCES);
	CHECK_INT(attach_token_check(&api, STR(""), fake.sb.id, 42, &made), -EACCES);
	CHECK_INT(attach_token_check(&api, STR("1-"), fake.sb.id, 42, &made), -EACCES);
	attach_token_make(&api, fake.sb.id, 42, 1234, token);
	snprintf(header, sizeof(header), "X-Attach-Token: %s\r\n", token);
	snprintf(target, sizeof(target), "/v1/sandboxes/%s/processes/42/output", fake.sb.id);
	CHECK_INT(exchange(true, "GET", target, header, NULL, NULL), 409); /* it opens, and there is no guest */
	CHECK_INT(exchange(true, "GET", target, NULL, NULL, NULL), 401);
	snprintf(target, sizeof(target), "/v1/sandboxes/%s/processes/43/output", fake.sb.id);
	CHECK_INT(exchange(true, "GET", target, header, NULL, NULL), 401);
	snprintf(target, sizeof(target), "/v1/sandboxes/%s/processes", fake.sb.id);
	CHECK_INT(exchange(true, "GET", target, header, NULL, NULL), 401);
	CHECK_INT(exchange(true, "GET", "/v1/sandboxes", header, NULL, NULL), 401);
}

TEST(ports_are_found_by_host_and_headers_and_the_agents_own_calls_are_not)
{
	start();
	CHECK_INT(exchange(true, "GET", "/x", "E2b-Sandbox-Id: iabcdefghij0123456789\r\nE2b-Sandbox-Port: 80\r\n", NULL, NULL), 502);
	CHECK(has("\"sandboxId\":\"iabcdefghij0123456789\",\"message\":\"The sandbox was not found\",\"code\":502"));
	CHECK_INT(exchange(true, "GET", "/x", "E2b-Sandbox-Id: iabcdefghij0123456789\r\nE2b-Sandbox-Port: x\r\n", NULL, NULL), 400);
	CHECK_INT(exchange(true, "POST", "/init", "E2b-Sandbox-Id: iabcdefghij0123456789\r\nE2b-Sandbox-Port: 49983\r\n", "{}", NULL), 404);
	CHECK_INT(exchange(true, "GET", "/v1/sandboxes", "E2b-Sandbox-Id: box\r\nE2b-Sandbox-Port: 80\r\n", NULL, NULL), 502);
	CHECK_INT(ask("POST", "/v1/sandboxes/box/ports/49983/init", "{}"), 404);
	CHECK_INT(ask("POST", "/v1/sandboxes/box/ports/49983/space/kill", "{}"), 404);
	CHECK_INT(ask("GET", "/v1/sandboxes/box/ports/0/", NULL), 400);
	CHECK_INT(ask("GET", "/v1/sandboxes/box/ports/80/", NULL), 409);
	CHECK_INT(fake.sb.users, 0);
}

TEST(numbers_are_in_prometheus_text)
{
	start();
	ask("GET", "/v1/sandboxes/zzz", NULL);
	CHECK_INT(ask("GET", "/metrics", NULL), 200);
	CHECK(has("space_http_requests_total{route=\"get_sandbox\",status=\"404\"}"));
	CHECK(has("# TYPE space_sandboxes gauge\n") && has("space_sandboxes{state=\"running\"} 0"));
	ask("POST", "/v1/sandboxes", "{}");
	ask("GET", "/metrics", NULL);
	CHECK(has("space_create_phase_seconds_bucket{phase=\"total\",start=\"restore\",le=\"0.05\"}"));
	CHECK(has("space_create_phase_seconds_count{phase=\"total\",start=\"restore\"}"));
}
