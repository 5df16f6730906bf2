/* process_signal.c - signals to commands, and the words for how they ended. See process.h. */
#include "agent/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "agent/cgroup.h"
#include "base/file.h"

const char *proc_reason_name(enum proc_reason r)
{
	static const char *const names[] = { "exited", "signaled", "deadline", "killed" };

	return names[r];
}

int process_signal(struct process *p, int sig)
{
	if (p->ended || p->killed)
		return -ESRCH;
	if (sig == SIGKILL || sig == SIGTERM)
		p->kill_asked = true;
	if (p->exited) { /* only its children hold the pipes: this ends the wait for them */
		process_check_end(p);
		return 0;
	}
	if (kill(p->pid, sig) < 0) /* not reaped yet, so the pid is still its own */
		return -errno;
	p->killed = sig == SIGKILL;
	return 0;
}

/* Without cgroups: everything of the session that the command leads. */
static int signal_session(pid_t sid, int sig)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int reached = 0;

	if (!d)
		return -errno;
	while ((e = readdir(d)) != NULL) {
		autofree char *text = NULL;
		char path[300], *close_paren;
		int session;

		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		if (file_read(AT_FDCWD, path, &text, 4096) <= 0 ||
			!(close_paren = strrchr(text, ')')))
			continue;
		if (sscanf(close_paren + 1, " %*c %*d %*d %d", &session) == 1 && session == sid &&
			kill(atoi(e->d_name), sig) == 0)
			reached++;
	}
	closedir(d);
	return reached;
}

int process_signal_group(struct process *p, int sig)
{
	int r;

	if (sig == SIGKILL || sig == SIGTERM)
		p->kill_asked = true;
	if (!p->has_cgroup)
		r = signal_session(p->pid, sig);
	else
		r = p->cgroup && cgroup_populated(p->cgroup) ? cgroup_signal(p->cgroup, sig) : 0;
	if (!p->exited && kill(p->pid, sig) == 0 && r <= 0)
		r = 1;
	if (!p->ended && p->exited)
		process_check_end(p);
	return r > 0 || !p->ended ? 0 : -ESRCH;
}

void process_status_text(const struct process *p, char out[64], int *code)
{
	/* Go's words, which E2B's clients show */
	static const char *const names[] = {
		[SIGHUP] = "hangup",
		[SIGINT] = "interrupt",
		[SIGQUIT] = "quit",
		[SIGILL] = "illegal instruction",
		[SIGTRAP] = "trace/breakpoint trap",
		[SIGABRT] = "aborted",
		[SIGBUS] = "bus error",
		[SIGFPE] = "floating point exception",
		[SIGKILL] = "killed",
		[SIGUSR1] = "user defined signal 1",
		[SIGSEGV] = "segmentation fault",
		[SIGUSR2] = "user defined signal 2",
		[SIGPIPE] = "broken pipe",
		[SIGALRM] = "alarm clock",
		[SIGTERM] = "terminated",
		[SIGSTKFLT] = "stack fault",
		[SIGCHLD] = "child exited",
		[SIGXCPU] = "CPU time limit exceeded",
		[SIGXFSZ] = "file size limit exceeded",
		[SIGVTALRM] = "virtual timer expired",
		[SIGPROF] = "profiling timer expired",
		[SIGIO] = "I/O possible",
		[SIGPWR] = "power failure",
		[SIGSYS] = "bad system call",
	};

	if (WIFSIGNALED(p->status)) {
		unsigned sig = (unsigned)WTERMSIG(p->status);
		const char *name = sig < ARRAY_LEN(names) ? names[sig] : NULL;
		char number[16];

		snprintf(number, sizeof(number), "signal %u", sig);
		*code = -1;
		snprintf(out, 64, "signal: %s%s", name ? name : number,
			WCOREDUMP(p->status) ? " (core dumped)" : "");
		return;
	}
	*code = WEXITSTATUS(p->status);
	snprintf(out, 64, "exit status %d", *code);
}

enum proc_reason process_reason(const struct process *p)
{
	if (p->deadline_hit || p->timeout_hit)
		return REASON_DEADLINE;
	if (WIFSIGNALED(p->status))
		return p->kill_asked ? REASON_KILLED : REASON_SIGNALED;
	return REASON_EXITED;
}
