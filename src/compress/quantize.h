/* Quantizing a checkpoint: the layers' matrices, and optionally the token embedding, become int8 or int4. */
#ifndef WEFT_COMPRESS_QUANTIZE_H
#define WEFT_COMPRESS_QUANTIZE_H

#include "base/json.h"
#include "compress/calibrate.h"

typedef struct QuantizeConfig {
    const char *model, *out;
    const char *bits;        /* weights of the layers' matrices: "8" or "4"; NULL: 8 */
    bool embedding;          /* also quantize the token embedding and the output matrix, to int8 ... */
    bool int4_embedding;     /* ... or to int4; not both */
    CalibrationData data;    /* calibration data; no files: a causal model generates its own text */
    bool no_balance;         /* do not balance inputs against weights, see quantize.c */
    const char *activations; /* activation scales: "dynamic" (per row, at run time) or "static" (from
                                calibration); NULL: dynamic */
    int64_t threads;         /* 0: all cores */
    uint64_t seed;           /* for the text that a causal model generates for calibration */
} QuantizeConfig;

/* Writes the checkpoint directory `out`; nothing is left behind after a failure. Returns a description of the
 * result. */
MUST_USE Status quantize_run(const QuantizeConfig *config, json_t **ret_result);

/* What quantization costs and gains (quantize_evaluate.c). */
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
