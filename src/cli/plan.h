/* The modes of weft plan. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/train_options.h"
#include "plan/failure.h"
#include "plan/search.h"

/* Rejects options on the command line that `mode` ignores. `known`: the options it uses, NULL-terminated. */
MUST_USE Status plan_only(const Invocation *call, const char *mode, const char *const *known);

/* --draw: the timeline of a pipeline schedule. */
MUST_USE Status plan_draw(const Invocation *call, json_t **ret_result);
MUST_USE Status plan_draw_show(const Invocation *call, const json_t *result, FILE *out);

/* --search: the fastest layouts. */
MUST_USE Status plan_search(Invocation *call, json_t **ret_result);
/* The search space: layout options that are given stay fixed. */
MUST_USE Status plan_search_spec(Invocation *call, const Cluster *cluster, SearchSpec *ret_spec);
void plan_search_show(const json_t *result, FILE *out);

/* --sweep: strong and weak scaling. */
MUST_USE Status plan_sweep(Invocation *call, json_t **ret_result);
void plan_sweep_show(const json_t *result, FILE *out);

/* --measure: a cluster file for this machine. */
MUST_USE Status plan_measure(Invocation *call, json_t **ret_result);
void plan_measure_show(const json_t *result, FILE *out);

/* --mtbf and related options, which are rejected without it. Without --mtbf, ret_spec->devices is 0.
 * `params`: of the whole model. */
MUST_USE Status plan_failure_spec(const Invocation *call, int64_t ranks, int64_t params,
                                  FailureSpec *ret_spec);
/* Adds "failures" to the result of a plan or search. `timed` has the step time and throughput; NULL if
 * unknown. */
MUST_USE Status plan_failure_add(const Invocation *call, const json_t *timed, json_t *result);
void plan_failure_show(const json_t *result, FILE *out);

/* What weft needs on the cluster's GPUs. */
void plan_needs_add(const Cluster *cluster, json_t *result);
void plan_needs_show(const json_t *result, FILE *out);

/* The cluster of --cluster, with --price and --power. */
MUST_USE Status plan_cluster(const PlanArgs *args, Cluster *ret_cluster);

/* The cost and energy of a million tokens on that many ranks, as far as price and power are known. `goodput`:
 * the fraction of the tokens that are not lost to failures. */
void plan_cost_add(const Cluster *cluster, double ranks, double goodput, json_t *result);
void plan_cost_show(const json_t *result, FILE *out);

/* --html: adds the page that was written to a result, and tells people. */
void plan_page_add(const Invocation *call, json_t *result);
void plan_page_show(const json_t *result, FILE *out);

#endif
