/* Warnings about options on the command line that have no effect in combination with the others. */
#ifndef WEFT_CLI_EFFECTS_H
#define WEFT_CLI_EFFECTS_H

#include "cli/command.h"

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
