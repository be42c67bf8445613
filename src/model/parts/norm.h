/* Normalization of rows, of the kind that the model has. */
#ifndef WEFT_MODEL_PARTS_NORM_H
#define WEFT_MODEL_PARTS_NORM_H

#include "model/model.h"

/* Parameters of a norm, or their gradients. */
typedef struct Norm {
    Tensor weight, bias; /* (C); an RMS norm has no bias */
} Norm;

/* Statistics that backward needs, one value per row. */
typedef struct NormStats {
    Tensor mean, rstd; /* an RMS norm has no mean */
} NormStats;

/* Appends a norm's descriptors: its weight has the number `id`, its bias the next one. `per_row`: see
 * ParamDesc.per_row. */
MUST_USE Status describe_norm(const ModelConfig *config, ParamList *list, int id, int64_t width, bool per_row,
                              const char *prefix);
/* A block's views of such a norm. */
Norm norm_of(const Block *block, const Tensor *views, int id);
NormStats norm_stats(const ModelConfig *config, int64_t rows, Bump *bump);
NormStats norm_stats_slice(NormStats stats, int64_t rows);

MUST_USE Status norm_forward(Exec *exec, const ModelConfig *config, Tensor y, NormStats stats, Tensor x,
                             Norm norm);
/* sum = res + dropout(y); out = norm(sum). */
MUST_USE Status norm_forward_sum(Exec *exec, const ModelConfig *config, Tensor sum, Tensor out,
                                 NormStats stats, Tensor res, Tensor y, Norm norm, Dropout dropout);
/* The same, or without y of res alone, with the result in fp8: quantized receives it as `scale` says, out,
 * which is then optional, in bf16. */
MUST_USE Status norm_forward_fp8(Exec *exec, const ModelConfig *config, Tensor sum, Tensor out,
                                 Fp8Input quantized, NormStats stats, Tensor res, Tensor y, Norm norm,
                                 Dropout dropout, Fp8Scale scale);
/* dx = gradient through the norm + dres, which is optional; dx may alias dy or dres. An RMS norm has no
 * `sums`. */
MUST_USE Status norm_backward(Exec *exec, const ModelConfig *config, Tensor dx, Norm grad, Tensor dy,
                              Tensor x, NormStats stats, Norm norm, Tensor dres, NormSums sums);

#endif
