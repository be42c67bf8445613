/* Interface of a fuzz target: it defines the two functions below, and driver.c mutates the seeds and runs it.
 * A target must not crash, hang, leak or accept input with results out of range, which fuzz_require() checks.
 * The first function has libFuzzer's name, so libFuzzer can drive targets too. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { FUZZ_INPUT_LIMIT = 1 << 16 };

/* Parses one input and checks the results. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes valid input number `index` to out (FUZZ_INPUT_LIMIT bytes) and returns its size, or 0 past the last.
 */
size_t fuzz_seed(size_t index, uint8_t *out);

static inline size_t fuzz_seed_text(const char *text, uint8_t *out) {
    size_t size = strlen(text);
    memcpy(out, text, size);
    return size;
}

#define fuzz_require(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition);                    \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* Returns whether the call succeeded. A failure is fine if it has a message and a valid exit code. */
static inline bool fuzz_succeeded(Status status) {
    if (!status) return true;
    int code = status_exit_code(status);
    fuzz_require(status_message(status)[0] && (code == 1 || code == 2));
    status_free(status);
    return false;
}

#endif
