/* Command-line options. Each option is a row of a table: name, type, destination field, default and help
 * text. Command-line parsing, JSON configuration files, help, the man page and shell completion are all
 * generated from these rows. */
#ifndef WEFT_CLI_OPTION_H
#define WEFT_CLI_OPTION_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* The type of an option, and the C type of its field. */
typedef enum {
    OPTION_FLAG,   /* bool; --name and --no-name */
    OPTION_INT,    /* int64_t */
    OPTION_FLOAT,  /* double */
    OPTION_TEXT,   /* const char * */
    OPTION_CHOICE, /* const char *, one of `choices`, or an enum, its index */
    OPTION_LIST,   /* const char ** and, at count_offset, int: --name A B C, repeatable */
    OPTION_SIZE,   /* int64_t bytes: 4096, 512MB, 1.5GiB */
    OPTION_SEED,   /* uint64_t */
} OptionType;

/* Whether the ranks of a run may have different values. */
typedef enum {
    PER_RANK_SAME,
    PER_RANK_PATH,  /* paths may differ, but not what they contain */
    PER_RANK_MODEL, /* the same; with --gather-checkpoints, rank 0's is used by all */
    PER_RANK_ANY,
} PerRank;

typedef struct Option {
    const char *name;     /* without dashes */
    const char *old_name; /* former name: still accepted, never shown; NULL if never renamed */
    char letter;          /* short form: -i; 0 if there is none */
    OptionType type;
    size_t offset;       /* offset of the field in the group's structure */
    size_t count_offset; /* LIST: offset of the entry count */
    bool one_each;       /* LIST: one entry per occurrence; it may be empty or start with a dash */
    bool may_be_empty;   /* TEXT: accept the empty string */
    bool any_bytes;      /* TEXT, LIST: accept text that is not UTF-8 */
    bool inverted;       /* FLAG: the field stores the negation of the flag */
    bool required;
    double low, high;               /* INT, FLOAT, SIZE: the valid range; both 0: any value */
    bool above_low, below_high;     /* exclude that end of the range */
    const char *word;               /* INT: a word accepted instead of a number. FLAG: a word that may follow
                                     * and changes nothing, as in "--resume auto". NULL: none */
    int64_t word_value;             /* INT: the value it stands for, outside the range */
    const char *const *choices;     /* CHOICE: NULL-terminated */
    bool indexed;                   /* CHOICE: the field is an enum, the index of the choice */
    const char *const *old_choices; /* CHOICE: pairs of a former spelling and the choice it stands for;
                                     * accepted, never shown; NULL-terminated, or NULL */
    const char *fallback;           /* the default as typed ("on" for a flag); NULL: 0, NULL or off. It may be
                                     * outside the range: a value that only the default can have. */
    const char *shown;              /* how help describes the default, if not by its value */
    const char *placeholder;        /* "N"; values called FILE and DIR are completed as paths */
    PerRank per_rank;
    const char *help;                  /* "%s" stands for `names` */
    const char *const *(*names)(void); /* values known by name, NULL-terminated; NULL: none */
} Option;

/* Options under one heading. `base` is the offset of their structure in the command's configuration, so that
 * several commands can share a table. */
typedef struct OptionGroup {
    const char *heading;
    const Option *options;
    size_t count;
    size_t base;
} OptionGroup;

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
/* The offset of a field; a type other than the option's is a compile error. */
#define FIELD(type, field, c_type) _Generic(((type *)0)->field, c_type : offsetof(type, field))

/* The start of a row: name, structure, field. The rest follows as `.help = ...`. */
#define OPT_ROW(name_, kind, offset_, value)                                                                 \
    .name = (name_), .type = (kind), .offset = (offset_), .placeholder = (value)
#define OPT_FLAG(name_, type, field)  OPT_ROW(name_, OPTION_FLAG, FIELD(type, field, bool), NULL)
#define OPT_INT(name_, type, field)   OPT_ROW(name_, OPTION_INT, FIELD(type, field, int64_t), "N")
#define OPT_FLOAT(name_, type, field) OPT_ROW(name_, OPTION_FLOAT, FIELD(type, field, double), "X")
#define OPT_SIZE(name_, type, field)  OPT_ROW(name_, OPTION_SIZE, FIELD(type, field, int64_t), "SIZE")
#define OPT_SEED(name_, type, field)  OPT_ROW(name_, OPTION_SEED, FIELD(type, field, uint64_t), "N")
#define OPT_TEXT(name_, type, field, value)                                                                  \
    OPT_ROW(name_, OPTION_TEXT, FIELD(type, field, const char *), value)
#define OPT_CHOICE(name_, type, field, value, names)                                                         \
    OPT_ROW(name_, OPTION_CHOICE, FIELD(type, field, const char *), value), .choices = (names)
/* A choice whose field is an enum: names[value] is its name. */
#define OPT_ENUM(name_, type, field, value, names)                                                           \
    OPT_ROW(name_, OPTION_CHOICE, FIELD(type, field, unsigned), value), .choices = (names), .indexed = true
/* `field` is the list, `field`_count the number of its entries. */
#define OPT_LIST(name_, type, field, value)                                                                  \
    OPT_ROW(name_, OPTION_LIST, FIELD(type, field, const char **), value),                                   \
        .count_offset = FIELD(type, field##_count, int)

/* Ranges. */
#define RANGE(low_, high_) .low = (low_), .high = (high_)
#define AT_LEAST(low_)     RANGE(low_, (double)INFINITY)
#define ABOVE_ZERO         AT_LEAST(0), .above_low = true
#define BELOW_ONE          RANGE(0, 1), .below_high = true /* 0 <= value < 1 */
#define INSIDE_ZERO_ONE    BELOW_ONE, .above_low = true    /* 0 < value < 1 */

#define OPTION_GROUP(title, table, at)                                                                       \
    { .heading = (title), .options = (table), .count = COUNT_OF(table), .base = (at) }

/* Parse a value into `field`. `label` names the option in error messages: "--lr", "run.json: lr". Strings are
 * stored by pointer. For every type except FLAG and LIST. */
MUST_USE Status option_set_text(const Option *option, void *field, const char *label, const char *text);
MUST_USE Status option_set_json(const Option *option, void *field, const char *label, const json_t *value);
void option_set_flag(const Option *option, void *field, bool on);
/* The value of `field` in the form option_set_json accepts; NULL if out of memory. `count`: LIST only. */
json_t *option_json(const Option *option, const void *field, const int *count);
/* The value of a CHOICE by name; NULL if it was not set. */
const char *option_choice(const Option *option, const void *field);
/* False if the value is outside the range, which marks an option that was not given. */
bool option_in_range(const Option *option, const void *field);
/* Sets the default, for every type; lists stay empty. */
MUST_USE Status option_set_fallback(const Option *option, void *field);

/* "an integer >= 1", "linear, cosine or constant"; written to `buffer`, which is returned. */
enum { OPTION_EXPECTS_SIZE = 512 };
const char *option_expects(const Option *option, char *buffer);
/* Whether `text`, which may be NULL, is the option's word. */
bool option_is_word(const Option *option, const char *text);
/* True for a flag that is on unless --no-name is given. */
bool option_default_on(const Option *option);
/* "--", or "--no-" for a flag that is on by default: the form that help shows. */
const char *option_typed_prefix(const Option *option);

#endif
