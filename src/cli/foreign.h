/* What other tools (nanoGPT, transformers, Megatron-LM, DeepSpeed, llama.cpp, torchrun ...) call the things
 * that weft has under another name. These names are not accepted; the error that rejects them gives weft's
 * spelling. */
#ifndef WEFT_CLI_FOREIGN_H
#define WEFT_CLI_FOREIGN_H

#include "cli/command.h"

/* Names that mean the same. */
typedef struct ForeignRow {
    /* "tool: name name; tool: name". Options are without leading dashes, with '-' for '_'; "name=value" is
     * for one value only, "name*" for all names that start with it. Values are of no particular tool. */
    const char *names;
    /* weft's spelling: "--seq %", in which % stands for the value, "weft generate" or "--dtype bf16". The row
     * of an option applies to commands that have weft's. NULL: weft has no equivalent, and the row applies to
     * every command. */
    const char *use;
    const char *what; /* what they mean; without `use`, what to do instead; empty for values */
} ForeignRow;

typedef enum { FOREIGN_OPTION, FOREIGN_COMMAND, FOREIGN_VALUE } ForeignKind;
enum { FOREIGN_TOOL = 32 };

/* A name of a row: start with {.row = row, .rest = row->names}. */
typedef struct Foreign {
    const ForeignRow *row;
    const char *rest;
    char tool[FOREIGN_TOOL], name[64];
} Foreign;

/* The rows, ending with one without names. */
const ForeignRow *foreign_rows(ForeignKind kind);
/* Moves on to the next name of the row; false at the end. */
bool foreign_next(Foreign *foreign);

/* Finds the row for a name in this command. `name` may start with dashes; `value`: NULL if none. */
bool foreign_option(const Invocation *call, const char *name, const char *value, Foreign *ret_foreign);
/* The usage error for an option that another tool has. `typed`: the name as typed. */
MUST_USE Status foreign_refuse_option(const Invocation *call, const Foreign *foreign, const char *typed,
                                      const char *value);
/* The usage error for a command that another tool has; OK if none has it. */
MUST_USE Status foreign_refuse_command(const char *name);
/* weft's spelling of an option's value, or NULL. */
const char *foreign_value(const char *option, const char *text);

#endif
