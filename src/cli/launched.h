/* The parts of launch.c. */
#ifndef WEFT_CLI_LAUNCHED_H
#define WEFT_CLI_LAUNCHED_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "cli/command.h"
#include "cli/hosts.h"
#include "comm/group.h"

/* ---- waiting for a launcher and its ranks ---- */

/* A rank prints lines that start like this: followed by the exit code of all; by the host of every rank. */
#define LAUNCHED_CODE  "\001weft exits with code "
#define LAUNCHED_HOSTS "\001weft runs on "

typedef struct LaunchedSpec {
    const Invocation *call;
    const char *name;  /* of the launcher */
    const char *title; /* shown on a terminal until the ranks print something */
    pid_t pid;
    int error;      /* read end of its standard error */
    int results;    /* of its standard output, closed at its end; -1: inherited */
    int signals;    /* read end of a pipe with the numbers of signals that this process received */
    bool elsewhere; /* ranks may run on other hosts */
    bool (*can_grow)(
        void *restarts); /* called every few seconds: whether ranks should stop, to become more */
    void *restarts;
    bool resumes; /* the ranks continue from a checkpoint of an earlier start */
    bool stops;   /* SIGUSR1 asks ranks to stop; otherwise signals terminate the launcher */
} LaunchedSpec;

typedef struct LaunchedFailure {
    bool failed; /* a rank has failed, hung or been killed, or the launcher has failed, nobody asked for
                    a stop, and a restart may help */
    bool grows;  /* the ranks have stopped to become more */
    char host[HOST_SIZE]; /* of that rank, as far as it is known; else empty */
} LaunchedFailure;

/* Copies the launcher's standard error, passes on requests to stop, and waits until all is over. *ret_code is
 * the ranks' exit code, if one of them has reported why it is not 0. *ret_failure is set in any case. */
MUST_USE Status launched_wait(const LaunchedSpec *spec, int *ret_code, LaunchedFailure *ret_failure);

/* ---- the processes below another one ---- */

/* Sends a signal to all running descendants of a process or, if `own`, only to those that run this program.
 * Returns their number; with signal 0 they are only counted. */
int processes_signal(pid_t parent, int number, bool own);
/* A child of a process that is in one of these states, letters as in /proc: "T" is stopped, "Z" has ended.
 * 0: none is. */
pid_t processes_in_state(pid_t parent, const char *states);

/* ---- what the ranks were started with: program, options, files; see agree.c ---- */

/* Collective over call->world. Fails on all ranks with one message if they differ. */
MUST_USE Status agree_on_start(const Invocation *call);

/* ---- starting ranks again after a failure (--max-restarts); see restarts.c ---- */

enum { RESTART_WORDS = 14, HOST_NAMES = 512 };

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
    char values[6][24];               /* numbers among the words */
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
