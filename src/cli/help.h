/* What is generated from the tables for people and their shells. */
#ifndef WEFT_CLI_HELP_H
#define WEFT_CLI_HELP_H

#include "cli/command.h"

void help_overview(FILE *out);
/* `weft COMMAND --help`: on standard output, as JSON with call->json. */
MUST_USE Status help_command(const Invocation *call, const Command *command);
/* A family was called without a member: says on standard error which there are, and fails. */
MUST_USE Status help_wanted_member(const Command *family);
/* "--lr X" or "--no-shuffle": an option as one types it, into a buffer of LABEL_SIZE. */
const char *help_spelling(const Option *option, char *buffer);
/* The default for a person, or NULL when there is nothing to say. */
const char *help_default(const Option *option);
/* "weft train --data FILE... [OPTION]...", into a buffer of LABEL_SIZE. */
const char *help_synopsis(const Command *command, char *buffer);

void manpage_write(FILE *out);
extern const char *const completion_shells[]; /* NULL-terminated */
MUST_USE Status completion_write(const char *shell, FILE *out);

#endif
