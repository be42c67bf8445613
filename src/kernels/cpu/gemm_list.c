/* Several GEMMs, see gemm.h. Each runs in one of four ways, which depends on its sizes only:
 *
 *   skinny   few rows: gemm_skinny.c, one GEMM after the other
 *   thin     some rows of a linear layer: thin.c, THIN_LIST GEMMs at a time
 *   batch    up to BLOCK_ROWS rows, or few steps: one job, whose tasks are the blocks of all these GEMMs
 *   large    all others: gemm.c, one GEMM after the other
 *
 * A task of a batch packs what its block needs: the rows of the left operand, and one panel of the right
 * operand at a time. If a GEMM has one row of blocks, nothing of its right operand is packed twice. That
 * operand is read from memory and multiplied by few rows, so tiles prefetch what is needed next while they
 * are computed: the next chunk of the right operand or, if there are few steps, the result. */
#include "kernels/cpu/gemm_parts.h"
#include "kernels/cpu/thin.h"

/* Bytes of a packed right panel, in the L1 cache, and of a chunk of the right operand, in the L2 cache. */
enum { PANEL_BYTES = 24 << 10, AHEAD_BYTES = 400 << 10, LEAST_CHUNK = 32 };

/* GEMMs of up to FEW_ROWS rows are a batch of their own: their blocks are wider, and long runs of memory load
 * faster. */
enum { FEW_ROWS = BLOCK_ROWS / 4 };

typedef struct Batch {
    const GemmList *list;
    const Micro *micro;
    int64_t chunk;              /* steps of a panel */
    int64_t most;               /* rows of the tallest GEMM */
    int64_t rows, cols;         /* of a block */
    int64_t over, blocks;       /* blocks of a GEMM: side by side and in all */
    size_t left, right, thread; /* bytes of packed panels, and of a thread's memory */
    char *memory;
    int count, *index;
} Batch;

/* For GEMMs of up to `rows` rows, or in blocks of as many. */
static Batch batch_of(const GemmList *list, const Micro *micro, int64_t rows, void *memory) {
    Batch batch = {.list = list, .micro = micro, .rows = round_up(rows, micro->rows), .memory = memory};
    int64_t unit = micro->unit > 16 ? micro->unit : 16, panel = PANEL_BYTES / (micro->cols * micro->size);
    batch.cols =
        min_of(BLOCK_AREA / batch.rows / micro->cols * micro->cols, round_up(list->largest.n, micro->cols));
    batch.rows = min_of(batch.rows, round_up(list->largest.m, micro->rows));
    int64_t ahead = AHEAD_BYTES / (batch.cols * (int64_t)dtype_size(list->largest.b.dtype));
    ahead = ahead > LEAST_CHUNK ? ahead : LEAST_CHUNK;
    batch.chunk = min_of(min_of(panel, ahead), micro->depth) / unit * unit; /* panels are whole cache lines */
    size_t step = (size_t)(batch.chunk * micro->size);
    batch.left = step * (size_t)batch.rows;
    batch.right = step * (size_t)micro->cols;
    batch.thread = (size_t)round_up((int64_t)(batch.left + batch.right) + batch.rows * batch.cols * 4, LINE);
    return batch;
}

static void batch_add(Batch *batch, int i, int64_t m) {
    batch->index[batch->count++] = i;
    if (m > batch->most) batch->most = m;
}

/* A block of a GEMM: rows x cols at (row, col). */
typedef struct Block {
    const Batch *batch;
    Gemm gemm;
    int64_t row, col, rows, cols;
    float *c; /* where it is accumulated */
    int64_t stride;
    bool direct; /* in its place, which is not in the cache at first */
    char *left, *right;
} Block;

/* What tiles prefetch, each its share: a source, or the place of its successor in c. */
static MicroAhead ahead_source(const PackSource *s, int64_t tiles) {
    int64_t size = (int64_t)dtype_size(s->dtype), run = (s->across ? s->depth : s->lines) * size;
    int64_t rows = s->across ? s->lines : s->depth, lines = ((intptr_t)s->from % LINE + run - 1) / LINE + 1;
    if (s->depth <= 0) return (MicroAhead){0};
    return (MicroAhead){s->from, s->stride * size, lines, 0, parts_of(rows * lines, tiles)};
}
static MicroAhead ahead_place(const Block *block, int64_t j) {
    const Micro *micro = block->batch->micro;
    int64_t size = sizeof *block->c, lines = parts_of(micro->cols * size, LINE);
    const float *next = block->c + micro->rows * block->stride + j;
    return (MicroAhead){(const char *)next, block->stride * size, lines, 0, micro->rows * lines};
}

/* Accumulates steps [k, k + depth). */
static void block_chunk(const Block *block, int64_t k, int64_t depth, bool add) {
    const Micro *micro = block->batch->micro;
    const Gemm *gemm = &block->gemm;
    int64_t row = block->row, col = block->col, rows = block->rows, cols = block->cols;
    int64_t padded = round_up(depth, micro->unit),
            tiles = parts_of(rows, micro->rows) * parts_of(cols, micro->cols);
    PackSource next = source_of(&gemm->b, false, col, cols, k + depth, min_of(depth, gemm->k - k - depth));
    MicroAhead ahead = ahead_source(&next, tiles);
    gemm_pack(micro, block->left, true, source_of(&gemm->a, true, row, rows, k, depth), padded);
    for (int64_t j = 0; j < cols; j += micro->cols) {
        int64_t width = min_of(micro->cols, cols - j);
        gemm_pack(micro, block->right, false, source_of(&gemm->b, false, col + j, width, k, depth), padded);
        if (block->direct && k == 0) ahead = ahead_place(block, j);
        for (int64_t i = 0; i < rows; i += micro->rows) {
            int64_t height = min_of(micro->rows, rows - i);
            const char *left = block->left + i * padded * micro->size;
            float *c = block->c + i * block->stride + j;
            if (micro->tile_ahead && height == micro->rows && width == micro->cols) {
                micro->tile_ahead(padded, left, block->right, c, block->stride, add, &ahead);
                continue;
            }
            for (int64_t n = ahead.count; n > 0; n--) micro_ahead(&ahead);
            tile_edge(micro, padded, left, block->right, c, block->stride, add, height, width);
        }
    }
}

static void batch_task(const void *context, int64_t task, int thread) {
    const Batch *batch = context;
    const Micro *micro = batch->micro;
    Block block = {.batch = batch,
                   .gemm = batch->list->at(batch->list->context, batch->index[task / batch->blocks])};
    const Gemm *gemm = &block.gemm;
    int64_t at = task % batch->blocks;
    block.row = at / batch->over * batch->rows;
    block.col = at % batch->over * batch->cols;
    block.rows = min_of(batch->rows, gemm->m - block.row);
    block.cols = min_of(batch->cols, gemm->n - block.col);
    if (block.rows <= 0) return;
    float *place = gemm->c ? gemm->c + block.row * gemm->n + block.col : NULL;
    block.left = batch->memory + (size_t)thread * batch->thread;
    block.right = block.left + batch->left;
    block.direct = place && gemm->k <= micro->depth;
    block.c = block.direct ? place : (float *)(void *)(block.right + batch->right);
    block.stride = block.direct ? gemm->n : batch->cols;
    for (int64_t r = 0; gemm->k == 0 && r < block.rows; r++)
        memset(place + r * gemm->n, 0, (size_t)block.cols * sizeof *place);
    if (micro->begin) micro->begin();
    for (int64_t k = 0; k < gemm->k; k += batch->chunk)
        block_chunk(&block, k, min_of(batch->chunk, gemm->k - k), k > 0 || (block.direct && gemm->add));
    if (micro->end) micro->end();
    if (place && !block.direct) {
        map_block(place, gemm->n, block.c, block.stride, block.rows, block.cols, gemm->add);
        block.c = place, block.stride = gemm->n;
    }
    if (gemm->finish)
        gemm->finish(gemm->context, block.c, block.stride, gemm->row + block.row, block.col, block.rows,
                     block.cols);
}

/* Narrows the blocks until every thread has several. */
static void batch_run(const Stream *stream, Batch *batch) {
    enum { EACH = 4 };
    if (!batch->count) return;
    int64_t n = batch->list->largest.n, unit = batch->micro->cols, down = parts_of(batch->most, batch->rows);
    int threads = gemm_threads(stream, &batch->list->largest);
    while (batch->cols > 2 * unit && down * parts_of(n, batch->cols) * batch->count < EACH * threads)
        batch->cols = batch->cols / 2 / unit * unit;
    batch->over = parts_of(n, batch->cols);
    batch->blocks = down * batch->over;
    pool_run(threads > 1 ? stream->device->pool : NULL, batch->count * batch->blocks, batch_task, batch);
}

static Thin thin_of(const Gemm *gemm) {
    return (Thin){gemm->m,       gemm->n,       gemm->k,      gemm->a.data,  gemm->b.data,
                  gemm->a.dtype, gemm->b.dtype, gemm->finish, gemm->context, gemm->row};
}

static Status is_thin(const Gemm *gemm, bool *ret_thin) {
    Thin thin = thin_of(gemm);
    *ret_thin = false;
    return gemm->a.trans || !gemm->b.trans || uses_blas(gemm) ? OK : thin_suits(&thin, ret_thin);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

Status gemm_list_bytes(const Stream *stream, const GemmList *list, size_t *ret_bytes) {
    const Micro *micro = NULL;
    Gemm gemm = list->largest;
    Thin all = thin_of(&gemm);
    int threads = stream->device->threads;
    bool thin = false;
    TRY(gemm_micro(&gemm, &micro));
    size_t thread =
        larger(batch_of(list, micro, FEW_ROWS, NULL).thread, batch_of(list, micro, BLOCK_ROWS, NULL).thread);
    size_t bytes = larger((size_t)threads * thread, gemm_within_bytes(&gemm, micro, threads)), other = 0;
    gemm.m = min_of(gemm.m, SKINNY_ROWS);
    TRY(gemm_bytes(stream, &gemm, &other));
    bytes = larger(bytes, other);
    gemm.m = SKINNY_ROWS + 1;
    TRY(is_thin(&gemm, &thin));
    if (thin) TRY(thin_bytes(stream, &all, list->count, &other));
    *ret_bytes = larger(bytes, other);
    return OK;
}

Status gemm_list_run(const Stream *stream, const GemmList *list, void *workspace) {
    const Micro *micro = NULL;
    Thin thins[THIN_LIST];
    int index[2][EXPERTS_MAX], threads = gemm_threads(stream, &list->largest), thin_count = 0;
    TRY(gemm_micro(&list->largest, &micro));
    Batch few = batch_of(list, micro, FEW_ROWS, workspace),
          more = batch_of(list, micro, BLOCK_ROWS, workspace);
    few.index = index[0], more.index = index[1];
    for (int i = 0; i < list->count; i++) {
        Gemm gemm = list->at(list->context, i);
        bool thin = false;
        if (gemm.m == 0 || (gemm.k == 0 && gemm.add)) continue;
        if (gemm.k > 0 && (gemm_is_skinny(&gemm) || uses_blas(&gemm))) {
            TRY(gemm_run(stream, &gemm, workspace));
            continue;
        }
        TRY(is_thin(&gemm, &thin));
        if (thin)
            thins[thin_count++] = thin_of(&gemm);
        else if (gemm.m <= FEW_ROWS)
            batch_add(&few, i, gemm.m);
        else if (gemm.m <= BLOCK_ROWS || gemm.k <= micro->depth)
            batch_add(&more, i, gemm.m);
        else
            gemm_within_run(threads > 1 ? stream->device->pool : NULL, &list->largest, &gemm, micro, threads,
                            workspace);
        if (thin_count < THIN_LIST) continue;
        TRY(thin_run(stream, thins, thin_count, workspace));
        thin_count = 0;
    }
    if (thin_count) TRY(thin_run(stream, thins, thin_count, workspace));
    batch_run(stream, &few);
    batch_run(stream, &more);
    return OK;
}
