/* A configuration file is a JSON object whose keys are option names, with '-' or '_'. Flags are true or
 * false, lists are arrays of strings or a single string. Commands that train also accept other tools' keys
 * (keys.h). Unknown keys are errors, because silently ignoring a setting would be worse.
 *
 * Recipes (compare/recipe.h) are configuration files, too. */
#include "cli/invocation.h"

#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/foreign.h"
#include "cli/keys.h"
#include "compare/recipe.h"

static Status read_object(const char *path, json_t **ret_object) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(file_read(path, CONFIG_LIMIT, &text, &size));
    CLEANUP(json_decrefp) json_t *json = NULL;
    CLEANUP(status_freep) Status parsed = json_parse(text, size, path, &json);
    if (parsed) return USAGE("%s", status_message(parsed));
    if (!json_is_object(json)) return USAGE("%s: expected a JSON object with options", path);
    *ret_object = json;
    json = NULL;
    return OK;
}

static Status set_list(Slot *slot, const char *label, const json_t *value) {
    if (json_is_string(value)) return slot_append(slot, label, json_string_value(value));
    if (!json_is_array(value)) return USAGE("%s: expected a string or an array of strings", label);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        if (!json_is_string(entry)) return USAGE("%s: entry %zu is not a string", label, i + 1);
        TRY(slot_append(slot, label, json_string_value(entry)));
    }
    return OK;
}

static bool agree(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static const char *nearest_key(const Invocation *call, const char *key) {
    Suggestion near = {.word = key};
    for (size_t i = 0; i < call->slot_count; i++)
        if (!call->slots[i].line_only) suggest_offer(&near, call->slots[i].option->name);
    if (call->command->other_keys) keys_offer(&near);
    return near.best;
}

Status configfile_unknown(const Invocation *call, const char *key) {
    Foreign foreign;
    if (foreign_option(call, key, NULL, &foreign)) {
        const char *use = foreign.row->use, *what = foreign.row->what;
        if (!use)
            return USAGE("%s: unknown key '%s', an option of %s; %s", call->config_path, key, foreign.tool,
                         what);
        return USAGE("%s: unknown key '%s'; use '%.*s' (%s: %s)", call->config_path, key,
                     (int)strcspn(use + 2, " "), use + 2, foreign.tool, what);
    }
    const char *nearest = nearest_key(call, key);
    if (nearest) return USAGE("%s: unknown key '%s'; did you mean '%s'?", call->config_path, key, nearest);
    return USAGE("%s: unknown key '%s'; keys are option names (see 'weft help %s')", call->config_path, key,
                 call->command->name);
}

Status configfile_note_unknown(Invocation *call, const char *key) {
    if (!call->unknown_keys) call->unknown_keys = json_array();
    if (json_array_append_new(call->unknown_keys, json_string(key)))
        return FAILED("out of memory while reading %s", call->config_path);
    return OK;
}

/* One unknown key is reported with advice; of several, the list, each with the nearest name. */
static Status report_unknown(const Invocation *call) {
    size_t count = json_array_size(call->unknown_keys), i;
    const json_t *entry;
    if (!count) return OK;
    if (count == 1) return configfile_unknown(call, json_string_value(json_array_get(call->unknown_keys, 0)));
    CLEANUP(mem_freep) char *list = NULL;
    json_array_foreach(call->unknown_keys, i, entry) {
        const char *key = json_string_value(entry), *nearest = nearest_key(call, key);
        CLEANUP(mem_freep) char *before = list;
        list = NULL;
        TRY(str_format(&list, "%s%s'%s'%s%s%s", before ? before : "", i ? ", " : "", key,
                       nearest ? " (did you mean '" : "", nearest ? nearest : "", nearest ? "'?)" : ""));
    }
    return USAGE("%s: %zu unknown keys: %s; keys are option names (see 'weft help %s')", call->config_path,
                 count, list, call->command->name);
}

void configfile_unset(Invocation *call, const char *name) {
    Slot *slot = invocation_slot(call, name);
    json_decref(slot->file_value);
    slot->file_value = NULL;
}

Status configfile_set(Invocation *call, const char *name, const char *key, json_t *value) {
    Slot *slot = invocation_slot(call, name);
    bool negated = !slot && (strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0);
    if (negated) slot = invocation_slot(call, name + 3);
    if (!slot || slot->line_only || (negated && slot->option->type != OPTION_FLAG))
        return configfile_unknown(call, key);
    if (slot->file_value && !agree(slot->file_value, value))
        return USAGE("%s: '%s' and '%s' set the same option to different values", call->config_path,
                     slot->file_key, key);
    char label[LABEL_SIZE];
    snprintf(label, sizeof label, "%s: %s", call->config_path, key);
    if (slot->option->type == OPTION_LIST) {
        *slot->count = 0;
        TRY(set_list(slot, label, value));
    } else {
        TRY(option_set_json(slot->option, slot->field, label, value));
        if (negated) option_set_flag(slot->option, slot->field, json_is_false(value));
    }
    slot->source = SOURCE_FILE;
    slot->file_key = key;
    json_decref(slot->file_value);
    slot->file_value = json_incref(value);
    return OK;
}

/* Replaces "@SET/FILE" by its path; leaves other values unchanged. */
static Status settle_fetched(Invocation *call, const char *key, json_t *value) {
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++)
        TRY(settle_fetched(call, key, json_array_get(value, i)));
    CLEANUP(mem_freep) char *path = NULL;
    char label[LABEL_SIZE];
    snprintf(label, sizeof label, "%s: %s", call->config_path, key);
    TRY(fetched_path(label, json_string_value(value), &path));
    if (!path) return OK;
    call->fetched = true;
    return json_string_set(value, path) ? FAILED("out of memory while reading %s", call->config_path) : OK;
}

/* ---- unselected parts of a recipe ---- */

static bool is_option(const Invocation *call, const char *key) {
    const Slot *slot = invocation_slot(call, key);
    if (!slot && (!strncmp(key, "no-", 3) || !strncmp(key, "no_", 3))) slot = invocation_slot(call, key + 3);
    return slot ? !slot->line_only : call->command->other_keys && keys_have(key);
}

/* bench and plan read the files of train, and skip what concerns training only. */
static bool is_for_training(const Invocation *call, const char *key) {
    bool negated = !strncmp(key, "no-", 3) || !strncmp(key, "no_", 3);
    return call->command->other_keys && command_has_option(&command_train, negated ? key + 3 : key);
}

/* `own`: whether a key that is no option is allowed. */
static Status check_names(const Invocation *call, const json_t *part, bool (*own)(const char *key)) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)part, key, value) {
        if (!own(key) && !is_option(call, key) && !is_for_training(call, key))
            return configfile_unknown(call, key);
    }
    return OK;
}

static Status check_runs(const Invocation *call, const json_t *runs) {
    const json_t *run;
    size_t i;
    json_array_foreach(runs, i, run) {
        Status status = check_names(call, run, recipe_run_has_key);
        if (!status) status = recipe_check_run(run, call->config_path);
        const char *name = json_string_at(run, "name");
        if (status) return status_wrap(status, "run '%s'", name ? name : "");
    }
    return OK;
}

/* Reports unknown keys in every part of the recipe, not only the selected one. */
static Status check_parts(const Invocation *call) {
    const char *name;
    json_t *scale;
    TRY(check_runs(call, json_object_get(call->file, "runs")));
    json_object_foreach(json_object_get(call->file, "scales"), name, scale) {
        Status status = check_names(call, scale, recipe_scale_has_key);
        if (!status) status = check_runs(call, json_object_get(scale, "runs"));
        if (status) return status_wrap(status, "scale '%s'", name);
    }
    return OK;
}

/* Another tool's key, such as warmup_ratio, takes precedence over an option's name with '_', and its object,
 * such as DeepSpeed's "optimizer", over an option of that name: options have no objects. */
static bool is_exact(const Invocation *call, const char *key, const json_t *value) {
    const Slot *slot = invocation_slot(call, key);
    return slot && !strcmp(slot->option->name, key) && !json_is_object(value);
}

Status configfile_apply(Invocation *call) {
    if (!call->file) TRY(read_object(call->config_path, &call->file));
    TRY(check_parts(call));
    call->study = json_incref(json_object_get(call->file, "study"));
    TRY(recipe_settle(call->file, call->config_path, call->scale, call->run));
    const char *key;
    json_t *value;
    json_object_foreach(call->file, key, value) {
        bool taken = false;
        TRY(settle_fetched(call, key, value));
        if (call->command->other_keys && !is_exact(call, key, value))
            TRY(keys_take(call, key, value, &taken));
        if (taken || json_is_null(value)) continue;
        if (is_option(call, key))
            TRY(configfile_set(call, key, key, value));
        else if (!is_for_training(call, key))
            TRY(configfile_note_unknown(call, key));
    }
    TRY(report_unknown(call));
    return call->command->other_keys ? keys_finish(call) : OK;
}
