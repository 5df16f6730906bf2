/* Programs, process descriptors, jobs, log lines. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/job.h"
#include "base/log.h"
#include "base/proc.h"

static int sh(const char *script, struct run_opts o, int *status, struct fail *why)
{
	const char *argv[] = { "sh", "-c", script, NULL };

	o.argv = argv;
	return run(&o, status, why);
}

TEST(run_gives_output_and_status)
{
	autobuf struct buf out = { 0 }, err = { 0 };
	struct fail why = { 0 };
	int status;

	buf_init(&out, 100);
	buf_init(&err, 3);
	CHECK_INT(sh("cat; echo err >&2; pwd", (struct run_opts){ .input = STR("in;"), .out = &out, .err = &err },
			  &status, &why), 0);
	CHECK_STR(buf_str(&out), "in;/\n");
	CHECK_STR(buf_str(&err), "err");
	CHECK_INT(sh("echo a >&2; echo 'last words' >&2; exit 3", (struct run_opts){ 0 }, &status, &why), -EIO);
	CHECK_STR(why.msg, "sh: exit status 3: last words");
	CHECK_INT(WEXITSTATUS(status), 3);
	CHECK_INT(sh("kill -9 $$", (struct run_opts){ 0 }, NULL, &why), -EIO);
	CHECK_STR(why.msg, "sh: killed by signal 9");
}

TEST(run_has_limits)
{
	autobuf struct buf out = { 0 };
	struct fail why = { 0 };
	int64_t start = mono_ms();

	CHECK_INT(sh("echo slow >&2; sleep 20 & sleep 20", (struct run_opts){ .timeout_ms = 200 }, NULL, &why), -ETIMEDOUT);
	CHECK(mono_ms() - start < 5000);
	CHECK(strstr(why.msg, "slow") != NULL);
	buf_init(&out, 1000);
	CHECK_INT(sh("while :; do echo xxxxxxxxxxxxxxxx; done", (struct run_opts){ .out = &out }, NULL, &why), -ENOBUFS);
	/* One left in the background with the pipe open is not waited for. */
	start = mono_ms();
	buf_clear(&out);
	CHECK_INT(sh("sleep 3 & echo done", (struct run_opts){ .out = &out }, NULL, &why), 0);
	CHECK_STR(buf_str(&out), "done\n");
	CHECK(mono_ms() - start < 2000);
}

TEST(run_of_what_is_not_there)
{
	struct fail why = { 0 };
	const char *argv[] = { "no-such-program-here", NULL };
	const char *path[] = { "/etc/passwd", NULL };

	CHECK_INT(run(&(struct run_opts){ .argv = argv }, NULL, &why), -ENOENT);
	CHECK_STR(why.msg, "no-such-program-here: no such program");
	CHECK_INT(run(&(struct run_opts){ .argv = path }, NULL, &why), -EACCES);
}

TEST(run_with_input_nobody_reads)
{
	autofree char *big = calloc(1, MIB);

	CHECK_INT(sh("exit 0", (struct run_opts){ .input = { big, MIB } }, NULL, NULL), 0);
	CHECK_INT(sh("test $(wc -c) = 1048576", (struct run_opts){ .input = { big, MIB } }, NULL, NULL), 0);
}

static void on_line(struct str line, void *arg)
{
	struct buf *b = arg;

	buf_addf(b, "[" STR_FMT "]", STR_ARG(line));
}

TEST(run_line_by_line)
{
	autobuf struct buf b = { 0 };

	buf_init(&b, 20000);
	CHECK_INT(sh("printf 'a\\n\\nb'; sleep 0.1; printf 'c\\nlast'", (struct run_opts){ .on_line = on_line, .arg = &b },
			  NULL, NULL), 0);
	CHECK_STR(buf_str(&b), "[a][][bc][last]");
	b.n = 0;
	CHECK_INT(sh("printf '%09000d\\nx\\n' 7", (struct run_opts){ .on_line = on_line, .arg = &b }, NULL, NULL), 0);
	CHECK_INT(b.n, 9000 + 2 + 2 + 3);
}

TEST(pidfds)
{
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	CHECK(proc_starttime(pid) > 0);
	CHECK(proc_starttime(pid) >= proc_starttime(getpid()));
	fd = pidfd_of(pid);
	REQUIRE(fd >= 0);
	CHECK_INT(pidfd_wait(fd, 20), -ETIMEDOUT);
	CHECK_INT(pidfd_kill(fd, SIGKILL), 0);
	CHECK_INT(pidfd_wait(fd, 5000), 0);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	CHECK_INT(pidfd_kill(fd, SIGKILL), -ESRCH);
	CHECK_INT(proc_starttime(pid), 0);
	close(fd);
}

/* --- jobs --- */

static struct job_queue *queue;
static int running, most, order[8], n_done;

static int job(void *arg, struct fail *why)
{
	int now = __atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST);

	if (now > most)
		most = now;
	usleep(2000);
	__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST);
	return (long)arg == 2 ? fail_as(why, ERR_no_space, "full") : (long)arg == 3 ? -EPIPE : 0;
}

static void job_done(void *arg, const struct fail *why)
{
	long i = (long)arg;

	order[n_done++] = (int)i;
	CHECK_INT(why->err, i == 2 ? -ENOSPC : i == 3 ? -EPIPE : 0);
	if (i == 3)
		CHECK_STR(why->msg, "Broken pipe");
	if (i == 4)
		CHECK_INT(job_run(uv_default_loop(), queue, job, job_done, (void *)7), 0);
	if (i == 5)
		job_queue_free(queue);
}

TEST(jobs_of_a_queue_keep_their_order)
{
	uv_loop_t *loop = uv_default_loop();

	queue = job_queue_new(loop);
	CHECK(job_queue_idle(queue));
	for (long i = 0; i < 6; i++)
		CHECK_INT(job_run(loop, queue, job, job_done, (void *)i), 0);
	CHECK(!job_queue_idle(queue));
	uv_run(loop, UV_RUN_DEFAULT);
	CHECK_INT(n_done, 7);
	for (int i = 0; i < 6; i++)
		CHECK_INT(order[i], i);
	CHECK_INT(order[6], 7);
	CHECK_INT(most, 1);
	CHECK_INT(job_run(loop, NULL, job, job_done, (void *)0), 0);
	uv_run(loop, UV_RUN_DEFAULT);
	CHECK_INT(n_done, 8);
	uv_loop_close(loop);
}

/* --- the log --- */

static void logged(char *out, size_t size)
{
	int saved = dup(STDERR_FILENO), p[2];
	ssize_t n;

	out[0] = '\0';
	if (!CHECK(pipe(p) == 0))
		return;
	dup2(p[1], STDERR_FILENO);
	close(p[1]);
	log_warning("guest %s said a=%s", "ix", "\"one\"\n2026 fake: error\x1b[0m\xff");
	log_debug("not shown");
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = read(p[0], out, size - 1);
	out[MAX(n, 0)] = '\0';
	close(p[0]);
}

TEST(log_lines_cannot_be_forged)
{
	char line[512];

	log_set_program("unit");
	logged(line, sizeof(line));
	CHECK(strstr(line, " unit warning: guest ix said a=\"one\"\\x0a2026 fake: error\\x1b[0m\\xff\n") != NULL);
	log_set_json(true);
	logged(line, sizeof(line));
	CHECK(strstr(line, "\"message\":\"guest ix said a=\\\"one\\\"\\u000a2026 fake: error\\u001b[0m\\u00ff\"}\n") != NULL);
	log_set_json(false);
}
