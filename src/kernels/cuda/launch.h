/* What .cu files offer to other files. A launcher takes pointers, sizes and types, enqueues its kernels on
 * the stream and returns the launch error. A NULL pointer is an absent tensor. `type` is the type of pointers
 * declared void. */
#ifndef WEFT_KERNELS_CUDA_LAUNCH_H
#define WEFT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/gpu_workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See kernels.h. threshold 0: no dropout. */
typedef struct CudaDropout {
    uint32_t threshold;
    float scale;
    RngKey key;
    const int64_t *step; /* what key.step is now; NULL: as given */
    int64_t origin[3], extent[2], rows;
    Positions at;
} CudaDropout;

/* linear.cu, blas.c */

/* out (rows,cols) [+]= left (rows,inner) right (inner,cols) + bias (cols), all row-major. */
typedef struct CudaGemm {
    int64_t rows, cols, inner;
    const void *left, *right;
    DType left_type, right_type;
    bool left_transposed, right_transposed; /* stored as (inner,rows) or (cols,inner), respectively */
    void *out;
    DType out_type;
    bool accumulate;
    const void *bias;  /* has out's type */
    const void *slope; /* (rows,cols) of out's type: the result is multiplied by the derivative of GELU (tanh
                        * approximation) at it, by cuBLASLt only; NULL: is not */
    const float *left_scale, *right_scale; /* fp8 operands: their scales */
} CudaGemm;

/* Fallback for GEMMs that cuBLASLt does not support: any shape and alignment, but slow. Operands have the
 * same type or are fp8; no slope. */
cudaError_t launch_gemm(cudaStream_t stream, const CudaGemm *gemm);
/* linear_few.cu: the skinny GEMM out = act(left right + bias). Supports up to 16 rows in 16 bits with left
 * as stored and right transposed, and rows that start at multiples of 16 bytes. out has the operands' type
 * or, without an act, fp32; bias has the operands' type. The sum is rounded before the act and stored in
 * `pre` if that is not NULL. */
bool gemm_skinny_supports(const CudaGemm *gemm);
cudaError_t launch_gemm_skinny(cudaStream_t stream, const CudaGemm *gemm, Act act, void *pre);
/* out (rows,cols) += bias (cols) */
cudaError_t launch_bias(cudaStream_t stream, float *out, const float *bias, int64_t rows, int64_t cols);
/* linear.cu: dx [+]= dy * act'(pre). dy is fp32 or has dx's type, and may alias dx. */
MUST_USE Status act_backward_onto(Stream *stream, Tensor dx, Tensor dy, Tensor pre, Act act, bool accumulate);
/* The same, without accumulating, and sums (cols) += column sums of dx, with column_sums_bytes of scratch
 * memory. */
MUST_USE Status act_backward_sums(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor pre, Act act,
                                  void *scratch);
/* sums (cols) += column sums of x, with column_sums_bytes of scratch memory. */
MUST_USE Status column_sums(Stream *stream, Tensor sums, Tensor x, void *scratch);

/* fp8.cu */

/* A tensor to be quantized; see kernels.h. Rows and columns must be multiples of 16, and pointers 16-byte
 * aligned. */
typedef struct CudaFp8Tensor {
    const void *x; /* (rows,cols) bf16 */
    int64_t rows, cols;
    Act act;
    DType type;               /* DT_E4M3 or DT_E5M2 */
    void *plain, *transposed; /* outputs (rows,cols) and (cols,rows); either may be NULL */
    float *scale;             /* output; may be NULL */
    float *sums;              /* (cols) += column sums of x; may be NULL */
    const float *amax;  /* (CUDA_FP8_AMAX_PARTS) partial maxima of x from launch_fp8_stats; NULL: not known */
    const float *given; /* delayed scaling: the scale; NULL: exact scaling */
    float *record;      /* becomes at least the amax of x; may be NULL */
    const void *pre;    /* (rows,cols) or NULL; if not NULL, x is multiplied by act'(pre) instead of having an
                         * act. Needs `given`, and to be the only tensor of the call */
    const CudaDropout *dropout; /* x is dropped out first, in sequences of `positions` rows; may be NULL.
                                 * Needs `given`, and to be the first tensor of the call */
    int64_t positions;
} CudaFp8Tensor;

/* A tensor whose statistics are collected, see Fp8Stats of kernels.h. The same conditions apply. */
typedef struct CudaFp8Stats {
    void *x; /* (rows,cols) bf16 */
    int64_t rows, cols;
    const void *pre; /* (rows,cols) or NULL; if not NULL, first x *= act'(pre) */
    Act act;
    float *amax;
    float *sums; /* (cols) += column sums of x; may be NULL */
} CudaFp8Stats;

enum { FP8_TENSORS = 3, CUDA_FP8_AMAX_PARTS = 1024 };

/* Quantizes up to FP8_TENSORS tensors at once with fp8_quantize_scratch() bytes of scratch memory. Tensors
 * with an activation must have the same one. */
size_t fp8_quantize_scratch(const CudaFp8Tensor *tensor, int count);
cudaError_t launch_fp8_quantize(cudaStream_t stream, const CudaFp8Tensor *tensor, int count, void *scratch);
/* out (cols,rows) = in (rows,cols), bytes. The same conditions apply. */
cudaError_t launch_fp8_transpose(cudaStream_t stream, void *out, const void *in, int64_t rows, int64_t cols);
/* With fp8_stats_scratch() bytes of scratch memory. */
size_t fp8_stats_scratch(int64_t rows, int64_t cols);
cudaError_t launch_fp8_stats(cudaStream_t stream, const CudaFp8Stats *stats, void *scratch);

/* linear_int8.cu */

enum { CUDA_INT8_SKINNY_ROWS = 16 };

/* y = act(x w^T + b) with int8 or int4 weights; see kernels/int8.h for their layout. */
typedef struct CudaInt8 {
    int64_t M, N, K, depth; /* depth: K with padding */
    int bits;
    const int8_t *panels;        /* in device memory */
    const float *scale, *factor; /* factor: NULL if absent */
    float static_amax;           /* static amax of the inputs; 0: computed for each row */
    DType type, out;             /* type: of x and bias; out: of y and pre, either `type` or fp32 */
    const void *x, *bias;
    void *y, *pre;
    Act act;
    int8_t *quantized; /* scratch: quantized x (M,depth) ... */
    float *row_scale;  /* ... and its scales (M) */
} CudaInt8;

/* Fills quantized and row_scale. */
cudaError_t launch_int8_quantize(cudaStream_t stream, const CudaInt8 *call);
/* Multiplies up to CUDA_INT8_SKINNY_ROWS rows, starting at `first`. */
cudaError_t launch_int8_skinny(cudaStream_t stream, const CudaInt8 *call, int64_t first);
/* The weights of E experts, `stride` bytes apart; a CudaInt8 has the address of the first. */
typedef struct CudaInt8Experts {
    const int32_t *offsets; /* (E+1) */
    int64_t E, stride;
    const float *amax; /* the static one, as above, of the first */
} CudaInt8Experts;
/* launch_int8_quantize and launch_int8_skinny for rows of experts; others are left as they are. */
cudaError_t launch_int8_experts(cudaStream_t stream, const CudaInt8 *call, const CudaInt8Experts *experts);
/* Multiplies the int4 weights of outputs from .. from + cols - 1 by their steps and splits the products into
 * int8 parts, each (cols,depth): 8 * high + low. */
cudaError_t launch_int4_parts(cudaStream_t stream, const CudaInt8 *call, int64_t from, int64_t cols,
                              int8_t *high, int8_t *low);
/* A block of rows and outputs whose int32 sums (rows,cols) are complete; int4 has sums of both parts. */
typedef struct CudaInt8Block {
    int64_t first, rows, from, cols;
    const int32_t *sums, *low; /* low: NULL for int8 */
} CudaInt8Block;
cudaError_t launch_int8_finish(cudaStream_t stream, const CudaInt8 *call, const CudaInt8Block *block);

/* attention*.cu */

/* The rows (of D elements) of every head: those of head h of sequence b start at data + b * batch + h *
 * head and are `row` elements apart. */
typedef struct CudaHeads {
    void *data;
    int64_t batch, head, row;
} CudaHeads;

/* Positions: of row t, first + t, or second + t - turn from row `turn` on. Without a turn, it is at the end.
 */
typedef struct CudaPlaces {
    int first, turn, second;
} CudaPlaces;

/* One call of attention. Sequence b has `keys` keys, or lens[b] if lens is not NULL. In decoding (`past`
 * not NULL), query t is at position past[b] + t of the keys, queries at or past fresh[b] are padding, and
 * the keys end at the last query. A causal query sees no key past its own position, none before starts of its
 * position (B,positions) and, if there is a window, only that many. Groups of query heads share keys and
 * values: k, v, dk and dv have H / group heads. */
typedef struct CudaAttention {
    int B, H, queries, keys, D;
    int group, window; /* group: at least 1; window 0: none */
    const int32_t *lens, *past, *fresh, *starts;
    int positions; /* of starts */
    bool parts;    /* Attention.kv: rows are at these places, and backward adds to dq, dk and dv */
    bool aligned;  /* keeps_tiles for both */
    CudaPlaces query_at, key_at;
    CudaHeads q, k, v, out;
    float *lse; /* (B,H,queries); may be NULL */
    bool causal;
    float scale;
    CudaDropout dropout;
    CudaHeads dout, dq, dk, dv; /* backward only */
    float *sums;                /* Attention.sums; Hopper's backward without groups only */
    float *delta;               /* scratch memory of backward: (B,H,queries) */
} CudaAttention;

cudaError_t launch_attention_forward(cudaStream_t stream, DType type, const CudaAttention *call);
cudaError_t launch_attention_backward(cudaStream_t stream, DType type, const CudaAttention *call);
/* The same without tensor cores, for types and sizes that tensor cores do not support. */
cudaError_t launch_attention_forward_plain(cudaStream_t stream, DType type, const CudaAttention *call);
cudaError_t launch_attention_backward_plain(cudaStream_t stream, DType type, const CudaAttention *call);
/* attention_hopper*.cu: the same with Hopper's tensor cores. "runs" tells whether they are built for the
 * current device, "supports" whether they handle the call; backward needs the `scratch` of hopper_layout. */
bool attention_hopper_runs(void);
bool attention_hopper_supports(DType type, const CudaAttention *call);
cudaError_t launch_attention_forward_hopper(cudaStream_t stream, DType type, const CudaAttention *call);
cudaError_t launch_attention_backward_hopper(cudaStream_t stream, DType type, const CudaAttention *call,
                                             void *scratch);
/* Backward of short sequences (hopper_is_short), without scratch. */
cudaError_t launch_attention_backward_short(cudaStream_t stream, DType type, const CudaAttention *call);
/* delta = row sums of dout * out. */
cudaError_t launch_attention_delta(cudaStream_t stream, DType type, const CudaAttention *call);
/* For cuDNN with lens: _lengths computes the lengths (2,B) of queries and keys, each at least 1. _blank runs
 * after cuDNN and overwrites the results of rows past them and of empty sequences. */
cudaError_t launch_attention_lengths(cudaStream_t stream, const CudaAttention *call, int32_t *lengths);
cudaError_t launch_attention_blank(cudaStream_t stream, DType type, const CudaAttention *call, bool backward);
/* Appends the new rows `k` and `v` to the caches, whose type is `type`, DT_I8, or bf16 for fp32 rows. */
cudaError_t launch_attention_append(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                    CudaHeads k, CudaHeads v);
/* Converts the cached rows that queries may attend to into (B,H/group,keys,D) of `type`. */
cudaError_t launch_attention_widen(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                   void *k, void *v);
/* Attention of one new position per sequence, whose rows `k` and `v` are also appended. The keys of a head
 * are split into `splits` parts; with more than one, `parts` has room for (B * H, splits, D + 2). */
cudaError_t launch_attention_decode(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                    CudaHeads k, CudaHeads v, int splits, float *parts);

/* Rows sorted by index: the indices, less `start`, and the rows' numbers, in workspace. */
typedef struct RowOrder {
    const uint32_t *sorted, *from;
} RowOrder;

/* sort.cu: sorts M rows, in a stable way. Indices outside of [start, start + count) come last, as `count`.
 * The workspace also has `more` bytes for the caller. */
MUST_USE Status row_order(Stream *stream, Tensor index, int64_t M, int64_t start, int64_t count, size_t more,
                          RowOrder *ret_order, void **ret_more);

/* The tables of embedding_forward; rows past the counts contribute 0. */
typedef struct EmbeddingTables {
    const void *wte, *wpe, *wtype;
    int64_t start; /* token of wte's first row */
    int64_t tokens, positions, types;
} EmbeddingTables;
/* linear_int8.c, linear_int8.cu: embedding_forward with a packed token table; `tables` has the others. */
MUST_USE Status embedding_int8_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                                    Tensor wte, EmbeddingTables tables);
cudaError_t launch_embedding_int8(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                  const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                  const CudaInt8 *words, int64_t rows, int64_t positions);
#ifdef __cplusplus
}
#endif

#endif
