/* api.h - the API of the daemon: one request, who asked, what it may do, and how it is answered.
 *
 * The path of a request: http/server.h hands an exchange to route_request(), which finds the row of the table in routes.c,
 * lets auth.c say who asks, resolves {id} to a sandbox, and calls the row's handler with a struct req. A handler answers
 * with one of the req_… functions below, now or later; errors are always {code, message, remedy, request_id}.
 *
 * A req is counted. The exchange holds one reference until it is over (answered whole, or the client gone); whoever waits
 * for a callback of the core or of the agent holds another. When the exchange is over, x is NULL, on_gone has been called,
 * and every answering function does nothing: a handler that comes back late needs no check of its own.
 * Everything runs on the one loop. */
#ifndef SPACE_API_H
#define SPACE_API_H

#include "api/tick.h"
#include "base/json.h"
#include "http/client.h"
#include "http/server.h"
#include "sandbox/space.h"

#define API_BODY_MAX (1 * MIB)	/* of a JSON request body */
#define API_ANSWER_MAX (8 * MIB) /* of a JSON answer: a page of 1,000 sandboxes with full metadata fits */
#define API_PARAMS 2		/* {id} and one more; a tail counts */
#define API_STATUSES 32

struct line;
struct metrics;
struct req;
struct route;

struct api {
	uv_loop_t *loop;
	struct space *sp;
	const struct config *cfg;
	struct http_server *srv;
	struct ticks ticks;
	struct tick trim;	/* memory is given back after many streams have ended */
	struct metrics *metrics;
	struct link streams;	/* of req.link: open streams, to be ended with words when the daemon stops */
	unsigned nstreams, most_streams;
	unsigned transfers;	/* exports and imports under way */
	struct line *lines[256]; /* of alive.c, by sandbox */
	gid_t group;		/* socket_group, when has_group */
	bool has_group;
	bool stopping;
	uint8_t attach_key[32];	/* signs attach tokens; kept in STATE/attach.key, so that they outlive a restart */
	int64_t started_ms;	/* monotonic */
};

#define API_TENANT "default"

typedef void req_fn(struct req *r);

enum route_flag {
	ROUTE_PUBLIC = 1,	/* no key needed */
	ROUTE_ATTACH = 2,	/* an attach token of that sandbox and process opens it too */
	ROUTE_SANDBOX = 4,	/* {id} is a sandbox: r->sb is set */
	ROUTE_RUNNING = 8,	/* … is held, and woken first where it stands still and asked for that */
	ROUTE_RAW_QUERY = 16,	/* the query belongs to somebody else: not checked */
	ROUTE_STREAM = 32,	/* answers with server-sent events (for the description) */
	ROUTE_ASYNC = 64,	/* takes Prefer: respond-async */
	ROUTE_LOCAL_ONLY = 128,	/* not over TCP */
	ROUTE_BYTES_IN = 256, ROUTE_BYTES_OUT = 512, /* bodies that are not JSON (for the description) */
	ROUTE_OPTIONAL_BODY = 1024,
	ROUTE_QUIET = 2048,	/* only looks: no activity, and a sandbox that stands still is not woken */
	ROUTE_KEYED = 4096,	/* takes an Idempotency-Key */
};

struct route {
	const char *method;	/* NULL: any */
	const char *pattern;	/* "/v1/sandboxes/{id}/files/{path...}" */
	const char *name;	/* operationId, and the label in /metrics */
	enum scope scope;
	unsigned flags;
	req_fn *fn;
	const char *summary;
	const char *query;	/* names it takes, separated by spaces; "metadata.*" takes any after the dot. NULL: none */
	const char *in, *out;	/* schemas of the bodies, or NULL */
	int status;		/* of the ordinary answer */
};

extern const struct route routes[];
extern const unsigned nroutes;

/* An idle stream costs one of these, so its size counts: ten thousand of them are open at once. */
struct req {
	struct api *api;
	struct http_exchange *x;	/* NULL once the exchange is over */
	const struct route *route;
	struct sandbox *sb;		/* of ROUTE_SANDBOX. Held with ROUTE_RUNNING (which is activity, but for ROUTE_QUIET), else good in the handler only */
	struct link link;		/* of api->streams, for streams */
	void (*on_gone)(struct req *r);	/* the exchange is over; r->user is still there */
	union {
		void (*body_fn)(struct req *r, json_t *body);
		void (*on_stop)(struct req *r, const struct fail *why); /* streams: say WHY and end */
	};
	void *user;
	union {				/* which one, its route knows */
		json_t *body;		/* lives as long as the req; has_body */
		int64_t attach_ms;	/* it came with an attach token, made then; 0: with a key or over the socket */
		uint64_t pos;		/* where a stream of events is */
	};
	char *params;			/* the decoded pieces of the path, one after another, each with its NUL; NULL: there are none */
	const char *tenant;		/* lives for ever */
	char *key;			/* id of the key it came with; NULL over the Unix socket */
	uint16_t at[API_PARAMS];
	unsigned refs;
	unsigned short status;
	unsigned char scope;		/* enum scope of who asked */
	bool local : 1;			/* over the Unix socket */
	bool key_in_authorization : 1;	/* that header is ours, not the guest's */
	bool stream : 1;			/* counted in api->nstreams */
	bool held : 1;			/* sb is */
	bool has_body : 1;
	bool full : 1;			/* the client does not take what there is */
};

/* --- lifetime --- */
struct req *req_new(struct api *api, struct http_exchange *x); /* NULL when out of memory */
void req_trim(struct tick *t); /* what api.trim does */
struct req *req_ref(struct req *r);
void req_unref(struct req *r);
/* What http_on_close calls; to be called by those who gave x away (proxies). Does nothing the second time. */
void req_over(struct req *r);

/* Marks R as a long-lived stream: counted, and ended with STOP's words when the daemon stops or its key is deleted. */
void req_is_stream(struct req *r, void (*stop)(struct req *r, const struct fail *why));
/* Ends every stream (KEY_ID NULL) or those opened with that key. */
void req_stop_streams(struct api *api, const char *key_id, const struct fail *why);

/* --- reading the request --- */
const char *req_param(const struct req *r, unsigned i); /* decoded; "" when the pattern has none */
/* Parses the whole body and calls FN, unless it fails, which answers. An empty body is {} where the route says it is optional. */
void req_body(struct req *r, void (*fn)(struct req *r, json_t *body));
int req_query(struct req *r, const char *key, char **out, struct fail *why); /* NULL in *out when absent; caller frees */
int req_query_flag(struct req *r, const char *key, bool *out, struct fail *why); /* 1, true, empty: true; 0, false: false */
int req_query_u64(struct req *r, const char *key, uint64_t max, uint64_t *out, struct fail *why); /* *out stays when absent */
bool req_wants_async(struct req *r);	/* Prefer: respond-async */
/* The Idempotency-Key, put into ROOM; *out stays when there is none. */
int req_idempotency(struct req *r, char room[129], const char **out, struct fail *why);
/* The sandbox {id} again, after a body has been waited for. NULL with WHY: it is gone meanwhile. */
struct sandbox *req_sandbox(struct req *r, struct fail *why);
bool req_accepts(struct req *r, const char *type);

/* A size ("512M" or a number of bytes) and a duration ("10m" or seconds, to ms) out of a body. *out stays when V is NULL. */
int value_size(json_t *v, const char *name, uint64_t min, uint64_t max, uint64_t *out, struct fail *why);
int value_ms(json_t *v, const char *name, int64_t max_s, int64_t *out, struct fail *why);
/* The same in whole seconds, as long as the configuration lets a sandbox live. */
int value_timeout(struct req *r, json_t *v, const char *name, int64_t *out, struct fail *why);
/* {"NAME":"value"}: names that a shell could have, at most MAX members, MAX_BYTES in all. */
int value_env(json_t *v, const char *name, unsigned max, size_t max_bytes, struct fail *why);
/* An array of strings without NUL. */
int value_strings(json_t *v, const char *name, unsigned min, unsigned max, size_t max_bytes, struct fail *why);

/* --- answering --- */
void req_json(struct req *r, int status, struct jw *w); /* what W wrote; its buffer is emptied */
void req_fail(struct req *r, const struct fail *why);
void req_failf(struct req *r, enum errcode code, const char *fmt, ...) PRINTF(3, 4);
void req_empty(struct req *r, int status);
/* A json_done_fn or guest_json_fn for calls whose answer is 204 or a failure; gives back a reference of the req, which is its ARG. */
void answer_nothing(json_t *value, const struct fail *why, void *arg);
void req_text(struct req *r, int status, const char *ctype, const void *p, size_t n);
void req_start(struct req *r, int status, const char *ctype, int64_t length);
void req_sse(struct req *r);			       /* starts events: 200 */
int req_event(struct req *r, const char *id, const char *event, struct jw *w); /* as http_write; -EPIPE when gone */
void req_event_fail(struct req *r, const struct fail *why); /* event "error" with code, message and remedy; then the end */

/* A writer over B, which is set up for an answer. */
void answer_begin(struct jw *w, struct buf *b);

/* Lists: at most LIMIT items after the cursor. A cursor names the last item given out, so that a list that changes between
 * pages neither repeats nor skips what was there all the time. */
struct page {
	uint64_t limit;
	int64_t after_ns;	/* created_ns and id of the last item of the page before; no id: from the start */
	char after_id[24];
	bool anchored;		/* that item is in the list still: the page begins behind it, whatever the times say */
	unsigned n;
	int64_t last_ns;
	char last_id[24];
	bool more;
};
int page_read(struct req *r, struct page *p, struct fail *why);
/* Does the item come into this page? For lists in descending order of (created_ns, id). */
enum page_take { PAGE_SKIP, PAGE_TAKE, PAGE_FULL };
enum page_take page_item(struct page *p, int64_t created_ns, const char *id);
void page_end(struct page *p, struct jw *w);	/* writes next_cursor */

/* --- wake.c --- */
/* R's sandbox, which is held, is awake, or never will be (WHY->err, or its state says why not). Not called when the client has gone. */
typedef void wake_fn(struct req *r, const struct fail *why);
/* Calls FN, at once or when it has been woken: only where it has auto_wake and stands still. */
void wake_first(struct req *r, wake_fn *fn);

/* --- route.c --- */
http_request_fn route_request;	/* ARG is the api */
unsigned route_index(const struct route *rt);
/* The row for METHOD and PATH. NULL: none; then ALLOW (may be NULL) gets the methods that the path takes, or stays empty. */
const struct route *route_find(struct str method, struct str path, struct str pieces[API_PARAMS],
			       struct buf *allow);

/* --- auth.c --- */
int auth_init(struct api *api, struct fail *why);
int auth_check(struct req *r, struct fail *why);	/* fills scope, tenant, local, key in */
bool auth_is_key(struct str text);			/* has the form of a key, valid or not */
#define ATTACH_TOKEN_LEN 96
void attach_token_make(struct api *api, const char *sandbox, int64_t pid, int64_t now_ms, char out[ATTACH_TOKEN_LEN]);
/* 0 and when it was made, or -EACCES. */
int attach_token_check(struct api *api, struct str token, const char *sandbox, int64_t pid, int64_t *made_ms);

/* --- shapes that several files write --- */
void sandbox_write(struct req *r, struct jw *w, const char *key, const void *sandbox);
void checkpoint_write(struct req *r, struct jw *w, const char *key, const void *checkpoint);
void checkpoint_members(struct req *r, struct jw *w, const struct checkpoint *k); /* what is in it, for who adds to that */
void operation_json(struct jw *w, const char *key, const struct operation *op);
/* 202 {"operation":…} with its Location. */
void req_operation(struct req *r, const struct operation *op);

/* --- openapi.c --- */
int openapi_write(struct buf *out); /* 0 or -ENOBUFS, -ENOMEM, -EINVAL (a schema that a route names is missing) */

#endif
