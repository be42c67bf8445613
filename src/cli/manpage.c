/* The manual page weft(1), generated from the tables with the man macros. Text is escaped: no line starts a
 * request by accident, and dashes can be copied from the page. */
#include <string.h>

#include "cli/help.h"
#include "model/family.h"

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
    char spelling[LABEL_SIZE], expects[OPTION_EXPECTS_SIZE], help[HELP_TEXT];
    help_spelling(option, spelling);
    char *value = strchr(spelling, ' ');
    if (value) *value++ = 0;
    fputs(".TP\n\\fB", out);
    if (option->letter) fprintf(out, "\\-%c\\fR, \\fB", option->letter);
    roff(out, spelling);
    fputs("\\fR", out);
    if (value) {
        fputs(" \\fI", out);
        roff(out, value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    roff_line(out, help_text(option, help));
    bool choice = option->type == OPTION_CHOICE;
    if (choice || option->low != 0 || option->high != 0) {
        fputs(choice ? "Choices: " : "Must be ", out);
        roff(out, choice ? help_choices(option, expects) : option_expects(option, expects));
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
    if (help_operands(command, synopsis)) roff_line(out, synopsis);
    if (command->description) {
        fputs(".PP\n", out);
        roff_line(out, command->description);
    }
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)) != &common_options; g++) write_group(out, group);
    if (command->examples[0].what) fputs(".PP\nExamples:\n", out);
    for (const Example *example = command->examples; example->what; example++) {
        fputs(".TP\n", out);
        roff_line(out, example->what);
        roff_line(out, example->line);
    }
}

static const char *const exit_codes[][2] = {
    {"0", "Success."},
    {"1", "The command failed."},
    {"2", "Invalid command line or configuration."},
};

static const char *const variables[][2] = {
    {"OMP_NUM_THREADS", "Number of threads, unless \\-\\-threads overrides it."},
    {"NO_COLOR", "Disables color if set."},
    {"WEFT_CPU",
     "Newest instruction set to use: sse2, avx2 or avx512; on aarch64 neon or neon+bf16. Default: the "
     "CPU's."},
    {"WEFT_CPU_BF16",
     "Implementation of bf16 matrix multiplication and, on x86-64, attention: mmla, dot or amx if the CPU "
     "supports it, or off to convert to fp32. Default: the fastest."},
    {"WEFT_CPU_FP32",
     "Implementation of fp32 matrix multiplication: fma or, if the CPU supports it, amx, which is faster "
     "if few cores share the memory bandwidth. Default: fma."},
    {"WEFT_CPU_INT8",
     "Implementation of int8 matrix multiplication: i8mm, dotprod, amx, vnni or avx2 if the CPU supports "
     "it, or plain. Default: the fastest."},
    {"WEFT_TRACE", "If 1, errors are followed by the call chain they were returned through."},
};

static void write_terms(FILE *out, const char *const (*terms)[2], size_t count) {
    for (size_t i = 0; i < count; i++) fprintf(out, ".TP\n%s\n%s\n", terms[i][0], terms[i][1]);
}

void manpage_write(FILE *out) {
    char titles[FAMILY_TITLES];
    family_titles(~0u, "and", titles);
    fputs(".TH WEFT 1 \"\" \"weft " WEFT_VERSION
          "\" \"User Commands\"\n.SH NAME\nweft \\- train, evaluate and run ",
          out);
    roff(out, titles);
    fputs(" models\n"
          ".SH SYNOPSIS\n.B weft\n.I COMMAND\n[\\fIOPTION\\fR]...\n"
          ".SH DESCRIPTION\n",
          out);
    fputs("weft trains ", out);
    roff(out, titles);
    roff_line(
        out,
        ", from scratch or from a Hugging Face checkpoint, and writes checkpoints "
        "that Hugging Face transformers loads unchanged.\n"
        "Write options as --name VALUE or --name=VALUE; --no-name turns a flag off. An option with several "
        "values is followed by all of them or repeated. Everything after -- is an operand.");
    fputs(".SH COMMANDS\n", out);
    for (const Command *const *command = commands_all(); *command; command++) write_command(out, *command);
    fputs(".SH COMMON OPTIONS\nEvery command accepts these.\n", out);
    for (size_t i = 0; i < common_options.count; i++) write_option(out, &common_options.options[i]);
    fputs(".SH EXIT STATUS\n", out);
    write_terms(out, exit_codes, COUNT_OF(exit_codes));
    fputs(".SH ENVIRONMENT\n", out);
    write_terms(out, variables, COUNT_OF(variables));
}
