/* The workspace of GPU kernels. src/kernels/cuda takes its sizes from here, and so does dryrun.c, which plans
 * for GPUs on hosts without CUDA. */
#ifndef WEFT_KERNELS_GPU_WORKSPACE_H
#define WEFT_KERNELS_GPU_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "tensor/dtype.h"

/* kernels/cuda/sum.cu defines it first, to call these functions on the device. */
#ifndef GPU_FUNCTION
#define GPU_FUNCTION static inline
#endif

static inline size_t gpu_align(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

GPU_FUNCTION int64_t gpu_tiles(int64_t count, int64_t each) {
    return (count + each - 1) / each;
}

/* ---- linear layers ---- */

enum {
    BLAS_WORKSPACE = 32 << 20,    /* workspace limit of an algorithm of cuBLASLt, in bytes */
    FP32_RESULT_BYTES = 64 << 20, /* largest GEMM result that is kept in fp32 for a derivative */
    FP32_SUM_BYTES = 4 << 20,     /* the same for accumulating */
    MIN_COLS_ROUND_ONCE = 128,    /* from this many columns, cuBLASLt rounds only once */
    FP8_SUM_ROWS = 64,            /* of a tile whose column sums are one partial sum */
};

static inline bool gemm_rounds_early(DType type, int64_t cols) {
    return type != DT_F32 && cols < MIN_COLS_ROUND_ONCE;
}

/* Whether the result of linear_forward's GEMM is kept in fp32 until it is rounded. */
static inline bool linear_in_fp32(DType type, int64_t cols, int64_t inner, bool bias) {
    return bias && (gemm_rounds_early(type, cols) || (type != DT_F32 && inner % 8));
}

/* Where linear_backward_input's GEMM stores its result before it is multiplied by act' or added: in dx, or
 * apart. */
typedef struct LinearResult {
    DType type;
    bool separate;
} LinearResult;

static inline LinearResult linear_result(DType type, int64_t rows, int64_t cols, bool act, bool accumulate) {
    size_t fp32_bytes = (size_t)(rows * cols) * sizeof(float);
    bool early = gemm_rounds_early(type, cols) || (type != DT_F32 && fp32_bytes <= FP32_SUM_BYTES);
    LinearResult result = {type, false};
    if (!act && !(accumulate && early)) return result;
    if (type != DT_F32 && fp32_bytes <= FP32_RESULT_BYTES) result.type = DT_F32;
    result.separate = accumulate || result.type != type;
    return result;
}

/* ---- sums of columns, norms ---- */

enum {
    COLUMN_TILE = 256,     /* columns per block in 16 bits; fp32 and single loads use part of it */
    COLUMN_BLOCKS = 1024,  /* enough to fill any GPU; on an H100 or H200, one or two waves */
    COLUMN_MIN_ROWS = 64,  /* rows per chunk, at least */
    NORM_WAVE = 132,       /* blocks that an H100 or H200 runs at once, one per multiprocessor */
    NORM_PARTIALS = 6,     /* backward has as many partial sums of dgamma and dbeta per wave, */
    NORM_SUM_PARTIALS = 8, /* or of these and the column sums */
};

/* Chunks of rows whose column sums are partial results. */
static inline int64_t column_chunks(int64_t rows, int64_t cols) {
    int64_t most = gpu_tiles(rows, COLUMN_MIN_ROWS),
            chunks = gpu_tiles(COLUMN_BLOCKS, gpu_tiles(cols, COLUMN_TILE));
    return chunks < most ? chunks : most;
}
static inline size_t column_sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)(column_chunks(rows, cols) * cols) * sizeof(float);
}
static inline size_t norm_backward_bytes(int64_t rows, int64_t C, bool sums) {
    size_t lines = NORM_WAVE * (sums ? NORM_SUM_PARTIALS : NORM_PARTIALS),
           own = lines * (size_t)C * sizeof(float);
    size_t columns = sums ? column_sums_bytes(rows, C) : 0;
    return own > columns ? own : columns;
}
static inline size_t rmsnorm_backward_bytes(int64_t C) {
    return (size_t)(NORM_WAVE * NORM_PARTIALS / 2) * (size_t)C * sizeof(float);
}

/* ---- reductions, embeddings ---- */

enum {
    SUM_BLOCKS = 6 * 132,
    SUM_ELEMENTS = 8192, /* per block, at least */
    ROW_LISTS = 4,       /* of RowOrder */
    TOKEN_WINDOW = 32,   /* sorted positions that a warp takes */
};

GPU_FUNCTION int sum_blocks(int64_t count) {
    int64_t needed = gpu_tiles(count, SUM_ELEMENTS);
    return (int)(needed < SUM_BLOCKS ? needed : SUM_BLOCKS);
}
static inline size_t sum_partial_bytes(void) {
    return SUM_BLOCKS * sizeof(double);
}

/* An array of `count` elements in parts of `share`; the first `skip` elements of the first parts are missing.
 */
typedef struct SumParts {
    int64_t count, skip, share;
    int first, parts, each; /* first part with elements, number of such parts, and blocks reserved for each */
} SumParts;

static inline SumParts sum_parts_of(int64_t count, int64_t skip, int64_t share) {
    SumParts split = {count, skip, share, (int)(skip / share), 0, 0};
    split.parts = (int)((skip + count - 1) / share) - split.first + 1;
    split.each = sum_blocks(share < count ? share : count);
    return split;
}
static inline size_t sum_parts_bytes(int64_t count, int64_t skip, int64_t share) {
    SumParts split = sum_parts_of(count, skip, share);
    return (size_t)split.parts * (size_t)split.each * sizeof(double);
}
static inline size_t sketch_partial_bytes(void) {
    return SKETCH_MAX * sizeof(float);
}
static inline size_t embedding_partial_bytes(int64_t count, int64_t C) {
    return (size_t)gpu_tiles(count, TOKEN_WINDOW) * 2 * (size_t)C * sizeof(float);
}
/* One list of RowOrder. */
static inline size_t row_list_bytes(int64_t count) {
    return gpu_align((size_t)count * sizeof(uint32_t));
}

/* ---- experts ---- */

enum {
    ROUTE_BLOCKS = 4 * 132, /* that sum the statistics of routers */
    ROUTE_ROWS = 32,        /* per block, at least */
    SORT_FEW = 1024,        /* slots that one warp sorts */
    SORT_CHUNK = 256,       /* slots per warp, at least */
    SORT_CHUNKS = 1024,     /* at most */
    SORT_COUNTS = 1 << 18,  /* counts of all chunks, at most */
    GROUPED_TURNS =
        64 << 10, /* bytes of the counters by which chunks of an expert's rows are added in turn */
};

static inline size_t grouped_weight_bytes(DType type) {
    return type == DT_F32 ? 0 : GROUPED_TURNS;
}

static inline int route_count_blocks(int64_t rows) {
    int64_t needed = gpu_tiles(rows, ROUTE_ROWS);
    return (int)(needed < ROUTE_BLOCKS ? needed : ROUTE_BLOCKS);
}
static inline size_t route_count_bytes(int64_t rows) {
    return (size_t)route_count_blocks(rows) * ROUTE_TOTALS * sizeof(double);
}

/* Chunks of R slots that are sorted by E experts or none. */
static inline int64_t sort_chunks(int64_t R, int64_t E) {
    int64_t chunks = gpu_tiles(R, SORT_CHUNK), most = SORT_COUNTS / (E + 1);
    if (most > SORT_CHUNKS) most = SORT_CHUNKS;
    return chunks < most ? chunks : most;
}
static inline size_t expert_sort_bytes(int64_t R, int64_t E) {
    return R <= SORT_FEW ? 0 : (size_t)(sort_chunks(R, E) * (E + 1)) * sizeof(int32_t);
}

/* ---- attention ---- */

enum {
    SHORTEST_HOPPER = 96, /* shorter sequences leave the Hopper kernels' tiles half empty */
    SHORTEST_CUDNN = 128, /* shorter ones are not worth a cuDNN plan, which takes long to build */
    HOPPER_KEYS = 128,    /* per tile */
};

/* Whether each tile of HOPPER_KEYS rows has the positions of a tile of a whole sequence, or the first of
 * them, so that the dropout masks of its rows are drawn together. */
static inline bool keeps_tiles(const Positions *at, int64_t rows) {
    bool turns = at->turn && at->turn < rows;
    return at->first % HOPPER_KEYS == 0 &&
           (!turns || (at->turn % HOPPER_KEYS == 0 && at->second % HOPPER_KEYS == 0));
}

/* A call of attention_backward by the Hopper kernels. */
typedef struct HopperCall {
    int64_t B, H, group, queries, keys, D;
    bool parts;             /* Attention.kv */
    bool windowed, dropout; /* windowed: a window or documents */
    bool sums;              /* of columns; without groups only */
} HopperCall;

/* Whether sequences are so short that backward needs no workspace. */
static inline bool hopper_is_short(const HopperCall *call) {
    return call->D == 64 && call->keys <= HOPPER_KEYS && call->group == 1 && !call->dropout &&
           !call->windowed && !call->parts;
}

/* The workspace of the others: where each array starts, and the end, in units of 4 bytes. */
typedef struct HopperLayout {
    size_t dq, sums, lse, delta, q_columns, kv_columns, begin, turns, kv_turns, started, end;
} HopperLayout;

static inline HopperLayout hopper_layout(const HopperCall *call) {
    size_t tiles = (size_t)gpu_tiles(call->keys, HOPPER_KEYS), D = (size_t)call->D, across = D / 64;
    size_t heads = (size_t)(call->B * call->H);
    size_t rows = heads * (size_t)gpu_tiles(call->queries, HOPPER_KEYS) * HOPPER_KEYS;
    size_t shared_rows = call->group > 1 ? heads / (size_t)call->group * tiles * HOPPER_KEYS : 0;
    size_t line = call->sums ? (size_t)call->H * D : 0, lines = (size_t)call->B * tiles;
    HopperLayout at = {0};
    at.sums = at.dq + rows * D;
    at.lse = at.sums + 2 * shared_rows * D;
    at.delta = at.lse + rows;
    at.q_columns = at.delta + rows;
    at.kv_columns = at.q_columns + lines * (HOPPER_KEYS / 64) * line;
    at.begin = at.kv_columns + lines * 2 * line;
    at.turns = at.begin + (call->windowed ? rows : 0);
    at.kv_turns =
        at.turns + rows / HOPPER_KEYS * across * across; /* query tiles per key tile, parts of each */
    at.started = at.kv_turns + shared_rows / HOPPER_KEYS;
    at.end = at.started + 1;
    return at;
}

#endif
