/* TDPBF16PS: a tile of 32 rows x 32 columns as 2 x 2 AMX tiles of 16 x 16 accumulators; see micro16.h. The
 * instruction processes 32 steps. Its left operand has the 32 steps of a row side by side, so left panels
 * have groups of 32 steps. Its right operand has pairs of steps, so right panels have groups of two. Both
 * are padded to 32 steps. Compiled for AMX and AVX-512. */
#if defined(__x86_64__)

#include "kernels/cpu/pack16_pairs.h"
#include "kernels/cpu/tiles.h"

enum { ROWS = 32, COLS = 32, STEPS = 32, HALF = 16 };

static void tile_amx(int64_t depth, const void *left, const void *right, float *c, int64_t c_stride,
                     bool add) {
    tiles_product(depth, left, STEPS, ROWS * STEPS, right, 2 * COLS, COLS, c, c_stride, add);
}

/* The 32 steps of a row are contiguous, so packing is a copy. */
static void left_across(uint16_t *panel, PackSource s, int64_t panel_stride) {
    int64_t steps = s.depth / STEPS * STEPS, padded = round_up(s.depth, STEPS);
    for (int64_t first = 0; first < s.lines; first += ROWS, panel += panel_stride) {
        const uint16_t *from = (const uint16_t *)s.from + first * s.stride;
        int64_t lines = s.lines - first, full = lines < ROWS ? lines : ROWS;
        for (int64_t k = 0; k < steps; k += STEPS)
            for (int64_t line = 0; line < full; line++)
                memcpy(panel + k * ROWS + line * STEPS, from + line * s.stride + k, STEPS * sizeof *panel);
        pack16_edge(panel, ROWS, STEPS, from, s.stride, 1, lines, s.depth, full, ROWS, 0, steps);
        pack16_edge(panel, ROWS, STEPS, from, s.stride, 1, lines, s.depth, 0, ROWS, steps, padded);
    }
}

/* Transposes 32 steps of 16 lines, two steps at a time. */
static inline void transpose_sixteen(uint16_t *to, const uint16_t *from, int64_t stride) {
    __m512i r[HALF];
    for (int i = 0; i < HALF; i++) r[i] = pack16_pair(from + 2 * i * stride, stride);
    pack16_transpose(r);
    for (int i = 0; i < HALF; i++) _mm512_storeu_si512(to + i * STEPS, r[i]);
}

static void left_along(uint16_t *panels, PackSource s, int64_t panel_stride) {
    int64_t padded = round_up(s.depth, STEPS);
    for (int64_t k = 0; k < padded; k += STEPS) {
        const uint16_t *from = (const uint16_t *)s.from + k * s.stride;
        uint16_t *to = panels + k * ROWS;
        int64_t line = 0;
        if (k + STEPS <= s.depth)
            for (; line + ROWS <= s.lines; line += ROWS, to += panel_stride)
                for (int i = 0; i < ROWS; i += HALF)
                    transpose_sixteen(to + i * STEPS, from + line + i, s.stride);
        for (; line < s.lines; line += ROWS, to += panel_stride)
            pack16_edge(to, ROWS, STEPS, from + line, 1, s.stride, s.lines - line, s.depth - k, 0, ROWS, 0,
                        STEPS);
    }
}

static void pack_amx(void *panels, bool left, PackSource source, int64_t panel_stride) {
    if (!left)
        pairs_pack(panels, COLS, STEPS, source, panel_stride);
    else if (source.across)
        left_across(panels, source, panel_stride);
    else
        left_along(panels, source, panel_stride);
}

const Micro micro16_amx = {
    .name = "amx",
    .dtype = DT_BF16,
    .size = sizeof(uint16_t),
    .rows = ROWS,
    .cols = COLS,
    .unit = STEPS,
    .depth = 256,
    .begin = tiles_begin,
    .end = tiles_end,
    .tile = tile_amx,
    .pack = pack_amx,
};

#endif
