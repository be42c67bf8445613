/* Programs other than weft: what they do with the same layers, by the habits that a cluster's file describes
 * (Software in plan/cluster.h). What is measured on a machine was measured with some program; with its habits
 * described, machine and program can be told apart. */
#ifndef WEFT_PLAN_SOFTWARE_H
#define WEFT_PLAN_SOFTWARE_H

#include "plan/cost.h"

Cost software_cost(const Costs *costs, const StepEvent *event);

/* What one micro-batch leaves for its backward on a stage, what a layer holds while it computes, and the
 * logits; in bytes. */
typedef struct Held {
    double kept, layer, logits;
} Held;

Held software_held(const Software *software, const Plan *plan, int stage);
/* What it holds for the parameters and gradients of which weft holds so many bytes, moments included. */
double software_state(const Software *software, DType dtype, double bytes);
/* Puts the most bytes that a rank of each stage holds in place of weft's (memory.saving). `plan` is of weft,
 * and has tapes; as many micro-batches as `micros` take the most memory. */
MUST_USE Status software_memory(const Software *software, Plan *plan, int micros);

#endif
