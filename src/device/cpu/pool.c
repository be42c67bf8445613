/* `ticket` has the number of tasks of the current job in its upper half and the next task to claim in its
 * lower half, which exceeds that number by at most one per thread. A thread reads the other fields of the job
 * only after it has claimed a task, and the next job cannot start before that task is complete, so it never
 * sees fields of two jobs.
 *
 * Background work has tickets of the same kind, in a ring of slots. A thread that finds a
 * slot in use by later work than it expected has claimed a task of that work, which is as good. */
#include "device/pool.h"
#include "base/clock.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/trace.h"

/* How long threads look for work before they sleep. A thread spins for SPIN_NS. It then looks until LOOK_NS
 * if it has a core to itself, offering it to other threads between looks. At the end of a GEMM, a thread
 * often waits longer than SPIN_NS, and waking is slow: in a virtual machine with 12 cores, an empty job takes
 * 13 us if its threads sleep, and 3 us otherwise. */
enum { SPIN_NS = 50000, LOOK_NS = 2000000 };
/* A thread shares its core if it ran for less than 9/10 of the time in which it did not sleep, or if it gets
 * its core back only after LATE_NS. */
enum { CHECK_NS = 1000000, LATE_NS = 20000 };

/* Whether a thread has a core to itself: the time since the last check in which it did not sleep, and how
 * much of it the thread ran, both up to the start of the current period. */
typedef struct Core {
    int64_t wall_ns, cpu_ns, wall_start, cpu_start;
    bool own;
} Core;

/* Background work. */
enum { BACKGROUND_SLOTS = 128 };

typedef struct Background {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t finished;
    _Atomic int64_t complete; /* the number of the last work here that is complete */
    int64_t number;
    PoolTask *task;
    void (*finish)(const void *context);
    void *context;
} Background;

typedef struct Worker {
    Pool *pool;
    Core core;
    int number;
    bool prefers_background;
    pthread_t thread;
} Worker;

struct Pool {
    int threads, started; /* threads of the pool itself, without the caller: wanted and started */
    int64_t spin_ns, look_ns;
    Core core; /* of the caller */
    PoolTask *task;
    const void *context;
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t finished;
    _Alignas(64) atomic_bool busy, stop;
    atomic_int sleeping;  /* threads that wait for `work` */
    atomic_bool awaited;  /* the caller waits for `complete` */
    pthread_mutex_t lock; /* for both conditions */
    pthread_cond_t work, complete;
    Background background[BACKGROUND_SLOTS];
    int64_t background_complete;         /* the caller knows that all work up to this number is */
    _Alignas(64) _Atomic int64_t newest; /* number of the last background work */
    _Atomic int64_t open;                /* the first that may have tasks to claim */
    Worker worker[];
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_more(const _Atomic uint64_t *ticket) {
    uint64_t now = atomic_load(ticket);
    return (uint32_t)now < now >> 32;
}

static bool has_background(Pool *pool) {
    return atomic_load(&pool->open) <= atomic_load(&pool->newest);
}

/* A condition for look(). `tasks` is not used. */
static bool has_work(Pool *pool, uint32_t tasks) {
    (void)tasks;
    return has_more(&pool->ticket) || has_background(pool);
}

static bool has_finished(Pool *pool, uint32_t tasks) {
    return atomic_load(&pool->finished) == tasks;
}

/* Claims tasks until there are none. With many threads the two counters move from core to core all the time,
 * so a claim is one addition, even if it then turns out that there was no task left, and `finished` is only
 * increased at the end. A thread that has run a task knows that the job is still the same one. */
static void work_off(Pool *pool, int thread) {
    if (!has_more(&pool->ticket)) return;
    uint32_t done = 0;
    uint64_t ticket = atomic_fetch_add(&pool->ticket, 1);
    for (; (uint32_t)ticket < ticket >> 32; done++) {
        pool->task(pool->context, (uint32_t)ticket, thread);
        ticket = atomic_fetch_add(&pool->ticket, 1);
    }
    if (!done) return;
    bool last = atomic_fetch_add(&pool->finished, done) + done == ticket >> 32;
    if (last && atomic_load(&pool->awaited)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->complete);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void run_background_task(Background *work, uint64_t ticket, int thread) {
    uint32_t tasks = (uint32_t)(ticket >> 32);
    work->task(work->context, (uint32_t)ticket, thread);
    if (atomic_fetch_add(&work->finished, 1) + 1 < tasks) return;
    if (work->finish) work->finish(work->context);
    free(work->context);
    atomic_store(&work->complete, work->number);
}

/* Runs a task of the oldest work that has one; false if there is none. */
static bool run_background(Pool *pool, int thread) {
    for (;;) {
        int64_t number = atomic_load(&pool->open);
        if (number > atomic_load(&pool->newest)) return false;
        Background *work = &pool->background[number % BACKGROUND_SLOTS];
        uint64_t ticket = has_more(&work->ticket) ? atomic_fetch_add(&work->ticket, 1) : 0;
        if ((uint32_t)ticket < ticket >> 32) {
            run_background_task(work, ticket, thread);
            return true;
        }
        atomic_compare_exchange_strong(&pool->open, &number, number + 1);
    }
}

/* Starts or ends a period in which the thread does not sleep. */
static void core_start(Core *core) {
    core->wall_start = trace_now();
    core->cpu_start = clock_thread_ns();
}
static void core_end(Core *core) {
    core->wall_ns += trace_now() - core->wall_start;
    core->cpu_ns += clock_thread_ns() - core->cpu_start;
}

static bool core_is_own(Core *core) {
    core_end(core);
    core_start(core);
    if (core->wall_ns >= CHECK_NS) {
        core->own = core->cpu_ns * 10 >= core->wall_ns * 9;
        core->wall_ns = core->cpu_ns = 0;
    }
    return core->own;
}

/* Looks until the condition holds; false if the thread should sleep instead. */
static bool look(Pool *pool, Core *core, bool (*holds)(Pool *, uint32_t), uint32_t tasks) {
    bool spins = true;
    for (int64_t start = trace_now(), now = start;;) {
        for (int i = 0; i < 32; i++) {
            if (holds(pool, tasks)) return true;
            relax();
        }
        int64_t last = now;
        now = trace_now();
        if (now - start < pool->spin_ns) continue;
        if (spins && !core_is_own(core)) return false;
        if (!spins && now - last >= LATE_NS) core->own = false;
        if (!core->own || now - start >= pool->look_ns) return false;
        spins = false;
        sched_yield();
    }
}

static void sleep_until_work(Pool *pool, Core *core) {
    core_end(core);
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleeping, 1);
    while (!has_work(pool, 0) && !atomic_load(&pool->stop)) pthread_cond_wait(&pool->work, &pool->lock);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
    core_start(core);
}

static void wake(Pool *pool) {
    if (!atomic_load(&pool->sleeping)) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static void await_complete(Pool *pool, uint32_t tasks) {
    if (look(pool, &pool->core, has_finished, tasks)) return;
    core_end(&pool->core);
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->awaited, true);
    while (atomic_load(&pool->finished) < tasks) pthread_cond_wait(&pool->complete, &pool->lock);
    atomic_store(&pool->awaited, false);
    pthread_mutex_unlock(&pool->lock);
    core_start(&pool->core);
}

/* If the user pins OpenMP's threads, those of the pool use the same places. Otherwise they may use the cores
 * of the thread that starts them. */
static void use_place(int number) {
    int places = omp_get_num_places();
    if (places < 1 || omp_get_proc_bind() == omp_proc_bind_false) return;
    int place = number % places, count = omp_get_place_num_procs(place);
    int core[CPU_SETSIZE];
    if (count < 1 || count > CPU_SETSIZE) return;
    omp_get_place_proc_ids(place, core);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++) CPU_SET((size_t)core[i], &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *worker_main(void *argument) {
    Worker *worker = argument;
    Pool *pool = worker->pool;
    use_place(worker->number);
    core_start(&worker->core);
    while (!atomic_load(&pool->stop)) {
        if (!look(pool, &worker->core, has_work, 0)) sleep_until_work(pool, &worker->core);
        if (worker->prefers_background && run_background(pool, worker->number)) continue;
        work_off(pool, worker->number);
        run_background(pool, worker->number);
    }
    return NULL;
}

/* Threads that prefer background work. */
static int preferring(const Pool *pool) {
    return (pool->threads + 1) / 4;
}

/* Signals are left to the program's other threads. Fewer threads than wanted are no error. */
static void start(Pool *pool) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->started < pool->threads) {
        Worker *worker = &pool->worker[pool->started];
        int number = pool->started + 1;
        *worker = (Worker){.pool = pool, .number = number, .prefers_background = number <= preferring(pool)};
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) break;
        pool->started++;
    }
    pool->threads = pool->started;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

Status pool_new(Pool **ret_pool, int threads) {
    Pool *pool = NULL;
    size_t bytes = (sizeof *pool + (size_t)threads * sizeof(Worker) + 63) / 64 * 64;
    if (posix_memalign((void **)&pool, 64, bytes) != 0)
        return FAILED("out of memory for %d threads", threads);
    memset(pool, 0, bytes);
    pool->threads = threads - 1;
    const char *policy = getenv("OMP_WAIT_POLICY");
    bool passive = policy && !strcasecmp(policy, "passive");
    pool->spin_ns = passive ? 0 : SPIN_NS;
    pool->look_ns = passive ? 0 : LOOK_NS;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->complete, NULL);
    atomic_store(&pool->open, 1);
    *ret_pool = pool;
    return OK;
}

void pool_free(Pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->worker[i].thread, NULL);
    for (int64_t number = pool->background_complete + 1; number <= pool->newest; number++) {
        Background *work = &pool->background[number % BACKGROUND_SLOTS];
        if (atomic_load(&work->complete) < number) free(work->context);
    }
    pthread_cond_destroy(&pool->complete);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void pool_run(Pool *pool, int64_t tasks, PoolTask *task, const void *context) {
    if (!pool || !pool->threads || tasks < 2 || atomic_exchange(&pool->busy, true)) {
        for (int64_t i = 0; i < tasks; i++) task(context, i, 0);
        return;
    }
    if (pool->started < pool->threads) start(pool);
    pool->task = task;
    pool->context = context;
    atomic_store(&pool->finished, 0);
    atomic_store(&pool->ticket, (uint64_t)tasks << 32);
    wake(pool);
    core_start(&pool->core);
    work_off(pool, 0);
    await_complete(pool, (uint32_t)tasks);
    core_end(&pool->core);
    atomic_store(&pool->busy, false);
}

Status pool_add_background(Pool *pool, const PoolWork *work, int64_t *ret_number) {
    if (!pool || !pool->threads || !work->tasks) {
        for (int64_t i = 0; i < work->tasks; i++) work->task(work->context, i, 0);
        if (work->finish) work->finish(work->context);
        return OK;
    }
    int64_t number = pool->newest + 1;
    pool_await(pool, number - BACKGROUND_SLOTS);
    void *context = NULL;
    TRY(mem_new(1, work->bytes, &context));
    memcpy(context, work->context, work->bytes);
    if (pool->started < pool->threads) start(pool);
    Background *slot = &pool->background[number % BACKGROUND_SLOTS];
    slot->number = number;
    slot->task = work->task;
    slot->finish = work->finish;
    slot->context = context;
    atomic_store(&slot->finished, 0);
    atomic_store(&slot->ticket, (uint64_t)work->tasks << 32);
    atomic_store(&pool->newest, number);
    wake(pool);
    *ret_number = number;
    return OK;
}

void pool_await(Pool *pool, int64_t number) {
    enum { LOOKS = 1000 }; /* before the core is offered to a thread that may have lost its own */
    if (!pool) return;
    for (int looks = 0; pool->background_complete < number;) {
        Background *next = &pool->background[(pool->background_complete + 1) % BACKGROUND_SLOTS];
        if (atomic_load(&next->complete) > pool->background_complete)
            pool->background_complete++;
        else if (run_background(pool, 0))
            looks = 0;
        else if (++looks % LOOKS == 0)
            sched_yield();
        else
            relax();
    }
}

void pool_await_all(Pool *pool) {
    if (pool) pool_await(pool, pool->newest);
}
