/* GEMMs by the BLAS library if the build has one and both operands are fp32, otherwise by the algorithm of
 * Goto and van de Geijn with the panels and tiles of a micro-kernel (micro16.h). The threads first pack both
 * operands, in one job, and then compute blocks of the result, in a second. A block goes through all packed
 * steps of K, a chunk at a time, so that a panel of each operand fits the L1 cache and the left panels of the
 * block the L2 cache. If there are several chunks, the block is accumulated in a private buffer, because its
 * rows in the result are far apart and every chunk would load and store them. K is packed as a whole unless
 * it is large, because a job ends only when its slowest thread does; and because a result that is rounded
 * must first be accumulated over the whole of K, which otherwise takes a buffer as large as the packed part
 * of the result.
 *
 * Every element of the result is accumulated in the same order, whichever thread computes it, so the result
 * does not depend on the number of threads. */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_parts.h"
#include "kernels/cpu/micro.h"

/* Limits of what is packed at a time. */
enum { ROWS_MAX = 2048, COLS_MAX = 8192 };
#if defined(__aarch64__)
enum { CHUNK32 = 512 }; /* steps of K in fp32 */
#else
enum { CHUNK32 = 256 };
#endif

/* How the GEMM is partitioned. */
typedef struct Plan {
    const Micro *micro;
    int64_t size;                      /* bytes of a packed element */
    int64_t depth, rows, cols;         /* packed at a time; depth is padded */
    int64_t chunk;                     /* steps of K that pass through the caches at a time */
    int64_t block_rows, block_cols;    /* taken by a thread at a time */
    int64_t left_panels, right_panels; /* packed by a thread at a time */
    bool direct;                       /* accumulates in c rather than in a block of each thread */
    bool resumes;                      /* `sums` keeps the part of the result until K is complete */
    char *left, *right;
    float *sums, *blocks;
} Plan;

static void pack_fp32(void *panels, bool left, PackSource source, int64_t panel_stride) {
    micro_pack(panels, left ? MICRO_ROWS : MICRO_COLS, source, panel_stride);
}

/* fp32 panels, also for fp16 and for CPUs without bf16 instructions. */
static const Micro micro_fp32 = {
    .name = "fp32",
    .dtype = DT_F32,
    .any_type = true,
    .size = sizeof(float),
    .rows = MICRO_ROWS,
    .cols = MICRO_COLS,
    .unit = 1,
    .depth = VEC == 4 ? 512 : 256,
    .tile = micro_tile,
    .tile_ahead = micro_tile_ahead,
    .pack = pack_fp32,
};

/* Another micro-kernel for fp32 has panels of 32 lines and steps, so small GEMMs do not benefit. */
Status gemm_micro(const Gemm *gemm, const Micro **ret_micro) {
    enum { LEAST = 32 };
    const Micro *micro = NULL;
    if (!is_fp32(gemm) && gemm->a.dtype != DT_F16 && gemm->b.dtype != DT_F16) TRY(micro16_choose(&micro));
    if (is_fp32(gemm) && gemm->m >= LEAST && gemm->n >= LEAST && gemm->k >= LEAST) micro = micro32_choose();
    *ret_micro = micro ? micro : &micro_fp32;
    return OK;
}

/* Panels that a thread packs at a time: several, to read long runs of memory, but so few that every thread
 * gets some. */
static int64_t panels_each(int64_t panels, int threads) {
    enum { PANELS_MAX = 8 };
    int64_t each = panels / (2 * threads);
    return each < 1 ? 1 : min_of(each, PANELS_MAX);
}

/* The estimated time of all blocks in units of a multiply-add per step of K: a thread computes as many as
 * its share, rounded up, and a tenth of a block more, because threads progress at different speeds. Reading
 * a line of either operand costs as much as OVERHEAD multiply-adds (measured with AMX and 16 threads). */
static int64_t blocks_time(const Plan *plan, int64_t height, int64_t width, int threads) {
    enum { OVERHEAD = 40, TENTHS = 10 };
    int64_t count = parts_of(plan->rows, height) * parts_of(plan->cols, width);
    int64_t each = parts_of(count, threads) * TENTHS + (threads > 1 ? 1 : 0);
    return each * (height * width + OVERHEAD * (height + width));
}

/* Chooses the blocks of the packed part, of several sizes up to BLOCK_ROWS x BLOCK_COLS. */
static void plan_blocks(Plan *plan, int threads) {
    enum { BLOCK_COLS = 240, SIZES = 8, LEAST = 2 };
    int rows = plan->micro->rows, cols = plan->micro->cols;
    int64_t best = INT64_MAX;
    for (int i = SIZES; i >= LEAST; i--)
        for (int j = SIZES; j >= LEAST; j--) {
            int64_t most_rows = BLOCK_ROWS * i / SIZES / rows * rows;
            int64_t most_cols = BLOCK_COLS / cols * cols * j / SIZES / cols * cols;
            int64_t height = even_part(plan->rows, most_rows > rows ? most_rows : rows, rows);
            int64_t width = even_part(plan->cols, most_cols > cols ? most_cols : cols, cols);
            int64_t time = blocks_time(plan, height, width, threads);
            if (time >= best) continue;
            best = time;
            plan->block_rows = height;
            plan->block_cols = width;
        }
}

/* The same for fp32, which needs larger blocks; each thread gets several. */
static void plan_blocks32(Plan *plan, int threads) {
    int64_t height = BLOCK_ROWS, width = 480 / MICRO_COLS * MICRO_COLS;
    while (height * width * 2 * threads > plan->rows * plan->cols &&
           height + width > 4 * (MICRO_ROWS + MICRO_COLS))
        *(height > width ? &height : &width) /= 2;
    plan->block_rows = even_part(plan->rows, height, MICRO_ROWS);
    plan->block_cols = even_part(plan->cols, width, MICRO_COLS);
}

/* Splits the packed part among threads. */
static void plan_split(Plan *plan, bool fp32, int threads) {
    (fp32 && plan->micro == &micro_fp32 ? plan_blocks32 : plan_blocks)(plan, threads);
    plan->left_panels = panels_each(plan->rows / plan->micro->rows, threads);
    plan->right_panels = panels_each(plan->cols / plan->micro->cols, threads);
}

static Plan plan_of(const Gemm *gemm, const Micro *micro, int threads) {
    bool fp32 = is_fp32(gemm), plain = fp32 && micro == &micro_fp32;
    Plan plan = {.micro = micro, .size = micro->size, .rows = even_part(gemm->m, ROWS_MAX, micro->rows)};
    if (plain) {
        plan.chunk = even_part(gemm->k, CHUNK32, 2);
        plan.depth = even_part(gemm->k, 8 * CHUNK32, plan.chunk);
    } else {
        plan.depth = even_part(gemm->k, 4096, micro->unit);
        plan.chunk = even_part(plan.depth, micro->depth, micro->unit);
    }
    int64_t limit = min_of(COLS_MAX, (plain ? 24 << 20 : 32 << 20) / (plan.depth * plan.size));
    plan.cols = even_part(gemm->n, limit / micro->cols * micro->cols, micro->cols);
    plan.direct = gemm->c && (plan.depth <= plan.chunk || (fp32 && !plain));
    plan.resumes = !gemm->c && gemm->k > plan.depth;
    plan_split(&plan, fp32, threads);
    return plan;
}

/* Bytes of the packed panels of `lines` lines. */
static int64_t panels_bytes(const Plan *plan, int64_t lines) {
    return round_up(plan->depth * lines * plan->size, 64);
}

static size_t plan_bytes(const Plan *plan, int threads) {
    int64_t sums = plan->resumes ? plan->rows * plan->cols : 0;
    int64_t blocks = plan->direct ? 0 : threads * plan->block_rows * plan->block_cols;
    return (size_t)(panels_bytes(plan, plan->rows) + panels_bytes(plan, plan->cols)) +
           (size_t)(sums + blocks) * sizeof(float);
}

static void plan_place(Plan *plan, void *workspace) {
    plan->left = workspace;
    plan->right = plan->left + panels_bytes(plan, plan->rows);
    plan->sums = (float *)(void *)(plan->right + panels_bytes(plan, plan->cols));
    plan->blocks = plan->sums + (plan->resumes ? plan->rows * plan->cols : 0);
}

/* Packing of an fp32 operand for a micro-kernel of bf16: it is rounded chunk by chunk in a buffer that stays
 * in the cache. */
static void pack_rounded(const Micro *micro, char *panels, bool left, PackSource source,
                         int64_t panel_depth) {
    enum { STEPS = 32, LINES = 384, STAGE = STEPS * LINES };
    int width = left ? micro->rows : micro->cols;
    bool across = source.across;
    int64_t height = across ? width : LINES / width * width,
            deep = across ? STAGE / width / STEPS * STEPS : STEPS;
    uint16_t stage[STAGE];
    for (int64_t line = 0; line < source.lines; line += height)
        for (int64_t k = 0; k < source.depth; k += deep) {
            PackSource part = {stage,
                               DT_BF16,
                               across,
                               across ? deep : height,
                               min_of(height, source.lines - line),
                               min_of(deep, source.depth - k)};
            int64_t rows = across ? part.lines : part.depth, cols = across ? part.depth : part.lines;
            const float *from =
                (const float *)source.from + (across ? line * source.stride + k : k * source.stride + line);
            for (int64_t row = 0; row < rows; row++)
                half_store(stage, DT_BF16, row * part.stride, from + row * source.stride, cols);
            micro->pack(panels + (line * panel_depth + k * width) * micro->size, left, part,
                        panel_depth * width);
        }
}

void gemm_pack(const Micro *micro, char *panels, bool left, PackSource source, int64_t panel_depth) {
    if (source.dtype == micro->dtype || micro->any_type)
        micro->pack(panels, left, source, panel_depth * (left ? micro->rows : micro->cols));
    else
        pack_rounded(micro, panels, left, source, panel_depth);
}

/* What is packed at a time: steps [k, k + depth) of rows and columns. */
typedef struct Part {
    const Gemm *gemm;
    const Plan *plan;
    int64_t row, rows, col, cols, k, depth;
    int64_t right_tasks; /* packing; 0 if the right operand is packed already */
} Part;

/* Packs a task's share of one operand: left_panels or right_panels panels, or as many as are left. */
static void pack_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const Part *part = context;
    const Plan *plan = part->plan;
    const Micro *micro = plan->micro;
    bool left = task >= part->right_tasks;
    int width = left ? micro->rows : micro->cols;
    int64_t most = (left ? plan->left_panels : plan->right_panels) * width;
    int64_t from = (left ? task - part->right_tasks : task) * most;
    int64_t lines = min_of(most, (left ? part->rows : part->cols) - from);
    PackSource source = source_of(left ? &part->gemm->a : &part->gemm->b, left,
                                  (left ? part->row : part->col) + from, lines, part->k, part->depth);
    gemm_pack(micro, (left ? plan->left : plan->right) + from * plan->depth * plan->size, left, source,
              plan->depth);
}

/* A block of the result: rows x cols at (row, col) of the packed part, accumulated in c. */
typedef struct Block {
    int64_t row, col, rows, cols;
    float *c;
    int64_t c_stride;
} Block;

/* Computes one chunk of K of a block: each right panel passes through the L1 cache once for all left
 * panels. Each tile also prefetches a slice of the next right panel, so that its first tile does not wait
 * for memory. */
static void block_chunk(const Plan *plan, const Block *block, int64_t k, int64_t depth, bool add) {
    const Micro *micro = plan->micro;
    int64_t size = plan->size, rows = micro->rows, cols = micro->cols;
    int64_t slice = round_up(depth * cols * size * rows / block->rows, LINE);
    for (int64_t j = 0; j < block->cols; j += cols) {
        const char *right = plan->right + ((block->col + j) * plan->depth + k * cols) * size;
        const char *next = right + plan->depth * cols * size;
        for (int64_t i = 0; i < block->rows; i += rows) {
            for (int64_t ahead = 0; ahead < slice; ahead += LINE) __builtin_prefetch(next + ahead, 0, 2);
            next += slice;
            const char *left = plan->left + ((block->row + i) * plan->depth + k * rows) * size;
            tile_edge(micro, depth, left, right, block->c + i * block->c_stride + j, block->c_stride, add,
                      min_of(rows, block->rows - i), min_of(cols, block->cols - j));
        }
    }
}

/* Where a block of the part ends up: in c or in the sums; NULL if it only goes to the epilogue. */
static float *block_place(const Part *part, const Block *block, int64_t *ret_stride) {
    const Gemm *gemm = part->gemm;
    const Plan *plan = part->plan;
    *ret_stride = gemm->c ? gemm->n : plan->cols;
    if (gemm->c) return gemm->c + (part->row + block->row) * gemm->n + part->col + block->col;
    return plan->resumes ? plan->sums + block->row * plan->cols + block->col : NULL;
}

/* Moves a block to its place; `add` selects accumulation. */
static void block_move(Block *block, float *place, int64_t stride, bool add) {
    map_block(place, stride, block->c, block->c_stride, block->rows, block->cols, add);
    block->c = place;
    block->c_stride = stride;
}

/* Computes one block of the part over its packed steps. */
static void block_task(const void *context, int64_t task, int thread) {
    const Part *part = context;
    const Gemm *gemm = part->gemm;
    const Plan *plan = part->plan;
    const Micro *micro = plan->micro;
    int64_t over = parts_of(part->cols, plan->block_cols);
    int64_t depth = round_up(part->depth, micro->unit), stride;
    Block block = {.row = task / over * plan->block_rows, .col = task % over * plan->block_cols};
    block.rows = min_of(plan->block_rows, part->rows - block.row);
    block.cols = min_of(plan->block_cols, part->cols - block.col);
    float *place = block_place(part, &block, &stride);
    block.c = plan->direct ? place : plan->blocks + thread * plan->block_rows * plan->block_cols;
    block.c_stride = plan->direct ? stride : plan->block_cols;
    bool add = (gemm->c && gemm->add) || part->k > 0;
    if (micro->begin) micro->begin();
    for (int64_t chunk = 0; chunk < depth; chunk += plan->chunk)
        block_chunk(plan, &block, chunk, min_of(plan->chunk, depth - chunk),
                    (plan->direct && add) || chunk > 0);
    if (micro->end) micro->end();
    if (place && !plan->direct) block_move(&block, place, stride, add);
    if (gemm->finish && part->k + part->depth >= gemm->k)
        gemm->finish(gemm->context, block.c, block.c_stride, gemm->row + part->row + block.row,
                     part->col + block.col, block.rows, block.cols);
}

static void part_run(Pool *pool, Part *part, bool packed) {
    const Plan *plan = part->plan;
    int64_t left_tasks = parts_of(part->rows, plan->left_panels * plan->micro->rows);
    part->right_tasks = packed ? 0 : parts_of(part->cols, plan->right_panels * plan->micro->cols);
    pool_run(pool, left_tasks + part->right_tasks, pack_task, part);
    pool_run(pool, parts_of(part->rows, plan->block_rows) * parts_of(part->cols, plan->block_cols),
             block_task, part);
}

/* All rows use the packed right operand, but partial sums are only kept for one part of the result. */
static void parts_run(Pool *pool, const Gemm *gemm, const Plan *plan) {
    Part part = {.gemm = gemm, .plan = plan};
    int64_t down = parts_of(gemm->m, plan->rows), deep = parts_of(gemm->k, plan->depth);
    for (part.col = 0; part.col < gemm->n; part.col += plan->cols) {
        part.cols = min_of(plan->cols, gemm->n - part.col);
        for (int64_t at = 0; at < down * deep; at++) {
            part.row = (plan->resumes ? at / deep : at % down) * plan->rows;
            part.k = (plan->resumes ? at % deep : at / down) * plan->depth;
            part.rows = min_of(plan->rows, gemm->m - part.row);
            part.depth = min_of(plan->depth, gemm->k - part.k);
            part_run(pool, &part, !plan->resumes && part.row > 0);
        }
    }
}

/* BLAS, followed by the epilogue over strips of rows. */
static void blas_run(int threads, const Gemm *gemm, float *workspace) {
    Gemm stored = *gemm;
    if (!gemm->c) stored.c = workspace;
    blas_gemm(threads, &stored);
    if (!gemm->finish) return;
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(gemm->m, 1);
        if (mine.to > mine.from)
            gemm->finish(gemm->context, stored.c + mine.from * gemm->n, gemm->n, gemm->row + mine.from, 0,
                         mine.to - mine.from, gemm->n);
    }
}

/* The plan of the largest GEMM for a smaller one: with fewer rows and steps, but chunks as large, so that the
 * order of sums follows from these two. */
static Plan plan_within(const Gemm *largest, const Gemm *gemm, const Micro *micro, int threads) {
    Plan plan = plan_of(largest, micro, threads);
    plan.rows = min_of(plan.rows, round_up(gemm->m, micro->rows));
    plan.depth = min_of(plan.depth, round_up(gemm->k, plan.chunk));
    plan_split(&plan, is_fp32(gemm), threads);
    return plan;
}

size_t gemm_within_bytes(const Gemm *largest, const Micro *micro, int threads) {
    Plan plan = plan_of(largest, micro, threads);
    int64_t area = min_of(BLOCK_AREA, plan.rows * plan.cols); /* smaller GEMMs may have other blocks */
    plan.block_rows = parts_of(area, plan.block_cols);
    return plan_bytes(&plan, threads);
}

void gemm_within_run(Pool *pool, const Gemm *largest, const Gemm *gemm, const Micro *micro, int threads,
                     void *workspace) {
    Plan plan = plan_within(largest, gemm, micro, threads);
    plan_place(&plan, workspace);
    parts_run(pool, gemm, &plan);
}

Status gemm_bytes(const Stream *stream, const Gemm *gemm, size_t *ret_bytes) {
    const Micro *micro = NULL;
    *ret_bytes = gemm->c ? 0 : (size_t)(gemm->m * gemm->n) * sizeof(float);
    if (gemm_is_skinny(gemm)) return gemm_skinny_bytes(gemm, ret_bytes);
    if (uses_blas(gemm)) return OK;
    TRY(gemm_micro(gemm, &micro));
    int threads = gemm_threads(stream, gemm);
    Plan plan = plan_of(gemm, micro, threads);
    *ret_bytes = plan_bytes(&plan, threads);
    return OK;
}

Status gemm_run(const Stream *stream, const Gemm *gemm, void *workspace) {
    int threads = gemm_threads(stream, gemm);
    const Micro *micro = NULL;
    if (gemm_is_skinny(gemm)) return gemm_skinny_run(threads, gemm, workspace);
    if (uses_blas(gemm)) {
        blas_run(threads, gemm, workspace);
        return OK;
    }
    TRY(gemm_micro(gemm, &micro));
    Plan plan = plan_of(gemm, micro, threads);
    plan_place(&plan, workspace);
    parts_run(threads > 1 ? stream->device->pool : NULL, gemm, &plan);
    return OK;
}
