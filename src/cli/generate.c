/* weft generate: continues prompts with a causal language model.
 *
 * Prompts are text, if the model's tokenizer is known, or token ids. A single continuation is printed as it
 * is generated; several are printed one after another at the end. */
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/progress.h"
#include "cli/generate.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "infer/prompt.h"
#include "model/rope.h"

static const char *const early_choices[] = {"false", "true", "never", NULL};
static const char *const kv_choices[] = {"fp32", "bf16", "int8", NULL};

enum { DEFAULT_TOKENS = 128, SAMPLES_LIMIT = 1 << 20, BEAMS_LIMIT = 1 << 10, TOP_LIMIT = 1000 };

/* clang-format off */
static const Option prompt_options[] = {
    {OPT_TEXT("model", GenerateConfig, model, "DIR"), .required = true, .per_rank = PER_RANK_PATH,
     .help = "Directory of a language model's checkpoint (of any family but BERT), or run directory (its newest "
             "checkpoint)."},
    {OPT_TEXT("tokenizer", GenerateConfig, tokenizer, "DIR"), .shown = "the files in the model's directory",
     .per_rank = PER_RANK_PATH,
     .help = "Tokenizer: a directory, one of its files (tokenizer.json, vocab.json, vocab.txt), or bytes."},
    {OPT_LIST("prompt", GenerateConfig, prompts, "TEXT"), .one_each = true, .any_bytes = true,
     .help = "Text to continue; - is standard input. An empty or missing prompt starts from the end token. "
             "Repeat for several prompts."},
    {OPT_LIST("prompt-file", GenerateConfig, files, "FILE"), .one_each = true, .per_rank = PER_RANK_PATH,
     .help = "File with the text to continue; - is standard input."},
    {OPT_LIST("prompts", GenerateConfig, lines, "FILE"), .one_each = true, .per_rank = PER_RANK_PATH,
     .help = "File with a prompt per line; - is standard input. In .jsonl files, a line is a JSON string, a list of "
             "token ids, or an object with one of these as 'prompt'. --json then prints a line per sample."},
    {OPT_LIST("prompt-ids", GenerateConfig, ids, "N,N,..."), .one_each = true,
     .help = "Token ids to continue."},
    {OPT_FLAG("interactive", GenerateConfig, interactive), .letter = 'i',
     .help = "Read prompts from the terminal. Each line continues the text so far; an empty line lets the model "
             "continue, /new starts over, and /help lists the commands. Ctrl-C stops a continuation, Ctrl-D exits."},
    {OPT_FLAG("add-special-tokens", GenerateConfig, add_special), .fallback = "on",
     .help = "Do not add the special tokens of the tokenizer's post-processor to text prompts."},
};

static const Option sampling_options[] = {
    {OPT_INT("max-tokens", GenerateConfig, max_tokens), RANGE(1, INT32_MAX), .fallback = "0",
     .shown = "128", .help = "Maximum number of new tokens. They may exceed the model's context."},
    {OPT_INT("window-shift", GenerateConfig, shift), RANGE(1, INT32_MAX), .fallback = "0",
     .shown = "a quarter of the context",
     .help = "When the context is full, drop its first N tokens and process the rest again. Smaller values "
             "keep more context but take more time."},
    {OPT_INT("samples", GenerateConfig, samples), RANGE(1, SAMPLES_LIMIT), .fallback = "1",
     .help = "Continuations per prompt."},
    {OPT_LIST("stop", GenerateConfig, stops, "TEXT"), .one_each = true,
     .help = "Stop before this text. Repeat for several stop texts."},
    {OPT_FLOAT("temperature", GenerateConfig, temperature), RANGE(0, 1e6), .fallback = "1",
     .help = "Sampling temperature: below 1 favors likely tokens, above 1 unlikely ones; 0 is greedy."},
    {OPT_INT("top-k", GenerateConfig, top_k), RANGE(0, INT32_MAX), .fallback = "0", .shown = "all",
     .help = "Sample from the N most likely tokens only."},
    {OPT_FLOAT("top-p", GenerateConfig, top_p), RANGE(0, 1), .above_low = true, .fallback = "1",
     .help = "Sample from the most likely tokens with this total probability (nucleus sampling)."},
    {OPT_FLOAT("min-p", GenerateConfig, min_p), RANGE(0, 1), .fallback = "0", .shown = "off",
     .help = "Sample only from tokens at least X times as likely as the most likely one, such as 0.05."},
    {OPT_FLOAT("typical-p", GenerateConfig, typical_p), RANGE(0, 1), .above_low = true, .fallback = "1",
     .help = "Sample from the tokens with this total probability whose -log probability is closest to the "
             "entropy (locally typical sampling)."},
    {OPT_FLAG("greedy", GenerateConfig, greedy),
     .help = "Always choose the most likely token, like --temperature 0."},
    {OPT_SEED("seed", GenerateConfig, seed), .fallback = "0",
     .help = "Random seed; the same seed gives the same text."},
    {OPT_FLAG("ignore-end", GenerateConfig, ignore_end), .help = "Continue past end tokens."},
    {OPT_FLAG("generation-config", GenerateConfig, generation_config), .fallback = "on",
     .help = "Ignore the settings in generation_config.json, except its BOS and EOS tokens."},
};

static const Option rule_options[] = {
    {OPT_FLOAT("repetition-penalty", GenerateConfig, repetition_penalty), RANGE(0, 1e6), .above_low = true,
     .fallback = "1",
     .help = "Divide the logits of tokens in the prompt and the new text by X, or multiply them if negative; "
             "above 1 discourages repetition."},
    {OPT_INT("no-repeat-ngram", GenerateConfig, no_repeat_ngram), RANGE(0, INT32_MAX), .fallback = "0",
     .shown = "off", .help = "Never repeat N consecutive tokens of the prompt or the new text."},
    {OPT_LIST("logit-bias", GenerateConfig, biases, "TOKEN:VALUE"), .one_each = true,
     .help = "Add a value to a token's logit, such as 464:-5 or the:2; -inf excludes the token. TOKEN is "
             "an id or the token's text. Repeat for several tokens."},
};

static const Option beam_options[] = {
    {OPT_INT("beams", GenerateConfig, beams), RANGE(1, BEAMS_LIMIT), .fallback = "1", .shown = "off",
     .help = "Search for the most likely continuation with N beams. --samples returns several of the best."},
    {OPT_FLOAT("length-penalty", GenerateConfig, length_penalty), RANGE(-1e6, 1e6), .fallback = "1",
     .help = "Divide a continuation's log probability by its length to the power of X; larger values favor "
             "long continuations."},
    {OPT_CHOICE("early-stopping", GenerateConfig, early_stopping, "WHEN", early_choices),
     .fallback = "false",
     .help = "When to stop once N continuations are complete: at once (true), when the best incomplete "
             "one scores lower at its current length (false), or when it would score lower at any length (never)."},
};

static const Option run_options[] = {
    {OPT_TEXT("rope-scaling", GenerateConfig, rope_scaling, "KIND:FACTOR"), .shown = "the model's own",
     .help = "Extend the context, as in 'weft train'."},
    {OPT_FLAG("stream", GenerateConfig, stream), .fallback = "on",
     .help = "Do not stream: print a single continuation only when it is complete."},
    {OPT_FLAG("skip-special-tokens", GenerateConfig, skip_special), .fallback = "on",
     .help = "Show special tokens, such as <|endoftext|>, in the text."},
    {OPT_FLAG("logprobs", GenerateConfig, logprobs),
     .help = "With --json, list the log probability of each new token: log_softmax of the model's logits, before "
             "penalties, biases, temperature and filters."},
    {OPT_INT("top-logprobs", GenerateConfig, top_logprobs), RANGE(0, TOP_LIMIT), .fallback = "0",
     .help = "With --logprobs, list the N most likely tokens at each position as well."},
    {OPT_INT("batch", GenerateConfig, batch), RANGE(1, SAMPLES_LIMIT), .fallback = "0",
     .shown = "up to 64, as memory allows", .help = "Sequences per batch; does not affect the result."},
    {OPT_CHOICE("precision", GenerateConfig, precision, "TYPE", precision_choices),
     .shown = "fp32; bf16 on GPUs", .help = "Precision of weights, KV cache and computation."},
    {OPT_CHOICE("kv", GenerateConfig, kv, "TYPE", kv_choices), .shown = "same as --precision",
     .help = "Precision of the KV cache. On CPUs, relative to fp32, bf16 takes half the memory and int8 "
             "slightly more than a quarter."},
    {OPT_CHOICE("device", GenerateConfig, device, "NAME", device_choices), .fallback = "cpu",
     .help = "Device: cpu, or cuda for the first NVIDIA GPU."},
    {OPT_CHOICE("kernels", GenerateConfig, kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels: the device's own, or the plain CPU reference implementation (ref)."},
    {OPT_INT("threads", GenerateConfig, threads), RANGE(1, 4096), .fallback = "0", .per_rank = PER_RANK_ANY,
     .shown = "OMP_NUM_THREADS, else all cores", .help = "CPU threads per rank."},
    {OPT_INT("cp", GenerateConfig, cp), RANGE(1, 1 << 16), .fallback = "1",
     .help = "Context parallelism: ranks that divide the KV cache, and prompts, by positions. Each has all weights; "
             "for contexts that one host's memory cannot hold, and to process long prompts faster."},
};
/* clang-format on */

/* Of several ranks, one prints. */
static bool prints(const Invocation *call) {
    return launch_log(call) != NULL;
}

/* ---- prompts ---- */

static Status add_prompt(PromptList *list, Encoder *encoder, const char *text) {
    if (strcmp(text, "-") == 0) return prompt_list_add_file(list, encoder, text);
    return prompt_list_add_text(list, encoder, text, strlen(text));
}

static Status collect_prompts(PromptList *list, const GenerateConfig *config, const Tokenizer *tokenizer) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    if (tokenizer) TRY(encoder_new(&encoder, tokenizer, NULL));
    list->no_special = !config->add_special;
    for (int i = 0; i < config->prompts_count; i++) TRY(add_prompt(list, encoder, config->prompts[i]));
    for (int i = 0; i < config->files_count; i++) TRY(prompt_list_add_file(list, encoder, config->files[i]));
    for (int i = 0; i < config->ids_count; i++) TRY(prompt_list_add_ids(list, config->ids[i]));
    for (int i = 0; i < config->lines_count; i++) TRY(prompt_list_add_lines(list, encoder, config->lines[i]));
    if (config->lines_count && list->used == 0) return USAGE("%s has no prompts", config->lines[0]);
    return OK;
}

/* If no option needs text, an unusable tokenizer is not an error: tokens are then shown as ids. */
static Status find_tokenizer(const Invocation *call, const GenerateConfig *config, const char *dir,
                             const ModelConfig *model, Tokenizer **ret_tokenizer) {
    bool text = config->interactive || config->prompts_count + config->files_count + config->stops_count > 0;
    CLEANUP(status_freep) Status status = text_tokenizer(dir, model, config->tokenizer, ret_tokenizer);
    if (status && !config->tokenizer && !text) {
        if (prints(call))
            fprintf(stderr, "weft: warning: %s; tokens are shown as ids\n", status_message(status));
        return OK;
    }
    if (!status && !*ret_tokenizer && text)
        return USAGE("%s has no tokenizer, and its vocabulary of %lld tokens is not byte-level; name a "
                     "tokenizer with --tokenizer, or give tokens with --prompt-ids",
                     config->model, (long long)model->vocab);
    Status failed = status;
    status = NULL;
    return failed;
}

/* ---- the command ---- */

/* Without an option, max_length counts each prompt by itself, so others do not matter. (In transformers, the
 * padding of a batch counts, too.) A conversation has a fixed number of tokens per turn. */
static void set_length(GenerateSpec *spec, const GenerateConfig *config, const PromptList *list) {
    int64_t first = list->used ? list->count[0] : 0;
    if (spec->max_tokens) return;
    if (!config->max_length)
        spec->max_tokens = DEFAULT_TOKENS;
    else if (config->interactive)
        spec->max_tokens = config->max_length > first ? config->max_length - first : 1;
    else
        spec->max_length = config->max_length;
}

static void warn_long_prompts(const GenerateSpec *spec, const ModelConfig *model, int64_t samples) {
    for (int64_t i = 0; i < spec->count; i += samples) {
        int64_t count = spec->prompts[i].count, start = window_start(spec, model, count);
        if (start > 0)
            fprintf(
                stderr,
                "weft: warning: prompt %lld has %lld tokens, more than the context of %lld; the model sees "
                "only the last %lld\n",
                (long long)(i / samples + 1), (long long)count, (long long)config_context(model),
                (long long)(count - start));
    }
}

static GenerateSpec make_spec(const GenerateConfig *config, const PromptList *list, const ModelConfig *model,
                              const TokenBias *biases) {
    GenerateSpec spec = {
        .prompts = list->prompts,
        .count = (int64_t)list->used * config->samples,
        .max_tokens = config->max_tokens,
        .shift = config->shift,
        .end_token = config->ignore_end ? -1 : model->eos_token,
        .more_ends = model->eos_more,
        .more_end_count = config->ignore_end ? 0 : model->eos_more_count,
        .batch = config->batch,
        .logprobs = config->logprobs,
        .top_logprobs = config->top_logprobs,
        .sampling = {.temperature = config->greedy ? 0 : config->temperature,
                     .top_k = config->top_k,
                     .top_p = config->top_p,
                     .min_p = config->min_p,
                     .typical_p = config->typical_p,
                     .seed = config->seed},
        .rules = {.repetition_penalty = config->repetition_penalty,
                  .no_repeat_ngram = config->no_repeat_ngram,
                  .biases = biases,
                  .bias_count = config->biases_count},
        .beam = {.beams = config->beams,
                 .returned = config->samples,
                 .length_penalty = config->length_penalty,
                 .early_stopping = early_stopping_of(config->early_stopping)},
    };
    set_length(&spec, config, list);
    return spec;
}

/* Whether standard input is a file or a pipe with data that nothing reads. */
static bool input_waits(void) {
    struct pollfd poll_for = {.fd = STDIN_FILENO, .events = POLLIN};
    struct stat st;
    if (fstat(STDIN_FILENO, &st) != 0) return false;
    if (S_ISREG(st.st_mode)) return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    bool pipe = S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode);
    return pipe && poll(&poll_for, 1, 0) == 1 && poll_for.revents & POLLIN;
}

/* Input that never ends must not be waited for, so it is a prompt only on request. */
static void warn_input(const GenerateConfig *config, const PromptList *list) {
    if (list->stdin_used || config->interactive || !input_waits()) return;
    fprintf(stderr, "weft: warning: standard input is not read; use --prompt - to continue its text\n");
}

static void warn_unused(const LoadReport *report, const char *model) {
    if (!report->unexpected_count) return;
    fprintf(stderr, "weft: warning: %s: ignored %zu tensor%s that the model does not use, such as %s\n",
            model, report->unexpected_count, PLURAL(report->unexpected_count), report->unexpected[0]);
}

static Status apply_generation_config(const Invocation *call, GenerateConfig *config, const char *dir) {
    CLEANUP(mem_freep) char *warning = NULL;
    TRY(generation_config_apply(call, config, dir, &warning));
    TRY(generate_options_check(call, config));
    if (warning && prints(call)) fprintf(stderr, "weft: warning: %s\n", warning);
    return OK;
}

static bool streams(const Invocation *call, const GenerateConfig *config, size_t sequences) {
    return config->stream && !call->json && sequences == 1 && prints(call);
}

/* Prints the samples of --prompts as JSON lines instead of one object. */
static Status print_lines(json_t **result) {
    CLEANUP(json_decrefp) json_t *all = *result;
    *result = NULL;
    result_show_speed(all, stderr);
    return result_print_lines(all, stdout);
}

/* Continues all prompts at once. */
static Status run_prompts(const Invocation *call, Engine *engine, GenerateSpec spec,
                          const Tokenizer *tokenizer, const StopStrings *stops, json_t **ret_result) {
    const GenerateConfig *config = call->config;
    CLEANUP(writing_done)
    Writing writing = {.tokenizer = tokenizer,
                       .prompts = spec.prompts,
                       .stops = stops,
                       .skip_special = config->skip_special,
                       .count = spec.count,
                       .streams = streams(call, config, (size_t)spec.count),
                       .printer = printer_of(stdout)};
    TRY(writing_init(&writing));
    spec.sink = writing_take, spec.context = &writing;
    CLEANUP(generated_freep) Generated *generated = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    if (!writing.streams) TRY(progress_new_phase(&progress, launch_log(call), "generating", 0, false));
    Status status = generate(engine, &spec, &generated);
    if (!status) status = writing_end(&writing);
    if (writing.streams) print_end(&writing.printer);
    progress_end(progress);
    TRY(status);
    const ResultSpec result = {.generated = generated,
                               .texts = writing.texts,
                               .tokenizer = tokenizer,
                               .engine = engine,
                               .samples = config->samples,
                               .top_logprobs = config->top_logprobs,
                               .scored = config->beams > 1};
    TRY(result_pack(&result, ret_result));
    return call->json && config->lines_count && prints(call) ? print_lines(ret_result) : OK;
}

static Status run_chat(const GenerateConfig *config, Engine *engine, const GenerateSpec *spec,
                       const Tokenizer *tokenizer, const StopStrings *stops, bool prompted) {
    return chat_run(&(ChatSpec){.engine = engine,
                                .tokenizer = tokenizer,
                                .stops = stops,
                                .generate = spec,
                                .first = prompted ? spec->prompts : NULL,
                                .add_special = config->add_special,
                                .skip_special = config->skip_special});
}

static Status run(Invocation *call, void *options, json_t **ret_result) {
    GenerateConfig *config = options;
    const StopStrings stops = {config->stops, config->stops_count};
    Precision precision = {0};
    bool here;
    TRY(generate_enter(call, config, &here));
    if (!here) return OK;
    TRY(kernels_precision(config->device, config->precision, &precision));
    TRY(stop_strings_check(&stops));
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(prompt_list_done) PromptList list = {0};
    CLEANUP(mem_freep) TokenBias *biases = NULL;
    ModelConfig model;
    TRY(engine_find(config->model, &dir, &model));
    if (config->rope_scaling) TRY(rope_extend(config->rope_scaling, &model));
    TRY(apply_generation_config(call, config, dir.path));
    TRY(find_tokenizer(call, config, dir.path, &model, &tokenizer));
    TRY(collect_prompts(&list, config, tokenizer));
    size_t prompts = list.used;
    if (config->interactive && prompts > 1) return USAGE("--interactive starts from at most one prompt");
    TRY(prompt_list_finish(&list, &model, tokenizer, config->samples));
    TRY(token_biases_parse(config->biases, config->biases_count, tokenizer, model.vocab, &biases));
    GenerateSpec spec = make_spec(config, &list, &model, biases);
    if (stops.count) spec.beam.check = writing_check_stop;
    if (prints(call)) warn_long_prompts(&spec, &model, config->samples);
    CLEANUP(engine_freep) Engine *engine = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(progress_new_phase(&progress, launch_log(call), "loading model", 0, false));
    TRY(engine_new(&engine, config->model,
                   &(EngineOptions){.device = config->device,
                                    .kernels = config->kernels,
                                    .threads = (int)config->threads,
                                    .dtype = precision.dtype,
                                    .rope_scaling = config->rope_scaling,
                                    .cache = config->kv,
                                    .cp = call->world}));
    progress_end(progress);
    TRY(device_check_precision(engine->device, precision.name));
    engine->device->advice = "a smaller {batch} or {max-tokens}, or {kv} int8";
    device_allow_tf32(engine->device, precision.tf32);
    if (prints(call)) warn_unused(&engine->report, config->model);
    if (prints(call)) warn_input(config, &list);
    if (config->interactive) return run_chat(config, engine, &spec, tokenizer, &stops, prompts > 0);
    return run_prompts(call, engine, spec, tokenizer, &stops, ret_result);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const GenerateConfig *config = call->config;
    if (!streams(call, config, json_array_size(json_object_get(result, "samples"))))
        result_show(result, config->samples, out);
    fflush(out);
    result_show_speed(result, stderr);
    return OK;
}

const Command command_generate = {
    .name = "generate",
    .summary = "continue prompts with a language model",
    .description =
        "Continues each prompt token by token until an end token (from generation_config.json or "
        "config.json), a --stop text, or --max-tokens. A single continuation is streamed as it is "
        "generated.\n"
        "Text may grow past the model's context. Whenever the context is full, its first --window-shift "
        "tokens "
        "are dropped and the rest is processed again, so the model always sees the last tokens. A prompt "
        "longer than the context is shortened in the same way, with a warning.\n"
        "The tokenizer is loaded from the model's directory or from --tokenizer. Models trained without "
        "one use bytes as tokens. If no tokenizer is available, prompts and results are token ids. A "
        "vocabulary may be padded beyond the tokenizer's; the extra tokens have no text.\n"
        "generation_config.json changes the defaults of sampling, penalties, beams and lengths, as in "
        "transformers: do_sample, temperature, top_k, top_p, min_p, typical_p, repetition_penalty, "
        "no_repeat_ngram_size, num_beams, length_penalty, early_stopping, num_return_sequences, "
        "max_new_tokens and max_length. Other fields that would change the text are errors.\n"
        "Logits are changed and filtered in transformers' order: biases, repetition penalty, n-grams, "
        "temperature, top-k, top-p, min-p, typical-p. The last five apply to sampling only.\n"
        "With --json, a sample's 'index' is that of its prompt, from 0, and 'reason' says why it ended: end, "
        "stop or "
        "length. Text cut off by --stop is omitted from 'text', but its tokens are listed.\n"
        "A sample depends only on the seed, its prompt and its index among the samples of that prompt, not "
        "on other prompts or the number of samples.",
    .positional = POSITIONAL("model", "prompt"),
    .config_size = sizeof(GenerateConfig),
    .groups =
        GROUPS(OPTION_GROUP("Prompts", prompt_options, 0), OPTION_GROUP("Sampling", sampling_options, 0),
               OPTION_GROUP("Changing logits", rule_options, 0), OPTION_GROUP("Beam search", beam_options, 0),
               OPTION_GROUP("Execution", run_options, 0)),
    .examples =
        {{"Continue a text with a trained model", "weft generate runs/first 'int main('"},
         {"Four samples, more conservative",
          "weft generate --model runs/first --prompt 'The ' --samples 4 --temperature 0.8 --top-k 40"},
         {"Continue a file by one line",
          "weft generate --model runs/first --prompt-file start.txt --stop $'\\n'"},
         {"The three best continuations of a beam search",
          "weft generate --model gpt2/ --prompt 'The ' --beams 5 --samples 3 --no-repeat-ngram 3"},
         {"Write together with the model, line by line", "weft generate -i --model runs/first"},
         {"Continue every line of a file, with the log probability of each new token",
          "weft generate --model gpt2/ --prompts lines.txt --greedy --logprobs --json > results.jsonl"},
         {"Most likely continuation of token ids, as JSON",
          "weft generate --model gpt2/ --prompt-ids 464,3290 --greedy --max-tokens 20 --json"}},
    .run = run,
    .show = show,
};
