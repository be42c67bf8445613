/* Errors are values.
 *
 * A Status is NULL when all went well and otherwise owns an Error: one sentence for the person,
 * the exit code it asks for and the trace of calls it came through. Functions that can fail return
 * a Status and put their results into `ret_` arguments, which stay untouched on failure. Nothing
 * below src/cli prints, exits or aborts.
 */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum {
    STATUS_FAILED = 1, /* the work failed: exit code 1 */
    STATUS_USAGE = 2,  /* the request was wrong: exit code 2 */
} StatusKind;

typedef struct Error Error;
typedef Error *Status;

#define OK                      ((Status)NULL)
#define MUST_USE                __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

MUST_USE Status status_new(StatusKind kind, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Adds one frame to the trace; used by TRY. */
MUST_USE Status status_trace(Status status, const char *file, int line);
/* Puts "context: " before the message. */
MUST_USE Status status_wrap(Status status, const char *fmt, ...) PRINTF_LIKE(2, 3);

const char *status_message(Status status);
int status_exit_code(Status status); /* 0 for OK */
void status_print_trace(Status status, FILE *to);
void status_free(Status status);
void status_freep(Status *status);

#define FAILED(...) status_new(STATUS_FAILED, __FILE__, __LINE__, __VA_ARGS__)
#define USAGE(...)  status_new(STATUS_USAGE, __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the calling function when the call failed. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        Status try_status_ = (call);                                                                         \
        if (try_status_) return status_trace(try_status_, __FILE__, __LINE__);                               \
    } while (0)

/* CLEANUP(foo_freep) Foo *foo = NULL;  runs foo_freep(&foo) when the scope is left, which is use enough. */
#define CLEANUP(func) __attribute__((cleanup(func), unused))

/* Declares name_freep(Type **) for CLEANUP, from name_free(Type *). */
#define DEFINE_FREEP(type, name)                                                                             \
    static inline void name##_freep(type **p) {                                                              \
        name##_free(*p);                                                                                     \
        *p = NULL;                                                                                           \
    }

#endif
