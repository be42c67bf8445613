/* generation_config.json for `weft generate`. A supported field sets the default of an option, is
 * accepted only with a value without effect, or never affects the tokens. Other fields, which transformers
 * ignores too, are reported.
 */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/generate.h"

/* Fields that set an option. */
static const struct {
    const char *key, *option;
} settings[] = {
    {"temperature", "temperature"},
    {"top_k", "top-k"},
    {"top_p", "top-p"},
    {"min_p", "min-p"},
    {"typical_p", "typical-p"},
    {"repetition_penalty", "repetition-penalty"},
    {"no_repeat_ngram_size", "no-repeat-ngram"},
    {"num_beams", "beams"},
    {"length_penalty", "length-penalty"},
    {"num_return_sequences", "samples"},
    {"max_new_tokens", "max-tokens"},
};

/* When a field changes tokens. */
typedef enum { ALWAYS, IF_SAMPLING, IF_BEAMS } When;

/* Unsupported fields, with the value that has no effect; null and absent fields have none either. */
static const struct {
    const char *key, *neutral;
    When when;
} unsupported[] = {
    {"sequence_bias", "", ALWAYS},
    {"bad_words_ids", "", ALWAYS},
    {"suppress_tokens", "", ALWAYS},
    {"begin_suppress_tokens", "", ALWAYS},
    {"forced_bos_token_id", "", ALWAYS},
    {"forced_eos_token_id", "", ALWAYS},
    {"exponential_decay_length_penalty", "", ALWAYS},
    {"min_length", "0", ALWAYS},
    {"min_new_tokens", "0", ALWAYS},
    {"encoder_repetition_penalty", "1", ALWAYS},
    {"encoder_no_repeat_ngram_size", "0", ALWAYS},
    {"guidance_scale", "1", ALWAYS},
    {"watermarking_config", "", ALWAYS},
    {"token_healing", "false", ALWAYS},
    {"stop_strings", "", ALWAYS},
    {"penalty_alpha", "0", ALWAYS},
    {"dola_layers", "", ALWAYS},
    {"constraints", "", ALWAYS},
    {"force_words_ids", "", ALWAYS},
    {"num_beam_groups", "1", IF_BEAMS},
    {"diversity_penalty", "0", IF_BEAMS},
    {"renormalize_logits", "false", IF_BEAMS},
    {"top_h", "", IF_SAMPLING},
    {"epsilon_cutoff", "0", IF_SAMPLING},
    {"eta_cutoff", "0", IF_SAMPLING},
};

/* Fields that are read elsewhere, or never change tokens: caches, compilation, speculative decoding, what
 * transformers returns. */
/* clang-format off */
static const char *const neutral[] = {
    "do_sample", "early_stopping", "max_length", "bos_token_id", "eos_token_id", "pad_token_id",
    "decoder_start_token_id", "transformers_version", "_from_model_config", "_commit_hash", "use_cache",
    "cache_implementation", "cache_config", "max_cache_len", "return_legacy_cache", "prefill_chunk_size",
    "low_memory", "remove_invalid_values", "output_attentions", "output_hidden_states", "output_scores",
    "output_logits", "return_dict_in_generate", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "compile_config", "disable_compile",
    "continuous_batching_config",
};
/* clang-format on */

static bool samples_asked(const Invocation *call) {
    return invocation_given(call, "temperature") || invocation_given(call, "top-k") ||
           invocation_given(call, "top-p") || invocation_given(call, "min-p") ||
           invocation_given(call, "typical-p");
}

static Status set_option(const Invocation *call, const char *name, const char *path, const char *key,
                         const json_t *value) {
    char label[LABEL_SIZE];
    Slot *slot = invocation_slot(call, name);
    snprintf(label, sizeof label, "%s: %s", path, key);
    return option_set_json(slot->option, slot->field, label, value);
}

static const json_t *field(const json_t *json, const char *key) {
    const json_t *value = json_object_get(json, key);
    return json_is_null(value) ? NULL : value;
}

/* true, false or "never" */
static Status read_early_stopping(const Invocation *call, const json_t *json, const char *path) {
    const json_t *value = field(json, "early_stopping");
    if (!value || invocation_given(call, "early-stopping")) return OK;
    CLEANUP(json_decrefp)
    json_t *text = json_is_boolean(value) ? json_string(json_is_true(value) ? "true" : "false") : NULL;
    return set_option(call, "early-stopping", path, "early_stopping", text ? text : value);
}

/* Options take precedence: --greedy and sampling options over num_beams, these and --beams over do_sample. */
static Status choose_method(const Invocation *call, GenerateConfig *config, const json_t *json,
                            const char *path) {
    bool sample = false, set = field(json, "do_sample") != NULL;
    TRY(json_get_bool(json, path, "do_sample", &sample));
    bool greedy = invocation_given(call, "greedy"), beams = invocation_given(call, "beams");
    bool asked = samples_asked(call);
    if (!beams && (greedy || asked)) config->beams = 1;
    if (config->beams > 1 && sample && !beams)
        return FAILED("%s: 'do_sample' with 'num_beams' above 1 (beam sampling) is not supported; choose "
                      "--beams N for beam search or --beams 1 for sampling",
                      path);
    if (set && !sample && !greedy && !asked) config->greedy = true;
    /* transformers' default when it samples */
    enum { SAMPLING_TOP_K = 50 };
    if (sample && !field(json, "top_k") && !invocation_given(call, "top-k")) config->top_k = SAMPLING_TOP_K;
    return OK;
}

static Status read_settings(const Invocation *call, GenerateConfig *config, const json_t *json,
                            const char *path) {
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        const json_t *value = field(json, settings[i].key);
        if (!value || invocation_given(call, settings[i].option)) continue;
        TRY(set_option(call, settings[i].option, path, settings[i].key, value));
    }
    TRY(read_early_stopping(call, json, path));
    if (!invocation_given(call, "max-tokens") && !field(json, "max_new_tokens"))
        TRY(json_get_int(json, path, "max_length", 0, INT32_MAX, &config->max_length));
    return choose_method(call, config, json, path);
}

static bool has_no_effect(const json_t *value, const char *no_effect) {
    if (!value || json_is_null(value)) return true;
    if (json_is_array(value) || json_is_object(value))
        return json_array_size(value) + json_object_size(value) == 0;
    if (json_is_boolean(value)) return !json_is_true(value);
    return *no_effect && json_is_number(value) && json_number_value(value) == strtod(no_effect, NULL);
}

static Status refuse_unsupported(const GenerateConfig *config, const json_t *json, const char *path) {
    bool beams = config->beams > 1, sampling = !beams && !config->greedy && config->temperature > 0;
    for (size_t i = 0; i < COUNT_OF(unsupported); i++) {
        const json_t *value = json_object_get(json, unsupported[i].key);
        When when = unsupported[i].when;
        if ((when == IF_BEAMS && !beams) || (when == IF_SAMPLING && !sampling)) continue;
        if (has_no_effect(value, unsupported[i].neutral)) continue;
        return FAILED("%s: '%s' is not supported and would change the text; remove it, or ignore the file's "
                      "settings with --no-generation-config",
                      path, unsupported[i].key);
    }
    return OK;
}

static bool known(const char *key) {
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(settings); i++) found |= !strcmp(key, settings[i].key);
    for (size_t i = 0; i < COUNT_OF(unsupported); i++) found |= !strcmp(key, unsupported[i].key);
    for (size_t i = 0; i < COUNT_OF(neutral); i++) found |= !strcmp(key, neutral[i]);
    return found;
}

static Status warn_unknown(const json_t *json, const char *path, char **ret_warning) {
    const char *key;
    const json_t *value;
    CLEANUP(mem_freep) char *names = NULL;
    json_object_foreach((json_t *)json, key, value) {
        if (json_is_null(value) || known(key)) continue;
        char *longer = NULL;
        TRY(names ? str_format(&longer, "%s, %s", names, key) : str_dup(key, &longer));
        free(names);
        names = longer;
    }
    return names ? str_format(ret_warning, "%s: ignored %s", path, names) : OK;
}

Status generation_config_apply(const Invocation *call, GenerateConfig *config, const char *dir,
                               char **ret_warning) {
    if (!config->generation_config) return OK;
    CLEANUP(mem_freep) char *path = NULL, *model = NULL;
    TRY(path_join(&path, dir, "generation_config.json"));
    TRY(path_join(&model, dir, "config.json"));
    bool own = path_exists(path);
    const char *from = own ? path : model;
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_read_file(from, &json));
    if (!json_is_object(json)) return FAILED("%s: expected a JSON object", from);
    TRY(read_settings(call, config, json, from));
    TRY(refuse_unsupported(config, json, from));
    return own ? warn_unknown(json, from, ret_warning) : OK;
}

/* ---- options ---- */

Status generate_options_check(const Invocation *call, const GenerateConfig *config) {
    if (config->greedy && invocation_given(call, "temperature") && config->temperature > 0)
        return USAGE("--greedy cannot be combined with --temperature %g; use one or the other",
                     config->temperature);
    static const char *const sampling[] = {"temperature", "top-k", "top-p", "min-p", "typical-p"};
    static const char *const beam[] = {"length-penalty", "early-stopping"};
    bool warm = config->temperature > 0 || !invocation_given(call, "temperature");
    for (size_t i = 0; i < COUNT_OF(sampling) && config->beams > 1 && warm; i++)
        if (invocation_given(call, sampling[i]))
            return USAGE("--beams cannot be combined with --%s: beam search does not sample", sampling[i]);
    for (size_t i = 0; i < COUNT_OF(beam) && config->beams < 2; i++)
        if (invocation_given(call, beam[i])) return USAGE("--%s needs --beams 2 or more", beam[i]);
    if (config->interactive && call->json) return USAGE("--interactive cannot be combined with --json");
    if (config->interactive && config->samples > 1)
        return USAGE("--interactive generates one continuation at a time; remove --samples");
    if (config->logprobs && !call->json) return USAGE("--logprobs needs --json");
    if (config->top_logprobs && !config->logprobs) return USAGE("--top-logprobs needs --logprobs");
    if (config->logprobs && config->beams > 1)
        return USAGE("--logprobs cannot be combined with --beams; --json lists each sample's score instead");
    if (config->beams > 1 && config->samples > config->beams)
        return USAGE("--samples %lld needs --beams %lld or more; --beams is %lld", (long long)config->samples,
                     (long long)config->samples, (long long)config->beams);
    return OK;
}

EarlyStopping early_stopping_of(const char *text) {
    return !strcmp(text, "true") ? EARLY_TRUE : !strcmp(text, "never") ? EARLY_NEVER : EARLY_FALSE;
}
