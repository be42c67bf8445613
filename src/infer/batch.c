/* Batches of prompts. */
#include "infer/batch.h"

#include <string.h>

enum { AUTO_BATCH = 64, AUTO_ROWS = 512, AUTO_CHUNK = 256, LONG_CHUNK = 1024, AUTO_CACHE = 1 << 30 };

static Status check_prompt(const GenerateSpec *spec, int64_t at, const ModelConfig *config) {
    const Prompt *prompt = &spec->prompts[at];
    if (prompt->count < 1) return USAGE("prompt %lld is empty", (long long)at + 1);
    for (int64_t i = 0; i < prompt->count; i++)
        if (prompt->ids[i] < 0 || prompt->ids[i] >= config->vocab)
            return USAGE("prompt %lld: token %d at position %lld is outside the vocabulary of %lld tokens",
                         (long long)at + 1, (int)prompt->ids[i], (long long)i + 1, (long long)config->vocab);
    return OK;
}

static Status check_beams(const GenerateSpec *spec) {
    const BeamSpec *beam = &spec->beam;
    if (spec->cache && (spec->count != 1 || beam->beams > 1))
        return FAILED("internal: a cache is for one sequence without beam search");
    if (beam->beams < 2) return OK;
    if (spec->logprobs) return USAGE("beam search does not report log probabilities of tokens");
    if (beam->returned > beam->beams)
        return USAGE("%lld samples need at least as many beams, but there are %lld",
                     (long long)beam->returned, (long long)beam->beams);
    if (beam->returned > 1 && spec->count % beam->returned)
        return FAILED("internal: %lld prompts in groups of %lld", (long long)spec->count,
                      (long long)beam->returned);
    return OK;
}

Status batch_check(const GenerateSpec *spec, const ModelConfig *config) {
    if (spec->count < 1) return USAGE("no prompt; pass at least one");
    if (spec->max_tokens < 1 && spec->max_length < 1)
        return USAGE("the number of new tokens must be at least 1");
    if (spec->shift < 0 || spec->shift > config_context(config))
        return USAGE("the window cannot move by %lld tokens: the model's context length is %lld",
                     (long long)spec->shift, (long long)config_context(config));
    if (spec->top_logprobs < 0 || spec->top_logprobs > config->vocab)
        return USAGE("log probabilities of %lld tokens were requested, but the vocabulary has %lld",
                     (long long)spec->top_logprobs, (long long)config->vocab);
    for (int64_t i = 0; i < spec->count; i++) TRY(check_prompt(spec, i, config));
    return check_beams(spec);
}

/* Longest first, so that the sequences of a chunk are always the first ones of the session. */
static int by_length(const void *left, const void *right, void *context) {
    const Prompt *prompts = context;
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    if (prompts[a].count != prompts[b].count) return prompts[a].count > prompts[b].count ? -1 : 1;
    return a < b ? -1 : a > b;
}

Status batch_order(const GenerateSpec *spec, int64_t step, int64_t **ret_order) {
    int64_t count = spec->count / step, *order = NULL;
    TRY(mem_new((size_t)count, sizeof *order, &order));
    for (int64_t i = 0; i < count; i++) order[i] = i * step;
    qsort_r(order, (size_t)count, sizeof *order, by_length, (void *)spec->prompts);
    *ret_order = order;
    return OK;
}

int64_t batch_new_tokens(const GenerateSpec *spec, int64_t prompt) {
    if (spec->max_tokens > 0) return spec->max_tokens;
    return spec->max_length > prompt ? spec->max_length - prompt : 1;
}

BatchSize batch_size(const Engine *engine, const GenerateSpec *spec, int64_t longest) {
    int64_t limit = config_context(&engine->model->config);
    /* The last token is chosen but never fed. */
    BatchSize size = {.batch = spec->batch, .context = longest + batch_new_tokens(spec, longest) - 1};
    if (!spec->max_tokens && size.context < spec->max_length - 1) size.context = spec->max_length - 1;
    if (size.context > limit) size.context = limit;
    if (size.batch > 0) return size;
    size_t bytes = session_cache_bytes(&engine->model->config, size.context, engine->cache);
    if (engine->cp) bytes = (bytes + (size_t)engine->cp->size - 1) / (size_t)engine->cp->size;
    int64_t fits = (int64_t)((size_t)AUTO_CACHE / bytes);
    size.batch = fits < 1 ? 1 : fits > AUTO_BATCH ? AUTO_BATCH : fits;
    return size;
}

/* On CPUs, attention packs all keys again for each chunk, which takes time in a long context; the model's
 * counts, so that a prompt's chunks do not depend on other prompts. A rank has a block of a chunk's size, and
 * a prompt should have blocks on all ranks. */
static int64_t host_chunk(const Engine *engine) {
    int64_t chunk = config_context(&engine->model->config) / 16;
    if (chunk < AUTO_CHUNK || engine->cp) return AUTO_CHUNK;
    return chunk < LONG_CHUNK ? chunk : LONG_CHUNK;
}

int64_t batch_chunk(const Engine *engine, const GenerateSpec *spec, int64_t batch) {
    if (spec->chunk > 0) return spec->chunk;
    int64_t chunk = AUTO_ROWS / batch;
    if (device_is_host(engine->device)) return host_chunk(engine);
    return chunk < 1 ? 1 : chunk > AUTO_CHUNK ? AUTO_CHUNK : chunk;
}

Status batch_output(const GenerateSpec *spec, Generated **ret_generated) {
    CLEANUP(generated_freep) Generated *out = NULL;
    TRY(mem_new(1, sizeof *out, &out));
    TRY(mem_new((size_t)spec->count, sizeof *out->samples, &out->samples));
    out->count = spec->count;
    for (int64_t i = 0; i < spec->count; i++) {
        const Prompt *prompt = &spec->prompts[i];
        Sample *sample = &out->samples[i];
        int64_t tokens = batch_new_tokens(spec, prompt->count);
        TRY(mem_new((size_t)(prompt->count + tokens), sizeof *sample->ids, &sample->ids));
        memcpy(sample->ids, prompt->ids, (size_t)prompt->count * sizeof *sample->ids);
        sample->count = sample->prompt_count = prompt->count;
        if (spec->logprobs)
            TRY(mem_new((size_t)(tokens * (1 + spec->top_logprobs)), sizeof *sample->scores,
                        &sample->scores));
        out->prompt_tokens += prompt->count;
    }
    return MOVE(ret_generated, out);
}

/* ---- the window ---- */

int64_t window_start(const GenerateSpec *spec, const ModelConfig *config, int64_t count) {
    int64_t S = config_context(config), shift = spec->shift ? spec->shift : (S + 3) / 4;
    return count <= S ? 0 : (count - S + shift - 1) / shift * shift;
}

Feed batch_window(const Engine *engine, const GenerateSpec *spec, const int32_t *ids, int64_t count) {
    int64_t start = window_start(spec, &engine->model->config, count);
    return (Feed){.ids = ids + start, .count = count - start};
}

Status batch_step(Session *session, Engine *engine, const GenerateSpec *spec, Feed *feed, int64_t count) {
    const ModelConfig *config = &engine->model->config;
    CLEANUP(mem_freep) Feed *refill = NULL;
    for (int64_t b = 0; b < count; b++) {
        Feed *all = &feed[b];
        int64_t start = window_start(spec, config, all->count);
        if (start > window_start(spec, config, all->count - 1)) {
            if (!refill) TRY(mem_new((size_t)count, sizeof *refill, &refill));
            session_clear(session, b);
            refill[b] = (Feed){.ids = all->ids + start, .count = all->count - start - 1};
        }
        *all = (Feed){.ids = all->ids + all->count - 1, .count = 1};
    }
    if (refill) TRY(session_feed(session, refill, count));
    return session_feed(session, feed, count);
}

bool batch_is_end(const GenerateSpec *spec, int64_t token) {
    bool end = token == spec->end_token;
    for (int i = 0; i < spec->more_end_count; i++) end |= token == spec->more_ends[i];
    return end;
}

void generated_free(Generated *generated) {
    if (!generated) return;
    for (int64_t i = 0; generated->samples && i < generated->count; i++) {
        free(generated->samples[i].ids);
        free(generated->samples[i].scores);
    }
    free(generated->samples);
    free(generated->batches);
    free(generated);
}
