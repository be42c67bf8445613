/* Commands that run as several ranks: joining those that a launcher started, or starting them. */
#ifndef WEFT_CLI_LAUNCH_H
#define WEFT_CLI_LAUNCH_H

#include "cli/command.h"

/* Has the same command line run as `ranks` ranks, or, where a launcher started this process as one of
 * several, joins the others: then *ret_here is true and call->world is the group of all. `ranks` 0 stands
 * for as many as there are. A command that catches SIGUSR1 as it does SIGINT can `stop` in its own time when
 * a person presses Ctrl-C; others are ended. */
MUST_USE Status launch(Invocation *call, int64_t ranks, bool stops, bool *ret_here);
/* Only the joining: call->world where a launcher started this process, otherwise nothing. */
MUST_USE Status launch_join(Invocation *call);

/* After a failure under a launcher: whether this rank is the one to report it. */
bool launch_may_report(const Invocation *call);
/* Ends the other ranks too. */
void launch_end(const Invocation *call, int exit_code);

#endif
