/* Errors are values.
 *
 * A Status is NULL on success; otherwise it owns an Error: one sentence for the user, an exit code and a call
 * trace. Functions that can fail return a Status and store results through `ret_` arguments, which stay
 * untouched on failure. Nothing below src/cli prints, exits or aborts.
 */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum {
    STATUS_FAILED = 1, /* exit code 1 */
    STATUS_USAGE = 2,  /* wrong usage or configuration: exit code 2 */
    STATUS_STOPPED,    /* stopped on request, usually by a signal: exit code 1 */
    STATUS_DIVERGED,   /* NaN or Inf where training needs numbers: exit code 1 */
    STATUS_DAMAGED,    /* the contents of a file are damaged or invalid: exit code 1 */
    STATUS_REFUSED,    /* there is not enough memory, disk space or data to start: exit code 1 */
    STATUS_SAVED = 75, /* stopped, and everything done so far is in a checkpoint: exit code 75 */
} StatusKind;

typedef struct Error Error;
typedef Error *Status;

#define OK                      ((Status)NULL)
#define MUST_USE                __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

MUST_USE Status status_new(StatusKind kind, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Appends a frame to the trace. Used by TRY. */
MUST_USE Status status_trace(Status status, const char *file, int line);
/* Prefixes the message with "context: ". */
MUST_USE Status status_wrap(Status status, const char *fmt, ...) PRINTF_LIKE(2, 3);

const char *status_message(Status status);
int status_exit_code(Status status); /* 0 for OK */
bool status_stopped(Status status);  /* whether it was created by STOPPED or STOPPED_SAVED */
bool status_diverged(Status status); /* whether it was created by DIVERGED */
bool status_damaged(Status status);  /* whether it was created by DAMAGED */
bool status_repeats(Status status);  /* whether another start would fail, too: DIVERGED, REFUSED */
StatusKind status_kind(Status status);
void status_print_trace(Status status, FILE *to);
void status_free(Status status);
void status_freep(Status *status);

#define FAILED(...) status_new(STATUS_FAILED, __FILE__, __LINE__, __VA_ARGS__)
#define USAGE(...)  status_new(STATUS_USAGE, __FILE__, __LINE__, __VA_ARGS__)
/* Long loops check for a stop request between pieces of work and return this. The message starts with
 * "stopped". */
#define STOPPED(...)  status_new(STATUS_STOPPED, __FILE__, __LINE__, __VA_ARGS__)
#define DIVERGED(...) status_new(STATUS_DIVERGED, __FILE__, __LINE__, __VA_ARGS__)
#define DAMAGED(...)  status_new(STATUS_DAMAGED, __FILE__, __LINE__, __VA_ARGS__)
#define REFUSED(...)  status_new(STATUS_REFUSED, __FILE__, __LINE__, __VA_ARGS__)

#define STOPPED_SAVED(...) status_new(STATUS_SAVED, __FILE__, __LINE__, __VA_ARGS__)

/* Returns the failure from the calling function. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        Status try_status_ = (call);                                                                         \
        if (try_status_) return status_trace(try_status_, __FILE__, __LINE__);                               \
    } while (0)

/* CLEANUP(foo_freep) Foo *foo = NULL;  runs foo_freep(&foo) on leaving the scope. */
#define CLEANUP(func) __attribute__((cleanup(func), unused))

/* return MOVE(ret_foo, foo);  hands foo over to the caller and empties it, so that its CLEANUP does nothing.
 */
#define MOVE(ret, value) (*(ret) = (value), __builtin_memset(&(value), 0, sizeof(value)), OK)

/* Defines name_freep(Type **), for CLEANUP, from name_free(Type *). */
#define DEFINE_FREEP(type, name)                                                                             \
    static inline void name##_freep(type **p) {                                                              \
        name##_free(*p);                                                                                     \
        *p = NULL;                                                                                           \
    }

#endif
