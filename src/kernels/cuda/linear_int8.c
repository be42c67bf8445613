/* Linear layers with weights of 8 and of 4 bits on a GPU.
 *
 * Rows are rounded by a kernel of our own. Up to CUDA_INT8_FEW rows, which generation is made of, are
 * multiplied by our own as well; more by cuBLASLt's products of int8, some rows at a time so that their sums
 * of 32 bits take little room, with our pass after each. What cuBLASLt refuses, and weights of 4 bits, whose
 * sums are of more than 8 bits, goes through the product of few rows again and again: slower, with the same
 * integers.
 *
 * The weights lie in the device's memory where int8_move has put them, else in what the host packed, which
 * the device can read too.
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/int8.h"

enum { SUMS_BYTES = 64 << 20, ALIGN = 256 };

/* 8 bits: rows as they are. 4 bits: 16 bytes of an output's cut together, as one access reads them. */
Status int8_tile_cuda(int bits, Int8Tile *ret_tile) {
    *ret_tile = bits == 8 ? (Int8Tile){1, 1, 16} : (Int8Tile){16, INT4_GROUP, 16};
    return OK;
}

static size_t room(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The weights' part of a call. */
static CudaInt8 weights_of(Tensor w) {
    Int8View view = int8_view(w);
    const char *host = w.data, *base = view.head->place ? view.head->place : host;
    CudaInt8 call = {.N = tensor_rows(w),
                     .K = view.head->inputs,
                     .depth = view.head->depth,
                     .bits = view.head->bits,
                     .held = view.head->largest};
    call.panels = (const int8_t *)(base + ((const char *)view.panels - host));
    call.scale = (const float *)(const void *)(base + ((const char *)view.scale - host));
    if (view.factor) call.factor = (const float *)(const void *)(base + ((const char *)view.factor - host));
    return call;
}

/* `rows` rows from `first` on by cuBLASLt; nothing is done where it refuses. */
static Status by_blas(Stream *stream, const CudaInt8 *call, int64_t first, int64_t rows, void *blas,
                      int32_t *sums, bool *ret_done) {
    CudaProduct product = {.rows = rows, .cols = call->N, .inner = call->depth};
    product.left = call->rounded + first * call->depth;
    product.right = call->panels;
    product.left_type = product.right_type = DT_I8;
    product.right_turned = true;
    product.out = sums;
    product.out_type = DT_I32;
    TRY(blas_product(stream, &product, blas, ret_done));
    if (*ret_done) LAUNCH(launch_int8_finish(cuda_stream(stream), call, sums, first, rows));
    return OK;
}

Status linear_int8_forward_cuda(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act) {
    CudaInt8 call = weights_of(w);
    call.M = tensor_rows(x);
    call.x = x.data;
    call.y = y.data;
    call.pre = pre.data;
    call.bias = b.data;
    call.type = x.dtype;
    call.out = y.dtype;
    call.act = (CudaAct)act;
    bool many = call.M > CUDA_INT8_FEW && call.bits == 8, done = false;
    int64_t each = SUMS_BYTES / (call.N * (int64_t)sizeof(int32_t));
    each = each < 64 ? 64 : each > call.M ? call.M : each;
    size_t rounded = room((size_t)(call.M * call.depth)), units = room((size_t)call.M * sizeof(float));
    void *blas = NULL;
    char *own = NULL;
    size_t sums = many ? room((size_t)(each * call.N) * sizeof(int32_t)) : 0;
    TRY(blas_scratch(stream, rounded + units + sums, &blas, &own));
    call.rounded = (int8_t *)own;
    call.unit = (float *)(void *)(own + rounded);
    LAUNCH(launch_int8_round(cuda_stream(stream), &call));
    for (int64_t first = 0; many && first < call.M; first += each) {
        int64_t rows = call.M - first < each ? call.M - first : each;
        TRY(by_blas(stream, &call, first, rows, blas, (int32_t *)(void *)(own + rounded + units), &done));
        if (!done) break;
    }
    for (int64_t first = 0; !done && first < call.M; first += CUDA_INT8_FEW)
        LAUNCH(launch_int8_few(cuda_stream(stream), &call, first));
    return OK;
}

Status embedding_int8_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                           EmbeddingTables tables) {
    CudaInt8 words = weights_of(wte);
    LAUNCH(launch_embedding_int8(cuda_stream(stream), x.dtype, x.data, tokens.data, types.data, past.data,
                                 tables, &words, x.dim[0] * x.dim[1], x.dim[1]));
    return OK;
}
