/* Programs other than weft: what they do with the same layers, by the habits that a cluster's file describes
 * (Software in plan/cluster.h). What is measured on a machine was measured with some program; with its habits
 * described, machine and program can be told apart. */
#ifndef WEFT_PLAN_SOFTWARE_H
#define WEFT_PLAN_SOFTWARE_H

#include "plan/cost.h"

Cost software_cost(const Costs *costs, const Beat *beat);
/* The most bytes that a rank holds: `plan` is of weft, and has a tape for the stage. */
double software_memory(const Software *software, const Plan *plan, int stage);

#endif
