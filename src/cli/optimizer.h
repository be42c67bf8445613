/* Options whose defaults depend on --optimizer. */
#ifndef WEFT_CLI_OPTIMIZER_H
#define WEFT_CLI_OPTIMIZER_H

#include "cli/command.h"

/* Sets the options that were not given to the defaults of the optimizer, from its row in optim/optim.h, and
 * warns about options that it does not have. Does nothing for a command without these options. */
MUST_USE Status optimizer_settle(Invocation *call);

#endif
