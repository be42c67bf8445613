/* Linear layers with weights of 8 or 4 bits: rows of the input are rounded and packed into left panels, tiles
 * multiply them with the weights' panels, and a block of sums gets its scales, bias and activation while it
 * is in the cache. A block is a few left panels times a few right ones: a right one and the left ones stay in
 * the first cache. Blocks of the same columns follow each other, for as many rows as the second cache holds.
 * Sums are integers: neither blocks nor threads change a bit.
 *
 * Legend: M rows, K inputs, N outputs of the layer */
#include "kernels/cpu/act.h"
#include "kernels/cpu/micro8.h"
#include "kernels/cpu/variant.h"
#include "kernels/int8.h"
#include "kernels/ref/ref.h"

enum { ROWS_MAX = 2048, BLOCK_ROWS = 16, BLOCK_COLS = 192, FEW = 16, APART = 2 };
enum { LEFT_BYTES = 400 << 10, SHARES = 8 }; /* SHARES: pieces of the work for each thread, at least */

/* ---- tiles in plain C ---- */

enum { PLAIN_ROWS = 4, PLAIN_COLS = 2, PLAIN_GROUP = 16 };

#if defined(__AVX2__)

/* Exact: products of 8 bits go in pairs into sums of 32. */
static void run_plain(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    __m256i sum[PLAIN_ROWS][PLAIN_COLS] = {0};
    for (int64_t k = 0; k < depth; k += PLAIN_GROUP) {
        const __m128i *left = (const __m128i *)(const void *)(a + PLAIN_ROWS * k);
        const __m128i *right = (const __m128i *)(const void *)(b + PLAIN_COLS * k);
        const __m256i r0 = _mm256_cvtepi8_epi16(_mm_loadu_si128(right));
        const __m256i r1 = _mm256_cvtepi8_epi16(_mm_loadu_si128(right + 1));
        for (int i = 0; i < PLAIN_ROWS; i++) {
            const __m256i l = _mm256_cvtepi8_epi16(_mm_loadu_si128(left + i));
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(l, r0));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(l, r1));
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PLAIN_COLS; j++) {
            int32_t part[8], total = 0;
            memcpy(part, &sum[i][j], sizeof part);
            for (int k = 0; k < 8; k++) total += part[k];
            c[i * c_stride + j] = total;
        }
}

/* A cut's sums are of 4 products each and fit 16 bits, so that steps multiply them in pairs with nothing. */
static void run4_plain(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                       int64_t c_stride) {
    __m256i total[PLAIN_ROWS][PLAIN_COLS] = {0};
    for (int64_t k = 0; k < depth; k += INT4_GROUP, b += PLAIN_COLS * (INT4_GROUP / 2 + 1)) {
        __m256i sum[PLAIN_ROWS][PLAIN_COLS] = {0};
        for (int g = 0; g < INT4_GROUP / PLAIN_GROUP; g++, a += PLAIN_ROWS * PLAIN_GROUP) {
            const __m128i *right = (const __m128i *)(const void *)b + g;
            const __m128i *left = (const __m128i *)(const void *)a;
            const __m256i both = _mm256_cvtepi8_epi16(_mm_loadu_si128(right));
            const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(both, 12), 12);
            const __m256i high = _mm256_srai_epi16(both, 4);
            for (int i = 0; i < PLAIN_ROWS; i++) {
                const __m256i l = _mm256_cvtepi8_epi16(_mm_loadu_si128(left + i));
                sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(l, low));
                sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(l, high));
            }
        }
        for (int j = 0; j < PLAIN_COLS; j++) {
            const __m256i step = _mm256_set1_epi32((uint16_t)b[PLAIN_COLS * INT4_GROUP / 2 + j]);
            for (int i = 0; i < PLAIN_ROWS; i++)
                total[i][j] = _mm256_add_epi32(total[i][j], _mm256_madd_epi16(sum[i][j], step));
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PLAIN_COLS; j++) {
            int32_t part[8], all = 0;
            memcpy(part, &total[i][j], sizeof part);
            for (int k = 0; k < 8; k++) all += part[k];
            c[i * c_stride + j] = all;
        }
}

#else

static void run_plain(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                      int64_t c_stride) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PLAIN_COLS; j++) {
            int32_t total = 0;
            for (int64_t k = 0; k < depth; k += PLAIN_GROUP) {
                const int8_t *left = a + PLAIN_ROWS * k + i * PLAIN_GROUP;
                const int8_t *right = b + PLAIN_COLS * k + j * PLAIN_GROUP;
                for (int g = 0; g < PLAIN_GROUP; g++) total += left[g] * right[g];
            }
            c[i * c_stride + j] = total;
        }
}

static void run4_plain(int64_t depth, int rows, const int8_t *a, const int8_t *b, int32_t *c,
                       int64_t c_stride) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PLAIN_COLS; j++) {
            int32_t total = 0;
            for (int64_t k = 0; k < depth; k += INT4_GROUP) {
                const int8_t *cut = b + k / INT4_GROUP * PLAIN_COLS * (INT4_GROUP / 2 + 1);
                int32_t sum = 0;
                for (int g = 0; g < INT4_GROUP; g++) {
                    int half = cut[g / PLAIN_GROUP * PLAIN_GROUP + g % PLAIN_GROUP] >> (j ? 4 : 0) & 15;
                    int64_t at = k + g;
                    sum +=
                        a[at / PLAIN_GROUP * PLAIN_ROWS * PLAIN_GROUP + i * PLAIN_GROUP + at % PLAIN_GROUP] *
                        ((half ^ 8) - 8);
                }
                total += sum * cut[PLAIN_COLS * INT4_GROUP / 2 + j];
            }
            c[i * c_stride + j] = total;
        }
}

#endif

static const Micro8 micro8_plain = {.name = "plain",
                                    .rows = PLAIN_ROWS,
                                    .tile = {PLAIN_COLS, PLAIN_GROUP, PLAIN_GROUP},
                                    .run = run_plain,
                                    .run4 = run4_plain};

static Status int8_tile_cpu(int bits, Int8Tile *ret_tile) {
    (void)bits;
    const Micro8 *micro = NULL;
    TRY(micro8_choose(&micro));
    *ret_tile = micro ? micro->tile : micro8_plain.tile;
    return OK;
}

/* ---- rows of the input ---- */

/* A row as it is multiplied: x times its factors, which come to `space`, or x itself. */
typedef struct Row {
    const float *x;
    float largest; /* magnitude; NaN where a number is not finite */
} Row;

static ALWAYS_INLINE VecU magnitudes(float *space, const float *x, const float *factor, int64_t k) {
    VecF v = vec_load(x + k);
    if (factor) {
        v *= vec_load(factor + k);
        vec_store(space + k, v);
    }
    return (VecU)v & 0x7fffffffu;
}

/* The bits of magnitudes are in their order. Four at a time, which need not wait for each other. */
static ALWAYS_INLINE float scale_and_find(float *space, const float *x, const float *factor, int64_t K) {
    VecU most[4] = {0};
    int64_t k = 0;
    for (; k + 4 * VEC <= K; k += 4 * VEC)
        for (int i = 0; i < 4; i++) most[i] = vec_max_u32(most[i], magnitudes(space, x, factor, k + i * VEC));
    for (; k + VEC <= K; k += VEC) most[0] = vec_max_u32(most[0], magnitudes(space, x, factor, k));
    VecU all = vec_max_u32(vec_max_u32(most[0], most[1]), vec_max_u32(most[2], most[3]));
    uint32_t bits = 0;
    for (int lane = 0; lane < VEC; lane++) bits = all[lane] > bits ? all[lane] : bits;
    for (; k < K; k++) {
        float value = factor ? x[k] * factor[k] : x[k];
        uint32_t here;
        memcpy(&here, &value, sizeof here);
        here &= 0x7fffffffu;
        bits = here > bits ? here : bits;
        if (factor) space[k] = value;
    }
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    return isfinite(largest) ? largest : NAN;
}

static Row row_of(float *space, const float *x, const float *factor, int64_t K) {
    return factor ? (Row){space, scale_and_find(space, x, factor, K)}
                  : (Row){x, scale_and_find(NULL, x, NULL, K)};
}

#if defined(__aarch64__)

static inline void round_sixteen(int8_t *q, const float *x, float finer) {
    int32x4_t r0 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), finer));
    int32x4_t r1 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4), finer));
    int32x4_t r2 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8), finer));
    int32x4_t r3 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 12), finer));
    int16x8_t low = vcombine_s16(vmovn_s32(r0), vmovn_s32(r1));
    int16x8_t high = vcombine_s16(vmovn_s32(r2), vmovn_s32(r3));
    vst1q_s8(q, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

#elif defined(__x86_64__)

static inline void round_sixteen(int8_t *q, const float *x, float finer) {
    __m128 unit = _mm_set1_ps(finer);
    __m128i r0 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x), unit));
    __m128i r1 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 4), unit));
    __m128i r2 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 8), unit));
    __m128i r3 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 12), unit));
    __m128i low = _mm_packs_epi32(r0, r1), high = _mm_packs_epi32(r2, r3);
    _mm_storeu_si128((__m128i *)(void *)q, _mm_packs_epi16(low, high));
}

#else

static inline void round_sixteen(int8_t *q, const float *x, float finer) {
    for (int i = 0; i < 16; i++) q[i] = (int8_t)rintf(x[i] * finer);
}

#endif

/* A row with nothing beyond `largest`; space may be x. */
static const float *cut_row(float *space, const float *x, float largest, int64_t K) {
#pragma omp simd
    for (int64_t k = 0; k < K; k++) {
        float up = x[k] > -largest ? x[k] : -largest;
        space[k] = up < largest ? up : largest;
    }
    return space;
}

/* Rounds a row to q, `depth` long, and gives what its numbers are to be multiplied by. */
static float round_row(int8_t *q, const float *x, float largest, int64_t K, int64_t depth) {
    float finer = largest > 0 ? 127.0f / largest : 0;
    if (isinf(finer)) finer = 0; /* as good as zero */
    int64_t k = 0;
    memset(q + K, 0, (size_t)(depth - K));
    if (isnan(largest)) {
        memset(q, 0, (size_t)K);
        return NAN;
    }
    for (; k + 16 <= K; k += 16) round_sixteen(q + k, x + k, finer);
    for (; k < K; k++) q[k] = (int8_t)rintf(x[k] * finer);
    return largest / 127.0f;
}

static inline void spread_row(int8_t *to, const int8_t *q, int64_t depth, int rows, int group) {
    for (int64_t k = 0; k < depth; k += group, to += rows * group) memcpy(to, q + k, (size_t)group);
}

/* Puts a row into its place in a left panel. */
static void place_row(const Micro8 *micro, int8_t *panel, int row, int8_t *q, int64_t depth) {
    int group = micro->left_group ? micro->left_group : micro->tile.group;
    int8_t *to = panel + row * group;
    if (micro->raised)
        for (int64_t k = 0; k < depth; k++) q[k] = (int8_t)(q[k] ^ -128);
    if (group == 4)
        spread_row(to, q, depth, micro->rows, 4);
    else if (group == 8)
        spread_row(to, q, depth, micro->rows, 8);
    else if (group == 64)
        spread_row(to, q, depth, micro->rows, 64);
    else
        spread_row(to, q, depth, micro->rows, 16);
}

/* ---- the product ---- */

typedef struct Work {
    const Micro8 *micro;
    Int8View weights;
    int64_t M, N, K;        /* of this part of the rows */
    int64_t high, wide;     /* of a block */
    const float *x, *bias;  /* bias may be NULL, and pre */
    float *y, *pre, *units; /* units: of each row */
    Act act;
    int8_t *left;
    size_t left_bytes; /* with units; as often as there are threads where each has its own */
    char *own;         /* of each thread: a row before and after rounding, or a block's sums */
    size_t own_bytes;
} Work;

static char *own_space(const Work *work) {
    return work->own + (size_t)omp_get_thread_num() * work->own_bytes;
}

/* Rounds row m and puts it into its place. */
static void prepare_row(const Work *work, int64_t m) {
    int64_t depth = work->weights.head->depth;
    float *space = (float *)(void *)own_space(work), held = work->weights.head->largest;
    int8_t *q = (int8_t *)(space + depth);
    int rows = work->micro->rows;
    Row row = row_of(space, work->x + m * work->K, work->weights.factor, work->K);
    if (held > 0 && !isnan(row.largest)) {
        if (row.largest > held) row.x = cut_row(space, row.x, held, work->K);
        row.largest = held;
    }
    work->units[m] = round_row(q, row.x, row.largest, work->K, depth);
    place_row(work->micro, work->left + m / rows * rows * depth, (int)(m % rows), q, depth);
}

static void prepare_rows(const Work *work) {
#pragma omp for schedule(static)
    for (int64_t m = 0; m < work->M; m++) prepare_row(work, m);
}

/* y = sums * (unit * scale) + bias, which may be NULL. */
static void scale_sums(float *y, const int32_t *sums, const float *scale, float unit, const float *bias,
                       int64_t n) {
    if (bias) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (float)sums[i] * (unit * scale[i]) + bias[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (float)sums[i] * (unit * scale[i]);
    }
}

/* Sums of a row's columns from `col` on, as they lie in the second argument, become its output. */
static void finish_row(const Work *work, int32_t *sums, int64_t row, int64_t col, int64_t cols) {
    const int32_t *raise = work->weights.sums + col;
    float *y = work->y + row * work->N + col;
    if (work->micro->raised) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) /* either may have wrapped around */
            sums[c] = (int32_t)((uint32_t)sums[c] - 128u * (uint32_t)raise[c]);
    }
    scale_sums(y, sums, work->weights.scale + col, work->units[row], work->bias ? work->bias + col : NULL,
               cols);
    if (work->pre) memcpy(work->pre + row * work->N + col, y, (size_t)cols * sizeof *y);
    act_run(y, y, cols, work->act);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Lines of the output are fetched while the product is at work, or writing them would wait for that. */
static void expect_writes(const Work *work, int64_t row, int rows, int64_t col) {
    const float *y = work->y + row * work->N + col;
    for (int i = 0; i < rows; i++) __builtin_prefetch(y + i * work->N, 1, 3);
}

static void run_block(const Work *work, int64_t row0, int64_t col0, int64_t cols) {
    const Micro8 *micro = work->micro;
    int64_t depth = work->weights.head->depth, stride = work->wide;
    bool four = work->weights.head->bits == 4;
    int64_t rows = least(work->high, work->M - row0);
    int32_t *sums = (int32_t *)(void *)own_space(work);
    for (int64_t col = 0; col < cols; col += micro->tile.cols) {
        const int8_t *panel = int8_panel(&work->weights, col0 + col);
        for (int64_t row = 0; row < rows; row += micro->rows) {
            int some = (int)least(micro->rows, rows - row);
            if (work->M > FEW) expect_writes(work, row0 + row, some, col0 + col);
            (four ? micro->run4 : micro->run)(depth, some, work->left + (row0 + row) * depth, panel,
                                              sums + row * stride + col, stride);
        }
    }
    for (int64_t row = 0; row < rows; row++) finish_row(work, sums + row * stride, row0 + row, col0, cols);
}

/* Of a few rows, reading the weights is what takes time: each thread reads on and on. */
static void run_columns(const Work *work) {
    Range mine = range_mine(work->N, work->micro->tile.cols);
    for (int64_t col = mine.from; col < mine.to; col += work->wide)
        run_block(work, 0, col, least(work->wide, mine.to - col));
}

/* A thread takes as many rows as fit the second cache beside a block's columns, so that these are read
 * from further away once, but not so many that threads would be left without any. */
static int64_t rows_at_once(const Work *work) {
    int64_t over = (work->N + work->wide - 1) / work->wide, threads = omp_get_num_threads();
    int64_t rows = LEFT_BYTES / work->weights.head->depth;
    if (threads > 1) rows = least(rows, work->M * over / (SHARES * threads));
    return int8_round_up(rows > 0 ? rows : 1, work->high);
}

static void run_blocks(const Work *work) {
    int64_t rows = rows_at_once(work);
    int64_t down = (work->M + rows - 1) / rows, over = (work->N + work->wide - 1) / work->wide;
#pragma omp for schedule(dynamic)
    for (int64_t at = 0; at < down * over; at++) {
        int64_t from = at / over * rows, to = least(from + rows, work->M), col = at % over * work->wide;
        for (int64_t row = from; row < to; row += work->high)
            run_block(work, row, col, least(work->wide, work->N - col));
    }
}

/* The same where waiting for each other would take longer than for each thread to round all rows. */
static void run_apart(const Work *work) {
    Work mine = *work;
    size_t at = (size_t)omp_get_thread_num() * work->left_bytes;
    mine.left += at;
    mine.units += at / sizeof *mine.units;
    for (int64_t m = 0; m < work->M; m++) prepare_row(&mine, m);
    run_columns(&mine);
}

static void run_together(const Work *work) {
    prepare_rows(work);
    if (work->M <= FEW)
        run_columns(work);
    else
        run_blocks(work);
}

static bool is_apart(const Work *work) {
    return work->M <= APART;
}

static Status take_space(Stream *stream, Work *work, int threads) {
    int64_t depth = work->weights.head->depth, most = least(work->M, ROWS_MAX);
    int64_t padded = int8_round_up(most, work->micro->rows);
    size_t rounding = int8_part(depth * 5), sums = int8_part(work->high * work->wide * 4);
    work->own_bytes = rounding > sums ? rounding : sums;
    size_t left = int8_part(padded * depth), units = int8_part(padded * 4);
    size_t copies = is_apart(work) ? (size_t)threads : 1;
    void *space;
    work->left_bytes = left + units;
    TRY(stream_workspace(stream, copies * work->left_bytes + (size_t)threads * work->own_bytes, &space));
    work->left = space;
    work->units = (float *)(void *)((char *)space + left);
    work->own = (char *)space + copies * work->left_bytes;
    return OK;
}

static Status linear_int8_forward_cpu(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                      Act act) {
    Int8View weights = int8_view(w);
    Int8Tile tile = weights.head->tile;
    bool plain = tile.cols == PLAIN_COLS && tile.group == PLAIN_GROUP;
    const Micro8 *micro = plain ? &micro8_plain : micro8_for(tile);
    if (!micro) return linear_int8_forward_ref(stream, y, pre, x, w, b, act);
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    if (micro->few && (M <= FEW || weights.head->bits == 4)) micro = micro->few;
    int threads = threads_for(stream, M * N / 64 * K);
    Work work = {
        .micro = micro, .weights = weights, .M = M, .N = N, .K = K, .bias = tensor_f32(b), .act = act};
    work.high = int8_round_up(least(M, BLOCK_ROWS), micro->rows);
    work.wide = int8_round_up(BLOCK_COLS, tile.cols);
    bool apart = is_apart(&work);
    TRY(take_space(stream, &work, threads));
    for (int64_t row = 0; row < M; row += ROWS_MAX) {
        work.M = least(ROWS_MAX, M - row);
        work.x = tensor_f32(x) + row * K;
        work.y = tensor_f32(y) + row * N;
        work.pre = pre.data ? tensor_f32(pre) + row * N : NULL;
#pragma omp parallel num_threads(threads)
        {
            if (micro->begin) micro->begin();
            if (apart)
                run_apart(&work);
            else
                run_together(&work);
            if (micro->end) micro->end();
        }
    }
    return OK;
}

void VARIANT(linear_int8_override)(KernelTable *table) {
    table->linear_int8_forward = linear_int8_forward_cpu;
    table->int8_tile = int8_tile_cpu;
}
