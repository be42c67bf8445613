/* Matrices most of whose weights are 0, in a checkpoint's file, sparse.safetensors. It holds the other
 * tensors under the names that transformers gives them, and of each matrix of the layers, by the model's own
 * name:
 *
 *   NAME.mask     U8 (outputs, inputs / 8 rounded up): a bit for each weight that is not 0, the lowest of a
 * byte first NAME.values   those weights, output by output, in the order of inputs
 *
 * transformers looks for another file, so it never takes such a checkpoint for something else. Whoever loads
 * it into a store gets the matrices whole; for inference on a CPU they stay as they are. */
#ifndef WEFT_CHECKPOINT_HF_SPARSE_H
#define WEFT_CHECKPOINT_HF_SPARSE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/hf_files.h"

/* Whether a block's parameter is one of them. */
bool sparse_param(const Block *block, const ParamDesc *desc);

/* Declares the tensors of all such matrices of a store in the host's memory, and puts their data into the
 * created file, from byte `at` on. */
MUST_USE Status sparse_declare(const Store *params, DType dtype, SafeWriter *writer);
MUST_USE Status sparse_place(const Store *params, DType dtype, int64_t at, SafeWriter *writer);

/* A parameter's tensors; both NULL where the files have none. */
typedef struct SparseTensors {
    const SafeTensor *mask, *values;
} SparseTensors;

/* Types, shapes and counts are checked. */
MUST_USE Status sparse_find(HfFiles *files, const ParamDesc *desc, SparseTensors *ret_tensors);
/* The whole matrix; the caller owns it. */
MUST_USE Status sparse_expand(const ParamDesc *desc, const SparseTensors *tensors, float **ret_values);

#endif
