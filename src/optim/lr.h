/* Learning rate by step: one of two warm-ups, then one of three ways on. */
#ifndef WEFT_OPTIM_LR_H
#define WEFT_OPTIM_LR_H

#include <stdint.h>

#include "base/status.h"

typedef enum { LR_LINEAR, LR_COSINE, LR_CONSTANT } LrKind;
/* Of W steps, step s has the share s / W, or log s / log W of the peak: the latter rises early. */
typedef enum { WARMUP_LINEAR, WARMUP_LOG } LrWarmup;

typedef struct LrSchedule {
    LrKind kind;
    LrWarmup warmup_type;
    double peak, floor; /* the decay would meet the floor one step past the last */
    int64_t warmup, steps;
} LrSchedule;

MUST_USE Status lr_parse(const char *name, LrKind *ret_kind);
/* NULL is linear. */
MUST_USE Status lr_parse_warmup(const char *name, LrWarmup *ret_type);
/* step counts from 1. */
double lr_at(const LrSchedule *schedule, int64_t step);

#endif
