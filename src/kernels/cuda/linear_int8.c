/* Linear layers with int8 and int4 weights on a GPU.
 *
 * Rows are quantized by our own kernel. Up to CUDA_INT8_SKINNY_ROWS rows, as in generation, are also
 * multiplied by our own kernel. More rows use cuBLASLt's int8 GEMM, in blocks of rows so that the int32
 * sums take little memory, each followed by an epilogue pass. int4 weights times their steps exceed 8 bits,
 * so they are split into two int8 parts with a GEMM each. Whatever cuBLASLt does not support runs through
 * the skinny kernel repeatedly: slower, but with the same integers.
 *
 * The weights are read from device memory if int8_upload put them there, otherwise from the packed host
 * memory, which the device can also access. */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/int8.h"

enum { SUMS_BYTES = 64 << 20, WEIGHTS_BYTES = 32 << 20 };

/* int8: plain rows. int4: the 16 bytes of an output in a slice are contiguous, so that one access reads
 * them. */
Status int8_tile_cuda(int bits, Int8Tile *ret_tile) {
    *ret_tile = bits == 8 ? (Int8Tile){1, 1, 16, false} : (Int8Tile){16, INT4_GROUP, 16, false};
    return OK;
}

/* A call with only the weights filled in. */
static CudaInt8 weights_of(Tensor w) {
    Int8View view = int8_view(w);
    const char *host = w.data, *base = view.header->device ? view.header->device : host;
    CudaInt8 call = {.N = tensor_rows(w),
                     .K = view.header->inputs,
                     .depth = view.header->depth,
                     .bits = view.header->bits,
                     .static_amax = view.header->amax};
    call.panels = (const int8_t *)(base + ((const char *)view.panels - host));
    call.scale = (const float *)(const void *)(base + ((const char *)view.scale - host));
    if (view.factor) call.factor = (const float *)(const void *)(base + ((const char *)view.factor - host));
    return call;
}

/* Computes the sums of a block with cuBLASLt; *ret_done is false if it does not support the GEMM. */
static Status by_blas(Stream *stream, const CudaInt8 *call, const CudaInt8Block *part, const int8_t *weights,
                      void *blas, int32_t *sums, bool *ret_done) {
    CudaGemm gemm = {.rows = part->rows, .cols = part->cols, .inner = call->depth};
    gemm.left = call->quantized + part->first * call->depth;
    gemm.right = weights;
    gemm.left_type = gemm.right_type = DT_I8;
    gemm.right_transposed = true;
    gemm.out = sums;
    gemm.out_type = DT_I32;
    return cuda_gemm(stream, &gemm, blas, ret_done);
}

/* How many rows and outputs are processed at a time with cuBLASLt, and the memory for them. */
typedef struct BlasBlocks {
    int64_t rows, cols;
    size_t sums, weights; /* bytes per part: of the sums, and of int4 weights as int8 */
    void *blas;
    char *scratch;
} BlasBlocks;

static BlasBlocks plan_blocks(const CudaInt8 *call) {
    BlasBlocks blocks = {.cols = call->N};
    int64_t fit = WEIGHTS_BYTES / call->depth;
    if (call->bits == 4 && blocks.cols > fit) blocks.cols = fit < 16 ? 16 : fit / 16 * 16;
    blocks.rows = SUMS_BYTES / (blocks.cols * (int64_t)sizeof(int32_t));
    blocks.rows = blocks.rows < 64 ? 64 : blocks.rows > call->M ? call->M : blocks.rows;
    blocks.sums = gpu_align((size_t)(blocks.rows * blocks.cols) * sizeof(int32_t));
    blocks.weights = call->bits == 4 ? gpu_align((size_t)(blocks.cols * call->depth)) : 0;
    return blocks;
}

static size_t blocks_bytes(const CudaInt8 *call, const BlasBlocks *blocks) {
    return (blocks->sums + blocks->weights) * (call->bits == 4 ? 2 : 1);
}

/* All rows times some of the outputs; stops if cuBLASLt does not support the GEMM. */
static Status run_outputs(Stream *stream, const CudaInt8 *call, const BlasBlocks *blocks, int64_t from,
                          bool *ret_done) {
    bool int4 = call->bits == 4;
    int32_t *sums = (int32_t *)(void *)blocks->scratch, *low = NULL;
    int8_t *parts = (int8_t *)blocks->scratch + 2 * blocks->sums;
    CudaInt8Block part = {.from = from,
                          .cols = call->N - from < blocks->cols ? call->N - from : blocks->cols};
    part.sums = sums;
    if (int4) {
        part.low = low = (int32_t *)(void *)(blocks->scratch + blocks->sums);
        LAUNCH(launch_int4_parts(cuda_stream(stream), call, from, part.cols, parts, parts + blocks->weights));
    }
    for (part.first = 0; part.first < call->M; part.first += blocks->rows) {
        part.rows = call->M - part.first < blocks->rows ? call->M - part.first : blocks->rows;
        TRY(by_blas(stream, call, &part, int4 ? parts : call->panels, blocks->blas, sums, ret_done));
        if (*ret_done && int4)
            TRY(by_blas(stream, call, &part, parts + blocks->weights, blocks->blas, low, ret_done));
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
    call.act = act;
    bool done = false;
    BlasBlocks blocks = {0};
    if (call.M > CUDA_INT8_SKINNY_ROWS) blocks = plan_blocks(&call);
    size_t quantized = gpu_align((size_t)(call.M * call.depth)),
           scales = gpu_align((size_t)call.M * sizeof(float));
    char *extra = NULL;
    TRY(blas_scratch(stream, quantized + scales + blocks_bytes(&call, &blocks), &blocks.blas, &extra));
    blocks.scratch = extra + quantized + scales;
    call.quantized = (int8_t *)extra;
    call.row_scale = (float *)(void *)(extra + quantized);
    LAUNCH(launch_int8_quantize(cuda_stream(stream), &call));
    for (int64_t from = 0; blocks.rows && from < call.N; from += blocks.cols) {
        TRY(run_outputs(stream, &call, &blocks, from, &done));
        if (!done) break;
    }
    for (int64_t first = 0; !done && first < call.M; first += CUDA_INT8_SKINNY_ROWS)
        LAUNCH(launch_int8_skinny(cuda_stream(stream), &call, first));
    return OK;
}

/* Prompts have more rows per expert; reading the weights once per 16 rows is then slow. */
bool groups_packed_cuda(Tensor y, Tensor x, Tensor w) {
    enum { FEW = 256 };
    (void)y, (void)w;
    return tensor_rows(x) <= FEW;
}

Status grouped_int8_cuda(Stream *stream, Tensor y, Tensor x, Tensor w, Tensor offsets) {
    CudaInt8 call = weights_of(tensor_2d(w.data, w.dtype, w.dim[1], w.dim[2]));
    const Int8Header *header = w.data;
    const char *base = header->device ? header->device : w.data;
    CudaInt8Experts experts = {offsets.data, w.dim[0], (int64_t)int8_stride(header),
                               (const float *)(const void *)(base + offsetof(Int8Header, amax))};
    void *scratch = NULL;
    call.M = tensor_rows(x);
    call.x = x.data;
    call.y = y.data;
    call.type = call.out = x.dtype;
    size_t quantized = gpu_align((size_t)(call.M * call.depth));
    TRY(stream_workspace(stream, quantized + (size_t)call.M * sizeof(float), &scratch));
    call.quantized = scratch;
    call.row_scale = (float *)(void *)((char *)scratch + quantized);
    LAUNCH(launch_int8_experts(cuda_stream(stream), &call, &experts));
    return OK;
}

Status embedding_int8_cuda(Stream *stream, Tensor x, Tensor tokens, Tensor types, Tensor positions,
                           Tensor wte, EmbeddingTables tables) {
    CudaInt8 words = weights_of(wte);
    int64_t T = positions.ndim > 1 ? 1 : x.dim[1]; /* as in embedding_forward_cuda */
    LAUNCH(launch_embedding_int8(cuda_stream(stream), x.dtype, x.data, tokens.data, types.data,
                                 positions.data, tables, &words, x.dim[0] * x.dim[1], T));
    return OK;
}
