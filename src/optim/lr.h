/* Learning rate by step: a linear warm-up, then one of three ways on. */
#ifndef WEFT_OPTIM_LR_H
#define WEFT_OPTIM_LR_H

#include <stdint.h>

#include "base/status.h"

typedef enum { LR_LINEAR, LR_COSINE, LR_CONSTANT } LrKind;

typedef struct LrSchedule {
    LrKind kind;
    double peak, floor; /* the decay would meet the floor one step past the last */
    int64_t warmup, steps;
} LrSchedule;

MUST_USE Status lr_parse(const char *name, LrKind *ret_kind);
/* step counts from 1. */
double lr_at(const LrSchedule *schedule, int64_t step);

#endif
