/* Linear layers with sparse weights. Rows of the input are transposed in tiles of 16, so that a few FMAs
 * multiply a weight with all rows of a tile. A block of a tile's inputs stays in the L1 cache while a
 * thread passes over its outputs. Remaining rows form tiles of 4 or 1.
 *
 * For every tile size, the result of a row has the same bits: four sums take the weights of an output in
 * turn and are added in pairs, block after block. Hence a sequence gets the same result alone and in a
 * batch. */
#include "kernels/cpu/variant.h"
#include "kernels/cpu/vec.h"
#include "kernels/sparse.h"

enum { TILE = 16, QUARTER = 4 };

typedef struct SparseJob {
    SparseView w;
    const float *x, *bias;
    float *y, *transposed;
    int64_t M, N, K;
} SparseJob;

/* The number of rows of the tile that starts at row `at`. */
static int tile_of(int64_t M, int64_t at) {
    return M - at >= TILE ? TILE : M - at >= QUARTER ? QUARTER : 1;
}

/* Transposes the rows of a tile, so that they are adjacent for each input. */
static void transpose_tile(const SparseJob *job, int64_t at, int tile) {
    float *to = job->transposed + at * job->K;
    const float *from = job->x + at * job->K;
    if (tile == 1) {
        memcpy(to, from, (size_t)job->K * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < job->K; k++)
        for (int m = 0; m < tile; m++) to[k * tile + m] = from[m * job->K + k];
}

static void transpose_rows(const SparseJob *job, Range mine) {
    for (int64_t at = 0; at < job->M;) {
        int tile = tile_of(job->M, at);
        if (at >= mine.from && at < mine.to) transpose_tile(job, at, tile);
        at += tile;
    }
}

/* sums (16) += the weights of an output in a block times a tile of 16; x is the block's part of the tile. */
static inline void run_sixteen(float *sums, const float *value, const uint16_t *index, int64_t quads,
                               const float *x) {
    enum { PARTS = TILE / VEC };
    VecF sum[4][PARTS] = {0};
    for (int64_t i = 0; i < quads; i++, value += 4, index += 4)
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

/* Vectors of 4, which every CPU supports. */
typedef float Four __attribute__((vector_size(16)));

static inline void run_four(float *sums, const float *value, const uint16_t *index, int64_t quads,
                            const float *x) {
    Four sum[4] = {0}, before, at;
    for (int64_t i = 0; i < quads; i++, value += 4, index += 4)
        for (int j = 0; j < 4; j++) {
            memcpy(&at, x + (size_t)index[j] * QUARTER, sizeof at);
            sum[j] += (value[j] - (Four){0}) * at;
        }
    memcpy(&before, sums, sizeof before);
    before += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    memcpy(sums, &before, sizeof before);
}

static inline void run_one(float *sums, const float *value, const uint16_t *index, int64_t quads,
                           const float *x) {
    float a = 0, b = 0, c = 0, d = 0;
    for (int64_t i = 0; i < quads; i++, value += 4, index += 4) {
        a += value[0] * x[index[0]];
        b += value[1] * x[index[1]];
        c += value[2] * x[index[2]];
        d += value[3] * x[index[3]];
    }
    *sums += (a + b) + (c + d);
}

/* Computes outputs n .. n + count - 1 of a tile; `sums` has room for count x tile. */
static void run_outputs(const SparseJob *job, int64_t at, int tile, int64_t n, int64_t count, float *sums) {
    const SparseView *w = &job->w;
    memset(sums, 0, (size_t)(count * tile) * sizeof *sums);
    for (int64_t block = 0; block < w->header->blocks; block++) {
        const float *x = job->transposed + at * job->K + block * SPARSE_BLOCK * tile;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t *start = w->start + block * job->N + n + i;
            const float *value = w->value + (size_t)start[0] * 4;
            const uint16_t *index = w->index + (size_t)start[0] * 4;
            int64_t quads = start[1] - start[0];
            if (tile == TILE)
                run_sixteen(sums + i * TILE, value, index, quads, x);
            else if (tile == QUARTER)
                run_four(sums + i * QUARTER, value, index, quads, x);
            else
                run_one(sums + i, value, index, quads, x);
        }
    }
    for (int m = 0; m < tile; m++)
        for (int64_t i = 0; i < count; i++)
            job->y[(at + m) * job->N + n + i] = sums[i * tile + m] + (job->bias ? job->bias[n + i] : 0);
}

static Status linear_sparse_forward_cpu(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor b) {
    enum { OUTPUTS = 64 };
    void *workspace;
    TRY(stream_workspace(stream, tensor_bytes(x), &workspace));
    SparseJob job = {.w = sparse_view(w),
                     .x = x.data,
                     .bias = b.data,
                     .y = y.data,
                     .transposed = workspace,
                     .M = tensor_rows(x),
                     .N = tensor_rows(w),
                     .K = tensor_cols(w)};
    int threads = threads_for(stream, 4 * (int64_t)job.w.header->quads * job.M);
#pragma omp parallel num_threads(threads)
    {
        float sums[OUTPUTS * TILE];
        transpose_rows(&job, range_mine(job.M, TILE));
#pragma omp barrier
        Range mine = range_mine(job.N, 4);
        for (int64_t at = 0; at < job.M;) {
            int tile = tile_of(job.M, at);
            for (int64_t n = mine.from; n < mine.to; n += OUTPUTS)
                run_outputs(&job, at, tile, n, mine.to - n < OUTPUTS ? mine.to - n : OUTPUTS, sums);
            at += tile;
        }
    }
    return OK;
}

void VARIANT(linear_sparse_override)(KernelTable *table) {
    table->linear_sparse_forward = linear_sparse_forward_cpu;
}
