/* Memory layout of packed sparse weights (DT_SPARSE), for the backends that multiply them.
 *
 *   SparseHeader
 *   start   uint32 (blocks * outputs + 1): index, in quads, of an output's first value in a block of inputs
 *   value   fp32: the nonzero weights, padded with zeros to a multiple of four per output and block, so that
 *           four sums can run in parallel
 *   index   uint16, one per value: its input, relative to the start of the block
 *
 * Inputs are split into blocks of SPARSE_BLOCK, so that the inputs of a few rows stay in the L1 cache. Each
 * section starts at a multiple of SPARSE_ALIGN bytes from the beginning. */
#ifndef WEFT_KERNELS_SPARSE_H
#define WEFT_KERNELS_SPARSE_H

#include "kernels/kernels.h"

enum { SPARSE_MARK = 0x77733201, SPARSE_BLOCK = 512, SPARSE_ALIGN = 64 };

typedef struct SparseHeader {
    uint32_t mark;
    uint32_t quads; /* groups of four values, over all outputs and blocks */
    int64_t outputs, inputs, blocks;
} SparseHeader;

static inline size_t sparse_align(size_t bytes) {
    return (bytes + SPARSE_ALIGN - 1) / SPARSE_ALIGN * SPARSE_ALIGN;
}

typedef struct SparseView {
    const SparseHeader *header;
    uint32_t *start;
    float *value;
    uint16_t *index;
} SparseView;

static inline SparseView sparse_view(Tensor packed) {
    const SparseHeader *header = packed.data;
    char *at = (char *)packed.data + sparse_align(sizeof *header);
    SparseView view = {.header = header, .start = (uint32_t *)(void *)at};
    at += sparse_align((size_t)(header->blocks * header->outputs + 1) * sizeof *view.start);
    view.value = (float *)(void *)at;
    at += sparse_align((size_t)header->quads * 4 * sizeof *view.value);
    view.index = (uint16_t *)(void *)at;
    return view;
}

/* linear_forward for packed sparse weights. */
MUST_USE Status linear_sparse_act_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                          Act act);

#endif
