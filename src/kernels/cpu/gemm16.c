/* GEMM with 16-bit operands, by the algorithm of gemm.c with one difference: a result that is rounded must
 * first be accumulated over the whole of K. Therefore K is packed as a whole (up to DEPTH_MAX), and a
 * thread takes a block through all chunks of K in a private buffer before passing it to the epilogue. Only
 * K > DEPTH_MAX needs a buffer as large as the packed part of the result.
 *
 * A block of an fp32 result is also accumulated in the private buffer and then stored or added. Its rows in
 * the result are far apart, and every chunk would load and store them again.
 *
 * Every element of the result is accumulated in the same order, whichever thread computes it, so the result
 * does not depend on the number of threads. */
#include "kernels/cpu/gemm16.h"

#include "kernels/cpu/map.h"
#include "kernels/cpu/micro.h"
#include "kernels/cpu/micro16.h"

/* Limits of what is packed at a time, and of the block of the result that one thread takes. */
enum { DEPTH_MAX = 4096, ROWS_MAX = 2048, COLS_MAX = 8192, COLS_BYTES = 32 << 20 };
enum { BLOCK_ROWS = 256, BLOCK_COLS = 240, TILE_MAX = 1024 };

/* How the GEMM is partitioned. */
typedef struct Plan {
    const Micro16 *micro;
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

static int64_t round_up(int64_t value, int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The size of equal parts of `size` that are at most `limit`, rounded up to a multiple of `unit`. */
static int64_t even_part(int64_t size, int64_t limit, int64_t unit) {
    int64_t parts = (size + limit - 1) / limit;
    return round_up((size + parts - 1) / parts, unit);
}

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* fp32 panels, for fp16 and for CPUs without bf16 instructions. */
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
    .size = sizeof(float),
    .rows = MICRO_ROWS,
    .cols = MICRO_COLS,
    .unit = 1,
    .depth = VEC == 4 ? 512 : 256,
    .tile = tile_converted,
    .pack_across = across_converted,
    .pack_along = along_converted,
};

static Status micro_for(const Gemm16 *gemm, const Micro16 **ret_micro) {
    const Micro16 *micro = gemm->micro;
    if (!micro && gemm->a.dtype != DT_F16 && gemm->b.dtype != DT_F16) TRY(micro16_choose(&micro));
    *ret_micro = micro ? micro : &micro16_converted;
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
    int64_t count = ((plan->rows + height - 1) / height) * ((plan->cols + width - 1) / width);
    int64_t each = (count + threads - 1) / threads * TENTHS + (threads > 1 ? 1 : 0);
    return each * (height * width + OVERHEAD * (height + width));
}

/* Chooses the blocks of the packed part, of several sizes up to BLOCK_ROWS x BLOCK_COLS. */
static void plan_blocks(Plan *plan, int threads) {
    enum { SIZES = 8, LEAST = 2 };
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
    plan->left_panels = panels_each(plan->rows / rows, threads);
    plan->right_panels = panels_each(plan->cols / cols, threads);
}

static Plan plan_of(const Gemm16 *gemm, const Micro16 *micro, int threads) {
    Plan plan = {.micro = micro, .size = micro->size};
    plan.depth = even_part(gemm->k, DEPTH_MAX, micro->unit);
    plan.chunk = even_part(plan.depth, micro->depth, micro->unit);
    plan.rows = even_part(gemm->m, ROWS_MAX, micro->rows);
    int64_t limit = min_of(COLS_MAX, COLS_BYTES / (plan.depth * plan.size));
    plan.cols = even_part(gemm->n, limit / micro->cols * micro->cols, micro->cols);
    plan.direct = gemm->c && (gemm->micro || plan.depth <= plan.chunk);
    plan.resumes = !gemm->c && gemm->k > plan.depth;
    plan_blocks(&plan, threads);
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

/* Packing of an operand whose type is not that of the panels, other than from bf16 to fp32: it is converted
 * chunk by chunk in a buffer that stays in the cache. */
enum { STAGE_STEPS = 32, STAGE_LINES = 384, STAGE = STAGE_STEPS * STAGE_LINES };

static void stage_convert(void *stage, DType to, int64_t at, const void *from, DType dtype, int64_t from_at,
                          int64_t n) {
    if (to == DT_F32)
        half_load((float *)stage + at, from, dtype, from_at, n);
    else
        half_store(stage, to, at, (const float *)from + from_at, n);
}

/* Packs `lines` lines of `depth` steps; `at` is the index of the first element in the operand. */
static void pack_staged(const Plan *plan, char *panels, bool left, Operand16 operand, bool across, int64_t at,
                        int64_t lines, int64_t depth) {
    const Micro16 *micro = plan->micro;
    int width = left ? micro->rows : micro->cols;
    int64_t height = across ? width : STAGE_LINES / width * width;
    int64_t deep = across ? STAGE / width / STAGE_STEPS * STAGE_STEPS : STAGE_STEPS;
    float stage[STAGE];
    for (int64_t line = 0; line < lines; line += height)
        for (int64_t k = 0; k < depth; k += deep) {
            PackSource source = {stage, across ? deep : height, min_of(height, lines - line),
                                 min_of(deep, depth - k)};
            int64_t rows = across ? source.lines : source.depth, cols = across ? source.depth : source.lines;
            int64_t from = at + (across ? line * operand.stride + k : k * operand.stride + line);
            for (int64_t row = 0; row < rows; row++)
                stage_convert(stage, micro->dtype, row * source.stride, operand.data, operand.dtype,
                              from + row * operand.stride, cols);
            char *to = panels + (line * plan->depth + k * width) * plan->size;
            (across ? micro->pack_across : micro->pack_along)(to, left, source, plan->depth * width);
        }
}

/* What is packed at a time: steps [k, k + depth) of rows and columns. */
typedef struct Part {
    const Gemm16 *gemm;
    const Plan *plan;
    int64_t row, rows, col, cols, k, depth;
    int64_t left_tasks, right_tasks; /* packing; right_tasks is 0 if the right operand is packed already */
} Part;

/* Packs left_panels or right_panels panels of an operand, or as many as there are, from line `from` of the
 * part. `across`: the steps of a line are contiguous. */
static void pack_panels(const Part *part, bool left, int64_t from) {
    const Plan *plan = part->plan;
    const Micro16 *micro = plan->micro;
    Operand16 operand = left ? part->gemm->a : part->gemm->b;
    bool across = left ? !operand.trans : operand.trans;
    int width = left ? micro->rows : micro->cols;
    int64_t size = plan->size, line = (left ? part->row : part->col) + from;
    int64_t most = (left ? plan->left_panels : plan->right_panels) * width;
    int64_t count = min_of(most, (left ? part->rows : part->cols) - from);
    char *panels = (left ? plan->left : plan->right) + from * plan->depth * size;
    int64_t at = across ? line * operand.stride + part->k : part->k * operand.stride + line;
    if (operand.dtype == DT_BF16 && micro == &micro16_converted) {
        (across ? pack_across_bf16 : pack_along_bf16)((float *)(void *)panels, width,
                                                      (const uint16_t *)operand.data + at, operand.stride,
                                                      count, part->depth, plan->depth * width);
        return;
    }
    if (operand.dtype != micro->dtype) {
        pack_staged(plan, panels, left, operand, across, at, count, part->depth);
        return;
    }
    const char *data = (const char *)operand.data + at * (int64_t)dtype_size(operand.dtype);
    PackSource source = {data, operand.stride, count, part->depth};
    (across ? micro->pack_across : micro->pack_along)(panels, left, source, plan->depth * width);
}

static void pack_task(const void *context, int64_t task, int thread) {
    (void)thread;
    const Part *part = context;
    const Micro16 *micro = part->plan->micro;
    int64_t left = task - part->right_tasks;
    if (left < 0)
        pack_panels(part, false, task * part->plan->right_panels * micro->cols);
    else
        pack_panels(part, true, left * part->plan->left_panels * micro->rows);
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
    enum { LINE = 64 };
    const Micro16 *micro = plan->micro;
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
    const Gemm16 *gemm = part->gemm;
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
    const Gemm16 *gemm = part->gemm;
    const Plan *plan = part->plan;
    const Micro16 *micro = plan->micro;
    int64_t over = (part->cols + plan->block_cols - 1) / plan->block_cols;
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
        gemm->finish(gemm->context, block.c, block.c_stride, part->row + block.row, part->col + block.col,
                     block.rows, block.cols);
}

static int64_t parts_of(int64_t size, int64_t each) {
    return (size + each - 1) / each;
}

static void part_run(Pool *pool, Part *part) {
    const Plan *plan = part->plan;
    bool again = part->row > 0 && part->gemm->k <= plan->depth;
    part->left_tasks = parts_of(part->rows, plan->left_panels * plan->micro->rows);
    part->right_tasks = again ? 0 : parts_of(part->cols, plan->right_panels * plan->micro->cols);
    pool_run(pool, part->left_tasks + part->right_tasks, pack_task, part);
    pool_run(pool, parts_of(part->rows, plan->block_rows) * parts_of(part->cols, plan->block_cols),
             block_task, part);
}

static void parts_run(Pool *pool, const Gemm16 *gemm, const Plan *plan) {
    Part part = {.gemm = gemm, .plan = plan};
    for (part.col = 0; part.col < gemm->n; part.col += plan->cols) {
        part.cols = min_of(plan->cols, gemm->n - part.col);
        for (part.row = 0; part.row < gemm->m; part.row += plan->rows) {
            part.rows = min_of(plan->rows, gemm->m - part.row);
            for (part.k = 0; part.k < gemm->k; part.k += plan->depth) {
                part.depth = min_of(plan->depth, gemm->k - part.k);
                part_run(pool, &part);
            }
        }
    }
}

static Status tiled_run(Stream *stream, int threads, const Gemm16 *gemm) {
    const Micro16 *micro = NULL;
    TRY(micro_for(gemm, &micro));
    Plan plan = plan_of(gemm, micro, threads);
    void *workspace;
    TRY(stream_workspace(stream, plan_bytes(&plan, threads), &workspace));
    plan_place(&plan, workspace);
    parts_run(threads > 1 ? stream->device->pool : NULL, gemm, &plan);
    return OK;
}

size_t gemm16_split_bytes(const Gemm16 *gemm) {
    Plan plan = plan_of(gemm, gemm->micro, 1);
    return plan_bytes(&plan, 1);
}

void gemm16_split_run(Pool *pool, int threads, const Gemm16 *gemm, void *workspace) {
    Plan plan = plan_of(gemm, gemm->micro, threads);
    plan_place(&plan, workspace);
    parts_run(pool, gemm, &plan);
}

/* Skinny GEMM, without packing; see gemm.c. */
enum { DOT_ROWS = 4, DOT_COLS = 4, PREFETCH_BYTES = 8192 };
/* ONE_BY_ONE: whether a single row is multiplied by one column after the other; x86 CPUs prefetch one stream
 * best, this many bytes ahead. PREFETCH_FOUR: whether the first tile of four rows prefetches, too. */
#if defined(__x86_64__)
enum { ONE_BY_ONE = 1, AHEAD = 3072, PREFETCH_FOUR = 1 };
#else
enum { ONE_BY_ONE = 0, AHEAD = 0, PREFETCH_FOUR = 0 };
#endif
/* Columns of a tile of two and of four rows; the accumulators must fit the registers. SUMS: accumulators per
 * element. With AVX2, the latency of a single one would limit the bandwidth. */
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { DOT_COLS_TWO = 2, DOT_COLS_FOUR = 1, SUMS = 2 };
#elif defined(__aarch64__) || defined(__AVX512F__)
enum { DOT_COLS_TWO = 4, DOT_COLS_FOUR = 4, SUMS = 1 };
#else
enum { DOT_COLS_TWO = 4, DOT_COLS_FOUR = 2, SUMS = 1 };
#endif

static bool is_skinny(const Gemm16 *gemm) {
    return gemm->m <= SKINNY_ROWS && !gemm->a.trans && gemm->b.trans && gemm->b.dtype != DT_F32;
}

/* A skinny GEMM: its left operand in fp32, with rows k apart, and its result, with rows n apart. */
typedef struct Skinny {
    const Gemm16 *gemm;
    float *left, *sums;
    const Micro16 *micro; /* reads both operands unconverted; NULL: not available */
} Skinny;

/* PAIR consecutive elements as two vectors: for bf16 those of even and of odd index, which takes one
 * instruction per vector, and for fp16 the first and the second half. */
static ALWAYS_INLINE VecPair load_pair(DType dtype, const uint16_t *from) {
    if (dtype == DT_F16) return (VecPair){vec_load_f16(from), vec_load_f16(from + VEC)};
    return pair_load_bf16(from);
}

/* A row of the left operand in fp32, with elements in the order of load_pair. The rest after the last full
 * pair of vectors stays in order. */
static void load_left(const Skinny *skinny, int64_t row) {
    const Gemm16 *gemm = skinny->gemm;
    float *to = skinny->left + row * gemm->k;
    half_load(to, gemm->a.data, gemm->a.dtype, row * gemm->a.stride, gemm->k);
    if (gemm->b.dtype == DT_F16) return;
    for (int64_t k = 0; k + PAIR <= gemm->k; k += PAIR) {
        float pair[PAIR];
        memcpy(pair, to + k, sizeof pair);
        for (int i = 0; i < VEC; i++) {
            to[k + i] = pair[2 * i];
            to[k + VEC + i] = pair[2 * i + 1];
        }
    }
}

/* The sums of an element. */
typedef struct Dot {
    VecF part[SUMS];
} Dot;

static ALWAYS_INLINE void dot_add(Dot *dot, const float *a, VecPair right) {
    dot->part[0] += vec_load(a) * right.a;
    dot->part[SUMS - 1] += vec_load(a + VEC) * right.b;
}

/* One row times one column, without the rest after the last full pair of vectors. A step is a cache line of
 * the column. */
static ALWAYS_INLINE Dot dot_one(const float *a, const uint16_t *b, int64_t depth, DType dtype) {
    enum { LINE = 32 };
    Dot dot = {0};
    int64_t k = 0;
    for (; k + LINE <= depth; k += LINE) {
        __builtin_prefetch((const char *)(b + k) + AHEAD, 0, 3);
#pragma GCC unroll 4
        for (int step = 0; step < LINE; step += PAIR)
            dot_add(&dot, a + k + step, load_pair(dtype, b + k + step));
    }
    for (; k < depth; k += PAIR) dot_add(&dot, a + k, load_pair(dtype, b + k));
    return dot;
}

/* `rows`, `cols`, `dtype` and `prefetch` are constants at the call sites; rows * cols is a multiple of 4.
 * Columns are contiguous in memory, so they are prefetched in that order as a single stream. */
static ALWAYS_INLINE void dot_tile(const Skinny *skinny, int64_t row, int64_t col, int rows, int cols,
                                   DType dtype, bool prefetch) {
    const Gemm16 *gemm = skinny->gemm;
    Dot dot[DOT_ROWS * DOT_COLS] = {0};
    float total[DOT_ROWS * DOT_COLS];
    const float *a[DOT_ROWS];
    const uint16_t *b[DOT_COLS];
    for (int i = 0; i < rows; i++) a[i] = skinny->left + (row + i) * gemm->k;
    for (int j = 0; j < cols; j++)
        b[j] = (const uint16_t *)gemm->b.data + min_of(col + j, gemm->n - 1) * gemm->b.stride;
    int64_t k = 0, full = gemm->k / PAIR * PAIR;
    if (rows == 1 && ONE_BY_ONE) {
        for (int j = 0; j < cols; j++) dot[j] = dot_one(a[0], b[j], full, dtype);
        k = full;
    }
    const char *ahead = (const char *)b[0] + cols * gemm->b.stride * 2 + PREFETCH_BYTES;
    for (; k < full; k += PAIR) {
        for (int line = 0; line < cols * PAIR * 2 && prefetch; line += 64)
            __builtin_prefetch(ahead + cols * k * 2 + line, 0, 2);
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++) {
            const VecPair right = load_pair(dtype, b[j] + k);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) dot_add(&dot[i * cols + j], a[i] + k, right);
        }
    }
#pragma GCC unroll 4
    for (int at = 0; at < rows * cols; at += 4) {
        VecF four[4];
        for (int i = 0; i < 4; i++)
            four[i] = SUMS > 1 ? dot[at + i].part[0] + dot[at + i].part[SUMS - 1] : dot[at + i].part[0];
        vec_sum_four(total + at, four);
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols && col + j < gemm->n; j++) {
            float all = total[i * cols + j];
            for (int64_t rest = full; rest < gemm->k; rest++) all += a[i][rest] * half_get(b[j], dtype, rest);
            float *c = skinny->sums + (row + i) * gemm->n + col + j;
            *c = gemm->c && gemm->add ? *c + all : all;
        }
}

/* All rows of DOT_COLS columns. */
static ALWAYS_INLINE void dot_columns(const Skinny *skinny, int64_t col, DType dtype) {
    int64_t row = 0, m = skinny->gemm->m, n = skinny->gemm->n;
    for (; row + DOT_ROWS <= m; row += DOT_ROWS)
        for (int j = 0; j < DOT_COLS && col + j < n; j += DOT_COLS_FOUR)
            dot_tile(skinny, row, col + j, DOT_ROWS, DOT_COLS_FOUR, dtype, PREFETCH_FOUR && row == 0);
    for (; row + 2 <= m; row += 2)
        for (int j = 0; j < DOT_COLS && col + j < n; j += DOT_COLS_TWO)
            dot_tile(skinny, row, col + j, 2, DOT_COLS_TWO, dtype, true);
    if (row < m) dot_tile(skinny, row, col, 1, DOT_COLS, dtype, true);
}

/* The same for SKINNY_COLS columns, with bf16 instructions. */
static void skinny_columns(const Skinny *skinny, int64_t col, int64_t end) {
    const Gemm16 *gemm = skinny->gemm;
    skinny->micro->skinny(gemm->k, gemm->m, gemm->a.data, gemm->a.stride, (int)min_of(SKINNY_COLS, end - col),
                          (const uint16_t *)gemm->b.data + col * gemm->b.stride, gemm->b.stride,
                          skinny->sums + col, gemm->n);
}

static void skinny_part(const Skinny *skinny, Range mine) {
    const Gemm16 *gemm = skinny->gemm;
    if (skinny->micro)
        for (int64_t col = mine.from; col < mine.to; col += SKINNY_COLS) skinny_columns(skinny, col, mine.to);
    else if (gemm->b.dtype == DT_BF16)
        for (int64_t col = mine.from; col < mine.to; col += DOT_COLS) dot_columns(skinny, col, DT_BF16);
    else
        for (int64_t col = mine.from; col < mine.to; col += DOT_COLS) dot_columns(skinny, col, DT_F16);
}

static Status skinny_run(Stream *stream, int threads, const Gemm16 *gemm) {
    int64_t m = gemm->m, n = gemm->n, k = gemm->k;
    const Micro16 *micro = NULL;
    if (gemm->a.dtype == DT_BF16 && gemm->b.dtype == DT_BF16) TRY(micro16_choose(&micro));
    if (micro && (!micro->skinny || (gemm->c && gemm->add))) micro = NULL;
    int64_t left = micro ? 0 : m * k;
    void *workspace;
    TRY(stream_workspace(stream, (size_t)(left + (gemm->c ? 0 : m * n)) * sizeof(float), &workspace));
    Skinny skinny = {gemm, workspace, gemm->c ? gemm->c : (float *)workspace + left, micro};
    for (int64_t row = 0; row < m && !micro; row++) load_left(&skinny, row);
#pragma omp parallel num_threads(threads)
    {
        Range mine = range_mine(n, 16);
        skinny_part(&skinny, mine);
        if (gemm->finish && mine.to > mine.from)
            gemm->finish(gemm->context, skinny.sums + mine.from, n, 0, mine.from, m, mine.to - mine.from);
    }
    return OK;
}

Status gemm16_run(Stream *stream, const Gemm16 *gemm) {
    int threads = threads_for(stream, gemm->m * gemm->n / 64 * gemm->k);
    return is_skinny(gemm) ? skinny_run(stream, threads, gemm) : tiled_run(stream, threads, gemm);
}
