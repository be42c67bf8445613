/* Included by every test: cmocka, and assertions on a Status. */
#ifndef WEFT_TESTS_TEST_H
#define WEFT_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

/* Not every test uses the state that cmocka passes to it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Under the sanitizers, which are slow, some tests run a part of their cases: what the sanitizers find shows
 * up in any of them, and the release build runs all. */
#ifdef WEFT_SANITIZED
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

/* Asserts that the call succeeds; prints the status message and its trace if not. */
#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        Status assert_status_ = (call);                                                                      \
        if (assert_status_) {                                                                                \
            print_error("%s\n", status_message(assert_status_));                                             \
            status_print_trace(assert_status_, stderr);                                                      \
            status_free(assert_status_);                                                                     \
            fail_msg("%s", #call);                                                                           \
        }                                                                                                    \
    } while (0)

/* Asserts that the call fails with exit code `code` and a message that contains `text`. */
#define assert_fails(call, code, text)                                                                       \
    do {                                                                                                     \
        Status assert_status_ = (call);                                                                      \
        if (!assert_status_) fail_msg("%s succeeded", #call);                                                \
        if (!strstr(status_message(assert_status_), text))                                                   \
            fail_msg("expected '%s' in: %s", text, status_message(assert_status_));                          \
        assert_int_equal(status_exit_code(assert_status_), code);                                            \
        status_free(assert_status_);                                                                         \
    } while (0)

#endif
