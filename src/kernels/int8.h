/* Memory layout of packed int8 (DT_Q8) and int4 (DT_Q4) weights, for the backends that multiply them.
 *
 *   Int8Header
 *   scale    fp32 (padded): one per output
 *   sums     int32 (padded): the sum of each output's weights
 *   factor   fp32 (depth): one per input; unused if `factors` is false
 *   panels   int8: outputs in panels of `cols`, inputs in groups of `group`; padded with zeros
 *
 * Panels of int4 weights consist of slices of INT4_GROUP inputs. A slice contains the weights, in the order
 * of the bytes of an int8 panel but two per byte (see Int8Tile.width), followed by the steps of the panel's
 * outputs. Kernels may read up to INT8_ALIGN bytes past the end of a panel.
 *
 * Each section starts at a multiple of INT8_ALIGN bytes from the beginning. */
#ifndef WEFT_KERNELS_INT8_H
#define WEFT_KERNELS_INT8_H

#include "kernels/kernels.h"

enum { INT8_MARK = 0x77713801, INT8_ALIGN = 64, INT8_DEPTH = 64 /* depth is a multiple of this */ };

typedef struct Int8Header {
    uint32_t mark;
    Int8Tile tile;
    int64_t outputs, inputs; /* as passed to the pack function */
    int64_t padded, depth;   /* outputs and inputs, rounded up to whole panels and groups */
    int bits;                /* 8 or 4 */
    bool factors;
    float amax;         /* static amax of the inputs times their factors; 0: computed for each row */
    const char *device; /* copy in device memory, or NULL */
} Int8Header;

static inline int64_t int8_round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static inline size_t int8_align(int64_t bytes) {
    return (size_t)int8_round_up(bytes, INT8_ALIGN);
}

/* Pointers to the sections. */
typedef struct Int8View {
    const Int8Header *header;
    float *scale, *factor; /* factor: NULL if absent */
    int32_t *sums;
    int8_t *panels;
} Int8View;

static inline Int8View int8_view(Tensor packed) {
    const Int8Header *header = packed.data;
    char *at = (char *)packed.data + int8_align(sizeof *header);
    Int8View view = {.header = header, .scale = (float *)(void *)at};
    at += int8_align(header->padded * (int64_t)sizeof(float));
    view.sums = (int32_t *)(void *)at;
    at += int8_align(header->padded * (int64_t)sizeof(int32_t));
    if (header->factors) view.factor = (float *)(void *)at;
    at += int8_align(header->depth * (int64_t)sizeof(float));
    view.panels = (int8_t *)at;
    return view;
}

/* Bytes of a slice (INT4_GROUP inputs) of an int4 panel, and of a whole panel. */
static inline int64_t int4_slice_bytes(Int8Tile tile) {
    return tile.cols * (INT4_GROUP / 2 + 1);
}
static inline int64_t int8_panel_bytes(const Int8Header *header) {
    return header->bits == 8 ? header->tile.cols * header->depth
                             : header->depth / INT4_GROUP * int4_slice_bytes(header->tile);
}

/* Index of a weight in its int8 panel. */
static inline int64_t int8_index(Int8Tile tile, int64_t output, int64_t input) {
    return input / tile.group * tile.cols * tile.group + output % tile.cols * tile.group + input % tile.group;
}

/* Bytes of packed weights, and the distance of those of matrices that follow one another (packed_matrix). */
static inline size_t int8_stride(const Int8Header *header) {
    size_t panels = (size_t)(header->padded / header->tile.cols * int8_panel_bytes(header));
    return int8_align(sizeof *header) + 2 * int8_align(header->padded * 4) + int8_align(header->depth * 4) +
           int8_align((int64_t)panels) + INT8_ALIGN;
}

static inline int8_t *int8_panel(const Int8View *view, int64_t output) {
    return view->panels + output / view->header->tile.cols * int8_panel_bytes(view->header);
}

/* Where a weight is in its int4 slice: its byte, whether it is the high nibble, what its bits are XORed with
 * (see Int8Tile.biased), and the byte of its step. */
typedef struct Int4Offset {
    int64_t byte, step;
    bool high;
    int flip;
} Int4Offset;

/* `input` is relative to the first of the slice. */
static inline Int4Offset int4_offset(Int8Tile tile, int64_t output, int64_t input) {
    int64_t at = int8_index(tile, output, input), two = 2 * tile.width;
    bool high = at % two >= tile.width;
    return (Int4Offset){.byte = at / two * tile.width + at % tile.width,
                        .step = tile.cols * INT4_GROUP / 2 + output % tile.cols,
                        .high = high,
                        .flip = tile.biased && !high ? 8 : 0};
}

/* The integer weight of an output and an input, multiplied by its step (int4) but not by its scale. */
static inline int int8_value(const Int8View *view, int64_t output, int64_t input) {
    Int8Tile tile = view->header->tile;
    const int8_t *panel = int8_panel(view, output);
    if (view->header->bits == 8) return panel[int8_index(tile, output, input)];
    const int8_t *slice = panel + input / INT4_GROUP * int4_slice_bytes(tile);
    Int4Offset offset = int4_offset(tile, output, input % INT4_GROUP);
    int nibble = (slice[offset.byte] >> (offset.high ? 4 : 0) & 15) ^ offset.flip;
    return slice[offset.step] * ((nibble ^ 8) - 8);
}

/* embedding_forward with a packed token embedding, on a CPU. */
MUST_USE Status embedding_int8_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                                       Tensor wte, Tensor wpe, Tensor wtype, VocabPart part);

#endif
