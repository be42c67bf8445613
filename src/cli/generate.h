/* The configuration of `weft generate`, and the model's generation_config.json, which changes its defaults.
 */
#ifndef WEFT_CLI_GENERATE_H
#define WEFT_CLI_GENERATE_H

#include "cli/command.h"
#include "infer/generate.h"

typedef struct GenerateConfig {
    const char *model, *tokenizer;
    const char **prompts, **files, **lines, **ids, **stops, **biases;
    int prompts_count, files_count, lines_count, ids_count, stops_count, biases_count;
    int64_t samples, max_tokens, shift, top_k, batch, threads, no_repeat_ngram, beams, top_logprobs;
    double temperature, top_p, min_p, typical_p, repetition_penalty, length_penalty;
    uint64_t seed;
    bool interactive, greedy, stream, logprobs, ignore_end, add_special, skip_special, generation_config;
    const char *device, *kernels, *precision, *kv, *early_stopping;
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

#endif
