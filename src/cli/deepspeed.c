/* DeepSpeed's configuration keys, for features that weft also has.
 *
 * The table lists every key by its dotted path: with the option it sets, with a function if the mapping is
 * not direct, or with neither for keys that tune DeepSpeed without changing results, which are ignored. A
 * value of "auto" means the default. Settings that weft cannot honor are errors; they are never ignored.
 */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "cli/configfile.h"

typedef struct Key Key;
struct Key {
    const char *path;
    const char *option; /* NULL and no `take`: accepted and ignored */
    Status (*take)(Invocation *call, const Key *key, json_t *value);
};

static Status must_be(const Invocation *call, const Key *key, const char *expected) {
    return USAGE("%s: %s: expected %s", call->config_path, key->path, expected);
}

static Status take_accumulation(Invocation *call, const Key *key, json_t *value) {
    json_int_t steps = json_integer_value(value);
    if (steps < 1 || steps > INT32_MAX) return must_be(call, key, "an integer >= 1");
    call->accumulation = steps;
    return OK;
}

static Status take_optimizer(Invocation *call, const Key *key, json_t *value) {
    const char *type = json_string_value(value);
    if (type && (strcasecmp(type, "AdamW") == 0 || strcasecmp(type, "Adam") == 0)) return OK;
    return must_be(call, key, "AdamW or Adam (both mean AdamW here)");
}

static Status take_betas(Invocation *call, const Key *key, json_t *value) {
    if (json_array_size(value) != 2) return must_be(call, key, "an array of two numbers");
    TRY(configfile_set(call, "beta1", key->path, json_array_get(value, 0)));
    return configfile_set(call, "beta2", key->path, json_array_get(value, 1));
}

static Status take_decoupled(Invocation *call, const Key *key, json_t *value) {
    return json_is_true(value) ? OK
                               : must_be(call, key, "true: weft only has decoupled weight decay (AdamW)");
}

static Status take_zero(Invocation *call, const Key *key, json_t *value) {
    bool zero = json_is_number(value) && json_number_value(value) == 0;
    return zero ? OK : must_be(call, key, "0: weft's warm-up starts from zero");
}

static Status take_scheduler(Invocation *call, const Key *key, json_t *value) {
    static const struct {
        const char *name, *schedule;
        bool log_warmup; /* default of warmup_type */
    } types[] = {{"WarmupLR", "constant", true},
                 {"WarmupDecayLR", "linear", true},
                 {"WarmupCosineLR", "cosine", false}};
    const char *type = json_string_value(value);
    for (size_t i = 0; type && i < COUNT_OF(types); i++) {
        if (strcasecmp(type, types[i].name) != 0) continue;
        call->log_warmup = types[i].log_warmup;
        CLEANUP(json_decrefp) json_t *schedule = json_string(types[i].schedule);
        if (!schedule) return FAILED("out of memory while reading %s", call->config_path);
        return configfile_set(call, key->option, key->path, schedule);
    }
    return must_be(call, key, "WarmupLR, WarmupDecayLR or WarmupCosineLR");
}

static Status take_min_ratio(Invocation *call, const Key *key, json_t *value) {
    double ratio = json_number_value(value);
    if (!json_is_number(value) || !(ratio >= 0 && ratio <= 1))
        return must_be(call, key, "a number from 0 to 1");
    call->min_lr_ratio = ratio;
    return OK;
}

/* fp16.enabled and bf16.enabled: the name of the section is the precision. */
static Status take_precision(Invocation *call, const Key *key, json_t *value) {
    if (!json_is_boolean(value)) return must_be(call, key, "true or false");
    if (json_is_false(value)) return OK;
    CLEANUP(json_decrefp) json_t *name = json_stringn(key->path, strcspn(key->path, "."));
    if (!name) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, key->option, key->path, name);
}

static Status take_scale_power(Invocation *call, const Key *key, json_t *value) {
    json_int_t power = json_integer_value(value);
    if (!json_is_integer(value) || power < 0 || power > 24)
        return must_be(call, key, "an integer from 0 to 24");
    CLEANUP(json_decrefp) json_t *scale = json_real((double)((int64_t)1 << power));
    if (!scale) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, key->option, key->path, scale);
}

static Status take_dynamic(Invocation *call, const Key *key, json_t *value) {
    bool zero = json_is_number(value) && json_number_value(value) == 0;
    return zero ? OK : must_be(call, key, "0: weft only has dynamic loss scaling");
}

static Status take_offload(Invocation *call, const Key *key, json_t *value) {
    const char *device = json_string_value(value);
    if (device && strcmp(device, "none") == 0) return OK;
    if (!device || strcmp(device, "cpu") != 0) return must_be(call, key, "\"none\" or \"cpu\"");
    CLEANUP(json_decrefp) json_t *what = json_string(strstr(key->path, "param") ? "params" : "optimizer");
    if (!what) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, key->option, key->path, what);
}

static const Key keys[] = {
    {"train_batch_size", "batch", NULL},
    {"train_micro_batch_size_per_gpu", "micro-batch", NULL},
    {"gradient_accumulation_steps", NULL, take_accumulation},
    {"gradient_clipping", "clip", NULL},
    {"steps_per_print", NULL, NULL},
    {"wall_clock_breakdown", NULL, NULL},
    {"zero_allow_untested_optimizer", NULL, NULL},
    {"zero_optimization.stage", "zero", NULL},
    {"zero_optimization.offload_optimizer.device", "offload", take_offload},
    {"zero_optimization.offload_optimizer.pin_memory", NULL, NULL},
    {"zero_optimization.offload_param.device", "offload", take_offload},
    {"zero_optimization.offload_param.pin_memory", NULL, NULL},
    {"zero_optimization.allgather_partitions", NULL, NULL},
    {"zero_optimization.allgather_bucket_size", NULL, NULL},
    {"zero_optimization.overlap_comm", NULL, NULL},
    {"zero_optimization.reduce_scatter", NULL, NULL},
    {"zero_optimization.reduce_bucket_size", NULL, NULL},
    {"zero_optimization.contiguous_gradients", NULL, NULL},
    {"zero_optimization.round_robin_gradients", NULL, NULL},
    {"zero_optimization.sub_group_size", NULL, NULL},
    {"zero_optimization.stage3_prefetch_bucket_size", NULL, NULL},
    {"zero_optimization.stage3_param_persistence_threshold", NULL, NULL},
    {"zero_optimization.stage3_max_live_parameters", NULL, NULL},
    {"zero_optimization.stage3_max_reuse_distance", NULL, NULL},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", NULL, NULL},
    {"fp16.enabled", "precision", take_precision},
    {"fp16.auto_cast", NULL, NULL},
    {"fp16.loss_scale", NULL, take_dynamic},
    {"fp16.loss_scale_window", "loss-scale-steps", NULL},
    {"fp16.initial_scale_power", "loss-scale", take_scale_power},
    {"fp16.hysteresis", NULL, NULL},
    {"fp16.consecutive_hysteresis", NULL, NULL},
    {"fp16.min_loss_scale", NULL, NULL},
    {"bf16.enabled", "precision", take_precision},
    {"optimizer.type", NULL, take_optimizer},
    {"optimizer.params.lr", "lr", NULL},
    {"optimizer.params.betas", "beta1", take_betas},
    {"optimizer.params.eps", "eps", NULL},
    {"optimizer.params.weight_decay", "weight-decay", NULL},
    {"optimizer.params.adam_w_mode", NULL, take_decoupled},
    {"optimizer.params.torch_adam", NULL, NULL},
    {"scheduler.type", "schedule", take_scheduler},
    {"scheduler.params.warmup_min_lr", NULL, take_zero},
    {"scheduler.params.warmup_min_ratio", NULL, take_zero},
    {"scheduler.params.warmup_max_lr", "lr", NULL},
    {"scheduler.params.warmup_num_steps", "warmup", NULL},
    {"scheduler.params.warmup_type", "warmup-type", NULL},
    {"scheduler.params.total_num_steps", "steps", NULL},
    {"scheduler.params.cos_min_ratio", NULL, take_min_ratio},
};

static const Key *find_key(const char *path) {
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (strcmp(keys[i].path, path) == 0) return &keys[i];
    return NULL;
}

static bool is_section(const char *path) {
    size_t length = strlen(path);
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (strncmp(keys[i].path, path, length) == 0 && keys[i].path[length] == '.') return true;
    return false;
}

static Status take_path(Invocation *call, const char *path, json_t *value);

static Status take_section(Invocation *call, const char *path, json_t *section) {
    if (!json_is_object(section)) return USAGE("%s: %s: expected an object", call->config_path, path);
    const char *member;
    json_t *value;
    json_object_foreach(section, member, value) {
        CLEANUP(mem_freep) char *inner = NULL;
        TRY(str_format(&inner, "%s.%s", path, member));
        TRY(take_path(call, inner, value));
    }
    return OK;
}

static Status take_path(Invocation *call, const char *path, json_t *value) {
    const Key *key = find_key(path);
    if (!key) return is_section(path) ? take_section(call, path, value) : configfile_unknown(call, path);
    const char *text = json_string_value(value);
    if (json_is_null(value) || (text && strcmp(text, "auto") == 0)) return OK;
    if (key->option && !invocation_slot(call, key->option)) return OK; /* this command has no such option */
    if (key->take) return key->take(call, key, value);
    if (!key->option) return OK;
    return configfile_set(call, key->option, key->path, value);
}

Status deepspeed_take(Invocation *call, const char *key, json_t *value, bool *ret_taken) {
    if (!find_key(key) && !is_section(key)) return OK;
    TRY(take_path(call, key, value));
    *ret_taken = true;
    return OK;
}

bool deepspeed_has_key(const char *key) {
    size_t length = strlen(key);
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (!strncmp(keys[i].path, key, length) && strchr(".", keys[i].path[length])) return true;
    return false;
}

void deepspeed_offer(Suggestion *suggestion) {
    for (size_t i = 0; i < COUNT_OF(keys); i++) suggest_offer(suggestion, keys[i].path);
}

/* batch = micro-batch x accumulation, for one rank. Computes whichever of the three is missing. On the
 * command line, batch and micro-batch override the file's accumulation. */
static Status settle_batch(Invocation *call, Slot *batch, Slot *micro) {
    bool has_batch = batch->source != SOURCE_DEFAULT, has_micro = micro->source != SOURCE_DEFAULT;
    int64_t *B = batch->field, *M = micro->field, accumulation = call->accumulation;
    char name[LABEL_SIZE];
    if (accumulation && !has_batch && !has_micro)
        return USAGE("%s: gradient_accumulation_steps requires train_batch_size or "
                     "train_micro_batch_size_per_gpu",
                     call->config_path);
    if (accumulation && batch->source == SOURCE_FILE && micro->source == SOURCE_FILE) {
        if (*B != *M * accumulation)
            return USAGE("%s: batch is %lld, but micro-batch %lld x accumulation %lld x 1 rank is %lld",
                         call->config_path, (long long)*B, (long long)*M, (long long)accumulation,
                         (long long)(*M * accumulation));
        return OK;
    }
    if (!has_batch && has_micro) {
        *B = *M * (accumulation ? accumulation : 1);
        if ((double)*B > batch->option->high)
            return USAGE("%s: micro-batch %lld x accumulation %lld exceeds the maximum batch of %.0f",
                         call->config_path, (long long)*M, (long long)accumulation, batch->option->high);
    }
    if (accumulation && has_batch && !has_micro) {
        if (*B % accumulation != 0)
            return USAGE("%s: gradient_accumulation_steps %lld must divide the batch of %lld",
                         call->config_path, (long long)accumulation, (long long)*B);
        *M = *B / accumulation;
    }
    if (*M > 0 && *B % *M != 0)
        return USAGE("%s %lld: must divide the batch of %lld", invocation_label(call, "micro-batch", name),
                     (long long)*M, (long long)*B);
    return OK;
}

Status deepspeed_settle(Invocation *call) {
    if (!call->command->deepspeed) return OK;
    Slot *batch = invocation_slot(call, "batch"), *micro = invocation_slot(call, "micro-batch");
    if (batch && micro) TRY(settle_batch(call, batch, micro));
    Slot *type = invocation_slot(call, "warmup-type");
    if (type && call->log_warmup && type->source == SOURCE_DEFAULT)
        TRY(option_set_text(type->option, type->field, "warmup_type", "log"));
    Slot *lr = invocation_slot(call, "lr"), *min_lr = invocation_slot(call, "min-lr");
    if (lr && min_lr && call->min_lr_ratio > 0 && min_lr->source == SOURCE_DEFAULT)
        *(double *)min_lr->field = *(double *)lr->field * call->min_lr_ratio;
    return OK;
}
