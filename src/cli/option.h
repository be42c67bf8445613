/* An option is a row of a table: its name, what it takes, where the value goes and what help says of
 * it. Parsing, JSON configuration, help, the man page and shell completion all read these rows. */
#ifndef WEFT_CLI_OPTION_H
#define WEFT_CLI_OPTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* What an option takes, and the type of the field it fills. */
typedef enum {
    OPTION_FLAG,   /* bool; --name and --no-name */
    OPTION_INT,    /* int64_t */
    OPTION_FLOAT,  /* double */
    OPTION_TEXT,   /* const char * */
    OPTION_CHOICE, /* const char *, one of `choices` */
    OPTION_LIST,   /* const char ** and, at count_offset, int: --name A B C, repeatable */
    OPTION_SIZE,   /* int64_t bytes: 4096, 512MB, 1.5GiB */
    OPTION_SEED,   /* uint64_t */
} OptionType;

typedef struct Option {
    const char *name; /* without dashes */
    OptionType type;
    size_t offset;       /* of the field, from the start of the group's structure */
    size_t count_offset; /* LIST: of the number of entries */
    bool one_each;       /* LIST: one entry each time, which may be empty or start with a dash */
    bool may_be_empty;   /* TEXT: an empty one is a value too */
    bool inverted;       /* FLAG: the field says the opposite of the name */
    bool required;
    double low, high;           /* INT, FLOAT, SIZE: the range; both 0: any */
    bool above_low, below_high; /* that end of the range is not part of it */
    const char *const *choices; /* CHOICE; NULL-terminated */
    const char *fallback;       /* the default, as one would type it ("on" for a flag); NULL: zero, none, off.
                                 * It may lie outside the range, as a value that only a default can have. */
    const char *shown;          /* what help calls the default when the value itself says little */
    const char *placeholder;    /* "N"; FILE and DIR are completed as such */
    const char *help;
} Option;

/* Options under one heading. `base` is where their structure lies in the command's configuration, so
 * that commands can share a table. */
typedef struct OptionGroup {
    const char *heading;
    const Option *options;
    size_t count;
    size_t base;
} OptionGroup;

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
/* Where a field lies; the compiler refuses one of another type than the option's. */
#define FIELD(type, field, c_type) _Generic(((type *)0)->field, c_type : offsetof(type, field))

/* The head of a row: name, structure, field. The rest follows as `.help = ...`. */
#define OPT_ROW(name_, kind, place, value)                                                                   \
    .name = (name_), .type = (kind), .offset = (place), .placeholder = (value)
#define OPT_FLAG(name_, type, field)  OPT_ROW(name_, OPTION_FLAG, FIELD(type, field, bool), NULL)
#define OPT_INT(name_, type, field)   OPT_ROW(name_, OPTION_INT, FIELD(type, field, int64_t), "N")
#define OPT_FLOAT(name_, type, field) OPT_ROW(name_, OPTION_FLOAT, FIELD(type, field, double), "X")
#define OPT_SIZE(name_, type, field)  OPT_ROW(name_, OPTION_SIZE, FIELD(type, field, int64_t), "SIZE")
#define OPT_SEED(name_, type, field)  OPT_ROW(name_, OPTION_SEED, FIELD(type, field, uint64_t), "N")
#define OPT_TEXT(name_, type, field, value)                                                                  \
    OPT_ROW(name_, OPTION_TEXT, FIELD(type, field, const char *), value)
#define OPT_CHOICE(name_, type, field, value, names)                                                         \
    OPT_ROW(name_, OPTION_CHOICE, FIELD(type, field, const char *), value), .choices = (names)
/* `field` is the list, `field`_count the number of its entries. */
#define OPT_LIST(name_, type, field, value)                                                                  \
    OPT_ROW(name_, OPTION_LIST, FIELD(type, field, const char **), value),                                   \
        .count_offset = FIELD(type, field##_count, int)

#define OPTION_GROUP(title, table, at)                                                                       \
    { .heading = (title), .options = (table), .count = COUNT_OF(table), .base = (at) }

/* Writes a value into `field`. `label` names the option in messages: "--lr", "run.json: lr". Texts are
 * kept by pointer. For all types but FLAG and LIST. */
MUST_USE Status option_set_text(const Option *option, void *field, const char *label, const char *text);
MUST_USE Status option_set_json(const Option *option, void *field, const char *label, const json_t *value);
void option_set_flag(const Option *option, void *field, bool on);
/* The value of `field` as option_set_json would take it; NULL without memory. `count` is a list's. */
json_t *option_json(const Option *option, const void *field, const int *count);
/* False for a default that says "not given" by lying outside the range. */
bool option_in_range(const Option *option, const void *field);
/* The default. For all types; lists are left empty. */
MUST_USE Status option_set_fallback(const Option *option, void *field);

/* "a whole number of at least 1", "one of linear, cosine, constant"; into a buffer that is returned. */
enum { OPTION_EXPECTS_SIZE = 512 };
const char *option_expects(const Option *option, char *buffer);
/* True when the flag is on unless --no-name is given. */
bool option_default_on(const Option *option);
/* What a person types for it: "no-shuffle" for a flag that is on by default. */
const char *option_typed_prefix(const Option *option);

#endif
