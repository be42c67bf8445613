/* The parts of `weft generate`. */
#ifndef WEFT_CLI_GENERATE_H
#define WEFT_CLI_GENERATE_H

#include <stdio.h>

#include "base/json.h"
#include "cli/command.h"
#include "infer/generate.h"
#include "infer/prompt.h"
#include "infer/text.h"

/* ---- the configuration, and the model's generation_config.json, which changes its defaults ---- */

typedef struct GenerateConfig {
    const char *model, *tokenizer;
    const char **prompts, **files, **lines, **ids, **stops, **biases;
    int prompts_count, files_count, lines_count, ids_count, stops_count, biases_count;
    int64_t samples, max_tokens, shift, top_k, batch, threads, no_repeat_ngram, beams, top_logprobs, cp;
    double temperature, top_p, min_p, typical_p, repetition_penalty, length_penalty;
    uint64_t seed;
    bool interactive, greedy, stream, logprobs, ignore_end, add_special, skip_special, generation_config;
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
/* The texts, with headings if there are several; `samples` per prompt. */
void result_show(const json_t *result, int64_t samples, FILE *out);
void result_show_speed(const json_t *result, FILE *out);

/* ---- --interactive: each line is a prompt that continues the text so far ---- */

typedef struct ChatSpec {
    Engine *engine;
    const Tokenizer *tokenizer;
    const StopStrings *stops;
    const GenerateSpec *generate; /* prompts, sink and context are set for each line */
    const Prompt *first;          /* continued before the first line is read; NULL: none */
    bool add_special, skip_special;
} ChatSpec;

/* Reads lines from standard input until it ends (Ctrl-D). Ctrl-C stops a generation, or clears the line. An
 * empty line continues where the text stopped; /new starts over. */
MUST_USE Status chat_run(const ChatSpec *spec);

#endif
