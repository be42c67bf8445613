/* The generation loop. Prompts are sorted by length and processed in groups that fit a session. Identical
 * prompts are prefilled once and their caches copied. Each decode step then chooses a token for each sequence
 * and feeds it. The last sequence moves into the slot of a finished one, so the batch shrinks as sequences
 * finish. Greedy generation on a GPU runs ahead: the session computes the next step while the tokens of this
 * one are appended. With a GenerateCache, the session outlives the call.
 */
#include <omp.h>
#include <string.h>

#include "base/clock.h"
#include "infer/batch.h"
#include "model/rope.h"

/* What a sampling thread needs. */
typedef struct Chooser {
    Sampler *sampler;
    LogitProcessor *processor;
    float *logits; /* (V) after the rules */
} Chooser;

typedef struct Run {
    Engine *engine;
    const GenerateSpec *spec;
    Session *session;
    Chooser *chooser; /* (choosers) one per sampling thread */
    int choosers;
    bool argmax, rules; /* argmax: the device finds the largest logit; rules: logits are changed first */
    int32_t *token;     /* (batch) tokens chosen */
    Status *failure;    /* (batch) errors while choosing; OK: no error */
    Generated *out;
    int64_t *order; /* (count) prompt indices, longest first */
    int64_t *slot;  /* (batch) prompt index of each session sequence; -1: finished */
    Feed *feed;     /* (batch) */
    int64_t batch;
} Run;

static bool same_prompt(const Prompt *a, const Prompt *b) {
    return a->count == b->count &&
           (a->ids == b->ids || !memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids));
}

static void chooser_done(Chooser *chooser) {
    sampler_free(chooser->sampler);
    logit_processor_free(chooser->processor);
    free(chooser->logits);
}

static Status chooser_init(Chooser *chooser, const GenerateSpec *spec, int64_t vocab) {
    TRY(sampler_new(&chooser->sampler, &spec->sampling, vocab));
    TRY(logit_processor_new(&chooser->processor, &spec->rules, vocab));
    return mem_new((size_t)vocab, sizeof *chooser->logits, &chooser->logits);
}

/* ---- the cache of earlier calls ---- */

void generate_cache_done(GenerateCache *cache) {
    session_free(cache->session);
    free(cache->ids);
    *cache = (GenerateCache){0};
}

/* A session with room for more turns than this one; a longer text gets a new one. */
static Status cache_session(const Run *run, int64_t context, Session **ret_session) {
    enum { LEAST = 1024 };
    GenerateCache *cache = run->spec->cache;
    int64_t most = config_context(&run->engine->model->config), room = LEAST;
    if (cache->session && session_context(cache->session) >= context) {
        *ret_session = cache->session;
        return OK;
    }
    generate_cache_done(cache);
    while (room < context) room *= 2;
    TRY(session_new(&cache->session, run->engine, 1, room < most ? room : most,
                    batch_chunk(run->engine, run->spec, 1)));
    if (run->argmax) session_enable_argmax(cache->session);
    *ret_session = cache->session;
    return OK;
}

/* Feeds what the cache does not have of the prompt, at least its last token. Rotary frequencies that depend
 * on the length would differ in the cache. */
static Status cache_feed(const Run *run, Feed feed) {
    GenerateCache *cache = run->spec->cache;
    bool usable = window_start(run->spec, &run->engine->model->config, run->spec->prompts->count) == 0 &&
                  !rope_varies(&run->engine->model->config);
    int64_t same = 0, most = usable ? feed.count - 1 : 0;
    while (same < most && same < cache->count && cache->ids[same] == feed.ids[same]) same++;
    cache->reused = same;
    cache->count = 0;
    session_truncate(run->session, 0, same);
    feed.ids += same;
    feed.count -= same;
    return session_feed(run->session, &feed, 1);
}

/* Notes what the session has, unless the window moved. */
static Status cache_keep(const Run *run) {
    GenerateCache *cache = run->spec->cache;
    const Sample *sample = run->out->samples;
    int64_t length = session_length(run->session, 0);
    if (window_start(run->spec, &run->engine->model->config, sample->count) > 0) return OK;
    TRY(mem_grow(&cache->ids, &cache->capacity, (size_t)length, sizeof *cache->ids));
    memcpy(cache->ids, sample->ids, (size_t)length * sizeof *cache->ids);
    cache->count = length;
    return OK;
}

static Status run_init(Run *run) {
    const GenerateSpec *spec = run->spec;
    int64_t vocab = run->engine->model->config.vocab;
    TRY(batch_order(spec, 1, &run->order));
    BatchSize size = batch_size(run->engine, spec, spec->prompts[run->order[0]].count);
    run->batch = size.batch < spec->count ? size.batch : spec->count;
    TRY(mem_new((size_t)run->batch, sizeof *run->slot, &run->slot));
    TRY(mem_new((size_t)run->batch, sizeof *run->feed, &run->feed));
    TRY(mem_new((size_t)run->batch, sizeof *run->token, &run->token));
    TRY(mem_new((size_t)run->batch, sizeof *run->failure, &run->failure));
    run->rules = logit_rules_active(&spec->rules);
    run->argmax = spec->sampling.temperature == 0 && !run->rules && !spec->logprobs;
    /* Use the same team size as the kernels: OpenMP terminates surplus threads when a smaller team runs. */
    run->choosers = run->argmax || run->batch == 1 ? 1 : run->engine->device->threads;
    TRY(mem_new((size_t)run->choosers, sizeof *run->chooser, &run->chooser));
    for (int i = 0; i < run->choosers; i++) TRY(chooser_init(&run->chooser[i], spec, vocab));
    if (spec->cache) return cache_session(run, size.context, &run->session);
    TRY(session_new(&run->session, run->engine, run->batch, size.context,
                    batch_chunk(run->engine, spec, run->batch)));
    if (run->argmax) session_enable_argmax(run->session);
    return OK;
}

static void run_done(Run *run) {
    if (!run->spec->cache) session_free(run->session);
    for (int i = 0; run->chooser && i < run->choosers; i++) chooser_done(&run->chooser[i]);
    for (int64_t b = 0; run->failure && b < run->batch; b++) status_free(run->failure[b]);
    free(run->chooser);
    free(run->token);
    free(run->failure);
    generated_free(run->out);
    free(run->order);
    free(run->slot);
    free(run->feed);
}

/* Feeds the prompts of `count` slots, identical neighbors once, and copies the results to all slots. */
static Status prefill(Run *run, int64_t count) {
    const Prompt *prompts = run->spec->prompts;
    int64_t unique = 0;
    for (int64_t b = 0; b < count; b++) {
        const Prompt *prompt = &prompts[run->slot[b]];
        if (b == 0 || !same_prompt(prompt, &prompts[run->slot[b - 1]]))
            run->feed[unique++] = batch_window(run->engine, run->spec, prompt->ids, prompt->count);
    }
    if (run->spec->cache) return cache_feed(run, run->feed[0]);
    session_reset(run->session);
    TRY(session_feed(run->session, run->feed, unique));
    /* Backwards: a source never comes after its copy, so no source is overwritten before it is used. */
    for (int64_t b = count, from = unique - 1; b-- > 0;) {
        TRY(session_copy(run->session, b, from));
        if (b > 0 && !same_prompt(&prompts[run->slot[b]], &prompts[run->slot[b - 1]])) from--;
    }
    return OK;
}

/* Chooses the next token of slot b. Greedy decoding uses the device's argmax; if that is -1, the sampler
 * reports what is wrong with the logits. */
static Status pick(Run *run, Chooser *chooser, int64_t b, int32_t *ret_token) {
    const GenerateSpec *spec = run->spec;
    int64_t at = run->slot[b], vocab = run->engine->model->config.vocab;
    const Sample *sample = &run->out->samples[at];
    if (run->argmax) {
        *ret_token = session_argmax(run->session, b);
        if (*ret_token >= 0) return OK;
        TRY(session_fetch_logits(run->session, b));
    }
    const float *logits = session_logits(run->session, b), *changed = logits;
    if (run->rules) {
        memcpy(chooser->logits, logits, (size_t)vocab * sizeof *logits);
        logit_processor_apply(chooser->processor, sample->ids, sample->count, chooser->logits);
        changed = chooser->logits;
    }
    TRY(sampler_pick(chooser->sampler, changed, spec->prompts[at].sequence, (uint64_t)sample->count,
                     ret_token));
    if (spec->logprobs)
        token_scores(logits, vocab, *ret_token, spec->top_logprobs,
                     sample->scores + (sample->count - sample->prompt_count) * (1 + spec->top_logprobs));
    return OK;
}

/* Choosing scans the whole vocabulary, and sequences are independent, so it runs in parallel. */
static void pick_tokens(Run *run, int64_t count) {
#pragma omp parallel for schedule(static) num_threads(run->choosers) if (run->choosers > 1 && count > 1)
    for (int64_t b = 0; b < count; b++)
        run->failure[b] = pick(run, &run->chooser[omp_get_thread_num()], b, &run->token[b]);
}

/* Appends the chosen token to the sequence in slot b. */
static Status append_token(Run *run, int64_t b, bool *ret_finished) {
    const GenerateSpec *spec = run->spec;
    int64_t at = run->slot[b];
    Sample *sample = &run->out->samples[at];
    int32_t token = run->token[b];
    Status status = run->failure[b];
    run->failure[b] = OK;
    if (status)
        return status_wrap(status, "prompt %lld, position %lld", (long long)at + 1, (long long)sample->count);
    sample->ids[sample->count++] = token;
    run->out->new_tokens++;
    bool stop = false;
    if (spec->sink) TRY(spec->sink(spec->context, at, token, &stop));
    sample->ended = stop ? ENDED_STOP : batch_is_end(spec, token) ? ENDED_END : ENDED_LENGTH;
    int64_t most = sample->prompt_count + batch_new_tokens(spec, sample->prompt_count);
    *ret_finished = sample->ended != ENDED_LENGTH || sample->count == most;
    return OK;
}

/* Chooses a token for each of *count slots, then fills the slots of finished sequences and lowers *count. */
static Status choose_tokens(Run *run, int64_t *count) {
    pick_tokens(run, *count);
    for (int64_t b = 0; b < *count; b++) {
        bool finished = false;
        TRY(append_token(run, b, &finished));
        if (finished) run->slot[b] = -1;
    }
    for (int64_t b = 0; b < *count;) {
        if (run->slot[b] >= 0) {
            b++;
            continue;
        }
        run->slot[b] = run->slot[--*count];
        if (b < *count && run->slot[b] >= 0) TRY(session_copy(run->session, b, *count));
    }
    return OK;
}

/* Feeds the last token of each of `count` slots. */
static Status feed_tokens(Run *run, int64_t count) {
    const GenerateSpec *spec = run->spec;
    bool last = true;
    for (int64_t b = 0; b < count; b++) {
        const Sample *sample = &run->out->samples[run->slot[b]];
        run->feed[b] = (Feed){.ids = sample->ids, .count = sample->count};
        last &= sample->count + 1 == sample->prompt_count + batch_new_tokens(spec, sample->prompt_count);
    }
    session_run_ahead(run->session, run->engine->run_ahead && !last);
    return batch_step(run->session, run->engine, spec, run->feed, count);
}

static Status run_group(Run *run, int64_t first) {
    int64_t left = run->spec->count - first, count = left < run->batch ? left : run->batch;
    for (int64_t b = 0; b < count; b++) run->slot[b] = run->order[first + b];
    double start = clock_wall();
    TRY(prefill(run, count));
    TRY(choose_tokens(run, &count));
    double prefilled = clock_wall();
    while (count > 0) {
        TRY(feed_tokens(run, count));
        TRY(choose_tokens(run, &count));
    }
    GenerateTimes times = {prefilled - start, clock_wall() - prefilled};
    run->out->batches[run->out->batch_count++] = times;
    run->out->prefill_s += times.prefill_s;
    run->out->decode_s += times.decode_s;
    return OK;
}

static Status generate_tokens(Engine *engine, const GenerateSpec *spec, Generated **ret_generated) {
    CLEANUP(run_done) Run run = {.engine = engine, .spec = spec};
    TRY(run_init(&run));
    TRY(batch_output(spec, &run.out));
    TRY(mem_new((size_t)spec->count, sizeof *run.out->batches, &run.out->batches));
    for (int64_t first = 0; first < spec->count; first += run.batch) TRY(run_group(&run, first));
    if (spec->cache) TRY(cache_keep(&run));
    *ret_generated = run.out;
    run.out = NULL;
    return OK;
}

Status generate(Engine *engine, const GenerateSpec *spec, Generated **ret_generated) {
    TRY(batch_check(spec, &engine->model->config));
    if (spec->beam.beams > 1) return generate_beams(engine, spec, ret_generated);
    return generate_tokens(engine, spec, ret_generated);
}
