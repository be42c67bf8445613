/* Regular expressions of tokenizer files, with Oniguruma's semantics: alternatives are tried in order,
 * repetition is greedy and backtracks. Supported:
 *
 *   literals  .  $  [...] with ranges, nested classes, [:alpha:], ^ and &&  \s \S \d \D \w \W \h  \p{L}
 * \P{Lu} \p{^Han} \r \n \t \f \v \x41 \x{3000} \u3000   (...) (?:...) (?i:...) of ASCII   (?=...) (?!...)   |
 *   ? * + {n} {n,} {n,m} {,m}   and possessive ?+ *+ ++
 *
 * in a pattern that cannot match the empty string and has no repetition inside a repeated group. Other
 * patterns are translated for PCRE2, which adds
 *
 *   ^ \A \z \Z \b \B \R   (?<=...) (?<!...) of fixed length   (?>...) (?<name>...) (?i) (?m:...) (?#...) lazy
 * ?? *? +? {n,m}?
 *
 * Anything else is refused by name. Properties are those of unicode.h in both cases. A byte that is not valid
 * UTF-8 is a character without properties: only negated classes and . match it, and nothing does with PCRE2.
 */
#ifndef WEFT_TOKENIZER_REGEX_H
#define WEFT_TOKENIZER_REGEX_H

#include "tokenizer/unicode.h"

typedef struct Regex Regex;

/* `from` names the source in errors. */
MUST_USE Status regex_new(Regex **ret_regex, const char *pattern, size_t size, const char *from);
/* The same for a pattern whose matches are to be replaced. */
MUST_USE Status regex_new_replacing(Regex **ret_regex, const char *pattern, size_t size, const char *from);
void regex_free(Regex *regex);
DEFINE_FREEP(Regex, regex)

/* A place to return to when the current attempt fails. The range low .. at is that of a loop, which may give
 * back its characters one by one. */
typedef struct RegexFrame {
    uint32_t op;
    size_t low, at;
} RegexFrame;

/* Workspace of a search; initialize with {0}. */
typedef struct RegexScratch {
    RegexFrame *stack;
    size_t count, capacity;
    size_t seen; /* the search depended only on the bytes before this offset; size + 1: also on the end of the
                    text */
    uint64_t steps;
    struct PcreScratch *pcre;
} RegexScratch;

void regex_scratch_done(RegexScratch *scratch);

/* Finds the first match at or after offset `at` <= size. *ret_start and *ret_end are `size` if there is none.
 * A match may be empty. Fails if matching takes too many steps, or memory runs out. */
MUST_USE Status regex_find(const Regex *regex, RegexScratch *scratch, const char *text, size_t size,
                           size_t at, size_t *ret_start, size_t *ret_end);

/* ---- shared by regex.c and regex_parse.c ---- */

typedef enum {
    REGEX_CHAR,      /* one of up to three characters */
    REGEX_SET,       /* a character of a set, `low` to `high` times */
    REGEX_SPLIT,     /* tries `next`, then `other` */
    REGEX_JUMP,      /* goes on at `next` */
    REGEX_AHEAD,     /* the operations from `next` on match here; goes on at `other` */
    REGEX_NOT_AHEAD, /* they do not */
    REGEX_LINE_END,
    REGEX_MATCH
} RegexOpKind;

#define REGEX_UNLIMITED UINT32_MAX

typedef struct RegexOp {
    RegexOpKind kind;
    bool possessive;
    const CharSet *set;
    uint32_t chars[3]; /* unused ones repeat the first */
    uint32_t low, high, next, other;
    uint64_t ascii[2]; /* REGEX_SPLIT: the ASCII characters that `next` can start with */
} RegexOp;

struct Regex {
    RegexOp *ops;
    size_t count, capacity;
    CharSet **sets; /* distinct */
    size_t set_count, set_capacity;
    CharSet first;     /* characters that a match can start with */
    struct Pcre *pcre; /* instead of `ops` */
};

#endif
