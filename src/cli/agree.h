/* Compares what the ranks of a command were started with: program, options, files. */
#ifndef WEFT_CLI_AGREE_H
#define WEFT_CLI_AGREE_H

#include "cli/command.h"

/* Collective over call->world. Fails on all ranks with one message if they differ. */
MUST_USE Status agree_on_start(const Invocation *call);

#endif
