/* The steps of reading a command line, in addition to invocation.c. */
#ifndef WEFT_CLI_INVOCATION_H
#define WEFT_CLI_INVOCATION_H

#include "cli/command.h"

/* ---- configuration files: --config FILE.json ---- */

enum { CONFIG_LIMIT = 16 << 20 /* bytes of a file */ };

/* Sets the options in the file at call->config_path, whose contents are call->file if they were read already.
 */
MUST_USE Status configfile_apply(Invocation *call);

/* Sets the option `name` from the file's key `key`. Two keys for the same option must agree. */
MUST_USE Status configfile_set(Invocation *call, const char *name, const char *key, json_t *value);
/* Forgets which key set the option, so that another may. */
void configfile_unset(Invocation *call, const char *name);
/* The error for an unknown key. */
MUST_USE Status configfile_unknown(const Invocation *call, const char *key);
/* Remembers an unknown key, to report all of them at once. */
MUST_USE Status configfile_note_unknown(Invocation *call, const char *key);

/* Appends an entry to a list option (invocation.c). */
MUST_USE Status slot_append(Slot *slot, const char *label, const char *text);

/* ---- names of fetched files ---- */

/* "@SET" and "@SET/FILE" stand for what `weft fetch SET` downloads. They are accepted in configuration files
 * and, for options and operands that read files, on the command line. */

/* The path that a name stands for, owned by the caller; NULL if `text` is not such a name. `label` says where
 * it was given. */
MUST_USE Status fetched_path(const char *label, const char *text, char **ret_path);
/* Replaces such names on the command line by their paths. */
MUST_USE Status fetched_settle(Invocation *call);
/* Replaces the directories in {data} and {val} by their files. */
MUST_USE Status folders_settle(Invocation *call);
/* Checks that the fetched files in use exist. */
MUST_USE Status fetched_check(const Invocation *call);

/* ---- --gather-checkpoints: only rank 0 reads configuration files ---- */

#define GATHER_OPTION "gather-checkpoints"

/* Whether this is a rank other than 0 and the command line has the option, so that its options are complete
 * only after gathered_options. */
bool gathered_follows(int argc, char **argv);
/* If the command line has the option: joins the other ranks, and rank 0 sends its configuration file to
 * them, which then parse the command line again; *call is replaced there. Else does nothing. Collective. */
MUST_USE Status gathered_options(Invocation **call, int argc, char **argv);

/* ---- options whose defaults depend on --optimizer ---- */

/* Sets the options that were not given to the defaults of the optimizer, from its row in optim/optim.h, and
 * warns about options that it does not have. Does nothing for a command without these options. */
MUST_USE Status optimizer_settle(Invocation *call);

/* ---- warnings about options that have no effect in combination with the others ---- */

/* The options have an effect only if `other` has one of these values. */
enum { EFFECT_OPTIONS = 128 };
typedef struct Effect {
    const char *options; /* separated by spaces; shorter than EFFECT_OPTIONS */
    const char *other;
    const char *values;  /* "a|b": one of these; "!a": any other; ">1": a larger number; "*": given or on;
                          * "": not given, or off */
    const char *unless;  /* the condition in words: "without --zero 3" */
    const char *except;  /* a value of the option that is an error without `other` */
    const char *enough;  /* another option with which they have an effect; or NULL */
    const char *command; /* NULL: every command that has these options */
} Effect;

/* The table, ending with a row without options. */
const Effect *effects_all(void);
/* Adds a warning to `call` for each option without effect. */
MUST_USE Status effects_check(Invocation *call);

#endif
