/* Matrices that bitsandbytes has quantized to 4 bits (NF4 or FP4): beside the codes, X of shape (bytes,1), a
 * file has
 *
 *   X.absmax        the scale of each block, in fp32 or, quantized once more, a byte
 *   X.quant_map     the values of the sixteen levels
 *   X.quant_state.bitsandbytes__nf4   JSON: shape, block size
 *   X.nested_absmax, X.nested_quant_map   for scales in bytes: their own scales and levels
 */
#ifndef WEFT_CHECKPOINT_BNB_H
#define WEFT_CHECKPOINT_BNB_H

#include "checkpoint/hf_files.h"

typedef struct BnbMatrix {
    const SafeTensor *codes; /* NULL: the tensor is an ordinary one */
    const SafeTensor *absmax, *levels, *nested_absmax, *nested_levels; /* the last two may be NULL */
    int64_t block, nested_block, count;
    double offset;      /* added to nested scales */
    SafeTensor decoded; /* the matrix in fp32, without data */
} BnbMatrix;

/* Finds what belongs to a tensor, checks it and marks it as used. */
MUST_USE Status bnb_find(HfFiles *files, const HfEntry *entry, BnbMatrix *ret_matrix);
/* The values; the caller frees them. */
MUST_USE Status bnb_decode(const BnbMatrix *matrix, float **ret_values);

#endif
