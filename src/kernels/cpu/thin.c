/* A block of outputs is computed for all rows, in groups of as many rows as the accumulators allow: a weight
 * is broadcast and multiplied by the vectors that have its input of each row. The result is transposed and
 * passed to the epilogue. 16-bit weights are first converted to fp32, a few outputs at a time, in a buffer
 * that stays in the cache. With AMX, bf16 weights are tiles of the left operand as they are in memory.
 *
 * Each element is accumulated in the same order, whatever the other rows and the number of threads. Compiled
 * without pre-RA instruction scheduling, which hoists loads so far that accumulators spill.
 *
 * M rows, K inputs, N outputs */
#include "kernels/cpu/thin.h"

#include "kernels/cpu/half.h"
#include "kernels/cpu/micro16.h"

/* Rows of a group: LANES vectors. */
#if defined(__AVX512F__)
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif
enum { GROUP = LANES * VEC, OUTPUTS = 6, ROWS_MAX = 128 };
/* Outputs of a task; inputs that are accumulated at once, which limits rounding errors. */
enum { BLOCK = 96, CHUNK = 1024, STAGE = 256 };

typedef struct Job {
    const Thin *thin;
    bool amx;
    int64_t width; /* of a transposed input: M, rounded up to full vectors or tiles */
    uint32_t *x;   /* transposed rows, a group after the other; with AMX, pairs of inputs of all rows */
    char *scratch; /* of each thread: the result of a block as is and transposed, and converted weights */
    size_t scratch_bytes;
} Job;

typedef struct Jobs {
    Job job[THIN_LIST];
    int64_t stages, blocks; /* tasks of a job */
} Jobs;

static Status uses_amx(const Thin *thin, bool *ret_amx) {
    const Micro *micro = NULL;
    if (thin->w_type == DT_BF16) TRY(micro16_choose(&micro));
#if defined(__x86_64__)
    *ret_amx = micro == &micro16_amx && thin->x_type == DT_BF16 && thin->k % THIN_AMX_INPUTS == 0;
#else
    *ret_amx = false;
#endif
    return OK;
}

/* Other bf16 instructions are faster with packed weights than fp32 is without packing. Measured on x86 only.
 */
Status thin_suits(const Thin *thin, bool *ret_suits) {
#if defined(__x86_64__)
    const bool known = true;
#else
    const bool known = false;
#endif
    const Micro *micro = NULL;
    bool amx = false;
    *ret_suits = false;
    if (!known || thin->m <= SKINNY_ROWS || thin->m > ROWS_MAX) return OK;
    if (thin->w_type == DT_BF16) TRY(micro16_choose(&micro));
    TRY(uses_amx(thin, &amx));
    *ret_suits = amx || !micro;
    return OK;
}

/* ---- transposing x ---- */

/* to (k, width) = from (rows, k) transposed, in units of 32 bits; rows of `from` are `stride` apart. */
static void transpose_rows(uint32_t *to, int64_t width, const uint32_t *from, int64_t stride, int64_t rows,
                           int64_t k) {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
        int64_t i = 0;
        for (; i + 4 <= k; i += 4)
            vec4_transpose((float *)(void *)(to + i * width + row), width,
                           (const float *)(const void *)(from + row * stride + i), stride);
        for (; i < k; i++)
            for (int64_t j = row; j < row + 4; j++) to[i * width + j] = from[j * stride + i];
    }
    for (; row < rows; row++)
        for (int64_t i = 0; i < k; i++) to[i * width + row] = from[row * stride + i];
}

static void clear_rows(uint32_t *to, int64_t width, int64_t from, int64_t k) {
    for (int64_t i = 0; i < k; i++) memset(to + i * width + from, 0, (size_t)(width - from) * sizeof *to);
}

/* Transposes inputs k .. k + depth - 1 of a group's rows. */
static void transpose_group(const Job *job, int64_t first, int64_t rows, int64_t k, int64_t depth) {
    const Thin *thin = job->thin;
    int64_t width = round_up(rows, VEC);
    uint32_t *to = job->x + first * thin->k + k * width;
    if (thin->x_type == DT_F32) {
        const uint32_t *from = (const uint32_t *)thin->x + first * thin->k + k;
        transpose_rows(to, width, from, thin->k, rows, depth);
    } else {
        float stage[4][STAGE];
        for (int64_t row = 0; row < rows; row += 4) {
            int64_t count = min_of(4, rows - row);
            for (int64_t i = 0; i < count; i++)
                half_load(stage[i], thin->x, thin->x_type, (first + row + i) * thin->k + k, depth);
            transpose_rows(to + row, width, (const uint32_t *)(const void *)stage, STAGE, count, depth);
        }
    }
    clear_rows(to, width, rows, depth);
}

static void transpose_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const Jobs *jobs = context;
    const Job *job = &jobs->job[task / jobs->stages];
    const Thin *thin = job->thin;
    int64_t k = task % jobs->stages * STAGE, depth = min_of(STAGE, thin->k - k);
    if (job->amx) {
        uint32_t *to = job->x + k / 2 * job->width;
        const uint32_t *from = (const uint32_t *)thin->x + k / 2;
        transpose_rows(to, job->width, from, thin->k / 2, thin->m, depth / 2);
        clear_rows(to, job->width, thin->m, depth / 2);
        return;
    }
    for (int64_t first = 0; first < thin->m; first += GROUP)
        transpose_group(job, first, min_of(GROUP, thin->m - first), k, depth);
}

/* ---- a block of outputs ---- */

/* y (outputs, lanes) [+]= the products of `depth` inputs; `outputs` and `lanes` are constants at the call
 * sites. `next` are the weights that will be needed next. */
static ALWAYS_INLINE void tile(int outputs, int lanes, int64_t depth, const float *x, const float *w,
                               int64_t w_stride, const float *next, float *y, int64_t y_stride, bool add) {
    VecF sum[OUTPUTS][LANES] = {0};
    int64_t k = 0;
    for (; k < depth; k++, x += lanes * VEC) {
        VecF v[LANES];
        if (next && k % 16 == 0)
#pragma GCC unroll 6
            for (int i = 0; i < outputs; i++) __builtin_prefetch(next + i * w_stride + k, 0, 3);
#pragma GCC unroll 4
        for (int j = 0; j < lanes; j++) v[j] = vec_load(x + j * VEC);
#pragma GCC unroll 6
        for (int i = 0; i < outputs; i++) {
            const VecF weight = vec_set(w[i * w_stride + k]);
#pragma GCC unroll 4
            for (int j = 0; j < lanes; j++) sum[i][j] += weight * v[j];
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < outputs; i++)
#pragma GCC unroll 4
        for (int j = 0; j < lanes; j++) {
            float *to = y + i * y_stride + j * VEC;
            vec_store(to, add ? vec_load(to) + sum[i][j] : sum[i][j]);
        }
}

#define TILE(outputs, lanes) tile(outputs, lanes, depth, x, w, w_stride, next, y, y_stride, add)

static ALWAYS_INLINE void tile_lanes(int outputs, int lanes, int64_t depth, const float *x, const float *w,
                                     int64_t w_stride, const float *next, float *y, int64_t y_stride,
                                     bool add) {
    switch (lanes) {
    case 1: TILE(outputs, 1); break;
#if defined(__AVX512F__)
    case 2: TILE(outputs, 2); break;
    case 3: TILE(outputs, 3); break;
#endif
    default: TILE(outputs, LANES);
    }
}

/* `outputs` consecutive outputs of all rows: OUTPUTS, or 1 at the end. */
static void outputs_run(const Job *job, int outputs, const float *w, int64_t w_stride, const float *next,
                        float *y) {
    const Thin *thin = job->thin;
    for (int64_t first = 0; first < thin->m; first += GROUP) {
        int64_t width = round_up(min_of(GROUP, thin->m - first), VEC);
        for (int64_t k = 0; k < thin->k; k += CHUNK) {
            const float *x = (const float *)(const void *)(job->x + first * thin->k + k * width);
            int64_t depth = min_of(CHUNK, thin->k - k);
            const float *ahead = next && first == 0 ? next + k : NULL;
            if (outputs == OUTPUTS)
                tile_lanes(OUTPUTS, (int)(width / VEC), depth, x, w + k, w_stride, ahead, y + first,
                           job->width, k > 0);
            else
                tile_lanes(1, (int)(width / VEC), depth, x, w + k, w_stride, NULL, y + first, job->width,
                           k > 0);
        }
    }
}

/* Outputs col .. col + cols - 1, to y (cols, width). */
static void block_converted(const Job *job, int64_t col, int64_t cols, float *y, float *converted) {
    const Thin *thin = job->thin;
    int64_t K = thin->k, count;
    for (int64_t at = 0; at < cols; at += count, y += count * job->width) {
        const float *w = (const float *)thin->w + (col + at) * K, *next = w + OUTPUTS * K;
        count = cols - at >= OUTPUTS ? OUTPUTS : 1;
        if (thin->w_type != DT_F32) {
            half_load(converted, thin->w, thin->w_type, (col + at) * K, count * K);
            w = converted;
        }
        bool follows = thin->w_type == DT_F32 && col + at + 2 * OUTPUTS <= thin->n;
        outputs_run(job, (int)count, w, K, follows ? next : NULL, y);
    }
}

#if defined(__x86_64__)

/* The same with AMX. Missing outputs are computed from a copy of the weights that is padded with zeros. */
static void block_amx(const Job *job, int64_t col, int64_t cols, float *y, uint16_t *copy) {
    enum { AT_ONCE = THIN_AMX_OUTPUTS, WIDE = 16 * THIN_AMX_COLUMNS };
    const Thin *thin = job->thin;
    int64_t K = thin->k;
    thin_amx_begin();
    for (int64_t at = 0; at < cols; at += AT_ONCE, y += AT_ONCE * job->width) {
        const uint16_t *w = (const uint16_t *)thin->w + (col + at) * K;
        bool follows = col + at + 2 * AT_ONCE <= thin->n;
        if (cols - at < AT_ONCE) {
            memcpy(copy, w, (size_t)((cols - at) * K) * sizeof *copy);
            memset(copy + (cols - at) * K, 0, (size_t)((AT_ONCE - (cols - at)) * K) * sizeof *copy);
            w = copy;
        }
        for (int64_t first = 0; first < job->width; first += WIDE)
            thin_amx(K, (int)(min_of(WIDE, job->width - first) / 16), job->x + first, job->width, w, K,
                     follows && first == 0 ? w + AT_ONCE * K : w, y + first, job->width);
    }
    thin_amx_end();
}

#else

static void block_amx(const Job *job, int64_t col, int64_t cols, float *y, uint16_t *copy) {
    (void)job, (void)col, (void)cols, (void)y, (void)copy;
}

#endif

static void block_task(const void *context, int64_t task, int thread) {
    const Jobs *jobs = context;
    const Job *job = &jobs->job[task / jobs->blocks];
    const Thin *thin = job->thin;
    int64_t col = task % jobs->blocks * BLOCK, cols = min_of(BLOCK, thin->n - col);
    float *y = (float *)(void *)(job->scratch + (size_t)thread * job->scratch_bytes);
    float *rows = y + BLOCK * job->width, *weights = rows + BLOCK * job->width;
    if (job->amx)
        block_amx(job, col, cols, y, (uint16_t *)(void *)weights);
    else
        block_converted(job, col, cols, y, weights);
    transpose_rows((uint32_t *)(void *)rows, BLOCK, (const uint32_t *)(const void *)y, job->width, cols,
                   thin->m);
    thin->finish(thin->context, rows, BLOCK, thin->row, col, thin->m, cols);
}

/* Elements of the transposed rows, and bytes of a thread's scratch, of at most `rows` rows each. */
static int64_t inputs_of(const Thin *thin, bool amx, int64_t rows) {
    return round_up(amx ? thin->k / 2 * round_up(rows, 16) : thin->k * round_up(rows, VEC), 16);
}
static size_t scratch_of(const Thin *thin, bool amx, int64_t rows) {
    int64_t weights = amx ? THIN_AMX_OUTPUTS * thin->k / 2 : OUTPUTS * thin->k;
    return (size_t)round_up(2 * BLOCK * round_up(rows, amx ? 16 : VEC) + weights, 16) * sizeof(float);
}

/* Rounded up to full vectors, each m at most doubles. */
Status thin_bytes(const Stream *stream, const Thin *thin, int64_t count, size_t *ret_bytes) {
    bool amx = false;
    TRY(uses_amx(thin, &amx));
    int64_t most = min_of(thin->m, ROWS_MAX), inputs = 2 * inputs_of(thin, amx, thin->m);
    inputs = min_of(inputs, min_of(count, THIN_LIST) * inputs_of(thin, amx, most));
    size_t scratch = (size_t)stream->device->threads * scratch_of(thin, amx, most);
    *ret_bytes = (size_t)inputs * sizeof(float) + scratch;
    return OK;
}

Status thin_run(const Stream *stream, const Thin *thins, int count, void *workspace) {
    Jobs jobs = {.stages = parts_of(thins->k, STAGE), .blocks = parts_of(thins->n, BLOCK)};
    uint32_t *x = workspace;
    size_t scratch_bytes = 0;
    int64_t rows = 0;
    for (int i = 0; i < count; i++) {
        Job *job = &jobs.job[i];
        job->thin = &thins[i];
        TRY(uses_amx(job->thin, &job->amx));
        job->width = round_up(thins[i].m, job->amx ? 16 : VEC);
        job->x = x;
        x += inputs_of(job->thin, job->amx, thins[i].m);
        size_t bytes = scratch_of(job->thin, job->amx, thins[i].m);
        if (bytes > scratch_bytes) scratch_bytes = bytes;
        rows += thins[i].m;
    }
    for (int i = 0; i < count; i++) {
        jobs.job[i].scratch = (char *)x;
        jobs.job[i].scratch_bytes = scratch_bytes;
    }
    Pool *pool = threads_for(stream, rows * thins->n / 64 * thins->k) > 1 ? stream->device->pool : NULL;
    pool_run(pool, count * jobs.stages, transpose_task, &jobs);
    pool_run(pool, count * jobs.blocks, block_task, &jobs);
    return OK;
}
