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
    void *aux;  /* (rows,cols) of out's type */
    void *sums; /* (rows) of out's type */
} CudaProduct;

/* Any shape and alignment, slowly: what cuBLASLt refuses. Operands of one type, epilogue none. */
cudaError_t launch_product(cudaStream_t stream, const CudaProduct *product);
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
/* Puts `k`, `v`, new rows as queries are, into the caches. */
cudaError_t launch_attention_append(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                    CudaHeads v);
/* One new position: `k`, `v` are its rows, and it is appended as well. The keys of a head are cut into
 * `splits` parts; with more than one, `parts` has room for (B * H, splits, D + 2). */
cudaError_t launch_attention_decode(cudaStream_t stream, DType type, const CudaAttention *call, CudaHeads k,
                                    CudaHeads v, int splits, float *parts);

#ifdef __cplusplus
}
#endif

#endif
