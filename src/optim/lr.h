/* Learning-rate schedules: a linear or logarithmic warm-up, then linear decay, cosine decay or a constant
 * rate. */
#ifndef WEFT_OPTIM_LR_H
#define WEFT_OPTIM_LR_H

#include <stdint.h>

#include "base/status.h"

typedef enum { LR_LINEAR, LR_COSINE, LR_CONSTANT } LrKind;
/* Step s of W warm-up steps has s / W (linear) or log s / log W (log) of the peak rate; log rises faster at
 * first. */
typedef enum { WARMUP_LINEAR, WARMUP_LOG } LrWarmup;

typedef struct LrSchedule {
    LrKind kind;
    LrWarmup warmup_type;
    double peak, floor; /* decay reaches the floor one step after the last */
    int64_t warmup, steps;
} LrSchedule;

MUST_USE Status lr_parse(const char *name, LrKind *ret_kind);
const char *lr_name(LrKind kind);
const char *lr_warmup_name(LrWarmup type);
/* NULL means linear. */
MUST_USE Status lr_parse_warmup(const char *name, LrWarmup *ret_type);
/* The learning rate of `step`, counted from 1. */
double lr_at(const LrSchedule *schedule, int64_t step);

#endif
