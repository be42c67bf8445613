/* The functions of kernels.h, continued: embeddings, cross-entropy, row gather and scatter, array
 * arithmetic and reductions. */
#include "kernels/dispatch.h"
#include "kernels/int8.h"
#include "kernels/kernels.h"

/* Checks x (B,T,C) and its index tensors (B,T). */
static Status check_tokens(const char *kernel, Tensor x, Tensor tokens, Tensor types) {
    TRY(check_float(kernel, "x", x));
    if (x.ndim != 3) return FAILED("internal: %s: x has %d dims; expected (B, T, C)", kernel, x.ndim);
    TRY(check_index(kernel, "tokens", tokens, x.dim[0] * x.dim[1]));
    if (types.data) TRY(check_index(kernel, "types", types, x.dim[0] * x.dim[1]));
    return OK;
}

/* Checks an embedding table (at least `rows`, C) of the given type. */
static Status check_table(const char *kernel, const char *name, Tensor table, DType dtype, int64_t C,
                          int64_t rows) {
    TRY(check_float(kernel, name, table));
    TRY(check_matrix(kernel, name, table, dtype, tensor_rows(table), C));
    if (tensor_rows(table) < rows)
        return FAILED("internal: %s: %s has %lld rows; expected at least %lld", kernel, name,
                      (long long)tensor_rows(table), (long long)rows);
    return OK;
}

static Status check_part(const char *kernel, VocabPart part) {
    if (part.start >= 0 && part.valid >= 0) return OK;
    return FAILED("internal: %s: invalid vocabulary part: start %lld, %lld valid tokens", kernel,
                  (long long)part.start, (long long)part.valid);
}

Status embedding_forward(Exec *exec, Tensor x, Tensor tokens, Tensor types, Tensor positions, Tensor wte,
                         Tensor wpe, Tensor wtype, VocabPart part) {
    TRY(check_tokens(__func__, x, tokens, types));
    TRY(check_part(__func__, part));
    int64_t C = x.dim[2];
    bool packed = wte.dtype == DT_Q8 || wte.dtype == DT_Q4;
    if (!packed) TRY(check_table(__func__, "wte", wte, x.dtype, C, 1));
    if (wpe.data) TRY(check_table(__func__, "wpe", wpe, x.dtype, C, x.dim[1]));
    if (wtype.data) TRY(check_table(__func__, "wtype", wtype, x.dtype, C, 1));
    if (positions.data) CHECK_INDEX(positions, x.dim[0] * (positions.ndim > 1 ? x.dim[1] : 1));
    if (tensor_count(x) == 0) return OK;
    if (packed && device_is_host(exec->stream->device))
        return embedding_int8_forward(exec, x, tokens, types, positions, wte, wpe, wtype, part);
    int adds = (wpe.data != NULL) + (wtype.data != NULL), tables = 1 + adds;
    RUN(KERNEL_EMBEDDING_FORWARD, (double)adds * (double)tensor_count(x),
        BYTES(x, tokens, types) + (double)tables * BYTES(x), embedding_forward, x, tokens, types, positions,
        wte, wpe, wtype, part);
}

Status embedding_backward(Exec *exec, Tensor dwte, Tensor dwpe, Tensor dwtype, Tensor dx, Tensor tokens,
                          Tensor types, Tensor positions, VocabPart part) {
    TRY(check_tokens(__func__, dx, tokens, types));
    TRY(check_part(__func__, part));
    int64_t C = dx.dim[2];
    if (dwte.data) TRY(check_table(__func__, "dwte", dwte, DT_F32, C, 1));
    if (dwpe.data) TRY(check_table(__func__, "dwpe", dwpe, DT_F32, C, dx.dim[1]));
    if (dwtype.data) TRY(check_table(__func__, "dwtype", dwtype, DT_F32, C, 1));
    if (positions.data) CHECK_INDEX(positions, dx.dim[0] * dx.dim[1]);
    if (tensor_count(dx) == 0) return OK;
    int tables = (dwte.data != NULL) + (dwpe.data != NULL) + (dwtype.data != NULL);
    if (!tables) return OK;
    RUN(KERNEL_EMBEDDING_BACKWARD, (double)tables * (double)tensor_count(dx),
        BYTES(dx, tokens, types) + (double)tables * BYTES(dx), embedding_backward, dwte, dwpe, dwtype, dx,
        tokens, types, positions, part);
}

/* Checks common to the cross-entropy kernels: logits (M,V) of any compute type, stats (M,3), labels (M). */
static Status check_loss(const char *kernel, Tensor stats, Tensor logits, Tensor labels, VocabPart part) {
    TRY(check_float(kernel, "logits", logits));
    TRY(check_part(kernel, part));
    int64_t M = tensor_rows(logits);
    TRY(check_matrix(kernel, "logits", logits, logits.dtype, M, tensor_cols(logits)));
    TRY(check_like(kernel, "stats", stats, tensor_2d(NULL, DT_F32, M, 3)));
    return check_index(kernel, "labels", labels, M);
}

Status xent_partial(Exec *exec, Tensor stats, Tensor logits, Tensor labels, VocabPart part) {
    TRY(check_loss(__func__, stats, logits, labels, part));
    if (tensor_rows(logits) == 0) return OK;
    RUN(KERNEL_XENT_PARTIAL, 4.0 * (double)tensor_count(logits), BYTES(stats, logits, labels), xent_partial,
        stats, logits, labels, part);
}

Status xent_combine(Exec *exec, Tensor stats, Tensor parts) {
    int64_t M = tensor_rows(stats);
    CHECK_LIKE(stats, tensor_2d(NULL, DT_F32, M, 3));
    CHECK_LIKE(parts, tensor_3d(NULL, DT_F32, parts.dim[0], M, 3));
    if (M == 0) return OK;
    RUN(KERNEL_XENT_COMBINE, 4.0 * (double)tensor_count(parts), BYTES(stats, parts), xent_combine, stats,
        parts);
}

Status xent_finish(Exec *exec, Tensor losses, Tensor logits, Tensor stats, Tensor labels, VocabPart part,
                   float scale, bool gradient) {
    TRY(check_loss(__func__, stats, logits, labels, part));
    int64_t M = tensor_rows(logits);
    CHECK_COUNT(losses, DT_F32, M);
    if (M == 0) return OK;
    double flops = gradient ? 4.0 * (double)tensor_count(logits) : 3.0 * (double)M;
    double bytes = BYTES(losses, stats, labels) + (gradient ? 2 * BYTES(logits) : 0);
    SIZES(M, tensor_cols(logits), 0, 0);
    RUN(KERNEL_XENT_FINISH, flops, bytes, xent_finish, losses, logits, stats, labels, part, scale, gradient);
}

Status xent_loss(Exec *exec, Tensor losses, Tensor stats, Tensor logits, Tensor labels, VocabPart part,
                 float scale, bool gradient) {
    TRY(check_loss(__func__, stats, logits, labels, part));
    int64_t M = tensor_rows(logits);
    CHECK_COUNT(losses, DT_F32, M);
    if (M == 0) return OK;
    double flops = (gradient ? 8.0 : 4.0) * (double)tensor_count(logits) + 3.0 * (double)M;
    double bytes = BYTES(losses, stats, labels, logits) + (gradient ? BYTES(logits) : 0);
    SIZES(M, tensor_cols(logits), 0, 0);
    RUN(KERNEL_XENT_LOSS, flops, bytes, xent_loss, losses, stats, logits, labels, part, scale, gradient);
}

Status xent_loss_fp8(Exec *exec, Tensor losses, Tensor stats, Tensor logits, Tensor labels, VocabPart part,
                     float scale, Fp8Gradient gradient) {
    TRY(check_loss(__func__, stats, logits, labels, part));
    int64_t M = tensor_rows(logits), V = tensor_cols(logits);
    CHECK_COUNT(losses, DT_F32, M);
    CHECK_MATRIX(logits, DT_BF16, M, V);
    CHECK_MATRIX(gradient.plain, DT_E5M2, M, V);
    CHECK_COUNT(gradient.scale.scale, DT_F32, 1);
    if (!linear_fp8_supports(M, V, V)) return FAILED("internal: %s: sizes must be multiples of 16", __func__);
    if (M == 0) return OK;
    SIZES(M, V, 0, 0);
    RUN(KERNEL_XENT_LOSS_FP8, 8.0 * (double)tensor_count(logits) + 3.0 * (double)M,
        BYTES(losses, stats, labels, logits, gradient.plain), xent_loss_fp8, losses, stats, logits, labels,
        part, scale, gradient);
}

static Status check_targets(const char *kernel, Tensor losses, Tensor logits, Tensor targets) {
    TRY(check_float(kernel, "logits", logits));
    int64_t M = tensor_rows(logits), L = tensor_cols(logits);
    TRY(check_matrix(kernel, "losses", losses, DT_F32, M, L));
    return check_matrix(kernel, "targets", targets, DT_F32, M, L);
}

Status mse_loss(Exec *exec, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient) {
    TRY(check_targets(__func__, losses, logits, targets));
    if (tensor_count(logits) == 0) return OK;
    double bytes = BYTES(losses, logits, targets) + (gradient ? BYTES(logits) : 0);
    RUN(KERNEL_MSE_LOSS, (gradient ? 4.0 : 2.0) * (double)tensor_count(logits), bytes, mse_loss, losses,
        logits, targets, scale, gradient);
}

Status bce_loss(Exec *exec, Tensor losses, Tensor logits, Tensor targets, float scale, bool gradient) {
    TRY(check_targets(__func__, losses, logits, targets));
    if (tensor_count(logits) == 0) return OK;
    double bytes = BYTES(losses, logits, targets) + (gradient ? BYTES(logits) : 0);
    RUN(KERNEL_BCE_LOSS, (gradient ? 8.0 : 5.0) * (double)tensor_count(logits), bytes, bce_loss, losses,
        logits, targets, scale, gradient);
}

static Status check_columns(const char *kernel, int64_t C) {
    if (C >= 1 && C <= INT32_MAX) return OK;
    return FAILED("internal: %s: rows have %lld columns; expected 1 to %d", kernel, (long long)C, INT32_MAX);
}

Status argmax(Exec *exec, Tensor index, Tensor x) {
    CHECK_FLOAT(x);
    int64_t M = tensor_rows(x), C = tensor_cols(x);
    CHECK_MATRIX(x, x.dtype, M, C);
    CHECK_INDEX(index, M);
    if (M == 0) return OK;
    TRY(check_columns(__func__, C));
    RUN(KERNEL_ARGMAX, (double)tensor_count(x), BYTES(index, x), argmax, index, x);
}

Status argmax_advance(Exec *exec, Tensor chosen, Tensor tokens, Tensor past, Tensor x) {
    CHECK_FLOAT(x);
    int64_t M = tensor_rows(x), C = tensor_cols(x), R = tensor_cols(chosen);
    CHECK_MATRIX(x, x.dtype, M, C);
    CHECK_MATRIX(chosen, DT_I32, M, R);
    CHECK_INDEX(tokens, M);
    CHECK_INDEX(past, M);
    if (M == 0) return OK;
    TRY(check_columns(__func__, C));
    TRY(check_columns(__func__, R));
    RUN(KERNEL_ARGMAX_ADVANCE, (double)tensor_count(x), BYTES(tokens, past, past, x), argmax_advance, chosen,
        tokens, past, x);
}

Status xent_hits(Exec *exec, Tensor hits, Tensor stats, Tensor labels, int64_t valid) {
    int64_t M = tensor_rows(stats);
    CHECK_LIKE(stats, tensor_2d(NULL, DT_F32, M, 3));
    CHECK_COUNT(hits, DT_F32, M);
    CHECK_INDEX(labels, M);
    if (M == 0) return OK;
    RUN(KERNEL_XENT_HITS, 3.0 * (double)M, BYTES(hits, stats, labels), xent_hits, hits, stats, labels, valid);
}

Status gather_rows(Exec *exec, Tensor out, Tensor x, Tensor index) {
    CHECK_FLOAT(out);
    CHECK_FLOAT(x);
    int64_t M = tensor_rows(out), C = tensor_cols(out);
    CHECK_MATRIX(x, out.dtype, tensor_rows(x), C);
    CHECK_INDEX(index, M);
    if (M == 0) return OK;
    RUN(KERNEL_GATHER_ROWS, 0, 2 * BYTES(out) + BYTES(index), gather_rows, out, x, index);
}

Status scatter_add_rows(Exec *exec, Tensor x, Tensor y, Tensor index) {
    CHECK_FLOAT(x);
    CHECK_FLOAT(y);
    int64_t M = tensor_rows(y), C = tensor_cols(y);
    CHECK_MATRIX(x, y.dtype, tensor_rows(x), C);
    CHECK_INDEX(index, M);
    if (M == 0) return OK;
    RUN(KERNEL_SCATTER_ADD_ROWS, (double)tensor_count(y), 2 * BYTES(y) + BYTES(index), scatter_add_rows, x, y,
        index);
}

Status transpose(Exec *exec, Tensor y, Tensor x) {
    CHECK_FLOAT(x);
    int64_t M = tensor_rows(x), N = tensor_cols(x);
    CHECK_LIKE(x, tensor_2d(NULL, x.dtype, M, N));
    CHECK_LIKE(y, tensor_2d(NULL, x.dtype, N, M));
    if (M == 0) return OK;
    RUN(KERNEL_TRANSPOSE, 0, BYTES(y, x), transpose, y, x);
}

/* Fails if a block is not in the tensor. */
static Status check_span(const char *kernel, const char *name, Tensor tensor, const Blocks *blocks,
                         const BlockSpan *span) {
    int64_t first = span->at, end = span->at + blocks->size;
    for (int i = 0; i < 3; i++) {
        int64_t last = (blocks->count[i] - 1) * span->stride[i];
        first += last < 0 ? last : 0;
        end += last > 0 ? last : 0;
    }
    if (first >= 0 && end <= tensor_count(tensor)) return OK;
    return FAILED("internal: %s: blocks from element %lld to %lld of %s, which has %lld", kernel,
                  (long long)first, (long long)end, name, (long long)tensor_count(tensor));
}

Status copy_blocks(Exec *exec, Tensor to, Tensor from, Blocks blocks) {
    CHECK_FLOAT(from);
    if (to.dtype != from.dtype) return FAILED("internal: %s: the types differ", __func__);
    double elements = (double)blocks.size;
    for (int i = 0; i < 3; i++) elements *= (double)blocks.count[i];
    if (elements == 0) return OK;
    TRY(check_span(__func__, "to", to, &blocks, &blocks.to));
    TRY(check_span(__func__, "from", from, &blocks, &blocks.from));
    RUN(KERNEL_COPY_BLOCKS, 0, 2 * elements * (double)dtype_size(to.dtype), copy_blocks, to, from, blocks);
}

Status fill(Exec *exec, Tensor x, float value) {
    CHECK_FLOAT(x);
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_FILL, 0, BYTES(x), fill, x, value);
}

Status convert(Exec *exec, Tensor y, Tensor x) {
    /* The only kernel that also accepts fp64. */
    Tensor narrow_y = y, narrow_x = x;
    if (y.dtype == DT_F64) narrow_y.dtype = DT_F32;
    if (x.dtype == DT_F64) narrow_x.dtype = DT_F32;
    TRY(check_float(__func__, "x", narrow_x));
    TRY(check_float(__func__, "y", narrow_y));
    CHECK_COUNT(y, y.dtype, tensor_count(x));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_CONVERT, 0, BYTES(y, x), convert, y, x);
}

Status add(Exec *exec, Tensor y, Tensor x) {
    CHECK_FLOAT(x);
    CHECK_FLOAT(y);
    CHECK_COUNT(y, y.dtype, tensor_count(x));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_ADD, (double)tensor_count(x), BYTES(y, x), add, y, x);
}

Status scale(Exec *exec, Tensor y, float factor) {
    CHECK_FLOAT(y);
    if (tensor_count(y) == 0) return OK;
    RUN(KERNEL_SCALE, (double)tensor_count(y), BYTES(y), scale, y, factor);
}

Status sum(Exec *exec, Tensor total, Tensor x) {
    CHECK_FLOAT(x);
    CHECK_LIKE(total, tensor_1d(NULL, DT_F64, 1));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_SUM, (double)tensor_count(x), BYTES(x, total), sum, total, x);
}

Status sum_squares(Exec *exec, Tensor total, Tensor x) {
    CHECK_FLOAT(x);
    CHECK_LIKE(total, tensor_1d(NULL, DT_F64, 1));
    if (tensor_count(x) == 0) return OK;
    RUN(KERNEL_SUM_SQUARES, 2.0 * (double)tensor_count(x), BYTES(x, total), sum_squares, total, x);
}

Status sum_squares_parts(Exec *exec, Tensor totals, Tensor x, int64_t skip, int64_t share) {
    int64_t count = tensor_count(x), parts = tensor_count(totals);
    CHECK_LIKE(x, tensor_1d(NULL, DT_F32, count));
    CHECK_LIKE(totals, tensor_1d(NULL, DT_F64, parts));
    if (skip < 0 || share < 1 || (double)skip + (double)count > (double)parts * (double)share)
        return FAILED(
            "internal: sum_squares_parts: %lld elements at offset %lld exceed %lld parts of %lld elements",
            (long long)count, (long long)skip, (long long)parts, (long long)share);
    if (count == 0) return OK;
    RUN(KERNEL_SUM_SQUARES_PARTS, 2.0 * (double)count, BYTES(x, totals), sum_squares_parts, totals, x, skip,
        share);
}

Status sketch(Exec *exec, Tensor totals, Tensor x, SketchMap map) {
    int64_t count = tensor_count(x), size = tensor_count(totals);
    CHECK_LIKE(x, tensor_1d(NULL, DT_F32, count));
    CHECK_LIKE(totals, tensor_1d(NULL, DT_F64, size));
    if (size < SKETCH_WORD || size > SKETCH_MAX || (size & (size - 1)))
        return FAILED("internal: sketch: %lld totals; expected a power of two from %d to %d", (long long)size,
                      SKETCH_WORD, SKETCH_MAX);
    if (map.run < 1 || map.start < 0 || map.group < map.run || count % map.run)
        return FAILED(
            "internal: sketch: invalid layout of %lld elements: runs of %lld, one per %lld, starting at %lld",
            (long long)count, (long long)map.run, (long long)map.group, (long long)map.start);
    if (count == 0) return OK;
    RUN(KERNEL_SKETCH, (double)count, BYTES(x, totals), sketch, totals, x, map);
}
