/* handlers.h - the functions behind the routes, and what some of them share. The table of them is in routes.c, what each takes and
 * answers in docs/api.md. */
#ifndef SPACE_API_HANDLERS_H
#define SPACE_API_HANDLERS_H

#include "api/guest.h"

/* sandboxes.c */
req_fn h_sandbox_create, h_sandbox_list, h_sandbox_show, h_sandbox_kill, h_sandbox_pause, h_sandbox_wake,
	h_sandbox_timeout, h_sandbox_metrics, h_sandbox_logs;
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

/* Absolute, no "..", no control bytes: what a path in the guest may be, here. WHAT is named in the error. */
/* 502: the agent's answer is JSON, but not what was asked for. */
void guest_nonsense(struct req *r);
int guest_path_check(struct str p, const char *what, struct fail *why);

/* Digests of what something runs: image, kernel, and the node it came from. */
void digests_json(struct jw *w, const char *image, const char *kernel, const char *node);

/* What a process takes, from /proc; zeros when it is gone. Blocking. */
struct proc_usage { uint64_t rss_bytes, private_bytes; double cpu_s; };
void proc_usage(pid_t pid, struct proc_usage *out);
void proc_times(struct proc_usage *out); /* CPU of this process */

struct resize_req { int64_t cols, rows; };

/* The tables of the bodies, for reading them and for /openapi.json. */
#define FIELDS(name) extern const struct field name##_fields[]; extern const unsigned n##name##_fields
FIELDS(create);
FIELDS(timeout);
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
