/* weft generate: continue prompts with a GPT-2.
 *
 * Prompts are texts (for models whose vocabulary is the bytes) or token numbers. A single continuation is
 * printed as it comes; several are printed one after another at the end. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/train_options.h"
#include "data/data.h"
#include "infer/prompt.h"
#include "infer/text.h"

typedef struct GenerateConfig {
    const char *model;
    const char **prompts, **files, **ids;
    int prompts_count, files_count, ids_count;
    int64_t samples, max_tokens, top_k, batch, threads;
    double temperature, top_p;
    uint64_t seed;
    bool greedy, stream, ignore_end;
    const char *device, *kernels;
} GenerateConfig;

enum { DEFAULT_TOKENS = 128, SAMPLES_LIMIT = 1 << 20 };

/* clang-format off: one row a line or two reads as the table it is */
static const Option prompt_options[] = {
    {OPT_TEXT("model", GenerateConfig, model, "DIR"), .required = true,
     .help = "A GPT-2 checkpoint, or the directory of a run, whose newest checkpoint is taken."},
    {OPT_LIST("prompt", GenerateConfig, prompts, "TEXT"), .one_each = true,
     .help = "The text to continue; an empty one, or no prompt at all, starts from the end token. Give it "
             "several times for several prompts."},
    {OPT_LIST("prompt-file", GenerateConfig, files, "FILE"), .one_each = true,
     .help = "The text to continue, from a file; - is standard input."},
    {OPT_LIST("prompt-ids", GenerateConfig, ids, "N,N,..."), .one_each = true,
     .help = "The tokens to continue, as numbers."},
};

static const Option sampling_options[] = {
    {OPT_INT("max-tokens", GenerateConfig, max_tokens), .low = 1, .high = INT32_MAX, .fallback = "0",
     .shown = "128, or fewer where the longest prompt leaves no room for them",
     .help = "Tokens to add at most. Refused when a prompt and so many are more than the model's positions."},
    {OPT_INT("samples", GenerateConfig, samples), .low = 1, .high = SAMPLES_LIMIT, .fallback = "1",
     .help = "Continuations of each prompt."},
    {OPT_FLOAT("temperature", GenerateConfig, temperature), .low = 0, .high = 1e6, .fallback = "1",
     .help = "Below 1 favours likely tokens, above 1 unlikely ones; 0 always takes the likeliest."},
    {OPT_INT("top-k", GenerateConfig, top_k), .low = 0, .high = INT32_MAX, .fallback = "0", .shown = "all",
     .help = "Choose among the N likeliest tokens only."},
    {OPT_FLOAT("top-p", GenerateConfig, top_p), .low = 0, .high = 1, .above_low = true, .fallback = "1",
     .help = "Choose among the likeliest tokens that together have this probability."},
    {OPT_FLAG("greedy", GenerateConfig, greedy),
     .help = "Always take the likeliest token; the same as --temperature 0."},
    {OPT_SEED("seed", GenerateConfig, seed), .fallback = "0", .help = "The same seed gives the same text."},
    {OPT_FLAG("ignore-end", GenerateConfig, ignore_end), .help = "Go on after an end token."},
};

static const Option run_options[] = {
    {OPT_FLAG("stream", GenerateConfig, stream), .fallback = "on",
     .help = "Print a single continuation only when it is complete."},
    {OPT_INT("batch", GenerateConfig, batch), .low = 1, .high = SAMPLES_LIMIT, .fallback = "0",
     .shown = "up to 64, as memory suggests",
     .help = "Sequences that are computed at once; the result does not depend on it."},
    {OPT_CHOICE("device", GenerateConfig, device, "NAME", device_choices), .fallback = "cpu",
     .help = "Where to compute."},
    {OPT_CHOICE("kernels", GenerateConfig, kernels, "NAME", kernel_choices), .fallback = "cpu",
     .help = "Kernels to compute with: fast ones, or the plain reference."},
    {OPT_INT("threads", GenerateConfig, threads), .low = 1, .high = 4096, .fallback = "0",
     .shown = "all cores", .help = "Threads to compute with; without it, OMP_NUM_THREADS is heeded."},
};
/* clang-format on */

static const OptionGroup groups[] = {
    OPTION_GROUP("Prompts", prompt_options, 0),
    OPTION_GROUP("Sampling", sampling_options, 0),
    OPTION_GROUP("Running", run_options, 0),
};

static bool speaks_bytes(int64_t vocab) {
    return vocab == BYTE_VOCAB_GPT2;
}

static Status collect_prompts(PromptList *list, const GenerateConfig *config) {
    for (int i = 0; i < config->prompts_count; i++)
        TRY(prompt_list_add_bytes(list, config->prompts[i], strlen(config->prompts[i])));
    for (int i = 0; i < config->files_count; i++) TRY(prompt_list_add_file(list, config->files[i]));
    for (int i = 0; i < config->ids_count; i++) TRY(prompt_list_add_ids(list, config->ids[i]));
    return OK;
}

/* Tokens as they come: text for bytes, numbers otherwise. */
typedef struct Printer {
    FILE *out;
    bool bytes, terminal;
    bool started;
    TextStream text;
    const Prompt *prompt; /* streaming: it goes before the first token */
} Printer;

/* A model that has learnt little writes any byte; those that steer a terminal stay off it. */
static void print_piece(const Printer *printer, const char *piece, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)piece[i];
        bool steers = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
        if (steers && printer->terminal)
            fputs("\xEF\xBF\xBD", printer->out);
        else
            putc(byte, printer->out);
    }
}

static void print_token(Printer *printer, int32_t token) {
    char piece[TEXT_PIECE];
    if (printer->bytes)
        print_piece(printer, piece, text_push(&printer->text, token, piece));
    else
        fprintf(printer->out, printer->started ? " %d" : "%d", (int)token);
    printer->started = true;
}

static void print_end(Printer *printer) {
    if (!printer->started) return;
    char piece[TEXT_PIECE];
    print_piece(printer, piece, text_end(&printer->text, piece));
    putc('\n', printer->out);
}

static Status stream_token(void *context, int64_t prompt, int32_t token) {
    (void)prompt;
    Printer *printer = context;
    if (!printer->started)
        for (int64_t i = 0; i < printer->prompt->count; i++) print_token(printer, printer->prompt->ids[i]);
    print_token(printer, token);
    if (fflush(printer->out) != 0 || ferror(printer->out))
        return FAILED("standard output: cannot be written: %s", strerror(errno));
    return OK;
}

static Printer printer_of(FILE *out, bool bytes) {
    return (Printer){.out = out, .bytes = bytes, .terminal = isatty(fileno(out))};
}

static Status pack_ids(const int32_t *ids, int64_t count, json_t **ret_array) {
    json_t *array = json_array();
    for (int64_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, json_integer(ids[i])) != 0) json_decref(array), array = NULL;
    if (!array) return FAILED("out of memory while writing the result");
    *ret_array = array;
    return OK;
}

static Status set_new(json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0) return FAILED("out of memory while writing the result");
    return OK;
}

static Status set_text(json_t *object, const char *key, const int32_t *ids, int64_t count) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(text_of_tokens(ids, count, &text, &size));
    return set_new(object, key, json_stringn(text, size));
}

static Status pack_sample(const Sample *sample, bool bytes, json_t *samples) {
    const int32_t *new_ids = sample->ids + sample->prompt_count;
    int64_t new_count = sample->count - sample->prompt_count;
    json_t *object = json_object(), *ids = NULL;
    if (json_array_append_new(samples, object) != 0) return FAILED("out of memory while writing the result");
    TRY(pack_ids(sample->ids, sample->count, &ids));
    TRY(set_new(object, "ids", ids));
    TRY(pack_ids(new_ids, new_count, &ids));
    TRY(set_new(object, "new_ids", ids));
    TRY(set_new(object, "ended", json_boolean(sample->ended)));
    if (!bytes) return OK;
    TRY(set_text(object, "text", sample->ids, sample->count));
    return set_text(object, "new_text", new_ids, new_count);
}

static Status pack_result(const Generated *generated, const Engine *engine, json_t **ret_result) {
    double seconds = generated->prefill_s + generated->decode_s;
    int64_t decoded = generated->new_tokens - generated->count;
    CLEANUP(json_decrefp)
    json_t *result = json_pack(
        "{s[] sI sI sf sf sf sf sI}", "samples", "prompt_tokens", (json_int_t)generated->prompt_tokens,
        "new_tokens", (json_int_t)generated->new_tokens, "prefill_s", generated->prefill_s, "decode_s",
        generated->decode_s, "tokens_per_s", seconds > 0 ? (double)generated->new_tokens / seconds : 0.0,
        "decode_tokens_per_s", decoded > 0 ? (double)decoded / generated->decode_s : 0.0, "peak_bytes",
        (json_int_t)engine->device->total.peak);
    if (!result) return FAILED("out of memory while writing the result");
    for (int64_t i = 0; i < generated->count; i++)
        TRY(pack_sample(&generated->samples[i], speaks_bytes(engine->model->config.vocab),
                        json_object_get(result, "samples")));
    *ret_result = json_incref(result);
    return OK;
}

static Status make_spec(const Invocation *call, const GenerateConfig *config, const PromptList *list,
                        const ModelConfig *model, GenerateSpec *ret_spec) {
    if (config->greedy && invocation_given(call, "temperature") && config->temperature > 0)
        return USAGE("--greedy and --temperature %g contradict each other", config->temperature);
    GenerateSpec spec = {
        .prompts = list->prompts,
        .count = (int64_t)list->used * config->samples,
        .max_tokens = config->max_tokens,
        .end_token = config->ignore_end ? -1 : model->eos_token,
        .more_ends = model->eos_more,
        .more_end_count = config->ignore_end ? 0 : model->eos_more_count,
        .batch = config->batch,
        .sampling = {.temperature = config->greedy ? 0 : config->temperature,
                     .top_k = config->top_k,
                     .top_p = config->top_p,
                     .seed = config->seed},
    };
    if (spec.max_tokens == 0) {
        spec.max_tokens = DEFAULT_TOKENS;
        for (size_t i = 0; i < list->used; i++) {
            int64_t room = model->positions - list->count[i];
            if (room < spec.max_tokens) spec.max_tokens = room > 1 ? room : 1;
        }
    }
    *ret_spec = spec;
    return OK;
}

static void note_unused(const LoadReport *report, const char *model) {
    if (!report->unknown_count) return;
    fprintf(stderr,
            "weft: note: %s: %zu tensors have no place in the model and were left out, %s among them\n",
            model, report->unknown_count, report->unknown[0]);
}

static bool streams(const Invocation *call, const GenerateConfig *config, size_t sequences) {
    return config->stream && !call->json && sequences == 1;
}

static Status run(Invocation *call, void *options, json_t **ret_result) {
    const GenerateConfig *config = options;
    TRY(device_check(call, config->device));
    CLEANUP(prompt_list_done) PromptList list = {0};
    TRY(collect_prompts(&list, config));
    CLEANUP(engine_freep) Engine *engine = NULL;
    TRY(engine_new(&engine, config->model,
                   &(EngineOptions){config->device, config->kernels, (int)config->threads}));
    const ModelConfig *model = &engine->model->config;
    if (config->prompts_count + config->files_count > 0 && !speaks_bytes(model->vocab))
        return USAGE("%s: its vocabulary of %lld tokens is not the bytes, so a text cannot be its prompt; "
                     "give the tokens with --prompt-ids",
                     config->model, (long long)model->vocab);
    note_unused(&engine->report, config->model);
    TRY(prompt_list_finish(&list, model, config->samples));
    GenerateSpec spec;
    TRY(make_spec(call, config, &list, model, &spec));
    Printer printer = printer_of(stdout, speaks_bytes(model->vocab));
    printer.prompt = list.prompts;
    if (streams(call, config, (size_t)spec.count)) spec.sink = stream_token, spec.context = &printer;
    CLEANUP(generated_freep) Generated *generated = NULL;
    Status status = generate(engine, &spec, &generated);
    if (spec.sink) print_end(&printer);
    TRY(status);
    return pack_result(generated, engine, ret_result);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const json_t *samples = json_object_get(result, "samples"), *sample, *id;
    size_t at, place, count = json_array_size(samples);
    bool streamed = streams(call, call->config, count);
    json_array_foreach(samples, at, sample) {
        if (streamed) break;
        Printer printer = printer_of(out, json_object_get(sample, "text") != NULL);
        if (count > 1) fprintf(out, "%s=== sample %zu of %zu ===\n", at ? "\n" : "", at + 1, count);
        json_array_foreach(json_object_get(sample, "ids"), place, id)
            print_token(&printer, (int32_t)json_integer_value(id));
        print_end(&printer);
    }
    fflush(out);
    fprintf(stderr, "weft: %lld new tokens in %.2f s, %.1f a second\n",
            (long long)json_integer_value(json_object_get(result, "new_tokens")),
            json_number_value(json_object_get(result, "prefill_s")) +
                json_number_value(json_object_get(result, "decode_s")),
            json_number_value(json_object_get(result, "tokens_per_s")));
    return OK;
}

static const Example examples[] = {
    {"Continue a text with the model of a run", "weft generate --model runs/first --prompt 'int main('"},
    {"Four samples, less adventurous",
     "weft generate --model runs/first --prompt 'The ' --samples 4 --temperature 0.8 --top-k 40"},
    {"The likeliest continuation of tokens, as JSON",
     "weft generate --model gpt2/ --prompt-ids 464,3290 --greedy --max-tokens 20 --json"},
};

const Command command_generate = {
    .name = "generate",
    .summary = "continue prompts with a GPT-2",
    .description = "Continues each prompt token by token, until an end token or --max-tokens. "
                   "A single continuation is printed as it comes.\n"
                   "Text prompts are for models whose vocabulary is the bytes, which is what 'weft train' "
                   "makes from plain "
                   "files; for others the prompt and the result are token numbers.\n"
                   "A sample depends on the seed, its prompt and its number alone, not on how many are made.",
    .config_size = sizeof(GenerateConfig),
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
    .show = show,
};
