/* The functions of kernels.h, continued: rotary position embedding and attention. */
#include <string.h>

#include "kernels/backend.h"
#include "kernels/dispatch.h"

/* FLOPs and bytes of a rotation; *ret_work is false if there is nothing to rotate. */
static Status check_rope(const char *kernel, Tensor x, Tensor table, Tensor positions, HeadRange heads,
                         double *ret_flops, double *ret_bytes, bool *ret_work) {
    TRY(check_float(kernel, "x", x));
    if (x.ndim != 4) return FAILED("internal: %s: x has %d dims; expected (B, T, N, D)", kernel, x.ndim);
    int64_t B = x.dim[0], T = x.dim[1], D = x.dim[3], R = tensor_cols(table), rows = 0;
    TRY(check_heads(kernel, x, heads, &rows));
    TRY(check_matrix(kernel, "table", table, DT_F32, tensor_rows(table), R));
    if (R % 2 || R > D)
        return FAILED("internal: %s: table has %lld columns; expected an even number up to %lld", kernel,
                      (long long)R, (long long)D);
    if (positions.data && positions.ndim != 1 && positions.ndim != 2)
        return FAILED("internal: %s: positions has %d dims; expected (B) or (B, T)", kernel, positions.ndim);
    if (positions.data) TRY(check_index(kernel, "positions", positions, positions.ndim == 1 ? B : B * T));
    *ret_flops = 3.0 * (double)rows * (double)R;
    *ret_bytes = (double)(rows * R) * (double)dtype_size(x.dtype) + 4.0 * (double)(B * T * R);
    *ret_work = rows > 0 && R > 0;
    return OK;
}

Status rope_forward(Exec *exec, Tensor x, Tensor table, Tensor positions, int64_t origin, HeadRange heads) {
    double flops = 0, bytes = 0;
    bool work = false;
    TRY(check_rope(__func__, x, table, positions, heads, &flops, &bytes, &work));
    if (!work) return OK;
    RUN(KERNEL_ROPE_FORWARD, flops, bytes, rope_forward, x, table, positions, origin, heads);
}

Status rope_backward(Exec *exec, Tensor dx, Tensor table, Tensor positions, int64_t origin, HeadRange heads) {
    double flops = 0, bytes = 0;
    bool work = false;
    TRY(check_rope(__func__, dx, table, positions, heads, &flops, &bytes, &work));
    if (!work) return OK;
    RUN(KERNEL_ROPE_BACKWARD, flops, bytes, rope_backward, dx, table, positions, origin, heads);
}

static Status check_qkv(const char *kernel, Tensor qkv, const Attention *spec, QkvShape *ret_shape) {
    TRY(check_float(kernel, "qkv", qkv));
    if (!(qkv.ndim == 5 && qkv.dim[2] == 3) && qkv.ndim != 4)
        return FAILED("internal: %s: qkv has %d dims; expected (B, T, 3, H, D) or (B, T, H + 2G, D)", kernel,
                      qkv.ndim);
    QkvShape shape = qkv_shape(qkv, spec);
    if (spec->kv_heads < 0 || shape.H < shape.G || (shape.G && shape.H % shape.G) ||
        shape.H + 2 * shape.G != shape.N)
        return FAILED("internal: %s: %lld heads of qkv cannot have %lld key and value heads each", kernel,
                      (long long)shape.N, (long long)shape.G);
    *ret_shape = shape;
    return OK;
}

/* The same for each head, for queries and keys at any positions. */
static double pairs_of_parts(const QkvShape *s, const Attention *spec) {
    double pairs = 0;
    for (int64_t t = 0; t < s->T; t++) {
        int64_t at = position_of(&spec->queries, t), first = first_position(0, spec->window, at);
        if (spec->causal) pairs += (double)rows_before(&spec->keys, s->keys, at + 1);
        if (spec->causal) pairs -= (double)rows_before(&spec->keys, s->keys, first);
    }
    return spec->causal ? pairs : (double)(s->T * s->keys);
}

/* Query-key pairs that the causal mask and the window leave, over all heads and sequences. */
static double pairs_of(const QkvShape *s, const Attention *spec) {
    if (spec->kv.data) return (double)(s->B * s->H) * pairs_of_parts(s, spec);
    double T = (double)s->T, hidden = T - (double)spec->window, each = T * T;
    if (spec->causal) each = T * (T + 1) / 2;
    if (spec->window && hidden > 0) each -= hidden * (hidden + 1) / 2;
    return (double)(s->B * s->H) * each;
}

static unsigned traits_of(const QkvShape *s, const Attention *spec) {
    bool windowed = spec->window && spec->window < s->T;
    return (spec->dropout.p > 0 ? OP_DROPOUT : 0) |
           (s->group > 1 || windowed || spec->starts.data ? OP_PARTIAL : 0);
}

static Status check_positions(const char *kernel, const char *name, const Positions *at, int64_t rows) {
    if (at->first >= 0 && at->turn >= 0 && at->turn <= rows &&
        (!at->turn || at->second >= at->first + at->turn))
        return OK;
    return FAILED(
        "internal: %s: %s are %lld rows at %lld and, from row %lld on, at %lld; expected increasing "
        "positions",
        kernel, name, (long long)rows, (long long)at->first, (long long)at->turn, (long long)at->second);
}

/* Keys and values that are not qkv's; *ret_end is after the last position of a query or key. */
static Status check_parts(const char *kernel, Tensor qkv, const QkvShape *s, const Attention *spec,
                          int64_t *ret_end) {
    Tensor kv = spec->kv;
    const Positions none = {0};
    *ret_end = s->T;
    if (!kv.data) {
        if (!memcmp(&spec->queries, &none, sizeof none) && !memcmp(&spec->keys, &none, sizeof none))
            return OK;
        return FAILED("internal: %s: positions require kv", kernel);
    }
    if (kv.ndim != 4 && kv.ndim != 5) return FAILED("internal: %s: kv has %d dims", kernel, kv.ndim);
    TRY(check_like(kernel, "kv", kv,
                   kv.ndim == 4 ? tensor_4d(NULL, qkv.dtype, s->B, s->keys, s->M, s->D)
                                : tensor_5d(NULL, qkv.dtype, s->B, s->keys, 3, s->M / 3, s->D)));
    if (s->M < 2 * s->G)
        return FAILED("internal: %s: kv has %lld heads; expected at least %lld", kernel, (long long)s->M,
                      (long long)(2 * s->G));
    TRY(check_positions(kernel, "queries", &spec->queries, s->T));
    TRY(check_positions(kernel, "keys", &spec->keys, s->keys));
    *ret_end = positions_of(s, spec);
    return OK;
}

static Status check_attention(const char *kernel, Tensor qkv, const QkvShape *shape, const Attention *spec) {
    int64_t end = 0;
    TRY(check_parts(kernel, qkv, shape, spec, &end));
    if (spec->window < 0 || (!spec->causal && (spec->window || spec->starts.data)))
        return FAILED("internal: %s: a window of %lld, or starts, without causal", kernel,
                      (long long)spec->window);
    if (spec->starts.data) {
        int64_t each = shape->B ? tensor_count(spec->starts) / shape->B : 0;
        TRY(check_index(kernel, "starts", spec->starts, shape->B * (each > end ? each : end)));
    }
    if (spec->dropout.p == 0) return OK;
    /* Queries and keys have positions, so in a draw's index only sequence and head have an origin. */
    Dropout heads = spec->dropout;
    heads.extent[1] = heads.origin[2] = 0;
    TRY(check_dropout(kernel, &heads, (Tensor){.ndim = 3, .dim = {shape->B, shape->H, 0}}));
    if (spec->dropout.extent[1] < end)
        return FAILED("internal: %s: dropout extent of %lld positions; expected at least %lld", kernel,
                      (long long)spec->dropout.extent[1], (long long)end);
    return OK;
}

/* The type of a result: with kv it may be fp32, because it is a part of a sum. */
static DType part_type(Tensor result, Tensor qkv, const Attention *spec) {
    return spec->kv.data && result.dtype == DT_F32 ? DT_F32 : qkv.dtype;
}

Status attention_forward(Exec *exec, Tensor out, Tensor lse, Tensor qkv, Tensor lens, Attention spec) {
    QkvShape s = {0};
    TRY(check_qkv(__func__, qkv, &spec, &s));
    CHECK_LIKE(out, tensor_4d(NULL, part_type(out, qkv, &spec), s.B, s.T, s.H, s.D));
    CHECK_LIKE(lse, tensor_3d(NULL, DT_F32, s.B, s.H, s.T));
    if (lens.data) CHECK_INDEX(lens, s.B);
    TRY(check_attention(__func__, qkv, &s, &spec));
    if (tensor_count(out) == 0) return OK;
    SIZES(s.B * s.H, s.T, s.D, traits_of(&s, &spec));
    RUN(KERNEL_ATTENTION_FORWARD, 4 * pairs_of(&s, &spec) * (double)s.D, BYTES(out, lse, qkv, spec.kv, lens),
        attention_forward, out, lse, qkv, lens, spec);
}

Status attention_backward(Exec *exec, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                          Tensor lens, Attention spec) {
    QkvShape s = {0};
    TRY(check_qkv(__func__, qkv, &spec, &s));
    Tensor like = qkv, like_kv = spec.kv;
    like.dtype = part_type(dqkv, qkv, &spec);
    like_kv.dtype = part_type(spec.dkv, qkv, &spec);
    CHECK_LIKE(dqkv, like);
    CHECK_LIKE(out, tensor_4d(NULL, qkv.dtype, s.B, s.T, s.H, s.D));
    CHECK_LIKE(dout, out);
    CHECK_LIKE(lse, tensor_3d(NULL, DT_F32, s.B, s.H, s.T));
    if (lens.data) CHECK_INDEX(lens, s.B);
    TRY(check_attention(__func__, qkv, &s, &spec));
    if (spec.kv.data) TRY(check_like(__func__, "dkv", spec.dkv, like_kv));
    if (spec.kv.data && spec.sums.data) return FAILED("internal: %s: sums exclude kv", __func__);
    if (spec.sums.data) TRY(check_count(__func__, "sums", spec.sums, DT_F32, s.N * s.D));
    if (tensor_count(out) == 0) return OK;
    /* Five matmuls over all pairs: recomputed scores, and the gradients of weights, v, q and k. */
    SIZES(s.B * s.H, s.T, s.D, traits_of(&s, &spec));
    RUN(KERNEL_ATTENTION_BACKWARD, 10 * pairs_of(&s, &spec) * (double)s.D,
        BYTES(dqkv, spec.dkv, dout, out, lse, qkv, spec.kv, lens), attention_backward, dqkv, dout, out, lse,
        qkv, lens, spec);
}

Status attention_combine(Exec *exec, Tensor out, Tensor lse, Tensor part, Tensor part_lse) {
    CHECK_FLOAT(out);
    CHECK_FLOAT(part);
    if (out.ndim != 4) return FAILED("internal: %s: out has %d dims; expected 4", __func__, out.ndim);
    CHECK_LIKE(part, tensor_4d(NULL, part.dtype, out.dim[0], out.dim[1], out.dim[2], out.dim[3]));
    CHECK_LIKE(lse, tensor_3d(NULL, DT_F32, out.dim[0], out.dim[2], out.dim[1]));
    CHECK_LIKE(part_lse, lse);
    if (tensor_count(out) == 0) return OK;
    RUN(KERNEL_ATTENTION_COMBINE, 3 * (double)tensor_count(out), BYTES(out, out, part, lse, lse, part_lse),
        attention_combine, out, lse, part, part_lse);
}

static Status check_cache_part(const char *kernel, const Exec *exec, const Attention *spec) {
    CachePart part = spec->part;
    if ((part.ranks > 1 || spec->lse.data) && !device_is_host(exec->stream->device))
        return FAILED("internal: %s: parts of a cache are not available on a GPU", kernel);
    if (part.ranks > 1 && (part.block < 1 || part.rank < 0 || part.rank >= part.ranks))
        return FAILED("internal: %s: part %d of %d in blocks of %lld", kernel, part.rank, part.ranks,
                      (long long)part.block);
    return OK;
}

Status attention_decode(Exec *exec, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv, Tensor past,
                        Tensor fresh, Attention spec) {
    QkvShape s = {0};
    TRY(check_qkv(__func__, qkv, &spec, &s));
    DType type = spec.lse.data && out.dtype == DT_F32 ? DT_F32 : qkv.dtype;
    CHECK_LIKE(out, tensor_4d(NULL, type, s.B, s.T, s.H, s.D));
    if (spec.lse.data) TRY(check_like(__func__, "lse", spec.lse, tensor_3d(NULL, DT_F32, s.B, s.H, s.T)));
    TRY(check_cache_part(__func__, exec, &spec));
    int64_t S = kcache.ndim == 4 ? kcache.dim[2] : 0;
    bool int8 = kcache.dtype == DT_I8, bf16 = kcache.dtype == DT_BF16 && qkv.dtype == DT_F32;
    CHECK_LIKE(kcache, tensor_4d(NULL, int8 || bf16 ? kcache.dtype : qkv.dtype, s.B, s.G, S,
                                 int8 ? s.D + CACHE_SCALE : s.D));
    CHECK_LIKE(vcache, kcache);
    CHECK_INDEX(past, s.B);
    CHECK_INDEX(fresh, s.B);
    if (tensor_count(out) == 0) return OK;
    /* The fill level of the caches is not known here, so assume that they are full. */
    int64_t seen = spec.window && spec.window < S ? spec.window : S;
    double pairs = (double)(s.B * s.H * s.T) * (double)seen;
    RUN(KERNEL_ATTENTION_DECODE, 4 * pairs * (double)s.D, BYTES(out, kcache, vcache, qkv), attention_decode,
        out, kcache, vcache, qkv, past, fresh, spec);
}
