/* Completion scripts for bash, zsh and fish. They contain all names, so that completing does not run weft. An
 * option's placeholder determines how its value completes: FILE and DIR as paths, a choice by its names, a
 * word that stands for a number as it is, anything else not at all.
 */
#include <string.h>

#include "cli/help.h"

const char *const completion_shells[] = {"bash", "zsh", "fish", NULL};

static bool accepts(const Option *option, const char *what) {
    return option->placeholder && strstr(option->placeholder, what) != NULL;
}

static bool has_choices(const Option *option) {
    return option->type == OPTION_CHOICE || option->word;
}

static void write_choices(FILE *out, const Option *option) {
    if (option->word) fputs(option->word, out);
    for (const char *const *choice = option->choices; choice && *choice; choice++)
        fprintf(out, "%s%s", choice == option->choices ? "" : " ", *choice);
}

/* The members of a family or, if it is NULL, the commands outside families. Members complete as two words. */
static void write_command_names(FILE *out, const Command *family) {
    const char *between = "";
    for (const Command *const *command = commands_all(); *command; command++) {
        if (!command_is_of(*command, family)) continue;
        fprintf(out, "%s%s", between, command_own_name(*command));
        between = " ";
    }
}

/* The quoted names of all family members, as a pattern for the shell's `case`. */
static void write_member_pattern(FILE *out) {
    const char *between = "";
    for (const Command *const *command = commands_all(); *command; command++) {
        if (command_is_of(*command, NULL)) continue;
        fprintf(out, "%s'%s'", between, (*command)->name);
        between = " | ";
    }
}

static bool expects_command(const Command *command) {
    return command->operands && strcmp(command->operands, "[COMMAND]") == 0;
}

/* bash: the word before the current one determines the candidates; '=' and a value after it are separate
 * words. */
static void bash_value(FILE *out, const Command *command, const Option *option) {
    if (option->type == OPTION_FLAG) return;
    fprintf(out, "    '%s --%s')\n        ", command->name, option->name);
    if (has_choices(option)) {
        fputs("COMPREPLY=($(compgen -W '", out);
        write_choices(out, option);
        fputs("' -- \"$current\"))\n", out);
    } else if (accepts(option, "FILE")) {
        fputs("compopt -o filenames 2>/dev/null\n        COMPREPLY=($(compgen -f -- \"$current\"))\n", out);
    } else if (accepts(option, "DIR")) {
        fputs("compopt -o filenames 2>/dev/null\n        COMPREPLY=($(compgen -d -- \"$current\"))\n", out);
    } else {
        fputs(":\n", out);
    }
    fputs("        return ;;\n", out);
}

static void bash_command(FILE *out, const Command *command) {
    fprintf(out, "    '%s') words='", command->name);
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++)
        for (size_t i = 0; i < group->count; i++)
            fprintf(out, "%s%s ", option_typed_prefix(&group->options[i]), group->options[i].name);
    if (expects_command(command)) write_command_names(out, NULL);
    if (command->family) write_command_names(out, command);
    fputs("' ;;\n", out);
}

static void write_bash(FILE *out) {
    fputs("# bash completion for weft\n_weft() {\n"
          "    local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
          "    local command=\"${COMP_WORDS[1]}\" words=''\n"
          "    COMPREPLY=()\n"
          "    if [[ $COMP_CWORD -eq 1 ]]; then\n        COMPREPLY=($(compgen -W '",
          out);
    write_command_names(out, NULL);
    fputs("' -- \"$current\"))\n        return\n    fi\n"
          "    case \"$command ${COMP_WORDS[2]}\" in\n    ",
          out);
    write_member_pattern(out);
    fputs(") [[ $COMP_CWORD -gt 2 ]] && command=\"$command ${COMP_WORDS[2]}\" ;;\n    esac\n"
          "    if [[ $current == = ]]; then\n        current=''\n"
          "    elif [[ $previous == = ]]; then\n        previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n    fi\n"
          "    case \"$command $previous\" in\n",
          out);
    const OptionGroup *group;
    for (const Command *const *command = commands_all(); *command; command++)
        for (size_t g = 0; (group = command_group(*command, g)); g++)
            for (size_t i = 0; i < group->count; i++) bash_value(out, *command, &group->options[i]);
    fputs("    esac\n    case \"$command\" in\n", out);
    for (const Command *const *command = commands_all(); *command; command++) bash_command(out, *command);
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    if [[ ${#COMPREPLY[@]} -eq 0 && $current != -* ]]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$current\"))\n    fi\n}\ncomplete -F _weft weft\n",
          out);
}

/* The first sentence of a help text, without characters that are special in a quoted shell word. */
static void write_short_help(FILE *out, const char *help) {
    for (; *help && *help != '.' && *help != '\n'; help++)
        if (!strchr("'[]:\\\"`$", *help)) fputc(*help, out);
}

static void zsh_option(FILE *out, const Option *option) {
    bool list = option->type == OPTION_LIST;
    fprintf(out, "        '%s%s%s%s[", list ? "*" : "", option_typed_prefix(option), option->name,
            option->type == OPTION_FLAG ? "" : "=");
    write_short_help(out, option->help);
    fputc(']', out);
    if (has_choices(option)) {
        fprintf(out, ":%s:(", option->placeholder);
        write_choices(out, option);
        fputc(')', out);
    } else if (option->type != OPTION_FLAG) {
        fprintf(out, ":%s:%s", option->placeholder,
                accepts(option, "FILE")  ? "_files"
                : accepts(option, "DIR") ? "_files -/"
                                         : "");
    }
    fputs("' \\\n", out);
}

static void write_zsh(FILE *out) {
    fputs("#compdef weft\n_weft() {\n    local -a commands\n    commands=(\n", out);
    for (const Command *const *command = commands_all(); *command; command++) {
        if (!command_is_of(*command, NULL)) continue;
        fprintf(out, "        '%s:", (*command)->name);
        write_short_help(out, (*command)->summary);
        fputs("'\n", out);
    }
    fputs(
        "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
        "    local chosen=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
        "    case \"$chosen $words[2]\" in\n    ",
        out);
    write_member_pattern(out);
    fputs(")\n        if (( CURRENT > 2 )); then\n            chosen=\"$chosen $words[2]\"\n"
          "            shift words\n            (( CURRENT-- ))\n        fi ;;\n    esac\n"
          "    case $chosen in\n",
          out);
    const OptionGroup *group;
    for (const Command *const *command = commands_all(); *command; command++) {
        fprintf(out, "    '%s') _arguments \\\n", (*command)->name);
        for (size_t g = 0; (group = command_group(*command, g)); g++)
            for (size_t i = 0; i < group->count; i++) zsh_option(out, &group->options[i]);
        if (expects_command(*command) || (*command)->family) {
            fputs("        '*:command:(", out);
            write_command_names(out, (*command)->family ? *command : NULL);
            fputs(")' ;;\n", out);
        } else {
            fputs("        '*:file:_files' ;;\n", out);
        }
    }
    fputs("    esac\n}\n"
          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _weft \"$@\"\nelse\n    compdef _weft "
          "weft\nfi\n",
          out);
}

/* Writes the condition, up to its closing quote. A member's last word may also be a command ("train"), so the
 * condition of a command outside families excludes the families' names. */
static void fish_start(FILE *out, const Command *command) {
    fprintf(out, "complete -c weft -n '__fish_seen_subcommand_from %s", command_own_name(command));
    for (const Command *const *family = commands_all(); *family; family++)
        if ((*family)->family && *family != command)
            fprintf(out, "; and %s__fish_seen_subcommand_from %s",
                    command_is_of(command, *family) ? "" : "not ", (*family)->name);
}

static void fish_option(FILE *out, const Command *command, const Option *option) {
    fish_start(out, command);
    fprintf(out, "' -l %s%s", option_typed_prefix(option) + 2, option->name);
    if (has_choices(option)) {
        fputs(" -x -a '", out);
        write_choices(out, option);
        fputc('\'', out);
    } else if (accepts(option, "FILE")) {
        fputs(" -r -F", out);
    } else if (accepts(option, "DIR")) {
        fputs(" -x -a '(__fish_complete_directories)'", out);
    } else if (option->type != OPTION_FLAG) {
        fputs(" -x", out);
    }
    fputs(" -d '", out);
    write_short_help(out, option->help);
    fputs("'\n", out);
}

static void write_fish(FILE *out) {
    fputs("# fish completion for weft\n", out);
    for (const Command *const *command = commands_all(); *command; command++) {
        if (!command_is_of(*command, NULL)) continue;
        fprintf(out, "complete -c weft -n __fish_use_subcommand -f -a %s -d '", (*command)->name);
        write_short_help(out, (*command)->summary);
        fputs("'\n", out);
    }
    const OptionGroup *group;
    for (const Command *const *command = commands_all(); *command; command++) {
        for (size_t g = 0; (group = command_group(*command, g)); g++)
            for (size_t i = 0; i < group->count; i++) fish_option(out, *command, &group->options[i]);
        if (!expects_command(*command) && !(*command)->family) continue;
        fish_start(out, *command);
        fputs("' -f -a '", out);
        write_command_names(out, (*command)->family ? *command : NULL);
        fputs("'\n", out);
    }
}

Status completion_write(const char *shell, FILE *out) {
    static void (*const writers[])(FILE *) = {write_bash, write_zsh, write_fish};
    for (size_t i = 0; completion_shells[i]; i++)
        if (strcmp(completion_shells[i], shell) == 0) {
            writers[i](out);
            return OK;
        }
    return USAGE("no completion for shell '%s'", shell);
}
