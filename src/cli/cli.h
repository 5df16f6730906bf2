/* cli.h - the program `space`: what its commands share.
 *
 * A command is a row of a table (main.c) and a function that runs from top to bottom: it makes a call, waits on the
 * loop for its end, prints, returns the exit status. Only streams (exec, forward, cp) use callbacks of their own. There is
 * one loop, one thread and one endpoint. Answers go to stdout, everything else to stderr. */
#ifndef SPACE_CLI_H
#define SPACE_CLI_H

#include <stdio.h>
#include <uv.h>

#include "base/json.h"
#include "cli/opt.h"
#include "http/client.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct cli {
	/* global options */
	const char *host; /* --host */
	bool json, help;

	/* what this run is about, for remedies; NULL: not known */
	const char *command; /* "template build" */
	const char *subject; /* the sandbox, as it was named */
	const char *node;    /* the node that something starts from or goes back to */

	uv_loop_t *loop;
	bool out_tty, err_tty, colour; /* colour: on stdout */
	struct http_endpoint *ep;      /* made by cli_connect() */
	const char *prefix;	       /* path before /v1, usually "" */
	const char *key;	       /* NULL: none */
	char where[320];	       /* what the endpoint is, for messages */
	bool local;		       /* a Unix socket */
};

struct command {
	const char *name; /* all of it: "template ls" */
	const char *alias, *args, *brief;
	const char *detail; /* paragraphs, may be NULL */
	const char *examples;
	int (*run)(struct cli *c, int argc, char **argv); /* the words after the name */
	const struct opt *opts;
	size_t nopts;
	void *into;
	int stop_after;	   /* as opt_parse; -1 usually */
	int min, max;	   /* number of words; max -1: any */
	const struct command *const *sub; /* NULL-terminated: "space template ls" */
};

#define OPTS(table, into_) .opts = table, .nopts = ARRAY_LEN(table), .into = &(into_)

int cli_help(struct cli *c, const struct command *cmd, FILE *f);

/* --- where the API is (conn.c) --- */
/* Finds it (--host, SPACE_URL, SPACE_SOCKET, context, the default socket) and makes the endpoint. No connection yet. */
int cli_connect(struct cli *c, struct fail *why);

struct place {
	char socket[108];	/* a Unix socket; or */
	char host[128], prefix[128];
	int port;
	bool tls;
};
int place_parse(const char *url, struct place *out, struct fail *why);
/* A context's URL and key, for the caller to free; *url NULL when none is in use. */
int context_current(char **url, char **key, struct fail *why);

/* --- calls (api.c) --- */
/* printf's little cousin: %s a path segment, %P a path (keeps its slashes), %q a query value, all escaped; %d. NULL: ENOMEM. */
char *api_path(const char *fmt, ...);
/* Runs the loop until *done. */
void cli_wait(struct cli *c, const bool *done);
void cli_sleep(struct cli *c, int ms);

#define ANSWER_MAX (64 * MIB)
/* One call, waited for. BODY may be NULL and is released. 0 and *out (may be NULL; NULL for 204), or what the server said in WHY
 * (may be NULL). */
int api_call(struct cli *c, const char *method, const char *target, json_t *body, json_t **out, struct fail *why);
struct api_opts {
	const char *header[2][2]; /* name, value */
	int timeout_ms;		  /* 0: 600 s */
	int *status;
	bool text;		  /* answer is not JSON: a JSON string of it */
};
int api_call_opts(struct cli *c, const char *method, const char *target, json_t *body, const struct api_opts *o,
	json_t **out, struct fail *why);
/* api_call() with progress: "DOING NAME" after a moment. */
int api_call_shown(struct cli *c, const char *doing, const char *name, const char *method, const char *target, json_t *body, json_t **out,
	struct fail *why);
/* Headers of every call, at most 8: fills H from index N on and returns the new count. */
unsigned api_headers(struct cli *c, struct http_header *h, unsigned n);
/* What a failed answer's body says. Returns the negative errno. */
int api_error(int status, struct str body, struct fail *why);
/* Makes "cannot connect" and the like into words for a person. */
void api_explain(struct cli *c, struct fail *why);
/* All pages of a list: an array in *out. */
int api_list(struct cli *c, const char *target, const char *noun, json_t **out, struct fail *why);
bool fail_is_connection(const struct fail *why); /* the peer was not there or went away: worth another try */

/* --- a call whose answer is an event stream (events.c) --- */
struct sse_call;
typedef void sse_call_event_fn(struct str id, struct str event, struct str data, void *arg);
/* Once. WHY->err 0: the stream ended by itself. STATUS 0: no answer came. */
typedef void sse_call_end_fn(int status, const struct fail *why, void *arg);
/* BODY may be NULL; LAST_ID may be NULL. NULL when out of memory. */
struct sse_call *sse_call_start(struct cli *c, const char *method, const char *target, const char *last_id,
	const char *body, sse_call_event_fn *event, sse_call_end_fn *end, void *arg);
void sse_call_cancel(struct sse_call *s); /* end comes, with -ECANCELED */
/* Follows TARGET until it ends by itself, FN returns 1, or it fails; resumes by Last-Event-ID for up to 30 s. */
typedef int follow_fn(struct str id, struct str event, json_t *data, void *arg);
int api_follow(struct cli *c, const char *target, follow_fn *fn, void *arg, struct fail *why);
/* Shows the progress of an operation until its end. *result may be NULL. */
int operation_wait(struct cli *c, const char *id, const char *what, json_t **result, struct fail *why);

/* --- printing (out.c) --- */
/* fail_set() for a failure on this side: the table's remedies are for the API's errors, so there is none. */
int fail_here(struct fail *f, int err, const char *fmt, ...) PRINTF(3, 4);
#define REMEDY_LEN 640
/* REMEDY of the API in the words of this program: the id in the place of "ID" where it is known, and what speaks of headers and paths
 * of the API replaced by what is typed here. */
const char *cli_remedy(const struct cli *c, enum errcode code, const char *remedy, char out[REMEDY_LEN]);
int cli_fail(struct cli *c, const struct fail *why); /* on stderr; returns EXIT_FAILED */
int cli_usage(struct cli *c, const char *fmt, ...) PRINTF(2, 3);
int cli_note(struct cli *c, const char *fmt, ...) PRINTF(2, 3); /* on stderr, "space: …" */
void json_print(struct cli *c, const json_t *v);	/* indented on a terminal, else one line */
/* Text that came from outside: control bytes become '?'. */
void put_safe(FILE *f, struct str s);

struct table;
struct table *table_new(struct cli *c, const char *const *heads); /* NULL-terminated; a leading '>' aligns right */
void table_cell(struct table *t, const char *fmt, ...) PRINTF(2, 3);
void table_cell_colour(struct table *t, const char *colour, const char *text);
void table_print(struct table *t); /* and frees it */

/* "NAME        VALUE", of one thing that is shown. */
void show_line(struct cli *c, const char *name, const char *fmt, ...) PRINTF(3, 4);

#define AGO_LEN 32
const char *ago(char out[AGO_LEN], const char *rfc3339);   /* "3 min ago", "in 4 min", "-" */
const char *span(char out[AGO_LEN], double seconds);	   /* "3 min" */
const char *size_text(char out[AGO_LEN], double bytes);	   /* "512M", "4.7G" */
const char *state_colour(const char *state);

const char *get_str(const json_t *o, const char *key); /* "" if absent */
double get_num(const json_t *o, const char *key);
bool get_bool(const json_t *o, const char *key);

/* --- sandboxes named on the command line (cmd_sandbox.c) --- */
char *sandbox_path(const char *id, const char *what); /* "/v1/sandboxes/ID" and WHAT; NULL: ENOMEM */
/* One call for each id, a line "ID STATE" for each answer; failures are told and the rest goes on. DOING: "pausing", for progress. */
int each_sandbox(struct cli *c, const char *method, const char *suffix, const char *doing, int argc, char **argv);

/* --- the nouns of the API (list.c) --- */
enum column_kind { COL_TEXT, COL_NUM, COL_SIZE, COL_AGO, COL_DIGEST, COL_STATE };
struct column {
	const char *head, *key; /* head as in table_new(); key may be "digests.image" */
	enum column_kind kind;
};
/* An array of objects as a table. COLS ends with an empty row and has at most 16. */
void list_rows(struct cli *c, const json_t *list, const struct column *cols);
/* All pages of a list as a table, or as JSON with --json. NONE (may be NULL): said instead of an empty table on a terminal. */
int list_print(struct cli *c, const char *target, const char *noun, const struct column *cols, const char *none);
void print_ids(const json_t *list); /* of strings, or of objects with an id: a line each */
/* FMT is api_path()'s with one %s, for NAME. */
int show_one(struct cli *c, const char *fmt, const char *name);
/* Each is removed, whatever becomes of the others; of several those that are gone are printed, a line "NAME removed" each. */
int remove_each(struct cli *c, const char *fmt, int argc, char **argv);

/* --- progress on stderr (progress.c) ---
 * On a terminal a bar or a spinner, once a second has passed; elsewhere a line whenever the step changes, and every 10 s. */
struct progress_bar;
struct progress_bar *progress_start(struct cli *c, const char *what);
void progress_step(struct progress_bar *p, const char *step, double fraction); /* -1: unknown */
void progress_bytes(struct progress_bar *p, uint64_t done, int64_t total);     /* total -1: unknown */
void progress_hide(struct progress_bar *p); /* clears the line, for other output */
void progress_end(struct progress_bar *p);  /* NULL is fine */

/* --- commands: each stands beside its code --- */
extern const struct command command_run, command_create, command_ls, command_show, command_exec, command_shell, command_attach,
	 command_cp, command_forward, command_kill, command_pause, command_wake, command_suspend, command_timeout, command_checkpoint, command_snapshot, command_branch, command_rollback, command_tree, command_node, command_export, command_import, command_prune, command_fsck, command_ps, command_signal, command_watch, command_logs, command_events, command_stats, command_template, command_image, command_key, command_operation, command_host, command_df, command_config, command_context, command_doctor, command_bench, command_bugreport, command_completion, command_version, command_help;

#endif
