/* The generation loop of beam search. A group of prompts shares a session; place g has the N consecutive
 * session sequences from g * N. A prompt is prefilled once. After each step, beams that share a parent need
 * copies of its cache: the first keeps the parent's sequence, the others take sequences that no beam
 * continues. So no cache is copied that is not duplicated, and none is overwritten before it is used. The
 * last prompt moves into the place of a finished one.
 */
#include <omp.h>
#include <string.h>

#include "base/clock.h"
#include "infer/batch.h"

/* What an expanding thread needs. */
typedef struct Expander {
    LogitProcessor *processor;
    float *logits; /* (V) */
} Expander;

/* A prompt of the current group. */
typedef struct Place {
    int64_t prompt; /* index of its first sample */
    BeamSearch *search;
    int64_t *sequence; /* (N) each beam's sequence, relative to the place's first */
} Place;

typedef struct BeamRun {
    Engine *engine;
    const GenerateSpec *spec;
    Session *session;
    Expander *expander; /* (expanders) one per thread */
    int expanders;
    Generated *out;
    int64_t *ends; /* (end_count) */
    int end_count;
    int64_t *order; /* prompt indices, longest first */
    int64_t N, returned, prompts;
    Place *place;    /* (places) */
    int64_t places;  /* prompts per group */
    Feed *feed;      /* (places * N) */
    Status *failure; /* (places * N) errors while expanding; OK: none */
    bool *kept;      /* (N) scratch of reorder */
} BeamRun;

static Status list_ends(BeamRun *run) {
    const GenerateSpec *spec = run->spec;
    TRY(mem_new((size_t)spec->more_end_count + 1, sizeof *run->ends, &run->ends));
    if (spec->end_token >= 0) run->ends[run->end_count++] = spec->end_token;
    for (int i = 0; i < spec->more_end_count; i++) run->ends[run->end_count++] = spec->more_ends[i];
    return OK;
}

static Status expanders_init(BeamRun *run) {
    int64_t vocab = run->engine->model->config.vocab;
    /* Use the same team size as the kernels: OpenMP terminates surplus threads when a smaller team runs. */
    run->expanders = run->engine->device->threads;
    TRY(mem_new((size_t)run->expanders, sizeof *run->expander, &run->expander));
    for (int i = 0; i < run->expanders; i++) {
        TRY(logit_processor_new(&run->expander[i].processor, &run->spec->rules, vocab));
        TRY(mem_new((size_t)vocab, sizeof *run->expander[i].logits, &run->expander[i].logits));
    }
    return OK;
}

static Status run_init(BeamRun *run) {
    const GenerateSpec *spec = run->spec;
    run->N = spec->beam.beams;
    run->returned = spec->beam.returned > 1 ? spec->beam.returned : 1;
    run->prompts = spec->count / run->returned;
    TRY(batch_order(spec, run->returned, &run->order));
    BatchSize size = batch_size(run->engine, spec, spec->prompts[run->order[0]].count);
    int64_t fit = size.batch / run->N;
    run->places = fit < 1 ? 1 : fit < run->prompts ? fit : run->prompts;
    size_t sequences = (size_t)(run->places * run->N);
    TRY(list_ends(run));
    TRY(mem_new((size_t)run->places, sizeof *run->place, &run->place));
    for (int64_t g = 0; g < run->places; g++)
        TRY(mem_new((size_t)run->N, sizeof *run->place[g].sequence, &run->place[g].sequence));
    TRY(mem_new(sequences, sizeof *run->feed, &run->feed));
    TRY(mem_new(sequences, sizeof *run->failure, &run->failure));
    TRY(mem_new((size_t)run->N, sizeof *run->kept, &run->kept));
    TRY(expanders_init(run));
    return session_new(&run->session, run->engine, (int64_t)sequences, size.context,
                       batch_chunk(run->engine, spec, (int64_t)sequences));
}

static void run_done(BeamRun *run) {
    session_free(run->session);
    for (int i = 0; run->expander && i < run->expanders; i++) {
        logit_processor_free(run->expander[i].processor);
        free(run->expander[i].logits);
    }
    for (int64_t g = 0; run->place && g < run->places; g++) {
        beam_search_free(run->place[g].search);
        free(run->place[g].sequence);
    }
    for (int64_t i = 0; run->failure && i < run->places * run->N; i++) status_free(run->failure[i]);
    free(run->expander);
    free(run->place);
    free(run->feed);
    free(run->failure);
    free(run->kept);
    free(run->ends);
    free(run->order);
    generated_free(run->out);
}

static Status place_init(BeamRun *run, Place *place, int64_t prompt) {
    const GenerateSpec *spec = run->spec;
    BeamOptions options = {
        .beams = run->N,
        .length_penalty = spec->beam.length_penalty,
        .early_stopping = spec->beam.early_stopping,
        .max_tokens = batch_new_tokens(spec, spec->prompts[prompt].count),
        .vocab = run->engine->model->config.vocab,
        .ends = run->ends,
        .end_count = run->end_count,
    };
    place->prompt = prompt;
    beam_search_free(place->search);
    place->search = NULL;
    TRY(beam_search_new(&place->search, &options, spec->prompts[prompt].ids, spec->prompts[prompt].count));
    /* Before the first token, all beams read the sequence that was prefilled. */
    memset(place->sequence, 0, (size_t)run->N * sizeof *place->sequence);
    return OK;
}

/* Feeds each prompt to one sequence, then moves that to the first sequence of its place. */
static Status prefill(BeamRun *run, int64_t count) {
    for (int64_t g = 0; g < count; g++) {
        const Prompt *prompt = &run->spec->prompts[run->place[g].prompt];
        run->feed[g] = batch_window(run->engine, run->spec, prompt->ids, prompt->count);
    }
    session_reset(run->session);
    TRY(session_feed(run->session, run->feed, count));
    /* Backwards, so that no source is overwritten before it is used. */
    for (int64_t g = count; g-- > 0;) TRY(session_copy(run->session, g * run->N, g));
    return OK;
}

static Status expand(BeamRun *run, Expander *expander, int64_t at) {
    const Place *place = &run->place[at / run->N];
    int64_t beam = at % run->N;
    const float *logits = session_logits(run->session, at - beam + place->sequence[beam]);
    memcpy(expander->logits, logits, (size_t)run->engine->model->config.vocab * sizeof *logits);
    return beam_expand(place->search, beam, expander->processor, expander->logits);
}

/* Expands all beams of `count` places in parallel: each scans the whole vocabulary. */
static Status expand_all(BeamRun *run, int64_t count) {
    int64_t beams = count * run->N;
#pragma omp parallel for schedule(static) num_threads(run->expanders) if (run->expanders > 1)
    for (int64_t i = 0; i < beams; i++)
        run->failure[i] = expand(run, &run->expander[omp_get_thread_num()], i);
    for (int64_t i = 0; i < beams; i++) {
        Status status = run->failure[i];
        run->failure[i] = OK;
        if (status) return status_wrap(status, "prompt %lld", (long long)(run->place[i / run->N].prompt + 1));
    }
    return OK;
}

/* Gives each new beam of place g a sequence with its parent's cache. */
static Status reorder(BeamRun *run, int64_t g) {
    Place *place = &run->place[g];
    int64_t N = run->N, first = g * N, next = 0;
    CLEANUP(mem_freep) int64_t *old = NULL;
    TRY(mem_new((size_t)N, sizeof *old, &old));
    memcpy(old, place->sequence, (size_t)N * sizeof *old);
    memset(run->kept, 0, (size_t)N * sizeof *run->kept);
    for (int64_t b = 0; b < N; b++) run->kept[old[beam_parent(place->search, b)]] = true;
    for (int64_t b = 0; b < N; b++) {
        int64_t from = old[beam_parent(place->search, b)];
        bool taken = false;
        for (int64_t i = 0; i < b && !taken; i++) taken = place->sequence[i] == from;
        place->sequence[b] = from;
        if (!taken) continue;
        while (run->kept[next]) next++;
        place->sequence[b] = next++;
        TRY(session_copy(run->session, first + place->sequence[b], first + from));
    }
    return OK;
}

/* Copies the best hypotheses of a finished prompt to its samples and passes them to the sink. */
static Status emit(BeamRun *run, const Place *place) {
    const GenerateSpec *spec = run->spec;
    for (int64_t i = 0; i < run->returned; i++) {
        int64_t at = place->prompt + i;
        const Hypothesis *best = beam_result(place->search, i);
        Sample *sample = &run->out->samples[at];
        memcpy(sample->ids, best->ids, (size_t)best->count * sizeof *sample->ids);
        sample->count = best->count;
        sample->ended = best->ended;
        sample->score = best->score;
        run->out->new_tokens += best->count - sample->prompt_count;
        bool stop = false;
        for (int64_t t = sample->prompt_count; spec->sink && t < best->count && !stop; t++)
            TRY(spec->sink(spec->context, at, best->ids[t], &stop));
        if (stop) sample->ended = ENDED_STOP;
    }
    return OK;
}

/* Moves the prompt in place `from` to place `to`. */
static Status move_place(BeamRun *run, int64_t to, int64_t from) {
    for (int64_t b = 0; b < run->N; b++) TRY(session_copy(run->session, to * run->N + b, from * run->N + b));
    Place swap = run->place[to];
    run->place[to] = run->place[from];
    run->place[from] = swap;
    return OK;
}

/* Advances all searches by a token, then fills the places of finished prompts and lowers *count. */
static Status advance(BeamRun *run, int64_t *count) {
    const GenerateSpec *spec = run->spec;
    TRY(expand_all(run, *count));
    for (int64_t g = 0; g < *count; g++) {
        Place *place = &run->place[g];
        TRY(status_wrap(beam_advance(place->search, spec->beam.check, spec->context), "prompt %lld",
                        (long long)place->prompt + 1));
        TRY(beam_done(place->search) ? emit(run, place) : reorder(run, g));
    }
    for (int64_t g = 0; g < *count;) {
        if (!beam_done(run->place[g].search))
            g++;
        else if (!beam_done(run->place[--*count].search))
            TRY(move_place(run, g, *count));
    }
    return OK;
}

static Status run_group(BeamRun *run, int64_t first) {
    int64_t left = run->prompts - first, count = left < run->places ? left : run->places;
    for (int64_t g = 0; g < count; g++) TRY(place_init(run, &run->place[g], run->order[first + g]));
    double start = clock_wall();
    TRY(prefill(run, count));
    TRY(advance(run, &count));
    double prefilled = clock_wall();
    while (count > 0) {
        for (int64_t i = 0; i < count * run->N; i++) {
            const Place *place = &run->place[i / run->N];
            int64_t beam = i % run->N;
            Feed *feed = &run->feed[i - beam + place->sequence[beam]];
            feed->ids = beam_ids(place->search, beam, &feed->count);
        }
        TRY(batch_step(run->session, run->engine, run->spec, run->feed, count * run->N));
        TRY(advance(run, &count));
    }
    run->out->prefill_s += prefilled - start;
    run->out->decode_s += clock_wall() - prefilled;
    return OK;
}

Status generate_beams(Engine *engine, const GenerateSpec *spec, Generated **ret_generated) {
    CLEANUP(run_done) BeamRun run = {.engine = engine, .spec = spec};
    TRY(run_init(&run));
    TRY(batch_output(spec, &run.out));
    for (int64_t first = 0; first < run.prompts; first += run.places) TRY(run_group(&run, first));
    *ret_generated = run.out;
    run.out = NULL;
    return OK;
}
