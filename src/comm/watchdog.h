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

/* What a rank's device waits for. */
typedef struct DeviceWait {
    bool waits;
    uint64_t number;  /* another one: another operation */
    const char *what; /* NULL: an operation, described by label and names */
    CommLabel label;
    const CommNames *names;
    const char *error; /* the connection between the devices has failed; valid as long as the watch */
} DeviceWait;

/* A device that communicates on its own. Its rank's thread may be blocked by it, so another thread looks. */
typedef struct DeviceWatch {
    void (*look)(void *context, DeviceWait *ret_wait); /* never blocks; NULL: no such device */
    void *context;
} DeviceWatch;

typedef struct Watchdog {
    _Atomic double limit_s;         /* of a wait; 0: no limit */
    _Atomic double usual_s;         /* of the longest wait expected; 0: unknown. Twice that is warned of */
    _Atomic int64_t step;           /* of training; 0: before the first */
    _Atomic(const char *) doing;    /* what this rank is doing, such as "preparing data" */
    _Atomic int64_t beats;          /* counts pieces of work, to tell slow from stuck */
    void (*warn)(const char *text); /* prints a warning; NULL: none wanted */
    /* Reports the failure and ends all ranks, on behalf of a thread that is blocked by its device. */
    void (*give_up)(void *context, const char *text);
    void *context;
    RankPlace *place; /* of every rank */
    bool timed_out;   /* a wait has failed */
} Watchdog;

/* The watchdog of this process's ranks; NULL without other ranks. */
Watchdog *group_watchdog(const Group *world);
/* Includes the device in the watchdog of this rank; a watch without `look` ends that. */
void group_watch_device(Group *world, DeviceWatch watch);
/* Sets what this rank is doing. `doing` must be static. Does nothing without other ranks. */
void group_doing(const Group *world, const char *doing, int64_t step);

#endif
