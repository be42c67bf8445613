/* The hosts on which a launcher starts ranks: --hosts, --hostfile, or those of a batch system. */
#ifndef WEFT_CLI_HOSTS_H
#define WEFT_CLI_HOSTS_H

#include "cli/command.h"

/* Whether the command has --hosts or --hostfile. */
bool hosts_named(const Invocation *call);
bool hosts_on_line(const Invocation *call); /* the same, on the command line and not in a file */
/* Whether rank 0 runs on this host, as far as it is known before the start. */
bool hosts_start_here(const Invocation *call);
/* Whether the launcher's own explanations are wanted. */
bool hosts_verbose(const Invocation *call);
/* Whether a batch system or the user tells the launcher on which nodes to start ranks. */
bool hosts_allocated(void);

/* Number of variables that ranks on other hosts need; hosts_add adds up to two words for each and HOST_WORDS.
 */
enum { HOST_WORDS = 2 };
size_t hosts_variables(void);
/* Adds the launcher's options for the hosts and the variables at argv[*at]. *ret_names owns strings in argv;
 * it stays untouched without hosts. */
MUST_USE Status hosts_add(const Invocation *call, char **argv, size_t *at, char **ret_names);

/* The failure of a launcher that ended before any rank ran, for a command with --hosts or --hostfile. Asks
 * the hosts: *ret_named is whether the message names those that do not answer, *ret_asks whether ssh asks
 * something. */
MUST_USE Status hosts_unreached(const Invocation *call, const char *launcher, bool *ret_named,
                                bool *ret_asks);
/* With --log-ranks: the launcher's option for files with what each rank prints, and its value for the first
 * start (0) or a later one, which replaces the one before. Both stay untouched without --log-ranks. */
bool hosts_log_on_line(const Invocation *call); /* given on the command line and not in a file */
MUST_USE Status hosts_log(const Invocation *call, int64_t start, char **ret_option, char **ret_dir);
/* The launcher's option for a list of hosts. */
const char *hosts_option(void);

#endif
