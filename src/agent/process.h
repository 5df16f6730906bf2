/* process.h - the commands that clients started: their output, their input, their end.
 *
 * A process lives in the table from its start until an hour after its end (256 ended ones at most;
 * the oldest lose their output first). All output together stays within an eighth of the memory,
 * that of ended ones within a sixteenth. Its output goes into one ring a stream (ring.h), and
 * everybody attached is a cursor into it: there are no queues. While somebody attached is more than
 * LAG_MAX behind, the pipe is not read, which holds the process back; with nobody attached the ring
 * drops its oldest bytes. A terminal's output is stream 0.
 *
 * The end comes when the process has exited *and* its pipes are at their end, so that output of its
 * children is not lost; a process that was killed on request or by its deadline ends at once. */
#ifndef SPACE_AGENT_PROCESS_H
#define SPACE_AGENT_PROCESS_H

#include <uv.h>

#include "agent/ring.h"
#include "agent/users.h"
#include "base/json.h"

#define CHUNK_MAX (32 * 1024) /* bytes of one data event */
#define CHUNK_TTY_MAX (16 * 1024)
#define LAG_MAX (64ULL * CHUNK_MAX)
#define KEEP_DEFAULT (1024 * 1024)
#define KEEP_MAX (64 * 1024 * 1024)
#define INPUT_MAX (16 * 1024 * 1024) /* waiting for the process to read */
#define PROCESSES_MAX 4096	     /* running at once */

enum proc_reason { REASON_EXITED, REASON_SIGNALED, REASON_DEADLINE, REASON_KILLED };
const char *proc_reason_name(enum proc_reason r);

struct input;
struct pipe_end;

struct process {
	struct link link;
	pid_t pid;
	unsigned cgroup; /* 0: gone, since nothing is left in it */
	bool has_cgroup; /* had one: otherwise its group is its session */
	json_t *config;	 /* {cmd, args, envs, cwd} as they were given */
	char *tag;	 /* NULL: none */
	char *cwd;	 /* as resolved */
	char user[USER_NAME_MAX];
	int64_t started_ns, ended_ms; /* real time; mono time of the end, 0: running */

	bool tty, has_stdin;
	bool exited;	   /* reaped */
	bool ended;	   /* exited, and everything read that there is to read */
	bool killed;	   /* SIGKILL was sent: as good as gone, for whoever asks again */
	bool kill_asked;   /* do not wait for the pipes' end */
	bool deadline_hit; /* the native one, of `space.deadlineMs` */
	bool timeout_hit;  /* E2B's, of Connect-Timeout-Ms */
	int status;	   /* waitpid's */

	struct ring out[2];
	struct pipe_end *read[2];   /* NULL: at its end. [0] is the terminal's too */
	struct pipe_end *stdin_end; /* NULL: closed or never there; a terminal writes to read[0] */
	struct link inputs;	    /* waiting, oldest first */
	size_t input_bytes;
	struct link subs; /* attached readers */
	uv_timer_t *deadline, *timeout;
};

struct process_opts {
	const char *cmd;
	char *const *argv, *const *envp;
	const char *path, *cwd, *tag;
	const struct user *user;
	json_t *config; /* a reference is taken */
	bool stdin_pipe, tty;
	bool strict; /* a program that is missing is -ENOENT, instead of a process that ends with
			127 */
	uint16_t cols, rows;
	size_t keep;
	int64_t deadline_ms, timeout_ms; /* 0: none */
};

/* One attached reader. `pump` is called on the loop whenever there is something new, and at the end
 * of the process; it detaches itself when it is done. */
struct sub {
	struct link link;
	struct process *p; /* NULL: detached */
	uint64_t at[2];	   /* next byte wanted of each stream */
	void (*pump)(struct sub *s);
};

void processes_init(uv_loop_t *loop);
/* 0, or -errno with WHY; *bad_cwd: the fault is the working directory's. */
int process_start(
	const struct process_opts *o, struct process **out, bool *bad_cwd, struct fail *why);
struct process *process_by_pid(pid_t pid, bool ended_too);
struct process *process_by_tag(const char *tag, bool ended_too);
struct link *processes_all(void); /* struct process by its link, oldest first */
void processes_expire(void);	  /* forgets what is past its hour */
void processes_forget(void);	  /* forgets everything that has ended */

void sub_attach(struct sub *s, struct process *p); /* at[] is the caller's to set */
void sub_detach(struct sub *s);			   /* fine when detached */
void process_check_end(struct process *p);	   /* is it over? Then readers are told */
void process_flow(struct process *p); /* a reader got further: reads on if nobody lags too far */

/* Takes over DATA (malloc'd). done(err, arg) is called once, later: 0 when the process has taken
 * all of it, -EPIPE when it will not any more. NULL with *err: -ENOENT: no stdin (any more);
 * -ENOBUFS: too much waits; -ENOMEM. */
typedef void input_done_fn(int err, void *arg);
struct input *process_input(
	struct process *p, char *data, size_t n, input_done_fn *done, void *arg, int *err);
void input_forget(struct input *in);	    /* done is not called any more */
int process_close_stdin(struct process *p); /* after what waits. 0, -ENOTTY for a terminal */
int process_resize(struct process *p, uint16_t cols, uint16_t rows);
int process_signal(struct process *p, int sig);	      /* that one pid. 0, -ESRCH */
int process_signal_group(struct process *p, int sig); /* everything it started. 0, -ESRCH */

/* "exit status 3", "signal: killed (core dumped)" in Go's words; *code is -1 for a signal. */
void process_status_text(const struct process *p, char out[64], int *code);
enum proc_reason process_reason(const struct process *p);

#endif
