/* Linear layers with int8 or int4 weights: rows of the input are quantized and packed into left panels,
 * tiles multiply them with the weight panels, and the epilogue applies scales, bias and activation to a
 * block while it is in the cache. A block is a few left panels times a few right panels, such that one
 * right panel and the left panels stay in the L1 cache. Blocks of the same columns follow each other for as
 * many rows as the L2 cache holds. Integer sums are exact, so neither blocking nor threading affects the
 * result.
 *
 * M rows, K inputs, N outputs of the layer */
#include "kernels/cpu/act.h"
#include "kernels/cpu/micro8.h"
#include "kernels/cpu/variant.h"
#include "kernels/int8.h"
#include "kernels/ref/ref.h"

enum { ROWS_MAX = 2048, BLOCK_ROWS = 16, BLOCK_COLS = 192, SKINNY_ROWS_INT8 = 16, SEPARATE_ROWS = 2 };
enum { UNPACKED_ROWS = 128 };                /* rows of a block whose weights are unpacked for it */
enum { LEFT_BYTES = 400 << 10, SHARES = 8 }; /* SHARES: minimum number of work items per thread */

/* ---- portable micro-kernel ---- */

enum { PLAIN_ROWS = 4, PLAIN_COLS = 2, PLAIN_GROUP = 16 };

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
                const int8_t *slice = b + k / INT4_GROUP * PLAIN_COLS * (INT4_GROUP / 2 + 1);
                int32_t sum = 0;
                for (int g = 0; g < INT4_GROUP; g++) {
                    int nibble = slice[g / PLAIN_GROUP * PLAIN_GROUP + g % PLAIN_GROUP] >> (j ? 4 : 0) & 15;
                    int64_t at = k + g;
                    sum +=
                        a[at / PLAIN_GROUP * PLAIN_ROWS * PLAIN_GROUP + i * PLAIN_GROUP + at % PLAIN_GROUP] *
                        ((nibble ^ 8) - 8);
                }
                total += sum * slice[PLAIN_COLS * INT4_GROUP / 2 + j];
            }
            c[i * c_stride + j] = total;
        }
}

static const Micro8 micro8_plain = {.name = "plain",
                                    .rows = PLAIN_ROWS,
                                    .tile = {PLAIN_COLS, PLAIN_GROUP, PLAIN_GROUP, false},
                                    .tile4 = {PLAIN_COLS, PLAIN_GROUP, PLAIN_GROUP, false},
                                    .run = run_plain,
                                    .run4 = run4_plain};

static Status int8_tile_cpu(int bits, Int8Tile *ret_tile) {
    const Micro8 *micro = NULL;
    TRY(micro8_choose(&micro));
    if (!micro) micro = &micro8_plain;
    *ret_tile = bits == 4 ? micro->tile4 : micro->tile;
    return OK;
}

/* ---- quantization of the input ---- */

/* A row to be quantized: x itself, or x times its factors, stored in the buffer. */
typedef struct Row {
    const float *x;
    float amax; /* largest magnitude; NaN if an element is not finite */
} Row;

static ALWAYS_INLINE VecU magnitudes(float *buffer, const float *x, const float *factor, int64_t k) {
    VecF v = vec_load(x + k);
    if (factor) {
        v *= vec_load(factor + k);
        vec_store(buffer + k, v);
    }
    return (VecU)v & 0x7fffffffu;
}

/* Multiplies by the factors, if any, and returns the largest magnitude. The bit patterns of magnitudes are
 * ordered like integers. Four independent maxima hide the latency. */
static ALWAYS_INLINE float scale_and_find_amax(float *buffer, const float *x, const float *factor,
                                               int64_t K) {
    VecU max_bits[4] = {0};
    int64_t k = 0;
    for (; k + 4 * VEC <= K; k += 4 * VEC)
        for (int i = 0; i < 4; i++)
            max_bits[i] = vec_max_u32(max_bits[i], magnitudes(buffer, x, factor, k + i * VEC));
    for (; k + VEC <= K; k += VEC) max_bits[0] = vec_max_u32(max_bits[0], magnitudes(buffer, x, factor, k));
    VecU all = vec_max_u32(vec_max_u32(max_bits[0], max_bits[1]), vec_max_u32(max_bits[2], max_bits[3]));
    uint32_t bits = 0;
    for (int lane = 0; lane < VEC; lane++) bits = all[lane] > bits ? all[lane] : bits;
    for (; k < K; k++) {
        float value = factor ? x[k] * factor[k] : x[k];
        uint32_t here;
        memcpy(&here, &value, sizeof here);
        here &= 0x7fffffffu;
        bits = here > bits ? here : bits;
        if (factor) buffer[k] = value;
    }
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    return isfinite(amax) ? amax : NAN;
}

static Row row_of(float *buffer, const float *x, const float *factor, int64_t K) {
    return factor ? (Row){buffer, scale_and_find_amax(buffer, x, factor, K)}
                  : (Row){x, scale_and_find_amax(NULL, x, NULL, K)};
}

#if defined(__aarch64__)

static inline void quantize_sixteen(int8_t *q, const float *x, float inverse) {
    int32x4_t r0 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), inverse));
    int32x4_t r1 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4), inverse));
    int32x4_t r2 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8), inverse));
    int32x4_t r3 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 12), inverse));
    int16x8_t low = vcombine_s16(vmovn_s32(r0), vmovn_s32(r1));
    int16x8_t block_rows = vcombine_s16(vmovn_s32(r2), vmovn_s32(r3));
    vst1q_s8(q, vcombine_s8(vmovn_s16(low), vmovn_s16(block_rows)));
}

#elif defined(__x86_64__)

static inline void quantize_sixteen(int8_t *q, const float *x, float inverse) {
    __m128 factor = _mm_set1_ps(inverse);
    __m128i r0 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x), factor));
    __m128i r1 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 4), factor));
    __m128i r2 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 8), factor));
    __m128i r3 = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 12), factor));
    __m128i low = _mm_packs_epi32(r0, r1), block_rows = _mm_packs_epi32(r2, r3);
    _mm_storeu_si128((__m128i *)(void *)q, _mm_packs_epi16(low, block_rows));
}

#else

static inline void quantize_sixteen(int8_t *q, const float *x, float inverse) {
    for (int i = 0; i < 16; i++) q[i] = (int8_t)rintf(x[i] * inverse);
}

#endif

/* Clamps a row to [-amax, amax]; buffer may alias x. */
static const float *clamp_row(float *buffer, const float *x, float amax, int64_t K) {
#pragma omp simd
    for (int64_t k = 0; k < K; k++) {
        float up = x[k] > -amax ? x[k] : -amax;
        buffer[k] = up < amax ? up : amax;
    }
    return buffer;
}

/* Quantizes a row to q, padded to `depth`, and returns its scale. */
static float quantize_row(int8_t *q, const float *x, float amax, int64_t K, int64_t depth) {
    float inverse = amax > 0 ? 127.0f / amax : 0;
    if (isinf(inverse)) inverse = 0; /* the reciprocal overflowed: treat the row as zero */
    int64_t k = 0;
    memset(q + K, 0, (size_t)(depth - K));
    if (isnan(amax)) {
        memset(q, 0, (size_t)K);
        return NAN;
    }
    for (; k + 16 <= K; k += 16) quantize_sixteen(q + k, x + k, inverse);
    for (; k < K; k++) q[k] = (int8_t)rintf(x[k] * inverse);
    return amax / 127.0f;
}

static inline void interleave_row(int8_t *to, const int8_t *q, int64_t depth, int rows, int group) {
    for (int64_t k = 0; k < depth; k += group, to += rows * group) memcpy(to, q + k, (size_t)group);
}

/* Stores a row of `depth` bytes in a left panel. */
static void store_row(const Micro8 *micro, bool offset, int8_t *panel, int row, int8_t *q, int64_t depth) {
    int group = micro->left_group ? micro->left_group : micro->tile.group;
    int8_t *to = panel + row * group;
    if (offset)
        for (int64_t k = 0; k < depth; k++) q[k] = (int8_t)(q[k] ^ -128);
    if (micro->rows == 1)
        memcpy(panel, q, (size_t)depth);
    else if (group == 4)
        interleave_row(to, q, depth, micro->rows, 4);
    else if (group == 8)
        interleave_row(to, q, depth, micro->rows, 8);
    else if (group == 64)
        interleave_row(to, q, depth, micro->rows, 64);
    else
        interleave_row(to, q, depth, micro->rows, 16);
}

/* Stores the biases of a row in a left panel; see micro8_bias. */
static void store_biases(const Micro8 *micro, int8_t *panel, int row, const int8_t *q, int64_t depth) {
    int copies = micro->bias_copies;
    int32_t *to = (int32_t *)(void *)(panel + micro->rows * depth) + row * copies;
    for (int64_t k = 0; k < depth; k += INT4_GROUP, to += micro->rows * copies) {
        int32_t sum = 0;
        if (micro->bias) {
            micro->bias(to, q + k);
            continue;
        }
        for (int i = 0; i < INT4_GROUP; i++) sum += q[k + i];
        for (int i = 0; i < copies; i++) to[i] = -8 * sum;
    }
}

/* ---- the GEMM ---- */

typedef struct Int8Job {
    const Micro8 *micro;
    Int8View weights;
    int64_t M, N, K, rows;          /* M: rows of this part, of `rows` in all */
    int64_t block_rows, block_cols; /* size of a block */
    int64_t item_rows;              /* rows of a task, with many rows */
    const float *x, *bias;          /* bias and pre may be NULL */
    float *y, *pre, *row_scale;     /* row_scale: one per row */
    Act act;
    int8_t *left;
    int64_t left_stride; /* bytes of a row in left panels */
    size_t left_bytes;   /* left panels and row scales; one copy per thread if threads work separately */
    char *scratch; /* scratch memory of each thread: a row before and after quantization, or the sums of a
                      block */
    size_t scratch_bytes;
} Int8Job;

static bool is_int4(const Int8Job *job) {
    return job->weights.header->bits == 4;
}
static bool has_biases(const Int8Job *job) {
    return is_int4(job) && job->micro->bias_copies > 0;
}
static bool unpacks(const Int8Job *job) {
    return (is_int4(job) ? job->micro->unpack4 : job->micro->unpack) && job->rows > SKINNY_ROWS_INT8;
}
/* Whether left panels have two bytes per input. */
static bool is_wide(const Int8Job *job) {
    return !is_int4(job) && job->micro->widen && unpacks(job);
}
static bool has_offset(const Int8Job *job) {
    return !is_int4(job) && job->micro->offset_left;
}

static char *thread_scratch(const Int8Job *job, int thread) {
    return job->scratch + (size_t)thread * job->scratch_bytes;
}

/* Quantizes row m and stores it in its panel. */
static void quantize_into_panel(const Int8Job *job, int64_t m, int thread) {
    int64_t depth = job->weights.header->depth;
    float *buffer = (float *)(void *)thread_scratch(job, thread), static_amax = job->weights.header->amax;
    int8_t *q = (int8_t *)(buffer + depth);
    int rows = job->micro->rows;
    Row row = row_of(buffer, job->x + m * job->K, job->weights.factor, job->K);
    if (static_amax > 0 && !isnan(row.amax)) {
        if (row.amax > static_amax) row.x = clamp_row(buffer, row.x, static_amax, job->K);
        row.amax = static_amax;
    }
    int8_t *panel = job->left + m / rows * rows * job->left_stride;
    job->row_scale[m] = quantize_row(q, row.x, row.amax, job->K, depth);
    if (has_biases(job)) store_biases(job->micro, panel, (int)(m % rows), q, depth);
    if (is_wide(job)) {
        job->micro->widen(depth, q, q + depth);
        store_row(job->micro, false, panel, (int)(m % rows), q + depth, 2 * depth);
    } else {
        store_row(job->micro, has_offset(job), panel, (int)(m % rows), q, depth);
    }
}

static void quantize_rows(const Int8Job *job) {
#pragma omp for schedule(static)
    for (int64_t m = 0; m < job->M; m++) quantize_into_panel(job, m, omp_get_thread_num());
}

/* y = sums * (row_scale * scale) + bias; bias may be NULL. */
static void scale_sums(float *y, const int32_t *sums, const float *scale, float row_scale, const float *bias,
                       int64_t n) {
    if (bias) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (float)sums[i] * (row_scale * scale[i]) + bias[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (float)sums[i] * (row_scale * scale[i]);
    }
}

/* Epilogue of a row: turns the sums of `cols` columns from `col` into outputs. */
static void finish_row(const Int8Job *job, int32_t *sums, int64_t row, int64_t col, int64_t cols) {
    const int32_t *weight_sums = job->weights.sums + col;
    float *y = job->y + row * job->N + col;
    if (has_offset(job)) {
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) /* unsigned, since either may have wrapped around */
            sums[c] = (int32_t)((uint32_t)sums[c] - 128u * (uint32_t)weight_sums[c]);
    }
    scale_sums(y, sums, job->weights.scale + col, job->row_scale[row], job->bias ? job->bias + col : NULL,
               cols);
    if (job->pre) memcpy(job->pre + row * job->N + col, y, (size_t)cols * sizeof *y);
    act_run(y, y, cols, job->act);
}

/* Prefetches cache lines of the output while the GEMM runs; otherwise the stores would wait for them. */
static void prefetch_output(const Int8Job *job, int64_t row, int rows, int64_t col) {
    const float *y = job->y + row * job->N + col;
    for (int i = 0; i < rows; i++) __builtin_prefetch(y + i * job->N, 1, 3);
}

static void run_block(const Int8Job *job, int64_t row0, int64_t col0, int64_t cols, int thread) {
    const Micro8 *micro = job->micro;
    int64_t depth = job->weights.header->depth, stride = job->block_cols;
    bool unpack = unpacks(job);
    Micro8Run *run = is_int4(job) ? (unpack ? micro->run4_unpacked : micro->run4)
                                  : (unpack ? micro->run_unpacked : micro->run);
    int64_t rows = min_of(job->block_rows, job->M - row0);
    int32_t *sums = (int32_t *)(void *)thread_scratch(job, thread);
    int8_t *unpacked = (int8_t *)(sums + job->block_rows * stride);
    for (int64_t col = 0; col < cols; col += job->weights.header->tile.cols) {
        const int8_t *panel = int8_panel(&job->weights, col0 + col);
        if (unpack) {
            (is_int4(job) ? micro->unpack4 : micro->unpack)(depth, panel, unpacked);
            panel = unpacked;
        }
        for (int64_t row = 0; row < rows; row += micro->rows) {
            int count = (int)min_of(micro->rows, rows - row);
            if (job->M > SKINNY_ROWS_INT8) prefetch_output(job, row0 + row, count, col0 + col);
            run(depth, count, job->left + (row0 + row) * job->left_stride, panel, sums + row * stride + col,
                stride);
        }
    }
    for (int64_t row = 0; row < rows; row++) finish_row(job, sums + row * stride, row0 + row, col0, cols);
}

/* With few rows, reading the weights dominates: each thread reads a contiguous range. */
static void run_columns(const Int8Job *job) {
    Range mine = range_mine(job->N, job->weights.header->tile.cols);
    for (int64_t col = mine.from; col < mine.to; col += job->block_cols)
        run_block(job, 0, col, min_of(job->block_cols, mine.to - col), omp_get_thread_num());
}

/* The number of rows per work item: as many as fit the L2 cache next to a block's columns, so that the
 * columns are loaded into it only once, but few enough that every thread gets work. */
static int64_t rows_per_item(const Int8Job *job, int threads) {
    int64_t over = parts_of(job->N, job->block_cols);
    int64_t rows = LEFT_BYTES / job->weights.header->depth;
    if (threads > 1) rows = min_of(rows, job->M * over / (SHARES * threads));
    return int8_round_up(rows > 0 ? rows : 1, job->block_rows);
}

enum { QUANTIZED_ROWS = 16 }; /* per task */

static void quantize_task(const void *context, int64_t task, int thread) {
    const Int8Job *job = context;
    int64_t from = task * QUANTIZED_ROWS, to = min_of(from + QUANTIZED_ROWS, job->M);
    for (int64_t m = from; m < to; m++) quantize_into_panel(job, m, thread);
}

static void blocks_task(const void *context, int64_t task, int thread) {
    const Int8Job *job = context;
    const Micro8 *micro = job->micro;
    int64_t over = parts_of(job->N, job->block_cols), col = task % over * job->block_cols;
    int64_t from = task / over * job->item_rows, to = min_of(from + job->item_rows, job->M);
    if (micro->begin) micro->begin();
    for (int64_t row = from; row < to; row += job->block_rows)
        run_block(job, row, col, min_of(job->block_cols, job->N - col), thread);
    if (micro->end) micro->end();
}

/* Many rows, as jobs of the pool. */
static void run_many(const Stream *stream, Int8Job *job, int threads) {
    Pool *pool = threads > 1 ? stream->device->pool : NULL;
    job->item_rows = rows_per_item(job, threads);
    int64_t down = parts_of(job->M, job->item_rows);
    int64_t over = parts_of(job->N, job->block_cols);
    pool_run(pool, parts_of(job->M, QUANTIZED_ROWS), quantize_task, job);
    pool_run(pool, down * over, blocks_task, job);
}

/* The same without synchronization: for very few rows, it is faster if each thread quantizes all of them. */
static void run_separate(const Int8Job *job) {
    Int8Job mine = *job;
    size_t at = (size_t)omp_get_thread_num() * job->left_bytes;
    mine.left += at;
    mine.row_scale += at / sizeof *mine.row_scale;
    for (int64_t m = 0; m < job->M; m++) quantize_into_panel(&mine, m, omp_get_thread_num());
    run_columns(&mine);
}

/* Few rows, as an OpenMP region. */
static void run_few(const Int8Job *job, bool separate, int threads) {
    const Micro8 *micro = job->micro;
#pragma omp parallel num_threads(threads)
    {
        if (micro->begin) micro->begin();
        if (separate) {
            run_separate(job);
        } else {
            quantize_rows(job);
            run_columns(job);
        }
        if (micro->end) micro->end();
    }
}

static bool is_separate(const Int8Job *job) {
    return job->M <= SEPARATE_ROWS;
}

static Status take_workspace(Stream *stream, Int8Job *job, int threads) {
    int64_t depth = job->weights.header->depth, rows = min_of(job->M, ROWS_MAX);
    int64_t padded = int8_round_up(rows, job->micro->rows);
    size_t rounding = int8_align(depth * (is_wide(job) ? 7 : 5)),
           sums = int8_align(job->block_rows * job->block_cols * 4);
    if (unpacks(job)) sums += int8_align(depth * job->micro->unpacked_bytes);
    job->scratch_bytes = rounding > sums ? rounding : sums;
    job->left_stride = depth * (is_wide(job) ? 2 : 1) +
                       (has_biases(job) ? depth / INT4_GROUP * job->micro->bias_copies * 4 : 0);
    size_t left = int8_align(padded * job->left_stride), row_scale = int8_align(padded * 4);
    size_t copies = is_separate(job) ? (size_t)threads : 1;
    void *buffer;
    job->left_bytes = left + row_scale;
    TRY(stream_workspace(stream, copies * job->left_bytes + (size_t)threads * job->scratch_bytes, &buffer));
    job->left = buffer;
    job->row_scale = (float *)(void *)((char *)buffer + left);
    job->scratch = (char *)buffer + copies * job->left_bytes;
    return OK;
}

static Status linear_int8_forward_cpu(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                      Act act) {
    Int8View weights = int8_view(w);
    Int8Tile tile = weights.header->tile;
    bool plain = tile.cols == PLAIN_COLS && tile.group == PLAIN_GROUP;
    const Micro8 *micro = plain ? &micro8_plain : micro8_for(tile, weights.header->bits);
    if (!micro) return linear_int8_forward_ref(stream, y, pre, x, w, b, act);
    int64_t M = tensor_rows(x), K = tensor_cols(x), N = tensor_rows(w);
    if (micro->few && M <= SKINNY_ROWS_INT8) micro = micro->few;
    if (micro->one && M == 1) micro = micro->one;
    int threads = threads_for(stream, M * N / 64 * K);
    Int8Job job = {.micro = micro,
                   .weights = weights,
                   .M = M,
                   .N = N,
                   .K = K,
                   .rows = M,
                   .bias = tensor_f32(b),
                   .act = act};
    job.block_rows = int8_round_up(min_of(M, unpacks(&job) ? UNPACKED_ROWS : BLOCK_ROWS), micro->rows);
    job.block_cols = int8_round_up(BLOCK_COLS, tile.cols);
    bool separate = is_separate(&job);
    TRY(take_workspace(stream, &job, threads));
    for (int64_t row = 0; row < M; row += ROWS_MAX) {
        job.M = min_of(ROWS_MAX, M - row);
        job.x = tensor_f32(x) + row * K;
        job.y = tensor_f32(y) + row * N;
        job.pre = pre.data ? tensor_f32(pre) + row * N : NULL;
        if (job.M > SKINNY_ROWS_INT8)
            run_many(stream, &job, threads);
        else
            run_few(&job, separate, threads);
    }
    return OK;
}

void VARIANT(linear_int8_override)(KernelTable *table) {
    table->linear_int8_forward = linear_int8_forward_cpu;
    table->int8_tile = int8_tile_cpu;
}
