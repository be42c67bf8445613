/* Running this program with another command line, in a child process. */
#ifndef WEFT_CLI_CHILD_H
#define WEFT_CLI_CHILD_H

#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct Child {
    char *const *argv; /* NULL-terminated, starting with the command */
    const char *log;   /* file to append its standard error to */
    FILE *show;        /* also show it here, line by line; may be NULL */
    const char *out;   /* file for its standard output; NULL: dropped */
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

/* ---- passing on what a child process prints to a terminal; see relay.c ---- */

enum { RELAY_BUFFER = 4096 };

typedef struct Relay {
    FILE *out;   /* usually stderr; NULL: shows no progress */
    int in;      /* the child's standard error */
    int results; /* its standard output, passed on to this process's; -1: not relayed */
    int wake;    /* also waited for; `on_wake` reads it, and is called every few seconds. -1: none */
    void (*on_wake)(void *context);
    void *context;
    int unwritten; /* errno of results that could not be passed on; 0: none */
    double woken;  /* when it was called, or the relay started; 0: not yet */
    bool drawn;    /* a progress line is on the terminal */
    size_t at, have;
    char buffer[RELAY_BUFFER];
} Relay;

/* Tells child processes whether a terminal is behind `out`, and its width. `out` NULL: no terminal. */
MUST_USE Status relay_announce(FILE *out);
/* Like getline on `in`, but draws the progress lines that come before the next complete line. Erases the
 * progress line before it returns. */
ssize_t relay_line(Relay *relay, char **line, size_t *capacity);
/* Writes results to standard output; returns 0 or errno. */
int relay_results(const char *block, size_t size);
/* Shows a progress line of this process; "" erases it. Does nothing without a terminal. */
void relay_draw(Relay *relay, const char *text);

#endif
