/* Finds workers that are slower than the others ({sync-every}), for which all others wait in every round. */
#ifndef WEFT_TRAIN_PACE_H
#define WEFT_TRAIN_PACE_H

#include "base/status.h"

enum { PACE_TEXT = 320 };

typedef struct Pace {
    int workers;
    double *work_s; /* of each worker, in the current round */
    int *in_a_row;  /* rounds in which it has needed too long */
    bool *slow;     /* it has been reported */
} Pace;

MUST_USE Status pace_init(Pace *ret_pace, int workers);
void pace_done(Pace *pace);
/* Adds the time that a worker has spent on its own work, without waiting for others. */
void pace_add(Pace *pace, int worker, double seconds);
/* Ends a round. Returns the worker whose state has changed and its time relative to the median of the others,
 * or -1. A worker is slow after two rounds of more than twice that median, until one of less than 1.5 times.
 */
int pace_round(Pace *pace, double *ret_factor);

#endif
