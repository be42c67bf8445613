/* weft help: generated from the tables of commands and options. */
#include "cli/help.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/terminal.h"
#include "model/family.h"

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

/* In text to be wrapped: a no-break space. */
#define HARD_SPACE "\x1f"

static void print_word(FILE *out, const char *word, int length) {
    for (int i = 0; i < length; i++) fputc(word[i] == *HARD_SPACE ? ' ' : word[i], out);
}

/* Prints wrapped text: the first line starts at column `at`, the others at column `indent`. Newlines in the
 * text are kept. */
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
        snprintf(buffer, LABEL_SIZE, "%s%s%s%s%s", option_typed_prefix(option), option->name,
                 option->word ? " [" : "", option->word ? option->word : "", option->word ? "]" : "");
    else
        snprintf(buffer, LABEL_SIZE, "--%s %s%s", option->name, option->placeholder,
                 option->type == OPTION_LIST && !option->one_each ? "..." : "");
    return buffer;
}

const char *help_default(const Option *option) {
    if (option->type == OPTION_FLAG || option->required) return NULL;
    return option->shown ? option->shown : option->fallback;
}

const char *help_choices(const Option *option, char *buffer) {
    size_t used = 0;
    buffer[0] = 0;
    for (const char *const *choice = option->choices; *choice && used < OPTION_EXPECTS_SIZE; choice++)
        used += (size_t)snprintf(buffer + used, OPTION_EXPECTS_SIZE - used, "%s%s",
                                 choice == option->choices ? "" : ", ", *choice);
    return buffer;
}

const char *help_operand(const Command *command, size_t index, char *buffer) {
    const Option *option = command_option(command, command->positional[index]);
    char name[64];
    size_t length = 0;
    for (; option->name[length] && length + 1 < sizeof name; length++)
        name[length] = (char)toupper((unsigned char)option->name[length]);
    name[length] = 0;
    snprintf(buffer, LABEL_SIZE, "%s%s%s%s", option->required ? "" : "[", name,
             option->type == OPTION_LIST ? "..." : "", option->required ? "" : "]");
    return buffer;
}

static bool is_positional(const Command *command, const Option *option) {
    for (const char *const *name = command->positional; name && *name; name++)
        if (!strcmp(*name, option->name)) return true;
    return false;
}

const char *help_synopsis(const Command *command, char *buffer) {
    char spelling[LABEL_SIZE];
    int used = snprintf(buffer, LABEL_SIZE, "weft %s%s", command->name, command->family ? " COMMAND" : "");
    for (size_t i = 0; command->positional && command->positional[i] && used < LABEL_SIZE; i++)
        used += snprintf(buffer + used, LABEL_SIZE - (size_t)used, " %s", help_operand(command, i, spelling));
    for (const OptionGroup *group = command->groups; group && group->options; group++)
        for (size_t i = 0; i < group->count; i++) {
            const Option *option = &group->options[i];
            if (option->required && !is_positional(command, option) && used < LABEL_SIZE)
                used += snprintf(buffer + used, LABEL_SIZE - (size_t)used, " %s",
                                 help_spelling(option, spelling));
        }
    if (used < LABEL_SIZE)
        snprintf(buffer + used, LABEL_SIZE - (size_t)used, " [OPTION]...%s%s", command->operands ? " " : "",
                 command->operands ? command->operands : "");
    return buffer;
}

const char *help_operands(const Command *command, char *buffer) {
    size_t count = 0, used = 0;
    buffer[0] = 0;
    while (command->positional && command->positional[count]) count++;
    for (size_t i = 0; i < count && used < LABEL_SIZE; i++)
        used += (size_t)snprintf(buffer + used, LABEL_SIZE - used, "%s--%s",
                                 !i ? count == 1 ? "The operand stands for " : "The operands stand for "
                                 : i + 1 < count ? ", "
                                                 : " and ",
                                 command->positional[i]);
    if (count && used < LABEL_SIZE) snprintf(buffer + used, LABEL_SIZE - used, ".");
    return count ? buffer : NULL;
}

const char *help_text(const Option *option, char *buffer) {
    const char *gap = option->names ? strstr(option->help, "%s") : NULL;
    if (!gap) return option->help;
    int used = snprintf(buffer, HELP_TEXT, "%.*s", (int)(gap - option->help), option->help);
    for (const char *const *name = option->names(); *name && used < HELP_TEXT; name++)
        used += snprintf(buffer + used, (size_t)(HELP_TEXT - used), "%s%s", *name, name[1] ? ", " : "");
    if (used < HELP_TEXT) snprintf(buffer + used, (size_t)(HELP_TEXT - used), "%s", gap + 2);
    return buffer;
}

/* The help text, the valid values and the default, as one paragraph. */
static void describe_option(const Option *option, char *buffer, size_t size) {
    char expects[OPTION_EXPECTS_SIZE], help[HELP_TEXT];
    int used = snprintf(buffer, size, "%s", help_text(option, help));
    if (option->type == OPTION_CHOICE && (size_t)used < size)
        used += snprintf(buffer + used, size - (size_t)used, " Choices: %s.", help_choices(option, expects));
    bool narrow = isfinite(option->high) && option->high > 0 && option->high <= RANGE_SHOWN;
    if (narrow && (size_t)used < size)
        used += snprintf(buffer + used, size - (size_t)used, " Must be %s.", option_expects(option, expects));
    const char *fallback = help_default(option);
    if (option->required && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, " (required)");
    else if (fallback && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, " (default:" HARD_SPACE "%s)", fallback);
}

static void print_group(FILE *out, const OptionGroup *group) {
    heading(out, group->heading);
    for (size_t i = 0; i < group->count; i++) {
        char spelling[LABEL_SIZE], text[2 * HELP_TEXT];
        const Option *option = &group->options[i];
        int used = option->letter ? fprintf(out, "  -%c,", option->letter) : fprintf(out, " ");
        used += fprintf(out, " %s", help_spelling(option, spelling));
        if (used + 2 > OPTION_COLUMN) {
            fprintf(out, "\n");
            used = 0;
        }
        fprintf(out, "%*s", OPTION_COLUMN - used, "");
        describe_option(option, text, sizeof text);
        wrap(out, text, OPTION_COLUMN, OPTION_COLUMN);
    }
}

/* The members of a family or, if it is NULL, the commands outside families. */
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
    if (help_operands(command, synopsis)) wrap(out, synopsis, 0, 0);
    if (command->description) {
        fputc('\n', out);
        wrap(out, command->description, 0, 0);
    }
    if (command->family) list_commands(out, command);
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++) print_group(out, group);
    if (command->examples[0].what) heading(out, "Examples");
    for (const Example *example = command->examples; example->what; example++)
        fprintf(out, "%s  %s:\n      %s\n", example > command->examples ? "\n" : "", example->what,
                example->line);
}

void help_overview(FILE *out) {
    char titles[FAMILY_TITLES];
    fprintf(out,
            "weft " WEFT_VERSION ": train, evaluate and run %s models\n\nUsage: weft COMMAND [OPTION]...\n",
            family_titles(~0u, "and", titles));
    list_commands(out, NULL);
    fputc('\n', out);
    wrap(out,
         "'weft help COMMAND' lists a command's options, 'weft help --all' those of all commands. Every "
         "command accepts --json, which prints the result as one JSON object. Exit codes: 0 success, 1 "
         "failure, 2 invalid usage or configuration, 75 stopped and saved.",
         0, 0);
}

/* The overview, then every command. */
static void print_all(FILE *out) {
    help_overview(out);
    for (const Command *const *command = commands_all(); *command; command++) {
        fputc('\n', out);
        for (int i = text_width(out); i > 0; i--) fputc('-', out);
        fputs("\n\n", out);
        print_command(out, *command);
    }
}

static const char *type_name(OptionType type) {
    static const char *const names[] = {"flag", "int", "float", "text", "choice", "list", "size", "seed"};
    return names[type];
}

static json_t *describe_json(const Option *option, const char *group) {
    char help[HELP_TEXT];
    json_t *json = json_pack("{ss ss ss ss sb}", "name", option->name, "type", type_name(option->type),
                             "help", help_text(option, help), "group", group, "required", option->required);
    if (!json) return NULL;
    const char *shown = option->shown && option->type != OPTION_FLAG ? option->shown : option->fallback;
    if (shown) json_object_set_new(json, "default", json_string(shown));
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
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++) add_group_json(options, group);
    json_t *operands = json_array();
    for (size_t i = 0; command->positional && command->positional[i]; i++)
        json_array_append_new(operands, json_string(command->positional[i]));
    return json_pack("{ss ss ss so so}", "name", command->name, "summary", command->summary, "usage",
                     help_synopsis(command, synopsis), "operands", operands, "options", options);
}

static Status print_json_help(json_t *json) {
    if (!json) return FAILED("out of memory while writing the help");
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
    return OK;
}

Status help_missing_member(const Command *family) {
    print_command(stderr, family);
    fputc('\n', stderr);
    return USAGE("'weft %s' requires one of the commands above", family->name);
}

Status help_command(const Invocation *call, const Command *command) {
    if (call->json) return print_json_help(command_json(command));
    print_command(stdout, command);
    return OK;
}

typedef struct HelpArgs {
    bool all, man;
    const char *completion;
} HelpArgs;

/* clang-format off */
static const Option help_table[] = {
    {OPT_FLAG("all", HelpArgs, all), .help = "Show the help for every command."},
    {OPT_FLAG("man", HelpArgs, man), .help = "Print the manual page weft(1) in roff format."},
    {OPT_CHOICE("completion", HelpArgs, completion, "SHELL", completion_shells),
     .help = "Print the completion script for a shell."},
};
/* clang-format on */

static Status run(Invocation *call, void *config, json_t **ret_result) {
    const HelpArgs *args = config;
    if (args->all && call->operand_count)
        return USAGE("--all shows every command; remove '%s'", call->operands[0]);
    if (call->operand_count) {
        const Command *command;
        size_t used;
        TRY(command_find(call->operands, call->operand_count, &command, &used));
        if (used < call->operand_count)
            return USAGE("'%s': 'weft help' accepts only [COMMAND]", call->operands[used]);
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
    else if (args->all)
        print_all(stdout);
    else
        help_overview(stdout);
    return OK;
}

const Command command_help = {
    .name = "help",
    .summary = "show help for commands and their options",
    .description = "Without a command, lists all commands. With --json, prints all commands and options in "
                   "machine-readable form.",
    .operands = "[COMMAND]",
    .operands_max = 2,
    .config_size = sizeof(HelpArgs),
    .groups = GROUPS(OPTION_GROUP("Options", help_table, 0)),
    .examples = {{"List the commands", "weft help"},
                 {"List the options of a command", "weft help train"},
                 {"Read the help for all commands", "weft help --all | less"},
                 {"Enable completion in this bash session", "source <(weft help --completion bash)"}},
    .run = run,
};
