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

/* Fails if quantize_evaluate could not read the data, has no tokenizer for the prompts, or config.out is in
 * the way: reads one batch with config.model. To be called before config.out is written. */
MUST_USE Status quantize_evaluate_check(const QuantizeSpec *spec);
/* Compares config.model with the quantized config.out:
 *   seq      tokens per sequence
 *   batches  per batch size: seconds, seconds_quantized, speedup, loss, loss_quantized
 *   texts    per prompt: prompt, original, quantized; empty for models that cannot generate
 */
MUST_USE Status quantize_evaluate(const QuantizeSpec *spec, json_t **ret_result);

#endif
