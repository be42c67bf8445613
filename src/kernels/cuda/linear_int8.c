/* Linear layers with weights of 8 and of 4 bits on a GPU.
 *
 * Rows are rounded by a kernel of our own. Up to CUDA_INT8_FEW rows, which generation is made of, are
 * multiplied by our own as well; more by cuBLASLt's products of int8, some rows at a time so that their sums
 * of 32 bits take little room, with our pass after each. Weights of 4 bits times their steps are more than 8
 * bits: they become two parts of 8, with a product each. What cuBLASLt refuses goes through the product of
 * few rows again and again: slower, with the same integers.
 *
 * The weights lie in the device's memory where int8_move has put them, else in what the host packed, which
 * the device can read too.
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/int8.h"

enum { SUMS_BYTES = 64 << 20, WEIGHTS_BYTES = 32 << 20, ALIGN = 256 };

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

/* The sums of a part by cuBLASLt; nothing is done where it refuses. */
static Status by_blas(Stream *stream, const CudaInt8 *call, const CudaInt8Part *part, const int8_t *weights,
                      void *blas, int32_t *sums, bool *ret_done) {
    CudaProduct product = {.rows = part->rows, .cols = part->cols, .inner = call->depth};
    product.left = call->rounded + part->first * call->depth;
    product.right = weights;
    product.left_type = product.right_type = DT_I8;
    product.right_turned = true;
    product.out = sums;
    product.out_type = DT_I32;
    return blas_product(stream, &product, blas, ret_done);
}

/* What many rows at once take: so many rows and outputs at a time, in scratch of its own. */
typedef struct Many {
    int64_t rows, cols;
    size_t sums, weights; /* bytes of sums, and of the parts of weights of 4 bits; of one each */
    void *blas;
    char *scratch;
} Many;

static Many many_of(const CudaInt8 *call) {
    Many many = {.cols = call->N};
    int64_t fit = WEIGHTS_BYTES / call->depth;
    if (call->bits == 4 && many.cols > fit) many.cols = fit < 16 ? 16 : fit / 16 * 16;
    many.rows = SUMS_BYTES / (many.cols * (int64_t)sizeof(int32_t));
    many.rows = many.rows < 64 ? 64 : many.rows > call->M ? call->M : many.rows;
    many.sums = room((size_t)(many.rows * many.cols) * sizeof(int32_t));
    many.weights = call->bits == 4 ? room((size_t)(many.cols * call->depth)) : 0;
    return many;
}

static size_t many_bytes(const CudaInt8 *call, const Many *many) {
    return (many->sums + many->weights) * (call->bits == 4 ? 2 : 1);
}

/* All rows by some of the outputs; stops where cuBLASLt refuses. */
static Status some_outputs(Stream *stream, const CudaInt8 *call, const Many *many, int64_t from,
                           bool *ret_done) {
    bool four = call->bits == 4;
    int32_t *sums = (int32_t *)(void *)many->scratch, *low = NULL;
    int8_t *parts = (int8_t *)many->scratch + 2 * many->sums;
    CudaInt8Part part = {.from = from, .cols = call->N - from < many->cols ? call->N - from : many->cols};
    part.sums = sums;
    if (four) {
        part.low = low = (int32_t *)(void *)(many->scratch + many->sums);
        LAUNCH(launch_int4_parts(cuda_stream(stream), call, from, part.cols, parts, parts + many->weights));
    }
    for (part.first = 0; part.first < call->M; part.first += many->rows) {
        part.rows = call->M - part.first < many->rows ? call->M - part.first : many->rows;
        TRY(by_blas(stream, call, &part, four ? parts : call->panels, many->blas, sums, ret_done));
        if (*ret_done && four)
            TRY(by_blas(stream, call, &part, parts + many->weights, many->blas, low, ret_done));
        if (!*ret_done) return OK;
        LAUNCH(launch_int8_finish(cuda_stream(stream), call, &part));
    }
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
    bool done = false;
    Many many = {0};
    if (call.M > CUDA_INT8_FEW) many = many_of(&call);
    size_t rounded = room((size_t)(call.M * call.depth)), units = room((size_t)call.M * sizeof(float));
    char *own = NULL;
    TRY(blas_scratch(stream, rounded + units + many_bytes(&call, &many), &many.blas, &own));
    many.scratch = own + rounded + units;
    call.rounded = (int8_t *)own;
    call.unit = (float *)(void *)(own + rounded);
    LAUNCH(launch_int8_round(cuda_stream(stream), &call));
    for (int64_t from = 0; many.rows && from < call.N; from += many.cols) {
        TRY(some_outputs(stream, &call, &many, from, &done));
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
