/* Clocks in seconds. The origin is arbitrary: use differences only. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

#include <time.h>

static inline double clock_read(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double clock_wall(void) {
    return clock_read(CLOCK_MONOTONIC);
}
/* CPU time of all threads of this process. */
static inline double clock_cpu(void) {
    return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
