/* Patterns that PCRE2 matches (regex_pcre.c); regex_pcre_none.c replaces it in a build without PCRE2. */
#ifndef WEFT_TOKENIZER_REGEX_PCRE_H
#define WEFT_TOKENIZER_REGEX_PCRE_H

#include "tokenizer/regex.h"

typedef struct Pcre Pcre;
/* Match data of one thread. */
typedef struct PcreScratch PcreScratch;

/* Whether this build has PCRE2; if not, regex_pcre_new says so. */
bool regex_pcre_exists(void);
/* `translated` by regex_translate from `pattern`, which errors quote. */
MUST_USE Status regex_pcre_new(Pcre **ret_pcre, const char *translated, const char *pattern,
                               const char *from);
void regex_pcre_free(Pcre *pcre);
void regex_pcre_scratch_free(PcreScratch *scratch);
bool regex_pcre_can_be_empty(const Pcre *pcre);
/* As regex_find. */
MUST_USE Status regex_pcre_find(const Pcre *pcre, RegexScratch *scratch, const char *text, size_t size,
                                size_t at, size_t *ret_start, size_t *ret_end);

#endif
