/* The generation loop. Prompts are sorted by length and processed in groups that fit a session. Identical
 * prompts are prefilled once and their caches copied. Each decode step then chooses a token for each sequence
 * and feeds it. The last sequence moves into the slot of a finished one, so the batch shrinks as sequences
 * finish.
 */
#include "infer/generate.h"

#include <omp.h>
#include <string.h>
#include <time.h>

#include "infer/session.h"

enum { AUTO_BATCH = 64, AUTO_ROWS = 512, AUTO_CHUNK = 256, AUTO_CACHE = 1 << 30 };

typedef struct Run {
    Engine *engine;
    const GenerateSpec *spec;
    Session *session;
    Sampler **sampler; /* (samplers) one per sampling thread */
    int samplers;
    int32_t *token;  /* (batch) tokens chosen */
    Status *failure; /* (batch) errors while choosing; OK: none */
    Generated *out;
    int64_t *order; /* (count) prompt indices, longest first */
    int64_t *slot;  /* (batch) prompt index of each session sequence; -1: finished */
    Feed *feed;     /* (batch) */
    int64_t batch;
} Run;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Status check_prompt(const GenerateSpec *spec, int64_t at, const ModelConfig *config) {
    const Prompt *prompt = &spec->prompts[at];
    if (prompt->count < 1) return USAGE("prompt %lld is empty", (long long)at + 1);
    if (prompt->count > config->positions - spec->max_tokens)
        return USAGE(
            "prompt %lld: %lld prompt tokens plus %lld new tokens exceed the model's context length of %lld",
            (long long)at + 1, (long long)prompt->count, (long long)spec->max_tokens,
            (long long)config->positions);
    for (int64_t i = 0; i < prompt->count; i++)
        if (prompt->ids[i] < 0 || prompt->ids[i] >= config->vocab)
            return USAGE("prompt %lld: token %d at position %lld is outside the vocabulary of %lld tokens",
                         (long long)at + 1, (int)prompt->ids[i], (long long)i + 1, (long long)config->vocab);
    return OK;
}

static Status check_spec(const GenerateSpec *spec, const ModelConfig *config) {
    if (spec->count < 1) return USAGE("no prompt");
    if (spec->max_tokens < 1) return USAGE("the number of new tokens must be at least 1");
    for (int64_t i = 0; i < spec->count; i++) TRY(check_prompt(spec, i, config));
    return OK;
}

static bool same_prompt(const Prompt *a, const Prompt *b) {
    return a->count == b->count &&
           (a->ids == b->ids || !memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids));
}

/* Longest first, so that the sequences of a chunk are always the first ones of the session; ties keep their
 * order. */
static int by_length(const void *left, const void *right, void *context) {
    const Prompt *prompts = context;
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    if (prompts[a].count != prompts[b].count) return prompts[a].count > prompts[b].count ? -1 : 1;
    return a < b ? -1 : a > b;
}

static Status run_init(Run *run) {
    const GenerateSpec *spec = run->spec;
    const ModelConfig *config = &run->engine->model->config;
    TRY(mem_new((size_t)spec->count, sizeof *run->order, &run->order));
    for (int64_t i = 0; i < spec->count; i++) run->order[i] = i;
    qsort_r(run->order, (size_t)spec->count, sizeof *run->order, by_length, (void *)spec->prompts);
    /* The last token is chosen but never fed. */
    int64_t context = spec->prompts[run->order[0]].count + spec->max_tokens - 1;
    int64_t batch = spec->batch, chunk = spec->chunk;
    if (batch == 0) {
        batch = (int64_t)((size_t)AUTO_CACHE / session_cache_bytes(config, context, run->engine->cache));
        batch = batch < 1 ? 1 : batch > AUTO_BATCH ? AUTO_BATCH : batch;
    }
    run->batch = batch < spec->count ? batch : spec->count;
    if (chunk == 0) {
        chunk = device_is_host(run->engine->device) ? AUTO_CHUNK : AUTO_ROWS / run->batch;
        chunk = chunk < 1 ? 1 : chunk > AUTO_CHUNK ? AUTO_CHUNK : chunk;
    }
    TRY(mem_new((size_t)run->batch, sizeof *run->slot, &run->slot));
    TRY(mem_new((size_t)run->batch, sizeof *run->feed, &run->feed));
    TRY(mem_new((size_t)run->batch, sizeof *run->token, &run->token));
    TRY(mem_new((size_t)run->batch, sizeof *run->failure, &run->failure));
    /* Use the same team size as the kernels: OpenMP terminates surplus threads when a smaller team runs. */
    run->samplers = spec->sampling.temperature == 0 || run->batch == 1 ? 1 : run->engine->device->threads;
    TRY(mem_new((size_t)run->samplers, sizeof *run->sampler, &run->sampler));
    for (int i = 0; i < run->samplers; i++)
        TRY(sampler_new(&run->sampler[i], &spec->sampling, config->vocab));
    TRY(session_new(&run->session, run->engine, run->batch, context, chunk));
    if (spec->sampling.temperature == 0) session_enable_argmax(run->session);
    return OK;
}

static void run_done(Run *run) {
    session_free(run->session);
    for (int i = 0; run->sampler && i < run->samplers; i++) sampler_free(run->sampler[i]);
    for (int64_t b = 0; run->failure && b < run->batch; b++) status_free(run->failure[b]);
    free(run->sampler);
    free(run->token);
    free(run->failure);
    generated_free(run->out);
    free(run->order);
    free(run->slot);
    free(run->feed);
}

static Status samples_init(Run *run) {
    const GenerateSpec *spec = run->spec;
    TRY(mem_new(1, sizeof *run->out, &run->out));
    TRY(mem_new((size_t)spec->count, sizeof *run->out->samples, &run->out->samples));
    run->out->count = spec->count;
    for (int64_t i = 0; i < spec->count; i++) {
        const Prompt *prompt = &spec->prompts[i];
        Sample *sample = &run->out->samples[i];
        TRY(mem_new((size_t)(prompt->count + spec->max_tokens), sizeof *sample->ids, &sample->ids));
        memcpy(sample->ids, prompt->ids, (size_t)prompt->count * sizeof *sample->ids);
        sample->count = sample->prompt_count = prompt->count;
        run->out->prompt_tokens += prompt->count;
    }
    return OK;
}

/* Feeds the prompts of `count` slots, identical neighbors once, and copies the results to all slots. */
static Status prefill(Run *run, int64_t count) {
    const Prompt *prompts = run->spec->prompts;
    int64_t unique = 0;
    for (int64_t b = 0; b < count; b++) {
        const Prompt *prompt = &prompts[run->slot[b]];
        if (b == 0 || !same_prompt(prompt, &prompts[run->slot[b - 1]]))
            run->feed[unique++] = (Feed){.ids = prompt->ids, .count = prompt->count};
    }
    session_reset(run->session);
    TRY(session_feed(run->session, run->feed, unique));
    /* Backwards: a source never comes after its copy, so no source is overwritten before it is used. */
    for (int64_t b = count, from = unique - 1; b-- > 0;) {
        TRY(session_copy(run->session, b, from));
        if (b > 0 && !same_prompt(&prompts[run->slot[b]], &prompts[run->slot[b - 1]])) from--;
    }
    return OK;
}

static bool is_end(const GenerateSpec *spec, int64_t token) {
    bool end = token == spec->end_token;
    for (int i = 0; i < spec->more_end_count; i++) end |= token == spec->more_ends[i];
    return end;
}

/* Chooses the next token of slot b. Greedy decoding uses the device's argmax; if there is none, the sampler
 * reports what is wrong with the logits. */
static Status pick(Run *run, Sampler *sampler, int64_t b, int32_t *ret_token) {
    int64_t at = run->slot[b];
    if (run->spec->sampling.temperature == 0) {
        *ret_token = session_argmax(run->session, b);
        if (*ret_token >= 0) return OK;
        TRY(session_fetch_logits(run->session, b));
    }
    return sampler_pick(sampler, session_logits(run->session, b), run->spec->prompts[at].sequence,
                        (uint64_t)run->out->samples[at].count, ret_token);
}

/* Sampling scans the whole vocabulary, and sequences are independent, so it runs in parallel. */
static void pick_tokens(Run *run, int64_t count) {
#pragma omp parallel for schedule(static) num_threads(run->samplers) if (run->samplers > 1 && count > 1)
    for (int64_t b = 0; b < count; b++)
        run->failure[b] = pick(run, run->sampler[omp_get_thread_num()], b, &run->token[b]);
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
    sample->ended = stop ? ENDED_STOP : is_end(spec, token) ? ENDED_END : ENDED_LENGTH;
    *ret_finished = sample->ended != ENDED_LENGTH || sample->count == sample->prompt_count + spec->max_tokens;
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

static Status run_group(Run *run, int64_t first) {
    int64_t left = run->spec->count - first, count = left < run->batch ? left : run->batch;
    for (int64_t b = 0; b < count; b++) run->slot[b] = run->order[first + b];
    double start = now();
    TRY(prefill(run, count));
    TRY(choose_tokens(run, &count));
    double prefilled = now();
    while (count > 0) {
        for (int64_t b = 0; b < count; b++) {
            const Sample *sample = &run->out->samples[run->slot[b]];
            run->feed[b] = (Feed){.ids = sample->ids + sample->count - 1, .count = 1};
        }
        TRY(session_feed(run->session, run->feed, count));
        TRY(choose_tokens(run, &count));
    }
    run->out->prefill_s += prefilled - start;
    run->out->decode_s += now() - prefilled;
    return OK;
}

Status generate(Engine *engine, const GenerateSpec *spec, Generated **ret_generated) {
    TRY(check_spec(spec, &engine->model->config));
    CLEANUP(run_done) Run run = {.engine = engine, .spec = spec};
    TRY(run_init(&run));
    TRY(samples_init(&run));
    for (int64_t first = 0; first < spec->count; first += run.batch) TRY(run_group(&run, first));
    *ret_generated = run.out;
    run.out = NULL;
    return OK;
}

void generated_free(Generated *generated) {
    if (!generated) return;
    for (int64_t i = 0; generated->samples && i < generated->count; i++) free(generated->samples[i].ids);
    free(generated->samples);
    free(generated);
}
