/* Shell completion scripts for bash, zsh and fish, written out from the tables so that a shell completes
 * without running weft. An option's placeholder says how its value completes: FILE and DIR as such, a
 * choice by its names, anything else not at all.
 */
#include <string.h>

#include "cli/help.h"

const char *const completion_shells[] = {"bash", "zsh", "fish", NULL};

/* A group of a command by number, the common options last; NULL past it. */
static const OptionGroup *group_at(const Command *command, size_t index) {
    if (index < command->group_count) return &command->groups[index];
    return index == command->group_count ? &common_options : NULL;
}

static bool takes(const Option *option, const char *what) {
    return option->placeholder && strstr(option->placeholder, what) != NULL;
}

static void write_choices(FILE *out, const Option *option) {
    for (const char *const *choice = option->choices; *choice; choice++)
        fprintf(out, "%s%s", choice == option->choices ? "" : " ", *choice);
}

/* The members of a family, or the commands without one: a member is completed in two words. */
static void write_command_names(FILE *out, const Command *family) {
    const char *between = "";
    for (const Command *const *command = commands_all(); *command; command++) {
        if (!command_is_of(*command, family)) continue;
        fprintf(out, "%s%s", between, command_own_name(*command));
        between = " ";
    }
}

/* The names of all members in quotes, as a pattern of the shell's `case`. */
static void write_member_pattern(FILE *out) {
    const char *between = "";
    for (const Command *const *command = commands_all(); *command; command++) {
        if (command_is_of(*command, NULL)) continue;
        fprintf(out, "%s'%s'", between, (*command)->name);
        between = " | ";
    }
}

static bool takes_command(const Command *command) {
    return command->operands && strcmp(command->operands, "[COMMAND]") == 0;
}

/* bash: the word before the cursor's decides; a value after '=' arrives as a word of its own. */
static void bash_value(FILE *out, const Command *command, const Option *option) {
    if (option->type == OPTION_FLAG) return;
    fprintf(out, "    '%s --%s')\n        ", command->name, option->name);
    if (option->type == OPTION_CHOICE) {
        fputs("COMPREPLY=($(compgen -W '", out);
        write_choices(out, option);
        fputs("' -- \"$current\"))\n", out);
    } else if (takes(option, "FILE")) {
        fputs("compopt -o filenames 2>/dev/null\n        COMPREPLY=($(compgen -f -- \"$current\"))\n", out);
    } else if (takes(option, "DIR")) {
        fputs("compopt -o filenames 2>/dev/null\n        COMPREPLY=($(compgen -d -- \"$current\"))\n", out);
    } else {
        fputs(":\n", out);
    }
    fputs("        return ;;\n", out);
}

static void bash_command(FILE *out, const Command *command) {
    fprintf(out, "    '%s') words='", command->name);
    const OptionGroup *group;
    for (size_t g = 0; (group = group_at(command, g)); g++)
        for (size_t i = 0; i < group->count; i++)
            fprintf(out, "%s%s ", option_typed_prefix(&group->options[i]), group->options[i].name);
    if (takes_command(command)) write_command_names(out, NULL);
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
        for (size_t g = 0; (group = group_at(*command, g)); g++)
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

/* The first sentence of a help text, without characters that a quoted shell word gives meaning to. */
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
    if (option->type == OPTION_CHOICE) {
        fprintf(out, ":%s:(", option->placeholder);
        write_choices(out, option);
        fputc(')', out);
    } else if (option->type != OPTION_FLAG) {
        fprintf(out, ":%s:%s", option->placeholder,
                takes(option, "FILE")  ? "_files"
                : takes(option, "DIR") ? "_files -/"
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
        for (size_t g = 0; (group = group_at(*command, g)); g++)
            for (size_t i = 0; i < group->count; i++) zsh_option(out, &group->options[i]);
        if (takes_command(*command) || (*command)->family) {
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

/* Up to the condition's closing quote. A member's own name may be another command's too, so that one holds
 * only where no family's name stands. */
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
    if (option->type == OPTION_CHOICE) {
        fputs(" -x -a '", out);
        write_choices(out, option);
        fputc('\'', out);
    } else if (takes(option, "FILE")) {
        fputs(" -r -F", out);
    } else if (takes(option, "DIR")) {
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
        for (size_t g = 0; (group = group_at(*command, g)); g++)
            for (size_t i = 0; i < group->count; i++) fish_option(out, *command, &group->options[i]);
        if (!takes_command(*command) && !(*command)->family) continue;
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
    return USAGE("no completion for '%s'", shell);
}
