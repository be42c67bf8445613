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

#define STEPS_TWO(a, b)                                                                                      \
    STEP(a, b)                                                                                               \
    STEP(a + MICRO_ROWS, b + MICRO_COLS)                                                                     \
    a += 2 * MICRO_ROWS;                                                                                     \
    b += 2 * MICRO_COLS;

static ALWAYS_INLINE void tile(int64_t depth, const float *a, const float *b, float *c, int64_t c_stride,
                               bool add, MicroAhead *ahead) {
    TILE_ROWS(ROW_START)
    for (int i = 0; i < MICRO_ROWS; i++) __builtin_prefetch(c + i * c_stride, 1);
    int64_t step = depth / 2;
    if (ahead && ahead->count > 0 && step > 0) {
        int64_t each = (ahead->count + step - 1) / step, rest = step - ahead->count / each;
        for (; step > rest; step--) {
            for (int64_t i = each; i > 0; i--) micro_ahead(ahead);
            STEPS_TWO(a, b)
        }
    }
    for (; step > 0; step--) {
        STEPS_TWO(a, b)
    }
    if (depth % 2) STEP(a, b)
    if (add) {
        TILE_ROWS(ROW_ADD)
    }
    TILE_ROWS(ROW_SET)
}

void micro_tile(int64_t depth, const void *left_panel, const void *right_panel, float *c, int64_t c_stride,
                bool add) {
    tile(depth, left_panel, right_panel, c, c_stride, add, NULL);
}

void micro_tile_ahead(int64_t depth, const void *left_panel, const void *right_panel, float *c,
                      int64_t c_stride, bool add, MicroAhead *ahead) {
    tile(depth, left_panel, right_panel, c, c_stride, add, ahead);
}

/* At the call sites `dtype` and `width` are constants, so the copies become a few loads and stores. */
static ALWAYS_INLINE void across_panel(DType dtype, float *panel, int width, PackSource s, int64_t first) {
    for (int line = 0; line < width; line += 4) {
        int64_t at = (first + line) * s.stride, lines = s.lines - first - line, k = 0;
        if (lines >= 4)
            for (; k + 4 <= s.depth; k += 4)
                vec4_store_transposed(panel + k * width + line, width, vec4_get(s.from, dtype, at + k),
                                      vec4_get(s.from, dtype, at + s.stride + k),
                                      vec4_get(s.from, dtype, at + 2 * s.stride + k),
                                      vec4_get(s.from, dtype, at + 3 * s.stride + k));
        for (; k < s.depth; k++)
            for (int i = 0; i < 4; i++)
                panel[k * width + line + i] = i < lines ? half_get(s.from, dtype, at + i * s.stride + k) : 0;
    }
}

/* One step over all panels at a time, so that each cache line of the source is read once. */
static ALWAYS_INLINE void along_panels(DType dtype, float *panels, int width, PackSource s,
                                       int64_t panel_stride) {
    for (int64_t k = 0; k < s.depth; k++) {
        float *to = panels + k * width;
        int64_t line = 0, at = k * s.stride;
        for (; line + width <= s.lines; line += width, to += panel_stride)
            if (dtype == DT_F32)
                memcpy(to, (const float *)s.from + at + line, (size_t)width * sizeof *to);
            else if (width % VEC == 0)
                for (int i = 0; i < width; i += VEC) vec_store(to + i, vec_get(s.from, dtype, at + line + i));
            else
                for (int i = 0; i < width; i += 4) vec4_store(to + i, vec4_get(s.from, dtype, at + line + i));
        for (int i = 0; line < s.lines && i < width; i++)
            to[i] = line + i < s.lines ? half_get(s.from, dtype, at + line + i) : 0;
    }
}

static ALWAYS_INLINE void pack(DType dtype, float *panels, int width, PackSource s, int64_t panel_stride) {
    if (!s.across) along_panels(dtype, panels, width, s, panel_stride);
    for (int64_t line = 0; s.across && line < s.lines; line += width, panels += panel_stride)
        across_panel(dtype, panels, width, s, line);
}

void micro_pack(float *panels, int width, PackSource source, int64_t panel_stride) {
    if (width == MICRO_ROWS)
        BY_TYPE(source.dtype, pack, panels, MICRO_ROWS, source, panel_stride);
    else
        BY_TYPE(source.dtype, pack, panels, MICRO_COLS, source, panel_stride);
}
