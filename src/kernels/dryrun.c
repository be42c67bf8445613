/* Kernels of a dry run: they request the workspace that a call would need and do nothing else.
 *
 * For the CPU these are the real kernels. They request their workspace first, and on a dry-run device that
 * request ends the call. The table contains only slots that request workspace; any other slot would really
 * run. The workspace of the GPU kernels is computed here, because plans for GPUs are also made on hosts
 * without one; gpu_workspace.h has the sizes. */
#include "kernels/backend.h"
#include "kernels/gpu_workspace.h"

#define CPU_NONE(name)
#define CPU_CPU(name) .name = cpu->name,
#define CPU_GPU(name)
#define CPU_BOTH(name) .name = cpu->name,

void kernels_dryrun_fill_cpu(KernelTable *table, const KernelTable *cpu) {
    *table = (KernelTable){
        .name = cpu->name,
#define KERNEL(id, name, phase, work, launches, backends, workspace, ...) CPU_##workspace(name)
#include "kernels/ops.def"
    };
}

/* ---- GPU workspace, as in src/kernels/cuda ---- */

static Status request(Stream *stream, size_t bytes) {
    void *data;
    return stream_workspace(stream, bytes, &data);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Bytes of a copy of x converted to `type`; 0 if it has that type. */
static size_t converted_bytes(Tensor x, DType type) {
    return x.dtype == type ? 0 : gpu_align((size_t)tensor_count(x) * dtype_size(type));
}

/* Bytes of the partial column sums of x, if they are needed. */
static size_t columns_bytes(Tensor sums, Tensor x) {
    return sums.data ? gpu_align(column_sums_bytes(tensor_rows(x), tensor_cols(x))) : 0;
}

static Status linear_forward_dryrun(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                    Act act) {
    (void)pre, (void)act;
    int64_t cols = tensor_rows(w);
    bool in_fp32 = linear_in_fp32(y.dtype, cols, tensor_cols(x), b.data);
    DType type = in_fp32 ? DT_F32 : y.dtype;
    size_t bias = b.data && b.dtype != type ? gpu_align((size_t)cols * dtype_size(type)) : 0;
    size_t result = in_fp32 ? gpu_align((size_t)tensor_count(y) * sizeof(float)) : 0;
    return request(stream, BLAS_WORKSPACE + bias + result);
}

static Status linear_backward_input_dryrun(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w,
                                           Act act, Tensor pre, bool accumulate) {
    (void)pre;
    LinearResult how = linear_result(dx.dtype, tensor_rows(dx), tensor_cols(dx), act != ACT_NONE, accumulate);
    size_t result = how.separate ? gpu_align((size_t)tensor_count(dx) * dtype_size(how.type)) : 0;
    return request(stream, BLAS_WORKSPACE + converted_bytes(dy, w.dtype) + result + columns_bytes(sums, dx));
}

static Status linear_backward_weight_dryrun(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                            bool accumulate) {
    (void)accumulate;
    if (!dw.data) return request(stream, columns_bytes(db, dy));
    return request(stream, BLAS_WORKSPACE + converted_bytes(dy, x.dtype) + columns_bytes(db, dy));
}

static Status linear_fp8_forward_dryrun(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                                        Fp8Weight weight, Tensor b, Fp8Scales scales) {
    (void)y, (void)act, (void)b, (void)scales;
    int64_t w_count = weight.plain.data ? 0 : tensor_count(w),
            x_count = kept.plain.data ? 0 : tensor_count(x);
    return request(stream, BLAS_WORKSPACE + (size_t)(x_count + w_count));
}

static Status fp8_weight_dryrun(Stream *stream, Fp8Weight weight, Tensor w, Fp8Scale scale) {
    (void)weight, (void)w, (void)scale;
    return request(stream, FP8_AMAX_PARTS * sizeof(float));
}

/* Bytes of the sums of tiles of (rows,cols), with delayed scaling. */
static size_t fp8_sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)(gpu_tiles(rows, FP8_SUM_ROWS) * cols) * sizeof(float);
}

/* dy in both orientations unless it is quantized already, w transposed, and x if forward did not save it. */
static Status linear_fp8_backward_dryrun(Stream *stream, Tensor dx, Fp8Gradient next, Tensor dw, Tensor db,
                                         Tensor dy, Fp8Gradient known, Dropout dropout, Tensor w,
                                         Fp8Weight weight, Fp8Input kept, Tensor x, Act act, bool add,
                                         bool accumulate, Fp8Scales scales) {
    (void)dw, (void)act, (void)add, (void)accumulate, (void)dropout;
    int64_t w_count = weight.plain.data ? 0 : tensor_count(w);
    int64_t x_count = kept.transposed.data ? 0 : tensor_count(x);
    int64_t dy_count = (!known.plain.data + !known.transposed.data) * tensor_count(dy);
    bool tiles = db.data && scales.gradient.scale.data;
    size_t sums = tiles ? fp8_sums_bytes(tensor_rows(dy), tensor_cols(dy)) : 0;
    if (next.plain.data) sums += fp8_sums_bytes(tensor_rows(dx), tensor_cols(dx));
    return request(stream, BLAS_WORKSPACE + (size_t)(dy_count + w_count + x_count) + sums);
}

static Status layernorm_backward_dryrun(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                        Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres,
                                        NormSums sums) {
    (void)dx, (void)dgamma, (void)dbeta, (void)dy, (void)mean, (void)rstd, (void)gamma, (void)dres;
    bool summed = sums.dx.data || sums.dres.data;
    return request(stream, norm_backward_bytes(tensor_rows(x), tensor_cols(x), summed));
}

static Status dropout_backward_dryrun(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    (void)dx, (void)dropout;
    return request(stream, columns_bytes(sums, dy));
}

static Status rmsnorm_backward_dryrun(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x,
                                      Tensor rstd, Tensor gamma, Tensor dres, HeadRange heads) {
    (void)dx, (void)dgamma, (void)dy, (void)rstd, (void)gamma, (void)dres, (void)heads;
    return request(stream, rmsnorm_backward_bytes(tensor_cols(x)));
}

static bool uses_hopper(const Stream *stream, DType dtype, const QkvShape *s, const Attention *spec) {
    int capability = stream->device->planned;
    return capability >= 90 && capability < 100 && (dtype == DT_BF16 || dtype == DT_F16) &&
           (s->D == 64 || s->D == 128) && s->T >= SHORTEST_HOPPER && keeps_tiles(&spec->queries, s->T) &&
           keeps_tiles(&spec->keys, s->keys);
}

/* cuDNN reduces dq in a fixed order from one fp32 partial result per block of keys. The block size is
 * inferred from the workspace of real runs. With dropout, for short sequences, with fewer key heads than
 * query heads, windows, documents or keys of other ranks, weft uses its own kernels; the portable ones need
 * no partial results. */
static Status attention_backward_dryrun(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse,
                                        Tensor qkv, Tensor lens, Attention spec) {
    enum { CUDNN_KEY_BLOCK = 128 };
    (void)dout, (void)lens;
    QkvShape s = qkv_shape(qkv, &spec);
    HopperCall call = {s.B,
                       s.H,
                       s.group,
                       s.T,
                       s.keys,
                       s.D,
                       spec.kv.data != NULL,
                       (spec.window && spec.window < positions_of(&s, &spec)) || spec.starts.data,
                       spec.dropout.p > 0,
                       spec.sums.data && s.group == 1};
    size_t parts = 0, keys = (size_t)s.T, columns = columns_bytes(spec.sums, qkv_rows(dqkv));
    if (uses_hopper(stream, qkv.dtype, &s, &spec)) {
        size_t bytes = hopper_is_short(&call) ? 0 : hopper_layout(&call).end * sizeof(float);
        return request(stream, larger(columns, bytes));
    }
    if (s.group == 1 && !call.windowed && !call.parts && !call.dropout && qkv.dtype != DT_F32 &&
        keys >= SHORTEST_CUDNN)
        parts = (keys + CUDNN_KEY_BLOCK - 1) / CUDNN_KEY_BLOCK * (size_t)tensor_count(out) * sizeof(float);
    size_t bytes = parts + gpu_align(tensor_bytes(lse)) + 2 * (size_t)qkv.dim[0] * sizeof(int32_t);
    return request(stream, larger(columns, bytes));
}

static Status route_count_dryrun(Stream *stream, Tensor counts, Tensor totals, Tensor logits, Tensor experts,
                                 Tensor load, Route spec) {
    (void)counts, (void)totals, (void)experts, (void)load, (void)spec;
    return request(stream, route_count_bytes(tensor_rows(logits)));
}

static Status expert_sort_dryrun(Stream *stream, Tensor place, Tensor slots, Tensor offsets, Tensor experts) {
    (void)place, (void)slots;
    return request(stream, expert_sort_bytes(tensor_count(experts), tensor_count(offsets) - 1));
}

static Status grouped_backward_weight_dryrun(Stream *stream, Tensor dw, Tensor dy, Tensor x, Tensor offsets,
                                             bool accumulate) {
    (void)dw, (void)x, (void)offsets, (void)accumulate;
    return request(stream, grouped_weight_bytes(dy.dtype));
}

static Status embedding_backward_dryrun(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                        Tensor tokens, Tensor types, Tensor positions, VocabPart part) {
    (void)dwte, (void)dwpe, (void)dwtype, (void)types, (void)positions, (void)part;
    int64_t count = tensor_count(tokens);
    return request(stream,
                   ROW_LISTS * row_list_bytes(count) + embedding_partial_bytes(count, tensor_cols(dx)));
}

static Status sum_dryrun(Stream *stream, Tensor total, Tensor x) {
    (void)total, (void)x;
    return request(stream, sum_partial_bytes());
}

static Status sum_squares_dryrun(Stream *stream, Tensor total, Tensor x) {
    return sum_dryrun(stream, total, x);
}

static Status sum_squares_parts_dryrun(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    (void)totals;
    return request(stream, sum_parts_bytes(tensor_count(x), skip, share));
}

static Status sketch_dryrun(Stream *stream, Tensor totals, Tensor x, SketchMap map) {
    (void)totals, (void)x, (void)map;
    return request(stream, sketch_partial_bytes());
}

#define GPU_NONE(name)
#define GPU_CPU(name)
#define GPU_GPU(name)  .name = name##_dryrun,
#define GPU_BOTH(name) .name = name##_dryrun,

void kernels_dryrun_fill_cuda(KernelTable *table) {
    *table = (KernelTable){
        .name = "cuda",
#define KERNEL(id, name, phase, work, launches, backends, workspace, ...) GPU_##workspace(name)
#include "kernels/ops.def"
    };
}
