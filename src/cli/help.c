/* weft help: everything it says comes from the tables of commands and options. */
#include "cli/help.h"

#include <math.h>
#include <string.h>

#include "base/terminal.h"

enum {
    OPTION_COLUMN = 26,
    COMMAND_COLUMN = 14,
    MEMBER_COLUMN = 20,
    NARROWEST = 50,
    WIDEST = 100,
    RANGE_SHOWN = 1000
};

static int text_width(FILE *out) {
    int width = terminal_width(out);
    return width < NARROWEST ? NARROWEST : width > WIDEST ? WIDEST : width;
}

/* In a text to be wrapped: a space that no line is broken at. */
#define HARD_SPACE "\x1f"

static void print_word(FILE *out, const char *word, int length) {
    for (int i = 0; i < length; i++) fputc(word[i] == *HARD_SPACE ? ' ' : word[i], out);
}

/* Words from column `at` on, further lines from column `indent`; a newline in the text starts a line. */
static void wrap(FILE *out, const char *text, int at, int indent) {
    int width = text_width(out), column = at;
    bool fresh = true;
    while (*text) {
        if (*text == '\n') {
            fprintf(out, "\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
            column = indent;
            fresh = true;
            text++;
            continue;
        }
        int length = (int)strcspn(text, " \n");
        if (!fresh && column + 1 + length > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            fresh = true;
        }
        if (!fresh) fputc(' ', out);
        print_word(out, text, length);
        column += length + !fresh;
        fresh = false;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void heading(FILE *out, const char *text) {
    bool color = terminal_color(out);
    fprintf(out, "\n%s%s%s\n", color ? "\033[1m" : "", text, color ? "\033[0m" : "");
}

const char *help_spelling(const Option *option, char *buffer) {
    if (option->type == OPTION_FLAG)
        snprintf(buffer, LABEL_SIZE, "%s%s", option_typed_prefix(option), option->name);
    else
        snprintf(buffer, LABEL_SIZE, "--%s %s%s", option->name, option->placeholder,
                 option->type == OPTION_LIST && !option->one_each ? "..." : "");
    return buffer;
}

const char *help_default(const Option *option) {
    if (option->type == OPTION_FLAG || option->required) return NULL;
    return option->shown ? option->shown : option->fallback;
}

const char *help_synopsis(const Command *command, char *buffer) {
    int used = snprintf(buffer, LABEL_SIZE, "weft %s%s", command->name, command->family ? " COMMAND" : "");
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++) {
            const Option *option = &command->groups[g].options[i];
            char spelling[LABEL_SIZE];
            if (option->required && used < LABEL_SIZE)
                used += snprintf(buffer + used, LABEL_SIZE - (size_t)used, " %s",
                                 help_spelling(option, spelling));
        }
    if (used < LABEL_SIZE)
        snprintf(buffer + used, LABEL_SIZE - (size_t)used, " [OPTION]...%s%s", command->operands ? " " : "",
                 command->operands ? command->operands : "");
    return buffer;
}

/* The help text with what it takes and its default, as one paragraph. */
static void describe_option(const Option *option, char *buffer, size_t size) {
    char expects[OPTION_EXPECTS_SIZE];
    int used = snprintf(buffer, size, "%s", option->help);
    if (option->type == OPTION_CHOICE && (size_t)used < size)
        used += snprintf(buffer + used, size - (size_t)used, " One of: %s.", option_expects(option, expects));
    bool narrow = isfinite(option->high) && option->high > 0 && option->high <= RANGE_SHOWN;
    if (narrow && (size_t)used < size)
        used += snprintf(buffer + used, size - (size_t)used, " Takes %s.", option_expects(option, expects));
    const char *fallback = help_default(option);
    if (option->required && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, " (required)");
    else if (fallback && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, " (default:" HARD_SPACE "%s)", fallback);
}

static void print_group(FILE *out, const OptionGroup *group) {
    heading(out, group->heading);
    for (size_t i = 0; i < group->count; i++) {
        char spelling[LABEL_SIZE], text[1024];
        int used = fprintf(out, "  %s", help_spelling(&group->options[i], spelling));
        if (used + 2 > OPTION_COLUMN) {
            fprintf(out, "\n");
            used = 0;
        }
        fprintf(out, "%*s", OPTION_COLUMN - used, "");
        describe_option(&group->options[i], text, sizeof text);
        wrap(out, text, OPTION_COLUMN, OPTION_COLUMN);
    }
}

/* The members of a family, or the commands without one. */
static void list_commands(FILE *out, const Command *family) {
    int column = family ? MEMBER_COLUMN : COMMAND_COLUMN;
    heading(out, "Commands");
    for (const Command *const *command = commands_all(); *command; command++) {
        if (!command_is_of(*command, family)) continue;
        fprintf(out, "  %-*s", column - 2, (*command)->name);
        wrap(out, (*command)->summary, column, column);
    }
}

static void print_command(FILE *out, const Command *command) {
    char synopsis[LABEL_SIZE];
    fprintf(out, "weft %s: ", command->name);
    wrap(out, command->summary, (int)strlen(command->name) + 7, 2);
    fprintf(out, "\nUsage: %s\n", help_synopsis(command, synopsis));
    if (command->description) {
        fputc('\n', out);
        wrap(out, command->description, 0, 0);
    }
    if (command->family) list_commands(out, command);
    for (size_t g = 0; g < command->group_count; g++) print_group(out, &command->groups[g]);
    print_group(out, &common_options);
    if (command->example_count) heading(out, "Examples");
    for (size_t i = 0; i < command->example_count; i++)
        fprintf(out, "%s  %s:\n      %s\n", i ? "\n" : "", command->examples[i].what,
                command->examples[i].line);
}

void help_overview(FILE *out) {
    fprintf(out, "weft " WEFT_VERSION
                 ": train, evaluate and run GPT-2 and BERT\n\nUsage: weft COMMAND [OPTION]...\n");
    list_commands(out, NULL);
    fputc('\n', out);
    wrap(out,
         "'weft help COMMAND' lists a command's options. Every command takes --json, which prints the result "
         "as one "
         "JSON object. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.",
         0, 0);
}

static const char *type_name(OptionType type) {
    static const char *const names[] = {"flag", "int", "float", "text", "choice", "list", "size", "seed"};
    return names[type];
}

static json_t *describe_json(const Option *option, const char *group) {
    json_t *json = json_pack("{ss ss ss ss sb}", "name", option->name, "type", type_name(option->type),
                             "help", option->help, "group", group, "required", option->required);
    if (!json) return NULL;
    if (option->fallback) json_object_set_new(json, "default", json_string(option->fallback));
    if (option->low != 0 || option->high != 0) {
        if (isfinite(option->low)) json_object_set_new(json, "low", json_real(option->low));
        if (isfinite(option->high)) json_object_set_new(json, "high", json_real(option->high));
    }
    json_t *choices = option->choices ? json_array() : NULL;
    for (const char *const *choice = option->choices; choice && *choice; choice++)
        json_array_append_new(choices, json_string(*choice));
    if (choices) json_object_set_new(json, "choices", choices);
    return json;
}

static void add_group_json(json_t *options, const OptionGroup *group) {
    for (size_t i = 0; i < group->count; i++)
        json_array_append_new(options, describe_json(&group->options[i], group->heading));
}

static json_t *command_json(const Command *command) {
    char synopsis[LABEL_SIZE];
    json_t *options = json_array();
    for (size_t g = 0; g < command->group_count; g++) add_group_json(options, &command->groups[g]);
    add_group_json(options, &common_options);
    return json_pack("{ss ss ss so}", "name", command->name, "summary", command->summary, "usage",
                     help_synopsis(command, synopsis), "options", options);
}

static Status print_json_help(json_t *json) {
    if (!json) return FAILED("out of memory while writing the help");
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
    return OK;
}

Status help_wanted_member(const Command *family) {
    print_command(stderr, family);
    fputc('\n', stderr);
    return USAGE("'weft %s' needs one of its commands", family->name);
}

Status help_command(const Invocation *call, const Command *command) {
    if (call->json) return print_json_help(command_json(command));
    print_command(stdout, command);
    return OK;
}

typedef struct HelpArgs {
    bool man;
    const char *completion;
} HelpArgs;

/* clang-format off */
static const Option help_table[] = {
    {OPT_FLAG("man", HelpArgs, man), .help = "Write the manual page weft(1), in roff."},
    {OPT_CHOICE("completion", HelpArgs, completion, "SHELL", completion_shells),
     .help = "Write the completion script for a shell."},
};
/* clang-format on */

static const OptionGroup help_groups[] = {OPTION_GROUP("Generated files", help_table, 0)};

static Status run(Invocation *call, void *config, json_t **ret_result) {
    const HelpArgs *args = config;
    if (call->operand_count) {
        const Command *command;
        size_t used;
        TRY(command_find(call->operands, call->operand_count, &command, &used));
        if (used < call->operand_count)
            return USAGE("'%s': 'weft help' takes only [COMMAND]", call->operands[used]);
        return help_command(call, command);
    }
    if (call->json) {
        json_t *list = json_array();
        for (const Command *const *command = commands_all(); *command; command++)
            json_array_append_new(list, command_json(*command));
        *ret_result = json_pack("{ss so}", "version", WEFT_VERSION, "commands", list);
        return *ret_result ? OK : FAILED("out of memory while writing the help");
    }
    if (args->completion) return completion_write(args->completion, stdout);
    if (args->man)
        manpage_write(stdout);
    else
        help_overview(stdout);
    return OK;
}

static const Example examples[] = {
    {"List the commands", "weft help"},
    {"List the options of a command", "weft help train"},
    {"Complete in this bash session", "source <(weft help --completion bash)"},
};

const Command command_help = {
    .name = "help",
    .summary = "explain the commands and their options",
    .description = "Without a command's name, lists the commands. With --json, describes them and all their "
                   "options for programs.",
    .operands = "[COMMAND]",
    .operands_max = 2,
    .config_size = sizeof(HelpArgs),
    .groups = help_groups,
    .group_count = COUNT_OF(help_groups),
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .run = run,
};
