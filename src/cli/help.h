/* Help, the man page and completion scripts, generated from the tables of commands and options. */
#ifndef WEFT_CLI_HELP_H
#define WEFT_CLI_HELP_H

#include "cli/command.h"

void help_overview(FILE *out);
/* `weft COMMAND --help`: prints to standard output, as JSON if call->json is set. */
MUST_USE Status help_command(const Invocation *call, const Command *command);
/* For a family called without a member: lists the members on standard error and fails. */
MUST_USE Status help_missing_member(const Command *family);
/* "--lr X" or "--no-shuffle": the option as typed, written to a buffer of LABEL_SIZE. */
const char *help_spelling(const Option *option, char *buffer);
/* The option's help with its names filled in, which may use a buffer of HELP_TEXT. */
enum { HELP_TEXT = 2048 };
const char *help_text(const Option *option, char *buffer);
/* The default as help shows it; NULL if there is none to show. */
const char *help_default(const Option *option);
/* "linear, cosine, constant", written to a buffer of OPTION_EXPECTS_SIZE. For choices only. */
const char *help_choices(const Option *option, char *buffer);
/* An operand that stands for an option: "MODEL", "[DATA...]"; written to a buffer of LABEL_SIZE. */
const char *help_operand(const Command *command, size_t index, char *buffer);
/* "The operands stand for --model and --data.", in a buffer of LABEL_SIZE; NULL if there are none. */
const char *help_operands(const Command *command, char *buffer);
/* "weft tokenizer train DATA... --out DIR [OPTION]...", written to a buffer of LABEL_SIZE. */
const char *help_synopsis(const Command *command, char *buffer);

void manpage_write(FILE *out);
extern const char *const completion_shells[]; /* NULL-terminated */
MUST_USE Status completion_write(const char *shell, FILE *out);

#endif
