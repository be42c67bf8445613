/* What quantization costs and gains. */
#ifndef WEFT_COMPRESS_QUANTIZE_EVALUATE_H
#define WEFT_COMPRESS_QUANTIZE_EVALUATE_H

#include "compress/quantize.h"

typedef struct QuantizeSpec {
    QuantizeConfig config;
    const char **evaluate; /* data; none: no evaluation */
    int evaluate_count;
    const char **prompts;
    int prompts_count;
    int64_t max_batches, new_tokens;
} QuantizeSpec;

/* Compares config.model with the quantized config.out:
 *   seq      tokens per sequence
 *   batches  per batch size: seconds, seconds_quantized, speedup, loss, loss_quantized
 *   texts    per prompt: prompt, original, quantized; empty for models that cannot generate
 */
MUST_USE Status quantize_evaluate(const QuantizeSpec *spec, json_t **ret_result);

#endif
