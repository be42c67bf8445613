/* What the linear layers of a model take: of given data, or while a GPT-2 writes text of its own. */
#ifndef WEFT_COMPRESS_CALIBRATE_H
#define WEFT_COMPRESS_CALIBRATE_H

#include "model/model.h"
#include "train/train.h"

/* Data to run over, as 'weft eval' takes it. */
typedef struct CalibrationData {
    const char **files;
    int files_count;
    const char *format;
    TextOptions text;
    FILE *log; /* where preparing text shows */
} CalibrationData;

/* The inputs of one matrix. */
typedef struct SeenInput {
    char name[PARAM_NAME];
    const void *weights; /* by which it is known */
    bool layer;          /* of a layer, and not the output matrix */
    int64_t cols;
    float *largest; /* (cols) magnitudes */
} SeenInput;

typedef struct Calibration {
    SeenInput *input;
    size_t count, capacity;
} Calibration;

void calibration_done(Calibration *calibration);
/* Has the model of a directory write text, from tokens drawn with `seed`. Watched are the inputs of those
 * matrices that are of few bits in `to`, the model that is to come of it. */
MUST_USE Status calibrate(const char *dir, const Model *to, int threads, uint64_t seed,
                          Calibration *ret_calibration);
/* Runs the model of a directory over the first sequences of files, as 'weft eval' reads them; data that is
 * empty, or tokens that are not the model's, are refused. */
MUST_USE Status calibrate_on(const char *dir, const Model *to, const CalibrationData *data, int threads,
                             Calibration *ret_calibration);
/* NULL where nothing is known of the parameter. */
const SeenInput *calibration_find(const Calibration *calibration, const char *name);

#endif
