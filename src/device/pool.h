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

/* Background work, for threads that would otherwise wait: those for which a job has no task left, and all of
 * them between jobs. One thread in four prefers it to jobs: GEMMs are bound by arithmetic and hardly slower
 * without them, while work that is bound by memory gets most of its bandwidth. Tasks should take
 * microseconds, because a thread completes its task before it joins the next job. The calling thread of
 * pool_run takes none. */
typedef struct PoolWork {
    int64_t tasks;
    PoolTask *task;
    void (*finish)(const void *context); /* runs after all tasks, on one thread; may be NULL */
    const void *context;                 /* pool_add_background copies `bytes` bytes of it */
    size_t bytes;
} PoolWork;

/* Adds such work. *ret_number is for pool_await, 1 for the first work of a pool. Without other
 * threads, the work is done at once, and *ret_number keeps its value. One thread calls this and pool_await.
 */
MUST_USE Status pool_add_background(Pool *pool, const PoolWork *work, int64_t *ret_number);
/* Returns when all work up to this number is complete; the calling thread takes part. */
void pool_await(Pool *pool, int64_t number);
/* The same for all work. pool may be NULL. */
void pool_await_all(Pool *pool);

#endif
