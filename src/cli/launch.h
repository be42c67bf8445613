/* Running a command on several ranks: joins the ranks started by a launcher, or starts them. */
#ifndef WEFT_CLI_LAUNCH_H
#define WEFT_CLI_LAUNCH_H

#include "cli/command.h"

/* If a launcher started this process, joins the other ranks: *ret_here is true and call->world is the group
 * of all. Otherwise, if `ranks` > 1, runs the same command line on that many ranks and waits; *ret_here is
 * false. `ranks` 0: accepts any number of launched ranks. `stops`: the command handles SIGUSR1 like SIGINT,
 * so that Ctrl-C lets it finish its step; otherwise Ctrl-C terminates the ranks. */
MUST_USE Status launch(Invocation *call, int64_t ranks, bool stops, bool *ret_here);
/* Sets call->world if a launcher started this process; does nothing otherwise. Ends the process with a
 * message if the ranks have not connected within `limit_s`; 0: no limit. */
MUST_USE Status launch_join(Invocation *call, double limit_s);
/* The two parts of it, under a launcher: connecting, and comparing what the ranks were started with. */
MUST_USE Status launch_connect(Invocation *call, double limit_s);
MUST_USE Status launch_agree(Invocation *call);

/* Whether the launcher was started by weft. */
bool launch_is_ours(void);
/* Where this process reports its progress; NULL on ranks other than 0. */
FILE *launch_log(const Invocation *call);
/* Whether this process should print warnings: one does, also when ranks are started. */
bool launch_may_warn(void);
/* After a failure under a launcher: whether this rank should report it. */
bool launch_may_report(const Invocation *call);
/* The exit code of this process at the end of a command that ended with `code` on all ranks. */
int launch_exit_code(int code);
/* Tells the process that started the launcher why the ranks end: with this code, whatever is tried again. */
void launch_tell_code(int code);
/* Terminates all ranks. */
void launch_end(const Invocation *call, int exit_code);

/* ---- how to continue a run that has failed ---- */

/* Text to append to an error: the newest checkpoint in --out and the command that continues from it. Empty if
 * the command has no run directory. */
MUST_USE Status resume_hint(const Invocation *call, char **ret_text);

/* Whether the command resumes a run that has a checkpoint, so that nothing is lost if it is stopped early. */
bool resume_finds(const Invocation *call);

/* Whether the run has been stopped since that time (CLOCK_REALTIME) and all its steps are in a checkpoint. */
bool resume_saved(const Invocation *call, double since);

#endif
