/* The kernels: what a block may ask a device to compute.
 *
 * Each kernel is a function here (layernorm_forward) that checks shapes, counts the call for the
 * profile and runs the backend's slot of the same name in KernelTable. The `ref` table is complete
 * and plain; another backend starts from a copy of it and overrides slots.
 *
 * Legend for shapes:
 *   B sequences   T positions   N = B*T rows   C width   H heads   D = C/H   F inner width
 *   V vocabulary (local part)   M, K, N in the linear kernels are plain matrix sizes
 * Leading dims of row-wise kernels are free: (B, T, C) and (N, C) are the same to layernorm.
 * Gradients of parameters are always added to (+=); gradients of activations are overwritten unless
 * an argument says otherwise. Outputs come first, then inputs. Sums run in a fixed order for a given
 * number of threads, so the same call gives the same bits.
 *
 * Types. The compute type is fp32, bf16 or fp16; the tensors of a call say which, and those that share
 * it must agree:
 *   the compute type   activations (x, y, pre, qkv, out, caches), their gradients, and the copies of
 *                      weights, norms and biases that a kernel reads (w, b, gamma, beta, wte ...)
 *   that or fp32       logits and their gradient, whatever the rest is
 *   always fp32        statistics (mean, rstd, lse, stats), losses, gradients of parameters (dw, db,
 *                      dgamma, dbeta, dwte ...), adamw_step's param, m, v and grad
 *   always fp64        the totals of sums
 * Arithmetic and sums inside a kernel are fp32 or better, whatever the type; a result is rounded to its
 * type once, when it is stored, to the nearest with ties to even. What is too large for fp16 becomes
 * infinity and NaN stays NaN, which is how an overflow shows in the end (see sum_squares). Adding to a
 * tensor reads it, adds in fp32 and rounds. Where a result is stored and used again in the same call
 * (pre, and the sum under a norm) the stored, rounded value is the one used, so that a call that starts from
 * it gives the same bits.
 */
#ifndef WEFT_KERNELS_KERNELS_H
#define WEFT_KERNELS_KERNELS_H

#include "base/rng.h"
#include "device/device.h"
#include "kernels/profile.h"
#include "tensor/tensor.h"

typedef enum { ACT_NONE, ACT_GELU_TANH, ACT_GELU_ERF, ACT_RELU, ACT_TANH, ACT_COUNT } Act;

/* Dropout by inverted scaling: an element is kept when its draw is at least p * 2^32 and is then
 * divided by 1 - p. The draw's index is that of the element in the *global* tensor:
 *   (B, T, C) tensors:      ((b + origin[0]) * extent[0] + t + origin[1]) * extent[1] + c + origin[2]
 *   attention (b, h, q, k): (((b + origin[0]) * extent[0] + h + origin[1]) * extent[1] + q) * extent[1] + k
 * with extent = global {T, C}, respectively {H, T}. */
typedef struct Dropout {
    float p; /* 0: off */
    RngKey key;
    int64_t origin[3];
    int64_t extent[2];
} Dropout;

typedef struct Attention {
    bool causal;
    float scale; /* usually 1 / sqrt(D) */
    Dropout dropout;
} Attention;

/* The part of the vocabulary a rank holds: rows [start, start + V) of which those below `valid`
 * (global) are real; the rest is padding whose logits count as -infinity. */
typedef struct VocabPart {
    int64_t start;
    int64_t valid;
} VocabPart;

typedef struct AdamW {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* 1 - beta^step */
    float grad_scale;               /* gradients are multiplied by this first (clipping, loss scale) */
    bool keep_zeros;                /* a param that is 0 stays 0, and its m and v become 0 */
} AdamW;

/* How int8 weights are packed: panels of `cols` outputs, each in groups of `group` inputs. Of a group the
 * panel's outputs lie one after the other. Of weights of 4 bits, `width` bytes hold as many weights in their
 * low halves and the next as many in their high ones. */
typedef struct Int8Tile {
    int cols, group, width;
} Int8Tile;

typedef struct KernelTable KernelTable;

/* Sees what linear layers take: linear_forward calls it first, with its input and its weights. */
typedef struct Observer Observer;
struct Observer {
    Status (*see)(Observer *observer, Stream *stream, Tensor x, Tensor w);
};

/* Where and with what a call runs. */
typedef struct Exec {
    Stream *stream;
    const KernelTable *table;
    Profile *profile;   /* NULL: not measured */
    Observer *observer; /* NULL: none */
} Exec;

/* y (M,N) = act(x (M,K) w (N,K)^T + b (N)). b may be none. With an act, `pre` (M,N), if given,
 * receives what act was applied to; act is applied to the rounded value even if it is not. A backend may
 * round the product to y's type before it adds b. Without an act
 * y may also be fp32 where x and w are not (logits). */
MUST_USE Status linear_forward(Exec *exec, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act act);
/* dx (M,K) [+]= (dy (M,N) w (N,K)) * act'(pre (M,K)), where x = act(pre) was the linear's input. dx and
 * pre have w's type; dy has it too or is fp32 (the logits' gradient), which a backend may round to w's. A
 * product that is large may be rounded to dx's type before it is multiplied by act'. */
MUST_USE Status linear_backward_input(Exec *exec, Tensor dx, Tensor dy, Tensor w, Act act, Tensor pre,
                                      bool accumulate);
/* dw (N,K) += dy (M,N)^T x (M,K); db (N) += column sums of dy. db may be none. dw and db are fp32; dy has
 * x's type or is fp32, which a backend may round to x's for the product. */
MUST_USE Status linear_backward_weight(Exec *exec, Tensor dw, Tensor db, Tensor dy, Tensor x);

/* The same linear layers with products in 8 bits, of bf16 tensors. What is multiplied is rounded, to e4m3 or,
 * if it is a gradient, to e5m2; sums are fp32, and all else is as above. A tensor x is rounded as
 *   rounded = act(x) / unit, to the nearest with ties to even
 * where unit is the smallest power of two from 2^-126 on for which x's largest magnitude over it is at most
 * the type's largest number (448, 57344); no act makes a number larger. It is 1 where all of x is zero, and
 * NaN where x has a number that is not finite: so then is all that comes of it. Nothing is remembered from
 * one call to the next: the same tensors give the same bits in every run.
 *
 * An input as forward leaves it for backward, rounded and turned: transposing takes as long as rounding. */
typedef struct Fp8Input {
    Tensor turned; /* (K,M) e4m3, or none */
    Tensor unit;   /* (1) fp32 */
} Fp8Input;

/* What backward finds of its dx in passing, for the call that takes it as dy. */
typedef struct Fp8Found {
    Tensor peaks; /* (FP8_PEAKS) fp32, or none: magnitudes of dx, of which the largest is that of all */
    Tensor sums;  /* (K) fp32, or none: += column sums of dx; only with peaks */
} Fp8Found;

enum { FP8_PEAKS = 1024, FP8_WIDEST = 65536 }; /* the latter: columns of a dx of which anything is found */

/* Whether the sizes suit: multiples of 16. Others are refused. */
bool linear_fp8_suits(int64_t M, int64_t N, int64_t K);
/* y (M,N) = act(x (M,K)) w (N,K)^T + b (N). b may be none. Note whose act it is: the input's. `kept`, unless
 * none, receives the input. */
MUST_USE Status linear_fp8_forward(Exec *exec, Tensor y, Fp8Input kept, Tensor x, Act act, Tensor w,
                                   Tensor b);
/* dx (M,K) = (dy (M,N) w (N,K)) * act'(x); dw (N,K) += dy^T act(x); db (N) += column sums of dy as it is, not
 * rounded. dx, dw with db, or db alone may be none. x may be none where `kept` is there and act is not; with
 * neither, x is rounded again. dx may be none of the others. `peaks`, unless none, are dy's, as the call that
 * made it has found them. */
MUST_USE Status linear_fp8_backward(Exec *exec, Tensor dx, Fp8Found found, Tensor dw, Tensor db, Tensor dy,
                                    Tensor peaks, Tensor w, Fp8Input kept, Tensor x, Act act);

/* Linear layers with weights of 8 bits, for inference. int8_pack puts weights w (N,K) int8 into the order
 * that a backend multiplies them in, with the scale of each output and, if given, a factor for each input:
 * packed is (N,K) of DT_Q8 over int8_bytes bytes, of host memory; of outputs past those of w all weights are
 * 0. linear_forward takes it in place of w: then x, y, pre and b are fp32 (on a GPU of any type that
 * linear_forward takes), and each row of x is rounded to 8 bits on its own, whatever the other rows are:
 *   largest = max |x * factor|
 *   q = x * factor * (127 / largest), to the nearest with ties to even
 *   y = act(sum(q * w) * (largest / 127) * scale + b)
 * Sums are of integers and exact. A row that holds a number that is not finite gives NaN. The leading rows of
 * packed weights (tensor_slice from 0 on) are packed weights too. */
enum { INT8_DEEPEST = 65536 }; /* inputs at most, so that sums fit 32 bits */
MUST_USE Status int8_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes);
MUST_USE Status int8_pack(const Exec *exec, Tensor packed, Tensor w, Tensor scale, Tensor factor);
/* From now on `largest`, of all rows that packed weights of 8 or 4 bits are multiplied by, stands in for that
 * of each row, and x * factor is cut to it on both sides. 0: again each row's own. Before int8_move. */
MUST_USE Status int8_hold_largest(Tensor packed, float largest);
/* Copies packed weights, of 8 or 4 bits, to a device's memory of their bytes, to be multiplied by there. They
 * stay what is given to linear_forward. */
MUST_USE Status int8_move(const Exec *exec, Tensor packed, void *memory);

/* The same with weights of 4 bits, packed being DT_Q4. w (N,(K+1)/2) uint8: a byte's low half is the weight
 * of an even input and its high half that of the next, from -8 to 7; where K is odd, the last half is not
 * read. step (N,G) int8: INT4_GROUP inputs at a time, the last group being what is left, have a step by which
 * their weights are multiplied before they are summed up, so that sums still are of integers and exact. Steps
 * of an output whose sums might not fit 32 bits are refused. */
enum { INT4_GROUP = 32 };
MUST_USE Status int4_bytes(const Exec *exec, int64_t N, int64_t K, size_t *ret_bytes);
MUST_USE Status int4_pack(const Exec *exec, Tensor packed, Tensor w, Tensor step, Tensor scale,
                          Tensor factor);

/* Linear layers most of whose weights are 0, for inference. sparse_pack puts the weights that are not into
 * the order that they are multiplied in: mask (N, K / 8 rounded up) uint8 has a bit for each, the lowest of a
 * byte first, and values fp32 are those that it names, those of output n from first[n] up to first[n + 1].
 * packed is (N,K) of DT_SPARSE over sparse_bytes bytes, of host memory. linear_forward takes it in place of
 * w: then x, y, pre and b are fp32. */
MUST_USE Status sparse_bytes(const Exec *exec, Tensor mask, int64_t N, int64_t K, size_t *ret_bytes);
MUST_USE Status sparse_pack(const Exec *exec, Tensor packed, Tensor mask, const int64_t *first,
                            Tensor values);

/* What comes of numbers that are kept in a few bits, for training that gets used to it. largest (M) fp32 =
 * the largest magnitude in each row of x (M,K); a NaN counts as 0. */
MUST_USE Status row_largest(Exec *exec, Tensor largest, Tensor x);
/* y (M,K) = x as it comes back from int8 with a scale for each row, in fp32:
 *   round(x * (127 / largest)) * (largest / 127), to the nearest with ties to even
 * A row whose 127 / largest overflows becomes 0. NaN stays NaN, and where largest is infinite all of the row
 * becomes so. y has x's type and may be x. */
MUST_USE Status round_int8(Exec *exec, Tensor y, Tensor x, Tensor largest);
/* The same for int4 with steps for groups of INT4_GROUP inputs, as kernels/int4_round.h finds them. */
MUST_USE Status round_int4(Exec *exec, Tensor y, Tensor x, Tensor largest);

MUST_USE Status act_forward(Exec *exec, Tensor y, Tensor x, Act act);
/* dx = dy * act'(x); dx may be dy. */
MUST_USE Status act_backward(Exec *exec, Tensor dx, Tensor dy, Tensor x, Act act);

/* y = (x - mean) * rstd * gamma + beta over the last dim; mean, rstd (rows) are saved. */
MUST_USE Status layernorm_forward(Exec *exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gamma,
                                  Tensor beta, float eps);
/* dx = gradient through the norm, plus dres if given. dx may be dy or dres. */
MUST_USE Status layernorm_backward(Exec *exec, Tensor dx, Tensor dgamma, Tensor dbeta, Tensor dy, Tensor x,
                                   Tensor mean, Tensor rstd, Tensor gamma, Tensor dres);
/* out (B,T,C) = res + dropout(y). res may be none; out may be res or y. */
MUST_USE Status dropout_add_forward(Exec *exec, Tensor out, Tensor res, Tensor y, Dropout dropout);
/* dx = dy * mask / (1 - p). dx may be dy. */
MUST_USE Status dropout_backward(Exec *exec, Tensor dx, Tensor dy, Dropout dropout);
/* sum (B,T,C) = res + dropout(y); out = layernorm(sum), of the sum as stored. */
MUST_USE Status dropout_add_norm_forward(Exec *exec, Tensor sum, Tensor out, Tensor mean, Tensor rstd,
                                         Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                         Dropout dropout);

/* out (B,T,H,D) = softmax(q k^T * scale + mask) v, for qkv (B,T,3,H,D); lse (B,H,T) is saved: the
 * log of the sum of exponentials of each row. lens (B) int32, or none: keys at or past lens[b] are
 * masked for all queries. Never holds a T x T matrix. */
MUST_USE Status attention_forward(Exec *exec, Tensor out, Tensor lse, Tensor qkv, Tensor lens,
                                  Attention spec);
MUST_USE Status attention_backward(Exec *exec, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                                   Tensor lens, Attention spec);
/* Generation. qkv (B,T,3,H,D) holds new positions, of which fresh[b] count; keys and values go to
 * the caches (B,H,S,D) from position past[b] on, then each new query sees all positions up to its
 * own. past, fresh (B) int32. Rows of out past fresh[b] are undefined.
 * Caches have qkv's type. They may also be bf16 beside fp32, or of 8 bits: DT_I8 (B,H,S,D +
 * CACHE_SCALE), a row's numbers being q * scale with scale = largest / 127, which lies behind them as an
 * fp32. A row that holds a number that is not finite has a scale of NaN. */
enum { CACHE_SCALE = 4 };
MUST_USE Status attention_decode(Exec *exec, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv,
                                 Tensor past, Tensor fresh, float scale);

/* x (B,T,C) = wte[tokens] + wpe[t + past[b]] + wtype[types]. tokens, types (B,T), past (B) int32.
 * wpe, wtype, types, past may be none; types that are none are all 0. Token rows outside this rank's
 * vocabulary part give 0, and so do positions at or past wpe's end (the padding of a ragged batch). wte may
 * be packed int8 weights without factors; on a CPU the rest is fp32 then. */
MUST_USE Status embedding_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor past, Tensor wte,
                                  Tensor wpe, Tensor wtype, VocabPart part);
/* Any of dwte, dwpe, dwtype may be none. */
MUST_USE Status embedding_backward(Exec *exec, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx,
                                   Tensor tokens, Tensor types, VocabPart part);

/* stats (M,3): of each row of logits (M,V) its maximum, the sum of exp(logit - maximum) and the
 * label's logit (0 if the label is another rank's). labels (M) int32; one that is negative or at or past
 * part.valid is not counted. */
MUST_USE Status xent_partial(Exec *exec, Tensor stats, Tensor logits, Tensor labels, VocabPart part);
/* stats (M,3) from the statistics of R ranks' parts of a vocabulary, parts (R,M,3). */
MUST_USE Status xent_combine(Exec *exec, Tensor stats, Tensor parts);
/* From stats complete over the vocabulary: losses (M) = log sum - label's logit, 0 where not counted;
 * with `gradient`, logits become (softmax - onehot) * scale in place, 0 where not counted. */
MUST_USE Status xent_finish(Exec *exec, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                            VocabPart part, float scale, bool gradient);
/* xent_partial and xent_finish in one, for a rank that has the whole vocabulary. */
MUST_USE Status xent_loss(Exec *exec, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                          VocabPart part, float scale, bool gradient);

/* index (M) int32 of each row's largest number of x (M,C), the first among equals; -1 where a row has a NaN
 * or its largest is infinite. */
MUST_USE Status argmax(Exec *exec, Tensor index, Tensor x);

/* From stats complete over a vocabulary of `valid`: hits (M) = 1 where the label is counted and no logit is
 * larger than its own, else 0. */
MUST_USE Status xent_hits(Exec *exec, Tensor hits, Tensor stats, Tensor labels, int64_t valid);

/* out (M,C) = x[index]; index (M) int32. Both of one type, as in the next two. */
MUST_USE Status gather_rows(Exec *exec, Tensor out, Tensor x, Tensor index);
/* x[index] += y (M,C), in the order of index. */
MUST_USE Status scatter_add_rows(Exec *exec, Tensor x, Tensor y, Tensor index);
/* y (N,M) = x (M,N)^T */
MUST_USE Status transpose(Exec *exec, Tensor y, Tensor x);

MUST_USE Status fill(Exec *exec, Tensor x, float value);
MUST_USE Status convert(Exec *exec, Tensor y, Tensor x); /* copy between floating types */
MUST_USE Status add(Exec *exec, Tensor y, Tensor x);     /* y += x; any two floating types */
MUST_USE Status scale(Exec *exec, Tensor y, float factor);
/* total (1) fp64 += sum of x, respectively of its squares, summed in fp64. No finite x of any type has
 * squares whose sum leaves fp64's range, so sum_squares leaves a total that is not finite exactly when an
 * element (or the total before) is infinite or NaN: the one check that gradients are sound. */
MUST_USE Status sum(Exec *exec, Tensor total, Tensor x);
MUST_USE Status sum_squares(Exec *exec, Tensor total, Tensor x);
/* totals (P) fp64 += sums of squares of flat fp32 x, cut into parts: x[i] counts for part (skip + i) / share.
 * Each part's is that of sum_squares of its elements alone, to the bit. */
MUST_USE Status sum_squares_parts(Exec *exec, Tensor totals, Tensor x, int64_t skip, int64_t share);
/* One AdamW update with decoupled decay of param, m, v from grad, all flat and fp32:
 *   m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 *   param -= lr * (decay * param + (m / correction1) / (sqrt(v / correction2) + eps))
 * copy, if given, has as many elements of any floating type and receives the new param: the compute copy
 * of the weights. With keep_zeros, weights that were pruned to 0 stay so. */
MUST_USE Status adamw_step(Exec *exec, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad,
                           AdamW spec);

/* The slots behind the functions above, argument for argument, with a stream for the Exec. */
struct KernelTable {
    const char *name;
    Status (*linear_forward)(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
    Status (*linear_backward_input)(Stream *, Tensor dx, Tensor dy, Tensor w, Act, Tensor pre,
                                    bool accumulate);
    Status (*linear_backward_weight)(Stream *, Tensor dw, Tensor db, Tensor dy, Tensor x);
    Status (*linear_fp8_forward)(Stream *, Tensor y, Fp8Input kept, Tensor x, Act, Tensor w, Tensor b);
    Status (*linear_fp8_backward)(Stream *, Tensor dx, Fp8Found found, Tensor dw, Tensor db, Tensor dy,
                                  Tensor peaks, Tensor w, Fp8Input kept, Tensor x, Act);
    Status (*linear_int8_forward)(Stream *, Tensor y, Tensor pre, Tensor x, Tensor w, Tensor b, Act);
    Status (*int8_tile)(int bits, Int8Tile *ret_tile); /* the order in which weights are packed for it */
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
    Status (*adamw_step)(Stream *, Tensor param, Tensor m, Tensor v, Tensor copy, Tensor grad, AdamW);
};

/* Backends by name: "ref" or "cpu", or "cuda" where it is built. The tables live as long as the program. */
MUST_USE Status kernels_find(const char *name, const KernelTable **ret_table);
/* Those for a kind of device, "cpu" or "cuda": its own, or the named ones, which must be for it. */
MUST_USE Status kernels_for(const char *device, const char *name, const KernelTable **ret_table);
/* For a device on paper (device_new_dryrun): calls are checked and counted, and of what "cpu" or "cuda"
 * kernels would do only the workspace is asked for; slots that take none are empty. */
MUST_USE Status kernels_dryrun(const char *device, const KernelTable **ret_table);
/* Only the last of kernels_for: whether the named ones, if any, are for that kind. */
MUST_USE Status kernels_suit(const char *device, const char *name);
/* What --precision names. */
typedef struct Precision {
    const char *name;
    DType dtype; /* of activations and weights */
    bool tf32;   /* fp32 that device_allow_tf32 is for */
    bool fp8;    /* bf16 whose layers multiply in 8 bits, see linear_fp8_forward */
} Precision;

/* By its name, for a kind of device; NULL: fp32, on GPUs bf16. */
MUST_USE Status kernels_precision(const char *device, const char *name, Precision *ret_precision);
/* The instruction set the cpu backend chose for this machine: "neon", "neon+bf16", "avx2" ... */
const char *kernels_cpu_isa(void);
/* The matrix library behind the cpu backend, with its version. */
const char *kernels_cpu_blas(void);
/* How the cpu backend multiplies bf16: by the machine's "bfmmla", "avx512-bf16" or "amx", or "converted" to
 * fp32; "none" where WEFT_CPU_BF16 asks for what the machine lacks. */
const char *kernels_cpu_bf16(void);
/* How it multiplies int8: by "i8mm", "dotprod", "amx" or "avx512-vnni", or by "plain" C; "none" where
 * WEFT_CPU_INT8 asks for what the machine lacks. */
const char *kernels_cpu_int8(void);

#endif
