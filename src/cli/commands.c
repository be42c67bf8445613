/* The table of commands. */
#include <string.h>

#include "base/suggest.h"
#include "cli/command.h"

static const Command *const commands[] = {
    &command_prepare, &command_train, &command_eval, &command_generate, &command_convert,
    &command_info,    &command_bench, &command_help, &command_version,  NULL,
};

const Command *const *commands_all(void) {
    return commands;
}

Status command_find(const char *name, const Command **ret_command) {
    Suggestion near = {.word = name};
    for (const Command *const *command = commands; *command; command++) {
        if (strcmp((*command)->name, name) == 0) {
            *ret_command = *command;
            return OK;
        }
        suggest_offer(&near, (*command)->name);
    }
    if (near.best) return USAGE("'%s' is not a command; did you mean '%s'?", name, near.best);
    return USAGE("'%s' is not a command; 'weft help' lists them", name);
}
