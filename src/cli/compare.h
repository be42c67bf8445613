/* Runs of recipes, for the commands that start or plan them. */
#ifndef WEFT_CLI_COMPARE_H
#define WEFT_CLI_COMPARE_H

#include "cli/command.h"
#include "compare/predict.h"

/* What `weft train` would execute. */
MUST_USE Status compare_settle(const Invocation *train, RunSpec *ret_run);

#endif
