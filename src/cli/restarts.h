/* Starting ranks again after a failure (--max-restarts); see restarts.c. */
#ifndef WEFT_CLI_RESTARTS_H
#define WEFT_CLI_RESTARTS_H

#include "cli/command.h"
#include "cli/hostlist.h"
#include "cli/reach.h"

enum { RESTART_WORDS = 12, HOST_NAMES = 512 };

typedef struct Restarts {
    const Invocation *call;
    HostList list;                    /* all hosts; empty: unknown */
    bool asks;                        /* ssh reaches hosts, so they can be asked whether they answer */
    int64_t left;                     /* restarts */
    int64_t ranks, dp;                /* of the next start */
    int64_t failures;                 /* in a row without a new checkpoint in between */
    char *checkpoint;                 /* the newest one at the last start, or asked about since; NULL: none */
    bool saved, moved;                /* a start has saved a checkpoint; the last one has */
    char broken[HOST_NAMES];          /* hosts of ranks that failed since the newest checkpoint */
    char lost[HOST_NAMES];            /* hosts that do not answer */
    char without[HOST_NAMES];         /* hosts that the next start leaves out */
    char *hosts;                      /* those of the next start; NULL: all */
    Reach *asked;                     /* the lost hosts, while the others train; NULL: not asked */
    char values[5][24];               /* numbers among the words */
    const char *words[RESTART_WORDS]; /* options for the ranks, to follow those of the command line */
    size_t word_count;
} Restarts;

MUST_USE Status restarts_new(const Invocation *call, int64_t ranks, Restarts *ret_restarts);
void restarts_done(Restarts *restarts);
/* After a start that failed with `failure`, which may be OK, on `host`, which may be empty: if another one is
 * allowed, warns, waits and prepares it. Fails if it is asked to stop meanwhile. */
MUST_USE Status restarts_next(Restarts *restarts, const Status failure, const char *host, bool *ret_again);
/* Whether ranks that start now may be stopped to become more: if hosts are lost. */
bool restarts_may_grow(const Restarts *restarts);
/* While ranks run, every few seconds: true if lost hosts answer again, with which more ranks can run. They
 * are asked after each new checkpoint. The ranks then stop, and restarts_grow prepares the start of more. */
bool restarts_can_grow(Restarts *restarts);
void restarts_grow(Restarts *restarts);

#endif
