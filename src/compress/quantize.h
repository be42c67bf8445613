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

/* Quantization to one or several levels, and what they cost and gain. */
typedef struct QuantizeSpec {
    QuantizeConfig config; /* bits "8,4": both levels, in OUT/int8 and OUT/int4 */
    const char **evaluate; /* data; none: no evaluation */
    int evaluate_count;
    const char **prompts;
    int prompts_count;
    int64_t max_batches, new_tokens;
    const json_t *study; /* what a recipe's study published, for quantization.json; NULL: nothing */
} QuantizeSpec;

/* Writes the levels and, with an evaluation, OUT/quantization.json, which has the result. That is
 * quantize_run's, with the evaluation and the study; of two levels, those results are under "levels". */
MUST_USE Status quantize_levels(const QuantizeSpec *spec, json_t **ret_result);

/* Fails if quantize_evaluate could not read the data, has no tokenizer for the prompts, or config.out is in
 * the way: reads one batch with config.model. To be called before config.out is written. */
MUST_USE Status quantize_evaluate_check(const QuantizeSpec *spec);
/* Compares config.model with what was made of it, an array of quantize_run's results:
 *   seq, max_batches  tokens per sequence, at most how many batches
 *   prompts           empty for models that cannot generate
 *   levels            the original as "fp32", then the others: name, model, weights_noise (not of the first);
 *                     batches: per batch size batch, seconds, loss, load (see base/load.h), speedup (null
 * with CPU contention); texts: a continuation of each prompt
 */
MUST_USE Status quantize_evaluate(const QuantizeSpec *spec, const json_t *made, json_t **ret_result);

#endif
