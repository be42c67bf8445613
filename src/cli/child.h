/* Running this same program with another command line, in a process of its own. */
#ifndef WEFT_CLI_CHILD_H
#define WEFT_CLI_CHILD_H

#include "base/status.h"

typedef struct Child {
    char *const *argv; /* NULL-terminated, from the command on */
    const char *log;   /* file that what it says is appended to */
    FILE *show;        /* where it also shows, line by line; NULL: nowhere */
} Child;

typedef struct ChildEnd {
    int code;    /* 0: all went well */
    char *error; /* the sentence that says why it did not; NULL: it gave none. To free */
} ChildEnd;

/* Waits for its end. Ctrl-C and SIGTERM are handed on to it, so that it can end in its own time. */
MUST_USE Status child_run(const Child *child, ChildEnd *ret_end);
/* Whether a person asked to stop since the first child was started, or children_heed was called. */
bool children_stopped(void);
void children_heed(void);

#endif
