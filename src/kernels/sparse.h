/* What lies behind a tensor of packed sparse weights (DT_SPARSE), for the backends that multiply by them.
 *
 *   SparseHeader
 *   start    uint32, blocks x outputs + 1: where the weights of an output in a block of inputs begin, in
 * fours value    fp32: the weights that are not 0; those of each output and block are filled up to a multiple
 * of four with zeros, so that four sums can run side by side index    uint16, of each: its input, counted
 * from the block's first
 *
 * Inputs are cut into blocks of SPARSE_BLOCK, of which a few rows stay in a processor's first cache. Each
 * part begins at a multiple of 64 bytes from the first.
 */
#ifndef WEFT_KERNELS_SPARSE_H
#define WEFT_KERNELS_SPARSE_H

#include "kernels/kernels.h"

enum { SPARSE_MARK = 0x77733201, SPARSE_BLOCK = 512, SPARSE_ALIGN = 64 };

typedef struct SparseHeader {
    uint32_t mark;
    uint32_t fours; /* of values, all outputs together */
    int64_t outputs, inputs, blocks;
} SparseHeader;

static inline size_t sparse_part(size_t bytes) {
    return (bytes + SPARSE_ALIGN - 1) / SPARSE_ALIGN * SPARSE_ALIGN;
}

typedef struct SparseView {
    const SparseHeader *head;
    uint32_t *start;
    float *value;
    uint16_t *index;
} SparseView;

static inline SparseView sparse_view(Tensor packed) {
    const SparseHeader *head = packed.data;
    char *at = (char *)packed.data + sparse_part(sizeof *head);
    SparseView view = {.head = head, .start = (uint32_t *)(void *)at};
    at += sparse_part((size_t)(head->blocks * head->outputs + 1) * sizeof *view.start);
    view.value = (float *)(void *)at;
    at += sparse_part((size_t)head->fours * 4 * sizeof *view.value);
    view.index = (uint16_t *)(void *)at;
    return view;
}

/* linear_forward with packed weights. */
MUST_USE Status linear_sparse_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                      Act act);

#endif
