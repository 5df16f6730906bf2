/* handlers.h - the functions behind the routes, and what some of them share. The table of them is in routes.c, what each takes and
 * answers in docs/api.md. */
#ifndef SPACE_API_HANDLERS_H
#define SPACE_API_HANDLERS_H

#include "api/guest.h"

/* sandboxes.c */
req_fn h_sandbox_create, h_sandbox_list, h_sandbox_show, h_sandbox_kill, h_sandbox_pause, h_sandbox_wake,
	h_sandbox_timeout, h_sandbox_metrics, h_sandbox_logs;
/* checkpoints.c */
req_fn h_suspend, h_checkpoint, h_snapshot, h_sandbox_checkpoints, h_branch, h_rollback, h_checkpoints, h_snapshots,
	h_checkpoint_show, h_checkpoint_delete;
/* tree.c, transfer.c */
req_fn h_tree, h_usage, h_prune, h_fsck, h_checkpoint_export, h_checkpoint_import;
/* exec.c, process.c */
req_fn h_exec, h_processes, h_output, h_stdin, h_signal, h_resize;
/* files.c, watch.c */
req_fn h_file_get, h_file_put, h_file_delete, h_file_post, h_tar_get, h_tar_put, h_watch;
/* proxy.c, tunnel.c */
req_fn h_port, h_tcp;
/* streams.c */
req_fn h_events, h_sandbox_events, h_operations, h_operation;
/* nouns.c */
req_fn h_templates, h_template, h_template_build, h_template_delete, h_images, h_image, h_image_build, h_image_delete,
	h_keys, h_key_create, h_key_delete;
/* host.c */
req_fn h_config, h_host, h_metrics, h_healthz, h_readyz, h_openapi;

/* 502: the agent's answer is JSON, but not what was asked for. */
void guest_nonsense(struct req *r);
/* Answers {KEY:[…]} out of the agent's list of that name, or 502 where one of its members is not SANE; gives back a reference of R. */
void guest_list(struct req *r, json_t *reply, const struct fail *why, const char *key, bool (*sane)(json_t *one),
		void (*write)(struct jw *w, const char *key, json_t *one));
/* Absolute, no "..", no control bytes: what a path in the guest may be, here. WHAT is named in the error. */
int guest_path_check(struct str p, const char *what, struct fail *why);

/* The node {id} of the path, by id or label. NULL: answered. */
const struct checkpoint *req_checkpoint(struct req *r);
#define CHECKPOINT_TYPE "application/vnd.space.checkpoint"
int kind_find(struct str name); /* enum node_kind, or -1 */
int value_metadata(json_t *v, struct fail *why);

/* Digests of what something runs: image, kernel, and the template's node (empty: null; NULL: not among them). */
void digests_json(struct jw *w, const char *image, const char *kernel, const char *node);

/* What a process takes, from /proc; zeros when it is gone. Blocking. */
struct proc_usage { uint64_t rss_bytes, private_bytes; double cpu_s; };
void proc_usage(pid_t pid, struct proc_usage *out);
void proc_times(struct proc_usage *out); /* CPU of this process */

struct resize_req { int64_t cols, rows; };

/* --- slow.c: calls that take their time, answered at their end or at once with an operation --- */
struct slow {
	struct req *r;
	int status;
	char op[24];	/* empty: the client waits */
};
/* NULL: answered already. STATUS is that of the answer at the end. */
struct slow *slow_begin(struct req *r, const char *kind, const char *target, int status);
typedef void slow_write_fn(struct req *r, struct jw *w, const char *key, const void *what);
/* WHAT came of it (NULL: WHY says why nothing), written as the answer, or as the operation's result: as its member NOUN, or as the
 * whole of it (NULL). Frees S. */
void slow_end(struct slow *s, const char *noun, const void *what, slow_write_fn *write, const struct fail *why);
sandbox_done_fn slow_sandbox; /* the end of those that answer with a sandbox; ARG is the struct slow */

/* The tables of the bodies, for reading them and for /openapi.json. */
#define FIELDS(name) extern const struct field name##_fields[]; extern const unsigned n##name##_fields
FIELDS(create);
FIELDS(timeout);
FIELDS(checkpoint);
FIELDS(rollback);
FIELDS(branch);
FIELDS(prune);
FIELDS(exec);
FIELDS(signal);
FIELDS(resize);
FIELDS(template);
FIELDS(image);
FIELDS(key);
#undef FIELDS

/* --- relay.c: bodies between client and agent, with back-pressure both ways --- */

/* The client's body to the agent. The agent's JSON answer goes to DONE, which answers the client; NULL: 204. */
typedef void relay_done_fn(struct req *r, json_t *reply);
void relay_upload(struct req *r, const char *method, const char *target, const char *user, enum errcode not_found,
		  relay_done_fn *done);
/* The agent's body to the client, as CTYPE. HEAD (may be NULL) puts headers on before it starts. */
typedef void relay_head_fn(struct req *r, const struct http_head *h);
void relay_download(struct req *r, const struct guest_opts *o, const char *ctype, relay_head_fn *head);

#endif
