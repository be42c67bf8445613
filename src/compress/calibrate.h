/* What the linear layers of a model take: of given data, or while a GPT-2 writes text of its own. */
#ifndef WEFT_COMPRESS_CALIBRATE_H
#define WEFT_COMPRESS_CALIBRATE_H

#include "model/model.h"

/* The inputs of one matrix. */
typedef struct SeenInput {
    char name[PARAM_NAME];
    const void *weights; /* by which it is known */
    int64_t cols;
    float *largest; /* (cols) magnitudes */
} SeenInput;

typedef struct Calibration {
    SeenInput *input;
    size_t count, capacity;
} Calibration;

void calibration_done(Calibration *calibration);
/* Has the model of a directory write text, from tokens drawn with `seed`. */
MUST_USE Status calibrate(const char *dir, int threads, uint64_t seed, Calibration *ret_calibration);
/* Runs the model of a directory over the first sequences of files, as 'weft eval' reads them; data that is
 * empty, or tokens that are not the model's, are refused. */
MUST_USE Status calibrate_on(const char *dir, const char **data, int count, int threads,
                             Calibration *ret_calibration);
/* NULL where nothing is known of the parameter. */
const float *calibration_find(const Calibration *calibration, const char *name);

#endif
