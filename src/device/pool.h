/* The threads of CPU kernels. A job is a number of independent tasks, which the calling thread and the pool's
 * threads claim one by one. The job is complete as soon as its tasks are: a thread that has lost its core to
 * another program and has claimed nothing delays no one, whereas an OpenMP region ends only when all of its
 * threads have arrived.
 *
 * Which thread runs a task is not determined, so the result of a task must not depend on it. */
#ifndef WEFT_DEVICE_POOL_H
#define WEFT_DEVICE_POOL_H

#include <stdint.h>

#include "base/status.h"

typedef struct Pool Pool;

/* `thread` is less than the pool's number of threads, and no other running task has it. */
typedef void PoolTask(const void *context, int64_t task, int thread);

/* `threads` includes the calling thread; the others start with the first job. */
MUST_USE Status pool_new(Pool **ret_pool, int threads);
void pool_free(Pool *pool);

/* Runs tasks 0 .. tasks - 1 and returns when all of them are complete; fewer than 2^31. All of them run on
 * the calling thread if pool is NULL, or if the pool is running a job already. */
void pool_run(Pool *pool, int64_t tasks, PoolTask *task, const void *context);

#endif
