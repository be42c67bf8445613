/* Packs 16-bit panels in groups of steps (see micro16.h) element by element: for the edges that the
 * vectorized packing in the including files does not cover. */
#ifndef WEFT_KERNELS_CPU_PACK16_H
#define WEFT_KERNELS_CPU_PACK16_H

#include "kernels/cpu/micro16.h"
#include "kernels/cpu/variant.h"

/* Packs lines [line, line_to) and steps [k, k_to) of one panel. In the source, steps are `step` and lines
 * `over` elements apart. Elements past `lines` and `depth` are 0. */
static inline void pack16_edge(uint16_t *panel, int width, int group, const uint16_t *from, int64_t over,
                               int64_t step, int64_t lines, int64_t depth, int64_t line, int64_t line_to,
                               int64_t k, int64_t k_to) {
    for (int64_t i = line; i < line_to; i++)
        for (int64_t p = k; p < k_to; p++)
            panel[p / group * group * width + i * group + p % group] =
                i < lines && p < depth ? from[i * over + p * step] : 0;
}

#endif
