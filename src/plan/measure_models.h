/* Measures kernels in training steps of small models. */
#ifndef WEFT_PLAN_MEASURE_MODELS_H
#define WEFT_PLAN_MEASURE_MODELS_H

#include "plan/measure.h"

typedef struct MeasuredModels {
    KernelCurves kernels[RATE_COUNT];
    double peak[RATE_COUNT];   /* FLOP/s; 0: not measured */
    double launch_s, kernel_s; /* as in Cluster */
} MeasuredModels;

/* Collective. `memory` is the measured memory bandwidth in bytes/s. */
MUST_USE Status measure_models(const MeasureSpec *spec, Device *device, double memory,
                               MeasuredModels *models);

#endif
