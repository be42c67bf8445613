/* Defaults of `weft train` that depend on the device.
 *
 * They apply only without --model and --config: a model that was asked for keeps its own sequence length, and
 * a configuration file means the same on every device. The run's config.json records the values, so --resume
 * does not depend on this table.
 *
 * The validation before the first step is limited with --model too, because it affects nothing else. */
#include <string.h>

#include "cli/train_options.h"

typedef struct DeviceDefault {
    const char *option;
    const char *instead; /* an option that replaces it; NULL: none does */
    int64_t value;
} DeviceDefault;

/* A step takes less than a second on two cores, the run a few minutes. */
static const DeviceDefault cpu_defaults[] = {
    {"seq", NULL, 256},
    {"steps", "epochs", 500},
    {"eval-batches", "eval-samples", 4},
};

/* About 5 s on two Neoverse-N1 cores. */
static const double first_eval_flops = 3e11;

void train_defaults(const Invocation *call, Settings *config, char ret_text[DEFAULTS_TEXT]) {
    size_t used = 0;
    ret_text[0] = 0;
    if (call->file || strcmp(config->device.name, "cpu")) return;
    if (!invocation_given(call, "eval-batches") && !invocation_given(call, "eval-samples"))
        config->validation.first_flops = first_eval_flops;
    if (invocation_given(call, "model")) return;
    for (size_t i = 0; i < COUNT_OF(cpu_defaults); i++) {
        const DeviceDefault *it = &cpu_defaults[i];
        if (invocation_given(call, it->option) || (it->instead && invocation_given(call, it->instead)))
            continue;
        *(int64_t *)invocation_slot(call, it->option)->field = it->value;
        int length = snprintf(ret_text + used, DEFAULTS_TEXT - used, "%s --%s %lld",
                              used ? "" : "defaults for a CPU:", it->option, (long long)it->value);
        used += length > 0 && (size_t)length < DEFAULTS_TEXT - used ? (size_t)length : 0;
    }
}
