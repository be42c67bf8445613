#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "compress/quantize.h"

/* Each level in a directory of its own. */
static Status make_both(const QuantizeConfig *config, json_t *made) {
    static const char *const bits[] = {"8", "4"};
    TRY(hf_save_check(config->out));
    TRY(dir_make(config->out));
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(mem_freep) char *dir = NULL;
        QuantizeConfig level = *config;
        json_t *one = NULL;
        TRY(str_format(&dir, "%s/int%s", config->out, bits[i]));
        level.bits = bits[i];
        level.out = dir;
        TRY(quantize_run(&level, &one));
        if (json_array_append_new(made, one)) return FAILED("out of memory");
    }
    return OK;
}

/* Nothing is left behind after a failure. */
static Status make_levels(const QuantizeConfig *config, json_t *made, json_t **ret_result) {
    if (!config->bits || strcmp(config->bits, "8,4")) {
        TRY(quantize_run(config, ret_result));
        return json_array_append(made, *ret_result) ? FAILED("out of memory") : OK;
    }
    bool there = path_exists(config->out);
    Status status = make_both(config, made);
    if (status && (!there || json_array_size(made))) status_free(dir_remove(config->out));
    TRY(status);
    *ret_result = json_pack("{s:s, s:O}", "out", config->out, "levels", made);
    return *ret_result ? OK : FAILED("out of memory");
}

static Status evaluate(const QuantizeSpec *spec, const json_t *made, json_t *result) {
    CLEANUP(mem_freep) char *file = NULL;
    CLEANUP(json_decrefp) json_t *evaluation = NULL;
    TRY(quantize_evaluate(spec, made, &evaluation));
    if (json_object_set(result, "evaluation", evaluation) ||
        (spec->study && json_object_set(result, "study", (json_t *)(uintptr_t)spec->study)))
        return FAILED("out of memory");
    TRY(path_join(&file, spec->config.out, "quantization.json"));
    return json_write_file(file, result);
}

Status quantize_levels(const QuantizeSpec *spec, json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *result = NULL, *made = json_array();
    if (spec->evaluate_count) TRY(quantize_evaluate_check(spec));
    TRY(make_levels(&spec->config, made, &result));
    if (spec->evaluate_count) {
        Status status = evaluate(spec, made, result);
        if (status) return status_wrap(status, "%s was written, but not evaluated", spec->config.out);
    }
    *ret_result = json_incref(result);
    return OK;
}
