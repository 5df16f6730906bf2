/* openapi.c - /openapi.json: made from the table of routes, the tables that request bodies are read by, and the shapes of answers below.
 * Only the last can be out of step with the code, and a test compares them with real answers. */
#include <stdio.h>

#include "api/handlers.h"

#define CHECKPOINT \
	"id:s kind:s label:s? sandbox:s? template:s? parent:s? vcpu:i memory:i disk:i rootfs:s storage:s driver:s driver_version:s " \
	"digests:@NodeDigests own_bytes:i shared_bytes:i paused_ms:n created_at:t children:i damaged:s?"

/* The shapes of answers: "name:TYPE", TYPE being s text, t time, i whole number, n number, b yes or no, o any object, @X the shape X;
 * before it [] for a list of them; after it ? for "or null" and - for "may be absent". */
static const struct { const char *name, *members; } shapes[] = {
	{ "Sandbox",
	  "id:s name:s state:s reason:s? isolation:s driver:s storage:s template:s template_version:i node:s? checkpoint:s? digests:@Digests vcpu:i "
	  "memory:i disk:i rootfs:s tmpfs:o created_at:t started_at:t? ended_at:t? deadline_at:t? last_active_at:t? timeout:i "
	  "idle_timeout:i on_timeout:s auto_wake:b env:o metadata:o start:s? phases:o" },
	{ "Digests", "image:s? kernel:s? template:s?" },
	{ "Checkpoint", CHECKPOINT },
	{ "NodeDigests", "image:s? kernel:s?" },
	{ "CheckpointList", "checkpoints:[]@Checkpoint next_cursor:s?" },
	{ "Branched", "checkpoint:@Checkpoint sandboxes:[]@Sandbox failed:[]@Error" },
	{ "Node", CHECKPOINT " sandboxes:[]@NodeSandbox" },
	{ "NodeSandbox", "id:s name:s state:s" },
	{ "Tree", "nodes:[]@Node next_cursor:s?" },
	{ "StorageUsage", "pool:@PoolUsage rows:[]@UsageRow" },
	{ "PoolUsage", "total:i free:i clone:s" },
	{ "UsageRow", "what:s count:i bytes:i" },
	{ "Pruned", "removed:[]s bytes:i" },
	{ "SandboxList", "sandboxes:[]@Sandbox next_cursor:s?" },
	{ "ExecResult",
	  "pid:i stdout:s stderr:s stdout_base64:s- stderr_base64:s- exit:@Exit truncated:o next:o" },
	{ "ExecDetached", "pid:i attach_token:s output:s" },
	{ "Exit", "code:i signal:s? reason:s" },
	{ "Process",
	  "pid:i cmd:s? args:[]s cwd:s? tag:s? user:s? started_at:t? running:b pty:b exit:@Exit? stdout:@Range stderr:@Range" },
	{ "Range", "start:i end:i" },
	{ "ProcessList", "processes:[]@Process" },
	{ "Entry",
	  "name:s path:s type:s size:i mode:s owner:s? group:s? modified_at:t? target:s-" },
	{ "EntryList", "entries:[]@Entry" },
	{ "FileWritten", "path:s size:i sha256:s" },
	{ "TarUnpacked", "files:i bytes:i" },
	{ "Usage",
	  "at:t cpu_used_pct:n? cpu_count:i? mem_used:i? mem_total:i? mem_cache:i? disk_used:i? disk_total:i? host_rss:i "
	  "host_private:i host_cpu_s:n" },
	{ "Event", "seq:i at:t sandbox:s? type:s" },
	{ "EventList", "events:[]@Event next_cursor:s?" },
	{ "Operation",
	  "id:s kind:s target:s? state:s step:s? progress:n? result:o? error:@Error? created_at:t ended_at:t?" },
	{ "OperationList", "operations:[]@Operation next_cursor:s?" },
	{ "OperationStarted", "operation:@Operation" },
	{ "Template",
	  "name:s version:i node:s digests:@Digests vcpu:i memory:i disk:i created_at:t bytes:i env:o? user:s? workdir:s? "
	  "start_cmd:s?" },
	{ "TemplateList", "templates:[]@Template next_cursor:s?" },
	{ "Image", "name:s? digest:s bytes:i created_at:t user:s? workdir:s? env:o? cmd:[]s?" },
	{ "ImageList", "images:[]@Image next_cursor:s?" },
	{ "Key", "id:s name:s scope:s last_used_at:t? created_at:t" },
	{ "KeyList", "keys:[]@Key next_cursor:s?" },
	{ "KeyCreated", "id:s name:s scope:s key:s created_at:t" },
	{ "Config", "" },
	{ "Host",
	  "version:s hostname:s isolation:s driver:s driver_version:s kernel:s? pool:o memory:o sandboxes:o slots_ready:i "
	  "monitors_ready:i uptime_s:n rss_bytes:i" },
	{ "Error", "code:s message:s remedy:s request_id:s-" },
};

static const struct { const char *name; const struct field *f; const unsigned *n; } bodies[] = {
	{ "CreateSandbox", create_fields, &ncreate_fields },
	{ "SetTimeout", timeout_fields, &ntimeout_fields },
	{ "TakeCheckpoint", checkpoint_fields, &ncheckpoint_fields },
	{ "Rollback", rollback_fields, &nrollback_fields },
	{ "Branch", branch_fields, &nbranch_fields },
	{ "Prune", prune_fields, &nprune_fields },
	{ "Exec", exec_fields, &nexec_fields },
	{ "Signal", signal_fields, &nsignal_fields },
	{ "Resize", resize_fields, &nresize_fields },
	{ "BuildTemplate", template_fields, &ntemplate_fields },
	{ "BuildImage", image_fields, &nimage_fields },
	{ "CreateKey", key_fields, &nkey_fields },
};

static bool schema_exists(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(shapes); i++)
		if (!strcmp(shapes[i].name, name))
			return true;
	for (i = 0; i < ARRAY_LEN(bodies); i++)
		if (!strcmp(bodies[i].name, name))
			return true;
	return false;
}

static void ref(struct jw *w, const char *key, struct str name)
{
	char text[96];

	snprintf(text, sizeof(text), "#/components/schemas/%.*s", STR_ARG(name));
	jw_obj(w, key);
	jw_str(w, "$ref", text);
	jw_obj_end(w);
}

/* --- schemas --- */

static void type_json(struct jw *w, const char *key, struct str t)
{
	static const struct { char c; const char *type; } types[] = { { 's', "string" }, { 't', "string" },
		{ 'i', "integer" }, { 'n', "number" }, { 'b', "boolean" }, { 'o', "object" } };
	bool null = str_ends(t, "?");
	size_t i;

	if (null)
		t.n--;
	if (str_starts(t, "[]")) {
		jw_obj(w, key);
		jw_arr(w, "type");
		jw_str(w, NULL, "array");
		if (null)
			jw_str(w, NULL, "null");
		jw_arr_end(w);
		type_json(w, "items", (struct str){ t.p + 2, t.n - 2 });
		jw_obj_end(w);
		return;
	}
	if (t.p[0] == '@') {
		if (!null)
			return ref(w, key, (struct str){ t.p + 1, t.n - 1 });
		jw_obj(w, key);
		jw_arr(w, "anyOf");
		ref(w, NULL, (struct str){ t.p + 1, t.n - 1 });
		type_json(w, NULL, STR("0"));
		jw_arr_end(w);
		jw_obj_end(w);
		return;
	}
	jw_obj(w, key);
	jw_arr(w, "type");
	for (i = 0; i < ARRAY_LEN(types); i++)
		if (types[i].c == t.p[0])
			jw_str(w, NULL, types[i].type);
	if (null || t.p[0] == '0')
		jw_str(w, NULL, "null");
	jw_arr_end(w);
	if (t.p[0] == 't')
		jw_str(w, "format", "date-time");
	jw_obj_end(w);
}

static void shape_json(struct jw *w, const char *name, const char *members)
{
	struct str rest = str_of(members), one, key, type;
	char z[40];

	jw_obj(w, name);
	jw_str(w, "type", "object");
	jw_obj(w, "properties");
	while (rest.n) {
		str_cut(rest, ' ', &one, &rest);
		str_cut(one, ':', &key, &type);
		snprintf(z, sizeof(z), "%.*s", STR_ARG(key));
		if (str_ends(type, "-"))
			type.n--;
		type_json(w, z, type);
	}
	jw_obj_end(w);
	jw_arr(w, "required");
	rest = str_of(members);
	while (rest.n) {
		str_cut(rest, ' ', &one, &rest);
		str_cut(one, ':', &key, &type);
		if (!str_ends(type, "-"))
			jw_strn(w, NULL, key);
	}
	jw_arr_end(w);
	jw_obj_end(w);
}

static void field_json(struct jw *w, const struct field *f)
{
	static const char *const types[] = { [FIELD_STR] = "string", [FIELD_INT] = "integer", [FIELD_BOOL] = "boolean",
		[FIELD_NUM] = "number", [FIELD_OBJ] = "object", [FIELD_ARR] = "array" };

	jw_obj(w, f->name);
	if (f->kind == FIELD_ANY) {
		jw_arr(w, "type");
		jw_str(w, NULL, "number");
		jw_str(w, NULL, "string");
		jw_arr_end(w);
	} else {
		jw_str(w, "type", types[f->kind]);
	}
	if (f->kind == FIELD_INT) {
		jw_int(w, "minimum", f->min);
		jw_int(w, "maximum", f->max);
	} else if (f->kind == FIELD_STR) {
		jw_int(w, "maxLength", f->max);
	} else if (f->kind == FIELD_ARR) {
		jw_int(w, "maxItems", f->max);
		jw_obj(w, "items");
		jw_str(w, "type", "string");
		jw_obj_end(w);
	} else if (f->kind == FIELD_OBJ) {
		jw_int(w, "maxProperties", f->max);
	}
	jw_obj_end(w);
}

static void body_json(struct jw *w, const char *name, const struct field *f, unsigned n)
{
	unsigned i;

	jw_obj(w, name);
	jw_str(w, "type", "object");
	jw_bool(w, "additionalProperties", false);
	jw_obj(w, "properties");
	for (i = 0; i < n; i++)
		field_json(w, &f[i]);
	jw_obj_end(w);
	jw_arr(w, "required");
	for (i = 0; i < n; i++)
		if (f[i].required)
			jw_str(w, NULL, f[i].name);
	jw_arr_end(w);
	jw_obj_end(w);
}

/* --- paths --- */

/* "/a/{p...}" and "/a/..." are "/a/{p}" and "/a/{path}" there. */
static int path_text(const char *pattern, char *out, size_t size)
{
	size_t n = strlen(pattern);
	int len;

	if (n > 4 && !strcmp(pattern + n - 4, "...}"))
		len = snprintf(out, size, "%.*s}", (int)n - 4, pattern);
	else if (n > 3 && !strcmp(pattern + n - 3, "..."))
		len = snprintf(out, size, "%.*s{path}", (int)n - 3, pattern);
	else
		len = snprintf(out, size, "%s", pattern);
	return len < (int)size ? 0 : -EINVAL;
}

static void parameter(struct jw *w, struct str name, const char *in)
{
	jw_obj(w, NULL);
	jw_strn(w, "name", name);
	jw_str(w, "in", in);
	jw_bool(w, "required", !strcmp(in, "path"));
	jw_obj(w, "schema");
	jw_str(w, "type", "string");
	jw_obj_end(w);
	jw_obj_end(w);
}

/* The headers that a call looks at; what every call takes (Authorization, X-API-Key) is said once, under security. */
static void header_parameters(struct jw *w, const struct route *rt)
{
	const struct { const char *name; bool here; } all[] = {
		{ "Prefer", rt->flags & ROUTE_ASYNC },
		{ "Idempotency-Key", rt->flags & ROUTE_KEYED },
		{ "Last-Event-ID", rt->fn == h_output || rt->fn == h_events || rt->fn == h_sandbox_events },
		{ "X-Attach-Token", rt->flags & ROUTE_ATTACH },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(all); i++)
		if (all[i].here)
			parameter(w, str_of(all[i].name), "header");
}

static void parameters(struct jw *w, const struct route *rt, const char *path)
{
	struct str rest = str_of(path), one, q;

	jw_arr(w, "parameters");
	while (rest.n) {
		str_cut(rest, '/', &one, &rest);
		if (one.n > 2 && one.p[0] == '{')
			parameter(w, (struct str){ one.p + 1, one.n - 2 }, "path");
	}
	q = str_of(rt->query);
	while (q.n) {
		str_cut(q, ' ', &one, &q);
		parameter(w, one, "query");
	}
	header_parameters(w, rt);
	jw_arr_end(w);
}

static void content(struct jw *w, const char *type, const char *schema)
{
	jw_obj(w, type);
	if (schema) {
		ref(w, "schema", str_of(schema));
	} else {
		jw_obj(w, "schema");
		jw_obj_end(w);
	}
	jw_obj_end(w);
}

static void response(struct jw *w, int status, const struct route *rt, const char *schema, bool stream)
{
	char key[8];

	snprintf(key, sizeof(key), "%d", status);
	jw_obj(w, key);
	jw_str(w, "description", http_reason(status));
	if (schema || stream || (rt->flags & ROUTE_BYTES_OUT)) {
		jw_obj(w, "content");
		if (schema)
			content(w, "application/json", schema);
		if (stream)
			content(w, "text/event-stream", NULL);
		if (rt->flags & ROUTE_BYTES_OUT)
			content(w, rt->fn == h_checkpoint_export ? CHECKPOINT_TYPE : "application/octet-stream", NULL);
		jw_obj_end(w);
	}
	jw_obj_end(w);
}

static void responses(struct jw *w, const struct route *rt)
{
	jw_obj(w, "responses");
	response(w, rt->status, rt, rt->out, rt->flags & ROUTE_STREAM);
	if (rt->fn == h_exec)
		response(w, 201, rt, "ExecDetached", false);
	if (rt->flags & ROUTE_ASYNC)
		response(w, 202, rt, "OperationStarted", false);
	jw_obj(w, "default");
	jw_str(w, "description", "what went wrong, and what mends it");
	jw_obj(w, "content");
	content(w, "application/json", "Error");
	jw_obj_end(w);
	jw_obj_end(w);
	jw_obj_end(w);
}

static void operation(struct jw *w, const struct route *rt, const char *path, const char *method)
{
	static const char *const scopes[] = { "read", "use", "admin" };
	char lower[16], id[64];
	size_t i;

	for (i = 0; i < sizeof(lower) - 1 && method[i]; i++)
		lower[i] = (char)(method[i] | 0x20);
	lower[i] = '\0';
	snprintf(id, sizeof(id), rt->method ? "%s" : "%s_%s", rt->name, lower);
	jw_obj(w, lower);
	jw_str(w, "operationId", id);
	jw_str(w, "summary", rt->summary);
	if (rt->flags & ROUTE_PUBLIC) {
		jw_arr(w, "security");
		jw_arr_end(w);
	} else {
		jw_str(w, "x-scope", scopes[rt->scope]);
	}
	parameters(w, rt, path);
	if (rt->in || (rt->flags & ROUTE_BYTES_IN)) {
		jw_obj(w, "requestBody");
		jw_bool(w, "required", !(rt->flags & ROUTE_OPTIONAL_BODY));
		jw_obj(w, "content");
		content(w, rt->in ? "application/json" : rt->fn == h_checkpoint_import ? CHECKPOINT_TYPE : "application/octet-stream",
			rt->in);
		jw_obj_end(w);
		jw_obj_end(w);
	}
	responses(w, rt);
	jw_obj_end(w);
}

static int paths(struct jw *w)
{
	static const char *const any[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS" };
	char path[128];
	unsigned i, j;
	size_t k;

	jw_obj(w, "paths");
	for (i = 0; i < nroutes; i++) {
		for (j = 0; j < i && strcmp(routes[j].pattern, routes[i].pattern) != 0; j++)
			;
		if (j < i)
			continue; /* its path has been written */
		if (path_text(routes[i].pattern, path, sizeof(path)) < 0)
			return -EINVAL;
		jw_obj(w, path);
		for (j = i; j < nroutes; j++) {
			const struct route *rt = &routes[j];

			if (strcmp(rt->pattern, routes[i].pattern) != 0)
				continue;
			if ((rt->in && !schema_exists(rt->in)) || (rt->out && !schema_exists(rt->out)))
				return -EINVAL;
			for (k = 0; k < (rt->method ? 1 : ARRAY_LEN(any)); k++)
				operation(w, rt, path, rt->method ? rt->method : any[k]);
		}
		jw_obj_end(w);
	}
	jw_obj_end(w);
	return 0;
}

static void components(struct jw *w)
{
	size_t i;

	jw_obj(w, "components");
	jw_obj(w, "securitySchemes");
	jw_obj(w, "bearer");
	jw_str(w, "type", "http");
	jw_str(w, "scheme", "bearer");
	jw_obj_end(w);
	jw_obj(w, "key");
	jw_str(w, "type", "apiKey");
	jw_str(w, "in", "header");
	jw_str(w, "name", "X-API-Key");
	jw_obj_end(w);
	jw_obj_end(w);
	jw_obj(w, "schemas");
	for (i = 0; i < ARRAY_LEN(shapes); i++)
		shape_json(w, shapes[i].name, shapes[i].members);
	for (i = 0; i < ARRAY_LEN(bodies); i++)
		body_json(w, bodies[i].name, bodies[i].f, *bodies[i].n);
	jw_obj_end(w);
	jw_obj_end(w);
}

int openapi_write(struct buf *out)
{
	static const char *const ways[] = { "bearer", "key" };
	struct jw w;
	size_t i;

	jw_init(&w, out);
	jw_obj(&w, NULL);
	jw_str(&w, "openapi", "3.1.0");
	jw_obj(&w, "info");
	jw_str(&w, "title", "SPACE");
	jw_str(&w, "version", SPACE_VERSION);
	jw_obj(&w, "license");
	jw_str(&w, "name", "Apache-2.0");
	jw_str(&w, "identifier", "Apache-2.0");
	jw_obj_end(&w);
	jw_obj_end(&w);
	jw_arr(&w, "security");
	for (i = 0; i < ARRAY_LEN(ways); i++) {
		jw_obj(&w, NULL);
		jw_arr(&w, ways[i]);
		jw_arr_end(&w);
		jw_obj_end(&w);
	}
	jw_arr_end(&w);
	if (paths(&w) < 0)
		return -EINVAL;
	components(&w);
	jw_obj_end(&w);
	return w.err;
}
