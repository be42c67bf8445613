/* The things that weft plan does. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/train_options.h"
#include "plan/failure.h"
#include "plan/search.h"

/* Refuses what the command line says beside these options: it would have no effect. The list ends with NULL.
 */
MUST_USE Status plan_only(const Invocation *call, const char *mode, const char *const *known);

/* --draw: the timeline of a pipeline. */
MUST_USE Status plan_draw(const Invocation *call, json_t **ret_result);
MUST_USE Status plan_draw_show(const Invocation *call, const json_t *result, FILE *out);

/* --search: the fastest layouts. */
MUST_USE Status plan_search(Invocation *call, json_t **ret_result);
/* What it searches in: the options that are given stay as they are. */
MUST_USE Status plan_search_spec(Invocation *call, const Cluster *cluster, SearchSpec *ret_spec);
void plan_search_show(const json_t *result, FILE *out);

/* --sweep: how it scales. */
MUST_USE Status plan_sweep(Invocation *call, json_t **ret_result);
void plan_sweep_show(const json_t *result, FILE *out);

/* --measure: a description of this machine. */
MUST_USE Status plan_measure(Invocation *call, json_t **ret_result);
void plan_measure_show(const json_t *result, FILE *out);

/* --mtbf and its like. Refuses those that are given without it; *ret_spec has no devices where devices do not
 * fail. `params` are the whole model's. */
MUST_USE Status plan_failure_spec(const Invocation *call, int64_t ranks, int64_t params,
                                  FailureSpec *ret_spec);
/* Adds "failures" to a plan, or to a search. `timed` has the step's time and rate; NULL: not known. */
MUST_USE Status plan_failure_add(const Invocation *call, const json_t *timed, json_t *result);
void plan_failure_show(const json_t *result, FILE *out);

#endif
