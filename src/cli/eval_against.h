/* weft eval --against: compares models on the same data. */
#ifndef WEFT_CLI_EVAL_AGAINST_H
#define WEFT_CLI_EVAL_AGAINST_H

#include "cli/command.h"
#include "train/train.h"

/* Checks the options and measures all models, see models_measure. */
MUST_USE Status eval_against(const EvalConfig *config, const char *const *against, int count,
                             json_t **ret_result);
/* Prints one row per model, with differences from the first. */
void eval_against_show(const json_t *result, FILE *out);

#endif
