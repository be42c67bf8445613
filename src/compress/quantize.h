/* Quantizing a checkpoint: the layers' matrices, and on demand the token embedding, become int8 or int4. */
#ifndef WEFT_COMPRESS_QUANTIZE_H
#define WEFT_COMPRESS_QUANTIZE_H

#include "base/json.h"
#include "compress/calibrate.h"

typedef struct QuantizeConfig {
    const char *model, *out;
    const char *bits;     /* of the layers' matrices: "8" or "4" */
    bool embedding;       /* the token embedding and the output matrix too, in 8 bits ... */
    bool int4_embedding;  /* ... or in 4 */
    CalibrationData data; /* to find out from how large inputs are; none: a GPT-2 writes its own */
    bool no_balance;      /* take inputs as they are, see quantize.c */
    const char
        *activations; /* "dynamic" or "static": rounded by each row's largest, or by that of them all */
    int64_t threads;  /* 0: all */
    uint64_t seed;    /* of the text that a GPT-2 writes for calibration */
} QuantizeConfig;

/* Writes the directory `out`, all of it or, after a failure, nothing. */
MUST_USE Status quantize_run(const QuantizeConfig *config, json_t **ret_result);

#endif
