/* watch.c - GET …/watch: what changes under a directory, as events. */
#include <stdio.h>

#include "api/connect.h"
#include "api/handlers.h"

struct watch {
	struct req *r;
	struct guest_call *call;
	struct connect_reader in;
	char *path;
	struct fail told;
	bool ended;
};

static const struct { const char *theirs, *ours; } kinds[] = {
	{ "EVENT_TYPE_CREATE", "create" }, { "EVENT_TYPE_WRITE", "write" },
	{ "EVENT_TYPE_REMOVE", "remove" }, { "EVENT_TYPE_RENAME", "rename" },
	{ "EVENT_TYPE_CHMOD", "chmod" },
};

static void watch_gone(struct req *r)
{
	struct watch *wa = r->user;

	if (wa && !wa->ended)
		guest_cancel(wa->call);
}

static void watch_stop(struct req *r, const struct fail *why)
{
	struct watch *wa = r->user;

	if (!wa || wa->ended)
		return;
	wa->told = *why;
	guest_cancel(wa->call);
}

static void watch_drain(struct http_exchange *x, void *arg)
{
	struct req *r = arg;
	struct watch *wa = r->user;

	if (wa && !wa->ended)
		guest_resume(wa->call);
}

static void tell(struct watch *wa, const char *event, const char *name)
{
	autofree char *path = NULL;
	struct buf b;
	struct jw w;

	if (name && asprintf(&path, "%s%s%s", wa->path, wa->path[1] ? "/" : "", name) < 0)
		path = NULL;
	answer_begin(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "path", name ? path : wa->path);
	if (name)
		jw_str(&w, "name", name);
	jw_obj_end(&w);
	if (req_event(wa->r, NULL, event, &w) == 1)
		guest_pause(wa->call);
}

static int on_frame(uint8_t flags, struct str payload, void *arg)
{
	struct watch *wa = arg;
	struct fail bad = { 0 };
	autojson json_t *msg = json_read(payload, &bad);
	json_t *v;
	const char *type, *name;
	size_t i;

	if (!msg)
		return -EBADMSG;
	if (flags & 2) {
		if ((v = json_object_get(msg, "error")))
			guest_error_json(&wa->told, 0, v, ERR_file_not_found);
		return 0;
	}
	if (!wa->r->x)
		return 1;
	if (json_object_get(msg, "start") && !http_started(wa->r->x)) {
		guest_endless(wa->call);
		req_is_stream(wa->r, watch_stop);
		http_on_drain(wa->r->x, watch_drain, wa->r);
		req_sse(wa->r);
		tell(wa, "start", NULL);
	}
	v = json_object_get(msg, "filesystem");
	type = json_string_value(json_object_get(v, "type"));
	name = json_string_value(json_object_get(v, "name"));
	if (type && name && wa->r->x && http_started(wa->r->x))
		for (i = 0; i < ARRAY_LEN(kinds); i++)
			if (!strcmp(type, kinds[i].theirs))
				tell(wa, kinds[i].ours, name);
	return 0;
}

static void on_data(struct guest_call *c, const char *p, size_t n, void *arg)
{
	struct watch *wa = arg;

	if (!wa->told.err && connect_feed(&wa->in, p, n, on_frame, wa) < 0) {
		fail_as(&wa->told, ERR_agent_unreachable, "the agent's answer makes no sense");
		guest_cancel(c);
	}
}

static void on_end(struct guest_call *c, const struct fail *why, void *arg)
{
	struct watch *wa = arg;
	struct req *r = wa->r;
	struct fail f = wa->told.err ? wa->told : *why;

	wa->ended = true;
	r->user = NULL;
	r->on_gone = NULL;
	if (!f.err)
		fail_as(&f, ERR_agent_unreachable, "the agent ended the watch");
	if (r->x && http_started(r->x))
		req_event_fail(r, &f);
	else
		req_fail(r, &f);
	connect_reader_clear(&wa->in);
	free(wa->path);
	free(wa);
	req_unref(r);
}

static int ask(struct watch *wa, bool recursive, struct fail *why)
{
	static const struct guest_cb cb = { .data = on_data, .end = on_end };
	struct guest_opts o = { .method = "POST", .target = "/filesystem.Filesystem/WatchDir",
		.connect_stream = true, .not_found = ERR_file_not_found };
	autobuf struct buf b;
	struct jw w;

	buf_init(&b, 64 * KIB);
	jw_init(&w, &b);
	jw_obj(&w, NULL);
	jw_str(&w, "path", wa->path);
	jw_bool(&w, "recursive", recursive);
	jw_obj_end(&w);
	if (w.err)
		return fail_set(why, w.err, "out of memory");
	o.body = buf_str(&b);
	wa->call = guest_call(wa->r->api, wa->r->sb, &o, &cb, wa, why);
	return wa->call ? 0 : why->err;
}

void h_watch(struct req *r)
{
	autofree char *path = NULL;
	struct fail why = { 0 };
	bool recursive = false;
	struct watch *wa;

	if (req_query(r, "path", &path, &why) < 0 || req_query_flag(r, "recursive", &recursive, &why) < 0 ||
	    guest_path_check(str_of(path), "path", &why) < 0)
		return req_fail(r, &why);
	wa = calloc(1, sizeof(*wa));
	if (!wa)
		return req_failf(r, ERR_no_capacity, "out of memory");
	wa->r = req_ref(r);
	wa->path = steal_ptr(path);
	connect_reader_init(&wa->in);
	if (ask(wa, recursive, &why) < 0) {
		req_fail(r, &why);
		free(wa->path);
		free(wa);
		req_unref(r);
		return;
	}
	r->user = wa;
	r->on_gone = watch_gone;
}
