/* A training step is `accumulate` micro-batches of B sequences, so the throughput is accumulate x B x
 * sequence length x steps / seconds. Training runs first, so that its memory is free when the model
 * generates. With several ranks, all train and rank 0 does the rest. */
#include "compare/leaderboard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "infer/generate.h"
#include "train/job.h"

enum { LATENCIES = 2, THROUGHPUTS = 2, WARM_UP = 4, MAX_SEQUENCES = 12, KEY_SIZE = 64 };

static const int64_t latency_of[LATENCIES] = {1, 12}, throughput_of[THROUGHPUTS] = {4, 12};

static const char *key_of(char key[KEY_SIZE], const char *name, int64_t B) {
    snprintf(key, KEY_SIZE, B ? "%s_%lld" : "%s", name, (long long)B);
    return key;
}

static Status set(json_t *result, const char *name, int64_t B, json_t *value) {
    char key[KEY_SIZE];
    key_of(key, name, B);
    return json_object_set_new(result, key, value) ? FAILED("out of memory while writing the result") : OK;
}

/* Quantized models cannot be trained. */
static Status is_quantized(const char *model, bool *ret_quantized) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    ModelConfig config = {0};
    if (path_is_dir(model)) {
        TRY(model_dir_open(&dir, model));
        TRY(hf_config_read(dir.path, &config));
    }
    *ret_quantized = config_quantized(&config);
    return OK;
}

static Status add_throughputs(const LeaderboardSpec *spec, json_t *result) {
    bool quantized = false;
    TRY(is_quantized(spec->train.model.name, &quantized));
    for (int i = 0; i < THROUGHPUTS; i++) {
        if (quantized) {
            TRY(set(result, "training_throughput", throughput_of[i], json_null()));
            continue;
        }
        Settings config = spec->train;
        config.run.micro_batch = throughput_of[i];
        config.training.batch = throughput_of[i] * spec->accumulate * spec->replicas;
        config.report.steps_only = true;
        config.report.trace_file = NULL;
        CLEANUP(json_decrefp) json_t *measured = NULL;
        TRY(bench_run(&config, &measured));
        TRY(set(result, "training_throughput", throughput_of[i],
                json_real(json_number_at(measured, "tokens_per_s"))));
    }
    return OK;
}

/* The preset with its overrides. It keeps its own context length, whatever the training sequences. */
static Status fresh_config(const Settings *c, ModelConfig *ret_config) {
    ModelConfig config;
    TRY(config_preset(c->model.name, &config));
    ModelSettings model = c->model;
    model.seq = 0;
    TRY(job_change_preset(&model, &config));
    if (model.vocab) config.vocab = model.vocab;
    *ret_config = config;
    return OK;
}

static Status open_engine(const Settings *c, Engine **ret_engine) {
    Precision precision;
    TRY(kernels_precision(c->device.name, c->device.precision, &precision));
    EngineOptions options = {.device = c->device.name,
                             .kernels = c->device.kernels,
                             .threads = (int)c->device.threads,
                             .dtype = precision.dtype};
    if (path_is_dir(c->model.name)) return engine_new(ret_engine, c->model.name, &options);
    ModelConfig config;
    TRY(fresh_config(c, &config));
    return engine_new_random(ret_engine, &config, c->run.seed, &options);
}

/* The time to generate `tokens` tokens for B sequences, each from a different first token. */
static Status time_tokens(Engine *engine, int64_t B, int64_t tokens, double *ret_seconds) {
    int32_t first[MAX_SEQUENCES];
    Prompt prompts[MAX_SEQUENCES];
    for (int64_t b = 0; b < B; b++) {
        first[b] = (int32_t)(b % engine->model->config.vocab);
        prompts[b] = (Prompt){.ids = &first[b], .count = 1, .sequence = (uint64_t)b};
    }
    GenerateSpec spec = {.prompts = prompts, .count = B, .max_tokens = tokens, .end_token = -1, .batch = B};
    spec.sampling.top_p = 1;
    CLEANUP(generated_freep) Generated *generated = NULL;
    TRY(generate(engine, &spec, &generated));
    *ret_seconds = generated->prefill_s + generated->decode_s;
    return OK;
}

static Status add_latencies(const LeaderboardSpec *spec, json_t *result) {
    CLEANUP(engine_freep) Engine *engine = NULL;
    TRY(open_engine(&spec->train, &engine));
    int64_t limit = engine->model->config.positions - 1;
    if (spec->new_tokens > limit)
        return USAGE("{new-tokens} %lld: the model's context allows at most %lld",
                     (long long)spec->new_tokens, (long long)limit);
    for (int i = 0; i < LATENCIES; i++) {
        int64_t B = latency_of[i];
        double seconds;
        TRY(time_tokens(engine, B, spec->new_tokens < WARM_UP ? spec->new_tokens : WARM_UP, &seconds));
        TRY(time_tokens(engine, B, spec->new_tokens, &seconds));
        TRY(set(result, "inference_latency", B, json_real((double)(B * spec->new_tokens) / seconds)));
    }
    return OK;
}

static Status add_loss(const LeaderboardSpec *spec, json_t *result) {
    const Settings *c = &spec->train;
    if (!spec->data_count || !path_is_dir(c->model.name)) return set(result, "loss", 0, json_null());
    EvalConfig config = {
        .settings = {.model = {.name = c->model.name, .task = "lm"},
                     .data = {.files = spec->data,
                              .files_count = spec->data_count,
                              .format = "auto",
                              .text = {.field = "text", .label_field = "label", .documents = "file"}},
                     .run = {.micro_batch = 4},
                     .device = c->device,
                     .report = {.quiet = true, .log = c->report.log}}};
    config.settings.device.on = NULL;
    CLEANUP(json_decrefp) json_t *measured = NULL;
    TRY(eval_run(&config, &measured));
    return set(result, "loss", 0, json_real(json_number_at(measured, "loss")));
}

Status leaderboard_run(const LeaderboardSpec *spec, json_t **ret_result) {
    const Mesh *mesh = spec->train.run.mesh;
    CLEANUP(json_decrefp) json_t *result = json_object();
    if (!result) return FAILED("out of memory");
    TRY(add_throughputs(spec, result));
    if (!mesh || mesh->world->rank == 0) {
        TRY(add_latencies(spec, result));
        TRY(add_loss(spec, result));
        TRY(json_write_file(spec->file, result));
    }
    *ret_result = result;
    result = NULL;
    return OK;
}

/* ---- published figures ---- */

static bool is_key(const char *text) {
    char key[KEY_SIZE];
    bool is = !strcmp(text, "loss");
    for (int i = 0; i < LATENCIES; i++) is |= !strcmp(text, key_of(key, "inference_latency", latency_of[i]));
    for (int i = 0; i < THROUGHPUTS; i++)
        is |= !strcmp(text, key_of(key, "training_throughput", throughput_of[i]));
    return is;
}

Status leaderboard_published(const char *text, json_t **ret_published) {
    CLEANUP(json_decrefp) json_t *published = json_object();
    for (const char *at = text; published;) {
        char key[KEY_SIZE] = "", *end;
        size_t length = strcspn(at, "=");
        if (length < sizeof key) memcpy(key, at, length);
        double value = at[length] ? strtod(at + length + 1, &end) : 0;
        if (!is_key(key) || !at[length] || end == at + length + 1 || (*end && *end != ',') ||
            !isfinite(value))
            return USAGE(
                "{published} %s: expected KEY=NUMBER,... with the keys of {leaderboard}, for example "
                "loss=2.8,training_throughput_4=38000",
                text);
        if (json_object_set_new(published, key, json_real(value))) break;
        if (!*end) return MOVE(ret_published, published);
        at = end + 1;
    }
    return FAILED("out of memory");
}
