/* How to continue a run that has failed. */
#ifndef WEFT_CLI_RESUME_HINT_H
#define WEFT_CLI_RESUME_HINT_H

#include "cli/command.h"

/* Text to append to an error: the newest checkpoint in --out and the command that continues from it. Empty if
 * the command has no run directory. */
MUST_USE Status resume_hint(const Invocation *call, char **ret_text);

/* Whether the command resumes a run that has a checkpoint, so that nothing is lost if it is stopped early. */
bool resume_finds(const Invocation *call);

#endif
