/* Parsing a command line.
 *
 * Each option of the command gets a slot, which refers to its field in the configuration. Options are set in
 * order of precedence: defaults, then the configuration file, then the command line. The command line is
 * therefore scanned twice, first for the options that name the file. A list on the command line replaces the
 * file's list.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "cli/command.h"
#include "cli/foreign.h"
#include "cli/help.h"
#include "cli/invocation.h"
#include "cli/keys.h"
#include "comm/mpi.h"
#include "tokenizer/tokenizer.h"

/* clang-format off */
static const Option common_table[] = {
    {OPT_TEXT("config", Invocation, config_path, "FILE"), .per_rank = PER_RANK_ANY,
     .help = "Read options from a JSON object whose keys are option names. The command line overrides it."},
    {OPT_FLAG("json", Invocation, json), .per_rank = PER_RANK_ANY,
     .help = "Print the result to standard output as a single JSON object."},
    {OPT_FLAG("help", Invocation, help), .per_rank = PER_RANK_ANY, .help = "Show this help."},
};

static const Option recipe_table[] = {
    {OPT_TEXT("scale", Invocation, scale, "NAME"), .per_rank = PER_RANK_ANY, .shown = "the recipe's base settings",
     .help = "Use this scale of the recipe, for example small."},
    {OPT_TEXT("run", Invocation, run, "NAME"), .per_rank = PER_RANK_ANY, .shown = "the recipe's common options only",
     .help = "Use the options of this run of the recipe that --config names."},
};
/* clang-format on */

const OptionGroup common_options = OPTION_GROUP("Common", common_table, 0);
static const OptionGroup recipe_options = OPTION_GROUP("Recipe", recipe_table, 0);
static const OptionGroup scale_option = {.heading = "Recipe", .options = recipe_table, .count = 1};

const OptionGroup *command_group(const Command *command, size_t index) {
    for (const OptionGroup *group = command->groups; group && group->options; group++)
        if (index-- == 0) return group;
    if (command->recipe != RECIPE_NONE && index-- == 0)
        return command->recipe == RECIPE_CONFIG ? &recipe_options : &scale_option;
    return index == 0 ? &common_options : NULL;
}

const Option *command_option(const Command *command, const char *name) {
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++)
        for (size_t i = 0; i < group->count; i++)
            if (!strcmp(group->options[i].name, name)) return &group->options[i];
    return NULL;
}

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
    size_t count = common_options.count + recipe_options.count;
    const OptionGroup *group;
    for (group = command->groups; group && group->options; group++) count += group->count;
    TRY(mem_new(count, sizeof *call->slots, &call->slots));
    for (group = command->groups; group && group->options; group++)
        add_slots(call, group, call->config, false);
    add_slots(call, &common_options, call, true);
    add_slots(call, &recipe_options, call, true);
    for (size_t i = 0; i < call->slot_count; i++)
        TRY(option_set_fallback(call->slots[i].option, call->slots[i].field));
    return OK;
}

/* '_' in `a` matches '-', so that configuration files may use either. */
static bool same_name(const char *a, size_t length, const char *b) {
    if (strlen(b) != length) return false;
    for (size_t i = 0; i < length; i++)
        if ((a[i] == '_' ? '-' : a[i]) != b[i]) return false;
    return true;
}

static bool is_named(const Option *option, const char *name, size_t length) {
    return same_name(name, length, option->name) ||
           (option->old_name && same_name(name, length, option->old_name));
}

bool command_has_option(const Command *command, const char *name) {
    for (const OptionGroup *group = command->groups; group && group->options; group++)
        for (size_t i = 0; i < group->count; i++)
            if (is_named(&group->options[i], name, strlen(name))) return true;
    return false;
}

static Slot *find_slot(const Invocation *call, const char *name, size_t length) {
    for (size_t i = 0; i < call->slot_count; i++) {
        if (is_named(call->slots[i].option, name, length)) return &call->slots[i];
    }
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

Status invocation_warn(Invocation *call, const char *format, ...) {
    char *text;
    va_list arguments;
    TRY(mem_grow(&call->warnings, &call->warning_capacity, call->warning_count + 1, sizeof *call->warnings));
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) return FAILED("out of memory while writing a warning");
    call->warnings[call->warning_count++] = text;
    return OK;
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

/* `next`: the argument that follows, NULL at the end. */
static Status unknown_option(const Invocation *call, const char *argument, const char *next) {
    char name[128];
    size_t length = strcspn(argument, "=");
    snprintf(name, sizeof name, "%.*s", (int)(length < 120 ? length : 120), argument);
    const char *value = argument[length] ? argument + length + 1 : next && *next != '-' ? next : NULL;
    Foreign foreign;
    bool known = foreign_option(call, name, value, &foreign);
    const char *bare = name + strspn(name, "-");
    bool negated = strncmp(bare, "no-", 3) == 0;
    Suggestion plain = {.word = bare}, inverse = {.word = negated ? bare + 3 : bare};
    for (size_t i = 0; i < call->slot_count; i++) {
        const Option *option = call->slots[i].option;
        suggest_offer(&plain, option->name);
        if (negated && option->type == OPTION_FLAG) suggest_offer(&inverse, option->name);
    }
    bool typo = plain.best && plain.distance <= 1; /* --host is no server's option, but --hosts */
    if (known && (foreign.row->use || !typo)) return foreign_refuse_option(call, &foreign, name, value);
    if (call->command->other_keys && !typo) TRY(keys_refuse_option(call, name));
    if (negated && inverse.best)
        return USAGE("%s: unknown option; did you mean --no-%s?", name, inverse.best);
    if (plain.best) return USAGE("%s: unknown option; did you mean --%s?", name, plain.best);
    return USAGE("%s: unknown option; 'weft help %s' lists the options", name, call->command->name);
}

/* An option as typed on the command line. */
typedef struct Spelled {
    Slot *slot;
    bool negated;
    const char *value; /* text after '='; NULL without it */
} Spelled;

static Status spell(const Invocation *call, const char *argument, const char *next, Spelled *ret_spelled) {
    if (strcmp(argument, "-h") == 0) argument = "--help";
    for (size_t i = 0; i < call->slot_count && argument[1] != '-' && !argument[2]; i++) {
        if (call->slots[i].option->letter != argument[1]) continue;
        *ret_spelled = (Spelled){.slot = &call->slots[i]};
        return OK;
    }
    size_t whole = strcspn(argument, "=");
    if (argument[1] != '-') return unknown_option(call, argument, next);
    const char *name = argument + 2;
    size_t length = whole - 2;
    Spelled spelled = {.slot = find_slot(call, name, length)};
    if (!spelled.slot && length > 3 && strncmp(name, "no-", 3) == 0) {
        spelled.slot = find_slot(call, name + 3, length - 3);
        spelled.negated = true;
        if (spelled.slot && spelled.slot->option->type != OPTION_FLAG)
            return USAGE("%.*s: --%s expects a value and has no --no- form", (int)whole, argument,
                         spelled.slot->option->name);
    }
    if (!spelled.slot) return unknown_option(call, argument, next);
    if (argument[whole] == '=') spelled.value = argument + whole + 1;
    *ret_spelled = spelled;
    return OK;
}

Status slot_append(Slot *slot, const char *label, const char *text) {
    if (!*text && !slot->option->one_each)
        return USAGE("%s: expected %s, found an empty string", label, slot->option->placeholder);
    const char ***list = slot->field;
    TRY(mem_grow(list, &slot->capacity, (size_t)*slot->count + 1, sizeof **list));
    (*list)[(*slot->count)++] = text;
    return OK;
}

static bool is_option(const char *argument) {
    return argument[0] == '-' && argument[1] != 0;
}

/* Sets one option and advances *at past its arguments. */
static Status set_option(Invocation *call, int argc, char **argv, int *at) {
    const char *argument = argv[(*at)++];
    Spelled spelled = {0};
    TRY(spell(call, argument, *at < argc ? argv[*at] : NULL, &spelled));
    Slot *slot = spelled.slot;
    char label[LABEL_SIZE];
    snprintf(label, sizeof label, "--%s", slot->option->name);
    bool first = slot->source != SOURCE_LINE;
    slot->source = SOURCE_LINE;
    if (slot->option->type == OPTION_FLAG) {
        bool word = !spelled.negated && option_is_word(slot->option, spelled.value);
        if (spelled.value && !word)
            return USAGE("%s: a flag has no value; use --%s or --no-%s", argument, slot->option->name,
                         slot->option->name);
        if (!spelled.value && !spelled.negated && *at < argc && option_is_word(slot->option, argv[*at]))
            ++*at;
        option_set_flag(slot->option, slot->field, !spelled.negated);
        return OK;
    }
    bool list = slot->option->type == OPTION_LIST, many = list && !slot->option->one_each;
    if (list && first) *slot->count = 0;
    if (spelled.value)
        return list ? slot_append(slot, label, spelled.value)
                    : option_set_text(slot->option, slot->field, label, spelled.value);
    /* "-1" and "-" are values; anything that starts with "--" is the next option. */
    if (*at == argc || strncmp(argv[*at], "--", 2) == 0 || (many && is_option(argv[*at])))
        return USAGE("%s: missing value; use %s %s", label, label, slot->option->placeholder);
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

/* The value of an option, "--out", that must be known before the others are parsed; NULL if it is not given.
 */
static char *value_on_line(int argc, char **argv, const char *option) {
    size_t length = strlen(option);
    char *value = NULL;
    for (int at = 0; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strncmp(argv[at], option, length)) continue;
        if (argv[at][length] == '=') value = argv[at] + length + 1;
        if (!argv[at][length] && at + 1 < argc) value = argv[at + 1];
    }
    return value;
}

static void look_ahead(Invocation *call, int argc, char **argv) {
    for (int at = 0; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) call->help = true;
        if (strcmp(argv[at], "--json") == 0) call->json = true;
    }
    call->config_path = value_on_line(argc, argv, "--config");
    call->scale = value_on_line(argc, argv, "--scale");
    call->run = value_on_line(argc, argv, "--run");
}

/* With --resume and no --config, the run's own config.json is the configuration file. */
static Status find_run_config(Invocation *call, int argc, char **argv) {
    const char *out = value_on_line(argc, argv, "--out");
    bool resume = false;
    for (int at = 0; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--resume") == 0 || strncmp(argv[at], "--resume=", 9) == 0 ||
            strncmp(argv[at], "--resume-from", 13) == 0)
            resume = true;
        if (strcmp(argv[at], "--no-resume") == 0) resume = false;
    }
    if (!resume || !out) return OK;
    TRY(path_join(&call->run_config, out, "config.json"));
    if (path_exists(call->run_config)) call->config_path = call->run_config;
    return OK;
}

/* ---- operands that stand for options ---- */

/* Required options from `names` on that the command line does not give. */
static size_t still_required(const Invocation *call, const char *const *names) {
    size_t count = 0;
    for (; *names; names++) {
        const Slot *slot = invocation_slot(call, *names);
        count += slot->option->required && slot->source == SOURCE_DEFAULT;
    }
    return count;
}

/* Sets the option from the `count` operands at hand: all of them if it is a list, otherwise the first. */
static Status set_from_operands(Slot *slot, const char *const *operands, size_t count, size_t *ret_used) {
    char label[LABEL_SIZE];
    snprintf(label, sizeof label, "--%s", slot->option->name);
    slot->source = SOURCE_LINE;
    slot->operand = true;
    *ret_used = 1;
    if (slot->option->type != OPTION_LIST)
        return option_set_text(slot->option, slot->field, label, operands[0]);
    *slot->count = 0;
    *ret_used = count;
    for (size_t i = 0; i < count; i++) TRY(slot_append(slot, label, operands[i]));
    return OK;
}

/* An operand for which no option is left: the last one is also given by name, or there are too many. */
static Status refuse_operand(const Invocation *call, const char *operand, const char *given) {
    char synopsis[LABEL_SIZE];
    if (given) return USAGE("'%s': --%s is also given; use either the operand or the option", operand, given);
    return USAGE("'%s': too many operands; usage: %s", operand, help_synopsis(call->command, synopsis));
}

/* Whether the options from `names` on that nothing has set have room for `count` operands. */
static bool has_room(const Invocation *call, const char *const *names, size_t count) {
    size_t room = 0;
    for (; names && *names; names++) {
        const Slot *slot = invocation_slot(call, *names);
        if (slot->source == SOURCE_DEFAULT) room += slot->option->type == OPTION_LIST ? count : 1;
    }
    return room >= count;
}

/* Hands the operands to the options that they stand for; others stay in call->operands. Options that a
 * configuration file sets take an operand only if the others have no room for it. */
static Status settle_operands(Invocation *call) {
    const Command *command = call->command;
    if (!command->positional) return OK;
    CLEANUP(mem_freep) const char **operands = NULL;
    size_t count = 0, kept = 0, at = 0, used;
    TRY(mem_new(call->operand_count + 1, sizeof *operands, &operands));
    for (size_t i = 0; i < call->operand_count; i++)
        if (command->suffix && path_ends_with(call->operands[i], command->suffix))
            call->operands[kept++] = call->operands[i];
        else
            operands[count++] = call->operands[i];
    call->operand_count = kept;
    const char *given = NULL;
    bool file_holds = has_room(call, command->positional, count);
    for (const char *const *name = command->positional; *name && at < count; name++) {
        Slot *slot = invocation_slot(call, *name);
        if (file_holds && slot->source == SOURCE_FILE) continue;
        if (slot->source == SOURCE_LINE) {
            given = *name;
            continue;
        }
        if (!slot->option->required && count - at <= still_required(call, name + 1)) continue;
        TRY(set_from_operands(slot, operands + at, count - at, &used));
        at += used;
    }
    return at < count ? refuse_operand(call, operands[at], given) : OK;
}

static bool is_utf8(const char *text) {
    size_t first;
    return !text || text_invalid_utf8(text, strlen(text), &first) == 0;
}

/* Results and a run's config.json are JSON, which can only name what is UTF-8. */
static Status check_utf8(const Invocation *call) {
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        bool list = slot->option->type == OPTION_LIST;
        if (slot->option->any_bytes || (!list && slot->option->type != OPTION_TEXT)) continue;
        const char *const *texts = list ? *(const char *const *const *)slot->field : slot->field;
        for (int k = 0; k < (list ? *slot->count : 1); k++)
            if (!is_utf8(texts[k]))
                return USAGE("--%s: expected %s in UTF-8, found '%s'", slot->option->name,
                             slot->option->placeholder, texts[k]);
    }
    for (size_t i = 0; i < call->operand_count; i++)
        if (!is_utf8(call->operands[i]))
            return USAGE("'%s' is not valid UTF-8; rename it", call->operands[i]);
    return OK;
}

/* Why a run that is to be resumed lacks a required option: its directory has no settings. */
static Status check_resume(const Invocation *call) {
    const Slot *resume = call->command->resumes ? invocation_slot(call, "resume") : NULL;
    if (!resume || !*(const bool *)resume->field) return OK;
    const char *out = *(const char *const *)invocation_slot(call, "out")->field;
    if (!out) return USAGE("--resume requires --out DIR, the run to continue");
    if (mpi_launched().launched && mpi_launched().rank > 0)
        return USAGE("--resume: %s contains no run to continue; if only rank 0 has it, add --" GATHER_OPTION,
                     out);
    return USAGE(
        "--resume: %s contains no run to continue; choose another --out, or pass --data to start one "
        "there",
        out);
}

/* A list option takes every word up to the next option, also those that were meant as operands. */
static const Slot *greedy_list(const Invocation *call) {
    for (size_t i = 0; call->command->positional && i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        bool many = slot->option->type == OPTION_LIST && !slot->option->one_each;
        if (many && slot->source == SOURCE_LINE && *slot->count > 1) return slot;
    }
    return NULL;
}

static Status refuse_missing(const Invocation *call, const Option *missing) {
    const Slot *list = greedy_list(call);
    if (!list)
        return USAGE("--%s %s is required; see 'weft help %s'", missing->name, missing->placeholder,
                     call->command->name);
    return USAGE("--%s %s is required; --%s took '%s', so put operands before it", missing->name,
                 missing->placeholder, list->option->name,
                 (*(const char *const *const *)list->field)[*list->count - 1]);
}

static Status check_complete(const Invocation *call) {
    const Command *command = call->command;
    for (size_t i = 0; i < call->slot_count; i++) {
        const Slot *slot = &call->slots[i];
        if (!slot->option->required || slot->source != SOURCE_DEFAULT) continue;
        TRY(check_resume(call));
        return refuse_missing(call, slot->option);
    }
    if (call->operand_count > command->operands_max)
        return USAGE("'%s': 'weft %s' accepts %s%s; options start with --",
                     call->operands[command->operands_max], command->name,
                     command->operands ? "only " : "no operands", command->operands ? command->operands : "");
    if (call->operand_count < command->operands_min)
        return USAGE("'weft %s' requires %s; see 'weft help %s'", command->name, command->operands,
                     command->name);
    return OK;
}

Status invocation_read(Invocation **ret_call, const Command *command, int argc, char **argv) {
    return invocation_read_from(ret_call, command, argc, argv, NULL, NULL);
}

Status invocation_read_from(Invocation **ret_call, const Command *command, int argc, char **argv,
                            const char *path, json_t *file) {
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(mem_new(1, sizeof *call, &call));
    call->command = command;
    TRY(mem_new(1, command->config_size, &call->config));
    TRY(make_slots(call));
    look_ahead(call, argc, argv);
    call->follows = !path && command->resumes && gathered_follows(argc, argv);
    if (path) {
        TRY(str_dup(path, &call->run_config));
        call->config_path = file ? call->run_config : NULL;
        call->file = json_incref(file);
    }
    if (!call->help && !call->follows) {
        if (command->resumes && !path && !call->config_path) TRY(find_run_config(call, argc, argv));
        bool named = call->config_path || command->recipe == RECIPE_OPERAND;
        if (call->scale && !named)
            return USAGE("--scale %s requires a recipe; pass it with --config", call->scale);
        if (call->run && !named) return USAGE("--run %s requires a recipe; pass it with --config", call->run);
        if (call->config_path) TRY(configfile_apply(call));
        TRY(read_line(call, argc, argv));
        TRY(settle_operands(call));
        TRY(check_utf8(call));
        TRY(fetched_settle(call));
        TRY(folders_settle(call));
        TRY(check_complete(call));
        TRY(optimizer_settle(call));
        TRY(keys_settle(call));
        TRY(effects_check(call));
    }
    *ret_call = call;
    call = NULL;
    return OK;
}

Status invocation_new(Invocation **ret_call, const Command *command, int argc, char **argv) {
    CLEANUP(invocation_freep) Invocation *call = NULL;
    TRY(invocation_read(&call, command, argc, argv));
    if (!call->help) TRY(fetched_check(call));
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
    group_free(call->files);
    group_free(call->world);
    device_free(call->device);
    free(call->slots);
    free(call->operands);
    free(call->config);
    free(call->run_config);
    for (size_t i = 0; i < call->owned_count; i++) free(call->owned[i]);
    free(call->owned);
    for (size_t i = 0; i < call->warning_count; i++) free(call->warnings[i]);
    free(call->warnings);
    json_decref(call->file);
    json_decref(call->included);
    json_decref(call->unknown_keys);
    json_decref(call->unused_keys);
    json_decref(call->study);
    free(call);
}
