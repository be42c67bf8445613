/* The result of a verification (verify/verify.h) in words, and as a page. */
#ifndef WEFT_REPORT_PAGE_VERIFY_H
#define WEFT_REPORT_PAGE_VERIFY_H

#include "base/json.h"

enum { VERIFY_TEXT = 512 };

/* "All 431 checks passed in 58 s: ...", or how many failed; returns `text`. */
const char *verify_verdict(const json_t *result, char text[VERIFY_TEXT]);
/* What differs in a failure and by how much, and on which ranks; both return `text`. */
const char *verify_what(const json_t *failure, char text[VERIFY_TEXT]);
const char *verify_ranks(const json_t *failure, char text[VERIFY_TEXT]);

MUST_USE Status page_write_verify(const json_t *result, const char *path);

#endif
