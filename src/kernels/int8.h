/* What lies behind a tensor of packed int8 weights (DT_Q8), for the backends that multiply by them.
 *
 *   Int8Head
 *   scale    fp32, one for each output of `padded`
 *   sums     int32, likewise: the sum of an output's weights
 *   factor   fp32, one for each input; none where `factors` is false
 *   panels   int8: outputs in panels of `cols`, inputs in groups; what is missing at an edge is 0
 *
 * Each part begins at a multiple of 64 bytes from the first.
 */
#ifndef WEFT_KERNELS_INT8_H
#define WEFT_KERNELS_INT8_H

#include "kernels/kernels.h"

enum { INT8_MARK = 0x77713801, INT8_ALIGN = 64, INT8_DEPTH = 64 /* depths are padded to it */ };

typedef struct Int8Head {
    uint32_t mark;
    Int8Tile tile;
    int64_t outputs, inputs; /* as given */
    int64_t padded, depth;   /* outputs and inputs with what is added at the edges */
    bool factors;
} Int8Head;

static inline int64_t int8_round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static inline size_t int8_part(int64_t bytes) {
    return (size_t)int8_round_up(bytes, INT8_ALIGN);
}

/* Views of the parts. */
typedef struct Int8View {
    const Int8Head *head;
    float *scale, *factor; /* factor: NULL where there is none */
    int32_t *sums;
    int8_t *panels;
} Int8View;

static inline Int8View int8_view(Tensor packed) {
    const Int8Head *head = packed.data;
    char *at = (char *)packed.data + int8_part(sizeof *head);
    Int8View view = {.head = head, .scale = (float *)(void *)at};
    at += int8_part(head->padded * (int64_t)sizeof(float));
    view.sums = (int32_t *)(void *)at;
    at += int8_part(head->padded * (int64_t)sizeof(int32_t));
    if (head->factors) view.factor = (float *)(void *)at;
    at += int8_part(head->depth * (int64_t)sizeof(float));
    view.panels = (int8_t *)at;
    return view;
}

/* Where the weight of an output and an input lies among the panels. */
static inline int64_t int8_index(const Int8Head *head, int64_t output, int64_t input) {
    int64_t cols = head->tile.cols, group = head->tile.group;
    return output / cols * cols * head->depth + input / group * cols * group + output % cols * group +
           input % group;
}

/* linear_forward with packed weights. */
MUST_USE Status linear_int8_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act);
/* embedding_forward with a packed token embedding. */
MUST_USE Status embedding_int8_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor past,
                                       Tensor wte, Tensor wpe, Tensor wtype, VocabPart part);

#endif
