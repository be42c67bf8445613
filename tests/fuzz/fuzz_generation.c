/* Fuzzes generation_config.json: the settings of an accepted file are in range for generating. */
#include <math.h>

#include "base/memory.h"
#include "cli/generate.h"
#include "dir.h"

static void check(const Invocation *call, const GenerateConfig *config) {
    fuzz_require(isfinite(config->temperature) && config->temperature >= 0);
    fuzz_require(config->top_k >= 0 && config->top_p > 0 && config->top_p <= 1);
    fuzz_require(config->min_p >= 0 && config->min_p <= 1 && config->typical_p > 0 && config->typical_p <= 1);
    fuzz_require(config->repetition_penalty > 0 && isfinite(config->length_penalty));
    fuzz_require(config->samples >= 1 && config->beams >= 1 && config->max_tokens >= 0);
    fuzz_require(config->no_repeat_ngram >= 0 && config->max_length >= 0 && config->early_stopping);
    (void)early_stopping_of(config->early_stopping);
    (void)fuzz_succeeded(generate_options_check(call, config));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    CLEANUP(invocation_freep) Invocation *call = NULL;
    CLEANUP(mem_freep) char *warning = NULL;
    char model[] = "--model", dir[64], prompt[] = "--prompt", text[] = "a";
    snprintf(dir, sizeof dir, "%s", fuzz_dir_path());
    fuzz_dir_fill(names, sizeof names / sizeof *names, data, size);
    char *argv[] = {model, dir, prompt, text};
    fuzz_require(fuzz_succeeded(invocation_new(&call, &command_generate, 4, argv)));
    GenerateConfig *config = call->config;
    config->generation_config = true;
    if (fuzz_succeeded(generation_config_apply(call, config, dir, &warning))) check(call, config);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"do_sample\":true,\"temperature\":0.7,\"top_k\":50,\"top_p\":0.9,\"min_p\":0.1,\"typical_p\":0.5,"
        "\"repetition_penalty\":1.5,\"no_repeat_ngram_size\":2,\"num_return_sequences\":2,\"max_new_tokens\":"
        "9,"
        "\"eos_token_id\":[1,2],\"transformers_version\":\"4.40.0\"}",
        "{\"num_beams\":3,\"length_penalty\":2,\"early_stopping\":\"never\",\"max_length\":40,\"bad\":1}",
        "{\"early_stopping\":true,\"do_sample\":false,\"temperature\":null,\"diversity_penalty\":0.0}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
