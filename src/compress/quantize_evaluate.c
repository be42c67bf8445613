/* All levels read the same sequences, batch size by batch size, one level after the other, so that a change
 * in the machine's load affects all. Texts are greedy, so that they differ only by quantization. */
#include "compress/quantize.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/host.h"
#include "base/load.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "infer/generate.h"
#include "infer/prompt.h"
#include "infer/text.h"
#include "train/train.h"

enum { BLOCK = 64, SIZES = 2, DEFAULT_PROMPTS = 2 };

static const int64_t batch_sizes[SIZES] = {32, 64};
static const char *const default_prompts[DEFAULT_PROMPTS] = {"The history of the city", "In the year 1900,"};

/* ---- timing ---- */

static Status measure(const QuantizeSpec *spec, const char *model, int64_t seq, int64_t batch,
                      double *ret_seconds, double *ret_loss) {
    EvalConfig config = {.settings = {.model = {.name = model, .task = "auto", .seq = seq},
                                      .data = {.files = spec->evaluate,
                                               .files_count = spec->evaluate_count,
                                               .format = "auto",
                                               .text = spec->config.data.text},
                                      .run = {.micro_batch = batch},
                                      .device = {.name = "cpu", .threads = spec->config.threads},
                                      .report = {.quiet = true, .log = spec->config.data.log}},
                         .max_batches = spec->max_batches};
    CLEANUP(json_decrefp) json_t *measured = NULL;
    TRY(eval_run(&config, &measured));
    if (json_has_number(measured, "runtime_s", ret_seconds) && json_has_number(measured, "loss", ret_loss))
        return OK;
    return USAGE("{evaluate}: expected data with a loss, such as text");
}

/* A batch size of a level. Times with CPU contention, of this level or of the original, show no speedup. */
static Status add_batch(const QuantizeSpec *spec, int64_t seq, int64_t batch, const json_t *original,
                        json_t *level) {
    double seconds, loss, before;
    json_t *batches = json_object_get(level, "batches");
    const json_t *first = json_array_get(json_object_get(original, "batches"), json_array_size(batches));
    LoadTime start = load_now();
    TRY(measure(spec, json_string_at(level, "model"), seq, batch, &seconds, &loss));
    LoadTime span = load_since(&start);
    double cores = host_cores(), wanted = spec->config.threads ? (double)spec->config.threads : cores;
    json_t *load = load_json(&span, span.cpu_s, cores, wanted);
    bool trusted = !load_is_disturbed(load) && !load_is_disturbed(json_object_get(first, "load"));
    json_t *row = json_pack("{s:I, s:f, s:f, s:o*}", "batch", (json_int_t)batch, "seconds", seconds, "loss",
                            loss, "load", load);
    if (row && json_has_number(first, "seconds", &before))
        json_object_set_new(row, "speedup", json_finite(trusted ? before / seconds : NAN));
    return json_array_append_new(batches, row) ? FAILED("out of memory") : OK;
}

static Status add_batches(const QuantizeSpec *spec, int64_t seq, const json_t *levels) {
    json_t *level;
    size_t i;
    for (int size = 0; size < SIZES; size++)
        json_array_foreach(levels, i, level)
            TRY(add_batch(spec, seq, batch_sizes[size], i ? json_array_get(levels, 0) : NULL, level));
    return OK;
}

/* ---- texts ---- */

typedef struct Writer {
    ModelDir dir;
    Engine *engine;
    Tokenizer *tokenizer;
    Encoder *encoder;
} Writer;

static void writer_done(Writer *writer) {
    encoder_free(writer->encoder);
    tokenizer_free(writer->tokenizer);
    engine_free(writer->engine);
    model_dir_done(&writer->dir);
}

static Status find_tokenizer(const QuantizeSpec *spec, const char *dir, const ModelConfig *config,
                             Tokenizer **ret_tokenizer) {
    TRY(text_tokenizer(dir, config, spec->config.data.text.tokenizer, ret_tokenizer));
    return *ret_tokenizer ? OK : USAGE("%s has no tokenizer; pass its directory with {tokenizer}", dir);
}

static Status writer_init(Writer *writer, const QuantizeSpec *spec, const char *model) {
    ModelConfig config;
    TRY(engine_find(model, &writer->dir, &config));
    TRY(engine_new(&writer->engine, model,
                   &(EngineOptions){.threads = (int)spec->config.threads, .dtype = DT_F32}));
    TRY(find_tokenizer(spec, writer->dir.path, &config, &writer->tokenizer));
    return encoder_new(&writer->encoder, writer->tokenizer, NULL);
}

static Status continue_prompt(Writer *writer, const QuantizeSpec *spec, const char *prompt,
                              json_t **ret_text) {
    const ModelConfig *config = &writer->engine->model->config;
    CLEANUP(prompt_list_done) PromptList list = {0};
    CLEANUP(generated_freep) Generated *generated = NULL;
    CLEANUP(text_stream_done) TextStream stream = {0};
    TRY(prompt_list_add_text(&list, writer->encoder, prompt, strlen(prompt)));
    TRY(prompt_list_finish(&list, config, writer->tokenizer, 1));
    int64_t room = config_context(config) - list.prompts[0].count;
    GenerateSpec request = {.prompts = list.prompts,
                            .count = 1,
                            .max_tokens = spec->new_tokens < room ? spec->new_tokens : room,
                            .end_token = config->eos_token};
    request.sampling.top_p = 1; /* temperature 0: greedy */
    if (request.max_tokens < 1)
        return USAGE("{prompt}: '%.40s' fills the model's context of %lld tokens; use a shorter one", prompt,
                     (long long)config_context(config));
    TRY(generate(writer->engine, &request, &generated));
    TRY(text_stream_init(&stream, writer->tokenizer, &(StopStrings){0}, true));
    const Sample *sample = &generated->samples[0];
    TRY(text_stream_prompt(&stream, sample->ids, sample->prompt_count));
    for (int64_t i = sample->prompt_count; i < sample->count; i++)
        TRY(text_stream_push(&stream, sample->ids[i]));
    TRY(text_stream_end(&stream));
    *ret_text = json_stringn(stream.text, stream.size);
    return *ret_text ? OK : FAILED("out of memory");
}

static int prompt_count(const QuantizeSpec *spec) {
    return spec->prompts_count ? spec->prompts_count : DEFAULT_PROMPTS;
}

static const char *prompt_at(const QuantizeSpec *spec, int at) {
    return spec->prompts_count ? spec->prompts[at] : default_prompts[at];
}

/* A level's continuations of all prompts. */
static Status add_texts(const QuantizeSpec *spec, json_t *level) {
    CLEANUP(writer_done) Writer writer = {0};
    TRY(writer_init(&writer, spec, json_string_at(level, "model")));
    for (int i = 0; i < prompt_count(spec); i++) {
        json_t *text = NULL;
        TRY(continue_prompt(&writer, spec, prompt_at(spec, i), &text));
        if (json_array_append_new(json_object_get(level, "texts"), text)) return FAILED("out of memory");
    }
    return OK;
}

/* ---- the evaluation ---- */

static Status find_original(const QuantizeSpec *spec, ModelDir *dir, ModelConfig *config, int64_t *ret_seq) {
    TRY(model_dir_open(dir, spec->config.model));
    TRY(hf_config_read(dir->path, config));
    *ret_seq = config->positions < BLOCK ? config->positions : BLOCK;
    return OK;
}

Status quantize_evaluate_check(const QuantizeSpec *spec) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    ModelConfig config;
    QuantizeSpec brief = *spec;
    double seconds, loss;
    int64_t seq = 0;
    TRY(hf_save_check(spec->config.out));
    TRY(find_original(spec, &dir, &config, &seq));
    brief.max_batches = 1;
    brief.config.data.log = NULL;
    TRY(measure(&brief, spec->config.model, seq, batch_sizes[0], &seconds, &loss));
    return config_generates(&config) ? find_tokenizer(spec, dir.path, &config, &tokenizer) : OK;
}

static json_t *new_level(const char *name, const char *model) {
    return json_pack("{s:s, s:s, s:[], s:[]}", "name", name, "model", model, "batches", "texts");
}

/* The original, then what was made of it. */
static Status find_levels(const QuantizeSpec *spec, const json_t *made, json_t *levels) {
    const json_t *one;
    size_t i;
    int failed = json_array_append_new(levels, new_level("fp32", spec->config.model));
    json_array_foreach(made, i, one) {
        json_t *level = new_level(json_string_at(one, "level"), json_string_at(one, "out"));
        failed |= json_object_set(level, "weights_noise", json_object_get(one, "weights_noise"));
        failed |= json_array_append_new(levels, level);
    }
    return failed ? FAILED("out of memory") : OK;
}

Status quantize_evaluate(const QuantizeSpec *spec, const json_t *made, json_t **ret_result) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(json_decrefp) json_t *levels = json_array(), *prompts = json_array();
    ModelConfig config;
    json_t *level;
    size_t i;
    int64_t seq = 0;
    TRY(find_original(spec, &dir, &config, &seq));
    bool writes = config_generates(&config);
    TRY(find_levels(spec, made, levels));
    TRY(add_batches(spec, seq, levels));
    json_array_foreach(levels, i, level) if (writes) TRY(add_texts(spec, level));
    for (int p = 0; writes && p < prompt_count(spec); p++)
        json_array_append_new(prompts, json_string(prompt_at(spec, p)));
    json_t *result = json_pack("{s:I, s:I, s:O, s:O}", "seq", (json_int_t)seq, "max_batches",
                               (json_int_t)spec->max_batches, "prompts", prompts, "levels", levels);
    if (!result) return FAILED("out of memory");
    *ret_result = result;
    return OK;
}
