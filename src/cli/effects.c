/* The table of options that need another one. Only options on the command line are checked: configuration
 * files are shared by runs that differ, and the config.json of a run lists every option. */
#include "cli/invocation.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/train_options.h"
#include "data/reader.h"
#include "infer/engine.h"
#include "optim/optim.h"

#define NEEDS(options_, other_, values_, unless_, ...)                                                       \
    { .options = (options_), .other = (other_), .values = (values_), .unless = (unless_), __VA_ARGS__ }

static const Effect effects[] = {
    /* layout */
    NEEDS("zero", "dp", ">1", "with a single replica; use more --ranks"),
    NEEDS("zero-keep", "zero", "3", "without --zero 3"),
    NEEDS("shard", "zero", "1|2|3", "without --zero or --sync-every", .enough = "sync-every"),
    NEEDS("grad-dtype", "dp", ">1", "with a single replica; use more --ranks"),
    NEEDS("sync-fragments sync-overlap sync-dtype sync-warmup outer-lr outer-momentum", "sync-every", ">0",
          "without --sync-every"),
    NEEDS("sequence-parallel", "tp", ">1", "without --tp 2 or more"),
    NEEDS("imbalance", "ep", ">1", "without --ep 2 or more", .command = "plan"),
    NEEDS("cp-mode", "cp", ">1", "without --cp 2 or more"),
    NEEDS("cp-heads", "cp-mode", "heads+ring", "without --cp-mode heads+ring"),
    NEEDS("pp-schedule", "pp", ">1", "without --pp 2 or more", .except = "interleaved"),
    NEEDS("fp8-scaling fp8-head", "precision", "fp8", "without --precision fp8"),
    NEEDS("loss-scale loss-scale-steps", "precision", "fp16", "without --precision fp16"),
    /* task */
    NEEDS("mask-rate whole-word-masking next-sentence masked-tokens", "task", "mlm|auto",
          "without --task mlm"),
    NEEDS("cross-document stride", "task", "lm|auto|auto-lm", "without --task lm"),
    NEEDS("loss-on chat-template packing", "format", "chat|auto", "without --format chat"),
    NEEDS("labels problem-type label-field", "task", "classify|auto|auto-lm", "without --task classify"),
    NEEDS("doc-stride max-query max-answer n-best null-threshold", "task", "span|squad|auto",
          "without --task squad"),
    NEEDS("seq doc-stride max-query", "format", "squad", "without --format squad", .command = "prepare"),
    NEEDS("sentences", "format", "text", "without --format text", .command = "prepare"),
    NEEDS("file-size", "format", "text|bytes", "without --format text", .command = "prepare"),
    NEEDS("field", "format", "text", "without --format text", .command = "prepare"),
    NEEDS("field", "data", "json|any", "on plain text"),
    NEEDS("documents", "format", "text|bytes", "without --format text", .command = "prepare"),
    NEEDS("documents", "data", "text|any", "on JSON Lines"),
    /* training */
    NEEDS("lora-alpha rslora lora-dropout lora-targets lora-base", "lora", ">0", "without --lora"),
    NEEDS("val-fraction", "val", "", "with --val", .command = "train"),
    NEEDS("warmup-type", "warmup", "!0", "with --warmup 0"),
    NEEDS("warmup-ratio", "warmup", "-1", "with --warmup"),
    NEEDS("seq-warmup-from", "seq-warmup", ">0", "without --seq-warmup"),
    NEEDS("decay-steps decay-type", "schedule", "wsd", "without --schedule wsd"),
    NEEDS("min-lr", "schedule", "!constant", "with --schedule constant"),
    NEEDS("save-every keep log-every async-save save-failures", "out", "*", "without --out",
          .command = "train"),
    NEEDS("rollbacks", "on-divergence", "rollback", "without --on-divergence rollback"),
    NEEDS("eval-batches", "eval-samples", "0", "with --eval-samples"),
    NEEDS("trace-steps", "trace", "*", "without --trace"),
    /* the other commands */
    NEEDS("data accumulate new-tokens published", "leaderboard", "*", "without --leaderboard",
          .command = "bench"),
    NEEDS("row-multiple", "kind", "!heads", "with --kind heads", .command = "prune"),
    NEEDS("ramp", "rounds", ">1", "without --rounds 2 or more", .command = "prune"),
    NEEDS("steps-per-round beside", "data", "*", "without --data", .command = "prune"),
    NEEDS("max-batches prompt new-tokens", "evaluate", "*", "without --evaluate", .command = "quantize"),
    NEEDS("format text-field pair-field label-field", "calibrate", "*", "without --calibrate",
          .command = "quantize"),
    NEEDS("seed", "calibrate", "", "with --calibrate", .command = "quantize"),
    NEEDS("loss-on chat-template", "model", "*", "without --model", .command = "info"),
    NEEDS("seed", "head", "*", "without --head or --experts", .enough = "experts", .command = "convert"),
    NEEDS("top-k", "experts", ">0", "without --experts", .command = "convert"),
    NEEDS("chat-template", "chat", "*", "without --chat", .enough = "messages", .command = "generate"),
    NEEDS("system", "chat", "*", "without --chat", .command = "generate"),
    NEEDS("top-k top-p min-p typical-p seed", "greedy", "", "with --greedy", .command = "generate"),
    NEEDS("shown", "json", "*", "without --json", .command = "answer"),
    NEEDS("null-threshold", "always", "", "with --always", .command = "answer"),
    NEEDS("null-threshold", "always", "", "with --always", .command = "predict"),
    NEEDS("price power", "cluster", "*", "without --cluster", .command = "plan"),
    NEEDS("interval port address", "serve", "*", "without --serve", .command = "report"),
    NEEDS("retries", "list", "", "with --list", .command = "fetch"),
    {0},
};

const Effect *effects_all(void) {
    return effects;
}

/* What --task auto means: "auto-lm" for a decoder, otherwise "auto", because the data decides. */
static void settle_auto(const Invocation *call, char *buffer, size_t size) {
    const char *model = *(const char *const *)invocation_slot(call, "model")->field;
    ModelConfig config = {0};
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(status_freep) Status preset = model ? config_preset(model, &config) : OK;
    CLEANUP(status_freep) Status found = preset ? model_dir_open(&dir, model) : OK;
    if (preset && !found) found = hf_config_read(dir.path, &config);
    snprintf(buffer, size, "%s", !found && config.family && config_is_decoder(&config) ? "auto-lm" : "auto");
}

/* The kind of the data files, if their names show it: "json" (JSON Lines), "text", or "any". */
static const char *kind_of_files(const Invocation *call) {
    static const char *const options[] = {"data", "val"};
    bool json = true, text = true;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const Slot *slot = invocation_slot(call, options[i]);
        if (!slot || slot->option->type != OPTION_LIST) continue;
        for (int k = 0; k < *slot->count; k++) {
            const char *path = (*(const char *const *const *)slot->field)[k];
            json &= reader_is_json(path);
            text &= reader_is_plain(path);
        }
    }
    return json ? "json" : text ? "text" : "any";
}

/* The value as text; "" if the option is off or was not given. Replicas are all ranks with the same
 * parameters, which other axes may divide sequences among. */
static void value_of(const Invocation *call, const Slot *slot, char *buffer, size_t size) {
    const char *text = slot->option->type == OPTION_CHOICE ? option_choice(slot->option, slot->field)
                       : slot->option->type == OPTION_TEXT ? *(const char *const *)slot->field
                                                           : "";
    buffer[0] = 0;
    switch (slot->option->type) {
    case OPTION_FLAG: snprintf(buffer, size, "%s", *(const bool *)slot->field ? "on" : ""); break;
    case OPTION_LIST: snprintf(buffer, size, "%s", *slot->count ? "on" : ""); break;
    case OPTION_INT:
        snprintf(buffer, size, "%lld",
                 (long long)(!strcmp(slot->option->name, "dp") ? layout_copies(call)
                                                               : *(const int64_t *)slot->field));
        break;
    default: snprintf(buffer, size, "%s", text ? text : "");
    }
    if (!strcmp(slot->option->name, "data") && !strcmp(buffer, "on"))
        snprintf(buffer, size, "%s", kind_of_files(call));
    if (!strcmp(slot->option->name, "task") && !strcmp(buffer, "auto")) settle_auto(call, buffer, size);
}

static bool satisfies(const char *value, const char *values) {
    if (!*values) return !*value;
    if (*values == '*') return *value;
    if (*values == '!') return strcmp(value, values + 1);
    if (*values == '>') return atoll(value) > atoll(values + 1);
    for (const char *at = values; at; at = strchr(at, '|')) {
        at += *at == '|';
        size_t length = strcspn(at, "|");
        if (strlen(value) == length && !strncmp(at, value, length)) return true;
    }
    return false;
}

/* Off, or a value that is an error anyway. */
static bool is_exempt(const Slot *slot, const char *except) {
    if (slot->option->type == OPTION_INT) return *(const int64_t *)slot->field == 0;
    if (slot->option->type == OPTION_FLAG) return !*(const bool *)slot->field;
    return except && !strcmp(option_choice(slot->option, slot->field), except);
}

/* Experts are divided over ranks of two axes. */
static bool is_axis(const char *option) {
    if (!strcmp(option, "ep")) return true;
    for (Axis axis = 0; axis < AXIS_COUNT; axis++)
        if (!strcmp(axis_info(axis)->name, option)) return true;
    return false;
}

/* Whether a command plans several layouts, which differ in this axis or, for replicas, in their number. */
static bool varies(const Invocation *call, const char *axis) {
    bool replicas = !strcmp(axis, "dp"), experts = !strcmp(axis, "ep") && !invocation_given(call, axis);
    if (!invocation_given(call, "search")) return invocation_given(call, "sweep") && (replicas || experts);
    return !invocation_given(call, axis) || (replicas && !invocation_given(call, "cp"));
}

/* Whether the option has no effect for the reason in the row. */
static bool is_useless(const Invocation *call, const Effect *row, const Slot *slot) {
    const Slot *other = invocation_slot(call, row->other);
    if (!slot || !other || slot->source != SOURCE_LINE || is_exempt(slot, row->except)) return false;
    if (row->enough && invocation_given(call, row->enough)) return false;
    if (is_axis(row->other) && varies(call, row->other)) return false;
    char value[256];
    value_of(call, other, value, sizeof value);
    return !satisfies(value, row->values);
}

Status effects_check(Invocation *call) {
    const Slot *warned = NULL; /* consecutive rows of an option warn once */
    for (const Effect *row = effects; row->options; row++) {
        if (row->command && strcmp(row->command, call->command->name)) continue;
        char names[EFFECT_OPTIONS], *rest = NULL;
        snprintf(names, sizeof names, "%s", row->options);
        for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            const Slot *slot = invocation_slot(call, name);
            if (slot == warned || !is_useless(call, row, slot)) continue;
            TRY(invocation_warn(call, "%s%s has no effect %s", option_typed_prefix(slot->option),
                                slot->option->name, row->unless));
            warned = slot;
        }
    }
    return OK;
}

/* ---- options whose defaults depend on --optimizer ---- */

static void set_default(Slot *slot, double value) {
    if (slot->option->type == OPTION_FLOAT) *(double *)slot->field = value;
    if (slot->option->type == OPTION_FLAG) option_set_flag(slot->option, slot->field, value > 0);
}

/* Warns about a setting of another optimizer that is on the command line. */
static Status check_other(Invocation *call, const Optimizer *kind, int row, const char *option) {
    double value;
    const Slot *slot = invocation_slot(call, option);
    if (!slot || slot->source != SOURCE_LINE || optim_setting(kind, option, &value)) return OK;
    for (int i = 0; i < row; i++)
        if (optim_setting(optim_row(i), option, &value)) return OK; /* checked with that row */
    return invocation_warn(call, "--%s has no effect with --optimizer %s", option, kind->name);
}

Status optimizer_settle(Invocation *call) {
    const Optimizer *kind = NULL;
    const Slot *named = invocation_slot(call, "optimizer");
    if (!named || !invocation_slot(call, "weight-decay")) return OK;
    TRY(optim_find(*(const char *const *)named->field, &kind));
    for (const OptimSetting *setting = kind->settings; setting->option; setting++) {
        Slot *slot = invocation_slot(call, setting->option);
        if (slot && slot->source == SOURCE_DEFAULT) set_default(slot, setting->value);
    }
    for (int i = 0; optim_row(i); i++)
        for (const OptimSetting *setting = optim_row(i)->settings; setting->option; setting++)
            TRY(check_other(call, kind, i, setting->option));
    return OK;
}
