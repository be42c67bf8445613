/* Reading a command line.
 *
 * Every option of the command becomes a slot that knows its field in the configuration. The line is
 * walked twice: first for what names the file, because the file comes before the line in rank, then, after
 * defaults and file, to set what the line says. A list on the line replaces the file's list.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "cli/configfile.h"

/* clang-format off */
static const Option common_table[] = {
    {OPT_TEXT("config", Invocation, config_path, "FILE"),
     .help = "Read options from a JSON file: an object with the same names as the options. What is given on "
             "the command line wins."},
    {OPT_TEXT("scale", Invocation, scale, "NAME"), .shown = "the file's own",
     .help = "Take the sizes that --config's file has under this name, such as small."},
    {OPT_TEXT("run", Invocation, run, "NAME"), .shown = "none of them",
     .help = "Take the options of the run of this name, where --config's file lists runs to compare."},
    {OPT_FLAG("json", Invocation, json),
     .help = "Print the result as one JSON object on standard output, and nothing else there."},
    {OPT_FLAG("help", Invocation, help), .help = "Show this help."},
};
/* clang-format on */

const OptionGroup common_options = OPTION_GROUP("Common", common_table, 0);

static void add_slots(Invocation *call, const OptionGroup *group, void *start, bool line_only) {
    for (size_t i = 0; i < group->count; i++) {
        const Option *option = &group->options[i];
        char *fields = (char *)start + group->base;
        call->slots[call->slot_count++] = (Slot){
            .option = option,
            .field = fields + option->offset,
            .count = option->type == OPTION_LIST ? (int *)(void *)(fields + option->count_offset) : NULL,
            .line_only = line_only,
        };
    }
}

static Status make_slots(Invocation *call) {
    const Command *command = call->command;
    size_t count = common_options.count;
    for (size_t g = 0; g < command->group_count; g++) count += command->groups[g].count;
    TRY(mem_new(count, sizeof *call->slots, &call->slots));
    for (size_t g = 0; g < command->group_count; g++)
        add_slots(call, &command->groups[g], call->config, false);
    add_slots(call, &common_options, call, true);
    for (size_t i = 0; i < call->slot_count; i++)
        TRY(option_set_fallback(call->slots[i].option, call->slots[i].field));
    return OK;
}

/* Names are compared with '_' and '-' alike, so that a file may use either. */
static bool same_name(const char *a, size_t length, const char *b) {
    if (strlen(b) != length) return false;
    for (size_t i = 0; i < length; i++)
        if ((a[i] == '_' ? '-' : a[i]) != b[i]) return false;
    return true;
}

static Slot *find_slot(const Invocation *call, const char *name, size_t length) {
    for (size_t i = 0; i < call->slot_count; i++)
        if (same_name(name, length, call->slots[i].option->name)) return &call->slots[i];
    return NULL;
}

Slot *invocation_slot(const Invocation *call, const char *name) {
    return find_slot(call, name, strlen(name));
}

bool invocation_given(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot && slot->source != SOURCE_DEFAULT;
}

const char *invocation_label(const Invocation *call, const char *name, char *buffer) {
    const Slot *slot = invocation_slot(call, name);
    if (slot && slot->source == SOURCE_FILE)
        snprintf(buffer, LABEL_SIZE, "%s: %s", call->config_path, name);
    else
        snprintf(buffer, LABEL_SIZE, "--%s", name);
    return buffer;
}

Status invocation_json(const Invocation *call, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    if (!json) return FAILED("out of memory while listing the options");
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        if (slot->line_only || !option_in_range(slot->option, slot->field)) continue;
        json_t *value = option_json(slot->option, slot->field, slot->count);
        if (json_is_null(value)) continue;
        if (json_object_set_new(json, slot->option->name, value) != 0)
            return FAILED("out of memory while listing the options");
    }
    *ret_json = json;
    json = NULL;
    return OK;
}

static Status unknown_option(const Invocation *call, const char *argument, size_t length) {
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)(length < 120 ? length : 120), argument);
    const char *bare = name + strspn(name, "-");
    bool negated = strncmp(bare, "no-", 3) == 0;
    Suggestion plain = {.word = bare}, inverse = {.word = negated ? bare + 3 : bare};
    for (size_t i = 0; i < call->slot_count; i++) {
        const Option *option = call->slots[i].option;
        suggest_offer(&plain, option->name);
        if (negated && option->type == OPTION_FLAG) suggest_offer(&inverse, option->name);
    }
    if (negated && inverse.best)
        return USAGE("%s: unknown option; did you mean --no-%s?", name, inverse.best);
    if (plain.best) return USAGE("%s: unknown option; did you mean --%s?", name, plain.best);
    return USAGE("%s: unknown option; 'weft help %s' lists them", name, call->command->name);
}

/* An option as it stands on the line. */
typedef struct Spelled {
    Slot *slot;
    bool negated;
    const char *value; /* after '=', or NULL */
} Spelled;

static Status spell(const Invocation *call, const char *argument, Spelled *ret_spelled) {
    if (strcmp(argument, "-h") == 0) argument = "--help";
    size_t whole = strcspn(argument, "=");
    if (argument[1] != '-') return unknown_option(call, argument, whole);
    const char *name = argument + 2;
    size_t length = whole - 2;
    Spelled spelled = {.slot = find_slot(call, name, length)};
    if (!spelled.slot && length > 3 && strncmp(name, "no-", 3) == 0) {
        spelled.slot = find_slot(call, name + 3, length - 3);
        spelled.negated = true;
        if (spelled.slot && spelled.slot->option->type != OPTION_FLAG)
            return USAGE("%.*s: --%s takes a value and has no --no- form", (int)whole, argument,
                         spelled.slot->option->name);
    }
    if (!spelled.slot) return unknown_option(call, argument, whole);
    if (argument[whole] == '=') spelled.value = argument + whole + 1;
    *ret_spelled = spelled;
    return OK;
}

Status slot_append(Slot *slot, const char *label, const char *text) {
    if (!*text && !slot->option->one_each)
        return USAGE("%s: expected %s, found an empty text", label, slot->option->placeholder);
    const char ***list = slot->field;
    TRY(mem_grow(list, &slot->capacity, (size_t)*slot->count + 1, sizeof **list));
    (*list)[(*slot->count)++] = text;
    return OK;
}

static bool is_option(const char *argument) {
    return argument[0] == '-' && argument[1] != 0;
}

/* Sets one option; *at is moved past the arguments it used. */
static Status set_option(Invocation *call, int argc, char **argv, int *at) {
    const char *argument = argv[(*at)++];
    Spelled spelled = {0};
    TRY(spell(call, argument, &spelled));
    Slot *slot = spelled.slot;
    char label[LABEL_SIZE];
    snprintf(label, sizeof label, "--%s", slot->option->name);
    bool first = slot->source != SOURCE_LINE;
    slot->source = SOURCE_LINE;
    if (slot->option->type == OPTION_FLAG) {
        if (spelled.value)
            return USAGE("%s: takes no value; write --%s or --no-%s", argument, slot->option->name,
                         slot->option->name);
        option_set_flag(slot->option, slot->field, !spelled.negated);
        return OK;
    }
    bool list = slot->option->type == OPTION_LIST, many = list && !slot->option->one_each;
    if (list && first) *slot->count = 0;
    if (spelled.value)
        return list ? slot_append(slot, label, spelled.value)
                    : option_set_text(slot->option, slot->field, label, spelled.value);
    /* "-1" and "-" are values; what looks like an option is not taken for one. */
    if (*at == argc || strncmp(argv[*at], "--", 2) == 0 || (many && is_option(argv[*at])))
        return USAGE("%s: needs a value: %s %s", label, label, slot->option->placeholder);
    if (!list) return option_set_text(slot->option, slot->field, label, argv[(*at)++]);
    if (!many) return slot_append(slot, label, argv[(*at)++]);
    while (*at < argc && !is_option(argv[*at])) TRY(slot_append(slot, label, argv[(*at)++]));
    return OK;
}

static Status add_operand(Invocation *call, const char *text) {
    TRY(mem_grow(&call->operands, &call->operand_capacity, call->operand_count + 1, sizeof *call->operands));
    call->operands[call->operand_count++] = text;
    return OK;
}

static Status read_line(Invocation *call, int argc, char **argv) {
    bool only_operands = false;
    for (int at = 0; at < argc;) {
        if (!only_operands && strcmp(argv[at], "--") == 0) {
            only_operands = true;
            at++;
        } else if (!only_operands && is_option(argv[at])) {
            TRY(set_option(call, argc, argv, &at));
        } else {
            TRY(add_operand(call, argv[at++]));
        }
    }
    return OK;
}

/* What has to be known before the rest is read. */
static void look_ahead(Invocation *call, int argc, char **argv) {
    for (int at = 0; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) call->help = true;
        if (strcmp(argv[at], "--json") == 0) call->json = true;
        if (strncmp(argv[at], "--config=", 9) == 0) call->config_path = argv[at] + 9;
        if (strcmp(argv[at], "--config") == 0 && at + 1 < argc) call->config_path = argv[at + 1];
        if (strncmp(argv[at], "--scale=", 8) == 0) call->scale = argv[at] + 8;
        if (strcmp(argv[at], "--scale") == 0 && at + 1 < argc) call->scale = argv[at + 1];
        if (strncmp(argv[at], "--run=", 6) == 0) call->run = argv[at] + 6;
        if (strcmp(argv[at], "--run") == 0 && at + 1 < argc) call->run = argv[at + 1];
    }
}

/* A line that goes on with a run and names no file takes the run's own. */
static Status find_run_config(Invocation *call, int argc, char **argv) {
    const char *out = NULL;
    bool resume = false;
    for (int at = 0; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--resume") == 0) resume = true;
        if (strcmp(argv[at], "--no-resume") == 0) resume = false;
        if (strncmp(argv[at], "--out=", 6) == 0) out = argv[at] + 6;
        if (strcmp(argv[at], "--out") == 0 && at + 1 < argc) out = argv[at + 1];
    }
    if (!resume || !out) return OK;
    TRY(path_join(&call->run_config, out, "config.json"));
    if (path_exists(call->run_config)) call->config_path = call->run_config;
    return OK;
}

static Status check_complete(const Invocation *call) {
    const Command *command = call->command;
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        if (slot->option->required && slot->source == SOURCE_DEFAULT)
            return USAGE("--%s %s is needed; see 'weft help %s'", slot->option->name,
                         slot->option->placeholder, command->name);
    }
    if (call->operand_count > command->operands_max)
        return USAGE("'%s': 'weft %s' takes %s%s; options start with --",
                     call->operands[command->operands_max], command->name,
                     command->operands ? "only " : "no operands", command->operands ? command->operands : "");
    if (call->operand_count < command->operands_min)
        return USAGE("'weft %s' needs %s; see 'weft help %s'", command->name, command->operands,
                     command->name);
    return OK;
}

Status invocation_read(Invocation **ret_call, const Command *command, int argc, char **argv) {
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(mem_new(1, sizeof *call, &call));
    call->command = command;
    TRY(mem_new(1, command->config_size, &call->config));
    TRY(make_slots(call));
    look_ahead(call, argc, argv);
    if (!call->help) {
        if (command->resumes && !call->config_path) TRY(find_run_config(call, argc, argv));
        bool named = call->config_path || command->recipe;
        if (call->scale && !named)
            return USAGE("--scale %s: names a part of a file, which --config has to name", call->scale);
        if (call->run && !named)
            return USAGE("--run %s: names a part of a file, which --config has to name", call->run);
        if (call->config_path) TRY(configfile_apply(call));
        TRY(read_line(call, argc, argv));
        TRY(check_complete(call));
        TRY(deepspeed_settle(call));
    }
    *ret_call = call;
    call = NULL;
    return OK;
}

Status invocation_new(Invocation **ret_call, const Command *command, int argc, char **argv) {
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(invocation_read(&call, command, argc, argv));
    if (!call->help) TRY(configfile_check(call));
    *ret_call = call;
    call = NULL;
    return OK;
}

void invocation_free(Invocation *call) {
    if (!call) return;
    for (size_t i = 0; i < call->slot_count; i++) {
        if (call->slots[i].count) free(*(void **)call->slots[i].field);
        json_decref(call->slots[i].file_value);
    }
    mesh_free(call->mesh);
    group_free(call->world);
    device_free(call->device);
    free(call->slots);
    free(call->operands);
    free(call->config);
    free(call->run_config);
    json_decref(call->file);
    free(call);
}
