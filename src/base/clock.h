/* Clocks in seconds. The origin is arbitrary: use differences only. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline double clock_read(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double clock_wall(void) {
    return clock_read(CLOCK_MONOTONIC);
}
/* A condition for waits with a time limit, which a change of the system's time neither shortens nor prolongs;
 * and the end of such a limit, for pthread_cond_timedwait. */
static inline void clock_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
static inline struct timespec clock_after(double seconds) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return end;
}
/* CPU time of the calling thread, and of all threads of this process. */
static inline int64_t clock_thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline double clock_cpu(void) {
    return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
