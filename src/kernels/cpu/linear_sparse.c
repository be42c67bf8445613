/* Linear layers whose weights are mostly 0. Rows of the input are turned into tiles of 16, of which a weight
 * meets all in a few fused operations; a block of inputs of a tile stays in the first cache while a thread's
 * outputs go by. Rows that make no tile of 16 make tiles of 4 or stand alone.
 *
 * Whatever the tile, a row's product is the same to the bit: four sums take an output's weights in turn and
 * are added pair by pair, block after block. So a text gives the same alone and among others. */
#include "kernels/cpu/variant.h"
#include "kernels/cpu/vec.h"
#include "kernels/sparse.h"

enum { TILE = 16, QUARTER = 4 };

typedef struct Work {
    SparseView w;
    const float *x, *bias;
    float *y, *turned;
    int64_t M, N, K;
} Work;

/* Rows of a tile that begins at row `at`. */
static int tile_of(int64_t M, int64_t at) {
    return M - at >= TILE ? TILE : M - at >= QUARTER ? QUARTER : 1;
}

/* turned: the rows of a tile, input by input. */
static void turn(const Work *work, int64_t at, int tile) {
    float *to = work->turned + at * work->K;
    const float *from = work->x + at * work->K;
    if (tile == 1) {
        memcpy(to, from, (size_t)work->K * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < work->K; k++)
        for (int m = 0; m < tile; m++) to[k * tile + m] = from[m * work->K + k];
}

static void turn_rows(const Work *work, Range mine) {
    for (int64_t at = 0; at < work->M;) {
        int tile = tile_of(work->M, at);
        if (at >= mine.from && at < mine.to) turn(work, at, tile);
        at += tile;
    }
}

/* sums (16) += an output's weights in a block times a tile of 16; x is the block's part of the tile. */
static inline void run_sixteen(float *sums, const float *value, const uint16_t *index, int64_t fours,
                               const float *x) {
    enum { PARTS = TILE / VEC };
    VecF sum[4][PARTS] = {0};
    for (int64_t i = 0; i < fours; i++, value += 4, index += 4)
        for (int j = 0; j < 4; j++) {
            const float *at = x + (size_t)index[j] * TILE;
            VecF weight = vec_set(value[j]);
            for (int part = 0; part < PARTS; part++) sum[j][part] += weight * vec_load(at + part * VEC);
        }
    for (int part = 0; part < PARTS; part++) {
        VecF all = (sum[0][part] + sum[1][part]) + (sum[2][part] + sum[3][part]);
        vec_store(sums + part * VEC, vec_load(sums + part * VEC) + all);
    }
}

/* Vectors of 4, which every machine has. */
typedef float Four __attribute__((vector_size(16)));

static inline void run_four(float *sums, const float *value, const uint16_t *index, int64_t fours,
                            const float *x) {
    Four sum[4] = {0}, before, at;
    for (int64_t i = 0; i < fours; i++, value += 4, index += 4)
        for (int j = 0; j < 4; j++) {
            memcpy(&at, x + (size_t)index[j] * QUARTER, sizeof at);
            sum[j] += (value[j] - (Four){0}) * at;
        }
    memcpy(&before, sums, sizeof before);
    before += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    memcpy(sums, &before, sizeof before);
}

static inline void run_one(float *sums, const float *value, const uint16_t *index, int64_t fours,
                           const float *x) {
    float a = 0, b = 0, c = 0, d = 0;
    for (int64_t i = 0; i < fours; i++, value += 4, index += 4) {
        a += value[0] * x[index[0]];
        b += value[1] * x[index[1]];
        c += value[2] * x[index[2]];
        d += value[3] * x[index[3]];
    }
    *sums += (a + b) + (c + d);
}

/* Outputs n .. n + count - 1 of a tile; `sums` holds count x tile. */
static void run_outputs(const Work *work, int64_t at, int tile, int64_t n, int64_t count, float *sums) {
    const SparseView *w = &work->w;
    memset(sums, 0, (size_t)(count * tile) * sizeof *sums);
    for (int64_t block = 0; block < w->head->blocks; block++) {
        const float *x = work->turned + at * work->K + block * SPARSE_BLOCK * tile;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t *start = w->start + block * work->N + n + i;
            const float *value = w->value + (size_t)start[0] * 4;
            const uint16_t *index = w->index + (size_t)start[0] * 4;
            int64_t fours = start[1] - start[0];
            if (tile == TILE)
                run_sixteen(sums + i * TILE, value, index, fours, x);
            else if (tile == QUARTER)
                run_four(sums + i * QUARTER, value, index, fours, x);
            else
                run_one(sums + i, value, index, fours, x);
        }
    }
    for (int m = 0; m < tile; m++)
        for (int64_t i = 0; i < count; i++)
            work->y[(at + m) * work->N + n + i] = sums[i * tile + m] + (work->bias ? work->bias[n + i] : 0);
}

static Status linear_sparse_forward_cpu(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b) {
    enum { OUTPUTS = 64 };
    void *room;
    TRY(stream_workspace(stream, tensor_bytes(x), &room));
    Work work = {.w = sparse_view(w),
                 .x = x.data,
                 .bias = b.data,
                 .y = y.data,
                 .turned = room,
                 .M = tensor_rows(x),
                 .N = tensor_rows(w),
                 .K = tensor_cols(w)};
    int threads = threads_for(stream, 4 * (int64_t)work.w.head->fours * work.M);
#pragma omp parallel num_threads(threads)
    {
        float sums[OUTPUTS * TILE];
        turn_rows(&work, range_mine(work.M, TILE));
#pragma omp barrier
        Range mine = range_mine(work.N, 4);
        for (int64_t at = 0; at < work.M;) {
            int tile = tile_of(work.M, at);
            for (int64_t n = mine.from; n < mine.to; n += OUTPUTS)
                run_outputs(&work, at, tile, n, mine.to - n < OUTPUTS ? mine.to - n : OUTPUTS, sums);
            at += tile;
        }
    }
    return OK;
}

void VARIANT(linear_sparse_override)(KernelTable *table) {
    table->linear_sparse_forward = linear_sparse_forward_cpu;
}
