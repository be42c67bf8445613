/* What the tests of step times share. */
#ifndef WEFT_TESTS_PLAN_TIMED_H
#define WEFT_TESTS_PLAN_TIMED_H

#include <math.h>

#include "test.h"

#include "plan/cost.h"
#include "plan/fit.h"
#include "plan/search.h"
#include "plan/time.h"

static inline StepEstimate time_of(const char *name, const Cluster *cluster, PlanSpec spec,
                                   double *ret_memory) {
    Plan plan = {0};
    StepEstimate time;
    spec.timed = true;
    assert_ok(fit_settle(&spec, cluster));
    assert_ok(plan_init(&plan, &spec));
    assert_ok(plan_time(&plan, cluster, &time));
    double sum = 0;
    for (TimePhase phase = 0; phase < TIME_COUNT; phase++) sum += time.phase_s[phase];
    if (fabs(sum / time.step_s - 1) > 1e-9)
        fail_msg("%s: phases add up to %g s of %g s", name, sum, time.step_s);
    if (ret_memory) *ret_memory = (double)plan.stage[plan.fullest].memory.needed;
    plan_done(&plan);
    return time;
}

static inline PlanSpec spec_of(const char *model, const char *task, int64_t batch, int64_t seq,
                               const char *precision) {
    return (PlanSpec){.config = {.model = {.name = model, .task = task, .dropout = -1, .seq = seq},
                                 .data = {.format = "auto"},
                                 .training = {.batch = batch},
                                 .run = {.micro_batch = batch, .schedule = SCHEDULE_1F1B},
                                 .device = {.precision = precision}},
                      .mesh = {.dp = 1, .tp = 1, .pp = 1}};
}

#endif
