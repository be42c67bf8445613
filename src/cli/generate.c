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

enum {
    DEFAULT_TOKENS = 128,
    CHAT_TOKENS = 1024,
    SAMPLES_LIMIT = 1 << 20,
    BEAMS_LIMIT = 1 << 10,
    TOP_LIMIT = 1000
};

/* clang-format off */
static const Option prompt_options[] = {
    {OPT_TEXT("model", GenerateConfig, model, "DIR"), .required = true, .per_rank = PER_RANK_PATH,
     .help = "Directory of a language model's checkpoint (of any family but BERT), run directory (its newest "
             "checkpoint), or GGUF file."},
    {OPT_LIST("adapter", GenerateConfig, adapters, "DIR"), .one_each = true, .per_rank = PER_RANK_PATH, .shown = "none",
     .help = "Merge a PEFT adapter, or the newest of a run with --lora, into the weights; several are added up."},
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
    {OPT_FLAG("chat", GenerateConfig, chat),
     .help = "Take prompts as messages to an assistant: the model's chat template makes text of them, and the answer "
             "ends with the assistant's turn. With -i, a conversation, which /save writes to a file."},
    {OPT_LIST("messages", GenerateConfig, messages, "FILE"), .one_each = true, .per_rank = PER_RANK_PATH,
     .help = "File with conversations to answer, in the formats of 'weft train', or a JSON list of messages; - is "
             "standard input. Implies --chat; with -i, the one to continue."},
    {OPT_TEXT("system", GenerateConfig, system, "TEXT"), .shown = "the template's own",
     .help = "With --chat, the system message."},
    {OPT_TEXT("chat-template", GenerateConfig, chat_template, "FILE"), .per_rank = PER_RANK_PATH,
     .shown = "the model's own", .help = "With --chat, the Jinja template."},
    {OPT_FLAG("add-special-tokens", GenerateConfig, add_special), .fallback = "on",
     .help = "Do not add the special tokens of the tokenizer's post-processor to text prompts."},
};

static const Option sampling_options[] = {
    {OPT_INT("max-tokens", GenerateConfig, max_tokens), RANGE(1, INT32_MAX), .fallback = "0",
     .shown = "128; with --chat 1024", .help = "Maximum number of new tokens. They may exceed the model's context."},
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

/* Adds the text of a conversation, which has its special tokens. */
static Status add_conversation(PromptList *list, Encoder *encoder, const ChatTemplate *template,
                               const json_t *conversation) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(chat_prompt_text(template, conversation, &text, &size));
    list->no_special = true;
    return prompt_list_add_text(list, encoder, text, size);
}

static Status add_message(PromptList *list, Encoder *encoder, const GenerateConfig *config,
                          const ChatTemplate *template, const char *text, size_t size) {
    CLEANUP(json_decrefp) json_t *conversation = chat_new(config->system);
    if (!conversation) return FAILED("out of memory while adding a prompt");
    TRY(chat_say(conversation, "user", text, size));
    return add_conversation(list, encoder, template, conversation);
}

/* With --chat, texts are messages, each in a conversation of its own. */
static Status collect_chats(PromptList *list, const GenerateConfig *config, const Tokenizer *tokenizer,
                            const ChatTemplate *template) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    TRY(encoder_new(&encoder, tokenizer, NULL));
    for (int i = 0; i < config->prompts_count + config->files_count; i++) {
        bool file = i >= config->prompts_count;
        const char *given = file ? config->files[i - config->prompts_count] : config->prompts[i];
        CLEANUP(mem_freep) char *text = NULL;
        size_t size = strlen(given);
        bool reads = file || !strcmp(given, "-");
        if (reads) TRY(prompt_read(given, &text, &size));
        TRY(add_message(list, encoder, config, template, reads ? text : given, size));
    }
    for (int i = 0; i < config->messages_count; i++) {
        CLEANUP(json_decrefp) json_t *chats = NULL;
        TRY(chat_read_file(config->messages[i], &chats));
        for (size_t k = 0; k < json_array_size(chats); k++)
            TRY(add_conversation(list, encoder, template, json_array_get(chats, k)));
    }
    if (!list->used) return USAGE("--chat needs a message: pass --prompt or --messages, or -i to type it");
    return OK;
}

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
    bool text = config->interactive || config->chat ||
                config->prompts_count + config->files_count + config->stops_count > 0;
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
        spec->max_tokens = config->chat ? CHAT_TOKENS : DEFAULT_TOKENS;
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
    if (config->chat) writing.printer.printed = writing.texts->prompt_size;
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

/* What a chat adds to a generation: its template, and the ends of turns. */
typedef struct Chatting {
    ChatTemplate *template;
    ChatEnd end;
    int64_t *ends;
    const char **stops;
} Chatting;

static void chatting_done(Chatting *chatting) {
    chat_template_free(chatting->template);
    free(chatting->end.text);
    free(chatting->ends);
    free(chatting->stops);
}

static Status chatting_init(Chatting *chatting, const GenerateConfig *config, const char *dir,
                            const Tokenizer *tokenizer) {
    if (config->lines_count + config->ids_count)
        return USAGE("--chat takes messages by --prompt, --prompt-file and --messages, not by %s",
                     config->lines_count ? "--prompts" : "--prompt-ids");
    TRY(chat_load(config, dir, &chatting->template));
    return chat_find_end(chatting->template, tokenizer, &chatting->end);
}

/* Adds the end of a turn to the ends of text. */
static Status add_ends(Chatting *chatting, GenerateSpec *spec, StopStrings *stops) {
    const ChatEnd *end = &chatting->end;
    size_t ends = (size_t)spec->more_end_count, texts = (size_t)stops->count;
    if (end->token >= 0) {
        TRY(mem_new(ends + 1, sizeof *chatting->ends, &chatting->ends));
        if (ends) memcpy(chatting->ends, spec->more_ends, ends * sizeof *chatting->ends);
        chatting->ends[spec->more_end_count++] = end->token;
        spec->more_ends = chatting->ends;
    }
    if (end->token < 0 && end->text) {
        TRY(mem_new(texts + 1, sizeof *chatting->stops, &chatting->stops));
        if (texts) memcpy(chatting->stops, stops->texts, texts * sizeof *chatting->stops);
        chatting->stops[stops->count++] = end->text;
        stops->texts = chatting->stops;
    }
    return OK;
}

/* The conversation that an interactive chat begins with. */
static Status begin_conversation(const GenerateConfig *config, json_t **ret_conversation) {
    CLEANUP(json_decrefp) json_t *chats = NULL;
    if (config->messages_count + config->prompts_count + config->files_count > 1 || config->files_count)
        return USAGE(
            "--interactive --chat begins with at most one --prompt or one conversation of --messages");
    if (config->messages_count) {
        TRY(chat_read_file(config->messages[0], &chats));
        if (json_array_size(chats) > 1)
            return USAGE("%s has %zu conversations; --interactive continues one", config->messages[0],
                         json_array_size(chats));
        *ret_conversation = json_incref(json_array_get(chats, 0));
        return OK;
    }
    *ret_conversation = chat_new(config->system);
    if (!*ret_conversation) return FAILED("out of memory while beginning a conversation");
    const char *first = config->prompts_count ? config->prompts[0] : NULL;
    return first ? chat_say(*ret_conversation, "user", first, strlen(first)) : OK;
}

static Status run_chat(const GenerateConfig *config, Engine *engine, const GenerateSpec *spec,
                       const Tokenizer *tokenizer, const StopStrings *stops, const Chatting *chatting,
                       bool prompted) {
    CLEANUP(json_decrefp) json_t *conversation = NULL;
    if (config->chat) TRY(begin_conversation(config, &conversation));
    return chat_run(&(ChatSpec){.engine = engine,
                                .tokenizer = tokenizer,
                                .stops = stops,
                                .generate = spec,
                                .template = chatting->template,
                                .before_end = chatting->end.text,
                                .conversation = conversation,
                                .answer = config->messages_count + config->prompts_count > 0,
                                .first = prompted ? spec->prompts : NULL,
                                .add_special = config->add_special,
                                .skip_special = config->skip_special});
}

static Status run(Invocation *call, void *options, json_t **ret_result) {
    GenerateConfig *config = options;
    StopStrings stops = {config->stops, config->stops_count};
    config->chat |= config->messages_count > 0;
    Precision precision = {0};
    bool here;
    TRY(generate_enter(call, config, &here));
    if (!here) return OK;
    TRY(kernels_precision(config->device, config->precision, &precision));
    TRY(stop_strings_check(&stops));
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(prompt_list_done) PromptList list = {0};
    CLEANUP(chatting_done) Chatting chatting = {0};
    CLEANUP(mem_freep) TokenBias *biases = NULL;
    ModelConfig model;
    TRY(engine_find(config->model, &dir, &model));
    if (config->rope_scaling) TRY(rope_extend(config->rope_scaling, &model));
    TRY(apply_generation_config(call, config, dir.path));
    TRY(find_tokenizer(call, config, dir.path, &model, &tokenizer));
    if (config->chat) TRY(chatting_init(&chatting, config, dir.path, tokenizer));
    if (config->chat && !config->interactive)
        TRY(collect_chats(&list, config, tokenizer, chatting.template));
    else if (!config->chat)
        TRY(collect_prompts(&list, config, tokenizer));
    size_t prompts = list.used;
    if (config->interactive && prompts > 1) return USAGE("--interactive starts from at most one prompt");
    if (!config->chat || !config->interactive)
        TRY(prompt_list_finish(&list, &model, tokenizer, config->samples));
    TRY(token_biases_parse(config->biases, config->biases_count, tokenizer, model.vocab, &biases));
    GenerateSpec spec = make_spec(config, &list, &model, biases);
    if (config->chat && !config->ignore_end) TRY(add_ends(&chatting, &spec, &stops));
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
                                    .adapters = config->adapters,
                                    .adapter_count = config->adapters_count,
                                    .cache = config->kv,
                                    .cp = call->world}));
    progress_end(progress);
    TRY(device_check_precision(engine->device, precision.name));
    engine->device->advice = "a smaller {batch} or {max-tokens}, or {kv} int8";
    device_allow_tf32(engine->device, precision.tf32);
    if (prints(call)) warn_unused(&engine->report, config->model);
    if (prints(call)) warn_input(config, &list);
    if (config->interactive)
        return run_chat(config, engine, &spec, tokenizer, &stops, &chatting, prompts > 0);
    return run_prompts(call, engine, spec, tokenizer, &stops, ret_result);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const GenerateConfig *config = call->config;
    if (!streams(call, config, json_array_size(json_object_get(result, "samples"))))
        result_show(result, config->samples, config->chat, out);
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
         {"Talk to an assistant", "weft generate -i --chat --model qwen/ --system 'Be brief.'"},
         {"Continue every line of a file, with the log probability of each new token",
          "weft generate --model gpt2/ --prompts lines.txt --greedy --logprobs --json > results.jsonl"},
         {"Most likely continuation of token ids, as JSON",
          "weft generate --model gpt2/ --prompt-ids 464,3290 --greedy --max-tokens 20 --json"}},
    .run = run,
    .show = show,
};
