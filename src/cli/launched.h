/* Waiting for a launcher and its ranks; see launched.c. */
#ifndef WEFT_CLI_LAUNCHED_H
#define WEFT_CLI_LAUNCHED_H

#include <sys/types.h>

#include "base/status.h"
#include "cli/command.h"
#include "comm/group.h"

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

#endif
