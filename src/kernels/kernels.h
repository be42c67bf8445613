/* The kernels: every operation that a model block can run on a device. ops.def lists them with their
 * contracts; this file has the rules that all of them follow and the types of their arguments.
 *
 * Each kernel is a function (layernorm_forward, for example) that checks shapes and types, records the call
 * in the profile and runs the slot of the same name in the backend's KernelTable. The `ref` table is complete
 * and simple; the `cpu` backend starts from a copy of it and overrides slots.
 *
 * Shapes
 *   B sequences   T positions   N = B*T rows   C hidden size   H heads   G key and value heads   D head size
 *   F inner (MLP) size   E experts
 *   V vocabulary size (of this rank's part)   M, N and K in the linear kernels are plain GEMM sizes
 * Tensors are contiguous and row-major. Row-wise kernels accept any leading dims: layernorm treats (B,T,C)
 * and (N,C) alike.
 *
 * Arguments
 *   Outputs come first, then inputs. An optional argument is absent when it is TENSOR_NONE. Arguments that
 *   are not called optional are required. An output must not overlap any other argument, unless the kernel's
 *   comment allows it. A call on zero rows succeeds and does nothing.
 *
 * Gradients of parameters are accumulated (+=). Gradients of activations are overwritten, unless an argument
 * says otherwise.
 *
 * Determinism. Every reduction runs in a fixed order: on a CPU it depends on shapes and not on the number of
 * threads (except in GEMMs of a BLAS library); on a GPU on shapes and, for GEMMs, on the algorithm that
 * cuda/blas_tune.c has stored for them. The same call therefore returns the same bits.
 *
 * Types. The compute type is fp32, bf16 or fp16. It follows from the tensors of a call, which must agree:
 *   compute type          activations (x, y, pre, qkv, out, caches) and their gradients; the copies of
 *                         weights, norms and biases that kernels read (w, b, gamma, beta, wte ...)
 *   compute type or fp32  logits and their gradient
 *   always fp32           statistics (mean, rstd, lse, stats), losses, gradients of parameters (dw, db,
 *                         dgamma, dbeta, dwte ...), the optimizers' param, state and grad
 *   always fp64           the totals of sum, sum_squares, sum_squares_parts and route_count
 * Arithmetic and accumulation inside a kernel are fp32 or better. A result is rounded to its type once, when
 * it is stored: to nearest, ties to even. Values too large for fp16 become infinity and NaN stays NaN, so an
 * overflow propagates to the check in sum_squares. Accumulating into a tensor reads it, adds in fp32 and
 * rounds. When a result is both stored and used further in the same call (pre, and the sum under a norm),
 * the stored, rounded value is used, so that recomputing from it gives the same bits.
 *
 * Errors. A failed check is a bug in the caller: its message starts with "internal:" and names the kernel
 * and the tensor.
 */
#ifndef WEFT_KERNELS_KERNELS_H
#define WEFT_KERNELS_KERNELS_H

#include "base/rng.h"
#include "device/device.h"
#include "kernels/profile.h"
#include "kernels/sketch.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

typedef enum { ACT_NONE, ACT_GELU_TANH, ACT_GELU_ERF, ACT_RELU, ACT_TANH, ACT_SILU, ACT_COUNT } Act;

/* The positions of a tensor's rows in their sequences. Other ranks may have the other rows. Row t is at
 * first + t, or at second + t - turn from row `turn` on, unless that is 0. Positions increase. {0}: row t is
 * at position t. */
typedef struct Positions {
    int64_t first, turn, second;
} Positions;

/* The position of a row. */
static inline int64_t position_of(const Positions *at, int64_t row) {
    return at->turn && row >= at->turn ? at->second + row - at->turn : at->first + row;
}

/* Inverted dropout: an element is kept if its 16-bit random draw is at least p * 2^16, rounded, and is then
 * divided by 1 - p, with p rounded likewise, so that the expected value stays exact. The mask does not depend
 * on how a tensor is sharded, because a draw is indexed by the element's position in the *global* tensor:
 *   (B,T,C) tensors:      ((b + origin[0]) * extent[0] + t + origin[1]) * extent[1] + c + origin[2]
 *   attention (b,h,q,k):  query ((b + origin[0]) * extent[0] + h + origin[1]) * extent[1] + q, and k: see
 *                         dropout_word of backend.h
 * where extent is the global {T, C} or {H, T}, respectively. With `rows`, each sequence has that many rows
 * here, at the positions `at`, and the tensor's rows follow one another from row origin[1] of all that are
 * here: row r of those is position_of(at, r % rows) of sequence r / rows + origin[0]. */
typedef struct Dropout {
    float p; /* in [0, 1); 0 turns dropout off */
    RngKey key;
    int64_t origin[3];
    int64_t extent[2];
    int64_t rows; /* 0: a tensor has all positions, or those from origin[1] on */
    Positions at;
    Tensor step; /* (1) int64, optional: key.step on the device. GPUs read it there, so that each replay of a
                  * recording draws new masks. Only copies write it, not kernels */
} Dropout;

/* Some of the heads of a tensor (..., N, D): heads `first` to `first + count - 1` of N. {0} selects all. */
typedef struct HeadRange {
    int64_t first, count;
} HeadRange;

/* Blocks of elements in two tensors: block (i,j,k) of `count` starts i * stride[0] + j * stride[1] + k *
 * stride[2] elements after the first, which starts at element `at`. */
typedef struct BlockSpan {
    int64_t at, stride[3];
} BlockSpan;
typedef struct Blocks {
    int64_t size; /* of a block, in elements */
    int64_t count[3];
    BlockSpan to, from;
} Blocks;

/* A rank's part of a KV cache: of each `ranks` blocks of `block` positions it has the one numbered `rank`, in
 * order and without gaps. {0}: all positions. */
typedef struct CachePart {
    int64_t block;
    int rank, ranks;
} CachePart;

/* The number of rows for the positions before `position`. */
static inline int64_t cache_rows_before(const CachePart *part, int64_t position) {
    if (part->ranks <= 1) return position;
    int64_t round = part->block * part->ranks, rest = position % round - part->rank * part->block;
    int64_t own = rest < 0 ? 0 : rest < part->block ? rest : part->block;
    return position / round * part->block + own;
}

/* What a query at position t sees: keys at positions from max(its start, t - window + 1) on (from 0 without
 * either), up to its own if causal. */
typedef struct Attention {
    bool causal;
    float scale;      /* multiplies the scores; usually 1 / sqrt(D) */
    Dropout dropout;  /* of the attention weights */
    int64_t kv_heads; /* 0: as many key and value heads as query heads; otherwise a divisor of those */
    int64_t window;   /* 0: no window. Only causal */
    Tensor starts;    /* (B,P) int32, optional, only causal: where the document of each position of the
                       * sequences starts, at most there; ascending. P is T without kv */
    Tensor sums; /* (N * D) fp32, optional, backward only, without kv: += column sums of dqkv as stored, the
                  * bias gradient of the layer that produced qkv (N heads in all) */

    /* Some of a sequence's queries and some of its keys, as ranks of context parallelism have them. All three
     * are only used with kv. */
    Tensor kv;               /* (B,K,M,D), optional: its last 2G heads are the keys and values */
    Positions queries, keys; /* of the rows of qkv and of kv */
    Tensor dkv;              /* backward only: of kv's shape */

    /* attention_decode only, on CPUs: */
    CachePart part; /* what the caches have */
    Tensor lse;     /* (B,H,T) fp32, optional: an output, each query's log-sum-exp */
} Attention;

/* Largest number of experts. */
enum { EXPERTS_MAX = 4096, ROUTE_TOTALS = 3 /* of route_count */ };

typedef enum { ROUTE_SOFTMAX, ROUTE_SIGMOID } RouteScore;

/* How experts are chosen and weighted; see route_forward. With groups, experts come in that many equal ones
 * that follow one another, and only those of the top_groups groups with the largest sums of their two best
 * keys are eligible. */
typedef struct Route {
    RouteScore score;
    bool normalize;         /* chosen weights are divided by their sum (of sigmoids: plus 1e-20) */
    float scale;            /* multiplies the weights; 0: 1 */
    int groups, top_groups; /* 0: no groups */
    Tensor bias;            /* (E) fp32, optional: added to the scores for the choice only */
} Route;

/* What route_backward adds to the objective for each row. */
typedef struct RouteLoss {
    Tensor
        load; /* (E) fp32, optional: the share of rows of each expert, or a multiple; absent: no balancing */
    float balance, z;
} RouteLoss;

/* A rank's part of the vocabulary: rows [start, start + V). Tokens at or past `valid` (a global index) are
 * padding; their logits count as -infinity. */
typedef struct VocabPart {
    int64_t start;
    int64_t valid;
} VocabPart;

typedef struct AdamW {
    float beta1, beta2, eps;
    float correction1, correction2; /* bias corrections: 1 - beta^step */
    float grad_scale;               /* multiplies the gradient first (clipping, loss scaling) */
} AdamW;

/* Parameters that are updated alike. `param` is fp32, and `copy` receives it in the compute type. If `param`
 * is DT_F32_LOWER, `copy` is bf16 and contains the upper halves (f32_halves), which are read and written. The
 * same is true of all updates. */
typedef struct AdamWPart {
    Tensor param, m, v, copy, grad;
    float lr, decay;
    bool keep_zeros; /* params that are 0 stay 0, and their m and v are reset to 0 */
} AdamWPart;

/* Coefficients of the other updates; fields as in AdamW and AdamWPart. */
typedef struct Lion {
    float lr, beta1, beta2, decay, grad_scale;
    bool keep_zeros;
} Lion;

typedef struct Sgd {
    float lr, momentum, decay, grad_scale;
    bool nesterov, keep_zeros;
} Sgd;

typedef struct Momentum {
    float beta, grad_scale;
    bool nesterov, keep_zeros;
} Momentum;

/* Elements that share a scale in quantize_blocks. */
enum { QUANT_BLOCK = 256 };
static inline int64_t quant_blocks(int64_t count) {
    return (count + QUANT_BLOCK - 1) / QUANT_BLOCK;
}

typedef struct Apply {
    float lr, decay;
    bool keep_zeros;
} Apply;

/* How a backend packs quantized weights: in panels of `cols` outputs, each split into groups of `group`
 * consecutive inputs. Within a group, the panel's outputs follow one another. For int4, `width` bytes store
 * 2 * width consecutive weights of that order: the first `width` in the low nibbles, the rest in the high.
 * Nibbles are in two's complement; if `biased`, low nibbles are stored plus 8 instead. */
typedef struct Int8Tile {
    int cols, group, width;
    bool biased;
} Int8Tile;

typedef struct KernelTable KernelTable;

/* A hook on the inputs of linear layers (for calibration): linear_forward calls it with its input and weights
 * before doing anything else. */
typedef struct Observer Observer;
struct Observer {
    Status (*observe)(Observer *observer, Stream *stream, Tensor x, Tensor w);
};

/* Where a call runs and what records it. */
typedef struct Exec {
    Stream *stream;
    const KernelTable *table;
    Profile *profile;   /* NULL: calls are not timed */
    Observer *observer; /* may be NULL */
} Exec;

/* Reads the times of all calls so far; see Profile.ahead. */
MUST_USE Status profile_finish(const Exec *exec);

/* ---- linear layers in fp8 ----
 *
 * linear_fp8_forward and _backward are the linear layers for bf16 tensors, with matmul operands quantized to
 * e4m3, or to e5m2 for gradients. Accumulation is fp32; everything else is as in bf16. A tensor x is
 * quantized as q = act(x) / scale, rounded to nearest, ties to even where scale is the smallest power of two,
 * from 2^-126, for which amax / scale does not exceed the type's largest value (448 or 57344), and amax is
 * the largest magnitude in x. (No act increases a magnitude, so act(x) fits as well.) The scale is 1 if x is
 * all zeros. It is NaN if x contains an infinity or a NaN, which then propagates to the result.
 *
 * This exact scaling reads a tensor twice. With delayed scaling (Fp8Scale), the caller supplies the scale,
 * from the amax of earlier calls, and a value that exceeds the type's largest becomes that. */

/* How a tensor is scaled. All absent: exact scaling. */
typedef struct Fp8Scale {
    Tensor scale; /* (1) fp32, optional: a power of two, or NaN; absent: exact scaling */
    Tensor amax;  /* (1) fp32, optional: becomes the larger of itself and the tensor's amax; NaN is largest */
} Fp8Scale;

/* The tensors of a linear layer: x, w and dy. */
typedef struct Fp8Scales {
    Fp8Scale input, weight, gradient;
} Fp8Scales;

/* A layer's quantized input, saved by forward for backward. It is stored transposed, because transposing
 * later would cost as much as quantizing again. */
typedef struct Fp8Input {
    Tensor transposed; /* (K,M) e4m3; TENSOR_NONE: nothing is saved */
    Tensor scale;      /* (1) fp32 */
    Tensor plain;      /* (M,K) e4m3, forward only: what norm_fp8_forward has left; TENSOR_NONE: nothing */
} Fp8Input;

/* Weights that are quantized once for several calls. */
typedef struct Fp8Weight {
    Tensor plain, transposed; /* (N,K) and (K,N) e4m3 */
    Tensor scale;             /* (1) fp32 */
} Fp8Weight;

/* What backward leaves for the call that will read dx as its dy: with exact scaling its amax, with delayed
 * scaling dx itself, quantized. */
typedef struct Fp8Gradient {
    Tensor amax; /* (FP8_AMAX_PARTS) fp32, optional: partial maxima of |dx|; their maximum is dx's amax */
    Tensor plain, transposed; /* (M,K) and (K,M) e5m2, both or neither; dx is then undefined */
    Fp8Scale scale;           /* of plain and transposed */
    Tensor sums;              /* (K) fp32, optional, only with one of them: += column sums of dx */
} Fp8Gradient;

/* Column sums that layernorm_backward also adds to: those of dx as stored, and of dres. Both are optional,
 * (C) and fp32; that of dres requires dres. */
typedef struct NormSums {
    Tensor dx, dres;
} NormSums;

/* FP8_AMAX_MAX_COLS: the largest K for which the amax of dx may be requested. */
enum { FP8_AMAX_PARTS = 1024, FP8_AMAX_MAX_COLS = 65536 };

/* Whether norm_fp8_forward supports these sizes for a layer norm or an RMS norm. */
bool norm_fp8_supports(int64_t rows, int64_t C, bool rms);

/* The scale of a tensor whose amax is known, in exact scaling. */
float fp8_scale(double amax, DType type);

/* Whether fp8 kernels support these sizes: all must be multiples of 16. Other sizes are rejected. */
bool linear_fp8_supports(int64_t M, int64_t N, int64_t K);

/* ---- linear layers with int8 and int4 weights, for inference ----
 *
 * int8_pack arranges weights w (N,K) int8 in the order in which the backend multiplies them, together with a
 * scale (N) per output and an optional factor (K) per input. `packed` is (N,K) of DT_Q8 backed by int8_bytes
 * bytes of host memory; it may have more outputs than w, whose weights are then 0. linear_forward accepts it
 * in place of w. In that case x, y, pre and b are fp32 (on a GPU, any types that linear_forward accepts), and
 * each row of x is quantized on its own, independent of other rows:
 *   amax = max |x * factor|
 *   q = x * factor * (127 / amax), rounded to nearest, ties to even
 *   y = act(sum(q * w) * (amax / 127) * scale + b)
 * Integer sums are exact. A row that contains an infinity or a NaN gives NaN. The leading rows of packed
 * weights (tensor_slice from 0) are valid packed weights, too. */
enum { INT8_MAX_INPUTS = 65536 }; /* largest K, so that sums fit 32 bits */
MUST_USE Status int8_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes);
MUST_USE Status int8_pack(const Exec *exec, Tensor packed, Tensor w, Tensor scale, Tensor factor);
/* Static quantization of activations: from now on `amax` replaces each row's own for these packed int8 or
 * int4 weights, and x * factor is clamped to [-amax, amax]. 0 restores dynamic, per-row quantization. Call it
 * before int8_upload. */
MUST_USE Status int8_set_static_amax(Tensor packed, float amax);
/* Copies packed int8 or int4 weights to device memory of the same size. The caller owns `memory` and keeps
 * passing the host tensor `packed` to linear_forward, which then reads the device copy. */
MUST_USE Status int8_upload(const Exec *exec, Tensor packed, void *memory);

/* The same for int4 weights; packed is DT_Q4. w is (N,(K+1)/2) uint8: a byte's low nibble is the weight of an
 * even input and its high nibble that of the next, from -8 to 7. If K is odd, the last nibble is ignored.
 * step (N,G) int8: each group of INT4_GROUP inputs (the last may be shorter) has an integer step that
 * multiplies its weights before they are summed, so sums remain integers and exact. Steps are rejected if an
 * output's sum could overflow 32 bits. */
enum { INT4_GROUP = 32 };
MUST_USE Status int4_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes);
MUST_USE Status int4_pack(const Exec *exec, Tensor packed, Tensor w, Tensor step, Tensor scale,
                          Tensor factor);

/* The packed matrices of experts follow one another, int8_bytes or int4_bytes apart, which are multiples of
 * 64. grouped_forward on a CPU accepts all of them, `stack` (E,N,K), in place of w. Returns the one of expert
 * `at`, (N,K). */
MUST_USE Status packed_matrix(const Exec *exec, Tensor stack, int64_t at, Tensor *ret_matrix);

/* ---- linear layers in generation ---- */

/* What linear_fused_forward computes besides the linear layer. */
typedef struct LinearFusion {
    Tensor gamma, beta; /* (K): x is normalized first. beta is absent: RMS norm; both are absent: no norm */
    float eps;
    bool gated; /* the activation is a gated one */
    Tensor res; /* (M,N), optional, not with an activation: the residual */
} LinearFusion;

/* Whether the backend has a fused kernel for the call; false on CPUs, where it would not be faster. */
bool linear_fused_supports(const Exec *exec, Tensor y, Tensor x, Tensor w, LinearFusion fusion);

/* ---- linear layers with sparse weights, for inference on a CPU ----
 *
 * sparse_pack arranges the nonzero weights in the order in which they are multiplied. mask is (N, K / 8
 * rounded up) uint8 with one bit per weight, the lowest bit of a byte first. values (fp32) are the weights
 * whose bit is set; those of output n are values[first[n]] up to, but not including, values[first[n + 1]].
 * packed is (N,K) of DT_SPARSE backed by sparse_bytes bytes of host memory. linear_forward accepts it in
 * place of w; x, y, pre and b are then fp32. */
MUST_USE Status sparse_bytes(const Exec *exec, Tensor mask, int64_t N, int64_t K, size_t *ret_bytes);
MUST_USE Status sparse_pack(const Exec *exec, Tensor packed, Tensor mask, const int64_t *first,
                            Tensor values);

/* Bytes of the scale that follows each row of an int8 KV cache; see attention_decode. */
enum { CACHE_SCALE = 4 };

/* The operations, declared as MUST_USE Status name(Exec *exec, arguments); see ops.def for their contracts.
 */
#define KERNEL(id, name, phase, work, launches, backends, workspace, ...)                                    \
    MUST_USE Status name(Exec *exec, __VA_ARGS__);
#include "kernels/ops.def"

/* A backend's implementations. Slots have the arguments of the operation, with a Stream instead of the Exec.
 * They run after the checks, so shapes and types are valid and there is at least one row; see
 * kernels/backend.h for what a slot still has to check. */
struct KernelTable {
    const char *name;
#define KERNEL(id, name, phase, work, launches, backends, workspace, ...)                                    \
    Status (*name)(Stream * stream, __VA_ARGS__);
#include "kernels/ops.def"
    Status (*int8_tile)(int bits, Int8Tile *ret_tile); /* how int8 and int4 weights are packed */
    /* See linear_fused_supports; NULL: never. */
    bool (*fuses_linear)(Tensor y, Tensor x, Tensor w, const LinearFusion *fusion);
    /* Whether grouped_forward takes these packed weights itself; NULL: never. Otherwise experts are computed
     * one after the other, for which the host reads the offsets. */
    bool (*groups_packed)(Tensor y, Tensor x, Tensor w);
};

/* A backend by name: "ref", "cpu" or, in a build with CUDA, "cuda". Tables live as long as the program. Fails
 * with a usage error if there is no such backend. */
MUST_USE Status kernels_find(const char *name, const KernelTable **ret_table);
/* The backend for a kind of device ("cpu" or "cuda"). name may be NULL for the default; otherwise it selects
 * a backend, which must support the device. */
MUST_USE Status kernels_for(const char *device, const char *name, const KernelTable **ret_table);
/* For a dry-run device (device_new_dryrun): calls are checked and recorded, and slots only request the
 * workspace that the "cpu" or "cuda" kernels would need. Slots that need none are NULL. */
MUST_USE Status kernels_dryrun(const char *device, const KernelTable **ret_table);
/* Fails with a usage error if the backend `name` does not support the kind of device. name may be NULL. */
MUST_USE Status kernels_check_device(const char *device, const char *name);
/* What a named precision means. */
typedef struct Precision {
    const char *name;
    DType dtype; /* of activations and of the weights that kernels read */
    bool tf32;   /* fp32 tensors with TF32 matmuls, see device_allow_tf32 */
    bool fp8;    /* bf16 tensors with fp8 matmuls in transformer layers, see linear_fp8_forward */
} Precision;

/* A precision by name, for a kind of device. name may be NULL: fp32 on a CPU, bf16 on a GPU. */
MUST_USE Status kernels_precision(const char *device, const char *name, Precision *ret_precision);
/* The instruction set that the cpu backend uses on this host: "neon", "neon+bf16", "avx2" ... */
const char *kernels_cpu_isa(void);
/* The BLAS library that the cpu backend uses, with its version. */
const char *kernels_cpu_blas(void);
/* How the cpu backend multiplies bf16: with "bfmmla", "avx512-bf16" or "amx" instructions, or "converted" to
 * fp32. "none" if WEFT_CPU_BF16 selects instructions that this CPU lacks. */
const char *kernels_cpu_bf16(void);
/* How the cpu backend multiplies int8: with "i8mm", "dotprod", "amx" or "avx512-vnni" instructions, or in
 * "plain" C. "none" if WEFT_CPU_INT8 selects instructions that this CPU lacks. */
const char *kernels_cpu_int8(void);
/* Fails if WEFT_CPU or a variable that begins with it selects instructions that this CPU lacks. */
MUST_USE Status kernels_cpu_check_variables(void);

#endif
