#include "model/parts/common.h"

#include <stdarg.h>

#include "parallel/tp.h"

static void name_desc(ParamDesc *desc, const char *fmt, va_list args) {
    vsnprintf(desc->name, sizeof desc->name, fmt, args);
}

Status describe_matrix(ParamList *list, int id, InitKind init, float std, int split, int64_t a, int64_t b,
                       int64_t c, const char *fmt, ...) {
    ParamDesc desc = {.id = id, .ndim = c ? 3 : 2, .dim = {a, b, c}, .split = split, .std = std};
    desc.init = init;
    desc.decay = true;
    va_list args;
    va_start(args, fmt);
    name_desc(&desc, fmt, args);
    va_end(args);
    return param_add(list, desc);
}

Status describe_bias(ParamList *list, int id, int split, int64_t a, int64_t b, const char *fmt, ...) {
    ParamDesc desc = {.id = id, .ndim = b ? 2 : 1, .dim = {a, b}, .split = split, .init = INIT_ZEROS};
    va_list args;
    va_start(args, fmt);
    name_desc(&desc, fmt, args);
    va_end(args);
    return param_add(list, desc);
}

void describe_vocab(ParamList *list) {
    list->desc[list->count - 1].vocab = true;
}

int64_t local_start(const Pass *pass, int64_t part) {
    return pass->tp->rank * part;
}

VocabPart local_vocab(const Block *block, const Pass *pass, int64_t rows, int64_t first) {
    return (VocabPart){.start = local_start(pass, rows) + first, .valid = block->config->vocab};
}

Tensor own_rows(const Pass *pass, Tensor whole) {
    Tensor rows = tensor_matrix(whole);
    if (!pass->shape.sequence) return rows;
    int64_t share = rows.dim[0] / pass->shape.tp;
    return tensor_slice(rows, local_start(pass, share), share);
}

Dropout dropout_of_sequences(const Pass *pass, float p, int64_t width, const char *site) {
    if (!pass->shape.train || p == 0) return (Dropout){0};
    return (Dropout){.p = p,
                     .key = rng_key(pass->seed, site, pass->step),
                     .origin = {pass->micro->first, 0, 0},
                     .extent = {1, width},
                     .step = pass->micro->step};
}

Dropout dropout_at(const Pass *pass, float p, int64_t width, const char *fmt, ...) {
    if (!pass->shape.train || p == 0) return (Dropout){0};
    char site[PARAM_NAME];
    va_list args;
    va_start(args, fmt);
    vsnprintf(site, sizeof site, fmt, args);
    va_end(args);
    Dropout dropout = {
        .p = p,
        .key = rng_key(pass->seed, site, pass->step),
        .origin = {pass->micro->first, 0, 0},
        .extent = {context_length(pass->shape), width},
        .step = pass->micro->step,
    };
    if (pass->shape.cp > 1) {
        dropout.rows = pass->shape.T;
        dropout.at = pass->at;
        if (pass->shape.sequence) dropout.origin[1] = local_start(pass, rows_of(pass->shape, 1).dim[1]);
    } else if (pass->shape.sequence) { /* contiguous rows that may start and end inside a sequence */
        int64_t rows = rows_of(pass->shape, 1).dim[1];
        dropout.origin[0] = 0;
        dropout.origin[1] = pass->micro->first * pass->shape.T + local_start(pass, rows);
        dropout.extent[0] = dropout.origin[1] + rows;
    }
    return dropout;
}

Tensor head_rows_buffer(const Block *block, Shape shape, Bump *bump) {
    return tensor_take(bump, whole_of(shape, block->config->hidden));
}

Status head_input(Pass *pass, Tensor buffer, Tensor x, Tensor *ret_rows) {
    Tensor whole;
    TRY(tp_spread(pass->tp, pass->exec, pass->shape.sequence, buffer, x, &whole));
    *ret_rows = tensor_matrix(whole);
    return OK;
}

int64_t head_loop_rows(const Pass *pass, int64_t rows) {
    return pass->pieces ? pass->head_rows : rows;
}

Tensor head_saved(const Block *block, Shape shape, Bump *bump) {
    if (!shape.train) return TENSOR_NONE;
    return tensor_take(bump, tensor_2d(NULL, shape.dtype, shape.B * shape.T, block->config->hidden));
}

Status output_backward(const Block *block, Pass *pass, Tensor dx, Tensor dy, Tensor x) {
    (void)dy, (void)x;
    Bump saved = bump_over(pass->saved);
    Tensor saved_rows = own_rows(pass, head_saved(block, pass->shape, &saved));
    return stream_copy(pass->exec->stream, dx.data, saved_rows.data, tensor_bytes(saved_rows),
                       COPY_ON_DEVICE);
}

Status head_sum(Pass *pass, LossId loss, Tensor losses, Tensor stats, Tensor labels, int64_t valid) {
    TRY(sum(pass->exec, tensor_slice(pass->loss, loss, 1), losses));
    if (!pass->hits.data) return OK;
    TRY(xent_hits(pass->exec, losses, stats, labels, valid));
    return sum(pass->exec, tensor_slice(pass->hits, loss, 1), losses);
}

/* Small for fp32, to limit cache pollution on CPUs. On GPUs every chunk reads and writes the gradient of the
 * whole output matrix, so large chunks are better. */
static int64_t rows_within_limit(Shape shape, int64_t width, int64_t rows) {
    int64_t limit = shape.logits == DT_F32 ? (128 << 20) / 4 : (1 << 30) / 2; /* 128 MiB, 1 GiB */
    int64_t chunk = 32;
    while (chunk * 2 * width <= limit && chunk < rows) chunk *= 2;
    return chunk < rows ? chunk : rows;
}

bool loss_keeps_logits(Shape shape, int64_t vocab) {
    int64_t all = shape.B * shape.T;
    return rows_within_limit(shape, vocab, all) == all;
}

int64_t loss_chunk_rows(Shape shape, int64_t vocab, int64_t rows) {
    bool one_piece = shape.pieces && !loss_keeps_logits(shape, vocab);
    return rows_within_limit(shape, one_piece ? shape.piece_rows : vocab, rows);
}
