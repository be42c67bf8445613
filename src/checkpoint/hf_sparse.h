/* Sparse matrices in a checkpoint's file sparse.safetensors. Other tensors have the names that transformers
 * uses. For each matrix of the layers, under the model's own name:
 *
 *   NAME.mask     U8 (outputs, inputs / 8 rounded up): one bit per weight, 1 if it is not 0, lowest bit first
 *   NAME.values   the nonzero weights, output by output, in the order of the inputs
 *
 * The file name differs from the one transformers looks for, so transformers never misreads such a
 * checkpoint. Loading into a store expands the matrices; for CPU inference they stay sparse
 * (hf_sparse_choose). */
#ifndef WEFT_CHECKPOINT_HF_SPARSE_H
#define WEFT_CHECKPOINT_HF_SPARSE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"

/* Whether a parameter is stored this way: a weight matrix of a layer. */
bool sparse_param(const ModelParam *param);

/* Declares the tensors of all such matrices of a store in host memory; after the file is created, writes
 * their data starting at byte offset `at`. */
MUST_USE Status sparse_declare(const Store *params, DType dtype, SafeWriter *writer);
MUST_USE Status sparse_write(const Store *params, DType dtype, int64_t at, SafeWriter *writer);

/* A parameter's tensors; both NULL if the files do not contain them. */
typedef struct SparseTensors {
    const SafeTensor *mask, *values;
} SparseTensors;

/* Finds a parameter's tensors and marks them as used. Fails if types, shapes or counts are inconsistent. */
MUST_USE Status sparse_find(HfFiles *files, const ParamDesc *desc, SparseTensors *ret_tensors);
/* The dense matrix; the caller frees it. */
MUST_USE Status sparse_expand(const ParamDesc *desc, const SparseTensors *tensors, float **ret_values);

#endif
