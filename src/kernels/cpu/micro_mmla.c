/* BFMMLA: a tile of 8 rows x 12 columns as 4 x 6 accumulators of 2 x 2, in 24 registers; see micro16.h. A
 * group is the 4 steps of a row that the instruction multiplies. Compiled for bf16 instructions and without
 * pre-RA instruction scheduling, which hoists loads so far that accumulators spill. */
#if defined(__aarch64__)

#include <arm_neon.h>

#include "kernels/cpu/pack16.h"

enum { ROWS = 8, COLS = 12, GROUP = 4 };

#define EACH_PAIR(X) X(0) X(1) X(2) X(3)
#define START(i)                                                                                             \
    float32x4_t s##i##0 = {0}, s##i##1 = {0}, s##i##2 = {0}, s##i##3 = {0}, s##i##4 = {0}, s##i##5 = {0};
#define STEP(j)                                                                                              \
    {                                                                                                        \
        const bfloat16x8_t right = vld1q_bf16(b + 8 * (j));                                                  \
        s0##j = vbfmmlaq_f32(s0##j, a0, right);                                                              \
        s1##j = vbfmmlaq_f32(s1##j, a1, right);                                                              \
        s2##j = vbfmmlaq_f32(s2##j, a2, right);                                                              \
        s3##j = vbfmmlaq_f32(s3##j, a3, right);                                                              \
    }
#define STORE(i)                                                                                             \
    store_pair(c + 2 * (i)*c_stride, c_stride, s##i##0, s##i##1, add);                                       \
    store_pair(c + 2 * (i)*c_stride + 4, c_stride, s##i##2, s##i##3, add);                                   \
    store_pair(c + 2 * (i)*c_stride + 8, c_stride, s##i##4, s##i##5, add);

/* The first or second rows of two adjacent 2 x 2 accumulators: four columns. */
static inline float32x4_t first_of(float32x4_t left, float32x4_t right) {
    return vreinterpretq_f32_f64(vtrn1q_f64(vreinterpretq_f64_f32(left), vreinterpretq_f64_f32(right)));
}
static inline float32x4_t second_of(float32x4_t left, float32x4_t right) {
    return vreinterpretq_f32_f64(vtrn2q_f64(vreinterpretq_f64_f32(left), vreinterpretq_f64_f32(right)));
}

static inline void store_pair(float *c, int64_t c_stride, float32x4_t left, float32x4_t right, bool add) {
    float32x4_t upper = first_of(left, right), lower = second_of(left, right);
    if (add) {
        upper = vaddq_f32(upper, vld1q_f32(c));
        lower = vaddq_f32(lower, vld1q_f32(c + c_stride));
    }
    vst1q_f32(c, upper);
    vst1q_f32(c + c_stride, lower);
}

static void tile_mmla(int64_t depth, const void *left, const void *right_panel, float *c, int64_t c_stride,
                      bool add) {
    const bfloat16_t *a = left, *b = right_panel;
    EACH_PAIR(START)
    for (int i = 0; i < ROWS; i++) __builtin_prefetch(c + i * c_stride, 1);
    for (int64_t k = 0; k < depth; k += GROUP) {
        const bfloat16x8_t a0 = vld1q_bf16(a), a1 = vld1q_bf16(a + 8);
        const bfloat16x8_t a2 = vld1q_bf16(a + 16), a3 = vld1q_bf16(a + 24);
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) a += ROWS * GROUP;
        b += COLS * GROUP;
    }
    EACH_PAIR(STORE)
}

/* Two lines and eight steps at a time: the first four steps go to one group, the rest to the next. */
static inline void across_panel(uint16_t *panel, int width, const uint16_t *from, int64_t stride,
                                int64_t lines, int64_t depth) {
    int64_t full = lines < width ? lines / 2 * 2 : width, steps = depth / 8 * 8;
    for (int64_t k = 0; k < steps; k += 8)
        for (int64_t line = 0; line < full; line += 2) {
            uint64x2_t first = vreinterpretq_u64_u16(vld1q_u16(from + line * stride + k));
            uint64x2_t second = vreinterpretq_u64_u16(vld1q_u16(from + (line + 1) * stride + k));
            uint16_t *to = panel + k * width + line * GROUP;
            vst1q_u16(to, vreinterpretq_u16_u64(vzip1q_u64(first, second)));
            vst1q_u16(to + width * GROUP, vreinterpretq_u16_u64(vzip2q_u64(first, second)));
        }
    int64_t padded = round_up(depth, GROUP);
    pack16_edge(panel, width, GROUP, from, stride, 1, lines, depth, full, width, 0, steps);
    pack16_edge(panel, width, GROUP, from, stride, 1, lines, depth, 0, width, steps, padded);
}

static inline void across(uint16_t *panels, int width, PackSource s, int64_t panel_stride) {
    const uint16_t *from = s.from;
    for (int64_t line = 0; line < s.lines; line += width, panels += panel_stride)
        across_panel(panels, width, from + line * s.stride, s.stride, s.lines - line, s.depth);
}

/* Four steps of four lines: a 4 x 4 transpose. */
static inline void along_four(uint16_t *to, const uint16_t *from, int64_t stride) {
    uint16x4_t r0 = vld1_u16(from), r1 = vld1_u16(from + stride);
    uint16x4_t r2 = vld1_u16(from + 2 * stride), r3 = vld1_u16(from + 3 * stride);
    uint16x8_t even = vzip1q_u16(vcombine_u16(r0, r0), vcombine_u16(r2, r2));
    uint16x8_t odd = vzip1q_u16(vcombine_u16(r1, r1), vcombine_u16(r3, r3));
    vst1q_u16(to, vzip1q_u16(even, odd));
    vst1q_u16(to + 8, vzip2q_u16(even, odd));
}

/* The same for eight lines. */
static inline void along_eight(uint16_t *to, const uint16_t *from, int64_t stride) {
    uint16x8_t r0 = vld1q_u16(from), r1 = vld1q_u16(from + stride);
    uint16x8_t r2 = vld1q_u16(from + 2 * stride), r3 = vld1q_u16(from + 3 * stride);
    uint16x8_t even = vzip1q_u16(r0, r2), odd = vzip1q_u16(r1, r3);
    vst1q_u16(to, vzip1q_u16(even, odd));
    vst1q_u16(to + 8, vzip2q_u16(even, odd));
    even = vzip2q_u16(r0, r2), odd = vzip2q_u16(r1, r3);
    vst1q_u16(to + 16, vzip1q_u16(even, odd));
    vst1q_u16(to + 24, vzip2q_u16(even, odd));
}

/* One group over all panels at a time, so that each cache line of the source is read once. */
static inline void along(uint16_t *panels, int width, PackSource s, int64_t panel_stride) {
    int64_t padded = round_up(s.depth, GROUP);
    for (int64_t k = 0; k < padded; k += GROUP) {
        const uint16_t *from = (const uint16_t *)s.from + k * s.stride;
        uint16_t *to = panels + k * width;
        int64_t line = 0;
        if (k + GROUP <= s.depth)
            for (; line + width <= s.lines; line += width, to += panel_stride) {
                along_eight(to, from + line, s.stride);
                if (width == COLS) along_four(to + 8 * GROUP, from + line + 8, s.stride);
            }
        for (; line < s.lines; line += width, to += panel_stride)
            pack16_edge(to, width, GROUP, from + line, 1, s.stride, s.lines - line, s.depth - k, 0, width, 0,
                        GROUP);
    }
}

/* `width` is a constant at the call sites. */
static inline __attribute__((always_inline)) void pack(uint16_t *panels, int width, PackSource source,
                                                       int64_t panel_stride) {
    if (source.across)
        across(panels, width, source, panel_stride);
    else
        along(panels, width, source, panel_stride);
}

static void pack_mmla(void *panels, bool left, PackSource source, int64_t panel_stride) {
    if (left)
        pack(panels, ROWS, source, panel_stride);
    else
        pack(panels, COLS, source, panel_stride);
}

/* ---- skinny GEMM, without packing ---- */

enum { STEPS = 2 * GROUP, COL_PAIRS = SKINNY_COLS / 2, PREFETCH_BYTES = 8192 };

/* Accumulators of up to two pairs of rows and COL_PAIRS pairs of columns. Four consecutive groups have
 * separate accumulators, which hides the latency of the instruction. */
typedef struct SkinnySums {
    float32x4_t of[2][COL_PAIRS][4];
} SkinnySums;

/* Two lines, interleaved in groups of four steps: steps 0-3, then 4-7. */
typedef struct LinePair {
    bfloat16x8_t even, odd;
} LinePair;

static inline LinePair load_pair(const uint16_t *first, const uint16_t *second) {
    const uint64x2_t one = vreinterpretq_u64_u16(vld1q_u16(first));
    const uint64x2_t two = vreinterpretq_u64_u16(vld1q_u16(second));
    return (LinePair){vreinterpretq_bf16_u64(vzip1q_u64(one, two)),
                      vreinterpretq_bf16_u64(vzip2q_u64(one, two))};
}

/* Eight steps. `pairs` and `turn`, which selects one of two sets of accumulators, are constants at the call
 * sites. */
static inline __attribute__((always_inline)) void skinny_steps(SkinnySums *sums, int pairs, int turn,
                                                               const uint16_t *const *a,
                                                               const uint16_t *const *b, int64_t k) {
    LinePair left[2];
#pragma GCC unroll 2
    for (int i = 0; i < pairs; i++) left[i] = load_pair(a[2 * i] + k, a[2 * i + 1] + k);
#pragma GCC unroll 2
    for (int j = 0; j < COL_PAIRS; j++) {
        const LinePair right = load_pair(b[2 * j] + k, b[2 * j + 1] + k);
#pragma GCC unroll 2
        for (int i = 0; i < pairs; i++) {
            float32x4_t *to = &sums->of[i][j][2 * turn];
            to[0] = vbfmmlaq_f32(to[0], left[i].even, right.even);
            to[1] = vbfmmlaq_f32(to[1], left[i].odd, right.odd);
        }
    }
}

/* The last `count` < 8 steps, padded with zeros. */
static inline __attribute__((always_inline)) void skinny_tail(SkinnySums *sums, int pairs, int turn,
                                                              const uint16_t *const *a,
                                                              const uint16_t *const *b, int64_t k,
                                                              int64_t count) {
    uint16_t rows[4][STEPS] = {{0}}, cols[SKINNY_COLS][STEPS] = {{0}};
    const uint16_t *left[4], *right[SKINNY_COLS];
    for (int i = 0; i < 2 * pairs; i++) left[i] = memcpy(rows[i], a[i] + k, (size_t)count * sizeof *a[i]);
    for (int j = 0; j < SKINNY_COLS; j++) right[j] = memcpy(cols[j], b[j] + k, (size_t)count * sizeof *b[j]);
    skinny_steps(sums, pairs, turn, left, right, 0);
}

/* Stores a row of `cols` sums, if it exists. */
static inline void skinny_store(float *c, int cols, bool exists, float32x4_t row) {
    float four[SKINNY_COLS];
    if (!exists) return;
    if (cols == SKINNY_COLS) {
        vst1q_f32(c, row);
        return;
    }
    vst1q_f32(four, row);
    memcpy(c, four, (size_t)cols * sizeof *c);
}

static inline float32x4_t sum_of(const float32x4_t *four) {
    return vaddq_f32(vaddq_f32(four[0], four[1]), vaddq_f32(four[2], four[3]));
}

/* Right columns are contiguous in memory, so they are prefetched in that order as a single stream, from the
 * end of the current columns on. */
static inline __attribute__((always_inline)) void skinny_tile(int64_t depth, int pairs, int rows,
                                                              const uint16_t *const *a, int cols,
                                                              const uint16_t *const *b, float *c,
                                                              int64_t c_stride, bool prefetch) {
    SkinnySums sums = {0};
    int64_t k = 0;
    const char *ahead = (const char *)(b[0] + SKINNY_COLS * (b[1] - b[0])) + PREFETCH_BYTES;
    for (; k + 2 * STEPS <= depth; k += 2 * STEPS) {
        if (prefetch) __builtin_prefetch(ahead + SKINNY_COLS * k * 2, 0, 2);
        if (prefetch) __builtin_prefetch(ahead + SKINNY_COLS * k * 2 + 64, 0, 2);
        skinny_steps(&sums, pairs, 0, a, b, k);
        skinny_steps(&sums, pairs, 1, a, b, k + STEPS);
    }
    if (k < depth) skinny_tail(&sums, pairs, 0, a, b, k, depth - k < STEPS ? depth - k : STEPS);
    if (k + STEPS < depth) skinny_tail(&sums, pairs, 1, a, b, k + STEPS, depth - k - STEPS);
#pragma GCC unroll 2
    for (int i = 0; i < pairs; i++) {
        const float32x4_t left = sum_of(sums.of[i][0]), right = sum_of(sums.of[i][1]);
        skinny_store(c + 2 * i * c_stride, cols, rows > 2 * i, first_of(left, right));
        skinny_store(c + (2 * i + 1) * c_stride, cols, rows > 2 * i + 1, second_of(left, right));
    }
}

static void skinny_mmla(int64_t depth, int64_t rows, const uint16_t *a, int64_t a_stride, int cols,
                        const uint16_t *b, int64_t b_stride, float *c, int64_t c_stride) {
    const uint16_t *row[4], *column[SKINNY_COLS];
    for (int j = 0; j < SKINNY_COLS; j++) column[j] = b + (j < cols ? j : cols - 1) * b_stride;
    for (int64_t at = 0; at < rows; at += 4) {
        int count = rows - at < 4 ? (int)(rows - at) : 4;
        for (int i = 0; i < 4; i++) row[i] = a + (at + (i < count ? i : count - 1)) * a_stride;
        if (count > 2)
            skinny_tile(depth, 2, count, row, cols, column, c + at * c_stride, c_stride, at == 0);
        else
            skinny_tile(depth, 1, count, row, cols, column, c + at * c_stride, c_stride, at == 0);
    }
}

const Micro micro16_mmla = {
    .name = "bfmmla",
    .dtype = DT_BF16,
    .size = sizeof(uint16_t),
    .rows = ROWS,
    .cols = COLS,
    .unit = GROUP,
    .depth = 1024,
    .tile = tile_mmla,
    .pack = pack_mmla,
    .skinny = skinny_mmla,
};

#endif
