/* A fuzz target gives these two functions; driver.c mutates the seeds and runs them. What must never
 * happen is a crash, a hang, a leak or a result out of its range: check results with fuzz_require. The
 * name of the first is libFuzzer's, which can therefore drive a target too. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { FUZZ_INPUT_LIMIT = 1 << 16 };

/* Reads one input, checks what came of it, returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes valid input number `index` to out (of FUZZ_INPUT_LIMIT bytes) and returns its size; 0 past the
 * last. */
size_t fuzz_seed(size_t index, uint8_t *out);

static inline size_t fuzz_seed_text(const char *text, uint8_t *out) {
    size_t size = strlen(text);
    memcpy(out, text, size);
    return size;
}

#define fuzz_require(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* A failure is fine as long as it says something; true when the call succeeded. */
static inline bool fuzz_succeeded(Status status) {
    if (!status) return true;
    int code = status_exit_code(status);
    fuzz_require(status_message(status)[0] && (code == 1 || code == 2));
    status_free(status);
    return false;
}

#endif
