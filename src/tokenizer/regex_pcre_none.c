/* Replaces regex_pcre.c in a build without PCRE2. */
#include "tokenizer/regex_pcre.h"

bool regex_pcre_exists(void) {
    return false;
}

Status regex_pcre_new(Pcre **ret_pcre, const char *translated, const char *pattern, const char *from) {
    (void)ret_pcre, (void)translated;
    return FAILED(
        "%s: the pattern '%.200s' needs a build of weft with PCRE2: install libpcre2-dev and build again",
        from, pattern);
}

void regex_pcre_free(Pcre *pcre) {
    (void)pcre;
}

void regex_pcre_scratch_free(PcreScratch *scratch) {
    (void)scratch;
}

bool regex_pcre_can_be_empty(const Pcre *pcre) {
    (void)pcre;
    return false;
}

Status regex_pcre_find(const Pcre *pcre, RegexScratch *scratch, const char *text, size_t size, size_t at,
                       size_t *ret_start, size_t *ret_end) {
    (void)pcre, (void)scratch, (void)text, (void)at;
    *ret_start = *ret_end = size;
    return FAILED("internal: built without PCRE2");
}
