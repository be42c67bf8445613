/* Generation produces the tokens of transformers, however prompts are batched and chunked. */
#include <math.h>

#include "golden.h"

#include "infer/session.h"
#include "model/rope.h"

static const char *const backends[] = {"ref", "cpu"};

/* Each sample must be its prompt followed by the beginning of the golden continuation. */
static void assert_golden(const Golden *golden, const Generated *generated, int first) {
    for (int64_t i = 0; i < generated->count; i++) {
        const Sample *sample = &generated->samples[i];
        const Prompt *prompt = &golden->prompt[first + i];
        assert_int_equal(sample->prompt_count, prompt->count);
        assert_memory_equal(sample->ids, prompt->ids, (size_t)prompt->count * sizeof *prompt->ids);
        assert_int_equal(sample->count, prompt->count + golden->continued_count);
        for (int64_t t = 0; t < golden->continued_count; t++)
            assert_int_equal(sample->ids[prompt->count + t], golden->continued[first + i][t]);
        assert_int_equal(sample->ended, ENDED_LENGTH);
    }
}

static void greedy_alone(void **state) {
    for (int c = 0; c < 2 * GOLDEN_CASES; c++) {
        Golden golden;
        golden_read(golden_cases[c / 2], &golden);
        Engine *engine = golden_engine(golden_cases[c / 2], backends[c % 2]);
        for (int i = 0; i < golden.count; i++) {
            GenerateSpec spec = golden_spec(&golden);
            spec.prompts += i, spec.count = 1;
            Generated *generated = NULL;
            assert_ok(generate(engine, &spec, &generated));
            assert_golden(&golden, generated, i);
            generated_free(generated);
        }
        engine_free(engine);
    }
}

static void greedy_batched(void **state) {
    static const int64_t batches[] = {0, 2, 3}, chunks[] = {0, 1, 3, 5};
    for (int c = 0; c < 2 * GOLDEN_CASES; c++) {
        Golden golden;
        golden_read(golden_cases[c / 2], &golden);
        Engine *engine = golden_engine(golden_cases[c / 2], backends[c % 2]);
        for (int i = 0; i < 12; i++) {
            if (SANITIZED && (i + i / 3 + c) % 3) continue; /* each case with other batches and chunks */
            GenerateSpec spec = golden_spec(&golden);
            spec.batch = batches[i % 3], spec.chunk = chunks[i / 3];
            Generated *generated = NULL;
            assert_ok(generate(engine, &spec, &generated));
            assert_golden(&golden, generated, 0);
            assert_int_equal(generated->new_tokens, golden.count * golden.continued_count);
            generated_free(generated);
        }
        engine_free(engine);
    }
}

/* A prompt that occurs twice is prefilled once; the samples must still belong to the right prompts. */
/* Turns of a conversation: each prompt is what came before and more, and only that is processed. A prompt
 * that begins differently is processed from there on. */
static void cache_between_calls(void **state) {
    for (int c = 0; c < 2 * GOLDEN_CASES; c++) {
        Golden golden;
        golden_read(golden_cases[c / 2], &golden);
        Engine *engine = golden_engine(golden_cases[c / 2], backends[c % 2]);
        GenerateCache cache = {0};
        int64_t least = golden.continued_count / 2;
        bool varies = rope_varies(&engine->model->config);
        for (int i = 0; i < golden.count; i++) {
            int32_t ids[2 * GOLDEN_TOKENS];
            Prompt prompt = golden.prompt[i];
            memcpy(ids, prompt.ids, (size_t)prompt.count * sizeof *ids);
            memcpy(ids + prompt.count, golden.continued[i], (size_t)least * sizeof *ids);
            prompt.ids = ids;
            for (int turn = 0; turn < 2; turn++) {
                Generated *generated = NULL, *alone = NULL;
                int64_t done = turn ? least : 0, all = golden.prompt[i].count + golden.continued_count;
                GenerateSpec spec = golden_spec(&golden);
                spec.prompts = &prompt, spec.count = 1, spec.cache = &cache;
                prompt.count = golden.prompt[i].count + done;
                spec.max_tokens = turn ? golden.continued_count - least : least;
                assert_ok(generate(engine, &spec, &generated));
                spec.cache = NULL;
                assert_ok(generate(engine, &spec, &alone));
                assert_memory_equal(generated->samples->ids, alone->samples->ids,
                                    (size_t)(prompt.count + spec.max_tokens) * sizeof *ids);
                bool window = window_start(&spec, &engine->model->config, all) > 0;
                if (turn && !varies && !window) assert_int_equal(cache.reused, prompt.count - 1);
                if (varies) assert_int_equal(cache.reused, 0);
                generated_free(generated);
                generated_free(alone);
            }
        }
        generate_cache_done(&cache);
        engine_free(engine);
    }
}

static void equal_prompts(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    static const int which[] = {2, 0, 2, 1, 1, 3, 0, 0};
    Prompt prompts[8];
    int32_t copies[8][GOLDEN_TOKENS];
    for (int i = 0; i < 8; i++) {
        prompts[i] = golden.prompt[which[i]];
        memcpy(copies[i], golden.ids[which[i]], sizeof copies[i]);
        prompts[i].ids = copies[i];
    }
    GenerateSpec spec = golden_spec(&golden);
    spec.prompts = prompts, spec.count = 8;
    for (spec.batch = 1; spec.batch <= 8; spec.batch++) {
        Generated *generated = NULL;
        assert_ok(generate(engine, &spec, &generated));
        for (int i = 0; i < 8; i++)
            assert_memory_equal(generated->samples[i].ids + prompts[i].count, golden.continued[which[i]],
                                (size_t)golden.continued_count * sizeof(int32_t));
        generated_free(generated);
    }
    engine_free(engine);
}

static int64_t first_index(const int32_t *tokens, int64_t count, int32_t token) {
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] == token) return i;
    return -1;
}

/* Whatever the end token is, each sequence stops after its first occurrence and the others are not
 * affected. */
static void stops_at_the_end_token(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    for (int i = 0; i < golden.count * 6; i++) {
        GenerateSpec spec = golden_spec(&golden);
        spec.end_token = golden.continued[i / 6][i % 6 * 4];
        Generated *generated = NULL;
        assert_ok(generate(engine, &spec, &generated));
        for (int p = 0; p < golden.count; p++) {
            const Sample *sample = &generated->samples[p];
            int64_t first = first_index(golden.continued[p], golden.continued_count, (int32_t)spec.end_token);
            int64_t expected = first < 0 ? golden.continued_count : first + 1;
            assert_int_equal(sample->count - sample->prompt_count, expected);
            assert_int_equal(sample->ended, first >= 0 ? ENDED_END : ENDED_LENGTH);
            assert_memory_equal(sample->ids + sample->prompt_count, golden.continued[p],
                                (size_t)expected * sizeof(int32_t));
        }
        generated_free(generated);
    }
    engine_free(engine);
}

/* With several end tokens, the first occurrence of any of them ends a sequence. */
static void stops_at_any_end_token(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    GenerateSpec spec = golden_spec(&golden);
    const int32_t ends[3] = {golden.continued[0][9], golden.continued[1][2], golden.continued[0][5]};
    const int64_t more[2] = {ends[1], ends[2]};
    spec.end_token = ends[0];
    spec.more_ends = more;
    spec.more_end_count = 2;
    Generated *generated = NULL;
    assert_ok(generate(engine, &spec, &generated));
    for (int p = 0; p < golden.count; p++) {
        const Sample *sample = &generated->samples[p];
        int64_t expected = golden.continued_count;
        bool ended = false;
        for (int i = 0; i < 3; i++) {
            int64_t first = first_index(golden.continued[p], expected, ends[i]);
            if (first >= 0) expected = first + 1, ended = true;
        }
        assert_int_equal(sample->count - sample->prompt_count, expected);
        assert_int_equal(sample->ended, ended ? ENDED_END : ENDED_LENGTH);
    }
    assert_int_equal(generated->samples[0].ended, ENDED_END);
    assert_int_equal(generated->samples[1].ended, ENDED_END);
    generated_free(generated);
    engine_free(engine);
}

typedef struct Seen {
    int32_t ids[GOLDEN_PROMPTS][GOLDEN_TOKENS];
    int64_t count[GOLDEN_PROMPTS];
    int64_t limit; /* fails at this many tokens; 0: never */
    int64_t stop;  /* prompt p stops after stop + p tokens; 0: never */
} Seen;

static Status see(void *context, int64_t prompt, int32_t token, bool *ret_stop) {
    Seen *seen = context;
    seen->ids[prompt][seen->count[prompt]++] = token;
    if (seen->limit && seen->count[prompt] == seen->limit) return FAILED("the sink is full");
    *ret_stop = seen->stop && seen->count[prompt] == seen->stop + prompt;
    return OK;
}

static void streams_tokens(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    Seen seen = {0};
    GenerateSpec spec = golden_spec(&golden);
    spec.sink = see, spec.context = &seen;
    Generated *generated = NULL;
    assert_ok(generate(engine, &spec, &generated));
    for (int p = 0; p < golden.count; p++) {
        assert_int_equal(seen.count[p], golden.continued_count);
        assert_memory_equal(seen.ids[p], golden.continued[p],
                            (size_t)golden.continued_count * sizeof(int32_t));
    }
    generated_free(generated);
    generated = NULL;
    seen = (Seen){.limit = 3};
    assert_fails(generate(engine, &spec, &generated), 1, "the sink is full");
    assert_null(generated);
    engine_free(engine);
}

/* The sink may stop each sequence at any token, and the others are not affected. */
static void stops_on_request(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    GenerateSpec spec = golden_spec(&golden);
    for (spec.batch = 1; spec.batch <= golden.count; spec.batch++) {
        Seen seen = {.stop = 2};
        spec.sink = see, spec.context = &seen;
        Generated *generated = NULL;
        assert_ok(generate(engine, &spec, &generated));
        for (int p = 0; p < golden.count; p++) {
            const Sample *sample = &generated->samples[p];
            assert_int_equal(sample->count - sample->prompt_count, 2 + p);
            assert_int_equal(sample->ended, ENDED_STOP);
            assert_memory_equal(sample->ids + sample->prompt_count, golden.continued[p],
                                (size_t)(2 + p) * sizeof(int32_t));
        }
        generated_free(generated);
    }
    engine_free(engine);
}

static Generated *sampled(Engine *engine, const Golden *golden, Sampling sampling, int64_t batch) {
    GenerateSpec spec = golden_spec(golden);
    spec.sampling = sampling;
    spec.batch = batch;
    Generated *generated = NULL;
    assert_ok(generate(engine, &spec, &generated));
    return generated;
}

static bool same_samples(const Generated *a, const Generated *b) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->samples[i].count != b->samples[i].count ||
            memcmp(a->samples[i].ids, b->samples[i].ids, (size_t)a->samples[i].count * sizeof(int32_t)))
            return false;
    return true;
}

static void samples_depend_on_the_seed(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    Sampling sampling = {.temperature = 1.5, .top_k = 100, .top_p = 0.95, .seed = 7};
    Generated *all = sampled(engine, &golden, sampling, 0);
    for (int64_t batch = 1; batch <= golden.count; batch++) {
        Generated *again = sampled(engine, &golden, sampling, batch);
        assert_true(same_samples(all, again));
        generated_free(again);
    }
    sampling.seed = 8;
    Generated *other = sampled(engine, &golden, sampling, 0);
    assert_false(same_samples(all, other));
    generated_free(other);
    generated_free(all);
    engine_free(engine);
}

/* ---- past the context ---- */

enum { LONG = 200, POSITIONS = 64 };

/* The logits after ids (count), computed from nothing but the window that the rule names. */
static const float *recompute(Session *session, const int32_t *ids, int64_t count, int64_t shift) {
    int64_t start = 0;
    while (count - start > POSITIONS) start += shift;
    session_reset(session);
    assert_ok(session_feed(session, &(Feed){ids + start, count - start}, 1));
    return session_logits(session, 0);
}

static void continues_past_the_context(void **state) {
    static const int64_t shifts[] = {16, 1, 5, POSITIONS};
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    Session *session = NULL;
    const int stride = SANITIZED ? 8 : 1;
    assert_ok(session_new(&session, engine, 1, POSITIONS, POSITIONS));
    for (int i = 0; i < 8; i++) {
        GenerateSpec spec = golden_spec(&golden);
        int64_t shift = shifts[i / 2];
        spec.max_tokens = LONG;
        spec.shift = i / 2 == 0 ? 0 : shift; /* the default: a quarter of the context */
        spec.sampling = (Sampling){.temperature = i % 2 ? 1.2 : 0, .top_p = 0.9, .seed = 3};
        Generated *generated = NULL;
        assert_ok(generate(engine, &spec, &generated));
        CLEANUP(sampler_freep) Sampler *sampler = NULL;
        assert_ok(sampler_new(&sampler, &spec.sampling, engine->model->config.vocab));
        for (int p = 0; p < golden.count; p++) {
            const Sample *sample = &generated->samples[p];
            assert_int_equal(sample->count, sample->prompt_count + LONG);
            for (int64_t t = sample->prompt_count; t < sample->count; t += stride * (1 + p)) {
                int32_t token = -1;
                const float *logits = recompute(session, sample->ids, t, shift);
                assert_ok(sampler_pick(sampler, logits, golden.prompt[p].sequence, (uint64_t)t, &token));
                assert_int_equal(token, sample->ids[t]);
            }
        }
        generated_free(generated);
    }
    session_free(session);
    engine_free(engine);
}

/* The window depends on the number of tokens only: neither the batch nor the end of the prompt matters. */
static void the_window_ignores_where_the_prompt_ended(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    GenerateSpec spec = golden_spec(&golden);
    spec.max_tokens = LONG;
    spec.sampling = (Sampling){.temperature = 1, .top_p = 1, .seed = 5};
    Generated *all = NULL, *rest = NULL;
    assert_ok(generate(engine, &spec, &all));
    for (spec.batch = 1; spec.batch <= 3; spec.batch++) {
        Prompt longer[GOLDEN_PROMPTS];
        for (int p = 0; p < golden.count; p++)
            longer[p] = (Prompt){all->samples[p].ids, 50 + 37 * p, golden.prompt[p].sequence};
        GenerateSpec from = spec;
        from.prompts = longer, from.max_tokens = 40;
        assert_ok(generate(engine, &from, &rest));
        for (int p = 0; p < golden.count; p++) {
            assert_int_equal(rest->samples[p].count, longer[p].count + 40);
            assert_memory_equal(rest->samples[p].ids, all->samples[p].ids,
                                (size_t)rest->samples[p].count * sizeof(int32_t));
        }
        generated_free(rest);
        rest = NULL;
    }
    generated_free(all);
    engine_free(engine);
}

/* Beam search over recomputed windows, without a cache. */
static void beams_past_the_context(void **state) {
    enum { BEAMS = 3, NEW = 90 };
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    Session *session = NULL;
    assert_ok(session_new(&session, engine, 1, POSITIONS, POSITIONS));
    int64_t vocab = engine->model->config.vocab;
    GenerateSpec spec = golden_spec(&golden);
    spec.max_tokens = NEW, spec.shift = 20;
    spec.beam = (BeamSpec){.beams = BEAMS, .length_penalty = 1};
    Generated *generated = NULL;
    assert_ok(generate(engine, &spec, &generated));
    LogitProcessor *processor = NULL;
    assert_ok(logit_processor_new(&processor, &spec.rules, vocab));
    float *logits = calloc((size_t)vocab, sizeof *logits);
    for (int p = 0; p < golden.count; p++) {
        BeamSearch *search = NULL;
        BeamOptions options = {.beams = BEAMS, .length_penalty = 1, .max_tokens = NEW, .vocab = vocab};
        assert_ok(beam_search_new(&search, &options, golden.prompt[p].ids, golden.prompt[p].count));
        while (!beam_done(search)) {
            for (int64_t b = 0; b < BEAMS; b++) {
                int64_t count;
                const int32_t *ids = beam_ids(search, b, &count);
                memcpy(logits, recompute(session, ids, count, 20), (size_t)vocab * sizeof *logits);
                assert_ok(beam_expand(search, b, processor, logits));
            }
            assert_ok(beam_advance(search, NULL, NULL));
        }
        const Hypothesis *best = beam_result(search, 0);
        const Sample *sample = &generated->samples[p];
        assert_int_equal(sample->count, best->count);
        assert_memory_equal(sample->ids, best->ids, (size_t)best->count * sizeof *best->ids);
        assert_true(sample->score - best->score < 1e-4f && best->score - sample->score < 1e-4f);
        beam_search_free(search);
    }
    free(logits);
    logit_processor_free(processor);
    generated_free(generated);
    session_free(session);
    engine_free(engine);
}

static void refuses_bad_requests(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine("gpt2-generate", "cpu");
    Generated *generated = NULL;
    GenerateSpec spec = golden_spec(&golden);
    spec.shift = 65;
    assert_fails(generate(engine, &spec, &generated), 2, "the model's context length is 64");
    spec.shift = 0, spec.max_tokens = 0;
    assert_fails(generate(engine, &spec, &generated), 2, "number of new tokens must be at least 1");
    spec = golden_spec(&golden);
    golden.ids[1][2] = 257;
    assert_fails(generate(engine, &spec, &generated), 2,
                 "prompt 2: token 257 at position 3 is outside the vocabulary of 257");
    golden.ids[1][2] = -1;
    assert_fails(generate(engine, &spec, &generated), 2, "token -1");
    golden.prompt[1].count = 0;
    assert_fails(generate(engine, &spec, &generated), 2, "prompt 2 is empty");
    spec.count = 0;
    assert_fails(generate(engine, &spec, &generated), 2, "no prompt");
    spec = golden_spec(&golden);
    spec.count = 1, spec.sampling.top_p = 0;
    assert_fails(generate(engine, &spec, &generated), 2, "top-p");
    assert_null(generated);
    engine_free(engine);
}

static void refuses_bad_models(void **state) {
    char path[512];
    Engine *engine = NULL;
    EngineOptions options = {0};
    assert_fails(engine_new(&engine, golden_dir("bert-mlm", path), &options), 1, "cannot generate");
    assert_fails(engine_new(&engine, golden_dir("absent", path), &options), 1, "no such directory");
    assert_fails(engine_new(&engine, golden_dir("sampling.json", path), &options), 1, "not a directory");
    options.device = "tpu";
    assert_fails(engine_new(&engine, golden_dir("gpt2", path), &options), 2, "expected cpu or cuda");
    options = (EngineOptions){.kernels = "none"};
    assert_fails(engine_new(&engine, golden_dir("gpt2", path), &options), 2, "none");
    assert_null(engine);
}

static void nan_weights(void **state) {
    Golden golden;
    golden_read("gpt2", &golden);
    Engine *engine = golden_engine("gpt2", "cpu");
    const ParamDesc *desc;
    Tensor weight;
    assert_true(store_find(engine->params, "head.norm.weight", &desc, &weight));
    tensor_f32(weight)[0] = 0.0f / 0.0f;
    GenerateSpec spec = golden_spec(&golden);
    Generated *generated = NULL;
    assert_fails(generate(engine, &spec, &generated), 1, "NaN");
    engine_free(engine);
}

/* ---- running ahead ---- */

enum { CALLS = GOLDEN_PROMPTS * 256 };

/* Everything that a sink sees, in order. */
typedef struct Calls {
    int64_t count;
    struct {
        int64_t prompt;
        int32_t token;
    } call[CALLS];
    int64_t stop; /* prompt p stops after stop + 3p tokens; 0: never */
    int64_t of[GOLDEN_PROMPTS];
} Calls;

static Status note_call(void *context, int64_t prompt, int32_t token, bool *ret_stop) {
    Calls *calls = context;
    assert_true(calls->count < CALLS);
    calls->call[calls->count].prompt = prompt;
    calls->call[calls->count++].token = token;
    calls->of[prompt]++;
    *ret_stop = calls->stop && calls->of[prompt] == calls->stop + 3 * prompt;
    return OK;
}

/* Generates without and with running ahead: the same calls, samples and message (NULL: no failure). */
static void assert_same_ahead(Engine *engine, GenerateSpec spec, int64_t stop, const char *message) {
    CLEANUP(mem_freep) Calls *calls = calloc(2, sizeof *calls);
    Generated *generated[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        engine->run_ahead = i;
        calls[i].stop = stop;
        spec.sink = note_call, spec.context = &calls[i];
        if (message)
            assert_fails(generate(engine, &spec, &generated[i]), 1, message);
        else
            assert_ok(generate(engine, &spec, &generated[i]));
    }
    assert_memory_equal(&calls[0], &calls[1], sizeof *calls);
    if (message) return;
    assert_int_equal(generated[1]->new_tokens, generated[0]->new_tokens);
    assert_true(same_samples(generated[0], generated[1]));
    for (int64_t i = 0; i < spec.count; i++)
        assert_int_equal(generated[1]->samples[i].ended, generated[0]->samples[i].ended);
    for (int i = 0; i < 2; i++) generated_free(generated[i]);
}

/* End tokens, stops, windows that move, and batches of all sizes. */
static void running_ahead_changes_nothing(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine_on_device("gpt2-generate");
    GenerateSpec spec = golden_spec(&golden);
    for (spec.batch = 1; spec.batch <= golden.count; spec.batch++) {
        spec.max_tokens = golden.continued_count, spec.shift = 0, spec.end_token = -1;
        assert_same_ahead(engine, spec, 0, NULL);
        assert_same_ahead(engine, spec, 2, NULL);
        for (int i = 0; i < golden.count * 3; i++) {
            spec.end_token = golden.continued[i / 3][i % 3 * 7];
            assert_same_ahead(engine, spec, 0, NULL);
            assert_same_ahead(engine, spec, 4, NULL);
        }
        for (spec.max_tokens = 1; spec.max_tokens < 4; spec.max_tokens++)
            assert_same_ahead(engine, spec, 0, NULL);
        spec.max_tokens = SANITIZED ? 80 : LONG;
        for (spec.shift = 1; spec.shift < POSITIONS; spec.shift += 21)
            assert_same_ahead(engine, spec, 60, NULL);
    }
    engine_free(engine);
}

/* Logits become NaN in the middle, at the same position of each sequence. */
static void reports_nan_while_running_ahead(void **state) {
    Golden golden;
    golden_read("gpt2-generate", &golden);
    Engine *engine = golden_engine_on_device("gpt2-generate");
    const ParamDesc *desc;
    Tensor positions;
    assert_true(store_find(engine->params, "embed.position", &desc, &positions));
    int64_t at = golden.prompt[0].count;
    for (int p = 1; p < golden.count; p++)
        if (golden.prompt[p].count > at) at = golden.prompt[p].count;
    at += 5;
    float nan = NAN;
    assert_ok(stream_copy(engine->stream, (float *)positions.data + at * positions.dim[1], &nan, sizeof nan,
                          COPY_TO_DEVICE));
    assert_ok(stream_sync(engine->stream));
    GenerateSpec spec = golden_spec(&golden);
    char message[64];
    snprintf(message, sizeof message, "position %d", (int)at + 1);
    for (spec.batch = 1; spec.batch <= golden.count; spec.batch++) {
        assert_same_ahead(engine, spec, 0, message);
        assert_same_ahead(engine, spec, 0, "NaN");
    }
    engine_free(engine);
}

/* A chunked prompt needs less memory than an unchunked one, and all of it is freed. */
static void chunks_bound_memory(void **state) {
    size_t peak[2];
    for (int i = 0; i < 2; i++) {
        Engine *engine = golden_engine("gpt2-generate", "cpu");
        size_t params = engine->device->total.current;
        Session *session = NULL;
        assert_ok(session_new(&session, engine, 2, 60, i ? 4 : 60));
        int32_t ids[60] = {0};
        assert_ok(session_feed(session, (Feed[]){{ids, 60}, {ids, 60}}, 2));
        peak[i] = engine->device->total.peak - params;
        session_free(session);
        dev_free(&engine->stream->workspace);
        assert_int_equal(engine->device->total.current, params);
        engine_free(engine);
    }
    assert_true(peak[1] * 2 < peak[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_alone),
        cmocka_unit_test(greedy_batched),
        cmocka_unit_test(cache_between_calls),
        cmocka_unit_test(equal_prompts),
        cmocka_unit_test(stops_at_the_end_token),
        cmocka_unit_test(stops_at_any_end_token),
        cmocka_unit_test(streams_tokens),
        cmocka_unit_test(stops_on_request),
        cmocka_unit_test(samples_depend_on_the_seed),
        cmocka_unit_test(continues_past_the_context),
        cmocka_unit_test(the_window_ignores_where_the_prompt_ended),
        cmocka_unit_test(beams_past_the_context),
        cmocka_unit_test(refuses_bad_requests),
        cmocka_unit_test(refuses_bad_models),
        cmocka_unit_test(nan_weights),
        cmocka_unit_test(running_ahead_changes_nothing),
        cmocka_unit_test(reports_nan_while_running_ahead),
        cmocka_unit_test(chunks_bound_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
