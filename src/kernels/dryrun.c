/* Kernels on paper: how much workspace a call would take, and nothing else.
 *
 * For the CPU those are the kernels themselves: they take their workspace first, which on paper ends them.
 * Only slots that do are in the table; others would run. What a GPU's kernels take is written down here,
 * since a plan for a GPU is made on machines without one.
 */
#include "kernels/backend.h"

void kernels_dryrun_fill_cpu(KernelTable *table, const KernelTable *cpu) {
    *table = (KernelTable){
        .name = cpu->name,
        .linear_forward = cpu->linear_forward,
        .linear_backward_input = cpu->linear_backward_input,
        .linear_backward_weight = cpu->linear_backward_weight,
        .linear_fp8_forward = cpu->linear_fp8_forward,
        .linear_fp8_backward = cpu->linear_fp8_backward,
        .layernorm_forward = cpu->layernorm_forward,
        .layernorm_backward = cpu->layernorm_backward,
        .dropout_add_norm_forward = cpu->dropout_add_norm_forward,
        .attention_forward = cpu->attention_forward,
        .attention_backward = cpu->attention_backward,
        .sum = cpu->sum,
        .sum_squares = cpu->sum_squares,
        .sum_squares_parts = cpu->sum_squares_parts,
    };
}

/* ---- a GPU's, as src/kernels/cuda has them ---- */

enum {
    BLAS_BYTES = 32 << 20, /* cuBLASLt's */
    WIDE_BYTES = 64 << 20, /* of a product that waits in fp32 */
    ALIGN = 256,
    NORM_BLOCKS = 3 * 132,
    SUM_BLOCKS = 6 * 132,
    SUM_ELEMENTS = 8192,
    TOKEN_WINDOW = 32,
    SORT_LISTS = 4,
    KEYS_STRETCH = 128,
};

static size_t room(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static Status take(Stream *stream, size_t bytes) {
    void *data;
    return stream_workspace(stream, bytes, &data);
}

/* A copy in the type of the other operand. */
static size_t copied(Tensor x, DType type) {
    return x.dtype == type ? 0 : room((size_t)tensor_count(x) * dtype_size(type));
}

static Status linear_forward_dryrun(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                    Act act) {
    (void)pre, (void)x, (void)act;
    return take(stream,
                BLAS_BYTES +
                    (b.data && b.dtype != y.dtype ? room((size_t)tensor_rows(w) * dtype_size(y.dtype)) : 0));
}

static Status linear_backward_input_dryrun(Stream *stream, Tensor dx, Tensor dy, Tensor w, Act act,
                                           Tensor pre, bool accumulate) {
    (void)pre;
    size_t wide = (size_t)tensor_count(dx) * sizeof(float), waiting = 0;
    bool widens = dx.dtype != DT_F32 && wide <= WIDE_BYTES;
    if (act != ACT_NONE && (widens || accumulate)) waiting = room(widens ? wide : tensor_bytes(dx));
    return take(stream, BLAS_BYTES + copied(dy, w.dtype) + waiting);
}

static Status linear_backward_weight_dryrun(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    (void)dw, (void)db;
    return take(stream, BLAS_BYTES + copied(dy, x.dtype));
}

static Status linear_fp8_forward_dryrun(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                                        Tensor b) {
    (void)y, (void)kept, (void)act, (void)b;
    return take(stream, BLAS_BYTES + (size_t)(tensor_count(x) + tensor_count(w)));
}

/* dy and w both ways, and x where forward did not keep it. */
static Status linear_fp8_backward_dryrun(Stream *stream, Tensor dx, Fp8Found found, Tensor dw, Tensor db,
                                         Tensor dy, Tensor peaks, Tensor w, Fp8Input kept, Tensor x,
                                         Act act) {
    (void)dx, (void)found, (void)dw, (void)db, (void)peaks, (void)act;
    int64_t again = kept.turned.data ? 0 : tensor_count(x);
    return take(stream, BLAS_BYTES + (size_t)(2 * tensor_count(dy) + tensor_count(w) + again));
}

static Status layernorm_backward_dryrun(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                        Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres) {
    (void)dx, (void)dgamma, (void)dbeta, (void)dy, (void)mean, (void)rstd, (void)gamma, (void)dres;
    return take(stream, NORM_BLOCKS * 2 * (size_t)tensor_cols(x) * sizeof(float));
}

/* cuDNN adds up the queries' gradient in a fixed order from one fp32 part for each stretch of keys; that
 * there are so many keys in a stretch was inferred from the totals of runs. With dropout, and for short
 * sequences, weft's own kernels run, which need no such parts. */
static Status attention_backward_dryrun(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse,
                                        Tensor qkv, Tensor lens, Attention spec) {
    (void)dqkv, (void)dout, (void)lens;
    size_t parts = 0, keys = (size_t)qkv.dim[1];
    if (qkv.dtype != DT_F32 && !(spec.dropout.p > 0) && keys >= KEYS_STRETCH)
        parts = (keys + KEYS_STRETCH - 1) / KEYS_STRETCH * (size_t)tensor_count(out) * sizeof(float);
    return take(stream, parts + room(tensor_bytes(lse)) + 2 * (size_t)qkv.dim[0] * sizeof(int32_t));
}

static Status embedding_backward_dryrun(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                        Tensor tokens, Tensor types, VocabPart part) {
    (void)dwte, (void)dwpe, (void)dwtype, (void)types, (void)part;
    size_t count = (size_t)tensor_count(tokens), windows = (count + TOKEN_WINDOW - 1) / TOKEN_WINDOW;
    return take(stream, SORT_LISTS * room(count * sizeof(uint32_t)) +
                            windows * 2 * (size_t)tensor_cols(dx) * sizeof(float));
}

static Status sum_dryrun(Stream *stream, Tensor total, Tensor x) {
    (void)total, (void)x;
    return take(stream, SUM_BLOCKS * sizeof(double));
}

static Status sum_parts_dryrun(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    (void)totals;
    int64_t count = tensor_count(x), longest = share < count ? share : count;
    int64_t parts = (skip + count - 1) / share - skip / share + 1;
    int64_t blocks = (longest + SUM_ELEMENTS - 1) / SUM_ELEMENTS;
    return take(stream, (size_t)parts * (size_t)(blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS) * sizeof(double));
}

void kernels_dryrun_fill_cuda(KernelTable *table) {
    *table = (KernelTable){
        .name = "cuda",
        .linear_forward = linear_forward_dryrun,
        .linear_backward_input = linear_backward_input_dryrun,
        .linear_backward_weight = linear_backward_weight_dryrun,
        .linear_fp8_forward = linear_fp8_forward_dryrun,
        .linear_fp8_backward = linear_fp8_backward_dryrun,
        .layernorm_backward = layernorm_backward_dryrun,
        .attention_backward = attention_backward_dryrun,
        .embedding_backward = embedding_backward_dryrun,
        .sum = sum_dryrun,
        .sum_squares = sum_dryrun,
        .sum_squares_parts = sum_parts_dryrun,
    };
}
