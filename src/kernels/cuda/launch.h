/* Between the slots, in C, and the device code, in CUDA C++: pointers, sizes, types. Every launcher puts its
 * kernels on the stream and gives back the launch's error. A NULL pointer is a tensor that is none. `type` is
 * the compute type of pointers declared void. */
#ifndef WEFT_KERNELS_CUDA_LAUNCH_H
#define WEFT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See kernels.h; threshold 0: off. */
typedef struct CudaDropout {
    uint32_t threshold;
    float scale;
    RngKey key;
    int64_t origin[3], extent[2];
} CudaDropout;

/* Act of kernels.h, value for value, for device code, which cannot include it. */
typedef enum { CUDA_ACT_NONE, CUDA_ACT_GELU_TANH, CUDA_ACT_GELU_ERF, CUDA_ACT_RELU, CUDA_ACT_TANH } CudaAct;

/* elementwise.cu */
cudaError_t launch_fill(cudaStream_t stream, DType type, void *x, int64_t count, float value);
cudaError_t launch_convert(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count);
cudaError_t launch_add(cudaStream_t stream, DType to, void *y, DType from, const void *x, int64_t count);
cudaError_t launch_scale(cudaStream_t stream, DType type, void *y, int64_t count, float factor);

/* linear.cu, blas.c */

/* What is done with a product besides; all but the first by cuBLASLt only. */
typedef enum {
    CUDA_EPILOGUE_NONE,
    CUDA_EPILOGUE_GELU,       /* GELU by tanh; aux, if given, receives what it was applied to */
    CUDA_EPILOGUE_GELU_SLOPE, /* times the slope of GELU at aux */
    CUDA_EPILOGUE_LEFT_SUMS   /* sums (rows) of left over inner */
} CudaEpilogue;

/* out (rows,cols) [+]= left (rows,inner) right (inner,cols) + bias (cols), all row-major. */
typedef struct CudaProduct {
    int64_t rows, cols, inner;
    const void *left, *right;
    DType left_type, right_type;
    bool left_turned, right_turned; /* stored as (inner,rows), respectively (cols,inner) */
    void *out;
    DType out_type;
    bool accumulate;
    const void *bias; /* of out's type */
    CudaEpilogue epilogue;
    void *aux;                           /* (rows,cols) of out's type */
    void *sums;                          /* (rows) of out's type */
    const float *left_unit, *right_unit; /* operands of 8 bits: what their numbers are multiples of */
} CudaProduct;

/* Any shape and alignment, slowly: what cuBLASLt refuses. Operands of one type or of 8 bits, epilogue
 * none. */
cudaError_t launch_product(cudaStream_t stream, const CudaProduct *product);
/* linear_few.cu: out = act(product), where it suits: at most 16 rows in 16 bits, left as stored and right
 * turned, rows at multiples of 16 bytes. out has the operands' type, or is fp32 without an act; bias has
 * theirs, whatever out is. The product is rounded before the act, and put into `pre` if that is given. */
bool product_few_suits(const CudaProduct *product);
cudaError_t launch_product_few(cudaStream_t stream, const CudaProduct *product, CudaAct act, void *pre);
/* out (rows,cols) += bias (cols) */
cudaError_t launch_bias(cudaStream_t stream, float *out, const float *bias, int64_t rows, int64_t cols);
/* y = act(x); y may be x. */
cudaError_t launch_act(cudaStream_t stream, DType type, void *y, const void *x, CudaAct act, int64_t count);
/* dx [+]= product * act'(pre). The product is fp32 or of dx's type, and may be dx. */
cudaError_t launch_slope(cudaStream_t stream, DType type, void *dx, DType product_type, const void *product,
                         const void *pre, CudaAct act, int64_t count, bool accumulate);
/* sums (cols) += column sums of x (rows,cols), with column_sums_room() bytes of scratch. */
size_t column_sums_room(int64_t rows, int64_t cols);
cudaError_t launch_column_sums(cudaStream_t stream, float *sums, DType type, const void *x, int64_t rows,
                               int64_t cols, float *scratch);
/* sums (cols) += column sums of partial (chunks,cols) */
cudaError_t launch_add_partial(cudaStream_t stream, float *sums, const float *partial, int64_t chunks,
                               int64_t cols);

/* fp8.cu */

/* A tensor to be rounded; see kernels.h. Rows and columns are multiples of 16; all begin at a multiple of 16
 * bytes. */
typedef struct CudaRounding {
    const void *x; /* (rows,cols) bf16 */
    int64_t rows, cols;
    CudaAct act;
    DType type;           /* DT_E4M3 or DT_E5M2 */
    void *plain, *turned; /* (rows,cols), (cols,rows); either may be NULL */
    float *unit;          /* receives it */
    float *sums;          /* (cols) += column sums of x; may be NULL */
    const float *peaks;   /* (CUDA_FP8_PEAKS) of x, as launch_fp8_find leaves them; NULL: not known */
} CudaRounding;

/* A tensor of which peaks and sums are found, see kernels.h, with the same conditions. */
typedef struct CudaFinding {
    void *x; /* (rows,cols) bf16 */
    int64_t rows, cols;
    const void *pre; /* (rows,cols), or NULL: x *= act'(pre) first */
    CudaAct act;
    float *peaks;
    float *sums; /* (cols) += column sums of x; may be NULL */
} CudaFinding;

enum { FP8_TENSORS = 3, CUDA_FP8_PEAKS = 1024 };

/* Up to FP8_TENSORS at once, of which those with an activation have the same; fp8_round_room() bytes of
 * scratch. */
size_t fp8_round_room(const CudaRounding *tensor, int count);
cudaError_t launch_fp8_round(cudaStream_t stream, const CudaRounding *tensor, int count, void *scratch);
/* With fp8_find_room() bytes of scratch. */
size_t fp8_find_room(int64_t rows, int64_t cols);
cudaError_t launch_fp8_find(cudaStream_t stream, const CudaFinding *finding, void *scratch);

/* linear_int8.cu */

enum { CUDA_INT8_FEW = 16 };

/* y = act(x w^T + b) with weights of few bits; see kernels/int8.h for what lies where. */
typedef struct CudaInt8 {
    int64_t M, N, K, depth; /* depth: K with what is added to it */
    int bits;
    const int8_t *panels;        /* on the device */
    const float *scale, *factor; /* factor: NULL where there is none */
    float held;                  /* the largest magnitude of all inputs; 0: of each row as it comes */
    DType type, out;             /* of x and bias, and of y and pre: the same or fp32 */
    const void *x, *bias;
    void *y, *pre;
    CudaAct act;
    int8_t *rounded; /* scratch: (M,depth) ... */
    float *unit;     /* ... and (M) */
} CudaInt8;

/* Fills rounded and unit. */
cudaError_t launch_int8_round(cudaStream_t stream, const CudaInt8 *call);
/* Rows first .. first + CUDA_INT8_FEW - 1, as far as there are. */
cudaError_t launch_int8_few(cudaStream_t stream, const CudaInt8 *call, int64_t first);
/* Weights of 4 bits times their steps, of outputs from .. from + cols - 1: 8 * high + low, each (cols,depth).
 */
cudaError_t launch_int4_parts(cudaStream_t stream, const CudaInt8 *call, int64_t from, int64_t cols,
                              int8_t *high, int8_t *low);
/* Some rows and outputs from their sums (rows,cols); of 4 bits from those of both parts. */
typedef struct CudaInt8Part {
    int64_t first, rows, from, cols;
    const int32_t *sums, *low; /* low: NULL where there is one part */
} CudaInt8Part;
cudaError_t launch_int8_finish(cudaStream_t stream, const CudaInt8 *call, const CudaInt8Part *part);

/* attention*.cu */

/* The rows (of D elements) of every head: those of head h of sequence b start at data + b * batch + h * head
 * and lie `row` elements apart. */
typedef struct CudaHeads {
    void *data;
    int64_t batch, head, row;
} CudaHeads;

/* One call of attention. Keys of sequence b: all `keys`, or those below lens[b]; with `past` (decoding) query
 * t stands at position past[b] + t of the keys, queries at or past fresh[b] are filler, and keys end where
 * the last query stands. A causal query sees no key past its own position. */
typedef struct CudaAttention {
    int B, H, queries, keys, D;
    const int32_t *lens, *past, *fresh;
    CudaHeads q, k, v, out;
    float *lse; /* (B,H,queries), or NULL */
    bool causal;
    float scale;
    CudaDropout dropout;
    CudaHeads dout, dq, dk, dv; /* backward only */
    float *delta;               /* scratch of backward: (B,H,queries) */
} CudaAttention;

cudaError_t launch_attention_forward(cudaStream_t stream, DType type, const CudaAttention *call);
cudaError_t launch_attention_backward(cudaStream_t stream, DType type, const CudaAttention *call);
/* The same without tensor cores, for what those do not take. */
cudaError_t launch_attention_forward_plain(cudaStream_t stream, DType type, const CudaAttention *call);
cudaError_t launch_attention_backward_plain(cudaStream_t stream, DType type, const CudaAttention *call);
/* delta = row sums of dout * out. */
cudaError_t launch_attention_delta(cudaStream_t stream, DType type, const CudaAttention *call);
/* For cuDNN, where there are lens: the lengths (2,B) of queries and of keys, at least 1; and afterwards what
 * rows past them, and sequences of none, come to. */
cudaError_t launch_attention_lengths(cudaStream_t stream, const CudaAttention *call, int32_t *lengths);
cudaError_t launch_attention_blank(cudaStream_t stream, DType type, const CudaAttention *call, bool backward);
/* Puts `k`, `v`, new rows as queries are, into the caches, which are of `type`, DT_I8, or bf16 beside fp32.
 */
cudaError_t launch_attention_append(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                    CudaHeads k, CudaHeads v);
/* Caches of another type as (B,H,keys,D) of `type`, as far as queries see them. */
cudaError_t launch_attention_widen(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                   void *k, void *v);
/* One new position: `k`, `v` are its rows, and it is appended as well. The keys of a head are cut into
 * `splits` parts; with more than one, `parts` has room for (B * H, splits, D + 2). */
cudaError_t launch_attention_decode(cudaStream_t stream, DType type, DType cache, const CudaAttention *call,
                                    CudaHeads k, CudaHeads v, int splits, float *parts);

/* norm.cu; `partial` is norm_backward_bytes of workspace, `positions` the rows of a sequence. */
cudaError_t launch_norm_forward(cudaStream_t stream, DType type, void *y, float *mean, float *rstd,
                                const void *x, const void *gamma, const void *beta, int64_t rows, int64_t C,
                                float eps);
cudaError_t launch_dropout_add_norm(cudaStream_t stream, DType type, void *sum, void *y, float *mean,
                                    float *rstd, const void *res, const void *x, const void *gamma,
                                    const void *beta, int64_t rows, int64_t C, float eps, int64_t positions,
                                    CudaDropout dropout);
size_t norm_backward_bytes(int64_t C);
cudaError_t launch_norm_backward(cudaStream_t stream, DType type, void *dx, float *dgamma, float *dbeta,
                                 const void *dy, const void *x, const float *mean, const float *rstd,
                                 const void *gamma, const void *dres, int64_t rows, int64_t C,
                                 float *partial);

/* dropout.cu */
cudaError_t launch_dropout_add(cudaStream_t stream, DType type, void *out, const void *res, const void *y,
                               int64_t rows, int64_t C, int64_t positions, CudaDropout dropout);

/* Rows by number, in workspace: keys (the numbers) and positions 0, 1, 2 ... as they come, and both sorted by
 * key, where positions of the same key keep their order. */
typedef struct RowOrder {
    uint32_t *key, *position, *sorted, *from;
    void *room; /* for the sort */
    size_t room_bytes;
} RowOrder;

/* sort.cu; keys are 0 to `largest`. */
cudaError_t launch_sort_bytes(int64_t count, int64_t largest, size_t *ret_bytes);
cudaError_t launch_sort(cudaStream_t stream, RowOrder order, int64_t count, int64_t largest);

/* rows.cu. launch_row_keys makes keys of index - start, and `count` of what is not below it. */
cudaError_t launch_row_keys(cudaStream_t stream, RowOrder order, const int32_t *index, int64_t M,
                            int64_t start, int64_t count);
/* round.cu. `bits`: 8 or 4. */
cudaError_t launch_row_largest(cudaStream_t stream, DType type, float *largest, const void *x, int64_t M,
                               int64_t K);
cudaError_t launch_round_rows(cudaStream_t stream, DType type, int bits, void *y, const void *x,
                              const float *largest, int64_t M, int64_t K);
cudaError_t launch_argmax(cudaStream_t stream, DType type, int32_t *index, const void *x, int64_t M,
                          int64_t C);
cudaError_t launch_gather_rows(cudaStream_t stream, DType type, void *out, const void *x,
                               const int32_t *index, int64_t M, int64_t C, int64_t rows);
cudaError_t launch_scatter_few(cudaStream_t stream, DType type, void *x, const void *y, const int32_t *index,
                               int64_t M, int64_t C, int64_t rows);
cudaError_t launch_scatter_sorted(cudaStream_t stream, DType type, void *x, const void *y, RowOrder order,
                                  int64_t M, int64_t C, int64_t rows);
cudaError_t launch_transpose(cudaStream_t stream, DType type, void *y, const void *x, int64_t M, int64_t N);

/* embedding.cu; rows past the counts are none. */
typedef struct EmbeddingTables {
    const void *wte, *wpe, *wtype;
    int64_t start; /* the token of wte's first row */
    int64_t tokens, positions, types;
} EmbeddingTables;
cudaError_t launch_embedding_forward(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                     const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                     int64_t rows, int64_t positions, int64_t C);
/* linear_int8.cu: the same with a token table of few bits; `tables` has the others. */
cudaError_t launch_embedding_int8(cudaStream_t stream, DType type, void *x, const int32_t *tokens,
                                  const int32_t *types, const int32_t *past, EmbeddingTables tables,
                                  const CudaInt8 *words, int64_t rows, int64_t positions);
size_t embedding_partial_bytes(int64_t count, int64_t C);
cudaError_t launch_token_gradient(cudaStream_t stream, DType type, float *dwte, const void *dx,
                                  RowOrder order, int64_t count, int64_t C, int64_t columns, float *partial);
cudaError_t launch_position_gradient(cudaStream_t stream, DType type, float *dwpe, const void *dx, int64_t B,
                                     int64_t positions, int64_t C);
size_t type_partial_bytes(int64_t kinds, int64_t C);
cudaError_t launch_type_gradient(cudaStream_t stream, DType type, float *dwtype, const void *dx,
                                 const int32_t *types, int64_t rows, int64_t C, int64_t kinds,
                                 float *partial);

/* xent.cu: a vocabulary's part with V columns, the first `real` of which are no padding. */
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

cudaError_t launch_xent_hits(cudaStream_t stream, float *hits, const float *stats, const int32_t *labels,
                             int64_t M, int64_t valid);

/* sum.cu; `partial` is sum_partial_bytes of workspace. */
size_t sum_partial_bytes(void);
cudaError_t launch_sum(cudaStream_t stream, DType type, double *total, const void *x, int64_t count,
                       bool squares, double *partial);
/* totals[(skip + i) / share] += x[i]^2, with sum_parts_bytes of workspace. */
size_t sum_parts_bytes(int64_t count, int64_t skip, int64_t share);
cudaError_t launch_sum_parts(cudaStream_t stream, double *totals, const float *x, int64_t count, int64_t skip,
                             int64_t share, double *partial);

/* optim.cu: AdamW of kernels.h with what is derived from it; `type` is the copy's. */
typedef struct CudaAdamW {
    float lr, beta1, beta2, rest1, rest2, eps, decay; /* rest: 1 - beta */
    float correct1, correct2;                         /* 1 / correction */
    float grad_scale;
    bool keep_zeros;
} CudaAdamW;
cudaError_t launch_adamw(cudaStream_t stream, float *param, float *m, float *v, DType type, void *copy,
                         const float *grad, int64_t count, CudaAdamW spec);

#ifdef __cplusplus
}
#endif

#endif
