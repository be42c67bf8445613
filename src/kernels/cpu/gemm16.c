/* Products of 16-bit operands, by the scheme of gemm.c with one difference: a result that is rounded must
 * be summed over the whole depth first. So the depth is packed whole (up to DEPTH_MAX), and a thread takes
 * a block through all its cuts into a buffer of its own before it hands the block to `finish`. Only depths
 * past DEPTH_MAX need a buffer as large as the packed part of the result.
 *
 * An element of the result is summed in the same order whoever computes it, so the bits do not depend on
 * the number of threads.
 */
#include "kernels/cpu/gemm16.h"

#include "kernels/cpu/half.h"
#include "kernels/cpu/micro.h"
#include "kernels/cpu/micro16.h"

/* Largest parts packed at a time, and the block of the result that one thread takes. */
enum { DEPTH_MAX = 4096, ROWS_MAX = 2048, COLS_MAX = 8192, COLS_BYTES = 32 << 20 };
enum { BLOCK_ROWS = 256, BLOCK_COLS = 240, TILE_MAX = 1024 };

typedef enum {
    SUMS_IN_C,     /* c takes them */
    SUMS_IN_BLOCK, /* one block a thread */
    SUMS_IN_PART,  /* the packed part of the result */
} SumsPlace;

/* How the product is cut. */
typedef struct Plan {
    const Micro16 *micro;
    size_t size;                    /* of a packed element */
    int64_t depth, rows, cols;      /* packed at a time; depth is padded */
    int64_t cut;                    /* steps that pass the caches at a time */
    int64_t block_rows, block_cols; /* taken by a thread at a time */
    SumsPlace place;
    char *left, *right;
    float *sums;
} Plan;

static int64_t round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* Cuts `size` into equal parts of at most `most`, multiples of `unit`. */
static int64_t even_part(int64_t size, int64_t most, int64_t unit) {
    int64_t parts = (size + most - 1) / most;
    return round_up((size + parts - 1) / parts, unit);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* fp32 panels, for fp16 and for machines without instructions for bf16. */
static void tile_converted(int64_t depth, const void *a, const void *b, float *c, int64_t c_stride,
                           bool add) {
    micro_tile(depth, a, b, c, c_stride, add);
}

static void across_converted(void *panels, bool left, PackSource s, int64_t panel_stride) {
    pack_across(panels, left ? MICRO_ROWS : MICRO_COLS, s.from, s.stride, s.lines, s.depth, panel_stride);
}

static void along_converted(void *panels, bool left, PackSource s, int64_t panel_stride) {
    pack_along(panels, left ? MICRO_ROWS : MICRO_COLS, s.from, s.stride, s.lines, s.depth, panel_stride);
}

static const Micro16 micro16_converted = {
    .name = "converted",
    .dtype = DT_F32,
    .rows = MICRO_ROWS,
    .cols = MICRO_COLS,
    .unit = 1,
    .depth = VEC == 4 ? 512 : 256,
    .tile = tile_converted,
    .pack_across = across_converted,
    .pack_along = along_converted,
};

static Status micro_for(const Gemm16 *gemm, const Micro16 **ret_micro) {
    const Micro16 *micro = NULL;
    if (gemm->a.dtype != DT_F16 && gemm->b.dtype != DT_F16) TRY(micro16_choose(&micro));
    *ret_micro = micro ? micro : &micro16_converted;
    return OK;
}

/* Blocks of the packed part, small enough that each thread gets some. */
static void plan_blocks(Plan *plan, int threads) {
    int rows = plan->micro->rows, cols = plan->micro->cols;
    int64_t high = BLOCK_ROWS, wide = BLOCK_COLS / cols * cols;
    while (high * wide * 2 * threads > plan->rows * plan->cols && high + wide > 4 * (rows + cols))
        *(high > wide ? &high : &wide) /= 2;
    plan->block_rows = even_part(plan->rows, high, rows);
    plan->block_cols = even_part(plan->cols, wide, cols);
}

static Plan plan_of(const Gemm16 *gemm, const Micro16 *micro, int threads) {
    Plan plan = {.micro = micro, .size = dtype_size(micro->dtype)};
    plan.depth = even_part(gemm->k, DEPTH_MAX, micro->unit);
    plan.cut = even_part(plan.depth, micro->depth, micro->unit);
    plan.rows = even_part(gemm->m, ROWS_MAX, micro->rows);
    int64_t most = least(COLS_MAX, COLS_BYTES / (plan.depth * (int64_t)plan.size));
    plan.cols = even_part(gemm->n, most / micro->cols * micro->cols, micro->cols);
    plan.place = gemm->c ? SUMS_IN_C : gemm->k <= plan.depth ? SUMS_IN_BLOCK : SUMS_IN_PART;
    plan_blocks(&plan, threads);
    return plan;
}

/* Lays the plan's buffers out one after another. */
static Status plan_space(Plan *plan, Stream *stream, int threads) {
    enum { ALIGN = 64 };
    int64_t sums = plan->place == SUMS_IN_C       ? 0
                   : plan->place == SUMS_IN_BLOCK ? threads * plan->block_rows * plan->block_cols
                                                  : plan->rows * plan->cols;
    int64_t left = round_up(plan->depth * plan->rows * (int64_t)plan->size, ALIGN);
    int64_t right = round_up(plan->depth * plan->cols * (int64_t)plan->size, ALIGN);
    void *space;
    TRY(stream_workspace(stream, (size_t)(left + right) + (size_t)sums * sizeof(float), &space));
    plan->left = space;
    plan->right = plan->left + left;
    plan->sums = (float *)(void *)(plan->right + right);
    return OK;
}

/* Packs lines whose elements have another type than the panels: piece by piece through a buffer that
 * stays in the cache. */
enum { STAGE_STEPS = 32, STAGE_LINES = 384, STAGE = STAGE_STEPS * STAGE_LINES };

static void stage_convert(void *stage, DType to, int64_t at, const void *from, DType dtype, int64_t from_at,
                          int64_t n) {
    if (to == DT_F32)
        half_load((float *)stage + at, from, dtype, from_at, n);
    else
        half_store(stage, to, at, (const float *)from + from_at, n);
}

/* A piece of so many lines and steps at once, `at` being its first element in the operand. */
static void pack_staged(const Plan *plan, char *panels, bool left, Operand16 operand, bool across, int64_t at,
                        int64_t lines, int64_t depth) {
    const Micro16 *micro = plan->micro;
    int width = left ? micro->rows : micro->cols;
    int64_t high = across ? width : STAGE_LINES / width * width;
    int64_t deep = across ? STAGE / width / STAGE_STEPS * STAGE_STEPS : STAGE_STEPS;
    float stage[STAGE];
    for (int64_t line = 0; line < lines; line += high)
        for (int64_t k = 0; k < depth; k += deep) {
            PackSource piece = {stage, across ? deep : high, least(high, lines - line),
                                least(deep, depth - k)};
            int64_t rows = across ? piece.lines : piece.depth, cols = across ? piece.depth : piece.lines;
            int64_t from = at + (across ? line * operand.stride + k : k * operand.stride + line);
            for (int64_t row = 0; row < rows; row++)
                stage_convert(stage, micro->dtype, row * piece.stride, operand.data, operand.dtype,
                              from + row * operand.stride, cols);
            char *to = panels + (line * plan->depth + k * width) * (int64_t)plan->size;
            (across ? micro->pack_across : micro->pack_along)(to, left, piece, plan->depth * width);
        }
}

/* Packs `lines` lines of steps [k, k + depth) from line `first` of the operand on, PACK_PANELS panels at a
 * time to a thread. The steps of a line lie side by side if `across`. */
static void pack(const Plan *plan, bool left, Operand16 operand, int64_t first, int64_t lines, int64_t k,
                 int64_t depth) {
    enum { PACK_PANELS = 8 };
    const Micro16 *micro = plan->micro;
    bool across = left ? !operand.trans : operand.trans;
    int width = left ? micro->rows : micro->cols;
    int64_t unit = PACK_PANELS * width, size = (int64_t)plan->size;
    char *to = left ? plan->left : plan->right;
#pragma omp for schedule(static) nowait
    for (int64_t line = 0; line < lines; line += unit) {
        char *panels = to + line * plan->depth * size;
        int64_t count = least(unit, lines - line);
        int64_t at = across ? (first + line) * operand.stride + k : k * operand.stride + first + line;
        if (operand.dtype != micro->dtype) {
            pack_staged(plan, panels, left, operand, across, at, count, depth);
            continue;
        }
        PackSource source = {(const char *)operand.data + at * size, operand.stride, count, depth};
        (across ? micro->pack_across : micro->pack_along)(panels, left, source, plan->depth * width);
    }
}

/* A tile of which only rows x cols exist. */
static void tile_edge(const Micro16 *micro, int64_t depth, const void *a, const void *b, float *c,
                      int64_t c_stride, bool add, int64_t rows, int64_t cols) {
    if (rows == micro->rows && cols == micro->cols) {
        micro->tile(depth, a, b, c, c_stride, add);
        return;
    }
    float tile[TILE_MAX];
    micro->tile(depth, a, b, tile, micro->cols, false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float sum = tile[i * micro->cols + j];
            c[i * c_stride + j] = add ? c[i * c_stride + j] + sum : sum;
        }
}

/* A block of the result: rows x cols at (row, col) of the packed part, summed up at c. */
typedef struct Block {
    int64_t row, col, rows, cols;
    float *c;
    int64_t c_stride;
} Block;

/* One cut of a block: each right panel goes once through the first cache for all left panels. Meanwhile
 * the next one is fetched, a slice with every tile, so that its first tile does not wait for memory. */
static void block_cut(const Plan *plan, const Block *block, int64_t k, int64_t depth, bool add) {
    enum { LINE = 64 };
    const Micro16 *micro = plan->micro;
    int64_t size = (int64_t)plan->size, rows = micro->rows, cols = micro->cols;
    int64_t slice = round_up(depth * cols * size * rows / block->rows, LINE);
    for (int64_t j = 0; j < block->cols; j += cols) {
        const char *right = plan->right + ((block->col + j) * plan->depth + k * cols) * size;
        const char *next = right + plan->depth * cols * size;
        for (int64_t i = 0; i < block->rows; i += rows) {
            for (int64_t ahead = 0; ahead < slice; ahead += LINE) __builtin_prefetch(next + ahead, 0, 2);
            next += slice;
            const char *left = plan->left + ((block->row + i) * plan->depth + k * rows) * size;
            tile_edge(micro, depth, left, right, block->c + i * block->c_stride + j, block->c_stride, add,
                      least(rows, block->rows - i), least(cols, block->cols - j));
        }
    }
}

/* Where a block of the part at (row0, col0) is summed up. */
static void block_place(const Gemm16 *gemm, const Plan *plan, Block *block, int64_t row0, int64_t col0) {
    int64_t row = block->row, col = block->col;
    if (plan->place == SUMS_IN_C) {
        block->c_stride = gemm->n;
        block->c = gemm->c + (row0 + row) * gemm->n + col0 + col;
    } else if (plan->place == SUMS_IN_PART) {
        block->c_stride = plan->cols;
        block->c = plan->sums + row * plan->cols + col;
    } else {
        block->c_stride = plan->block_cols;
        block->c = plan->sums + omp_get_thread_num() * plan->block_rows * plan->block_cols;
    }
}

/* All blocks of the part of the result at (row0, col0), over the packed steps [k, k + depth). */
static void part_run(const Gemm16 *gemm, const Plan *plan, int64_t row0, int64_t rows, int64_t col0,
                     int64_t cols, int64_t k, int64_t depth) {
    int64_t down = (rows + plan->block_rows - 1) / plan->block_rows;
    int64_t over = (cols + plan->block_cols - 1) / plan->block_cols;
#pragma omp for schedule(dynamic)
    for (int64_t at = 0; at < down * over; at++) {
        Block block = {.row = at / over * plan->block_rows, .col = at % over * plan->block_cols};
        block.rows = least(plan->block_rows, rows - block.row);
        block.cols = least(plan->block_cols, cols - block.col);
        block_place(gemm, plan, &block, row0, col0);
        for (int64_t cut = 0; cut < depth; cut += plan->cut)
            block_cut(plan, &block, cut, least(plan->cut, depth - cut),
                      (gemm->c && gemm->add) || k + cut > 0);
        if (gemm->finish && k + depth >= gemm->k)
            gemm->finish(gemm->context, block.c, block.c_stride, row0 + block.row, col0 + block.col,
                         block.rows, block.cols);
    }
}

static void parts_run(const Gemm16 *gemm, const Plan *plan) {
    const Micro16 *micro = plan->micro;
    if (micro->begin) micro->begin();
    for (int64_t col = 0; col < gemm->n; col += plan->cols) {
        int64_t cols = least(plan->cols, gemm->n - col);
        for (int64_t row = 0; row < gemm->m; row += plan->rows) {
            int64_t rows = least(plan->rows, gemm->m - row);
            for (int64_t k = 0; k < gemm->k; k += plan->depth) {
                int64_t depth = least(plan->depth, gemm->k - k);
                if (row == 0 || gemm->k > plan->depth) pack(plan, false, gemm->b, col, cols, k, depth);
                pack(plan, true, gemm->a, row, rows, k, depth);
#pragma omp barrier
                part_run(gemm, plan, row, rows, col, cols, k, round_up(depth, micro->unit));
            }
        }
    }
    if (micro->end) micro->end();
}

static Status tiles_run(Stream *stream, int threads, const Gemm16 *gemm) {
    const Micro16 *micro = NULL;
    TRY(micro_for(gemm, &micro));
    Plan plan = plan_of(gemm, micro, threads);
    TRY(plan_space(&plan, stream, threads));
#pragma omp parallel num_threads(threads)
    parts_run(gemm, &plan);
    return OK;
}

/* Left operands of a few rows, as generation has them: packing the right one would cost more than the
 * product, which only has to read it once. Takes a right operand whose columns lie in rows. See gemm.c. */
enum { DOT_ROWS = 4, DOT_COLS = 4 };

static bool is_few(const Gemm16 *gemm) {
    return gemm->m <= FEW_ROWS && !gemm->a.trans && gemm->b.trans && gemm->b.dtype != DT_F32;
}

/* The left operand as fp32, rows k apart, and where the sums go, rows n apart. */
typedef struct Few {
    const Gemm16 *gemm;
    float *left, *sums;
    const Micro16 *micro; /* takes both operands as they are; NULL: none does */
} Few;

/* `rows` and `load` are constants wherever this is called. */
static inline __attribute__((always_inline)) void dot_tile(const Few *few, int64_t row, int64_t col, int rows,
                                                           VecF (*load)(const uint16_t *)) {
    const Gemm16 *gemm = few->gemm;
    VecF sum[DOT_ROWS][DOT_COLS] = {0};
    const float *a[DOT_ROWS];
    const uint16_t *b[DOT_COLS];
    for (int i = 0; i < rows; i++) a[i] = few->left + (row + i) * gemm->k;
    for (int j = 0; j < DOT_COLS; j++)
        b[j] = (const uint16_t *)gemm->b.data + least(col + j, gemm->n - 1) * gemm->b.stride;
    int64_t k = 0;
    for (; k + VEC <= gemm->k; k += VEC)
        for (int j = 0; j < DOT_COLS; j++) {
            VecF right = load(b[j] + k);
            for (int i = 0; i < rows; i++) sum[i][j] += vec_load(a[i] + k) * right;
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < DOT_COLS && col + j < gemm->n; j++) {
            float total = vec_sum_of(sum[i][j]), right;
            for (int64_t rest = k; rest < gemm->k; rest++) {
                half_load(&right, b[j], gemm->b.dtype, rest, 1);
                total += a[i][rest] * right;
            }
            float *c = few->sums + (row + i) * gemm->n + col + j;
            *c = gemm->c && gemm->add ? *c + total : total;
        }
}

static inline __attribute__((always_inline)) void dot_columns(const Few *few, int64_t col,
                                                              VecF (*load)(const uint16_t *)) {
    int64_t row = 0, m = few->gemm->m;
    for (; row + DOT_ROWS <= m; row += DOT_ROWS) dot_tile(few, row, col, DOT_ROWS, load);
    for (; row + 2 <= m; row += 2) dot_tile(few, row, col, 2, load);
    if (row < m) dot_tile(few, row, col, 1, load);
}

/* The same for FEW_COLS columns by the machine's own instructions. */
static void few_columns(const Few *few, int64_t col, int64_t end) {
    const Gemm16 *gemm = few->gemm;
    few->micro->few(gemm->k, gemm->m, gemm->a.data, gemm->a.stride, (int)least(FEW_COLS, end - col),
                    (const uint16_t *)gemm->b.data + col * gemm->b.stride, gemm->b.stride, few->sums + col,
                    gemm->n);
}

static void few_part(const Few *few, Range mine) {
    const Gemm16 *gemm = few->gemm;
    if (few->micro)
        for (int64_t col = mine.from; col < mine.to; col += FEW_COLS) few_columns(few, col, mine.to);
    else if (gemm->b.dtype == DT_BF16)
        for (int64_t col = mine.from; col < mine.to; col += DOT_COLS) dot_columns(few, col, vec_load_bf16);
    else
        for (int64_t col = mine.from; col < mine.to; col += DOT_COLS) dot_columns(few, col, vec_load_f16);
}

static Status few_run(Stream *stream, int threads, const Gemm16 *gemm) {
    int64_t m = gemm->m, n = gemm->n, k = gemm->k;
    const Micro16 *micro = NULL;
    if (gemm->a.dtype == DT_BF16 && gemm->b.dtype == DT_BF16) TRY(micro16_choose(&micro));
    if (micro && (!micro->few || (gemm->c && gemm->add))) micro = NULL;
    int64_t left = micro ? 0 : m * k;
    void *space;
    TRY(stream_workspace(stream, (size_t)(left + (gemm->c ? 0 : m * n)) * sizeof(float), &space));
    Few few = {gemm, space, gemm->c ? gemm->c : (float *)space + left, micro};
    for (int64_t row = 0; row < m && !micro; row++)
        half_load(few.left + row * k, gemm->a.data, gemm->a.dtype, row * gemm->a.stride, k);
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(n, 16);
        few_part(&few, mine);
        if (gemm->finish && mine.to > mine.from)
            gemm->finish(gemm->context, few.sums + mine.from, n, 0, mine.from, m, mine.to - mine.from);
    }
    return OK;
}

Status gemm16_run(Stream *stream, const Gemm16 *gemm) {
    int threads = threads_for(stream, gemm->m * gemm->n / 64 * gemm->k);
    return is_few(gemm) ? few_run(stream, threads, gemm) : tiles_run(stream, threads, gemm);
}
