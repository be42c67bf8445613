/* weft eval --against: compares models on the same data. */
#ifndef WEFT_CLI_EVAL_AGAINST_H
#define WEFT_CLI_EVAL_AGAINST_H

#include "cli/command.h"
#include "train/train.h"

/* Returns {"models": [{"model", "size_bytes", "peak_bytes", "loss", "tokens_per_s", ...}, ...]}: eval_run's
 * result for each model, starting with the config's own, plus its size on disk and peak memory. */
MUST_USE Status eval_against(const EvalConfig *config, const char *const *against, int count,
                             json_t **ret_result);
/* Prints one row per model, with differences from the first. */
void eval_against_show(const json_t *result, FILE *out);

#endif
