/* The interface between the slots, in C, and the device code, in CUDA C++: pointers, sizes and types. Every
 * launcher enqueues its kernels on the stream and returns the launch error. A NULL pointer is an absent
 * tensor. `type` is the type of pointers declared void. */
#ifndef WEFT_KERNELS_CUDA_LAUNCH_H
#define WEFT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "kernels/gpu_workspace.h"
#include "kernels/sketch.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See kernels.h. threshold 0: no dropout. */
typedef struct CudaDropout {
    uint32_t threshold;
    float scale;
    RngKey key;
    const int64_t *step; /* what key.step is now; NULL: as given */
    int64_t origin[3], extent[2];
} CudaDropout;

/* The values of Act in kernels.h, which device code cannot include. */
typedef enum {
    CUDA_ACT_NONE,
    CUDA_ACT_GELU_TANH,
    CUDA_ACT_GELU_ERF,
    CUDA_ACT_RELU,
    CUDA_ACT_TANH,
    CUDA_ACT_SILU
} CudaAct;

/* elementwise.cu */
cudaError_t launch_fill(cudaStream_t stream, DType type, void *x, int64_t count, float value);
cudaError_t launch_convert(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count);
cudaError_t launch_add(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count);
cudaError_t launch_scale(cudaStream_t stream, DType type, void *y, int64_t count, float factor);

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
cudaError_t launch_gemm_skinny(cudaStream_t stream, const CudaGemm *gemm, CudaAct act, void *pre);
/* out (rows,cols) += bias (cols) */
cudaError_t launch_bias(cudaStream_t stream, float *out, const float *bias, int64_t rows, int64_t cols);
/* y = act(x); y may alias x. */
cudaError_t launch_act(cudaStream_t stream, DType type, void *y, const void *x, CudaAct act, int64_t count);
/* dx [+]= dy * act'(pre). dy is fp32 or has dx's type, and may alias dx. */
cudaError_t launch_act_backward(cudaStream_t stream, DType type, void *dx, DType dy_type, const void *dy,
                                const void *pre, CudaAct act, int64_t count, bool accumulate);
/* The same, without accumulating, and sums (cols) += column sums of dx (rows,cols), with
 * column_sums_bytes of scratch memory. */
cudaError_t launch_act_backward_sums(cudaStream_t stream, DType type, void *dx, float *sums, DType dy_type,
                                     const void *dy, const void *pre, CudaAct act, int64_t rows, int64_t cols,
                                     float *scratch);
/* sums (cols) += column sums of x (rows,cols), with column_sums_bytes of scratch memory. */
cudaError_t launch_column_sums(cudaStream_t stream, float *sums, DType type, const void *x, int64_t rows,
                               int64_t cols, float *scratch);
/* sums (cols) += column sums of partial (chunks,cols) */
cudaError_t launch_add_partial(cudaStream_t stream, float *sums, const float *partial, int64_t chunks,
                               int64_t cols);

/* fp8.cu */

/* A tensor to be quantized; see kernels.h. Rows and columns must be multiples of 16, and pointers 16-byte
 * aligned. */
typedef struct CudaFp8Tensor {
    const void *x; /* (rows,cols) bf16 */
    int64_t rows, cols;
    CudaAct act;
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
    CudaAct act;
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
    CudaAct act;
    int8_t *quantized; /* scratch: quantized x (M,depth) ... */
    float *row_scale;  /* ... and its scales (M) */
} CudaInt8;

/* Fills quantized and row_scale. */
cudaError_t launch_int8_quantize(cudaStream_t stream, const CudaInt8 *call);
/* Multiplies up to CUDA_INT8_SKINNY_ROWS rows, starting at `first`. */
cudaError_t launch_int8_skinny(cudaStream_t stream, const CudaInt8 *call, int64_t first);
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

/* One call of attention. Sequence b has `keys` keys, or lens[b] if lens is not NULL. In decoding (`past`
 * not NULL), query t is at position past[b] + t of the keys, queries at or past fresh[b] are padding, and
 * the keys end at the last query. A causal query sees no key past its own position, none before starts of its
 * position (B,queries) and, if there is a window, only that many. Groups of query heads share keys and
 * values: k, v, dk and dv have H / group heads. */
typedef struct CudaAttention {
    int B, H, queries, keys, D;
    int group, window; /* group: at least 1; window 0: none */
    const int32_t *lens, *past, *fresh, *starts;
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

/* norm.cu; `partial` is norm_backward_bytes of workspace, `positions` the number of rows per sequence, and
 * `sums` NormSums of kernels.h, where each may be NULL. */
typedef struct CudaNormSums {
    float *dx, *dres;
} CudaNormSums;
cudaError_t launch_norm_forward(cudaStream_t stream, DType type, void *y, float *mean, float *rstd,
                                const void *x, const void *gamma, const void *beta, int64_t rows, int64_t C,
                                float eps);
cudaError_t launch_dropout_add_norm(cudaStream_t stream, DType type, void *sum, void *y, float *mean,
                                    float *rstd, const void *res, const void *x, const void *gamma,
                                    const void *beta, int64_t rows, int64_t C, float eps, int64_t positions,
                                    CudaDropout dropout);
cudaError_t launch_norm_backward(cudaStream_t stream, DType type, void *dx, float *dgamma, float *dbeta,
                                 const void *dy, const void *x, const float *mean, const float *rstd,
                                 const void *gamma, const void *dres, int64_t rows, int64_t C,
                                 CudaNormSums sums, float *partial);

/* Rows of D elements: `count` of the `heads` heads of each token, from head `first`. HeadRows of backend.h.
 */
typedef struct CudaHeadRows {
    int64_t heads, first, count, D, rows;
} CudaHeadRows;

/* rmsnorm.cu; `partial` is rmsnorm_backward_bytes of workspace. */
cudaError_t launch_rmsnorm_forward(cudaStream_t stream, DType type, void *y, float *rstd, const void *x,
                                   const void *gamma, CudaHeadRows at, float eps);
cudaError_t launch_dropout_add_rmsnorm(cudaStream_t stream, DType type, void *sum, void *y, float *rstd,
                                       const void *res, const void *x, const void *gamma, int64_t rows,
                                       int64_t C, float eps, int64_t positions, CudaDropout dropout);
cudaError_t launch_rmsnorm_backward(cudaStream_t stream, DType type, void *dx, float *dgamma, const void *dy,
                                    const void *x, const float *rstd, const void *gamma, const void *dres,
                                    CudaHeadRows at, float *partial);

/* rope.cu: rotates heads first .. first + count - 1 of x (B,T,heads,D). */
typedef struct CudaRope {
    void *x;
    const float *table;       /* (table_rows,R) */
    const int32_t *positions; /* (B), (B,T) if `each`, or NULL */
    bool each;
    int64_t origin, tokens, T, heads, first, count, D, R, table_rows;
    float sign; /* -1: backward */
} CudaRope;
cudaError_t launch_rope(cudaStream_t stream, DType type, const CudaRope *rope);

/* glu.cu: y (rows,F) and x (rows,2F). In backward y may be NULL or dy, and dx may be x. */
cudaError_t launch_glu(cudaStream_t stream, DType type, void *y, const void *x, CudaAct act, int64_t rows,
                       int64_t F);
cudaError_t launch_glu_backward(cudaStream_t stream, DType type, void *dx, void *y, const void *dy,
                                const void *x, CudaAct act, int64_t rows, int64_t F);

/* dropout.cu; with `sums`, sums (C) += column sums of dx, with column_sums_bytes of scratch memory.
 */
cudaError_t launch_dropout_add(cudaStream_t stream, DType type, void *out, const void *res, const void *y,
                               int64_t rows, int64_t C, int64_t positions, CudaDropout dropout);
cudaError_t launch_dropout_sums(cudaStream_t stream, DType type, void *dx, float *sums, const void *dy,
                                int64_t rows, int64_t C, int64_t positions, CudaDropout dropout,
                                float *scratch);

/* Rows sorted by index, in workspace: the keys (indices) and positions 0, 1, 2 ... in input order, and both
 * sorted by key. The sort is stable. */
typedef struct RowOrder {
    uint32_t *key, *position, *sorted, *from;
    void *scratch; /* workspace of the sort */
    size_t scratch_bytes;
} RowOrder;

/* sort.cu; keys are 0 to `largest`. */
cudaError_t launch_sort_bytes(int64_t count, int64_t largest, size_t *ret_bytes);
cudaError_t launch_sort(cudaStream_t stream, RowOrder order, int64_t count, int64_t largest);

/* rows.cu. launch_row_keys sets each key to index - start, or to `count` if that is out of range. */
cudaError_t launch_row_keys(cudaStream_t stream, RowOrder order, const int32_t *index, int64_t M,
                            int64_t start, int64_t count);
/* round.cu: fake quantization. `bits`: 8 or 4. */
cudaError_t launch_row_largest(cudaStream_t stream, DType type, float *largest, const void *x, int64_t M,
                               int64_t K);
cudaError_t launch_round_rows(cudaStream_t stream, DType type, int bits, void *y, const void *x,
                              const float *largest, int64_t M, int64_t K);
/* Int8 gradients; blocks of QUANT_BLOCK elements. */
cudaError_t launch_quantize_blocks(cudaStream_t stream, int8_t *q, float *scales, float *left, const float *x,
                                   int64_t count);
cudaError_t launch_dequantize_blocks(cudaStream_t stream, float *y, const int8_t *q, const float *scales,
                                     int64_t count, bool adds);
cudaError_t launch_argmax(cudaStream_t stream, DType type, int32_t *index, const void *x, int64_t M,
                          int64_t C);
cudaError_t launch_gather_rows(cudaStream_t stream, DType type, void *out, const void *x,
                               const int32_t *index, int64_t M, int64_t C, int64_t rows);
cudaError_t launch_scatter_scan(cudaStream_t stream, DType type, void *x, const void *y, const int32_t *index,
                                int64_t M, int64_t C, int64_t rows);
cudaError_t launch_scatter_sorted(cudaStream_t stream, DType type, void *x, const void *y, RowOrder order,
                                  int64_t M, int64_t C, int64_t rows);
cudaError_t launch_transpose(cudaStream_t stream, DType type, void *y, const void *x, int64_t M, int64_t N);

/* embedding.cu; rows past the counts contribute 0. */
typedef struct EmbeddingTables {
    const void *wte, *wpe, *wtype;
    int64_t start; /* token of wte's first row */
    int64_t tokens, positions, types;
} EmbeddingTables;
cudaError_t launch_embedding_forward(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                     const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                     int64_t rows, int64_t positions, int64_t C);
/* linear_int8.cu: the same with a packed token table; `tables` has the others. */
cudaError_t launch_embedding_int8(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                  const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                  const CudaInt8 *words, int64_t rows, int64_t positions);
cudaError_t launch_token_gradient(cudaStream_t stream, DType type, float *dwte, const void *dx,
                                  RowOrder order, int64_t count, int64_t C, int64_t columns, float *partial);
cudaError_t launch_position_gradient(cudaStream_t stream, DType type, float *dwpe, const void *dx, int64_t B,
                                     int64_t positions, int64_t C);
size_t type_partial_bytes(int64_t kinds, int64_t C);
cudaError_t launch_type_gradient(cudaStream_t stream, DType type, float *dwtype, const void *dx,
                                 const int32_t *types, int64_t rows, int64_t C, int64_t kinds,
                                 float *partial);

/* target_loss.cu: `count` elements each. */
cudaError_t launch_mse_loss(cudaStream_t stream, DType type, float *losses, void *logits,
                            const float *targets, int64_t count, float scale, bool gradient);
cudaError_t launch_bce_loss(cudaStream_t stream, DType type, float *losses, void *logits,
                            const float *targets, int64_t count, float scale, bool gradient);

/* xent.cu: a part of the vocabulary with V columns, of which the first `real` are not padding. */
typedef struct XentPart {
    int64_t start, valid, V, real;
} XentPart;
cudaError_t launch_xent_partial(cudaStream_t stream, DType type, float *stats, const void *logits,
                                const int32_t *labels, int64_t M, XentPart part);
cudaError_t launch_xent_combine(cudaStream_t stream, float *stats, const float *parts, int64_t ranks,
                                int64_t M);
cudaError_t launch_xent_finish(cudaStream_t stream, DType type, float *losses, void *logits,
                               const float *stats, const int32_t *labels, int64_t M, XentPart part,
                               float scale, bool gradient);
cudaError_t launch_xent_loss(cudaStream_t stream, DType type, float *losses, float *stats, void *logits,
                             const int32_t *labels, int64_t M, XentPart part, float scale, bool gradient,
                             size_t shared_memory, int processors);
/* The same for bf16 with the gradient in fp8: plain (M,V) e5m2, quantized with *fp8_scale. *ret_done is false
 * if rows do not fit registers; nothing has happened then. */
cudaError_t launch_xent_loss_fp8(cudaStream_t stream, float *losses, float *stats, void *logits, void *plain,
                                 const float *fp8_scale, const int32_t *labels, int64_t M, XentPart part,
                                 float scale, size_t shared_memory, int processors, bool *ret_done);

cudaError_t launch_xent_hits(cudaStream_t stream, float *hits, const float *stats, const int32_t *labels,
                             int64_t M, int64_t valid);

/* sum.cu; `partial` is sum_partial_bytes of workspace. */
cudaError_t launch_sum(cudaStream_t stream, DType type, double *total, const void *x, int64_t count,
                       bool squares, double *partial);
/* totals[(skip + i) / share] += x[i]^2, with sum_parts_bytes of workspace. */
cudaError_t launch_sum_parts(cudaStream_t stream, double *totals, const float *x, int64_t count, int64_t skip,
                             int64_t share, double *partial);

/* sketch.cu: totals (size) += the sketch of x, with sketch_partial_bytes of workspace. */
cudaError_t launch_sketch(cudaStream_t stream, double *totals, int64_t size, const float *x, int64_t count,
                          SketchMap map, float *partial);

/* optim.cu: the coefficients of AdamW in kernels.h and values derived from them. */
typedef struct CudaAdamW {
    float beta1, beta2, rest1, rest2, eps; /* rest: 1 - beta */
    float correct1, correct2;              /* 1 / correction */
    float grad_scale;
} CudaAdamW;
typedef struct CudaAdamWPart {
    void *param;
    float *m, *v;
    void *copy;
    const float *grad;
    int64_t count; /* > 0 */
    float lr, decay;
    int first; /* tile, set by launch_adamw */
    bool keep_zeros;
} CudaAdamWPart;
enum { CUDA_ADAMW_PARTS = 56 }; /* as many as fit the arguments of a kernel */
typedef struct CudaAdamWParts {
    int parts;
    CudaAdamWPart part[CUDA_ADAMW_PARTS];
} CudaAdamWParts;
/* `type` is that of the copies, or DT_REST if parameters are in two halves, `most` the largest number of
 * blocks, `shared` the bytes of shared memory that a block may have. */
cudaError_t launch_adamw(cudaStream_t stream, DType type, CudaAdamWParts *all, CudaAdamW spec, int most,
                         size_t shared);

/* momentum.cu: likewise for the other updates. */
typedef struct CudaLion {
    float lr, beta1, beta2, rest1, rest2, decay, grad_scale;
    bool keep_zeros;
} CudaLion;
cudaError_t launch_lion(cudaStream_t stream, void *param, float *m, DType type, void *copy, const float *grad,
                        int64_t count, CudaLion spec);
typedef struct CudaSgd {
    float lr, momentum, decay, grad_scale;
    bool nesterov, keep_zeros;
} CudaSgd;
cudaError_t launch_sgd(cudaStream_t stream, void *param, float *m, DType type, void *copy, const float *grad,
                       int64_t count, CudaSgd spec);
/* grad becomes of_average * m + of_gradient * g. */
typedef struct CudaMomentum {
    float beta, rest, of_average, of_gradient, grad_scale;
    bool keep_zeros;
} CudaMomentum;
cudaError_t launch_momentum(cudaStream_t stream, float *grad, float *m, DType type, const void *param,
                            const void *copy, int64_t count, CudaMomentum spec);
cudaError_t launch_apply(cudaStream_t stream, void *param, DType type, void *copy, const float *update,
                         int64_t count, float lr, float decay, bool keep_zeros);
/* y = x / (sqrt(*total) + eps); `type` is y's type. */
cudaError_t launch_normalize(cudaStream_t stream, DType type, void *y, const float *x, int64_t count,
                             const double *total, float eps);

#ifdef __cplusplus
}
#endif

#endif
