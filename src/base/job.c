/* job.c - see job.h. */
#include "base/job.h"

#include "base/base.h"

struct job {
	uv_work_t work;
	struct job_queue *q;
	struct link link; /* in q->waiting, until it runs */
	job_fn *fn;
	job_done_fn *done;
	void *arg;
	struct fail why;
};

struct job_queue {
	uv_loop_t *loop;
	struct link waiting;
	bool running, freed;
};

struct job_queue *job_queue_new(uv_loop_t *loop)
{
	struct job_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->loop = loop;
	link_init(&q->waiting);
	return q;
}

bool job_queue_idle(const struct job_queue *q)
{
	return !q->running && link_empty(&q->waiting);
}

void job_queue_free(struct job_queue *q)
{
	if (!q)
		return;
	if (job_queue_idle(q))
		free(q);
	else
		q->freed = true;
}

static void job_work(uv_work_t *w)
{
	struct job *j = container_of(w, struct job, work);
	int r = j->fn(j->arg, &j->why);

	if (r == 0)
		j->why.err = 0;
	else if (j->why.err == 0)
		fail_set(&j->why, r, "%s", strerror(-r));
}

static void job_after(uv_work_t *w, int status);

static int job_submit(uv_loop_t *loop, struct job *j)
{
	return uv_queue_work(loop, &j->work, job_work, job_after);
}

static void queue_next(struct job_queue *q)
{
	struct job *j;

	q->running = false;
	if (link_empty(&q->waiting)) {
		if (q->freed)
			free(q);
		return;
	}
	j = container_of(q->waiting.next, struct job, link);
	link_del(&j->link);
	q->running = true;
	job_submit(q->loop, j); /* fails only when it is given no function */
}

static void job_after(uv_work_t *w, int status)
{
	struct job *j = container_of(w, struct job, work);
	struct job_queue *q = j->q;

	if (status < 0)
		fail_set(&j->why, status, "the job was cancelled");
	/* The next one starts before done() runs: done() may free the queue. */
	if (q)
		queue_next(q);
	j->done(j->arg, &j->why);
	free(j);
}

int job_run(uv_loop_t *loop, struct job_queue *q, job_fn *fn, job_done_fn *done, void *arg)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return -ENOMEM;
	j->q = q;
	j->fn = fn;
	j->done = done;
	j->arg = arg;
	link_init(&j->link);
	if (q && q->running) {
		link_add_tail(&q->waiting, &j->link);
		return 0;
	}
	if (q)
		q->running = true;
	return job_submit(loop, j);
}
