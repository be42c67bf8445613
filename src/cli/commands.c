/* The table of commands. */
#include <string.h>

#include "base/suggest.h"
#include "cli/command.h"
#include "cli/foreign.h"

static const Command *const commands[] = {
    &command_fetch,
    &command_prepare,
    &command_train,
    &command_eval,
    &command_predict,
    &command_embed,
    &command_answer,
    &command_generate,
    &command_convert,
    &command_prune,
    &command_quantize,
    &command_info,
    &command_plan,
    &command_bench,
    &command_compare,
    &command_study,
    &command_report,
    &command_ranks,
    &command_verify,
    &command_tokenizer,
    &command_tokenizer_train,
    &command_tokenizer_encode,
    &command_tokenizer_decode,
    &command_help,
    &command_version,
    NULL,
};

const Command *const *commands_all(void) {
    return commands;
}

const char *command_own_name(const Command *command) {
    const char *space = strchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

bool command_is_of(const Command *command, const Command *family) {
    if (!family) return !strchr(command->name, ' ');
    size_t length = strlen(family->name);
    return family->family && !strncmp(command->name, family->name, length) && command->name[length] == ' ';
}

static Status unknown_command(const char *name, const Command *family, const char *nearest) {
    if (!family) TRY(foreign_refuse_command(name));
    const char *of = family ? family->name : "", *space = family ? " " : "";
    if (nearest)
        return USAGE("'%s%s%s' is not a command; did you mean '%s%s%s'?", of, space, name, of, space,
                     nearest);
    return USAGE("'%s%s%s' is not a command; 'weft help%s%s' lists all commands", of, space, name, space, of);
}

/* Searches the members of a family or, if it is NULL, the commands outside families. */
static Status find_among(const Command *family, const char *name, const Command **ret_command) {
    Suggestion near = {.word = name};
    for (const Command *const *command = commands; *command; command++) {
        if (!command_is_of(*command, family)) continue;
        const char *own = command_own_name(*command);
        if (strcmp(own, name) == 0) {
            *ret_command = *command;
            return OK;
        }
        suggest_offer(&near, own);
    }
    return unknown_command(name, family, near.best);
}

Status command_find(const char *const *words, size_t count, const Command **ret_command, size_t *ret_used) {
    const Command *command = NULL;
    TRY(find_among(NULL, words[0], &command));
    size_t used = 1;
    if (command->family && count > 1 && words[1][0] != '-') {
        TRY(find_among(command, words[1], &command));
        used = 2;
    }
    *ret_command = command;
    *ret_used = used;
    return OK;
}
