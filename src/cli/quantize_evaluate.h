/* weft quantize --evaluate: what quantization costs and gains. */
#ifndef WEFT_CLI_QUANTIZE_EVALUATE_H
#define WEFT_CLI_QUANTIZE_EVALUATE_H

#include <stdio.h>

#include "cli/option.h"
#include "compress/quantize.h"

typedef struct QuantizeArgs {
    QuantizeConfig config; /* must be first: its option table uses offsets from it */
    const char **evaluate; /* data; none: no evaluation */
    int evaluate_count;
    const char **prompts;
    int prompts_count;
    int64_t max_batches, new_tokens;
} QuantizeArgs;

/* Compares config.model with the quantized config.out:
 *   seq      tokens per sequence
 *   batches  per batch size: seconds, seconds_quantized, speedup, loss, loss_quantized
 *   texts    per prompt: prompt, original, quantized; empty for models that cannot generate
 */
MUST_USE Status quantize_evaluate(const QuantizeArgs *args, json_t **ret_result);
void quantize_evaluate_show(const json_t *result, FILE *out);

#endif
