/* Configuration keys of other tools, for features that weft also has: DeepSpeed's (deepspeed.c) and those of
 * Hugging Face's TrainingArguments and example scripts (huggingface.c). Settings that weft cannot honor are
 * errors; they are never ignored. */
#ifndef WEFT_CLI_KEYS_H
#define WEFT_CLI_KEYS_H

#include "base/suggest.h"
#include "cli/invocation.h"

/* A row has an option to set, or one of the other members. Commands without the option skip the key. */
typedef struct Key Key;
struct Key {
    const char *path; /* dotted: "zero_optimization.stage" */
    const char *option;
    Status (*take)(Invocation *call, const Key *key, json_t *value);
    const char *off;     /* the feature must be off; otherwise the reason in the error message */
    const char *if_true; /* what true sets the option to; false leaves it */
    const char *words;   /* "theirs=ours theirs=ours": what a text sets it to */
    bool any_case;       /* ... in upper or lower case */
    const char *only;    /* the only value that weft supports: "true" or a number */
    const char *expects; /* with `words` or `only`: for the error message */
};

#define SET(path_, option_)                                                                                  \
    { .path = (path_), .option = (option_) }
#define TAKE(path_, option_, function)                                                                       \
    { .path = (path_), .option = (option_), .take = (function) }
#define OFF(path_, why)                                                                                      \
    { .path = (path_), .off = (why) }
#define WHEN(path_, option_, text)                                                                           \
    { .path = (path_), .option = (option_), .if_true = (text) }
#define ONLY(path_, option_, value, expects_)                                                                \
    { .path = (path_), .option = (option_), .only = (value), .expects = (expects_) }
#define WORDS(path_, option_, function, words_, expects_)                                                    \
    { .path = (path_), .option = (option_), .take = (function), .words = (words_), .expects = (expects_) }

typedef struct KeyTable {
    const Key *keys;
    size_t count;
    const char *const *unused; /* accepted without effect, with all their members; NULL-terminated */
} KeyTable;

extern const KeyTable deepspeed_keys, huggingface_keys;

/* Handles a top-level key of the file. *ret_taken is false if it belongs to no table. */
MUST_USE Status keys_take(Invocation *call, const char *key, json_t *value, bool *ret_taken);
bool keys_have(const char *key); /* whether it is a top-level key of a table */
/* The usage error for an option on the command line that is such a key, with '-' for '_'; OK if it is not. */
MUST_USE Status keys_refuse_option(const Invocation *call, const char *typed);
void keys_offer(Suggestion *suggestion);
/* After all keys: sets options that several keys determine together, and warns about keys without effect. */
MUST_USE Status keys_finish(Invocation *call);
/* After the command line was parsed: derives options from the final values, such as the missing one of batch,
 * micro-batch and accumulation. */
MUST_USE Status keys_settle(Invocation *call);

/* For the tables: */
MUST_USE Status keys_take_in(Invocation *call, const KeyTable *table, json_t *object);
MUST_USE Status key_must_be(const Invocation *call, const char *path, const char *expected);
MUST_USE Status key_set_text(Invocation *call, const char *option, const char *path, const char *text);
MUST_USE Status key_set_number(Invocation *call, const char *option, const char *path, double number);
/* Sets the option to what `words` has for the value, which is returned. */
enum { KEY_WORD = 32 };
MUST_USE Status key_set_word(Invocation *call, const Key *key, const json_t *value, char ret_ours[KEY_WORD]);
/* The name of an optimizer. PyTorch's SGD, unlike weft's, has no momentum by default. */
MUST_USE Status key_take_optimizer(Invocation *call, const Key *key, json_t *value);
/* The minimum learning rate as a fraction of the learning rate. */
MUST_USE Status key_take_min_ratio(Invocation *call, const Key *key, json_t *value);
MUST_USE Status key_unused(Invocation *call, const char *path, const json_t *value);
MUST_USE Status huggingface_finish(Invocation *call);

#endif
