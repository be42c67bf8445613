/* A command is a row of a table too. To add one: write its file with one `const Command`, declare it
 * below and add a line to the table in commands.c. Its options appear in help, the man page, completion
 * and configuration files by themselves.
 *
 * A command may be a family, as `tokenizer` is: it does nothing itself, and the commands that stand after
 * it in the table with names like "tokenizer train" are its members, with options of their own.
 *
 * A command turns a filled configuration into one JSON object, the result. With --json the program
 * prints that object; otherwise the command's `show` prints it for a person. */
#ifndef WEFT_CLI_COMMAND_H
#define WEFT_CLI_COMMAND_H

#include "cli/option.h"
#include "comm/mesh.h"

typedef struct Command Command;

/* Where an option's value came from; a later one wins over an earlier one. */
typedef enum { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_LINE } Source;

/* One option of one invocation. */
typedef struct Slot {
    const Option *option;
    void *field;
    int *count;      /* LIST */
    size_t capacity; /* LIST: entries allocated */
    Source source;
    bool line_only;       /* not for configuration files */
    const char *file_key; /* the file's key that set it, and the value; NULL: none */
    json_t *file_value;
} Slot;

/* A command line, read. It owns the configuration and the lists in it. */
typedef struct Invocation {
    const Command *command;
    void *config;
    const char **operands;
    size_t operand_count, operand_capacity;
    Slot *slots;
    size_t slot_count;
    bool json, help;
    char **line;             /* the program's whole command line, NULL-terminated */
    Group *world;            /* all ranks, in commands that run as several; NULL: not there yet */
    Mesh *mesh;              /* over them, where there is a layout */
    Device *device;          /* that the world's groups are for, where it is not the CPU */
    int exit_code;           /* of a command that was run elsewhere: under a launcher */
    bool incomplete;         /* set by a command that has a result but did not finish: exit code 1 */
    const char *config_path; /* NULL: none */
    const char *scale;       /* of the file's; NULL: as it is */
    const char *run;         /* of the file's runs; NULL: none of them */
    bool fetched;            /* the file names fetched files */
    char *run_config;        /* the path, where it is a run's own */
    json_t *file;            /* texts in the configuration may point into it */
    int64_t accumulation;    /* DeepSpeed's gradient_accumulation_steps; 0: not given */
    double min_lr_ratio;     /* DeepSpeed's cos_min_ratio; 0: not given */
    bool log_warmup;         /* DeepSpeed's scheduler warms up so unless it is told */
} Invocation;

typedef struct Example {
    const char *what, *line;
} Example;

struct Command {
    const char *name;        /* a member's with its family's before it: "tokenizer train" */
    const char *summary;     /* one line, without a full stop */
    const char *description; /* paragraphs, parted by newlines */
    const char *operands;    /* as in the synopsis: "FROM TO"; NULL: none are taken */
    size_t operands_min, operands_max;
    size_t config_size;
    const OptionGroup *groups;
    size_t group_count;
    const Example *examples;
    size_t example_count;
    bool family;    /* it only gathers others; needs nothing else but the texts above */
    bool deepspeed; /* its configuration file may use DeepSpeed's keys */
    bool recipe;    /* its first operand is a recipe, of which --scale is meant */
    bool resumes;   /* with --resume and no --config, the file is config.json in --out */
    /* `config` is call->config. A NULL result means that the command has printed what there is. */
    Status (*run)(Invocation *call, void *config, json_t **ret_result);
    /* Optional: the result for a person. */
    Status (*show)(const Invocation *call, const json_t *result, FILE *out);
};

extern const Command command_fetch, command_prepare, command_train, command_eval, command_answer,
    command_generate, command_convert, command_prune, command_quantize, command_info, command_plan,
    command_bench, command_compare, command_report, command_ranks, command_tokenizer, command_tokenizer_train,
    command_tokenizer_encode, command_tokenizer_decode, command_help, command_version;

/* NULL-terminated, in the order help lists them. */
const Command *const *commands_all(void);
/* By the words at the start of `words`: a name, or a family's and a member's. An unknown name is a usage
 * error that suggests the nearest. *ret_used: how many of the words the name took. */
MUST_USE Status command_find(const char *const *words, size_t count, const Command **ret_command,
                             size_t *ret_used);
/* Whether a command is a member of a family; with NULL, whether it is of none. */
bool command_is_of(const Command *command, const Command *family);
/* The part of its name that is its own: "train" of "tokenizer train". */
const char *command_own_name(const Command *command);

/* --config, --json, --help: what every command takes. */
extern const OptionGroup common_options;

/* Reads what follows the command's name: defaults, then the configuration file, then the line. With
 * --help nothing is checked or required. */
MUST_USE Status invocation_new(Invocation **ret_call, const Command *command, int argc, char **argv);
/* The same, for who does not need the fetched files that it may name. */
MUST_USE Status invocation_read(Invocation **ret_call, const Command *command, int argc, char **argv);
void invocation_free(Invocation *call);
DEFINE_FREEP(Invocation, invocation)

Slot *invocation_slot(const Invocation *call, const char *name);
/* Whether a person set it, in the file or on the line. */
bool invocation_given(const Invocation *call, const char *name);
/* How messages name an option: "--lr", or "run.json: lr" when the file set it. Into a buffer. */
enum { LABEL_SIZE = 256 };
const char *invocation_label(const Invocation *call, const char *name, char *buffer);

/* All options with their values, as a configuration file that --config would take. */
MUST_USE Status invocation_json(const Invocation *call, json_t **ret_json);

#endif
