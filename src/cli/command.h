/* Commands. Each command is a `const Command` in a file of its own. To add one, declare it below and add a
 * line to the table in commands.c; its options then appear in help, the man page, completion and
 * configuration files.
 *
 * A command may be a family, such as `tokenizer`: it does nothing itself. Its members follow it in the table,
 * with names such as "tokenizer train" and their own options.
 *
 * A command turns its configuration into one JSON object, the result. With --json the program prints that
 * object; otherwise the command's `show` function formats it for people. */
#ifndef WEFT_CLI_COMMAND_H
#define WEFT_CLI_COMMAND_H

#include "cli/option.h"
#include "comm/mesh.h"

typedef struct Command Command;

/* Where an option's value came from, in increasing order of precedence. */
typedef enum { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_LINE } Source;

/* One option of one invocation. */
typedef struct Slot {
    const Option *option;
    void *field;
    int *count;      /* LIST: number of entries */
    size_t capacity; /* LIST: entries allocated */
    Source source;
    bool operand;   /* set by an operand, not by name */
    bool line_only; /* not allowed in configuration files */
    const char
        *file_key; /* the key in the configuration file that set it, and its value; NULL if not set there */
    json_t *file_value;
} Slot;

/* A parsed command line. It owns the configuration and the lists in it. */
typedef struct Invocation {
    const Command *command;
    void *config;
    const char **operands;
    size_t operand_count, operand_capacity;
    Slot *slots;
    size_t slot_count;
    bool json, help;
    char **line;                                   /* the program's complete command line, NULL-terminated */
    void (*give_up)(void *call, const char *text); /* see Watchdog */
    Group *world;    /* all ranks, in commands that run on several; NULL before launch_join */
    Group *files;    /* the same over host memory, with --gather-checkpoints; else NULL */
    Mesh *mesh;      /* mesh over `world`, in commands with layout options */
    Device *device;  /* device of the world's groups; NULL: the CPU */
    int exit_code;   /* set by a command that has a result; that of a launched command */
    bool incomplete; /* set by a command that has a result but did not finish: exit code 1, unless set */
    const char *config_path; /* --config; NULL if not given */
    const char *scale;       /* --scale: the scale of the recipe; NULL: its base settings */
    const char *run;         /* --run: the run of the recipe; NULL: no particular run */
    bool fetched;            /* some value names a fetched file (fetched.c) */
    char *run_config;        /* storage of config_path if it is a run's config.json */
    bool follows;            /* with --gather-checkpoints, rank 0 sends the options (gathered.c) */
    json_t *study;           /* the recipe's "study", see report/study.h; NULL: none */
    json_t *file;            /* the configuration file; strings in the configuration may point into it */
    json_t *included;        /* a configuration that it names; likewise */
    json_t *unknown_keys;    /* of the file */
    json_t *unused_keys;     /* keys of other tools that have no effect here */
    int64_t accumulation;    /* gradient_accumulation_steps; 0: not given */
    double min_lr_ratio;     /* cos_min_ratio, min_lr_rate; 0: not given */
    bool log_warmup;         /* DeepSpeed's scheduler defaults to logarithmic warm-up */
    char **warnings;         /* to print before the command runs */
    size_t warning_count, warning_capacity;
    char **owned; /* strings made while parsing, to which the configuration may point */
    size_t owned_count, owned_capacity;
} Invocation;

typedef struct Example {
    const char *what, *line;
} Example;

/* What a command does with --scale and --run, which select parts of a recipe. Every command accepts them;
 * only those that use recipes show them. */
typedef enum {
    RECIPE_NONE,    /* not shown */
    RECIPE_CONFIG,  /* --config may be a recipe: --scale and --run are shown */
    RECIPE_OPERAND, /* the first operand is a recipe, and all its runs are used: only --scale is shown */
} RecipeUse;

struct Command {
    const char *name;        /* members include the family's name: "tokenizer train" */
    const char *summary;     /* one line, without a full stop */
    const char *description; /* paragraphs separated by newlines */
    /* Options that operands set, in this order; NULL-terminated, or NULL. An operand goes to the next option
     * that the command line does not give; a list option takes all that are left. */
    const char *const *positional;
    const char *operands; /* other operands, as in the synopsis: "[COMMAND]"; NULL: accepts none */
    const char *suffix;   /* with both kinds: operands that end in this are of the second kind */
    size_t operands_min, operands_max;
    bool reads_operands; /* operands are paths to read, so they may name fetched files */
    size_t config_size;
    const OptionGroup *groups; /* ending with one without options; NULL: none */
    Example examples[10];      /* ending with an empty one */
    RecipeUse recipe;
    bool family;     /* only groups other commands; uses nothing but the texts above */
    bool other_keys; /* its configuration file may use keys of other tools, see keys.h */
    bool resumes;    /* with --resume and no --config, reads config.json from --out */
    /* `config` is call->config. A NULL result means that the command has printed its output itself. */
    Status (*run)(Invocation *call, void *config, json_t **ret_result);
    /* Formats the result for people; NULL: nothing is printed. */
    Status (*show)(const Invocation *call, const json_t *result, FILE *out);
};

#define GROUPS(...)     ((const OptionGroup[]){__VA_ARGS__, {0}})
#define POSITIONAL(...) ((const char *const[]){__VA_ARGS__, NULL})

extern const Command command_fetch, command_prepare, command_train, command_eval, command_predict,
    command_embed, command_answer, command_generate, command_convert, command_prune, command_quantize,
    command_info, command_plan, command_bench, command_compare, command_study, command_report, command_ranks,
    command_verify, command_tokenizer, command_tokenizer_train, command_tokenizer_encode,
    command_tokenizer_decode, command_help, command_version;

/* NULL-terminated, in the order help lists them. */
const Command *const *commands_all(void);
/* Finds a command by the first one or two words: a name, or those of a family and a member. An unknown name
 * is a usage error that suggests the closest match. *ret_used is the number of words that the name consists
 * of. */
MUST_USE Status command_find(const char *const *words, size_t count, const Command **ret_command,
                             size_t *ret_used);
/* Whether a command is a member of `family`; if that is NULL, whether it is a member of no family. */
bool command_is_of(const Command *command, const Command *family);
/* The last word of its name: "train" for "tokenizer train". */
const char *command_own_name(const Command *command);

/* --config, --json, --help: accepted and shown by every command. */
extern const OptionGroup common_options;
/* The index-th group of options that help and completion show for a command: its own, the recipe options if
 * it uses recipes, and last the common ones. NULL past the end. */
const OptionGroup *command_group(const Command *command, size_t index);

/* An option of a command by name; NULL if it has none. */
const Option *command_option(const Command *command, const char *name);

/* Parses the arguments that follow the command's name: defaults, then the configuration file, then the
 * command line. With --help nothing is checked or required. */
MUST_USE Status invocation_new(Invocation **ret_call, const Command *command, int argc, char **argv);
/* The same, without checking that the fetched files it names exist. */
MUST_USE Status invocation_read(Invocation **ret_call, const Command *command, int argc, char **argv);
/* The same with the contents of the configuration file (NULL: none), whose path is for messages. */
MUST_USE Status invocation_read_from(Invocation **ret_call, const Command *command, int argc, char **argv,
                                     const char *path, json_t *file);
void invocation_free(Invocation *call);
DEFINE_FREEP(Invocation, invocation)

/* Whether a command has this option, apart from those that all commands have; '_' stands for '-'. */
bool command_has_option(const Command *command, const char *name);
Slot *invocation_slot(const Invocation *call, const char *name);
/* Whether the option was given, in the file or on the command line. */
bool invocation_given(const Invocation *call, const char *name);
/* How messages name an option: "--lr", or "run.json: lr" if the file set it. Written to `buffer`. */
enum { LABEL_SIZE = 256 };
const char *invocation_label(const Invocation *call, const char *name, char *buffer);

/* Adds a warning, one sentence without a full stop. */
MUST_USE Status invocation_warn(Invocation *call, const char *format, ...) PRINTF_LIKE(2, 3);

/* All options with their values, as a configuration file for --config. */
MUST_USE Status invocation_json(const Invocation *call, json_t **ret_json);

#endif
