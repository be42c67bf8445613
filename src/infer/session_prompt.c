/* Feeding prompts: their chunks, one after the other; see session.c. */
#include "infer/session_internal.h"

#include <string.h>

#include "model/rope.h"

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The tokens of sequence b that go through the model in a chunk with T rows. */
static int64_t chunk_tokens(const Session *s, const Feed *feed, int64_t b, int64_t T) {
    return min(feed[b].count - s->fed[b], s->split.own_rows ? T * s->split.part.ranks : T);
}

/* The shape of a range's next chunk; 0 x 0 when all tokens are fed. Padding must not extend past the context.
 */
static Shape next_chunk(Session *s, const Feed *feed, Range range) {
    int64_t rows = 0, longest = 0, free_tokens = s->K;
    if (s->split.group) {
        int64_t round = s->K * s->split.part.ranks, at = s->length[range.first] % round;
        s->split.own_rows = at == 0;
        free_tokens = min(free_tokens, round - at);
    }
    for (int64_t b = range.first; b < range.first + range.count; b++) {
        int64_t left = feed[b].count - s->fed[b];
        if (left == 0) continue;
        rows = b - range.first + 1;
        free_tokens = min(free_tokens, s->S - s->length[b]);
        if (left > longest) longest = left;
    }
    return session_shape(s, rows, min(longest, free_tokens));
}

/* stage_chunk with a block of rows on each rank: T rows; the last ranks may have fewer or none. */
static void stage_own_rows(Session *s, const Feed *feed, int64_t b, Shape shape) {
    int32_t *tokens = s->stage.data, *past = tokens + past_at(shape), *fresh = tokens + fresh_at(shape);
    int32_t *all_past = fresh + 1, *all_fresh = all_past + s->split.part.ranks;
    int64_t count = chunk_tokens(s, feed, b, shape.T), T = shape.T;
    for (int rank = 0; rank < s->split.part.ranks; rank++) {
        int64_t left = count - rank * T;
        all_fresh[rank] = left < 0 ? 0 : (int32_t)min(left, T);
        all_past[rank] = left > 0 ? (int32_t)(s->length[b] + rank * T) : 0;
    }
    int rank = s->split.part.rank;
    *past = all_past[rank], *fresh = all_fresh[rank];
    memset(tokens, 0, (size_t)T * sizeof *tokens);
    if (*fresh) memcpy(tokens, feed[b].ids + s->fed[b] + rank * T, (size_t)*fresh * sizeof *tokens);
}

/* Writes the chunk's tokens, past and fresh counts to the staging buffer. The previous transfer must be
 * complete. */
static void stage_chunk(Session *s, const Feed *feed, int64_t first, Shape shape) {
    if (s->split.own_rows) {
        stage_own_rows(s, feed, first, shape);
        return;
    }
    int32_t *tokens = s->stage.data, *past = tokens + past_at(shape), *fresh = tokens + fresh_at(shape);
    memset(tokens, 0, (size_t)(shape.B * shape.T) * sizeof *tokens);
    for (int64_t i = 0; i < shape.B; i++) {
        int64_t b = first + i, added = chunk_tokens(s, feed, b, shape.T);
        fresh[i] = (int32_t)added;
        past[i] = added ? (int32_t)s->length[b] : 0;
        if (added) memcpy(tokens + i * shape.T, feed[b].ids + s->fed[b], (size_t)added * sizeof *tokens);
    }
}

/* Marks the chunk's tokens as fed, and saves the hidden state of each sequence whose last token was in it. */
static Status finish_chunk(Session *s, const Feed *feed, int64_t first, Shape shape, Tensor x) {
    size_t row = (size_t)s->last.dim[1] * dtype_size(s->last.dtype);
    for (int64_t i = 0; i < shape.B; i++) {
        int64_t b = first + i, added = chunk_tokens(s, feed, b, shape.T), owner = s->split.part.rank;
        s->fed[b] += added;
        s->length[b] += added;
        if (!added || s->fed[b] < feed[b].count) continue;
        if (s->split.own_rows) owner = (added - 1) / shape.T;
        Tensor last = tensor_slice(s->last, b, 1);
        if (owner == s->split.part.rank)
            TRY(stream_copy(s->engine->stream, last.data,
                            (char *)x.data + (size_t)(i * shape.T + (added - 1) % shape.T) * row, row,
                            COPY_ON_DEVICE));
        if (s->split.own_rows) TRY(broadcast(s->split.group, s->engine->stream, last, (int)owner, NULL));
    }
    return OK;
}

/* The rotary table of the one sequence in a range. */
static Status prompt_rope(Session *s, const Feed *feed, Range range, Tensor *ret_table) {
    int64_t past = s->length[range.first], count = feed[range.first].count, D = tensor_cols(s->prompt_table);
    CLEANUP(mem_freep) float *rows = NULL;
    TRY(mem_new((size_t)(count * D), sizeof *rows, &rows));
    TRY(rope_rows(&s->engine->model->config, past + count, past, count, rows));
    *ret_table = s->prompt_table;
    TRY(stream_copy(s->engine->stream, (float *)s->prompt_table.data + past * D, rows,
                    (size_t)(count * D) * sizeof *rows, COPY_TO_DEVICE));
    return stream_sync(s->engine->stream);
}

static Status feed_range(Session *s, const Feed *feed, Range range) {
    Tensor rope = s->rope_table;
    if (s->prompt_table.data && feed[range.first].count > 1) TRY(prompt_rope(s, feed, range, &rope));
    for (Shape shape; (shape = next_chunk(s, feed, range)).B > 0;) {
        Tensor x;
        TRY(stream_sync(s->engine->stream)); /* the previous chunk has left the staging buffer */
        stage_chunk(s, feed, range.first, shape);
        TRY(session_upload(s, shape));
        TRY(session_run(s, range.first, shape, rope, &x));
        TRY(finish_chunk(s, feed, range.first, shape, x));
    }
    return OK;
}

Status session_feed_chunks(Session *s, const Feed *feed, int64_t count) {
    Range range;
    memset(s->fed, 0, (size_t)s->B * sizeof *s->fed);
    for (int64_t first = 0; first < count; first += range.count) {
        range = session_range(first, count, s->separate || s->prompt_table.data, 1);
        TRY(feed_range(s, feed, range));
    }
    for (int64_t first = 0; first < count; first += range.count) {
        range = session_range(first, count, s->separate, STEP_ROWS);
        Tensor logits, best = tensor_slice(s->best, first, range.count);
        TRY(session_compute_logits(s, first, tensor_slice(s->last, first, range.count), &logits));
        if (!s->best_only) continue;
        TRY(argmax(&s->engine->exec, best, logits));
        TRY(stream_copy(s->engine->stream, (int32_t *)s->chosen.data + first, best.data, tensor_bytes(best),
                        COPY_TO_HOST));
    }
    return stream_sync(s->engine->stream);
}
