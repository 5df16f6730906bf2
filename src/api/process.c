/* process.c - the commands of a sandbox: list, output, input, signals, terminal size. */
#include <stdio.h>

#include "api/command.h"
#include "api/handlers.h"
#include "base/clock.h"

static int pid_read(struct req *r, int64_t *pid, struct fail *why)
{
	uint64_t n;

	if (str_u64(str_of(req_param(r, 1)), INT32_MAX, &n) < 0 || !n)
		return fail_as(why, ERR_process_not_found, "no process %.32s in sandbox %s",
			       req_param(r, 1), r->sb->id);
	*pid = (int64_t)n;
	return 0;
}

/* --- the list --- */

static int64_t number(json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void text(struct jw *w, const char *key, json_t *v)
{
	jw_str(w, key, json_string_value(v));
}

static void range_json(struct jw *w, const char *key, json_t *v)
{
	jw_obj(w, key);
	jw_int(w, "start", number(v, "start"));
	jw_int(w, "end", number(v, "end"));
	jw_obj_end(w);
}

static void process_json(struct jw *w, const char *key, json_t *p)
{
	json_t *args = json_object_get(p, "args"), *a;
	bool running = json_is_true(json_object_get(p, "running"));
	size_t i;

	jw_obj(w, key);
	jw_int(w, "pid", number(p, "pid"));
	text(w, "cmd", json_object_get(p, "cmd"));
	jw_arr(w, "args");
	json_array_foreach (args, i, a)
		text(w, NULL, a);
	jw_arr_end(w);
	text(w, "cwd", json_object_get(p, "cwd"));
	text(w, "tag", json_object_get(p, "tag"));
	text(w, "user", json_object_get(p, "user"));
	text(w, "started_at", json_object_get(p, "startedAt"));
	jw_bool(w, "running", running);
	jw_bool(w, "pty", json_is_true(json_object_get(p, "pty")));
	if (running)
		jw_null(w, "exit");
	else
		command_exit_json(w, "exit", p);
	range_json(w, "stdout", json_object_get(p, "stdout"));
	range_json(w, "stderr", json_object_get(p, "stderr"));
	jw_obj_end(w);
}

static bool is_process(json_t *p)
{
	return number(p, "pid") >= 1 && number(p, "pid") <= INT32_MAX && command_exit_sane(p);
}

static void on_list(json_t *reply, const struct fail *why, void *arg)
{
	guest_list(arg, reply, why, "processes", is_process, process_json);
}

static void ask(struct req *r, const struct guest_opts *o, guest_json_fn *done)
{
	struct fail why = { 0 };

	req_ref(r);
	if (guest_json(r->api, r->sb, o, done, r, &why) < 0) {
		req_fail(r, &why);
		req_unref(r);
	}
}

void h_processes(struct req *r)
{
	struct guest_opts o = { .method = "GET", .target = "/space/processes", .quiet = true };

	ask(r, &o, on_list);
}

/* --- output --- */

/* Where to go on: the id of the last event, or offsets in the query. A client that reconnects sends both the URL that it began
 * with and the last id: the id is nearer. *both: one offset was given for two streams, of which one may be shorter. */
static int offsets_read(struct req *r, uint64_t off[2], bool *both, struct fail *why)
{
	struct str last = http_get(http_req(r->x), "Last-Event-ID");
	uint64_t one = UINT64_MAX;
	int e;

	off[0] = off[1] = 0;
	*both = false;
	if (last.n) {
		if (command_id_parse(last, &off[0], &off[1]) < 0)
			return fail_as(why, ERR_bad_request, "Last-Event-ID: STDOUT-STDERR, as the events' id");
		return 0;
	}
	if ((e = req_query_u64(r, "offset", INT64_MAX, &one, why)) < 0)
		return e;
	if (one != UINT64_MAX && one) {
		off[0] = off[1] = one;
		*both = true;
	}
	if ((e = req_query_u64(r, "stdout", INT64_MAX, &off[0], why)) < 0)
		return e;
	return req_query_u64(r, "stderr", INT64_MAX, &off[1], why);
}

/* The command as the agent lists it. A pid comes again when the numbers have gone round; a token is for the command that had
 * it when the token was made. */
static json_t *find(struct req *r, json_t *reply, int64_t pid)
{
	json_t *p, *found = NULL;
	int64_t ns;
	size_t i;

	json_array_foreach (json_object_get(reply, "processes"), i, p) {
		const char *at = json_string_value(json_object_get(p, "startedAt"));

		if (number(p, "pid") == pid && (!r->attach_ms || (at && !rfc3339_parse(str_of(at), &ns) &&
								  ns / NS_PER_MS <= r->attach_ms + 2000)))
			found = p;
	}
	return found;
}

static void on_found(json_t *reply, const struct fail *why, void *arg)
{
	struct req *r = arg;
	struct fail f = *why;
	uint64_t off[2] = { 0 };
	int64_t pid = 0;
	json_t *p;
	bool both = false;

	if (r->x && !f.err && pid_read(r, &pid, &f) == 0 && offsets_read(r, off, &both, &f) == 0) {
		p = find(r, reply, pid);
		if (!p) {
			fail_as(&f, ERR_process_not_found, "no command %lld, or it is gone", (long long)pid);
		} else {
			if (both) {
				off[0] = MIN(off[0], (uint64_t)number(json_object_get(p, "stdout"), "end"));
				off[1] = MIN(off[1], (uint64_t)number(json_object_get(p, "stderr"), "end"));
			}
			command_join(r, pid, off[0], off[1]);
		}
	}
	if (f.err)
		req_fail(r, &f);
	req_unref(r);
}

void h_output(struct req *r)
{
	struct guest_opts o = { .method = "GET", .target = "/space/processes" };
	struct fail why = { 0 };
	uint64_t off[2] = { 0 };
	int64_t pid = 0;
	bool both = false;

	if (pid_read(r, &pid, &why) < 0 || offsets_read(r, off, &both, &why) < 0)
		return req_fail(r, &why);
	if (r->attach_ms || both)
		return ask(r, &o, on_found);
	command_join(r, pid, off[0], off[1]);
}

/* --- input --- */

void h_stdin(struct req *r)
{
	struct fail why = { 0 };
	bool close = false;
	char target[64];
	int64_t pid = 0;

	if (pid_read(r, &pid, &why) < 0 || req_query_flag(r, "close", &close, &why) < 0)
		return req_fail(r, &why);
	snprintf(target, sizeof(target), "/space/stdin?pid=%lld%s", (long long)pid,
		 close ? "&close=1" : "");
	relay_upload(r, "POST", target, NULL, ERR_process_not_found, NULL);
}

/* --- signal and size --- */

struct signal_req {
	json_t *signal;
	bool group;
};

const struct field signal_fields[] = {
	ANY_FIELD(struct signal_req, signal, true),
	BOOL_FIELD(struct signal_req, group, false),
};
const unsigned nsignal_fields = ARRAY_LEN(signal_fields);

static void signal_body(struct req *r, json_t *body)
{
	struct signal_req q = { 0 };
	struct fail why = { 0 };
	struct guest_opts o = { .method = "POST", .target = "/space/kill",
		.not_found = ERR_process_not_found };
	char text_[96];
	int64_t pid = 0, sig = 0;

	if (pid_read(r, &pid, &why) < 0 || fields_read(body, signal_fields, nsignal_fields, &q, &why) < 0)
		return req_fail(r, &why);
	if (json_is_integer(q.signal))
		sig = json_integer_value(q.signal);
	else if (json_is_string(q.signal))
		sig = signal_number(json_string_value(q.signal));
	if (sig < 1 || sig > 64)
		return req_failf(r, ERR_bad_request, "signal: 1 to 64, or a name like \"TERM\"");
	snprintf(text_, sizeof(text_), "{\"pid\":%lld,\"signal\":%lld,\"group\":%s}", (long long)pid,
		 (long long)sig, q.group ? "true" : "false");
	o.body = str_of(text_);
	ask(r, &o, answer_nothing);
}

void h_signal(struct req *r)
{
	req_body(r, signal_body);
}

static void resize_body(struct req *r, json_t *body)
{
	struct resize_req q = { 0 };
	struct fail why = { 0 };
	struct guest_opts o = { .method = "POST", .target = "/process.Process/Update",
		.not_found = ERR_process_not_found };
	char text_[128];
	int64_t pid = 0;

	if (pid_read(r, &pid, &why) < 0 || fields_read(body, resize_fields, nresize_fields, &q, &why) < 0)
		return req_fail(r, &why);
	snprintf(text_, sizeof(text_),
		 "{\"process\":{\"pid\":%lld},\"pty\":{\"size\":{\"cols\":%lld,\"rows\":%lld}}}",
		 (long long)pid, (long long)q.cols, (long long)q.rows);
	o.body = str_of(text_);
	ask(r, &o, answer_nothing);
}

void h_resize(struct req *r)
{
	req_body(r, resize_body);
}
