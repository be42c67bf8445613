/* The parts of `weft generate`. */
#ifndef WEFT_CLI_GENERATE_H
#define WEFT_CLI_GENERATE_H

#include <stdio.h>

#include "base/json.h"
#include "chat/template.h"
#include "cli/command.h"
#include "infer/generate.h"
#include "infer/prompt.h"
#include "infer/text.h"

/* ---- the configuration, and the model's generation_config.json, which changes its defaults ---- */

typedef struct GenerateConfig {
    const char *model, *tokenizer, *chat_template, *system;
    const char **prompts, **files, **lines, **ids, **stops, **biases, **messages, **adapters;
    int prompts_count, files_count, lines_count, ids_count, stops_count, biases_count, messages_count,
        adapters_count;
    int64_t samples, max_tokens, shift, top_k, batch, threads, no_repeat_ngram, beams, top_logprobs, cp;
    double temperature, top_p, min_p, typical_p, repetition_penalty, length_penalty;
    uint64_t seed;
    bool interactive, chat, greedy, stream, logprobs, ignore_end, add_special, skip_special,
        generation_config;
    const char *device, *kernels, *precision, *kv, *early_stopping, *rope_scaling;
    int64_t max_length; /* of generation_config.json: prompt and new tokens; 0: not set */
} GenerateConfig;

/* Sets options that were not given to the values in generation_config.json of the checkpoint `dir` or,
 * without that file, in config.json, as transformers does. Fails for a setting that changes the chosen tokens
 * and that weft does not support. *ret_warning, freed by the caller, names fields that were ignored; NULL if
 * there are none. */
MUST_USE Status generation_config_apply(const Invocation *call, GenerateConfig *config, const char *dir,
                                        char **ret_warning);
/* Fails if options that were given contradict each other. */
MUST_USE Status generate_options_check(const Invocation *call, const GenerateConfig *config);
/* "false", "true" or "never" */
EarlyStopping early_stopping_of(const char *text);

/* ---- several ranks ---- */

/* With --cp: joins the ranks and divides the cores among them. If the ranks have yet to be started, runs this
 * command line on them instead, and *ret_here is false. */
MUST_USE Status generate_enter(Invocation *call, GenerateConfig *config, bool *ret_here);
/* Whether `out` is a terminal, also if it is that of the process which started the ranks. */
bool generate_to_terminal(FILE *out);

/* ---- decoding and printing tokens as they are sampled ---- */

/* Each sequence has a TextStream, because a stop text may end the sequence. */

/* Prints a continuation piece by piece: text, or ids without a tokenizer. */
typedef struct Printer {
    FILE *out;
    bool terminal, started;
    size_t printed; /* bytes of the text printed so far */
} Printer;

Printer printer_of(FILE *out);
/* Prints what is new in `text`. */
void print_text(Printer *printer, const char *text, size_t size);
void print_number(Printer *printer, int32_t token);
/* Ends the line, if anything was printed. */
void print_end(const Printer *printer);

typedef struct Writing {
    const Tokenizer *tokenizer; /* NULL: print ids */
    const Prompt *prompts;
    const StopStrings *stops;
    TextStream *texts; /* one per sequence; NULL without a tokenizer */
    int64_t count;
    bool streams, skip_special;
    Printer printer;
} Writing;

/* Call after setting the other fields. */
MUST_USE Status writing_init(Writing *writing);
void writing_done(Writing *writing);
/* A TokenSink and a StopCheck; the context is the Writing. */
MUST_USE Status writing_take(void *context, int64_t prompt, int32_t token, bool *ret_stop);
MUST_USE Status writing_check_stop(void *context, const int32_t *ids, int64_t prompt_count, int64_t count,
                                   bool *ret_stop);
/* Completes all texts. */
MUST_USE Status writing_end(Writing *writing);

/* ---- the result: JSON, or text for people ---- */

typedef struct ResultSpec {
    const Generated *generated;
    const TextStream *texts; /* one per sequence; NULL: no tokenizer */
    const Tokenizer *tokenizer;
    const Engine *engine;
    int64_t samples, top_logprobs; /* samples: sequences per prompt */
    bool scored;                   /* samples have a score */
} ResultSpec;

/* One object; the caller releases it. */
MUST_USE Status result_pack(const ResultSpec *spec, json_t **ret_result);
/* The samples as JSON lines. */
MUST_USE Status result_print_lines(const json_t *result, FILE *out);
/* The texts, with headings if there are several; `samples` per prompt. `fresh`: without the prompts. */
void result_show(const json_t *result, int64_t samples, bool fresh, FILE *out);
void result_show_speed(const json_t *result, FILE *out);

/* ---- --chat and --messages: prompts by the model's chat template ---- */

/* The template that options name, or that of the tokenizer or the model in `dir`. */
MUST_USE Status chat_load(const GenerateConfig *config, const char *dir, ChatTemplate **ret_template);
/* A conversation with a system message (NULL: without). NULL: out of memory. */
json_t *chat_new(const char *system);
/* Adds a message. */
MUST_USE Status chat_say(json_t *conversation, const char *role, const char *text, size_t size);
/* The conversations of a file: JSON lines, an array, a single object or a list of messages. Each must end
 * with a message to answer. The caller releases *ret_list. */
MUST_USE Status chat_read_file(const char *file, json_t **ret_list);
/* The text up to where the assistant's turn begins; the caller frees it. */
MUST_USE Status chat_prompt_text(const ChatTemplate *template, const json_t *conversation, char **ret_text,
                                 size_t *ret_size);

/* What ends the assistant's turn. */
typedef struct ChatEnd {
    int64_t token; /* -1: no token does */
    char *text;    /* between its words and the token or, without one, what ends it; NULL: nothing. The caller
                    * frees it */
} ChatEnd;
MUST_USE Status chat_find_end(const ChatTemplate *template, const Tokenizer *tokenizer, ChatEnd *ret_end);

/* ---- --interactive: each line is a prompt that continues the text so far, or with --chat a message ---- */

typedef struct ChatSpec {
    Engine *engine;
    const Tokenizer *tokenizer;
    const StopStrings *stops;
    const GenerateSpec *generate; /* prompts, sink and context are set for each line */
    const Prompt *first;          /* continued before the first line is read; NULL: none */
    const ChatTemplate *template; /* with --chat; NULL: lines continue the text */
    const json_t *conversation;   /* with --chat: what was said before */
    const char *before_end; /* with --chat: text at the end of answers that is not theirs; may be NULL */
    bool answer;            /* with --chat: answer it before the first line is read */
    bool add_special, skip_special;
} ChatSpec;

/* Reads lines from standard input until it ends (Ctrl-D). Ctrl-C stops a generation, or clears the line. An
 * empty line continues where the text stopped; /new starts over. With --chat, lines are messages, and what
 * the model has processed of a conversation is not processed again. */
MUST_USE Status chat_run(const ChatSpec *spec);

#endif
