/* Starting ranks again after a failure (--max-restarts); see restarts.c. */
#ifndef WEFT_CLI_RESTARTS_H
#define WEFT_CLI_RESTARTS_H

#include "cli/command.h"

enum { RESTART_WORDS = 12 };

typedef struct Restarts {
    const Invocation *call;
    int64_t left;       /* restarts */
    int64_t ranks, dp;  /* of the next start */
    int64_t failures;   /* in a row without a new checkpoint in between */
    char *checkpoint;   /* the newest one at the last start; NULL: none */
    bool saved;         /* a start has saved a checkpoint */
    char broken[256];   /* hosts of ranks that failed since the newest checkpoint, or were lost */
    char *hosts;        /* those of the next start, without the broken ones; NULL: all */
    char values[5][24]; /* numbers among the words */
    const char *words[RESTART_WORDS]; /* options for the ranks, to follow those of the command line */
    size_t word_count;
} Restarts;

Restarts restarts_new(const Invocation *call, int64_t ranks);
void restarts_done(Restarts *restarts);
/* After a start that failed with `failure`, which may be OK, on `host`, which may be empty: if another one is
 * allowed, warns and prepares it. */
bool restarts_next(Restarts *restarts, const Status failure, const char *host);

#endif
