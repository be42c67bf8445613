/* What lies behind a tensor of packed int8 weights (DT_Q8), for the backends that multiply by them.
 *
 *   Int8Head
 *   scale    fp32, one for each output of `padded`
 *   sums     int32, likewise: the sum of an output's weights
 *   factor   fp32, one for each input; none where `factors` is false
 *   panels   int8: outputs in panels of `cols`, inputs in groups; what is missing at an edge is 0
 *
 * Panels of 4 bits are cut by INT4_GROUP inputs. Of each cut come the weights, in the order that bytes have
 * in a panel of 8 bits, two to a byte as the tile's width says, then the steps of the panel's outputs. A
 * panel may be read up to INT8_ALIGN bytes past its end.
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
    int bits;                /* 8 or 4 */
    bool factors;
    float largest;     /* magnitude of all inputs times their factors; 0: of each row as it comes */
    const char *place; /* where all of this lies on a device; NULL: here */
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

/* Bytes of a panel, and of a cut of one of 4 bits. */
static inline int64_t int4_cut_bytes(Int8Tile tile) {
    return tile.cols * (INT4_GROUP / 2 + 1);
}
static inline int64_t int8_panel_bytes(const Int8Head *head) {
    return head->bits == 8 ? head->tile.cols * head->depth
                           : head->depth / INT4_GROUP * int4_cut_bytes(head->tile);
}

/* Where the weight of an output and an input lies in its panel of 8 bits. */
static inline int64_t int8_index(Int8Tile tile, int64_t output, int64_t input) {
    return input / tile.group * tile.cols * tile.group + output % tile.cols * tile.group + input % tile.group;
}

static inline int8_t *int8_panel(const Int8View *view, int64_t output) {
    return view->panels + output / view->head->tile.cols * int8_panel_bytes(view->head);
}

/* Where in its cut a weight of 4 bits lies: its byte, which half of that, and the byte of its step. */
typedef struct Int4Place {
    int64_t byte, step;
    bool high;
} Int4Place;

/* `input` is counted from the first of the cut. */
static inline Int4Place int4_place(Int8Tile tile, int64_t output, int64_t input) {
    int64_t at = int8_index(tile, output, input), two = 2 * tile.width;
    return (Int4Place){.byte = at / two * tile.width + at % tile.width,
                       .step = tile.cols * INT4_GROUP / 2 + output % tile.cols,
                       .high = at % two >= tile.width};
}

/* A weight, with its step where it has one, before its scale. */
static inline int int8_value(const Int8View *view, int64_t output, int64_t input) {
    Int8Tile tile = view->head->tile;
    const int8_t *panel = int8_panel(view, output);
    if (view->head->bits == 8) return panel[int8_index(tile, output, input)];
    const int8_t *cut = panel + input / INT4_GROUP * int4_cut_bytes(tile);
    Int4Place place = int4_place(tile, output, input % INT4_GROUP);
    int half = cut[place.byte] >> (place.high ? 4 : 0) & 15;
    return cut[place.step] * ((half ^ 8) - 8);
}

/* linear_forward with packed weights. */
MUST_USE Status linear_int8_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act);
/* embedding_forward with a packed token embedding. */
MUST_USE Status embedding_int8_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor past,
                                       Tensor wte, Tensor wpe, Tensor wtype, VocabPart part);

#endif
