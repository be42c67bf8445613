/* The manual page weft(1), from the tables, in the man macros. Text is escaped so that no line of it is
 * taken for a request and every dash is one that can be copied from the page. */
#include <string.h>

#include "cli/help.h"

static void roff(FILE *out, const char *text) {
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\'')) fputs("\\&", out);
        line_start = *text == '\n';
        switch (*text) {
        case '\\': fputs("\\e", out); break;
        case '-': fputs("\\-", out); break;
        case '\n': fputs("\n.PP\n", out); break;
        default: fputc(*text, out);
        }
    }
}

static void roff_line(FILE *out, const char *text) {
    roff(out, text);
    fputc('\n', out);
}

static void write_option(FILE *out, const Option *option) {
    char spelling[LABEL_SIZE], expects[OPTION_EXPECTS_SIZE];
    help_spelling(option, spelling);
    char *value = strchr(spelling, ' ');
    if (value) *value++ = 0;
    fputs(".TP\n\\fB", out);
    roff(out, spelling);
    fputs("\\fR", out);
    if (value) {
        fputs(" \\fI", out);
        roff(out, value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    roff_line(out, option->help);
    if (option->type == OPTION_CHOICE || option->low != 0 || option->high != 0) {
        fputs("Takes ", out);
        roff(out, option_expects(option, expects));
        fputs(".\n", out);
    }
    const char *fallback = help_default(option);
    if (option->required) fputs("Required.\n", out);
    if (fallback) {
        fputs("Default: ", out);
        roff(out, fallback);
        fputs(".\n", out);
    }
}

static void write_group(FILE *out, const OptionGroup *group) {
    fputs(".PP\n", out);
    roff(out, group->heading);
    fputs(":\n", out);
    for (size_t i = 0; i < group->count; i++) write_option(out, &group->options[i]);
}

static void write_command(FILE *out, const Command *command) {
    char synopsis[LABEL_SIZE];
    fputs(".SS ", out);
    roff_line(out, help_synopsis(command, synopsis));
    roff(out, command->summary);
    fputs(".\n", out);
    if (command->description) {
        fputs(".PP\n", out);
        roff_line(out, command->description);
    }
    for (size_t g = 0; g < command->group_count; g++) write_group(out, &command->groups[g]);
    if (command->example_count) fputs(".PP\nExamples:\n", out);
    for (size_t i = 0; i < command->example_count; i++) {
        fputs(".TP\n", out);
        roff_line(out, command->examples[i].what);
        roff_line(out, command->examples[i].line);
    }
}

void manpage_write(FILE *out) {
    fputs(".TH WEFT 1 \"\" \"weft " WEFT_VERSION "\" \"User Commands\"\n"
          ".SH NAME\nweft \\- train, evaluate and run GPT\\-2 and BERT\n"
          ".SH SYNOPSIS\n.B weft\n.I COMMAND\n[\\fIOPTION\\fR]...\n"
          ".SH DESCRIPTION\n",
          out);
    roff_line(
        out,
        "weft trains GPT-2 and BERT, starting from nothing or from a Hugging Face checkpoint, and writes "
        "checkpoints that Hugging Face transformers loads as they are.\n"
        "An option is written --name VALUE or --name=VALUE. A flag --name is taken back by --no-name. An "
        "option that takes several values is followed by all of them or given several times. After -- "
        "everything is an operand.");
    fputs(".SH COMMANDS\n", out);
    for (const Command *const *command = commands_all(); *command; command++) write_command(out, *command);
    fputs(".SH COMMON OPTIONS\nEvery command takes these.\n", out);
    for (size_t i = 0; i < common_options.count; i++) write_option(out, &common_options.options[i]);
    fputs(
        ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nThe work failed.\n"
        ".TP\n2\nThe command line or the configuration was wrong.\n"
        ".SH ENVIRONMENT\n"
        ".TP\nOMP_NUM_THREADS\nThreads to compute with, unless \\-\\-threads says otherwise.\n"
        ".TP\nNO_COLOR\nWhen set, nothing is coloured.\n"
        ".TP\nWEFT_CPU_BF16\nHow bf16 is multiplied: mmla, dot or amx, where the processor has it, or off to "
        "convert to fp32; without it, the fastest.\n"
        ".TP\nWEFT_CPU_INT8\nHow int8 is multiplied: i8mm, dotprod or vnni, where the processor has it, or "
        "plain; "
        "without it, the fastest.\n"
        ".TP\nWEFT_TRACE\nWhen 1, an error is followed by the calls it came through.\n",
        out);
}
