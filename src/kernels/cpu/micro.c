/* The fp32 micro-kernel and the packing of panels; see micro.h. Compiled without pre-RA instruction
 * scheduling, which hoists loads so far that accumulators spill. */
#include "kernels/cpu/micro.h"

#include "kernels/cpu/half.h"

#if defined(__aarch64__)

#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TILE_LEFT(a)                                                                                         \
    const float32x4_t a0 = vld1q_f32(a), a1 = vld1q_f32((a) + 4);                                            \
    (void)a0, (void)a1
#define LANE(sum, b, i) (VecF) vfmaq_laneq_f32((float32x4_t)(sum), (float32x4_t)(b), (i) < 4 ? a0 : a1, (i)&3)

#elif defined(__AVX512F__)

#define TILE_ROWS(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TILE_LEFT(a)    const float *left = (a)
#define LANE(sum, b, i) ((sum) + vec_set(left[i]) * (b))

#else

#define TILE_ROWS(X)    X(0) X(1) X(2) X(3)
#define TILE_LEFT(a)    const float *left = (a)
#define LANE(sum, b, i) ((sum) + vec_set(left[i]) * (b))

#endif

#define ROW_START(i) VecF sum##i##0 = {0}, sum##i##1 = {0}, sum##i##2 = {0};
#define ROW_STEP(i)                                                                                          \
    sum##i##0 = LANE(sum##i##0, b0, i);                                                                      \
    sum##i##1 = LANE(sum##i##1, b1, i);                                                                      \
    sum##i##2 = LANE(sum##i##2, b2, i);
#define ROW_SET(i)                                                                                           \
    vec_store(c + (i)*c_stride, sum##i##0);                                                                  \
    vec_store(c + (i)*c_stride + VEC, sum##i##1);                                                            \
    vec_store(c + (i)*c_stride + 2 * VEC, sum##i##2);
#define ROW_ADD(i)                                                                                           \
    sum##i##0 += vec_load(c + (i)*c_stride);                                                                 \
    sum##i##1 += vec_load(c + (i)*c_stride + VEC);                                                           \
    sum##i##2 += vec_load(c + (i)*c_stride + 2 * VEC);
#define STEP(a, b)                                                                                           \
    {                                                                                                        \
        TILE_LEFT(a);                                                                                        \
        const VecF b0 = vec_load(b), b1 = vec_load((b) + VEC), b2 = vec_load((b) + 2 * VEC);                 \
        TILE_ROWS(ROW_STEP)                                                                                  \
    }

void micro_tile(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride, bool add) {
    TILE_ROWS(ROW_START)
    for (int i = 0; i < MICRO_ROWS; i++) __builtin_prefetch(c + i * c_stride, 1);
    for (int64_t step = depth / 2; step > 0; step--) {
        STEP(a, b)
        STEP(a + MICRO_ROWS, b + MICRO_COLS)
        a += 2 * MICRO_ROWS;
        b += 2 * MICRO_COLS;
    }
    if (depth % 2) STEP(a, b)
    if (add) {
        TILE_ROWS(ROW_ADD)
    }
    TILE_ROWS(ROW_SET)
}

void micro_edge(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride, bool add,
                int64_t rows, int64_t cols) {
    if (rows == MICRO_ROWS && cols == MICRO_COLS) {
        micro_tile(depth, a, b, c, c_stride, add);
        return;
    }
    float tile[MICRO_ROWS][MICRO_COLS];
    micro_tile(depth, a, b, tile[0], MICRO_COLS, false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            c[i * c_stride + j] = add ? c[i * c_stride + j] + tile[i][j] : tile[i][j];
}

/* At the call sites `width` is a constant, so the copies become a few loads and stores. */
static inline void across_panel(float *panel, int width, const float *from, int64_t stride, int64_t lines,
                                int64_t depth) {
    for (int line = 0; line < width; line += 4) {
        const float *at = from + line * stride;
        int64_t k = 0;
        if (lines - line >= 4)
            for (; k + 4 <= depth; k += 4) vec4_transpose(panel + k * width + line, width, at + k, stride);
        for (; k < depth; k++)
            for (int i = 0; i < 4; i++)
                panel[k * width + line + i] = line + i < lines ? at[i * stride + k] : 0.0f;
    }
}

static inline void across(float *panels, int width, const float *from, int64_t stride, int64_t lines,
                          int64_t depth, int64_t panel_stride) {
    for (int64_t line = 0; line < lines; line += width, panels += panel_stride)
        across_panel(panels, width, from + line * stride, stride, lines - line, depth);
}

/* One step over all panels at a time, so that each cache line of the source is read once. */
static inline void along(float *panels, int width, const float *from, int64_t stride, int64_t lines,
                         int64_t depth, int64_t panel_stride) {
    for (int64_t k = 0; k < depth; k++, from += stride) {
        float *to = panels + k * width;
        int64_t line = 0;
        for (; line + width <= lines; line += width, to += panel_stride)
            memcpy(to, from + line, (size_t)width * sizeof *to);
        if (line < lines)
            for (int i = 0; i < width; i++) to[i] = line + i < lines ? from[line + i] : 0.0f;
    }
}

void pack_across(float *panels, int width, const float *from, int64_t stride, int64_t lines, int64_t depth,
                 int64_t panel_stride) {
    if (width == MICRO_ROWS)
        across(panels, MICRO_ROWS, from, stride, lines, depth, panel_stride);
    else
        across(panels, MICRO_COLS, from, stride, lines, depth, panel_stride);
}

void pack_along(float *panels, int width, const float *from, int64_t stride, int64_t lines, int64_t depth,
                int64_t panel_stride) {
    if (width == MICRO_ROWS)
        along(panels, MICRO_ROWS, from, stride, lines, depth, panel_stride);
    else
        along(panels, MICRO_COLS, from, stride, lines, depth, panel_stride);
}

/* The same from bf16, converted on the way. */
static inline void across_panel_bf16(float *panel, int width, const uint16_t *from, int64_t stride,
                                     int64_t lines, int64_t depth) {
    for (int line = 0; line < width; line += 4) {
        const uint16_t *at = from + line * stride;
        int64_t k = 0;
        if (lines - line >= 4)
            for (; k + 4 <= depth; k += 4)
                vec4_store_transposed(panel + k * width + line, width, vec4_load_bf16(at + k),
                                      vec4_load_bf16(at + stride + k), vec4_load_bf16(at + 2 * stride + k),
                                      vec4_load_bf16(at + 3 * stride + k));
        for (; k < depth; k++)
            for (int i = 0; i < 4; i++)
                panel[k * width + line + i] = line + i < lines ? bf16_to_f32(at[i * stride + k]) : 0.0f;
    }
}

static inline void across_bf16(float *panels, int width, const uint16_t *from, int64_t stride, int64_t lines,
                               int64_t depth, int64_t panel_stride) {
    for (int64_t line = 0; line < lines; line += width, panels += panel_stride)
        across_panel_bf16(panels, width, from + line * stride, stride, lines - line, depth);
}

static inline void along_bf16(float *panels, int width, const uint16_t *from, int64_t stride, int64_t lines,
                              int64_t depth, int64_t panel_stride) {
    for (int64_t k = 0; k < depth; k++, from += stride) {
        float *to = panels + k * width;
        int64_t line = 0;
        for (; line + width <= lines; line += width, to += panel_stride)
            if (width % VEC == 0)
                for (int i = 0; i < width; i += VEC) vec_store(to + i, vec_load_bf16(from + line + i));
            else
                for (int i = 0; i < width; i += 4) vec4_store(to + i, vec4_load_bf16(from + line + i));
        if (line < lines)
            for (int i = 0; i < width; i++) to[i] = line + i < lines ? bf16_to_f32(from[line + i]) : 0.0f;
    }
}

void pack_across_bf16(float *panels, int width, const uint16_t *from, int64_t stride, int64_t lines,
                      int64_t depth, int64_t panel_stride) {
    if (width == MICRO_ROWS)
        across_bf16(panels, MICRO_ROWS, from, stride, lines, depth, panel_stride);
    else
        across_bf16(panels, MICRO_COLS, from, stride, lines, depth, panel_stride);
}

void pack_along_bf16(float *panels, int width, const uint16_t *from, int64_t stride, int64_t lines,
                     int64_t depth, int64_t panel_stride) {
    if (width == MICRO_ROWS)
        along_bf16(panels, MICRO_ROWS, from, stride, lines, depth, panel_stride);
    else
        along_bf16(panels, MICRO_COLS, from, stride, lines, depth, panel_stride);
}
