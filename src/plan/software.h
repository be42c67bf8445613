/* Time and memory of training software other than weft on the same layers, from the Software section of a
 * cluster file (plan/cluster.h). Published measurements depend on both hardware and software; describing the
 * software separately keeps the hardware figures comparable. */
#ifndef WEFT_PLAN_SOFTWARE_H
#define WEFT_PLAN_SOFTWARE_H

#include "plan/cost.h"

/* Replaces cost_event for kernels. */
Cost software_cost(const Costs *costs, const StepEvent *event);

/* Bytes: activations of one micro-batch stored for backward on a stage, memory of a layer while it computes,
 * and logits. */
typedef struct ActivationMemory {
    double kept, layer, logits;
} ActivationMemory;

/* The plan must have step events. */
ActivationMemory software_activations(const Software *software, const Plan *plan, int stage);
/* Bytes of parameters, gradients and optimizer state, given the bytes that weft needs for them. */
double software_state(const Software *software, DType dtype, double bytes);
/* What the allocator holds when `bytes` are in use. Exceeds the available memory only if the bytes do. */
double software_held(const Software *software, double bytes);
/* Replaces memory.needed of every stage by the peak that the software's allocator holds. `plan` is a plan for
 * weft with step events; `micros` is a number of micro-batches that reaches the peak. */
MUST_USE Status software_memory(const Software *software, Plan *plan, int micros);

#endif
