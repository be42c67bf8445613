/* Both models read the same sequences, batch size by batch size, one model after the other, so that a change
 * in the machine's load affects both. Texts are greedy, so that they differ only by quantization. */
#include "cli/quantize_evaluate.h"

#include <string.h>

#include "base/memory.h"
#include "infer/generate.h"
#include "infer/prompt.h"
#include "infer/text.h"
#include "train/train.h"

enum { BLOCK = 64, SIZES = 2 };

static const int64_t batch_sizes[SIZES] = {32, 64};
static const char *const default_prompts[] = {"The history of the city", "In the year 1900,"};

/* ---- timing ---- */

static Status measure(const QuantizeArgs *args, const char *model, int64_t seq, int64_t batch,
                      double *ret_seconds, double *ret_loss) {
    EvalConfig config = {.model = model,
                         .task = "auto",
                         .format = "auto",
                         .text = args->config.data.text,
                         .data = args->evaluate,
                         .data_count = args->evaluate_count,
                         .seq = seq,
                         .batch = batch,
                         .max_batches = args->max_batches,
                         .device = "cpu",
                         .threads = args->config.threads,
                         .quiet = true,
                         .log = stderr};
    CLEANUP(json_decrefp) json_t *measured = NULL;
    TRY(eval_run(&config, &measured));
    if (json_has_number(measured, "runtime_s", ret_seconds) && json_has_number(measured, "loss", ret_loss))
        return OK;
    return USAGE("--evaluate: expected data with a loss, such as text");
}

static Status add_batches(const QuantizeArgs *args, int64_t seq, json_t *rows) {
    for (int i = 0; i < SIZES; i++) {
        double seconds[2], loss[2];
        TRY(measure(args, args->config.model, seq, batch_sizes[i], &seconds[0], &loss[0]));
        TRY(measure(args, args->config.out, seq, batch_sizes[i], &seconds[1], &loss[1]));
        json_t *row = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "batch", (json_int_t)batch_sizes[i],
                                "seconds", seconds[0], "seconds_quantized", seconds[1], "speedup",
                                seconds[0] / seconds[1], "loss", loss[0], "loss_quantized", loss[1]);
        if (json_array_append_new(rows, row)) return FAILED("out of memory");
    }
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

static Status writer_init(Writer *writer, const QuantizeArgs *args, const char *model) {
    ModelConfig config;
    TRY(engine_find(model, &writer->dir, &config));
    TRY(engine_new(&writer->engine, model,
                   &(EngineOptions){.threads = (int)args->config.threads, .dtype = DT_F32}));
    TRY(text_tokenizer(writer->dir.path, &config, args->config.data.text.tokenizer, &writer->tokenizer));
    if (!writer->tokenizer)
        return USAGE("%s has no tokenizer; pass its directory with --tokenizer", writer->dir.path);
    return encoder_new(&writer->encoder, writer->tokenizer, NULL);
}

static Status continue_prompt(Writer *writer, const QuantizeArgs *args, const char *prompt,
                              json_t **ret_text) {
    const ModelConfig *config = &writer->engine->model->config;
    CLEANUP(prompt_list_done) PromptList list = {0};
    CLEANUP(generated_freep) Generated *generated = NULL;
    CLEANUP(text_stream_done) TextStream stream = {0};
    TRY(prompt_list_add_text(&list, writer->encoder, prompt, strlen(prompt)));
    TRY(prompt_list_finish(&list, config, writer->tokenizer, 1));
    int64_t room = config->positions - list.prompts[0].count;
    GenerateSpec spec = {.prompts = list.prompts,
                         .count = 1,
                         .max_tokens = args->new_tokens < room ? args->new_tokens : room,
                         .end_token = config->eos_token};
    spec.sampling.top_p = 1; /* temperature 0: greedy */
    if (spec.max_tokens < 1)
        return USAGE("--prompt: '%s' fills the model's context of %lld tokens; use a shorter one", prompt,
                     (long long)config->positions);
    TRY(generate(writer->engine, &spec, &generated));
    TRY(text_stream_init(&stream, writer->tokenizer, &(StopStrings){0}, true));
    const Sample *sample = &generated->samples[0];
    TRY(text_stream_prompt(&stream, sample->ids, sample->prompt_count));
    for (int64_t i = sample->prompt_count; i < sample->count; i++)
        TRY(text_stream_push(&stream, sample->ids[i]));
    TRY(text_stream_end(&stream));
    *ret_text = json_stringn(stream.text, stream.size);
    return *ret_text ? OK : FAILED("out of memory");
}

/* One model's continuations of all prompts. */
static Status write_texts(const QuantizeArgs *args, const char *model, const char *const *prompts, int count,
                          json_t *texts) {
    CLEANUP(writer_done) Writer writer = {0};
    TRY(writer_init(&writer, args, model));
    for (int i = 0; i < count; i++) {
        json_t *text = NULL;
        TRY(continue_prompt(&writer, args, prompts[i], &text));
        if (json_array_append_new(texts, text)) return FAILED("out of memory");
    }
    return OK;
}

static Status add_texts(const QuantizeArgs *args, json_t *rows) {
    CLEANUP(json_decrefp) json_t *original = json_array(), *quantized = json_array();
    const char *const *prompts = args->prompts_count ? args->prompts : default_prompts;
    int count = args->prompts_count ? args->prompts_count : (int)COUNT_OF(default_prompts);
    TRY(write_texts(args, args->config.model, prompts, count, original));
    TRY(write_texts(args, args->config.out, prompts, count, quantized));
    for (int i = 0; i < count; i++) {
        json_t *row =
            json_pack("{s:s, s:O, s:O}", "prompt", prompts[i], "original",
                      json_array_get(original, (size_t)i), "quantized", json_array_get(quantized, (size_t)i));
        if (json_array_append_new(rows, row)) return FAILED("out of memory");
    }
    return OK;
}

Status quantize_evaluate(const QuantizeArgs *args, json_t **ret_result) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(json_decrefp) json_t *batches = json_array(), *texts = json_array();
    ModelConfig config;
    TRY(model_dir_open(&dir, args->config.model));
    TRY(hf_config_read(dir.path, &config));
    int64_t seq = config.positions < BLOCK ? config.positions : BLOCK;
    TRY(add_batches(args, seq, batches));
    if (config_has(&config, OUTPUT_LM)) TRY(add_texts(args, texts));
    json_t *result = json_pack("{s:I, s:I, s:O, s:O}", "seq", (json_int_t)seq, "max_batches",
                               (json_int_t)args->max_batches, "batches", batches, "texts", texts);
    if (!result) return FAILED("out of memory");
    *ret_result = result;
    return OK;
}

/* ---- output ---- */

void quantize_evaluate_show(const json_t *result, FILE *out) {
    const json_t *row;
    size_t i;
    fprintf(out, "\nup to %lld batches of sequences of %lld tokens:\n",
            (long long)json_int_at(result, "max_batches"), (long long)json_int_at(result, "seq"));
    fprintf(out, "%5s  %10s  %11s  %8s  %9s  %14s\n", "batch", "original s", "quantized s", "speedup", "loss",
            "loss quantized");
    json_array_foreach(json_object_get(result, "batches"), i, row) {
        double seconds = 0, after = 0, speedup = 0, loss = 0, quantized = 0;
        json_has_number(row, "seconds", &seconds);
        json_has_number(row, "seconds_quantized", &after);
        json_has_number(row, "speedup", &speedup);
        json_has_number(row, "loss", &loss);
        json_has_number(row, "loss_quantized", &quantized);
        fprintf(out, "%5lld  %10.2f  %11.2f  %7.2fx  %9.4f  %14.4f\n", (long long)json_int_at(row, "batch"),
                seconds, after, speedup, loss, quantized);
    }
    json_array_foreach(json_object_get(result, "texts"), i, row)
        fprintf(out, "\noriginal:  %s\nquantized: %s\n", json_string_at(row, "original"),
                json_string_at(row, "quantized"));
}
