/* What other tools (nanoGPT, transformers, Megatron-LM, DeepSpeed, llama.cpp, torchrun ...) call the things
 * that weft has under another name. These names are not accepted; the error that rejects them gives weft's
 * spelling. One row per name, in foreign_options.c and foreign.c. */
#ifndef WEFT_CLI_FOREIGN_H
#define WEFT_CLI_FOREIGN_H

#include "cli/command.h"

typedef struct ForeignOption {
    /* Without leading dashes, with '-' for '_'; "name=value" for one value only, "name*" for all names that
     * start with it. */
    const char *name;
    const char *tool;
    /* weft's spelling, in which % stands for the value: "--seq %". The row applies to commands that have
     * this option. NULL: weft has no equivalent, and the row applies to every command. */
    const char *use;
    const char *what; /* what both names mean; without `use`, what to do instead */
} ForeignOption;

typedef struct ForeignCommand {
    const char *name, *tool;
    const char *use; /* "weft generate"; NULL: weft has no equivalent */
    const char *what;
} ForeignCommand;

/* A value of an option. */
typedef struct ForeignValue {
    const char *option, *value, *weft;
} ForeignValue;

/* The tables, each ending with a row without a name. */
const ForeignOption *foreign_options(void);
const ForeignCommand *foreign_commands(void);
const ForeignValue *foreign_values(void);

/* The row for a name in this command, or NULL. `name` may start with dashes; `value`: NULL if none. */
const ForeignOption *foreign_option(const Invocation *call, const char *name, const char *value);
/* The usage error for an option that another tool has. `typed`: the name as typed. */
MUST_USE Status foreign_refuse_option(const Invocation *call, const ForeignOption *row, const char *typed,
                                      const char *value);
/* NULL if no other tool has such a command. */
const ForeignCommand *foreign_command(const char *name);
MUST_USE Status foreign_refuse_command(const ForeignCommand *row);
/* weft's spelling of an option's value, or NULL. */
const char *foreign_value(const char *option, const char *text);

#endif
