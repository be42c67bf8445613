/* Kernels of a dry run: they request the workspace that a call would need and do nothing else.
 *
 * For the CPU these are the real kernels. They request their workspace first, and on a dry-run device that
 * request ends the call. The table contains only slots that request workspace; any other slot would really
 * run. The workspace of the GPU kernels is computed here, because plans for GPUs are also made on hosts
 * without one. These formulas must match src/kernels/cuda. */
#include "kernels/backend.h"

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

enum {
    BLAS_BYTES = 32 << 20,        /* cuBLASLt's workspace */
    FP32_RESULT_BYTES = 64 << 20, /* largest matmul result that is kept in fp32 */
    FP32_SUM_BYTES = 4 << 20,
    MIN_COLS_ROUND_ONCE = 128,
    COLUMN_SUM_COLS = 256, /* of linear.cu: per block */
    COLUMN_SUM_ROWS = 64,
    COLUMN_SUM_BLOCKS = 1024,
    FP8_TILE_ROWS = 64, /* of fp8.cu */
    ALIGN = 256,
    NORM_BLOCKS = 3 * 132,
    SUM_BLOCKS = 6 * 132,
    SUM_ELEMENTS = 8192,
    TOKEN_WINDOW = 32,
    SORT_LISTS = 4,
    CUDNN_KEY_BLOCK = 128,
    HOPPER_KEYS = 128, /* per tile of attention_hopper_backward.cu */
    HOPPER_SHORTEST = 96,
    HOPPER_DRAW_WARPS = 3,
    HOPPER_MASK_BYTES = 1 << 28,
};

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static Status request(Stream *stream, size_t bytes) {
    void *data;
    return stream_workspace(stream, bytes, &data);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Bytes of a copy of x converted to `type`; 0 if it has that type. */
static size_t converted_bytes(Tensor x, DType type) {
    return x.dtype == type ? 0 : aligned((size_t)tensor_count(x) * dtype_size(type));
}

/* cuBLASLt's kernels for few columns round their result before they add to it. */
static bool rounds_early(DType type, int64_t cols) {
    return type != DT_F32 && cols < MIN_COLS_ROUND_ONCE;
}

/* Bytes of the partial column sums of (rows,cols). */
static size_t column_sums_bytes(int64_t rows, int64_t cols) {
    int64_t tiles = (cols + COLUMN_SUM_COLS - 1) / COLUMN_SUM_COLS;
    int64_t most = (rows + COLUMN_SUM_ROWS - 1) / COLUMN_SUM_ROWS;
    int64_t chunks = (COLUMN_SUM_BLOCKS + tiles - 1) / tiles;
    return aligned((size_t)((chunks < most ? chunks : most) * cols) * sizeof(float));
}

static Status linear_forward_dryrun(Stream *stream, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b,
                                    Act act) {
    (void)pre, (void)act;
    int64_t cols = tensor_rows(w);
    bool in_fp32 = b.data && (rounds_early(y.dtype, cols) || (y.dtype != DT_F32 && tensor_cols(x) % 8));
    DType type = in_fp32 ? DT_F32 : y.dtype;
    size_t bias = b.data && b.dtype != type ? aligned((size_t)cols * dtype_size(type)) : 0;
    size_t result = in_fp32 ? aligned((size_t)tensor_count(y) * sizeof(float)) : 0;
    return request(stream, BLAS_BYTES + bias + result);
}

static Status linear_backward_input_dryrun(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Tensor w,
                                           Act act, Tensor pre, bool accumulate) {
    (void)pre;
    int64_t rows = tensor_rows(dx), cols = tensor_cols(dx);
    size_t fp32_bytes = (size_t)tensor_count(dx) * sizeof(float), result = 0;
    size_t partial = sums.data ? column_sums_bytes(rows, cols) : 0;
    bool in_fp32 = dx.dtype != DT_F32 && fp32_bytes <= FP32_RESULT_BYTES;
    bool early = rounds_early(dx.dtype, cols) || (dx.dtype != DT_F32 && fp32_bytes <= FP32_SUM_BYTES);
    if (act != ACT_NONE ? in_fp32 || accumulate : accumulate && early)
        result = aligned(in_fp32 ? fp32_bytes : tensor_bytes(dx));
    return request(stream, BLAS_BYTES + converted_bytes(dy, w.dtype) + result + partial);
}

static Status linear_backward_weight_dryrun(Stream *stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                                            bool accumulate) {
    (void)dw, (void)accumulate;
    size_t partial = db.data ? column_sums_bytes(tensor_rows(dy), tensor_cols(dy)) : 0;
    return request(stream, BLAS_BYTES + converted_bytes(dy, x.dtype) + partial);
}

static Status linear_fp8_forward_dryrun(Stream *stream, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                                        Fp8Weight weight, Tensor b, Fp8Scales scales) {
    (void)y, (void)act, (void)b, (void)scales;
    int64_t w_count = weight.plain.data ? 0 : tensor_count(w),
            x_count = kept.plain.data ? 0 : tensor_count(x);
    return request(stream, BLAS_BYTES + (size_t)(x_count + w_count));
}

static Status fp8_weight_dryrun(Stream *stream, Fp8Weight weight, Tensor w, Fp8Scale scale) {
    (void)weight, (void)w, (void)scale;
    return request(stream, FP8_AMAX_PARTS * sizeof(float));
}

/* Bytes of the sums of tiles of (rows,cols), with delayed scaling. */
static size_t fp8_sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)((rows + FP8_TILE_ROWS - 1) / FP8_TILE_ROWS * cols) * sizeof(float);
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
    return request(stream, BLAS_BYTES + (size_t)(dy_count + w_count + x_count) + sums);
}

static Status layernorm_backward_dryrun(Stream *stream, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy,
                                        Tensor x, Tensor mean, Tensor rstd, Tensor gamma, Tensor dres,
                                        NormSums sums) {
    (void)dx, (void)dgamma, (void)dbeta, (void)dy, (void)mean, (void)rstd, (void)gamma, (void)dres;
    size_t own = NORM_BLOCKS * 2 * (size_t)tensor_cols(x) * sizeof(float), columns = 0;
    if (sums.dx.data || sums.dres.data) columns = column_sums_bytes(tensor_rows(x), tensor_cols(x));
    return request(stream, larger(own, columns));
}

static Status dropout_backward_dryrun(Stream *stream, Tensor dx, Tensor sums, Tensor dy, Dropout dropout) {
    (void)dx, (void)dropout;
    return request(stream, sums.data ? column_sums_bytes(tensor_rows(dy), tensor_cols(dy)) : 0);
}

static Status rmsnorm_backward_dryrun(Stream *stream, Tensor dx, Tensor dgamma, Tensor dy, Tensor x,
                                      Tensor rstd, Tensor gamma, Tensor dres, HeadRange heads) {
    (void)dx, (void)dgamma, (void)dy, (void)rstd, (void)gamma, (void)dres, (void)heads;
    return request(stream, NORM_BLOCKS * (size_t)tensor_cols(x) * sizeof(float));
}

static bool is_windowed(const QkvShape *s, const Attention *spec) {
    return (spec->window && spec->window < s->T) || spec->starts.data;
}

/* Weft's Hopper kernels: dq in fp32, dk and dv as well if heads share keys, two or three statistics per row,
 * the dropout masks that are drawn ahead, and a counter per tile. */
static size_t hopper_bytes(const QkvShape *s, const Attention *spec) {
    size_t heads = (size_t)(s->B * s->H), width = (size_t)s->D, ratio = width / 64;
    size_t tiles = ((size_t)s->T + HOPPER_KEYS - 1) / HOPPER_KEYS, rows = heads * tiles * HOPPER_KEYS;
    size_t shared_rows = s->group > 1 ? rows / (size_t)s->group : 0;
    size_t units = HOPPER_KEYS / ratio / 16; /* of a tile's mask */
    size_t ahead = units > 2 * HOPPER_DRAW_WARPS ? units - 2 * HOPPER_DRAW_WARPS : 0;
    size_t masks = rows * tiles * ratio * ahead * sizeof(uint16_t);
    if (!(spec->dropout.p > 0) || masks > HOPPER_MASK_BYTES) masks = 0;
    size_t counters = rows / HOPPER_KEYS * ratio + shared_rows / HOPPER_KEYS + 1;
    size_t sums = spec->sums.data && s->group == 1 ? rows / HOPPER_KEYS * width * (HOPPER_KEYS / 64 + 2) : 0;
    return sums * sizeof(float) +
           (rows * (width + 2 + is_windowed(s, spec)) + 2 * shared_rows * width) * sizeof(float) + masks +
           counters * sizeof(int32_t);
}

static bool uses_hopper(const Stream *stream, DType dtype, const QkvShape *s) {
    int capability = stream->device->planned;
    return capability >= 90 && capability < 100 && (dtype == DT_BF16 || dtype == DT_F16) &&
           (s->D == 64 || s->D == 128) && s->T >= HOPPER_SHORTEST;
}

/* cuDNN reduces dq in a fixed order from one fp32 partial result per block of keys. The block size is
 * inferred from the workspace of real runs. With dropout, for short sequences, with fewer key heads than
 * query heads, windows or documents, weft uses its own kernels; the portable ones need no partial results. */
static Status attention_backward_dryrun(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse,
                                        Tensor qkv, Tensor lens, Attention spec) {
    (void)dqkv, (void)dout, (void)lens;
    QkvShape s = qkv_shape(qkv, &spec);
    size_t parts = 0, keys = (size_t)s.T;
    bool plain = s.group == 1 && !is_windowed(&s, &spec);
    size_t columns = spec.sums.data ? column_sums_bytes(s.B * s.T, s.N * s.D) : 0;
    if (uses_hopper(stream, qkv.dtype, &s)) return request(stream, larger(columns, hopper_bytes(&s, &spec)));
    if (plain && qkv.dtype != DT_F32 && !(spec.dropout.p > 0) && keys >= CUDNN_KEY_BLOCK)
        parts = (keys + CUDNN_KEY_BLOCK - 1) / CUDNN_KEY_BLOCK * (size_t)tensor_count(out) * sizeof(float);
    size_t bytes = parts + aligned(tensor_bytes(lse)) + 2 * (size_t)qkv.dim[0] * sizeof(int32_t);
    return request(stream, larger(columns, bytes));
}

static Status embedding_backward_dryrun(Stream *stream, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                        Tensor tokens, Tensor types, Tensor positions, VocabPart part) {
    (void)dwte, (void)dwpe, (void)dwtype, (void)types, (void)positions, (void)part;
    size_t count = (size_t)tensor_count(tokens), windows = (count + TOKEN_WINDOW - 1) / TOKEN_WINDOW;
    return request(stream, SORT_LISTS * aligned(count * sizeof(uint32_t)) +
                               windows * 2 * (size_t)tensor_cols(dx) * sizeof(float));
}

static Status sum_dryrun(Stream *stream, Tensor total, Tensor x) {
    (void)total, (void)x;
    return request(stream, SUM_BLOCKS * sizeof(double));
}

static Status sum_squares_dryrun(Stream *stream, Tensor total, Tensor x) {
    return sum_dryrun(stream, total, x);
}

static Status sum_squares_parts_dryrun(Stream *stream, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    (void)totals;
    int64_t count = tensor_count(x), longest = share < count ? share : count;
    int64_t parts = (skip + count - 1) / share - skip / share + 1;
    int64_t blocks = (longest + SUM_ELEMENTS - 1) / SUM_ELEMENTS;
    return request(stream,
                   (size_t)parts * (size_t)(blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS) * sizeof(double));
}

static Status sketch_dryrun(Stream *stream, Tensor totals, Tensor x, SketchMap map) {
    (void)totals, (void)x, (void)map;
    return request(stream, SKETCH_MAX * sizeof(float));
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
