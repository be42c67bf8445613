/* Reading other tools' configuration keys with the tables of keys.h. A value of null or "auto" leaves the
 * option to another key or to its default, as in transformers. A section that is not enabled needs no support
 * and is skipped. */
#include "cli/keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/format.h"
#include "base/memory.h"
#include "cli/train_options.h"

enum { NAMES_SHOWN = 8 };

static const KeyTable *const tables[] = {&deepspeed_keys, &huggingface_keys};

Status key_must_be(const Invocation *call, const char *path, const char *expected) {
    return USAGE("%s: %s: expected %s", call->config_path, path, expected);
}

Status key_set_text(Invocation *call, const char *option, const char *path, const char *text) {
    CLEANUP(json_decrefp) json_t *value = json_string(text);
    if (!value) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, option, path, value);
}

Status key_set_number(Invocation *call, const char *option, const char *path, double number) {
    CLEANUP(json_decrefp) json_t *value = json_real(number);
    if (!value) return FAILED("out of memory while reading %s", call->config_path);
    return configfile_set(call, option, path, value);
}

Status key_set_word(Invocation *call, const Key *key, const json_t *value, char ret_ours[KEY_WORD]) {
    const char *text = json_string_value(value), *at = key->words;
    size_t size = text ? strlen(text) : 0;
    for (; text && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, "=") == size && !(key->any_case ? strncasecmp : strncmp)(at, text, size)) {
            at += size + 1;
            snprintf(ret_ours, KEY_WORD, "%.*s", (int)strcspn(at, " "), at);
            return key_set_text(call, key->option, key->path, ret_ours);
        }
    return key_must_be(call, key->path, key->expects);
}

Status key_take_optimizer(Invocation *call, const Key *key, json_t *value) {
    char ours[KEY_WORD];
    TRY(key_set_word(call, key, value, ours));
    const json_t *file = json_object_get(call->file, "optimizer") ? call->file : call->included;
    const json_t *params = json_object_get(json_object_get(file, "optimizer"), "params");
    bool named = strchr(key->path, '.') && json_object_get(params, "momentum");
    if (strcmp(ours, "sgd") || named || !invocation_slot(call, "momentum")) return OK;
    return key_set_number(call, "momentum", key->path, 0);
}

Status key_take_min_ratio(Invocation *call, const Key *key, json_t *value) {
    double ratio = json_number_value(value);
    if (!json_is_number(value) || !(ratio >= 0 && ratio <= 1))
        return key_must_be(call, key->path, "a number from 0 to 1");
    call->min_lr_ratio = ratio;
    return OK;
}

/* ---- values ---- */

static bool is_unset(const json_t *value) {
    const char *text = json_string_value(value);
    return json_is_null(value) || (text && strcasecmp(text, "auto") == 0);
}

/* Whether a value turns a feature off: false, 0, "none", an empty or disabled section. */
static bool is_off(const json_t *value) {
    static const char *const words[] = {"", "none", "no", "false"};
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < COUNT_OF(words); i++)
        if (strcasecmp(text, words[i]) == 0) return true;
    if (json_is_number(value)) return json_number_value(value) == 0;
    if (json_is_array(value)) return json_array_size(value) == 0;
    if (!json_is_object(value)) return json_is_null(value) || json_is_false(value);
    const json_t *enabled = json_object_get(value, "enabled"), *member;
    if (enabled) return json_is_false(enabled);
    if ((member = json_object_get(value, "shared_parameters"))) return is_off(member);
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)value, name, member) if (!is_off(member)) return false;
    return true;
}

static bool is_disabled(const json_t *value) {
    return json_is_object(value) && json_is_false(json_object_get(value, "enabled"));
}

static bool is_only(const json_t *value, const char *only) {
    if (!strcmp(only, "true")) return json_is_true(value);
    return json_is_number(value) && json_number_value(value) == strtod(only, NULL);
}

Status key_unused(Invocation *call, const char *path, const json_t *value) {
    if (is_unset(value) || is_off(value)) return OK;
    if (!call->unused_keys) call->unused_keys = json_array();
    if (json_array_append_new(call->unused_keys, json_string(path)))
        return FAILED("out of memory while reading %s", call->config_path);
    return OK;
}

/* ---- the tables ---- */

static const Key *find_key(const KeyTable *table, const char *path) {
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->keys[i].path, path) == 0) return &table->keys[i];
    return NULL;
}

static bool is_unused(const KeyTable *table, const char *path) {
    const char *const *name = table->unused;
    while (*name && strcmp(*name, path)) name++;
    return *name;
}

static bool is_inside(const char *path, const char *section, size_t length) {
    return strncmp(path, section, length) == 0 && path[length] == '.';
}

static bool is_section(const KeyTable *table, const char *path) {
    size_t length = strlen(path);
    for (size_t i = 0; i < table->count; i++)
        if (is_inside(table->keys[i].path, path, length)) return true;
    for (const char *const *name = table->unused; *name; name++)
        if (is_inside(*name, path, length)) return true;
    return false;
}

/* Both tools have the keys fp16 and bf16: sections in DeepSpeed, flags in transformers. */
static const KeyTable *table_of(const char *key, const json_t *value) {
    for (size_t i = 0; i < COUNT_OF(tables); i++) {
        bool section =
            is_section(tables[i], key) && !(json_is_boolean(value) && find_key(&huggingface_keys, key));
        if (section || find_key(tables[i], key) || is_unused(tables[i], key)) return tables[i];
    }
    return NULL;
}

static Status take_path(Invocation *call, const KeyTable *table, const char *path, json_t *value);

static Status take_section(Invocation *call, const KeyTable *table, const char *path, json_t *section) {
    if (is_unset(section)) return OK;
    if (!json_is_object(section)) return USAGE("%s: %s: expected an object", call->config_path, path);
    const char *member;
    json_t *value;
    json_object_foreach(section, member, value) {
        CLEANUP(mem_freep) char *inner = NULL;
        TRY(str_format(&inner, "%s.%s", path, member));
        TRY(take_path(call, table, inner, value));
    }
    return OK;
}

static Status take_path(Invocation *call, const KeyTable *table, const char *path, json_t *value) {
    const Key *key = find_key(table, path);
    if (is_unused(table, path)) return key_unused(call, path, value);
    if (!key && is_disabled(value)) return OK;
    if (!key && is_section(table, path)) return take_section(call, table, path, value);
    if (!key) return configfile_note_unknown(call, path);
    if (is_unset(value)) return OK;
    if (key->option && !invocation_slot(call, key->option)) return OK; /* this command has no such option */
    if (key->off)
        return is_off(value) ? OK : USAGE("%s: %s: not supported: %s", call->config_path, path, key->off);
    if (key->only) return is_only(value, key->only) ? OK : key_must_be(call, path, key->expects);
    if (key->if_true && !json_is_boolean(value)) return key_must_be(call, path, "true or false");
    if (key->if_true)
        return json_is_true(value) ? key_set_text(call, key->option, key->path, key->if_true) : OK;
    char ours[KEY_WORD];
    if (key->take) return key->take(call, key, value);
    return key->words ? key_set_word(call, key, value, ours)
                      : configfile_set(call, key->option, key->path, value);
}

Status keys_take(Invocation *call, const char *key, json_t *value, bool *ret_taken) {
    const KeyTable *table = table_of(key, value);
    *ret_taken = table || (is_disabled(value) && !invocation_slot(call, key));
    return table ? take_path(call, table, key, value) : OK;
}

Status keys_take_in(Invocation *call, const KeyTable *table, json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) TRY(take_path(call, table, key, value));
    return OK;
}

bool keys_have(const char *key) {
    return table_of(key, NULL);
}

Status keys_refuse_option(const Invocation *call, const char *typed) {
    char key[64];
    snprintf(key, sizeof key, "%s", typed + strspn(typed, "-"));
    for (char *at = key; *at; at++)
        if (*at == '-') *at = '_';
    const KeyTable *table = table_of(key, NULL);
    const Key *row = table ? find_key(table, key) : NULL;
    const char *command = call->command->name;
    if (!table) return OK;
    const char *tool = table == &huggingface_keys ? "transformers" : "DeepSpeed";
    if (row && row->off)
        return USAGE("weft %s has no %s, an option of %s: %s", command, typed, tool, row->off);
    if (row && row->option && invocation_slot(call, row->option))
        return USAGE("weft %s has no %s; use --%s, or a file with %s' key %s (--config)", command, typed,
                     row->option, tool, key);
    if (is_unused(table, key))
        return USAGE("weft %s has no %s, an option of %s that would have no effect; remove it", command,
                     typed, tool);
    return USAGE("weft %s has no %s; it is a key of %s configuration files, which --config reads", command,
                 typed, tool);
}

void keys_offer(Suggestion *suggestion) {
    for (size_t t = 0; t < COUNT_OF(tables); t++) {
        for (size_t i = 0; i < tables[t]->count; i++) suggest_offer(suggestion, tables[t]->keys[i].path);
        for (const char *const *name = tables[t]->unused; *name; name++) suggest_offer(suggestion, *name);
    }
}

Status keys_finish(Invocation *call) {
    TRY(huggingface_finish(call));
    char list[1024];
    size_t count = json_array_size(call->unused_keys), used = 0;
    if (!count) return OK;
    size_t shown = count > NAMES_SHOWN + 1 ? NAMES_SHOWN : count;
    for (size_t i = 0; i < shown && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 !i               ? ""
                                 : i + 1 == count ? " and "
                                                  : ", ",
                                 json_string_value(json_array_get(call->unused_keys, i)));
    if (shown < count && used < sizeof list)
        snprintf(list + used, sizeof list - used, " and %zu more", count - shown);
    return invocation_warn(call, "%s: %zu key%s no effect in weft: %s", call->config_path, count,
                           count == 1 ? " has" : "s have", list);
}

/* ---- options that follow from others ---- */

/* batch = micro-batch x accumulation x replicas. Computes whichever of the first three is missing. On the
 * command line, batch and micro-batch override the file's accumulation. */
static Status settle_batch(Invocation *call, Slot *batch, Slot *micro) {
    bool has_batch = batch->source != SOURCE_DEFAULT, has_micro = micro->source != SOURCE_DEFAULT;
    int64_t *B = batch->field, *M = micro->field, accumulation = call->accumulation;
    int64_t replicas = layout_replicas(call);
    if (accumulation && !has_batch && !has_micro && *B)
        return USAGE("%s: gradient_accumulation_steps requires train_batch_size or "
                     "train_micro_batch_size_per_gpu",
                     call->config_path);
    if (accumulation && batch->source == SOURCE_FILE && micro->source == SOURCE_FILE) {
        if (*B != *M * accumulation * replicas)
            return USAGE(
                "%s: batch is %lld, but micro-batch %lld x accumulation %lld x %lld replica%s is %lld",
                call->config_path, (long long)*B, (long long)*M, (long long)accumulation, (long long)replicas,
                PLURAL(replicas), (long long)(*M * accumulation * replicas));
        return OK;
    }
    if (!has_batch && has_micro && (accumulation || *B)) {
        *B = *M * (accumulation ? accumulation : 1) * replicas;
        if ((double)*M * (double)(accumulation ? accumulation : 1) * (double)replicas > batch->option->high)
            return USAGE(
                "%s: micro-batch %lld x accumulation %lld x %lld replica%s exceeds the maximum batch "
                "of %.0f",
                call->config_path ? call->config_path : "--micro-batch", (long long)*M,
                (long long)accumulation, (long long)replicas, PLURAL(replicas), batch->option->high);
    }
    if (accumulation && has_batch && !has_micro) {
        if (*B % (accumulation * replicas) != 0)
            return USAGE(
                "%s: gradient_accumulation_steps %lld x %lld replica%s must divide the batch of %lld",
                call->config_path, (long long)accumulation, (long long)replicas, PLURAL(replicas),
                (long long)*B);
        *M = *B / (accumulation * replicas);
    }
    return OK;
}

/* Of --warmup and --warmup-ratio, the one on the command line overrides the file's. */
static void settle_warmup(Invocation *call) {
    Slot *steps = invocation_slot(call, "warmup"), *ratio = invocation_slot(call, "warmup-ratio");
    if (!steps || !ratio) return;
    if (ratio->source > steps->source) *(int64_t *)steps->field = -1;
    if (steps->source > ratio->source) *(double *)ratio->field = 0;
}

Status keys_settle(Invocation *call) {
    settle_warmup(call);
    if (!call->command->other_keys) return OK;
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
