/* Completion scripts for bash, zsh and fish. They contain all names, so that completing does not run weft. An
 * option's placeholder determines how its value completes: FILE and DIR as paths, a choice by its names, a
 * word that stands for a number as it is, anything else not at all. Presets, clusters, sets to fetch and the
 * recipes of a source tree are offered besides paths.
 */
#include <string.h>

#include "cli/help.h"
#include "compare/studyfile.h"
#include "data/fetch.h"

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

/* Names that an option accepts besides a path; NULL: none. */
static const char *const *known_values(const Option *option) {
    return option->names ? option->names() : NULL;
}

static void write_names(FILE *out, const char *const *names) {
    for (; *names; names++) fprintf(out, "%s%s", *names, names[1] ? " " : "");
}

static bool is_recipe_option(const Command *command, const Option *option) {
    return command->recipe == RECIPE_CONFIG && !strcmp(option->name, "config");
}

/* The first operand is a recipe. */
static bool expects_recipe(const Command *command) {
    return command->recipe == RECIPE_OPERAND && command != &command_study;
}

/* The names that a command accepts as operands: presets, the sets to fetch, or studies. */
static bool has_operand_names(const Command *command) {
    if (command == &command_fetch || command == &command_study) return true;
    const Option *first = command->positional ? command_option(command, command->positional[0]) : NULL;
    return first && known_values(first);
}

static void write_studies(FILE *out) {
    CLEANUP(texts_done) TextList names = {0};
    CLEANUP(status_freep) Status failed = studyfile_names(&names); /* then there are no names */
    for (size_t i = 0; i < names.count; i++) fprintf(out, "%s%s", i ? " " : "", names.texts[i]);
}

static void write_operand_names(FILE *out, const Command *command) {
    size_t count;
    const FetchSet *sets = fetch_sets(&count);
    if (command == &command_study)
        write_studies(out);
    else if (command != &command_fetch)
        write_names(out, known_values(command_option(command, command->positional[0])));
    else
        for (size_t i = 0; i < count; i++) fprintf(out, "%s%s", i ? " " : "", sets[i].name);
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

/* Calls `write` for each option of a command. */
static void write_options(FILE *out, const Command *command,
                          void (*write)(FILE *out, const Command *command, const Option *option)) {
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++)
        for (size_t i = 0; i < group->count; i++) write(out, command, &group->options[i]);
}

/* bash: the word before the current one determines the candidates; '=' and a value after it are separate
 * words. */
static void bash_value(FILE *out, const Command *command, const Option *option) {
    if (option->type == OPTION_FLAG && !option->word) return;
    fprintf(out, "    '%s --%s')\n        ", command->name, option->name);
    if (has_choices(option)) {
        fputs("COMPREPLY=($(compgen -W '", out);
        write_choices(out, option);
        fputs("' -- \"$current\"))\n", out);
    } else if (accepts(option, "FILE") || accepts(option, "DIR")) {
        const char *const *names = known_values(option);
        fprintf(out, "compopt -o filenames 2>/dev/null\n        COMPREPLY=($(compgen -%c -- \"$current\"))\n",
                accepts(option, "FILE") ? 'f' : 'd');
        if (names) {
            fputs("        COMPREPLY+=($(compgen -W '", out);
            write_names(out, names);
            fputs("' -- \"$current\"))\n", out);
        }
        if (is_recipe_option(command, option)) fputs("        _weft_recipes\n", out);
    } else {
        fputs(":\n", out);
    }
    /* After a flag with a word, other options may follow as well. */
    fputs(option->type == OPTION_FLAG ? "        [[ ${#COMPREPLY[@]} -eq 0 ]] || return ;;\n"
                                      : "        return ;;\n",
          out);
}

static void bash_command(FILE *out, const Command *command) {
    fprintf(out, "    '%s') words='", command->name);
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++)
        for (size_t i = 0; i < group->count; i++)
            fprintf(out, "%s%s ", option_typed_prefix(&group->options[i]), group->options[i].name);
    if (expects_command(command)) write_command_names(out, NULL);
    if (command->family) write_command_names(out, command);
    fputs("'", out);
    if (has_operand_names(command)) {
        fputs(" operands='", out);
        write_operand_names(out, command);
        fputs("'", out);
    }
    if (expects_recipe(command)) fputs(" recipes=1", out);
    fputs(" ;;\n", out);
}

static void write_bash(FILE *out) {
    fputs("# bash completion for weft\n"
          "# Adds the recipes of a source tree, unless the word is already a path.\n"
          "_weft_recipes() {\n    [[ $current == */* ]] ||\n"
          "        COMPREPLY+=($(compgen -W \"$(compgen -G 'recipes/*.json')\" -- \"$current\"))\n}\n"
          "_weft() {\n"
          "    local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
          "    local command=\"${COMP_WORDS[1]}\" words='' operands='' recipes=''\n"
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
    for (const Command *const *command = commands_all(); *command; command++)
        write_options(out, *command, bash_value);
    fputs("    esac\n    case \"$command\" in\n", out);
    for (const Command *const *command = commands_all(); *command; command++) bash_command(out, *command);
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    if [[ ${#COMPREPLY[@]} -eq 0 && $current != -* ]]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$current\"))\n    fi\n"
          "    [[ $current == -* ]] || COMPREPLY+=($(compgen -W \"$operands\" -- \"$current\"))\n"
          "    [[ $current == -* || -z $recipes ]] || _weft_recipes\n"
          "}\ncomplete -F _weft weft\n",
          out);
}

/* The first sentence of a help text, without characters that are special in a quoted shell word. */
static void write_short_help(FILE *out, const char *help) {
    for (; *help && *help != '.' && *help != '\n'; help++)
        if (!strchr("'[]:\\\"`$", *help)) fputc(*help, out);
}

/* Names and paths, as an action that zsh evaluates. */
static void zsh_names(FILE *out, const char *const *names, const char *paths) {
    fputs("{compadd ", out);
    write_names(out, names);
    fprintf(out, "; %s}", paths);
}

#define ZSH_RECIPES "{compadd -f recipes/*.json(N); _files}"

static void zsh_operands(FILE *out, const Command *command) {
    if (expects_command(command) || command->family) {
        fputs("        '*:command:(", out);
        write_command_names(out, command->family ? command : NULL);
        fputs(")' ;;\n", out);
    } else if (has_operand_names(command)) {
        fputs("        '*:operand:{compadd ", out);
        write_operand_names(out, command);
        fputs("; _files}' ;;\n", out);
    } else {
        fprintf(out, "        '*:file:%s' ;;\n", expects_recipe(command) ? ZSH_RECIPES : "_files");
    }
}

static void zsh_option(FILE *out, const Command *command, const Option *option) {
    const char *paths = accepts(option, "FILE") ? "_files" : accepts(option, "DIR") ? "_files -/" : "";
    bool list = option->type == OPTION_LIST;
    char help[HELP_TEXT];
    fprintf(out, "        '%s%s%s%s[", list ? "*" : "", option_typed_prefix(option), option->name,
            option->type == OPTION_FLAG ? "" : "=");
    write_short_help(out, help_text(option, help));
    fputc(']', out);
    if (has_choices(option)) {
        if (option->type == OPTION_FLAG)
            fputs("::word", out); /* optional */
        else
            fprintf(out, ":%s", option->placeholder);
        fputs(":(", out);
        write_choices(out, option);
        fputc(')', out);
    } else if (option->type != OPTION_FLAG) {
        fprintf(out, ":%s:", option->placeholder);
        if (known_values(option))
            zsh_names(out, known_values(option), paths);
        else
            fputs(is_recipe_option(command, option) ? ZSH_RECIPES : paths, out);
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
    for (const Command *const *command = commands_all(); *command; command++) {
        fprintf(out, "    '%s') _arguments \\\n", (*command)->name);
        write_options(out, *command, zsh_option);
        zsh_operands(out, *command);
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

#define FISH_RECIPES "(find recipes -name \"*.json\" 2>/dev/null)"

static void fish_operands(FILE *out, const Command *command) {
    bool commands = expects_command(command) || command->family;
    if (!commands && !has_operand_names(command) && !expects_recipe(command)) return;
    fish_start(out, command);
    fputs(commands ? "' -f -a '" : "' -a '", out);
    if (commands)
        write_command_names(out, command->family ? command : NULL);
    else if (expects_recipe(command))
        fputs(FISH_RECIPES, out);
    else
        write_operand_names(out, command);
    fputs("'\n", out);
}

static void fish_option(FILE *out, const Command *command, const Option *option) {
    char help[HELP_TEXT];
    fish_start(out, command);
    fprintf(out, "' -l %s%s", option_typed_prefix(option) + 2, option->name);
    if (has_choices(option)) {
        fprintf(out, " %s-a '", option->type == OPTION_FLAG ? "-f " : "-x ");
        write_choices(out, option);
        fputc('\'', out);
    } else if (accepts(option, "FILE") || accepts(option, "DIR")) {
        bool file = accepts(option, "FILE");
        fputs(file ? " -r -F" : " -x", out);
        if (!file || known_values(option) || is_recipe_option(command, option)) fputs(" -a '", out);
        if (known_values(option)) write_names(out, known_values(option));
        if (is_recipe_option(command, option)) fputs(FISH_RECIPES, out);
        if (!file) fprintf(out, "%s(__fish_complete_directories)", known_values(option) ? " " : "");
        if (!file || known_values(option) || is_recipe_option(command, option)) fputs("'", out);
    } else if (option->type != OPTION_FLAG) {
        fputs(" -x", out);
    }
    fputs(" -d '", out);
    write_short_help(out, help_text(option, help));
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
    for (const Command *const *command = commands_all(); *command; command++) {
        write_options(out, *command, fish_option);
        fish_operands(out, *command);
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
