/* What backends share: how a table is filled, and the small rules that every backend must follow exactly
 * (which elements dropout keeps, which row of the embedding a token selects).
 *
 * Slots may rely on the checks of the functions in kernels.h: shapes agree, required tensors are present,
 * types are valid, and there is at least one row of work. Slots themselves must check that indices read
 * from tensors are in range before they use them. */
#ifndef WEFT_KERNELS_BACKEND_H
#define WEFT_KERNELS_BACKEND_H

#include "kernels/kernels.h"

/* Fills every slot with the reference implementation. */
void kernels_ref_fill(KernelTable *table);
/* Replaces the slots of a filled table for which the cpu backend has a faster implementation. */
void kernels_cpu_override(KernelTable *table);
/* Fails if WEFT_CPU selects an instruction set that this CPU lacks. */
MUST_USE Status kernels_cpu_check(void);
/* The instruction set in use, as an index that is higher for newer sets, and whether WEFT_CPU allows
 * instructions that came with a set. */
int kernels_cpu_level(void);
bool kernels_cpu_allows(int level);
/* Fills every slot that the cuda backend implements; returns false in a build without CUDA. */
bool kernels_cuda_fill(KernelTable *table);

/* Tables for dry runs, see kernels_dryrun. The one for GPUs does not need CUDA. */
void kernels_dryrun_fill_cpu(KernelTable *table, const KernelTable *cpu);
void kernels_dryrun_fill_cuda(KernelTable *table);

/* Fails unless all indices, called `what`, are those of rows of the table. Either may be absent. */
MUST_USE Status kernels_check_rows(const char *kernel, const char *what, Tensor index, Tensor table);

/* Fails unless all indices, called `what`, are -1 or less than `count`. */
MUST_USE Status kernels_check_places(const char *kernel, const char *what, Tensor index, int64_t count);
/* Fails unless offsets (E+1) ascend and are those of rows of a tensor of R rows. */
MUST_USE Status kernels_check_offsets(const char *kernel, Tensor offsets, int64_t R);

/* Whether all tensors that are present are fp32. */
bool kernels_fp32(size_t count, const Tensor *tensors);
/* Returns `other`, usually a call of the reference, unless all given tensors are fp32. */
#define FP32_ELSE(other, ...)                                                                                \
    do {                                                                                                     \
        if (!kernels_fp32(sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor), (Tensor[]){__VA_ARGS__}))        \
            return other;                                                                                    \
    } while (0)

/* Elements whose 16-bit draw is below this are dropped. */
static inline uint32_t dropout_threshold(float p) {
    uint32_t nearest = (uint32_t)((double)p * 0x1p16 + 0.5);
    return nearest < 0xffff ? nearest : 0xffff;
}
static inline float dropout_scale(float p) {
    return (float)(0x1p16 / (0x1p16 - dropout_threshold(p)));
}
/* The draw index of element (b, t, 0) of a (B,T,C) tensor; the rest of the row follows consecutively. */
static inline uint64_t dropout_row(const Dropout *dropout, int64_t b, int64_t t) {
    b += dropout->origin[0], t += dropout->origin[1];
    if (dropout->rows) b += t / dropout->rows, t = position_of(&dropout->at, t % dropout->rows);
    return (uint64_t)((b * dropout->extent[0] + t) * dropout->extent[1] + dropout->origin[2]);
}
/* The word, as rng_kept numbers them, and the bit in it of attention weight (b, h, q, k). Four words have the
 * weights of a query and DROPOUT_GROUP keys. A word's keys and the order of its bits are those of the lanes
 * of a GPU's matrix products. */
enum { DROPOUT_GROUP = 128 };
static inline int64_t dropout_groups(const Dropout *dropout) {
    return (dropout->extent[1] + DROPOUT_GROUP - 1) / DROPOUT_GROUP;
}
static inline uint64_t dropout_word(const Dropout *dropout, int64_t b, int64_t h, int64_t q, int64_t k) {
    int64_t head = (b + dropout->origin[0]) * dropout->extent[0] + h + dropout->origin[1];
    int64_t group = (head * dropout->extent[1] + q) * dropout_groups(dropout) + k / DROPOUT_GROUP;
    return (uint64_t)(group * 4 + k % 8 / 2);
}
static inline int dropout_bit(int64_t k) {
    uint32_t key = (uint32_t)k; /* unsigned, because this is done for each weight */
    return (int)(key % 2 * 8 + key / 8 % 2 * 16 + 7 - key / 16 % 8);
}

/* The rows of D elements of `heads` of a tensor (..., N, D): row r starts at element head_row(rows, r). */
typedef struct HeadRows {
    int64_t heads, first, count, D; /* of `heads`, those from `first`; count: number of rows per token */
    int64_t rows;
} HeadRows;

static inline HeadRows head_rows(Tensor tensor, HeadRange heads) {
    int64_t D = tensor_cols(tensor), rows = tensor_rows(tensor),
            all = heads.count ? tensor.dim[tensor.ndim - 2] : 1;
    int64_t count = heads.count ? heads.count : 1;
    return (HeadRows){all, heads.first, count, D, rows / all * count};
}
static inline int64_t head_row(const HeadRows *at, int64_t row) {
    return (row / at->count * at->heads + at->first + row % at->count) * at->D;
}

/* The position of row (b, t), as rope_forward and embedding_forward define it, or -1 if it is not one of the
 * `count` rows of their table. */
static inline int64_t row_position(Tensor positions, int64_t origin, int64_t T, int64_t b, int64_t t,
                                   int64_t count) {
    int64_t at = origin + t;
    if (positions.data && positions.ndim == 1) at += tensor_i32(positions)[b];
    if (positions.data && positions.ndim == 2) at = tensor_i32(positions)[b * T + t];
    return at >= 0 && at < count ? at : -1;
}

/* The dims of qkv (B,T,3,H,D) or (B,T,N,D), N = H + 2G, and of kv (B,keys,M,D), which is qkv if absent. */
typedef struct QkvShape {
    int64_t B, T, H, G, N, D;
    int64_t group; /* query heads that share a key head: H / G */
    int64_t keys, M;
} QkvShape;

/* qkv or dqkv with all heads of a position as one row. */
static inline Tensor qkv_rows(Tensor qkv) {
    int64_t rows = qkv.dim[0] * qkv.dim[1];
    return tensor_2d(qkv.data, qkv.dtype, rows, rows ? tensor_count(qkv) / rows : 0);
}

static inline QkvShape qkv_shape(Tensor qkv, const Attention *spec) {
    int64_t N = qkv.ndim == 5 ? 3 * qkv.dim[3] : qkv.dim[2], G = spec->kv_heads ? spec->kv_heads : N / 3;
    Tensor kv = spec->kv;
    return (QkvShape){.B = qkv.dim[0],
                      .T = qkv.dim[1],
                      .H = N - 2 * G,
                      .G = G,
                      .N = N,
                      .D = qkv.dim[qkv.ndim - 1],
                      .group = G ? (N - 2 * G) / G : 0,
                      .keys = kv.data ? kv.dim[1] : qkv.dim[1],
                      .M = !kv.data       ? N
                           : kv.ndim == 5 ? 3 * kv.dim[3]
                                          : kv.dim[2]};
}

enum { PART_Q, PART_K, PART_V };

/* The head that has q, k or v of query head h: of N in qkv, or of M in kv. */
static inline int64_t qkv_head(const QkvShape *s, int part, int64_t h) {
    return part == PART_Q ? h : s->M - (part == PART_K ? 2 : 1) * s->G + h / s->group;
}

/* How many of `rows` rows are at positions before this one. */
static inline int64_t rows_before(const Positions *at, int64_t rows, int64_t position) {
    int64_t turn = at->turn && at->turn < rows ? at->turn : rows;
    int64_t before = position - at->first, after = position - at->second;
    before = before < 0 ? 0 : before < turn ? before : turn;
    if (turn == rows || after <= 0) return before;
    return before + (after < rows - turn ? after : rows - turn);
}

/* The number of positions up to the last of a query or key. */
static inline int64_t positions_of(const QkvShape *s, const Attention *spec) {
    int64_t queries = s->T ? position_of(&spec->queries, s->T - 1) + 1 : 0;
    int64_t keys = s->keys ? position_of(&spec->keys, s->keys - 1) + 1 : 0;
    return queries > keys ? queries : keys;
}

/* The position of the first key that a query sees. `start` is where its document starts, or 0; window 0: no
 * window. */
static inline int64_t first_position(int64_t start, int64_t window, int64_t position) {
    int64_t first = start;
    if (window && position - window + 1 > first) first = position - window + 1;
    if (first > position) first = position;
    return first > 0 ? first : 0;
}
/* The same with the starts of the query's sequence, or NULL. */
static inline int64_t first_key(const int32_t *starts, int64_t window, int64_t position) {
    return first_position(starts ? starts[position] : 0, window, position);
}
/* Where block (i,j,k) starts. */
static inline int64_t block_at(const BlockSpan *span, int64_t i, int64_t j, int64_t k) {
    return span->at + i * span->stride[0] + j * span->stride[1] + k * span->stride[2];
}

/* Those of one of B sequences, by position; NULL: one document. */
static inline const int32_t *starts_of(const Attention *spec, int64_t b, int64_t B) {
    return spec->starts.data ? tensor_i32(spec->starts) + tensor_count(spec->starts) / B * b : NULL;
}

/* How many of V local columns are not padding. */
static inline int64_t vocab_columns(VocabPart part, int64_t V) {
    int64_t real = part.valid - part.start;
    return real < 0 ? 0 : real < V ? real : V;
}
/* The local row of a token, or -1 if it is not in this part. */
static inline int64_t vocab_row(VocabPart part, int64_t V, int32_t token) {
    int64_t row = token - part.start;
    return row >= 0 && row < vocab_columns(part, V) ? row : -1;
}

#endif
