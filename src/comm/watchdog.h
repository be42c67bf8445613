/* The watchdog: no rank waits for others forever.
 *
 * A rank that has waited for half the limit asks all ranks what they are doing, and again shortly before the
 * limit. A stopped or dead process does not answer. If a rank does not answer, or no rank has made progress
 * between the two answers, the wait fails with a report of what every rank does. While some rank makes
 * progress, the wait continues, with one warning. comm/mpi/watchdog.c implements it.
 */
#ifndef WEFT_COMM_WATCHDOG_H
#define WEFT_COMM_WATCHDOG_H

#include <stdatomic.h>

#include "comm/group.h"

typedef struct RankPlace {
    char host[HOST_SIZE];
    int process;
} RankPlace;

typedef struct Watchdog {
    _Atomic double limit_s;         /* of a wait; 0: no limit */
    _Atomic int64_t step;           /* of training; 0: before the first */
    _Atomic(const char *) doing;    /* what this rank is doing, such as "preparing data" */
    _Atomic int64_t beats;          /* counts pieces of work, to tell slow from stuck */
    void (*warn)(const char *text); /* prints a warning; NULL: none wanted */
    RankPlace *place;               /* of every rank */
    bool timed_out;                 /* a wait has failed */
} Watchdog;

/* The watchdog of this process's ranks; NULL without other ranks. */
Watchdog *group_watchdog(const Group *world);
/* Sets what this rank is doing. `doing` must be static. Does nothing without other ranks. */
void group_doing(const Group *world, const char *doing, int64_t step);

#endif
