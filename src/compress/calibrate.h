/* Calibration: recording the input ranges of a model's linear layers on data, or on text that a causal model
 * generates. */
#ifndef WEFT_COMPRESS_CALIBRATE_H
#define WEFT_COMPRESS_CALIBRATE_H

#include "model/model.h"
#include "train/train.h"

/* Calibration data, in the formats of 'weft eval'. */
typedef struct CalibrationData {
    const char **files;
    int files_count;
    const char *format;
    TextOptions text;
    FILE *log; /* progress of tokenization, and warnings */
} CalibrationData;

/* Input ranges of one matrix, or of the matrices of experts. */
typedef struct InputStats {
    char name[PARAM_NAME];
    const char *weights; /* with `bytes`, identifies the matrices while the model runs */
    size_t bytes;
    bool layer;     /* true: a layer's matrix; false: the output matrix */
    int64_t inputs; /* matrices whose inputs differ: 1, or the experts */
    int64_t cols;
    float *largest; /* (inputs,cols) largest magnitude of each input */
} InputStats;

typedef struct Calibration {
    InputStats *input;
    size_t count, capacity;
} Calibration;

void calibration_done(Calibration *calibration);
/* Lets the model in `dir` generate text from random tokens drawn with `seed`, and records the inputs of the
 * matrices that are quantized in `to`, the target model. */
MUST_USE Status calibrate_on_samples(const char *dir, const Model *to, int threads, uint64_t seed,
                                     Calibration *ret_calibration);
/* The same on the first sequences of data files. Refuses empty data and tokens of another tokenizer. */
MUST_USE Status calibrate_on_data(const char *dir, const Model *to, const CalibrationData *data, int threads,
                                  Calibration *ret_calibration);
/* NULL: the parameter was not recorded. */
const InputStats *calibration_find(const Calibration *calibration, const char *name);
/* (cols) of the inputs of a matrix, numbered from 0. */
const float *calibration_largest(const InputStats *stats, int64_t matrix);

#endif
