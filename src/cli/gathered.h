/* With --gather-checkpoints, only rank 0 reads configuration files, a run's config.json among them. */
#ifndef WEFT_CLI_GATHERED_H
#define WEFT_CLI_GATHERED_H

#include "cli/command.h"

#define GATHER_OPTION "gather-checkpoints"

/* Whether this is a rank other than 0 and the command line has the option, so that its options are complete
 * only after gathered_options. */
bool gathered_follows(int argc, char **argv);
/* If the command line has the option: joins the other ranks, and rank 0 sends its configuration file to
 * them, which then parse the command line again; *call is replaced there. Else does nothing. Collective. */
MUST_USE Status gathered_options(Invocation **call, int argc, char **argv);

#endif
