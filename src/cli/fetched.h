/* Names of fetched files: "@SET" and "@SET/FILE" stand for what `weft fetch SET` downloads. They are accepted
 * in configuration files and, for options and operands that read files, on the command line. */
#ifndef WEFT_CLI_FETCHED_H
#define WEFT_CLI_FETCHED_H

#include "cli/command.h"

/* The path that a name stands for, owned by the caller; NULL if `text` is not such a name. `label` says where
 * it was given. */
MUST_USE Status fetched_path(const char *label, const char *text, char **ret_path);
/* Replaces such names on the command line by their paths. */
MUST_USE Status fetched_settle(Invocation *call);
/* Checks that the fetched files in use exist. */
MUST_USE Status fetched_check(const Invocation *call);

#endif
