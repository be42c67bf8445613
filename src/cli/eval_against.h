/* weft eval --against: several models over the same data, side by side. */
#ifndef WEFT_CLI_EVAL_AGAINST_H
#define WEFT_CLI_EVAL_AGAINST_H

#include "cli/command.h"
#include "train/train.h"

/* {"models": [{"model", "size_bytes", "peak_bytes", "loss", "tokens_per_s", ...}, ...]}: what eval_run gives
 * for each, the config's own model first, with what it takes on disk and of memory. */
MUST_USE Status eval_against(const EvalConfig *config, const char *const *against, int count,
                             json_t **ret_result);
/* One row each, with the differences from the first. */
void eval_against_show(const json_t *result, FILE *out);

#endif
