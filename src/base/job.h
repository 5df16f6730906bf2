/* job.h - slow work: a plain blocking function on libuv's worker threads, and its completion on the loop.
 *
 * Jobs of one queue run one after another, those of different queues side by side (as many as UV_THREADPOOL_SIZE). */
#ifndef SPACE_JOB_H
#define SPACE_JOB_H

#include <uv.h>

#include "base/fail.h"

/* Runs on a worker thread; shares nothing with the loop but ARG. Returns 0 or a negative errno with WHY filled in. */
typedef int job_fn(void *arg, struct fail *why);
/* Runs on the loop, exactly once. WHY->err is 0 when the job succeeded. */
typedef void job_done_fn(void *arg, const struct fail *why);

struct job_queue;
struct job_queue *job_queue_new(uv_loop_t *loop); /* NULL when out of memory */
void job_queue_free(struct job_queue *q);	  /* waits for nothing: what is queued still runs, then the queue goes */
bool job_queue_idle(const struct job_queue *q);

/* 0, or -ENOMEM (then done is not called). Q may be NULL: no order. */
int job_run(uv_loop_t *loop, struct job_queue *q, job_fn *fn, job_done_fn *done, void *arg);

#endif
