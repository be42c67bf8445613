/* Errors of standard output. */
#ifndef WEFT_CLI_STDOUT_H
#define WEFT_CLI_STDOUT_H

#include "base/status.h"

/* To be called after a write to stdout has failed. If the reader of a pipe has ended, as `head` does when it
 * has enough, the process ends quietly, with exit code 0. A rank of several reports an error even then,
 * because the other ranks would otherwise wait for it. */
MUST_USE Status stdout_failed(void);

#endif
