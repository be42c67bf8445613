/* The two things that weft plan does. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/train_options.h"

/* --draw: the timeline of a pipeline. */
MUST_USE Status plan_draw(const Invocation *call, json_t **ret_result);
MUST_USE Status plan_draw_show(const Invocation *call, const json_t *result, FILE *out);

#endif
