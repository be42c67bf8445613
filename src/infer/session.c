/* B sequences, K tokens per chunk, S context length, C hidden size, H heads of size D, V vocabulary.
 *
 * session_feed splits new tokens into chunks. A chunk is a (b,T) rectangle: sequence b has fresh[b] <= T new
 * tokens in it and the rest of its row is padding, which attention_decode ignores. The hidden state of a
 * sequence's last token is saved when its chunk is processed, and the head runs only on these (B,C) rows.
 * Everything but the weights is in two buffers that are laid out once.
 *
 * On the CPU a chunk has one sequence, and a decode step has at most STEP_ROWS sequences, because GEMMs of
 * up to that many rows sum in the same order. A sequence's results are therefore bit-identical, whatever the
 * other sequences are.
 *
 * A decode step (one token per sequence) launches the same operations every time. For each number of
 * sequences it runs normally once, is recorded the second time (a CUDA graph) and replayed from then on. If
 * the device cannot record, steps keep running normally.
 *
 * With session_enable_argmax, a step leaves the inputs of the next one on the device (argmax_advance). The
 * next step can therefore start before the host has seen the result of this one; its own result waits in
 * `next` until session_feed asks for it. Lengths count only what was fed, so a step that nobody asks for
 * leaves nothing behind: the cache past a sequence's length is undefined anyway.
 *
 * With several ranks, each has a part of every sequence's positions in its cache (model/cache_split.h).
 * A prompt's chunk is then a round: as many rows on each rank as a block of its part, from a multiple of a
 * round on. Steps, and prompts that continue within a round, have the same rows on all ranks.
 * The first rank computes the logits for all, so that they choose the same tokens even if their CPUs differ.
 *
 * Rotary frequencies may depend on a sequence's length (model/rope.h). Row p of the rotary table is that of a
 * sequence that ends at p, which is what a decode step needs. A prompt needs the rows of its last token's
 * length for all its tokens, so they are computed for it, and its chunks have one sequence.
 */
#include "infer/session_internal.h"

#include <string.h>

#include "base/format.h"
#include "model/rope.h"

static int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Elements of a cache row: one head of one position, plus its scale for int8. */
static int64_t cache_width(const ModelConfig *config, DType dtype) {
    return config_head_width(config) + (dtype == DT_I8 ? CACHE_SCALE : 0);
}

size_t session_cache_bytes(const ModelConfig *config, int64_t context, DType dtype) {
    return 2 * (size_t)config->layers * (size_t)context * (size_t)config_kv_heads(config) *
           (size_t)cache_width(config, dtype) * dtype_size(dtype);
}

static void layout(Session *s, size_t saved, Bump *bump) {
    const ModelConfig *c = &s->engine->model->config;
    DType dtype = s->engine->params->dtype;
    CachePart first = s->split.part; /* no rank has more positions than the first */
    first.rank = 0;
    Tensor cache = tensor_4d(NULL, s->engine->cache, s->B, config_kv_heads(c),
                             cache_rows_before(&first, s->S), cache_width(c, s->engine->cache));
    int64_t rows = s->separate ? (s->B > s->K ? s->B : s->K) : s->B * s->K;
    Tensor wide = tensor_2d(NULL, dtype, rows, c->hidden);
    for (int64_t i = 0; i < c->layers; i++) {
        s->cache[i].k = tensor_take(bump, cache);
        s->cache[i].v = tensor_take(bump, cache);
    }
    s->inputs = tensor_take(bump, tensor_1d(NULL, DT_I32, s->B * (s->K + 2) + 2 * first.ranks));
    s->x = tensor_take(bump, wide);
    s->y = tensor_take(bump, wide);
    s->last = tensor_take(bump, tensor_2d(NULL, dtype, s->B, c->hidden));
    s->logits = tensor_take(bump, tensor_2d(NULL, DT_F32, s->B, c->vocab));
    s->best = tensor_take(bump, tensor_1d(NULL, DT_I32, s->B));
    cache_split_take(&s->split, c, dtype, min(s->B, STEP_ROWS), s->K, bump);
    s->saved = (Buffer){.data = bump_take(bump, saved), .bytes = saved, .tag = MEM_ACTIVATIONS};
}

Shape session_shape(const Session *s, int64_t B, int64_t T) {
    return (Shape){.B = B, .T = T, .tp = 1, .dtype = s->engine->params->dtype};
}

/* Raises *saved and *scratch to what any block needs for `shape`. */
static void measure(const Session *s, Shape shape, size_t *saved, size_t *scratch) {
    const Model *model = s->engine->model;
    for (int i = 0; i < model->count - 1; i++) {
        size_t block_saved, block_scratch;
        const Block *block = &model->block[i];
        block->ops->measure(block, shape, &block_saved, &block_scratch);
        if (block_saved > *saved) *saved = block_saved;
        if (block_scratch > *scratch) *scratch = block_scratch;
    }
}

static Status allocate(Session *s) {
    const Model *model = s->engine->model;
    size_t saved = 0, scratch = output_logits_scratch(&model->block[model->count - 1], HEAD_LM, s->B);
    measure(s, session_shape(s, s->separate ? 1 : s->B, s->K), &saved, &scratch);
    measure(s, session_shape(s, s->B, 1), &saved, &scratch);
    Bump bump = {0};
    layout(s, saved, &bump);
    Device *device = s->engine->device;
    TRY(dev_alloc(device, MEM_ACTIVATIONS, bump.used, &s->memory));
    TRY(dev_alloc(device, MEM_SCRATCH, scratch, &s->scratch));
    TRY(dev_alloc_host(device, tensor_bytes(s->inputs), &s->stage));
    TRY(dev_alloc_host(device, tensor_bytes(s->logits), &s->scores));
    TRY(dev_alloc_host(device, tensor_bytes(s->best), &s->chosen));
    TRY(dev_alloc_host(device, RING * tensor_bytes(s->best), &s->ring));
    bump = (Bump){.base = s->memory.data, .size = s->memory.bytes};
    layout(s, saved, &bump);
    TRY(bump_check(&bump, "a session"));
    TRY(rope_table_growing(&model->config, s->S, device, s->engine->stream, &s->rope, &s->rope_table));
    if (rope_varies(&model->config)) {
        s->prompt_table = s->rope_table;
        TRY(dev_alloc(device, MEM_SCRATCH, s->rope.bytes, &s->prompt_rope));
        s->prompt_table.data = s->prompt_rope.data;
    }
    /* The head also runs on rows of `last` that were never set. */
    return stream_zero(s->engine->stream, s->last.data, tensor_bytes(s->last));
}

static Status check_sizes(const Engine *engine, int64_t batch, int64_t context, int64_t chunk) {
    const ModelConfig *c = &engine->model->config;
    if (batch < 1 || context < 1 || chunk < 1) return FAILED("internal: empty session");
    if (context > config_context(c))
        return USAGE("a context of %lld tokens is needed, but the model's context length is %lld",
                     (long long)context, (long long)config_context(c));
    size_t bytes, widest = (size_t)(c->inner > c->hidden ? c->inner : c->hidden);
    if (!mul_size((size_t)batch, session_cache_bytes(c, context, engine->cache), &bytes) ||
        !mul_size((size_t)batch * (size_t)chunk, 64 * widest, &bytes) ||
        !mul_size((size_t)batch, (size_t)c->vocab * sizeof(float), &bytes))
        return FAILED("not enough memory for %lld sequence%s of %lld tokens; use a smaller batch",
                      (long long)batch, PLURAL(batch), (long long)context);
    return OK;
}

Status session_new(Session **ret_session, Engine *engine, int64_t batch, int64_t context, int64_t chunk) {
    const ModelConfig *c = &engine->model->config;
    TRY(check_sizes(engine, batch, context, chunk));
    CLEANUP(session_freep) Session *s = NULL;
    TRY(mem_new(1, sizeof *s, &s));
    s->engine = engine;
    s->separate = device_is_host(engine->device);
    s->split = (CacheSplit){.group = engine->cp, .part = cache_part(engine->cp, context, chunk)};
    s->B = batch, s->S = context, s->K = s->split.part.block;
    TRY(mem_new((size_t)c->layers, sizeof *s->cache, &s->cache));
    TRY(mem_new((size_t)c->layers, sizeof *s->active, &s->active));
    TRY(mem_new((size_t)s->B, sizeof *s->length, &s->length));
    TRY(mem_new((size_t)s->B, sizeof *s->fed, &s->fed));
    TRY(mem_new((size_t)s->B, sizeof *s->input, &s->input));
    TRY(mem_new((size_t)s->B, sizeof *s->next, &s->next));
    TRY(allocate(s));
    return MOVE(ret_session, s);
}

/* Call when later steps will differ from the recorded ones. */
static void discard_recordings(Session *s) {
    for (int i = 0; i <= MAX_RECORDED; i++) {
        recording_free(s->step_state[i].recording);
        s->step_state[i] = (StepState){0};
    }
}

void session_free(Session *s) {
    if (!s) return;
    status_free(stream_sync(s->engine->stream)); /* a step ahead may still use the memory */
    for (int i = 0; i < RING; i++) stream_event_free(s->engine->device, s->event[i]);
    discard_recordings(s);
    dev_free(&s->memory);
    dev_free(&s->scratch);
    dev_free(&s->rope);
    dev_free(&s->prompt_rope);
    free(s->cache);
    free(s->active);
    free(s->length);
    free(s->fed);
    free(s->input);
    free(s->next);
    dev_free(&s->stage);
    dev_free(&s->scores);
    dev_free(&s->chosen);
    dev_free(&s->ring);
    free(s);
}

/* Writes token[b] of a range of sequences, for a decode step, to the staging buffer. */
static void stage_step(Session *s, const int32_t *token, Range range) {
    Shape shape = session_shape(s, range.count, 1);
    int32_t *tokens = s->stage.data, *past = tokens + past_at(shape), *fresh = tokens + fresh_at(shape);
    for (int64_t i = 0; i < range.count; i++) {
        tokens[i] = token[range.first + i];
        past[i] = (int32_t)s->length[range.first + i];
        fresh[i] = 1;
    }
}

Status session_upload(Session *s, Shape shape) {
    int64_t more = s->split.own_rows ? 2 * s->split.part.ranks : 0;
    size_t staged = (size_t)(fresh_at(shape) + shape.B + more) * sizeof(int32_t);
    return stream_copy(s->engine->stream, s->inputs.data, s->stage.data, staged, COPY_TO_DEVICE);
}

static Pass pass_of(Session *s, Shape shape) {
    return (Pass){
        .exec = &s->engine->exec,
        .tp = s->engine->tp,
        .shape = shape,
        .saved = s->saved,
        .scratch = s->scratch,
    };
}

Status session_run(Session *s, int64_t first, Shape shape, Tensor rope, Tensor *ret_x) {
    const Model *model = s->engine->model;
    int64_t B = shape.B, T = shape.T, C = model->config.hidden;
    Micro micro = {.B = B, .T = T, .tokens = tensor_2d(s->inputs.data, DT_I32, B, T)};
    Decode decode = {
        .past = tensor_slice(s->inputs, past_at(shape), B),
        .fresh = tensor_slice(s->inputs, fresh_at(shape), B),
        .cache = s->active,
        .split = s->split.group ? &s->split : NULL,
    };
    int64_t ranks = s->split.part.ranks;
    s->split.past = tensor_slice(s->inputs, fresh_at(shape) + B, ranks);
    s->split.fresh = tensor_slice(s->inputs, fresh_at(shape) + B + ranks, ranks);
    for (int64_t i = 0; i < model->config.layers; i++) {
        s->active[i].k = tensor_slice(s->cache[i].k, first, B);
        s->active[i].v = tensor_slice(s->cache[i].v, first, B);
    }
    Pass pass = pass_of(s, shape);
    pass.micro = &micro;
    pass.decode = &decode;
    pass.rope = rope;
    Tensor x = tensor_3d(s->x.data, shape.dtype, B, T, C), y = tensor_3d(s->y.data, shape.dtype, B, T, C);
    for (int i = 0; i < model->count - 1; i++) {
        const Block *block = &model->block[i];
        pass.param = s->engine->params->view[i];
        TRY(block->ops->decode(block, &pass, y, i > 0 ? x : TENSOR_NONE));
        Tensor swap = x;
        x = y, y = swap;
    }
    *ret_x = x;
    return OK;
}

static float *logits_of(const Session *s, int64_t sequence) {
    return (float *)s->scores.data + sequence * s->logits.dim[1];
}

Status session_compute_logits(Session *s, int64_t first, Tensor x, Tensor *ret_logits) {
    const Model *model = s->engine->model;
    int64_t count = x.dim[0];
    int at = model->count - 1;
    Pass pass = pass_of(s, session_shape(s, count, 1));
    pass.param = s->engine->params->view[at];
    *ret_logits = tensor_slice(s->logits, first, count);
    if (s->split.part.rank == 0) TRY(output_logits(&model->block[at], &pass, HEAD_LM, *ret_logits, x));
    if (s->split.group) TRY(broadcast(s->split.group, s->engine->stream, *ret_logits, 0, NULL));
    if (s->best_only) return OK;
    return stream_copy(s->engine->stream, logits_of(s, first), ret_logits->data, tensor_bytes(*ret_logits),
                       COPY_TO_HOST);
}

/* Decodes one token for each sequence of a range. With best_only it is in `inputs`, where the argmax then
 * replaces it; otherwise it is staged. */
static Status step(Session *s, Range range) {
    Shape shape = session_shape(s, range.count, 1);
    Tensor x, logits;
    if (!s->best_only) TRY(session_upload(s, shape));
    TRY(session_run(s, range.first, shape, s->rope_table, &x));
    x = tensor_2d(x.data, x.dtype, range.count, s->last.dim[1]);
    TRY(session_compute_logits(s, range.first, x, &logits));
    if (!s->best_only) return OK;
    Tensor ring = tensor_2d(s->ring.data, DT_I32, s->B, RING);
    return argmax_advance(&s->engine->exec, tensor_slice(ring, range.first, range.count),
                          tensor_slice(s->inputs, 0, range.count),
                          tensor_slice(s->inputs, past_at(shape), range.count), logits);
}

/* If recording fails, steps keep running normally; a genuine error will then show up there. */
static Status record_step(Session *s, int64_t count, StepState *step_state) {
    Stream *stream = s->engine->stream;
    bool begun = false;
    TRY(stream_record_begin(stream, &begun));
    if (begun) {
        CLEANUP(status_freep) Status status = step(s, (Range){0, count});
        CLEANUP(recording_freep) Recording *recording = NULL;
        CLEANUP(status_freep) Status end = stream_record_end(stream, &recording);
        if (!status && !end) {
            step_state->recording = recording;
            recording = NULL;
        }
    }
    step_state->not_recordable = !step_state->recording;
    return OK;
}

static Status replay_step(Session *s, int64_t count) {
    StepState *step_state = &s->step_state[min(count, MAX_RECORDED)];
    if (count > MAX_RECORDED || step_state->not_recordable || !step_state->done_once) {
        step_state->done_once = true;
        return step(s, (Range){0, count});
    }
    if (step_state->recording && !recording_holds(step_state->recording)) {
        recording_free(step_state->recording);
        step_state->recording = NULL;
    }
    if (!step_state->recording) TRY(record_step(s, count, step_state));
    return step_state->recording ? recording_replay(step_state->recording) : step(s, (Range){0, count});
}

/* Starts a step that feeds token[b] to sequence b. The previous transfer must be complete. */
static Status start_step(Session *s, const int32_t *token, int64_t count) {
    Range range;
    for (int64_t first = 0; first < count; first += range.count) {
        range = session_range(first, count, s->separate, STEP_ROWS);
        s->split.own_rows = false;
        stage_step(s, token, range);
        if (s->best_only) TRY(session_upload(s, session_shape(s, range.count, 1)));
        TRY(s->separate ? step(s, range) : replay_step(s, range.count));
    }
    return OK;
}

/* ---- running ahead ---- */

/* Marks the step that was just started as the one ahead. */
static Status set_ahead(Session *s, int64_t count) {
    int event = (s->ahead.event + 1) % RING;
    TRY(stream_event_record(s->engine->stream, &s->event[event]));
    s->ahead = (Ahead){.count = count, .valid = count, .event = event};
    return OK;
}

/* Waits for a step after the last one fed and reads its results. */
static Status read_results(Session *s, Ahead step) {
    const int32_t *ring = s->ring.data;
    TRY(stream_event_sync(s->engine->device, s->event[step.event]));
    for (int64_t b = 0; b < step.count; b++) s->next[b] = ring[b * RING + s->length[b] % RING];
    return OK;
}

static Status finish_ahead(Session *s) {
    if (s->ahead.count && !s->ahead.finished) TRY(read_results(s, s->ahead));
    s->ahead.finished = true;
    return OK;
}

static Status drop_ahead(Session *s) {
    TRY(finish_ahead(s));
    s->ahead.count = s->ahead.valid = 0;
    return OK;
}

/* Whether the step ahead computes what would be fed. */
static bool is_ahead(const Session *s, const Feed *feed, int64_t count) {
    if (count > s->ahead.valid) return false;
    for (int64_t b = 0; b < count; b++)
        if (feed[b].ids[0] != session_argmax(s, b)) return false;
    return true;
}

/* Whether to start the step after the one ahead, for which all sequences must have space. */
static bool wants_more(const Session *s, int64_t count) {
    bool wants = s->run_ahead;
    for (int64_t b = 0; b < count; b++) wants &= s->length[b] + 1 < s->S;
    return wants;
}

/* Makes the step ahead the last one that was fed. If all its sequences remain, the next one continues on the
 * device and starts before the host waits. */
static Status accept_ahead(Session *s, int64_t count) {
    if (s->separate || count != s->ahead.count) TRY(finish_ahead(s));
    bool more = wants_more(s, count);
    const Ahead now = s->ahead;
    s->ahead.count = s->ahead.valid = 0;
    if (!now.finished) {
        if (more) {
            TRY(replay_step(s, count));
            TRY(set_ahead(s, count));
        }
        TRY(read_results(s, now));
    }
    for (int64_t b = 0; b < count; b++) {
        more &= s->next[b] >= 0;
        s->length[b]++;
    }
    memcpy(s->chosen.data, s->next, (size_t)count * sizeof *s->next);
    if (!more || !now.finished) return OK;
    TRY(start_step(s, s->chosen.data, count));
    return set_ahead(s, count);
}

static Status feed_step(Session *s, const Feed *feed, int64_t count) {
    bool started = is_ahead(s, feed, count);
    if (!started) TRY(drop_ahead(s));
    for (int64_t b = 0; b < count; b++) s->input[b] = feed[b].ids[0];
    if (!started) TRY(start_step(s, s->input, count));
    if (!s->best_only) {
        for (int64_t b = 0; b < count; b++) s->length[b]++;
        return stream_sync(s->engine->stream);
    }
    if (!started) TRY(set_ahead(s, count));
    return accept_ahead(s, count);
}

Status session_feed(Session *s, const Feed *feed, int64_t count) {
    if (count < 1 || count > s->B)
        return FAILED("internal: %lld sequences fed to a session of %lld", (long long)count, (long long)s->B);
    bool is_step = true;
    for (int64_t b = 0; b < count; b++) {
        if (feed[b].count > s->S - s->length[b])
            return FAILED(
                "sequence %lld: %lld more token%s after %lld would exceed the context of %lld tokens",
                (long long)b, (long long)feed[b].count, PLURAL(feed[b].count), (long long)s->length[b],
                (long long)s->S);
        is_step &= feed[b].count == 1;
    }
    if (is_step) return feed_step(s, feed, count);
    TRY(drop_ahead(s));
    return session_feed_chunks(s, feed, count);
}

void session_enable_argmax(Session *s) {
    s->best_only = true;
    discard_recordings(s);
}

void session_run_ahead(Session *s, bool run_ahead) {
    s->run_ahead = run_ahead;
}

int32_t session_argmax(const Session *s, int64_t sequence) {
    return ((const int32_t *)s->chosen.data)[sequence];
}

const float *session_logits(const Session *s, int64_t sequence) {
    return logits_of(s, sequence);
}

/* Feeds the tokens of the last step again, because the step ahead has overwritten the logits. */
static Status repeat_step(Session *s) {
    int64_t count = s->ahead.valid;
    TRY(drop_ahead(s));
    for (int64_t b = 0; b < count; b++) s->length[b]--;
    TRY(start_step(s, s->input, count));
    for (int64_t b = 0; b < count; b++) s->length[b]++;
    return OK;
}

Status session_fetch_logits(Session *s, int64_t sequence) {
    if (sequence < s->ahead.valid) TRY(repeat_step(s));
    Tensor row = tensor_slice(s->logits, sequence, 1);
    TRY(stream_copy(s->engine->stream, logits_of(s, sequence), row.data, tensor_bytes(row), COPY_TO_HOST));
    return stream_sync(s->engine->stream);
}

int64_t session_length(const Session *s, int64_t sequence) {
    return s->length[sequence];
}

/* cache (B,H,S,..). On the CPU only the positions in use, including that of the step ahead, are copied, head
 * by head; on a GPU that would take longer than copying all of them at once. */
static Status copy_cache(Session *s, Tensor cache, int64_t to, int64_t from) {
    char *target = tensor_slice(cache, to, 1).data, *source = tensor_slice(cache, from, 1).data;
    size_t pieces = s->separate ? (size_t)cache.dim[1] : 1;
    size_t stride = tensor_bytes(tensor_slice(cache, from, 1)) / pieces;
    int64_t positions = s->separate ? s->length[from] + (from < s->ahead.valid) : s->S;
    size_t used = stride / (size_t)cache.dim[2] * (size_t)cache_rows_before(&s->split.part, positions);
    for (size_t i = 0; i < pieces; i++)
        TRY(stream_copy(s->engine->stream, target + i * stride, source + i * stride, used, COPY_ON_DEVICE));
    return OK;
}

/* Copies the tokens around the last step and the result of the step ahead, which may still run. */
static Status copy_tokens(Session *s, int64_t to, int64_t from) {
    int32_t *chosen = s->chosen.data;
    TRY(finish_ahead(s));
    if (from >= s->ahead.valid) s->ahead.valid = min(s->ahead.valid, to);
    chosen[to] = chosen[from];
    s->input[to] = s->input[from];
    s->next[to] = s->next[from];
    return OK;
}

Status session_copy(Session *s, int64_t to, int64_t from) {
    if (to == from) return OK;
    if (s->best_only) TRY(copy_tokens(s, to, from));
    const ModelConfig *c = &s->engine->model->config;
    for (int64_t i = 0; i < c->layers; i++) {
        TRY(copy_cache(s, s->cache[i].k, to, from));
        TRY(copy_cache(s, s->cache[i].v, to, from));
    }
    s->length[to] = s->length[from];
    if (!s->best_only) {
        memcpy(logits_of(s, to), logits_of(s, from), (size_t)c->vocab * sizeof(float));
        return OK;
    }
    Tensor target = tensor_slice(s->logits, to, 1), source = tensor_slice(s->logits, from, 1);
    return stream_copy(s->engine->stream, target.data, source.data, tensor_bytes(source), COPY_ON_DEVICE);
}

void session_reset(Session *s) {
    s->ahead.valid = 0;
    memset(s->length, 0, (size_t)s->B * sizeof *s->length);
}

void session_clear(Session *s, int64_t sequence) {
    session_truncate(s, sequence, 0);
}

void session_truncate(Session *s, int64_t sequence, int64_t length) {
    s->ahead.valid = min(s->ahead.valid, sequence);
    s->length[sequence] = min(s->length[sequence], length);
}

int64_t session_context(const Session *s) {
    return s->S;
}
