/* fp32 GEMM: by the BLAS library if the build has one, otherwise by the algorithm of Goto and van de Geijn.
 * The threads first pack both operands, in one job, and then compute blocks of the result, in a second. A
 * block goes through all packed steps of K, a chunk at a time, so that a panel of each operand fits the L1
 * cache and the left panels of the block the L2 cache. If there are several chunks, the block is accumulated
 * in a private buffer, because its rows in the result are far apart and every chunk loads and stores them. K
 * is packed as a whole unless it is large, because a job ends only when its slowest thread does.
 *
 * Every element of the result is accumulated in the same order, whichever thread computes it, so the result
 * does not depend on the number of threads. */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm16.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/micro16.h"

/* Steps of K that pass through the caches at a time. */
#if defined(__aarch64__)
enum { CHUNK_MAX = 512 };
#else
enum { CHUNK_MAX = 256 };
#endif
/* Limits of what is packed at a time, and of the block of the result that one thread takes. */
enum { DEPTH_MAX = 8 * CHUNK_MAX, ROWS_MAX = 2048, COLS_MAX = 8192, COLS_BYTES = 24 << 20 };
enum { BLOCK_ROWS = 256, BLOCK_COLS = 480 / MICRO_COLS * MICRO_COLS };

/* How the GEMM is partitioned. */
typedef struct Plan {
    int64_t depth, rows, cols;         /* packed at a time */
    int64_t chunk;                     /* steps of K that pass through the caches at a time */
    int64_t block_rows, block_cols;    /* taken by a thread at a time */
    int64_t left_panels, right_panels; /* packed by a thread at a time */
    int64_t left_stride, right_stride; /* floats between the packed panels of a chunk */
    float *left, *right;               /* chunk after chunk */
    float *blocks;                     /* a block of each thread; not used if there is only one chunk */
} Plan;

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The size of equal parts of `size` that are at most `limit`, rounded up to a multiple of `unit`. */
static int64_t even_part(int64_t size, int64_t limit, int64_t unit) {
    int64_t parts = (size + limit - 1) / limit;
    return round_up((size + parts - 1) / parts, unit);
}

/* Panels that a thread packs at a time: several, to read long runs of memory, but so few that every thread
 * gets some. */
static int64_t panels_each(int64_t panels, int threads) {
    enum { PANELS_MAX = 8 };
    int64_t each = panels / (2 * threads);
    return each < 1 ? 1 : min_of(each, PANELS_MAX);
}

/* Chooses blocks of the packed part small enough that each thread gets several. */
static void plan_blocks(Plan *plan, int threads) {
    int64_t height = BLOCK_ROWS, width = BLOCK_COLS;
    while (height * width * 2 * threads > plan->rows * plan->cols &&
           height + width > 4 * (MICRO_ROWS + MICRO_COLS))
        *(height > width ? &height : &width) /= 2;
    plan->block_rows = even_part(plan->rows, height, MICRO_ROWS);
    plan->block_cols = even_part(plan->cols, width, MICRO_COLS);
    plan->left_panels = panels_each(plan->rows / MICRO_ROWS, threads);
    plan->right_panels = panels_each(plan->cols / MICRO_COLS, threads);
}

static Plan plan_of(const Gemm *gemm, int threads) {
    Plan plan = {
        .chunk = even_part(gemm->k, CHUNK_MAX, 2),
        .rows = even_part(gemm->m, ROWS_MAX, MICRO_ROWS),
    };
    plan.depth = even_part(gemm->k, DEPTH_MAX, plan.chunk);
    int64_t limit = min_of(COLS_MAX, COLS_BYTES / (plan.depth * (int64_t)sizeof(float)));
    plan.cols = even_part(gemm->n, limit / MICRO_COLS * MICRO_COLS, MICRO_COLS);
    plan.left_stride = plan.chunk * MICRO_ROWS;
    plan.right_stride = plan.chunk * MICRO_COLS;
    plan_blocks(&plan, threads);
    return plan;
}

/* What is packed at a time: steps [k, k + depth) of rows and columns. */
typedef struct Part {
    const Gemm *gemm;
    const Plan *plan;
    int64_t row, rows, col, cols, k, depth;
    int64_t left_tasks, right_tasks; /* packing; right_tasks is 0 if the right operand is packed already */
} Part;

/* Packs `count` lines of the operand from line `from` of the part, whose first is line `first` of the
 * operand. `across`: the steps of a line are contiguous. */
static void pack_panels(const Part *part, float *to, int width, GemmOperand operand, bool across,
                        int64_t first, int64_t from, int64_t count, int64_t packed) {
    int64_t chunk = part->plan->chunk, stride = chunk * width, line = first + from;
    for (int64_t at = 0; at < part->depth; at += chunk) {
        float *panels = to + at * packed + from * chunk;
        int64_t k = part->k + at, depth = min_of(chunk, part->depth - at);
        if (across)
            pack_across(panels, width, operand.data + line * operand.stride + k, operand.stride, count, depth,
                        stride);
        else
            pack_along(panels, width, operand.data + k * operand.stride + line, operand.stride, count, depth,
                       stride);
    }
}

static void pack_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const Part *part = context;
    const Gemm *gemm = part->gemm;
    const Plan *plan = part->plan;
    int64_t left = task - part->right_tasks;
    if (left < 0) {
        int64_t lines = plan->right_panels * MICRO_COLS, from = task * lines;
        pack_panels(part, plan->right, MICRO_COLS, gemm->b, gemm->b.trans, part->col, from,
                    min_of(lines, part->cols - from), plan->cols);
    } else {
        int64_t lines = plan->left_panels * MICRO_ROWS, from = left * lines;
        pack_panels(part, plan->left, MICRO_ROWS, gemm->a, !gemm->a.trans, part->row, from,
                    min_of(lines, part->rows - from), plan->rows);
    }
}

/* A block of the result: rows x cols at (row, col) of the packed part, which is c in memory. */
typedef struct Block {
    int64_t row, col, rows, cols;
    float *c;
    int64_t c_stride;
} Block;

/* Computes one chunk of K of a block: each right panel passes through the L1 cache once for all left panels.
 * Each tile also prefetches a slice of the next right panel, so that its first tile does not wait for
 * memory. */
static void block_chunk(const Plan *plan, const Block *block, int64_t k, int64_t depth, bool add) {
    enum { LINE = 16 };
    int64_t slice = round_up(depth * MICRO_COLS * MICRO_ROWS / block->rows, LINE);
    for (int64_t j = 0; j < block->cols; j += MICRO_COLS) {
        const float *right = plan->right + k * plan->cols + (block->col + j) * plan->chunk;
        const float *next = right + plan->right_stride;
        for (int64_t i = 0; i < block->rows; i += MICRO_ROWS) {
            for (int64_t ahead = 0; ahead < slice; ahead += LINE) __builtin_prefetch(next + ahead, 0, 2);
            next += slice;
            const float *left = plan->left + k * plan->rows + (block->row + i) * plan->chunk;
            micro_edge(depth, left, right, block->c + i * block->c_stride + j, block->c_stride, add,
                       min_of(MICRO_ROWS, block->rows - i), min_of(MICRO_COLS, block->cols - j));
        }
    }
}

/* Computes one block of the part over its packed steps. */
static void block_task(const void *context, int64_t task, int thread) {
    const Part *part = context;
    const Gemm *gemm = part->gemm;
    const Plan *plan = part->plan;
    int64_t over = (part->cols + plan->block_cols - 1) / plan->block_cols;
    Block block = {.row = task / over * plan->block_rows, .col = task % over * plan->block_cols};
    block.rows = min_of(plan->block_rows, part->rows - block.row);
    block.cols = min_of(plan->block_cols, part->cols - block.col);
    float *c = gemm->c + (part->row + block.row) * gemm->n + part->col + block.col;
    bool direct = plan->depth <= plan->chunk, add = gemm->add || part->k > 0;
    block.c = direct ? c : plan->blocks + thread * plan->block_rows * plan->block_cols;
    block.c_stride = direct ? gemm->n : plan->block_cols;
    for (int64_t chunk = 0; chunk < part->depth; chunk += plan->chunk)
        block_chunk(plan, &block, chunk, min_of(plan->chunk, part->depth - chunk),
                    (direct && add) || chunk > 0);
    if (!direct) map_block(c, gemm->n, block.c, block.c_stride, block.rows, block.cols, add);
    if (gemm->finish && part->k + part->depth == gemm->k)
        gemm->finish(gemm->context, part->row + block.row, part->col + block.col, block.rows, block.cols);
}

static int64_t parts_of(int64_t size, int64_t each) {
    return (size + each - 1) / each;
}

static void part_run(Pool *pool, Part *part) {
    const Plan *plan = part->plan;
    bool first = part->row == 0;
    part->left_tasks = parts_of(part->rows, plan->left_panels * MICRO_ROWS);
    part->right_tasks = first ? parts_of(part->cols, plan->right_panels * MICRO_COLS) : 0;
    pool_run(pool, part->left_tasks + part->right_tasks, pack_task, part);
    pool_run(pool, parts_of(part->rows, plan->block_rows) * parts_of(part->cols, plan->block_cols),
             block_task, part);
}

/* Skinny GEMM: a left operand with few rows, as in generation. Packing the right operand would cost more
 * than the multiplication, which reads it only once. Requires a transposed right operand, whose columns are
 * contiguous. Each element is accumulated in the same order for any number of rows, so that a sequence gets
 * the same bits alone and in a batch. */
enum { DOT_ROWS = 4, DOT_COLS = 8 };
/* Whether a single row is multiplied by one column after the other. x86 CPUs prefetch one stream best, this
 * many elements ahead. */
#if defined(__x86_64__)
enum { ONE_BY_ONE = 1, AHEAD = 1024 };
#else
enum { ONE_BY_ONE = 0, AHEAD = 0 };
#endif
/* Columns of a tile of two or four rows; the accumulators must fit the registers. */
#if defined(__aarch64__) || defined(__AVX512F__)
enum { DOT_COLS_TWO = 8, DOT_COLS_FOUR = 4 };
#else
enum { DOT_COLS_TWO = 4, DOT_COLS_FOUR = 2 };
#endif

static bool is_skinny(const Gemm *gemm) {
    return gemm->m <= SKINNY_ROWS && !gemm->a.trans && gemm->b.trans;
}

/* One row times one column, without the rest after the last full vector. */
static inline __attribute__((always_inline)) VecF dot_one(const float *a, const float *b, int64_t depth) {
    VecF sum = {0};
    for (int64_t k = 0; k + VEC <= depth; k += VEC) {
        __builtin_prefetch(b + k + AHEAD, 0, 3);
        sum += vec_load(a + k) * vec_load(b + k);
    }
    return sum;
}

/* `rows` and `cols` are constants at the call sites; their product is a multiple of 4. */
static inline __attribute__((always_inline)) void dot_tile(const Gemm *gemm, int64_t row, int64_t col,
                                                           int rows, int cols) {
    VecF sum[DOT_ROWS * DOT_COLS] = {0};
    float total[DOT_ROWS * DOT_COLS];
    const float *a[DOT_ROWS], *b[DOT_COLS];
    for (int i = 0; i < rows; i++) a[i] = gemm->a.data + (row + i) * gemm->a.stride;
    for (int j = 0; j < cols; j++) b[j] = gemm->b.data + min_of(col + j, gemm->n - 1) * gemm->b.stride;
    int64_t k = 0, full = gemm->k / VEC * VEC;
    if (rows == 1 && ONE_BY_ONE) {
        for (int j = 0; j < cols; j++) sum[j] = dot_one(a[0], b[j], full);
        k = full;
    }
    /* The next columns follow in memory; prefetching them here makes them one stream rather than several. */
    const float *ahead = b[0] + cols * gemm->b.stride;
    for (; k < full; k += VEC) {
        for (int line = 0; line < cols * VEC; line += 16) __builtin_prefetch(ahead + cols * k + line, 0, 2);
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++) {
            const VecF right = vec_load(b[j] + k);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) sum[i * cols + j] += vec_load(a[i] + k) * right;
        }
    }
#pragma GCC unroll 4
    for (int at = 0; at < rows * cols; at += 4) vec_sum_four(total + at, sum + at);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols && col + j < gemm->n; j++) {
            float all = total[i * cols + j];
            for (int64_t rest = full; rest < gemm->k; rest++) all += a[i][rest] * b[j][rest];
            float *c = gemm->c + (row + i) * gemm->n + col + j;
            *c = gemm->add ? *c + all : all;
        }
}

/* All rows of DOT_COLS columns. */
static void dot_columns(const Gemm *gemm, int64_t col) {
    int64_t row = 0;
    for (; row + DOT_ROWS <= gemm->m; row += DOT_ROWS)
        for (int j = 0; j < DOT_COLS; j += DOT_COLS_FOUR)
            if (col + j < gemm->n) dot_tile(gemm, row, col + j, DOT_ROWS, DOT_COLS_FOUR);
    for (; row + 2 <= gemm->m; row += 2)
        for (int j = 0; j < DOT_COLS; j += DOT_COLS_TWO)
            if (col + j < gemm->n) dot_tile(gemm, row, col + j, 2, DOT_COLS_TWO);
    if (row < gemm->m) dot_tile(gemm, row, col, 1, DOT_COLS);
}

static void skinny_run(int threads, const Gemm *gemm) {
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(gemm->n, 16);
        for (int64_t col = mine.from; col < mine.to; col += DOT_COLS) dot_columns(gemm, col);
        if (gemm->finish && mine.to > mine.from)
            gemm->finish(gemm->context, 0, mine.from, gemm->m, mine.to - mine.from);
    }
}

static void split_finish(const void *context, float *sums, int64_t stride, int64_t row, int64_t col,
                         int64_t rows, int64_t cols) {
    (void)sums, (void)stride;
    const Gemm *gemm = context;
    gemm->finish(gemm->context, row, col, rows, cols);
}

/* The same GEMM for gemm16.c, if another micro-kernel than that of micro.h is selected. Its panels have 32
 * lines and steps, so small GEMMs do not benefit. */
static bool split_of(const Gemm *gemm, Gemm16 *ret_split) {
    enum { LEAST = 32 };
    const Micro16 *micro = gemm->m < LEAST || gemm->n < LEAST || gemm->k < LEAST ? NULL : micro32_choose();
    if (!micro) return false;
    *ret_split = (Gemm16){.m = gemm->m,
                          .n = gemm->n,
                          .k = gemm->k,
                          .a = {gemm->a.data, DT_F32, gemm->a.stride, gemm->a.trans},
                          .b = {gemm->b.data, DT_F32, gemm->b.stride, gemm->b.trans},
                          .c = gemm->c,
                          .add = gemm->add,
                          .finish = gemm->finish ? split_finish : NULL,
                          .context = gemm,
                          .micro = micro};
    return true;
}

static int gemm_threads(const Stream *stream, const Gemm *gemm) {
    return threads_for(stream, gemm->m * gemm->n / 64 * gemm->k);
}

size_t gemm_workspace_bytes(const Stream *stream, const Gemm *gemm) {
    Gemm16 split;
    if (is_skinny(gemm) || blas_available()) return 0;
    if (split_of(gemm, &split)) return gemm16_split_bytes(&split);
    int threads = gemm_threads(stream, gemm);
    Plan plan = plan_of(gemm, threads);
    int64_t blocks = plan.depth <= plan.chunk ? 0 : threads * plan.block_rows * plan.block_cols;
    return (size_t)(plan.depth * (plan.rows + plan.cols) + blocks) * sizeof(float);
}

/* BLAS, followed by the epilogue over strips of rows. */
static void blas_run(int threads, const Gemm *gemm) {
    blas_gemm(threads, gemm->m, gemm->n, gemm->k, gemm->a, gemm->b, gemm->add ? 1.0f : 0.0f, gemm->c);
    if (!gemm->finish) return;
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(gemm->m, 1);
        if (mine.to > mine.from) gemm->finish(gemm->context, mine.from, 0, mine.to - mine.from, gemm->n);
    }
}

static void tiled_run(Pool *pool, int threads, const Gemm *gemm, void *workspace) {
    Plan plan = plan_of(gemm, threads);
    plan.left = workspace;
    plan.right = plan.left + plan.depth * plan.rows;
    plan.blocks = plan.right + plan.depth * plan.cols;
    Part part = {.gemm = gemm, .plan = &plan};
    for (part.col = 0; part.col < gemm->n; part.col += plan.cols) {
        part.cols = min_of(plan.cols, gemm->n - part.col);
        for (part.k = 0; part.k < gemm->k; part.k += plan.depth) {
            part.depth = min_of(plan.depth, gemm->k - part.k);
            for (part.row = 0; part.row < gemm->m; part.row += plan.rows) {
                part.rows = min_of(plan.rows, gemm->m - part.row);
                part_run(pool, &part);
            }
        }
    }
}

void gemm_run(const Stream *stream, const Gemm *gemm, void *workspace) {
    int threads = gemm_threads(stream, gemm);
    Pool *pool = threads > 1 ? stream->device->pool : NULL;
    Gemm16 split;
    if (is_skinny(gemm))
        skinny_run(threads, gemm);
    else if (blas_available())
        blas_run(threads, gemm);
    else if (split_of(gemm, &split))
        gemm16_split_run(pool, threads, &split, workspace);
    else
        tiled_run(pool, threads, gemm, workspace);
}
