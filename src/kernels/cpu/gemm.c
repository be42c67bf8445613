/* Products, by the matrix library where the build has one and otherwise by the scheme of Goto and van de
 * Geijn. The depth is cut so that a panel of each operand fits
 * the first cache; for each cut the threads together pack both operands, wait for each other, and then
 * take blocks of the result whose left panels fit the second cache.
 *
 * An element of the result is summed in the same order whoever computes it, so the bits do not depend on
 * the number of threads.
 */
#include "kernels/cpu/gemm.h"

#if defined(__aarch64__)
enum { DEPTH_MAX = 512 };
#else
enum { DEPTH_MAX = 256 };
#endif
/* Largest parts packed at a time, and the block of the result that one thread takes. */
enum { ROWS_MAX = 2048, COLS_MAX = 8192 / MICRO_COLS * MICRO_COLS };
enum { BLOCK_ROWS = 256, BLOCK_COLS = 480 / MICRO_COLS * MICRO_COLS };

/* How the product is cut. */
typedef struct Plan {
    int64_t depth, rows, cols;         /* packed at a time */
    int64_t block_rows, block_cols;    /* taken by a thread at a time */
    int64_t left_stride, right_stride; /* floats between packed panels */
    float *left, *right;
} Plan;

static int64_t round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* Cuts `size` into equal parts of at most `most`, multiples of `unit`. */
static int64_t even_part(int64_t size, int64_t most, int64_t unit) {
    int64_t parts = (size + most - 1) / most;
    return round_up((size + parts - 1) / parts, unit);
}

/* Blocks of the packed part, small enough that each thread gets some. */
static void plan_blocks(Plan *plan, int threads) {
    int64_t high = BLOCK_ROWS, wide = BLOCK_COLS;
    while (high * wide * 2 * threads > plan->rows * plan->cols && high + wide > 4 * (MICRO_ROWS + MICRO_COLS))
        *(high > wide ? &high : &wide) /= 2;
    plan->block_rows = even_part(plan->rows, high, MICRO_ROWS);
    plan->block_cols = even_part(plan->cols, wide, MICRO_COLS);
}

static Plan plan_of(const Gemm *gemm) {
    Plan plan = {
        .depth = even_part(gemm->k, DEPTH_MAX, 2),
        .rows = even_part(gemm->m, ROWS_MAX, MICRO_ROWS),
        .cols = even_part(gemm->n, COLS_MAX, MICRO_COLS),
    };
    plan.left_stride = plan.depth * MICRO_ROWS;
    plan.right_stride = plan.depth * MICRO_COLS;
    return plan;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Packs `lines` lines of steps [k, k + depth) from line `first` of the operand on, PACK_PANELS panels at a
 * time to a thread. `across`: the steps of a line lie side by side. */
static void pack(float *to, int width, GemmOperand operand, bool across, int64_t first, int64_t lines,
                 int64_t k, int64_t depth, int64_t panel_stride) {
    enum { PACK_PANELS = 8 };
    int64_t unit = PACK_PANELS * width;
#pragma omp for schedule(static) nowait
    for (int64_t line = 0; line < lines; line += unit) {
        float *panels = to + line / width * panel_stride;
        int64_t count = least(unit, lines - line), at = first + line;
        if (across)
            pack_across(panels, width, operand.data + at * operand.stride + k, operand.stride, count, depth,
                        panel_stride);
        else
            pack_along(panels, width, operand.data + k * operand.stride + at, operand.stride, count, depth,
                       panel_stride);
    }
}

/* One block: each right panel goes once through the first cache for all left panels. Meanwhile the next
 * one is fetched, a slice with every tile, so that its first tile does not wait for memory. */
static void block_run(const Plan *plan, int64_t depth, float *c, int64_t c_stride, int64_t row, int64_t rows,
                      int64_t col, int64_t cols, bool add) {
    enum { LINE = 16 };
    int64_t slice = round_up(depth * MICRO_COLS * MICRO_ROWS / rows, LINE);
    for (int64_t j = 0; j < cols; j += MICRO_COLS) {
        const float *right = plan->right + (col + j) / MICRO_COLS * plan->right_stride;
        const float *next = right + plan->right_stride;
        for (int64_t i = 0; i < rows; i += MICRO_ROWS) {
            for (int64_t ahead = 0; ahead < slice; ahead += LINE) __builtin_prefetch(next + ahead, 0, 2);
            next += slice;
            micro_edge(depth, plan->left + (row + i) / MICRO_ROWS * plan->left_stride, right,
                       c + i * c_stride + j, c_stride, add, least(MICRO_ROWS, rows - i),
                       least(MICRO_COLS, cols - j));
        }
    }
}

/* All blocks of the part of the result at (row0, col0), over steps [k, k + depth). */
static void part_run(const Gemm *gemm, const Plan *plan, int64_t row0, int64_t rows, int64_t col0,
                     int64_t cols, int64_t k, int64_t depth) {
    int64_t down = (rows + plan->block_rows - 1) / plan->block_rows;
    int64_t over = (cols + plan->block_cols - 1) / plan->block_cols;
#pragma omp for schedule(dynamic)
    for (int64_t block = 0; block < down * over; block++) {
        int64_t row = block / over * plan->block_rows, col = block % over * plan->block_cols;
        int64_t high = least(plan->block_rows, rows - row), wide = least(plan->block_cols, cols - col);
        float *c = gemm->c + (row0 + row) * gemm->n + col0 + col;
        block_run(plan, depth, c, gemm->n, row, high, col, wide, gemm->add || k > 0);
        if (gemm->finish && k + depth == gemm->k)
            gemm->finish(gemm->context, row0 + row, col0 + col, high, wide);
    }
}

/* Left operands of a few rows, as generation has them: packing the right one would cost more than the
 * product, which only has to read it once. Takes a right operand whose columns lie in rows. An element is
 * summed in the same order however many rows there are, so that a sequence gets the same bits alone and in a
 * batch. */
enum { DOT_ROWS = 4, DOT_COLS = 8 };
/* Columns of a tile of two rows or more; sums must fit the registers. */
#if defined(__aarch64__) || defined(__AVX512F__)
enum { DOT_COLS_TWO = 8, DOT_COLS_FOUR = 4 };
#else
enum { DOT_COLS_TWO = 4, DOT_COLS_FOUR = 2 };
#endif

static bool is_few(const Gemm *gemm) {
    return gemm->m <= FEW_ROWS && !gemm->a.trans && gemm->b.trans;
}

/* `rows` and `cols` are constants wherever this is called. */
static inline __attribute__((always_inline)) void dot_tile(const Gemm *gemm, int64_t row, int64_t col,
                                                           int rows, int cols) {
    VecF sum[DOT_ROWS][DOT_COLS] = {0};
    const float *a[DOT_ROWS], *b[DOT_COLS];
    for (int i = 0; i < rows; i++) a[i] = gemm->a.data + (row + i) * gemm->a.stride;
    for (int j = 0; j < cols; j++) b[j] = gemm->b.data + least(col + j, gemm->n - 1) * gemm->b.stride;
    int64_t k = 0;
    /* The next columns lie behind these; fetched meanwhile, they come as one stream and not as several. */
    const float *ahead = b[0] + cols * gemm->b.stride;
    for (; k + VEC <= gemm->k; k += VEC) {
        for (int line = 0; line < cols * VEC; line += 16) __builtin_prefetch(ahead + cols * k + line, 0, 2);
#pragma GCC unroll 8
        for (int j = 0; j < cols; j++) {
            const VecF right = vec_load(b[j] + k);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) sum[i][j] += vec_load(a[i] + k) * right;
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols && col + j < gemm->n; j++) {
            float total = vec_sum_of(sum[i][j]);
            for (int64_t rest = k; rest < gemm->k; rest++) total += a[i][rest] * b[j][rest];
            float *c = gemm->c + (row + i) * gemm->n + col + j;
            *c = gemm->add ? *c + total : total;
        }
}

/* DOT_COLS columns. */
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

static void few_run(int threads, const Gemm *gemm) {
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(gemm->n, 16);
        for (int64_t col = mine.from; col < mine.to; col += DOT_COLS) dot_columns(gemm, col);
        if (gemm->finish && mine.to > mine.from)
            gemm->finish(gemm->context, 0, mine.from, gemm->m, mine.to - mine.from);
    }
}

size_t gemm_space(const Gemm *gemm) {
    if (is_few(gemm) || blas_there()) return 0;
    Plan plan = plan_of(gemm);
    return (size_t)(plan.depth * (plan.rows + plan.cols)) * sizeof(float);
}

/* The library's product, then `finish` over strips of rows. */
static void blas_run(int threads, const Gemm *gemm) {
    blas_gemm(threads, gemm->m, gemm->n, gemm->k, gemm->a, gemm->b, gemm->add ? 1.0f : 0.0f, gemm->c);
    if (!gemm->finish) return;
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(gemm->m, 1);
        if (mine.to > mine.from) gemm->finish(gemm->context, mine.from, 0, mine.to - mine.from, gemm->n);
    }
}

static void tiles_run(int threads, const Gemm *gemm, void *space) {
    Plan plan = plan_of(gemm);
    plan_blocks(&plan, threads);
    plan.left = space;
    plan.right = plan.left + plan.depth * plan.rows;
#pragma omp parallel num_threads(threads)
    for (int64_t col = 0; col < gemm->n; col += plan.cols) {
        int64_t cols = least(plan.cols, gemm->n - col);
        for (int64_t k = 0; k < gemm->k; k += plan.depth) {
            int64_t depth = least(plan.depth, gemm->k - k);
            pack(plan.right, MICRO_COLS, gemm->b, gemm->b.trans, col, cols, k, depth, plan.right_stride);
            for (int64_t row = 0; row < gemm->m; row += plan.rows) {
                int64_t rows = least(plan.rows, gemm->m - row);
                pack(plan.left, MICRO_ROWS, gemm->a, !gemm->a.trans, row, rows, k, depth, plan.left_stride);
#pragma omp barrier
                part_run(gemm, &plan, row, rows, col, cols, k, depth);
            }
        }
    }
}

void gemm_run(const Stream *stream, const Gemm *gemm, void *space) {
    int threads = threads_for(stream, gemm->m * gemm->n / 64 * gemm->k);
    if (is_few(gemm))
        few_run(threads, gemm);
    else if (blas_there())
        blas_run(threads, gemm);
    else
        tiles_run(threads, gemm, space);
}
