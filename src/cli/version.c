/* weft version. */
#include "cli/command.h"

static Status run(Invocation *call, void *config, json_t **ret_result) {
    (void)call;
    (void)config;
    json_t *result = json_pack("{ss ss}", "name", "weft", "version", WEFT_VERSION);
    if (!result) return FAILED("out of memory while writing the result");
    *ret_result = result;
    return OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    fprintf(out, "weft %s\n", json_string_at(result, "version"));
    return OK;
}

const Command command_version = {
    .name = "version",
    .summary = "show the version",
    .run = run,
    .show = show,
};
