/* Running this program with another command line, in a child process. */
#ifndef WEFT_CLI_CHILD_H
#define WEFT_CLI_CHILD_H

#include "base/status.h"

typedef struct Child {
    char *const *argv; /* NULL-terminated, starting with the command */
    const char *log;   /* file to append its standard error to */
    FILE *show;        /* also show it here, line by line; may be NULL */
} Child;

typedef struct ChildEnd {
    int code;    /* exit code; 0: success */
    char *error; /* its error message, owned by the caller; NULL if it gave none */
} ChildEnd;

/* Runs the child and waits for it. Forwards Ctrl-C and SIGTERM, so that the child can stop cleanly. */
MUST_USE Status child_run(const Child *child, ChildEnd *ret_end);
/* Whether a signal requested a stop since children_watch_signals or the first child_run. */
bool children_stopped(void);
void children_watch_signals(void);

#endif
