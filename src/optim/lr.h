/* Learning-rate schedules: a linear or logarithmic warm-up, then linear decay, cosine decay, a constant rate,
 * or a constant rate with a decay at the end (warm-up-stable-decay). */
#ifndef WEFT_OPTIM_LR_H
#define WEFT_OPTIM_LR_H

#include <stdint.h>

#include "base/status.h"

typedef enum { LR_LINEAR, LR_COSINE, LR_CONSTANT, LR_WSD } LrKind;
/* Step s of W warm-up steps, counted from 1, has s / W (linear) or log s / log W (log) of the peak rate; log
 * rises faster at first. */
typedef enum { WARMUP_LINEAR, WARMUP_LOG } LrWarmup;

/* Shape of the decay at the end, from 1 to 0 while `done` goes from 0 to 1: 1 - done, 1 - sqrt(done), or half
 * a cosine. */
typedef enum { DECAY_LINEAR, DECAY_SQRT, DECAY_COSINE } LrDecay;

typedef struct LrSchedule {
    LrKind kind;
    LrWarmup warmup_type;
    LrDecay decay_type; /* LR_WSD */
    int64_t decay;      /* LR_WSD: steps of the decay at the end */
    double peak, floor; /* decay reaches the floor one step after the last */
    int64_t warmup, steps;
    /* As in transformers: the schedule is one step later, so with warm-up the first rate is 0, or with LR_WSD
     * the floor. */
    bool from_zero;
} LrSchedule;

MUST_USE Status lr_parse(const char *name, LrKind *ret_kind);
const char *lr_name(LrKind kind);
const char *lr_warmup_name(LrWarmup type);
const char *lr_decay_name(LrDecay type);
/* NULL means linear. */
MUST_USE Status lr_parse_warmup(const char *name, LrWarmup *ret_type);
MUST_USE Status lr_parse_decay(const char *name, LrDecay *ret_type);
/* The learning rate of `step`, counted from 1. */
double lr_at(const LrSchedule *schedule, int64_t step);

#endif
