/* Errors of standard output. */
#ifndef WEFT_CLI_STDOUT_H
#define WEFT_CLI_STDOUT_H

#include "base/status.h"

/* To be called after a write to stdout has failed. If the reader of a pipe has ended, as `head` does when it
 * has enough, the process ends quietly, with exit code 0. A rank of several reports an error even then,
 * because the other ranks would otherwise wait for it. */
MUST_USE Status stdout_failed(void);

/* For results of ranks whose launcher could not write them: `error` is errno; 0 if all were written. It is no
 * failure if the reader has ended. */
MUST_USE Status stdout_check(int error);

#endif
