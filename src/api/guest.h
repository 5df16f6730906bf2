/* guest.h - calls to the agent inside a sandbox.
 *
 * Wraps http/client.h: puts token and user on, keeps the sandbox held while the call lasts, notices when nobody is there, and ends calls
 * that an agent which is alive does not answer (alive.h has the times); turns the agent's
 * errors into ours. Everything in an answer was written by the guest: sizes are bounded, nothing is passed on unread. */
#ifndef SPACE_API_GUEST_H
#define SPACE_API_GUEST_H

#include "api/api.h"

#define GUEST_PORT 49983
#define GUEST_ANSWER_MAX (4 * MIB) /* of a unary call: a directory of 10,000 entries */

struct guest_call;

struct guest_cb {
	/* A good answer has begun (2xx). H is valid during the call only. */
	void (*head)(struct guest_call *c, const struct http_head *h, void *arg);
	void (*data)(struct guest_call *c, const char *p, size_t n, void *arg);
	void (*drain)(struct guest_call *c, void *arg);
	/* Exactly once; C is invalid after it. WHY->err 0: the answer was whole. */
	void (*end)(struct guest_call *c, const struct fail *why, void *arg);
	/* For upgrades, instead of end. */
	void (*upgrade)(struct guest_call *c, struct http_stream *s, void *arg);
};

struct guest_opts {
	const char *method, *target;
	const char *user;	    /* whom it is done as; NULL: the default user */
	const char *ctype;	    /* NULL: application/json */
	struct str body;	    /* sent at once; with body_len 0 */
	int64_t body_len;	    /* -1 chunked, or how many bytes guest_write() will bring. 0: BODY */
	struct str range;	    /* value of a Range header */
	bool connect_stream;	    /* Connect: BODY is put into a frame */
	bool upgrade_tcp;
	enum errcode not_found;	    /* what its 404 means; 0: not_found */
	bool quiet;		    /* no activity: it only looks */
	int limit_ms;		    /* how long the agent may take to begin its answer, and to go on with it. 0: a minute; -1: for ever, until it begins */
};

/* NULL with WHY when the sandbox is not there to be called; every other failure comes through end(), later. */
struct guest_call *guest_call(struct api *api, struct sandbox *sb, const struct guest_opts *o,
			      const struct guest_cb *cb, void *arg, struct fail *why);
int guest_write(struct guest_call *c, const void *p, size_t n); /* as http_call_write */
void guest_end(struct guest_call *c);	 /* the body is complete */
void guest_pause(struct guest_call *c);
void guest_resume(struct guest_call *c);
/* What was to come soon has come: from now on, silence of the agent is no fault as long as it is alive. */
void guest_endless(struct guest_call *c);
/* For end(): its answer had begun, and then the guest stood still. */
bool guest_fell_silent(const struct guest_call *c);
void guest_cancel(struct guest_call *c); /* end() comes with -ECANCELED */

/* A whole small call: JSON in (NULL: none), JSON out. REPLY is NULL where WHY->err is not 0, or the answer was empty; it is borrowed. */
typedef void guest_json_fn(json_t *reply, const struct fail *why, void *arg);
int guest_json(struct api *api, struct sandbox *sb, const struct guest_opts *o, guest_json_fn *done, void *arg,
	       struct fail *why);

/* The agent's words for an error ({"code":…,"message":…}) into ours. STATUS 0: only the code counts. */
int guest_error(struct fail *why, int status, struct str body, enum errcode not_found);
/* The same of a Connect error {"code","message"}. */
int guest_error_json(struct fail *why, int status, json_t *error, enum errcode not_found);

/* Why a sandbox does not answer any more, in words: ended, paused, or unreachable. */
void guest_gone(struct sandbox *sb, struct fail *why);

/* TARGET?k=v&k=v: pairs of key and value, NULL values left out; ends with a NULL key. */
int guest_target(struct buf *out, const char *target, ...) __attribute__((sentinel));

#endif
