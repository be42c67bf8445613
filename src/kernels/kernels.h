/* The kernels: every operation that a model block can run on a device.
 *
 * Each kernel is a function here (layernorm_forward, for example) that checks shapes and types, records the
 * call in the profile and runs the slot of the same name in the backend's KernelTable. The `ref` table is
 * complete and simple; the `cpu` backend starts from a copy of it and overrides slots.
 *
 * Shapes
 *   B sequences   T positions   N = B*T rows   C hidden size   H heads   D = C/H   F inner (MLP) size
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
 * Determinism. Every reduction runs in a fixed order: on a CPU it depends on shapes and the number of
 * threads; on a GPU on shapes and, for GEMMs, on the algorithm that cuda/blas_tune.c has stored for them. The
 * same call therefore returns the same bits.
 *
 * Types. The compute type is fp32, bf16 or fp16. It follows from the tensors of a call, which must agree:
 *   compute type          activations (x, y, pre, qkv, out, caches) and their gradients; the copies of
 *                         weights, norms and biases that kernels read (w, b, gamma, beta, wte ...)
 *   compute type or fp32  logits and their gradient
 *   always fp32           statistics (mean, rstd, lse, stats), losses, gradients of parameters (dw, db,
 *                         dgamma, dbeta, dwte ...), adamw_step's param, m, v and grad
 *   always fp64           the totals of sum, sum_squares and sum_squares_parts
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
#include "tensor/tensor.h"

typedef enum { ACT_NONE, ACT_GELU_TANH, ACT_GELU_ERF, ACT_RELU, ACT_TANH, ACT_COUNT } Act;

/* Inverted dropout: an element is kept if its random draw is at least p * 2^32, and is then divided by 1 - p.
 * The mask does not depend on how a tensor is sharded, because a draw is indexed by the element's position in
 * the *global* tensor:
 *   (B,T,C) tensors:      ((b + origin[0]) * extent[0] + t + origin[1]) * extent[1] + c + origin[2]
 *   attention (b,h,q,k):  (((b + origin[0]) * extent[0] + h + origin[1]) * extent[1] + q) * extent[1] + k
 * where extent is the global {T, C} or {H, T}, respectively. */
typedef struct Dropout {
    float p; /* in [0, 1); 0 turns dropout off */
    RngKey key;
    int64_t origin[3];
    int64_t extent[2];
} Dropout;

typedef struct Attention {
    bool causal;
    float scale;     /* multiplies the scores; usually 1 / sqrt(D) */
    Dropout dropout; /* of the attention weights */
} Attention;

/* A rank's part of the vocabulary: rows [start, start + V). Tokens at or past `valid` (a global index) are
 * padding; their logits count as -infinity. */
typedef struct VocabPart {
    int64_t start;
    int64_t valid;
} VocabPart;

typedef struct AdamW {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* bias corrections: 1 - beta^step */
    float grad_scale;               /* multiplies the gradient first (clipping, loss scaling) */
    bool keep_zeros;                /* params that are 0 stay 0, and their m and v are reset to 0 */
} AdamW;

/* How a backend packs quantized weights: in panels of `cols` outputs, each split into groups of `group`
 * consecutive inputs. Within a group, the panel's outputs follow one another. For int4, `width` bytes store
 * 2 * width consecutive weights of that order: the first `width` in the low nibbles, the rest in the high. */
typedef struct Int8Tile {
    int cols, group, width;
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

/* ---- linear layers ---- */

/* y (M,N) = act(x (M,K) w (N,K)^T + b (N)). b is optional. `pre` (M,N) is optional and only allowed with an
 * act; it receives the act's input. The act is applied to the rounded value of pre even if pre is absent. A
 * backend may round the matmul's result to y's type before it adds b. Without an act, y may be fp32 even if x
 * and w are not (logits). */
MUST_USE Status linear_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act);
/* dx (M,K) [+]= (dy (M,N) w (N,K)) * act'(pre (M,K)), where the layer's input was act(pre). pre is required
 * unless act is ACT_NONE. dx and pre have w's type. dy has w's type or is fp32 (the gradient of logits),
 * which a backend may round to w's type. If dx is large, the matmul's result may be rounded to dx's type
 * before it is multiplied by act'. */
MUST_USE Status linear_backward_input(Exec *exec, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre,
                                      bool accumulate);
/* dw (N,K) += dy (M,N)^T x (M,K); db (N) += column sums of dy. db is optional. dw and db are fp32. dy has x's
 * type or is fp32, which a backend may round to x's type for the matmul. */
MUST_USE Status linear_backward_weight(Exec *exec, Tensor dw, Tensor db, Tensor dy, Tensor x);

/* ---- linear layers in fp8 ----
 *
 * The same layers for bf16 tensors, with matmul operands quantized to e4m3, or to e5m2 for gradients.
 * Accumulation is fp32; everything else is as above. A tensor x is quantized as
 *   q = act(x) / scale, rounded to nearest, ties to even
 * where scale is the smallest power of two, from 2^-126, for which amax / scale does not exceed the type's
 * largest value (448 or 57344), and amax is the largest magnitude in x. (No act increases a magnitude, so
 * act(x) fits as well.) The scale is 1 if x is all zeros. It is NaN if x contains an infinity or a NaN, which
 * then propagates to the result. Scales are computed anew in each call (no delayed scaling), so the same
 * tensors give the same bits in every run. */

/* A layer's quantized input, saved by forward for backward. It is stored transposed, because transposing
 * later would cost as much as quantizing again. */
typedef struct Fp8Input {
    Tensor transposed; /* (K,M) e4m3; TENSOR_NONE: nothing is saved */
    Tensor scale;      /* (1) fp32 */
} Fp8Input;

/* Statistics of dx that backward collects for the call that will read dx as its dy. */
typedef struct Fp8Stats {
    Tensor amax; /* (FP8_AMAX_PARTS) fp32, optional: partial maxima of |dx|; their maximum is dx's amax */
    Tensor sums; /* (K) fp32, optional, only with amax: += column sums of dx */
} Fp8Stats;

/* FP8_STATS_MAX_COLS: the largest K for which dx_stats may be requested. */
enum { FP8_AMAX_PARTS = 1024, FP8_STATS_MAX_COLS = 65536 };

/* Whether fp8 kernels support these sizes: all must be multiples of 16. Other sizes are rejected. */
bool linear_fp8_supports(int64_t M, int64_t N, int64_t K);
/* y (M,N) = act(x (M,K)) w (N,K)^T + b (N). Unlike in linear_forward, the act is applied to the input. b is
 * optional. `kept`, if present, receives the quantized input. */
MUST_USE Status linear_fp8_forward(Exec *exec, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                                   Tensor b);
/* dx (M,K) = (dy (M,N) w (N,K)) * act'(x); dw (N,K) += dy^T act(x); db (N) += column sums of dy, which are
 * taken before quantization. dx, dw and db are optional; db requires dw. `kept` is optional: without it, x is
 * quantized again for dw. x may be absent if act is ACT_NONE and `kept` is present. dx must not alias another
 * argument. `amax` (FP8_AMAX_PARTS) is optional: dy's partial maxima, as the call that computed dy stored
 * them. */
MUST_USE Status linear_fp8_backward(Exec *exec, Tensor dx, Fp8Stats dx_stats, Tensor dw, Tensor db, Tensor dy,
                                    Tensor amax, Tensor w, Fp8Input kept, Tensor x, Act act);

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

/* ---- fake quantization, for quantization-aware training ---- */

/* largest (M) fp32 = the largest magnitude in each row of x (M,K). NaN is ignored. */
MUST_USE Status row_largest(Exec *exec, Tensor largest, Tensor x);
/* y (M,K) = x quantized to int8 with one scale per row and dequantized again, in fp32:
 *   round(x * (127 / largest)) * (largest / 127), to nearest, ties to even
 * A row for which 127 / largest overflows becomes 0. NaN stays NaN, and an infinite `largest` makes its whole
 * row NaN. y has x's type and may alias x. */
MUST_USE Status round_int8(Exec *exec, Tensor y, Tensor x, Tensor largest);
/* The same for int4, with one step per group of INT4_GROUP inputs as chosen by kernels/int4_round.h. */
MUST_USE Status round_int4(Exec *exec, Tensor y, Tensor x, Tensor largest);

/* ---- activations, norms and dropout ---- */

/* y = act(x), elementwise. y may alias x. */
MUST_USE Status act_forward(Exec *exec, Tensor y, Tensor x, Act act);
/* dx = dy * act'(x). dx may alias dy. */
MUST_USE Status act_backward(Exec *exec, Tensor dx, Tensor dy, Tensor x, Act act);

/* y = (x - mean) * rstd * gamma + beta over the last dim. mean and rstd (one fp32 per row) are outputs, saved
 * for backward. */
MUST_USE Status layernorm_forward(Exec *exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                                  Tensor beta, float eps);
/* dx = gradient through the norm + dres, the gradient of the residual branch, which is optional. dgamma and
 * dbeta (C) are accumulated. dx may alias dy or dres. */
MUST_USE Status layernorm_backward(Exec *exec, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                                   Tensor mean, Tensor rstd, Tensor gamma, Tensor dres);
/* out (B,T,C) = res + dropout(y). res is optional. out may alias res or y. */
MUST_USE Status dropout_add_forward(Exec *exec, Tensor out, Tensor res, Tensor y, Dropout dropout);
/* dx = dy * mask / (1 - p), with forward's mask. dx may alias dy. */
MUST_USE Status dropout_backward(Exec *exec, Tensor dx, Tensor dy, Dropout dropout);
/* sum (B,T,C) = res + dropout(y); out = layernorm(sum), computed from the sum as stored. */
MUST_USE Status dropout_add_norm_forward(Exec *exec, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                         Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                         Dropout dropout);

/* ---- attention ---- */

/* out (B,T,H,D) = softmax(q k^T * scale + mask) v, for qkv (B,T,3,H,D). lse (B,H,T) fp32 is an output, saved
 * for backward: each row's log-sum-exp. lens (B) int32 is optional: keys at or past lens[b] are masked for
 * all queries of sequence b. A query that sees no key has output 0 and no gradient. The T x T score matrix is
 * never materialized. */
MUST_USE Status attention_forward(Exec *exec, Tensor out, Tensor lse, Tensor qkv, Tensor lens,
                                  Attention spec);
/* dqkv (B,T,3,H,D) from dout (B,T,H,D) and forward's out, lse and inputs. */
MUST_USE Status attention_backward(Exec *exec, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                                   Tensor lens, Attention spec);
/* Attention with a KV cache, for generation. qkv (B,T,3,H,D) contains new positions, of which the first
 * fresh[b] of sequence b are real. Their keys and values are appended to the caches (B,H,S,D) from position
 * past[b]; then each new query attends to all positions up to its own. past, fresh (B) int32. Rows of out
 * past fresh[b] are undefined. The caches have qkv's type, or are bf16 with fp32 qkv, or int8: DT_I8 (B,H,S,D
 * + CACHE_SCALE), where each row of D values is followed by its fp32 scale = amax / 127 and an element is q *
 * scale. A row that contains an infinity or a NaN has scale NaN. */
enum { CACHE_SCALE = 4 }; /* bytes of a row's scale */
MUST_USE Status attention_decode(Exec *exec, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv,
                                 Tensor past, Tensor fresh, float scale);

/* ---- embeddings ---- */

/* x (B,T,C) = wte[tokens] + wpe[t + past[b]] + wtype[types]. tokens, types (B,T) and past (B) are int32. wpe,
 * wtype, types and past are optional; absent types are all 0. Tokens outside this rank's part of the
 * vocabulary contribute 0, and so do positions past the end of wpe (the padding of a ragged batch). wte may
 * be packed int8 or int4 weights without factors; on a CPU all other tensors are then fp32. */
MUST_USE Status embedding_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                                  Tensor wpe, Tensor wtype, VocabPart part);
/* dwte, dwpe and dwtype, each optional, accumulate the rows of dx (B,T,C). */
MUST_USE Status embedding_backward(Exec *exec, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                   Tensor tokens, Tensor types, VocabPart part);

/* ---- cross-entropy ----
 *
 * Labels (M) are int32. A label that is negative, or at or past part.valid, is ignored: its loss and gradient
 * are 0. With a sharded vocabulary, each rank calls xent_partial, the ranks exchange statistics, and each
 * calls xent_combine and xent_finish. */

/* stats (M,3) of this rank's part of each row of logits (M,V): the maximum, the sum of exp(logit - maximum),
 * and the label's logit (0 if the label belongs to another rank). */
MUST_USE Status xent_partial(Exec *exec, Tensor stats, Tensor logits, Tensor labels, VocabPart part);
/* stats (M,3) over the whole vocabulary from those of R ranks, parts (R,M,3). */
MUST_USE Status xent_combine(Exec *exec, Tensor stats, Tensor parts);
/* From stats over the whole vocabulary: losses (M) = log-sum-exp - the label's logit, or 0 for an ignored
 * label. With `gradient`, logits are overwritten by (softmax - onehot) * scale, or 0 for an ignored label. */
MUST_USE Status xent_finish(Exec *exec, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                            VocabPart part, float scale, bool gradient);
/* xent_partial and xent_finish in one call, for a rank that has the whole vocabulary. */
MUST_USE Status xent_loss(Exec *exec, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                          VocabPart part, float scale, bool gradient);
/* From stats over a whole vocabulary of `valid` tokens: hits (M) = 1 if the label is not ignored and no logit
 * is larger than its own, else 0. */
MUST_USE Status xent_hits(Exec *exec, Tensor hits, Tensor stats, Tensor labels, int64_t valid);

/* ---- regression and multi-label losses ----
 *
 * targets (M,L) are fp32. A target that is NaN is ignored: its loss and gradient are 0. */

/* losses (M,L) fp32 = (logit - target)^2. With `gradient`, logits (M,L) are overwritten by their gradient
 * times scale. */
MUST_USE Status mse_loss(Exec *exec, Tensor losses, Tensor logits, Tensor targets, float scale,
                         bool gradient);
/* The same for binary cross-entropy: log(1 + exp(logit)) - target * logit, without overflow for any logit. */
MUST_USE Status bce_loss(Exec *exec, Tensor losses, Tensor logits, Tensor targets, float scale,
                         bool gradient);

/* ---- rows and arrays ---- */

/* index (M) int32 = the column of the largest value in each row of x (M,C), the first one if several are
 * equal; -1 if the row contains a NaN or its largest value is infinite. */
MUST_USE Status argmax(Exec *exec, Tensor index, Tensor x);
/* out (M,C) = x[index]. index (M) int32. out has x's type. An index out of range is an error on a CPU; on a
 * GPU its row reads as 0. */
MUST_USE Status gather_rows(Exec *exec, Tensor out, Tensor x, Tensor index);
/* x[index] += y (M,C), in the order of index; rows may repeat. y has x's type. An index out of range is an
 * error on a CPU; on a GPU its row is ignored. */
MUST_USE Status scatter_add_rows(Exec *exec, Tensor x, Tensor y, Tensor index);
/* y (N,M) = x (M,N)^T, of the same type. */
MUST_USE Status transpose(Exec *exec, Tensor y, Tensor x);

/* x = value. */
MUST_USE Status fill(Exec *exec, Tensor x, float value);
/* y = x, converted between any two of fp32, bf16, fp16 and fp64. */
MUST_USE Status convert(Exec *exec, Tensor y, Tensor x);
/* y += x, for any two compute types. */
MUST_USE Status add(Exec *exec, Tensor y, Tensor x);
/* y *= factor. */
MUST_USE Status scale(Exec *exec, Tensor y, float factor);
/* total (1) fp64 += the sum of x, or of its squares, accumulated in fp64. The sum of squares of finite values
 * of any type cannot overflow fp64. Hence the total of sum_squares is finite if and only if all elements (and
 * the previous total) were: this is how invalid gradients are detected. */
MUST_USE Status sum(Exec *exec, Tensor total, Tensor x);
MUST_USE Status sum_squares(Exec *exec, Tensor total, Tensor x);
/* totals (P) fp64 += sums of squares of a flat fp32 x that is split into parts: x[i] belongs to part
 * (skip + i) / share. Each total is bitwise equal to sum_squares of that part's elements alone. */
MUST_USE Status sum_squares_parts(Exec *exec, Tensor totals, Tensor x, int64_t skip, int64_t share);
/* totals (S) fp64 += a random projection of a flat fp32 x: each element is added to one of the S totals with
 * a random sign; kernels/sketch.h defines which. S is a power of two from 32 to 131072. The projection is
 * linear, depends on the key and on global element indices only, and preserves squared norms on average, with
 * a relative standard deviation of sqrt(2 / S). Within a call, the elements added to a total are summed in
 * fp32. */
MUST_USE Status sketch(Exec *exec, Tensor totals, Tensor x, SketchMap map);

/* ---- optimizer ---- */

/* One AdamW update with decoupled weight decay. param, m, v and grad are flat fp32 of the same length:
 *   g = grad * grad_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
 *   param -= lr * (decay * param + (m / correction1) / (sqrt(v / correction2) + eps))
 * copy is optional: it has the same length and any compute type, and receives the new param (for the kernels
 * that read the weights). With keep_zeros, pruned weights stay 0. */
MUST_USE Status adamw_step(Exec *exec, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad,
                           AdamW spec);

/* A backend's implementations of the functions above. Slots have the same arguments, with a Stream instead of
 * the Exec. They run after the checks, so shapes and types are valid and there is at least one row; see
 * kernels/backend.h for what a slot still has to check. */
struct KernelTable {
    const char *name;
    Status (*linear_forward)(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
    Status (*linear_backward_input)(Stream *, Tensor dx, Tensor dy, Tensor w, Act, Tensor pre,
                                    bool accumulate);
    Status (*linear_backward_weight)(Stream *, Tensor dw, Tensor db, Tensor dy, Tensor x);
    Status (*linear_fp8_forward)(Stream *, Tensor y, Fp8Input kept, Tensor x, Act, Tensor w, Tensor b);
    Status (*linear_fp8_backward)(Stream *, Tensor dx, Fp8Stats dx_stats, Tensor dw, Tensor db, Tensor dy,
                                  Tensor amax, Tensor w, Fp8Input kept, Tensor x, Act);
    Status (*linear_int8_forward)(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
    Status (*int8_tile)(int bits, Int8Tile *ret_tile); /* how int8 and int4 weights are packed */
    Status (*linear_sparse_forward)(Stream *, Tensor y, Tensor x, Tensor w, Tensor b);
    Status (*row_largest)(Stream *, Tensor largest, Tensor x);
    Status (*round_int8)(Stream *, Tensor y, Tensor x, Tensor largest);
    Status (*round_int4)(Stream *, Tensor y, Tensor x, Tensor largest);
    Status (*act_forward)(Stream *, Tensor y, Tensor x, Act);
    Status (*act_backward)(Stream *, Tensor dx, Tensor dy, Tensor x, Act);
    Status (*layernorm_forward)(Stream *, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                                Tensor beta, float eps);
    Status (*layernorm_backward)(Stream *, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                                 Tensor mean, Tensor rstd, Tensor gamma, Tensor dres);
    Status (*dropout_add_forward)(Stream *, Tensor out, Tensor res, Tensor y, Dropout);
    Status (*dropout_backward)(Stream *, Tensor dx, Tensor dy, Dropout);
    Status (*dropout_add_norm_forward)(Stream *, Tensor sum, Tensor out, Tensor mean, Tensor rstd, Tensor res,
                                       Tensor y, Tensor gamma, Tensor beta, float eps, Dropout);
    Status (*attention_forward)(Stream *, Tensor out, Tensor lse, Tensor qkv, Tensor lens, Attention);
    Status (*attention_backward)(Stream *, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                                 Tensor lens, Attention);
    Status (*attention_decode)(Stream *, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv, Tensor past,
                               Tensor fresh, float scale);
    Status (*embedding_forward)(Stream *, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                                Tensor wpe, Tensor wtype, VocabPart);
    Status (*embedding_backward)(Stream *, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx, Tensor tokens,
                                 Tensor types, VocabPart);
    Status (*xent_partial)(Stream *, Tensor stats, Tensor logits, Tensor labels, VocabPart);
    Status (*xent_combine)(Stream *, Tensor stats, Tensor parts);
    Status (*xent_finish)(Stream *, Tensor losses, Tensor logits, Tensor stats, Tensor labels, VocabPart,
                          float scale, bool gradient);
    Status (*xent_loss)(Stream *, Tensor losses, Tensor stats, Tensor logits, Tensor labels, VocabPart,
                        float scale, bool gradient);
    Status (*mse_loss)(Stream *, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
    Status (*bce_loss)(Stream *, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient);
    Status (*argmax)(Stream *, Tensor index, Tensor x);
    Status (*xent_hits)(Stream *, Tensor hits, Tensor stats, Tensor labels, int64_t valid);
    Status (*gather_rows)(Stream *, Tensor out, Tensor x, Tensor index);
    Status (*scatter_add_rows)(Stream *, Tensor x, Tensor y, Tensor index);
    Status (*transpose)(Stream *, Tensor y, Tensor x);
    Status (*fill)(Stream *, Tensor x, float value);
    Status (*convert)(Stream *, Tensor y, Tensor x);
    Status (*add)(Stream *, Tensor y, Tensor x);
    Status (*scale)(Stream *, Tensor y, float factor);
    Status (*sum)(Stream *, Tensor total, Tensor x);
    Status (*sum_squares)(Stream *, Tensor total, Tensor x);
    Status (*sum_squares_parts)(Stream *, Tensor totals, Tensor x, int64_t skip, int64_t share);
    Status (*sketch)(Stream *, Tensor totals, Tensor x, SketchMap map);
    Status (*adamw_step)(Stream *, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad, AdamW);
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
/* A value of --precision. */
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

#endif
